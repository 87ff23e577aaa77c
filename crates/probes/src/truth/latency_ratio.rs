//! A chain of known cycles: a dependent 64-bit multiply takes three times as long as a dependent add.

use kelvin_harness::{Bench, Effort, Facts, Kind, Probe, Stop};
use kelvin_model::{Better, Canaries, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::kernels;

static METRIC: Metric = Metric::duration("truth.cycles", "Dependent multiply over dependent add, in time")
    .unit(Unit::Ratio, Better::Neither)
    .canaries(Canaries::NONE);

pub(super) static PROBE: Probe = Probe {
    id: "truth.cycles",
    summary: "A chain of dependent multiplies against a chain of dependent adds: known cycles",
    kind: Kind::Truth,
    method: super::method(
        "Chains of 64-bit register multiplies and adds, each waiting for the one before, timed alternately; the figure \
         is the ratio of neighbours, so that the core's frequency cancels.",
    ),
    metrics: &[&METRIC],
    inputs: &[],
    cases: |_: &Machine, _: Effort| vec![Case::new()],
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    const ITERATIONS: u64 = 1000;
    let clock = bench.clock();
    let timed = |kernel: fn(u64)| {
        let start = clock.start();
        kernel(ITERATIONS);
        (clock.stop() - start) as f64
    };
    timed(kernels::chain_add);
    let ratios = (0..40)
        .map(|_| {
            let before = timed(kernels::chain_add);
            let multiply = timed(kernels::chain_multiply);
            let after = timed(kernels::chain_add);
            multiply / ((before + after) / 2.0)
        })
        .collect();
    bench.record(&METRIC, ratios);
    Ok(())
}

fn predict(facts: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    let family = facts.machine().cpu.microarchitecture.get().map_or("", String::as_str);
    // Three cycles for IMUL r64, r64 on every core of these lines, one for ADD.
    let three = ["Zen", "Sandy Bridge", "Ivy Bridge", "Haswell", "Broadwell", "Skylake", "Cascade Lake", "Ice Lake"];
    let also = ["Sapphire Rapids", "Emerald Rapids", "Granite Rapids", "Golden Cove", "Alder Lake", "Raptor Lake"];
    if !three.iter().chain(&also).any(|line| family.starts_with(line)) {
        return Err(NoPrediction::because("no published multiply latency for this processor is built in"));
    }
    let text = "IMUL r64, r64 takes 3 cycles and ADD r64, r64 takes 1 (Fog, Instruction tables; uops.info)";
    Ok(super::known(3.0, 0.02, Unit::Ratio, text))
}
