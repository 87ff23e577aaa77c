//! The expected time to read a file through an empty page cache: pages are allocated for what is read ahead, window by window,
//! and the device fills one window while the one before is copied.

use kelvin_core::catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ, PAGE_READ, READ_AHEAD};

use super::prelude::*;

/// Bytes of a page, where the machine does not report it.
const PAGE: u64 = 4 * KIB;

/// The parts of the time of one thread that reads a file in order.
pub(super) struct ReadAheadCost {
    /// Allocating all pages: the device is idle, as a window is requested once all its pages are there.
    allocation: Expr,
    /// Calls, and copies to their buffers.
    calls_and_copy: Expr,
    /// The device's latencies, each of which includes the first 4 KiB of a window, and its transfers.
    device_windows: Expr,
}

impl ReadAheadCost {
    /// For a file of this many bytes, read by calls of this many each.
    pub(super) fn new(facts: &PredictionInputs<'_>, file_bytes: u64, block: u64) -> Predicted<Self> {
        let page = memory_budget::page_bytes(facts.machine());
        let count = |name: &str, number: u64| quantity(name, number as f64, Unit::Count);
        let uncached_page =
            measured(facts, &PAGE_READ, &page_read_case(CacheState::Uncached, AccessOrder::Sequential))?;
        let cached_page = measured(facts, &PAGE_READ, &page_read_case(CacheState::Cached, AccessOrder::Sequential))?;
        // Noise may reverse the order of two figures.
        let allocation = (uncached_page - cached_page.clone()).at_least_zero().variant("allocation");
        let calls = count("calls", file_bytes.div_ceil(block)) * cached_page.variant("calls");
        let blocks = quantity("blocks", file_bytes as f64 / block as f64, Unit::Ratio);
        let copy = blocks * derived_time::block_copy(facts, block, IoDirection::Read)?;
        let window = measured(facts, &READ_AHEAD, &Case::new())?;
        let windows = window_count(file_bytes, block, window.value() as u64, page);
        let rest = bytes_of("(bytes - windows x 4 KiB)", file_bytes.saturating_sub(windows * PAGE));
        let latency = measured(facts, &DEVICE_MEAN_LATENCY, &Case::new())?.variant("windows of the device");
        let rate = measured(facts, &DEVICE_READ, &Case::new())?;
        Ok(Self {
            allocation: count("pages", file_bytes.div_ceil(page)) * allocation,
            calls_and_copy: calls + copy,
            device_windows: count("windows", windows).with_input(&window) * latency + rest / rate,
        })
    }

    /// All of it by one thread: the device works on the next window while this one is copied.
    pub(super) fn single_thread_time(self) -> Expr {
        self.allocation + self.calls_and_copy.max(self.device_windows)
    }

    /// Its CPU time.
    pub(super) fn cpu_time(&self) -> Expr {
        self.allocation.clone() + self.calls_and_copy.clone()
    }
}

/// How many windows a file of this many bytes is read ahead in, by calls of `block` bytes. No window is larger than
/// `max_window`, or than a call. The first is a few times the request; they grow fourfold, and twofold from a sixteenth
/// of the largest on (Linux mm/readahead.c: `get_init_ra_size`, `get_next_ra_size`).
pub(super) fn window_count(file_bytes: u64, block: u64, max_window: u64, page: u64) -> u64 {
    let (pages, request_pages) = (file_bytes.div_ceil(page), block.div_ceil(page).max(1));
    let max_window = (max_window / page).max(request_pages);
    let first = match request_pages.next_power_of_two() {
        small if small <= max_window / 32 => 4 * small,
        middle if middle <= max_window / 4 => 2 * middle,
        _ => max_window,
    };
    let (mut size, mut covered, mut windows) = (first, 0u64, 0);
    while covered < pages {
        covered += size;
        windows += 1;
        size = match size {
            small if small < max_window / 16 => 4 * small,
            middle if middle <= max_window / 2 => 2 * middle,
            _ => max_window,
        };
    }
    windows
}

