//! No parser panics on any bytes: every file that is read, with arbitrary content; and a fixture of files for other tests.

use std::fs;
use std::path::Path;

use kelvin_sys::procfs::{CpuStat, CpuThrottling, MountInfo, ProcessStat};
use proptest::prelude::*;
use proptest::sample::select;

use crate::kernel::unpack_gzip;
use crate::resources::{Error, ProcessMonitor};
use crate::root::{FileRoot, boot_option, bracketed_word, cpu_list, suffixed_size, value_of_key};
use crate::{DisturbanceMonitor, counters, cpu, file_cache, hazards, memory, read, smbios, tune};

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

/// Files that are parsed, one of each kind.
const FUZZED_FILES: [&str; 47] = [
    "cpuid.txt",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/stat",
    "proc/loadavg",
    "proc/version",
    "proc/cmdline",
    "proc/config.gz",
    "proc/self/mountinfo",
    "proc/self/cgroup",
    "proc/self/status",
    "proc/self/stat",
    "proc/self/limits",
    "proc/self/uid_map",
    "proc/self/auxv",
    "proc/1/environ",
    "proc/1/mountinfo",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/sys/kernel/osrelease",
    "etc/os-release",
    "lib/x86_64-linux-gnu/libc.so.6",
    "lib/apk/db/installed",
    "sys/firmware/dmi/tables/DMI",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/bios_version",
    "sys/class/dmi/id/bios_date",
    "sys/devices/system/edac/mc/mc0/dimm0/size",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_mem_type",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_location",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/hugepages/hugepages-2048kB/x",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id",
    "sys/devices/system/cpu/cpu0/cache/index0/size",
    "sys/devices/system/cpu/cpu0/cache/index0/level",
    "sys/devices/system/cpu/cpu0/cpufreq/base_frequency",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
    "sys/devices/system/node/online",
    "sys/devices/system/node/node0/meminfo",
    "sys/block/nvme0n1/size",
    "sys/block/sda/queue/scheduler",
    "sys/class/net/eth0/mtu",
    "sys/class/net/eth0/speed",
    "sys/class/net/eth0/device/features",
    "sys/fs/cgroup/cpu.max",
];

