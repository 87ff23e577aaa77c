//! A file that is being made: there whole in the end, or not at all.

use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use crate::target::{Access, Target, special};
use crate::{Error, Result};

/// A file that is being made. Dropped before it is finished, it is removed; what was there before is never touched until
/// then.
#[derive(Debug)]
pub(crate) struct Unfinished {
    target: Target,
    /// The file whose place it takes in the end.
    replaces: Option<(PathBuf, Metadata)>,
    finished: bool,
}

/// Names that are tried for a file that shall take the place of another.
const NAMES: u32 = 100;

impl Unfinished {
    /// Makes an empty file. Where there is one already, it is made beside that one, by a name of its own, and takes its
    /// place in the end; or it is refused, if nothing may be replaced.
    ///
    /// # Errors
    /// Those of making a file; something there that is no regular file, may not be written, or may not be replaced.
    pub(crate) fn make(path: &Path, replace: bool) -> Result<Self> {
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                File::create_new(path).map_err(|error| Error::call("make", path, error))?;
                return Self::made(path, None);
            }
            Err(error) => return Err(Error::call("find", path, error)),
            Ok(found) => found,
        };
        if let Some(kind) = special(&found) {
            return Err(Error::Special { path: path.to_owned(), kind });
        }
        if !replace {
            return Err(Error::Exists { path: path.to_owned() });
        }
        // To take its place only its directory need be writable: who may not write the file shall not replace it.
        Target::find(path)?.open_to_write(Access::Buffered, 0)?;
        let beside = create_beside(path).map_err(|error| Error::call("make a file beside", path, error))?;
        Self::made(&beside, Some((path.to_owned(), found)))
    }

    /// Takes charge of a file that was just made.
    fn made(path: &Path, replaces: Option<(PathBuf, Metadata)>) -> Result<Self> {
        let made = Target::find(path).map(|target| Self { target, replaces, finished: false }).inspect_err(|_| {
            // The error tells more than a failure to tidy up after it.
            let _ = fs::remove_file(path);
        })?;
        made.take_owner()?;
        Ok(made)
    }

    /// Gives it the owner of the file that it will replace.
    fn take_owner(&self) -> Result<()> {
        let Some((path, replaced)) = &self.replaces else { return Ok(()) };
        let file = self.target.open_to_write(Access::Buffered, 0)?;
        let found = file.metadata().map_err(|error| Error::call("look at", path, error))?;
        if (found.uid(), found.gid()) == (replaced.uid(), replaced.gid()) {
            return Ok(());
        }
        fchown(&file, Some(replaced.uid()), Some(replaced.gid()))
            .map_err(|error| Error::call("keep the owner of", path, error))
    }

    /// The file as it was when it was made: empty.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// It is whole: it stays, and takes the place of the file that it replaces, with that one's rights. Before that it is
    /// flushed, so that there is one of the two even after a loss of power.
    ///
    /// # Errors
    /// Those of flushing and renaming; it is removed then, and the other one stays.
    pub(crate) fn finish(mut self) -> Result<()> {
        if let Some((path, replaced)) = &self.replaces {
            let failed = |error| Error::call("replace", path, error);
            let file = self.target.open_to_write(Access::Buffered, 0)?;
            file.sync_all().map_err(failed)?;
            file.set_permissions(replaced.permissions()).map_err(failed)?;
            fs::rename(self.target.path(), path).map_err(failed)?;
        }
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Somebody may have put another file in its place meanwhile: that one is not ours.
        if !self.finished && self.target.is_at(self.target.path()) {
            let _ = fs::remove_file(self.target.path());
        }
    }
}

/// A new file in the same directory, by a name that nobody else uses.
fn create_beside(path: &Path) -> std::io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let beside = path.with_file_name(format!(".kelvin-{}-{number}.partial", std::process::id()));
        match File::create_new(&beside) {
            Ok(_) => return Ok(beside),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < NAMES => number += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn write(file: &Unfinished, content: &str) {
        fs::write(file.target().path(), content).unwrap();
    }

    #[test]
    fn a_new_file_is_there_when_it_is_finished_and_gone_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        drop(Unfinished::make(&path, false).unwrap());
        assert!(names(directory.path()).is_empty());
        let file = Unfinished::make(&path, false).unwrap();
        write(&file, "whole");
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
    }

    #[test]
    fn what_is_replaced_is_there_until_the_end_and_keeps_its_rights() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Unfinished::make(&path, false), Err(Error::Exists { .. })));

        let file = Unfinished::make(&path, true).unwrap();
        let other = Unfinished::make(&path, true).unwrap();
        write(&file, "new");
        assert_eq!((names(directory.path()).len(), fs::read_to_string(&path).unwrap().as_str()), (3, "old"));
        drop(other);
        file.finish().unwrap();
        assert_eq!(
            (names(directory.path()), fs::read_to_string(&path).unwrap().as_str()),
            (vec!["file".into()], "new")
        );
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o640);
    }

    #[test]
    fn only_what_it_made_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = Unfinished::make(&path, false).unwrap();
        fs::rename(&path, directory.path().join("moved")).unwrap();
        fs::write(&path, "the user's").unwrap();
        drop(file);
        assert_eq!(names(directory.path()), ["file", "moved"]);
    }

    #[test]
    fn links_directories_and_pipes_are_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        for replace in [false, true] {
            let says = |path: &Path| Unfinished::make(path, replace).unwrap_err().to_string();
            assert!(says(&link).contains("is a symbolic link"));
            assert!(says(directory.path()).contains("is a directory"));
            assert!(says(Path::new("/dev/null")).contains("is a character device"));
            assert!(says(Path::new("/")).contains("is a directory"));
            assert!(says(&directory.path().join("no/file")).contains("No such file or directory"));
        }
        assert_eq!(names(directory.path()), ["link"]);
    }
}
