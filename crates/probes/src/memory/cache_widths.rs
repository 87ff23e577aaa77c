//! Published widths between a core and its caches, by microarchitecture, in bytes per core cycle.
//!
//! They are limits, which a loop that does nothing else comes near. An unpublished figure is absent.

use kelvin_core::NoPrediction;
use kelvin_harness::PredictionInputs;
use kelvin_sys::kernels::bandwidth::Operation;

/// Published figures of one or a few microarchitectures, in bytes per core cycle.
#[derive(Debug)]
pub(super) struct CacheWidths {
    /// Names, as the machine's facts give them.
    names: &'static [&'static str],
    /// Loads from the first-level cache.
    pub load: f64,
    /// Stores to the first-level cache.
    pub store: f64,
    /// Between the first and the second level, in each direction.
    pub second: Option<f64>,
    /// Their sources.
    pub source: &'static str,
}

static CACHE_WIDTHS: &[CacheWidths] = &[
    CacheWidths {
        names: &["Haswell", "Haswell-EP", "Broadwell", "Broadwell-EP", "Broadwell-DE"],
        load: 64.0,
        store: 32.0,
        second: None,
        source: "Agner Fog, The microarchitecture of Intel, AMD, and VIA CPUs, Haswell and Broadwell pipeline, Read and \
                 write bandwidth: two 256-bit reads and one 256-bit write a cycle",
    },
    CacheWidths {
        names: &["Skylake-SP", "Cascade Lake", "Cooper Lake"],
        load: 128.0,
        store: 64.0,
        second: None,
        source: "Chips and Cheese, Skylake: Intel's Longest Serving Architecture, 2022: two 512-bit loads and a 512-bit \
                 store a cycle (Skylake-X)",
    },
    CacheWidths {
        names: &[
            "Ice Lake",
            "Ice Lake-SP",
            "Ice Lake-D",
            "Rocket Lake",
            "Sapphire Rapids",
            "Emerald Rapids",
            "Granite Rapids",
        ],
        load: 128.0,
        store: 64.0,
        second: Some(64.0),
        source: "Chips and Cheese, Popping the Hood on Golden Cove, 2021: two 512-bit loads a cycle, as in Sunny Cove; Intel 64 and \
                 IA-32 Architectures Optimization Reference Manual (248966), Ice Lake Client Microarchitecture, cache \
                 parameters: one 64-byte store a cycle, 64 bytes a cycle between L2 and L1",
    },
    CacheWidths {
        names: &["Zen"],
        load: 32.0,
        store: 16.0,
        second: None,
        source: "WikiChip, Zen microarchitecture, memory subsystem: two loads of 16 bytes and one store of 16 bytes a \
                 cycle",
    },
    CacheWidths {
        names: &["Zen 2", "Zen 3", "Zen 4"],
        load: 64.0,
        store: 32.0,
        second: None,
        source: "Chips and Cheese, AMD's Zen 4 Part 1: Frontend and Execution Engine, 2022: two 256-bit loads and one \
                 256-bit store a cycle, unchanged from Zen 2",
    },
    CacheWidths {
        names: &["Zen 5"],
        load: 128.0,
        store: 64.0,
        second: Some(64.0),
        source: "AMD Software Optimization Guide for the Zen5 Microarchitecture (58455): two 512-bit loads and one 512-bit \
                 store a cycle, 64 bytes a cycle between L2 and L1 in each direction (Cohen, Subramony: Zen 5, Hot Chips \
                 2024, the same)",
    },
];

/// The row of this machine's cores.
pub(super) fn published_widths(facts: &PredictionInputs<'_>) -> Result<&'static CacheWidths, NoPrediction> {
    let name = facts.machine().cpu.microarchitecture.get().map(String::as_str);
    let name = name.ok_or_else(|| NoPrediction::new("this processor's microarchitecture is unknown"))?;
    CACHE_WIDTHS
        .iter()
        .find(|row| row.names.contains(&name))
        .ok_or_else(|| NoPrediction::new(format!("the table of published widths has no row for {name}")))
}

impl CacheWidths {
    /// Maximum bytes that an operation counts per core cycle within L1: loads and stores run in parallel, and the
    /// slower decides.
    pub(super) fn first_level(&self, operation: Operation) -> f64 {
        let (read, written) = match operation {
            Operation::Read => (1.0, 0.0),
            Operation::Write | Operation::Fill | Operation::Zero | Operation::NonTemporalWrite => (0.0, 1.0),
            Operation::Copy => (1.0, 1.0),
            Operation::Triad => (2.0, 1.0),
        };
        (read + written) / f64::max(read / self.load, written / self.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;

    #[test]
    fn rows_have_unique_names_and_wider_loads() {
        let mut names: Vec<&str> = CACHE_WIDTHS.iter().flat_map(|row| row.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(CACHE_WIDTHS.iter().all(|row| row.load == 2.0 * row.store && !row.source.is_empty()));
    }

    #[test]
    fn slower_of_loads_and_stores_limits() {
        let mut machine = testing::machine();
        assert!(published_widths(&PredictionInputs::new(&machine, &|_, _| None)).is_err());
        machine.cpu.microarchitecture = Fact::known("Zen 5".into(), "a test");
        let row = published_widths(&PredictionInputs::new(&machine, &|_, _| None)).unwrap();
        assert_eq!(
            Operation::ALL.map(|operation| row.first_level(operation)),
            [128.0, 64.0, 128.0, 64.0, 64.0, 64.0, 192.0]
        );
    }
}
