//! The rates of a machine: memory, page cache, disk, pipe, TCP.

use kelvin_core::catalogue::file::{self, CacheState, SyncPolicy};
use kelvin_core::catalogue::mem::{self, BYTES, MemoryCpus, RequestedPages};
use kelvin_core::catalogue::net::{self, StreamDirection};
use kelvin_core::catalogue::os;

use super::figure::{ValueConversion, overview_figure};
use crate::prelude::*;

/// Bytes of a request to the page cache from which on a larger one brings no more.
const REQUEST_BYTES: u64 = 1 << 20;
/// Bytes of a message of a stream: as much as a pipe holds.
const MESSAGE_BYTES: u64 = 64 << 10;

/// A line: of what, and its rates.
struct RateRowSpec {
    label: &'static str,
    rates: &'static [RateSpec],
}

/// Work that has a rate: its words on its line and in a sentence, and where the rate is found.
struct RateSpec {
    work: &'static str,
    sentence_name: &'static str,
    selector: MetricSelector,
    /// Where a run that skips it has another.
    fallback: Option<MetricSelector>,
}

const fn rate_spec(work: &'static str, sentence_name: &'static str, selector: MetricSelector) -> RateSpec {
    RateSpec { work, sentence_name, selector, fallback: None }
}

/// A local TCP stream in messages of the usual size, or of the largest that a run has.
const fn local_stream(work: &'static str, sentence_name: &'static str, placement: PairPlacement) -> RateSpec {
    let stream = select(&net::BANDWIDTH_TCP).with_word(placement.point()).with_number(net::STREAMS, 1);
    let primary = rate_spec(work, sentence_name, stream.with_number(net::MESSAGE, MESSAGE_BYTES));
    RateSpec { fallback: Some(stream.furthest(net::MESSAGE)), ..primary }
}

impl RateSpec {
    fn find<'a>(&self, analysis: &'a Analysis) -> Option<&'a MetricResult> {
        let was_measured = |result: &&MetricResult| !matches!(result.outcome, Outcome::Skipped(_));
        let fallback = || self.fallback.and_then(|selector| selector.find(&analysis.results)).filter(was_measured);
        let result = self.selector.find(&analysis.results);
        result.filter(was_measured).or_else(fallback).or(result)
    }
}

/// Memory beyond all caches.
const fn memory(metric: &'static Metric, cpus: MemoryCpus) -> MetricSelector {
    select(metric).with_word(cpus.point()).furthest(BYTES)
}

/// Like `memory`, in the pages that ordinary programs have.
const fn memcpy() -> MetricSelector {
    select(&mem::BANDWIDTH_MEMCPY).with_word(RequestedPages::Default.point()).furthest(BYTES)
}

const fn pipe(placement: PairPlacement) -> MetricSelector {
    select(&os::IPC_BANDWIDTH)
        .with_word(os::HandoffMechanism::Pipe.point())
        .with_word(placement.point())
        .with_number(os::MESSAGE, MESSAGE_BYTES)
}

const fn peer(direction: StreamDirection) -> MetricSelector {
    select(&net::PEER_BANDWIDTH).with_word(direction.point()).furthest(net::STREAMS)
}

const fn page_cache_read() -> MetricSelector {
    select(&file::BLOCKSIZE_READ).with_word(CacheState::Cached.point()).with_number(file::BLOCK, REQUEST_BYTES)
}

const fn page_cache_write() -> MetricSelector {
    select(&file::BLOCKSIZE_WRITE).with_word(SyncPolicy::Buffered.point()).with_number(file::BLOCK, REQUEST_BYTES)
}

