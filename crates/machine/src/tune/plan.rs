//! The settings that tune knows, and which to change on a machine.

use std::path::Path;

use kelvin_core::catalogue::cpu::FREQUENCY;
use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, FAULT_MINOR};
use kelvin_core::catalogue::os::{IPC_LATENCY, PROCESS_FORK, SYSCALL_NULL};

use super::{SettingChange, VisibleIn, current_value};
use crate::memory::{MEMINFO, kibibytes};
use crate::root::FileRoot;

/// Stands for a number in a path.
const NUMBER_PLACEHOLDER: char = '#';
/// Highest number of a CPU, policy or daemon.
const MAX_NUMBER: u32 = 65_535;
/// Maximum length of a governor's name: `CPUFREQ_NAME_LEN` of `linux/cpufreq.h` without the NUL.
const MAX_GOVERNOR_LENGTH: usize = 15;
/// Where kernels have them per policy, and where only per CPU.
const GOVERNOR_FILES: [&str; 2] = [
    "/sys/devices/system/cpu/cpufreq/policy#/scaling_governor",
    "/sys/devices/system/cpu/cpu#/cpufreq/scaling_governor",
];
/// Stands for all other governors.
const ANY_GOVERNOR: &str = "*";
const GOVERNOR_BENEFIT: &str = "the core runs at full speed from the start";
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
/// The switches of proactive reclaim, and the benefit of turning them off.
const PROACTIVE_RECLAIM_FILES: [&str; 2] =
    ["/sys/kernel/mm/damon/admin/kdamonds/#/state", "/sys/module/damon_reclaim/parameters/enabled"];
const RECLAIM_BENEFIT: &str = "idle file cache and memory are no longer reclaimed";
/// Of switching back and forth within seconds nothing would show.
const VISIBLE_AFTER_IDLE: VisibleIn = VisibleIn::NotMeasurable(
    "it acts on memory that has been idle for seconds to minutes, and a figure lasts milliseconds",
);
/// What follows the core's clock: work in the core, the kernel's, and a wake-up of another CPU.
const VISIBLE_IN_FREQUENCY: VisibleIn = VisibleIn::Metrics(&[&FREQUENCY, &SYSCALL_NULL, &IPC_LATENCY]);
/// What the kernel does to pages shows in touching them and in copying from one to another.
const VISIBLE_IN_PAGE_WORK: VisibleIn = VisibleIn::Metrics(&[&FAULT_MINOR, &BANDWIDTH_COPY]);

/// A setting that tune may change and put back.
pub(super) struct TunableSetting {
    path: &'static str,
    /// The values that it is changed from, hence the only ones ever put back.
    noisy: &'static str,
    pub(super) to: &'static str,
    pub(super) benefit: &'static str,
    pub(super) optional: bool,
    /// Where a difference would show.
    pub(super) visible_in: VisibleIn,
}

