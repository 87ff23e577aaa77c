//! What it costs to switch a CPU from one task to another: a token is passed between two tasks on one CPU, by several
//! means, between processes and between threads.
//!
//! One engine serves them all; a file for each means says what it is.

pub(super) mod condvar;
pub(crate) mod cross_cpu;
pub(super) mod eventfd;
pub(super) mod futex;
pub(crate) mod pipe;
mod predict;
pub(super) mod ring;
pub(super) mod yielding;

use kelvin_harness::{Bench, Stop};
use kelvin_model::Metric;
use kelvin_sys::partner::Task;
use kelvin_sys::token::{Channel, Means};

use self::predict::AsWithPipes;
use super::partner::Partner;

/// Round trips made under the counters before any is timed.
const PROOF_TRIPS: u64 = 256;

/// What two tasks on one CPU do, what is measured of it, and how it is predicted.
struct Switching {
    means: Means,
    task: Task,
    /// One switch: half a round trip, less `own` where there is one.
    switch: &'static Metric,
    /// A round trip, nothing subtracted.
    round_trip: &'static Metric,
    /// The calls of one pass and one take, made by one task alone.
    own: Option<&'static Metric>,
    /// How it follows from switches by pipes; these themselves are published.
    like: Option<AsWithPipes>,
}

/// The probe of a switching experiment: what is done, its summary, its method, its metrics, and the probes of its inputs.
macro_rules! probe {
    ($what:expr, $summary:literal, $method:expr, $metrics:expr, $inputs:expr $(,)?) => {{
        static WHAT: Switching = $what;
        Probe {
            id: WHAT.switch.id.as_str(),
            summary: $summary,
            kind: kelvin_harness::ProbeKind::Measure,
            method: $method,
            metrics: $metrics,
            inputs: $inputs,
            cases: |_, _| vec![kelvin_model::Case::new()],
            run: |bench, _| super::run(bench, &WHAT),
            predict: |facts, metric, _| super::predict::of(facts, metric, &WHAT),
        }
    }};
}
use probe;

/// One round of a switching experiment.
fn run(bench: &mut Bench<'_>, what: &Switching) -> Result<(), Stop> {
    let mut partner = Partner::start(what.means, what.task, bench.cpu())?;
    let counts = partner.count(PROOF_TRIPS)?;
    counts.proves_one_switch_each_way()?;
    bench.note(counts.describe());
    match what.own {
        Some(own) => {
            let alone = Channel::new(what.means, what.task.scope())?;
            bench.time_parts([what.switch, what.round_trip, own], |clock, iterations| {
                let start = clock.start();
                partner.round_trips(iterations)?;
                let trips = clock.stop().wrapping_sub(start) as f64;
                let start = clock.start();
                for _ in 0..iterations {
                    alone.alone()?;
                }
                let own = clock.stop().wrapping_sub(start) as f64;
                Ok([trips / 2.0 - own, trips, own])
            })?;
        }
        None => bench.time_parts([what.switch, what.round_trip], |clock, iterations| {
            let start = clock.start();
            partner.round_trips(iterations)?;
            let trips = clock.stop().wrapping_sub(start) as f64;
            Ok([trips / 2.0, trips])
        })?,
    }
    let of_partner = partner.finish()?;
    if of_partner < 0.98 {
        return Err(Stop::fail(format!(
            "the partner was taken off the CPU {of_partner:.2} times a round trip instead of once: the token moved without a \
             switch"
        )));
    }
    Ok(())
}

/// Sentences that the methods of several means share.
macro_rules! shared_text {
    (how) => {
        "Two tasks, pinned to the same CPU, pass a token to and fro; only one of them can run at a time, so every pass \
         is a context switch. Round trips are timed in batches. In each batch the same calls are made as often by one \
         task alone, on a channel of its own that nobody waits on, and timed too: the headline is half a round trip \
         less those calls, pair by pair of neighbours in time. The unsubtracted round trip and the calls alone are \
         kept as metrics of their own. Before timing, 256 round trips are made under getrusage(RUSAGE_THREAD): each \
         must take this task off its CPU once (by waiting or by force, both are a switch), or the round fails; the \
         partner counts its own switches over its whole life and is checked when it ends. "
    };
    (not_for) => {
        "The cost of switching in a program: that is mostly the caches and address translations that the other task \
         has replaced, which two tasks that do nothing else never show (see os.switch.ring), and, with several CPUs, \
         waking an idle one (see os.switch.cross_cpu)."
    };
    (placement) => {
        "Placement left to the scheduler: on one CPU and on two differ by a factor of ten and flip within a run. Both \
         tasks are pinned to one CPU here."
    };
    (proof) => {
        "Calls that never slept: a token that is already there is taken without a switch and looks like a record. \
         Switches are counted."
    };
}
use shared_text;
