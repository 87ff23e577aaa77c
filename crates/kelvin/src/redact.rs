//! Privacy: what identifies the machine or its user is kept only on request.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::CommandFactory;
use clap::builder::Str;
use kelvin_core::identifiers::MAX_TEXT_CHARS;
use kelvin_core::{Event, Round, RoundOutcome, Run, RunHeader, RunStatus, SkipReason};
use kelvin_machine::redact::{REDACTED, redact, redact_machine, redact_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::{Cli, option_names};
use crate::cli_error::{CliError, Context};

/// How much of a run is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// What matters to figures.
    HidePrivate,
    /// Paths, addresses, hosts and users too.
    KeepAll,
}

impl Redaction {
    /// From the flag `--with-private`.
    pub fn from_flag(private: bool) -> Self {
        if private { Self::KeepAll } else { Self::HidePrivate }
    }

    /// A run without what is private.
    pub fn redact_run(self, mut run: Run) -> Result<Run, CliError> {
        if self == Self::KeepAll {
            return Ok(run);
        }
        run.header = self.redact_header(run.header)?;
        for measurement in &mut run.measurements {
            measurement.rounds.iter_mut().for_each(|round| self.redact_round(round));
            measurement.skipped.iter_mut().for_each(|reason| self.redact_text(&mut reason.0));
        }
        run.predictions = without_private(&run.predictions)?;
        run.explanations = without_private(&run.explanations)?;
        run.notes.iter_mut().for_each(|note| self.redact_text(note));
        run.labels.note.iter_mut().for_each(|note| self.redact_text(note));
        // A tag with a part left out is none.
        run.labels.tags.retain(|_, value| redact(value) == *value);
        self.redact_status(&mut run.status);
        Ok(run)
    }

    /// Like `redact_run`, for what is known before the first measurement.
    pub fn redact_header(self, mut outline: RunHeader) -> Result<RunHeader, CliError> {
        if self == Self::KeepAll {
            return Ok(outline);
        }
        redact_machine(&mut outline.machine);
        outline.command = redact_command(&outline.command);
        without_private(&outline)
    }

    /// Like `redact_header`, for its events; texts are cut to the length that a run allows.
    pub fn redact_event(self, event: &Event) -> Event {
        let mut event = event.clone();
        match &mut event {
            Event::Started(_) | Event::RoundStarted { .. } | Event::Extended { .. } => {}
            Event::RoundFinished { round, .. } => self.redact_round(round),
            Event::CaseSkipped { reason: SkipReason(text), .. } => self.redact_text(text),
            Event::Finished { status, notes, .. } => {
                notes.iter_mut().for_each(|note| self.redact_text(note));
                self.redact_status(status);
            }
        }
        event
    }

    fn redact_round(self, round: &mut Round) {
        match &mut round.outcome {
            RoundOutcome::Measured(readings) => {
                readings.iter_mut().flat_map(|reading| &mut reading.notes).for_each(|note| self.redact_text(note));
            }
            RoundOutcome::Skipped(SkipReason(text)) | RoundOutcome::Failed(text) => self.redact_text(text),
        }
    }

    fn redact_status(self, status: &mut RunStatus) {
        if let RunStatus::Partial(reason) = status {
            self.redact_text(reason);
        }
    }

    fn redact_text(self, text: &mut String) {
        if self == Self::HidePrivate {
            *text = redact(text).into_owned();
        }
        if let Some((end, _)) = text.char_indices().nth(MAX_TEXT_CHARS - 1) {
            text.truncate(end);
            text.push_str(REDACTED);
        }
    }
}

/// The same data without what is private in any of its texts.
///
/// # Errors
/// If it is not the same kind of data without them.
pub fn without_private<T: Serialize + DeserializeOwned>(data: &T) -> Result<T, CliError> {
    redact_value(data).context("cannot leave out what is private")
}

