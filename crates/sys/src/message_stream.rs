//! Byte streams from one task to another: a pipe, a pair of Unix sockets, a ring of blocks in shared memory.

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::handoff::{Pipe, socket_pair};
use crate::shared_memory::{FutexScope, Shared, Zeroed, futex_wait, futex_wake};
use crate::{Error, Result};

/// Largest message, and size of a block of the shared ring, in bytes.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of the shared ring.
pub const BLOCK_COUNT: u32 = 4;

/// The kind of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// A pipe of the kernel's default size.
    Pipe,
    /// Connected Unix stream sockets with the kernel's default buffers.
    Unix,
    /// [`BLOCK_COUNT`] blocks in shared memory and two futexes: a copy in, a copy out, no copy in the kernel.
    Shared,
}

/// A one-way stream of messages; works across `fork`. Both ends use messages of the same size.
#[derive(Debug)]
pub struct MessageStream(StreamMedium);

#[derive(Debug)]
enum StreamMedium {
    /// Two ends, of a pipe or of a pair of sockets.
    Descriptors(Pipe),
    Shared(Shared<BlockRing>),
}

impl MessageStream {
    /// An empty stream.
    pub fn new(kind: StreamKind) -> Result<Self> {
        Ok(Self(match kind {
            StreamKind::Pipe => StreamMedium::Descriptors(Pipe::new()?),
            StreamKind::Unix => {
                let (write, read) = socket_pair()?;
                StreamMedium::Descriptors(Pipe { read, write })
            }
            StreamKind::Shared => StreamMedium::Shared(Shared::new()?),
        }))
    }

    /// Sends a message, waiting while there is no room for it.
    ///
    /// # Errors
    /// Those of the system call; a message larger than [`BLOCK_BYTES`] through shared memory.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        match &self.0 {
            StreamMedium::Descriptors(ends) => write_all(&ends.write, message),
            StreamMedium::Shared(blocks) => blocks.send(message),
        }
    }

    /// Receives a message of exactly the size of the buffer, waiting for it.
    ///
    /// # Errors
    /// Those of the system call; a stream that ends before the message does.
    pub fn receive(&self, message: &mut [u8]) -> Result<()> {
        match &self.0 {
            StreamMedium::Descriptors(ends) => read_all(&ends.read, message),
            StreamMedium::Shared(blocks) => blocks.receive(message),
        }
    }
}

fn write_all(descriptor: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for its length.
        let written = unsafe { libc::syscall(libc::SYS_write, descriptor.as_raw_fd(), bytes.as_ptr(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) => bytes = &bytes[written..],
            Err(_) => return Err(Error::last_os_error()),
        }
    }
    Ok(())
}

fn read_all(descriptor: &OwnedFd, mut bytes: &mut [u8]) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for its length.
        let read = unsafe { libc::syscall(libc::SYS_read, descriptor.as_raw_fd(), bytes.as_mut_ptr(), bytes.len()) };
        match usize::try_from(read) {
            Ok(0) => return Err(Error::other("the stream ended within a message")),
            Ok(read) => bytes = &mut bytes[read..],
            Err(_) => return Err(Error::last_os_error()),
        }
    }
    Ok(())
}

/// Blocks for one sender and one receiver. Counts increase and wrap; a block belongs to the sender while fewer than
/// [`BLOCK_COUNT`] are in flight, and to the receiver once it is sent.
#[repr(C)]
struct BlockRing {
    sent: CacheLineCounter,
    received: CacheLineCounter,
    memory: [UnsafeCell<[u8; BLOCK_BYTES]>; BLOCK_COUNT as usize],
}

/// A counter in a cache line of its own, and its neighbour, which is fetched with it.
#[repr(align(128))]
struct CacheLineCounter(AtomicU32);

fn check_length(message: &[u8]) -> Result<()> {
    match message.len() {
        0..=BLOCK_BYTES => Ok(()),
        length => Err(Error::other(format!("a message of {length} bytes is larger than a block of {BLOCK_BYTES}"))),
    }
}

// SAFETY: a block is accessed by one end at a time, by the counters.
unsafe impl Sync for BlockRing {}
// SAFETY: zeros of integers and bytes.
unsafe impl Zeroed for BlockRing {}

impl std::fmt::Debug for BlockRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockRing")
            .field("sent", &self.sent.0)
            .field("received", &self.received.0)
            .finish_non_exhaustive()
    }
}

impl BlockRing {
    fn send(&self, message: &[u8]) -> Result<()> {
        check_length(message)?;
        let sent = self.sent.0.load(Ordering::Relaxed);
        loop {
            let received = self.received.0.load(Ordering::Acquire);
            if sent.wrapping_sub(received) < BLOCK_COUNT {
                break;
            }
            futex_wait(&self.received.0, received, FutexScope::Processes)?;
        }
        let block = self.memory[(sent % BLOCK_COUNT) as usize].get();
        // SAFETY: fewer than BLOCKS are on their way, so this block is not the receiver's; the message fits.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), block.cast(), message.len()) };
        self.sent.0.store(sent.wrapping_add(1), Ordering::Release);
        futex_wake(&self.sent.0, FutexScope::Processes)
    }

    fn receive(&self, message: &mut [u8]) -> Result<()> {
        check_length(message)?;
        let received = self.received.0.load(Ordering::Relaxed);
        while self.sent.0.load(Ordering::Acquire) == received {
            futex_wait(&self.sent.0, received, FutexScope::Processes)?;
        }
        let block = self.memory[(received % BLOCK_COUNT) as usize].get();
        // SAFETY: the block was sent and is not yet received, so the sender leaves it alone; the message fits.
        unsafe { std::ptr::copy_nonoverlapping(block.cast(), message.as_mut_ptr(), message.len()) };
        self.received.0.store(received.wrapping_add(1), Ordering::Release);
        futex_wake(&self.received.0, FutexScope::Processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn messages_arrive_whole_and_in_order() {
        for kind in [StreamKind::Pipe, StreamKind::Unix, StreamKind::Shared] {
            for size in [8, 4096, BLOCK_BYTES] {
                let stream = Arc::new(MessageStream::new(kind).unwrap());
                let receiver = Arc::clone(&stream);
                let receiver_thread = std::thread::spawn(move || {
                    let mut message = vec![0u8; size];
                    for number in 0..40u8 {
                        receiver.receive(&mut message).unwrap();
                        assert!(message.iter().all(|&byte| byte == number), "{kind:?} {size} {number}");
                    }
                });
                for number in 0..40u8 {
                    stream.send(&vec![number; size]).unwrap();
                }
                receiver_thread.join().unwrap();
            }
        }
    }

    #[test]
    fn oversized_message_is_refused() {
        let stream = MessageStream::new(StreamKind::Shared).unwrap();
        let error = stream.send(&vec![0; BLOCK_BYTES + 1]).unwrap_err().to_string();
        assert_eq!(error, "a message of 65537 bytes is larger than a block of 65536");
    }
}
