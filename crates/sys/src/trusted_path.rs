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
const STICKY_BIT: u32 = 0o1000;

/// Flags of open(2) for a name in such a directory: no symbolic links, no blocking.
pub const NOFOLLOW_FLAGS: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Why a check failed.
#[derive(Debug)]
pub enum TrustError {
    /// It cannot be checked.
    Call(Error),
    /// Somebody else could have written there.
    WritableByOthers {
        /// What it is.
        path: PathBuf,
        /// What is wrong with it, to follow its name.
        reason: String,
    },
}

impl From<Error> for TrustError {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// Checks a directory, given by an absolute path, and all above it. Ancestors may be writable by others if sticky, as
/// /tmp: only the owner can replace an entry.
///
/// # Errors
/// [`TrustError`].
pub fn check_directory(path: &Path) -> Result<(), TrustError> {
    for ancestor in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
        let no_directory = (libc::ENOTDIR, "is not a directory, or a symbolic link");
        let directory = open(ancestor, NOFOLLOW_FLAGS | libc::O_PATH | libc::O_DIRECTORY, no_directory)?;
        let facts = directory.metadata()?;
        let may_be_shared = ancestor != path && facts.mode() & STICKY_BIT != 0;
        check_owner(ancestor, &facts, may_be_shared)?;
    }
    Ok(())
}

/// Opens a regular file for reading, in a checked directory.
///
/// # Errors
/// [`TrustError`].
pub fn open_file(path: &Path) -> Result<File, TrustError> {
    let file = open(path, NOFOLLOW_FLAGS, (libc::ELOOP, "is a symbolic link"))?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(writable_by_others(path, "is not a regular file".into()));
    }
    check_owner(path, &facts, false)?;
    Ok(file)
}

/// Opens a path; one error stands for what may be another's.
fn open(path: &Path, flags: libc::c_int, (number, reason): (i32, &str)) -> Result<File, TrustError> {
    File::options().read(true).custom_flags(flags).open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == number => writable_by_others(path, reason.into()),
        _ => TrustError::Call(error),
    })
}

fn check_owner(path: &Path, facts: &Metadata, may_be_shared: bool) -> Result<(), TrustError> {
    if ![0, effective_user()].contains(&facts.uid()) {
        return Err(writable_by_others(path, format!("belongs to user {}", facts.uid())));
    }
    if facts.mode() & OTHERS_WRITE != 0 && !may_be_shared {
        return Err(writable_by_others(path, format!("may be written by others (mode {:03o})", facts.mode() & 0o777)));
    }
    Ok(())
}

fn writable_by_others(path: &Path, reason: String) -> TrustError {
    TrustError::WritableByOthers { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn error_text(outcome: Result<impl Sized, TrustError>) -> String {
        match outcome {
            Ok(_) => "nothing".into(),
            Err(TrustError::Call(error)) => error.to_string(),
            Err(TrustError::WritableByOthers { path, reason }) => {
                format!("{} {reason}", path.file_name().unwrap().to_string_lossy())
            }
        }
    }

    #[test]
    fn writable_or_replaceable_path_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let (shared, inner) = (root.path().join("shared"), root.path().join("shared/own"));
        fs::create_dir_all(&inner).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for (outer_mode, mode, expected) in [
            (0o755, 0o700, "nothing"),
            (0o1777, 0o755, "nothing"),
            (0o777, 0o755, "shared may be written by others (mode 777)"),
            (0o755, 0o770, "own may be written by others (mode 770)"),
            (0o755, 0o1777, "own may be written by others (mode 777)"),
        ] {
            set(&shared, outer_mode);
            set(&inner, mode);
            assert_eq!(error_text(check_directory(&inner)), expected);
        }
        symlink(&shared, root.path().join("link")).unwrap();
        assert_eq!(
            error_text(check_directory(&root.path().join("link/own"))),
            "link is not a directory, or a symbolic link"
        );
        assert!(error_text(check_directory(&root.path().join("none"))).contains("No such file"));
    }

    #[test]
    fn trusted_regular_file_is_opened() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let set = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert_eq!(error_text(open_file(&file)), "nothing");
        set(0o602);
        assert_eq!(error_text(open_file(&file)), "file may be written by others (mode 602)");
        symlink(&file, root.path().join("link")).unwrap();
        assert_eq!(error_text(open_file(&root.path().join("link"))), "link is a symbolic link");
        assert!(error_text(open_file(root.path())).ends_with("is not a regular file"));
    }
}
