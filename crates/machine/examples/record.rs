//! Records the files of this machine that facts and hazards are read from, as one text file for the tests:
//! `cargo run -p kelvin-machine --example record -- FILE`.
//!
//! Host name, addresses, serial numbers, user names and paths of the user's are left out or replaced. The firmware's
//! table of modules is left out whole, since it is full of serial numbers. Read the result before sharing it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kelvin_machine::redact::{boot_parameters, redact};

/// The files, as patterns.
const FILES: &str = include_str!("../data/recorded_files.txt");

/// Leaves of cpuid that are recorded, each with its highest sub-leaf; leaf 3, which once held a serial number, is none of them.
const CPUID_LEAVES: &[(std::ops::RangeInclusive<u32>, u32)] = &[
    (0..=2, 0),
    (0x15..=0x16, 0),
    (0x18..=0x18, 4),
    (0x4000_0000..=0x4000_0001, 0),
    (0x4000_0010..=0x4000_0010, 0),
    (0x8000_0000..=0x8000_0000, 0),
    (0x8000_0005..=0x8000_0007, 0),
    (0x8000_0019..=0x8000_0019, 0),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).ok_or("name the file to write: record FILE")?;
    let mut tree = String::from(
        "# Recorded from a running machine by the example `record`; names and numbers of its own are left out.\n",
    );
    for pattern in FILES.lines().filter(|line| !line.starts_with('#')) {
        let (directory, files) = pattern.rsplit_once('/').ok_or("a pattern without a directory")?;
        for name in matches(directory)
            .iter()
            .flat_map(|directory| files.split(',').map(move |file| format!("{directory}/{file}")))
        {
            matches(&name)
                .iter()
                .filter(|name| !name.starts_with("sys/block/loop"))
                .for_each(|name| add(&mut tree, name));
        }
    }
    add_cpuid(&mut tree);
    fs::write(file, tree)?;
    Ok(())
}

/// The names that a pattern stands for.
fn matches(pattern: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    for segment in pattern.split('/') {
        let names_within = |directory: &String| match segment.find(['*', '#']) {
            None => vec![segment.to_owned()],
            Some(index) => {
                let (before, is_number) = (&segment[..index], segment.ends_with('#'));
                let entries = fs::read_dir(Path::new("/").join(directory)).into_iter().flatten().flatten();
                let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
                let is_match = |rest: &str| !is_number || rest.parse::<u32>().is_ok();
                let mut names: Vec<String> =
                    names.filter(|name| name.strip_prefix(before).is_some_and(is_match)).collect();
                names.sort();
                names
            }
        };
        let paths_below = |directory: &String| {
            names_within(directory).into_iter().map(|name| join(directory, &name)).collect::<Vec<_>>()
        };
        paths = paths.iter().flat_map(paths_below).collect();
    }
    paths
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Adds a file with its text, or where its name is that of a driver the link.
fn add(tree: &mut String, name: &str) {
    let path = Path::new("/").join(name);
    if let Some(target) = fs::read_link(&path).ok().filter(|_| name.ends_with("/driver")) {
        let _ = writeln!(tree, "=== {name} -> {}", target.display());
    } else if let Ok(text) = fs::read_to_string(path) {
        let _ = writeln!(tree, "=== {name}\n{}", scrubbed(name, &text).trim_end());
    }
}

fn add_cpuid(tree: &mut String) {
    let max_leaf = |leaf: u32| kelvin_sys::cpuid::leaf(leaf & 0xf000_0000, 0).map_or(0, |registers| registers[0]);
    let mut lines = String::new();
    let leaf_pairs = CPUID_LEAVES
        .iter()
        .flat_map(|(leaf_pairs, max_subleaf)| leaf_pairs.clone().map(move |leaf| (leaf, *max_subleaf)));
    let answers = leaf_pairs.flat_map(|(leaf, max_subleaf)| (0..=max_subleaf).map(move |subleaf| (leaf, subleaf)));
    for (leaf, subleaf) in answers.filter(|(leaf, _)| *leaf <= max_leaf(*leaf)) {
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
        "proc/self/mountinfo" => lines_where(text, |line| {
            let is_system = |target: &str| ["/proc", "/sys", "/dev"].iter().any(|prefix| target.starts_with(prefix));
            line.split(' ').nth(4).is_some_and(|target| target == "/" || is_system(target))
        }),
        "proc/self/cgroup" => text.lines().map(hide_ids).collect(),
        "proc/self/status" => {
            lines_where(text, |line| line.starts_with("Cpus_allowed_list") || line.starts_with("Mems_allowed_list"))
        }
        "proc/stat" => lines_where(text, |line| !line.starts_with("intr")),
        _ => text.to_owned(),
    }
}

fn lines_where(text: &str, is_included: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|line| is_included(line)).map(|line| format!("{line}\n")).collect()
}

/// Parts of a cgroup's path that are numbers of somebody's are replaced.
fn hide_ids(line: &str) -> String {
    let parts = line.split('/').enumerate().map(|(index, part)| {
        let is_system_unit = part.is_empty() || part.ends_with(".slice") || part.ends_with(".scope");
        if index == 0 || is_system_unit { part } else { "group" }
    });
    parts.collect::<Vec<_>>().join("/") + "\n"
}
