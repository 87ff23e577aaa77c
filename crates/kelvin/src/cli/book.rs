//! Every command line of kelvin in the README and the book, parsed by the real command line.

use kelvin_core::IndirectSort;
use std::ffi::OsString;
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use clap::error::ErrorKind;
use clap::{Command as Flags, CommandFactory, FromArgMatches};

use super::{Cli, join_negative_values, with_named_study};
use crate::cli_error::CliError;

/// Programs that start the command that follows their own options.
const LAUNCHERS: [&str; 8] = ["ssh", "srun", "mpirun", "mpiexec", "systemd-run", "nohup", "taskset", "xargs"];
/// Words of the shell before a command.
const SHELL_WORDS: [&str; 6] = ["do", "then", "if", "while", "!", "time"];
/// What ends a simple command.
const SEPARATORS: [&str; 7] = ["|", "||", "&", "&&", ";", "\n", ")"];

/// The words and separators of lines of a shell, as far as the book uses it.
fn shell_tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            '\'' | '"' => {
                let quoted: String = letters.by_ref().take_while(|&next| next != letter).collect();
                word.get_or_insert_default().push_str(&quoted);
            }
            // What a variable or a command stands for is one word.
            '$' if letters.peek().is_some_and(|&next| next == '(' || next.is_ascii_alphabetic()) => {
                skip_substitution(&mut letters);
                word.get_or_insert_default().push('1');
            }
            '#' if word.is_none() => while letters.next_if(|&next| next != '\n').is_some() {},
            '\n' | '|' | '&' | ';' | ')' => {
                tokens.extend(word.take());
                let doubled = letters.next_if(|&next| next == letter && letter != '\n' && letter != ')').is_some();
                tokens.push(if doubled { format!("{letter}{letter}") } else { letter.to_string() });
            }
            ' ' | '\t' => tokens.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    tokens.extend(word);
    tokens
}

/// Skips the name of a variable, or a command in parentheses.
fn skip_substitution(letters: &mut Peekable<Chars<'_>>) {
    if letters.peek() != Some(&'(') {
        while letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_').is_some() {}
        return;
    }
    let mut depth = 0;
    for letter in letters.by_ref() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if depth == 0 {
            break;
        }
    }
}

/// The words after `kelvin` in each simple command that runs it.
fn kelvin_commands(text: &str) -> Vec<Vec<String>> {
    let tokens = shell_tokens(text);
    let is_separator = |token: &String| SEPARATORS.contains(&token.as_str());
    let simple_commands = tokens.split(is_separator).filter_map(|words| {
        let is_before_command = |word: &&String| {
            let is_assignment = word
                .split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'));
            word.ends_with('$') || *word == "sudo" || SHELL_WORDS.contains(&word.as_str()) || is_assignment
        };
        let start = words.iter().position(|word| !is_before_command(&word))?;
        let is_cron_line = words[start].chars().all(|letter| letter.is_ascii_digit() || letter == '*');
        let starts_another = LAUNCHERS.contains(&words[start].as_str()) || is_cron_line;
        let program = if starts_another { words.iter().position(|word| word == "kelvin")? } else { start };
        (words[program] == "kelvin").then(|| without_redirections(&words[program + 1..]))
    });
    simple_commands.collect()
}

/// The words before the first redirection: the book has it at the end.
fn without_redirections(words: &[String]) -> Vec<String> {
    let is_redirection =
        |word: &String| word.trim_start_matches(|letter: char| letter.is_ascii_digit()).starts_with(['>', '<']);
    words.iter().take_while(|word| !is_redirection(word)).cloned().collect()
}

/// How far a command line must be complete.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    /// It can be run as it stands.
    Whole,
    /// It stands within a sentence: arguments may be left out, or named by capital letters.
    Named,
}

/// The command lines of a page: those of its blocks of commands, and those within its sentences.
fn command_lines(page: &str) -> Vec<(Extent, Vec<String>)> {
    let mut lines = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        if index % 2 == 0 {
            let spans = part.split('`').skip(1).step_by(2).filter(|span| span.starts_with("kelvin "));
            lines.extend(spans.flat_map(kelvin_commands).map(|words| (Extent::Named, words)));
            continue;
        }
        let (language, block) = part.split_once('\n').unwrap_or_default();
        let text = match language {
            "sh" => block.to_owned(),
            // Other lines are output.
            "console" => block
                .lines()
                .filter(|line| line.split(' ').next().is_some_and(|word| word.ends_with('$')))
                .collect::<Vec<_>>()
                .join("\n"),
            "" | "yaml" => {
                block.lines().map(str::trim).filter(|line| line.starts_with("kelvin ")).collect::<Vec<_>>().join("\n")
            }
            _ => continue,
        };
        lines.extend(kelvin_commands(&text).into_iter().map(|words| (Extent::Whole, words)));
    }
    lines
}

