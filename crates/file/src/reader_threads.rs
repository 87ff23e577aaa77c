//! Threads that begin at once on parts of one file, and the result of each.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelvin_stats::Histogram;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::block_requests::{BlockOrder, BlockRequests};
use crate::digest::{Digest, DigestObserver};
use crate::engine::IoWorker;
use crate::error::check_stop_signal;
use crate::observer::{DeadlineObserver, EndCondition, IoTally, LatencyObserver, Observer};
use crate::start_barrier::StartBarrier;
use crate::{Error, Result};

/// How threads divide a part of a file among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each has its own part, one per thread: the more there are, the smaller it is, and the sooner it is read again.
    Parts,
    /// A thread that is done with a piece of about this many bytes takes the next one, from the beginning again at the end.
    /// Nothing is read again before all of the rest is, for any number of threads. The order is that within a piece.
    Pieces(u64),
}

/// The range that threads share, and what is recorded of their work.
#[derive(Clone, Debug)]
pub(crate) struct ThreadPlan {
    pub(crate) threads: u32,
    pub(crate) block: usize,
    pub(crate) range: Range<u64>,
    pub(crate) order: BlockOrder,
    pub(crate) division: Division,
    pub(crate) until: EndCondition,
    /// Whether the digest is wanted.
    pub(crate) digest: bool,
    /// The clock that times each request, and its ticks per second; none if latencies are not wanted.
    pub(crate) latencies: Option<(Clock, f64)>,
}

/// The requests of one thread.
#[derive(Clone, Debug)]
pub(crate) enum ThreadRequests {
    /// Requests of its own.
    Own(BlockRequests),
    /// Pieces, as the others leave them.
    Shared(Arc<PieceQueue>),
}

impl ThreadPlan {
    /// The requests of each thread: whole blocks of the range.
    pub(crate) fn split_among_threads(&self) -> Result<Vec<ThreadRequests>> {
        for (name, value) in [("threads", u64::from(self.threads)), ("block", self.block as u64)] {
            if value == 0 {
                return Err(Error::setting(name, "must be at least 1"));
            }
        }
        match self.division {
            Division::Parts => Ok(self.fixed_parts()?.into_iter().map(ThreadRequests::Own).collect()),
            Division::Pieces(bytes) => {
                let pieces = Arc::new(PieceQueue::new(self, bytes));
                Ok((0..self.threads).map(|_| ThreadRequests::Shared(Arc::clone(&pieces))).collect())
            }
        }
    }

    /// The requests of each thread, as evenly as possible.
    fn fixed_parts(&self) -> Result<Vec<BlockRequests>> {
        let (threads, block) = (u64::from(self.threads), self.block as u64);
        let blocks = (self.range.end - self.range.start).div_ceil(block);
        if threads > blocks.max(1) {
            let why = format!("{threads} have nothing to share: there are {blocks} blocks of {block} bytes");
            return Err(Error::setting("threads", why));
        }
        let requests = |thread: u64| {
            let place = |thread| self.range.start + part_start(blocks, thread, threads) * block;
            let range = place(thread)..place(thread + 1).min(self.range.end);
            let requests = BlockRequests::new(range, self.block, self.order.of_part(thread));
            match self.until {
                EndCondition::Passes(passes) => requests.passes(passes),
                EndCondition::Requests(count) => requests
                    .endless()
                    .limit(part_start(count, thread + 1, threads) - part_start(count, thread, threads)),
                EndCondition::Time(_) => requests.endless(),
            }
        };
        Ok((0..threads).map(requests).collect())
    }
}

/// Where the share of a thread begins when `all` are shared among `threads`.
fn part_start(total: u64, thread: u64, threads: u64) -> u64 {
    // No more than `all`, though the product may be.
    (u128::from(total) * u128::from(thread) / u128::from(threads)) as u64
}

/// A part of a file in pieces that threads take one after another, for as many passes as wanted.
#[derive(Debug)]
pub(crate) struct PieceQueue {
    range: Range<u64>,
    block: usize,
    order: BlockOrder,
    /// Blocks of a pass, and of a piece.
    blocks: u64,
    piece_blocks: u64,
    /// Blocks of all passes.
    total_blocks: u64,
    /// Pieces that were taken, and those that were read to their end.
    started_pieces: AtomicU64,
    completed_pieces: AtomicU64,
}

