//! io_uring: many requests in flight.

use std::fs::File;
use std::io::ErrorKind;

use kelvin_sys::uring::{Direction, Ring, Setup};

use crate::observe::Observer;
use crate::requests::{Request, Requests};
use crate::target::{Access, Target};
use crate::{Error, Pages, Result};

/// Deepest queue: what the kernel accepts at least (IORING_MAX_ENTRIES is 32768, registered buffers 16384).
pub(crate) const DEEPEST: u32 = 4096;
/// Requests that are submitted together at most: while more wait to be queued, the device has these already, and a call for each would
/// take more of the CPU. Of a short queue fewer are, since what waits to be submitted is missing at the device. Interleaved with fio, which
/// submits each, this had 0.93, 1.00, 0.99 and 1.00 of its rate at depths of 8, 16, 32 and 128, where four together had 0.89 at 8
/// (medians of seven pairs on one CPU, a loop device over memory, an Intel guest of two CPUs, 28 November 2026). Each call that submits also
/// sees what is done: without that the ring was emptied in lock-step, and had 0.92 at a depth of 32.
const SUBMITTED_TOGETHER: usize = 4;
/// The share of the queue that is submitted together.
const SUBMITTED_SHARE: usize = 16;
/// Most bytes of all buffers together.
const MOST_BUFFERS: usize = 1 << 30;

/// A ring, and its requests in flight.
#[derive(Debug)]
pub(crate) struct Ringed {
    target: Target,
    ring: Ring,
    direction: Direction,
    /// Unit to which lengths are rounded up: 1, or that of direct I/O.
    alignment: usize,
    /// Buffers that have no request.
    free: Vec<usize>,
    /// The request of each buffer, and how much of it was moved.
    slots: Vec<Slot>,
    /// Completions, and the requests in flight at each.
    done: u64,
    depths: u64,
    /// The pages that were asked for.
    pages: Pages,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    request: Request,
    moved: usize,
}

impl Ringed {
    pub(crate) fn new(target: Target, file: File, how: Setup, direction: Direction, access: Access) -> Result<Self> {
        let Setup { depth, block, pages, .. } = how;
        if !(1..=DEEPEST).contains(&depth) {
            return Err(Error::setting("depth", format!("must be between 1 and {DEEPEST}, not {depth}")));
        }
        if block.saturating_mul(depth as usize) > MOST_BUFFERS {
            let why = format!("{depth} buffers of {block} bytes are more than 1 GiB: choose a smaller depth or block");
            return Err(Error::setting("depth", why));
        }
        let alignment = super::plain::aligned(&target, block, access)?;
        let ring = Ring::new(file, how).map_err(|error| absence(&error))?;
        let slots = vec![Slot { request: Request { offset: 0, bytes: 0 }, moved: 0 }; depth as usize];
        let free = (0..depth as usize).rev().collect();
        Ok(Self { target, ring, direction, alignment, free, slots, done: 0, depths: 0, pages })
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        self.ring.file()
    }

    /// The buffers, to fill before the first request.
    pub(crate) fn each_buffer(&mut self, mut fill: impl FnMut(&mut [u8])) {
        (0..self.slots.len()).for_each(|slot| fill(self.ring.buffer_mut(slot)));
    }

    /// Makes requests; `prepare` is given the buffer of each before its time begins.
    pub(crate) fn make<O: Observer>(
        &mut self,
        requests: &mut Requests,
        observer: &mut O,
        mut prepare: impl FnMut(Request, &mut [u8]),
    ) -> Result<()> {
        let mut stamps = vec![O::Stamp::default(); self.slots.len()];
        let mut enough = false;
        let together = (self.slots.len() / SUBMITTED_SHARE).clamp(1, SUBMITTED_TOGETHER);
        loop {
            // A free buffer gets the next request at once, also while other completions wait to be reaped: else the device
            // would stand still until all of them are observed.
            while !enough && let Some(&slot) = self.free.last() {
                let Some(request) = requests.next() else { break };
                self.free.pop();
                let asked = request.bytes.next_multiple_of(self.alignment);
                prepare(request, &mut self.ring.buffer_mut(slot)[..asked]);
                stamps[slot] = observer.begin();
                self.slots[slot] = Slot { request, moved: 0 };
                self.ask(slot);
                if self.ring.queued() >= together {
                    self.ring.submit().map_err(no_ring)?;
                }
            }
            let under_way = self.ring.under_way() as u64;
            if under_way == 0 {
                return Ok(());
            }
            let Some((slot, moved)) = self.next_done()? else { continue };
            self.done += 1;
            self.depths += under_way;
            if !self.took(slot, moved)? {
                self.ask(slot);
                continue;
            }
            let request = self.slots[slot].request;
            self.free.push(slot);
            enough |= observer.end(stamps[slot], request, &self.ring.buffer(slot)[..request.bytes]).is_break();
        }
    }

    /// The next request that is done; waits for one if none is, after it has submitted what is queued.
    #[inline]
    fn next_done(&mut self) -> Result<Option<(usize, std::io::Result<usize>)>> {
        if let Some(done) = self.ring.done() {
            return Ok(Some(done));
        }
        self.ring.wait(1).map_err(no_ring)?;
        Ok(self.ring.done())
    }

    /// Queues the rest of a request.
    #[inline]
    fn ask(&mut self, slot: usize) {
        let Slot { request, moved } = self.slots[slot];
        let end = request.bytes.next_multiple_of(self.alignment);
        self.ring.queue(self.direction, slot, request.offset + moved as u64, moved..end);
    }

    /// Counts what was moved; whether that was all of the request.
    #[inline]
    fn took(&mut self, slot: usize, count: std::io::Result<usize>) -> Result<bool> {
        let Slot { request, moved } = &mut self.slots[slot];
        let part = Request { offset: request.offset + *moved as u64, bytes: request.bytes - *moved };
        match count {
            Ok(0) => return Err(self.target.nothing_moved(self.direction, part)),
            Ok(count) => *moved += count,
            Err(error) if error.kind() == ErrorKind::Interrupted || error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(self.target.failed(self.direction, part, error)),
        }
        Ok(*moved >= request.bytes)
    }

    pub(crate) fn achieved_depth(&self) -> Option<f64> {
        (self.done > 0).then(|| self.depths as f64 / self.done as f64)
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        const NOT_DEFERRED: &str =
            "this kernel has no deferred completions (IORING_SETUP_DEFER_TASKRUN): each interrupts the thread";
        let deferred = (!self.ring.is_deferred()).then(|| NOT_DEFERRED.to_owned());
        deferred.into_iter().chain(super::plain::without_huge_pages(self.ring.arena(), self.pages)).collect()
    }
}

/// A ring that fails while it works.
fn no_ring(error: std::io::Error) -> Error {
    Error::NoRing(error.to_string())
}

/// Why there is no ring, in words a user can act on.
fn absence(error: &std::io::Error) -> Error {
    Error::NoRing(match error.kind() {
        ErrorKind::Unsupported => "this kernel lacks it".into(),
        ErrorKind::PermissionDenied => {
            "it is forbidden, by kernel.io_uring_disabled or by a system call filter (seccomp)".into()
        }
        ErrorKind::OutOfMemory => "its buffers exceed the memory that may be locked: see ulimit -l".into(),
        _ => error.to_string(),
    })
}
