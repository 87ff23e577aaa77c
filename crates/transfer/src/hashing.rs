//! Digests of what is sent or has arrived, computed in a thread of their own beside the one that moves it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use kelvin_wire::sealed::TAG;
use kelvin_wire::{Error as WireError, Hasher};

use crate::channel::PART;
use crate::message::Digest;
use crate::{Error, Result};

/// Buffers: one that is filled, one that is hashed, and some between them.
const BUFFERS: usize = 6;
/// Jobs that wait: parts of some blocks.
const JOBS: usize = 256;
/// Bytes of the thread's stack: buffers are on the heap, and a hasher has two kilobytes.
const STACK: usize = 256 << 10;

/// A part of a file: in a buffer that the mover and the hasher share, and that the last of them gives back.
pub(crate) struct Part {
    buffer: Option<Arc<Vec<u8>>>,
    bytes: usize,
    back: Sender<Vec<u8>>,
}

impl Part {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[..self.bytes])
    }

    fn share(&self) -> Self {
        Self { buffer: self.buffer.clone(), bytes: self.bytes, back: self.back.clone() }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take().and_then(Arc::into_inner) {
            // Nobody waits for buffers any more where this fails.
            let _ = self.back.send(buffer);
        }
    }
}

enum Job {
    /// More of a piece.
    Part(Part),
    /// The end of a piece of parts.
    End,
}

/// The digest of a piece, and how long it took.
pub(crate) struct Hashed {
    pub(crate) digest: Digest,
    pub(crate) nanoseconds: u64,
}

/// Computes digests of pieces, in their order.
pub(crate) struct Hashing {
    jobs: Option<SyncSender<Job>>,
    hashed: Receiver<Hashed>,
    thread: Option<JoinHandle<()>>,
    free: Receiver<Vec<u8>>,
    back: Sender<Vec<u8>>,
    /// Buffers that were made.
    made: usize,
}

impl Hashing {
    /// Starts the thread.
    ///
    /// # Errors
    /// Those of starting it.
    pub(crate) fn start() -> Result<Self> {
        let (jobs, todo) = sync_channel(JOBS);
        let (done, hashed) = channel();
        let (back, free) = channel();
        let work = move || work(&todo, &done);
        let thread = Builder::new().name("digests".into()).stack_size(STACK).spawn(work);
        let thread = thread.map_err(WireError::call("start a thread"))?;
        Ok(Self { jobs: Some(jobs), hashed, thread: Some(thread), free, back, made: 0 })
    }

    /// A buffer of [`PART`] bytes, with room for a tag behind them; waits until one is free.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        if let Ok(free) = self.free.try_recv() {
            return free;
        }
        if self.made < BUFFERS {
            self.made += 1;
            return vec![0; PART + TAG];
        }
        // One end of it is held here, so that it never ends.
        self.free.recv().unwrap_or_else(|_| vec![0; PART + TAG])
    }

    /// Makes a part of the first bytes of a buffer.
    pub(crate) fn part(&self, buffer: Vec<u8>, bytes: usize) -> Part {
        Part { buffer: Some(Arc::new(buffer)), bytes, back: self.back.clone() }
    }

    /// Adds a part to the present piece.
    ///
    /// # Errors
    /// A thread that has ended, which is a mistake of this program.
    pub(crate) fn add(&self, part: &Part) -> Result<()> {
        self.give(Job::Part(part.share()))
    }

    /// Ends the present piece: its digest will come.
    ///
    /// # Errors
    /// As for [`Hashing::add`].
    pub(crate) fn end(&self) -> Result<()> {
        self.give(Job::End)
    }

    fn give(&self, job: Job) -> Result<()> {
        let given = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if given { Ok(()) } else { Err(ended()) }
    }

    /// The next digest, if it is there.
    pub(crate) fn ready(&self) -> Option<Hashed> {
        self.hashed.try_recv().ok()
    }

    /// The next digest.
    ///
    /// # Errors
    /// As for [`Hashing::add`].
    pub(crate) fn next(&self) -> Result<Hashed> {
        self.hashed.recv().map_err(|_| ended())
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn ended() -> Error {
    WireError::Call { doing: "compute digests", source: std::io::Error::other("the thread has ended") }.into()
}

fn work(todo: &Receiver<Job>, done: &Sender<Hashed>) {
    let (mut hasher, mut nanoseconds) = (Hasher::new(), 0);
    while let Ok(job) = todo.recv() {
        let begun = Instant::now();
        let ended = match job {
            Job::Part(part) => {
                hasher.update(part.bytes());
                None
            }
            Job::End => {
                let digest = *hasher.finalize().as_bytes();
                hasher.reset();
                Some(digest)
            }
        };
        nanoseconds += begun.elapsed().as_nanos() as u64;
        if let Some(digest) = ended
            && done.send(Hashed { digest, nanoseconds: std::mem::take(&mut nanoseconds) }).is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_come_in_the_order_of_their_pieces() {
        let mut hashing = Hashing::start().unwrap();
        let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i >> 3) as u8).collect();
        // More parts than there are buffers.
        for chunk in content.chunks(PART) {
            let mut buffer = hashing.buffer();
            buffer[..chunk.len()].copy_from_slice(chunk);
            let part = hashing.part(buffer, chunk.len());
            hashing.add(&part).unwrap();
        }
        hashing.end().unwrap();
        hashing.end().unwrap();
        let digests = [&content[..], &[]].map(|bytes| *kelvin_wire::hash(bytes).as_bytes());
        assert_eq!([hashing.next().unwrap().digest, hashing.next().unwrap().digest], digests);
        assert!(hashing.ready().is_none());
    }
}
