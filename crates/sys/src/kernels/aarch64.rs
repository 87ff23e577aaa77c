//! Timed kernels for aarch64.

use std::arch::asm;

/// Clock sources under which the kernel trusts the virtual counter.
pub const COUNTER_CLOCK_SOURCES: &[&str] = &["arch_sys_counter"];
/// The instructions of [`counter_start`].
pub const COUNTER_START_TEXT: &str = "isb; mrs cntvct_el0; isb";
/// The instructions of [`counter_stop`].
pub const COUNTER_STOP_TEXT: &str = "isb; mrs cntvct_el0; isb";

/// The virtual counter of aarch64 is architecturally constant and readable by user programs on Linux.
pub fn counter_unusable() -> Option<String> {
    None
}

/// Reads the virtual counter before the work.
#[inline(always)]
pub fn counter_start() -> u64 {
    let ticks: u64;
    // SAFETY: reads the counter between two barriers. Memory is left out of the options on purpose, so that the
    // compiler moves no load or store across.
    unsafe { asm!("isb", "mrs {t}, cntvct_el0", "isb", t = out(reg) ticks, options(nostack)) };
    ticks
}

/// Reads the virtual counter after the work.
#[inline(always)]
pub fn counter_stop() -> u64 {
    counter_start()
}

/// Adds one register to another.
macro_rules! plus {
    ($to:literal, $from:literal) => {
        concat!("add {", $to, "}, {", $to, "}, {", $from, "}")
    };
}

/// Multiplies a register by another.
macro_rules! times {
    ($to:literal, $by:literal) => {
        concat!("mul {", $to, "}, {", $to, "}, {", $by, "}")
    };
}

/// Loads from the address in a register what goes into it.
macro_rules! load {
    ($at:literal) => {
        concat!("ldr {", $at, "}, [{", $at, "}]")
    };
}

/// Counts `n` down and goes back to label 2 until it is zero.
macro_rules! again {
    () => {
        "subs {n}, {n}, #1\nb.ne 2b"
    };
}

/// Increments `count` unless a register is negative: a conditional branch over one instruction.
macro_rules! count_unless_negative {
    ($of:literal) => {
        concat!("tbnz {", $of, "}, #63, 3f\nadd {count}, {count}, #1\n3:")
    };
}

pub(super) use {again, count_unless_negative, load, plus, times};
