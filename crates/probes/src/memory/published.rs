//! Tables of published figures by microarchitecture: the files of `published/`, each row with its source.
//!
//! The L1 latency is the load of [`crate::published`]. As there, an unpublished figure is absent, and none is measured
//! by us.

use serde::Deserialize;

use crate::published::PublishedTable;

/// Caches beyond L1, in core cycles.
#[derive(Debug, Deserialize)]
pub(super) struct CacheLatencies {
    /// Latency of a load that hits the second-level cache.
    pub second: Option<f64>,
    /// Latency of a load that hits L3: lowest and highest published for the parts.
    pub third: Option<[f64; 2]>,
    /// Lines that one core can have in flight beyond L1D: line fill buffers, miss address buffers.
    pub outstanding: Option<f64>,
}

pub(super) static CACHE_LATENCIES: PublishedTable<CacheLatencies> = PublishedTable::new(
    include_str!("../../published/cache_latencies.json"),
    "the table of published cache latencies has no row for",
);

/// Widths between a core and its caches, in bytes per core cycle: limits, which a loop that does nothing else comes near.
#[derive(Debug, Deserialize)]
pub(super) struct CacheWidths {
    /// Loads from the first-level cache.
    pub load: f64,
    /// Stores to the first-level cache.
    pub store: f64,
    /// Between the first and the second level, in each direction.
    pub second: Option<f64>,
}

pub(super) static CACHE_WIDTHS: PublishedTable<CacheWidths> = PublishedTable::new(
    include_str!("../../published/cache_widths.json"),
    "the table of published widths has no row for",
);

/// Idle memory latency of a microarchitecture's servers in nanoseconds, lowest and highest.
pub(super) static MEMORY_LATENCIES: PublishedTable<[f64; 2]> = PublishedTable::new(
    include_str!("../../published/memory_latency.json"),
    "the table of published memory latencies has no row for",
);

/// One-way latencies between two CPUs in nanoseconds: lowest and highest of the medians by what they share.
#[derive(Debug, Deserialize)]
pub(super) struct CoreToCoreLatencies {
    /// Two threads of one core.
    pub core: Option<[f64; 2]>,
    /// One last-level cache.
    pub cache: [f64; 2],
    /// One socket, another last-level cache.
    pub socket: Option<[f64; 2]>,
    /// Two sockets.
    pub sockets: Option<[f64; 2]>,
}

pub(super) static CORE_TO_CORE_LATENCIES: PublishedTable<CoreToCoreLatencies> = PublishedTable::new(
    include_str!("../../published/core_to_core_latency.json"),
    "no checked publication gives the latency between cores of",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::PublishedRow;
    use crate::testing;
    use kelvin_core::Fact;

    fn assert_unique_names<T: Deserialize<'static>>(table: &PublishedTable<T>) {
        let mut names: Vec<&str> = table.rows().iter().flat_map(|row| &row.cores).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(table.rows().iter().all(|row| !row.source.is_empty()));
    }

    #[test]
    fn rows_have_unique_names_and_plausible_figures() {
        assert_unique_names(&MEMORY_LATENCIES);
        assert_unique_names(&CORE_TO_CORE_LATENCIES);
        assert_unique_names(&CACHE_WIDTHS);
        assert!(CACHE_WIDTHS.rows().iter().all(|row| row.figures.load == 2.0 * row.figures.store));
        assert_unique_names(&CACHE_LATENCIES);
        for PublishedRow { figures: row, .. } in CACHE_LATENCIES.rows() {
            assert!(row.second.is_none_or(|cycles| (9.0..=20.0).contains(&cycles)), "{row:?}");
            assert!(
                row.third
                    .is_none_or(|[low, high]| row.second.is_some_and(|l2_cycles| 2.0 * l2_cycles < low) && low <= high)
            );
            assert!(row.outstanding.is_none_or(|lines| (8.0..=256.0).contains(&lines)), "{row:?}");
        }
    }

    #[test]
    fn published_figures_rise_with_distance() {
        for PublishedRow { figures, cores, .. } in CORE_TO_CORE_LATENCIES.rows() {
            let figures = [figures.core, Some(figures.cache), figures.socket, figures.sockets];
            let ranges: Vec<[f64; 2]> = figures.into_iter().flatten().collect();
            assert!(ranges.iter().all(|[low, high]| low <= high), "{cores:?}");
            assert!(ranges.windows(2).all(|pair| pair[0][1] < pair[1][0]), "{cores:?}");
        }
    }

    #[test]
    fn core_without_row_is_an_error() {
        let mut machine = testing::machine();
        assert_eq!(MEMORY_LATENCIES.row(&machine).unwrap_err().0, "this processor's microarchitecture is unknown");
        machine.cpu.microarchitecture = Fact::known("Zen 9".into(), "a test");
        let error = CACHE_LATENCIES.row(&machine).unwrap_err();
        assert_eq!(error.0, "the table of published cache latencies has no row for Zen 9");
        machine.cpu.microarchitecture = Fact::known("Zen 2".into(), "a test");
        assert_eq!(CACHE_LATENCIES.row(&machine).unwrap().figures.second, Some(12.0));
        assert_eq!(MEMORY_LATENCIES.row(&machine).unwrap().figures, [113.0, 134.0]);
    }
}
