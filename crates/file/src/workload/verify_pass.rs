//! Reads back what a job wrote, and compares each block with what was written there last.

use std::ops::Range;
use std::os::unix::fs::FileExt;

use kelvin_sys::mapping::drop_cached;
use kelvin_sys::memory::{Arena, PagePolicy};

use super::verified_block;
use super::{Job, Verification, job_files};
use crate::error::check_stop_signal;
use crate::target::Target;
use crate::{Error, Result};

/// Mismatches that are named; all are counted.
pub(super) const MAX_NAMED_MISMATCHES: usize = 5;
/// Blocks that a job can keep account of: 256 MiB.
const MAX_BLOCKS: u64 = 1 << 26;

/// How often each block of a job's part of its file was written.
#[derive(Debug)]
pub(super) struct WrittenBlocks {
    region: Range<u64>,
    block: u64,
    passes: Vec<u32>,
}

impl WrittenBlocks {
    /// None of a part of a file.
    pub(super) fn new(region: Range<u64>, block: usize) -> Result<Self> {
        let (block, blocks) = (block as u64, (region.end - region.start).div_ceil(block as u64));
        if blocks > MAX_BLOCKS {
            return Err(Error::setting(
                "verify",
                format!("{blocks} blocks are too many: at most {MAX_BLOCKS} are possible"),
            ));
        }
        Ok(Self { region, block, passes: vec![0; blocks as usize] })
    }

    /// The block at this offset is written once more: how often that is.
    pub(super) fn next_pass(&mut self, offset: u64) -> u64 {
        let passes = &mut self.passes[((offset - self.region.start) / self.block) as usize];
        *passes = passes.wrapping_add(1);
        u64::from(*passes)
    }

    /// Reads all that was written, from the device where the kernel lets go of it.
    pub(super) fn verify(&self, job: &Job, target: &Target) -> Result<Verification> {
        let file = job_files::open(job, target)?;
        file.sync_all().map_err(|error| Error::call("flush", target.path(), error))?;
        drop_cached(&file, target.bytes() as usize)
            .map_err(|error| Error::call("drop from memory", target.path(), error))?;
        let mut buffer = Arena::populated(self.block as usize, PagePolicy::Base)
            .map_err(|error| target.read_error(self.region.start, self.block as usize, error))?;
        let mut verification = Verification::default();
        let written = (0u64..).zip(&self.passes).filter(|&(_, &passes)| passes > 0);
        for (number, &passes) in written {
            if number.is_multiple_of(64) {
                check_stop_signal()?;
            }
            let offset = self.region.start + number * self.block;
            let block = buffer.as_mut_slice();
            file.read_exact_at(block, offset).map_err(|error| target.read_error(offset, block.len(), error))?;
            verification.record(offset, verified_block::check(offset, Some(u64::from(passes)), block));
        }
        Ok(verification)
    }
}
