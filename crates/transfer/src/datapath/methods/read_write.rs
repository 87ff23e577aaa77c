//! By way of a buffer: pread and send, or recv and pwrite. And by way of several that are sent without a copy (MSG_ZEROCOPY), which are not
//! used again before the kernel reports it.

use std::io::{Error, ErrorKind, Result};

use kelvin_sys::memory::Arena;
use kelvin_sys::net::socket_send::{is_queue_full, set_zero_copy};
use kelvin_sys::net::transfer_call::{MoreFollows, PageAccess, TransferCall};

use super::super::range_cursor::{RangeCursor, nonzero};
use super::super::socket_io::{PendingSends, SocketIo};
use super::TransferMethod;

/// The buffer.
pub struct ReadWrite(pub Vec<u8>);

impl TransferMethod for ReadWrite {
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let buffer = &mut self.0;
        while range.remaining() > 0 {
            let length = range.remaining_up_to(buffer.len());
            let chunk = &mut buffer[..length];
            let filled = socket.call(match range.access {
                PageAccess::Read => TransferCall::Read(range.file, range.offset, chunk),
                PageAccess::Write => TransferCall::Receive(chunk),
            })?;
            if filled == 0 {
                break;
            }
            range.mark_filled(filled);
            let mut rest = &buffer[..filled];
            while !rest.is_empty() {
                let drained = nonzero(socket.call(match range.access {
                    PageAccess::Read => TransferCall::Send(rest, range.more_follows(rest.len())),
                    PageAccess::Write => TransferCall::Write(range.file, range.offset, rest),
                })?)?;
                range.mark_drained(drained);
                rest = &rest[drained..];
            }
            range.observe(&buffer[..filled]);
        }
        Ok(())
    }
}

/// The buffers.
pub struct ZeroCopy {
    memory: Arena,
    slots: usize,
    bytes: usize,
}

impl ZeroCopy {
    pub fn new(slots: usize, bytes: usize, socket: &mut SocketIo) -> Result<Self> {
        set_zero_copy(socket.stream().ok_or(ErrorKind::Unsupported)?)?;
        socket.zero_copies = Some(PendingSends::new(slots));
        Ok(Self { memory: Arena::io_buffer(slots * bytes)?, slots, bytes })
    }
}

impl TransferMethod for ZeroCopy {
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        while range.remaining() > 0 {
            let slot = free_slot(socket)?;
            let buffer = &mut self.memory.as_mut_slice()[slot * self.bytes..][..self.bytes];
            let length = range.remaining_up_to(buffer.len());
            let read = socket.call(TransferCall::Read(range.file, range.offset, &mut buffer[..length]))?;
            if read == 0 {
                break;
            }
            send_slot(socket, range, slot, &buffer[..read])?;
            range.observe(&buffer[..read]);
        }
        Ok(())
    }

    /// The buffers may still be in use of a connection that failed.
    fn reconnect(&mut self, socket: &mut SocketIo) -> Result<()> {
        *self = Self::new(self.slots, self.bytes, socket)?;
        Ok(())
    }

    fn finish(&mut self, socket: &mut SocketIo) -> Result<()> {
        while socket.zero_copies.as_ref().is_some_and(|zero_copies| !zero_copies.is_empty()) {
            socket.wait_completions()?;
        }
        Ok(())
    }
}

/// A buffer that is not in use.
fn free_slot(socket: &mut SocketIo) -> Result<usize> {
    loop {
        if let Some(slot) = socket.zero_copies.as_ref().and_then(PendingSends::free_slot) {
            return Ok(slot);
        }
        socket.wait_completions()?;
    }
}

fn send_slot(socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>, slot: usize, bytes: &[u8]) -> Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = &bytes[sent..];
        // What is held back is not completed: the last buffer holds nothing back.
        let is_last = socket.zero_copies.as_ref().is_none_or(|zero_copies| zero_copies.free_slots() < 2);
        let follows = if is_last { MoreFollows::No } else { range.more_follows(rest.len()) };
        match socket.call(TransferCall::SendZeroCopy(rest, follows)) {
            Ok(count) => {
                if let Some(zero_copies) = &mut socket.zero_copies {
                    zero_copies.start_send(slot);
                }
                range.mark_drained(count);
                sent += count;
            }
            // The kernel keeps no account of more sends: some must be completed first.
            Err(error) if is_queue_full(&error) => {
                if socket.zero_copies.as_ref().is_none_or(PendingSends::is_empty) {
                    let reason = "the kernel allows no sends without a copy (net.core.optmem_max, RLIMIT_MEMLOCK)";
                    return Err(Error::other(reason));
                }
                socket.wait_completions()?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
