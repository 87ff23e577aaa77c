//! The ladder: the times of a machine from a cycle to a second, as a table of metrics and cases.

use kelvin_catalogue::Placement;
use kelvin_catalogue::cpu::{self, BusyCpus};
use kelvin_catalogue::file::{self, AccessOrder, CacheState, FlushedBy, WritePlace};
use kelvin_catalogue::mem::{self, BYTES, FaultPage, PageSize};
use kelvin_catalogue::net::{self, Transport};
use kelvin_catalogue::os::{self, NullCall, TokenMeans};
use kelvin_model::{Name, PublishedTime, ReferenceValue, Run, Rung};

use super::figure::{Shown, figure, unknown};
use super::spot::Spot;
use crate::levels::{MEMORY, is_reported, largest_cache};
use crate::reference::{Standing, references, standing};
use crate::result::{Analysis, MemoryLevel, MetricResult};
use crate::words;

/// Bytes of a block of a file.
const BLOCK: u64 = 4 << 10;
/// Bytes of a message over the network: a short request.
const MESSAGE: u64 = 64;

/// Where the time of a rung is found.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a table of two dozen")]
pub(super) enum At {
    /// In a result.
    Spot(Spot, Shown),
    /// On a plateau of memory latency, by the name of its level.
    Level(&'static str),
    /// From the run's CPU to its partner, or between any two.
    OtherCore,
}

/// A rung: its words on the ladder and in a sentence, and where it is found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub what: &'static str,
    pub continues: bool,
    /// Whether others tell about as much.
    pub is_spare: bool,
    /// It in a sentence.
    pub named: &'static str,
    pub at: At,
}

const fn step(what: &'static str, named: &'static str, at: At) -> Step {
    Step { what, continues: false, is_spare: false, named, at }
}

/// The same as the step above it, in another place.
const fn and(what: &'static str, named: &'static str, at: At) -> Step {
    Step { continues: true, ..step(what, named, at) }
}

impl Step {
    /// It, which is left out first where there is no room for all.
    const fn spare(self) -> Self {
        Self { is_spare: true, ..self }
    }
}

const fn time(spot: Spot) -> At {
    At::Spot(spot, Shown::Seconds)
}

/// A block from the disk, of which all of a screen says the same.
pub(super) const FROM_DISK: Spot =
    Spot::new(&file::SEQRAND).at(AccessOrder::Random.point()).at(CacheState::Direct.point()).furthest(file::BYTES);

/// All rungs, in groups: the core and its memory, the kernel, files, the network; in each from short to long as they usually are.
pub(super) const STEPS: [Step; 24] = [
    step("cycle", "a cycle", At::Spot(Spot::new(&cpu::FREQUENCY).at(BusyCpus::One.point()), Shown::SecondsOfOne)),
    step("L1 hit", "a load from L1", time(Spot::new(&cpu::LATENCY_LOAD))),
    step("L2 hit", "a load from L2", At::Level("L2")),
    step("L3 hit", "a load from L3", At::Level("L3")),
    step("line from another core", "a cache line from another core", At::OtherCore).spare(),
    step("DRAM", "a load from memory", At::Level(MEMORY)),
    step("system call", "a system call", time(Spot::new(&os::SYSCALL_NULL).at(NullCall::Getppid.point()))),
    step("minor page fault", "a minor page fault", time(Spot::new(&mem::FAULT_MINOR).at(FaultPage::Anonymous.point()))),
    step("switch on one CPU", "a switch between two processes", time(Spot::new(&os::SWITCH_PROCESS_PIPE))),
    step("wake another CPU", "waking another CPU", time(Spot::new(&os::SWITCH_CROSS_CPU).at(TokenMeans::Pipe.point()))),
    step("signal", "a signal", time(Spot::new(&os::SIGNAL_DELIVER))).spare(),
    step("thread", "creating a thread", time(Spot::new(&os::THREAD_CREATE))).spare(),
    step("fork", "a fork", time(Spot::new(&os::PROCESS_FORK))),
    step("fork + exec", "fork and exec", time(Spot::new(&os::PROCESS_EXEC))),
    step(
        "4 KiB from page cache",
        "reading 4 KiB from the page cache",
        At::Spot(
            Spot::new(&file::BLOCKSIZE_READ).at(CacheState::Cached.point()).with(file::BLOCK, BLOCK),
            Shown::SecondsOf(BLOCK),
        ),
    ),
    step("4 KiB from disk", "reading 4 KiB from the disk", time(FROM_DISK)),
    step(
        "4 KiB + fsync",
        "writing 4 KiB with fsync",
        time(Spot::new(&file::SYNC).at(FlushedBy::Fsync.point()).at(WritePlace::InPlace.point())),
    ),
    step(
        "pipe round trip, 1 CPU",
        "a pipe round trip on one CPU",
        time(Spot::new(&os::IPC_PIPE_LATENCY).at(Placement::SameCpu.point())),
    )
    .spare(),
    and(
        "between two CPUs",
        "a pipe round trip between two CPUs",
        time(Spot::new(&os::IPC_PIPE_LATENCY).at(Placement::TwoCpus.point())),
    )
    .spare(),
    step(
        "TCP round trip, 1 CPU",
        "a TCP round trip on one CPU",
        time(Spot::new(&net::RTT_TCP).at(Placement::SameCpu.point()).with(net::MESSAGE, MESSAGE)),
    ),
    and(
        "between two CPUs",
        "a TCP round trip between two CPUs",
        time(Spot::new(&net::RTT_TCP).at(Placement::TwoCpus.point()).with(net::MESSAGE, MESSAGE)),
    ),
    and(
        "to the peer",
        "a TCP round trip to the peer",
        time(Spot::new(&net::PEER_RTT).at(Transport::Tcp.point()).with(net::MESSAGE, MESSAGE)),
    ),
    step("TCP connect", "a TCP connect", time(Spot::new(&net::CONNECT).at(Placement::SameCpu.point()))),
    and("to the peer", "a TCP connect to the peer", time(Spot::new(&net::PEER_CONNECT))),
];

