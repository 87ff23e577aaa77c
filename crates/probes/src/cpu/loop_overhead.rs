//! One iteration of a minimal counted loop.
//!
//! It is the overhead of a timed loop around a system call, and is subtracted there. It must not be used as the cost of
//! a loop in a program, where counting overlaps with the work.

use kelvin_core::catalogue::cpu::LOOP;
use kelvin_sys::kernels;

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    summary: "One iteration of a minimal counted loop: decrement, jump if not zero",
    method: include_str!("loop_overhead.md"),
    run: |bench, _| bench.time(&LOOP, infallible(kernels::counted_loop)),
    predict,
    ..Probe::measure(&[&LOOP])
};

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let source =
        "Agner Fog, The microarchitecture of Intel, AMD, and VIA CPUs, section 3.8: one taken branch a cycle at best";
    let cycle = published("an iteration", 1.0, Unit::Cycles, source).widen(2.0).widen_by_share(0.02);
    let iteration = cycle / published::measured_frequency(facts)?;
    Ok(iteration.predict(PredictionBasis::Published, "one cycle"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::catalogue::cpu::FREQUENCY;

    #[test]
    fn loop_iteration_takes_one_cycle() {
        let predicted =
            with_facts(&[(FREQUENCY.id.as_str(), Some(2e9))], |facts| predict(facts, &LOOP, &Case::new())).unwrap();
        assert_eq!(predicted.value, 0.5);
        assert!(predicted.low < 0.25 && predicted.high > 1.0);
        assert!(with_facts(&[], |facts| predict(facts, &LOOP, &Case::new())).is_err());
    }
}
