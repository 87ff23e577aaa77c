//! Receiving by a ring: the next bytes are received while those before are written, from several buffers.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use kelvin_sys::net::transfer_call::{BufferRequest, Completion, RingScope, is_cancelled};

use super::super::super::range_cursor::{RangeCursor, nonzero};
use super::super::super::socket_io::{IoCounts, RingIo, coarse_now, record_progress};
use crate::progress::ProgressMeter;

/// Bytes on their way from a buffer to the file.
#[derive(Clone, Copy)]
struct ReceivePiece {
    /// Where the buffer begins in the file.
    offset: u64,
    bytes: usize,
    written: usize,
}

struct ReceivePipeline<'a, 'ring, 'env> {
    requests: &'a mut RingScope<'ring, 'env>,
    socket: &'env TcpStream,
    file: &'env File,
    counts: &'a mut IoCounts,
    timeout: Duration,
    incoming: Option<&'a mut ProgressMeter>,
    /// For how long bytes were waited for that have not come yet.
    waited: Duration,
    /// What is being written of each buffer.
    pieces: Vec<Option<ReceivePiece>>,
    /// The buffer that is being filled: one at a time, which keeps the bytes in order.
    filling: Option<usize>,
    /// Where the next byte from the socket belongs, and where the last one.
    next_offset: u64,
    end: u64,
}

/// Receives the bytes of a range.
pub fn receive(ring: RingIo<'_>, range: &mut RangeCursor<'_, '_>) -> Result<()> {
    let RingIo { socket, requests, counts, timeout, incoming } = ring;
    let (file, next_offset, end, pieces) = (range.file, range.offset, range.end, vec![None; requests.slots()]);
    requests.scope(|requests| {
        let mut pipeline = ReceivePipeline {
            requests,
            socket,
            file,
            counts,
            timeout,
            incoming,
            waited: Duration::ZERO,
            pieces,
            filling: None,
            next_offset,
            end,
        };
        let received = pipeline.run(range);
        if received.is_err() {
            pipeline.abandon(range);
        }
        received
    })
}

impl ReceivePipeline<'_, '_, '_> {
    fn run(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        loop {
            self.fill_next();
            if self.requests.in_flight() == 0 {
                return Ok(());
            }
            if !self.wait()? {
                return Err(ErrorKind::TimedOut.into());
            }
            while let Some(done) = self.requests.next_completion() {
                self.on_done(range, done)?;
            }
        }
    }

    /// Has the next free buffer filled, unless one is.
    fn fill_next(&mut self) {
        if self.filling.is_some() || self.next_offset >= self.end {
            return;
        }
        self.filling = (0..self.requests.slots()).find(|&slot| !self.requests.is_in_use(slot));
        if let Some(slot) = self.filling {
            let left = usize::try_from(self.end - self.next_offset).unwrap_or(usize::MAX);
            let wanted = left.min(self.requests.bytes());
            self.requests.queue(BufferRequest::Receive(self.socket.as_fd()), slot, 0..wanted, false);
        }
    }

    /// Waits until something is done; `false` if the peer sent nothing for as long as the timeout.
    fn wait(&mut self) -> Result<bool> {
        self.counts.system_calls += 1;
        self.counts.waits += 1;
        // A file may take as long as it takes.
        let is_writing = self.pieces.iter().any(Option::is_some);
        if is_writing {
            return self.requests.wait(None);
        }
        let begun = coarse_now();
        let is_done = self.requests.wait(Some(self.timeout));
        self.waited += coarse_now().saturating_sub(begun);
        is_done
    }

    fn on_done(&mut self, range: &mut RangeCursor<'_, '_>, done: Completion) -> Result<()> {
        let Completion::Moved { slot, bytes } = done else { return Ok(()) };
        let moved = match bytes {
            // A signal: it is asked for again.
            Err(error) if is_cancelled(&error) => None,
            bytes => Some(bytes?),
        };
        if self.filling == Some(slot) {
            self.filling = None;
            return moved.map_or(Ok(()), |moved| self.on_filled(range, slot, moved));
        }
        let piece = self.pieces[slot].as_mut().expect("a request fills or writes a piece");
        if let Some(moved) = moved {
            piece.written += nonzero(moved)?;
            range.mark_written(moved);
        }
        if piece.written < piece.bytes {
            self.write(slot);
        } else {
            self.pieces[slot] = None;
        }
        Ok(())
    }

    /// So many bytes have come into a buffer: writes them, and shows them meanwhile.
    fn on_filled(&mut self, range: &mut RangeCursor<'_, '_>, slot: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            self.end = self.next_offset;
            return Ok(());
        }
        range.mark_received(bytes);
        record_progress(self.incoming.as_deref_mut(), std::mem::take(&mut self.waited), bytes)?;
        self.pieces[slot] = Some(ReceivePiece { offset: self.next_offset, bytes, written: 0 });
        self.next_offset += bytes as u64;
        self.write(slot);
        self.fill_next();
        if range.is_observed() {
            self.counts.system_calls += 1;
            self.requests.submit()?;
            range.observe(&self.requests.buffer(slot)[..bytes]);
        }
        Ok(())
    }

    /// Writes what is left of a piece.
    fn write(&mut self, slot: usize) {
        if let Some(ReceivePiece { offset, bytes, written }) = self.pieces[slot] {
            self.requests.queue(BufferRequest::Write(self.file, offset + written as u64), slot, written..bytes, false);
        }
    }

    /// Leaves nothing to the kernel after an error, and counts what has left the socket meanwhile.
    fn abandon(&mut self, range: &mut RangeCursor<'_, '_>) {
        self.requests.cancel_all();
        while let Some(done) = self.requests.next_completion() {
            if let Completion::Moved { slot, bytes: Ok(bytes) } = done
                && self.filling == Some(slot)
            {
                range.mark_received(bytes);
            }
        }
    }
}
