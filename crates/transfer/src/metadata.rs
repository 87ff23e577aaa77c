//! The owner, the extended attributes, the access control lists and the times of files that arrive.

use std::fs::File;
use std::path::PathBuf;

use kelvin_file::Error as FileError;
use rustix::fs::{Gid, Timespec, Timestamps, Uid, XattrFlags};

use crate::Result;
use crate::message::{FileEntry, Mtime};

/// Gives a file its owner, attributes, access control lists and time; an error names the place where it will be.
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
    for acl in &entry.acls {
        let set = rustix::fs::fsetxattr(file, acl.kind.attribute_name(), &acl.list, XattrFlags::empty());
        set.map_err(failed("keep an access control list of"))?;
    }
    // Some larger values stand for other times (UTIME_NOW, UTIME_OMIT).
    let is_time = entry.modified.nanoseconds < 1_000_000_000;
    let set =
        if is_time { rustix::fs::futimens(file, &utimens(entry.modified)) } else { Err(rustix::io::Errno::INVAL) };
    Ok(set.map_err(failed("keep the time of"))?)
}

/// For utimensat: the time of modification, and the time of access as it is.
pub(crate) fn utimens(modified: Mtime) -> Timestamps {
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
    Timestamps { last_access, last_modification }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::message::EntryKind;

    #[test]
    fn time_before_1970_is_kept_and_special_value_refused() {
        let file = tempfile::tempfile().unwrap();
        let set = |seconds, nanoseconds| {
            let (name, modified) = (b"a".to_vec().try_into().unwrap(), Mtime { seconds, nanoseconds });
            let kind = EntryKind::File { bytes: 0, stored: 0 };
            let entry = FileEntry::new((0, name), kind, (0o644, modified));
            set_metadata(&file, &|| PathBuf::from("a"), &entry).map_err(|error| error.to_string())
        };
        for nanoseconds in [1_000_000_000, rustix::fs::UTIME_NOW as u32, rustix::fs::UTIME_OMIT as u32] {
            let why = set(5, nanoseconds).unwrap_err();
            assert!(why.contains("cannot keep the time of") && why.contains("nvalid argument"), "{why}");
        }
        set(-2, 250_000_000).unwrap();
        assert_eq!(file.metadata().unwrap().mtime(), -2);
    }
}
