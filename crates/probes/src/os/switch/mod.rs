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

use kelvin_harness::{Bench, Effort, Stop};
use kelvin_model::{Canaries, Canary, Case, Machine, Metric, Overhead, Tags};
use kelvin_sys::peer::Task;
use kelvin_sys::token::{Channel, Means};

use super::partner::Partner;

/// Round trips made under the counters before any is timed.
const PROOF_TRIPS: u64 = 256;

/// What two tasks on one CPU do, and what is measured of it.
struct Switching {
    means: Means,
    task: Task,
    /// One switch: half a round trip, less `own` where there is one.
    switch: &'static Metric,
    /// A round trip, nothing subtracted.
    round_trip: &'static Metric,
    /// The calls of one pass and one take, made by one task alone.
    own: Option<&'static Metric>,
}

/// The core's canaries see frequency and sibling; the kernel's sees the entry path, which every hand-over takes twice.
/// Tried on a busy virtual machine, only the kernel's set apart the batches in which something else ran for long.
const GUARDS: Canaries = Canaries::of(&[Canary::Chain, Canary::Block, Canary::Kernel]);

/// A duration of work that hands over the CPU on purpose: a preemption is part of it, and no reason to set it apart.
const fn handing_over(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).canaries(GUARDS).contaminants(Tags::CONTAMINATED_UNLESS_PREEMPTED)
}

/// A difference of two times, in each of which the clock pair is contained: a whole pair must not be subtracted again.
/// What is left of it is minus half a pair a batch, far below a nanosecond an operation.
const fn difference(id: &'static str, summary: &'static str) -> Metric {
    handing_over(id, summary).overhead(Overhead::None)
}

/// A metric of a switching experiment has no parameters.
fn cases(_: &Machine, _: Effort) -> Vec<Case> {
    vec![Case::new()]
}

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
    let of_peer = partner.finish()?;
    if of_peer < 0.98 {
        return Err(Stop::fail(format!(
            "the peer was taken off the CPU {of_peer:.2} times a round trip instead of once: the token moved without a \
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
         peer counts its own switches over its whole life and is checked when it ends. "
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_no_clock_pair_to_subtract_and_a_hand_over_may_be_preempted() {
        let metric = difference("os.switch.test", "A test");
        assert_eq!(metric.overhead, Overhead::None);
        assert!(!Tags::PREEMPTED.any(metric.contaminants));
        assert!(Tags::STOLEN.any(metric.contaminants));
        assert!(metric.canaries.contains(Canary::Kernel));
    }
}