/// Files that the resources of process 7 are read from.
const FUZZED_PROCESS_FILES: [&str; 22] = [
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
const FUZZ_WORDS: [&str; 51] = [
    "cpu",
    "cpu0",
    "processor",
    "vendor_id",
    "GenuineIntel",
    "MemTotal",
    "SwapTotal",
    "flags",
    "CPU implementer",
    "0x41",
    "some",
    "avg10=1.5",
    "total=",
    "cgroup2",
    "rw,cpu",
    "/",
    "0::/a/../b",
    "4:memory:/x",
    "max 100000",
    "18446744073709551615",
    "99999999999999999999999",
    "-1",
    "0-3,8",
    "0-4294967295",
    "4294967295",
    "NaN",
    "1e999",
    "kB",
    "[always] never",
    "@ 2.60GHz",
    "Cpus_allowed_list",
    "Linux version 6.6",
    "\\040",
    "procs_running",
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
    "read_bytes",
    ") S 1",
    "7",
    "8",
    "ü",
    "",
];
const FUZZ_SEPARATORS: [&str; 10] = [" ", "  ", ":", "\t: ", "\n", "\n\n", " - ", "=", "-", ","];

/// Bytes that look like these files (their words, edge-case numbers, separators), or arbitrary bytes.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let word = select(&FUZZ_WORDS[..]);
    let separator = select(&FUZZ_SEPARATORS[..]);
    let text = proptest::collection::vec((word, separator), 0..60).prop_map(|parts| {
        parts.into_iter().flat_map(|(word, separator)| [word, separator]).collect::<String>().into_bytes()
    });
    prop_oneof![4 => text, 1 => proptest::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_trees_do_not_panic(contents in proptest::collection::vec(content(), FUZZED_FILES.len())) {
        let tree = FixtureTree::default();
        FUZZED_FILES.iter().zip(&contents).for_each(|(name, bytes)| tree.fill(name, bytes));
        let root = tree.path();
        let machine = read(root);
        prop_assert_eq!(machine.identity.len(), 32);
        machine.rows();
        hazards(root, &machine, Path::new("/tmp"));
        let _ = file_cache(root);
        DisturbanceMonitor::start(root).hazards(root);
        tune::plan_changes(root);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_does_not_panic_parsers(bytes in content()) {
        let text = String::from_utf8_lossy(&bytes);
        cpu::parse_cpuinfo(&text);
        memory::kibibytes(&text, "MemTotal");
        MountInfo::parse(&text);
        CpuStat::parse(&text);
        counters::parse_pressure(&text, counters::StallKind::Some);
        CpuThrottling::parse(&text);
        ProcessStat::parse(&text);
        cpu_list(&text);
        suffixed_size(&text);
        bracketed_word(&text);
        value_of_key(&text, "cpu", ':');
        boot_option(&text, "cpu");
        smbios::parse_table(&bytes);
        unpack_gzip(&bytes);
    }

    #[test]
    fn arbitrary_smbios_tables_do_not_panic(structures in proptest::collection::vec((prop_oneof![Just(4_u8), Just(17), any::<u8>()], proptest::collection::vec(any::<u8>(), 0..120)), 0..6)) {
        let mut table = Vec::new();
        for (kind, body) in structures {
            table.extend([kind, body.len() as u8 + 2]);
            table.extend(&body);
            table.extend(b"slot\0bank\0\0");
        }
        smbios::parse_table(&table).channels();
    }

    #[test]
    fn arbitrary_gzip_bodies_do_not_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        file.extend(body);
        unpack_gzip(&file);
    }

    #[test]
    fn cpu_lists_round_trip(cpus in proptest::collection::btree_set(0_u32..10_000, 0..50)) {
        let cpus: Vec<u32> = cpus.into_iter().collect();
        prop_assert_eq!(cpu_list(&kelvin_core::cpu_ranges(&cpus)), Some(cpus));
    }
}

#[test]
fn dynamic_huffman_configuration_is_unpacked() {
    // `zcat /proc/config.gz` is what this is for: a long text of many symbols, packed by gzip -9.
    let config = include_bytes!("../tests/config.gz");
    let text = String::from_utf8(unpack_gzip(config).unwrap()).unwrap();
    assert_eq!(value_of_key(&text, "CONFIG_HZ", '='), Some("250"));
    assert_eq!(text.lines().count(), 2003);
    assert_eq!(text.lines().last(), Some("CONFIG_LAST=y"));
}

#[test]
fn directories_instead_of_files_do_not_panic() {
    let directory = tempfile::tempdir().unwrap();
    for name in FUZZED_FILES {
        fs::create_dir_all(directory.path().join(name)).unwrap();
    }
    let machine = read(directory.path());
    assert!(machine.memory.total_bytes.get().is_none());
    assert!(FileRoot::new(directory.path()).read("proc/stat").unwrap_err().contains("cannot be read"));
}

/// This many numbers behind something, as the kernel writes tables.
fn number_table(before: &'static str, count: usize) -> impl Strategy<Value = Vec<u8>> {
    let figure = prop_oneof![Just(u64::MAX), Just(0), any::<u64>()];
    proptest::collection::vec(figure, count).prop_map(move |figures| {
        let figures: Vec<String> = figures.iter().map(u64::to_string).collect();
        format!("{before} {}\n", figures.join(" ")).into_bytes()
    })
}

fn assert_samples_without_panic(tree: &FixtureTree) {
    let mut monitor = ProcessMonitor::under_root(tree.path(), 7, Some("vda".into()));
    for _ in 0..2 {
        let Ok(snapshot) = monitor.sample() else { continue };
        let json = kelvin_core::json::to_string(&snapshot).unwrap();
        // Counters at the end of their range add up to more than any host has counted; they are still figures.
        assert!(!json.contains("null,\"process\""), "{json}");
        assert!(
            snapshot.cpu.allowed.is_finite() && snapshot.process.user.is_finite() && snapshot.process.processes > 0
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_process_files_do_not_panic(contents in proptest::collection::vec(content(), FUZZED_PROCESS_FILES.len())) {
        let tree = FixtureTree::default();
        FUZZED_PROCESS_FILES.iter().zip(&contents).for_each(|(name, bytes)| tree.fill(name, bytes));
        tree.fill("proc/7/stat", "7 (x) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 12345");
        assert_samples_without_panic(&tree);
    }

    #[test]
    fn extreme_counters_do_not_panic(
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
        assert_samples_without_panic(&tree);
    }
}

#[test]
fn ended_process_is_an_error() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let id = child.id();
    child.wait().unwrap();
    assert_eq!(ProcessMonitor::new(id, None).sample(), Err(Error::NoProcess(id)));
}
