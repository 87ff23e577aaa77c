//! The settings that tune knows, and which to change on a machine.

use std::path::Path;

use kelvin_catalogue::cpu::FREQUENCY;
use kelvin_catalogue::mem::{BANDWIDTH_COPY, FAULT_MINOR};
use kelvin_catalogue::os::{IPC_PIPE_LATENCY, PROCESS_FORK, SYSCALL_NULL};

use super::{Change, Shows, current};
use crate::text::Root;

/// Stands for a number in a path.
const NUMBER: char = '#';
/// Highest number of a CPU, policy or daemon.
const HIGHEST: u32 = 65_535;
/// Maximum length of a governor's name: `CPUFREQ_NAME_LEN` of `linux/cpufreq.h` without the NUL.
const LONGEST_GOVERNOR: usize = 15;
/// Where kernels have them per policy, and where only per CPU.
const GOVERNORS: [&str; 2] = [
    "/sys/devices/system/cpu/cpufreq/policy#/scaling_governor",
    "/sys/devices/system/cpu/cpu#/cpufreq/scaling_governor",
];
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
/// The switches of proactive reclaim, and the benefit of turning them off.
const RECLAIM: [&str; 2] =
    ["/sys/kernel/mm/damon/admin/kdamonds/#/state", "/sys/module/damon_reclaim/parameters/enabled"];
const NOT_RECLAIMED: &str = "idle file cache and memory are no longer reclaimed";
/// Of switching back and forth within seconds nothing would show.
const IDLE_FOR_LONG: Shows =
    Shows::Not("it acts on memory that has been idle for seconds to minutes, and a figure lasts milliseconds");
/// What follows the core's clock: work in the core, the kernel's, and a wake-up of another CPU.
const CLOCK: Shows = Shows::In(&[&FREQUENCY, &SYSCALL_NULL, &IPC_PIPE_LATENCY]);
/// What the kernel does to pages shows in touching them and in copying from one to another.
const PAGES: Shows = Shows::In(&[&FAULT_MINOR, &BANDWIDTH_COPY]);

/// A setting that tune may change and put back.
pub(super) struct Setting {
    path: &'static str,
    /// The values that it is changed from, hence the only ones ever put back.
    noisy: Noisy,
    pub(super) to: &'static str,
    pub(super) why: &'static str,
    pub(super) optional: bool,
    /// Where a difference would show.
    shows: Shows,
}

/// The values of a setting that are not quiet.
enum Noisy {
    Word(&'static str),
    /// Any other governor.
    Governor,
}

const fn setting(
    path: &'static str,
    (noisy, to): (&'static str, &'static str),
    why: &'static str,
    shows: Shows,
) -> Setting {
    Setting { path, noisy: Noisy::Word(noisy), to, why, optional: false, shows }
}

const fn governor(path: &'static str) -> Setting {
    let why = "the core runs at full speed from the start";
    Setting { path, noisy: Noisy::Governor, to: "performance", why, optional: false, shows: CLOCK }
}

const fn optional(setting: Setting) -> Setting {
    Setting { optional: true, ..setting }
}

/// In the order of change. SMT comes last, and is put back first: an offline CPU has no settings.
#[rustfmt::skip]
static SETTINGS: [Setting; 12] = [
    governor(GOVERNORS[0]),
    governor(GOVERNORS[1]),
    setting("/sys/devices/system/cpu/intel_pstate/no_turbo", ("0", "1"), "the frequency no longer depends on \
                                                                          temperature", CLOCK),
    setting("/sys/devices/system/cpu/cpufreq/boost", ("1", "0"), "the frequency no longer depends on temperature", CLOCK),
    setting("/proc/sys/kernel/numa_balancing", ("1", "0"), "pages are no longer moved between nodes", PAGES),
    setting("/sys/kernel/mm/transparent_hugepage/enabled", ("always", "madvise"), "huge pages only on request",
            Shows::In(&[&FAULT_MINOR, &PROCESS_FORK])),
    setting("/proc/sys/kernel/nmi_watchdog", ("1", "0"), "frees a hardware counter and stops its interrupts",
            Shows::In(&[&FREQUENCY, &SYSCALL_NULL])),
    setting("/sys/kernel/mm/ksm/run", ("1", "0"), "memory is no longer scanned for identical pages", PAGES),
    optional(setting(SWAPPINESS, ("60", "1"), "memory in use is not swapped out for file cache",
                     Shows::Not("it acts only while memory is short, and kelvin does not make it short"))),
    setting(RECLAIM[0], ("on", "off"), NOT_RECLAIMED, IDLE_FOR_LONG),
    setting(RECLAIM[1], ("Y", "N"), NOT_RECLAIMED, IDLE_FOR_LONG),
    optional(setting("/sys/devices/system/cpu/smt/control", ("on", "off"), "no work on SMT siblings; halves the CPUs",
                     Shows::Not("it would take CPUs away from programs that run on them"))),
];

impl Noisy {
    fn is(&self, word: &str) -> bool {
        match self {
            Self::Word(noisy) => *noisy == word,
            Self::Governor => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                (1..=LONGEST_GOVERNOR).contains(&word.len()) && word.chars().all(is_plain)
            }
        }
    }
}