/// One block of a page or less through an empty page cache at a random place: the device's latency, a page allocated, and the
/// copy.
pub(super) fn random_block_time(facts: &PredictionInputs<'_>, block: u64) -> Predicted<Expr> {
    let page = measured(facts, &PAGE_READ, &page_read_case(CacheState::Uncached, AccessOrder::Random))?.variant("page");
    let cache_time = page + derived_time::block_copy(facts, block, IoDirection::Read)?;
    Ok(derived_time::direct_request(facts, block, IoDirection::Read)? + cache_time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, LATENCY};
    use kelvin_harness::MeasuredValue;

    /// 300 ns of a call, 500 ns to allocate a page in order and 700 ns at random, windows of 256 KiB.
    fn measured(id: &str, case: &Case) -> Option<MeasuredValue> {
        let values = [
            (&READ_AHEAD, 262_144.0),
            (&BANDWIDTH_COPY, 8.192e9),
            (&LATENCY, 100.0),
            (&DEVICE_READ, 4.096e9),
            (&DEVICE_MEAN_LATENCY, 80_000.0),
        ];
        let value = match (CacheState::of(case), AccessOrder::of(case)) {
            (Some(CacheState::Cached), Some(AccessOrder::Sequential)) => 300.0,
            (Some(CacheState::Uncached), Some(AccessOrder::Sequential)) => 800.0,
            (Some(CacheState::Uncached), Some(AccessOrder::Random)) => 1000.0,
            _ => values.iter().find(|(metric, _)| metric.id == *id)?.1,
        };
        Some(MeasuredValue { value, half_width: 0.0 })
    }

    fn with_facts<R>(f: impl FnOnce(&PredictionInputs<'_>) -> R) -> R {
        f(&PredictionInputs::new(&crate::testing::machine(), &measured))
    }

    #[test]
    fn read_ahead_windows_grow_as_in_kernel() {
        // 64 pages at most: 4, 8, 16, 32, and then 64 each; the first one covers a file of a page.
        for (pages, expected) in [(0, 0), (1, 1), (4, 1), (5, 2), (12, 2), (13, 3), (60, 4), (61, 5), (60 + 640, 14)] {
            assert_eq!(window_count(pages * 4096, 4096, 256 * KIB, 4096), expected, "{pages} pages");
        }
        // 4, 16, 64, 256, 512, 1024, 2048, 4096.
        assert_eq!(window_count(3924 * 4096, 4096, 16 << 20, 4096), 7);
        assert_eq!(window_count(64 << 20, 4096, 16 << 20, 4096), 11);
        // A large request is read in one window.
        assert_eq!(window_count(16 << 20, 1 << 20, 256 * KIB, 4096), 16);
    }

    #[test]
    fn read_ahead_costs_match_hand_calculation() {
        with_facts(|facts| {
            // 700 pages of 4 KiB, allocated in 500 ns each; a call and a copy of 1 us each; 14 windows of 80 us and the rest, a
            // microsecond for each of 686 pages.
            let file_bytes = 700 * 4096;
            let parts = ReadAheadCost::new(facts, file_bytes, 4096).unwrap();
            let cpu = 700.0 * (500.0 + 300.0 + 1000.0);
            assert!((parts.cpu_time().value() - cpu).abs() < 1.0, "{}", parts.cpu_time().value());
            let time = parts.single_thread_time();
            assert!((time.value() - (700.0 * 500.0 + 14.0 * 80_000.0 + 686_000.0)).abs() < 1.0, "{time:?}");
            let prediction = derived_time::predict_from_parts(time);
            assert_eq!(prediction.inputs.len(), 6);
            assert!(prediction.derivation.starts_with("700 x (800 ns - 300 ns) + the larger of"), "{prediction:?}");
            // 80 us, 1 us of call and page, 1 us of copy.
            assert!((random_block_time(facts, 4096).unwrap().value() - 82_000.0).abs() < 1.0);
        });
    }

    #[test]
    fn missing_page_cost_has_reason() {
        let no_value = |_: &str, _: &Case| None;
        let machine = crate::testing::machine();
        let reason = ReadAheadCost::new(&PredictionInputs::new(&machine, &no_value), 4096, 4096).err().unwrap();
        assert!(reason.0.contains(PAGE_READ.id.as_str()), "{}", reason.0);
    }
}
