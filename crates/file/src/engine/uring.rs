//! io_uring: many requests in flight.

use std::io::ErrorKind;
use std::ops::ControlFlow;

use kelvin_sys::uring::{FileRing, IoDirection, RingSetup};

use super::{BlockEngine, BlockFile, Flow};
use crate::block_requests::{BlockRequest, BlockRequests};
use crate::observer::Observer;
use crate::target::Target;
use crate::{Error, PagePolicy, Result};

/// Deepest queue: what the kernel accepts at least (IORING_MAX_ENTRIES is 32768, registered buffers 16384).
pub(crate) const MAX_QUEUE_DEPTH: u32 = 4096;
/// Requests that are submitted together at most. While more wait to be queued, the device has these already, and a call for each would
/// take more of the CPU. Of a short queue fewer are, since what waits to be submitted is missing at the device. Interleaved with fio, which
/// submits each, this had 0.93, 1.00, 0.99 and 1.00 of its rate at depths of 8, 16, 32 and 128. Four together had 0.89 at 8
/// (medians of seven pairs on one CPU, a loop device over memory, an Intel guest of two CPUs, 28 November 2026). Each call that submits also
/// sees what is done: without that the ring was emptied in lock-step, and had 0.92 at a depth of 32.
const MAX_SUBMIT_BATCH: usize = 4;
/// The share of the queue that is submitted together.
const SUBMIT_DEPTH_DIVISOR: usize = 16;
/// Most bytes of all buffers together.
const MAX_BUFFER_BYTES: usize = 1 << 30;

/// Requests that are submitted together at this queue depth.
pub(crate) fn submit_batch(depth: usize) -> usize {
    (depth / SUBMIT_DEPTH_DIVISOR).clamp(1, MAX_SUBMIT_BATCH)
}

/// A ring, and its requests in flight.
pub(crate) struct UringEngine {
    target: Target,
    pub(crate) ring: FileRing,
    direction: IoDirection,
    /// Unit to which lengths are rounded up: 1, or that of direct I/O.
    alignment: usize,
    /// Buffers that have no request.
    free: Vec<usize>,
    /// The request of each buffer, and how much of it was moved.
    slots: Vec<Slot>,
    /// Completions, and the requests in flight at each.
    completions: u64,
    depth_sum: u64,
    /// The pages that were asked for.
    pages: PagePolicy,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    request: BlockRequest,
    moved: usize,
}

impl UringEngine {
    pub fn open(
        direction: IoDirection,
        (depth, registered): (u32, bool),
        block_file: BlockFile,
    ) -> Result<BlockEngine> {
        let block = block_file.block;
        if !(1..=MAX_QUEUE_DEPTH).contains(&depth) {
            return Err(Error::setting("depth", format!("must be between 1 and {MAX_QUEUE_DEPTH}, not {depth}")));
        }
        if block.saturating_mul(depth as usize) > MAX_BUFFER_BYTES {
            let why = format!("{depth} buffers of {block} bytes are more than 1 GiB: choose a smaller depth or block");
            return Err(Error::setting("depth", why));
        }
        let alignment = super::syscalls::io_alignment(&block_file)?;
        let BlockFile { target, file, pages, .. } = block_file;
        let setup = RingSetup { depth, block, is_registered: registered, is_polled: false, pages };
        let ring = FileRing::new(file, setup).map_err(|error| unsupported_error(&error))?;
        let slots = vec![Slot { request: BlockRequest { offset: 0, bytes: 0 }, moved: 0 }; depth as usize];
        let free = (0..depth as usize).rev().collect();
        let engine = Self { target, ring, direction, alignment, free, slots, completions: 0, depth_sum: 0, pages };
        Ok(BlockEngine::Uring(Box::new(engine)))
    }

    /// The buffers, to fill before the first request.
    pub(crate) fn each_buffer(&mut self, mut fill: impl FnMut(&mut [u8])) {
        (0..self.slots.len()).for_each(|slot| fill(self.ring.buffer_mut(slot)));
    }

