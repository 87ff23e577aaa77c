//! What is added to a run after its last round: the measured frequency, hardware bounds, and predictions.

use kelvin_analysis::Headlines;
use kelvin_harness::{Elsewhere, Facts, Hardware, bounds, predictions};
use kelvin_model::{
    BoundRecord, Case, Fact, Machine, MeasuredValue, Outline, PathToAgent, Planned, PredictionRecord, Run,
};

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
    let Outline { machine, plan, way, bounds, .. } = &run.outline;
    let grounds = Grounds::of(machine, plan, way.as_ref(), bounds.clone());
    run.predictions = predictions_of(plan, &grounds.facts(&measured).or(&lacking));
}

/// What predictions rest on beside figures: the same for a run and for one figure by itself, so that a figure has one prediction.
pub struct Grounds<'a> {
    machine: &'a Machine,
    way: Option<&'a PathToAgent>,
    elsewhere: Elsewhere,
    bounds: Vec<BoundRecord>,
}

impl<'a> Grounds<'a> {
    /// Those of what is planned.
    pub fn of(machine: &'a Machine, plan: &[Planned], way: Option<&'a PathToAgent>, bounds: Vec<BoundRecord>) -> Self {
        Self { machine, way, elsewhere: kelvin_probes::elsewhere(machine, plan), bounds }
    }

    /// They, with figures.
    pub fn facts<'f>(&'f self, measured: &'f dyn Fn(&str, &Case) -> Option<MeasuredValue>) -> Facts<'f> {
        Facts::new(self.machine, measured).by_way(self.way).beside(&self.elsewhere).within(&self.bounds)
    }
}

/// The predictions of these figures.
pub fn predictions_of(planned: &[Planned], facts: &Facts<'_>) -> Vec<PredictionRecord> {
    predictions(&kelvin_probes::all(), planned, facts)
}
