//! What a figure depends on that may differ from one run to the next, and that the rounds of one run do not show.

use kelvin_model::{Case, Metric, Unit, leads};

use crate::file::{CacheState, THREAD_COUNT};
use crate::mem::BYTES;
use crate::{Placement, transfer};

/// What differs from run to run, beyond what rounds show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunVariation {
    /// Nothing: what is counted.
    None,
    /// The clock of one core.
    Clock,
    /// What the kernel copies on one CPU: which pages it copies from and to, and what of them the caches hold.
    Copies,
    /// Shared caches and memory: which pages the run got, and what other guests of the host do.
    Memory,
    /// Two CPUs or more: where the host runs them, and how deep the one that waits sleeps.
    SeveralCpus,
    /// What a whole transfer depends on: as several CPUs, in states that outlast rounds.
    Transfer,
    /// A disk: what else it does, and what it holds in its own cache.
    Device,
}

/// Working sets up to this size lie in the caches of one core.
const IN_A_CORE: u64 = 256 << 10;

/// Figures that need more than one CPU at any case.
const SEVERAL_CPUS: [&str; 7] = [
    "mem.core_to_core",
    "mem.false_sharing",
    "mem.bandwidth.core_to_core",
    "mem.loaded",
    "os.switch.cross_cpu",
    "os.timer",
    "net.wake",
];
/// Figures of files that no disk takes part in.
const CACHED_FILES: [&str; 7] = [
    "file.byte_calls",
    "file.engines",
    "file.entry",
    "file.new",
    "file.page_write",
    "file.read_ahead",
    "file.cache_size",
];
/// Figures of memory between two processes, of which the kernel makes copies.
const COPIES: [&str; 5] = ["net.bandwidth", "net.loaded", "os.ipc", "mem.bandwidth.memcpy", "os.process.fork_rss"];

impl RunVariation {
    /// That of a metric at a case.
    pub fn of(metric: &Metric, case: &Case) -> Self {
        let is_one_of = |ids: &[&str]| ids.iter().any(|id| leads(id, &metric.id));
        let threads = THREAD_COUNT.of(case).unwrap_or(1);
        match metric.area() {
            _ if matches!(metric.unit, Unit::Count | Unit::Bytes) => Self::None,
            _ if transfer::is_whole(metric) => Self::Transfer,
            _ if metric.unit == Unit::Ratio => Self::None,
            _ if is_one_of(&SEVERAL_CPUS) || Placement::of(case) == Some(Placement::TwoCpus) => Self::SeveralCpus,
            _ if is_one_of(&COPIES) => Self::Copies,
            "mem" if BYTES.of(case).is_some_and(|bytes| bytes <= IN_A_CORE) => Self::Clock,
            "mem" => Self::Memory,
            "file" if is_one_of(&CACHED_FILES) => Self::Copies,
            "file" => match CacheState::of(case) {
                Some(CacheState::Cached) if threads == 1 => Self::Copies,
                Some(CacheState::Cached) => Self::SeveralCpus,
                _ => Self::Device,
            },
            _ => Self::Clock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all;

    #[test]
    fn every_list_names_metrics() {
        for id in SEVERAL_CPUS.iter().chain(&CACHED_FILES).chain(&COPIES) {
            assert!(all().any(|metric| leads(id, &metric.id)), "{id}");
        }
    }

    #[test]
    fn kinds_of_some_figures() {
        let of = |metric: &Metric, case: &Case| RunVariation::of(metric, case);
        let [small, large] = [IN_A_CORE, 4 * IN_A_CORE].map(|bytes| Case::new().with(BYTES, bytes));
        assert_eq!(of(&crate::mem::LATENCY, &small), RunVariation::Clock);
        assert_eq!(of(&crate::mem::LATENCY, &large), RunVariation::Memory);
        assert_eq!(of(&crate::os::SYSCALL_NULL, &Case::new()), RunVariation::Clock);
        let two_cpus = Case::new().at(Placement::TwoCpus);
        assert_eq!(of(&crate::net::RTT_TCP, &two_cpus), RunVariation::SeveralCpus);
        assert_eq!(of(&crate::net::RTT_TCP, &Case::new().at(Placement::SameCpu)), RunVariation::Clock);
        let cached = Case::new().at(CacheState::Cached);
        assert_eq!(of(&crate::file::THREADS, &cached.clone().with(THREAD_COUNT, 2)), RunVariation::SeveralCpus);
        assert_eq!(of(&crate::file::BLOCKSIZE_READ, &cached), RunVariation::Copies);
        assert_eq!(of(&crate::file::BLOCKSIZE_READ, &Case::new().at(CacheState::Direct)), RunVariation::Device);
    }
}
