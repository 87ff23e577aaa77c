//! Files without content of one rank: made, found and removed, as mdtest does it.

use std::fmt::Write;
use std::fs::File;
use std::io;

use super::task::{FileSet, MetadataOperation, Timing};
use crate::clock::StartTime;
use crate::heartbeat::Progress;

/// Does one operation to each file. `start` returns when all ranks have come so far.
///
/// # Errors
/// The first call that failed, with the file.
pub fn run(
    operation: MetadataOperation,
    files: &FileSet,
    progress: &Progress,
    start: &dyn Fn(),
) -> Result<Timing, String> {
    let mut path = format!("{}/file.{}.", files.directory.display(), files.maker);
    let prefix = path.len();
    start();
    let time = StartTime::now();
    for number in 0..files.count {
        path.truncate(prefix);
        write!(path, "{number}").expect("a string takes all that is written");
        let (call, result) = match operation {
            MetadataOperation::Create => ("create", create(&path)),
            MetadataOperation::Stat => ("stat", std::fs::symlink_metadata(&path).map(drop)),
            MetadataOperation::Unlink => ("unlink", std::fs::remove_file(&path)),
        };
        result.map_err(|error| format!("cannot {call} {path}: {error}"))?;
        progress.advance();
    }
    Ok(Timing { start_s: time.start_s, end_s: time.end_s(), flush_s: 0.0, cached_share: None })
}

/// Where a file system has no room for the attributes of a file, closing it may say so.
fn create(path: &str) -> io::Result<()> {
    kelvin_sys::fs::close(File::create_new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_found_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let progress = Progress::default();
        let files = |maker| FileSet { directory: directory.path().to_owned(), maker, count: 12 };
        let run = |operation, maker| super::run(operation, &files(maker), &progress, &|| {});
        let count = || std::fs::read_dir(directory.path()).unwrap().count();
        for maker in 0..2 {
            let timing = run(MetadataOperation::Create, maker).unwrap();
            assert!(timing.start_s <= timing.end_s, "{timing:?}");
        }
        assert_eq!(count(), 24);
        let error = run(MetadataOperation::Create, 1).unwrap_err();
        assert!(error.starts_with("cannot create ") && error.contains("file.1.0: File exists"), "{error}");
        run(MetadataOperation::Stat, 1).unwrap();
        run(MetadataOperation::Unlink, 1).unwrap();
        assert_eq!(count(), 12);
        let error = run(MetadataOperation::Stat, 1).unwrap_err();
        assert!(error.contains("file.1.0: No such file"), "{error}");
        assert_eq!(progress.count(), 48);
    }
}
