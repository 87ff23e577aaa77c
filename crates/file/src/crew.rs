//! Threads that begin at once on parts of one file, and the result of each.

use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelvin_stats::Histogram;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::interrupt;
use kelvin_sys::spawn::Thread;

use crate::digest::{Digest, Digesting};
use crate::observe::{Latencies, Observer, Tally};
use crate::pace::{Paced, Until};
use crate::requests::{Order, Request, Requests};
use crate::start_line::StartLine;
use crate::{Error, Result};

/// One thread's source of requests: a reader or a writer.
pub(crate) trait Mover {
    /// Makes requests until there are no more or the observer has enough.
    fn make<O: Observer>(&mut self, requests: &mut Requests, observer: &mut O) -> Result<()>;

    /// Nothing more is to be done: that all was taken of what was written, if anything was.
    ///
    /// # Errors
    /// Those of close.
    fn end(&self) -> Result<()>;

    /// What was done that its name does not say.
    fn notes(&self) -> Vec<String>;

    /// The mean queue depth, counted at completions; `None` where it is always one.
    fn achieved_depth(&self) -> Option<f64>;
}

/// What is to be recorded of the work, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) until: Until,
    /// Whether the digest is wanted.
    pub(crate) digest: bool,
    /// The clock that times each request, and its ticks per second; none if latencies are not wanted.
    pub(crate) latencies: Option<(Clock, f64)>,
}

/// How threads divide a part of a file among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each has its own part, one per thread: the more there are, the smaller it is, and the sooner it is read again.
    Parts,
    /// A thread that is done with a piece of about so many bytes takes the next one, from the beginning again at the end:
    /// nothing is read again before all of the rest is, for any number of threads. The order is that within a piece.
    Pieces(u64),
}

/// The range that threads share.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) threads: u32,
    pub(crate) block: usize,
    pub(crate) range: Range<u64>,
    pub(crate) order: Order,
    pub(crate) division: Division,
    pub(crate) until: Until,
}

/// The requests of one thread.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// Requests of its own.
    Own(Requests),
    /// Pieces, as the others leave them.
    Shared(Arc<Pieces>),
}

impl Share {
    /// The requests of each thread: whole blocks of the range.
    pub(crate) fn among_threads(&self) -> Result<Vec<Asked>> {
        for (name, value) in [("threads", u64::from(self.threads)), ("block", self.block as u64)] {
            if value == 0 {
                return Err(Error::setting(name, "must be at least 1"));
            }
        }
        match self.division {
            Division::Parts => Ok(self.parts()?.into_iter().map(Asked::Own).collect()),
            Division::Pieces(bytes) => {
                let pieces = Arc::new(Pieces::new(self, bytes));
                Ok((0..self.threads).map(|_| Asked::Shared(Arc::clone(&pieces))).collect())
            }
        }
    }

    /// The requests of each thread, as evenly as possible.
    fn parts(&self) -> Result<Vec<Requests>> {
        let (threads, block) = (u64::from(self.threads), self.block as u64);
        let blocks = (self.range.end - self.range.start).div_ceil(block);
        if threads > blocks.max(1) {
            let why = format!("{threads} have nothing to share: there are {blocks} blocks of {block} bytes");
            return Err(Error::setting("threads", why));
        }
        let requests = |thread: u64| {
            let place = |thread| self.range.start + part(blocks, thread, threads) * block;
            let range = place(thread)..place(thread + 1).min(self.range.end);
            let order = match self.order {
                Order::Sequential => Order::Sequential,
                Order::Random { seed } => Order::Random { seed: seed.wrapping_add(thread) },
            };
            let all = Requests::new(range, self.block, order);
            match self.until {
                Until::Passes(passes) => all.passes(passes),
                Until::Requests(count) => {
                    all.endless().at_most(part(count, thread + 1, threads) - part(count, thread, threads))
                }
                Until::Time(_) => all.endless(),
            }
        };
        Ok((0..threads).map(requests).collect())
    }
}

/// Where the share of a thread begins when `all` are shared among `threads`.
fn part(all: u64, thread: u64, threads: u64) -> u64 {
    // No more than `all`, though the product may be.
    (u128::from(all) * u128::from(thread) / u128::from(threads)) as u64
}

/// A part of a file in pieces that threads take one after another, for as many passes as wanted.
#[derive(Debug)]
pub(crate) struct Pieces {
    range: Range<u64>,
    block: usize,
    order: Order,
    /// Blocks of a pass, and of a piece.
    blocks: u64,
    length: u64,
    /// Blocks of all passes.
    wanted: u64,
    /// Pieces that were taken, and those that were read to their end.
    taken: AtomicU64,
    read: AtomicU64,
}

