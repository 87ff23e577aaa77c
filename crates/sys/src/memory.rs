//! Memory of a chosen page size, touched before it is timed.

use std::sync::atomic::{Ordering, fence};

use crate::clock::Clock;
#[cfg(target_arch = "x86_64")]
use crate::cpuid;
use crate::random::split_mix;
use crate::region::Region;
use crate::{Error, Result};

/// The pages that an arena requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePolicy {
    /// Those that the kernel gives to any program that asks for none in particular, as to malloc: base pages, or where
    /// transparent_hugepage/enabled is `always` huge ones.
    Default,
    /// Base pages; transparent huge pages are disabled.
    Base,
    /// Transparent huge pages, if the kernel provides them.
    Huge,
}

impl PagePolicy {
    /// Those with which a buffer of this many bytes is moved fastest: huge ones from 512 KiB on. Contiguous memory goes to the device in
    /// one segment; a large direct request of scattered pages has hundreds, more than some devices accept.
    pub fn for_buffer(bytes: usize) -> Self {
        const LARGE: usize = 512 << 10;
        if bytes >= LARGE { Self::Huge } else { Self::Base }
    }

    /// Their name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Base => "base",
            Self::Huge => "huge",
        }
    }
}

/// Memory of its own, aligned to a huge page.
#[derive(Debug)]
pub struct Arena(Region);

/// Alignment of an arena: a huge page of 2 MiB, so that one can lie at its start.
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Arena {
    /// Maps `bytes` (rounded up to 2 MiB for huge pages) without touching them.
    pub fn map(bytes: usize, pages: PagePolicy) -> Result<Self> {
        let bytes = Self::whole_pages(bytes, pages);
        let region = Region::aligned(bytes, HUGE_PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE)?;
        let advice = match pages {
            PagePolicy::Default => libc::MADV_NORMAL,
            PagePolicy::Base => libc::MADV_NOHUGEPAGE,
            PagePolicy::Huge => libc::MADV_HUGEPAGE,
        };
        // It is only advice: a kernel without huge pages refuses it.
        let _ = region.advise(0, bytes, advice);
        Ok(Self(region))
    }

    /// A resident buffer in the pages with which it is moved fastest, if available: see [`PagePolicy::for_buffer`].
    pub fn io_buffer(bytes: usize) -> Result<Self> {
        Self::populated(bytes, PagePolicy::for_buffer(bytes))
    }

    /// Bytes that [`Self::io_buffer`] makes resident for this many, if huge pages are available.
    pub fn io_buffer_bytes(bytes: usize) -> usize {
        Self::whole_pages(bytes, PagePolicy::for_buffer(bytes))
    }

    fn whole_pages(bytes: usize, pages: PagePolicy) -> usize {
        bytes.max(1).next_multiple_of(if pages == PagePolicy::Huge { HUGE_PAGE_BYTES } else { 4096 })
    }

    /// Zeroed memory whose pages are there already: by one system call instead of a fault per page, if available (MADV_POPULATE_WRITE, Linux 5.14).
    pub fn populated(bytes: usize, pages: PagePolicy) -> Result<Self> {
        let mut arena = Self::map(bytes, pages)?;
        arena.populate()?;
        Ok(arena)
    }

    /// Makes every page resident and writable, as a write to each of them would; no byte changes.
    pub fn populate(&mut self) -> Result<()> {
        match self.0.advise(0, self.0.bytes(), libc::MADV_POPULATE_WRITE) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            populated => return populated,
        }
        for page in self.as_mut_slice().chunks_mut(4096) {
            // SAFETY: the first byte of a page of ours, which is borrowed exclusively. Volatile, so that the store of
            // what was just loaded is not left out.
            unsafe { std::ptr::write_volatile(&raw mut page[0], std::ptr::read_volatile(&raw const page[0])) };
        }
        Ok(())
    }

    /// Writes an address at a place that is counted from the first byte.
    fn write_pointer(&mut self, offset: usize, address: usize) {
        let pointer = address.to_ne_bytes();
        self.as_mut_slice()[offset..offset + pointer.len()].copy_from_slice(&pointer);
    }

    /// Where it begins, for memory that somebody else writes into as well.
    pub(crate) fn start(&self) -> *mut u8 {
        self.0.start().as_ptr()
    }

    /// Advises the kernel of its first bytes, by advice that keeps them mapped.
    pub(crate) fn advise(&mut self, bytes: usize, advice: libc::c_int) -> Result<()> {
        self.0.advise(0, bytes, advice)
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is readable, and zero at the beginning.
        unsafe { self.0.as_slice() }
    }

    /// Its bytes, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is writable, and zero at the beginning.
        unsafe { self.0.as_mut_slice() }
    }

    /// Flushes it from every cache, from the line of this byte to its end, with write-back.
    pub fn evict_from(&self, first: usize) {
        let evict = eviction();
        for line in self.as_slice()[first / LINE_BYTES * LINE_BYTES..].chunks(LINE_BYTES) {
            evict(line);
        }
        fence(Ordering::SeqCst);
    }

    /// Its size in bytes; never none.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.bytes()
    }

    /// Where it begins.
    pub fn address(&self) -> usize {
        self.0.address()
    }
}