/// Whether a word stands for what a reader puts in its place: `FILE`, `[NAME]`, `...`.
fn is_placeholder(word: &str) -> bool {
    word.starts_with(['[', '.', '…']) || word.chars().any(char::is_uppercase) && !word.chars().any(char::is_lowercase)
}

/// Why the program would refuse a command line.
fn fault(cli: &Flags, extent: Extent, words: &[String]) -> Option<String> {
    let is_given = |word: &&String| extent == Extent::Whole || !word.starts_with(['[', '.', '…']);
    let given = words.iter().filter(is_given).map(OsString::from);
    let words: Vec<OsString> = [OsString::from("kelvin")].into_iter().chain(given).collect();
    let command = match command_line(cli, extent, &words) {
        Ok(command) => command,
        Err(error) => return Some(error.to_string()),
    };
    let words = join_negative_values(words, &command);
    let error = command.try_get_matches_from(&words).and_then(|matches| Cli::from_arg_matches(&matches)).err()?;
    (!is_excused(error.kind(), extent, &words)).then(|| error.to_string())
}

/// The command line for these words. Studies are added when all is built, which takes long: else it is built as far as it is parsed.
fn command_line(cli: &Flags, extent: Extent, words: &[OsString]) -> Result<Flags, CliError> {
    let mut command = cli.clone();
    let is_name = |word: &OsString| extent == Extent::Whole || !word.to_str().is_some_and(is_placeholder);
    if words.get(1).is_some_and(|word| word == "study") && words.get(2).is_some_and(is_name) {
        command.build();
        return with_named_study(words, command);
    }
    Ok(command)
}

/// Whether a command line is no mistake of the book: help is asked for, or a sentence leaves something out.
fn is_excused(kind: ErrorKind, extent: Extent, words: &[OsString]) -> bool {
    let mut texts = words.iter().filter_map(|word| word.to_str());
    let ends_with_option = words.last().and_then(|word| word.to_str()).is_some_and(|word| word.starts_with("--"));
    match kind {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        _ if extent == Extent::Whole => false,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue
        | ErrorKind::ValueValidation
        | ErrorKind::InvalidSubcommand
        | ErrorKind::TooFewValues => ends_with_option || texts.any(is_placeholder),
        _ => false,
    }
}

/// The README and the pages of the book, those made from the program's texts too.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directories = ["docs/src", "docs/src/probes"].map(|directory| root.join(directory));
    let files = directories.iter().flat_map(|directory| fs::read_dir(directory).unwrap());
    let files =
        files.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let mut pages: Vec<PathBuf> = [root.join("README.md")].into_iter().chain(files).collect();
    pages.indirect_sort();
    pages
}

#[test]
fn every_command_line_of_the_book_is_parsed() {
    let cli = Cli::command();
    let mut count = 0;
    let mut faults = Vec::new();
    for path in pages() {
        for (extent, words) in command_lines(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            let name = path.file_name().unwrap_or_default().display();
            faults.extend(
                fault(&cli, extent, &words).map(|fault| format!("{name}: kelvin {}: {fault}", words.join(" "))),
            );
        }
    }
    assert!(count > 300, "only {count} command lines were found");
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn command_lines_are_found_in_blocks_and_sentences() {
    let page = "\
`kelvin why METRIC [CASE]` and `kelvin-cluster net`\n```sh\nfor host in a b; do ssh $host kelvin run --tag n=$(x -s) & done; wait\n\
sudo KELVIN_CPU=1 kelvin tune \\\n  --apply   # and kelvin more\nsudo groupadd kelvin\ntar c x | kelvin send - --name 'a b' h > log\n```\n\
```console\nnear$ kelvin list\nkelvin is output\n```\n```text\nkelvin 0.1.0\n```\n";
    let lines: Vec<String> = command_lines(page).into_iter().map(|(_, words)| words.join("|")).collect();
    assert_eq!(lines, ["why|METRIC|[CASE]", "run|--tag|n=1", "tune|--apply", "send|-|--name|a b|h", "list"]);
}

#[test]
fn wrong_command_lines_are_found() {
    let cli = Cli::command();
    let fault_of = |extent, line: &str| fault(&cli, extent, &kelvin_commands(line).concat());
    for wrong in [
        "kelvin ran",
        "kelvin run --bugdet 1m",
        "kelvin file read",
        "kelvin load http://h/ --users few",
        "kelvin study nothing",
    ] {
        assert!(fault_of(Extent::Whole, wrong).is_some(), "{wrong}");
    }
    for right in
        ["kelvin file read", "kelvin run --budget TIME", "kelvin study NAME --help", "kelvin report RUN --full"]
    {
        assert_eq!(fault_of(Extent::Named, right), None, "{right}");
    }
    assert!(fault_of(Extent::Named, "kelvin report --bugdet TIME").is_some());
}
