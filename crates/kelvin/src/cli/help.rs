//! `kelvin help`: the commands by topic, the help of one of them, and concepts.

use std::io::{self, Write};

use clap::{Args, Command as Flags, CommandFactory};

use super::Cli;
use super::spelling::similar_word;
use crate::cli_error::CliError;
use crate::output::{width, write_hanging, write_wrapped};

/// `kelvin help`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A command, such as `file read`, or a topic: units, statistics, store, environment, exit-status [default: all commands]
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<String>,
}

/// Commands that belong together.
struct CommandGroup {
    title: &'static str,
    commands: &'static [&'static str],
}

const GROUPS: [CommandGroup; 5] = [
    CommandGroup { title: "Measure", commands: &["run", "study", "ab", "time", "watch"] },
    CommandGroup {
        title: "Understand",
        commands: &["report", "why", "explain", "list", "compare", "history", "fleet"],
    },
    CommandGroup { title: "Tools", commands: &["file", "digest", "send", "receive", "load", "serve", "net", "agent"] },
    CommandGroup { title: "Machine", commands: &["machine", "tune", "selfcheck"] },
    CommandGroup { title: "Manage", commands: &["runs", "config", "help"] },
];

/// A concept: its name, its summary and its text.
struct Topic {
    name: &'static str,
    summary: &'static str,
    text: &'static str,
}

static TOPICS: [Topic; 5] = [
    Topic {
        name: "units",
        summary: "Sizes, times and percentages, printed and typed",
        text: include_str!("help/topics/units.txt"),
    },
    Topic {
        name: "statistics",
        summary: "What headline, interval, round and verdict mean",
        text: include_str!("help/topics/statistics.txt"),
    },
    Topic {
        name: "store",
        summary: "Where runs are kept, and how they are named",
        text: include_str!("help/topics/store.txt"),
    },
    Topic {
        name: "environment",
        summary: "Environment variables and the file of defaults",
        text: include_str!("help/topics/environment.txt"),
    },
    Topic { name: "exit-status", summary: "What 0, 1 and 2 mean", text: include_str!("help/topics/exit-status.txt") },
];

/// What `kelvin` alone prints: where to begin.
const FIRST_STEPS: &str = include_str!("help/first-steps.txt");

/// Writes where to begin.
///
/// # Errors
/// Those of writing.
pub fn write_first_steps(out: &mut dyn Write) -> io::Result<()> {
    write_text(out, FIRST_STEPS)
}

/// Writes all commands by topic, and the topics.
///
/// # Errors
/// Those of writing.
pub fn write_overview(out: &mut dyn Write) -> io::Result<()> {
    let cli = Cli::command();
    write_wrapped(out, width(), "", &about(&cli))?;
    writeln!(out, "\nUsage: kelvin <COMMAND>")?;
    for CommandGroup { title, commands } in &GROUPS {
        writeln!(out, "\n{title}:")?;
        let commands = commands.iter().filter_map(|name| cli.find_subcommand(name));
        commands.into_iter().try_for_each(|command| write_entry(out, command.get_name(), &about(command)))?;
    }
    writeln!(out, "\nTopics of kelvin help:")?;
    TOPICS.iter().try_for_each(|topic| write_entry(out, topic.name, topic.summary))?;
    writeln!(out, "\nOptions:")?;
    write_entry(out, "-h, --help", "Print help")?;
    write_entry(out, "-V, --version", "Print version")?;
    writeln!(out)?;
    write_wrapped(out, width(), "", "`kelvin COMMAND --help` has the options of a command, and examples.")
}

/// What `kelvin help` prints.
#[derive(Debug)]
pub enum HelpText {
    /// All commands by topic.
    Overview,
    /// A concept.
    Topic(&'static str),
    /// The help of a command.
    Command(String),
}

impl HelpText {
    /// The text that words ask for.
    ///
    /// # Errors
    /// Words that are neither a command nor a topic.
    pub fn find(args: &HelpArgs) -> Result<Self, CliError> {
        match &args.words[..] {
            [] => return Ok(Self::Overview),
            [name] => {
                if let Some(topic) = TOPICS.iter().find(|topic| topic.name == name) {
                    return Ok(Self::Topic(topic.text));
                }
            }
            _ => {}
        }
        let mut cli = Cli::command();
        cli.build();
        let find_sub = |parent: &Flags, word: &String| {
            parent.find_subcommand(word).cloned().ok_or_else(|| unknown_word(word, parent))
        };
        let mut command = args.words.iter().try_fold(cli, |parent, word| find_sub(&parent, word))?;
        Ok(Self::Command(command.render_long_help().to_string()))
    }

