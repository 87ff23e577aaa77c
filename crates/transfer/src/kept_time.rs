//! What a file system keeps of a time of modification: known by what it gives back of that very time.
//!
//! One keeps whole seconds, another two of them, hundredths, or no time before 1980; and which, the server of a network file system
//! knows, and not this machine. So a file of its own is given the time, and asked for it.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags};
use tempfile::NamedTempFile;

use crate::message::Modified;
use crate::tree::{Held, times};

/// Files on different file systems that are kept at one time.
const KEPT: usize = 4;

/// Files that are given times, one for each file system. They go when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct KeptTimes(Vec<Tried>);

#[derive(Debug)]
struct Tried {
    /// The number of the file system's device.
    device: u64,
    file: NamedTempFile,
    /// By what it is found, and removed.
    _held: Arc<Held>,
}

impl KeptTimes {
    /// What the file system of a directory keeps of a time. The file is made in the directory that is served, if that is on it: a
    /// directory of the user's in which nothing changes keeps its time.
    ///
    /// # Errors
    /// Those of making a file there, and of giving it a time.
    pub(crate) fn of(
        &mut self,
        (served, held): (&Arc<Held>, &Arc<Held>),
        modified: Modified,
    ) -> std::io::Result<Modified> {
        let device = held.directory.metadata()?.dev();
        let held = if served.directory.metadata()?.dev() == device { served } else { held };
        let place = match self.0.iter().position(|tried| tried.device == device) {
            Some(place) => place,
            None => {
                self.0.truncate(KEPT - 1);
                self.0.insert(0, Tried { device, file: held.files.make(0o600)?, _held: Arc::clone(held) });
                0
            }
        };
        let file = self.0[place].file.as_file();
        rustix::fs::futimens(file, &times(modified))?;
        // As the server has it, where there is one.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let found = rustix::fs::statx(file, "", flags, StatxFlags::MTIME)?.stx_mtime;
        Ok(Modified { seconds: found.tv_sec, nanoseconds: found.tv_nsec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Root, Tree};

    #[test]
    fn a_local_file_system_keeps_what_it_is_given_and_nothing_is_left_there() {
        let directory = tempfile::tempdir().unwrap();
        let (mut tree, mut kept) = (Tree::new(Root::open(directory.path()).unwrap()), KeptTimes::default());
        for seconds in [1_000_000_000, 5, 1_600_000_001] {
            let modified = Modified { seconds, nanoseconds: 500_000_000 };
            let held = tree.held(0).unwrap();
            let Modified { seconds: found, .. } = kept.of((&held, &held), modified).unwrap();
            assert_eq!(found, seconds);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        // It finds its file whatever else is let go first.
        drop(tree);
        drop(kept);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
