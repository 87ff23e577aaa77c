//! What the tests of several crates share: how one reports that it cannot run here, file systems that are mounted or served for one,
//! which control groups there are, and recorded counters.

#![forbid(unsafe_code)]

pub mod cgroups;
pub mod fuse_server;
pub mod mounted_fs;
pub mod postgres;
pub mod recorded_counters;

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::path::Path;
use std::{env, fmt};

/// Names the directory in which `make test` gathers the records of its steps; see `scripts/test-report`.
const SKIP_RECORDS_VARIABLE: &str = "KELVIN_TEST_RECORDS";

/// What would let a test run here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    /// This package of Debian: with CI=true it must be there.
    Package(String),
    /// A right that this user has not.
    Privilege,
    /// Another machine, kernel or file system.
    Machine,
}

/// Why a test, or a part of one, cannot run here, and what would let it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRequirement {
    requirement: Requirement,
    reason: String,
}

impl MissingRequirement {
    /// A package of Debian is not installed.
    pub fn package(name: &str, reason: impl fmt::Display) -> Self {
        Self { requirement: Requirement::Package(name.to_owned()), reason: reason.to_string() }
    }

    /// This user has not the right.
    pub fn privilege(reason: impl fmt::Display) -> Self {
        Self { requirement: Requirement::Privilege, reason: reason.to_string() }
    }

    /// The machine has it not: a CPU, a node, a call of the kernel, a kind of file system.
    pub fn machine(reason: impl fmt::Display) -> Self {
        Self { requirement: Requirement::Machine, reason: reason.to_string() }
    }

    /// A program of this package that could not be started.
    pub fn program(name: &str, package: &str, error: &Error) -> Self {
        let reason = format!("{name}: {error}");
        if error.kind() == ErrorKind::NotFound { Self::package(package, reason) } else { Self::privilege(reason) }
    }

    /// From kelvin's own message when it leaves something out: it names the package or the user who may.
    pub fn from_message(reason: impl fmt::Display) -> Self {
        let message = reason.to_string();
        let package = ["apt-get install ", "(Debian: "].iter().find_map(|words| message.split_once(words));
        let package = package.and_then(|(_, rest)| rest.split([')', ' ', ',', ';', '\n']).next().map(str::to_owned));
        let requirement = match package {
            Some(package) => Requirement::Package(package),
            None if ["root", "CAP_", "right", "permitted", "denied"].iter().any(|word| message.contains(word)) => {
                Requirement::Privilege
            }
            None => Requirement::Machine,
        };
        Self { requirement, reason: message }
    }

    /// Reports that this cannot be tested here: `make test` ends with all such reports, and anybody else reads it on standard
    /// error.
    #[allow(clippy::print_stderr)]
    pub fn report_skip(&self, subject: impl fmt::Display) {
        assert!(!self.reason.trim().is_empty(), "{subject} skipped for no reason");
        eprintln!("{subject} skipped: {}", self.reason);
        if let Some(records) = env::var_os(SKIP_RECORDS_VARIABLE) {
            let record = OpenOptions::new().append(true).create(true).open(Path::new(&records).join("skipped"));
            record.and_then(|mut file| file.write_all(self.record_line(&subject.to_string()).as_bytes())).unwrap();
        }
    }

    /// What is needed, what is skipped and why, as `scripts/skip` writes it too: one line, so that it is written at once.
    fn record_line(&self, subject: &str) -> String {
        let requirement = match &self.requirement {
            Requirement::Package(name) => format!("package {name}"),
            Requirement::Privilege => "right".into(),
            Requirement::Machine => "machine".into(),
        };
        let fields =
            [&requirement, subject, &self.reason].map(|field| field.split_whitespace().collect::<Vec<_>>().join(" "));
        fields.join("\t") + "\n"
    }
}

impl fmt::Display for MissingRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Holds that a table that the book includes, `docs/src/probes/NAME.md`, is this text; with `KELVIN_BLESS=1` it is written there.
///
/// # Panics
/// Where it is another one.
pub fn assert_in_book(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/src/probes/{name}.md"));
    if fs::read_to_string(&path).is_ok_and(|current| current == text) {
        return;
    }
    assert!(
        env::var_os("KELVIN_BLESS").is_some_and(|value| value == "1"),
        "{name}.md is out of date: run this test with KELVIN_BLESS=1"
    );
    fs::write(&path, text).unwrap();
}

/// The directory whose files lie in memory; `None`, and reported, where there is none.
pub fn memory_dir(subject: &str) -> Option<&'static Path> {
    let directory = Path::new("/dev/shm");
    if !directory.is_dir() {
        MissingRequirement::machine("there is no /dev/shm").report_skip(subject);
        return None;
    }
    Some(directory)
}

/// The export of a run that is kept for ever (`crates/store/tests/runs`).
pub fn stored_run(name: &str) -> String {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../store/tests/runs/{name}.json.zst"));
    String::from_utf8(zstd::decode_all(File::open(packed).unwrap()).unwrap()).unwrap()
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("Uid:"));
    line.and_then(|line| line.split_whitespace().nth(2)) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kelvin_message_names_missing_requirement() {
        let requirement_of = |reason: &str| MissingRequirement::from_message(reason).requirement;
        let package = |name: &str| Requirement::Package(name.into());
        assert_eq!(requirement_of("needs the program fio; on Debian: apt-get install fio"), package("fio"));
        assert_eq!(requirement_of("needs tc (Debian: iproute2): No such file"), package("iproute2"));
        assert_eq!(
            requirement_of("needs the right to make a network namespace (root): denied"),
            Requirement::Privilege
        );
        assert_eq!(requirement_of("needs two CPUs, and this process may use 1"), Requirement::Machine);
    }

    #[test]
    fn skip_record_is_one_line() {
        let missing = MissingRequirement::package("xfsprogs", "mkfs.xfs:\n  No such\tfile");
        assert_eq!(missing.record_line("xfs"), "package xfsprogs\txfs\tmkfs.xfs: No such file\n");
        assert_eq!(
            MissingRequirement::machine("one CPU").record_line("a  pair\nof CPUs"),
            "machine\ta pair of CPUs\tone CPU\n"
        );
    }
}
