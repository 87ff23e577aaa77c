//! The cost of a context switch: two processes or two threads pass a token on one CPU, over several channels.
//!
//! One engine serves all; each channel has a file.

pub(super) mod condvar;
pub(crate) mod cross_cpu;
pub(super) mod eventfd;
pub(super) mod futex;
pub(super) mod one_way;
pub(crate) mod pipe;
mod prediction;
pub(super) mod ring;
pub(super) mod sched_yield;

use kelvin_core::Metric;
use kelvin_harness::{Bench, ProbeError};
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod};
use kelvin_sys::partner::PartnerKind;

use self::prediction::FromPipeSwitch;
use super::partner::TokenPartner;

/// Untimed round trips under the counters.
const PROOF_TRIPS: u64 = 256;

/// A switching experiment of two tasks on one CPU: channel, metrics, prediction.
struct SwitchExperiment {
    means: HandoffMethod,
    task: PartnerKind,
    /// One switch: half a round trip, less `own` where there is one.
    switch: &'static Metric,
    /// A round trip, nothing subtracted.
    round_trip: &'static Metric,
    /// The calls of one pass and one take, made by one task.
    own: Option<&'static Metric>,
    /// How it is derived from switches over pipes, which are published.
    like: Option<FromPipeSwitch>,
}

/// The probe of a switching experiment: experiment, summary, method and metrics.
macro_rules! probe {
    ($what:expr, $summary:literal, $method:expr, $metrics:expr $(,)?) => {{
        static WHAT: SwitchExperiment = $what;
        Probe {
            id: WHAT.switch.id.as_str(),
            summary: $summary,
            kind: kelvin_harness::ProbeKind::Measure,
            method: $method,
            metrics: $metrics,
            cases: |_, _| vec![kelvin_core::Case::new()],
            run: |bench, _| super::run(bench, &WHAT),
            predict: |facts, metric, _| super::prediction::predict_metric(facts, metric, &WHAT),
        }
    }};
}
use probe;

/// One round of a switching experiment.
fn run(bench: &mut Bench<'_>, what: &SwitchExperiment) -> Result<(), ProbeError> {
    let mut partner = TokenPartner::start(what.means, what.task, bench.cpu())?;
    let counts = partner.count_round_trips(PROOF_TRIPS)?;
    counts.check_one_switch_each_way()?;
    bench.note(counts.describe());
    match what.own {
        Some(own) => {
            let alone = HandoffChannel::new(what.means, what.task.scope())?;
            bench.time_parts([what.switch, what.round_trip, own], |clock, iterations| {
                let start = clock.start();
                partner.round_trips(iterations)?;
                let trips = clock.stop().wrapping_sub(start) as f64;
                let start = clock.start();
                for _ in 0..iterations {
                    alone.uncontended_handoff()?;
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
        return Err(ProbeError::fail(format!(
            "the partner was switched out {of_partner:.2} times per round trip instead of once: the token moved \
             without a switch"
        )));
    }
    Ok(())
}

/// Sentences shared by the methods of several channels.
macro_rules! shared_text {
    (how) => {
        "Two tasks pinned to the same CPU pass a token back and forth; only one can run at a time, so every pass is a \
         context switch. Round trips are timed in batches. In each batch one task also makes the same calls, as often, \
         on a channel without a waiter, timed too: the headline is half a round trip less those calls, batch by batch. \
         The full round trip and the calls are separate metrics. Before timing, 256 round trips are made under \
         getrusage(RUSAGE_THREAD): each must switch this task out once (voluntarily or not), or the round fails; the \
         partner counts its own switches and is checked when it ends. "
    };
    (not_for) => {
        "The cost of switching in a program: mostly cache and TLB refills, which two tasks that do nothing else do not \
         have (see os.switch.ring), and, with several CPUs, remote wake-ups (see os.switch.cross_cpu)."
    };
    (placement) => {
        "Placement left to the scheduler: one CPU and two differ by a factor of ten and flip within a run. Here both \
         tasks are pinned to one CPU."
    };
    (proof) => {
        "Calls that never slept: taking a token that is already there needs no switch and looks like a record. \
         Switches are counted."
    };
}
use shared_text;
