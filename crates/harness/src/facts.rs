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
    inputs_seen: RefCell<InputsSeen>,
    /// An input that is moved by a part of its half interval.
    shifted_input: Option<(&'a str, f64)>,
}

/// What a formula asked for.
#[derive(Default)]
struct InputsSeen {
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
            inputs_seen: RefCell::default(),
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
            let moved =
                self.shifted_input.filter(|(moved, _)| *moved == name).map_or(0.0, |(_, end)| end * figure.half_width);
            push_unique(&mut self.inputs_seen.borrow_mut().requested, &name);
            return Ok(input(name, figure.value + moved, "measured in this run".into()));
        }
        match self.missing_figure.map(|lacking| lacking(metric.id.as_str(), case)) {
            Some(MissingInput::AsFound(figure)) => {
                push_unique(&mut self.inputs_seen.borrow_mut().as_found, &name);
                let source = format!("measured in this run, as found: {}", figure.reason);
                Ok(input(name, self.sample_end.value_of(&figure, metric.better), source))
            }
            Some(MissingInput::NoFigure(what)) => Err(self.missing_input(&name, &what)),
            None => Err(self.missing_input(&name, "this run did not measure")),
        }
    }

    /// Why there is no prediction without an input.
    fn missing_input(&self, name: &str, what: &str) -> NoPrediction {
        let reason = NoPrediction::new(format!("it is derived from {name}, which {what}"));
        push_unique(&mut self.inputs_seen.borrow_mut().missing_reasons, &reason.0);
        reason
    }

    /// A prediction by a formula over these facts.
    ///
    /// One with inputs as found says so, and its range is wider: its own spans the formula's ranges with all of them at the
    /// machine's best, at its worst, and everything between; and it is as uncertain as the value at these ends is far from each other.
    ///
    /// # Errors
    /// The formula's reason for no prediction.
    pub(crate) fn predict_by_formula(
        &self,
        formula: impl Fn(&PredictionInputs<'_>) -> Result<Prediction, NoPrediction>,
    ) -> Result<FormulaPrediction, NoPrediction> {
        let predict = |sample_end, shifted_input: Option<(&str, f64)>| {
            let facts = PredictionInputs { sample_end, shifted_input, inputs_seen: RefCell::default(), ..*self };
            let prediction = formula(&facts);
            let seen = facts.inputs_seen.into_inner();
            let mut own = self.inputs_seen.borrow_mut();
            seen.missing_reasons.iter().for_each(|reason| push_unique(&mut own.missing_reasons, reason));
            (prediction, seen)
        };
        let (prediction, InputsSeen { as_found, requested, .. }) = predict(SampleEnd::Figure, None);
        let mut prediction = prediction?;
        let by_intervals = input_uncertainty(&requested, |moved| predict(SampleEnd::Figure, Some(moved)).0.ok());
        if as_found.is_empty() {
            return Ok(FormulaPrediction { prediction, log_half_range: Some(by_intervals) });
        }
        let ends = [SampleEnd::Best, SampleEnd::Worst].map(|end| predict(end, None).0.ok());
        // Other work disturbs them all alike.
        let values = ends.each_ref().map(|end| end.as_ref().map(|end| end.value).filter(|value| *value > 0.0));
        let by_samples = if let [Some(best), Some(worst)] = values { Some((worst / best).ln() / 2.0) } else { None };
        // An end at which the formula fails bounds nothing.
        for end in ends.into_iter().flatten() {
            prediction.low = prediction.low.min(end.low);
            prediction.high = prediction.high.max(end.high);
        }
        prediction
            .derivation
            .push_str(&format!("; as found, from nearly the best to nearly the worst sample: {}", as_found.join(", ")));
        Ok(FormulaPrediction { prediction, log_half_range: by_samples.map(|samples| samples.hypot(by_intervals)) })
    }

    /// A prediction of a metric at a case: by the formula of its probe over these facts, in the range that other machines tell, or where it has
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

    /// Like `predict`, whatever the hardware carries.
    fn predict_unbounded(&self, metric: &Metric, case: &Case, formula: PredictFn) -> Result<Prediction, NoPrediction> {
        let measured = |metric: &Metric, case: &Case| self.measured(metric, case).ok().map(|input| input.value);
        let from_peers = |references: &ReferenceMachines, why| {
            references.predict_from_peers((self.machine(), &measured), metric, case, why)
        };
        let first = self.references.filter(|references| references.prefers_proxy(metric, case));
        let without = || NoPrediction::new("the figure of other machines tells more than its formula");
        match first.map(|references| from_peers(references, without())) {
            Some(Ok(prediction)) => return Ok(prediction),
            // Its proxy was not measured: by the formula it would have another prediction than where it was.
            Some(Err(reason)) if reason != without() => return Err(reason),
            Some(Err(_)) | None => {}
        }
        match (self.predict_by_formula(|facts| formula(facts, metric, case)), self.references) {
            (Ok(FormulaPrediction { prediction, log_half_range: Some(inputs) }), Some(references)) => {
                Ok(references.calibrate(prediction, metric, case, inputs))
            }
            (Ok(FormulaPrediction { prediction, .. }), _) => Ok(prediction),
            // A run with that input predicts it by the formula.
            (Err(why), Some(_)) if self.inputs_seen.borrow().missing_reasons.contains(&why.0) => Err(why),
            (Err(why), Some(references)) => from_peers(references, why),
            (Err(why), None) => Err(why),
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

/// How uncertain a prediction is by its inputs: each in turn is moved to either end of its interval, and what that changes adds up as
/// independent errors do.
fn input_uncertainty(inputs: &[String], moved: impl Fn((&str, f64)) -> Option<Prediction>) -> f64 {
    let value = |input, end| moved((input, end)).map(|prediction| prediction.value).filter(|value| *value > 0.0);
    let changes = inputs.iter().filter_map(|input| Some((value(input, 1.0)? / value(input, -1.0)?).ln() / 2.0));
    let of_level =
        normal_quantile(f64::midpoint(1.0, PREDICTION_LEVEL)) / normal_quantile(f64::midpoint(1.0, CONFIDENCE_LEVEL));
    changes.map(|change| change.powi(2)).sum::<f64>().sqrt() * of_level
}

fn push_unique(labels: &mut Vec<String>, label: &str) {
    if !labels.iter().any(|known| known == label) {
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
    bounded: &[&BoundedMetric],
    plan: &[PlannedMeasurement],
    hardware: HardwareFacts<'_>,
) -> Vec<BoundRecord> {
    let record = |case: &Case, metric: Name| {
        let bound = bounded.iter().find(|bounded| bounded.metric.id == metric)?;
        Some(BoundRecord { metric, case: case.clone(), bound: (bound.maximum)(hardware, case)? })
    };
    plan.iter()
        .flat_map(|planned| planned.metrics.iter().filter_map(move |&metric| record(&planned.case, metric)))
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

    fn predicted(
        measured: Lookup<'_, Option<f64>>,
        lacking: Lookup<'_, MissingInput>,
    ) -> Result<Prediction, NoPrediction> {
        let machine = Machine::default();
        let measured = |id: &str, case: &Case| measured(id, case).map(|value| MeasuredValue { value, half_width: 0.0 });
        PredictionInputs::new(&machine, &measured)
            .with_missing(lacking)
            .predict_by_formula(read)
            .map(|formula| formula.prediction)
    }

    fn noisy(value: f64, low: f64, high: f64) -> MissingInput {
        MissingInput::AsFound(AsFoundValue { value, low, high, reason: "never undisturbed".into() })
    }

    #[test]
    fn input_as_found_widens_range() {
        let call = |id: &str, _: &Case| (id == "test.copy").then_some(10e9);
        let found = predicted(&call, &|_, _| noisy(200.0, 100.0, 500.0)).unwrap();
        // 100 ns of copy, and the call: 300 ns, of 200 to 600 ns, each with a factor of two either way.
        assert_eq!((found.value, found.low, found.high), (300.0, 100.0, 1200.0));
        assert_eq!(found.inputs[0].source, "measured in this run, as found: never undisturbed");
        assert_eq!(found.inputs[0].value, 200.0);
        assert_eq!(found.inputs[1].source, "measured in this run");
        assert!(
            found
                .derivation
                .starts_with("300 ns; as found, from nearly the best to nearly the worst sample: test.call"),
            "{found:?}"
        );
    }

    #[test]
    fn best_rate_pairs_with_best_duration() {
        let both =
            |id: &str, _: &Case| if id == "test.call" { noisy(200.0, 100.0, 500.0) } else { noisy(10e9, 5e9, 20e9) };
        let found = predicted(&|_, _| None, &both).unwrap();
        // Best: 100 ns and 50 ns. Worst: 500 ns and 200 ns.
        assert_eq!((found.value, found.low, found.high), (300.0, 75.0, 1400.0));
        assert!(found.derivation.ends_with("sample: test.call, test.copy"), "{found:?}");
    }

    #[test]
    fn input_intervals_and_samples_add_uncertainty() {
        let machine = Machine::default();
        let uncertain = |half_width: f64, found: MissingInput| {
            let copy = |id: &str, _: &Case| (id == "test.copy").then_some(MeasuredValue { value: 10e9, half_width });
            let lacking = |_: &str, _: &Case| found.clone();
            PredictionInputs::new(&machine, &copy)
                .with_missing(&lacking)
                .predict_by_formula(read)
                .unwrap()
                .log_half_range
        };
        // A call of 100 to 500 ns, and a copy of 100 ns.
        let by_call = 3f64.ln() / 2.0;
        assert!((uncertain(0.0, noisy(200.0, 100.0, 500.0)).unwrap() - by_call).abs() < 1e-12);
        assert!(uncertain(1e9, noisy(200.0, 100.0, 500.0)).unwrap() > by_call);
        // At its best no time is left: how far the ends are from each other has no logarithm.
        assert_eq!(uncertain(0.0, noisy(200.0, -100.0, 500.0)), None);
    }

    #[test]
    fn missing_input_is_reported_with_reason() {
        let all = |id: &str, _: &Case| Some(if id == "test.call" { 200.0 } else { 10e9 });
        let found = predicted(&all, &|_, _| panic!("no input is missing")).unwrap();
        assert_eq!((found.low, found.high, found.derivation.as_str()), (150.0, 600.0, "300 ns"));
        let failed = predicted(&|_, _| None, &|_, _| MissingInput::NoFigure("failed: no memory".into())).unwrap_err();
        assert_eq!(failed.0, "it is derived from test.call, which failed: no memory");
        let machine = Machine::default();
        let none = PredictionInputs::new(&machine, &|_, _| None).predict_by_formula(read).err().unwrap();
        assert_eq!(none.0, "it is derived from test.call, which this run did not measure");
    }
}
