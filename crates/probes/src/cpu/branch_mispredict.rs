//! A mispredicted conditional branch: random outcomes against constant ones, in the same loop.
//!
//! It is the time in which a core fetches the wrong instructions and refills its pipeline. It must not be multiplied by
//! the mispredictions of a program whose branches wait for memory, which adds the wait.

use kelvin_core::catalogue::cpu::BRANCH_MISPREDICT;
use kelvin_sys::kernels::{self, BranchOutcomes};

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    id: BRANCH_MISPREDICT.id.as_str(),
    summary: "A mispredicted branch: random against constant outcomes of the same loop",
    kind: ProbeKind::Measure,
    method: Method {
        how: "A loop in assembly multiplies a number, adds to it, and branches over one instruction if it is negative. \
              The constants make it a linear congruential generator, whose highest bit decides, or leave it unchanged: \
              the instructions are the same. Each batch times random outcomes twice, and branches never and always \
              taken once each. No predictor gets more than half of the random outcomes right, so the difference \
              divided by half of the random branches is the cost of one misprediction. The share of branches taken is \
              checked in every batch.",
        prediction: "The published cost by core, in cycles, divided by the measured frequency: the vendor's common \
                     case, or a measurement. AMD states 11 to 18 cycles around a common case of 13 for Zen 3 and 4, by \
                     kind of branch and by whether the instructions are already decoded: the range is a factor of 1.4 \
                     either way. For a core without a published figure it spans the table.",
        not_for: "Branches that wait for a load, whose latency is added. Indirect branches and returns, whose targets \
                  are mispredicted.",
        pitfalls: &[
            "Random outcomes that repeat are learned: predictors remember thousands of branches. These repeat after 2^64.",
            "A branch that compilers or cores turn into a conditional move is not predicted: this one is assembly, and \
             x86-64 and current aarch64 cores predict it.",
            "Time per random branch is not the cost of a misprediction: half of them are predicted.",
        ],
        sources: &[
            "Agner Fog, The microarchitecture of Intel, AMD, and VIA CPUs, 2023-03-26: misprediction penalties by core",
            "AMD Software Optimization Guides for Family 19h (56665) and Zen 4 (57647), section 2.8: 11 to 18 cycles, 13 in the \
             common case, as quoted in LLVM's scheduling models",
            "Knuth, The Art of Computer Programming, volume 2, section 3.3.4: the generator of MMIX",
        ],
    },
    metrics: &[&BRANCH_MISPREDICT],
    cases: |_, _| vec![Case::new()],
    run,
    predict,
};

/// Predicted range, factor either way: up to 18 cycles around a common case of 13, as AMD states for Zen 3 and 4.
const SPREAD: f64 = 1.4;

/// Maximum deviation of the share of branches taken, in standard deviations.
const MAX_DEVIATIONS: f64 = 6.0;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let mut random = BranchOutcomes::random(bench.seed());
    bench.time_parts([&BRANCH_MISPREDICT], |clock, mispredictions| {
        let timed = |outcomes: &mut BranchOutcomes| {
            let start = clock.start();
            let not_taken = kernels::branches(outcomes, mispredictions);
            (clock.stop().wrapping_sub(start) as f64, not_taken)
        };
        let [first, never, second, always] = [
            timed(&mut random),
            timed(&mut { BranchOutcomes::NEVER }),
            timed(&mut random),
            timed(&mut { BranchOutcomes::ALWAYS }),
        ];
        check_randomness(first.1 + second.1, 2 * mispredictions)?;
        // As many clock pairs on either side.
        Ok([first.0 + second.0 - never.0 - always.0])
    })
}

/// Fails if the branches not taken are not about half of all.
fn check_randomness(not_taken: u64, all: u64) -> ProbeResult {
    let deviation = (not_taken as f64 - all as f64 / 2.0) / (all as f64 / 4.0).sqrt();
    match deviation.abs() <= MAX_DEVIATIONS {
        true => Ok(()),
        false => Err(ProbeError::fail(format!(
            "{not_taken} of {all} branches were not taken: their outcomes were not random"
        ))),
    }
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let cost = published::published_cycles(facts, |core| core.source, |core| core.misprediction)?;
    let time = cost.expr("misprediction").within(SPREAD) / published::measured_frequency(facts)?;
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
