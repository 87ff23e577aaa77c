//! A directory that a receiver holds open, and in which it makes files.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelvin_file::Error as FileError;
use kelvin_file::temporary_files::{TemporaryFiles, descriptor_path, remove_left_over};
use rustix::fs::{Mode, OFlags};

/// The beginning of the name of a file of which a part arrived.
pub const PART_PREFIX: &str = ".kelvin-part-";
/// How long a part is kept.
pub const PART_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// A directory that is held open.
#[derive(Debug)]
pub struct OpenDirectory {
    /// The directory (O_PATH).
    pub directory: Arc<File>,
    /// Where files are made.
    pub files: TemporaryFiles,
    /// Whether parts of files were there when it was opened.
    pub(crate) has_parts: bool,
}

impl OpenDirectory {
    /// Opens the directory that a receiver serves, checks that files can be made there, and removes what a killed receiver left behind.
    ///
    /// # Errors
    /// A path that is no directory, or one that takes no files.
    pub fn open_root(path: &Path) -> Result<Arc<Self>, FileError> {
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let directory = File::from(opened.map_err(|error| FileError::call("open", path, error.into()))?);
        if !directory.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(FileError::call("receive into", path, ErrorKind::NotADirectory.into()));
        }
        let root = Self::new_swept(directory);
        root.files.create(0o600).map_err(|error| FileError::call("make files in", path, error))?;
        Ok(root)
    }

    /// A directory from which what killed receivers left behind is removed.
    pub(crate) fn new_swept(directory: File) -> Arc<Self> {
        let parts = remove_left_over(&descriptor_path(&directory), PART_PREFIX.as_bytes(), PART_LIFETIME);
        Self::new(directory, parts > 0)
    }

    pub(crate) fn new(directory: File, has_parts: bool) -> Arc<Self> {
        let files = TemporaryFiles::in_swept_directory(&descriptor_path(&directory));
        Arc::new(Self { directory: Arc::new(directory), files, has_parts })
    }
}
