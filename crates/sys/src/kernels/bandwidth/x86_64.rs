//! Loops that move memory, for x86-64: SSE2, AVX2 and AVX-512, string instructions, and non-temporal stores.
//!
//! Each is a function in the System V calling convention:
//!
//! ```text
//! rdi to, rsi from, rdx other, rcx bytes of each array (a multiple of 512, not zero), r8 passes (not zero)
//! ```
//!
//! and moves 512 bytes of each array in one turn of its inner loop. Nothing is done with what is loaded except where
//! the operation states so: a load that nobody uses is still a load.

use std::arch::global_asm;

use super::{BandwidthKernel, Operation, kernels};

// `\v` is a kind of vector register, `\w` its bytes, `\move` the instruction that loads and stores a whole one.
global_asm!(
    ".pushsection .text.kelvin_bandwidth, \"ax\", @progbits",
    ".macro kelvin_begin name, word=0x3f3f3f3f3f3f3f3f",
    ".p2align 6",
    ".globl kelvin_\\name",
    ".hidden kelvin_\\name",
    ".type kelvin_\\name, @function",
    "kelvin_\\name:",
    // The inner loop counts from minus the size to zero, with pointers to the ends of the arrays.
    "add rdi, rcx",
    "add rsi, rcx",
    "add rdx, rcx",
    "neg rcx",
    // Every 64-bit word is 3f3f...: an ordinary floating-point number, and no pattern that is stored more cheaply, as zeros
    // may be.
    "mov rax, \\word",
    "movq xmm0, rax",
    "punpcklqdq xmm0, xmm0",
    ".endm",
    ".macro kelvin_broadcast v",
    ".ifc \\v, ymm; vbroadcastsd ymm0, xmm0; .endif",
    ".ifc \\v, zmm; vbroadcastsd zmm0, xmm0; .endif",
    ".endm",
    ".macro kelvin_turn",
    "3:",
    "mov rax, rcx",
    ".p2align 6",
    "2:",
    ".set kelvin_at, 0",
    ".endm",
    ".macro kelvin_end name, v",
    "add rax, 512",
    "jnz 2b",
    "dec r8",
    "jnz 3b",
    "sfence",
    ".ifnc \\v, xmm; vzeroupper; .endif",
    "ret",
    ".size kelvin_\\name, . - kelvin_\\name",
    ".endm",
    // Loads; with a distance, a prefetch of each line this many bytes ahead.
    ".macro kelvin_read name, v, w, move, ahead=0",
    "kelvin_begin \\name",
    "kelvin_turn",
    ".rept 512 / (4 * \\w)",
    ".if \\ahead; .if (kelvin_at % 64) == 0; prefetcht0 [rsi + rax + kelvin_at + \\ahead]; .endif; .endif",
    "\\move \\v\\()0, [rsi + rax + kelvin_at]",
    "\\move \\v\\()1, [rsi + rax + kelvin_at + \\w]",
    ".if \\ahead; .if \\w >= 32; prefetcht0 [rsi + rax + kelvin_at + \\ahead + 2 * \\w]; .endif; .endif",
    "\\move \\v\\()2, [rsi + rax + kelvin_at + 2 * \\w]",
    "\\move \\v\\()3, [rsi + rax + kelvin_at + 3 * \\w]",
    ".set kelvin_at, kelvin_at + 4 * \\w",
    ".endr",
    "kelvin_end \\name, \\v",
    ".endm",
    // Stores of a constant, with ordinary or non-temporal stores.
    ".macro kelvin_write name, v, w, store, word=0x3f3f3f3f3f3f3f3f",
    "kelvin_begin \\name, \\word",
    "kelvin_broadcast \\v",
    "kelvin_turn",
    ".rept 512 / \\w",
    "\\store [rdi + rax + kelvin_at], \\v\\()0",
    ".set kelvin_at, kelvin_at + \\w",
    ".endr",
    "kelvin_end \\name, \\v",
    ".endm",
    // Loads from one array, stores to the other.
    ".macro kelvin_copy name, v, w, move, store",
    "kelvin_begin \\name",
    "kelvin_turn",
    ".rept 512 / (4 * \\w)",
    "\\move \\v\\()0, [rsi + rax + kelvin_at]",
    "\\move \\v\\()1, [rsi + rax + kelvin_at + \\w]",
    "\\move \\v\\()2, [rsi + rax + kelvin_at + 2 * \\w]",
    "\\move \\v\\()3, [rsi + rax + kelvin_at + 3 * \\w]",
    "\\store [rdi + rax + kelvin_at], \\v\\()0",
    "\\store [rdi + rax + kelvin_at + \\w], \\v\\()1",
    "\\store [rdi + rax + kelvin_at + 2 * \\w], \\v\\()2",
    "\\store [rdi + rax + kelvin_at + 3 * \\w], \\v\\()3",
    ".set kelvin_at, kelvin_at + 4 * \\w",
    ".endr",
    "kelvin_end \\name, \\v",
    ".endm",
    // to = from + s * other, in doubles, s in register 15; a multiply and an add where there is no instruction for both.
    ".macro kelvin_triad_one v, w, move, store, register",
    "\\move \\v\\()\\register, [rdx + rax + kelvin_at]",
    ".ifc \\v, xmm",
    "mulpd xmm\\register, xmm15",
    "addpd xmm\\register, [rsi + rax + kelvin_at]",
    ".else",
    "vfmadd213pd \\v\\()\\register, \\v\\()15, [rsi + rax + kelvin_at]",
    ".endif",
    "\\store [rdi + rax + kelvin_at], \\v\\()\\register",
    ".set kelvin_at, kelvin_at + \\w",
    ".endm",
    ".macro kelvin_triad name, v, w, move, store",
    "kelvin_begin \\name",
    "kelvin_broadcast \\v",
    ".ifc \\v, xmm; movapd xmm15, xmm0; .else; \\move \\v\\()15, \\v\\()0; .endif",
    "kelvin_turn",
    ".rept 512 / (4 * \\w)",
    "kelvin_triad_one \\v, \\w, \\move, \\store, 1",
    "kelvin_triad_one \\v, \\w, \\move, \\store, 2",
    "kelvin_triad_one \\v, \\w, \\move, \\store, 3",
    "kelvin_triad_one \\v, \\w, \\move, \\store, 4",
    ".endr",
    "kelvin_end \\name, \\v",
    ".endm",
    "kelvin_read read_sse2, xmm, 16, movaps",
    "kelvin_read read_avx2, ymm, 32, vmovaps",
    "kelvin_read read_avx512, zmm, 64, vmovaps",
    "kelvin_read read_sse2_ahead, xmm, 16, movaps, 1024",
    "kelvin_read read_avx2_ahead, ymm, 32, vmovaps, 1024",
    "kelvin_write write_sse2, xmm, 16, movaps",
    "kelvin_write write_avx2, ymm, 32, vmovaps",
    "kelvin_write write_avx512, zmm, 64, vmovaps",
    "kelvin_write ntwrite_sse2, xmm, 16, movntps",
    "kelvin_write ntwrite_avx2, ymm, 32, vmovntps",
    "kelvin_write ntwrite_avx512, zmm, 64, vmovntps",
    "kelvin_write zero_sse2, xmm, 16, movaps, 0",
    "kelvin_write zero_avx2, ymm, 32, vmovaps, 0",
    "kelvin_write zero_avx512, zmm, 64, vmovaps, 0",
    "kelvin_write ntzero_sse2, xmm, 16, movntps, 0",
    "kelvin_write ntzero_avx512, zmm, 64, vmovntps, 0",
    "kelvin_copy copy_sse2, xmm, 16, movaps, movaps",
    "kelvin_copy copy_avx2, ymm, 32, vmovaps, vmovaps",
    "kelvin_copy copy_avx512, zmm, 64, vmovaps, vmovaps",
    "kelvin_copy ntcopy_sse2, xmm, 16, movaps, movntps",
    "kelvin_copy ntcopy_avx2, ymm, 32, vmovaps, vmovntps",
    "kelvin_copy ntcopy_avx512, zmm, 64, vmovaps, vmovntps",
    "kelvin_triad triad_sse2, xmm, 16, movapd, movapd",
    "kelvin_triad triad_avx2, ymm, 32, vmovapd, vmovapd",
    "kelvin_triad triad_avx512, zmm, 64, vmovapd, vmovapd",
    "kelvin_triad nttriad_sse2, xmm, 16, movapd, movntpd",
    "kelvin_triad nttriad_avx2, ymm, 32, vmovapd, vmovntpd",
    "kelvin_triad nttriad_avx512, zmm, 64, vmovapd, vmovntpd",
    // The string instructions count by themselves: rdi, rsi and rcx are theirs.
    ".macro kelvin_string name, instruction, byte=0x3f",
    ".p2align 6",
    ".globl kelvin_\\name",
    ".hidden kelvin_\\name",
    ".type kelvin_\\name, @function",
    "kelvin_\\name:",
    "mov r9, rdi",
    "mov r10, rsi",
    "mov r11, rcx",
    "mov eax, \\byte",
    "2:",
    "mov rdi, r9",
    "mov rsi, r10",
    "mov rcx, r11",
    "rep \\instruction",
    "dec r8",
    "jnz 2b",
    "ret",
    ".size kelvin_\\name, . - kelvin_\\name",
    ".endm",
    "kelvin_string fill_string, stosb",
    "kelvin_string zero_string, stosb, 0",
    "kelvin_string copy_string, movsb",
    ".popsection",
);

