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

/// `iterations` times 64 adds, each waiting for the one before: 64 core cycles an iteration.
#[inline(always)]
pub fn chain_add(iterations: u64) {
    // SAFETY: works on registers only.
    unsafe {
        asm!(
            ".p2align 5", "2:", ".rept 64", "add {sum}, {sum}, {one}", ".endr", "subs {n}, {n}, #1", "b.ne 2b",
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
            ".p2align 5", "2:", ".rept 64", "mul {product}, {product}, {factor}", ".endr", "subs {n}, {n}, #1",
            "b.ne 2b",
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
            ".p2align 5", "2:", ".rept 64", "ldr {at}, [{at}]", ".endr", "subs {n}, {n}, #1", "b.ne 2b",
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
            "add {a}, {a}, {one}", "add {b}, {b}, {one}", "add {c}, {c}, {one}", "add {d}, {d}, {one}",
            "add {e}, {e}, {one}", "add {f}, {f}, {one}", "add {g}, {g}, {one}", "add {h}, {h}, {one}",
            ".endr",
            "subs {n}, {n}, #1", "b.ne 2b",
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
            ".p2align 6", "2:", "subs {n}, {n}, #1", "b.ne 2b",
            n = inout(reg) iterations.max(1) => _, options(nomem, nostack)
        );
    }
}

/// `iterations` raw `getppid` system calls; the value of the last one.
#[inline(always)]
pub fn null_system_calls(iterations: u64) -> i64 {
    let mut result: i64;
    // SAFETY: getppid takes no arguments and cannot fail.
    unsafe {
        asm!(
            ".p2align 5", "2:", "mov x8, #{number}", "svc #0", "subs {n}, {n}, #1", "b.ne 2b",
            number = const libc::SYS_getppid, n = inout(reg) iterations.max(1) => _,
            out("x0") result, out("x8") _, options(nostack)
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
            ".p2align 5", "2:", "ldr {at}, [{at}]", "subs {n}, {n}, #1", "b.ne 2b",
            at = inout(reg) at, n = inout(reg) hops.max(1) => _, options(readonly, nostack)
        );
    }
    at
}
