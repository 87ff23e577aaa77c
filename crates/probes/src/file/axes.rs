//! The parameters that measures of files share, and what the words of a case mean.

use kelvin_file::Order;
use kelvin_file::cache::State;
use kelvin_harness::Stop;
use kelvin_model::{Axis, AxisScale, Case};

/// Bytes of a request.
pub(super) const BLOCK: Axis = Axis::new("block", "block", AxisScale::Bytes);
/// State of the page cache: `cached`, `uncached`, `direct`.
pub(super) const CACHE: Axis = Axis::new("cache", "page cache", AxisScale::Category);
/// What a write waits for: `buffered` for memory, `direct` for the device to accept it. Neither is flushed.
pub(super) const SYNC: Axis = Axis::new("sync", "sync policy", AxisScale::Category);
/// Bytes of the file.
pub(super) const BYTES: Axis = Axis::new("bytes", "file", AxisScale::Bytes);
/// Requests under way.
pub(super) const DEPTH: Axis = Axis::new("depth", "requests under way", AxisScale::Logarithmic);
/// Threads at the same time.
pub(super) const THREADS: Axis = Axis::new("threads", "threads", AxisScale::Logarithmic);
/// Whether each thread has a file of its `own`, or a part of one that all `shared`.
pub(super) const FILES: Axis = Axis::new("files", "files", AxisScale::Category);
/// `sequential` or `random`.
pub(super) const ORDER: Axis = Axis::new("order", "order", AxisScale::Category);

/// The state that a case asks for.
pub(super) fn state(case: &Case) -> Result<State, Stop> {
    match case.word(&CACHE.name) {
        Some("cached") => Ok(State::Cached),
        Some("uncached") => Ok(State::Uncached),
        Some("direct") => Ok(State::Direct),
        other => Err(Stop::fail(format!("the case has cache {other:?}; cached, uncached and direct are known"))),
    }
}

/// The order that a case asks for.
pub(super) fn order(case: &Case, seed: u64) -> Result<Order, Stop> {
    match case.word(&ORDER.name) {
        Some("sequential") => Ok(Order::Sequential),
        Some("random") => Ok(Order::Random { seed }),
        other => Err(Stop::fail(format!("the case has order {other:?}; sequential and random are known"))),
    }
}

/// A number that a case must have.
pub(super) fn number(case: &Case, axis: &Axis) -> Result<u64, Stop> {
    case.integer(&axis.name).ok_or_else(|| Stop::fail(format!("the case has no {}", axis.name)))
}
