//! Files of numbers that neither compress nor repeat, so that no drive and no file system can cheat.

use std::io::{self, Write};
use std::path::Path;

use kelvin_sys::random::{GOLDEN_GAMMA, split_mix};

use crate::atomic_file::DEFAULT_MODE;
use crate::temporary_files::TemporaryFiles;

/// Bytes written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of a number.
const WORD_BYTES: u64 = 8;

/// Numbers of the splitmix64 generator (Steele, Lea, Flood 2014): the same for the same seed.
#[derive(Clone, Debug)]
pub struct RandomData(u64);

impl RandomData {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Fills a buffer with the next numbers; its last bytes, if fewer than eight, are part of one.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        let (words, rest) = buffer.as_chunks_mut::<8>();
        for word in words {
            *word = self.next_word().to_le_bytes();
        }
        if !rest.is_empty() {
            let last = self.next_word().to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Fills a buffer with the random data of a seed at an offset of its file: the same, however the file is divided.
    pub fn fill_at(seed: u64, offset: u64, buffer: &mut [u8]) {
        let mut random = Self(seed.wrapping_add((offset / WORD_BYTES).wrapping_mul(GOLDEN_GAMMA)));
        let word_offset = (offset % WORD_BYTES) as usize;
        let (first, rest) =
            buffer.split_at_mut(buffer.len().min((WORD_BYTES as usize - word_offset) % WORD_BYTES as usize));
        if !first.is_empty() {
            first.copy_from_slice(&random.next_word().to_le_bytes()[word_offset..][..first.len()]);
        }
        random.fill(rest);
    }

    fn next_word(&mut self) -> u64 {
        split_mix(&mut self.0)
    }
}

/// Makes a file of this many bytes of random data: it is there whole, and on its device, or not at all. An existing one of this size is
/// left as it is.
///
/// # Errors
/// Those of writing and renaming; nothing is left behind then.
pub fn write_file(path: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    write_atomically(path, bytes, seed, true)
}

/// Like `write_file`, but it may be in memory only.
///
/// # Errors
/// Those of writing and renaming; nothing is left behind then.
pub fn write_unflushed_file(path: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    write_atomically(path, bytes, seed, false)
}

fn write_atomically(path: &Path, bytes: u64, seed: u64, flushed: bool) -> io::Result<()> {
    if path.metadata().is_ok_and(|metadata| metadata.len() == bytes) {
        return Ok(());
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (mut file, unfinished) = TemporaryFiles::in_swept_directory(directory).create(DEFAULT_MODE)?.into_parts();
    let mut random = RandomData::new(seed);
    let mut chunk = vec![0; CHUNK_BYTES];
    for offset in (0..bytes).step_by(CHUNK_BYTES) {
        if let Some(signal) = kelvin_sys::stop_signals::stop_signal() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, format!("interrupted by {signal}")));
        }
        let part = &mut chunk[..(bytes - offset).min(CHUNK_BYTES as u64) as usize];
        random.fill(part);
        file.write_all(part)?;
    }
    if flushed {
        file.sync_all()?;
    }
    // A duplicate is closed, which fails alike: this one keeps its lock, and so sweeps of others away, until the file has its name.
    file.try_clone().and_then(kelvin_sys::fs::close)?;
    unfinished.persist(path).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_data_is_seeded_and_uniform() {
        let mut first = vec![0; 100_003];
        RandomData::new(1).fill(&mut first);
        let mut second = vec![0; 100_003];
        RandomData::new(1).fill(&mut second);
        assert_eq!(first, second);
        RandomData::new(2).fill(&mut second);
        assert_ne!(first, second);
        let mut counts = [0; 256];
        first.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        // 391 of each expected, deviation 20.
        assert!(counts.iter().all(|count| (300..480).contains(count)));
        // The first number of the generator for seed 0, as published with it.
        let mut word = [0; 8];
        RandomData::new(0).fill(&mut word);
        assert_eq!(u64::from_le_bytes(word), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn any_chunking_gives_same_data() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("random");
        // Longer than one write.
        write_file(&path, 2_500_003, 9).unwrap();
        let content = std::fs::read(&path).unwrap();
        for part in [1usize, 7, 8, 13, 4096, 1_000_001, 3_000_000] {
            let bytes = content.len().min(1000 * part);
            let mut data = vec![0; bytes];
            for (number, block) in data.chunks_mut(part).enumerate() {
                RandomData::fill_at(9, (number * part) as u64, block);
            }
            assert!(data == content[..bytes], "parts of {part}");
        }
    }

    #[test]
    fn interrupted_write_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("random");
        write_file(&path, 3_000_001, 5).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 3_000_001);
        let modified = path.metadata().unwrap().modified().unwrap();
        write_file(&path, 3_000_001, 5).unwrap();
        assert_eq!(path.metadata().unwrap().modified().unwrap(), modified);
        assert!(write_file(&directory.path().join("no/such"), 1, 1).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