/// A ring of pointers through a working set, to be chased with dependent loads.
///
/// Any order is one cycle over all places.
#[derive(Debug)]
pub struct PointerRing {
    arena: Arena,
    lines: usize,
    position: usize,
    /// Lines that no cache holds, from the position on: not known before they were flushed.
    uncached_lines: u64,
}

/// Bytes between two pointers of a dense [`PointerRing`] in random order.
pub const LINE_BYTES: usize = 64;
/// Maximum pointers of a [`PointerRing`]: their numbers have 32 bits while it is built.
const MAX_POINTERS: usize = u32::MAX as usize;

impl PointerRing {
    /// A ring through `bytes` of memory, one pointer per cache line, in random order given by `seed`.
    ///
    /// Every cycle through all lines is equally likely (Sattolo's algorithm), so that no prefetcher can follow and no
    /// page is visited more often than another. Building it takes a sixteenth more memory.
    pub fn new(bytes: usize, pages: PagePolicy, seed: u64) -> Result<Self> {
        let lines = (bytes / LINE_BYTES).max(2);
        Self::random(lines, lines * LINE_BYTES, pages, seed, |line| line * LINE_BYTES)
    }

    /// A ring through `count` base pages in random order, one line per page.
    ///
    /// The line within the page advances by one from page to page, so that the lines spread over the sets of a
    /// virtually indexed cache as the same number of adjacent lines would.
    pub fn line_per_page(count: usize, seed: u64) -> Result<Self> {
        const PAGE: usize = 4096;
        let offset_of_page = |page: usize| page * PAGE + page % (PAGE / LINE_BYTES) * LINE_BYTES;
        let count = count.max(2);
        Self::random(count, count * PAGE, PagePolicy::Base, seed, offset_of_page)
    }

    /// A ring through `bytes` of memory in random order, one line in each piece of `piece` bytes, at a random place in it: what is between
    /// them is touched once, when it is mapped.
    ///
    /// With the same place in each piece the lines would share a few sets of the caches, and a few memory channels.
    pub fn line_per_piece(bytes: usize, piece: usize, pages: PagePolicy, seed: u64) -> Result<Self> {
        let pieces = (bytes / piece).max(2);
        let piece_lines = (piece / LINE_BYTES).max(1);
        let offset_of_piece = |index: usize| {
            let mut state = seed ^ index as u64;
            index * piece + random_below(piece_lines as u64, &mut state) * LINE_BYTES
        };
        Self::random(pieces, pieces * piece, pages, seed, offset_of_piece)
    }

    /// A ring through `bytes` of memory in random order, of at least `min_lines` evenly spread lines, or of all where the memory has fewer.
    ///
    /// It takes less time to build than one of all lines. A cache may hold the lines that it has: flushed from there, as
    /// [`Self::chase_uncached`] does, each of them comes from memory once.
    pub fn sparse(bytes: usize, min_lines: usize, pages: PagePolicy, seed: u64) -> Result<Self> {
        let piece_lines = (bytes / LINE_BYTES / min_lines.max(1)).max(1);
        Self::line_per_piece(bytes, piece_lines * LINE_BYTES, pages, seed)
    }

