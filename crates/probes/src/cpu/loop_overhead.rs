//! One iteration of a minimal counted loop.
//!
//! It is the overhead of a timed loop around a system call, and is subtracted there. It must not be used as the cost of
//! a loop in a program, where counting overlaps with the work.

use kelvin_core::catalogue::cpu::LOOP;
use kelvin_sys::kernels;

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    id: LOOP.id.as_str(),
    summary: "One iteration of a minimal counted loop: decrement, jump if not zero",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Two instructions in assembly, aligned to 64 bytes: dec and jnz on x86-64, subs and b.ne on aarch64. A \
              batch is one such loop of many iterations. Only the clock pair is subtracted.",
        prediction: "One core cycle at the measured frequency: each decrement depends on the last, and most cores \
                     execute one taken branch per cycle. Predicted range: half a cycle (cores that eliminate the \
                     decrement at rename and take two branches per cycle) to two (cores that take a branch every other \
                     cycle, or a loop across a fetch boundary).",
        not_for: "The cost of a loop around work: there the counting overlaps with the work and is mostly hidden.",
        pitfalls: &[
            "An unoptimised compiled loop keeps its counter in memory and costs a store-to-load forwarding (4 to 8 \
             cycles) per iteration: hence the 8.4 cycles of earlier studies.",
            "On some cores the alignment of the two instructions can double the figure: here it is fixed.",
        ],
        sources: &[
            "Agner Fog, Instruction tables, 2022-11-04: Jcc, half a cycle to two by core and by whether it jumps",
            "Agner Fog, The microarchitecture of Intel, AMD, and VIA CPUs, 2023-03-26, section 3.8",
        ],
    },
    metrics: &[&LOOP],
    cases: |_, _| vec![Case::new()],
    run: |bench, _| bench.time(&LOOP, infallible(kernels::counted_loop)),
    predict,
};

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let source =
        "Agner Fog, The microarchitecture of Intel, AMD, and VIA CPUs, section 3.8: one taken branch a cycle at best";
    let cycle = published("an iteration", 1.0, Unit::Cycles, source).within(2.0).within_share(0.02);
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
