//! Where a file has data and where it has holes, found while it is copied.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::target::Target;
use crate::{Error, Result};

/// The unit of `st_blocks` (stat(3type)).
const SECTOR_BYTES: u64 = 512;

/// What became of the holes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// Holes of the source, which the target has as well.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the file has fewer blocks than bytes, and the file system shows no hole: it compresses, or does not report it.
    pub is_layout_unknown: bool,
}

/// Finds the parts of a file that have data, one after another (lseek(2): SEEK_DATA, SEEK_HOLE).
pub(super) struct DataRanges<'a> {
    source: &'a Target,
    /// A descriptor of its own: seeking moves its offset.
    file: &'a File,
    /// Whether it has fewer blocks than bytes: others have no holes to look for.
    may_have_holes: bool,
    position: u64,
    pub holes: Holes,
    /// Whether what was found last is a hole at the end.
    pub ends_in_hole: bool,
    /// Calls of lseek.
    pub seeks: u64,
}

impl<'a> DataRanges<'a> {
    pub fn new(source: &'a Target, file: &'a File) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| Error::call("look at", source.path(), error))?;
        let may_have_holes = metadata.blocks().saturating_mul(SECTOR_BYTES) < source.bytes();
        Ok(Self { source, file, may_have_holes, position: 0, holes: Holes::default(), ends_in_hole: false, seeks: 0 })
    }

    /// The next part that has data, none at the end.
    pub fn next_range(&mut self) -> Result<Option<Range<u64>>> {
        let end = self.source.bytes();
        if self.position >= end {
            return Ok(None);
        }
        self.ends_in_hole = false;
        if !self.may_have_holes {
            return Ok(Some(std::mem::replace(&mut self.position, end)..end));
        }
        // Beyond the last data there is a hole.
        let data = self.seek(SeekFrom::Data(self.position))?.unwrap_or(end).min(end);
        if data > self.position {
            self.holes.count += 1;
            self.holes.bytes += data - self.position;
        }
        self.position = data;
        if data == end {
            self.check_length()?;
            self.ends_in_hole = true;
            return Ok(None);
        }
        let hole = self.seek(SeekFrom::Hole(data))?.unwrap_or(end).min(end);
        self.holes.is_layout_unknown = self.holes.count == 0 && hole == end;
        self.position = hole;
        Ok(Some(data..hole))
    }

    /// That behind the last data there is a hole, and not the end of a file that became shorter.
    fn check_length(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(|error| Error::call("look at", self.source.path(), error))?;
        if metadata.len() < self.source.bytes() { Err(self.source.truncated_error(metadata.len())) } else { Ok(()) }
    }

    /// None where there is nothing of the kind.
    fn seek(&mut self, whence: SeekFrom) -> Result<Option<u64>> {
        self.seeks += 1;
        match rustix::fs::seek(self.file, whence) {
            Ok(offset) => Ok(Some(offset)),
            Err(Errno::NXIO) => Ok(None),
            // A file system without the call has data everywhere.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => match whence {
                SeekFrom::Data(offset) => Ok(Some(offset)),
                _ => Ok(None),
            },
            Err(error) => Err(Error::call("find the holes of", self.source.path(), error.into())),
        }
    }
}