    /// A ring through `bytes` of memory backwards, each pointer to the place `stride` bytes before it.
    ///
    /// With a stride of more than a line it passes over the memory several times, each time one line further on, so
    /// that every line is in the ring. The stride is at least the size of a pointer; up to a line it divides the line,
    /// and from there on it is a multiple of it.
    pub fn descending(bytes: usize, stride: usize, pages: PagePolicy) -> Result<Self> {
        let is_even = if stride <= LINE_BYTES {
            LINE_BYTES.is_multiple_of(stride.max(1))
        } else {
            stride.is_multiple_of(LINE_BYTES)
        };
        if stride < size_of::<usize>() || !is_even {
            return Err(Error::other(format!("stride {stride}: must divide {LINE_BYTES} or be a multiple of it")));
        }
        let strides = (bytes / stride).max(2);
        let mut arena = Arena::populated(strides * stride, pages)?;
        let base = arena.address();
        let distance = stride.min(LINE_BYTES);
        let (last, last_offset) = (stride - distance, (strides - 1) * stride);
        for offset in (0..strides * stride).step_by(distance) {
            let next = match offset.checked_sub(stride) {
                Some(before) => before,
                None if offset == last => last_offset,
                None => last_offset + offset + distance,
            };
            arena.write_pointer(offset, base + next);
        }
        Ok(Self { arena, lines: strides * (stride / distance), position: base, uncached_lines: 0 })
    }

    /// A ring through `count` places in random order, in an arena of `bytes`.
    fn random(
        count: usize,
        bytes: usize,
        pages: PagePolicy,
        seed: u64,
        offset_of: impl Fn(usize) -> usize,
    ) -> Result<Self> {
        if count > MAX_POINTERS {
            return Err(Error::other(format!(
                "a ring of {count} pointers: at most {MAX_POINTERS} can be put in order"
            )));
        }
        let order = sattolo(count, seed);
        let mut arena = Arena::populated(bytes, pages)?;
        let base = arena.address();
        for (index, &successor) in order.iter().enumerate() {
            arena.write_pointer(offset_of(index), base + offset_of(successor as usize));
        }
        Ok(Self { arena, lines: count, position: base + offset_of(0), uncached_lines: 0 })
    }

    /// Flushes its last `bytes` from every cache: building it left them there, as no chase would.
    pub fn evict_end(&self, bytes: usize) {
        self.arena.evict_from(self.arena.len().saturating_sub(bytes));
    }

    /// Number of pointers.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// The memory that it goes through.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Follows `hops` pointers whose lines no cache holds, and returns the ticks that it takes: whenever all lines have been visited, they
    /// are flushed, which does not count.
    pub fn chase_uncached(&mut self, clock: Clock, hops: u64) -> u64 {
        let (mut remaining, mut ticks) = (hops, 0);
        while remaining > 0 {
            if self.uncached_lines == 0 {
                self.evict_end(usize::MAX);
                self.uncached_lines = self.lines as u64;
            }
            let hops = remaining.min(self.uncached_lines);
            ticks += clock.time(|| self.chase(hops)).0;
            remaining -= hops;
            self.uncached_lines -= hops;
        }
        ticks
    }

    /// Follows `hops` pointers from where the last chase ended, with dependent loads.
    #[inline(always)]
    pub fn chase(&mut self, hops: u64) {
        // SAFETY: `at` is the address of a pointer of this ring, and every pointer holds the address of another one.
        self.position = unsafe { crate::kernels::chase(self.position, hops) };
    }
}

/// Several chases through one ring at once, each of dependent loads, and none waiting for another.
#[derive(Debug)]
pub struct ParallelChases {
    ring: PointerRing,
    /// Where each has come to.
    positions: Vec<usize>,
}

impl ParallelChases {
    /// This many chases, at least one and at most as many as there are pointers. They begin at even distances in memory, which is at random
    /// places of a ring in random order.
    pub fn new(ring: PointerRing, count: usize) -> Self {
        let count = count.clamp(1, ring.lines);
        let distance = ring.lines / count * LINE_BYTES;
        let positions = (0..count).map(|chase| ring.arena.address() + chase * distance).collect();
        Self { ring, positions }
    }

    /// Follows this many pointers in all, one of each chase, interleaved.
    #[inline]
    pub fn follow(&mut self, loads: u64) {
        let (rounds, rest) = (loads / self.positions.len() as u64, loads % self.positions.len() as u64);
        for _ in 0..rounds {
            self.positions.iter_mut().for_each(hop);
        }
        self.positions.iter_mut().take(rest as usize).for_each(hop);
    }

    /// The ring that all of them follow.
    pub fn ring(&self) -> &PointerRing {
        &self.ring
    }
}

