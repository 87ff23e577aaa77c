//! Memory of a chosen page size, touched before it is timed.

use std::ptr::NonNull;

use crate::{Error, Result};

/// Which pages an arena asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Base pages; transparent huge pages are refused.
    Base,
    /// Transparent huge pages, if the kernel gives them.
    Huge,
}

/// Anonymous private memory, unmapped when dropped.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the arena owns its mapping; access follows the usual borrow rules through its slices.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// Alignment of an arena: a huge page of 2 MiB, so that one can lie at its start.
const HUGE: usize = 2 << 20;

impl Arena {
    /// Maps `bytes` (rounded up to 2 MiB for huge pages) without touching them.
    pub fn map(bytes: usize, pages: Pages) -> Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(if pages == Pages::Huge { HUGE } else { 4096 });
        let padded = bytes + HUGE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let first = address as usize;
        let aligned = first.next_multiple_of(HUGE);
        let advice = if pages == Pages::Huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the parts cut off and the part advised lie inside the mapping just made. Advice that a kernel without
        // transparent huge pages refuses (EINVAL) leaves base pages, which `obtained` would show.
        unsafe {
            if aligned > first {
                libc::munmap(address, aligned - first);
            }
            let end = aligned + bytes;
            if first + padded > end {
                libc::munmap(end as *mut _, first + padded - end);
            }
            libc::madvise(aligned as *mut _, bytes, advice);
        }
        let start = NonNull::new(aligned as *mut u8).ok_or_else(|| Error::other("mmap returned address zero"))?;
        Ok(Self { start, bytes })
    }

    /// Maps and touches every page, so that all of it is resident.
    pub fn resident(bytes: usize, pages: Pages) -> Result<Self> {
        let mut arena = Self::map(bytes, pages)?;
        for page in arena.as_mut_slice().chunks_mut(4096) {
            page[0] = 1;
        }
        Ok(arena)
    }

    /// The same by one call of the kernel instead of a fault a page, where it can (MADV_POPULATE_WRITE, Linux 5.14).
    pub fn populated(bytes: usize, pages: Pages) -> Result<Self> {
        let mut arena = Self::map(bytes, pages)?;
        arena.populate()?;
        Ok(arena)
    }

    /// Makes every page resident and writable, as a write to each of them would; no byte changes.
    pub fn populate(&mut self) -> Result<()> {
        // SAFETY: the range is our mapping; the call faults its pages in for writing and leaves what they hold.
        if unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        let error = Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        for page in self.as_mut_slice().chunks_mut(4096) {
            // SAFETY: the first byte of a page of ours, which is borrowed exclusively. Volatile, so that the store of
            // what was just loaded is not left out.
            unsafe { std::ptr::write_volatile(&raw mut page[0], std::ptr::read_volatile(&raw const page[0])) };
        }
        Ok(())
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is readable for `bytes` and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Its bytes, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is writable for `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it is empty; it never is.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its first address.
    pub fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of pointers through a working set in random order, a pointer a cache line, to be chased.
///
/// The order is one cycle over all lines (Sattolo's algorithm), so that no prefetcher can follow and no line is left
/// out.
#[derive(Debug)]
pub struct Ring {
    arena: Arena,
    lines: usize,
    at: usize,
}

/// Bytes between two pointers of a [`Ring`].
pub const LINE: usize = 64;

impl Ring {
    /// A ring through `bytes` of memory; `seed` decides the order.
    pub fn new(bytes: usize, pages: Pages, seed: u64) -> Result<Self> {
        let lines = (bytes / LINE).max(2);
        let mut arena = Arena::resident(lines * LINE, pages)?;
        let base = arena.address();
        let order = sattolo(lines, seed);
        let memory = arena.as_mut_slice();
        for (line, &next) in order.iter().enumerate() {
            let pointer = (base + next as usize * LINE).to_ne_bytes();
            memory[line * LINE..line * LINE + pointer.len()].copy_from_slice(&pointer);
        }
        Ok(Self { arena, lines, at: base })
    }

    /// Number of lines.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Follows `hops` pointers from where the last chase ended, each load waiting for the one before.
    #[inline(always)]
    pub fn chase(&mut self, hops: u64) {
        // SAFETY: `at` is the address of a line of this ring, and every line holds the address of another one.
        self.at = unsafe { crate::kernels::chase(self.at, hops) };
    }

    /// The line where the last chase ended, counted from the first.
    pub fn line(&self) -> usize {
        (self.at - self.arena.address()) / LINE
    }
}

/// For each of `n` elements its successor in one random cycle through all of them (Sattolo 1986).
fn sattolo(n: usize, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    let mut state = seed;
    for i in (1..n).rev() {
        order.swap(i, (split_mix(&mut state) % i as u64) as usize);
    }
    order
}

/// The next number of the splitmix64 generator (Steele, Lea, Flood 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_one_cycle_through_every_line() {
        for lines in [2usize, 3, 64, 1000] {
            let mut ring = Ring::new(lines * LINE, Pages::Base, 7).unwrap();
            for hop in 1..=ring.lines() {
                ring.chase(1);
                assert_eq!(ring.line() == 0, hop == ring.lines(), "lines {lines} hop {hop}");
            }
        }
    }

    #[test]
    fn an_arena_is_writable_to_its_last_byte() {
        let mut arena = Arena::map(3 << 20, Pages::Huge).unwrap();
        assert_eq!(arena.len(), 4 << 20);
        *arena.as_mut_slice().last_mut().unwrap() = 7;
        assert_eq!(arena.as_slice()[arena.len() - 1], 7);
        assert_eq!(arena.address() % HUGE, 0);
    }
}