/// A rung, and what it was made of.
pub(crate) struct Climbed {
    pub rung: Rung,
    pub named: &'static str,
    /// The probe that measured it, and how its value becomes the time; none where nothing has.
    pub from: Option<(Name, Shown)>,
}

/// The rungs of a run: those of which it measured the metric, known or not.
pub(crate) fn climbed(run: &Run, analysis: &Analysis) -> Vec<Climbed> {
    STEPS.iter().filter_map(|step| climb(step, run, analysis)).collect()
}

fn climb(step: &Step, run: &Run, analysis: &Analysis) -> Option<Climbed> {
    let results = &analysis.results;
    let (found, shown) = match step.at {
        At::Spot(spot, shown) => (spot.find(results)?, shown),
        At::OtherCore => (other_core(run, results)?, Shown::Seconds),
        At::Level(name) => match level(analysis, name) {
            Some(level) => (on_plateau(level, run, results)?, Shown::Seconds),
            None => return missing_level(step, name, run, analysis),
        },
    };
    Some(Climbed { rung: rung(step, found, shown), named: step.named, from: Some((found.probe, shown)) })
}

fn rung(step: &Step, found: &MetricResult, shown: Shown) -> Rung {
    Rung {
        what: step.what.into(),
        continues: step.continues,
        is_spare: step.is_spare,
        figure: figure(found, shown),
        published: published(found, shown),
    }
}

/// The same quantity on published machines.
fn published(found: &MetricResult, shown: Shown) -> Vec<PublishedTime> {
    let is_same = |value: &&ReferenceValue| {
        value.case == found.case && value.value > 0.0 && standing(value, &found.metric) == Standing::Equal
    };
    let of = |(machine, value): (Name, &ReferenceValue)| PublishedTime { machine, seconds: shown.value(value.value) };
    let all = references().iter().filter_map(|machine| Some((machine.id, machine.values.iter().find(is_same)?)));
    all.map(of).collect()
}

/// The level of the hierarchy of this name, of a run that measured latency for its own sake.
fn level<'a>(analysis: &'a Analysis, name: &str) -> Option<&'a MemoryLevel> {
    analysis.levels.as_ref()?.levels.iter().find(|level| level.name == name)
}