/// One load. Its place is kept in memory, not in a register, of which there are fewer than chases: that costs some cycles out of the
/// hundreds that the load takes, and none of them is waited for.
#[inline(always)]
fn hop(pointer: &mut usize) {
    // SAFETY: `pointer` is the address of a pointer of a ring in random order, one to a line, and every pointer holds the address of another one.
    // Volatile, so that no load is left out.
    *pointer = unsafe { std::ptr::read_volatile(*pointer as *const usize) };
}

/// The way to flush the cache line of the first byte from every cache, with write-back; what flushes it may be under way until a fence.
#[cfg(target_arch = "x86_64")]
fn eviction() -> fn(&[u8]) {
    /// CLFLUSHOPT: bit 23 of EBX of leaf 7.
    const OPTIMISED: u32 = 1 << 23;
    let has_leaf = cpuid::leaf(0, 0).is_some_and(|[max_leaf, ..]| max_leaf >= 7);
    if has_leaf && cpuid::leaf(7, 0).is_some_and(|[_, ebx, ..]| ebx & OPTIMISED != 0) {
        // It does not wait for the flush before it: 256 MiB take 10 ms where CLFLUSH takes 580 (Emerald Rapids).
        return |line| {
            // SAFETY: the instruction changes no memory, the address is one that may be read, and the processor has it.
            unsafe {
                std::arch::asm!("clflushopt [{line}]", line = in(reg) line.as_ptr(), options(nostack, preserves_flags));
            }
        };
    }
    evict
}

#[cfg(target_arch = "x86_64")]
fn evict(line: &[u8]) {
    // SAFETY: the instruction changes no memory, and the address is one that may be read. CLFLUSH is part of SSE2, which every x86-64
    // processor has.
    unsafe { std::arch::x86_64::_mm_clflush(line.as_ptr()) }
}

/// Like `evict`: clean and invalidate by address.
#[cfg(target_arch = "aarch64")]
fn eviction() -> fn(&[u8]) {
    |line| {
        // SAFETY: the instruction changes no memory, the address is one that may be read, and Linux lets user space do it
        // (SCTLR_EL1.UCI).
        unsafe {
            std::arch::asm!("dc civac, {line}", line = in(reg) line.as_ptr(), options(nostack, preserves_flags));
        }
    }
}

/// For each of `n` elements its successor in one random cycle through all of them (Sattolo 1986).
///
/// The swaps are independent, as the random numbers come from a counter; with four bytes per element most of what they
/// touch stays in the cache.
fn sattolo(n: usize, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    let mut state = seed;
    for i in (1..n).rev() {
        order.swap(i, random_below(i as u64, &mut state));
    }
    order
}

