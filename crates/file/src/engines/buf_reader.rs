//! Rust's `BufReader`.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};

use crate::Result;
use crate::block_requests::BlockRequests;
use crate::observer::Observer;
use crate::target::Target;

/// A `BufReader`, and a buffer for one block beside the reader's own.
#[derive(Debug)]
pub(crate) struct BufReaderEngine {
    target: Target,
    reader: BufReader<File>,
    buffer: Vec<u8>,
    position: u64,
}

impl BufReaderEngine {
    pub(crate) fn new(target: Target, file: File, block: usize) -> Self {
        Self { target, reader: BufReader::new(file), buffer: vec![0; block], position: 0 }
    }

    pub(crate) fn read<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Result<()> {
        for request in requests {
            let stamp = observer.begin();
            let failed = |error| self.target.read_error(request.offset, request.bytes, error);
            if self.position != request.offset {
                self.reader.seek(SeekFrom::Start(request.offset)).map_err(failed)?;
            }
            match self.reader.read_exact(&mut self.buffer[..request.bytes]) {
                Ok(()) => self.position = request.offset + request.bytes as u64,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(self.target.truncated(request.offset));
                }
                Err(error) => return Err(failed(error)),
            }
            if observer.end(stamp, request, &self.buffer[..request.bytes]).is_break() {
                break;
            }
        }
        Ok(())
    }
}