    /// Makes requests; `prepare` is given the buffer of each before its time begins.
    pub(crate) fn run_requests<O: Observer>(
        &mut self,
        requests: &mut BlockRequests,
        observer: &mut O,
        mut prepare: impl FnMut(BlockRequest, &mut [u8]),
    ) -> Flow {
        let mut stamps = vec![O::Stamp::default(); self.slots.len()];
        let mut is_stopped = false;
        let batch = submit_batch(self.slots.len());
        loop {
            // A free buffer gets the next request at once, also while other completions wait to be reaped. Else the device
            // would stand still until all of them are observed.
            while !is_stopped && let Some(&slot) = self.free.last() {
                let Some(request) = requests.next() else { break };
                self.free.pop();
                let length = request.bytes.next_multiple_of(self.alignment);
                prepare(request, &mut self.ring.buffer_mut(slot)[..length]);
                stamps[slot] = observer.begin();
                self.slots[slot] = Slot { request, moved: 0 };
                self.submit(slot);
                if self.ring.queued() >= batch {
                    self.ring.wait(0).map_err(ring_error)?;
                }
            }
            let in_flight = self.ring.in_flight() as u64;
            if in_flight == 0 {
                return Ok(if is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
            }
            let Some((slot, moved)) = self.next_completion()? else { continue };
            self.completions += 1;
            self.depth_sum += in_flight;
            if !self.complete(slot, moved)? {
                self.submit(slot);
                continue;
            }
            let request = self.slots[slot].request;
            self.free.push(slot);
            is_stopped |= observer.end(stamps[slot], request, &self.ring.buffer(slot)[..request.bytes]).is_break();
        }
    }

    /// The next request that is done; waits for one if none is, after it has submitted what is queued.
    #[inline]
    fn next_completion(&mut self) -> Result<Option<(usize, std::io::Result<usize>)>> {
        if let Some(completion) = self.ring.next_completion() {
            return Ok(Some(completion));
        }
        self.ring.wait(1).map_err(ring_error)?;
        Ok(self.ring.next_completion())
    }

    /// Queues the rest of a request.
    #[inline]
    fn submit(&mut self, slot: usize) {
        let Slot { request, moved } = self.slots[slot];
        let end = request.bytes.next_multiple_of(self.alignment);
        self.ring.queue(self.direction, slot, request.offset + moved as u64, moved..end);
    }

    /// Counts what was moved; whether that was all of the request.
    #[inline]
    fn complete(&mut self, slot: usize, count: std::io::Result<usize>) -> Result<bool> {
        let Slot { request, moved } = &mut self.slots[slot];
        let part = BlockRequest { offset: request.offset + *moved as u64, bytes: request.bytes - *moved };
        match count {
            Ok(0) => return Err(self.target.zero_bytes_error(self.direction, part)),
            Ok(count) => *moved += count,
            Err(error) if error.kind() == ErrorKind::Interrupted || error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(self.target.io_error(self.direction, part, error)),
        }
        Ok(*moved >= request.bytes)
    }

    pub(crate) fn achieved_depth(&self) -> Option<f64> {
        (self.completions > 0).then(|| self.depth_sum as f64 / self.completions as f64)
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        const NO_DEFER_TASKRUN: &str =
            "this kernel has no deferred completions (IORING_SETUP_DEFER_TASKRUN): each interrupts the thread";
        let deferred = (!self.ring.is_deferred()).then(|| NO_DEFER_TASKRUN.to_owned());
        deferred.into_iter().chain(super::syscalls::missing_huge_pages_note(self.ring.arena(), self.pages)).collect()
    }
}

/// A ring that fails while it works.
fn ring_error(error: std::io::Error) -> Error {
    Error::UringUnavailable(error.to_string())
}

/// Why there is no ring, in words a user can act on.
pub(crate) fn unsupported_error(error: &std::io::Error) -> Error {
    Error::UringUnavailable(match error.kind() {
        ErrorKind::Unsupported => "this kernel lacks it".into(),
        ErrorKind::PermissionDenied => {
            "it is forbidden, by kernel.io_uring_disabled or by a system call filter (seccomp)".into()
        }
        ErrorKind::OutOfMemory => "its buffers exceed the memory that may be locked: see ulimit -l".into(),
        _ => error.to_string(),
    })
}
