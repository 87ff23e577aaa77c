//! Remote wake-up: a token passed between two CPUs.
//!
//! The time from passing the token until the other CPU has it, including its idle-state exit. It must not be used as
//! the cost of a switch, nor reduced to one figure: it is multimodal.

pub(crate) use kelvin_core::catalogue::os::SWITCH_CROSS_CPU as METRIC;
use kelvin_core::catalogue::os::{HandoffMechanism, HandoffTask, SWITCH_COST, SWITCH_CROSS_CPU};

use super::super::partner::TokenPartner;
use crate::prelude::*;

pub(in crate::os) static PROBE: Probe = Probe {
    summary: "Remote wake-up of a process on another CPU",
    method: include_str!("cross_cpu.md"),
    cases: |_, _| words(&MECHANISMS),
    run,
    predict,
    ..Probe::measure(&[&SWITCH_CROSS_CPU])
};

/// Mechanisms that wake the other CPU.
const MECHANISMS: [HandoffMechanism; 2] = [HandoffMechanism::Pipe, HandoffMechanism::Futex];

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let mechanism = required_word(HandoffMechanism::of(case), &MECHANISMS, case)?;
    let mut partner = TokenPartner::start(mechanism, HandoffTask::Process, bench.partner_cpu()?)?;
    let counts = partner.count_round_trips(64)?;
    bench.note(format!("partner on CPU {}; {}", bench.partner_cpu()?, counts.describe()));
    bench.time_back_to_back([&SWITCH_CROSS_CPU], |clock| {
        let (ticks, outcome) = clock.time(|| partner.round_trips(1));
        outcome.map(|()| [ticks / 2])
    })?;
    partner.finish().map(drop)
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    if HandoffMechanism::of(case) == Some(HandoffMechanism::Futex) {
        let wake_up = measured(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(HandoffMechanism::Pipe))?;
        return Ok(wake_up.widen(1.3).explained(
            PredictionBasis::Derived,
            "the same",
            "most of it is the wake-up, as over pipes",
        ));
    }
    let switch_text = match facts.measured(&SWITCH_COST, &HandoffMechanism::Pipe.between_processes()) {
        Ok(switch) => format!(" (a switch on one CPU took {:.0} ns)", switch.value),
        Err(_) => String::new(),
    };
    Err(NoPrediction::new(format!(
        "kelvin has no published costs of an inter-processor interrupt and of an idle-state exit for this \
         machine{switch_text}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn missing_input_reason_names_metric() {
        let reason = |switch: Option<f64>| {
            let values = [(SWITCH_COST.id.as_str(), switch)];
            let over_pipes = Case::new().with_word(HandoffMechanism::Pipe);
            with_facts(&values, |facts| predict(facts, &SWITCH_CROSS_CPU, &over_pipes)).unwrap_err().0
        };
        assert!(reason(Some(1700.4)).ends_with("(a switch on one CPU took 1700 ns)"));
        assert!(reason(None).ends_with("for this machine"));
    }

    #[test]
    fn futex_wake_follows_pipe_wake() {
        with_facts(&[(SWITCH_CROSS_CPU.id.as_str(), Some(4000.0))], |facts| {
            let futex = predict(facts, &SWITCH_CROSS_CPU, &Case::new().with_word(HandoffMechanism::Futex)).unwrap();
            assert_eq!(futex.value, 4000.0);
        });
    }
}
