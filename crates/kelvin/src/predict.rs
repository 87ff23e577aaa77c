//! What is added to a run after its last round: the measured frequency, hardware bounds, and predictions.

use kelvin_analysis::Headlines;
use kelvin_harness::{Facts, Hardware, bounds, predictions};
use kelvin_model::{BoundRecord, Case, Fact, Machine, PathToAgent, Planned, Run};

/// Adds what is known only after the last round: the measured frequency, and predictions.
pub fn conclude(run: &mut Run) {
    let headlines = Headlines::of(run);
    if let Some(frequency) = headlines.core_hertz() {
        run.outline.machine.cpu.measured_hz = Fact::known(frequency, "measured: a chain of dependent multiplies");
    }
    predict(run, &headlines);
}

/// Recomputes the hardware bounds of a run, then its predictions, with this program's formulas.
pub fn anew(run: &mut Run) {
    let outline = &run.outline;
    run.outline.bounds = bounds_of(&outline.plan, &outline.machine, outline.way.as_ref());
    let headlines = Headlines::of(run);
    predict(run, &headlines);
}

/// The hardware bounds of the planned metrics.
pub fn bounds_of(plan: &[Planned], machine: &Machine, way: Option<&PathToAgent>) -> Vec<BoundRecord> {
    bounds(&kelvin_probes::bounded(), plan, Hardware { machine, way })
}

fn predict(run: &mut Run, headlines: &Headlines) {
    let measured = |metric: &str, case: &Case| headlines.get(metric, case);
    let lacking = |metric: &str, case: &Case| headlines.lacking(metric, case);
    let outline = &run.outline;
    let elsewhere = kelvin_probes::elsewhere(&outline.machine, &outline.plan);
    let facts = Facts::new(&outline.machine, &measured)
        .by_way(outline.way.as_ref())
        .or(&lacking)
        .beside(&elsewhere)
        .within(&outline.bounds);
    run.predictions = predictions(&kelvin_probes::all(), &outline.plan, &facts);
}
