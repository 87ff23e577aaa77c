//! Waking a task on another CPU: the same token as on one CPU, between two.
//!
//! The time from passing the token until the other CPU has it, an idle state left behind included. It must not be taken
//! for a switch, and one figure must not be taken for it: it has modes.

pub(crate) use kelvin_catalogue::os::SWITCH_CROSS_CPU as METRIC;
use kelvin_catalogue::os::{SWITCH_CROSS_CPU, SWITCH_PROCESS_PIPE, TokenMeans};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Axis, Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::partner::Task;
use kelvin_sys::token::Means;

use super::super::partner::Partner;

/// How the token is passed.
pub(crate) const MEANS: Axis = TokenMeans::AXIS;

pub(in crate::os) static PROBE: Probe = Probe {
    id: SWITCH_CROSS_CPU.id.as_str(),
    summary: "Waking a process on another CPU",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Two processes, each pinned to a CPU of its own, pass a token to and fro, by a byte over pipes or by a \
              futex. Every round trip is timed alone, so that the distribution is that of single wake-ups, modes \
              included; a value is half a round trip with nothing subtracted (half a clock pair, some 10 ns, is in \
              it). While one waits the other works, so each CPU goes idle and is woken once a trip, as far as its idle \
              loop lets it: how often this task slept is stated by getrusage. The headline takes the samples as found, \
              because the other CPU's state is the point.",
        prediction: "None: it would be a switch on one CPU, an inter-processor interrupt, and leaving an idle state, \
                     on a virtual machine with the hypervisor's part in the last two, and no published costs of these \
                     are built in. It is at least the wake-up's share of a switch on one CPU unless the idle CPU \
                     polls.",
        not_for: "The cost of a switch; the latency of waking a task on a busy CPU; a mean: where there are two modes, \
                  none of the trips takes the mean.",
        pitfalls: &[
            "Waking an idle CPU depends on how deep it sleeps, and so on how long it was idle: a busier machine can be \
             the faster one. Modes are reported as such.",
            "On a virtual machine an idle CPU is given back to the host, and waking it costs an exit and the host's \
             own wake-up, tens of microseconds.",
            "Unpinned, the scheduler pulls both tasks onto one CPU now and then, and the figure flips by a factor of \
             ten.",
        ],
        sources: &[
            "perf bench sched pipe without pinning (tools/perf/bench/sched-pipe.c in the Linux source)",
            "Linux kernel documentation, admin-guide/pm/cpuidle.rst",
            "Linux kernel documentation, virt/guest-halt-polling.rst",
        ],
    },
    metrics: &[&SWITCH_CROSS_CPU],
    inputs: &[SWITCH_PROCESS_PIPE.id.as_str()],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, _: Effort) -> Vec<Case> {
    TokenMeans::ALL.iter().map(|&means| Case::new().at(means)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let means = match TokenMeans::of(case) {
        Some(TokenMeans::Pipe) => Means::Pipe,
        Some(TokenMeans::Futex) => Means::Futex,
        None => return Err(Stop::fail(format!("the case needs means=pipe or means=futex, not {case}"))),
    };
    let mut partner = Partner::start(means, Task::Process, bench.partner_cpu()?)?;
    let counts = partner.count(64)?;
    bench.note(format!("partner on CPU {}; {}", bench.partner_cpu()?, counts.describe()));
    bench.time_each([&SWITCH_CROSS_CPU], |clock| {
        let start = clock.start();
        partner.round_trips(1)?;
        Ok([clock.stop().wrapping_sub(start) / 2])
    })?;
    partner.finish().map(drop)
}

fn predict(facts: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    let here = match facts.measured(&SWITCH_PROCESS_PIPE, &Case::new()) {
        Ok(switch) => format!(" (a switch on one CPU took {:.0} ns here)", switch.value),
        Err(_) => String::new(),
    };
    Err(NoPrediction::because(format!(
        "no published costs of an inter-processor interrupt and of leaving an idle state are built in for this \
         machine{here}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn the_reason_for_no_prediction_names_what_was_measured() {
        let reason = |switch: Option<f64>| {
            let known = [(SWITCH_PROCESS_PIPE.id.as_str(), switch)];
            facts_about(&known, |facts| predict(facts, &SWITCH_CROSS_CPU, &Case::new())).unwrap_err().0
        };
        assert!(reason(Some(1700.4)).ends_with("(a switch on one CPU took 1700 ns here)"));
        assert!(reason(None).ends_with("for this machine"));
    }
}
