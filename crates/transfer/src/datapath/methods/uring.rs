//! By a ring: many requests in flight, with buffers of the ring's own.
//!
//! A sender reads the file into several buffers ahead while others are sent, in order, as a chain of linked requests. A receiver fills one
//! buffer at a time, which keeps the bytes in order, while those before are written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use kelvin_sys::net::transfer_call::{BufferRequest, Completion, MoreFollows, PageAccess, RingScope, is_cancelled};

use super::super::range_cursor::{RangeCursor, nonzero};
use super::super::socket_io::{IoCounts, RingIo, SocketIo, coarse_now, record_progress};
use super::TransferMethod;
use crate::progress::ProgressMeter;

/// What it needs is in the ring of the socket.
pub struct Uring {
    /// Whether bytes are sent without a copy.
    pub zero_copy: bool,
}

impl TransferMethod for Uring {
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let direction = match range.access {
            PageAccess::Read => Direction::Send { zero_copy: self.zero_copy },
            PageAccess::Write => Direction::Receive,
        };
        let RingIo { socket, requests, counts, timeout, incoming } = socket.ring().ok_or(ErrorKind::Unsupported)?;
        let (file, used_slots, next_offset) = (range.file, vec![false; requests.slots()], range.offset);
        requests.scope(|requests| {
            let (waited, pieces) = (Duration::ZERO, VecDeque::new());
            let mut pipeline = Pipeline {
                requests,
                socket,
                file,
                counts,
                timeout,
                direction,
                incoming,
                waited,
                pieces,
                used_slots,
                next_offset,
            };
            let outcome = pipeline.run(range);
            if outcome.is_err() {
                pipeline.abort(range);
            }
            outcome
        })
    }

    fn finish(&mut self, socket: &mut SocketIo) -> Result<()> {
        let Some(RingIo { requests, counts, timeout, .. }) = socket.ring() else { return Ok(()) };
        while (0..requests.slots()).any(|slot| requests.is_in_use(slot)) {
            counts.system_calls += 1;
            counts.waits += 1;
            if !requests.wait(Some(timeout))? {
                return Err(ErrorKind::TimedOut.into());
            }
            while let Some(completion) = requests.next_completion() {
                counts.count_release(&completion);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Send { zero_copy: bool },
    Receive,
}

/// A buffer on its way between the file and the socket.
struct Piece {
    slot: usize,
    /// Where it begins in the file.
    offset: u64,
    /// Bytes asked for, that have come into the buffer, and that have left it.
    requested: usize,
    filled: usize,
    drained: usize,
    state: PieceState,
    is_observed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceState {
    Filling,
    Filled,
    Draining,
}

/// The buffers in use, in the order of the file.
struct Pipeline<'a, 'ring, 'env> {
    requests: &'a mut RingScope<'ring, 'env>,
    socket: &'env TcpStream,
    file: &'env File,
    counts: &'a mut IoCounts,
    timeout: Duration,
    direction: Direction,
    incoming: Option<&'a mut ProgressMeter>,
    /// For how long bytes were waited for that have not come yet.
    waited: Duration,
    pieces: VecDeque<Piece>,
    /// Whether each buffer has a piece.
    used_slots: Vec<bool>,
    /// Where the next buffer that is filled begins in the file.
    next_offset: u64,
}

impl<'env> Pipeline<'_, '_, 'env> {
    fn run(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        loop {
            self.fill_free(range);
            self.drain_filled(range)?;
            if self.pieces.is_empty() && self.next_offset >= range.end {
                return Ok(());
            }
            let moved_before = range.moved;
            let is_late = !self.wait()?;
            if is_late {
                self.requests.cancel_all();
            }
            self.handle_completions(range)?;
            // The peer moved nothing for as long as the timeout.
            if is_late && range.moved == moved_before {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }

    /// Leaves nothing to the kernel; what has left the socket meanwhile is counted.
    fn abort(&mut self, range: &mut RangeCursor<'_, '_>) {
        self.requests.cancel_all();
        while let Some(completion) = self.requests.next_completion() {
            if let Completion::Moved { slot, bytes: Ok(bytes) } = completion
                && self.direction == Direction::Receive
                && self.pieces.iter().any(|piece| piece.slot == slot && piece.state == PieceState::Filling)
            {
                range.mark_filled(bytes);
            }
        }
    }

    fn has_piece_in(&self, state: PieceState) -> bool {
        self.pieces.iter().any(|piece| piece.state == state)
    }

    /// Has free buffers filled: all of them from a file, one at a time from a socket.
    fn fill_free(&mut self, range: &RangeCursor<'_, '_>) {
        let is_receiving = self.direction == Direction::Receive;
        for slot in 0..self.requests.slots() {
            if self.next_offset >= range.end || is_receiving && self.has_piece_in(PieceState::Filling) {
                return;
            }
            if self.used_slots[slot] || self.requests.is_in_use(slot) {
                continue;
            }
            let remaining = usize::try_from(range.end - self.next_offset).unwrap_or(usize::MAX);
            let (offset, requested) = (self.next_offset, remaining.min(self.requests.bytes()));
            self.fill(slot, offset, 0..requested);
            let state = PieceState::Filling;
            self.pieces.push_back(Piece { slot, offset, requested, filled: 0, drained: 0, state, is_observed: false });
            self.used_slots[slot] = true;
            // How much a socket gives is known when it has come.
            self.next_offset += if is_receiving { 0 } else { requested as u64 };
        }
    }

    /// Has a part of a buffer filled that begins at this offset of the file.
    fn fill(&mut self, slot: usize, offset: u64, part: Range<usize>) {
        let request = match self.direction {
            Direction::Send { .. } => BufferRequest::Read(self.file, offset + part.start as u64),
            Direction::Receive => BufferRequest::Receive(self.socket.as_fd()),
        };
        self.requests.queue(request, slot, part, false);
    }

    /// Has filled buffers emptied, and shows them meanwhile: into the file each for itself. Into the socket those that are filled without
    /// a gap, unless the chain before is not done.
    fn drain_filled(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let is_sending = self.direction != Direction::Receive;
        if is_sending && self.has_piece_in(PieceState::Draining) {
            return Ok(());
        }
        let is_filled = |piece: &Piece| piece.state == PieceState::Filled;
        let chain = self.pieces.iter().take_while(|piece| is_filled(piece)).count();
        let count = if is_sending { chain } else { self.pieces.len() };
        let mut queued = 0;
        for (number, piece) in self.pieces.iter_mut().take(count).enumerate().filter(|(_, piece)| is_filled(piece)) {
            let is_linked = is_sending && number + 1 < count;
            let end = piece.offset + piece.filled as u64;
            let request = match self.direction {
                // Without a copy, what is held back is not completed, and its buffer never free.
                Direction::Send { zero_copy: true } => {
                    let follows = if is_linked { range.more_follows_at(end) } else { MoreFollows::No };
                    BufferRequest::SendZeroCopy(self.socket.as_fd(), follows)
                }
                Direction::Send { .. } => BufferRequest::Send(self.socket.as_fd(), range.more_follows_at(end)),
                Direction::Receive => BufferRequest::Write(self.file, piece.offset + piece.drained as u64),
            };
            self.requests.queue(request, piece.slot, piece.drained..piece.filled, is_linked);
            piece.state = PieceState::Draining;
            queued += 1;
        }
        if queued > 0 && range.is_observed() {
            self.counts.system_calls += 1;
            self.requests.submit()?;
            for piece in
                self.pieces.iter_mut().filter(|piece| piece.state == PieceState::Draining && !piece.is_observed)
            {
                range.observe(&self.requests.buffer(piece.slot)[..piece.filled]);
                piece.is_observed = true;
            }
        }
        Ok(())
    }

    /// Waits until something is done; `false` if the peer moved nothing for as long as the timeout.
    fn wait(&mut self) -> Result<bool> {
        self.counts.system_calls += 1;
        self.counts.waits += 1;
        // A file may take as long as it takes.
        let file_state = if self.direction == Direction::Receive { PieceState::Draining } else { PieceState::Filling };
        if self.has_piece_in(file_state) {
            return self.requests.wait(None);
        }
        let start = self.incoming.as_ref().map(|_| coarse_now());
        let is_done = self.requests.wait(Some(self.timeout));
        self.waited += start.map_or(Duration::ZERO, |start| coarse_now().saturating_sub(start));
        is_done
    }

    fn handle_completions(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        while let Some(completion) = self.requests.next_completion() {
            self.counts.count_release(&completion);
            let Completion::Moved { slot, bytes } = completion else { continue };
            let index = self.pieces.iter().position(|piece| piece.slot == slot).expect("a request is of a piece");
            let is_filling = self.pieces[index].state == PieceState::Filling;
            let bytes = match bytes {
                // By a signal, or after one that was not sent as a whole: it is asked for again.
                Err(error) if is_cancelled(&error) => None,
                Err(error)
                    if self.direction == (Direction::Send { zero_copy: true })
                        && !is_filling
                        && error.kind() == ErrorKind::InvalidInput =>
                {
                    let reason = "io_uring says since Linux 6.2 what it sends without a copy: use another --wait";
                    return Err(Error::new(ErrorKind::Unsupported, reason));
                }
                bytes => Some(bytes?),
            };
            if is_filling {
                self.on_filled(range, index, bytes)?;
            } else {
                self.on_drained(range, index, bytes)?;
            }
        }
        // Behind the end of the stream, or of a file that is shorter than was announced.
        self.pieces.retain(|piece| {
            let is_kept = piece.state == PieceState::Filling || piece.offset < range.end;
            self.used_slots[piece.slot] &= is_kept;
            is_kept
        });
        Ok(())
    }

    /// This many bytes have come into a buffer, none at the end.
    fn on_filled(&mut self, range: &mut RangeCursor<'_, '_>, index: usize, bytes: Option<usize>) -> Result<()> {
        let piece = &mut self.pieces[index];
        let count = bytes.unwrap_or(0);
        piece.filled += count;
        if bytes == Some(0) {
            range.end = range.end.min(piece.offset + piece.filled as u64);
        }
        let is_receiving = self.direction == Direction::Receive;
        let (slot, offset, part) = (piece.slot, piece.offset, piece.filled..piece.requested);
        if !part.is_empty() && bytes.is_none_or(|count| count > 0 && !is_receiving) {
            self.fill(slot, offset + part.start as u64, part);
            return Ok(());
        }
        piece.state = PieceState::Filled;
        if is_receiving && count > 0 {
            self.next_offset += count as u64;
            range.mark_filled(count);
            record_progress(self.incoming.as_deref_mut(), std::mem::take(&mut self.waited), count)?;
        }
        Ok(())
    }

    /// This many bytes of a buffer have gone into the socket or the file.
    fn on_drained(&mut self, range: &mut RangeCursor<'_, '_>, index: usize, bytes: Option<usize>) -> Result<()> {
        let drained = bytes.map_or(Ok(0), nonzero)?;
        range.mark_drained(drained);
        let piece = &mut self.pieces[index];
        piece.drained += drained;
        piece.state = PieceState::Filled;
        if piece.drained == piece.filled {
            self.used_slots[piece.slot] = false;
            self.pieces.remove(index);
        }
        Ok(())
    }
}
