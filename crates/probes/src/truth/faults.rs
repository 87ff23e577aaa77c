//! Probes that go wrong on purpose: each must cost only itself, and be reported with what it did.

use std::io::Write;
use std::time::Duration;

use kelvin_harness::{Effort, Kind, Probe, Stop};
use kelvin_model::{Case, Machine, Metric};

static METRIC: Metric = Metric::duration("truth.fault", "Never measured: the probe goes wrong on purpose");

/// A probe that goes wrong in the given way.
macro_rules! fault {
    ($id:literal, $summary:literal, $run:expr) => {
        Probe {
            id: $id,
            summary: $summary,
            kind: Kind::Fault,
            method: super::method("Goes wrong on purpose, to see that the run goes on and says what happened."),
            metrics: &[&METRIC],
            inputs: &[],
            cases: |_: &Machine, _: Effort| vec![Case::new().with_word("fault", $id)],
            run: $run,
            predict: super::no_value,
        }
    };
}

pub(super) static HANG: Probe = fault!("truth.fault.hang", "Sleeps for an hour", |_, _| {
    std::thread::sleep(Duration::from_secs(3600));
    Ok(())
});

pub(super) static CRASH: Probe = fault!("truth.fault.crash", "Aborts", |_, _| std::process::abort());

pub(super) static PANIC: Probe = fault!("truth.fault.panic", "Panics", |_, _| panic!("on purpose"));

pub(super) static GARBAGE: Probe = fault!("truth.fault.garbage", "Prints garbage where readings belong", |_, _| {
    std::io::stdout().write_all(b"hello, world\n")?;
    Err(Stop::fail("garbage was printed"))
});

pub(super) static SILENCE: Probe = fault!("truth.fault.silence", "Ends without a reading", |_, _| Ok(()));
