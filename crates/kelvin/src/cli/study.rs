//! `kelvin study`: a sub-command for each study, with the options that it has.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command as Flags, Error, FromArgMatches};
use kelvin_core::Need;

use super::study_load::STUDY_LOAD_HEADING;
use super::{DestinationArgs, RunOptions, StudyLoadArgs, axis_value};
use crate::cli_error::CliError;
use crate::probe_options::{UNIX_STREAM_PROBE, covers_extent, has_need, is_over_tcp};
use crate::study_defaults::{budget_help, rounds_help};
use crate::study_selection::{PAGE_TABLE_STUDY, StudySelection};

/// The studies that help lists, one in each line, with its summary where that of its one probe does not say it.
const STUDIES: &str = include_str!("help/studies.txt");

/// Their names and summaries.
fn listed_studies() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    STUDIES.lines().map(|line| line.split_once(": ").map_or((line, None), |(name, summary)| (name, Some(summary))))
}

/// What a study is asked for.
#[derive(Debug, Args)]
pub struct StudyArgs {
    /// The study, or what a report names: an area, a probe, a metric, or any leading part of an id
    pub name: String,
    /// Measure nothing: analyse the published study of that name, as text or with --json; there is one, load
    #[arg(long)]
    pub published: bool,
    /// Fewer points and rounds, 2 minutes at most; the report says so
    #[arg(long, conflicts_with = "thorough")]
    pub quick: bool,
    /// All points, ten times as many rounds
    #[arg(long)]
    pub thorough: bool,
    /// Every combination of all factors, in 3 rounds: thousands of cases, terabytes and hours
    #[arg(long, conflicts_with_all = ["quick", "thorough"])]
    pub full: bool,
    /// Only the cases with this value of an axis, such as files=small; several of one axis are alternatives
    #[arg(long, value_name = "AXIS=VALUE", value_parser = axis_value)]
    pub only: Vec<(String, String)>,
    /// How to measure
    #[command(flatten)]
    pub options: RunOptions,
    /// Where it goes
    #[command(flatten)]
    pub to: DestinationArgs,
    /// How the study load is made
    #[command(flatten)]
    pub load: StudyLoadArgs,
}

/// `kelvin study`: one of its sub-commands, and what it is asked for.
#[derive(Debug)]
pub struct StudyCommand(pub StudyArgs);

impl Args for StudyCommand {
    fn augment_args(command: Flags) -> Flags {
        let command = command.subcommand_required(true).arg_required_else_help(true).subcommand_value_name("STUDY");
        // Their flags are made only for who asks for a study.
        command.subcommand_help_heading("Studies").defer(|command| {
            command.subcommands(listed_studies().filter_map(|(name, about)| {
                let study = study_flags(name).ok()?;
                Some(match about {
                    Some(about) => study.about(about),
                    None => study,
                })
            }))
        })
    }

