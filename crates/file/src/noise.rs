//! Files of numbers that neither compress nor repeat, so that no drive and no file system can cheat.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kelvin_sys::random::{STEP, split_mix};

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// Bytes of a number.
const WORD: u64 = 8;
/// Numbers of the splitmix64 generator (Steele, Lea, Flood 2014): the same for the same seed.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Fills a buffer with the next numbers; its last bytes, if fewer than eight, are part of one.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        let (words, rest) = buffer.as_chunks_mut::<8>();
        for word in words {
            *word = self.number().to_le_bytes();
        }
        if !rest.is_empty() {
            let last = self.number().to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Fills a buffer with a file's noise of a seed at an offset: the same, in whatever parts the file is made.
    pub fn fill_at(seed: u64, offset: u64, buffer: &mut [u8]) {
        let mut noise = Self(seed.wrapping_add((offset / WORD).wrapping_mul(STEP)));
        let within = (offset % WORD) as usize;
        let (first, rest) = buffer.split_at_mut(buffer.len().min((WORD as usize - within) % WORD as usize));
        if !first.is_empty() {
            first.copy_from_slice(&noise.number().to_le_bytes()[within..][..first.len()]);
        }
        noise.fill(rest);
    }

    fn number(&mut self) -> u64 {
        split_mix(&mut self.0)
    }
}

/// Makes a file of so many bytes of noise: it is there whole, and on its device, or not at all. An existing one of this size is
/// left as it is.
///
/// # Errors
/// Those of writing and renaming; nothing is left behind then.
pub fn file(path: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    whole(path, bytes, seed, true)
}

/// The same, but it may be in memory only.
///
/// # Errors
/// Those of writing and renaming; nothing is left behind then.
pub fn afloat(path: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    whole(path, bytes, seed, false)
}

fn whole(path: &Path, bytes: u64, seed: u64, flushed: bool) -> io::Result<()> {
    if path.metadata().is_ok_and(|found| found.len() == bytes) {
        return Ok(());
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let result = write(&unfinished, bytes, seed)
        .and_then(|file| if flushed { file.sync_all().map(|()| file) } else { Ok(file) })
        .and_then(kelvin_sys::fs::close)
        .and_then(|()| std::fs::rename(&unfinished, path));
    if result.is_err() {
        // This error says more than a failure to tidy up after it.
        let _ = std::fs::remove_file(&unfinished);
    }
    result
}

fn write(path: &Path, bytes: u64, seed: u64) -> io::Result<File> {
    let mut file = File::create_new(path)?;
    let mut noise = Noise::new(seed);
    let mut chunk = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        if let Some(signal) = kelvin_sys::interrupt::requested() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, format!("interrupted by {signal}")));
        }
        let part = &mut chunk[..left.min(CHUNK as u64) as usize];
        noise.fill(part);
        file.write_all(part)?;
        left -= part.len() as u64;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_what_its_seed_says_and_has_every_byte_alike() {
        let mut first = vec![0; 100_003];
        Noise::new(1).fill(&mut first);
        let mut again = vec![0; 100_003];
        Noise::new(1).fill(&mut again);
        assert_eq!(first, again);
        Noise::new(2).fill(&mut again);
        assert_ne!(first, again);
        let mut counts = [0; 256];
        first.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        // 391 of each expected, deviation 20.
        assert!(counts.iter().all(|count| (300..480).contains(count)));
        // The first number of the generator for seed 0, as published with it.
        let mut word = [0; 8];
        Noise::new(0).fill(&mut word);
        assert_eq!(u64::from_le_bytes(word), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn parts_of_any_size_make_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("noise");
        // Longer than one write.
        file(&path, 2_500_003, 9).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for part in [1usize, 7, 8, 13, 4096, 1_000_001, 3_000_000] {
            let bytes = whole.len().min(1000 * part);
            let mut made = vec![0; bytes];
            for (number, block) in made.chunks_mut(part).enumerate() {
                Noise::fill_at(9, (number * part) as u64, block);
            }
            assert!(made == whole[..bytes], "parts of {part}");
        }
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("noise");
        file(&path, 3_000_001, 5).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 3_000_001);
        let modified = path.metadata().unwrap().modified().unwrap();
        file(&path, 3_000_001, 5).unwrap();
        assert_eq!(path.metadata().unwrap().modified().unwrap(), modified);
        assert!(file(&directory.path().join("no/such"), 1, 1).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