/// The result that shows a level: of those on its plateau the one nearest to its latency. Where there are some, a known one, and of
/// those one that by the reported sizes of caches is of this level too, as its prediction is.
fn on_plateau<'a>(level: &MemoryLevel, run: &Run, results: &'a [MetricResult]) -> Option<&'a MetricResult> {
    let size = |result: &MetricResult| BYTES.of(&result.case).unwrap_or_default();
    let last_cache = largest_cache(&run.outline.machine).unwrap_or_default();
    let is_of_level = |bytes: u64| level.reported_bytes.map_or(bytes > last_cache, |reported| bytes <= reported);
    let off = |result: &MetricResult| Some((result.outcome.found()?.headline - level.latency).abs());
    let last = |result: &MetricResult| (result.outcome.summary().is_none(), !is_of_level(size(result)));
    let on = Spot::new(&mem::LATENCY).at(PAGES).all(results);
    let on = on.filter(|result| (level.from_bytes..=level.to_bytes).contains(&size(result)));
    let found = on.filter_map(|result| Some((last(result), off(result)?, result)));
    found.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, _, result)| result)
}

/// The pages of which levels are found.
const PAGES: kelvin_model::Point = PageSize::Base.point();

/// A level that the machine should have and the run could not tell from others; nothing if the run did not look.
fn missing_level(step: &Step, name: &str, run: &Run, analysis: &Analysis) -> Option<Climbed> {
    let was_measured = Spot::new(&mem::LATENCY).at(PAGES).find(&analysis.results).is_some();
    let found: Vec<&str> = analysis.levels.iter().flat_map(|found| &found.levels).map(|level| &*level.name).collect();
    if !was_measured || !is_reported(name, &run.outline.machine) {
        return None;
    }
    let why = match found.as_slice() {
        [] => "latency over the working set shows no levels".to_owned(),
        found => format!("latency over the working set shows {} only", found.join(", ")),
    };
    let figure = unknown(&words::screen::not_distinguishable(next_level(name, &found)), why);
    let rung = Rung {
        what: step.what.into(),
        continues: step.continues,
        is_spare: step.is_spare,
        figure,
        published: Vec::new(),
    };
    Some(Climbed { rung, named: step.named, from: None })
}

/// The level found next beyond one that was not.
pub(crate) fn next_level<'n>(name: &str, found: &[&'n str]) -> Option<&'n str> {
    // Names sort by their level, and main memory comes after every cache.
    let place = |name: &str| (name == MEMORY, name.to_owned());
    found.iter().copied().find(|other| place(other) > place(name))
}

/// Core-to-core latency between the run's CPU and its partner; on a machine that measured others, between the first pair.
fn other_core<'a>(run: &Run, results: &'a [MetricResult]) -> Option<&'a MetricResult> {
    let settings = &run.outline.settings;
    let [cpu, partner] = [Some(settings.cpu), settings.partner_cpu].map(|cpu| cpu.map(u64::from));
    let ends = |result: &&MetricResult| {
        let of = [mem::FROM_CPU.of(&result.case), mem::TO_CPU.of(&result.case)];
        of == [cpu, partner] || of == [partner, cpu]
    };
    let spot = Spot::new(&mem::CORE_TO_CORE);
    spot.all(results).find(ends).or_else(|| spot.all(results).next())
}

#[cfg(test)]
mod tests {
    use kelvin_model::Unit;

    use super::*;

    fn has_axes(spot: &Spot) -> bool {
        let axes: Vec<Name> = spot.metric.axes().map(|axis| axis.name).collect();
        spot.axes().all(|axis| axes.contains(&axis))
    }

    #[test]
    fn every_rung_is_a_metric_of_the_catalogue_at_axes_that_it_has() {
        for step in STEPS {
            let At::Spot(spot, shown) = step.at else { continue };
            assert_eq!(kelvin_catalogue::find(spot.metric.id), Some(spot.metric), "{}", step.what);
            assert!(has_axes(&spot), "{}: {:?}", step.what, spot);
            let fits = match shown {
                Shown::AsIs => false,
                Shown::Seconds => spot.metric.unit == Unit::Nanoseconds,
                Shown::SecondsOfOne => spot.metric.unit == Unit::Hertz,
                Shown::SecondsOf(_) => spot.metric.unit == Unit::BytesPerSecond,
            };
            assert!(fits, "{} is no time in {:?}", step.what, spot.metric.unit);
        }
    }

    #[test]
    fn no_rung_continues_nothing() {
        assert!(!STEPS[0].continues);
        let names: std::collections::BTreeSet<&str> = STEPS.iter().map(|step| step.named).collect();
        assert_eq!(names.len(), STEPS.len(), "two rungs have one name");
    }
}
