//! Records the files of this machine that facts and hazards are read from, as one text file for the tests:
//! `cargo run -p kelvin-machine --example record -- FILE`.
//!
//! Host name, addresses, serial numbers, user names and paths of the user's are left out or replaced. The firmware's
//! table of modules is left out whole, since it is full of serial numbers. Read the result before sharing it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kelvin_machine::redact::{boot_parameters, redact};

/// Files that are recorded as they are, unless [`scrubbed`] has something to say.
const FILES: &[&str] = &[
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/stat",
    "proc/loadavg",
    "proc/version",
    "proc/cmdline",
    "proc/self/mountinfo",
    "proc/self/cgroup",
    "proc/self/status",
    "proc/self/limits",
    "proc/self/uid_map",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/nmi_watchdog",
    "proc/sys/vm/swappiness",
    "proc/sys/net/ipv4/tcp_congestion_control",
    "etc/os-release",
    "sys/hypervisor/type",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/debug/sched/preempt",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/clocksource/clocksource0/available_clocksource",
];

/// Directories that are recorded with what is below them, to a depth, and only the files with these names (all, if
/// none is named).
const DIRECTORIES: &[(&str, usize, &[&str])] = &[
    ("sys/devices/system/cpu", 0, &["online", "possible", "present", "offline"]),
    ("sys/devices/system/cpu/smt", 0, &[]),
    ("sys/devices/system/cpu/cpuidle", 0, &[]),
    ("sys/devices/system/cpu/cpufreq", 0, &["boost"]),
    ("sys/devices/system/cpu/intel_pstate", 0, &[]),
    ("sys/devices/system/cpu/vulnerabilities", 0, &[]),
    ("sys/devices/system/node", 0, &["online"]),
    ("sys/devices/system/node/node0", 0, &["cpulist", "distance", "meminfo"]),
    ("sys/kernel/mm/hugepages", 1, &["nr_hugepages"]),
    ("sys/kernel/mm/damon/admin/kdamonds", 2, &["nr_kdamonds", "state"]),
    ("sys/module/page_reporting/parameters", 0, &["page_reporting_order"]),
    ("sys/fs/cgroup", 1, CGROUP_FILES),
];

/// Files of a control group, of both versions.
const CGROUP_FILES: &[&str] = &[
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.stat",
    "memory.max",
    "memory.high",
    "memory.current",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.stat",
    "pids.max",
    "io.max",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

/// Files below each CPU.
const CPU_FILES: &[(&str, usize, &[&str])] = &[
    ("topology", 0, &["physical_package_id", "core_cpus_list"]),
    ("cache", 1, &["level", "type", "size", "ways_of_associativity", "coherency_line_size", "shared_cpu_list"]),
    ("cpuidle", 1, &["name", "latency", "disable"]),
    ("cpufreq", 0, &["scaling_governor", "scaling_driver", "base_frequency", "cpuinfo_max_freq", "boost"]),
    ("thermal_throttle", 0, &["core_throttle_count", "package_throttle_count"]),
];

/// Leaves of cpuid that are recorded; leaf 3, which once held a serial number, is none of them.
const CPUID_LEAVES: &[(u32, u32)] = &[
    (0, 0),
    (1, 0),
    (2, 0),
    (0x15, 0),
    (0x16, 0),
    (0x18, 0),
    (0x18, 1),
    (0x18, 2),
    (0x18, 3),
    (0x18, 4),
    (0x4000_0000, 0),
    (0x4000_0001, 0),
    (0x4000_0010, 0),
    (0x8000_0000, 0),
    (0x8000_0005, 0),
    (0x8000_0006, 0),
    (0x8000_0007, 0),
    (0x8000_0019, 0),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).ok_or("name the file to write: record FILE")?;
    let mut tree = String::from(
        "# Recorded from a running machine by the example `record`; names and numbers of its own are left out.\n",
    );
    FILES.iter().for_each(|name| add(&mut tree, name));
    DIRECTORIES.iter().for_each(|&(name, depth, files)| add_directory(&mut tree, name, depth, files));
    for cpu in names("sys/devices/system/cpu") {
        if cpu.strip_prefix("cpu").is_some_and(|digits| digits.parse::<u32>().is_ok()) {
            for &(name, depth, files) in CPU_FILES {
                add_directory(&mut tree, &format!("sys/devices/system/cpu/{cpu}/{name}"), depth, files);
            }
        }
    }
    add_devices(&mut tree);
    add_cpuid(&mut tree);
    fs::write(file, tree)?;
    Ok(())
}

fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new("/").join(directory)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn add(tree: &mut String, name: &str) {
    if let Ok(text) = fs::read_to_string(Path::new("/").join(name)) {
        let _ = writeln!(tree, "=== {name}\n{}", scrubbed(name, &text).trim_end());
    }
}

