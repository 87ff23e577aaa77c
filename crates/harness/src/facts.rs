//! Inputs of predictions: the hardware, with its bounds of metrics, and the headlines of the run; and how a prediction widens if an input was never
//! undisturbed.

use std::cell::RefCell;

use kelvin_core::units::value_text;
use kelvin_core::{
    AsFoundValue, Better, Bound, BoundRecord, Case, Input, Machine, MeasuredValue, Metric, MissingInput, Name,
    NetworkPath, NoPrediction, PlannedMeasurement, Prediction,
};
use kelvin_stats::{CONFIDENCE_LEVEL, PREDICTION_LEVEL, normal_quantile};

use crate::reference_machines::ReferenceMachines;

/// A look-up by metric id and case.
type Lookup<'a, T> = &'a dyn Fn(&str, &Case) -> T;

/// How a probe predicts one of its metrics at one case from facts and lower metrics; pure.
pub type PredictFn = fn(&PredictionInputs<'_>, &Metric, &Case) -> Result<Prediction, NoPrediction>;

/// Inputs of predictions: the hardware, and the headlines of this run.
pub struct PredictionInputs<'a> {
    hardware: HardwareFacts<'a>,
    measured: Lookup<'a, Option<MeasuredValue>>,
    missing_figure: Option<Lookup<'a, MissingInput>>,
    references: Option<&'a ReferenceMachines>,
    bounds: &'a [BoundRecord],
    /// Where in the range of its samples an input known only as found is taken.
    sample_end: SampleEnd,
    /// The inputs taken as found so far, each once.
    used_inputs: RefCell<UsedInputs>,
    /// An input that is moved by a part of its half interval.
    shifted_input: Option<(&'a str, f64)>,
}

/// What a formula asked for.
#[derive(Default)]
struct UsedInputs {
    /// Inputs whose figure is that of samples as they were found.
    as_found: Vec<String>,
    /// Inputs with a figure.
    requested: Vec<String>,
    /// Why others have none.
    missing_reasons: Vec<String>,
}

/// Where among its samples an input known only as found is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleEnd {
    Figure,
    /// At the machine's best, which is nearest to undisturbed.
    Best,
    Worst,
}

impl<'a> PredictionInputs<'a> {
    /// Facts from a machine and a look-up of headlines by metric id and case.
    pub fn new(machine: &'a Machine, measured: Lookup<'a, Option<MeasuredValue>>) -> Self {
        Self {
            hardware: HardwareFacts { machine, network_path: None },
            measured,
            missing_figure: None,
            references: None,
            bounds: &[],
            sample_end: SampleEnd::Figure,
            used_inputs: RefCell::default(),
            shifted_input: None,
        }
    }

    /// The same facts with the network path to the peer, if there is one.
    pub fn with_path(self, network_path: Option<&'a NetworkPath>) -> Self {
        Self { hardware: HardwareFacts { network_path, ..self.hardware }, ..self }
    }

    /// The same facts with what the run has of metrics without a headline.
    pub fn with_missing(self, missing_figure: Lookup<'a, MissingInput>) -> Self {
        Self { missing_figure: Some(missing_figure), ..self }
    }

    /// The same facts with figures of other machines.
    pub fn with_references(self, references: &'a ReferenceMachines) -> Self {
        Self { references: Some(references), ..self }
    }

    /// The same facts with the most that the hardware carries, which no prediction exceeds.
    pub fn with_bounds(self, bounds: &'a [BoundRecord]) -> Self {
        Self { bounds, ..self }
    }

