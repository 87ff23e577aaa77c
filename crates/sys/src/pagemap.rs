//! The state of a process's own pages: /proc/self/pagemap, its scan, and /proc/kpageflags.
//!
//! Bits and layouts are those of Linux Documentation/admin-guide/mm/pagemap.rst and include/uapi/linux/fs.h.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::mapping::page_bytes;
use crate::{Error, Result};

/// The state of one page of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// It is present in memory.
    pub present: bool,
    /// It is in swap.
    pub swapped: bool,
    /// It belongs to a file or to shared memory.
    pub file: bool,
    /// It is exclusively mapped.
    pub exclusive: bool,
    /// It is soft-dirty: written since last cleared, or its area is new; always false in kernels that do not track it.
    pub soft_dirty: bool,
    /// A huge page maps it; unknown before Linux 6.7.
    pub huge: Option<bool>,
    /// It is the kernel's zero page; unknown before Linux 6.7.
    pub zero: Option<bool>,
    /// Its frame, if this process may know (CAP_SYS_ADMIN).
    pub frame: Option<u64>,
}

/// The state of `count` pages from an address on.
///
/// # Errors
/// A /proc/self/pagemap that cannot be read, an address that is not a page's.
pub fn page_states(address: usize, count: usize) -> Result<Vec<PageState>> {
    if !address.is_multiple_of(page_bytes()) {
        return Err(Error::other(format!("{address:#x} is not the address of a page")));
    }
    let file = File::open("/proc/self/pagemap")?;
    let mut bytes = vec![0; count * size_of::<u64>()];
    file.read_exact_at(&mut bytes, (address / page_bytes() * size_of::<u64>()) as u64)?;
    let entries = bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes);
    let mut pages: Vec<PageState> = entries.map(PageState::from_entry).collect();
    if let Some(regions) = scan(&file, address, count)? {
        for (number, page) in pages.iter_mut().enumerate() {
            let start = (address + number * page_bytes()) as u64;
            let categories = regions.iter().find(|region| (region.start..region.end).contains(&start));
            let categories = categories.map_or(0, |region| region.categories);
            page.huge = Some(categories & PAGE_IS_HUGE != 0);
            page.zero = Some(categories & PAGE_IS_PFNZERO != 0);
        }
    }
    Ok(pages)
}

impl PageState {
    /// From an entry of pagemap.
    fn from_entry(entry: u64) -> Self {
        let bit = |number: u32| entry >> number & 1 == 1;
        let frame = entry & ((1 << 55) - 1);
        Self {
            present: bit(63),
            swapped: bit(62),
            file: bit(61),
            exclusive: bit(56),
            soft_dirty: bit(55),
            huge: None,
            zero: None,
            frame: (bit(63) && frame != 0).then_some(frame),
        }
    }
}

/// PAGEMAP_SCAN, since Linux 6.7: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanRequest {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ScanRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The huge and zero pages of a range, as regions; `None` where the kernel has no scan.
fn scan(pagemap: &File, address: usize, count: usize) -> Result<Option<Vec<ScanRegion>>> {
    let mut regions = vec![ScanRegion::default(); count];
    let categories = PAGE_IS_PFNZERO | PAGE_IS_HUGE;
    let mut request = ScanRequest {
        size: size_of::<ScanRequest>() as u64,
        start: address as u64,
        end: (address + count * page_bytes()) as u64,
        regions: regions.as_mut_ptr() as u64,
        regions_length: count as u64,
        category_anyof_mask: categories,
        return_mask: categories,
        ..ScanRequest::default()
    };
    // SAFETY: the request is laid out as the call has it, and the vector has room for as many regions as it states.
    let count_written = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut request) };
    if let Ok(count_written) = usize::try_from(count_written) {
        regions.truncate(count_written);
        return Ok(Some(regions));
    }
    let error = Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::EPERM | libc::ENOSYS) => Ok(None),
        _ => Err(error),
    }
}

/// Names of the flags of a frame, by bit, as in include/uapi/linux/kernel-page-flags.h.
const FRAME_FLAGS: [(u32, &str); 12] = [
    (3, "uptodate"),
    (4, "dirty"),
    (5, "lru"),
    (6, "active"),
    (11, "mmap"),
    (12, "anon"),
    (14, "swapbacked"),
    (15, "compound_head"),
    (16, "compound_tail"),
    (17, "huge"),
    (22, "thp"),
    (24, "zero_page"),
];

/// The flags of a frame, by name, from /proc/kpageflags; `None` where this process may not read it.
///
/// # Errors
/// Any other error of reading it.
pub fn frame_flags(frame: u64) -> Result<Option<Vec<&'static str>>> {
    let mut word = [0; size_of::<u64>()];
    let read = File::open("/proc/kpageflags").and_then(|file| file.read_exact_at(&mut word, frame * 8));
    match read {
        Ok(()) => {
            let flags = u64::from_ne_bytes(word);
            let set = FRAME_FLAGS.iter().filter(|(bit, _)| flags >> bit & 1 == 1);
            Ok(Some(set.map(|&(_, name)| name).collect()))
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::NotFound) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping;
    use crate::memory::{Arena, PagePolicy};

    #[test]
    fn entry_bits_decode() {
        let page = PageState::from_entry(1 << 63 | 1 << 56 | 0x1234);
        assert!(page.present && page.exclusive && !page.file && !page.swapped && !page.soft_dirty);
        assert_eq!(page.frame, Some(0x1234));
        let swapped = PageState::from_entry(1 << 62 | 1 << 61 | 1 << 55 | 7);
        assert!(!swapped.present && swapped.swapped && swapped.file && swapped.soft_dirty);
        assert_eq!(swapped.frame, None);
    }

    #[test]
    fn read_pages_are_zero_written_are_exclusive() {
        let mut arena = Arena::map(32 * page_bytes(), PagePolicy::Base).unwrap();
        let read_states = |arena: &Arena| page_states(arena.address(), 32).unwrap();
        assert!(read_states(&arena).iter().all(|page| !page.present));
        mapping::read_pages(&arena, page_bytes(), 32);
        assert!(read_states(&arena).iter().all(|page| page.present && !page.exclusive && page.zero != Some(false)));
        mapping::write_pages(&mut arena, page_bytes(), 8);
        let pages = read_states(&arena);
        assert!(pages[..8].iter().all(|page| page.present && page.exclusive && page.zero != Some(true)));
        assert!(pages[8..].iter().all(|page| !page.exclusive && page.huge != Some(true)));
        if let Some(frame) = pages[0].frame {
            let flags = frame_flags(frame).unwrap();
            assert!(flags.is_none_or(|flags| flags.contains(&"anon") && !flags.contains(&"zero_page")));
        }
    }

    #[test]
    fn unaligned_address_is_refused() {
        assert!(page_states(1, 1).is_err());
    }
}
