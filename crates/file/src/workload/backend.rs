//! The calls of a job, or its ring: requests go in by the number of their buffer, and come out when they are done.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::uring::{FileRing, IoDirection, RingSetup};

use super::{Flush, JobEngine};
use crate::engine::uring::unsupported_error;
use crate::{Error, Result};

/// A request that is done: the number of its buffer, and the bytes that were moved.
pub(super) type Completion = (usize, std::io::Result<usize>);

/// What requests are made by.
pub(super) enum Backend {
    /// A call that returns when the request is done.
    Calls(CallBackend),
    /// A ring.
    Ring(Box<FileRing>),
}

/// One request at a time.
pub(super) struct CallBackend {
    file: File,
    /// The offset of the file, where calls use it.
    position: Option<u64>,
    buffer: Arena,
    /// The request that was made and not reported.
    done: Option<std::io::Result<usize>>,
}

impl CallBackend {
    /// Reads or writes these bytes of the buffer.
    fn transfer(&mut self, direction: IoDirection, offset: u64, range: Range<usize>) -> std::io::Result<usize> {
        let buffer = &mut self.buffer.as_mut_slice()[range];
        let Some(position) = &mut self.position else {
            return match direction {
                IoDirection::Read => self.file.read_at(buffer, offset),
                IoDirection::Write => self.file.write_at(buffer, offset),
            };
        };
        if *position != offset {
            self.file.seek(SeekFrom::Start(offset))?;
        }
        let moved = match direction {
            IoDirection::Read => self.file.read(buffer),
            IoDirection::Write => self.file.write(buffer),
        };
        *position = offset + *moved.as_ref().unwrap_or(&0) as u64;
        moved
    }
}

impl Backend {
    /// By this engine on a file, with `depth` buffers of `block` bytes.
    pub(super) fn open(engine: JobEngine, file: File, (depth, block): (u32, usize)) -> Result<Self> {
        let calls = |position| {
            let buffer = Arena::populated(block, PagePolicy::Base)
                .map_err(|error| Error::setting("bs", format!("no memory for a block of {block} bytes: {error}")))?;
            Ok(CallBackend { file: file.try_clone().map_err(Error::ThreadStart)?, position, buffer, done: None })
        };
        match engine {
            JobEngine::Seeking => calls(Some(0)).map(Self::Calls),
            JobEngine::Positioned => calls(None).map(Self::Calls),
            JobEngine::Ring | JobEngine::PolledRing => {
                let is_polled = engine == JobEngine::PolledRing;
                let setup = RingSetup { depth, block, is_registered: false, is_polled, pages: PagePolicy::Base };
                let ring = FileRing::new(file, setup).map_err(|error| unsupported_error(&error))?;
                Ok(Self::Ring(Box::new(ring)))
            }
        }
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        match self {
            Self::Calls(calls) => &calls.file,
            Self::Ring(ring) => ring.file(),
        }
    }

    /// A buffer that is not in use.
    pub(super) fn buffer_mut(&mut self, slot: usize) -> &mut [u8] {
        match self {
            Self::Calls(calls) => calls.buffer.as_mut_slice(),
            Self::Ring(ring) => ring.buffer_mut(slot),
        }
    }

    /// Makes a request for these bytes of a buffer; `offset` is that of the first in the file.
    pub(super) fn request(&mut self, direction: IoDirection, slot: usize, offset: u64, range: Range<usize>) {
        match self {
            Self::Calls(calls) => calls.done = Some(calls.transfer(direction, offset, range)),
            Self::Ring(ring) => ring.queue(direction, slot, offset, range),
        }
    }

    /// Makes a request to flush the file.
    pub(super) fn request_flush(&mut self, slot: usize, flush: Flush) {
        match self {
            Self::Calls(calls) => calls.done = Some(flush.carry_out(&calls.file).map(|()| 0)),
            Self::Ring(ring) => ring.queue_flush(slot, flush == Flush::Data),
        }
    }

    /// Submits what is queued, if it is at least this much. Waiting submits all.
    pub(super) fn submit(&mut self, least: usize) -> Result<()> {
        match self {
            Self::Ring(ring) if ring.queued() >= least.max(1) => ring.wait(0).map_err(ring_error),
            _ => Ok(()),
        }
    }

    /// Waits until a request is done, or this time is over.
    pub(super) fn wait(&mut self, limit: Option<Duration>) -> Result<()> {
        match (self, limit) {
            (Self::Calls(_), _) => Ok(()),
            (Self::Ring(ring), None) => ring.wait(1).map_err(ring_error),
            (Self::Ring(ring), Some(limit)) => ring.wait_at_most(limit).map_err(ring_error),
        }
    }

    /// The next request that is done.
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        match self {
            Self::Calls(calls) => calls.done.take().map(|moved| (0, moved)),
            Self::Ring(ring) => ring.next_completion(),
        }
    }
}

fn ring_error(error: std::io::Error) -> Error {
    Error::UringUnavailable(error.to_string())
}
