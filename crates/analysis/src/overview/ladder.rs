//! The ladder: the times of a machine from a cycle to a second, as a table of metrics and cases.

use kelvin_core::catalogue::cpu::{self, BusyCpus};
use kelvin_core::catalogue::file::{self, AccessOrder, CacheState, FlushMethod, WritePosition};
use kelvin_core::catalogue::mem::{self, BYTES, FaultPage, PageSize};
use kelvin_core::catalogue::net::{self, Transport};
use kelvin_core::catalogue::os::{self, HandoffMechanism, HandoffTask, NullCall};

use super::figure::{ValueConversion, overview_figure};
use kelvin_reference::published::{Comparability, comparability, references};

use crate::levels::{MEMORY_NAME, indistinct_level, is_reported, largest_cache};
use crate::prelude::*;

/// Bytes of a block of a file.
const BLOCK_BYTES: u64 = 4 << 10;
/// Bytes of a message over the network: a short request.
const MESSAGE_BYTES: u64 = 64;

/// Where the time of a rung is found.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a table of two dozen")]
pub(super) enum RungSource {
    /// In a result.
    Metric(MetricSelector, ValueConversion),
    /// On a plateau of memory latency, by the name of its level.
    Level(&'static str),
    /// From the run's CPU to its partner, or between any two.
    OtherCore,
}

/// A rung: its words on the ladder and in a sentence, and where it is found.
#[derive(Clone, Copy, Debug)]
pub(super) struct RungSpec {
    pub label: &'static str,
    pub continues: bool,
    /// Whether other rungs show nearly as much.
    pub is_spare: bool,
    /// It in a sentence.
    pub sentence_name: &'static str,
    pub source: RungSource,
}

const fn rung_spec(label: &'static str, sentence_name: &'static str, source: RungSource) -> RungSpec {
    RungSpec { label, continues: false, is_spare: false, sentence_name, source }
}

const fn time_rung(label: &'static str, sentence_name: &'static str, selector: MetricSelector) -> RungSpec {
    rung_spec(label, sentence_name, RungSource::Metric(selector, ValueConversion::Seconds))
}

const fn continued_time(label: &'static str, sentence_name: &'static str, selector: MetricSelector) -> RungSpec {
    RungSpec { continues: true, ..time_rung(label, sentence_name, selector) }
}

impl RungSpec {
    /// A rung that is omitted first where space is short.
    const fn as_spare(self) -> Self {
        Self { is_spare: true, ..self }
    }
}

/// A block from the disk, with one time for the whole screen.
pub(super) const DISK_BLOCK: MetricSelector = select(&file::READ_ORDER)
    .with_word(AccessOrder::Random.point())
    .with_word(CacheState::Direct.point())
    .furthest(file::BYTES);

/// All rungs, in groups: the core and its memory, the kernel, files, the network; in each from short to long as they usually are.
pub(super) const RUNG_SPECS: [RungSpec; 24] = [
    rung_spec(
        "cycle",
        "a cycle",
        RungSource::Metric(
            select(&cpu::FREQUENCY).with_word(BusyCpus::One.point()),
            ValueConversion::SecondsPerOperation,
        ),
    ),
    time_rung("L1 hit", "a load from L1", select(&cpu::LATENCY_LOAD)),
    rung_spec("L2 hit", "a load from L2", RungSource::Level("L2")),
    rung_spec("L3 hit", "a load from L3", RungSource::Level("L3")),
    rung_spec("line from another core", "a cache line from another core", RungSource::OtherCore).as_spare(),
    rung_spec("DRAM", "a load from memory", RungSource::Level(MEMORY_NAME)),
    time_rung("system call", "a system call", select(&os::SYSCALL_NULL).with_word(NullCall::Getppid.point())),
    time_rung(
        "minor page fault",
        "a minor page fault",
        select(&mem::FAULT_MINOR).with_word(FaultPage::Anonymous.point()),
    ),
    time_rung(
        "switch on one CPU",
        "a switch between two processes",
        select(&os::SWITCH_COST).with_word(HandoffTask::Process.point()).with_word(HandoffMechanism::Pipe.point()),
    ),
    time_rung(
        "wake another CPU",
        "waking another CPU",
        select(&os::SWITCH_CROSS_CPU).with_word(HandoffMechanism::Pipe.point()),
    ),
    time_rung("signal", "a signal", select(&os::SIGNAL_DELIVER)).as_spare(),
    time_rung("thread", "creating a thread", select(&os::THREAD_CREATE)).as_spare(),
    time_rung("fork", "a fork", select(&os::PROCESS_FORK)),
    time_rung("fork + exec", "fork and exec", select(&os::PROCESS_EXEC)),
    rung_spec(
        "4 KiB from page cache",
        "reading 4 KiB from the page cache",
        RungSource::Metric(
            select(&file::BLOCKSIZE_READ).with_word(CacheState::Cached.point()).with_number(file::BLOCK, BLOCK_BYTES),
            ValueConversion::SecondsForBytes(BLOCK_BYTES),
        ),
    ),
    time_rung("4 KiB from disk", "reading 4 KiB from the disk", DISK_BLOCK),
    time_rung(
        "4 KiB + fsync",
        "writing 4 KiB with fsync",
        select(&file::SYNC_WRITE).with_word(FlushMethod::Fsync.point()).with_word(WritePosition::InPlace.point()),
    ),
    time_rung(
        "pipe round trip, 1 CPU",
        "a pipe round trip on one CPU",
        select(&os::IPC_LATENCY).with_word(HandoffMechanism::Pipe.point()).with_word(PairPlacement::SameCpu.point()),
    )
    .as_spare(),
    continued_time(
        "between two CPUs",
        "a pipe round trip between two CPUs",
        select(&os::IPC_LATENCY).with_word(HandoffMechanism::Pipe.point()).with_word(PairPlacement::TwoCpus.point()),
    )
    .as_spare(),
    time_rung(
        "TCP round trip, 1 CPU",
        "a TCP round trip on one CPU",
        select(&net::RTT_TCP).with_word(PairPlacement::SameCpu.point()).with_number(net::MESSAGE, MESSAGE_BYTES),
    ),
    continued_time(
        "between two CPUs",
        "a TCP round trip between two CPUs",
        select(&net::RTT_TCP).with_word(PairPlacement::TwoCpus.point()).with_number(net::MESSAGE, MESSAGE_BYTES),
    ),
    continued_time(
        "to the peer",
        "a TCP round trip to the peer",
        select(&net::PEER_RTT).with_word(Transport::Tcp.point()).with_number(net::MESSAGE, MESSAGE_BYTES),
    ),
    time_rung("TCP connect", "a TCP connect", select(&net::CONNECT).with_word(PairPlacement::SameCpu.point())),
    continued_time("to the peer", "a TCP connect to the peer", select(&net::PEER_CONNECT)),
];

/// A rung, and what it was made of.
pub(crate) struct LadderRung {
    pub rung: Rung,
    pub sentence_name: &'static str,
    /// The probe that measured it, and how its value becomes the time; none where nothing has.
    pub origin: Option<(Name, ValueConversion)>,
}

/// The rungs of a run: those of which it measured the metric, known or not.
pub(crate) fn ladder_rungs(run: &Run, analysis: &Analysis) -> Vec<LadderRung> {
    RUNG_SPECS.iter().filter_map(|step| ladder_rung(step, run, analysis)).collect()
}

fn ladder_rung(step: &RungSpec, run: &Run, analysis: &Analysis) -> Option<LadderRung> {
    let results = &analysis.results;
    let lookup = match step.source {
        RungSource::Metric(selector, conversion) => Ok((selector.find(results)?, conversion)),
        RungSource::OtherCore => Ok((core_to_core_result(run, results)?, ValueConversion::Seconds)),
        RungSource::Level(name) => {
            let level = analysis.levels.iter().flat_map(|hierarchy| &hierarchy.levels).find(|level| level.name == name);
            match level {
                Some(level) => Ok((plateau_result(level, run, results)?, ValueConversion::Seconds)),
                None => Err(missing_level(name, run, analysis)?),
            }
        }
    };
    let (figure, published, origin) = match lookup {
        Ok((result, conversion)) => {
            (overview_figure(result, conversion), published_times(result, conversion), Some((result.probe, conversion)))
        }
        Err(figure) => (figure, Vec::new(), None),
    };
    let RungSpec { label, continues, is_spare, sentence_name, .. } = *step;
    Some(LadderRung {
        rung: Rung { label: label.into(), continues, is_spare, figure, published },
        sentence_name,
        origin,
    })
}

/// This quantity on published machines.
fn published_times(result: &MetricResult, conversion: ValueConversion) -> Vec<PublishedTime> {
    let is_same = |value: &&ReferenceValue| {
        value.case == result.case && value.value > 0.0 && comparability(value, &result.metric) == Comparability::Equal
    };
    let time = |machine: &Reference| {
        let value = machine.values.iter().find(is_same)?;
        Some(PublishedTime { machine: machine.id, seconds: conversion.convert(value.value) })
    };
    references().iter().filter_map(time).collect()
}

/// The result that shows a level: of those on its plateau the one nearest to its latency. Where there are some, a known one, and of
/// those one that by the reported sizes of caches is of this level too, as its prediction is.
fn plateau_result<'a>(level: &MemoryLevel, run: &Run, results: &'a [MetricResult]) -> Option<&'a MetricResult> {
    let size = |result: &MetricResult| BYTES.number_in(&result.case).unwrap_or_default();
    let last_cache = largest_cache(&run.header.machine).unwrap_or_default();
    let is_of_level = |bytes: u64| level.reported_bytes.map_or(bytes > last_cache, |reported| bytes <= reported);
    let distance = |result: &MetricResult| Some((result.outcome.found_summary()?.headline - level.latency).abs());
    let rank = |result: &MetricResult| (result.outcome.summary().is_none(), !is_of_level(size(result)));
    let latencies = select(&mem::LATENCY).with_word(BASE_PAGES).find_all(results);
    let on_plateau = latencies.filter(|result| (level.from_bytes..=level.to_bytes).contains(&size(result)));
    let candidates = on_plateau.filter_map(|result| Some((rank(result), distance(result)?, result)));
    candidates.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, _, result)| result)
}

