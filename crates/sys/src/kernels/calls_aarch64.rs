//! Procedure calls and bare system calls for aarch64.
//!
//! A loop of calls, for `n` arguments, in the AAPCS64 calling convention, where all seven travel in registers:
//!
//! ```text
//! mov w0, #1        each argument into its register: w0 ... w6
//! ...
//! bl callee         through the label (direct), `blr` a register (indirect), or a stub that branches through a slot (plt)
//! subs x19, x19, #1
//! b.ne
//! ```
//!
//! and its callee, which uses each argument once, in a chain that runs on from call to call:
//!
//! ```text
//! add x9, x9, x0    one for each argument
//! ...
//! ret
//! ```

use std::arch::{asm, global_asm};

global_asm!(
    ".pushsection .text.kelvin_calls, \"ax\", @progbits",
    ".macro kelvin_arguments count",
    ".if \\count > 0; mov w0, #1; .endif",
    ".if \\count > 1; mov w1, #2; .endif",
    ".if \\count > 2; mov w2, #3; .endif",
    ".if \\count > 3; mov w3, #4; .endif",
    ".if \\count > 4; mov w4, #5; .endif",
    ".if \\count > 5; mov w5, #6; .endif",
    ".if \\count > 6; mov w6, #7; .endif",
    ".endm",
    ".macro kelvin_loop name, count, instruction, target",
    ".p2align 6",
    ".globl kelvin_call_\\name\\count",
    ".hidden kelvin_call_\\name\\count",
    ".type kelvin_call_\\name\\count, @function",
    "kelvin_call_\\name\\count:",
    "stp x29, x30, [sp, #-32]!",
    "stp x19, x20, [sp, #16]",
    "mov x19, x0",
    "adrp x20, kelvin_callee\\count",
    "add x20, x20, :lo12:kelvin_callee\\count",
    "mov x9, #0",
    ".p2align 6",
    "2:",
    "kelvin_arguments \\count",
    "\\instruction \\target",
    "subs x19, x19, #1",
    "b.ne 2b",
    "mov x0, x9",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    "ret",
    ".size kelvin_call_\\name\\count, . - kelvin_call_\\name\\count",
    ".endm",
    ".macro kelvin_calls count",
    ".p2align 6",
    ".globl kelvin_callee\\count",
    ".hidden kelvin_callee\\count",
    ".type kelvin_callee\\count, @function",
    "kelvin_callee\\count:",
    ".if \\count > 0; add x9, x9, x0; .endif",
    ".if \\count > 1; add x9, x9, x1; .endif",
    ".if \\count > 2; add x9, x9, x2; .endif",
    ".if \\count > 3; add x9, x9, x3; .endif",
    ".if \\count > 4; add x9, x9, x4; .endif",
    ".if \\count > 5; add x9, x9, x5; .endif",
    ".if \\count > 6; add x9, x9, x6; .endif",
    "ret",
    ".size kelvin_callee\\count, . - kelvin_callee\\count",
    ".p2align 6",
    "kelvin_stub\\count:",
    "adrp x16, kelvin_slot\\count",
    "ldr x17, [x16, :lo12:kelvin_slot\\count]",
    "br x17",
    "kelvin_loop direct, \\count, bl, kelvin_callee\\count",
    "kelvin_loop indirect, \\count, blr, x20",
    "kelvin_loop plt, \\count, bl, kelvin_stub\\count",
    ".pushsection .data.rel.ro.kelvin_calls, \"aw\", @progbits",
    ".p2align 3",
    "kelvin_slot\\count: .quad kelvin_callee\\count",
    ".popsection",
    ".endm",
    ".irp count, 0, 1, 2, 3, 4, 5, 6, 7; kelvin_calls \\count; .endr",
    ".popsection",
);

/// One system call by the bare instruction; what the kernel returned, a negative error number if it failed.
///
/// # Safety
/// The arguments must be right for the call: pointers valid for what it reads and writes.
#[inline(always)]
pub(crate) unsafe fn system_call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let mut result = first as isize;
    // SAFETY: the caller answers for the arguments; `svc` overwrites x0 and keeps the rest.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number, inout("x0") result, in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth,
            in("x5") sixth, options(nostack)
        );
    }
    result
}

/// `iterations` bare system calls without arguments; what the last one returned.
///
/// # Safety
/// The call must take no arguments.
#[inline(always)]
pub(crate) unsafe fn system_calls(number: libc::c_long, iterations: u64) -> isize {
    let mut result: isize;
    // SAFETY: the call takes no arguments; `svc` overwrites x0.
    unsafe {
        asm!(
            ".p2align 5", "2:", "mov x8, {number}", "svc #0", "subs {n}, {n}, #1", "b.ne 2b",
            number = in(reg) number, n = inout(reg) iterations.max(1) => _,
            out("x0") result, out("x8") _, options(nostack)
        );
    }
    result
}

#[cfg(test)]
pub(super) mod emitted {
    //! The instructions that the loops and callees must consist of, as bytes.

    fn bytes(words: impl Iterator<Item = u32>) -> Vec<u8> {
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// The body of a callee: `add x9, x9, xN` and `ret`.
    pub fn callee(arguments: usize) -> Vec<u8> {
        let adds = (0..arguments as u32).map(|register| 0x8b00_0129 | register << 16);
        bytes(adds.chain([0xd65f_03c0]))
    }

    /// What stands before the call: `movz wN, #N+1`.
    pub fn arguments(arguments: usize) -> Vec<u8> {
        bytes((0..arguments as u32).map(|register| 0x5280_0000 | (register + 1) << 5 | register))
    }

    /// The address that the direct call at `address` calls, and its length; `None` if there is none.
    pub fn direct_target(code: &[u8], address: usize) -> Option<(usize, usize)> {
        let word = u32::from_le_bytes(*code.first_chunk::<4>()?);
        let displacement = ((word << 6) as i32 >> 6) as isize * 4;
        (word >> 26 == 0b10_0101).then(|| (address.wrapping_add_signed(displacement), 4))
    }

    /// Whether the code is a call through the register that holds the callee.
    pub fn is_indirect_call(code: &[u8]) -> bool {
        code.starts_with(&0xd63f_0280u32.to_le_bytes())
    }

    /// Whether the code is a jump through a slot in memory: `adrp`, `ldr`, `br x17`.
    pub fn is_slot_jump(code: &[u8]) -> bool {
        code.get(8..12) == Some(&0xd61f_0220u32.to_le_bytes()[..])
    }
}
