//! The files that are asked for: noise of one size each, made for the study, or those of a directory of the size that most of them have.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelvin_core::text::is_visible;
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

impl FileSetSpec {
    /// How many of them fit this many times into this many free bytes.
    fn fit_count(self, free_bytes: u64, sets: u64) -> u64 {
        let bytes = self.bytes.max(1) * sets.max(1);
        self.count.min(self.limit / bytes).min(free_bytes / FREE_SPACE_DIVISOR / bytes)
    }

    /// As many of them as there is room for in a directory, this many times.
    ///
    /// # Errors
    /// Too little room; errors of the file system.
    pub fn fit(self, directory: &Path, sets: usize) -> Result<Self> {
        let files_error = |error| Error::Files(directory.to_owned(), error);
        let count = self.fit_count(space(directory).map_err(files_error)?.available_bytes, sets as u64);
        let min_count = MIN_FILES.min(self.count);
        if count < min_count {
            return Err(Error::NoSpace(format!(
                "there is room for {count} files of {} bytes in {}, and at least {min_count} are needed: give a smaller --file-size or another \
                 --dir",
                self.bytes,
                directory.display()
            )));
        }
        Ok(Self { count, ..self })
    }
}

/// Most entries of a directory that are looked at: a list of more costs its reader seconds.
const MAX_ENTRIES: usize = 1_000_000;

/// Files of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileList {
    /// Their names, sorted.
    pub names: Vec<String>,
    /// Bytes of each.
    pub bytes: u64,
    /// Entries of the directory that are none of them.
    pub skipped_entries: u64,
}

impl FileList {
    /// Those of a directory. Of two sizes that are as frequent it is the larger one. Links, files whose names cannot be shown, and those
    /// whose names begin with a dot are none.
    ///
    /// # Errors
    /// A directory that cannot be read, has too many entries, or no file.
    pub fn read(directory: &Path) -> Result<Self> {
        let list_error = |reason: String| Error::FileList(directory.to_owned(), reason);
        let io_error = |error: std::io::Error| list_error(error.to_string());
        let (mut by_size, mut entries) = (BTreeMap::<u64, Vec<String>>::new(), 0);
        for entry in fs::read_dir(directory).map_err(io_error)? {
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(list_error(format!("it has more than {MAX_ENTRIES} entries")));
            }
            if let Some((name, bytes)) = regular_file(&entry.map_err(io_error)?) {
                by_size.entry(bytes).or_default().push(name);
            }
        }
        let (bytes, mut names) = by_size
            .into_iter()
            .max_by_key(|(bytes, names)| (names.len(), *bytes))
            .ok_or_else(|| list_error("it has no file that can be served".into()))?;
        names.sort_unstable();
        Ok(Self { skipped_entries: (entries - names.len()) as u64, names, bytes })
    }

    /// Makes files, and lists them.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn create(directory: &Path, spec: FileSetSpec) -> Result<Self> {
        let FileSetSpec { count, bytes, .. } = spec;
        let names = (0..count).map(|number| format!("file-{number:05}")).collect();
        let list = Self { names, bytes, skipped_entries: 0 };
        for (count_made, path) in (0..).zip(list.paths(directory)) {
            if let Some(signal) = kelvin_sys::stop_signals::stop_signal() {
                return Err(Error::Interrupted(signal.into()));
            }
            if let Err(source) = random_data::write_file(&path, bytes, SEED + count_made) {
                let directory_name = directory.display();
                // A file takes whole blocks and an inode, which its bytes do not count, and others write there as well.
                return Err(match source.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace(format!(
                        "cannot make the files in {directory_name}: {source} after {count_made} of {count} files of {bytes} bytes: give a smaller \
                         --file-count or --file-size, or another --dir"
                    )),
                    _ => Error::Files(directory.to_owned(), source),
                });
            }
        }
        Ok(list)
    }

    /// This set without what is beyond this many files.
    #[must_use]
    pub fn truncated(mut self, files: usize) -> Self {
        self.skipped_entries += self.names.len().saturating_sub(files) as u64;
        self.names.truncate(files);
        self
    }

    /// Has its files, in this directory, in a state, from this one on, for this long, and at least one more; returns the first that was not
    /// reached.
    ///
    /// # Errors
    /// A file that cannot be had in that state.
    pub(crate) fn set_cache_state(
        &self,
        directory: &Path,
        state: PageCacheState,
        (first, time): (usize, Duration),
    ) -> Result<usize> {
        let start = Instant::now();
        let mut next = first;
        for path in self.paths(directory).iter().skip(first) {
            set_cache_state(&Target::find(path)?, state)?;
            next += 1;
            if start.elapsed() >= time {
                break;
            }
        }
        Ok(next)
    }

    /// Where they are in this directory.
    pub fn paths(&self, directory: &Path) -> Vec<PathBuf> {
        self.names.iter().map(|name| directory.join(name)).collect()
    }
}

