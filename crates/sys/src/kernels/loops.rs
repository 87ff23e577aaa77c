//! Timed loops, written once: the file of each architecture names the instructions.

use std::arch::asm;

use super::arch::{again, count_unless_negative, load, plus, times};

/// `iterations` times 64 dependent adds: 64 core cycles per iteration.
///
/// Register to register, because some cores eliminate an add of an immediate at rename (Golden Cove, Zen 5).
#[inline(always)]
pub fn chain_add(iterations: u64) {
    chain_add_result(iterations);
}

/// Like `chain_add`, with the sum: one for each add.
#[inline(always)]
pub(super) fn chain_add_result(iterations: u64) -> u64 {
    let mut sum = 0u64;
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 5", "2:", ".rept 64", plus!("sum", "one"), ".endr", again!(),
            sum = inout(reg) sum, one = in(reg) 1u64, n = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
    sum
}

/// `iterations` times 64 dependent multiplies of 64-bit registers.
#[inline(always)]
pub fn chain_multiply(iterations: u64) {
    chain_multiply_result(iterations);
}

/// Like `chain_multiply`, with the product: three, times three for each multiply.
#[inline(always)]
pub(super) fn chain_multiply_result(iterations: u64) -> u64 {
    let mut product = 3u64;
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 5", "2:", ".rept 64", times!("product", "factor"), ".endr", again!(),
            product = inout(reg) product, factor = in(reg) 3u64, n = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
    product
}

/// `iterations` times 64 dependent loads from one line in L1.
#[inline(always)]
pub fn chain_load(iterations: u64) {
    let mut cell = 0u64;
    let address = &raw mut cell;
    cell = address as u64;
    // SAFETY: the only address loaded from is that of `cell`, which holds that address.
    unsafe {
        asm!(
            ".p2align 5", "2:", ".rept 64", load!("at"), ".endr", again!(),
            at = inout(reg) address => _, n = inout(reg) iterations.max(1) => _,
            options(readonly, nostack)
        );
    }
    std::hint::black_box(cell);
}

/// `iterations` times 64 adds on eight registers, for maximum parallelism.
#[inline(always)]
pub fn independent_adds(iterations: u64) {
    independent_adds_results(iterations);
}

/// Like `independent_adds`, with the sum in each register: an eighth of the adds.
#[inline(always)]
pub(super) fn independent_adds_results(iterations: u64) -> [u64; 8] {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = [0u64; 8];
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 5", "2:",
            ".rept 8",
            plus!("a", "one"), plus!("b", "one"), plus!("c", "one"), plus!("d", "one"),
            plus!("e", "one"), plus!("f", "one"), plus!("g", "one"), plus!("h", "one"),
            ".endr",
            again!(),
            a = inout(reg) a, b = inout(reg) b, c = inout(reg) c, d = inout(reg) d,
            e = inout(reg) e, f = inout(reg) f, g = inout(reg) g, h = inout(reg) h,
            one = in(reg) 1u64, n = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
    [a, b, c, d, e, f, g, h]
}

/// A loop of `iterations` that does nothing but count.
#[inline(always)]
pub fn counted_loop(iterations: u64) {
    // SAFETY: works on registers only.
    unsafe { asm!(".p2align 6", "2:", again!(), n = inout(reg) iterations.max(1) => _, options(nomem, nostack)) };
}

/// Which of the branches in [`branches`] are taken: those at which a number, multiplied and added to before each, is
/// negative.
#[derive(Clone, Copy, Debug)]
pub struct BranchOutcomes {
    number: u64,
    multiplier: u64,
    increment: u64,
}

impl BranchOutcomes {
    /// All of them.
    pub const ALWAYS: Self = Self { number: 1 << 63, multiplier: 1, increment: 0 };
    /// None.
    pub const NEVER: Self = Self { number: 0, multiplier: 1, increment: 0 };

    /// Half of them, by the highest bit of a linear congruential generator, with a period of 2^64: Knuth, The Art of
    /// Computer Programming, volume 2, section 3.3.4, MMIX.
    pub const fn random(seed: u64) -> Self {
        Self { number: seed, multiplier: 6_364_136_223_846_793_005, increment: 1_442_695_040_888_963_407 }
    }
}

/// `iterations` conditional branches, with the same instructions for any outcomes; returns how many were not taken.
#[inline(always)]
pub fn branches(outcomes: &mut BranchOutcomes, iterations: u64) -> u64 {
    let mut count = 0u64;
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 6", "2:", times!("number", "multiplier"), plus!("number", "increment"),
            count_unless_negative!("number"), again!(),
            number = inout(reg) outcomes.number, multiplier = in(reg) outcomes.multiplier,
            increment = in(reg) outcomes.increment, count = inout(reg) count, n = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
    count
}

/// Follows `hops` pointers from `address`.
///
/// # Safety
/// `address` and every pointer reached from it must be readable.
#[inline(always)]
pub(crate) unsafe fn chase(address: usize, hops: u64) -> usize {
    let mut pointer = address;
    // SAFETY: the caller answers for the addresses.
    unsafe {
        asm!(
            ".p2align 5", "2:", load!("pointer"), again!(),
            pointer = inout(reg) pointer, n = inout(reg) hops.max(1) => _, options(readonly, nostack)
        );
    }
    pointer
}
