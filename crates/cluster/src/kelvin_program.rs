//! The program `kelvin`, which ranks start: what it does on one host, it does alike on many.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_sys::child::{ChildEnd, EndWithParent, GuardedChild, WaitLimit};

/// Its name, beside this program and on PATH.
const NAME: &str = "kelvin";
/// What it may print: a load of an hour has less than 1 MB, and a comparison of all figures about 10 MB.
const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// No job lasts so long. Rank 0 has deadlines, where the time of a task is known.
const NO_LIMIT: WaitLimit = WaitLimit::fixed(Duration::from_secs(365 * 24 * 3600));
/// What answers at once.
const ANSWER_LIMIT: WaitLimit = WaitLimit::fixed(Duration::from_secs(10));

/// The variables in which launchers number the ranks of a host. `kelvin run` lets the first one measure. Which rank of a host measures is
/// decided before it is started here, so that it is the first one.
const LOCAL_RANK_VARIABLES: [&str; 5] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID", "MPI_LOCALRANKID", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID"];

/// Why the program gave no result.
#[derive(Debug, thiserror::Error)]
pub enum KelvinError {
    /// It cannot be started.
    #[error("cannot start {path}: {error}. Install kelvin beside kelvin-cluster or on PATH, or name it by --kelvin")]
    Start {
        /// The program.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// It cannot be heard.
    #[error("cannot read what kelvin prints: {0}")]
    Read(io::Error),
    /// It ended with a complaint.
    #[error("{0}")]
    Failed(String),
}

/// The program on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KelvinProgram {
    path: PathBuf,
}

/// What it printed until it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KelvinOutput {
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its exit status: 0, or 1 where what it found is not as it should be.
    pub status: u8,
    /// The last line of its standard error.
    pub last_line: String,
}

impl KelvinProgram {
    /// The one at this path; else the one beside this program; else the first one on PATH.
    pub fn find(path: Option<&Path>) -> Self {
        let beside = || std::env::current_exe().ok().map(|own| own.with_file_name(NAME)).filter(|path| path.is_file());
        Self { path: path.map(Path::to_owned).or_else(beside).unwrap_or_else(|| PathBuf::from(NAME)) }
    }

    /// What it says that it is, such as `kelvin 0.2.0`.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub fn version(&self) -> Result<String, KelvinError> {
        let answer = self.run_within(ANSWER_LIMIT, &["--version".to_owned()])?;
        Ok(String::from_utf8_lossy(&answer.output).trim().to_owned())
    }

    /// Runs it to its end. The calling thread must live as long as this process: the kernel ends the child by SIGTERM when the thread ends.
    ///
    /// # Errors
    /// It cannot be started, prints too much, or ends by a signal or with another status than 0 and 1.
    pub fn run(&self, arguments: &[String]) -> Result<KelvinOutput, KelvinError> {
        self.run_within(NO_LIMIT, arguments)
    }

    fn run_within(&self, limit: WaitLimit, arguments: &[String]) -> Result<KelvinOutput, KelvinError> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let environment = first_rank_of_host(|name| std::env::var_os(name).is_some());
        let mut child =
            GuardedChild::spawn_ended_by(EndWithParent::Terminated, self.path.as_os_str(), &arguments, environment)
                .map_err(|error| KelvinError::Start { path: self.path.display().to_string(), error })?;
        // Nothing is sent to it: its standard input is at its end.
        child.write_stdin(b"");
        let ended = child.wait(limit, MAX_OUTPUT_BYTES).map_err(KelvinError::Read)?;
        let last_line = last_line(&ended.stderr);
        match ended.end {
            ChildEnd::Exited(status @ 0..=1) => {
                Ok(KelvinOutput { output: ended.output, status: status as u8, last_line })
            }
            end => Err(KelvinError::Failed(complaint(end, last_line))),
        }
    }
}

#[cfg(test)]
impl KelvinProgram {
    /// A program in a directory that runs a script.
    pub(crate) fn of_script(directory: &Path, script: &str) -> Self {
        let path = directory.join(NAME);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self { path }
    }
}

/// The first rank that has another version than rank 0, with that as a sentence about it. The versions are in the order of the ranks.
pub fn first_other_version<'a>(versions: impl IntoIterator<Item = &'a str>) -> Option<(usize, String)> {
    let mut versions = versions.into_iter();
    let first = versions.next()?;
    let (index, other) = versions.enumerate().find(|(_, version)| *version != first)?;
    Some((
        index + 1,
        format!("starts {other}, and rank 0 starts {first}: install one version on all hosts, or name one by --kelvin"),
    ))
}

/// Those of the variables of local ranks that are set, with the number of the first rank.
fn first_rank_of_host(is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
    LOCAL_RANK_VARIABLES.into_iter().filter(|name| is_set(name)).map(|name| (name, "0")).collect()
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    line.strip_prefix("kelvin: ").unwrap_or(line).to_owned()
}

/// Why it gave no result, in its own words where it has said something.
fn complaint(end: ChildEnd, last_line: String) -> String {
    match end {
        ChildEnd::Exited(_) if !last_line.is_empty() => last_line,
        ChildEnd::Exited(status) => format!("kelvin ended with status {status} and said nothing"),
        ChildEnd::Signalled(signal) => format!("kelvin was ended by signal {signal}"),
        ChildEnd::TooMuchOutput => format!("kelvin printed more than {} MiB", MAX_OUTPUT_BYTES >> 20),
        ChildEnd::TimedOut => "kelvin did not answer in time".to_owned(),
        ChildEnd::Interrupted => "kelvin was interrupted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, arguments: &[&str]) -> Result<KelvinOutput, String> {
        let directory = tempfile::tempdir().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        KelvinProgram::of_script(directory.path(), script).run(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn output_and_status_are_those_of_the_program() {
        let output = run("echo \"$2\"; cat; echo one >&2; echo 'kelvin: two' >&2; exit 1", &["a", "b c"]).unwrap();
        let expected = KelvinOutput { output: b"b c\n".to_vec(), status: 1, last_line: "two".into() };
        assert_eq!(output, expected);
    }

    #[test]
    fn complaint_is_its_last_line() {
        let failure = |script| run(script, &[]).unwrap_err();
        assert_eq!(failure("echo progress >&2; echo 'kelvin: --rate x: no number' >&2; exit 2"), "--rate x: no number");
        assert_eq!(failure("exit 3"), "kelvin ended with status 3 and said nothing");
        assert_eq!(failure("kill -SEGV $$"), "kelvin was ended by signal 11");
    }

    #[test]
    fn missing_program_is_named() {
        let error = KelvinProgram::find(Some(Path::new("/no/such/kelvin"))).version().unwrap_err().to_string();
        assert!(error.starts_with("cannot start /no/such/kelvin: ") && error.ends_with("--kelvin"), "{error}");
    }

    #[test]
    fn other_version_is_named() {
        assert_eq!(first_other_version(["kelvin 1", "kelvin 1"]), None);
        let (rank, reason) = first_other_version(["kelvin 1", "kelvin 1", "kelvin 2"]).unwrap();
        assert!(rank == 2 && reason.starts_with("starts kelvin 2, and rank 0 starts kelvin 1: "), "{rank} {reason}");
    }

    #[test]
    fn program_is_the_first_rank_of_its_host() {
        assert_eq!(first_rank_of_host(|name| name == "SLURM_LOCALID"), [("SLURM_LOCALID", "0")]);
        assert!(first_rank_of_host(|_| false).is_empty());
    }
}
