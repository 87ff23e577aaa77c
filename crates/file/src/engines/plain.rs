//! One system call a block: read, pread, readv.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use kelvin_sys::memory::Arena;

use crate::engine::Engine;
use crate::observe::Observer;
use crate::requests::{Request, Requests};
use crate::target::Target;
use crate::{Error, Result};

/// Parts of the buffer that readv fills at once.
const PARTS: usize = 4;

/// A file, and a buffer for one block.
#[derive(Debug)]
pub(crate) struct Plain {
    target: Target,
    file: File,
    engine: Engine,
    buffer: Arena,
    /// What lengths are rounded up to: 1, or what direct I/O asks for.
    alignment: usize,
    /// Where calls that have no offset read next.
    position: u64,
}

/// Where a call reads.
struct At<'a> {
    file: &'a File,
    position: &'a mut u64,
    offset: u64,
}

impl Plain {
    pub(crate) fn new(engine: Engine, target: Target, file: File, block: usize, direct: bool) -> Result<Self> {
        let alignment = if direct { aligned(&target, block)? } else { 1 };
        let buffer = Arena::for_files(block).map_err(|error| target.read_error(0, block, error))?;
        Ok(Self { target, file, engine, buffer, alignment, position: 0 })
    }

    pub(crate) fn read<O: Observer>(&mut self, requests: &mut Requests, observer: &mut O) -> Result<()> {
        // Each loop is compiled for its call.
        match self.engine {
            Engine::Read => self.read_by(requests, observer, by_read),
            Engine::Readv => self.read_by(requests, observer, by_readv),
            _ => self.read_by(requests, observer, by_pread),
        }
    }

    #[inline(always)]
    fn read_by<O: Observer>(
        &mut self,
        requests: &mut Requests,
        observer: &mut O,
        call: impl Fn(&mut At<'_>, &mut [u8]) -> std::io::Result<usize>,
    ) -> Result<()> {
        for request in requests {
            let stamp = observer.begin();
            self.fill(request, &call)?;
            if observer.end(stamp, request, &self.buffer.as_slice()[..request.bytes]).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Reads all of a request, in one call unless the file system gives less at a time.
    #[inline(always)]
    fn fill(
        &mut self,
        request: Request,
        call: &impl Fn(&mut At<'_>, &mut [u8]) -> std::io::Result<usize>,
    ) -> Result<()> {
        let asked = request.bytes.next_multiple_of(self.alignment);
        let mut filled = 0;
        while filled < request.bytes {
            let offset = request.offset + filled as u64;
            let mut at = At { file: &self.file, position: &mut self.position, offset };
            match call(&mut at, &mut self.buffer.as_mut_slice()[filled..asked]) {
                Ok(0) => return Err(self.target.truncated(offset)),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.target.read_error(offset, asked - filled, error)),
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn by_pread(at: &mut At<'_>, buffer: &mut [u8]) -> std::io::Result<usize> {
    at.file.read_at(buffer, at.offset)
}

fn by_read(at: &mut At<'_>, buffer: &mut [u8]) -> std::io::Result<usize> {
    in_place(at, |mut file| file.read(buffer))
}

fn by_readv(at: &mut At<'_>, buffer: &mut [u8]) -> std::io::Result<usize> {
    let part = buffer.len().div_ceil(PARTS).max(1);
    let (first, rest) = buffer.split_at_mut(part.min(buffer.len()));
    let (second, rest) = rest.split_at_mut(part.min(rest.len()));
    let (third, fourth) = rest.split_at_mut(part.min(rest.len()));
    let mut parts = [first, second, third, fourth].map(IoSliceMut::new);
    in_place(at, |mut file| file.read_vectored(&mut parts))
}

/// Reads where the file is, after going there if it is elsewhere.
#[inline(always)]
fn in_place(at: &mut At<'_>, read: impl FnOnce(&File) -> std::io::Result<usize>) -> std::io::Result<usize> {
    if *at.position != at.offset {
        let mut file = at.file;
        file.seek(SeekFrom::Start(at.offset))?;
    }
    let read = read(at.file)?;
    *at.position = at.offset + read as u64;
    Ok(read)
}

/// The alignment that direct I/O on a file asks for, which `block` must have.
pub(super) fn aligned(target: &Target, block: usize) -> Result<usize> {
    let alignment = target.alignment()? as usize;
    if block == 0 || !block.is_multiple_of(alignment) {
        return Err(Error::Settings(format!(
            "a block of {block} bytes cannot be read past the page cache: it must be a multiple of {alignment}"
        )));
    }
    Ok(alignment)
}
