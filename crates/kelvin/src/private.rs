//! Privacy: what identifies the machine or its user is kept only on request.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory};
use kelvin_machine::private::{LEFT_OUT, hide, hide_in, leave_out};
use kelvin_model::grammar::LONGEST_TEXT;
use kelvin_model::{Attempt, Event, Outline, Reason, Round, Run, RunStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::Cli;
use crate::fault::Fault;

/// How much of a run is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What matters to figures.
    ForFigures,
    /// Paths, addresses, hosts and users too.
    All,
}

impl Told {
    /// From the flag `--with-private`.
    pub fn with(private: bool) -> Self {
        if private { Self::All } else { Self::ForFigures }
    }

    /// A run without what is private.
    pub fn run(self, mut run: Run) -> Result<Run, Fault> {
        if self == Self::All {
            return Ok(run);
        }
        run.outline = self.outline(run.outline)?;
        for measurement in &mut run.measurements {
            measurement.rounds.iter_mut().for_each(|round| self.round(round));
            measurement.skipped.iter_mut().for_each(|reason| self.text(&mut reason.0));
        }
        run.predictions = without_private(&run.predictions)?;
        run.studies = without_private(&run.studies)?;
        run.explanations = without_private(&run.explanations)?;
        run.notes.iter_mut().for_each(|note| self.text(note));
        run.labels.note.iter_mut().for_each(|note| self.text(note));
        // A tag with a part left out is none.
        run.labels.tags.retain(|_, value| hide(value) == *value);
        self.status(&mut run.status);
        Ok(run)
    }

    /// The same for what is known before the first measurement.
    pub fn outline(self, mut outline: Outline) -> Result<Outline, Fault> {
        if self == Self::All {
            return Ok(outline);
        }
        leave_out(&mut outline.machine);
        outline.command = command(&outline.command);
        without_private(&outline)
    }

    /// The same for its events; texts are cut to the length that a run allows.
    pub fn event(self, event: &Event) -> Event {
        let mut event = event.clone();
        match &mut event {
            Event::Started(_) | Event::RoundStarted { .. } | Event::Lengthened { .. } => {}
            Event::RoundFinished { round, .. } => self.round(round),
            Event::CaseSkipped { reason: Reason(text), .. } => self.text(text),
            Event::Finished { status, notes, .. } => {
                notes.iter_mut().for_each(|note| self.text(note));
                self.status(status);
            }
        }
        event
    }

    fn round(self, round: &mut Round) {
        match &mut round.attempt {
            Attempt::Measured(readings) => {
                readings.iter_mut().flat_map(|reading| &mut reading.notes).for_each(|note| self.text(note));
            }
            Attempt::Skipped(Reason(text)) | Attempt::Failed(text) => self.text(text),
        }
    }

    fn status(self, status: &mut RunStatus) {
        if let RunStatus::Partial(why) = status {
            self.text(why);
        }
    }

    fn text(self, text: &mut String) {
        if self == Self::ForFigures {
            *text = hide(text).into_owned();
        }
        if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT - 1) {
            text.truncate(end);
            text.push_str(LEFT_OUT);
        }
    }
}

/// The same data without what is private in any of its texts.
///
/// # Errors
/// If it is not the same kind of data without them.
pub fn without_private<T: Serialize + DeserializeOwned>(data: &T) -> Result<T, Fault> {
    hide_in(data).map_err(|error| Fault::new("cannot leave out what is private", error))
}

/// The words of a command line without files, directories and hosts.
fn command(words: &[String]) -> Vec<String> {
    let private = private_options();
    let mut is_value = false;
    let word = |(index, word): (usize, &String)| {
        let option = word.split('=').next().unwrap_or_default();
        match index {
            // The program's path.
            0 => word.rsplit('/').next().unwrap_or_default().to_owned(),
            _ if std::mem::take(&mut is_value) => LEFT_OUT.to_owned(),
            _ if !private.contains(option) => hide(word).into_owned(),
            _ if option.len() < word.len() => format!("{option}={LEFT_OUT}"),
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
    fn of(command: &Command, found: &mut BTreeSet<String>) {
        found.extend(command.get_arguments().filter(|argument| is_private(argument)).flat_map(spellings));
        command.get_subcommands().for_each(|command| of(command, found));
    }
    let mut found = BTreeSet::new();
    of(&Cli::command(), &mut found);
    found
}

fn is_private(argument: &Arg) -> bool {
    let names = argument.get_value_names().unwrap_or_default();
    argument.get_value_parser().type_id() == TypeId::of::<PathBuf>()
        || names.iter().any(|name| ["HOST", "ADDRESS", "STORE"].iter().any(|of_a_place| name.starts_with(of_a_place)))
}

fn spellings(argument: &Arg) -> Vec<String> {
    let long = argument.get_long().map(|long| format!("--{long}"));
    long.into_iter().chain(argument.get_short().map(|short| format!("-{short}"))).collect()
}

#[cfg(test)]
mod tests {
    use kelvin_model::Labels;

    use super::*;

    #[test]
    fn a_command_line_names_no_file_and_no_host() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, told) in [
            ("/home/alice/kelvin run os.syscall --quick", "kelvin run os.syscall --quick"),
            (
                "kelvin run net --peer lab7.example.org:27315 --token-file=/root/t --dir . --cpu 3",
                "kelvin run net --peer … --token-file=… --dir … --cpu 3",
            ),
            (
                "./kelvin study file.remote --remote /mnt/nas --report r.html --seed 7",
                "kelvin study file.remote --remote … --report … --seed 7",
            ),
            ("kelvin run --store postgres://u:secret@h/d --note x", "kelvin run --store … --note x"),
            (
                "kelvin run --congestion-control bbr --beside zenbook-2011",
                "kelvin run --congestion-control bbr --beside zenbook-2011",
            ),
        ] {
            assert_eq!(command(&words(line)), words(told), "{line}");
            assert_eq!(command(&words(told)), words(told), "{told}");
        }
    }

    #[test]
    fn what_people_say_of_a_run_names_no_host_and_no_user() {
        let tags = [("kernel", "6.18"), ("branch", "feature/x"), ("by", "alice@lab7")];
        let tags = tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let run =
            Run { labels: Labels { tags, note: Some("by alice@lab7".into()) }, ..kelvin_analysis::testing::run(&[]) };
        assert_eq!(Told::All.run(run.clone()).unwrap(), run);
        let told = Told::ForFigures.run(run).unwrap();
        assert_eq!(told.labels.tags_in_words(), "branch=feature/x kernel=6.18");
        assert!(!told.labels.note.as_ref().unwrap().contains("alice"), "{:?}", told.labels.note);
        assert_eq!(Told::ForFigures.run(told.clone()).unwrap(), told);
    }

    #[test]
    fn a_text_is_no_longer_than_a_text_of_a_run_may_be() {
        for told in [Told::All, Told::ForFigures] {
            let mut text = "ü".repeat(LONGEST_TEXT + 1);
            told.text(&mut text);
            assert_eq!((text.chars().count(), text.chars().last()), (LONGEST_TEXT, Some('…')));
        }
    }
}
