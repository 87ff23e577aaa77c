//! A cache line that two tasks bounce with plain loads and stores, and words that two tasks increment at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Result;
use crate::shared_memory::{Shared, Zeroed};

/// Words between two places that share no cache line: 128 bytes, because some cores fetch lines in pairs of 64 bytes.
const WORDS_APART: usize = 16;

/// A page of memory, aligned to two cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
struct LineWords([AtomicU64; 2 * WORDS_APART]);

// SAFETY: zeros of atomic integers.
unsafe impl Zeroed for LineWords {}

/// A cache line that bounces between two tasks.
///
/// Its word counts the passes: the serving task makes it odd, the other even again. Each spins on the word, so the line
/// is shared while it waits and invalidated by the other's store.
#[derive(Debug)]
pub struct BouncingLine(Shared<LineWords>);

impl BouncingLine {
    /// A line not yet passed.
    pub fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Shared::new()?)))
    }

    /// Passes the line to the other task and waits for it, `trips` times. The other task must [`BouncingLine::pong`] as many,
    /// on another CPU.
    #[inline(always)]
    pub fn ping(&self, trips: u64) {
        if trips > 0 {
            arch::serve(&self.0.0[0], self.passes(), trips);
        }
    }

    /// Waits for the line and passes it back, `trips` times.
    #[inline(always)]
    pub fn pong(&self, trips: u64) {
        if trips > 0 {
            // The other task may have passed the line before this one looks; it cannot have passed it twice.
            arch::answer(&self.0.0[0], self.passes() & !1, trips);
        }
    }

    /// How often the line was passed, both ways.
    pub fn passes(&self) -> u64 {
        self.0.0[0].load(Ordering::Acquire)
    }
}

/// The layout of the words of two tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordLayout {
    /// Side by side in one cache line.
    SameLine,
    /// 128 bytes apart.
    SeparateLines,
}

/// How a word is incremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Increment {
    /// By a load, an add and a store, as a private variable.
    Plain,
    /// By one atomic instruction, as a shared counter.
    Atomic,
}

/// Two words, one for each of two tasks.
#[derive(Debug)]
pub struct PairCounters {
    words: Shared<LineWords>,
    second: usize,
}

impl PairCounters {
    /// Two zeros.
    pub fn new(places: WordLayout) -> Result<Arc<Self>> {
        let second = if places == WordLayout::SameLine { 1 } else { WORDS_APART };
        Ok(Arc::new(Self { words: Shared::new()?, second }))
    }

    /// Increments the word of the first or the second task `times` times. Only that task may.
    #[inline(always)]
    pub fn increment(&self, second: bool, increment: Increment, times: u64) {
        let word = self.word(second);
        match increment {
            _ if times == 0 => {}
            Increment::Plain => arch::increments(word, times),
            Increment::Atomic => arch::atomic_increments(word, times),
        }
    }

    /// The word of the first or the second task.
    pub fn value(&self, second: bool) -> u64 {
        self.word(second).load(Ordering::Relaxed)
    }

