//! What a figure depends on that may differ from one run to the next, and that the rounds of one run do not show.

use crate::{Case, Metric, Unit, is_dotted_prefix};

use crate::catalogue::file::{CacheState, THREAD_COUNT};
use crate::catalogue::mem::BYTES;
use crate::catalogue::{PairPlacement, transfer};

/// What differs from run to run, beyond what rounds show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunVariation {
    /// Nothing: what is counted.
    None,
    /// The clock of one core.
    Clock,
    /// What the kernel copies on one CPU: which pages it copies from and to, and what of them the caches hold.
    KernelCopies,
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
const MAX_CORE_CACHE_BYTES: u64 = 256 << 10;

/// Figures that need more than one CPU at any case.
const SEVERAL_CPU_IDS: [&str; 7] = [
    "mem.core_to_core",
    "mem.false_sharing",
    "mem.bandwidth.core_to_core",
    "mem.loaded",
    "os.switch.cross_cpu",
    "os.timer",
    "net.wake",
];
/// Figures of files that no disk takes part in.
const CACHED_FILE_IDS: [&str; 7] = [
    "file.byte_calls",
    "file.engines",
    "file.entry",
    "file.new",
    "file.page_write",
    "file.read_ahead",
    "file.cache_size",
];
/// Figures of memory between two processes, of which the kernel makes copies.
const KERNEL_COPY_IDS: [&str; 5] =
    ["net.bandwidth", "net.loaded", "os.ipc", "mem.bandwidth.memcpy", "os.process.fork_rss"];

impl RunVariation {
    /// That of a metric at a case.
    pub fn from_metric(metric: &Metric, case: &Case) -> Self {
        let is_listed = |ids: &[&str]| ids.iter().any(|id| is_dotted_prefix(id, &metric.id));
        let threads = THREAD_COUNT.number_in(case).unwrap_or(1);
        match metric.area() {
            _ if matches!(metric.unit, Unit::Count | Unit::Bytes) => Self::None,
            _ if transfer::is_whole_transfer(metric) => Self::Transfer,
            _ if metric.unit == Unit::Ratio => Self::None,
            _ if is_listed(&SEVERAL_CPU_IDS) || PairPlacement::of(case) == Some(PairPlacement::TwoCpus) => {
                Self::SeveralCpus
            }
            _ if is_listed(&KERNEL_COPY_IDS) => Self::KernelCopies,
            "mem" if BYTES.number_in(case).is_some_and(|bytes| bytes <= MAX_CORE_CACHE_BYTES) => Self::Clock,
            "mem" => Self::Memory,
            "file" if is_listed(&CACHED_FILE_IDS) => Self::KernelCopies,
            "file" => match CacheState::of(case) {
                Some(CacheState::Cached) if threads == 1 => Self::KernelCopies,
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
    use crate::catalogue::all;

    #[test]
    fn every_list_names_metrics() {
        for id in SEVERAL_CPU_IDS.iter().chain(&CACHED_FILE_IDS).chain(&KERNEL_COPY_IDS) {
            assert!(all().any(|metric| is_dotted_prefix(id, &metric.id)), "{id}");
        }
    }

    #[test]
    fn known_metrics_have_expected_variation() {
        let variation = |metric: &Metric, case: &Case| RunVariation::from_metric(metric, case);
        let [small_case, large_case] =
            [MAX_CORE_CACHE_BYTES, 4 * MAX_CORE_CACHE_BYTES].map(|bytes| Case::new().with_number(BYTES, bytes));
        assert_eq!(variation(&crate::catalogue::mem::LATENCY, &small_case), RunVariation::Clock);
        assert_eq!(variation(&crate::catalogue::mem::LATENCY, &large_case), RunVariation::Memory);
        assert_eq!(variation(&crate::catalogue::os::SYSCALL_NULL, &Case::new()), RunVariation::Clock);
        let two_cpus = Case::new().with_word(PairPlacement::TwoCpus);
        assert_eq!(variation(&crate::catalogue::net::RTT_TCP, &two_cpus), RunVariation::SeveralCpus);
        assert_eq!(
            variation(&crate::catalogue::net::RTT_TCP, &Case::new().with_word(PairPlacement::SameCpu)),
            RunVariation::Clock
        );
        let cached = Case::new().with_word(CacheState::Cached);
        assert_eq!(
            variation(&crate::catalogue::file::THREADS, &cached.clone().with_number(THREAD_COUNT, 2)),
            RunVariation::SeveralCpus
        );
        assert_eq!(variation(&crate::catalogue::file::BLOCKSIZE_READ, &cached), RunVariation::KernelCopies);
        assert_eq!(
            variation(&crate::catalogue::file::BLOCKSIZE_READ, &Case::new().with_word(CacheState::Direct)),
            RunVariation::Device
        );
    }
}
