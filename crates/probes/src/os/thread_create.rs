//! The cost of a new thread: until pthread_create returns, until the thread runs, and until it is joined.
//!
//! The figures are for default attributes and a stack cached by the C library. They must not be used for a first thread
//! (its stack must be mapped), nor for threads on other CPUs (see os.switch.cross_cpu).

use kelvin_core::catalogue::os::{
    HandoffMechanism, PROCESS_FORK, SWITCH_COST, THREAD_CREATE, THREAD_CREATE_JOIN, THREAD_CREATE_RUN,
};
use kelvin_sys::thread_start::ThreadStarter;
use kelvin_sys::usage::{UsageScope, read_usage};

use crate::prelude::*;
use crate::program::note_c_library;

pub(crate) static PROBE: Probe = Probe {
    summary: "A new thread: until pthread_create returns, until it runs, until it is joined",
    method: include_str!("thread_create.md"),
    run,
    predict,
    ..Probe::measure(&[&THREAD_CREATE, &THREAD_CREATE_RUN, &THREAD_CREATE_JOIN])
};

/// Untimed threads, whose faults and switches are counted.
const UNTIMED_THREADS: u32 = 16;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let mut starter = ThreadStarter::new(bench.clock());
    note_c_library(bench);
    bench.note(describe_counts(&mut starter)?);
    bench.time_each([&THREAD_CREATE, &THREAD_CREATE_RUN, &THREAD_CREATE_JOIN], |clock| {
        let start = clock.start();
        let thread = starter.start()?;
        let create_time = clock.stop();
        let run_time = thread.join()?;
        let join_time = clock.stop();
        let since = |moment: u64| moment.wrapping_sub(start);
        let reason = "the thread's clock reading is outside the interval of its creation and join: the \
                                   CPUs' counters differ";
        fail_if(since(run_time) > since(join_time), reason)?;
        Ok([since(create_time), since(run_time), since(join_time)])
    })
}

/// Faults and switches of a thread, over a few untimed ones after a first.
fn describe_counts(starter: &mut ThreadStarter) -> ProbeResult<String> {
    starter.start()?.join()?;
    let before = read_usage(UsageScope::Process);
    for _ in 0..UNTIMED_THREADS {
        starter.start()?.join()?;
    }
    let usage = read_usage(UsageScope::Process).since(before);
    let per_thread = |count: u64| count as f64 / f64::from(UNTIMED_THREADS);
    let switches = per_thread(usage.voluntary_switches + usage.involuntary_switches);
    fail_if(switches < 0.5, format!("{switches:.2} switches per thread: the new threads did not run on this CPU"))?;
    Ok(format!("{:.2} page faults and {switches:.2} switches per thread by getrusage", per_thread(usage.minor_faults)))
}

/// pthread_create over fork on the two published machines: 6,023.01 / 42,016.35 ns and 7,404.17 / 57,520.56 ns.
const PUBLISHED_FORK_SHARES: [f64; 2] = [6_023.01 / 42_016.35, 7_404.165_039 / 57_520.558_594];
const PUBLICATION: &str = "reference machines zenbook-2011 and os-bench-2013";
/// The two shares differ by 11 %; virtualisation or a larger image makes fork costlier and lowers the share.
const RANGE_FACTOR: f64 = 2.0;

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    if *metric == THREAD_CREATE {
        let fork = measured(facts, &PROCESS_FORK, &Case::new())?;
        let share = (PUBLISHED_FORK_SHARES[0] * PUBLISHED_FORK_SHARES[1]).sqrt();
        let share = published("pthread_create over fork", share, Unit::Ratio, PUBLICATION);
        return Ok((share * fork).widen(RANGE_FACTOR).derived("published share of fork"));
    }
    // Until a thread runs, or has ended and is joined: what creation makes is then taken down again.
    let create = measured(facts, &THREAD_CREATE, &Case::new())?;
    let switches = 2.0 * measured(facts, &SWITCH_COST, &HandoffMechanism::Futex.between_threads())?;
    let (time, name) = match *metric == THREAD_CREATE_RUN {
        true => (create + switches, "created and run"),
        false => (2.0 * create + switches, "created, run and ended"),
    };
    Ok(time.widen(1.5).derived(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn thread_creation_is_share_of_fork() {
        with_facts(&[(PROCESS_FORK.id.as_str(), Some(50_000.0))], |facts| {
            let prediction = predict(facts, &THREAD_CREATE, &Case::new()).unwrap();
            // sqrt(0.143349 x 0.128722) x 50 us
            assert!((prediction.value - 6_791.9).abs() < 1.0, "{}", prediction.value);
            assert_eq!(prediction.derivation, "0.136 x 50.0 µs = 6.79 µs");
        });
    }

    #[test]
    fn thread_start_and_end_add_switches() {
        let values = [(THREAD_CREATE.id.as_str(), Some(3000.0)), (SWITCH_COST.id.as_str(), Some(500.0))];
        with_facts(&values, |facts| {
            let predicted = |metric| predict(facts, metric, &Case::new()).unwrap().value;
            assert_eq!([predicted(&THREAD_CREATE_RUN), predicted(&THREAD_CREATE_JOIN)], [4000.0, 7000.0]);
        });
    }

    #[test]
    fn published_shares_match_studies() {
        assert!((PUBLISHED_FORK_SHARES[0] - 0.14335).abs() < 1e-4);
        assert!((PUBLISHED_FORK_SHARES[1] - 0.12872).abs() < 1e-4);
    }
}
