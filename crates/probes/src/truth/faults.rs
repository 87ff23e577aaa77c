//! Deliberately faulty probes: each must cost only itself, and be reported with what it did.

use std::io::Write;
use std::time::Duration;

use kelvin_core::catalogue::truth::{FAULT, InjectedFault};

use crate::prelude::*;

/// A probe with the given fault.
macro_rules! fault {
    ($fault:expr, $summary:literal, $run:expr) => {
        Probe {
            id: $fault.name(),
            summary: $summary,
            method: include_str!("faults.md"),
            cases: |_, _| words(&[$fault]),
            run: $run,
            predict: |_, _, _| Err(NoPrediction::new("a deliberately faulty probe has no value")),
            ..Probe::fault(&[&FAULT])
        }
    };
}

pub(super) static HANG: Probe = fault!(InjectedFault::Hang, "Sleeps for an hour", |_, _| {
    std::thread::sleep(Duration::from_secs(3600));
    Ok(())
});

pub(super) static CRASH: Probe = fault!(InjectedFault::Crash, "Aborts", |_, _| std::process::abort());

pub(super) static PANIC: Probe = fault!(InjectedFault::Panic, "Panics", |_, _| panic!("on purpose"));

pub(super) static GARBAGE: Probe = fault!(InjectedFault::Garbage, "Prints garbage instead of readings", |_, _| {
    std::io::stdout().write_all(b"hello, world\n")?;
    Err(ProbeError::fail("garbage was printed"))
});

pub(super) static SILENCE: Probe = fault!(InjectedFault::Silence, "Ends without a reading", |_, _| Ok(()));