/// The pages of which levels are found.
const BASE_PAGES: kelvin_core::AxisWord = PageSize::Base.point();

/// A level that the machine should have and the run could not distinguish from others; nothing if the run did not look.
fn missing_level(name: &str, run: &Run, analysis: &Analysis) -> Option<OverviewFigure> {
    let curve = select(&mem::LATENCY).with_word(BASE_PAGES);
    if curve.find(&analysis.results).is_none() || !is_reported(name, &run.header.machine) {
        return None;
    }
    let hierarchy: Vec<&str> =
        analysis.levels.iter().flat_map(|names| &names.levels).map(|level| &*level.name).collect();
    let reason = match hierarchy.as_slice() {
        [] => "latency over the working set shows no levels".to_owned(),
        names => format!("latency over the working set shows {} only", names.join(", ")),
    };
    let text = indistinct_level(name, &hierarchy);
    Some(OverviewFigure { text, missing_reason: Some(reason), ..OverviewFigure::default() })
}

/// Core-to-core latency between the run's CPU and its partner; on a machine that measured others, between the first pair.
fn core_to_core_result<'a>(run: &Run, results: &'a [MetricResult]) -> Option<&'a MetricResult> {
    let settings = &run.header.settings;
    let [cpu, partner] = [Some(settings.cpu), settings.partner_cpu].map(|cpu| cpu.map(u64::from));
    let is_pair = |result: &&MetricResult| {
        let pair = [mem::FROM_CPU.number_in(&result.case), mem::TO_CPU.number_in(&result.case)];
        pair == [cpu, partner] || pair == [partner, cpu]
    };
    let selector = select(&mem::CORE_TO_CORE);
    selector.find_all(results).find(is_pair).or_else(|| selector.find_all(results).next())
}

