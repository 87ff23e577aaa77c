//! The files that are asked for: noise of one size each.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kelvin_file::cache::{PageCacheState, set_cache_state};
use kelvin_file::{Target, random_data};
use kelvin_sys::fs::space;

use crate::sweep::error::{Error, Result};

/// Share of the free room of a file system that the files may take.
const FREE_SPACE_DIVISOR: u64 = 2;
/// Fewest files among which a random one is another one most of the time.
const MIN_FILES: u64 = 16;
/// Seed of the first file.
const SEED: u64 = 1400;

/// The files that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSetSpec {
    /// How many, where there is room.
    pub count: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// Most bytes of all sets of them.
    pub limit: u64,
}

/// Files that exist.
#[derive(Clone, Debug)]
pub(crate) struct FileSet {
    pub directory: PathBuf,
    pub count: u64,
    pub bytes: u64,
}

impl FileSetSpec {
    /// How many of them fit so many times into so many free bytes.
    fn fit_count(self, free: u64, sets: u64) -> u64 {
        let bytes = self.bytes.max(1) * sets.max(1);
        self.count.min(self.limit / bytes).min(free / FREE_SPACE_DIVISOR / bytes)
    }

    /// As many of them as there is room for in a directory, so many times.
    ///
    /// # Errors
    /// Too little room; what the file system says.
    pub fn fit(self, directory: &Path, sets: usize) -> Result<Self> {
        let failed = |source| Error::Files { directory: directory.to_owned(), source };
        let count = self.fit_count(space(directory).map_err(failed)?.available_bytes, sets as u64);
        let least = MIN_FILES.min(self.count);
        if count < least {
            return Err(Error::TooLittleSpace {
                directory: directory.to_owned(),
                bytes: self.bytes,
                files: count,
                least,
            });
        }
        Ok(Self { count, ..self })
    }
}

impl FileSet {
    /// Makes the files.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(directory: &Path, wanted: FileSetSpec) -> Result<Self> {
        let set = Self { directory: directory.to_owned(), count: wanted.count, bytes: wanted.bytes };
        for (made, path) in (0..).zip(set.paths()) {
            if let Some(signal) = kelvin_sys::stop_signals::stop_signal() {
                return Err(Error::Interrupted(signal.into()));
            }
            if let Err(source) = random_data::write_file(&path, set.bytes, SEED + made) {
                let Self { directory, count, bytes } = set;
                // A file takes whole blocks and an inode, of which its bytes tell nothing, and others write there as well.
                return Err(match source.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                        Error::FileSystemFull { directory, made, count, bytes, source }
                    }
                    _ => Error::Files { directory, source },
                });
            }
        }
        Ok(set)
    }

    /// Names of the files, as a server gives them.
    pub fn names(&self) -> Vec<String> {
        (0..self.count).map(|number| format!("file-{number:05}")).collect()
    }

    /// Where they are.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.names().iter().map(|name| self.directory.join(name)).collect()
    }

    /// Has all of them in memory, or none.
    pub fn set_cache_state(&self, state: PageCacheState) -> Result<()> {
        for path in self.paths() {
            let target = Target::find(&path).map_err(|error| Error::Disk(error.to_string()))?;
            set_cache_state(&target, state).map_err(|error| Error::Disk(error.to_string()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_count_fits_free_space() {
        let wanted = FileSetSpec { count: 10_000, bytes: 2_000_000, limit: 4 << 30 };
        assert_eq!(wanted.fit_count(1 << 40, 1), 2147, "no more than may be written");
        assert_eq!(wanted.fit_count(1 << 30, 1), 268, "half of what is free");
        assert_eq!(FileSetSpec { count: 20, ..wanted }.fit_count(1 << 40, 1), 20, "no more than are wanted");
        assert_eq!((wanted.fit_count(1 << 40, 2), wanted.fit_count(1 << 30, 2)), (1073, 134), "two sets of as many");
    }

    #[test]
    fn lack_of_space_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = FileSetSpec { count: 3, bytes: 1000, limit: 1 << 20 };
        let set = FileSet::create(directory.path(), wanted.fit(directory.path(), 1).unwrap()).unwrap();
        assert_eq!(set.names(), ["file-00000", "file-00001", "file-00002"]);
        assert!(set.paths().iter().all(|path| std::fs::metadata(path).unwrap().len() == 1000));
        let refused = FileSetSpec { limit: 10_000, count: 100, ..wanted }.fit(directory.path(), 1).unwrap_err();
        assert!(refused.to_string().starts_with("there is room for 10 files of 1000 bytes"), "{refused}");
    }
}
