//! Dependent loads by several CPUs at once, each through memory of its own, in windows of some milliseconds.

use kelvin_core::IndirectSort;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use kelvin_core::catalogue::mem::SCALING_LATENCY;
use kelvin_core::units;
use kelvin_sys::fork_image::resident_around;
use kelvin_sys::memory::{LINE_BYTES, PagePolicy, PointerRing};
use kelvin_sys::partner::PartnerKind;
use kelvin_sys::task_group::{TaskGroup, WindowWork, WorkedWindow};

use crate::memory::axes::skip_if_out_of_memory;
use crate::prelude::*;
use crate::task_windows::{describe_evenness, first_window_of_all, window_times};

/// Lines of a task's memory that are linked, if it has more: the windows together are too short to follow them all, as a load from memory takes
/// more than 40 ns.
const LINKED_LINES: usize = 1 << 18;
/// Windows of a round, of which that with the median latency counts: what interrupts a task in one of them is in no figure.
const WINDOW_COUNT: usize = 5;
const WINDOW_NANOSECONDS: u64 = 2_000_000;
/// They are repeated, twice as long, where other work keeps a task from its CPU, until they are as long as this: several slices of a scheduler.
const MAX_WINDOW_NANOSECONDS: u64 = 250_000_000;
/// Loads between two readings of the clock: these wait for the last load, and add a thousandth to so many.
const LOADS_PER_READING: u64 = 256;

/// A task that follows pointers through memory of its own.
struct ChaseTask {
    ring: PointerRing,
    /// Whether the next window is to begin with all of it flushed from the caches.
    flush_next: Arc<AtomicBool>,
    /// Lines that no cache holds, from where the last window ended.
    uncached_lines: u64,
    /// Whether these are few of its lines. All of them together fit into no cache.
    is_sparse: bool,
}

impl ChaseTask {
    fn flush(&mut self) {
        self.ring.evict_end(usize::MAX);
        self.uncached_lines = self.ring.lines() as u64;
    }
}

impl WindowWork for ChaseTask {
    fn stride(&self) -> u64 {
        LOADS_PER_READING
    }

    fn prepare(&mut self) -> kelvin_sys::Result<()> {
        if self.flush_next.load(Ordering::Acquire) {
            self.flush();
        }
        Ok(())
    }

    fn repeat(&mut self, loads: u64) -> kelvin_sys::Result<()> {
        // Only a long window gets here, of a CPU that has other work anyway: better a load that looks slow than one from a cache.
        if self.uncached_lines < loads && self.is_sparse {
            self.flush();
        }
        self.uncached_lines = self.uncached_lines.saturating_sub(loads);
        self.ring.chase(loads);
        Ok(())
    }
}

/// The mean latency of tasks on these CPUs, each through this much memory, which it touched first.
pub(super) fn measure(bench: &mut Bench<'_>, cpus: &[u32], set_bytes: usize) -> ProbeResult {
    let seed = bench.seed();
    let (huge_pages, flush_next) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(true)));
    let make_work = {
        let (huge_pages, flush_next) = (Arc::clone(&huge_pages), Arc::clone(&flush_next));
        move |number: usize| {
            let ring = PointerRing::sparse(set_bytes, LINKED_LINES, PagePolicy::Huge, seed ^ (number as u64) << 32)?;
            if number == 0 {
                // Those of one task: of many, reading what the process has takes longer than the window.
                let _ = huge_pages.set((resident_around(ring.arena().address())?.huge, ring.arena().len() as u64));
            }
            let is_sparse = ring.lines() * LINE_BYTES < set_bytes / 2;
            Ok(ChaseTask { ring, flush_next: Arc::clone(&flush_next), uncached_lines: 0, is_sparse })
        }
    };
    let all_bytes = set_bytes * cpus.len();
    let group = TaskGroup::start(PartnerKind::Thread, cpus, bench.clock(), make_work);
    let group = skip_if_out_of_memory(all_bytes, group)?;
    let run_window = |nanoseconds| group.run_window(0..cpus.len(), window_times(bench, cpus.len(), nanoseconds));
    let windows = first_window_of_all(WINDOW_NANOSECONDS..=MAX_WINDOW_NANOSECONDS, |nanoseconds| {
        // In a window of no time each task obtains its memory and flushes it: that takes longer than waking does.
        flush_next.store(true, Ordering::Release);
        skip_if_out_of_memory(all_bytes, run_window(0))?;
        flush_next.store(false, Ordering::Release);
        let mut windows = (0..WINDOW_COUNT).map(|_| run_window(nanoseconds)).collect::<kelvin_sys::Result<Vec<_>>>()?;
        windows.indirect_sort_by(|a, b| mean_ticks(a).total_cmp(&mean_ticks(b)));
        Ok(windows.swap_remove(WINDOW_COUNT / 2))
    })?;
    group.finish()?;
    if let Some((huge, bytes)) = huge_pages.get() {
        let [huge, bytes] = [*huge, *bytes].map(units::bytes);
        bench.note(format!("{huge} of {bytes} of CPU {} in huge pages by smaps", cpus[0]));
    }
    bench.note(describe_evenness(&windows));
    bench.record(&SCALING_LATENCY, vec![bench.nanoseconds(1) * mean_ticks(&windows)]);
    Ok(())
}

/// Ticks of a load, mean over the tasks; no end of them where one did nothing.
fn mean_ticks(windows: &[WorkedWindow]) -> f64 {
    windows.iter().map(|window| 1.0 / window.rate()).sum::<f64>() / windows.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_counts_alike_in_the_mean() {
        let window = |operations, ticks| WorkedWindow { operations, ticks, ..WorkedWindow::default() };
        // 100 and 200 ticks a load: their mean, not that of all loads.
        assert_eq!(mean_ticks(&[window(20, 2000), window(10, 2000)]), 150.0);
        assert_eq!(mean_ticks(&[window(20, 2000), window(0, 2000)]), f64::INFINITY);
    }
}
