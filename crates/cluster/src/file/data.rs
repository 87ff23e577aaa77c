//! The data of one rank: written, read, and compared with what was written. Only open, transfer, flush and close are within the time.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use kelvin_file::cache::{PageCacheState, residency, set_cache_state};
use kelvin_file::{Error, Target};
use kelvin_sys::direct_io::O_DIRECT;
use kelvin_sys::memory::{Arena, PagePolicy};

use super::content::Content;
use super::layout::Part;
use super::task::{DataAccess, Timing, WrongBlock};
use crate::clock::StartTime;
use crate::heartbeat::Progress;

/// Writes a part. `start` returns when all ranks have come so far.
///
/// # Errors
/// The first call that failed, with the file.
pub fn write(part: &Part, access: &DataAccess, progress: &Progress, start: &dyn Fn()) -> Result<Timing, String> {
    let path = part.path(&access.directory);
    let content = Content::new(access.seed, part.writer);
    let mut buffer = buffer(part)?;
    let block = &mut buffer.as_mut_slice()[..part.block_bytes];
    content.fill(block);
    start();
    let time = StartTime::now();
    let mut options = File::options();
    let file = open(options.write(true).create(true), &path, access)?;
    for number in 0..part.blocks {
        let offset = part.offset(number);
        content.stamp(offset, block);
        file.write_all_at(block, offset).map_err(|error| at(&path, "write", offset, &error))?;
        progress.advance();
    }
    let flush = Instant::now();
    file.sync_all().map_err(|error| call(&path, "fsync", &error))?;
    let flush_s = flush.elapsed().as_secs_f64();
    kelvin_sys::fs::close(file).map_err(|error| call(&path, "close", &error))?;
    Ok(Timing { start_s: time.start_s, end_s: time.end_s(), flush_s, cached_share: None })
}

/// Reads a part, after this kernel's page cache has dropped its file.
///
/// # Errors
/// The first call that failed, with the file.
pub fn read(part: &Part, access: &DataAccess, progress: &Progress, start: &dyn Fn()) -> Result<Timing, String> {
    let path = part.path(&access.directory);
    let mut buffer = buffer(part)?;
    let block = &mut buffer.as_mut_slice()[..part.block_bytes];
    let cached_share = if access.is_direct { Some(0.0) } else { drop_from_cache(&path)? };
    start();
    let time = StartTime::now();
    let file = open(File::options().read(true), &path, access)?;
    for number in 0..part.blocks {
        let offset = part.offset(number);
        file.read_exact_at(block, offset).map_err(|error| at(&path, "read", offset, &error))?;
        progress.advance();
    }
    kelvin_sys::fs::close(file).map_err(|error| call(&path, "close", &error))?;
    Ok(Timing { start_s: time.start_s, end_s: time.end_s(), flush_s: 0.0, cached_share })
}

/// Compares a part with what was written: the time in seconds, and the first block that is wrong.
///
/// # Errors
/// The first call that failed, with the file.
pub fn verify(part: &Part, access: &DataAccess, progress: &Progress) -> Result<(f64, Option<WrongBlock>), String> {
    let path = part.path(&access.directory);
    let content = Content::new(access.seed, part.writer);
    let mut buffer = buffer(part)?;
    let block = &mut buffer.as_mut_slice()[..part.block_bytes];
    let mut expected = vec![0; part.block_bytes];
    content.fill(&mut expected);
    let start = Instant::now();
    let file = open(File::options().read(true), &path, access)?;
    for number in 0..part.blocks {
        let offset = part.offset(number);
        content.stamp(offset, &mut expected);
        file.read_exact_at(block, offset).map_err(|error| at(&path, "read", offset, &error))?;
        progress.advance();
        if let Some(first_byte) = Content::first_difference(&expected, block) {
            let wrong = WrongBlock { writer: part.writer, path, offset, first_byte };
            return Ok((start.elapsed().as_secs_f64(), Some(wrong)));
        }
    }
    Ok((start.elapsed().as_secs_f64(), None))
}

/// In ordinary pages, as other programs have them.
fn buffer(part: &Part) -> Result<Arena, String> {
    Arena::populated(part.block_bytes, PagePolicy::Default).map_err(|error| error.to_string())
}

fn open(options: &mut std::fs::OpenOptions, path: &Path, access: &DataAccess) -> Result<File, String> {
    let flags = if access.is_direct { O_DIRECT } else { 0 };
    options.custom_flags(flags).open(path).map_err(|error| call(path, "open", &error))
}

