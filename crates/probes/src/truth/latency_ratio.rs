//! A chain of known cycles: a dependent 64-bit multiply takes three times as long as a dependent add.

use kelvin_core::catalogue::truth::CYCLES;
use kelvin_sys::kernels;

use crate::prelude::*;
use crate::published;

pub(super) static PROBE: Probe = Probe {
    summary: "A chain of dependent multiplies against a chain of dependent adds: known cycles",
    method: include_str!("latency_ratio.md"),
    run,
    predict,
    ..Probe::truth(&[&CYCLES])
};

/// Ratios per round, and chains of either kind in each.
const RATIO_SAMPLES: usize = 41;
const CHAIN_PAIRS: usize = 8;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let clock = bench.clock();
    let time_kernel = |kernel: fn(u64), iterations| {
        let start = clock.start();
        kernel(iterations);
        (clock.stop() - start) as f64 / iterations as f64
    };
    let best_ratio = || {
        let (mut multiply, mut add) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..CHAIN_PAIRS {
            multiply = multiply.min(time_kernel(kernels::chain_multiply, 100));
            add = add.min(time_kernel(kernels::chain_add, 300));
        }
        multiply / add
    };
    bench.record(&CYCLES, (0..RATIO_SAMPLES).map(|_| best_ratio()).collect());
    Ok(())
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let core = published::published_core(facts)?;
    let (multiply, add) = (core.figures.multiply, core.figures.add);
    let text = format!("a multiply takes {multiply} cycles and an add {add}: {}", core.source);
    Ok(super::known_prediction(multiply / add, 0.02, Unit::Ratio, &text))
}