    fn word(&self, second: bool) -> &AtomicU64 {
        &self.words.0[if second { self.second } else { 0 }]
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::asm;
    use std::sync::atomic::AtomicU64;

    /// Stores the next number and waits for the one after it; loads are not reordered with loads, nor stores with
    /// stores, on this architecture. No `pause` between loads: it takes 140 cycles on some cores.
    #[inline(always)]
    pub fn serve(word: &AtomicU64, passes: u64, trips: u64) {
        // SAFETY: the word is valid and made to be used by several tasks at once; `trips` is not zero.
        unsafe {
            asm!(
                ".p2align 4", "2:", "inc {v}", "mov [{p}], {v}", "inc {v}", "3:", "cmp [{p}], {v}", "jne 3b", "dec {n}",
                "jnz 2b",
                p = in(reg) word.as_ptr(), v = inout(reg) passes => _, n = inout(reg) trips => _, options(nostack)
            );
        }
    }

    /// Waits for the next number and stores the one after it.
    #[inline(always)]
    pub fn answer(word: &AtomicU64, passes: u64, trips: u64) {
        // SAFETY: as in `serve`.
        unsafe {
            asm!(
                ".p2align 4", "2:", "inc {v}", "3:", "cmp [{p}], {v}", "jne 3b", "inc {v}", "mov [{p}], {v}", "dec {n}",
                "jnz 2b",
                p = in(reg) word.as_ptr(), v = inout(reg) passes => _, n = inout(reg) trips => _, options(nostack)
            );
        }
    }

    /// Loads, adds one and stores, by one instruction that is not atomic.
    #[inline(always)]
    pub fn increments(word: &AtomicU64, times: u64) {
        // SAFETY: the word is valid, and only the calling task writes it; `times` is not zero.
        unsafe {
            asm!(
                ".p2align 4", "2:", "inc qword ptr [{p}]", "dec {n}", "jnz 2b",
                p = in(reg) word.as_ptr(), n = inout(reg) times => _, options(nostack)
            );
        }
    }

    /// Like `increments`, by one atomic instruction.
    #[inline(always)]
    pub fn atomic_increments(word: &AtomicU64, times: u64) {
        // SAFETY: the word is valid; `times` is not zero.
        unsafe {
            asm!(
                ".p2align 4", "2:", "lock inc qword ptr [{p}]", "dec {n}", "jnz 2b",
                p = in(reg) word.as_ptr(), n = inout(reg) times => _, options(nostack)
            );
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use std::arch::asm;
    use std::sync::atomic::AtomicU64;

    /// Stores the next number, with release, and waits for the one after it, with acquire.
    #[inline(always)]
    pub fn serve(word: &AtomicU64, passes: u64, trips: u64) {
        // SAFETY: the word is valid and made to be used by several tasks at once; `trips` is not zero.
        unsafe {
            asm!(
                ".p2align 4", "2:", "add {v}, {v}, #1", "stlr {v}, [{p}]", "add {v}, {v}, #1", "3:", "ldar {t}, [{p}]",
                "cmp {t}, {v}", "b.ne 3b", "subs {n}, {n}, #1", "b.ne 2b",
                p = in(reg) word.as_ptr(), v = inout(reg) passes => _, n = inout(reg) trips => _, t = out(reg) _,
                options(nostack)
            );
        }
    }

    /// Waits for the next number and stores the one after it.
    #[inline(always)]
    pub fn answer(word: &AtomicU64, passes: u64, trips: u64) {
        // SAFETY: as in `serve`.
        unsafe {
            asm!(
                ".p2align 4", "2:", "add {v}, {v}, #1", "3:", "ldar {t}, [{p}]", "cmp {t}, {v}", "b.ne 3b",
                "add {v}, {v}, #1", "stlr {v}, [{p}]", "subs {n}, {n}, #1", "b.ne 2b",
                p = in(reg) word.as_ptr(), v = inout(reg) passes => _, n = inout(reg) trips => _, t = out(reg) _,
                options(nostack)
            );
        }
    }

    /// Loads, adds one and stores.
    #[inline(always)]
    pub fn increments(word: &AtomicU64, times: u64) {
        // SAFETY: the word is valid, and only the calling task writes it; `times` is not zero.
        unsafe {
            asm!(
                ".p2align 4", "2:", "ldr {t}, [{p}]", "add {t}, {t}, #1", "str {t}, [{p}]", "subs {n}, {n}, #1",
                "b.ne 2b",
                p = in(reg) word.as_ptr(), n = inout(reg) times => _, t = out(reg) _, options(nostack)
            );
        }
    }

    /// Like `increments`, by an atomic add: one instruction where the processor has it, which the compiler's run-time library
    /// finds out.
    #[inline(always)]
    pub fn atomic_increments(word: &AtomicU64, times: u64) {
        for _ in 0..times {
            word.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_passes_twice_per_trip() {
        let line = BouncingLine::new().unwrap();
        let remote_line = Arc::clone(&line);
        let other = std::thread::spawn(move || {
            for trips in [1, 0, 7, 42] {
                remote_line.pong(trips);
            }
        });
        // In other parts than it is answered in.
        for trips in [25, 0, 25] {
            line.ping(trips);
        }
        other.join().unwrap();
        assert_eq!(line.passes(), 100);
    }

    #[test]
    fn increments_count_and_layout_holds() {
        for places in [WordLayout::SameLine, WordLayout::SeparateLines] {
            for increment in [Increment::Plain, Increment::Atomic] {
                let counters = PairCounters::new(places).unwrap();
                std::thread::scope(|scope| {
                    for second in [false, true] {
                        let counters = &counters;
                        scope.spawn(move || counters.increment(second, increment, 1000 + u64::from(second)));
                    }
                });
                assert_eq!([counters.value(false), counters.value(true)], [1000, 1001]);
                let lines = [false, true].map(|second| counters.word(second).as_ptr() as usize / 64);
                assert_eq!(lines[0] == lines[1], places == WordLayout::SameLine);
                assert!(lines[1] - lines[0] == 0 || lines[1] - lines[0] == 2);
            }
        }
    }
}
