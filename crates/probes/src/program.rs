//! Programs that measure the same: where they are installed, which version they are, and what they print.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kelvin_core::catalogue::Rival;
use kelvin_core::{Prediction, PredictionBasis, Unit};
use kelvin_harness::{Bench, ProbeError};

use crate::formula::fact;
use crate::reasons::{OrReason, ProbeResult};
use kelvin_sys::c_library;
use kelvin_sys::thread_spawn::process_error;

/// Both sides of a comparison, kelvin's first, done one right after the other in an order that alternates from round to round.
pub(crate) fn run_alternating<T>(
    bench: &Bench<'_>,
    run_kelvin: impl FnOnce() -> ProbeResult<T>,
    run_rival: impl FnOnce() -> ProbeResult<T>,
) -> ProbeResult<[T; 2]> {
    if bench.round().is_multiple_of(2) {
        let kelvin_result = run_kelvin()?;
        return Ok([kelvin_result, run_rival()?]);
    }
    let rival_result = run_rival()?;
    Ok([run_kelvin()?, rival_result])
}

/// Notes the C library, which is a part of what is measured.
pub(crate) fn note_c_library(bench: &mut Bench<'_>) {
    bench.note(format!("C library: {}, {}", c_library::name(), c_library::LINKAGE));
}

/// The ratio of two programs that make the same calls, in a range of this factor either way.
pub(crate) fn equal_speed(spread: f64) -> Prediction {
    fact("work of the program next to kelvin's", 1.0, Unit::Ratio, "the same calls")
        .widen(spread)
        .predict(PredictionBasis::Spec, "as fast")
}

/// Where Debian has lmbench's programs: there, or in a subdirectory named by architecture.
const LMBENCH_DIRECTORY: &str = "/usr/lib/lmbench/bin";

/// The package of Debian that has a program.
const fn debian_package(rival: Rival) -> &'static str {
    match rival {
        Rival::Fio => "apt-get install fio",
        Rival::Dd | Rival::Cat => "apt-get install coreutils",
        Rival::BwFileRd => "apt-get install lmbench, from non-free",
        Rival::Perf => "apt-get install linux-perf",
        Rival::Iperf3 => "apt-get install iperf3",
    }
}

/// An installed program: the name of its file is its word in a case.
#[derive(Debug)]
pub(crate) struct Program {
    pub rival: Rival,
    pub path: PathBuf,
    version: String,
}

impl Program {
    /// The program, if it is installed.
    pub(crate) fn find(rival: Rival) -> ProbeResult<Self> {
        Self::find_in(&std::env::var_os("PATH").unwrap_or_default(), rival)
    }

    pub(crate) fn find_in(search: &OsStr, rival: Rival) -> ProbeResult<Self> {
        let path = candidate_paths(search, rival).into_iter().find(|path| is_program(path)).or_skip(format!(
            "needs the program {}; on Debian: {}",
            rival.name(),
            debian_package(rival)
        ))?;
        let mut program = Self { rival, path, version: "lmbench's, which reports no version".into() };
        if rival != Rival::BwFileRd {
            let output = program.run(program.command().arg("--version"))?;
            let text = output.printed + &output.complaint;
            program.version = text.lines().next().unwrap_or("reports no version").trim().to_owned();
        }
        Ok(program)
    }

    /// What it is.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.path.display(), self.version)
    }

    /// It, about to be run in plain English and without input.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Starts it.
    pub(crate) fn spawn(&self, command: &mut Command) -> ProbeResult<RunningProgram> {
        command.spawn().map(RunningProgram).map_err(|error| self.start_error(error))
    }

    /// Runs it to its end, well or not.
    pub(crate) fn run(&self, command: &mut Command) -> ProbeResult<ProgramOutput> {
        let output = command.output().map_err(|error| self.start_error(error))?;
        Ok(ProgramOutput {
            printed: String::from_utf8_lossy(&output.stdout).into_owned(),
            complaint: String::from_utf8_lossy(&output.stderr).into_owned(),
            failed: (!output.status.success()).then(|| output.status.to_string()),
        })
    }

    fn start_error(&self, error: io::Error) -> ProbeError {
        ProbeError::fail(format!("cannot run {}: {}", self.path.display(), process_error(error)))
    }

    /// Runs it to its end, which must be a good one.
    pub(crate) fn run_checked(&self, command: &mut Command) -> ProbeResult<ProgramOutput> {
        let output = self.run(command)?;
        match &output.failed {
            None => Ok(output),
            Some(status) => {
                Err(ProbeError::fail(format!("{} ended with {status}: {}", self.rival.name(), output.one_line())))
            }
        }
    }
}

/// A program that runs; ended and reaped when dropped.
pub(crate) struct RunningProgram(pub Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a program printed.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub printed: String,
    pub complaint: String,
    /// How it failed, if it did.
    pub failed: Option<String>,
}

impl ProgramOutput {
    /// In one line.
    pub(crate) fn one_line(&self) -> String {
        format!("{} {}", self.complaint, self.printed).split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Where a program may be.
fn candidate_paths(search: &OsStr, rival: Rival) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = std::env::split_paths(search).collect();
    if rival == Rival::BwFileRd {
        directories.push(LMBENCH_DIRECTORY.into());
        directories.extend(fs::read_dir(LMBENCH_DIRECTORY).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    directories.into_iter().map(|directory| directory.join(rival.name())).collect()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A program that runs the script. Another process writes it: had this one a descriptor to write it, a child of another
/// test might have inherited that. What is open to write cannot be executed.
#[cfg(test)]
pub(crate) fn script_program(directory: &Path, rival: Rival, text: &str) -> Program {
    let (path, source) = (directory.join(rival.name()), directory.join("script"));
    fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
    let install = Command::new("install").args(["-m", "755"]).arg(&source).arg(&path).status();
    assert!(install.unwrap().success());
    Program::find_in(directory.as_os_str(), rival).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_search_path() {
        let paths = candidate_paths(OsStr::new("/bin:/usr/bin"), Rival::Fio);
        assert_eq!(paths, [PathBuf::from("/bin/fio"), PathBuf::from("/usr/bin/fio")]);
        assert!(
            candidate_paths(OsStr::new("/bin"), Rival::BwFileRd)
                .contains(&PathBuf::from("/usr/lib/lmbench/bin/bw_file_rd"))
        );
        assert!(
            is_program(Path::new("/bin/sh")) && !is_program(Path::new("/etc/passwd")) && !is_program(Path::new("/bin"))
        );
    }

    #[test]
    fn missing_program_names_its_package() {
        let empty = tempfile::tempdir().unwrap();
        for (rival, package) in [
            (Rival::Fio, "apt-get install fio"),
            (Rival::Cat, "apt-get install coreutils"),
            (Rival::Perf, "apt-get install linux-perf"),
            (Rival::Iperf3, "apt-get install iperf3"),
        ] {
            match Program::find_in(empty.path().as_os_str(), rival) {
                Err(ProbeError::Skip(reason)) => {
                    assert!(reason.0.contains(rival.name()) && reason.0.ends_with(package), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