impl PieceQueue {
    fn new(plan: &ThreadPlan, bytes: u64) -> Self {
        let block = plan.block as u64;
        let blocks = (plan.range.end - plan.range.start).div_ceil(block);
        let total_blocks = match plan.until {
            EndCondition::Passes(passes) => blocks.saturating_mul(passes),
            EndCondition::Requests(count) => count,
            EndCondition::Time(_) => u64::MAX,
        };
        Self {
            range: plan.range.clone(),
            block: plan.block,
            order: plan.order,
            blocks,
            piece_blocks: (bytes / block).max(1),
            total_blocks: if blocks == 0 { 0 } else { total_blocks },
            started_pieces: AtomicU64::new(0),
            completed_pieces: AtomicU64::new(0),
        }
    }

    /// Pieces of a pass.
    fn pieces_per_pass(&self) -> u64 {
        self.blocks.div_ceil(self.piece_blocks).max(1)
    }

    /// Passes that all together have completed.
    fn completed_passes(&self) -> u64 {
        self.completed_pieces.load(Ordering::Relaxed) / self.pieces_per_pass()
    }

    /// Requests for the next piece; nothing when there are no more.
    fn next_piece(&self) -> Option<BlockRequests> {
        if self.total_blocks == 0 {
            return None;
        }
        let number = self.started_pieces.fetch_add(1, Ordering::Relaxed);
        let (pass, piece_index) = (number / self.pieces_per_pass(), number % self.pieces_per_pass());
        let first = piece_index * self.piece_blocks;
        let preceding_blocks = pass.saturating_mul(self.blocks).saturating_add(first);
        let blocks = self.piece_blocks.min(self.blocks - first).min(self.total_blocks.saturating_sub(preceding_blocks));
        let place = |block: u64| (self.range.start + block * self.block as u64).min(self.range.end);
        let range = place(first)..place(first + blocks);
        (blocks > 0).then(|| BlockRequests::new(range, self.block, self.order.of_part(number)))
    }
}

/// The result of one thread.
pub(crate) struct ThreadResult {
    pub(crate) tally: IoTally,
    /// When it began and ended, in nanoseconds of the monotonic clock.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) passes: u64,
    pub(crate) digest: Option<Digest>,
    pub(crate) latencies: Option<Histogram>,
    /// Bytes of each second.
    pub(crate) series: Vec<u64>,
    pub(crate) achieved_depth: Option<f64>,
    pub(crate) notes: Vec<String>,
}

/// Starts all threads at once, each with what `open` gives it, and waits for them. If one fails, the others end too, and its
/// error is that of all.
pub(crate) fn run_threads<M: IoWorker>(
    plan: &ThreadPlan,
    requests: Vec<ThreadRequests>,
    open: impl Fn() -> Result<M> + Sync,
) -> Result<Vec<ThreadResult>> {
    let (barrier, stop) = (StartBarrier::new(requests.len()), AtomicBool::new(false));
    let pieces = match requests.first() {
        Some(ThreadRequests::Shared(pieces)) => Some(Arc::clone(pieces)),
        _ => None,
    };
    let mut results = std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for thread_requests in requests {
            let (barrier, stop, open) = (&barrier, &stop, &open);
            let work = move || {
                let worker = open();
                if !barrier.wait() {
                    return None;
                }
                let result = worker.and_then(|worker| run_thread(plan, worker, thread_requests, stop));
                stop.fetch_or(result.is_err(), Ordering::Relaxed);
                Some(result)
            };
            let handle = ThreadBuilder::named("member").start_in(scope, work).inspect_err(|_| barrier.cancel());
            handles.push(handle.map_err(Error::ThreadStart)?);
        }
        let outcomes = handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // All have ended before the first error is looked at.
        outcomes.collect::<Vec<_>>().into_iter().flatten().collect::<Result<Vec<ThreadResult>>>()
    })?;
    if let Some(pieces) = pieces {
        results.iter_mut().for_each(|result| result.passes = pieces.completed_passes());
    }
    check_stop_signal().map(|()| results)
}

/// One thread's part, with an observer of what is wanted and nothing else.
fn run_thread<M: IoWorker>(
    plan: &ThreadPlan,
    worker: M,
    requests: ThreadRequests,
    stop: &AtomicBool,
) -> Result<ThreadResult> {
    let deadline_observer = DeadlineObserver::new(plan.until, stop);
    let digesting = |inner| DigestObserver { inner, digest: Digest::default() };
    match (plan.latencies, plan.digest) {
        (None, false) => {
            run_observed(worker, requests, deadline_observer, |deadline_observer| (deadline_observer, None, None))
        }
        (None, true) => run_observed(worker, requests, digesting(deadline_observer), |digest_observer| {
            (digest_observer.inner, Some(digest_observer.digest), None)
        }),
        (Some((clock, hertz)), false) => {
            let observer = LatencyObserver::new(deadline_observer, clock, hertz);
            run_observed(worker, requests, observer, |latency_observer| {
                (latency_observer.inner, None, Some(latency_observer.histogram))
            })
        }
        (Some((clock, hertz)), true) => {
            let observer = LatencyObserver::new(digesting(deadline_observer), clock, hertz);
            run_observed(worker, requests, observer, |latency_observer| {
                (latency_observer.inner.inner, Some(latency_observer.inner.digest), Some(latency_observer.histogram))
            })
        }
    }
}

