//! Sends without a copy (MSG_ZEROCOPY): buffers that are not used again before the kernel says so.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;

use kelvin_sys::memory::Arena;
use kelvin_sys::net::socket_send::{is_queue_full, next_completion, set_zero_copy};
use kelvin_sys::net::transfer_call::{MoreFollows, TransferCall};

use super::super::range_cursor::RangeCursor;
use super::super::socket_io::{IoCounts, SocketIo};
use super::TransferMethod;

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
    fn send(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        while range.remaining() > 0 {
            let slot = free_slot(socket)?;
            let buffer = &mut self.memory.as_mut_slice()[slot * self.bytes..][..self.bytes];
            let wanted = range.remaining_up_to(buffer.len());
            let read = socket.call(TransferCall::Read(range.file, range.offset, &mut buffer[..wanted]))?;
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
            Ok(more) => {
                if let Some(zero_copies) = &mut socket.zero_copies {
                    zero_copies.start_send(slot);
                }
                range.mark_sent(more);
                sent += more;
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

/// Sends of one socket that are not completed, and the buffers that they use.
#[derive(Debug)]
pub struct PendingSends {
    /// The number of the first send below.
    first: u32,
    /// The buffer of each send, from the first on that is not completed; `None` if it is.
    sends: VecDeque<Option<usize>>,
    /// How many sends use each buffer.
    uses: Vec<u32>,
}

impl PendingSends {
    /// None yet, of so many buffers.
    pub fn new(slots: usize) -> Self {
        Self { first: 0, sends: VecDeque::new(), uses: vec![0; slots] }
    }

    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    fn free_slot(&self) -> Option<usize> {
        self.uses.iter().position(|&uses| uses == 0)
    }

    fn free_slots(&self) -> usize {
        self.uses.iter().filter(|&&uses| uses == 0).count()
    }

    /// The next send uses this buffer.
    fn start_send(&mut self, slot: usize) {
        self.sends.push_back(Some(slot));
        self.uses[slot] += 1;
    }

    /// Takes what the socket's error queue says, and whether it said anything.
    pub fn take_completions(&mut self, socket: &TcpStream, counts: &mut IoCounts) -> Result<bool> {
        let mut any = false;
        loop {
            counts.system_calls += 1;
            let Some((numbers, copied)) = next_completion(socket)? else { return Ok(any) };
            any = true;
            let completed = self.complete_sends(*numbers.start(), *numbers.end());
            *(if copied { &mut counts.copied } else { &mut counts.zero_copied }) += completed;
        }
    }

    /// The sends from one number to another are completed; returns how many of them were not before.
    fn complete_sends(&mut self, from: u32, to: u32) -> u64 {
        let places = from.wrapping_sub(self.first) as usize..=to.wrapping_sub(self.first) as usize;
        let mut ended = 0;
        for (place, send) in self.sends.iter_mut().enumerate() {
            if let (true, Some(slot)) = (places.contains(&place), send.as_mut()) {
                self.uses[*slot] -= 1;
                *send = None;
                ended += 1;
            }
        }
        while self.sends.front() == Some(&None) {
            self.sends.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_free_after_all_sends_complete() {
        let mut sends = PendingSends::new(2);
        sends.first = u32::MAX;
        for slot in [0, 0, 1] {
            sends.start_send(slot);
        }
        assert_eq!(sends.free_slot(), None);
        assert_eq!(sends.complete_sends(0, 1), 2);
        assert_eq!((sends.free_slot(), sends.is_empty()), (Some(1), false));
        assert_eq!(sends.complete_sends(u32::MAX, u32::MAX), 1);
        assert_eq!((sends.free_slot(), sends.is_empty(), sends.first), (Some(0), true, 2));
        assert_eq!(sends.complete_sends(5, 4), 0, "nothing is in flight");
    }
}
