//! Memory to be touched page by page: file mappings, their residency, and freeing pages.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, RawFd};

use rustix::fs::{Advice, MemfdFlags};

use crate::memory::Arena;
use crate::region::Region;
use crate::{Error, Result, check};

/// Alignment of a mapping: more than any window of fault-around.
const MAPPING_ALIGNMENT: usize = 2 << 20;

/// Bytes of a base page.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Whether a file could not be mapped because its file system has no shared mappings of it: ENODEV of mmap(2), as of files that a
/// program behind FUSE has read past the page cache (FOPEN_DIRECT_IO), and of most of /proc and /sys. Then nothing of it is in the
/// page cache for who reads it.
pub fn is_unmappable(error: &Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

/// A file, or a part of one, mapped to be read.
#[derive(Debug)]
pub struct FileMapping(Region);

impl FileMapping {
    /// Maps the first `bytes` of a file as one area, at an address that is a multiple of 2 MiB: windows of addresses, as
    /// fault-around has them, are then windows of the file.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn whole(file: &File, bytes: usize) -> Result<Self> {
        Self::range(file, 0, bytes)
    }

    /// Maps the `bytes` of a file that begin at `offset`, a multiple of the page.
    ///
    /// # Errors
    /// Those of mmap: EINVAL for another offset.
    pub fn range(file: &File, offset: u64, bytes: usize) -> Result<Self> {
        let mapping = Self::reserved(bytes)?;
        mapping.map_at(file, 0, offset, bytes)?;
        Ok(mapping)
    }

    /// Maps the first `bytes` of a file with every page as a separate area, the last page of the file first: in that
    /// order no two neighbours can be merged. A fault maps nothing beyond its area (`do_fault_around` in mm/memory.c),
    /// and so one page.
    ///
    /// # Errors
    /// Those of mmap; ENOMEM if the process may not have as many areas (vm.max_map_count).
    pub fn page_by_page(file: &File, bytes: usize) -> Result<Self> {
        let page = page_bytes();
        let bytes = bytes / page * page;
        let mapping = Self::reserved(bytes)?;
        (0..bytes)
            .step_by(page)
            .try_for_each(|position| mapping.map_at(file, position, (bytes - page - position) as u64, page))?;
        Ok(mapping)
    }

    /// Reserves addresses for `bytes`, aligned to 2 MiB, with nothing mapped yet.
    fn reserved(bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(page_bytes());
        Region::aligned(bytes, MAPPING_ALIGNMENT, libc::PROT_NONE).map(Self)
    }

    /// Maps a part of the file in the place of a part of the reservation.
    fn map_at(&self, file: &File, position: usize, offset: u64, bytes: usize) -> Result<()> {
        // SAFETY: nobody has a reference into the reservation.
        unsafe {
            self.0.map_over(position..position + bytes, libc::PROT_READ, libc::MAP_SHARED, (file.as_raw_fd(), offset))
        }
    }

    /// Its size in bytes; never none.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.bytes()
    }

    /// Its first address.
    pub fn address(&self) -> usize {
        self.0.address()
    }

    /// Reads one byte at `offset` and at every `step` bytes from there, `count` times in all.
    ///
    /// # Panics
    /// If that goes beyond the mapping.
    #[inline(always)]
    pub fn read(&self, offset: usize, step: usize, count: usize) {
        assert!(is_in_range(offset, step, count, self.0.bytes()), "{count} reads from {offset} leave the mapping");
        for touch in 0..count {
            // SAFETY: inside the mapping, as just checked, and readable.
            unsafe { self.0.start().as_ptr().add(offset + touch * step).read_volatile() };
        }
    }

    /// The bytes of a part of the file, in place.
    ///
    /// If another process writes the file meanwhile, the bytes are a mixture of old and new. [`crate::sigbus::SigbusGuard`]
    /// handles a file that shrinks.
    ///
    /// # Panics
    /// If that goes beyond the mapping.
    #[inline]
    pub fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        assert!(
            offset <= self.0.bytes() && bytes <= self.0.bytes() - offset,
            "{bytes} bytes at {offset} leave the mapping"
        );
        // SAFETY: inside the mapping, as just checked, readable, and mapped for as long as it is borrowed.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr().add(offset), bytes) }
    }

    /// Has the kernel map the pages of a part that begins at a page, reading what is not in memory (MADV_POPULATE_READ,
    /// since Linux 5.14).
    ///
    /// # Errors
    /// Those of madvise: EFAULT for a part behind the end of the file, EINVAL for an older kernel.
    pub fn populate(&self, offset: usize, bytes: usize) -> Result<()> {
        self.0.advise(offset, bytes, libc::MADV_POPULATE_READ)
    }

    /// Advises whether pages are read one after another, so that the kernel reads far ahead (MADV_SEQUENTIAL), or in no order, so that it
    /// reads none ahead (MADV_RANDOM).
    ///
    /// # Errors
    /// Those of madvise.
    pub fn advise_order(&self, is_sequential: bool) -> Result<()> {
        let advice = if is_sequential { libc::MADV_SEQUENTIAL } else { libc::MADV_RANDOM };
        self.0.advise(0, self.0.bytes(), advice)
    }

    /// Unmaps the pages of a page-aligned part, so that the next touch of each is a fault; they stay in the page cache
    /// (MADV_DONTNEED).
    ///
    /// # Errors
    /// Those of madvise; a part that is not inside.
    pub fn unmap_pages(&self, offset: usize, bytes: usize) -> Result<()> {
        self.0.advise(offset, bytes, libc::MADV_DONTNEED)
    }

    /// For each page from `offset` on, `bytes` long, whether the page cache holds it (mincore). The kernel answers
    /// truthfully only if the caller owns the file or may write it; otherwise it reports everything as resident.
    ///
    /// # Errors
    /// Those of mincore; a range that is not inside.
    pub fn resident(&self, offset: usize, bytes: usize) -> Result<Vec<bool>> {
        if !offset.is_multiple_of(page_bytes()) || offset.checked_add(bytes).is_none_or(|end| end > self.0.bytes()) {
            return Err(Error::other(format!("{bytes} bytes at {offset} are not whole pages of the mapping")));
        }
        let mut pages = vec![0u8; bytes.div_ceil(page_bytes())];
        // SAFETY: the range is inside the mapping, and the vector has a byte for each page of it.
        check(unsafe { libc::mincore(self.0.start().as_ptr().add(offset).cast(), bytes, pages.as_mut_ptr()) })?;
        Ok(pages.into_iter().map(|page| page & 1 == 1).collect())
    }
}

