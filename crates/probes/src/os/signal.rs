//! Installing a signal handler, and a signal that a thread sends to itself.
//!
//! They are the cost of a signal within one thread. They must not be used for a signal to another process, which must
//! be woken first.

use kelvin_core::catalogue::os::{SIGNAL_DELIVER, SIGNAL_INSTALL};
use kelvin_sys::signal_handler::CountingHandler;

use super::syscall_work::short_path;
use crate::prelude::*;

pub(crate) static INSTALL_PROBE: Probe = Probe {
    id: SIGNAL_INSTALL.id.as_str(),
    summary: "Installing a signal handler with sigaction",
    kind: ProbeKind::Measure,
    method: Method {
        how: "sigaction of the C library in a loop, installing a handler for SIGUSR1 again without fetching the old \
              one. Every call is checked. The loop is subtracted; the library's work (copying the action into the \
              kernel's layout) is part of the figure.",
        prediction: "The measured os.syscall.null plus 25 ns: about 150 instructions in the library and the kernel \
                     (two copies of a 32-byte action, a lock, a few checks) at two per cycle and 3 GHz. Predicted \
                     range: from the null call to three times it plus 25 ns.",
        not_for: "The cost of delivering a signal: see os.signal.deliver.",
        pitfalls: &["The threads of a process share the lock that the call takes."],
        sources: &["lmbench lat_sig install", "Linux kernel/signal.c, do_sigaction"],
    },
    metrics: &[&SIGNAL_INSTALL],
    cases: |_, _| vec![Case::new()],
    run: |bench, _| {
        let counting = CountingHandler::install()?;
        bench.time(&SIGNAL_INSTALL, |count| Ok(counting.reinstall(count)?))
    },
    predict,
};

pub(crate) static DELIVER_PROBE: Probe = Probe {
    id: SIGNAL_DELIVER.id.as_str(),
    summary: "A signal from a thread to itself, until its handler has returned",
    kind: ProbeKind::Measure,
    method: Method {
        how: "The bare tgkill system call in a loop, SIGUSR1 to the calling thread: on return from the call the \
              handler runs and increments a counter, and its own return is a system call (rt_sigreturn). So each \
              iteration enters the kernel twice. After every batch the counter must have grown by the number of \
              signals. The loop is subtracted, the sending call is not.",
        prediction: "None: the signal frame saves and restores all vector registers on the user stack (up to 2.7 KiB \
                     with AVX-512, 8 KiB more with AMX), at no published cost. Twice os.syscall.null is the floor.",
        not_for: "A signal to another thread or process, which must be woken first; a signal from a timer or a fault.",
        pitfalls: &[
            "A pending signal absorbs the next of the same number: sent to the thread itself each is handled before \
             the call returns, as the counter shows.",
            "lmbench subtracts the cost of the call that sends; here it is part of the figure.",
        ],
        sources: &["lmbench lat_sig catch", "Linux arch/x86/kernel/signal.c, arch/x86/kernel/fpu/signal.c"],
    },
    metrics: &[&SIGNAL_DELIVER],
    cases: |_, _| vec![Case::new()],
    run: |bench, _| {
        let counting = CountingHandler::install()?;
        bench.note("every signal was handled before its sending call returned, by the handler's count");
        bench.time(&SIGNAL_DELIVER, |count| Ok(counting.send_to_self(count)?))
    },
    predict,
};

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    if *metric != SIGNAL_INSTALL {
        return Err(NoPrediction::new(
            "saving and restoring the vector registers around a handler has no published cost; two system calls are the floor",
        ));
    }
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
