//! The C library's fread.

use std::fs::File;

use kelvin_sys::stdio::CFile;

use crate::Result;
use crate::block_requests::BlockRequests;
use crate::observer::Observer;
use crate::target::Target;

/// A stream of the C library, and a buffer for one block beside the library's own.
#[derive(Debug)]
pub(crate) struct StdioEngine {
    target: Target,
    stream: CFile,
    buffer: Vec<u8>,
    position: u64,
}

impl StdioEngine {
    pub(crate) fn new(target: Target, file: File, block: usize) -> Result<Self> {
        let stream = CFile::new(file).map_err(|error| target.read_error(0, block, error))?;
        Ok(Self { target, stream, buffer: vec![0; block], position: 0 })
    }

    pub(crate) fn read<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Result<()> {
        for request in requests {
            let stamp = observer.begin();
            let failed = |error| self.target.read_error(request.offset, request.bytes, error);
            if self.position != request.offset {
                self.stream.seek(request.offset).map_err(failed)?;
            }
            let read = self.stream.read(&mut self.buffer[..request.bytes]).map_err(failed)?;
            self.position = request.offset + read as u64;
            if read < request.bytes {
                return Err(self.target.truncated(self.position));
            }
            if observer.end(stamp, request, &self.buffer[..request.bytes]).is_break() {
                break;
            }
        }
        Ok(())
    }
}
