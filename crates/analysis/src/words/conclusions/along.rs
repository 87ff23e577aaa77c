//! How a time depends on a quantity, in words.

use kelvin_catalogue::cpu::Via;
use kelvin_catalogue::file::ByteCall;
use kelvin_catalogue::mem::PageSize;
use kelvin_model::units::{bytes, decimal_bytes, plain};
use kelvin_model::{AlongClaim, AlongLaw, AlongQuestion, Case, Estimate, Unit};

use super::{kind, times};

/// The sentence of a claim: what is claimed, then how far the furthest point is from it.
pub(super) fn claim(of: &AlongClaim) -> String {
    let at = |at: u64| amount(of.question, at);
    match of.law {
        AlongLaw::Constant => {
            let claim = match of.question {
                AlongQuestion::Arguments => {
                    format!("up to {} arguments are free in {}", of.span[1], call(&of.base.case))
                }
                AlongQuestion::FileSize => format!(
                    "{} costs the same in files of {} to {}",
                    byte(&of.base.case),
                    at(of.span[0]),
                    at(of.span[1])
                ),
                AlongQuestion::Resident => {
                    format!("{} takes as long with up to {}", fork(&of.base.case), at(of.span[1]))
                }
            };
            format!("{claim}: {} with {}", times(&of.off, "as long"), at(of.at))
        }
        AlongLaw::Linear => {
            let claim = match of.question {
                AlongQuestion::Arguments => format!("each argument costs the same in {}", call(&of.base.case)),
                AlongQuestion::FileSize => format!("each byte of the file costs {} the same", byte(&of.base.case)),
                AlongQuestion::Resident => format!("each MiB costs the same in {}", fork(&of.base.case)),
            };
            let each = of.each.map_or_else(String::new, |each| format!(", {}", slope(of.question, &each)));
            format!("{claim}{each}: with {} {}", at(of.at), times(&of.off, "the line's"))
        }
    }
}

/// What one more adds: `0.24 ns (95 %: 0.20 ns to 0.28 ns)`.
fn slope(question: AlongQuestion, each: &Estimate) -> String {
    let each = if question == AlongQuestion::Resident { each.over(1.0 / f64::from(1 << 20)) } else { *each };
    let time = |value: f64| plain(value, Unit::Nanoseconds);
    format!("{} ({}: {} to {})", time(each.value), kind(&each), time(each.low), time(each.high))
}

/// So much of the quantity.
fn amount(question: AlongQuestion, at: u64) -> String {
    match (question, at) {
        (AlongQuestion::Arguments, 0) => "none".into(),
        (AlongQuestion::Arguments, at) => at.to_string(),
        (AlongQuestion::FileSize, at) => file_size(at),
        (AlongQuestion::Resident, at) => bytes(at),
    }
}

/// The size of a file, in millions of bytes where it is of whole ones: a study has 256 MB, and no 244 MiB.
pub(crate) fn file_size(size: u64) -> String {
    if size.is_multiple_of(1_000_000) { decimal_bytes(size as f64) } else { bytes(size) }
}

fn call(case: &Case) -> &'static str {
    match Via::of(case) {
        Some(Via::Indirect) => "an indirect call",
        Some(Via::Plt) => "a call through a PLT",
        _ => "a direct call",
    }
}

fn fork(case: &Case) -> &'static str {
    if PageSize::of(case) == Some(PageSize::Huge) { "a fork with huge pages" } else { "a fork with base pages" }
}

fn byte(case: &Case) -> &'static str {
    match ByteCall::of(case) {
        Some(ByteCall::Read) => "a read of the next byte",
        Some(ByteCall::Lseek) => "an lseek to the next byte",
        Some(ByteCall::PreadAnywhere) => "a pread of any byte",
        _ => "a pread of the next byte",
    }
}

/// A one-byte call as the title of a column.
pub(crate) fn byte_call(call: ByteCall) -> &'static str {
    match call {
        ByteCall::PreadAnywhere => "pread anywhere",
        other => other.name(),
    }
}
