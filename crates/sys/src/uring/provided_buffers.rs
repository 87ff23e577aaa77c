//! Buffers that a ring fills with what connections receive: it takes one when bytes have come, so that a connection that waits has
//! none.

use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, RecvMsgOut};
use io_uring::{IoUring, cqueue};

use crate::Result;
use crate::memory::{Arena, PagePolicy};
use crate::net::rx_timestamp::{TimedRead, parse_time};

/// How many: a power of two, as many as may be filled before the thread takes what has come.
const BUFFER_COUNT: u16 = 256;
/// Bytes of each: most requests have less than 1 KiB.
const BUFFER_BYTES: usize = 4 << 10;

/// The buffers, and the ring in which those lie that are free.
pub(super) struct ProvidedBuffers {
    buffers: Arena,
    entries: Arena,
    /// How many were put into the ring in all.
    tail: u16,
}

/// Bytes that have arrived, in a buffer that is to be given back.
#[derive(Debug)]
pub struct ReceivedChunk {
    buffer: u16,
    begin: usize,
    bytes: usize,
    arrival: Option<u64>,
}

impl ReceivedChunk {
    /// How many they are, and when they came, where that was asked for.
    pub fn timed_read(&self) -> TimedRead {
        TimedRead { length: self.bytes, arrival: self.arrival }
    }
}

impl ProvidedBuffers {
    /// What the group of buffers is known by.
    pub(super) const GROUP: u16 = 0;

    /// Registers them with a ring, which must end before them.
    pub(super) fn register(ring: &IoUring) -> Result<Self> {
        let buffers = Arena::map(usize::from(BUFFER_COUNT) * BUFFER_BYTES, PagePolicy::Base)?;
        let entries = Arena::map(usize::from(BUFFER_COUNT) * size_of::<BufRingEntry>(), PagePolicy::Base)?;
        let mut provided = Self { buffers, entries, tail: 0 };
        let address = provided.entries.as_mut_slice().as_mut_ptr() as u64;
        // SAFETY: the entries are whole pages of zeros, and stay mapped until the ring has ended or for ever: see the drop of both.
        unsafe { ring.submitter().register_buf_ring_with_flags(address, BUFFER_COUNT, Self::GROUP, 0) }?;
        (0..BUFFER_COUNT).for_each(|buffer| provided.provide(buffer));
        Ok(provided)
    }

    /// The chunk that a completion received; nothing at the end of a stream.
    pub(super) fn chunk(&self, flags: u32, bytes: usize) -> Option<ReceivedChunk> {
        let chunk = |buffer| ReceivedChunk { buffer, begin: 0, bytes: bytes.min(BUFFER_BYTES), arrival: None };
        cqueue::buffer_select(flags).map(chunk)
    }

    /// Like `chunk`, of a message with this header, which the kernel puts before its bytes.
    pub(super) fn timed_chunk(&mut self, flags: u32, bytes: usize, header: &libc::msghdr) -> Option<ReceivedChunk> {
        let received = self.chunk(flags, bytes)?;
        let (begin, bytes, arrival) =
            RecvMsgOut::parse(self.bytes(&received), header).map_or((0, 0, None), |message| {
                let content = message.payload_data();
                (received.bytes - content.len(), content.len(), parse_time(message.control_data()))
            });
        if bytes == 0 {
            self.give_back(received);
            return None;
        }
        Some(ReceivedChunk { buffer: received.buffer, begin, bytes, arrival })
    }

    pub(super) fn bytes(&self, chunk: &ReceivedChunk) -> &[u8] {
        // SAFETY: the buffer lies within the arena, was filled by the kernel so far, and is not written into before it is given back,
        // which takes the chunk; these bytes of it end no later than what was filled.
        unsafe { std::slice::from_raw_parts(self.buffer_ptr(chunk.buffer).wrapping_add(chunk.begin), chunk.bytes) }
    }

    pub(super) fn give_back(&mut self, chunk: ReceivedChunk) {
        self.provide(chunk.buffer);
    }

    /// Where a buffer begins. Nothing else borrows the arena, parts of which belong to the kernel.
    fn buffer_ptr(&self, buffer: u16) -> *mut u8 {
        self.buffers.start().wrapping_add(usize::from(buffer) * BUFFER_BYTES)
    }

    fn provide(&mut self, buffer: u16) {
        let entries = self.entries.start().cast::<BufRingEntry>();
        let address = self.buffer_ptr(buffer) as u64;
        // SAFETY: the entry lies within the arena and is one that the kernel does not read before the tail includes it; the tail, which
        // overlaps none of its other fields, is read by the kernel and written by this thread alone.
        unsafe {
            let entry = &mut *entries.add(usize::from(self.tail % BUFFER_COUNT));
            entry.set_addr(address);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()).store(self.tail, Ordering::Release);
        }
    }
}
