//! What is added to a run after its last round: the measured frequency, hardware bounds, and predictions.

use kelvin_analysis::Headlines;
use kelvin_core::{BoundRecord, Case, Fact, Machine, MeasuredValue, NetworkPath, PlannedMeasurement, Run, RunHeader};
use kelvin_harness::{HardwareFacts, PredictionInputs, ReferenceMachines, bound_records, prediction_records};

/// Adds what is known only after the last round: the measured frequency, and predictions.
pub fn complete_run(run: &mut Run) {
    let headlines = Headlines::from_run(run);
    if let Some(frequency) = headlines.core_hertz() {
        run.header.machine.cpu.measured_hz = Fact::known(frequency, "measured: a chain of dependent multiplies");
    }
    add_predictions(run, &headlines);
}

/// Recomputes the hardware bounds of a run, then its predictions, with this program's formulas.
pub fn repredict(run: &mut Run) {
    let header = &run.header;
    run.header.bounds = hardware_bounds(&header.plan, &header.machine, header.network_path.as_ref());
    let headlines = Headlines::from_run(run);
    add_predictions(run, &headlines);
}

/// The hardware bounds of the planned metrics.
pub fn hardware_bounds(
    plan: &[PlannedMeasurement],
    machine: &Machine,
    network_path: Option<&NetworkPath>,
) -> Vec<BoundRecord> {
    bound_records(&kelvin_probes::bounded_metrics(), plan, HardwareFacts { machine, network_path })
}

fn add_predictions(run: &mut Run, headlines: &Headlines) {
    let measured_value = |metric: &str, case: &Case| headlines.get(metric, case);
    let missing_input = |metric: &str, case: &Case| headlines.missing_input(metric, case);
    let RunHeader { machine, plan, network_path, bounds, .. } = &run.header;
    let context = PredictionContext::new(machine, plan, network_path.as_ref(), bounds.clone());
    let inputs = context.facts(&measured_value).with_missing(&missing_input);
    run.predictions = prediction_records(&kelvin_probes::all(), plan, &inputs);
}

/// The inputs of predictions that are not figures: the same for a run and for one figure by itself, so that a figure has one prediction.
pub struct PredictionContext<'a> {
    machine: &'a Machine,
    network_path: Option<&'a NetworkPath>,
    reference_machines: ReferenceMachines,
    bounds: Vec<BoundRecord>,
}

impl<'a> PredictionContext<'a> {
    /// Those of what is planned.
    pub fn new(
        machine: &'a Machine,
        plan: &[PlannedMeasurement],
        network_path: Option<&'a NetworkPath>,
        bounds: Vec<BoundRecord>,
    ) -> Self {
        let reference_machines = kelvin_probes::reference_machines(machine, plan);
        Self { machine, network_path, reference_machines, bounds }
    }

    /// They, with figures.
    pub fn facts<'f>(
        &'f self,
        measured_value: &'f dyn Fn(&str, &Case) -> Option<MeasuredValue>,
    ) -> PredictionInputs<'f> {
        PredictionInputs::new(self.machine, measured_value)
            .with_path(self.network_path)
            .with_references(&self.reference_machines)
            .with_bounds(&self.bounds)
    }
}