impl Pieces {
    fn new(share: &Share, bytes: u64) -> Self {
        let block = share.block as u64;
        let blocks = (share.range.end - share.range.start).div_ceil(block);
        let wanted = match share.until {
            Until::Passes(passes) => blocks.saturating_mul(passes),
            Until::Requests(count) => count,
            Until::Time(_) => u64::MAX,
        };
        Self {
            range: share.range.clone(),
            block: share.block,
            order: share.order,
            blocks,
            length: (bytes / block).max(1),
            wanted: if blocks == 0 { 0 } else { wanted },
            taken: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    /// Pieces of a pass.
    fn of_a_pass(&self) -> u64 {
        self.blocks.div_ceil(self.length).max(1)
    }

    /// Passes that all together have completed.
    fn passes(&self) -> u64 {
        self.read.load(Ordering::Relaxed) / self.of_a_pass()
    }

    /// Requests for the next piece; nothing when there are no more.
    fn next(&self) -> Option<Requests> {
        if self.wanted == 0 {
            return None;
        }
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let (pass, within) = (number / self.of_a_pass(), number % self.of_a_pass());
        let first = within * self.length;
        let before = pass.saturating_mul(self.blocks).saturating_add(first);
        let blocks = self.length.min(self.blocks - first).min(self.wanted.saturating_sub(before));
        let place = |block: u64| (self.range.start + block * self.block as u64).min(self.range.end);
        let order = match self.order {
            Order::Sequential => Order::Sequential,
            Order::Random { seed } => Order::Random { seed: seed.wrapping_add(number) },
        };
        (blocks > 0).then(|| Requests::new(place(first)..place(first + blocks), self.block, order))
    }
}

/// The result of one thread.
pub(crate) struct Member {
    pub(crate) tally: Tally,
    /// When it began and ended, in nanoseconds of the monotonic clock.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) passes: u64,
    pub(crate) digest: Digest,
    pub(crate) latencies: Option<Histogram>,
    /// Bytes of each second.
    pub(crate) series: Vec<u64>,
    pub(crate) achieved_depth: Option<f64>,
    pub(crate) notes: Vec<String>,
}

/// Starts all threads at once, each with what `open` gives it, and waits for them. If one fails, the others end too, and its
/// error is that of all.
pub(crate) fn together<M: Mover>(
    wanted: Wanted,
    asked: Vec<Asked>,
    open: impl Fn() -> Result<M> + Sync,
) -> Result<Vec<Member>> {
    let (line, stop) = (StartLine::of(asked.len()), AtomicBool::new(false));
    let pieces = asked.iter().find_map(|asked| match asked {
        Asked::Own(_) => None,
        Asked::Shared(pieces) => Some(Arc::clone(pieces)),
    });
    let mut members = std::thread::scope(|scope| {
        let member = |asked: Asked| {
            let (line, stop, open) = (&line, &stop, &open);
            let work = move || {
                let mover = open();
                if !line.wait() {
                    return None;
                }
                let result = mover.and_then(|mover| member(wanted, mover, asked, stop));
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                Some(result)
            };
            Thread::named("member").start_in(scope, work).inspect_err(|_| line.cancel()).map_err(Error::Thread)
        };
        let handles = asked.into_iter().map(member).collect::<Result<Vec<_>>>()?;
        let results = handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // All have ended before the first error is looked at.
        results.collect::<Vec<_>>().into_iter().flatten().collect::<Result<Vec<Member>>>()
    })?;
    if let Some(pieces) = pieces {
        members.iter_mut().for_each(|member| member.passes = pieces.passes());
    }
    match interrupt::requested() {
        Some(signal) => Err(Error::Interrupted(signal)),
        None => Ok(members),
    }
}

/// One thread's part, with an observer of what is wanted and nothing else.
fn member<M: Mover>(wanted: Wanted, mover: M, asked: Asked, stop: &AtomicBool) -> Result<Member> {
    let paced = Paced::new(wanted.until, stop);
    let digesting = |inner| Digesting { inner, digest: Digest::default() };
    match (wanted.latencies, wanted.digest) {
        (None, false) => work(mover, asked, paced, |paced| (paced, Digest::default(), None)),
        (None, true) => work(mover, asked, digesting(paced), |all| (all.inner, all.digest, None)),
        (Some((clock, hertz)), false) => {
            let observer = Latencies::new(paced, clock, hertz);
            work(mover, asked, observer, |all| (all.inner, Digest::default(), Some(all.histogram)))
        }
        (Some((clock, hertz)), true) => {
            let observer = Latencies::new(digesting(paced), clock, hertz);
            work(mover, asked, observer, |all| (all.inner.inner, all.inner.digest, Some(all.histogram)))
        }
    }
}

fn work<'a, M: Mover, O: Observer>(
    mut mover: M,
    asked: Asked,
    mut observer: O,
    apart: impl FnOnce(O) -> (Paced<'a>, Digest, Option<Histogram>),
) -> Result<Member> {
    let begun = monotonic();
    let passes = make_all(&mut mover, asked, &mut observer)?;
    let ended = monotonic();
    mover.end()?;
    let (mut paced, digest, latencies) = apart(observer);
    paced.note(ended);
    Ok(Member {
        tally: paced.tally,
        begun: paced.begun.min(begun),
        ended,
        passes,
        digest,
        latencies,
        series: paced.series,
        achieved_depth: mover.achieved_depth(),
        notes: mover.notes(),
    })
}

/// Makes requests until there are no more or the observer has enough: the completed passes, none for pieces, which only all
/// threads together complete.
fn make_all<M: Mover, O: Observer>(mover: &mut M, asked: Asked, observer: &mut O) -> Result<u64> {
    let pieces = match asked {
        Asked::Own(mut requests) => {
            mover.make(&mut requests, observer)?;
            return Ok(requests.complete_passes());
        }
        Asked::Shared(pieces) => pieces,
    };
    let mut telling = Telling { observer, enough: false };
    while let Some(mut piece) = pieces.next() {
        mover.make(&mut piece, &mut telling)?;
        // A piece that was broken off is not read.
        if piece.complete_passes() > 0 {
            pieces.read.fetch_add(1, Ordering::Relaxed);
        }
        if telling.enough {
            break;
        }
    }
    Ok(0)
}

/// Whether an observer had enough, possibly at the very end of a piece.
struct Telling<'a, O> {
    observer: &'a mut O,
    enough: bool,
}

impl<O: Observer> Observer for Telling<'_, O> {
    type Stamp = O::Stamp;

