//! Flushes: a program that wants a write to last waits until the device has it, and the file system's own records of
//! it.

use kelvin_core::catalogue::file::{FlushMethod, SYNC_WRITE};

use super::cause::{AffectedMetrics, Cause, Mechanism, at_word};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[
        at_word(&[&SYNC_WRITE], FlushMethod::Fdatasync.point()),
        at_word(&[&SYNC_WRITE], FlushMethod::Fsync.point()),
        at_word(&[&SYNC_WRITE], FlushMethod::Dsync.point()),
    ]),
    mechanisms: &[Mechanism::without("no_flush", "without the flush", |_, conditions| {
        conditions.replace_word(FlushMethod::Nothing);
        Ok(())
    })],
    ..Cause::new("flush", "flushing to the device", include_str!("flush.md"))
};