    fn augment_args_for_update(command: Flags) -> Flags {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StudyCommand {
    /// A sub-command has some of all flags, from which [`StudyArgs`] is read with what was given, and with the defaults that were in force.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (name, matches) = matches.subcommand().ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let mut words = vec!["study".into(), OsString::from(name)];
        let command = all_flags().mut_args(|argument| {
            let values = given_values(&argument, matches);
            match values {
                Some((ValueSource::DefaultValue, values)) if argument.get_action().takes_values() => {
                    argument.default_values(values)
                }
                Some((ValueSource::DefaultValue, _)) | None => argument,
                Some((_, values)) => {
                    words.extend(option_words(&argument, values));
                    argument
                }
            }
        });
        StudyArgs::from_arg_matches(&command.try_get_matches_from(words)?).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What an option has in a sub-command, and from where.
fn given_values(argument: &Arg, matches: &ArgMatches) -> Option<(ValueSource, Vec<OsString>)> {
    let id = argument.get_id().as_str();
    let is_given = matches.try_contains_id(id).unwrap_or(false);
    let source = is_given.then(|| matches.value_source(id)).flatten()?;
    Some((source, matches.get_raw(id).into_iter().flatten().map(ToOwned::to_owned).collect()))
}

/// An option with its values as words.
fn option_words(argument: &Arg, values: Vec<OsString>) -> Vec<OsString> {
    let Some(name) = argument.get_long() else { return values };
    if !argument.get_action().takes_values() {
        return vec![format!("--{name}").into()];
    }
    let word = |value: OsString| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        word
    };
    values.into_iter().map(word).collect()
}

fn all_flags() -> Flags {
    StudyArgs::augment_args(Flags::new("study"))
}

/// The sub-command of a study: those of all flags that it has.
///
/// # Errors
/// A name that is no study.
fn study_flags(name: &str) -> Result<Flags, CliError> {
    let selection = (name != PAGE_TABLE_STUDY).then(|| StudySelection::from_name(name)).transpose()?;
    let is_own = |argument: &&Arg| argument.get_id() != "name" && has_option(selection.as_ref(), argument);
    let command = Flags::new(name.to_owned()).args(all_flags().get_arguments().filter(is_own).cloned());
    let Some(selection) = selection else { return Ok(command) };
    let defaults = selection.defaults();
    let command = command
        .mut_arg("budget", |budget| budget.help(budget_help(&defaults)))
        .mut_arg("rounds", |rounds| rounds.help(rounds_help(&defaults, selection.is_load())));
    Ok(match &selection.probes[..] {
        [probe] => command.about(probe.summary),
        _ => command,
    })
}

/// Whether a study has an option; without a selection it is that of page-table entries.
fn has_option(selection: Option<&StudySelection>, argument: &Arg) -> bool {
    let Some(selection) = selection else { return ["json", "output"].contains(&argument.get_id().as_str()) };
    let is_load = selection.is_load();
    let has_probe =
        |is_meant: &dyn Fn(&kelvin_harness::Probe) -> bool| selection.probes.iter().any(|probe| is_meant(probe));
    match argument.get_id().as_str() {
        _ if argument.get_help_heading() == Some(STUDY_LOAD_HEADING) => is_load,
        "published" => is_load,
        "only" => !is_load,
        "full" => selection.has_transfers(),
        "remote" | "remote_size" => has_probe(&|probe| has_need(probe, Need::RemoteDirectory)),
        "peer" | "token_file" => is_load || has_probe(&|probe| has_need(probe, Need::Agent)),
        "extent" => has_probe(&covers_extent),
        "congestion_control" => has_probe(&|probe| is_over_tcp(probe.id)),
        "socket_buffers" => has_probe(&|probe| is_over_tcp(probe.id) || probe.id == UNIX_STREAM_PROBE),
        _ => true,
    }
}

/// The command line with the study that its words name, if that is not one of the list: it has a sub-command too.
///
/// # Errors
/// A name that is no study.
pub fn with_named_study(words: &[OsString], command: Flags) -> Result<Flags, CliError> {
    let name = match words {
        [_, study, name, ..] if study == "study" => name.to_str(),
        _ => None,
    };
    match name {
        Some(name) if !name.starts_with('-') && listed_studies().all(|(listed, _)| listed != name) => {
            let study = study_flags(name)?.hide(true);
            Ok(command.mut_subcommand("study", |command| command.subcommand(study)))
        }
        _ => Ok(command),
    }
}

/// The help text of a flag of a study that is named, in one line.
#[cfg(test)]
pub fn named_study_help(study: &str, flag: &str) -> String {
    let command = study_flags(study).expect("a study");
    let flag = command.get_arguments().find(|argument| argument.get_id() == flag).expect("a flag");
    flag.get_help().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use kelvin_harness::{Probe, ProbeKind};

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::study_selection::short_name;

    #[test]
    fn every_study_is_in_help_and_book() {
        let names: Vec<&str> = listed_studies().map(|(name, _)| name).collect();
        for probe in kelvin_probes::all().into_iter().filter(|probe| probe.kind == ProbeKind::Study) {
            let is_listed = names.iter().any(|name| *name == short_name(probe) || probe.is_selected_by(name));
            assert!(is_listed, "{}: {names:?}", probe.id);
        }
        for id in kelvin_analysis::study_ids() {
            let metrics = kelvin_analysis::study_metrics(id.as_str());
            let is_selected_study = |probe: &&Probe| {
                probe.kind == ProbeKind::Study && metrics.iter().any(|name| probe.is_selected_by(name))
            };
            let is_study = kelvin_probes::all().iter().any(is_selected_study);
            assert!(is_study || names.contains(&id.as_str()), "{id}: {names:?}");
        }
        let is_known = |name: &&str| *name == PAGE_TABLE_STUDY || StudySelection::from_name(name).is_ok();
        assert!(names.iter().all(is_known), "{names:?}");
        for name in
            ["tasks", "whole", "net.peer", "file.remote", "load", "file.blocksize", "net.rtt", "net.bandwidth", "page"]
        {
            assert_eq!(names.iter().filter(|listed| **listed == name).count(), 1, "{name}: {names:?}");
        }
        let page = include_str!("../../../../docs/src/probes/options.md");
        for name in names {
            assert!(page.contains(&format!("\n  {name} ")), "{name}");
        }
    }

    /// The command line with the study that words name.
    fn command_line(words: &[OsString]) -> Flags {
        let mut command = Cli::command();
        command.build();
        with_named_study(words, command).unwrap()
    }

    #[test]
    fn study_has_only_its_own_options() {
        for (study, own, others) in [
            ("load", &["server-memory", "budget", "peer", "published"][..], &["only", "extent", "full"][..]),
            ("transfer", &["full", "only", "budget"], &["server-memory", "peer", "extent"]),
            ("file.depth", &["extent", "only"], &["peer", "full", "published", "congestion-control"]),
            ("net.peer", &["peer", "token-file", "congestion-control"], &["extent", "remote"]),
            ("file.remote", &["remote", "remote-size"], &["peer", "extent"]),
            ("page", &["json", "output"], &["budget", "cpu", "store"]),
            ("os.syscall", &["budget", "only"], &["peer", "extent", "socket-buffers"]),
        ] {
            let command = command_line(&["kelvin", "study", study].map(OsString::from));
            let command = command.find_subcommand("study").and_then(|parent| parent.find_subcommand(study)).unwrap();
            let names: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
            assert!(own.iter().all(|option| names.contains(option)), "{study}: {names:?}");
            assert!(!others.iter().any(|option| names.contains(option)), "{study}: {names:?}");
        }
    }

    #[test]
    fn study_is_read_from_its_own_options() {
        let parse = |words: &[&str]| {
            let words: Vec<OsString> = ["kelvin", "study"].iter().chain(words).map(OsString::from).collect();
            let matches = command_line(&words).try_get_matches_from(&words)?;
            match Cli::from_arg_matches(&matches)?.command {
                Command::Study(study) => Ok(study.0),
                other => panic!("{other:?}"),
            }
        };
        let study = parse(&["load", "--users", "1,2", "--users", "4", "--quick", "--store", "a b"]).unwrap();
        assert_eq!((study.name.as_str(), &study.load.users[..], study.quick), ("load", &[1, 2, 4][..], true));
        assert_eq!(study.to.store.store, Some("a b".into()));
        let study = parse(&["os.syscall", "--only", "a=1", "--only", "b=2", "--rounds", "3"]).unwrap();
        assert_eq!((study.name.as_str(), study.only.len(), study.options.rounds), ("os.syscall", 2, Some(3)));
        for words in
            [&["tasks", "--users", "3"][..], &["tasks", "--peer", "x"], &["page", "--quick"], &["load", "--full"]]
        {
            let error: Error = parse(words).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{words:?}");
        }
    }
}
