//! Procedure calls and bare system calls for x86-64.
//!
//! A loop of calls, for `n` arguments, in the System V calling convention:
//!
//! ```text
//! mov edi, 1        each of the first six arguments into its register: edi, esi, edx, ecx, r8d, r9d
//! ...
//! push 7            the seventh onto the stack
//! call callee       through the label (direct), a register (indirect), or a stub that jumps through a slot (plt)
//! add rsp, 8        only with a seventh argument
//! dec rbx
//! jnz
//! ```
//!
//! and its callee, which uses each argument once, in a chain that runs on from call to call, so that neither the
//! arguments nor the calls can be taken apart:
//!
//! ```text
//! add rax, rdi      one for each argument in a register
//! ...
//! add rax, [rsp+8]  the seventh
//! ret
//! ```

use std::arch::{asm, global_asm};

global_asm!(
    ".pushsection .text.kelvin_calls, \"ax\", @progbits",
    // Puts the arguments in place.
    ".macro kelvin_arguments count",
    ".if \\count > 0; mov edi, 1; .endif",
    ".if \\count > 1; mov esi, 2; .endif",
    ".if \\count > 2; mov edx, 3; .endif",
    ".if \\count > 3; mov ecx, 4; .endif",
    ".if \\count > 4; mov r8d, 5; .endif",
    ".if \\count > 5; mov r9d, 6; .endif",
    ".if \\count > 6; push 7; .endif",
    ".endm",
    // A callee, the stub that reaches it through a slot as a procedure linkage table does, and the three loops. Each
    // loop is a function of the number of calls that returns the sum of all arguments.
    ".macro kelvin_loop name, count, target",
    ".p2align 6",
    ".globl kelvin_call_\\name\\count",
    ".hidden kelvin_call_\\name\\count",
    ".type kelvin_call_\\name\\count, @function",
    "kelvin_call_\\name\\count:",
    "push rbx",
    "push r12",
    "mov rbx, rdi",
    "lea r12, [rip + kelvin_callee\\count]",
    "xor eax, eax",
    ".p2align 6",
    "2:",
    "kelvin_arguments \\count",
    "call \\target",
    ".if \\count > 6; add rsp, 8; .endif",
    "dec rbx",
    "jnz 2b",
    "pop r12",
    "pop rbx",
    "ret",
    ".size kelvin_call_\\name\\count, . - kelvin_call_\\name\\count",
    ".endm",
    ".macro kelvin_calls count",
    ".p2align 6",
    ".globl kelvin_callee\\count",
    ".hidden kelvin_callee\\count",
    ".type kelvin_callee\\count, @function",
    "kelvin_callee\\count:",
    ".if \\count > 0; add rax, rdi; .endif",
    ".if \\count > 1; add rax, rsi; .endif",
    ".if \\count > 2; add rax, rdx; .endif",
    ".if \\count > 3; add rax, rcx; .endif",
    ".if \\count > 4; add rax, r8; .endif",
    ".if \\count > 5; add rax, r9; .endif",
    ".if \\count > 6; add rax, [rsp + 8]; .endif",
    "ret",
    ".size kelvin_callee\\count, . - kelvin_callee\\count",
    ".p2align 6",
    "kelvin_stub\\count:",
    "jmp [rip + kelvin_slot\\count]",
    "kelvin_loop direct, \\count, kelvin_callee\\count",
    "kelvin_loop indirect, \\count, r12",
    "kelvin_loop plt, \\count, kelvin_stub\\count",
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
    let mut result = number as isize;
    // SAFETY: the caller answers for the arguments; `syscall` overwrites rax, rcx and r11 and keeps the rest.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result, in("rdi") first, in("rsi") second, in("rdx") third, in("r10") fourth, in("r8") fifth,
            in("r9") sixth, out("rcx") _, out("r11") _, options(nostack)
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
    // SAFETY: the call takes no arguments; `syscall` overwrites rax, rcx and r11.
    unsafe {
        asm!(
            ".p2align 5", "2:", "mov eax, {number:e}", "syscall", "dec {n}", "jnz 2b",
            number = in(reg) number, n = inout(reg) iterations.max(1) => _,
            out("rax") result, out("rcx") _, out("r11") _, options(nostack)
        );
    }
    result
}

#[cfg(test)]
pub(super) mod emitted {
    //! The instructions that the loops and callees must consist of, as bytes.

    /// The body of a callee.
    pub fn callee(arguments: usize) -> Vec<u8> {
        let adds: [&[u8]; 7] = [
            &[0x48, 0x01, 0xf8],
            &[0x48, 0x01, 0xf0],
            &[0x48, 0x01, 0xd0],
            &[0x48, 0x01, 0xc8],
            &[0x4c, 0x01, 0xc0],
            &[0x4c, 0x01, 0xc8],
            &[0x48, 0x03, 0x44, 0x24, 0x08],
        ];
        [&adds[..arguments].concat()[..], &[0xc3]].concat()
    }

    /// What stands before the call: one instruction for each argument.
    pub fn arguments(arguments: usize) -> Vec<u8> {
        let moves: [&[u8]; 7] = [
            &[0xbf, 1, 0, 0, 0],
            &[0xbe, 2, 0, 0, 0],
            &[0xba, 3, 0, 0, 0],
            &[0xb9, 4, 0, 0, 0],
            &[0x41, 0xb8, 5, 0, 0, 0],
            &[0x41, 0xb9, 6, 0, 0, 0],
            &[0x6a, 7],
        ];
        moves[..arguments].concat()
    }

    /// The address that the direct call at `address` calls, and its length; `None` if there is none.
    pub fn direct_target(code: &[u8], address: usize) -> Option<(usize, usize)> {
        let displacement = code.strip_prefix(&[0xe8])?.first_chunk::<4>()?;
        Some((address.wrapping_add(5).wrapping_add_signed(i32::from_le_bytes(*displacement) as isize), 5))
    }

    /// Whether the code is a call through the register that holds the callee.
    pub fn is_indirect_call(code: &[u8]) -> bool {
        code.starts_with(&[0x41, 0xff, 0xd4])
    }

    /// Whether the code is a jump through a slot in memory.
    pub fn is_slot_jump(code: &[u8]) -> bool {
        code.starts_with(&[0xff, 0x25])
    }
}
