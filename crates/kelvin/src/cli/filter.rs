//! The arguments that choose which files are sent: their order matters.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::ordered_options::values_in_order;

/// Options that choose files, by name, with their value and help.
const OPTIONS: [(&str, &str, &str); 3] = [
    (
        "exclude",
        "PATTERN",
        "Do not send what this pattern of rsync fits, such as '*.o', cache/ or /photos/raw. The first --exclude or --include that fits decides",
    ),
    ("include", "PATTERN", "Send what this pattern fits, though a later --exclude does"),
    (
        "exclude-from",
        "FILE",
        "Do not send what the patterns in this file fit, one a line; lines that begin with # or ; are none",
    ),
];

/// An option that chooses files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterOption {
    /// What fits is not sent.
    Exclude(OsString),
    /// What fits is sent.
    Include(OsString),
    /// What fits a pattern of this file is not sent.
    ExcludeFrom(PathBuf),
}

/// All of them, as they were given.
#[derive(Clone, Debug, Default)]
pub struct FilterArgs {
    /// In their order.
    pub options: Vec<FilterOption>,
}

impl FilterArgs {
    fn read(matches: &ArgMatches) -> Self {
        let options = values_in_order::<_, OsString>(matches, OPTIONS.map(|(name, ..)| (name.to_owned(), name)));
        let filter = |(name, value)| match name {
            "exclude" => FilterOption::Exclude(value),
            "include" => FilterOption::Include(value),
            _ => FilterOption::ExcludeFrom(value.into()),
        };
        Self { options: options.into_iter().map(filter).collect() }
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::read(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::read(matches);
        Ok(())
    }
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        OPTIONS.into_iter().fold(command, |command, (name, value, help)| {
            let parser = OsStringValueParser::new();
            command.arg(
                Arg::new(name).long(name).value_name(value).help(help).action(ArgAction::Append).value_parser(parser),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_keep_their_order() {
        let command = FilterArgs::augment_args(Command::new("send"));
        let words = ["send", "--include=a", "--exclude", "b", "--exclude-from=c", "--include", "d", "--exclude=e"];
        let args = FilterArgs::from_arg_matches(&command.get_matches_from(words)).unwrap();
        let expected = [
            FilterOption::Include("a".into()),
            FilterOption::Exclude("b".into()),
            FilterOption::ExcludeFrom("c".into()),
            FilterOption::Include("d".into()),
            FilterOption::Exclude("e".into()),
        ];
        assert_eq!(args.options, expected);
    }
}