#[cfg(test)]
mod tests {
    use kelvin_core::Unit;

    use super::*;

    fn has_axes(selector: &MetricSelector) -> bool {
        let axes: Vec<Name> = selector.metric.axes().map(|axis| axis.name).collect();
        selector.axes().all(|axis| axes.contains(&axis))
    }

    #[test]
    fn every_rung_has_catalogue_metric_and_axes() {
        for step in RUNG_SPECS {
            let RungSource::Metric(selector, conversion) = step.source else { continue };
            assert_eq!(kelvin_core::catalogue::find(selector.metric.id), Some(selector.metric), "{}", step.label);
            assert!(has_axes(&selector), "{}: {:?}", step.label, selector);
            let is_time = match conversion {
                ValueConversion::Unchanged => false,
                ValueConversion::Seconds => selector.metric.unit == Unit::Nanoseconds,
                ValueConversion::SecondsPerOperation => selector.metric.unit == Unit::Hertz,
                ValueConversion::SecondsForBytes(_) => selector.metric.unit == Unit::BytesPerSecond,
            };
            assert!(is_time, "{} is no time in {:?}", step.label, selector.metric.unit);
        }
    }

    #[test]
    fn first_rung_continues_none() {
        assert!(!RUNG_SPECS[0].continues);
        let names: std::collections::BTreeSet<&str> = RUNG_SPECS.iter().map(|step| step.sentence_name).collect();
        assert_eq!(names.len(), RUNG_SPECS.len(), "two rungs have one name");
    }
}
