//! By a ring: many requests in flight, with buffers of the ring's own.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use kelvin_sys::net::transfer_call::{BufferRequest, Completion, MoreFollows, RingScope, is_cancelled};

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
    fn send(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        send_range(socket.ring().ok_or(ErrorKind::Unsupported)?, range, self.zero_copy)
    }

    fn receive(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        receive_range(socket.ring().ok_or(ErrorKind::Unsupported)?, range)
    }

    fn finish(&mut self, socket: &mut SocketIo) -> Result<()> {
        let Some(RingIo { requests, counts, timeout, .. }) = socket.ring() else { return Ok(()) };
        while (0..requests.slots()).any(|slot| requests.is_in_use(slot)) {
            counts.system_calls += 1;
            counts.waits += 1;
            if !requests.wait(Some(timeout))? {
                return Err(ErrorKind::TimedOut.into());
            }
            while let Some(done) = requests.next_completion() {
                counts.count_release(&done);
            }
        }
        Ok(())
    }
}

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

/// Sends the bytes of a range: the file is read into several buffers while others are sent, in order, as a chain of linked requests.
fn send_range(ring: RingIo<'_>, range: &mut RangeCursor<'_, '_>, zero_copy: bool) -> Result<()> {
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
            let before = range.moved;
            let is_late = !self.wait()?;
            if is_late {
                self.requests.cancel_all();
            }
            self.handle_completions(range)?;
            // The peer took nothing for as long as the timeout.
            if is_late && range.moved == before {
                return Err(ErrorKind::TimedOut.into());
            }
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

/// Receives the bytes of a range: the next ones while those before are written, from several buffers.
fn receive_range(ring: RingIo<'_>, range: &mut RangeCursor<'_, '_>) -> Result<()> {
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
            // Nothing may be left to the kernel; what has left the socket meanwhile is counted.
            pipeline.requests.cancel_all();
            while let Some(done) = pipeline.requests.next_completion() {
                if let Completion::Moved { slot, bytes: Ok(bytes) } = done
                    && pipeline.filling == Some(slot)
                {
                    range.mark_received(bytes);
                }
            }
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

    /// This many bytes have come into a buffer: writes them, and shows them meanwhile.
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
}