/// A random number below `bound`, which is less than 2^32: the upper half of a product instead of a remainder (Lemire
/// 2019), each number likely to within one part in 2^32 over the bound.
fn random_below(bound: u64, state: &mut u64) -> usize {
    (((split_mix(state) >> 32) * bound) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from the start of a ring's memory to the pointer where the last chase ended.
    fn offset(ring: &PointerRing) -> usize {
        ring.position - ring.arena.address()
    }

    #[test]
    fn ring_is_one_cycle() {
        for lines in [2usize, 3, 64, 1000] {
            let mut ring = PointerRing::new(lines * LINE_BYTES, PagePolicy::Base, 7).unwrap();
            for hop in 1..=ring.lines() {
                ring.chase(1);
                assert_eq!(offset(&ring) == 0, hop == ring.lines(), "lines {lines} hop {hop}");
            }
        }
    }

    #[test]
    fn flushed_bytes_are_unchanged() {
        let mut arena = Arena::populated(1 << 20, PagePolicy::Base).unwrap();
        arena.as_mut_slice().iter_mut().enumerate().for_each(|(index, byte)| *byte = (index % 251) as u8);
        arena.evict_from(1000);
        #[cfg(target_arch = "x86_64")]
        arena.as_slice().chunks(LINE_BYTES).for_each(evict);
        assert!(arena.as_slice().iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8));
    }

    #[test]
    fn chases_share_loads_and_follow_ring() {
        const CHASES: usize = 5;
        for loads in [0u64, 3, 5, 1003] {
            let mut chases =
                ParallelChases::new(PointerRing::new(1000 * LINE_BYTES, PagePolicy::Base, 7).unwrap(), CHASES);
            let starts = chases.positions.clone();
            chases.follow(loads);
            for (number, &start) in starts.iter().enumerate() {
                let steps = loads / CHASES as u64 + u64::from((number as u64) < loads % CHASES as u64);
                chases.ring.position = start;
                (0..steps).for_each(|_| chases.ring.chase(1));
                assert_eq!(chases.ring.position, chases.positions[number], "chase {number} of {loads} loads");
            }
        }
        let three_chases = ParallelChases::new(PointerRing::new(3 * LINE_BYTES, PagePolicy::Base, 7).unwrap(), 100);
        assert_eq!(three_chases.positions.len(), 3, "no two begin at one place");
    }

    #[test]
    fn page_ring_spreads_lines_over_sets() {
        let mut ring = PointerRing::line_per_page(200, 11).unwrap();
        let mut pages = [false; 200];
        let mut sets = [0; 64];
        for _ in 0..200 {
            ring.chase(1);
            let page = offset(&ring) / 4096;
            assert!(!pages[page], "page {page} twice");
            pages[page] = true;
            sets[offset(&ring) % 4096 / LINE_BYTES] += 1;
        }
        assert!(sets.iter().all(|&lines| lines == 3 || lines == 4), "{sets:?}");
    }

    #[test]
    fn sparse_ring_covers_all_memory() {
        // 1000 lines of memory: one in three are at least 300, and one in two fewer than 600.
        for (min_lines, expected) in [(2000, 1000), (1000, 1000), (600, 1000), (300, 333), (10, 10)] {
            let mut ring = PointerRing::sparse(1000 * LINE_BYTES, min_lines, PagePolicy::Base, 3).unwrap();
            assert_eq!(ring.lines(), expected, "at least {min_lines}");
            let mut tenths = [0; 10];
            for _ in 0..ring.lines() {
                ring.chase(1);
                assert_eq!(offset(&ring) % LINE_BYTES, 0);
                tenths[offset(&ring) * 10 / (1000 * LINE_BYTES)] += 1;
            }
            assert!(tenths.iter().all(|&lines| lines >= expected / 10 - 1), "{tenths:?}");
        }
    }

    #[test]
    fn descending_ring_visits_every_line() {
        for stride in [16, 32, 64, 192, 4096] {
            let mut ring = PointerRing::descending(1 << 16, stride, PagePolicy::Base).unwrap();
            ring.evict_end(1 << 15);
            let size = ring.arena().len() / stride * stride;
            let distance = stride.min(LINE_BYTES);
            let mut visited = vec![false; size.div_ceil(distance)];
            let mut steps = 0;
            for _ in 0..ring.lines() {
                let before = offset(&ring);
                ring.chase(1);
                steps += usize::from(before.checked_sub(stride) == Some(offset(&ring)));
                assert!(!std::mem::replace(&mut visited[offset(&ring) / distance], true), "stride {stride}");
            }
            assert_eq!(offset(&ring), 0);
            assert!(steps >= ring.lines() - stride.div_ceil(distance), "stride {stride}: {steps}");
        }
        let error = PointerRing::descending(1 << 16, 48, PagePolicy::Base).unwrap_err().to_string();
        assert_eq!(error, "stride 48: must divide 64 or be a multiple of it");
    }

    #[test]
    fn successors_are_spread() {
        // The mean distance of two uniform draws is a third of the range; a blocked order would give far less.
        let n = 100_000;
        let order = sattolo(n, 5);
        let total: f64 =
            order.iter().enumerate().map(|(index, &successor)| (index as f64 - f64::from(successor)).abs()).sum();
        let mean = total / (n as f64).powi(2);
        assert!((mean - 1.0 / 3.0).abs() < 0.005, "{mean}");
    }

    #[test]
    fn arena_is_writable_to_last_byte() {
        assert_eq!(Arena::io_buffer(4096).unwrap().len(), 4096);
        assert_eq!(Arena::io_buffer(1 << 20).unwrap().len(), HUGE_PAGE_BYTES);
        let mut arena = Arena::map(3 << 20, PagePolicy::Huge).unwrap();
        assert_eq!(arena.len(), 4 << 20);
        *arena.as_mut_slice().last_mut().unwrap() = 7;
        assert_eq!(arena.as_slice()[arena.len() - 1], 7);
        assert_eq!(arena.address() % HUGE_PAGE_BYTES, 0);
    }
}
