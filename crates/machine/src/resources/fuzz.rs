//! No parser panics on any bytes, and a look at this process is one.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;

use crate::resources::{Error, ProcessMonitor};

/// A tree of files that is removed when it is dropped.
pub(crate) struct FixtureTree(tempfile::TempDir);

impl Default for FixtureTree {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl FixtureTree {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn fill(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Files that are parsed.
const FILES: [&str; 22] = [
    "proc/stat",
    "proc/meminfo",
    "proc/vmstat",
    "proc/diskstats",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/self/mountinfo",
    "proc/7/cgroup",
    "proc/7/status",
    "proc/7/io",
    "proc/7/net/dev",
    "proc/7/net/snmp",
    "proc/7/net/netstat",
    "proc/7/task/7/schedstat",
    "proc/7/task/7/children",
    "proc/7/task/8/schedstat",
    "proc/7/task/8/children",
    "proc/8/stat",
    "sys/block/vda/size",
    "sys/class/net/eth0/type",
    "sys/class/net/eth0/speed",
    "sys/class/net/eth0/device/x",
];

/// Words and numbers of these files, some at the edges of their ranges.
const TOKENS: [&str; 30] = [
    "cpu",
    "cpu0",
    "procs_running",
    "some",
    "avg10=1.5",
    "total=18446744073709551615",
    "MemAvailable",
    "Active(file)",
    "pgpgin",
    "vda",
    "eth0",
    "Tcp",
    "TcpExt",
    "OutSegs",
    "ListenDrops",
    "RssAnon",
    "Cpus_allowed_list",
    "read_bytes",
    "cgroup2",
    "0::/a/../b",
    ") S 1",
    "7",
    "8",
    "18446744073709551615",
    "99999999999999999999999",
    "-1",
    "kB",
    "0-4294967295",
    "\u{fc}",
    "",
];
const SEPARATORS: [&str; 6] = [" ", ":", "\t: ", "\n", " - ", "  "];

/// Bytes that look like these files, or arbitrary bytes.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let parts = proptest::collection::vec((select(&TOKENS[..]), select(&SEPARATORS[..])), 0..60);
    let text = parts.prop_map(|parts| {
        parts.into_iter().flat_map(|(word, separator)| [word, separator]).collect::<String>().into_bytes()
    });
    prop_oneof![4 => text, 1 => proptest::collection::vec(any::<u8>(), 0..300)]
}

/// So many numbers behind something, as the kernel writes tables.
fn number_table(before: &'static str, count: usize) -> impl Strategy<Value = Vec<u8>> {
    let figure = prop_oneof![Just(u64::MAX), Just(0), any::<u64>()];
    proptest::collection::vec(figure, count).prop_map(move |figures| {
        let figures: Vec<String> = figures.iter().map(u64::to_string).collect();
        format!("{before} {}\n", figures.join(" ")).into_bytes()
    })
}

fn assert_no_panic(tree: &FixtureTree) {
    let mut watched = ProcessMonitor::under_root(tree.path(), 7, Some("vda".into()));
    for _ in 0..2 {
        let Ok(look) = watched.sample() else { continue };
        let json = kelvin_core::json::to_string(&look).unwrap();
        // Counters at the end of their range add up to more than any host has counted; they are still figures.
        assert!(!json.contains("null,\"process\""), "{json}");
        assert!(look.cpu.allowed.is_finite() && look.process.user.is_finite() && look.process.processes > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_trees_do_not_panic(contents in proptest::collection::vec(content(), FILES.len())) {
        let tree = FixtureTree::default();
        FILES.iter().zip(&contents).for_each(|(name, bytes)| tree.fill(name, bytes));
        tree.fill("proc/7/stat", "7 (x) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 12345");
        assert_no_panic(&tree);
    }

    #[test]
    fn extreme_numbers_do_not_panic(
        stat in number_table("7 (x) S 1 1 1 0 -1 4194560 1 2 3 4", 12),
        host in number_table("cpu ", 10),
        disk in number_table("8 0 vda", 17),
        link in number_table("eth0:", 16),
        schedule in number_table("", 3),
    ) {
        let tree = FixtureTree::default();
        tree.fill("proc/7/stat", &stat);
        tree.fill("proc/7/task/7/schedstat", &schedule);
        tree.fill("proc/7/task/8/schedstat", &schedule);
        tree.fill("proc/stat", &host);
        tree.fill("proc/diskstats", &disk);
        tree.fill("sys/block/vda/size", "1");
        tree.fill("proc/7/net/dev", &link);
        assert_no_panic(&tree);
    }
}

#[test]
fn ended_process_is_an_error() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let id = child.id();
    child.wait().unwrap();
    assert_eq!(ProcessMonitor::new(id, None).sample(), Err(Error::NoProcess(id)));
}
