//! What could be changed on a machine to reach a quiet state.

use std::path::Path;

use super::{Change, current};
use crate::hazards::proactive_reclaim_switches;
use crate::text::Root;

const CPUS: &str = "/sys/devices/system/cpu";

/// The changes that would make this machine quieter, in the order in which they should be made; empty where all is
/// quiet or nothing can be set. Address-space randomisation stays on: its effect belongs into the error bars.
pub fn plan(root: &Path) -> Vec<Change> {
    let root = Root::new(root);
    let mut changes = governors(root);
    changes.extend(simple(root));
    changes.extend(
        proactive_reclaim_switches(root)
            .into_iter()
            .filter_map(|(path, to)| change(root, &path, to, "file cache and memory at rest are no longer taken away")),
    );
    // Last, so that it is put back first: the settings of a CPU are gone while it is off line.
    changes.extend(smt(root));
    changes
}

/// A change of a file that exists and says something else.
fn change(root: Root<'_>, path: &str, to: &str, why: &str) -> Option<Change> {
    let from = current(root, path).ok().filter(|from| from != to)?;
    Some(Change { path: path.to_owned(), from, to: to.to_owned(), why: why.to_owned(), optional: false })
}

/// The governors of all frequency domains that offer `performance`.
fn governors(root: Root<'_>) -> Vec<Change> {
    let policies = root.names(&format!("{CPUS}/cpufreq")).into_iter().filter(|name| name.starts_with("policy"));
    let mut directories: Vec<String> = policies.map(|name| format!("{CPUS}/cpufreq/{name}")).collect();
    if directories.is_empty() {
        let cpus = root.names(CPUS).into_iter().filter(|name| is_cpu(name));
        directories = cpus.map(|name| format!("{CPUS}/{name}/cpufreq")).collect();
    }
    let offers = |directory: &str| {
        root.text(&format!("{directory}/scaling_available_governors"))
            .is_none_or(|list| list.split_ascii_whitespace().any(|name| name == "performance"))
    };
    let offering = directories.into_iter().filter(|directory| offers(directory));
    let change_of = |directory: String| {
        change(
            root,
            &format!("{directory}/scaling_governor"),
            "performance",
            "the core runs at full speed from the start",
        )
    };
    offering.filter_map(change_of).collect()
}

fn is_cpu(name: &str) -> bool {
    name.strip_prefix("cpu").is_some_and(|digits| digits.parse::<u32>().is_ok())
}

/// Settings that are one file each: only where it says the first value it is set to the second.
fn simple(root: Root<'_>) -> Vec<Change> {
    let settings: [(&str, &str, &str, &str, bool); 7] = [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0", "1", "the frequency no longer depends on heat", false),
        ("/sys/devices/system/cpu/cpufreq/boost", "1", "0", "the frequency no longer depends on heat", false),
        ("/proc/sys/kernel/numa_balancing", "1", "0", "pages stay where they are", false),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always", "madvise", "huge pages only where asked for", false),
        ("/proc/sys/kernel/nmi_watchdog", "1", "0", "a hardware counter is free, and its interrupts are gone", false),
        ("/sys/kernel/mm/ksm/run", "1", "0", "memory is no longer scanned for equal pages", false),
        ("/proc/sys/vm/swappiness", "60", "1", "memory in use is not swapped out for file cache", true),
    ];
    let wanted = settings.into_iter().filter(|(path, from, ..)| current(root, path).is_ok_and(|now| now == *from));
    let planned = wanted.filter_map(|(path, _, to, why, optional)| {
        change(root, path, to, why).map(|change| Change { optional, ..change })
    });
    planned.filter(|change| !change.path.ends_with("swappiness") || has_swap(root)).collect()
}

fn has_swap(root: Root<'_>) -> bool {
    let text = root.text("/proc/meminfo").unwrap_or_default();
    crate::memory::kibibytes(&text, "SwapTotal").is_some_and(|bytes| bytes > 0)
}

fn smt(root: Root<'_>) -> Option<Change> {
    let path = format!("{CPUS}/smt/control");
    let change = change(root, &path, "off", "no work runs on the other thread of a core; halves the CPUs")?;
    (change.from == "on").then_some(Change { optional: true, ..change })
}
