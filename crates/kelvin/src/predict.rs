//! What is said of a run when all its rounds are made: the measured frequency, what hardware bounds, and predictions.

use kelvin_analysis::Headlines;
use kelvin_harness::{Facts, Hardware, bounds, predictions};
use kelvin_model::{BoundRecord, Case, Fact, Machine, PathToAgent, Planned, Run};

/// What can be said only when all rounds are made: the measured frequency, and predictions.
pub fn conclude(run: &mut Run) {
    let headlines = Headlines::of(run);
    if let Some(frequency) = headlines.core_hertz() {
        run.outline.machine.cpu.measured_hz = Fact::known(frequency, "measured: a chain of dependent multiplies");
    }
    predict(run, &headlines);
}

/// Makes what hardware bounds in a run, and then its predictions, anew with the formulas of this program.
pub fn anew(run: &mut Run) {
    let outline = &run.outline;
    run.outline.bounds = bounds_of(&outline.plan, &outline.machine, outline.way.as_ref());
    let headlines = Headlines::of(run);
    predict(run, &headlines);
}

/// What the hardware bounds of what is planned.
pub fn bounds_of(plan: &[Planned], machine: &Machine, way: Option<&PathToAgent>) -> Vec<BoundRecord> {
    bounds(&kelvin_probes::bounded(), plan, Hardware { machine, way })
}

fn predict(run: &mut Run, headlines: &Headlines) {
    let measured = |metric: &str, case: &Case| headlines.get(metric, case);
    let lacking = |metric: &str, case: &Case| headlines.lacking(metric, case);
    let outline = &run.outline;
    let facts = Facts::new(&outline.machine, &measured).by_way(outline.way.as_ref()).or(&lacking);
    run.predictions = predictions(&kelvin_probes::all(), &outline.plan, &facts);
}
