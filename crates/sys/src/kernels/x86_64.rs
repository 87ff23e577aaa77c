//! Timed kernels for x86-64.

use std::arch::asm;

use crate::cpuid;

/// Clock sources under which the kernel trusts the time-stamp counter.
pub const COUNTER_CLOCK_SOURCES: &[&str] = &["tsc"];
/// The instructions of [`counter_start`].
pub const COUNTER_START_TEXT: &str = "lfence; rdtsc; lfence";
/// The instructions of [`counter_stop`].
pub const COUNTER_STOP_TEXT: &str = "rdtscp; lfence";

/// Why the time-stamp counter cannot be a clock: CPUID must state that it is invariant and that RDTSCP exists.
pub fn counter_unusable() -> Option<String> {
    let has_flag = |leaf, flag: u32| cpuid::leaf(leaf, 0).is_some_and(|[_, _, _, edx]| edx & flag != 0);
    let max_leaf = cpuid::leaf(0x8000_0000, 0).map_or(0, |[max_leaf, ..]| max_leaf);
    if max_leaf < 0x8000_0007 || !has_flag(0x8000_0007, 1 << 8) {
        return Some("CPUID 8000_0007h does not state an invariant time-stamp counter".into());
    }
    if !has_flag(0x8000_0001, 1 << 27) {
        return Some("CPUID 8000_0001h states no RDTSCP".into());
    }
    None
}

/// Reads the time-stamp counter before the work.
#[inline(always)]
pub fn counter_start() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads the counter; `lfence` orders it against earlier and later instructions. Memory is left out of the
    // options on purpose, so that the compiler moves no load or store across.
    unsafe { asm!("lfence", "rdtsc", "lfence", out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Reads the time-stamp counter after the work.
#[inline(always)]
pub fn counter_stop() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: as in `counter_start`; `rdtscp` waits for everything before it and overwrites ecx.
    unsafe { asm!("rdtscp", "lfence", out("eax") low, out("edx") high, out("ecx") _, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Adds one register to another.
macro_rules! plus {
    ($to:literal, $from:literal) => {
        concat!("add {", $to, "}, {", $from, "}")
    };
}

/// Multiplies a register by another.
macro_rules! times {
    ($to:literal, $by:literal) => {
        concat!("imul {", $to, "}, {", $by, "}")
    };
}

/// Loads from the address in a register what goes into it.
macro_rules! load {
    ($at:literal) => {
        concat!("mov {", $at, "}, [{", $at, "}]")
    };
}

/// Counts `n` down and goes back to label 2 until it is zero.
macro_rules! again {
    () => {
        "dec {n}\njnz 2b"
    };
}

/// Increments `count` unless the last sum is negative: a conditional branch over one instruction.
macro_rules! count_unless_negative {
    ($of:literal) => {
        "js 3f\ninc {count}\n3:"
    };
}

pub(super) use {again, count_unless_negative, load, plus, times};
