//! The heap of the static build: dlmalloc behind one lock.
//!
//! musl's own gives large blocks back to the kernel when they are freed, and asks for them again: parsing a run again and again takes four
//! times the page faults that it takes with glibc. This one keeps up to 2 MiB, about as glibc does. It has no threads and no huge pages of its
//! own, so that what is measured finds no more memory than a program has anyway.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::Dlmalloc;

static BLOCKS: Mutex<Dlmalloc> = Mutex::new(Dlmalloc::new());

/// Waits until no other thread changes the heap, and keeps them from it. A fork meanwhile gives the child a heap that it can use.
pub(crate) fn lock() -> MutexGuard<'static, Dlmalloc> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one heap of this process.
#[derive(Clone, Copy, Debug)]
pub struct Heap;

// SAFETY: dlmalloc keeps the contract of each function, which has that of the trait, and the lock gives it one caller at a time. The lock
// allocates nothing.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller of this promises.
        unsafe { lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller of this promises.
        unsafe { lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller of this promises.
        unsafe { lock().free(block, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as the caller of this promises.
        unsafe { lock().realloc(block, layout.size(), layout.align(), new_size) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::process::{Child, ExitKind, fork_worker};

    /// A block of the heap that is not the one of this test.
    struct Block(*mut u8, Layout);

    impl Block {
        fn filled(size: usize, align: usize, byte: u8) -> Self {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the size is not zero, and that many bytes are written.
            let start = unsafe { Heap.alloc(layout) };
            assert!(!start.is_null() && start.addr().is_multiple_of(align));
            // SAFETY: as above.
            unsafe { start.write_bytes(byte, size) };
            Self(start, layout)
        }

        fn bytes(&self) -> &[u8] {
            // SAFETY: the block has that many bytes, all written.
            unsafe { std::slice::from_raw_parts(self.0, self.1.size()) }
        }

        fn grow(&mut self, size: usize, byte: u8) {
            let old_size = self.1.size();
            // SAFETY: the block is of this layout, the new size is larger, and what is new is written.
            unsafe {
                self.0 = Heap.realloc(self.0, self.1, size);
                self.0.add(old_size).write_bytes(byte, size - old_size);
            }
            self.1 = Layout::from_size_align(size, self.1.align()).unwrap();
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: it is of this layout, and nothing uses it any more.
            unsafe { Heap.dealloc(self.0, self.1) };
        }
    }

    #[test]
    fn blocks_keep_bytes_and_alignment() {
        let sizes = [1usize, 24, 100, 4096, 70_000, 3 << 20];
        let mut blocks: Vec<Block> =
            (0u8..60).map(|n| Block::filled(sizes[usize::from(n) % 6], 1 << (n % 13), n)).collect();
        for n in (0u8..60).rev().step_by(3) {
            drop(blocks.remove(usize::from(n)));
        }
        for block in &mut blocks {
            let byte = block.bytes()[0];
            block.grow(block.1.size() * 2, byte);
            assert!(block.0.addr().is_multiple_of(block.1.align()));
        }
        for block in &blocks {
            assert!(block.bytes().iter().all(|byte| *byte == block.bytes()[0]));
        }
    }

    #[test]
    fn used_memory_is_zeroed_again() {
        let layout = Layout::from_size_align(5000, 64).unwrap();
        for _ in 0..3 {
            drop(Block::filled(5000, 64, 7));
            // SAFETY: the size is not zero, and the block is of this layout.
            let zeroed = Block(unsafe { Heap.alloc_zeroed(layout) }, layout);
            assert!(zeroed.bytes().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn child_uses_heap_that_threads_were_changing() {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        drop(Block::filled(64, 8, 1));
                    }
                });
            }
            let mut exits = (0..50).map(|_| {
                let child = fork_worker(|| {
                    // SAFETY: takes no pointers. It ends a child that waits for a lock of which nobody is left.
                    unsafe { libc::alarm(20) };
                    Block::filled(100_000, 8, 2).bytes()[99_999]
                });
                child.and_then(Child::wait)
            });
            let failure = exits.find(|exit| !matches!(exit, Ok(ExitKind::Exited(2))));
            is_over.store(true, Ordering::Relaxed);
            assert!(failure.is_none(), "{failure:?}");
        });
    }
}
