//! The rates of a machine: memory, page cache, disk, pipe, TCP.

use kelvin_catalogue::Placement;
use kelvin_catalogue::file::{self, CacheState, SyncPolicy};
use kelvin_catalogue::mem::{self, AskedPages, BYTES, Cpus};
use kelvin_catalogue::net::{self, StreamDirection};
use kelvin_catalogue::os;
use kelvin_model::units::bytes;
use kelvin_model::{CacheKind, Machine, Metric, Rate, RateLine};

use super::figure::{Shown, figure};
use super::spot::Spot;
use crate::result::{Analysis, MetricResult, Outcome};

/// Bytes of a request to the page cache from which on a larger one brings no more.
const REQUEST: u64 = 1 << 20;
/// Bytes of a message of a stream: as much as a pipe holds.
const MESSAGE: u64 = 64 << 10;

/// A line: of what, and its rates.
struct Line {
    what: &'static str,
    rates: &'static [Work],
}

/// Work that has a rate: its words on its line and in a sentence, and where the rate is found.
struct Work {
    of: &'static str,
    named: &'static str,
    at: Spot,
    /// Where a run that skips it has another.
    or: Option<Spot>,
}

const fn work(of: &'static str, named: &'static str, at: Spot) -> Work {
    Work { of, named, at, or: None }
}

impl Work {
    const fn or(self, other: Spot) -> Self {
        Self { or: Some(other), ..self }
    }

    fn find<'a>(&self, analysis: &'a Analysis) -> Option<&'a MetricResult> {
        let was_measured = |result: &&MetricResult| !matches!(result.outcome, Outcome::Skipped(_));
        let other = || self.or.and_then(|other| other.find(&analysis.results)).filter(was_measured);
        let result = self.at.find(&analysis.results);
        result.filter(was_measured).or_else(other).or(result)
    }
}

/// Memory beyond all caches.
const fn memory(metric: &'static Metric, cpus: Cpus) -> Spot {
    Spot::new(metric).at(cpus.point()).furthest(BYTES)
}

/// The same in the pages that ordinary programs have.
const fn memcpy() -> Spot {
    Spot::new(&mem::BANDWIDTH_MEMCPY).at(AskedPages::Default.point()).furthest(BYTES)
}

const fn pipe(placement: Placement) -> Spot {
    Spot::new(&os::IPC_PIPE_BANDWIDTH).at(placement.point()).with(os::MESSAGE, MESSAGE)
}

const fn tcp(placement: Placement) -> Spot {
    one_stream(placement).with(net::MESSAGE, MESSAGE)
}

const fn one_stream(placement: Placement) -> Spot {
    Spot::new(&net::BANDWIDTH_TCP).at(placement.point()).with(net::STREAMS, 1)
}

/// In the largest messages that a quick run has.
const fn tcp_of_any_message(placement: Placement) -> Spot {
    one_stream(placement).furthest(net::MESSAGE)
}

const fn peer(direction: StreamDirection) -> Spot {
    Spot::new(&net::PEER_BANDWIDTH).at(direction.point()).furthest(net::STREAMS)
}

const fn page_cache_read() -> Spot {
    Spot::new(&file::BLOCKSIZE_READ).at(CacheState::Cached.point()).with(file::BLOCK, REQUEST)
}

const fn page_cache_write() -> Spot {
    Spot::new(&file::BLOCKSIZE_WRITE).at(SyncPolicy::Buffered.point()).with(file::BLOCK, REQUEST)
}

