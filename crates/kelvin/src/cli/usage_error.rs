//! A mistake on the command line as one line that names the argument and ends with what to do next.

use std::ffi::OsString;

use clap::Command as Flags;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::foreign_options::advice_on;
use super::spelling::similar_word;
use crate::cli_error::CliError;

/// The error of a command line, as clap has it, in one line and without the usage.
pub fn one_line_error(error: &Error, cli: &Flags) -> CliError {
    let command = FaultyCommand::find(error, cli);
    let help = format!("`{} --help`", command.words);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            CliError::msg(format!("no command given; {help} lists them"))
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand);
            let names = command.flags.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Flags::get_name);
            let next_step = next_step(similar_word(word, names), format!("{help} lists them"));
            CliError::msg(format!("there is no command '{word}'; {next_step}"))
        }
        ErrorKind::UnknownArgument => {
            let argument = text(ContextKind::InvalidArg);
            if let Some(advice) = advice_on(&command.words, argument) {
                return CliError::new(argument, advice);
            }
            let options = command.option_names();
            let similar = argument.strip_prefix("--").and_then(|name| {
                let name = name.split('=').next().unwrap_or(name);
                similar_word(name, options.iter().map(String::as_str)).map(|option| format!("--{option}"))
            });
            let next_step = next_step(similar.as_deref(), format!("{help} lists what there is"));
            CliError::msg(format!("unexpected argument '{argument}' found; {next_step}"))
        }
        ErrorKind::InvalidValue if !valid_values(error).is_empty() => {
            let similar = similar_word(text(ContextKind::InvalidValue), valid_values(error));
            let next_step = similar.map(|word| format!("; a similar one is '{word}'")).unwrap_or_default();
            CliError::msg(format!("{}{next_step}", message(error)))
        }
        ErrorKind::ArgumentConflict => CliError::msg(format!("{}: leave one out", message(error))),
        // The reason says what would be right.
        ErrorKind::ValueValidation => CliError::msg(message(error)),
        _ => CliError::msg(format!("{}; {help} shows how it is used", message(error))),
    }
}

/// What may have been meant, else where to look.
fn next_step(similar: Option<&str>, place: String) -> String {
    similar.map_or(place, |word| format!("a similar one is '{word}'"))
}

/// The words that a value may be.
fn valid_values(error: &Error) -> Vec<&str> {
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) => values.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

/// clap's message in one line, without its suggestions and the usage.
pub fn message(error: &Error) -> String {
    let text = error.render().to_string();
    let is_message = |line: &&str| !line.is_empty() && !line.starts_with("For more") && !line.starts_with("tip: ");
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:")).filter(is_message);
    lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
}

/// The command that a mistake was made in.
struct FaultyCommand<'a> {
    /// How it is called: `kelvin file read`.
    words: String,
    flags: &'a Flags,
    parents: Vec<&'a Flags>,
}

impl<'a> FaultyCommand<'a> {
    /// By the usage of an error: its words before the options and placeholders.
    fn find(error: &Error, cli: &'a Flags) -> Self {
        let text = error.render().to_string();
        let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("kelvin");
        let mut command = Self { words: "kelvin".into(), flags: cli, parents: Vec::new() };
        for word in usage.split(' ').skip(1) {
            let Some(sub) = command.flags.find_subcommand(word) else { break };
            command.words = format!("{} {word}", command.words);
            command.parents.push(std::mem::replace(&mut command.flags, sub));
        }
        command
    }

    /// Its options that are shown, and those of its parents that it has too.
    fn option_names(&self) -> Vec<String> {
        let own = self.flags.get_arguments();
        let inherited = self.parents.iter().flat_map(|parent| parent.get_arguments()).filter(|arg| arg.is_global_set());
        let shown = own.chain(inherited).filter(|argument| !argument.is_hide_set());
        shown.filter_map(|argument| argument.get_long()).chain(["help"]).map(str::to_owned).collect()
    }
}

/// An argument other than a file name is not UTF-8. clap does not name it, so all candidates are named.
pub fn not_utf8_error(arguments: impl Iterator<Item = OsString>) -> CliError {
    let quoted = arguments.filter(|argument| argument.to_str().is_none()).map(|argument| format!("{argument:?}"));
    let list = quoted.collect::<Vec<_>>().join(", ");
    CliError::msg(format!("{list}: must be UTF-8; only names of files and directories may be other bytes"))
}
