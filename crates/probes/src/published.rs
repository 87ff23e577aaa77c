//! Published costs of instructions and transitions, by microarchitecture, in core cycles; each row with its sources.
//!
//! A figure that no publication gives for a core is absent: never silently borrowed from a related core, and never
//! measured by us.

use kelvin_core::catalogue::cpu::{BusyCpus, FREQUENCY};
use kelvin_core::{Case, NoPrediction, Unit};
use kelvin_harness::PredictionInputs;

use crate::formula::{self, Expr};

/// Published figures of the cores of one or a few microarchitectures.
#[derive(Debug)]
pub(crate) struct PublishedCore {
    /// Names, as the machine's facts give them.
    names: &'static [&'static str],
    /// Latency of an add of two registers.
    pub add: f64,
    /// Latency of a multiply of two 64-bit registers.
    pub multiply: f64,
    /// Latency of a load that hits the first-level cache, address from a plain register.
    pub load: f64,
    /// Time between two back-to-back reads of the time-stamp counter: `rdtsc`, `rdtscp`.
    pub counter_reads: Option<[f64; 2]>,
    /// Time of an `lfence` with nothing outstanding.
    pub fence: Option<f64>,
    /// Time of a near call and its return, both predicted: the sum of their reciprocal throughputs.
    pub call_and_return: Option<f64>,
    /// Usual cost of a mispredicted branch: the vendor's common case, else the lowest measurement.
    pub misprediction: Option<f64>,
    /// Kernel entry and exit: `syscall`, `sysret`.
    pub system_call: Option<[f64; 2]>,
    /// One switch of the page tables (a write to CR3), where the kernel has its own (page table isolation).
    pub table_switch: Option<f64>,
    /// Clearing buffers before the return to user mode (`verw`), where that is the mitigation.
    pub buffer_clearing: Option<f64>,
    /// Source of latencies, counter reads, calls and mispredictions.
    pub source: &'static str,
}

/// Agner Fog's manuals in the editions used: the instruction table of one core, and the sections of the other manual on
/// mispredictions and L1 latency.
macro_rules! fog {
    ($table:literal, $places:literal) => {
        concat!(
            "Agner Fog, Instruction tables (2022-11-04), ",
            $table,
            "; The microarchitecture of Intel, AMD, and VIA CPUs (2023-03-26), ",
            $places
        )
    };
}

/// Kernel entry and exit, and what mitigations add: its tables of cycles by processor. Unlike the rest, these figures
/// have not been checked against the text a second time.
pub(crate) const BEHRENS_SOURCE: &str =
    "Behrens, Belay, Kaashoek: Performance Evolution of Mitigating Transient Execution Attacks, EuroSys 2022";

/// A core with published latencies of an add, a multiply and a load only.
const BASIC_CORE: PublishedCore = PublishedCore {
    names: &[],
    add: 1.0,
    multiply: 3.0,
    load: 4.0,
    counter_reads: None,
    fence: None,
    call_and_return: None,
    misprediction: None,
    system_call: None,
    table_switch: None,
    buffer_clearing: None,
    source: "",
};

