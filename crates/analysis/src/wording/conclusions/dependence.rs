//! How a time depends on a quantity, in words.

use kelvin_core::catalogue::cpu::CallKind;
use kelvin_core::catalogue::file::ByteCall;
use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::units::{bytes, decimal_bytes, value_text};
use kelvin_core::{Case, DependenceClaim, DependenceLaw, DependenceQuestion, Estimate, Unit};

use super::{interval_label, ratio_text};

/// The sentence of a claim: what is claimed, then how far the furthest point is from it.
pub(super) fn claim(of: &DependenceClaim) -> String {
    let at = |at: u64| amount_text(of.question, at);
    match of.law {
        DependenceLaw::Constant => {
            let claim = match of.question {
                DependenceQuestion::Arguments => {
                    format!("up to {} arguments are free in {}", of.span[1], call_name(&of.base.case))
                }
                DependenceQuestion::FileSize => format!(
                    "{} costs the same in files of {} to {}",
                    byte_call_name(&of.base.case),
                    at(of.span[0]),
                    at(of.span[1])
                ),
                DependenceQuestion::Resident => {
                    format!("{} takes as long with up to {}", fork_name(&of.base.case), at(of.span[1]))
                }
            };
            format!("{claim}: {} with {}", ratio_text(&of.off, "as long"), at(of.at))
        }
        DependenceLaw::Linear => {
            let claim = match of.question {
                DependenceQuestion::Arguments => {
                    format!("each argument costs the same in {}", call_name(&of.base.case))
                }
                DependenceQuestion::FileSize => {
                    format!("each byte of the file costs {} the same", byte_call_name(&of.base.case))
                }
                DependenceQuestion::Resident => format!("each MiB costs the same in {}", fork_name(&of.base.case)),
            };
            let each = of.each.map_or_else(String::new, |each| format!(", {}", slope_text(of.question, &each)));
            format!("{claim}{each}: with {} {}", at(of.at), ratio_text(&of.off, "the line's"))
        }
    }
}

/// What one more adds: `0.24 ns (95 %: 0.20 ns to 0.28 ns)`.
fn slope_text(question: DependenceQuestion, each: &Estimate) -> String {
    let each = if question == DependenceQuestion::Resident { each.divided_by(1.0 / f64::from(1 << 20)) } else { *each };
    let time = |value: f64| value_text(value, Unit::Nanoseconds);
    format!("{} ({}: {} to {})", time(each.value), interval_label(&each), time(each.low), time(each.high))
}

/// So much of the quantity.
fn amount_text(question: DependenceQuestion, at: u64) -> String {
    match (question, at) {
        (DependenceQuestion::Arguments, 0) => "none".into(),
        (DependenceQuestion::Arguments, at) => at.to_string(),
        (DependenceQuestion::FileSize, at) => file_size_text(at),
        (DependenceQuestion::Resident, at) => bytes(at),
    }
}

/// The size of a file, in millions of bytes where it is of whole ones: a study has 256 MB, and no 244 MiB.
pub(crate) fn file_size_text(size: u64) -> String {
    if size.is_multiple_of(1_000_000) { decimal_bytes(size as f64) } else { bytes(size) }
}

fn call_name(case: &Case) -> &'static str {
    match CallKind::of(case) {
        Some(CallKind::Indirect) => "an indirect call",
        Some(CallKind::Plt) => "a call through a PLT",
        _ => "a direct call",
    }
}

fn fork_name(case: &Case) -> &'static str {
    if PageSize::of(case) == Some(PageSize::Huge) { "a fork with huge pages" } else { "a fork with base pages" }
}

fn byte_call_name(case: &Case) -> &'static str {
    match ByteCall::of(case) {
        Some(ByteCall::Read) => "a read of the next byte",
        Some(ByteCall::Lseek) => "an lseek to the next byte",
        Some(ByteCall::PreadAnywhere) => "a pread of any byte",
        _ => "a pread of the next byte",
    }
}

/// A one-byte call as the title of a column.
pub(crate) fn byte_call_title(call: ByteCall) -> &'static str {
    match call {
        ByteCall::PreadAnywhere => "pread anywhere",
        other => other.name(),
    }
}
