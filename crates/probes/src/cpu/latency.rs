//! Latency of an add, a multiply and a load from L1.
//!
//! They show that cycles are counted correctly. They must not be used as throughput: a core executes several
//! independent ones at a time.

use kelvin_core::catalogue::cpu::{LATENCY, LATENCY_ADD, LATENCY_LOAD, LATENCY_MULTIPLY};
use kelvin_sys::kernels;

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    id: LATENCY.as_str(),
    summary: "Latency of an add, a 64-bit multiply, and a load from L1",
    method: include_str!("latency.md"),
    run,
    predict,
    ..Probe::measure(&[&LATENCY_ADD, &LATENCY_MULTIPLY, &LATENCY_LOAD])
};

/// Predicted range around a published latency, as a share.
const TOLERANCE: f64 = 0.02;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    for (metric, chain) in [
        (&LATENCY_ADD, kernels::chain_add as fn(u64)),
        (&LATENCY_MULTIPLY, kernels::chain_multiply as fn(u64)),
        (&LATENCY_LOAD, kernels::chain_load as fn(u64)),
    ] {
        bench.time(metric, infallible(|instructions| chain(loops_for(instructions))))?;
    }
    Ok(())
}

/// Loops that hold this many instructions. Batches are powers of two and far longer than one loop, so nothing is
/// rounded.
fn loops_for(instructions: u64) -> u64 {
    instructions.div_ceil(kernels::CHAIN_LENGTH)
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    let core = published::published_core(facts)?;
    let (name, cycles) = match metric {
        metric if *metric == LATENCY_MULTIPLY => ("multiply", core.figures.multiply),
        metric if *metric == LATENCY_LOAD => ("load", core.figures.load),
        _ => ("add", core.figures.add),
    };
    let cycles = published(name, cycles, Unit::Cycles, core.source).widen_by_share(TOLERANCE);
    let latency = cycles / published::measured_frequency(facts)?;
    Ok(latency.predict(PredictionBasis::Published, "published latency"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::{Fact, Machine};
    use kelvin_harness::MeasuredValue;

    #[test]
    fn latencies_are_cycles_over_the_frequency() {
        let mut machine = testing::machine();
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 4e9, half_width: 0.0 });
        let predicted = |machine: &Machine, metric: &Metric| {
            predict(&PredictionInputs::new(machine, &measured), metric, &Case::new()).map(|prediction| prediction.value)
        };
        assert!(predicted(&machine, &LATENCY_ADD).is_err());
        machine.cpu.microarchitecture = Fact::known("Zen".into(), "a test");
        assert_eq!(predicted(&machine, &LATENCY_ADD), Ok(0.25));
        assert_eq!(predicted(&machine, &LATENCY_MULTIPLY), Ok(0.75));
        machine.cpu.microarchitecture = Fact::known("Ice Lake".into(), "a test");
        assert_eq!(predicted(&machine, &LATENCY_LOAD), Ok(1.25));
    }

    #[test]
    fn a_batch_is_whole_loops() {
        assert_eq!(loops_for(1), 1);
        assert_eq!(loops_for(1 << 17), 1 << 11);
    }
}
