//! Where files arrive: a directory that is held open, in which a file is made under another name and renamed when it is whole.

use std::fs::{File, FileTimes};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use kelvin_file::Error;
use kelvin_file::unfinished::{Place, Unfinished};
use kelvin_sys::fs::PATH;

use crate::message::Header;
use crate::name::Name;

/// A directory, whatever becomes of the names that lead to it.
#[derive(Debug)]
pub struct Directory(File);

impl Directory {
    /// Opens it, makes sure that files can be made there, and removes what a killed receiver left behind.
    ///
    /// # Errors
    /// A path that is no directory, or one that takes no files.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let found = File::options().read(true).custom_flags(PATH).open(path);
        let held = found.map_err(|error| Error::call("open", path, error))?;
        if !held.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(Error::call("receive into", path, std::io::ErrorKind::NotADirectory.into()));
        }
        kelvin_file::temporary::file(&kelvin_file::temporary::reach(&held), 0o600)
            .map_err(|error| Error::call("make files in", path, error))?;
        Ok(Self(held))
    }

    /// The place of a name in it.
    ///
    /// # Errors
    /// Those of duplicating a descriptor.
    pub fn place(&self, name: &Name) -> Result<Place, Error> {
        Place::inside(&self.0, name.as_os_str())
    }
}

/// A file that is arriving. Dropped before it is kept, it is removed.
pub struct Deposit<'a> {
    file: Unfinished<'a>,
    path: &'a Path,
    modified: SystemTime,
}

impl<'a> Deposit<'a> {
    /// Makes it, where there is room.
    ///
    /// # Errors
    /// A file there that may not be replaced, or anything else there; no room; a time that this system cannot have.
    pub fn make(place: &'a Place, header: &Header, overwrite: bool) -> Result<Self, Error> {
        let wrong_time = || Error::call("keep the time of", place.path(), std::io::ErrorKind::InvalidInput.into());
        let modified = header.modified.time().ok_or_else(wrong_time)?;
        let mut file = Unfinished::make(place, overwrite)?;
        file.check_room(header.bytes, true)?;
        file.set_mode(header.mode);
        Ok(Self { file, path: place.path(), modified })
    }

    /// Writes the next part of it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&self, part: &[u8]) -> Result<(), Error> {
        self.file.file().write_all(part).map_err(|error| Error::call("write", self.path, error))
    }

    /// Gives it its time, its permissions and its name.
    ///
    /// # Errors
    /// Those of renaming; something that has come there meanwhile. Then it is removed.
    pub fn keep(self) -> Result<(), Error> {
        let times = FileTimes::new().set_modified(self.modified);
        let set = self.file.file().set_times(times);
        set.map_err(|error| Error::call("keep the time of", self.path, error))?;
        self.file.finish().map(drop)
    }
}
