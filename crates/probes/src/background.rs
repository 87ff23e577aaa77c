//! Threads that keep other CPUs busy while something is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use kelvin_harness::Bench;
use kelvin_sys::cpu;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::reasons::{OrReason, ProbeResult, skip_if};

/// The allowed CPUs that this process is not pinned to, of which there must be one.
pub(crate) fn other_cpus(bench: &Bench<'_>) -> ProbeResult<Vec<u32>> {
    let cpus: Vec<u32> = bench.allowed_cpus().iter().copied().filter(|&cpu| cpu != bench.cpu()).collect();
    skip_if(cpus.is_empty(), "needs two CPUs; this process may use one")?;
    Ok(cpus)
}

/// Measures while a thread with its number runs on each of these CPUs. They must end once `stop` is set: when it was
/// measured, or one failed.
pub(crate) fn measure_with_threads(
    name: &str,
    cpus: &[u32],
    stop: &AtomicBool,
    thread: impl Fn(usize) -> ProbeResult + Sync,
    measure: impl FnOnce() -> ProbeResult,
) -> ProbeResult {
    let stop_all = || stop.store(true, Ordering::Release);
    let run = |(number, &cpu): (usize, &u32)| {
        let pinned = cpu::pin(&[cpu]).or_fail(format!("cannot run on CPU {cpu}"));
        pinned.and_then(|()| thread(number)).inspect_err(|_| stop_all())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let start =
            |member| ThreadBuilder::named(name).start_in(scope, move || run(member)).inspect_err(|_| stop_all());
        let threads = cpus.iter().enumerate().map(start).collect::<std::io::Result<Vec<_>>>()?;
        let outcome = measure();
        stop_all();
        let ends: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        for end in ends {
            end.ok().or_fail(format!("a thread `{name}` panicked"))??;
        }
        outcome
    })
}
