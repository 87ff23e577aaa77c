//! A mispredicted conditional branch: random outcomes against constant ones, in the same loop.
//!
//! It is the time in which a core fetches the wrong instructions and refills its pipeline. It must not be multiplied by
//! the mispredictions of a program whose branches wait for memory, which adds the wait.

use kelvin_core::catalogue::cpu::BRANCH_MISPREDICT;
use kelvin_sys::kernels::{self, BranchOutcomes};

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    summary: "A mispredicted branch: random against constant outcomes of the same loop",
    method: include_str!("branch_mispredict.md"),
    run,
    predict,
    ..Probe::measure(&[&BRANCH_MISPREDICT])
};

/// Predicted range, factor either way: up to 18 cycles around a common case of 13, as AMD states for Zen 3 and 4.
const SPREAD: f64 = 1.4;

/// Maximum deviation of the share of branches taken, in standard deviations.
const MAX_DEVIATIONS: f64 = 6.0;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let mut random = BranchOutcomes::random(bench.seed());
    bench.time_parts([&BRANCH_MISPREDICT], |clock, mispredictions| {
        let time_branches = |outcomes: &mut BranchOutcomes| {
            let (ticks, not_taken) = clock.time(|| kernels::branches(outcomes, mispredictions));
            (ticks as f64, not_taken)
        };
        let [first, never, second, always] = [
            time_branches(&mut random),
            time_branches(&mut { BranchOutcomes::NEVER }),
            time_branches(&mut random),
            time_branches(&mut { BranchOutcomes::ALWAYS }),
        ];
        check_randomness(first.1 + second.1, 2 * mispredictions)?;
        // As many clock pairs on either side.
        Ok([first.0 + second.0 - never.0 - always.0])
    })
}

/// Fails if the branches not taken are not about half of all.
fn check_randomness(not_taken: u64, total: u64) -> ProbeResult {
    let deviation = (not_taken as f64 - total as f64 / 2.0) / (total as f64 / 4.0).sqrt();
    match deviation.abs() <= MAX_DEVIATIONS {
        true => Ok(()),
        false => Err(ProbeError::fail(format!(
            "{not_taken} of {total} branches were not taken: their outcomes were not random"
        ))),
    }
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let cost = published::published_cycles(facts, |core| core.source, |core| core.misprediction)?;
    let time = cost.expr("misprediction").widen(SPREAD) / published::measured_frequency(facts)?;
    Ok(time.predict(PredictionBasis::Published, "published misprediction"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;
    use kelvin_harness::MeasuredValue;

    fn predicted(core: &'static str) -> Prediction {
        let mut machine = testing::machine();
        machine.cpu.microarchitecture = Fact::known(core.into(), "a test");
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 2e9, half_width: 0.0 });
        predict(&PredictionInputs::new(&machine, &measured), &BRANCH_MISPREDICT, &Case::new()).unwrap()
    }

    #[test]
    fn misprediction_uses_published_core_cycles() {
        let zen_4 = predicted("Zen 4");
        assert_eq!((zen_4.value, zen_4.high), (6.5, 9.1));
        assert!((zen_4.low - 4.643).abs() < 0.001);
        // Of this core nothing is published: between the least and the most of all.
        let unknown = predicted("Sapphire Rapids");
        assert_eq!((unknown.value, unknown.high), (7.75, 12.6));
    }

    #[test]
    fn non_random_outcomes_are_detected() {
        assert!(
            check_randomness(1, 2).is_ok()
                && check_randomness(2, 2).is_ok()
                && check_randomness(500_900, 1_000_000).is_ok()
        );
        assert!(check_randomness(504_000, 1_000_000).is_err() && check_randomness(0, 1000).is_err());
    }
}