    /// The machine.
    pub fn machine(&self) -> &'a Machine {
        self.hardware.machine
    }

    /// The machine, and the network path to the peer.
    pub fn hardware(&self) -> HardwareFacts<'a> {
        self.hardware
    }

    /// A measured headline as an input of a prediction, or the figure as found where there is no headline; without
    /// either, the reason for no prediction.
    pub fn measured(&self, metric: &Metric, case: &Case) -> Result<Input, NoPrediction> {
        let name = if case.is_empty() { metric.id.to_string() } else { format!("{} ({case})", metric.id) };
        let input = |name, value, source| Input { name, value, unit: metric.unit, source };
        if let Some(figure) = (self.measured)(metric.id.as_str(), case) {
            let shift = self
                .shifted_input
                .filter(|(shifted_name, _)| *shifted_name == name)
                .map_or(0.0, |(_, end)| end * figure.half_width);
            push_unique(&mut self.used_inputs.borrow_mut().requested, &name);
            return Ok(input(name, figure.value + shift, "measured in this run".into()));
        }
        match self.missing_figure.map(|lookup| lookup(metric.id.as_str(), case)) {
            Some(MissingInput::AsFound(figure)) => {
                push_unique(&mut self.used_inputs.borrow_mut().as_found, &name);
                let source = format!("measured in this run, from all samples: {}", figure.reason);
                Ok(input(name, self.sample_end.value_of(&figure, metric.better), source))
            }
            Some(MissingInput::NoFigure(clause)) => Err(self.missing_input(&name, &clause)),
            None => Err(self.missing_input(&name, "this run did not measure")),
        }
    }

    /// Why there is no prediction without an input.
    fn missing_input(&self, name: &str, clause: &str) -> NoPrediction {
        let reason = NoPrediction::new(format!("it is derived from {name}, which {clause}"));
        push_unique(&mut self.used_inputs.borrow_mut().missing_reasons, &reason.0);
        reason
    }

    /// A prediction by a formula over these facts.
    ///
    /// One with inputs as found states so, and its range is wider: its own spans the formula's ranges with all of them at the
    /// machine's best, at its worst, and everything between; and it is as uncertain as the value at these ends is far from each other.
    ///
    /// # Errors
    /// The formula's reason for no prediction.
    pub(crate) fn predict_by_formula(
        &self,
        formula: impl Fn(&PredictionInputs<'_>) -> Result<Prediction, NoPrediction>,
    ) -> Result<FormulaPrediction, NoPrediction> {
        let predict = |sample_end, shifted_input: Option<(&str, f64)>| {
            let facts = PredictionInputs { sample_end, shifted_input, used_inputs: RefCell::default(), ..*self };
            let prediction = formula(&facts);
            let used_inputs = facts.used_inputs.into_inner();
            let mut own_inputs = self.used_inputs.borrow_mut();
            used_inputs.missing_reasons.iter().for_each(|reason| push_unique(&mut own_inputs.missing_reasons, reason));
            (prediction, used_inputs)
        };
        let (prediction, UsedInputs { as_found, requested, .. }) = predict(SampleEnd::Figure, None);
        let mut prediction = prediction?;
        let interval_uncertainty =
            input_uncertainty(&requested, |shifted_input| predict(SampleEnd::Figure, Some(shifted_input)).0.ok());
        if as_found.is_empty() {
            return Ok(FormulaPrediction { prediction, log_half_range: Some(interval_uncertainty) });
        }
        let ends = [SampleEnd::Best, SampleEnd::Worst].map(|end| predict(end, None).0.ok());
        // Other work disturbs them all alike.
        let values = ends.each_ref().map(|end| end.as_ref().map(|end| end.value).filter(|value| *value > 0.0));
        let sample_uncertainty =
            if let [Some(best), Some(worst)] = values { Some((worst / best).ln() / 2.0) } else { None };
        // An end at which the formula fails bounds nothing.
        for end in ends.into_iter().flatten() {
            prediction.low = prediction.low.min(end.low);
            prediction.high = prediction.high.max(end.high);
        }
        prediction.derivation.push_str(&format!(
            "; as measured, from nearly the best to nearly the worst sample: {}",
            as_found.join(", ")
        ));
        Ok(FormulaPrediction {
            prediction,
            log_half_range: sample_uncertainty.map(|samples| samples.hypot(interval_uncertainty)),
        })
    }

    /// A prediction of a metric at a case: by the formula of its probe over these facts, in the range of other machines, or where it has
    /// none by what the same is on them; never above what the hardware carries.
    ///
    /// # Errors
    /// The formula's reason for no prediction.
    pub(crate) fn predict(&self, metric: &Metric, case: &Case, formula: PredictFn) -> Result<Prediction, NoPrediction> {
        let prediction = self.predict_unbounded(metric, case, formula)?;
        let bound = self.bounds.iter().find(|record| record.metric == metric.id && record.case == *case);
        let Some(bound) = bound.map(|record| &record.bound).filter(|bound| bound.limit < prediction.high) else {
            return Ok(prediction);
        };
        if prediction.value <= bound.limit {
            return Ok(Prediction { high: bound.limit, ..prediction });
        }
        let Prediction { value, low, mut derivation, mut inputs, .. } = prediction;
        derivation.push_str(&format!("; at most {}: {}", value_text(bound.limit, metric.unit), bound.derivation));
        inputs.extend(bound.inputs.iter().cloned());
        let (low, value) = (low * bound.limit / value, bound.limit);
        Ok(Prediction { value, low, high: value, derivation, inputs, ..prediction })
    }

    /// Like `predict`, without the bounds of the hardware.
    fn predict_unbounded(&self, metric: &Metric, case: &Case, formula: PredictFn) -> Result<Prediction, NoPrediction> {
        let measured_value = |metric: &Metric, case: &Case| self.measured(metric, case).ok().map(|input| input.value);
        let from_peers = |references: &ReferenceMachines, reason| {
            references.predict_from_peers((self.machine(), &measured_value), metric, case, reason)
        };
        let first = self.references.filter(|references| references.prefers_proxy(metric, case));
        let proxy_reason = || NoPrediction::new("the figure of other machines predicts it better than its formula");
        match first.map(|references| from_peers(references, proxy_reason())) {
            Some(Ok(prediction)) => return Ok(prediction),
            // Its proxy was not measured: by the formula it would have another prediction than where it was.
            Some(Err(reason)) if reason != proxy_reason() => return Err(reason),
            Some(Err(_)) | None => {}
        }
        match (self.predict_by_formula(|facts| formula(facts, metric, case)), self.references) {
            (Ok(FormulaPrediction { prediction, log_half_range: Some(inputs) }), Some(references)) => {
                Ok(references.calibrate(prediction, metric, case, inputs))
            }
            (Ok(FormulaPrediction { prediction, .. }), _) => Ok(prediction),
            // A run with that input predicts it by the formula.
            (Err(reason), Some(_)) if self.used_inputs.borrow().missing_reasons.contains(&reason.0) => Err(reason),
            (Err(reason), Some(references)) => from_peers(references, reason),
            (Err(reason), None) => Err(reason),
        }
    }
}

