//! Sending by a ring: the file is read into several buffers while others are sent, in order, as a chain of linked requests.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use kelvin_sys::net::transfer_call::{BufferRequest, Completion, MoreFollows, RingScope, is_cancelled};

use super::super::super::range_cursor::RangeCursor;
use super::super::super::socket_io::{IoCounts, RingIo};

/// A buffer on its way from the file to the socket.
struct SendPiece {
    slot: usize,
    /// Where it begins in the file.
    offset: u64,
    /// Bytes asked for, read, and sent.
    wanted: usize,
    read: usize,
    sent: usize,
    state: PieceState,
    is_seen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceState {
    Reading,
    Read,
    Sending,
}

/// The buffers in use, in the order of the file.
struct SendPipeline<'a, 'ring, 'env> {
    requests: &'a mut RingScope<'ring, 'env>,
    socket: &'env TcpStream,
    file: &'env File,
    counts: &'a mut IoCounts,
    timeout: Duration,
    zero_copy: bool,
    pieces: VecDeque<SendPiece>,
    /// Whether each buffer has a piece.
    taken: Vec<bool>,
    /// Where the next read begins.
    next_offset: u64,
}

/// Sends the bytes of a range.
pub fn send(ring: RingIo<'_>, range: &mut RangeCursor<'_, '_>, zero_copy: bool) -> Result<()> {
    let RingIo { socket, requests, counts, timeout, .. } = ring;
    let (file, taken, next_offset) = (range.file, vec![false; requests.slots()], range.offset);
    requests.scope(|requests| {
        let pieces = VecDeque::new();
        let mut pipeline =
            SendPipeline { requests, socket, file, counts, timeout, zero_copy, pieces, taken, next_offset };
        let sent = pipeline.run(range);
        if sent.is_err() {
            // Nothing may be left to the kernel.
            pipeline.requests.cancel_all();
            while pipeline.requests.next_completion().is_some() {}
        }
        sent
    })
}

impl SendPipeline<'_, '_, '_> {
    fn run(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        loop {
            self.read_ahead(range);
            self.send_chain(range)?;
            if self.pieces.is_empty() && self.next_offset >= range.end {
                return Ok(());
            }
            if !self.wait()? {
                self.cancel_unsent(range)?;
            }
            self.handle_completions(range)?;
        }
    }

    /// Has every free buffer filled.
    fn read_ahead(&mut self, range: &RangeCursor<'_, '_>) {
        for slot in 0..self.requests.slots() {
            if self.next_offset >= range.end {
                return;
            }
            if self.taken[slot] || self.requests.is_in_use(slot) {
                continue;
            }
            let left = usize::try_from(range.end - self.next_offset).unwrap_or(usize::MAX);
            let wanted = left.min(self.requests.bytes());
            let (offset, state) = (self.next_offset, PieceState::Reading);
            self.requests.queue(BufferRequest::Read(self.file, offset), slot, 0..wanted, false);
            self.pieces.push_back(SendPiece { slot, offset, wanted, read: 0, sent: 0, state, is_seen: false });
            self.taken[slot] = true;
            self.next_offset += wanted as u64;
        }
    }

    /// Sends what is read without a gap, unless the chain before is not done; shows it while it is sent.
    fn send_chain(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        if self.pieces.front().is_none_or(|piece| piece.state != PieceState::Read)
            || self.pieces.iter().any(|piece| piece.state == PieceState::Sending)
        {
            return Ok(());
        }
        let count = self.pieces.iter().take_while(|piece| piece.state == PieceState::Read).count();
        for (number, piece) in self.pieces.iter_mut().take(count).enumerate() {
            let is_linked = number + 1 < count;
            // Without a copy, what is held back is not completed, and its buffer never free.
            let follows = match self.zero_copy && !is_linked {
                true => MoreFollows::No,
                false => range.more_follows_at(piece.offset + piece.read as u64),
            };
            let request = match self.zero_copy {
                true => BufferRequest::SendZeroCopy(self.socket.as_fd(), follows),
                false => BufferRequest::Send(self.socket.as_fd(), follows),
            };
            self.requests.queue(request, piece.slot, piece.sent..piece.read, is_linked);
            piece.state = PieceState::Sending;
        }
        if range.is_observed() {
            self.counts.system_calls += 1;
            self.requests.submit()?;
            for piece in self.pieces.iter_mut().take(count).filter(|piece| !piece.is_seen) {
                range.observe(&self.requests.buffer(piece.slot)[..piece.read]);
                piece.is_seen = true;
            }
        }
        Ok(())
    }

    /// Waits until something is done; `false` if the peer took nothing for as long as the timeout.
    fn wait(&mut self) -> Result<bool> {
        self.counts.system_calls += 1;
        self.counts.waits += 1;
        // A file may take as long as it takes.
        let is_reading = self.pieces.iter().any(|piece| piece.state == PieceState::Reading);
        self.requests.wait((!is_reading).then_some(self.timeout))
    }

    /// Ends what the peer does not take; an error unless it took a part.
    fn cancel_unsent(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let before = range.moved;
        self.requests.cancel_all();
        self.handle_completions(range)?;
        if range.moved == before { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn handle_completions(&mut self, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        while let Some(done) = self.requests.next_completion() {
            self.counts.count_release(&done);
            let Completion::Moved { slot, bytes } = done else { continue };
            let index = self.pieces.iter().position(|piece| piece.slot == slot).expect("a request is of a piece");
            match self.pieces[index].state {
                PieceState::Sending => self.on_sent(range, index, bytes)?,
                _ => self.on_read(range, index, bytes)?,
            }
        }
        // Behind the end of a file that is shorter than it was said to be.
        self.pieces.retain(|piece| {
            let is_kept = piece.state == PieceState::Reading || piece.offset < range.end;
            self.taken[piece.slot] &= is_kept;
            is_kept
        });
        Ok(())
    }

    fn on_read(&mut self, range: &mut RangeCursor<'_, '_>, index: usize, bytes: Result<usize>) -> Result<()> {
        let piece = &mut self.pieces[index];
        let read = match bytes {
            Err(error) if !is_cancelled(&error) => return Err(error),
            bytes => bytes.ok(),
        };
        piece.read += read.unwrap_or(0);
        if read == Some(0) {
            range.end = range.end.min(piece.offset + piece.read as u64);
        }
        if read != Some(0) && piece.read < piece.wanted {
            let (offset, within) = (piece.offset + piece.read as u64, piece.read..piece.wanted);
            self.requests.queue(BufferRequest::Read(self.file, offset), piece.slot, within, false);
        } else {
            piece.state = PieceState::Read;
        }
        Ok(())
    }

    fn on_sent(&mut self, range: &mut RangeCursor<'_, '_>, index: usize, bytes: Result<usize>) -> Result<()> {
        let sent = match bytes {
            Ok(sent) => sent,
            // It is sent again, after the one before it that was not sent as a whole.
            Err(error) if is_cancelled(&error) => 0,
            Err(error) if self.zero_copy && error.kind() == ErrorKind::InvalidInput => {
                let reason = "io_uring says since Linux 6.2 what it sends without a copy: use another --wait";
                return Err(Error::new(ErrorKind::Unsupported, reason));
            }
            Err(error) => return Err(error),
        };
        range.mark_sent(sent);
        let piece = &mut self.pieces[index];
        piece.sent += sent;
        piece.state = PieceState::Read;
        if piece.sent == piece.read {
            self.taken[piece.slot] = false;
            self.pieces.remove(index);
        }
        Ok(())
    }
}
