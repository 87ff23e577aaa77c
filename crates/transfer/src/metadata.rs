//! The owner, the extended attributes and the times of files that arrive.

use std::fs::File;
use std::path::PathBuf;

use kelvin_file::Error as FileError;
use rustix::fs::{Gid, Timespec, Timestamps, Uid, XattrFlags};

use crate::Result;
use crate::message::{FileEntry, Mtime};

/// Gives a file its owner, attributes and time; an error says where it will be.
///
/// # Errors
/// Those of setting them.
pub(crate) fn set_metadata(file: &File, path: &dyn Fn() -> PathBuf, entry: &FileEntry) -> Result<()> {
    let failed = |doing| move |error: rustix::io::Errno| FileError::call(doing, &path(), error.into());
    if let Some((user, group)) = entry.owner {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::fchown(file, user, group).map_err(failed("keep the owner of"))?;
    }
    for attribute in &entry.attributes {
        let set = rustix::fs::fsetxattr(file, attribute.full_name(), &attribute.value, XattrFlags::empty());
        set.map_err(failed("keep an extended attribute of"))?;
    }
    let modified = entry.modified.to_system_time().ok_or(rustix::io::Errno::INVAL);
    let set = modified.and_then(|_| rustix::fs::futimens(file, &utimens(entry.modified)));
    Ok(set.map_err(failed("keep the time of"))?)
}

/// For utimensat: the time of modification, and the time of access as it is.
pub(crate) fn utimens(modified: Mtime) -> Timestamps {
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
    Timestamps { last_access, last_modification }
}
