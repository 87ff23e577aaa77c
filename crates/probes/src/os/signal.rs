//! Installing a signal handler, and the way of a signal that a thread sends to itself.
//!
//! They are the price of a signal within one thread. They must not be used for a signal to another process, which has
//! to be woken first.

use kelvin_catalogue::os::{SIGNAL_DELIVER, SIGNAL_INSTALL, SYSCALL_NULL};
use kelvin_harness::{Effort, Facts, Method, Probe, ProbeKind};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::signals::Counting;

use super::syscall_work::short_way;

pub(crate) static INSTALL_PROBE: Probe = Probe {
    id: SIGNAL_INSTALL.id.as_str(),
    summary: "Installing a signal handler by sigaction",
    kind: ProbeKind::Measure,
    method: Method {
        how: "sigaction of the C library in a loop, each call installing a handler for SIGUSR1 again, without asking for \
              the old one. Every call is checked. The loop is subtracted; the library's own work (copying the action into \
              the kernel's layout) is part of the figure.",
        prediction: "The measured os.syscall.null and about 150 instructions in the library and the kernel (two copies of an \
                     action of 32 bytes, a lock, a few checks) at two a cycle and 3 GHz: 25 ns. Unremarkable from the null \
                     call to three times of it and the 25 ns.",
        not_for: "Delivery of a signal: see os.signal.deliver.",
        pitfalls: &["A process of many threads shares the lock that the call takes."],
        sources: &["lmbench lat_sig install", "Linux kernel/signal.c, do_sigaction"],
    },
    metrics: &[&SIGNAL_INSTALL],
    inputs: &[SYSCALL_NULL.id.as_str()],
    cases,
    run: |bench, _| {
        let counting = Counting::install()?;
        bench.time(&SIGNAL_INSTALL, |count| Ok(counting.install_again(count)?))
    },
    predict,
};

pub(crate) static DELIVER_PROBE: Probe = Probe {
    id: SIGNAL_DELIVER.id.as_str(),
    summary: "A signal that a thread sends to itself, until its handler has returned",
    kind: ProbeKind::Measure,
    method: Method {
        how: "The bare tgkill system call in a loop, SIGUSR1 to the calling thread itself: on the way back from the call \
              the kernel runs the handler, which adds one to a counter, and the handler's return is a system call of its \
              own (rt_sigreturn). So each turn enters the kernel twice. After every batch the counter must have grown by \
              the number of signals. The loop is subtracted, the sending call is not.",
        prediction: "None as a value: building the signal's frame saves all vector registers (up to 2.7 KiB with AVX-512, \
                     8 KiB more with AMX) on the user's stack and restores them, for which there is no published cost. Twice \
                     os.syscall.null is the floor.",
        not_for: "A signal to another thread or process, which has to be woken first; a signal that a timer or a fault \
                  raises.",
        pitfalls: &[
            "A pending signal of the same number swallows the next one: with the thread itself as target each is handled \
             before the call returns, and the counter shows it.",
            "lmbench subtracts the cost of the call that sends; here it is part of the figure.",
        ],
        sources: &["lmbench lat_sig catch", "Linux arch/x86/kernel/signal.c, arch/x86/kernel/fpu/signal.c"],
    },
    metrics: &[&SIGNAL_DELIVER],
    inputs: &[SYSCALL_NULL.id.as_str()],
    cases,
    run: |bench, _| {
        let counting = Counting::install()?;
        bench.note("every signal was handled before the call that sent it returned, by the handler's own count");
        bench.time(&SIGNAL_DELIVER, |count| Ok(counting.deliver(count)?))
    },
    predict,
};

fn cases(_: &Machine, _: Effort) -> Vec<Case> {
    vec![Case::new()]
}

fn predict(facts: &Facts<'_>, metric: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    if *metric != SIGNAL_INSTALL {
        return Err(NoPrediction::because(
            "saving and restoring the vector registers around a handler has no published cost; two system calls are the floor",
        ));
    }
    // Two copies of an action, a lock and a few checks are as many instructions as the way to a driver.
    short_way(facts, "Linux kernel/signal.c, do_sigaction, read for the length of the way")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn installing_is_predicted_from_the_null_call() {
        facts_about(&[(SYSCALL_NULL.id.as_str(), Some(60.0))], |facts| {
            assert!((predict(facts, &SIGNAL_INSTALL, &Case::new()).unwrap().value - 85.0).abs() < 1e-9);
            assert!(predict(facts, &SIGNAL_DELIVER, &Case::new()).is_err());
        });
        facts_about(&[], |facts| assert!(predict(facts, &SIGNAL_INSTALL, &Case::new()).is_err()));
    }
}
