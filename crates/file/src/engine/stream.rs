//! Reading through a buffer in user space: fread(3) of the C library, or Rust's `BufReader`.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Result as IoResult, Seek, SeekFrom};
use std::ops::ControlFlow;

use kelvin_sys::stdio::CFile;

use super::Flow;
use crate::block_requests::BlockRequests;
use crate::observer::Observer;
use crate::target::Target;

/// A file with a buffer of its own.
pub(crate) trait Stream {
    /// Goes to an offset.
    fn seek_to(&mut self, offset: u64) -> IoResult<()>;

    /// Fills a block, as far as the file goes.
    fn read_block(&mut self, block: &mut [u8]) -> IoResult<usize>;
}

impl Stream for CFile {
    fn seek_to(&mut self, offset: u64) -> IoResult<()> {
        self.seek(offset)
    }

    #[inline]
    fn read_block(&mut self, block: &mut [u8]) -> IoResult<usize> {
        self.read(block)
    }
}

impl Stream for BufReader<File> {
    fn seek_to(&mut self, offset: u64) -> IoResult<()> {
        self.seek(SeekFrom::Start(offset)).map(drop)
    }

    #[inline]
    fn read_block(&mut self, block: &mut [u8]) -> IoResult<usize> {
        match self.read_exact(block) {
            Ok(()) => Ok(block.len()),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// A stream, and a buffer for one block besides the stream's own.
#[derive(Debug)]
pub(crate) struct StreamEngine<S> {
    target: Target,
    stream: S,
    buffer: Vec<u8>,
    position: u64,
}

impl<S: Stream> StreamEngine<S> {
    pub(crate) fn new(target: Target, stream: S, block: usize) -> Self {
        Self { target, stream, buffer: vec![0; block], position: 0 }
    }

    pub(crate) fn read<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Flow {
        for request in requests {
            let stamp = observer.begin();
            let failed = |error| self.target.read_error(request.offset, request.bytes, error);
            if self.position != request.offset {
                self.stream.seek_to(request.offset).map_err(failed)?;
            }
            let read = self.stream.read_block(&mut self.buffer[..request.bytes]).map_err(failed)?;
            self.position = request.offset + read as u64;
            if read < request.bytes {
                return Err(self.target.truncated_error(self.position));
            }
            let flow = observer.end(stamp, request, &self.buffer[..request.bytes]);
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
