//! Published costs of instructions and transitions, by microarchitecture, in core cycles; each row with its sources.
//!
//! A figure that no publication gives for a core is absent: never silently borrowed from a related core, and never
//! measured by us.

use std::sync::OnceLock;

use kelvin_core::catalogue::cpu::{BusyCpus, FREQUENCY};
use kelvin_core::{Case, Machine, Unit};
use kelvin_harness::PredictionInputs;
use serde::Deserialize;

use crate::formula::{self, Expr};
use crate::reasons::{OrReason, Predicted, unpredicted_if};

/// The figures of one or a few microarchitectures, which share a row where they are the same core.
#[derive(Debug, Deserialize)]
pub(crate) struct PublishedRow<T> {
    /// Names, as the machine's facts give them.
    pub cores: Vec<&'static str>,
    pub figures: T,
    pub source: &'static str,
}

/// A table in JSON, which is read when it is first needed.
pub(crate) struct PublishedTable<T> {
    json: &'static str,
    /// The reason for a core without a row.
    no_row: &'static str,
    rows: OnceLock<Vec<PublishedRow<T>>>,
}

impl<T: Deserialize<'static>> PublishedTable<T> {
    pub(crate) const fn new(json: &'static str, no_row: &'static str) -> Self {
        Self { json, no_row, rows: OnceLock::new() }
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> &[PublishedRow<T>] {
        let parse = || kelvin_core::json::from_str(self.json);
        self.rows.get_or_init(|| parse().unwrap_or_else(|error| panic!("a built-in table is wrong: {error}")))
    }

    /// The row of this machine's cores.
    pub(crate) fn row(&self, machine: &Machine) -> Predicted<&PublishedRow<T>> {
        let name = machine.cpu.microarchitecture.get().map(String::as_str);
        let name = name.or_unpredicted("this processor's microarchitecture is unknown")?;
        let row = self.rows().iter().find(|row| row.cores.contains(&name));
        row.or_unpredicted(format!("{} {name}", self.no_row))
    }
}

/// Published costs of a core: the figures of `data/published_cores.json`. The source is that of latencies, counter reads, calls and
/// mispredictions.
#[derive(Debug, Deserialize)]
pub(crate) struct PublishedCore {
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
}

static PUBLISHED_CORES: PublishedTable<PublishedCore> =
    PublishedTable::new(include_str!("../data/published_cores.json"), "the table of published costs has no row for");

/// Kernel entry and exit, and what mitigations add, of the cores that it measured: its tables of cycles by processor. Unlike the
/// rest, these figures have not been checked against the text a second time.
pub(crate) const BEHRENS_SOURCE: &str =
    "Behrens, Belay, Kaashoek: Performance Evolution of Mitigating Transient Execution Attacks, EuroSys 2022";

/// The row of this machine's cores.
pub(crate) fn published_core(facts: &PredictionInputs<'_>) -> Predicted<&'static PublishedRow<PublishedCore>> {
    PUBLISHED_CORES.row(facts.machine())
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
    source: impl Fn(&PublishedRow<PublishedCore>) -> &'static str,
    pick: fn(&PublishedCore) -> Option<f64>,
) -> Predicted<PublishedCycles> {
    let name = facts.machine().cpu.microarchitecture.get().map_or("an unknown core", String::as_str);
    let core = published_core(facts).ok();
    if let Some((core, value)) = core.and_then(|core| Some((core, pick(&core.figures)?))) {
        return Ok(PublishedCycles { value, span: (value, value), source: format!("{name}: {}", source(core)) });
    }
    let reason = format!("the table of published costs has no figure for {name}");
    unpredicted_if(facts.machine().architecture != *"x86_64", reason)?;
    let figures: Vec<_> = PUBLISHED_CORES.rows().iter().filter_map(|row| Some((row, pick(&row.figures)?))).collect();
    let low = figures.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let high = figures.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let sources = figures.first().map_or("", |(core, _)| source(core));
    let source = format!("no figure for {name}: the middle of {low} to {high} over the x86 cores in: {sources}");
    Ok(PublishedCycles { value: (low + high) / 2.0, span: (low, high), source })
}

/// The measured frequency of the core, in hertz.
pub(crate) fn measured_frequency(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    formula::measured(facts, &FREQUENCY, &Case::new().with_word(BusyCpus::One))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;

    #[test]
    fn rows_are_plausible_with_unique_names() {
        let mut names: Vec<&str> = PUBLISHED_CORES.rows().iter().flat_map(|row| &row.cores).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for PublishedRow { cores, figures: core, source } in PUBLISHED_CORES.rows() {
            assert!(core.add == 1.0 && (2.0..=6.0).contains(&core.multiply) && (3.0..=6.0).contains(&core.load));
            assert!(!cores.is_empty() && !source.is_empty());
            assert!(core.system_call.is_none_or(|[entry, exit]| entry + exit > 30.0));
            // rdtscp also reads the processor number: it takes longer than rdtsc.
            assert!(core.counter_reads.is_none_or(|[rdtsc, rdtscp]| rdtsc < rdtscp));
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
        let zen_3 = trap(&machine).unwrap();
        assert_eq!((zen_3.value, zen_3.span), (138.0, (138.0, 138.0)));
        machine.cpu.microarchitecture = Fact::known("Zen 9".into(), "a test");
        let zen_9 = trap(&machine).unwrap();
        assert_eq!((zen_9.value, zen_9.span), (94.0, (50.0, 138.0)));
        assert!(zen_9.source.starts_with("no figure for Zen 9: the middle of 50 to 138"), "{}", zen_9.source);
        machine.architecture = "aarch64".into();
        assert!(trap(&machine).is_err());
    }
}