/// The part of a file that stays in this kernel's page cache when it is dropped, as all of one on tmpfs; unknown where its two calls
/// disagree.
fn drop_from_cache(path: &Path) -> Result<Option<f64>, String> {
    // Network file systems learn the size of a file that another host wrote when they open it.
    let _file = File::open(path).map_err(|error| call(path, "open", &error))?;
    let target = Target::find(path).map_err(|error| error.to_string())?;
    match set_cache_state(&target, PageCacheState::Uncached) {
        Ok(_) => Ok(Some(0.0)),
        Err(Error::CacheStateNotReached { .. }) => {
            residency(&target).map(|residency| residency.share()).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn call(path: &Path, call: &str, error: &io::Error) -> String {
    format!("cannot {call} {}: {error}", path.display())
}

fn at(path: &Path, call: &str, offset: u64, error: &io::Error) -> String {
    format!("cannot {call} {} at byte {offset}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::layout::Layout;

    fn part(layout: Layout, position: usize) -> Part {
        Part { layout, writer: 4 + position, position, parts: 3, blocks: 5, block_bytes: 8192 }
    }

    fn written(layout: Layout) -> (tempfile::TempDir, DataAccess, Progress) {
        let directory = tempfile::tempdir().unwrap();
        let access = DataAccess { directory: directory.path().to_owned(), is_direct: false, seed: 7 };
        let progress = Progress::default();
        for position in 0..3 {
            let timing = write(&part(layout, position), &access, &progress, &|| {}).unwrap();
            assert!(timing.start_s + timing.flush_s <= timing.end_s && timing.cached_share.is_none(), "{timing:?}");
        }
        (directory, access, progress)
    }

    #[test]
    fn what_is_written_is_read_and_verified() {
        for layout in Layout::ALL {
            let (directory, access, progress) = written(layout);
            let files =
                std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
            let (mut sizes, part_bytes) = (files.collect::<Vec<u64>>(), 5 * 8192);
            sizes.sort_unstable();
            assert_eq!(sizes, if layout == Layout::Own { vec![part_bytes; 3] } else { vec![3 * part_bytes] });
            for position in 0..3 {
                let timing = read(&part(layout, position), &access, &progress, &|| {}).unwrap();
                assert!(timing.start_s <= timing.end_s && timing.flush_s == 0.0, "{timing:?}");
                assert_eq!(verify(&part(layout, position), &access, &progress).unwrap().1, None);
            }
            // Each of 15 blocks is written, read and compared.
            assert_eq!(progress.count(), 45);
        }
    }

    #[test]
    fn wrong_block_is_named() {
        for layout in Layout::ALL {
            let (_directory, access, progress) = written(layout);
            let damaged = part(layout, 1);
            let offset = damaged.offset(3);
            let path = damaged.path(&access.directory);
            let mut byte = [0];
            let file = File::options().read(true).write(true).open(&path).unwrap();
            file.read_exact_at(&mut byte, offset + 5000).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], offset + 5000).unwrap();
            let wrong = WrongBlock { writer: 5, path, offset, first_byte: 5000 };
            assert_eq!(verify(&damaged, &access, &progress).unwrap().1, Some(wrong));
            assert_eq!(verify(&part(layout, 2), &access, &progress).unwrap().1, None);
        }
    }

    #[test]
    fn failed_calls_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let access = DataAccess { directory: directory.path().join("absent"), is_direct: false, seed: 7 };
        let part = part(Layout::Own, 0);
        let error = write(&part, &access, &Progress::default(), &|| {}).unwrap_err();
        assert!(error.starts_with("cannot open ") && error.contains("absent/data.4: No such file"), "{error}");
        let access = DataAccess { directory: directory.path().to_owned(), ..access };
        std::fs::write(part.path(directory.path()), [0; 10_000]).unwrap();
        let error = read(&part, &access, &Progress::default(), &|| {}).unwrap_err();
        assert!(error.contains("data.4 at byte 8192: failed to fill whole buffer"), "{error}");
    }

    #[test]
    fn full_device_names_the_file_and_the_place() {
        let directory = tempfile::tempdir().unwrap();
        let access = DataAccess { directory: directory.path().to_owned(), is_direct: false, seed: 7 };
        let part = part(Layout::Own, 0);
        std::os::unix::fs::symlink("/dev/full", part.path(directory.path())).unwrap();
        let error = write(&part, &access, &Progress::default(), &|| {}).unwrap_err();
        assert!(error.contains("data.4 at byte 0: No space left on device"), "{error}");
    }
}