fn add_directory(tree: &mut String, directory: &str, depth: usize, files: &[&str]) {
    for name in names(directory) {
        let path = format!("{directory}/{name}");
        let Ok(kind) = fs::symlink_metadata(Path::new("/").join(&path)).map(|data| data.file_type()) else { continue };
        if kind.is_dir() && depth > 0 {
            add_directory(tree, &path, depth - 1, files);
        } else if kind.is_file() && (files.is_empty() || files.contains(&name.as_str())) {
            add(tree, &path);
        }
    }
}

fn add_link(tree: &mut String, name: &str) {
    if let Some(target) =
        fs::read_link(Path::new("/").join(name)).ok().and_then(|path| path.to_str().map(str::to_owned))
    {
        let _ = writeln!(tree, "=== {name} -> {target}");
    }
}

/// Disks, interfaces and virtio devices. The links of a directory come as links: those of sysfs lead to directories
/// that are not recorded, so what is below a disk or an interface is recorded under its short name instead.
fn add_devices(tree: &mut String) {
    for disk in names("sys/block").into_iter().filter(|name| !name.starts_with("loop")) {
        let directory = format!("sys/block/{disk}");
        add(tree, &format!("{directory}/size"));
        add(tree, &format!("{directory}/device/model"));
        for file in ["scheduler", "nr_requests", "write_cache", "rotational", "logical_block_size"] {
            add(tree, &format!("{directory}/queue/{file}"));
        }
        for queue in names(&format!("{directory}/mq")) {
            add(tree, &format!("{directory}/mq/{queue}/nr_tags"));
        }
    }
    for nic in names("sys/class/net") {
        let directory = format!("sys/class/net/{nic}");
        for file in ["type", "mtu", "operstate", "speed", "device/features"] {
            add(tree, &format!("{directory}/{file}"));
        }
        add_link(tree, &format!("{directory}/device/driver"));
    }
    for device in names("sys/bus/virtio/devices") {
        add(tree, &format!("sys/bus/virtio/devices/{device}/device"));
        add(tree, &format!("sys/bus/virtio/devices/{device}/features"));
    }
}

fn add_cpuid(tree: &mut String) {
    let highest = |leaf: u32| kelvin_sys::cpuid::leaf(leaf & 0xf000_0000, 0).map_or(0, |registers| registers[0]);
    let mut lines = String::new();
    for &(leaf, subleaf) in CPUID_LEAVES.iter().filter(|(leaf, _)| *leaf <= highest(*leaf)) {
        if let Some([a, b, c, d]) = kelvin_sys::cpuid::leaf(leaf, subleaf) {
            // The upper byte of EBX of leaf 1 is the number of the CPU this happens to run on.
            let b = if leaf == 1 { b & 0x00ff_ffff } else { b };
            let _ = writeln!(lines, "{leaf:x} {subleaf:x} {a:x} {b:x} {c:x} {d:x}");
        }
    }
    if !lines.is_empty() {
        let _ = write!(tree, "=== cpuid.txt\n{lines}");
    }
}

/// A file's text without what identifies its machine or user.
fn scrubbed(name: &str, text: &str) -> String {
    match name {
        "proc/version" => redact(text).into_owned(),
        "proc/cmdline" => boot_parameters(text).0,
        "proc/self/mountinfo" => {
            text.lines().filter(|line| is_system_mount(line)).map(|line| format!("{line}\n")).collect()
        }
        "proc/self/cgroup" => text.lines().map(hide_ids).collect(),
        "proc/self/status" => lines_of(text, &["Cpus_allowed_list", "Mems_allowed_list"]),
        "proc/stat" => text.lines().filter(|line| !line.starts_with("intr")).map(|line| format!("{line}\n")).collect(),
        _ => text.to_owned(),
    }
}

fn lines_of(text: &str, keys: &[&str]) -> String {
    let wanted = |line: &&str| keys.iter().any(|key| line.starts_with(key));
    text.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
}

fn is_system_mount(line: &str) -> bool {
    line.split(' ')
        .nth(4)
        .is_some_and(|target| target == "/" || ["/proc", "/sys", "/dev"].iter().any(|top| target.starts_with(top)))
}

/// Parts of a cgroup's path that are numbers of somebody's are replaced.
fn hide_ids(line: &str) -> String {
    let parts = line.split('/').enumerate().map(|(index, part)| {
        let system = part.is_empty() || part.ends_with(".slice") || part.ends_with(".scope");
        if index == 0 || system { part } else { "group" }
    });
    parts.collect::<Vec<_>>().join("/") + "\n"
}