/// What a formula gives.
pub(crate) struct FormulaPrediction {
    pub(crate) prediction: Prediction,
    /// Half of the range that follows from the intervals of its inputs, and from the samples of those taken as found, as a natural
    /// logarithm; `None` where the formula fails at the best or the worst of these.
    log_half_range: Option<f64>,
}

/// How uncertain a prediction is by its inputs: each one is moved to either end of its interval, and what that changes adds up as
/// independent errors do.
fn input_uncertainty(inputs: &[String], predict_shifted: impl Fn((&str, f64)) -> Option<Prediction>) -> f64 {
    let value =
        |input, end| predict_shifted((input, end)).map(|prediction| prediction.value).filter(|value| *value > 0.0);
    let changes = inputs.iter().filter_map(|input| Some((value(input, 1.0)? / value(input, -1.0)?).ln() / 2.0));
    let level_ratio =
        normal_quantile(f64::midpoint(1.0, PREDICTION_LEVEL)) / normal_quantile(f64::midpoint(1.0, CONFIDENCE_LEVEL));
    changes.map(|change| change.powi(2)).sum::<f64>().sqrt() * level_ratio
}

fn push_unique(labels: &mut Vec<String>, label: &str) {
    if !labels.iter().any(|existing| existing == label) {
        labels.push(label.to_owned());
    }
}

impl SampleEnd {
    fn value_of(self, figure: &AsFoundValue, better: Better) -> f64 {
        match (self, better) {
            (Self::Figure, _) => figure.value,
            (Self::Best, Better::Higher) | (Self::Worst, Better::Lower | Better::Neither) => figure.high,
            (Self::Worst, Better::Higher) | (Self::Best, Better::Lower | Better::Neither) => figure.low,
        }
    }
}

/// What a bound may be derived from. No measurement is among it, so that none can justify itself.
#[derive(Clone, Copy, Debug)]
pub struct HardwareFacts<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The network path to the peer, if there is one.
    pub network_path: Option<&'a NetworkPath>,
}

/// A metric with a hardware bound: a figure above it is invalid, and never a headline.
///
/// It is stated only where no correct measurement can exceed it.
#[derive(Debug)]
pub struct BoundedMetric {
    /// The metric.
    pub metric: &'static Metric,
    /// Its maximum at a case; `None` if unknown.
    pub maximum: fn(HardwareFacts<'_>, &Case) -> Option<Bound>,
}

/// The known bounds of the planned metrics.
pub fn bound_records(
    bounded_metrics: &[&BoundedMetric],
    plan: &[PlannedMeasurement],
    hardware: HardwareFacts<'_>,
) -> Vec<BoundRecord> {
    let record = |case: &Case, metric: Name| {
        let bound = bounded_metrics.iter().find(|candidate| candidate.metric.id == metric)?;
        Some(BoundRecord { metric, case: case.clone(), bound: (bound.maximum)(hardware, case)? })
    };
    plan.iter()
        .flat_map(|measurement| measurement.metrics.iter().filter_map(move |&metric| record(&measurement.case, metric)))
        .collect()
}
#[cfg(test)]
mod tests {
    use kelvin_core::PredictionBasis;

    use super::*;

