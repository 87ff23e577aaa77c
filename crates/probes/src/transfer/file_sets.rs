//! The files that are transferred: of the sizes of a published study, made once a run, and what arrived compared with them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kelvin_core::catalogue::transfer::TransferFiles;
use kelvin_file::cache::{PageCacheState, set_cache_state};
use kelvin_file::{Target, random_data};
use kelvin_harness::{Bench, ProbeError};
use kelvin_sys::fs::kind;
use kelvin_transfer::wire::{Hash, Hasher};

use crate::file::test_files::{probe_error, written_back_bytes};
use crate::reasons::{OrFileFailure, ProbeResult, fail_if, skip_if};
use crate::room::has_room;

/// Free space that the scratch directory must have, as a multiple of a set: the files, what arrives, and as much again.
const FREE_SPACE_FACTOR: u64 = 3;
/// Seed of the first file of a set.
const FIRST_SEED: u64 = 500;

/// The bytes of each file of a set: as equal as whole bytes allow, the longer ones first.
pub(super) fn file_lengths(set: TransferFiles) -> Vec<u64> {
    let (files, bytes) = set.count_and_bytes();
    (0..files).map(|number| bytes / files + u64::from(number < bytes % files)).collect()
}

/// A set of files to be sent.
pub(super) struct ReadyFileSet {
    /// Where they are.
    pub paths: Vec<PathBuf>,
    /// Bytes of all of them.
    pub bytes: u64,
    digests: Vec<Hash>,
}

impl ReadyFileSet {
    /// Finds it in the scratch directory, where the first round makes it.
    pub(super) fn open(bench: &Bench<'_>, set: TransferFiles) -> ProbeResult<Self> {
        let directory = bench.scratch().join(format!("kelvin-transfer-{}", set.name()));
        let lengths = file_lengths(set);
        let paths: Vec<PathBuf> = (0..lengths.len()).map(|number| directory.join(format!("file-{number}"))).collect();
        let digest_file = directory.join("digests");
        if !digest_file.exists() {
            create_files(bench, &directory, &paths, &lengths)?;
            let digests: ProbeResult<Vec<String>> =
                paths.iter().map(|path| Ok(digest(path)?.to_hex().to_string())).collect();
            fs::write(&digest_file, digests?.join("\n")).or_file_failure("write", &digest_file)?;
        }
        let text = fs::read_to_string(&digest_file).or_file_failure("read", &digest_file)?;
        let digests = text.lines().map(Hash::from_hex).collect::<Result<Vec<Hash>, _>>();
        let digests =
            digests.map_err(|_| ProbeError::fail(format!("{} does not hold digests", digest_file.display())))?;
        Ok(Self { paths, bytes: lengths.iter().sum(), digests })
    }

    /// Has it in memory, or not in memory.
    pub(super) fn set_cache_state(&self, state: PageCacheState) -> ProbeResult {
        let in_memory = |path| Ok::<_, ProbeError>(kind(path)?.is_in_memory());
        for path in &self.paths {
            let reason = "needs a scratch directory on a device: files here live in memory; choose another by --dir";
            skip_if(state == PageCacheState::Uncached && in_memory(path)?, reason)?;
            let target = Target::find(path).map_err(|error| ProbeError::fail(error.to_string()))?;
            set_cache_state(&target, state).map_err(|error| ProbeError::fail(error.to_string()))?;
        }
        Ok(())
    }

    /// Compares what has arrived in a directory with it, and removes it.
    pub(super) fn compare(&self, directory: &Path) -> ProbeResult {
        for (source, expected) in self.paths.iter().zip(&self.digests) {
            let received = directory.join(source.file_name().unwrap_or_default());
            let reason = format!("{} arrived with other bytes than were sent", received.display());
            fail_if(digest(&received)? != *expected, reason)?;
            fs::remove_file(&received).or_file_failure("remove", &received)?;
        }
        let extra_files = fs::read_dir(directory).or_file_failure("read", directory)?.count();
        fail_if(extra_files > 0, format!("{extra_files} files arrived that were not sent"))
    }

    /// Bytes of what has arrived in a directory that have been written to its device by now.
    pub(super) fn written_back_bytes(&self, directory: &Path) -> ProbeResult<u64> {
        if kind(directory)?.is_in_memory() {
            return Ok(0);
        }
        let written_bytes = |source: &PathBuf| {
            let received = directory.join(source.file_name().unwrap_or_default());
            written_back_bytes(&Target::find(&received).map_err(probe_error)?)
        };
        self.paths.iter().map(written_bytes).sum()
    }
}

fn create_files(bench: &Bench<'_>, directory: &Path, paths: &[PathBuf], lengths: &[u64]) -> ProbeResult {
    let bytes: u64 = lengths.iter().sum();
    has_room(bench.scratch(), FREE_SPACE_FACTOR * bytes)?;
    bench.reserve_write(bytes)?;
    fs::create_dir_all(directory).or_file_failure("make", directory)?;
    for (number, (path, &length)) in paths.iter().zip(lengths).enumerate() {
        random_data::write_file(path, length, FIRST_SEED + number as u64).or_file_failure("write", path)?;
    }
    Ok(())
}

fn digest(path: &Path) -> ProbeResult<Hash> {
    let mut hasher = Hasher::new();
    let outcome = File::open(path).and_then(|file| hasher.update_reader(file).map(drop));
    outcome.or_file_failure("read", path)?;
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_published_sizes() {
        let sum = |set| file_lengths(set).iter().sum::<u64>();
        assert_eq!(
            TransferFiles::ALL.iter().map(|&set| sum(set)).collect::<Vec<_>>(),
            [24_114, 12_022_885, 364_344_508]
        );
        assert_eq!(file_lengths(TransferFiles::Small), [2412, 2412, 2412, 2412, 2411, 2411, 2411, 2411, 2411, 2411]);
        assert_eq!(file_lengths(TransferFiles::Large), [182_172_254; 2]);
    }
}
