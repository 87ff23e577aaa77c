//! Flushes: whoever wants a write to last waits until the device has it, and the file system's own records of it.

use kelvin_core::catalogue::file::{FlushMethod, SYNC_WRITE};

use super::cause::{AffectedMetrics, Cause, Mechanism, at_word, null_call};

pub(crate) static CAUSE: Cause = Cause {
    id: "flush",
    what: "flushing to the device",
    how: "A write is done once it is in memory; fsync, fdatasync and O_DSYNC wait until it is on the device, and with it what the file \
          system has to record, and the device has emptied its cache. Shown by the same write without the flush.",
    cost: "The writes of a round, which stay in memory until the kernel writes them back.",
    pitfalls: &[
        "It says what durability costs, not that it is not needed.",
        "The parts of the device and of the file system are not separated here: compare with file.device.write_latency.",
    ],
    remedy: "flush once for many writes (group commit), use fdatasync where only the data must last, or a device that keeps what it was \
            given",
    affected: AffectedMetrics::Listed(&[
        at_word(&SYNC_WRITE, FlushMethod::Fdatasync.point()),
        at_word(&SYNC_WRITE, FlushMethod::Fsync.point()),
        at_word(&SYNC_WRITE, FlushMethod::Dsync.point()),
    ]),
    mechanisms: &[Mechanism::without("no_flush", "without the flush", |_, conditions| {
        conditions.replace_word(FlushMethod::Nothing);
        Ok(())
    })],
    negative_control: null_call,
    size: |_| None,
};