const fn setting(
    path: &'static str,
    [noisy, to]: [&'static str; 2],
    benefit: &'static str,
    visible_in: VisibleIn,
) -> TunableSetting {
    TunableSetting { path, noisy, to, benefit, optional: false, visible_in }
}

const fn optional(setting: TunableSetting) -> TunableSetting {
    TunableSetting { optional: true, ..setting }
}

/// In the order of change. SMT comes last, and is put back first: an offline CPU has no settings.
#[rustfmt::skip]
static SETTINGS: [TunableSetting; 12] = [
    setting(GOVERNOR_FILES[0], [ANY_GOVERNOR, "performance"], GOVERNOR_BENEFIT, VISIBLE_IN_FREQUENCY),
    setting(GOVERNOR_FILES[1], [ANY_GOVERNOR, "performance"], GOVERNOR_BENEFIT, VISIBLE_IN_FREQUENCY),
    setting("/sys/devices/system/cpu/intel_pstate/no_turbo", ["0", "1"], "the frequency no longer depends on \
                                                                          temperature", VISIBLE_IN_FREQUENCY),
    setting("/sys/devices/system/cpu/cpufreq/boost", ["1", "0"], "the frequency no longer depends on temperature", VISIBLE_IN_FREQUENCY),
    setting("/proc/sys/kernel/numa_balancing", ["1", "0"], "pages are no longer moved between nodes", VISIBLE_IN_PAGE_WORK),
    setting("/sys/kernel/mm/transparent_hugepage/enabled", ["always", "madvise"], "huge pages only on request",
            VisibleIn::Metrics(&[&FAULT_MINOR, &PROCESS_FORK])),
    setting("/proc/sys/kernel/nmi_watchdog", ["1", "0"], "frees a hardware counter and stops its interrupts",
            VisibleIn::Metrics(&[&FREQUENCY, &SYSCALL_NULL])),
    setting("/sys/kernel/mm/ksm/run", ["1", "0"], "memory is no longer scanned for identical pages", VISIBLE_IN_PAGE_WORK),
    optional(setting(SWAPPINESS, ["60", "1"], "memory in use is not swapped out for file cache",
                     VisibleIn::NotMeasurable("it acts only while memory is short, and kelvin does not make it short"))),
    setting(PROACTIVE_RECLAIM_FILES[0], ["on", "off"], RECLAIM_BENEFIT, VISIBLE_AFTER_IDLE),
    setting(PROACTIVE_RECLAIM_FILES[1], ["Y", "N"], RECLAIM_BENEFIT, VISIBLE_AFTER_IDLE),
    optional(setting("/sys/devices/system/cpu/smt/control", ["on", "off"], "no work on SMT siblings; halves the CPUs",
                     VisibleIn::NotMeasurable("it would take CPUs away from programs that run on them"))),
];

impl TunableSetting {
    /// The setting with this file, if any.
    pub(super) fn for_path(path: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.matches_path(path))
    }

    /// Whether it is changed from this value to that one.
    pub(super) fn allows_change(&self, from: &str, to: &str) -> bool {
        let is_governor_character = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_governor = || (1..=MAX_GOVERNOR_LENGTH).contains(&from.len()) && from.chars().all(is_governor_character);
        let is_noisy = if self.noisy == ANY_GOVERNOR { is_governor() } else { from == self.noisy };
        to == self.to && from != to && is_noisy
    }

    /// Whether a path is exactly that of its file.
    fn matches_path(&self, path: &str) -> bool {
        let Some((before, after)) = self.path.split_once(NUMBER_PLACEHOLDER) else { return path == self.path };
        path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).is_some_and(is_number)
    }

    /// Its files on a machine; there may be none.
    fn files(&self, root: FileRoot<'_>) -> Vec<String> {
        let Some((before, after)) = self.path.split_once(NUMBER_PLACEHOLDER) else { return vec![self.path.to_owned()] };
        let (directory, stem) = before.rsplit_once('/').unwrap_or_default();
        let names = root.names(directory).into_iter();
        let numbered = names.filter(|name| name.strip_prefix(stem).is_some_and(is_number));
        numbered.map(|name| format!("{directory}/{name}{after}")).collect()
    }

    /// The change for a file: none if it is quiet or cannot be.
    fn planned_change(&self, root: FileRoot<'_>, path: String) -> Option<SettingChange> {
        let from = current_value(root, &path).ok().filter(|from| self.allows_change(from, self.to))?;
        let is_possible = match self.path {
            SWAPPINESS => {
                let text = root.text(MEMINFO).unwrap_or_default();
                kibibytes(&text, "SwapTotal").is_some_and(|bytes| bytes > 0)
            }
            // The list next to a governor, if any, must offer it.
            _ => root
                .text(&path.replace("scaling_governor", "scaling_available_governors"))
                .filter(|_| self.noisy == ANY_GOVERNOR)
                .is_none_or(|list| list.split_ascii_whitespace().any(|name| name == self.to)),
        };
        let Self { to, benefit, optional, .. } = *self;
        is_possible.then(|| SettingChange {
            path,
            from,
            to: to.to_owned(),
            benefit: benefit.to_owned(),
            optional,
            requested: false,
        })
    }
}

/// Digits as the kernel writes them.
fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|number| number <= MAX_NUMBER && number.to_string() == text)
}

/// The changes that would make this machine quieter, in order; empty where all is quiet or nothing can be set.
/// Address-space randomisation stays on: its effect belongs in the error bars.
pub fn plan_changes(root: &Path) -> Vec<SettingChange> {
    let root = FileRoot::new(root);
    let has_policy_files =
        SETTINGS.iter().any(|setting| setting.path == GOVERNOR_FILES[0] && !setting.files(root).is_empty());
    let settings = SETTINGS.iter().filter(|setting| !has_policy_files || setting.path != GOVERNOR_FILES[1]);
    settings.flat_map(|setting| noisy_changes(root, setting)).collect()
}

/// The files of settings that are there and cannot be read: whether they are quiet is not known.
pub fn unreadable_settings(root: &Path) -> Vec<String> {
    let root = FileRoot::new(root);
    let files = SETTINGS.iter().flat_map(|setting| setting.files(root));
    files.filter(|path| root.exists(path) && current_value(root, path).is_err()).collect()
}

fn noisy_changes(root: FileRoot<'_>, setting: &TunableSetting) -> impl Iterator<Item = SettingChange> {
    setting.files(root).into_iter().filter_map(move |path| setting.planned_change(root, path))
}

/// The file of a switch by which proactive reclaim is on, if any.
pub(crate) fn proactive_reclaim(root: FileRoot<'_>) -> Option<String> {
    let switches = SETTINGS.iter().filter(|setting| PROACTIVE_RECLAIM_FILES.contains(&setting.path));
    switches.flat_map(|setting| noisy_changes(root, setting)).map(|change| change.path).next()
}