/// Writes one byte at the start of an arena and at every `step` bytes from there, `count` times in all.
///
/// # Panics
/// If that goes beyond the arena.
#[inline(always)]
pub fn write_pages(arena: &mut Arena, step: usize, count: usize) {
    assert!(is_in_range(0, step, count, arena.len()), "{count} writes leave the arena");
    let start = arena.as_mut_slice().as_mut_ptr();
    for touch in 0..count {
        // SAFETY: inside the arena, as just checked, which is borrowed exclusively.
        unsafe { start.add(touch * step).write_volatile(1) };
    }
}

/// Reads one byte at the start of an arena and at every `step` bytes from there, `count` times in all.
///
/// # Panics
/// If that goes beyond the arena.
#[inline(always)]
pub fn read_pages(arena: &Arena, step: usize, count: usize) {
    assert!(is_in_range(0, step, count, arena.len()), "{count} reads leave the arena");
    let start = arena.as_slice().as_ptr();
    for touch in 0..count {
        // SAFETY: inside the arena, as just checked.
        unsafe { start.add(touch * step).read_volatile() };
    }
}

/// Frees the pages of the first `bytes` of an arena; they read as zeros, and the next touch of each is a fault
/// (MADV_DONTNEED).
///
/// # Errors
/// Those of madvise.
pub fn discard_pages(arena: &mut Arena, bytes: usize) -> Result<()> {
    arena.advise(bytes.min(arena.len()), libc::MADV_DONTNEED)
}

/// Whether `count` touches, `step` bytes apart, lie within `bytes`.
#[inline(always)]
fn is_in_range(offset: usize, step: usize, count: usize, bytes: usize) -> bool {
    let last = count.saturating_sub(1).saturating_mul(step).saturating_add(offset);
    count == 0 || last < bytes
}

/// An unnamed file in memory, as behind shared anonymous memory (memfd_create).
///
/// # Errors
/// Those of memfd_create.
pub fn memory_file() -> Result<File> {
    // SAFETY: the name is a NUL-terminated string.
    Ok(rustix::fs::memfd_create("kelvin", MemfdFlags::CLOEXEC)?.into())
}

/// Asks the kernel to drop the first `bytes` of a file from the page cache (POSIX_FADV_DONTNEED). It drops what is
/// clean, unmapped and unused, and does not report the rest.
///
/// # Errors
/// Those of posix_fadvise.
pub fn drop_cached(file: &File, bytes: usize) -> Result<()> {
    // SAFETY: takes no pointers.
    Ok(rustix::fs::fadvise(file, 0, NonZeroU64::new(bytes as u64), Advice::DontNeed)?)
}

