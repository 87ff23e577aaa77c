//! Sends without a copy (MSG_ZEROCOPY): buffers that are not used again before the kernel says so.

use std::collections::VecDeque;
use std::io::{Error, Result};
use std::net::TcpStream;

use kelvin_sys::memory::Arena;
use kelvin_sys::net::moving::{Call, Follows};
use kelvin_sys::net::sending::{is_full, next_completed};

use super::super::course::Course;
use super::super::link::{Counts, Link};

/// The buffers.
pub(super) struct ZeroCopy {
    memory: Arena,
    slots: usize,
    bytes: usize,
}

impl ZeroCopy {
    pub fn new(slots: usize, bytes: usize) -> Result<Self> {
        Ok(Self { memory: Arena::for_files(slots * bytes)?, slots, bytes })
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn send(&mut self, link: &mut Link, course: &mut Course<'_, '_>) -> Result<()> {
        while course.left() > 0 {
            let slot = free_slot(link)?;
            let buffer = &mut self.memory.as_mut_slice()[slot * self.bytes..][..self.bytes];
            let wanted = course.at_most(buffer.len());
            let read = link.make(Call::Read(course.file, course.next, &mut buffer[..wanted]))?;
            if read == 0 {
                break;
            }
            send_slot(link, course, (slot, &buffer[..read]))?;
            course.see(&buffer[..read]);
        }
        Ok(())
    }
}

/// A buffer that is not in use.
fn free_slot(link: &mut Link) -> Result<usize> {
    loop {
        if let Some(slot) = link.zero_copies.as_ref().and_then(ZeroCopies::free_slot) {
            return Ok(slot);
        }
        link.await_reports()?;
    }
}

fn send_slot(link: &mut Link, course: &mut Course<'_, '_>, (slot, bytes): (usize, &[u8])) -> Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = &bytes[sent..];
        // What is held back is not completed: the last buffer holds nothing back.
        let is_last = link.zero_copies.as_ref().is_none_or(|zero_copies| zero_copies.free_slots() < 2);
        let follows = if is_last { Follows::Nothing } else { course.follows(rest.len()) };
        match link.make(Call::SendZeroCopy(rest, follows)) {
            Ok(more) => {
                if let Some(zero_copies) = &mut link.zero_copies {
                    zero_copies.began(slot);
                }
                course.sent(more);
                sent += more;
            }
            // So many that the kernel keeps no account of more: some must be completed first.
            Err(error) if is_full(&error) => make_room(link)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn make_room(link: &mut Link) -> Result<()> {
    if link.zero_copies.as_ref().is_none_or(ZeroCopies::is_empty) {
        return Err(Error::other("the kernel allows no sends without a copy (net.core.optmem_max, RLIMIT_MEMLOCK)"));
    }
    link.await_reports()
}

/// Sends of one socket that are not completed, and the buffers that they use.
#[derive(Debug)]
pub(in super::super) struct ZeroCopies {
    /// The number of the first send below.
    first: u32,
    /// The buffer of each send, from the first on that is not completed; `None` if it is.
    sends: VecDeque<Option<usize>>,
    /// How many sends use each buffer.
    uses: Vec<u32>,
}

impl ZeroCopies {
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
    fn began(&mut self, slot: usize) {
        self.sends.push_back(Some(slot));
        self.uses[slot] += 1;
    }

    /// Takes what the socket's error queue says, and whether it said anything.
    pub fn take_reports(&mut self, socket: &TcpStream, counts: &mut Counts) -> Result<bool> {
        let mut any = false;
        loop {
            counts.system_calls += 1;
            let Some((numbers, copied)) = next_completed(socket)? else { return Ok(any) };
            any = true;
            let completed = self.ended(*numbers.start(), *numbers.end());
            *(if copied { &mut counts.copied } else { &mut counts.zero_copied }) += completed;
        }
    }

    /// The sends from one number to another are completed; returns how many of them were not before.
    fn ended(&mut self, from: u32, to: u32) -> u64 {
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
    fn a_buffer_is_free_when_all_its_sends_are_completed_in_whatever_order() {
        let mut sends = ZeroCopies::new(2);
        sends.first = u32::MAX;
        for slot in [0, 0, 1] {
            sends.began(slot);
        }
        assert_eq!(sends.free_slot(), None);
        assert_eq!(sends.ended(0, 1), 2);
        assert_eq!((sends.free_slot(), sends.is_empty()), (Some(1), false));
        assert_eq!(sends.ended(u32::MAX, u32::MAX), 1);
        assert_eq!((sends.free_slot(), sends.is_empty(), sends.first), (Some(0), true, 2));
        assert_eq!(sends.ended(5, 4), 0, "nothing is in flight");
    }
}
