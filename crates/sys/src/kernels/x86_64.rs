//! Timed kernels for x86-64.

use std::arch::asm;
use std::arch::x86_64::__cpuid;

/// Clock sources under which the kernel trusts the time-stamp counter.
pub const COUNTER_CLOCK_SOURCES: &[&str] = &["tsc"];
/// The instructions of [`counter_start`].
pub const COUNTER_START_TEXT: &str = "lfence; rdtsc; lfence";
/// The instructions of [`counter_stop`].
pub const COUNTER_STOP_TEXT: &str = "rdtscp; lfence";

/// Why the time-stamp counter cannot be a clock: CPUID must say that it is invariant and that RDTSCP exists.
pub fn counter_unusable() -> Option<String> {
    let highest = __cpuid(0x8000_0000).eax;
    if highest < 0x8000_0007 || __cpuid(0x8000_0007).edx & (1 << 8) == 0 {
        return Some("CPUID 8000_0007h does not state an invariant time-stamp counter".into());
    }
    if __cpuid(0x8000_0001).edx & (1 << 27) == 0 {
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

/// `iterations` times 64 adds, each waiting for the one before: 64 core cycles an iteration.
///
/// Register to register, because some cores eliminate an add of an immediate at rename (Golden Cove, Zen 5).
#[inline(always)]
pub fn chain_add(iterations: u64) {
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 5", "2:", ".rept 64", "add {sum}, {one}", ".endr", "dec {n}", "jnz 2b",
            sum = inout(reg) 0u64 => _, one = in(reg) 1u64, n = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
}

/// `iterations` times 64 multiplies of 64-bit registers, each waiting for the one before.
#[inline(always)]
pub fn chain_multiply(iterations: u64) {
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 5", "2:", ".rept 64", "imul {product}, {factor}", ".endr", "dec {n}", "jnz 2b",
            product = inout(reg) 3u64 => _, factor = in(reg) 3u64, n = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
}

/// `iterations` times 64 loads from one line in the first-level cache, the address of each being the value of the one
/// before.
#[inline(always)]
pub fn chain_load(iterations: u64) {
    let mut cell = 0u64;
    let address = &raw mut cell;
    cell = address as u64;
    // SAFETY: the only address loaded from is that of `cell`, which holds that address.
    unsafe {
        asm!(
            ".p2align 5", "2:", ".rept 64", "mov {at}, [{at}]", ".endr", "dec {n}", "jnz 2b",
            at = inout(reg) address => _, n = inout(reg) iterations.max(1) => _,
            options(readonly, nostack)
        );
    }
    std::hint::black_box(cell);
}

/// `iterations` times 64 adds on eight registers, so that a core does as many at once as it can.
#[inline(always)]
pub fn independent_adds(iterations: u64) {
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 5", "2:",
            ".rept 8",
            "add {a}, {one}", "add {b}, {one}", "add {c}, {one}", "add {d}, {one}",
            "add {e}, {one}", "add {f}, {one}", "add {g}, {one}", "add {h}, {one}",
            ".endr",
            "dec {n}", "jnz 2b",
            a = inout(reg) 0u64 => _, b = inout(reg) 0u64 => _, c = inout(reg) 0u64 => _, d = inout(reg) 0u64 => _,
            e = inout(reg) 0u64 => _, f = inout(reg) 0u64 => _, g = inout(reg) 0u64 => _, h = inout(reg) 0u64 => _,
            one = in(reg) 1u64, n = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
}

/// A loop of `iterations` that does nothing but count.
#[inline(always)]
pub fn counted_loop(iterations: u64) {
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 6", "2:", "dec {n}", "jnz 2b",
            n = inout(reg) iterations.max(1) => _, options(nomem, nostack)
        );
    }
}

/// `iterations` raw `getppid` system calls; the value of the last one.
#[inline(always)]
pub fn null_system_calls(iterations: u64) -> i64 {
    let mut result: i64;
    // SAFETY: getppid takes no arguments and cannot fail; `syscall` overwrites rcx and r11.
    unsafe {
        asm!(
            ".p2align 5", "2:", "mov eax, {number}", "syscall", "dec {n}", "jnz 2b",
            number = const libc::SYS_getppid, n = inout(reg) iterations.max(1) => _,
            out("rax") result, out("rcx") _, out("r11") _, options(nostack)
        );
    }
    result
}

/// Follows `hops` pointers from `address`.
///
/// # Safety
/// `address` and every pointer reached from it must be readable.
#[inline(always)]
pub(crate) unsafe fn chase(address: usize, hops: u64) -> usize {
    let mut at = address;
    // SAFETY: the caller answers for the addresses.
    unsafe {
        asm!(
            ".p2align 5", "2:", "mov {at}, [{at}]", "dec {n}", "jnz 2b",
            at = inout(reg) at, n = inout(reg) hops.max(1) => _, options(readonly, nostack)
        );
    }
    at
}
