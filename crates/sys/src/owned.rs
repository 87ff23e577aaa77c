//! Directories and files that only root and the user of this process can have created, changed or replaced.
//!
//! Each directory of a path is checked through an open descriptor, from the root down, without following symbolic
//! links. Nobody else can replace the contents of a checked directory: so the result stays true, and the path may be
//! used.

use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::fs::effective_user;

/// Write permission of group and others, and the sticky bit.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Flags of open(2) for a name in such a directory: no symbolic links, no blocking.
pub const ITSELF: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Why a check failed.
#[derive(Debug)]
pub enum Doubt {
    /// It cannot be checked.
    Call(Error),
    /// Somebody else could have written there.
    Others {
        /// What it is.
        path: PathBuf,
        /// What is wrong with it, to follow its name.
        why: String,
    },
}

impl From<Error> for Doubt {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// Checks a directory, given by an absolute path, and all above it. Ancestors may be writable by others if sticky, as
/// /tmp: only the owner can replace an entry.
///
/// # Errors
/// [`Doubt`].
pub fn check_directory(path: &Path) -> Result<(), Doubt> {
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    for part in above {
        let opened =
            open(part, ITSELF | libc::O_PATH | libc::O_DIRECTORY).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOTDIR) => others(part, "is not a directory, or a symbolic link".into()),
                _ => Doubt::Call(error),
            })?;
        let facts = opened.metadata()?;
        let may_be_shared = part != path && facts.mode() & STICKY != 0;
        check_owner(part, &facts, may_be_shared)?;
    }
    Ok(())
}

/// Opens a regular file for reading, in a checked directory.
///
/// # Errors
/// [`Doubt`].
pub fn open_file(path: &Path) -> Result<File, Doubt> {
    let opened = open(path, ITSELF).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => others(path, "is a symbolic link".into()),
        _ => Doubt::Call(error),
    })?;
    let facts = opened.metadata()?;
    if !facts.is_file() {
        return Err(others(path, "is not a regular file".into()));
    }
    check_owner(path, &facts, false)?;
    Ok(opened)
}

fn open(path: &Path, flags: libc::c_int) -> crate::Result<File> {
    File::options().read(true).custom_flags(flags).open(path)
}

fn check_owner(path: &Path, facts: &Metadata, may_be_shared: bool) -> Result<(), Doubt> {
    if ![0, effective_user()].contains(&facts.uid()) {
        return Err(others(path, format!("belongs to user {}", facts.uid())));
    }
    if facts.mode() & OTHERS_WRITE != 0 && !may_be_shared {
        return Err(others(path, format!("may be written by others (mode {:03o})", facts.mode() & 0o777)));
    }
    Ok(())
}

fn others(path: &Path, why: String) -> Doubt {
    Doubt::Others { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn why(outcome: Result<impl Sized, Doubt>) -> String {
        match outcome {
            Ok(_) => "nothing".into(),
            Err(Doubt::Call(error)) => error.to_string(),
            Err(Doubt::Others { path, why }) => format!("{} {why}", path.file_name().unwrap().to_string_lossy()),
        }
    }

    #[test]
    fn what_others_can_write_or_replace_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let (shared, own) = (top.path().join("shared"), top.path().join("shared/own"));
        fs::create_dir_all(&own).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for (above, mode, expected) in [
            (0o755, 0o700, "nothing"),
            (0o1777, 0o755, "nothing"),
            (0o777, 0o755, "shared may be written by others (mode 777)"),
            (0o755, 0o770, "own may be written by others (mode 770)"),
            (0o755, 0o1777, "own may be written by others (mode 777)"),
        ] {
            set(&shared, above);
            set(&own, mode);
            assert_eq!(why(check_directory(&own)), expected);
        }
        symlink(&shared, top.path().join("link")).unwrap();
        assert_eq!(why(check_directory(&top.path().join("link/own"))), "link is not a directory, or a symbolic link");
        assert!(why(check_directory(&top.path().join("none"))).contains("No such file"));
    }

    #[test]
    fn a_file_is_opened_if_it_is_one_and_nobody_else_writes_it() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("file");
        fs::write(&file, "").unwrap();
        let set = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert_eq!(why(open_file(&file)), "nothing");
        set(0o602);
        assert_eq!(why(open_file(&file)), "file may be written by others (mode 602)");
        symlink(&file, top.path().join("link")).unwrap();
        assert_eq!(why(open_file(&top.path().join("link"))), "link is a symbolic link");
        assert!(why(open_file(top.path())).ends_with("is not a regular file"));
    }
}
