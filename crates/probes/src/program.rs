//! Programs that measure the same: where they are installed, which version they are, and what they print.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kelvin_catalogue::Rival;
use kelvin_harness::{Bench, Stop};
use kelvin_model::{Basis, Prediction, Unit};

use crate::predict::Predicting;
use kelvin_sys::spawn::of_process;

/// Both sides of a comparison, kelvin's first, done one right after the other in an order that alternates from round to round.
pub(crate) fn in_turn<T>(
    bench: &Bench<'_>,
    ours: impl FnOnce() -> Result<T, Stop>,
    theirs: impl FnOnce() -> Result<T, Stop>,
) -> Result<[T; 2], Stop> {
    if bench.round().is_multiple_of(2) {
        let ours = ours()?;
        return Ok([ours, theirs()?]);
    }
    let theirs = theirs()?;
    Ok([ours()?, theirs])
}

/// The ratio of two programs that make the same calls, in a range of this factor either way.
pub(crate) fn as_fast(spread: f64) -> Prediction {
    Predicting::within_factor(Basis::Spec, 1.0, spread)
        .formula("as fast", "1")
        .constant("work of the program beside kelvin's", 1.0, Unit::Ratio, "the same calls")
        .derived_as(format!("the same calls: 1; predicted range: a factor of {spread} either way"))
}

/// Where Debian has lmbench's programs: there, or in a subdirectory named by architecture.
const LMBENCH: &str = "/usr/lib/lmbench/bin";

/// The package of Debian that has a program.
const fn package(rival: Rival) -> &'static str {
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
    pub(crate) fn find(rival: Rival) -> Result<Self, Stop> {
        Self::find_in(&std::env::var_os("PATH").unwrap_or_default(), rival)
    }

    pub(crate) fn find_in(search: &OsStr, rival: Rival) -> Result<Self, Stop> {
        let path = places(search, rival)
            .into_iter()
            .find(|path| is_program(path))
            .ok_or_else(|| Stop::skip(format!("needs the program {}; on Debian: {}", rival.name(), package(rival))))?;
        let version = match rival {
            Rival::BwFileRd => "lmbench's, which reports no version".into(),
            _ => version(&path)?,
        };
        Ok(Self { rival, path, version })
    }

    /// What it is.
    pub(crate) fn words(&self) -> String {
        format!("{} ({})", self.path.display(), self.version)
    }

    /// It, about to be run in plain English and without input.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Runs it to its end, well or not.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Output, Stop> {
        let cannot = |error: io::Error| Stop::fail(format!("cannot run {}: {error}", self.path.display()));
        let done = command.output().map_err(of_process).map_err(cannot)?;
        Ok(Output {
            printed: String::from_utf8_lossy(&done.stdout).into_owned(),
            complaint: String::from_utf8_lossy(&done.stderr).into_owned(),
            failed: (!done.status.success()).then(|| done.status.to_string()),
        })
    }

    /// Runs it to its end, which must be a good one.
    pub(crate) fn output(&self, command: &mut Command) -> Result<Output, Stop> {
        let output = self.run(command)?;
        match &output.failed {
            None => Ok(output),
            Some(status) => Err(Stop::fail(format!("{} ended with {status}: {}", self.rival.name(), output.words()))),
        }
    }
}

/// What a program printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub printed: String,
    pub complaint: String,
    /// How it failed, if it did.
    pub failed: Option<String>,
}

impl Output {
    /// In one line.
    pub(crate) fn words(&self) -> String {
        [&self.complaint, &self.printed]
            .into_iter()
            .flat_map(|text| text.split_whitespace())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Where a program may be.
fn places(search: &OsStr, rival: Rival) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = std::env::split_paths(search).collect();
    if rival == Rival::BwFileRd {
        directories.push(LMBENCH.into());
        directories.extend(fs::read_dir(LMBENCH).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    directories.into_iter().map(|directory| directory.join(rival.name())).collect()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The first line of a program's version.
fn version(path: &Path) -> Result<String, Stop> {
    let output = Command::new(path).arg("--version").env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| Stop::fail(format!("cannot run {}: {error}", path.display())))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok(text.lines().next().unwrap_or("reports no version").trim().to_owned())
}

/// A program that does as the script says. Another process writes it: had this one a descriptor to write it, a child of
/// another test might have inherited that, and what is open to write cannot be executed.
#[cfg(test)]
pub(crate) fn script(directory: &Path, rival: Rival, text: &str) -> Program {
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
    fn programs_are_looked_for_where_they_are_installed() {
        let found = places(OsStr::new("/bin:/usr/bin"), Rival::Fio);
        assert_eq!(found, [PathBuf::from("/bin/fio"), PathBuf::from("/usr/bin/fio")]);
        assert!(
            places(OsStr::new("/bin"), Rival::BwFileRd).contains(&PathBuf::from("/usr/lib/lmbench/bin/bw_file_rd"))
        );
        assert!(
            is_program(Path::new("/bin/sh")) && !is_program(Path::new("/etc/passwd")) && !is_program(Path::new("/bin"))
        );
    }

    #[test]
    fn a_program_that_is_not_installed_is_named_with_its_package() {
        let empty = tempfile::tempdir().unwrap();
        for (rival, package) in [
            (Rival::Fio, "apt-get install fio"),
            (Rival::Cat, "apt-get install coreutils"),
            (Rival::Perf, "apt-get install linux-perf"),
            (Rival::Iperf3, "apt-get install iperf3"),
        ] {
            match Program::find_in(empty.path().as_os_str(), rival) {
                Err(Stop::Skip(reason)) => {
                    assert!(reason.0.contains(rival.name()) && reason.0.ends_with(package), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
