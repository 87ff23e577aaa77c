//! No parser panics on any bytes: every file that is read, with arbitrary content.

use std::fs;
use std::path::Path;

use kelvin_sys::procfs::{CpuThrottling, MountInfo, ProcessStat};
use proptest::prelude::*;
use proptest::sample::select;

use crate::root::{FileRoot, boot_option, bracketed_word, cpu_list, suffixed_size, value_of_key};
use crate::{DisturbanceMonitor, counters, cpu, file_cache, gzip, hazards, memory, read, smbios, tune};

/// Files that are parsed, one of each kind.
const FUZZED_FILES: [&str; 42] = [
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

/// Words and numbers of these files, some at the edges of their ranges.
const FUZZ_WORDS: [&str; 35] = [
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
    "ü",
    "",
];
const FUZZ_SEPARATORS: [&str; 9] = [" ", ":", "\t: ", "\n", "\n\n", " - ", "=", "-", ","];

fn write_file(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Bytes that look like these files (their words, edge-case numbers, separators), or arbitrary bytes.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let word = select(&FUZZ_WORDS[..]);
    let separator = select(&FUZZ_SEPARATORS[..]);
    let text = proptest::collection::vec((word, separator), 0..40).prop_map(|parts| {
        parts.into_iter().flat_map(|(word, separator)| [word, separator]).collect::<String>().into_bytes()
    });
    prop_oneof![3 => text, 1 => proptest::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_trees_do_not_panic(contents in proptest::collection::vec(content(), FUZZED_FILES.len())) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        FUZZED_FILES.iter().zip(&contents).for_each(|(name, bytes)| write_file(root, name, bytes));
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
        counters::parse_stat(&text);
        counters::parse_pressure(&text, counters::StallKind::Some);
CpuThrottling::parse(&text);
ProcessStat::parse(&text);
        cpu_list(&text);
        suffixed_size(&text);
        bracketed_word(&text);
        value_of_key(&text, "cpu", ':');
        boot_option(&text, "cpu");
        smbios::parse_table(&bytes);
        gzip::unpack(&bytes);
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
        gzip::unpack(&file);
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
    let packed = include_bytes!("../tests/config.gz");
    let text = String::from_utf8(gzip::unpack(packed).unwrap()).unwrap();
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