fn run_observed<'a, M: IoWorker, O: Observer>(
    mut worker: M,
    requests: ThreadRequests,
    mut observer: O,
    split_observer: impl FnOnce(O) -> (DeadlineObserver<'a>, Option<Digest>, Option<Histogram>),
) -> Result<ThreadResult> {
    // The completed passes, none for pieces, which only all threads together complete.
    let mut passes = 0;
    match requests {
        ThreadRequests::Own(mut requests) => {
            let _ = worker.run_requests(&mut requests, &mut observer)?;
            passes = requests.complete_passes();
        }
        ThreadRequests::Shared(pieces) => {
            while let Some(mut piece) = pieces.next_piece() {
                let flow = worker.run_requests(&mut piece, &mut observer)?;
                // A piece that was broken off is not read.
                if piece.complete_passes() > 0 {
                    pieces.completed_pieces.fetch_add(1, Ordering::Relaxed);
                }
                if flow.is_break() {
                    break;
                }
            }
        }
    }
    let end = monotonic();
    worker.finish()?;
    let (mut deadline_observer, digest, latencies) = split_observer(observer);
    deadline_observer.record_second(end);
    Ok(ThreadResult {
        tally: deadline_observer.tally,
        start: deadline_observer.start,
        end,
        passes,
        digest,
        latencies,
        series: deadline_observer.bytes_per_second,
        achieved_depth: worker.engine().achieved_depth(),
        notes: worker.engine().notes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(threads: u32, division: Division, until: EndCondition) -> ThreadPlan {
        let (range, order) = (5..98, BlockOrder::Sequential);
        ThreadPlan { threads, block: 10, range, order, division, until, digest: false, latencies: None }
    }

    #[test]
    fn blocks_and_requests_are_fully_divided() {
        let share = |threads, until| share(threads, Division::Parts, until);
        let ranges = |threads| -> Vec<Range<u64>> {
            share(threads, EndCondition::Passes(1)).fixed_parts().unwrap().iter().map(BlockRequests::range).collect()
        };
        assert_eq!(ranges(2), [5..55, 55..98]);
        assert_eq!(ranges(3), [5..35, 35..65, 65..98]);
        let too_many = share(11, EndCondition::Passes(1)).split_among_threads().unwrap_err();
        assert!(too_many.to_string().contains("there are 10 blocks"));
        let parts = share(3, EndCondition::Requests(1001)).fixed_parts().unwrap();
        assert_eq!(parts.into_iter().map(Iterator::count).collect::<Vec<_>>(), [333, 334, 334]);
        // The largest numbers are shared evenly too.
        assert_eq!(part_start(u64::MAX, 7, 7), u64::MAX);
        assert!(share(7, EndCondition::Requests(u64::MAX)).split_among_threads().is_ok());
    }

    #[test]
    fn pieces_are_sequential_within_a_pass() {
        let ranges = |bytes, until, max_pieces: usize| -> Vec<Range<u64>> {
            let pieces = PieceQueue::new(&share(3, Division::Pieces(bytes), until), bytes);
            std::iter::from_fn(|| pieces.next_piece()).take(max_pieces).map(|piece| piece.range()).collect()
        };
        let pass = [5..45, 45..85, 85..98];
        assert_eq!(ranges(49, EndCondition::Passes(1), 100), pass);
        assert_eq!(ranges(49, EndCondition::Passes(2), 100), [pass.clone(), pass.clone()].concat());
        assert_eq!(ranges(49, EndCondition::Time(std::time::Duration::MAX), 3000)[2997..], pass);
        // 23 blocks of ten are two passes and three blocks.
        let request_ranges = ranges(40, EndCondition::Requests(23), 100);
        assert_eq!((request_ranges.len(), request_ranges.last()), (7, Some(&(5..35))));
        // A piece is a block at least, and no more than all.
        assert_eq!(ranges(1, EndCondition::Passes(1), 100).len(), 10);
        let single_piece = ranges(u64::MAX, EndCondition::Passes(1), 100);
        assert_eq!((single_piece.len(), single_piece.last()), (1, Some(&(5..98))));
        let empty_plan = ThreadPlan { range: 5..5, ..share(3, Division::Pieces(9), EndCondition::Passes(1)) };
        assert!(PieceQueue::new(&empty_plan, 9).next_piece().is_none());
    }
}