static RATE_ROW_SPECS: [RateRowSpec; 7] = [
    RateRowSpec {
        label: "memory, one CPU",
        rates: &[
            rate_spec("read", "reading memory by one CPU", memory(&mem::BANDWIDTH_READ, MemoryCpus::One)),
            rate_spec("copy", "copying memory by one CPU", memory(&mem::BANDWIDTH_COPY, MemoryCpus::One)),
            rate_spec("memcpy", "the C library's memcpy by one CPU", memcpy()),
            rate_spec("fill", "filling memory by one CPU", memory(&mem::BANDWIDTH_FILL, MemoryCpus::One)),
        ],
    },
    RateRowSpec {
        label: "memory, all CPUs",
        rates: &[
            rate_spec("read", "reading memory by all CPUs", memory(&mem::BANDWIDTH_READ, MemoryCpus::All)),
            rate_spec("copy", "copying memory by all CPUs", memory(&mem::BANDWIDTH_COPY, MemoryCpus::All)),
            rate_spec("fill", "filling memory by all CPUs", memory(&mem::BANDWIDTH_FILL, MemoryCpus::All)),
        ],
    },
    RateRowSpec {
        label: "page cache",
        rates: &[
            rate_spec("read", "reading the page cache", page_cache_read()),
            rate_spec("write", "writing to the page cache", page_cache_write()),
        ],
    },
    RateRowSpec {
        label: "disk",
        rates: &[
            rate_spec("read", "reading the disk sequentially", select(&file::DEVICE_READ)),
            rate_spec("write", "writing to the disk sequentially", select(&file::DEVICE_WRITE)),
            rate_spec("reads of 4 KiB", "random reads of 4 KiB from the disk", select(&file::DEVICE_REQUESTS)),
        ],
    },
    RateRowSpec {
        label: "pipe",
        rates: &[
            rate_spec("on one CPU", "a pipe on one CPU", pipe(PairPlacement::SameCpu)),
            rate_spec("between two", "a pipe between two CPUs", pipe(PairPlacement::TwoCpus)),
        ],
    },
    RateRowSpec {
        label: "TCP on this host",
        rates: &[
            local_stream("on one CPU", "a local TCP stream on one CPU", PairPlacement::SameCpu),
            local_stream("between two", "a local TCP stream between two CPUs", PairPlacement::TwoCpus),
        ],
    },
    RateRowSpec {
        label: "TCP, the peer",
        rates: &[
            rate_spec("to it", "TCP to the peer", peer(StreamDirection::ToAgent)),
            rate_spec("from it", "TCP from the peer", peer(StreamDirection::FromAgent)),
        ],
    },
];

/// The rates that a run measured, known or not.
pub(super) fn rates(machine: &Machine, analysis: &Analysis) -> Vec<RateRow> {
    let rates = |line: &RateRowSpec| line.rates.iter().filter_map(|work| rate(work, analysis)).collect();
    // A stream in messages of another size than the others.
    let message_doubt = |line: &RateRowSpec| {
        let measured = line.rates.iter().find_map(|work| work.find(analysis))?;
        let message = net::MESSAGE.number_in(&measured.case).filter(|message| *message != MESSAGE_BYTES)?;
        (measured.metric.id == net::BANDWIDTH_TCP.id).then(|| format!("in messages of {}", bytes(message)))
    };
    let line = |line: &RateRowSpec| RateRow {
        label: line.label.into(),
        rates: rates(line),
        doubt: cache_size_doubt(line, machine, analysis).or_else(|| message_doubt(line)),
    };
    RATE_ROW_SPECS.iter().map(line).filter(|line| !line.rates.is_empty()).collect()
}

/// That the memory of a line is no more than the largest cache that the machine reports: a virtual machine's is not believed, and memory of
/// four times its size would take too long to fill.
fn cache_size_doubt(line: &RateRowSpec, machine: &Machine, analysis: &Analysis) -> Option<String> {
    let measured = line.rates.iter().find_map(|work| work.selector.find(&analysis.results));
    let case = &measured.filter(|result| result.metric.area() == mem::BANDWIDTH_READ.area())?.case;
    let cpus =
        if MemoryCpus::of(case) == Some(MemoryCpus::All) { machine.topology.allowed.get()?.len() as u64 } else { 1 };
    let caches = machine.topology.caches.get()?;
    let largest = caches.iter().filter(|cache| cache.kind.holds_data()).max_by_key(|cache| cache.bytes)?;
    let working_set = BYTES.number_in(case)?.saturating_mul(cpus);
    (working_set <= largest.bytes).then(|| {
        format!("in {}, within the L{} of {} that is reported", bytes(working_set), largest.level, bytes(largest.bytes))
    })
}

/// They, each by its name in a sentence.
pub(super) fn named_rates(analysis: &Analysis) -> Vec<(&'static str, Rate)> {
    let specs = RATE_ROW_SPECS.iter().flat_map(|line| line.rates);
    specs.filter_map(|work| Some((work.sentence_name, rate(work, analysis)?))).collect()
}

fn rate(work: &RateSpec, analysis: &Analysis) -> Option<Rate> {
    let result = work.find(analysis)?;
    Some(Rate {
        work: work.work.into(),
        unit: result.metric.unit,
        figure: overview_figure(result, ValueConversion::Unchanged),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_has_catalogue_metric_and_axes() {
        for RateSpec { sentence_name, selector, .. } in RATE_ROW_SPECS.iter().flat_map(|line| line.rates) {
            assert_eq!(kelvin_core::catalogue::find(selector.metric.id), Some(selector.metric), "{sentence_name}");
            let axes: Vec<_> = selector.metric.axes().map(|axis| axis.name).collect();
            assert!(selector.axes().all(|axis| axes.contains(&axis)), "{sentence_name}: {selector:?}");
        }
    }
}
