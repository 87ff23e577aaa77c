//! What a file system keeps of a time of modification: known by what it gives back of that very time.
//!
//! One keeps whole seconds, another two of them, hundredths, or no time before 1980; and which, the server of a network file system
//! knows, and not this machine. So a file of its own is given the time, and asked for it.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags};
use tempfile::NamedTempFile;

use crate::directory_tree::{OpenDirectory, utimens};
use crate::message::Mtime;

/// Files on different file systems that are kept at one time.
const MAX_FILE_SYSTEMS: usize = 4;

/// Files that are given times, one for each file system. They go when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct TimestampProbe(Vec<ProbeFile>);

#[derive(Debug)]
struct ProbeFile {
    /// The number of the file system's device.
    device: u64,
    file: NamedTempFile,
    /// By what it is found, and removed.
    _held: Arc<OpenDirectory>,
}

impl TimestampProbe {
    /// What the file system of a directory keeps of a time. The file is made in the directory that is served, if that is on it: a
    /// directory of the user's in which nothing changes keeps its time.
    ///
    /// # Errors
    /// Those of making a file there, and of giving it a time.
    pub(crate) fn stored_time(
        &mut self,
        (served, held): (&Arc<OpenDirectory>, &Arc<OpenDirectory>),
        modified: Mtime,
    ) -> std::io::Result<Mtime> {
        let device = held.directory.metadata()?.dev();
        let held = if served.directory.metadata()?.dev() == device { served } else { held };
        let place = match self.0.iter().position(|tried| tried.device == device) {
            Some(place) => place,
            None => {
                self.0.truncate(MAX_FILE_SYSTEMS - 1);
                self.0.insert(0, ProbeFile { device, file: held.files.create(0o600)?, _held: Arc::clone(held) });
                0
            }
        };
        let file = self.0[place].file.as_file();
        rustix::fs::futimens(file, &utimens(modified))?;
        // As the server has it, where there is one.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let found = rustix::fs::statx(file, "", flags, StatxFlags::MTIME)?.stx_mtime;
        Ok(Mtime { seconds: found.tv_sec, nanoseconds: found.tv_nsec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory_tree::{DestinationRoot, DirectoryTree};

    #[test]
    fn local_file_system_keeps_exact_time() {
        let directory = tempfile::tempdir().unwrap();
        let (mut tree, mut kept) =
            (DirectoryTree::new(DestinationRoot::open(directory.path()).unwrap()), TimestampProbe::default());
        for seconds in [1_000_000_000, 5, 1_600_000_001] {
            let modified = Mtime { seconds, nanoseconds: 500_000_000 };
            let held = tree.open_directory(0).unwrap();
            let Mtime { seconds: found, .. } = kept.stored_time((&held, &held), modified).unwrap();
            assert_eq!(found, seconds);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        // It finds its file whatever else is let go first.
        drop(tree);
        drop(kept);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
