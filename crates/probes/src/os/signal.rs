//! Installing a signal handler, and a signal that a thread sends to itself.
//!
//! They are the cost of a signal within one thread. They must not be used for a signal to another process, which must
//! be woken first.

use kelvin_core::catalogue::os::{SIGNAL_DELIVER, SIGNAL_INSTALL};
use kelvin_sys::signal_handler::CountingHandler;

use super::syscall_work::short_path;
use crate::prelude::*;

pub(crate) static INSTALL_PROBE: Probe = Probe {
    summary: "Installing a signal handler with sigaction",
    method: include_str!("signal_install.md"),
    run: |bench, _| {
        let handler = CountingHandler::install()?;
        bench.time(&SIGNAL_INSTALL, |count| Ok(handler.reinstall(count)?))
    },
    predict,
    ..Probe::measure(&[&SIGNAL_INSTALL])
};

pub(crate) static DELIVER_PROBE: Probe = Probe {
    summary: "A signal from a thread to itself, until its handler has returned",
    method: include_str!("signal_deliver.md"),
    run: |bench, _| {
        let handler = CountingHandler::install()?;
        bench.note("every signal was handled before its sending call returned, by the handler's count");
        bench.time(&SIGNAL_DELIVER, |count| Ok(handler.send_to_self(count)?))
    },
    predict,
    ..Probe::measure(&[&SIGNAL_DELIVER])
};

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    let reason = "saving and restoring the vector registers around a handler has no published cost; two system calls are the floor";
    unpredicted_if(*metric != SIGNAL_INSTALL, reason)?;
    // Two copies of an action, a lock and a few checks are about as many instructions as the path to a driver.
    short_path(facts, "Linux kernel/signal.c, do_sigaction, for the instruction count")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::catalogue::os::SYSCALL_NULL;

    #[test]
    fn signal_install_follows_null_call() {
        with_facts(&[(SYSCALL_NULL.id.as_str(), Some(60.0))], |facts| {
            assert!((predict(facts, &SIGNAL_INSTALL, &Case::new()).unwrap().value - 85.0).abs() < 1e-9);
            assert!(predict(facts, &SIGNAL_DELIVER, &Case::new()).is_err());
        });
        with_facts(&[], |facts| assert!(predict(facts, &SIGNAL_INSTALL, &Case::new()).is_err()));
    }
}