    /// Writes it as wide as the terminal.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Overview => write_overview(out),
            Self::Topic(text) => write_text(out, text),
            Self::Command(text) => out.write_all(text.as_bytes()),
        }
    }
}

fn unknown_word(word: &str, parent: &Flags) -> CliError {
    let commands = parent.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Flags::get_name);
    let topics = TOPICS.iter().map(|topic| topic.name);
    let next_step = match similar_word(word, commands.chain(topics)) {
        Some(similar) => format!("a similar one is '{similar}'"),
        None => "`kelvin help` lists them".to_owned(),
    };
    CliError::msg(format!("there is no command and no topic '{word}'; {next_step}"))
}

fn about(command: &Flags) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Columns of a name in a list.
const NAME_WIDTH: usize = 13;

fn write_entry(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    write_hanging(out, &format!("  {name:NAME_WIDTH$}  "), text)
}

/// Writes a text as wide as the terminal: a line that begins with two spaces is an entry, whose second column hangs below its first line;
/// any other is a paragraph.
fn write_text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    for line in text.lines() {
        let column = line.strip_prefix("  ").and_then(|entry| {
            let gap = entry.find("  ")?;
            Some(2 + gap + entry[gap..].find(|letter| letter != ' ')?)
        });
        match column {
            Some(column) => write_hanging(out, &line[..column], &line[column..])?,
            None if line.is_empty() || line.starts_with(' ') => writeln!(out, "{line}")?,
            None => write_wrapped(out, width(), "", line)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Lines and columns of the smallest terminal that a text must fit.
    const SCREEN: (usize, usize) = (24, 80);

    #[test]
    fn each_command_is_in_one_group() {
        let cli = Cli::command();
        let shown = cli.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| sub.get_name().to_owned());
        let shown: BTreeSet<String> = shown.collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.commands).copied().collect();
        assert_eq!(grouped.len(), shown.len(), "{grouped:?}");
        assert_eq!(grouped.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), shown);
    }

    #[test]
    fn command_list_has_one_line_each_in_eighty_columns() {
        let cli = Cli::command();
        for command in cli.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let columns = 4 + NAME_WIDTH + about(command).chars().count();
            assert!(columns <= SCREEN.1, "{}: {columns} columns", command.get_name());
        }
    }

    #[test]
    fn topics_fit_one_screen_and_are_named_in_help() {
        let words = HelpArgs::augment_args(Flags::new("help"));
        let words = words.get_positionals().next().and_then(|words| words.get_help()).unwrap().to_string();
        for (name, text) in TOPICS.iter().map(|topic| (topic.name, topic.text)).chain([("units", FIRST_STEPS)]) {
            assert!(words.contains(name), "{name}: {words}");
            let lines: Vec<&str> = text.lines().collect();
            let wrapped: usize = lines.iter().map(|line| line.chars().count().div_ceil(SCREEN.1).max(1)).sum();
            assert!(wrapped < SCREEN.0, "{name}: {wrapped} lines");
        }
    }

    #[test]
    fn help_is_of_command_or_topic() {
        let text = |words: &[&str]| {
            let words = words.iter().map(ToString::to_string).collect();
            let mut text = Vec::new();
            let help = HelpText::find(&HelpArgs { words }).map_err(|error| error.to_string())?;
            help.write(&mut text).unwrap();
            Ok::<String, String>(String::from_utf8(text).unwrap())
        };
        assert!(text(&[]).unwrap().contains("\nUnderstand:\n"));
        assert!(text(&["file", "read"]).unwrap().contains("Usage: kelvin file read"));
        assert!(text(&["study", "load"]).unwrap().contains("--server-memory"));
        assert!(text(&["exit-status"]).unwrap().contains("could not be done"));
        assert!(text(&["exit-statsu"]).unwrap_err().contains("a similar one is 'exit-status'"));
        assert!(text(&["file", "raed"]).unwrap_err().contains("a similar one is 'read'"));
        assert!(text(&["quantum"]).unwrap_err().contains("`kelvin help` lists them"));
    }
}
