//! What the tests of several crates share: how one says that it cannot run here, file systems that are mounted or served for one,
//! and which control groups there are.

#![forbid(unsafe_code)]

pub mod groups;
pub mod mounted;
pub mod postgres;
pub mod served;

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::path::Path;
use std::{env, fmt};

/// Names the directory in which `make test` gathers what its steps have to say; see `scripts/test-report`.
const RECORDS: &str = "KELVIN_TEST_RECORDS";

/// What would let a test run here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Needs {
    /// This package of Debian: with CI=true it must be there.
    Package(String),
    /// A right that this user has not.
    Right,
    /// Another machine, kernel or file system.
    Machine,
}

/// Why a test, or a part of one, cannot run here, and what would let it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    needs: Needs,
    why: String,
}

impl Missing {
    /// A package of Debian is not installed.
    pub fn package(name: &str, why: impl fmt::Display) -> Self {
        Self { needs: Needs::Package(name.to_owned()), why: why.to_string() }
    }

    /// This user has not the right.
    pub fn right(why: impl fmt::Display) -> Self {
        Self { needs: Needs::Right, why: why.to_string() }
    }

    /// The machine has it not: a CPU, a node, a call of the kernel, a kind of file system.
    pub fn machine(why: impl fmt::Display) -> Self {
        Self { needs: Needs::Machine, why: why.to_string() }
    }

    /// A program of this package that could not be started.
    pub fn program(name: &str, package: &str, error: &Error) -> Self {
        let why = format!("{name}: {error}");
        if error.kind() == ErrorKind::NotFound { Self::package(package, why) } else { Self::right(why) }
    }

    /// What kelvin says of itself when it leaves something out: it names the package or the user who may.
    pub fn said(reason: impl fmt::Display) -> Self {
        let why = reason.to_string();
        let package = ["apt-get install ", "(Debian: "].iter().find_map(|words| why.split_once(words));
        let package = package.and_then(|(_, rest)| rest.split([')', ' ', ',', ';', '\n']).next().map(str::to_owned));
        let needs = match package {
            Some(package) => Needs::Package(package),
            None if ["root", "CAP_", "right", "permitted", "denied"].iter().any(|word| why.contains(word)) => {
                Needs::Right
            }
            None => Needs::Machine,
        };
        Self { needs, why }
    }

    /// Says that this cannot be tested here: `make test` ends with all that was said, and anybody else reads it on standard
    /// error.
    #[allow(clippy::print_stderr)]
    pub fn skips(&self, what: impl fmt::Display) {
        assert!(!self.why.trim().is_empty(), "{what} skipped for no reason");
        eprintln!("{what} skipped: {}", self.why);
        if let Some(records) = env::var_os(RECORDS) {
            let record = OpenOptions::new().append(true).create(true).open(Path::new(&records).join("skipped"));
            record.and_then(|mut file| file.write_all(self.line(&what.to_string()).as_bytes())).unwrap();
        }
    }

    /// What is needed, what is skipped and why, as `scripts/skip` writes it too: one line, so that it is written at once.
    fn line(&self, what: &str) -> String {
        let needs = match &self.needs {
            Needs::Package(name) => format!("package {name}"),
            Needs::Right => "right".into(),
            Needs::Machine => "machine".into(),
        };
        let fields = [&needs, what, &self.why].map(|field| field.split_whitespace().collect::<Vec<_>>().join(" "));
        fields.join("\t") + "\n"
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Holds that a page of the book has this text between `<!-- NAME -->` and `<!-- end of NAME -->`; with `KELVIN_BLESS=1` it is written there.
///
/// # Panics
/// Where it has another one, or has not these marks.
pub fn assert_in_book(page: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src").join(page);
    let whole = fs::read_to_string(&path).unwrap();
    let marks = [format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->")];
    let (before, rest) = whole.split_once(&marks[0]).unwrap_or_else(|| panic!("{page} has no {}", marks[0]));
    let (now, after) = rest.split_once(&marks[1]).unwrap_or_else(|| panic!("{page} has no {}", marks[1]));
    if now == text {
        return;
    }
    assert!(
        env::var_os("KELVIN_BLESS").is_some_and(|value| value == "1"),
        "{page} is out of date: run this test with KELVIN_BLESS=1"
    );
    fs::write(&path, [before, &marks[0], text, &marks[1], after].concat()).unwrap();
}

/// The directory whose files lie in memory; `None`, and said, where there is none.
pub fn in_memory(what: &str) -> Option<&'static Path> {
    let directory = Path::new("/dev/shm");
    if !directory.is_dir() {
        Missing::machine("there is no /dev/shm").skips(what);
        return None;
    }
    Some(directory)
}

/// What had another name when the first runs were stored.
const RENAMED: [(&str, &str); 5] = [
    (r#""peer_cpu":"#, r#""partner_cpu":"#),
    (r#""seed":true"#, r#""baseline":true"#),
    (r#""seed":false"#, r#""baseline":false"#),
    (r#""mem.bandwidth.handover""#, r#""mem.bandwidth.core_to_core""#),
    (r#""net.bandwidth.udp.overtaken""#, r#""net.bandwidth.udp.reordered""#),
];

/// The export of a run that is kept for ever (`crates/store/tests/runs`): as it was written, and by the names of today.
pub fn stored_run(name: &str) -> (String, String) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../store/tests/runs/{name}.json.zst"));
    let text = zstd::decode_all(File::open(packed).unwrap()).unwrap();
    let written = String::from_utf8(text).unwrap();
    let today = RENAMED.iter().fold(written.clone(), |text, (former, name)| text.replace(former, name));
    (written, today)
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
    fn what_kelvin_says_names_what_is_missing() {
        let needs = |reason: &str| Missing::said(reason).needs;
        let package = |name: &str| Needs::Package(name.into());
        assert_eq!(needs("needs the program fio; on Debian: apt-get install fio"), package("fio"));
        assert_eq!(needs("needs tc (Debian: iproute2): No such file"), package("iproute2"));
        assert_eq!(needs("needs the right to make a network namespace (root): denied"), Needs::Right);
        assert_eq!(needs("needs two CPUs, and this process may use 1"), Needs::Machine);
    }

    #[test]
    fn a_record_is_one_line_of_three_fields() {
        let missing = Missing::package("xfsprogs", "mkfs.xfs:\n  No such\tfile");
        assert_eq!(missing.line("xfs"), "package xfsprogs\txfs\tmkfs.xfs: No such file\n");
        assert_eq!(Missing::machine("one CPU").line("a  pair\nof CPUs"), "machine\ta pair of CPUs\tone CPU\n");
    }
}