    #[inline(always)]
    fn begin(&mut self) -> O::Stamp {
        self.observer.begin()
    }

    #[inline(always)]
    fn end(&mut self, stamp: O::Stamp, request: Request, data: &[u8]) -> ControlFlow<()> {
        let flow = self.observer.end(stamp, request, data);
        self.enough = flow.is_break();
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(threads: u32, division: Division, until: Until) -> Share {
        Share { threads, block: 10, range: 5..98, order: Order::Sequential, division, until }
    }

    #[test]
    fn every_block_and_every_request_is_some_threads() {
        let share = |threads, until| share(threads, Division::Parts, until);
        let ranges = |threads| -> Vec<Range<u64>> {
            share(threads, Until::Passes(1)).parts().unwrap().iter().map(Requests::range).collect()
        };
        assert_eq!(ranges(2), [5..55, 55..98]);
        assert_eq!(ranges(3), [5..35, 35..65, 65..98]);
        let too_many = share(11, Until::Passes(1)).among_threads().unwrap_err();
        assert!(too_many.to_string().contains("there are 10 blocks"));
        let counted = share(3, Until::Requests(1001)).parts().unwrap();
        assert_eq!(counted.into_iter().map(Iterator::count).collect::<Vec<_>>(), [333, 334, 334]);
        // The largest numbers are shared evenly too.
        assert_eq!(part(u64::MAX, 7, 7), u64::MAX);
        assert!(share(7, Until::Requests(u64::MAX)).among_threads().is_ok());
    }

    #[test]
    fn pieces_come_one_after_another_and_nothing_again_before_all_was_there() {
        let ranges = |bytes, until, most: usize| -> Vec<Range<u64>> {
            let pieces = Pieces::new(&share(3, Division::Pieces(bytes), until), bytes);
            std::iter::from_fn(|| pieces.next()).take(most).map(|piece| piece.range()).collect()
        };
        let pass = [5..45, 45..85, 85..98];
        assert_eq!(ranges(49, Until::Passes(1), 100), pass);
        assert_eq!(ranges(49, Until::Passes(2), 100), [pass.clone(), pass.clone()].concat());
        assert_eq!(ranges(49, Until::Time(std::time::Duration::MAX), 3000)[2997..], pass);
        // 23 blocks of ten are two passes and three blocks.
        let counted = ranges(40, Until::Requests(23), 100);
        assert_eq!((counted.len(), counted.last()), (7, Some(&(5..35))));
        // A piece is a block at least, and no more than all.
        assert_eq!(ranges(1, Until::Passes(1), 100).len(), 10);
        let whole = ranges(u64::MAX, Until::Passes(1), 100);
        assert_eq!((whole.len(), whole.last()), (1, Some(&(5..98))));
        let none = Share { range: 5..5, ..share(3, Division::Pieces(9), Until::Passes(1)) };
        assert!(Pieces::new(&none, 9).next().is_none());
    }
}
