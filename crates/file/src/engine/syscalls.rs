//! One system call a block: read, pread, readv; write, pwrite.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use kelvin_sys::fork_image::resident_around;
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::uring::IoDirection;

use super::{BlockEngine, BlockFile, Flow};
use crate::access::Access;
use crate::block_requests::{BlockRequest, BlockRequests};
use crate::observer::Observer;
use crate::target::Target;
use crate::{Error, Result};

/// Parts of the buffer that readv fills at once.
const READV_PARTS: usize = 4;

/// The system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoCall {
    Read,
    Pread,
    Readv,
    Write,
    Pwrite,
}

impl IoCall {
    fn direction(self) -> IoDirection {
        match self {
            Self::Read | Self::Pread | Self::Readv => IoDirection::Read,
            Self::Write | Self::Pwrite => IoDirection::Write,
        }
    }
}

/// A file, and a buffer for one block.
pub(crate) struct SyscallEngine {
    target: Target,
    pub(crate) file: File,
    call: IoCall,
    pub(crate) buffer: Arena,
    /// Unit to which lengths are rounded up: 1, or that of direct I/O.
    alignment: usize,
    /// Offset of the next call that has none of its own.
    position: u64,
    /// The pages that were asked for.
    pages: PagePolicy,
}

/// A file, with the offset that it has and the one of a call.
struct FileCursor<'a> {
    file: &'a File,
    position: &'a mut u64,
    offset: u64,
}

impl FileCursor<'_> {
    /// Reads or writes at the file's offset, after a seek if that is elsewhere.
    #[inline(always)]
    fn seek_and_move(&mut self, call: impl FnOnce(&File) -> std::io::Result<usize>) -> std::io::Result<usize> {
        if *self.position != self.offset {
            let mut file = self.file;
            file.seek(SeekFrom::Start(self.offset))?;
        }
        let moved = call(self.file)?;
        *self.position = self.offset + moved as u64;
        Ok(moved)
    }
}

impl SyscallEngine {
    pub(crate) fn open(call: IoCall, block_file: BlockFile) -> Result<BlockEngine> {
        let alignment = io_alignment(&block_file)?;
        let BlockFile { target, file, block, pages, .. } = block_file;
        let request = BlockRequest { offset: 0, bytes: block };
        let failed = |error| target.io_error(call.direction(), request, error);
        let buffer = Arena::populated(block, pages).map_err(failed)?;
        Ok(BlockEngine::Syscall(Self { target, file, call, buffer, alignment, position: 0, pages }))
    }

    /// What was done that the settings do not state.
    pub(crate) fn notes(&self) -> Vec<String> {
        missing_huge_pages_note(&self.buffer, self.pages).into_iter().collect()
    }

    /// Makes requests; `prepare` is given the buffer of each before its time begins.
    pub(crate) fn run_requests<O: Observer>(
        &mut self,
        requests: &mut BlockRequests,
        observer: &mut O,
        prepare: impl FnMut(BlockRequest, &mut [u8]),
    ) -> Flow {
        // Each loop is compiled for its call.
        match self.call {
            IoCall::Read => self.run_requests_with(requests, observer, prepare, |cursor, buffer| {
                cursor.seek_and_move(|mut file| file.read(buffer))
            }),
            IoCall::Readv => self.run_requests_with(requests, observer, prepare, readv_block),
            IoCall::Pread => self.run_requests_with(requests, observer, prepare, |cursor, buffer| {
                cursor.file.read_at(buffer, cursor.offset)
            }),
            IoCall::Write => self.run_requests_with(requests, observer, prepare, |cursor, buffer| {
                cursor.seek_and_move(|mut file| file.write(buffer))
            }),
            IoCall::Pwrite => self.run_requests_with(requests, observer, prepare, |cursor, buffer| {
                cursor.file.write_at(buffer, cursor.offset)
            }),
        }
    }

    #[inline(always)]
    fn run_requests_with<O: Observer>(
        &mut self,
        requests: &mut BlockRequests,
        observer: &mut O,
        mut prepare: impl FnMut(BlockRequest, &mut [u8]),
        call: impl Fn(&mut FileCursor<'_>, &mut [u8]) -> std::io::Result<usize>,
    ) -> Flow {
        for request in requests {
            let length = request.bytes.next_multiple_of(self.alignment);
            prepare(request, &mut self.buffer.as_mut_slice()[..length]);
            let stamp = observer.begin();
            self.complete_request(request, length, &call)?;
            let flow = observer.end(stamp, request, &self.buffer.as_slice()[..request.bytes]);
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Moves all of a request, in one call unless the file system moves less at a time.
    #[inline(always)]
    fn complete_request(
        &mut self,
        request: BlockRequest,
        length: usize,
        call: &impl Fn(&mut FileCursor<'_>, &mut [u8]) -> std::io::Result<usize>,
    ) -> Result<()> {
        let mut moved = 0;
        while moved < request.bytes {
            let part = BlockRequest { offset: request.offset + moved as u64, bytes: length - moved };
            let mut cursor = FileCursor { file: &self.file, position: &mut self.position, offset: part.offset };
            match call(&mut cursor, &mut self.buffer.as_mut_slice()[moved..length]) {
                Ok(0) => return Err(self.target.zero_bytes_error(self.call.direction(), part)),
                Ok(count) => moved += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.target.io_error(self.call.direction(), part, error)),
            }
        }
        Ok(())
    }
}

fn readv_block(cursor: &mut FileCursor<'_>, buffer: &mut [u8]) -> std::io::Result<usize> {
    let part = buffer.len().div_ceil(READV_PARTS).max(1);
    let (first, rest) = buffer.split_at_mut(part.min(buffer.len()));
    let (second, rest) = rest.split_at_mut(part.min(rest.len()));
    let (third, fourth) = rest.split_at_mut(part.min(rest.len()));
    let mut parts = [first, second, third, fourth].map(IoSliceMut::new);
    cursor.seek_and_move(|mut file| file.read_vectored(&mut parts))
}

/// That a buffer has no huge page, though they were asked for.
pub(super) fn missing_huge_pages_note(buffer: &Arena, policy: PagePolicy) -> Option<String> {
    let has_none =
        policy == PagePolicy::Huge && resident_around(buffer.address()).is_ok_and(|resident| resident.huge == 0);
    has_none.then(|| "huge pages were asked for, and the kernel gave the buffer base pages".to_owned())
}

/// Unit to which lengths are rounded up: 1, or a file's alignment for direct I/O, which `block` must have.
pub(super) fn io_alignment(&BlockFile { ref target, block, access, .. }: &BlockFile) -> Result<usize> {
    let alignment = match access {
        Access::Buffered => 1,
        Access::Direct => target.alignment()? as usize,
    };
    if block == 0 || !block.is_multiple_of(alignment) {
        let why = format!("{block} bytes cannot go past the page cache: they must be a multiple of {alignment}");
        return Err(Error::setting("block", why));
    }
    Ok(alignment)
}
