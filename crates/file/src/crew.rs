//! Threads that begin at once on parts of one file, and what each of them did.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_stats::Histogram;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::interrupt;

use crate::digest::{Digest, Digesting};
use crate::observe::{Latencies, Observer, Tally};
use crate::pace::{Paced, Until};
use crate::requests::{Order, Requests};
use crate::{Error, Result};

/// What makes requests, one thread's: a reader or a writer.
pub(crate) trait Mover {
    /// Makes requests until there are no more or the observer has enough.
    fn make<O: Observer>(&mut self, requests: &mut Requests, observer: &mut O) -> Result<()>;

    /// What it did that its name does not say.
    fn notes(&self) -> Vec<String>;

    /// The mean number of requests that were under way when one was done; `None` where it is one by nature.
    fn achieved_depth(&self) -> Option<f64>;
}

/// What is to be known of the work, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) until: Until,
    /// Whether the digest is wanted.
    pub(crate) digest: bool,
    /// The clock by which each request is timed, and its ticks a second; none if latencies are not wanted.
    pub(crate) latencies: Option<(Clock, f64)>,
}

/// What threads share among them.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) threads: u32,
    pub(crate) block: usize,
    pub(crate) range: Range<u64>,
    pub(crate) order: Order,
    pub(crate) until: Until,
}

impl Share {
    /// The requests of each thread: whole blocks of the range, as evenly as can be.
    pub(crate) fn parts(&self) -> Result<Vec<Requests>> {
        let (threads, block) = (u64::from(self.threads), self.block as u64);
        for (name, value) in [("threads", threads), ("block", block)] {
            if value == 0 {
                return Err(Error::setting(name, "there must be one at least"));
            }
        }
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

/// What one thread did.
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

/// Has all threads begin at once, each with what `open` gives it, and waits for them. If one fails, the others end too,
/// and its error is that of all.
pub(crate) fn together<M: Mover>(
    wanted: Wanted,
    parts: Vec<Requests>,
    open: impl Fn() -> Result<M> + Sync,
) -> Result<Vec<Member>> {
    let (barrier, stop) = (Barrier::new(parts.len()), AtomicBool::new(false));
    let results: Vec<Result<Member>> = std::thread::scope(|scope| {
        let member = |requests: Requests| {
            let (barrier, stop, open) = (&barrier, &stop, &open);
            scope.spawn(move || {
                let mover = open();
                barrier.wait();
                let result = mover.and_then(|mover| member(wanted, mover, requests, stop));
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                result
            })
        };
        let handles: Vec<_> = parts.into_iter().map(member).collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let members = results.into_iter().collect::<Result<Vec<Member>>>()?;
    match interrupt::requested() {
        Some(signal) => Err(Error::Interrupted(signal)),
        None => Ok(members),
    }
}

/// One thread's part, told to an observer that does what is wanted and nothing else.
fn member<M: Mover>(wanted: Wanted, mover: M, requests: Requests, stop: &AtomicBool) -> Result<Member> {
    let paced = Paced::new(wanted.until, stop);
    let digesting = |inner| Digesting { inner, digest: Digest::default() };
    match (wanted.latencies, wanted.digest) {
        (None, false) => work(mover, requests, paced, |paced| (paced, Digest::default(), None)),
        (None, true) => work(mover, requests, digesting(paced), |all| (all.inner, all.digest, None)),
        (Some((clock, hertz)), false) => {
            let observer = Latencies::new(paced, clock, hertz);
            work(mover, requests, observer, |all| (all.inner, Digest::default(), Some(all.histogram)))
        }
        (Some((clock, hertz)), true) => {
            let observer = Latencies::new(digesting(paced), clock, hertz);
            work(mover, requests, observer, |all| (all.inner.inner, all.inner.digest, Some(all.histogram)))
        }
    }
}

fn work<'a, M: Mover, O: Observer>(
    mut mover: M,
    mut requests: Requests,
    mut observer: O,
    apart: impl FnOnce(O) -> (Paced<'a>, Digest, Option<Histogram>),
) -> Result<Member> {
    let begun = monotonic();
    mover.make(&mut requests, &mut observer)?;
    let ended = monotonic();
    let (mut paced, digest, latencies) = apart(observer);
    paced.note(ended);
    Ok(Member {
        tally: paced.tally,
        begun: paced.begun.min(begun),
        ended,
        passes: requests.complete_passes(),
        digest,
        latencies,
        series: paced.series,
        achieved_depth: mover.achieved_depth(),
        notes: mover.notes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_and_every_request_is_some_threads() {
        let share = |threads, until| Share { threads, block: 10, range: 5..98, order: Order::Sequential, until };
        let ranges = |threads| -> Vec<Range<u64>> {
            share(threads, Until::Passes(1)).parts().unwrap().iter().map(Requests::range).collect()
        };
        assert_eq!(ranges(2), [5..55, 55..98]);
        assert_eq!(ranges(3), [5..35, 35..65, 65..98]);
        assert!(share(11, Until::Passes(1)).parts().unwrap_err().to_string().contains("there are 10 blocks"));
        let counted = share(3, Until::Requests(1001)).parts().unwrap();
        assert_eq!(counted.into_iter().map(Iterator::count).collect::<Vec<_>>(), [333, 334, 334]);
        // As many as there are numbers for are shared evenly too.
        assert_eq!(part(u64::MAX, 7, 7), u64::MAX);
        assert!(share(7, Until::Requests(u64::MAX)).parts().is_ok());
    }
}