/// Name and size of a regular file that is not empty. One that is gone is none.
fn regular_file(entry: &DirEntry) -> Option<(String, u64)> {
    let name = entry.file_name().into_string().ok()?;
    let facts = entry.metadata().ok()?;
    let is_listed = facts.is_file() && facts.len() > 0 && !name.starts_with('.') && name.chars().all(is_visible);
    is_listed.then_some((name, facts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn file_count_fits_free_space() {
        let spec = FileSetSpec { count: 10_000, bytes: 2_000_000, limit: 4 << 30 };
        assert_eq!(spec.fit_count(1 << 40, 1), 2147, "no more than may be written");
        assert_eq!(spec.fit_count(1 << 30, 1), 268, "half of what is free");
        assert_eq!(FileSetSpec { count: 20, ..spec }.fit_count(1 << 40, 1), 20, "no more than are wanted");
        assert_eq!((spec.fit_count(1 << 40, 2), spec.fit_count(1 << 30, 2)), (1073, 134), "two sets of as many");
    }

    #[test]
    fn lack_of_space_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let spec = FileSetSpec { count: 3, bytes: 1000, limit: 1 << 20 };
        let set = FileList::create(directory.path(), spec.fit(directory.path(), 1).unwrap()).unwrap();
        assert_eq!(set.names, ["file-00000", "file-00001", "file-00002"]);
        assert!(set.paths(directory.path()).iter().all(|path| fs::metadata(path).unwrap().len() == 1000));
        let error = FileSetSpec { limit: 10_000, count: 100, ..spec }.fit(directory.path(), 1).unwrap_err();
        assert!(error.to_string().starts_with("there is room for 10 files of 1000 bytes"), "{error}");
    }

    #[test]
    fn most_frequent_size_is_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let error_text = || FileList::read(directory.path()).unwrap_err().to_string();
        assert!(error_text().ends_with(": it has no file that can be served"), "{}", error_text());
        for (name, bytes) in [("b", 5), ("a", 5), ("large", 7), ("empty", 0), (".hidden", 5), ("line\nend", 5)] {
            fs::write(path(name), vec![1; bytes]).unwrap();
        }
        fs::write(directory.path().join(std::ffi::OsStr::from_bytes(b"\xff")), [1; 5]).unwrap();
        fs::create_dir(path("directory")).unwrap();
        std::os::unix::fs::symlink("a", path("link")).unwrap();
        let listed = FileList::read(directory.path()).unwrap();
        assert_eq!(listed, FileList { names: vec!["a".into(), "b".into()], bytes: 5, skipped_entries: 7 });
        assert_eq!(listed.paths(directory.path()), [path("a"), path("b")]);
        assert_eq!(listed.truncated(1), FileList { names: vec!["a".into()], bytes: 5, skipped_entries: 8 });
    }

    #[test]
    fn larger_of_equally_frequent_sizes_wins() {
        let directory = tempfile::tempdir().unwrap();
        [("a", 5), ("b", 7)]
            .iter()
            .for_each(|(name, bytes)| fs::write(directory.path().join(name), vec![1; *bytes]).unwrap());
        assert_eq!(FileList::read(directory.path()).unwrap().bytes, 7);
        assert!(FileList::read(&directory.path().join("none")).unwrap_err().to_string().contains("No such file"));
    }
}