/// The words of a command line without files, directories and hosts.
fn redact_command(words: &[String]) -> Vec<String> {
    let private = private_options();
    let mut is_value = false;
    let word = |(index, word): (usize, &String)| {
        let option = word.split('=').next().unwrap_or_default();
        let short = word.get(..2).filter(|_| !word.starts_with("--") && word.len() > 2);
        match index {
            // The program's path.
            0 => word.rsplit('/').next().unwrap_or_default().to_owned(),
            _ if std::mem::take(&mut is_value) => REDACTED.to_owned(),
            _ if short.is_some_and(|short| private.contains(short)) => format!("{}{REDACTED}", &word[..2]),
            _ if !private.contains(option) => redact(word).into_owned(),
            _ if option.len() < word.len() => format!("{option}={REDACTED}"),
            _ => {
                is_value = true;
                word.clone()
            }
        }
    };
    words.iter().enumerate().map(word).collect()
}

/// The options, of any command, whose values are files, directories or hosts.
fn private_options() -> BTreeSet<String> {
    let mut command = Cli::command();
    // The options of studies are made only then.
    command.build();
    option_names(&command, |argument| {
        let is_place = |name: &Str| ["HOST", "ADDRESS", "STORE"].iter().any(|prefix| name.starts_with(prefix));
        argument.get_value_parser().type_id() == TypeId::of::<PathBuf>()
            || argument.get_value_names().unwrap_or_default().iter().any(is_place)
    })
}

#[cfg(test)]
mod tests {
    use kelvin_core::Labels;

    use super::*;

    #[test]
    fn command_line_paths_and_hosts_are_redacted() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, redacted) in [
            ("/home/alice/kelvin run os.syscall --quick", "kelvin run os.syscall --quick"),
            (
                "kelvin run net --peer lab7.example.org:27315 --token-file=/root/t --dir . --cpu 3",
                "kelvin run net --peer … --token-file=… --dir … --cpu 3",
            ),
            (
                "./kelvin study file.remote --remote /mnt/nas --output r.html --seed 7",
                "kelvin study file.remote --remote … --output … --seed 7",
            ),
            ("kelvin run net.peer -c lab7 -o r.html --cpu 3", "kelvin run net.peer -c … -o … --cpu 3"),
            ("kelvin run net.peer -clab7 -J -or.html", "kelvin run net.peer -c… -J -o…"),
            ("kelvin study load --server-group=/sys/fs/cgroup/x", "kelvin study load --server-group=…"),
            ("kelvin study load --stats-address 10.0.0.1:80", "kelvin study load --stats-address …"),
            ("kelvin run --store postgres://u:secret@h/d --note x", "kelvin run --store … --note x"),
            (
                "kelvin run --congestion-control bbr --compare-with zenbook-2011",
                "kelvin run --congestion-control bbr --compare-with zenbook-2011",
            ),
        ] {
            assert_eq!(redact_command(&words(line)), words(redacted), "{line}");
            assert_eq!(redact_command(&words(redacted)), words(redacted), "{redacted}");
        }
    }

    #[test]
    fn notes_and_tags_are_redacted() {
        let tags = [("kernel", "6.18"), ("branch", "feature/x"), ("by", "alice@lab7")];
        let tags = tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let run = Run {
            labels: Labels { tags, note: Some("by alice@lab7".into()) },
            ..kelvin_analysis::testing::empty_run(&[])
        };
        assert_eq!(Redaction::KeepAll.redact_run(run.clone()).unwrap(), run);
        let redacted = Redaction::HidePrivate.redact_run(run).unwrap();
        assert_eq!(redacted.labels.tags_text(), "branch=feature/x kernel=6.18");
        assert!(!redacted.labels.note.as_ref().unwrap().contains("alice"), "{:?}", redacted.labels.note);
        assert_eq!(Redaction::HidePrivate.redact_run(redacted.clone()).unwrap(), redacted);
    }

    #[test]
    fn redacted_text_is_cut_to_limit() {
        for redaction in [Redaction::KeepAll, Redaction::HidePrivate] {
            let mut text = "ü".repeat(MAX_TEXT_CHARS + 1);
            redaction.redact_text(&mut text);
            assert_eq!((text.chars().count(), text.chars().last()), (MAX_TEXT_CHARS, Some('…')));
        }
    }
}
