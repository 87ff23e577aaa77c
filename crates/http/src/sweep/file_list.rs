//! The files of a directory that a study can ask for: the regular ones in it, of the size that most of them have.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use kelvin_core::text::is_visible;

use crate::sweep::error::{Error, Result};

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
    pub left_out: u64,
}

impl FileList {
    /// Those of a directory. Of two sizes that are as frequent it is the larger one. Links, files whose names cannot be shown, and those
    /// whose names begin with a dot are none.
    ///
    /// # Errors
    /// A directory that cannot be read, has too many entries, or no file.
    pub fn read(directory: &Path) -> Result<Self> {
        let refused = |why: String| Error::FileList { directory: directory.to_owned(), why };
        let failed = |error: std::io::Error| refused(error.to_string());
        let (mut by_size, mut entries) = (BTreeMap::<u64, Vec<String>>::new(), 0);
        for entry in fs::read_dir(directory).map_err(failed)? {
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(refused(format!("it has more than {MAX_ENTRIES} entries")));
            }
            if let Some((name, bytes)) = regular_file(&entry.map_err(failed)?) {
                by_size.entry(bytes).or_default().push(name);
            }
        }
        let (bytes, mut names) = by_size
            .into_iter()
            .max_by_key(|(bytes, names)| (names.len(), *bytes))
            .ok_or_else(|| refused("it has no file that can be served".into()))?;
        names.sort_unstable();
        Ok(Self { left_out: (entries - names.len()) as u64, names, bytes })
    }

    /// The same without what is beyond so many files.
    #[must_use]
    pub fn truncated(mut self, files: usize) -> Self {
        self.left_out += self.names.len().saturating_sub(files) as u64;
        self.names.truncate(files);
        self
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
    let is_fit = facts.is_file() && facts.len() > 0 && !name.starts_with('.') && name.chars().all(is_visible);
    is_fit.then_some((name, facts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn most_frequent_size_is_listed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let why = || FileList::read(directory.path()).unwrap_err().to_string();
        assert!(why().ends_with(": it has no file that can be served"), "{}", why());
        for (name, bytes) in [("b", 5), ("a", 5), ("large", 7), ("empty", 0), (".hidden", 5), ("line\nend", 5)] {
            fs::write(at(name), vec![1; bytes]).unwrap();
        }
        fs::write(directory.path().join(std::ffi::OsStr::from_bytes(b"\xff")), [1; 5]).unwrap();
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        let listed = FileList::read(directory.path()).unwrap();
        assert_eq!(listed, FileList { names: vec!["a".into(), "b".into()], bytes: 5, left_out: 7 });
        assert_eq!(listed.paths(directory.path()), [at("a"), at("b")]);
        assert_eq!(listed.truncated(1), FileList { names: vec!["a".into()], bytes: 5, left_out: 8 });
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
