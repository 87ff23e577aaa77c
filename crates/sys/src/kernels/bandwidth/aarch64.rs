//! Loops that move memory, for aarch64: pairs of NEON registers, the cache-zeroing instruction, and non-temporal pairs
//! of stores.
//!
//! Each is a function in the AAPCS64 calling convention:
//!
//! ```text
//! x0 to, x1 from, x2 other, x3 bytes of each array (a multiple of 512, not zero), x4 passes (not zero)
//! ```
//!
//! and moves 128 bytes of each array in one turn of its inner loop, which is eight instructions of 16 bytes, enough for
//! any core to keep its load and store pipelines busy during the counting.

use std::arch::{asm, global_asm};

use super::{BandwidthKernel, Operation, kernels};

global_asm!(
    ".pushsection .text.kelvin_bandwidth, \"ax\", @progbits",
    ".macro kelvin_begin name, byte=0x3f",
    ".p2align 6",
    ".globl kelvin_\\name",
    ".hidden kelvin_\\name",
    ".type kelvin_\\name, @function",
    "kelvin_\\name:",
    // Every 64-bit word is 3f3f...: an ordinary floating-point number, and no pattern that is stored more cheaply, as zeros
    // may be.
    "movi v16.16b, #\\byte",
    "mov v17.16b, v16.16b",
    "3:",
    "mov x9, x0",
    "mov x10, x1",
    "mov x11, x2",
    "mov x12, x3",
    ".p2align 6",
    "2:",
    ".endm",
    ".macro kelvin_end name",
    "subs x12, x12, #128",
    "b.ne 2b",
    "subs x4, x4, #1",
    "b.ne 3b",
    "ret",
    ".size kelvin_\\name, . - kelvin_\\name",
    ".endm",
    ".macro kelvin_load pair, base",
    "\\pair q0, q1, [\\base]",
    "\\pair q2, q3, [\\base, #32]",
    "\\pair q4, q5, [\\base, #64]",
    "\\pair q6, q7, [\\base, #96]",
    "add \\base, \\base, #128",
    ".endm",
    ".macro kelvin_store pair",
    "\\pair q0, q1, [x9]",
    "\\pair q2, q3, [x9, #32]",
    "\\pair q4, q5, [x9, #64]",
    "\\pair q6, q7, [x9, #96]",
    "add x9, x9, #128",
    ".endm",
    ".macro kelvin_write name, pair, byte=0x3f",
    "kelvin_begin \\name, \\byte",
    "\\pair q16, q17, [x9]",
    "\\pair q16, q17, [x9, #32]",
    "\\pair q16, q17, [x9, #64]",
    "\\pair q16, q17, [x9, #96]",
    "add x9, x9, #128",
    "kelvin_end \\name",
    ".endm",
    ".macro kelvin_copy name, load, store",
    "kelvin_begin \\name",
    "kelvin_load \\load, x10",
    "kelvin_store \\store",
    "kelvin_end \\name",
    ".endm",
    ".macro kelvin_triad name, store",
    "kelvin_begin \\name",
    "ldp q18, q19, [x11]",
    "ldp q20, q21, [x11, #32]",
    "ldp q22, q23, [x11, #64]",
    "ldp q24, q25, [x11, #96]",
    "add x11, x11, #128",
    "kelvin_load ldp, x10",
    "fmla v0.2d, v18.2d, v16.2d",
    "fmla v1.2d, v19.2d, v16.2d",
    "fmla v2.2d, v20.2d, v16.2d",
    "fmla v3.2d, v21.2d, v16.2d",
    "fmla v4.2d, v22.2d, v16.2d",
    "fmla v5.2d, v23.2d, v16.2d",
    "fmla v6.2d, v24.2d, v16.2d",
    "fmla v7.2d, v25.2d, v16.2d",
    "kelvin_store \\store",
    "kelvin_end \\name",
    ".endm",
    "kelvin_begin read_neon",
    "kelvin_load ldp, x10",
    "kelvin_end read_neon",
    "kelvin_begin read_neon_ahead",
    "prfm pldl1keep, [x10, #1024]",
    "prfm pldl1keep, [x10, #1088]",
    "kelvin_load ldp, x10",
    "kelvin_end read_neon_ahead",
    "kelvin_write write_neon, stp",
    "kelvin_write ntwrite_neon, stnp",
    "kelvin_write zero_neon, stp, 0",
    "kelvin_write ntzero_neon, stnp, 0",
    "kelvin_copy copy_neon, ldp, stp",
    "kelvin_copy ntcopy_neon, ldp, stnp",
    "kelvin_triad triad_neon, stp",
    "kelvin_triad nttriad_neon, stnp",
    // Sets two lines of 64 bytes to zero without reading them.
    "kelvin_begin zero_lines",
    "dc zva, x9",
    "add x9, x9, #64",
    "dc zva, x9",
    "add x9, x9, #64",
    "kelvin_end zero_lines",
    ".popsection",
);

/// Whether `dc zva` is allowed and sets 64 bytes: DCZID_EL0 has bit 4 clear and 4 (words, as a power of two) below it.
fn zeroes_lines_of_64() -> bool {
    let dczid: u64;
    // SAFETY: reads an identification register that user programs may read.
    unsafe { asm!("mrs {value}, dczid_el0", value = out(reg) dczid, options(nomem, nostack)) };
    dczid & 0x1f == 4
}

/// Whether this processor can run the kernels of a set of instructions.
pub(super) fn is_supported(set: &str) -> bool {
    set != "dc" || zeroes_lines_of_64()
}

/// All kernels; one routine may serve two operations.
pub(super) fn kernels() -> impl Iterator<Item = (Operation, BandwidthKernel)> {
    kernels! {
        Read "": "neon" kelvin_read_neon;
        Read " prefetching": "neon" kelvin_read_neon_ahead;
        Write "": "neon" kelvin_write_neon;
        Fill "": "neon" kelvin_write_neon;
        Fill " non-temporal": "neon" kelvin_ntwrite_neon;
        Zero "": "neon" kelvin_zero_neon;
        Zero " non-temporal": "neon" kelvin_ntzero_neon;
        Zero "": "dc zva" kelvin_zero_lines;
        Copy "": "neon" kelvin_copy_neon;
        Copy " non-temporal": "neon" kelvin_ntcopy_neon;
        NonTemporalWrite "": "neon" kelvin_ntwrite_neon;
        Triad "": "neon" kelvin_triad_neon;
        Triad " non-temporal": "neon" kelvin_nttriad_neon;
    }
    .into_iter()
}
