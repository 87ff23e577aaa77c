//! The options of jobs that `kelvin file run` takes as fio does: their order matters.

use kelvin_file::job_file::{OPTION_NAMES, REPORT_OPTIONS, SWITCHES};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::ordered_options::values_in_order;

/// Options of jobs with their values, as they were given.
#[derive(Clone, Debug, Default)]
pub struct JobOptionArgs {
    /// In their order.
    pub options: Vec<(String, String)>,
}

/// The names that are options here.
fn names() -> impl Iterator<Item = &'static str> {
    OPTION_NAMES.into_iter().chain(REPORT_OPTIONS)
}

/// Begins the ids of these options: their names may be those of arguments of the command.
const ID_PREFIX: &str = "job-option-";

fn id(name: &str) -> String {
    format!("{ID_PREFIX}{name}")
}

/// Whether an argument is an option of jobs.
#[cfg(test)]
pub(super) fn is_job_option(argument: &Arg) -> bool {
    argument.get_id().as_str().starts_with(ID_PREFIX)
}

impl JobOptionArgs {
    fn read(matches: &ArgMatches) -> Self {
        let options = values_in_order(matches, names().map(|name| (id(name), name)));
        Self { options: options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
    }
}

impl FromArgMatches for JobOptionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::read(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::read(matches);
        Ok(())
    }
}

impl Args for JobOptionArgs {
    fn augment_args(command: Command) -> Command {
        names().fold(command, |command, name| {
            let option = Arg::new(id(name)).long(name).action(ArgAction::Append).hide(true);
            let is_switch = SWITCHES.contains(&name) || REPORT_OPTIONS.contains(&name);
            command.arg(match is_switch {
                // A word after a switch is no value of it.
                true => option.num_args(0..=1).require_equals(true).default_missing_value("1"),
                false => option.allow_hyphen_values(true),
            })
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
        let command = JobOptionArgs::augment_args(Command::new("run")).arg(Arg::new("file"));
        let words =
            ["run", "--size", "1g", "--name=a", "--time_based", "--bs=4k", "--direct=0", "--name", "b", "--bs=8k", "x"];
        let matches = command.get_matches_from(words);
        assert_eq!(matches.get_one::<String>("file").map(String::as_str), Some("x"));
        let expected = [
            ("size", "1g"),
            ("name", "a"),
            ("time_based", "1"),
            ("bs", "4k"),
            ("direct", "0"),
            ("name", "b"),
            ("bs", "8k"),
        ];
        let args = JobOptionArgs::from_arg_matches(&matches).unwrap();
        assert_eq!(args.options, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
