//! What a rank does in a run: it starts `kelvin run`, and compares its runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelvin_core::Comparison;
use serde::Deserialize;

use super::arguments::{compare_arguments, forecast_arguments, run_arguments};
use super::task::{FigureRatio, RunFile, RunOutcome, RunTask};
use crate::clock::seconds_since_1970;
use crate::kelvin_program::{KelvinOutput, KelvinProgram};

/// What measures the host of a rank.
#[derive(Clone, Debug)]
pub struct RunWorker {
    kelvin: KelvinProgram,
}

/// What `kelvin run --dry-run --json` prints.
#[derive(Deserialize)]
struct Forecast {
    seconds: f64,
}

impl Default for RunWorker {
    fn default() -> Self {
        Self { kelvin: KelvinProgram::find(None) }
    }
}

impl RunWorker {
    /// Does a task. The calling thread must live as long as this process.
    ///
    /// # Errors
    /// What `kelvin` says, or why its file cannot be had.
    pub fn perform(&mut self, task: &RunTask) -> Result<RunOutcome, String> {
        match task {
            RunTask::FindKelvin(path) => {
                self.kelvin = KelvinProgram::find(path.as_deref());
                self.kelvin.version().map(RunOutcome::Kelvin).map_err(|error| error.to_string())
            }
            RunTask::Forecast(options) => self.forecast(options).map(RunOutcome::Forecast),
            RunTask::Measure { phase, label, out, options, start_s } => {
                let directory = out.join(phase.name());
                // Its name is no other rank's, and begins with a dot, so that it is none of a report of the directory.
                let own = directory.join(format!(".{}", label.replace('/', "_")));
                fs::create_dir_all(&own).map_err(|error| format!("{}: {error}", own.display()))?;
                if let Some(start_s) = start_s {
                    std::thread::sleep(time_until(*start_s));
                }
                let start = Instant::now();
                let result = self.run(&run_arguments(*phase, label, &own, options));
                let seconds = start.elapsed().as_secs_f64();
                // A run that was interrupted or refused may have left a file, too.
                let path = move_file(&own, &directory);
                let printed = result?;
                let path = path.map_err(|error| format!("kelvin run wrote no file: {error}"))?;
                Ok(RunOutcome::Measured(RunFile { path, is_complete: printed.status == 0, seconds }))
            }
            RunTask::Compare { alone, together } => {
                let printed = self.run(&compare_arguments(alone, together))?;
                figure_ratios(&printed.output).map(RunOutcome::Compared)
            }
        }
    }

    fn run(&self, arguments: &[String]) -> Result<KelvinOutput, String> {
        self.kelvin.run(arguments).map_err(|error| error.to_string())
    }

    /// Seconds that a run with these options is expected to take.
    fn forecast(&self, options: &[String]) -> Result<f64, String> {
        let printed = self.run(&forecast_arguments(options))?;
        let forecast: Forecast =
            serde_json::from_slice(&printed.output).map_err(|error| format!("kelvin run --dry-run: {error}"))?;
        Ok(forecast.seconds)
    }
}

/// How long it is until this time, in seconds since 1970 by the clock of this host.
fn time_until(start_s: f64) -> Duration {
    Duration::try_from_secs_f64(start_s - seconds_since_1970()).unwrap_or_default()
}

/// Moves the only run file of a directory into another one, and removes the first. Returns its new path.
fn move_file(from: &Path, to: &Path) -> io::Result<PathBuf> {
    let files = fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    let is_run = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "json");
    let file = files.iter().find(is_run).ok_or_else(|| io::Error::other(format!("{} has none", from.display())))?;
    let path = to.join(file.file_name().unwrap_or_default());
    fs::rename(file, &path)?;
    fs::remove_dir(from)?;
    Ok(path)
}

/// The figures that `kelvin compare --json` printed.
fn figure_ratios(output: &[u8]) -> Result<Vec<FigureRatio>, String> {
    let comparison: Comparison =
        serde_json::from_slice(output).map_err(|error| format!("kelvin compare --json: {error}"))?;
    let ratio = |figure: kelvin_core::ComparedFigure| FigureRatio {
        figure: format!("{} {}", figure.metric.id, figure.case).trim_end().to_owned(),
        better: figure.metric.better,
        ratio: figure.ratio,
    };
    Ok(comparison.figures.into_iter().map(ratio).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::task::Phase;

    /// A worker whose program is a script.
    fn worker(directory: &Path, script: &str) -> RunWorker {
        RunWorker { kelvin: KelvinProgram::of_script(directory, script) }
    }

    fn measure(out: &Path) -> RunTask {
        let options = vec!["mem".to_owned()];
        RunTask::Measure {
            phase: Phase::Alone,
            label: "n1/10.0.0.2".into(),
            out: out.into(),
            options,
            start_s: Some(0.0),
        }
    }

    #[test]
    fn file_of_a_run_is_in_the_directory_of_its_phase() {
        let directory = tempfile::tempdir().unwrap();
        let mut worker = worker(directory.path(), "echo \"$@\" > \"$3/n1-2026.json\"; exit 1");
        let outcome = worker.perform(&measure(directory.path())).unwrap();
        let RunOutcome::Measured(run) = outcome else { panic!("{outcome:?}") };
        let phase = directory.path().join("alone");
        assert_eq!((run.path.as_path(), run.is_complete), (phase.join("n1-2026.json").as_path(), false));
        let arguments = fs::read_to_string(&run.path).unwrap();
        let own = phase.join(".n1_10.0.0.2");
        assert_eq!(arguments, format!("run --out {} --tag hosts=alone --tag node=n1/10.0.0.2 mem\n", own.display()));
        assert!(!own.exists());
    }

    #[test]
    fn run_without_a_file_fails_with_its_complaint() {
        let directory = tempfile::tempdir().unwrap();
        let fails = |script| worker(directory.path(), script).perform(&measure(directory.path())).unwrap_err();
        assert_eq!(fails("echo 'kelvin: --dir x: no such directory' >&2; exit 2"), "--dir x: no such directory");
        assert!(fails("exit 0").starts_with("kelvin run wrote no file: "));
    }

    #[test]
    fn forecast_is_that_of_a_dry_run() {
        let directory = tempfile::tempdir().unwrap();
        let mut worker = worker(
            directory.path(),
            "test \"$*\" = 'run --dry-run --json mem' && echo '{\"cases\": 2, \"seconds\": 12.5}'",
        );
        assert_eq!(worker.perform(&RunTask::Forecast(vec!["mem".to_owned()])), Ok(RunOutcome::Forecast(12.5)));
    }
}