    static CALL: Metric = Metric::duration("test.call", "A call");
    static COPY: Metric = Metric::rate("test.copy", "A copy");
    /// A read of 1000 bytes: a call and a copy.
    fn read(facts: &PredictionInputs<'_>) -> Result<Prediction, NoPrediction> {
        let case = Case::new();
        let (call, copy) = (facts.measured(&CALL, &case)?, facts.measured(&COPY, &case)?);
        let value = call.value + 1e12 / copy.value;
        Ok(Prediction {
            value,
            low: value / 2.0,
            high: value * 2.0,
            basis: PredictionBasis::Derived,
            formula: "call + bytes / copy".into(),
            inputs: vec![call, copy],
            derivation: format!("{value} ns"),
            sources: Vec::new(),
            calibration: None,
            formula_name: "call and copy".into(),
            ceiling: None,
        })
    }

    fn predict_read(
        measured: Lookup<'_, Option<f64>>,
        missing_figure: Lookup<'_, MissingInput>,
    ) -> Result<Prediction, NoPrediction> {
        let machine = Machine::default();
        let measured = |id: &str, case: &Case| measured(id, case).map(|value| MeasuredValue { value, half_width: 0.0 });
        PredictionInputs::new(&machine, &measured)
            .with_missing(missing_figure)
            .predict_by_formula(read)
            .map(|formula| formula.prediction)
    }

    fn noisy_input(value: f64, low: f64, high: f64) -> MissingInput {
        MissingInput::AsFound(AsFoundValue { value, low, high, reason: "never undisturbed".into() })
    }

    #[test]
    fn input_as_found_widens_range() {
        let call = |id: &str, _: &Case| (id == "test.copy").then_some(10e9);
        let prediction = predict_read(&call, &|_, _| noisy_input(200.0, 100.0, 500.0)).unwrap();
        // 100 ns of copy, and the call: 300 ns, of 200 to 600 ns, each with a factor of two either way.
        assert_eq!((prediction.value, prediction.low, prediction.high), (300.0, 100.0, 1200.0));
        assert_eq!(prediction.inputs[0].source, "measured in this run, from all samples: never undisturbed");
        assert_eq!(prediction.inputs[0].value, 200.0);
        assert_eq!(prediction.inputs[1].source, "measured in this run");
        assert!(
            prediction
                .derivation
                .starts_with("300 ns; as measured, from nearly the best to nearly the worst sample: test.call"),
            "{prediction:?}"
        );
    }

    #[test]
    fn best_rate_pairs_with_best_duration() {
        let noisy_inputs = |id: &str, _: &Case| {
            if id == "test.call" { noisy_input(200.0, 100.0, 500.0) } else { noisy_input(10e9, 5e9, 20e9) }
        };
        let prediction = predict_read(&|_, _| None, &noisy_inputs).unwrap();
        // Best: 100 ns and 50 ns. Worst: 500 ns and 200 ns.
        assert_eq!((prediction.value, prediction.low, prediction.high), (300.0, 75.0, 1400.0));
        assert!(prediction.derivation.ends_with("sample: test.call, test.copy"), "{prediction:?}");
    }

    #[test]
    fn input_intervals_and_samples_add_uncertainty() {
        let machine = Machine::default();
        let uncertainty = |half_width: f64, missing_input: MissingInput| {
            let copy = |id: &str, _: &Case| (id == "test.copy").then_some(MeasuredValue { value: 10e9, half_width });
            let lookup = |_: &str, _: &Case| missing_input.clone();
            PredictionInputs::new(&machine, &copy)
                .with_missing(&lookup)
                .predict_by_formula(read)
                .unwrap()
                .log_half_range
        };
        // A call of 100 to 500 ns, and a copy of 100 ns.
        let call_uncertainty = 3f64.ln() / 2.0;
        assert!((uncertainty(0.0, noisy_input(200.0, 100.0, 500.0)).unwrap() - call_uncertainty).abs() < 1e-12);
        assert!(uncertainty(1e9, noisy_input(200.0, 100.0, 500.0)).unwrap() > call_uncertainty);
        // At its best no time is left: how far the ends are from each other has no logarithm.
        assert_eq!(uncertainty(0.0, noisy_input(200.0, -100.0, 500.0)), None);
    }

    #[test]
    fn missing_input_is_reported_with_reason() {
        let headlines = |id: &str, _: &Case| Some(if id == "test.call" { 200.0 } else { 10e9 });
        let prediction = predict_read(&headlines, &|_, _| panic!("no input is missing")).unwrap();
        assert_eq!((prediction.low, prediction.high, prediction.derivation.as_str()), (150.0, 600.0, "300 ns"));
        let error = predict_read(&|_, _| None, &|_, _| MissingInput::NoFigure("failed: no memory".into())).unwrap_err();
        assert_eq!(error.0, "it is derived from test.call, which failed: no memory");
        let machine = Machine::default();
        let unmeasured = PredictionInputs::new(&machine, &|_, _| None).predict_by_formula(read).err().unwrap();
        assert_eq!(unmeasured.0, "it is derived from test.call, which this run did not measure");
    }
}