// Server and client parts share a row where they are the same core. The figures of Behrens and others are given only
// for the cores that they measured.
static PUBLISHED_CORES: &[PublishedCore] = &[
    PublishedCore {
        names: &["Sandy Bridge", "Sandy Bridge-EP"],
        counter_reads: Some([28.0, 36.0]),
        fence: Some(4.0),
        call_and_return: Some(4.0),
        misprediction: Some(15.0),
        source: fog!("Sandy Bridge", "section 3.7 and table 9.5"),
        ..BASIC_CORE
    },
    // The table has no RDTSCP for this core, nor for Haswell.
    PublishedCore {
        names: &["Ivy Bridge", "Ivy Bridge-EP"],
        call_and_return: Some(4.0),
        misprediction: Some(15.0),
        source: fog!("Ivy Bridge", "section 3.7 and table 9.5"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Haswell", "Haswell-EP"],
        call_and_return: Some(3.0),
        misprediction: Some(16.0),
        source: fog!("Haswell", "section 10.4 and table 10.2"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Broadwell", "Broadwell-EP", "Broadwell-DE"],
        counter_reads: Some([24.0, 30.0]),
        fence: Some(4.0),
        call_and_return: Some(3.0),
        misprediction: Some(16.0),
        system_call: Some([49.0, 40.0]),
        table_switch: Some(206.0),
        buffer_clearing: Some(610.0),
        source: fog!("Broadwell", "section 10.4 and table 10.2"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Skylake"],
        counter_reads: Some([25.0, 32.0]),
        fence: Some(4.0),
        call_and_return: Some(4.0),
        misprediction: Some(16.0),
        system_call: Some([42.0, 42.0]),
        table_switch: Some(191.0),
        buffer_clearing: Some(518.0),
        source: fog!("Skylake", "section 11.4 and table 11.2"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Coffee Lake"],
        counter_reads: Some([25.0, 32.0]),
        fence: Some(4.0),
        call_and_return: Some(5.0),
        misprediction: Some(16.0),
        source: fog!("Coffee Lake", "section 11.4 and table 11.2"),
        ..BASIC_CORE
    },
    // Skylake's core under other names (Linux arch/x86/include/asm/intel-family.h): the figures on which its tables
    // agree.
    PublishedCore {
        names: &["Kaby Lake", "Comet Lake", "Whiskey Lake or Comet Lake", "Cooper Lake"],
        counter_reads: Some([25.0, 32.0]),
        fence: Some(4.0),
        misprediction: Some(16.0),
        source: fog!("Skylake, Skylake-X and Coffee Lake, which have the same core", "section 11.4 and table 11.2"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Skylake-SP"],
        counter_reads: Some([25.0, 32.0]),
        fence: Some(4.0),
        call_and_return: Some(4.0),
        misprediction: Some(16.0),
        source: fog!("Skylake-X", "section 11.4 and table 11.2"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Cascade Lake"],
        counter_reads: Some([25.0, 32.0]),
        fence: Some(4.0),
        call_and_return: Some(4.0),
        misprediction: Some(16.0),
        system_call: Some([70.0, 43.0]),
        buffer_clearing: Some(458.0),
        source: fog!("Skylake-X and Cascade Lake", "section 11.4 and table 11.2"),
        ..BASIC_CORE
    },
    // Fog's table 12.3 has 4 cycles for the load; LLVM's model and the measurements of OSACA (data/icl.yml) have 5.
    PublishedCore {
        names: &["Ice Lake"],
        load: 5.0,
        counter_reads: Some([27.0, 36.0]),
        fence: Some(5.0),
        call_and_return: Some(4.0),
        misprediction: Some(16.0),
        system_call: Some([21.0, 29.0]),
        source: fog!("Ice Lake and Tiger Lake", "section 12.4; load: LLVM, X86SchedIceLake.td"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Tiger Lake"],
        load: 5.0,
        counter_reads: Some([27.0, 36.0]),
        fence: Some(5.0),
        call_and_return: Some(4.0),
        misprediction: Some(16.0),
        source: fog!("Ice Lake and Tiger Lake", "section 12.4; load: LLVM, X86SchedIceLake.td"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Ice Lake-SP", "Ice Lake-D"],
        load: 5.0,
        counter_reads: Some([27.0, 36.0]),
        fence: Some(5.0),
        call_and_return: Some(4.0),
        misprediction: Some(16.0),
        system_call: Some([45.0, 32.0]),
        source: fog!("Ice Lake, which has the same core", "section 12.4; load: LLVM, X86SchedIceLake.td"),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Rocket Lake"],
        load: 5.0,
        source: "LLVM, X86SchedIceLake.td, by X86.td Rocket Lake's too",
        ..BASIC_CORE
    },
    PublishedCore {
        // The same core: LLVM binds Emerald Rapids to Sapphire Rapids' ports and counters (X86PfmCounters.td).
        names: &["Sapphire Rapids", "Emerald Rapids"],
        load: 5.0,
        source: "OSACA 0.7.1, data/spr.yml; Agner Fog, The microarchitecture of Intel, AMD, and VIA CPUs (2023-03-26), \
                 table 13.1 (Golden Cove)",
        ..BASIC_CORE
    },
    // LLVM's model has 4 cycles for the multiply, and its comment doubts it; Fog and GCC have 3.
    PublishedCore {
        names: &["Zen"],
        counter_reads: Some([36.0, 64.0]),
        call_and_return: Some(4.0),
        misprediction: Some(18.0),
        system_call: Some([63.0, 53.0]),
        source: fog!("Zen 1", "section 3.13 and table 22.2"),
        ..BASIC_CORE
    },
    // Not measured by Fog; compilers schedule Zen and Zen+ alike. Dhyana is a licensed Zen.
    PublishedCore {
        names: &["Zen+", "Dhyana (Zen)"],
        source: "GCC, gcc/config/i386/znver1.md (multiply); LLVM, X86ScheduleZnver1.td (load)",
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Zen 2"],
        counter_reads: Some([37.0, 67.0]),
        fence: Some(11.0),
        call_and_return: Some(4.0),
        misprediction: Some(18.0),
        system_call: Some([53.0, 46.0]),
        source: fog!("Zen 2", "section 3.13 and table 22.3"),
        ..BASIC_CORE
    },
    // AMD states 11 to 18 cycles per misprediction for Zen 3 and 4, 13 in the common case; Fog measured about 18 on Zen
    // 3 and 15 to 18 on Zen 4.
    PublishedCore {
        names: &["Zen 3"],
        counter_reads: Some([36.0, 68.0]),
        fence: Some(10.0),
        call_and_return: Some(4.0),
        misprediction: Some(13.0),
        system_call: Some([83.0, 55.0]),
        source: fog!(
            "Zen 3",
            "table 23.1; AMD Software Optimization Guide for Family 19h (56665), section 2.8, as quoted in LLVM, \
             X86ScheduleZnver3.td"
        ),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Zen 4"],
        counter_reads: Some([34.0, 64.0]),
        fence: Some(10.0),
        call_and_return: Some(4.0),
        misprediction: Some(13.0),
        source: fog!(
            "Zen 4",
            "table 24.1; AMD Software Optimization Guide for Zen 4 (57647), section 2.8, as quoted in LLVM, \
             X86ScheduleZnver4.td"
        ),
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Zen 5"],
        misprediction: Some(15.0),
        source: "AMD Software Optimization Guide for the Zen5 Microarchitecture (58455), sections 2.6.2 and 2.8, as \
                 quoted in LLVM, X86ScheduleZnver5.td; that model for the multiply",
        ..BASIC_CORE
    },
    PublishedCore { names: &["Cortex-A72"], multiply: 5.0, source: "OSACA 0.7.1, data/a72.yml", ..BASIC_CORE },
    PublishedCore {
        names: &["Neoverse N1"],
        multiply: 4.0,
        source: "LLVM, AArch64SchedNeoverseN1.td, after Arm's Neoverse N1 Software Optimization Guide",
        ..BASIC_CORE
    },
    PublishedCore {
        names: &["Neoverse V1", "Neoverse N2", "Neoverse V2", "Neoverse V3"],
        multiply: 2.0,
        source: "LLVM, AArch64SchedNeoverseV1.td, N2.td and V3.td, after Arm's software optimization guides; OSACA 0.7.1, \
                 data/v2.yml",
        ..BASIC_CORE
    },
];

/// The row of this machine's cores.
pub(crate) fn published_core(facts: &PredictionInputs<'_>) -> Result<&'static PublishedCore, NoPrediction> {
    let name = facts.machine().cpu.microarchitecture.get().map(String::as_str);
    let name = name.ok_or_else(|| NoPrediction::new("this processor's microarchitecture is unknown"))?;
    PUBLISHED_CORES
        .iter()
        .find(|core| core.names.contains(&name))
        .ok_or_else(|| NoPrediction::new(format!("the table of published costs has no row for {name}")))
}

/// A published figure for this machine's cores, in core cycles.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PublishedCycles {
    /// The figure; for a core without one, the middle of those of all cores in the table.
    pub value: f64,
    /// Its bounds: the figure itself, or the extremes of the table.
    pub span: (f64, f64),
    /// Its source, in words.
    pub source: String,
}

impl PublishedCycles {
    /// In a formula, with its span as the interval.
    pub fn expr(&self, name: &str) -> Expr {
        let figure = formula::published(name, self.value, Unit::Cycles, &*self.source);
        figure.with_interval(self.span)
    }
}

/// A figure of this machine's cores; if none is published for them, its span over all cores of the table.
pub(crate) fn published_cycles(
    facts: &PredictionInputs<'_>,
    source: impl Fn(&PublishedCore) -> &'static str,
    pick: fn(&PublishedCore) -> Option<f64>,
) -> Result<PublishedCycles, NoPrediction> {
    let name = facts.machine().cpu.microarchitecture.get().map_or("an unknown core", String::as_str);
    let core = published_core(facts).ok();
    if let Some((core, value)) = core.and_then(|core| Some((core, pick(core)?))) {
        return Ok(PublishedCycles { value, span: (value, value), source: format!("{name}: {}", source(core)) });
    }
    if facts.machine().architecture != *"x86_64" {
        return Err(NoPrediction::new(format!("the table of published costs has no figure for {name}")));
    }
    let figures = || PUBLISHED_CORES.iter().filter_map(|core| Some((core, pick(core)?)));
    let low = figures().map(|(_, value)| value).fold(f64::INFINITY, f64::min);
    let high = figures().map(|(_, value)| value).fold(0.0, f64::max);
    let sources = figures().next().map_or("", |(core, _)| source(core));
    let source = format!("no figure for {name}: the middle of {low} to {high} over the x86 cores in: {sources}");
    Ok(PublishedCycles { value: (low + high) / 2.0, span: (low, high), source })
}

/// The measured frequency of the core, in hertz.
pub(crate) fn measured_frequency(facts: &PredictionInputs<'_>) -> Result<Expr, NoPrediction> {
    formula::measured(facts, &FREQUENCY, &Case::new().with_word(BusyCpus::One))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;

    #[test]
    fn rows_are_plausible_with_unique_names() {
        let mut names: Vec<&str> = PUBLISHED_CORES.iter().flat_map(|core| core.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for core in PUBLISHED_CORES {
            assert!(core.add == 1.0 && (2.0..=6.0).contains(&core.multiply) && (3.0..=6.0).contains(&core.load));
            assert!(!core.names.is_empty() && !core.source.is_empty());
            assert!(core.system_call.is_none_or(|[entry, exit]| entry + exit > 30.0));
            // rdtscp also reads the processor number: it takes longer than rdtsc.
            assert!(core.counter_reads.is_none_or(|[plain, with_processor]| plain < with_processor));
            assert!(core.call_and_return.is_none_or(|cycles| (2.0..=6.0).contains(&cycles)));
            assert!(core.misprediction.is_none_or(|cycles| (11.0..=20.0).contains(&cycles)));
        }
    }

    #[test]
    fn unknown_core_uses_table_span() {
        let mut machine = testing::machine();
        let trap = |machine: &kelvin_core::Machine| {
            let facts = PredictionInputs::new(machine, &|_, _| None);
            published_cycles(&facts, |_| BEHRENS_SOURCE, |core| core.system_call.map(|[entry, exit]| entry + exit))
        };
        machine.cpu.microarchitecture = Fact::known("Zen 3".into(), "a test");
        let own = trap(&machine).unwrap();
        assert_eq!((own.value, own.span), (138.0, (138.0, 138.0)));
        machine.cpu.microarchitecture = Fact::known("Zen 9".into(), "a test");
        let other = trap(&machine).unwrap();
        assert_eq!((other.value, other.span), (94.0, (50.0, 138.0)));
        assert!(other.source.starts_with("no figure for Zen 9: the middle of 50 to 138"), "{}", other.source);
        machine.architecture = "aarch64".into();
        assert!(trap(&machine).is_err());
    }
}