static LINES: [Line; 7] = [
    Line {
        what: "memory, one CPU",
        rates: &[
            work("read", "reading memory by one CPU", memory(&mem::BANDWIDTH_READ, Cpus::One)),
            work("copy", "copying memory by one CPU", memory(&mem::BANDWIDTH_COPY, Cpus::One)),
            work("memcpy", "the C library's memcpy by one CPU", memcpy()),
            work("fill", "filling memory by one CPU", memory(&mem::BANDWIDTH_FILL, Cpus::One)),
        ],
    },
    Line {
        what: "memory, all CPUs",
        rates: &[
            work("read", "reading memory by all CPUs", memory(&mem::BANDWIDTH_READ, Cpus::All)),
            work("copy", "copying memory by all CPUs", memory(&mem::BANDWIDTH_COPY, Cpus::All)),
            work("fill", "filling memory by all CPUs", memory(&mem::BANDWIDTH_FILL, Cpus::All)),
        ],
    },
    Line {
        what: "page cache",
        rates: &[
            work("read", "reading the page cache", page_cache_read()),
            work("write", "writing to the page cache", page_cache_write()),
        ],
    },
    Line {
        what: "disk",
        rates: &[
            work("read", "reading the disk sequentially", Spot::new(&file::DEVICE_READ)),
            work("write", "writing to the disk sequentially", Spot::new(&file::DEVICE_WRITE)),
            work("reads of 4 KiB", "random reads of 4 KiB from the disk", Spot::new(&file::DEVICE_REQUESTS)),
        ],
    },
    Line {
        what: "pipe",
        rates: &[
            work("on one CPU", "a pipe on one CPU", pipe(Placement::SameCpu)),
            work("between two", "a pipe between two CPUs", pipe(Placement::TwoCpus)),
        ],
    },
    Line {
        what: "TCP on this host",
        rates: &[
            work("on one CPU", "a local TCP stream on one CPU", tcp(Placement::SameCpu))
                .or(tcp_of_any_message(Placement::SameCpu)),
            work("between two", "a local TCP stream between two CPUs", tcp(Placement::TwoCpus))
                .or(tcp_of_any_message(Placement::TwoCpus)),
        ],
    },
    Line {
        what: "TCP, the peer",
        rates: &[
            work("to it", "TCP to the peer", peer(StreamDirection::ToAgent)),
            work("from it", "TCP from the peer", peer(StreamDirection::FromAgent)),
        ],
    },
];

/// The rates that a run measured, known or not.
pub(super) fn rates(machine: &Machine, analysis: &Analysis) -> Vec<RateLine> {
    let rates = |line: &Line| line.rates.iter().filter_map(|work| rate(work, analysis)).collect();
    let line = |line: &Line| RateLine {
        what: line.what.into(),
        rates: rates(line),
        but: within_a_cache(line, machine, analysis).or_else(|| in_other_messages(line, analysis)),
    };
    LINES.iter().map(line).filter(|line| !line.rates.is_empty()).collect()
}

/// That the memory of a line is no more than the largest cache that the machine reports: a virtual machine's is not believed, and memory of
/// four times its size would take too long to fill.
fn within_a_cache(line: &Line, machine: &Machine, analysis: &Analysis) -> Option<String> {
    let measured = line.rates.iter().find_map(|work| work.at.find(&analysis.results));
    let case = &measured.filter(|result| result.metric.area() == mem::BANDWIDTH_READ.area())?.case;
    let cpus = if Cpus::of(case) == Some(Cpus::All) { machine.topology.allowed.get()?.len() as u64 } else { 1 };
    let caches = machine.topology.caches.get()?;
    let largest = caches.iter().filter(|cache| cache.kind != CacheKind::Instruction).max_by_key(|cache| cache.bytes)?;
    let used = BYTES.of(case)?.saturating_mul(cpus);
    (used <= largest.bytes).then(|| {
        format!("in {}, within the L{} of {} that is reported", bytes(used), largest.level, bytes(largest.bytes))
    })
}

/// The size of a stream's messages, where it is another than on other screens.
fn in_other_messages(line: &Line, analysis: &Analysis) -> Option<String> {
    let measured = line.rates.iter().find_map(|work| work.find(analysis))?;
    let message = net::MESSAGE.of(&measured.case).filter(|message| *message != MESSAGE)?;
    (measured.metric.id == net::BANDWIDTH_TCP.id).then(|| format!("in messages of {}", bytes(message)))
}

/// They, each by its name in a sentence.
pub(super) fn named(analysis: &Analysis) -> Vec<(&'static str, Rate)> {
    let all = LINES.iter().flat_map(|line| line.rates);
    all.filter_map(|work| Some((work.named, rate(work, analysis)?))).collect()
}

fn rate(work: &Work, analysis: &Analysis) -> Option<Rate> {
    let result = work.find(analysis)?;
    Some(Rate { of: work.of.into(), unit: result.metric.unit, figure: figure(result, Shown::AsIs) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_a_metric_of_the_catalogue_at_axes_that_it_has() {
        for Work { named, at, .. } in LINES.iter().flat_map(|line| line.rates) {
            assert_eq!(kelvin_catalogue::find(at.metric.id), Some(at.metric), "{named}");
            let axes: Vec<_> = at.metric.axes().map(|axis| axis.name).collect();
            assert!(at.axes().all(|axis| axes.contains(&axis)), "{named}: {at:?}");
        }
    }
}