impl Setting {
    /// The setting with this file, if any.
    pub(super) fn of(path: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.has(path))
    }

    /// Where a difference would show.
    pub(super) fn shows(&self) -> Shows {
        self.shows
    }

    /// Whether it is changed from this value to that one.
    pub(super) fn changes(&self, from: &str, to: &str) -> bool {
        to == self.to && from != to && self.noisy.is(from)
    }

    /// Whether a path is exactly that of its file.
    fn has(&self, path: &str) -> bool {
        let Some((before, after)) = self.path.split_once(NUMBER) else { return path == self.path };
        path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).is_some_and(is_number)
    }

    /// Its files on a machine; there may be none.
    fn files(&self, root: Root<'_>) -> Vec<String> {
        let Some((before, after)) = self.path.split_once(NUMBER) else { return vec![self.path.to_owned()] };
        let (directory, stem) = before.rsplit_once('/').unwrap_or_default();
        let names = root.names(directory).into_iter();
        let numbered = names.filter(|name| name.strip_prefix(stem).is_some_and(is_number));
        numbered.map(|name| format!("{directory}/{name}{after}")).collect()
    }

    /// The change for a file: none if it is quiet or cannot be.
    fn change(&self, root: Root<'_>, path: String) -> Option<Change> {
        let from = current(root, &path).ok().filter(|from| self.changes(from, self.to))?;
        let can_be = match self.noisy {
            Noisy::Governor => offers_performance(root, &path),
            Noisy::Word(_) => self.path != SWAPPINESS || has_swap(root),
        };
        let Self { to, why, optional, .. } = *self;
        can_be.then(|| Change { path, from, to: to.to_owned(), why: why.to_owned(), optional, asked: false })
    }
}

/// Digits as the kernel writes them.
fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|number| number <= HIGHEST && number.to_string() == text)
}

/// The changes that would make this machine quieter, in order; empty where all is quiet or nothing can be set.
/// Address-space randomisation stays on: its effect belongs in the error bars.
pub fn plan(root: &Path) -> Vec<Change> {
    let root = Root::new(root);
    let by_domain = SETTINGS.iter().any(|setting| setting.path == GOVERNORS[0] && !setting.files(root).is_empty());
    let known = SETTINGS.iter().filter(|setting| !by_domain || setting.path != GOVERNORS[1]);
    known.flat_map(|setting| noisy(root, setting)).collect()
}

/// The files of settings that are there and cannot be read: whether they are quiet is not known.
pub fn unread(root: &Path) -> Vec<String> {
    let root = Root::new(root);
    let all = SETTINGS.iter().flat_map(|setting| setting.files(root));
    all.filter(|path| root.exists(path) && current(root, path).is_err()).collect()
}

fn noisy(root: Root<'_>, setting: &Setting) -> impl Iterator<Item = Change> {
    setting.files(root).into_iter().filter_map(move |path| setting.change(root, path))
}

/// The file of a switch by which proactive reclaim is on, if any.
pub(crate) fn proactive_reclaim(root: Root<'_>) -> Option<String> {
    let switches = SETTINGS.iter().filter(|setting| RECLAIM.contains(&setting.path));
    switches.flat_map(|setting| noisy(root, setting)).map(|change| change.path).next()
}

/// Whether the list beside a governor, if any, offers `performance`.
fn offers_performance(root: Root<'_>, governor: &str) -> bool {
    let list = root.text(&governor.replace("scaling_governor", "scaling_available_governors"));
    list.is_none_or(|list| list.split_ascii_whitespace().any(|name| name == "performance"))
}

fn has_swap(root: Root<'_>) -> bool {
    let text = root.text("/proc/meminfo").unwrap_or_default();
    crate::memory::kibibytes(&text, "SwapTotal").is_some_and(|bytes| bytes > 0)
}
