//! A mapping of the file, copied out of block by block, or read in place.

use std::ops::{ControlFlow, Range};

use kelvin_sys::mapping::{FileMapping, is_unmappable};
use kelvin_sys::sigbus::SigbusGuard;

use super::{BlockFile, Flow};
use crate::block_requests::{BlockOrder, BlockRequest, BlockRequests};
use crate::observer::Observer;
use crate::target::Target;
use crate::{Error, Result};

/// Bytes mapped ahead at a time: a huge page, of which the kernel may map a file's large folios at once.
const POPULATE_WINDOW: usize = 2 << 20;

/// EFAULT of errno(3) on Linux: nothing backs a part of the mapping.
const EFAULT: i32 = 14;

/// A mapping, and a buffer for one block.
#[derive(Debug)]
pub(crate) struct MmapEngine {
    target: Target,
    /// Guards the mapping, and so is dropped before it. Both are missing for an empty file, which has no mapping.
    mapping: Option<(SigbusGuard, FileMapping)>,
    /// Empty if blocks are read in place.
    buffer: Vec<u8>,
    /// Whether pages are mapped ahead.
    populate: bool,
    /// The part that was mapped ahead last.
    populated_range: Range<usize>,
    /// The bounds of all requests since the mapping was made or unmapped.
    requested_range: Range<usize>,
}

impl MmapEngine {
    /// A mapping with its order given to the kernel, and its blocks copied; blocks of no bytes are read in place.
    pub(crate) fn new(block_file: BlockFile, order: BlockOrder, populate: bool) -> Result<Self> {
        let BlockFile { target, file, block, .. } = block_file;
        let failed = |error| Error::call("map", target.path(), error);
        let bytes = usize::try_from(target.bytes()).map_err(|_| failed(std::io::ErrorKind::FileTooLarge.into()))?;
        let guarded_mapping = match bytes {
            0 => None,
            _ => {
                let mapping = FileMapping::whole(&file, bytes).map_err(|error| match is_unmappable(&error) {
                    true => Error::MmapUnsupported { path: target.path().to_owned() },
                    false => failed(error),
                })?;
                mapping.advise_order(order == BlockOrder::Sequential).map_err(failed)?;
                Some((SigbusGuard::over(mapping.address(), mapping.len()).map_err(failed)?, mapping))
            }
        };
        Ok(Self {
            target,
            mapping: guarded_mapping,
            buffer: vec![0; block],
            populate,
            populated_range: 0..0,
            requested_range: 0..0,
        })
    }

    pub(crate) fn unmap_pages(&mut self) -> Result<()> {
        self.populated_range = 0..0;
        let requested_range = std::mem::take(&mut self.requested_range);
        let Some((_, mapping)) = self.mapping.as_ref().filter(|_| !requested_range.is_empty()) else { return Ok(()) };
        // Whole windows: more may have been mapped than requested.
        let start = requested_range.start / POPULATE_WINDOW * POPULATE_WINDOW;
        let end = requested_range.end.next_multiple_of(POPULATE_WINDOW).min(mapping.len());
        mapping
            .unmap_pages(start, end - start)
            .map_err(|error| Error::call("unmap the pages of", self.target.path(), error))
    }

    pub(crate) fn read<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Flow {
        let Some((guard, mapping)) = &self.mapping else { return Ok(ControlFlow::Continue(())) };
        let (start, end) = (requests.range().start as usize, requests.range().end as usize);
        self.requested_range = match self.requested_range.is_empty() {
            true => start..end,
            false => self.requested_range.start.min(start)..self.requested_range.end.max(end),
        };
        for request in requests {
            let stamp = observer.begin();
            let offset = request.offset as usize;
            let end = offset + request.bytes;
            if self.populate && !(self.populated_range.start <= offset && end <= self.populated_range.end) {
                let start = offset / POPULATE_WINDOW * POPULATE_WINDOW;
                let populate_end = end.next_multiple_of(POPULATE_WINDOW).min(mapping.len());
                match mapping.populate(start, populate_end - start) {
                    Ok(()) => self.populated_range = start..populate_end,
                    Err(error) if error.raw_os_error() == Some(EFAULT) => {
                        return Err(truncated_error(&self.target, request));
                    }
                    Err(error) => return Err(self.target.read_error(request.offset, populate_end - start, error)),
                }
            }
            let block = mapping.slice(offset, request.bytes);
            let flow = if self.buffer.is_empty() {
                observer.end(stamp, request, block)
            } else {
                let copy = &mut self.buffer[..request.bytes];
                copy.copy_from_slice(block);
                observer.end(stamp, request, copy)
            };
            if guard.has_faulted() {
                return Err(truncated_error(&self.target, request));
            }
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Why pages of a mapping are missing: the file has become shorter, or its device failed to read them. The kernel does not
/// distinguish the two.
fn truncated_error(target: &Target, request: BlockRequest) -> Error {
    if std::fs::metadata(target.path()).is_ok_and(|metadata| metadata.len() < target.bytes()) {
        return target.truncated_error(request.offset);
    }
    let why = std::io::Error::other("Input/output error: its pages could not be read");
    target.read_error(request.offset, request.bytes, why)
}
