//! Published latencies of caches beyond L1, and misses in flight, by microarchitecture, in core cycles.
//!
//! The L1 latency is the load of [`crate::published`]. As there, an unpublished figure is absent, and none is measured
//! by us.

use kelvin_core::{Machine, NoPrediction};
use kelvin_harness::PredictionInputs;

/// Published figures of the memory hierarchy of one or a few microarchitectures, in core cycles.
#[derive(Debug)]
pub(crate) struct PublishedHierarchy {
    /// Names, as the machine's facts give them.
    names: &'static [&'static str],
    /// Latency of a load that hits the second-level cache.
    pub second: Option<f64>,
    /// Latency of a load that hits L3: lowest and highest published for the parts.
    pub third: Option<[f64; 2]>,
    /// Lines that one core can have in flight beyond L1D: line fill buffers, miss address buffers.
    pub outstanding: Option<f64>,
    /// Their sources.
    pub source: &'static str,
}

/// Agner Fog's manual, in the edition used.
macro_rules! fog {
    ($table:literal) => {
        concat!("Agner Fog, The microarchitecture of Intel, AMD, and VIA CPUs (2020-09-02), ", $table)
    };
}

static PUBLISHED_HIERARCHIES: &[PublishedHierarchy] = &[
    PublishedHierarchy {
        names: &["Sandy Bridge", "Ivy Bridge"],
        second: Some(11.0),
        third: Some([28.0, 28.0]),
        outstanding: None,
        source: fog!("table 9.5, Cache sizes on Sandy Bridge"),
    },
    PublishedHierarchy {
        names: &["Haswell", "Broadwell", "Broadwell-DE"],
        second: Some(12.0),
        third: Some([34.0, 34.0]),
        outstanding: None,
        source: fog!("table 10.2, Cache sizes on Haswell and Broadwell"),
    },
    PublishedHierarchy {
        names: &[
            "Skylake",
            "Kaby Lake",
            "Coffee Lake",
            "Comet Lake",
            "Whiskey Lake or Comet Lake",
            "Skylake-SP",
            "Cascade Lake",
            "Cooper Lake",
        ],
        second: Some(14.0),
        third: Some([34.0, 85.0]),
        outstanding: None,
        source: fog!("table 11.2, Cache sizes on Skylake"),
    },
    PublishedHierarchy {
        names: &["Zen"],
        second: Some(17.0),
        third: Some([40.0, 90.0]),
        outstanding: None,
        source: fog!("table 20.2, Cache sizes on AMD Zen 1"),
    },
    PublishedHierarchy {
        names: &["Zen 2"],
        second: Some(12.0),
        third: Some([40.0, 40.0]),
        outstanding: None,
        source: fog!("table 20.3, Cache sizes on AMD Zen 2"),
    },
    PublishedHierarchy {
        names: &["Sapphire Rapids", "Emerald Rapids", "Alder Lake", "Raptor Lake"],
        second: None,
        third: None,
        outstanding: Some(16.0),
        source: "Bakhvalov, Performance Analysis and Tuning on Modern CPUs, second edition, 2024, load-store unit of the \
                 Golden Cove core",
    },
    PublishedHierarchy {
        names: &["Zen 5"],
        second: Some(14.0),
        third: Some([47.0, 47.0]),
        outstanding: None,
        source: "Lam, Intel's Lion Cove P-Core and Gaming Workloads, Chips and Cheese, 2025-07-06: data caches of Lion \
                 Cove, Raptor Cove and Zen 5, measured on a desktop part",
    },
];

/// Idle memory latency of a microarchitecture's servers in nanoseconds, lowest and highest.
struct MainMemory {
    names: &'static [&'static str],
    nanoseconds: [f64; 2],
    source: &'static str,
}

static MAIN_MEMORY: &[MainMemory] = &[
    MainMemory {
        names: &["Zen 2"],
        nanoseconds: [113.0, 134.0],
        source: "AnandTech, AMD Rome Second Generation EPYC Review, 2019, Memory Subsystem: Latency: EPYC 7742, random over \
                 128 MB and 512 MB, four nodes and one to a socket",
    },
    MainMemory {
        names: &["Neoverse N1"],
        nanoseconds: [81.0, 83.0],
        source: "AnandTech, Cloud Clash: Amazon Graviton2 Arm against Intel and AMD, 2020, Memory Subsystem & Latency: \
                 measured, and published by Arm",
    },
];

/// Idle memory latency in nanoseconds, lowest and highest, and its source, where servers of the machine's microarchitecture have a row.
pub(crate) fn published_memory_latency(machine: &Machine) -> Option<([f64; 2], &'static str)> {
    let name = machine.cpu.microarchitecture.get()?;
    let own = MAIN_MEMORY.iter().find(|row| row.names.contains(&name.as_str()))?;
    Some((own.nanoseconds, own.source))
}

/// The row of this machine's cores.
pub(crate) fn published_hierarchy(facts: &PredictionInputs<'_>) -> Result<&'static PublishedHierarchy, NoPrediction> {
    let name = facts.machine().cpu.microarchitecture.get().map(String::as_str);
    let name = name.ok_or_else(|| NoPrediction::new("this processor's microarchitecture is unknown"))?;
    PUBLISHED_HIERARCHIES
        .iter()
        .find(|row| row.names.contains(&name))
        .ok_or_else(|| NoPrediction::new(format!("the table of published cache latencies has no row for {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;

    #[test]
    fn rows_are_ordered_with_unique_names() {
        let mut names: Vec<&str> = PUBLISHED_HIERARCHIES.iter().flat_map(|row| row.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for row in PUBLISHED_HIERARCHIES {
            assert!(row.second.is_none_or(|cycles| (9.0..=20.0).contains(&cycles)), "{row:?}");
            assert!(row.third.is_none_or(|[low, high]| row.second.is_some_and(|near| 2.0 * near < low) && low <= high));
            assert!(row.outstanding.is_none_or(|lines| (8.0..=256.0).contains(&lines)), "{row:?}");
            assert!(!row.source.is_empty());
        }
    }

    #[test]
    fn memory_latency_is_for_servers_of_core() {
        let mut machine = testing::machine();
        machine.cpu.microarchitecture = Fact::known("Zen 9".into(), "a test");
        assert_eq!(published_memory_latency(&machine), None);
        machine.cpu.microarchitecture = Fact::known("Zen 2".into(), "a test");
        assert_eq!(published_memory_latency(&machine).unwrap().0, [113.0, 134.0]);
    }

    #[test]
    fn a_core_without_a_row_is_an_error() {
        let mut machine = testing::machine();
        machine.cpu.microarchitecture = Fact::known("Zen 9".into(), "a test");
        let none = published_hierarchy(&PredictionInputs::new(&machine, &|_, _| None)).unwrap_err();
        assert_eq!(none.0, "the table of published cache latencies has no row for Zen 9");
        machine.cpu.microarchitecture = Fact::known("Zen 2".into(), "a test");
        assert_eq!(published_hierarchy(&PredictionInputs::new(&machine, &|_, _| None)).unwrap().second, Some(12.0));
    }
}