/// Advises the kernel whether a file will be read sequentially or randomly, for read-ahead (POSIX_FADV_SEQUENTIAL,
/// POSIX_FADV_RANDOM).
///
/// # Errors
/// Those of posix_fadvise.
pub fn advise_access(file: &File, is_sequential: bool) -> Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, if is_sequential { Advice::Sequential } else { Advice::Random })?)
}

/// cachestat(2), since Linux 6.5, of the same number on every architecture; see include/uapi/asm-generic/unistd.h.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of include/uapi/linux/mman.h.
#[repr(C)]
struct CacheRange {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of include/uapi/linux/mman.h.
#[repr(C)]
#[derive(Default)]
struct CacheCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages of the first `bytes` of a file that the page cache holds, by cachestat; `None` where the kernel or a filter of
/// system calls does not know or allow that call.
///
/// # Errors
/// Any other error of it.
pub fn cached_pages(file: &File, bytes: usize) -> Result<Option<u64>> {
    Ok(cache_counts(file, bytes)?.map(|counts| counts.cached))
}

/// Pages of the first `bytes` of a file that are in the page cache and not yet on their device: dirty, or on the way
/// there. By cachestat, as [`cached_pages`].
///
/// # Errors
/// As [`cached_pages`].
pub fn unwritten_pages(file: &File, bytes: usize) -> Result<Option<u64>> {
    Ok(cache_counts(file, bytes)?.map(|counts| counts.dirty + counts.writeback))
}

fn cache_counts(file: &File, bytes: usize) -> Result<Option<CacheCounts>> {
    let range = CacheRange { offset: 0, length: bytes as u64 };
    let mut counts = CacheCounts::default();
    let descriptor: RawFd = file.as_raw_fd();
    // SAFETY: both structures are laid out as the call has them, and outlive it.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, descriptor, &raw const range, &raw mut counts, 0) };
    if result == 0 {
        return Ok(Some(counts));
    }
    let error = Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP) => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PagePolicy;
    use crate::usage::{UsageScope, read_usage};
    use std::io::Write;

    /// An open, unlinked file of this many pages.
    fn file(pages: usize) -> File {
        let path = std::env::temp_dir().join(format!(
            "kelvin-mapping-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&vec![7; pages * page_bytes()]).unwrap();
        file
    }

    fn count_faults(work: impl FnOnce()) -> u64 {
        let before = read_usage(UsageScope::Thread).minor_faults;
        work();
        read_usage(UsageScope::Thread).minor_faults - before
    }

    #[test]
    fn separate_area_is_separate_fault() {
        let file = file(64);
        let mapping = FileMapping::page_by_page(&file, 64 * page_bytes()).unwrap();
        for _ in 0..2 {
            assert_eq!(count_faults(|| mapping.read(0, page_bytes(), 64)), 64);
            assert_eq!(count_faults(|| mapping.read(0, page_bytes(), 64)), 0);
            mapping.unmap_pages(0, mapping.len()).unwrap();
        }
    }

    #[test]
    fn written_pages_are_cached() {
        let file = file(8);
        let mapping = FileMapping::whole(&file, 8 * page_bytes()).unwrap();
        assert_eq!(mapping.resident(0, mapping.len()).unwrap(), [true; 8]);
        assert_eq!(mapping.resident(page_bytes(), 2 * page_bytes()).unwrap(), [true; 2]);
        assert!(matches!(cached_pages(&file, mapping.len()).unwrap(), None | Some(8)));
        assert!(matches!(unwritten_pages(&file, mapping.len()).unwrap(), None | Some(0..=8)));
        file.sync_all().unwrap();
        assert!(matches!(unwritten_pages(&file, mapping.len()).unwrap(), None | Some(0)));
        assert!(mapping.resident(1, 2).is_err() && mapping.resident(0, mapping.len() + 1).is_err());
    }

    #[test]
    fn discarded_pages_fault_again_and_are_zero() {
        let mut arena = Arena::map(16 * page_bytes(), PagePolicy::Base).unwrap();
        for _ in 0..2 {
            assert_eq!(count_faults(|| write_pages(&mut arena, page_bytes(), 16)), 16);
            discard_pages(&mut arena, 4 * page_bytes()).unwrap();
            assert_eq!(count_faults(|| read_pages(&arena, page_bytes(), 16)), 4);
            assert_eq!((arena.as_slice()[0], arena.as_slice()[4 * page_bytes()]), (0, 1));
            discard_pages(&mut arena, usize::MAX).unwrap();
        }
    }

    #[test]
    #[should_panic(expected = "leave the mapping")]
    fn out_of_range_touch_is_refused() {
        let file = file(1);
        FileMapping::whole(&file, page_bytes()).unwrap().read(0, page_bytes(), 2);
    }
}