/// Whether this processor can run the kernels of a set of instructions.
pub(super) fn is_supported(set: &str) -> bool {
    match set {
        "avx2" => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
        "avx512" => is_x86_feature_detected!("avx512f"),
        _ => true,
    }
}

/// All kernels; one routine may serve two operations.
pub(super) fn kernels() -> impl Iterator<Item = (Operation, BandwidthKernel)> {
    // Fill and zero are what a library does to set memory: any of the stores, or the string instruction.
    kernels! {
        Read "": "sse2" kelvin_read_sse2, "avx2" kelvin_read_avx2, "avx512" kelvin_read_avx512;
        Read " prefetching": "sse2" kelvin_read_sse2_ahead, "avx2" kelvin_read_avx2_ahead;
        Write "": "sse2" kelvin_write_sse2, "avx2" kelvin_write_avx2, "avx512" kelvin_write_avx512;
        Fill "": "rep stosb" kelvin_fill_string;
        Fill "": "sse2" kelvin_write_sse2, "avx2" kelvin_write_avx2, "avx512" kelvin_write_avx512;
        Fill " non-temporal": "sse2" kelvin_ntwrite_sse2, "avx512" kelvin_ntwrite_avx512;
        Zero "": "rep stosb" kelvin_zero_string;
        Zero "": "sse2" kelvin_zero_sse2, "avx2" kelvin_zero_avx2, "avx512" kelvin_zero_avx512;
        Zero " non-temporal": "sse2" kelvin_ntzero_sse2, "avx512" kelvin_ntzero_avx512;
        Copy "": "rep movsb" kelvin_copy_string;
        Copy "": "sse2" kelvin_copy_sse2, "avx2" kelvin_copy_avx2, "avx512" kelvin_copy_avx512;
        Copy " non-temporal": "sse2" kelvin_ntcopy_sse2, "avx2" kelvin_ntcopy_avx2, "avx512" kelvin_ntcopy_avx512;
        NonTemporalWrite "": "sse2" kelvin_ntwrite_sse2, "avx2" kelvin_ntwrite_avx2, "avx512" kelvin_ntwrite_avx512;
        Triad "": "sse2" kelvin_triad_sse2, "avx2" kelvin_triad_avx2, "avx512" kelvin_triad_avx512;
        Triad " non-temporal": "sse2" kelvin_nttriad_sse2, "avx2" kelvin_nttriad_avx2, "avx512" kelvin_nttriad_avx512;
    }
    .into_iter()
}
