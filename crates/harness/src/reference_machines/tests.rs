use kelvin_core::{Ceiling, Fact, MeasuredValue};

use kelvin_core::PlannedMeasurement;
use kelvin_stats::normal_quantile;

use super::*;
use crate::facts::PredictionInputs;
use crate::probe::{Effort, Probe, ProbeKind};
use crate::probe_error::ProbeError;

static CALL: Metric = Metric::duration("test.call", "A call");
static TWICE: Metric = Metric::duration("test.twice", "Two calls");
static WORK: Metric = Metric::duration("test.work", "Work of which no formula tells");
static SETTING: Metric = Metric::duration("test.setting", "A setting");

static PROBE: Probe = Probe {
    id: "test",
    summary: "A test",
    kind: ProbeKind::Measure,
    method: "",
    metrics: &[&CALL, &TWICE, &WORK, &SETTING],
    cases: |_: &Machine, _: Effort| Vec::new(),
    run: |_, _| Err(ProbeError::fail("it is never run")),
    predict: |facts, metric, _| match metric.id == TWICE.id {
        false => Err(NoPrediction::new("nothing is published")),
        true => {
            let call = facts.measured(&CALL, &Case::new())?;
            let value = 2.0 * call.value;
            let (formula, derivation) = ("2 x call".into(), "2 x call".into());
            let (basis, inputs, sources) = (PredictionBasis::Derived, vec![call], Vec::new());
            let (low, high) = (value / 4.0, value * 4.0);
            let formula_name = if facts.machine().topology.allowed.get().is_some() { "stated" } else { "calls" };
            let ceiling = (formula_name == "stated").then_some(Ceiling { limit: value, range_end: 1.02 * value });
            Ok(Prediction {
                value,
                low,
                high,
                basis,
                formula,
                inputs,
                derivation,
                sources,
                calibration: None,
                formula_name: formula_name.into(),
                ceiling,
            })
        }
    },
};
const RULES: ReferenceRules<'_> = ReferenceRules {
    proxies: &[proxy(&WORK, Some((&CALL, ProxyCases::At(&[])))), proxy(&SETTING, None)],
    ..ReferenceRules::NONE
};

/// What these machines predict for one of this model, with nothing planned.
fn reference_machines(records: &[ReferenceRecord], rules: &ReferenceRules<'_>, model: u32) -> ReferenceMachines {
    ReferenceMachines::new(&[&PROBE], records, rules, (&machine(model), &[]))
}

const fn proxy(metric: &'static Metric, scales_with: Option<(&'static Metric, ProxyCases)>) -> Proxy {
    Proxy { metric, words: &[], scales_with, is_preferred: false }
}

fn machine(model: u32) -> Machine {
    let mut machine = Machine::default();
    machine.cpu.model = Fact::known(model, "a test");
    machine
}

/// A machine with these figures.
fn reference(model: u32, figures: [(&'static Metric, f64); 4]) -> ReferenceRecord {
    let figures = figures.map(|(metric, value)| ReferenceHeadline {
        metric: metric.id,
        case: Case::new(),
        value,
        half_width: 0.0,
    });
    ReferenceRecord { name: format!("machine {model}"), machine: machine(model), figures: figures.into() }
}

fn predict_metric(
    references: &ReferenceMachines,
    metric: &Metric,
    half_width: f64,
) -> Result<Prediction, NoPrediction> {
    let (target, case) = (machine(9), Case::new());
    let lookup = |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width });
    let facts = PredictionInputs::new(&target, &lookup).with_references(references);
    facts.predict(metric, &case, PROBE.predict)
}

fn one_machine() -> [ReferenceRecord; 1] {
    // Two calls take 1.21 times what the formula predicts, and the work as long as five calls.
    [reference(1, [(&CALL, 100.0), (&TWICE, 242.0), (&WORK, 500.0), (&SETTING, 7.0)])]
}

#[test]
fn formula_is_corrected_by_reference_errors() {
    let references = reference_machines(&one_machine(), &RULES, 9);
    let prediction = predict_metric(&references, &TWICE, 0.0).unwrap();
    // Half of what it was off returns.
    assert!((prediction.value - 400.0 * 1.1).abs() < 1e-9, "{prediction:?}");
    assert!(((prediction.value / prediction.low).ln() - (prediction.high / prediction.value).ln()).abs() < 1e-9);
    let calibration = prediction.calibration.unwrap();
    assert_eq!((calibration.figures, calibration.machines), (1, 1));
    assert!((prediction.high / 400.0 - calibration.high).abs() < 1e-9 && calibration.high < 2.0, "{calibration:?}");
    assert!(prediction.derivation.starts_with("2 x call; on one other machine "), "{prediction:?}");
    let wider = predict_metric(&references, &TWICE, 100.0).unwrap();
    // The input is half as much again or half as much at the ends of its interval: a range at 90 % is 1.645 / 1.96 of one at 95 %.
    let input_uncertainty = (3.0_f64).ln() / 2.0 * 1.644_854 / 1.959_964;
    let expected = (prediction.high / prediction.value).ln().hypot(input_uncertainty);
    assert!(((wider.high / wider.value).ln() - expected).abs() < 1e-5, "{wider:?}");
    assert!((wider.value - prediction.value).abs() < 1e-9);
}

/// Formulas of one text: that of two calls is another one where the machine states its CPUs.
#[test]
fn correction_is_per_formula_and_below_ceiling() {
    let predict_twice = |records: &[ReferenceRecord]| {
        let mut target = machine(9);
        target.topology.allowed = Fact::known(vec![0], "a test");
        let lookup =
            |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width: 0.0 });
        let references = ReferenceMachines::new(&[&PROBE], records, &RULES, (&target, &[]));
        let facts = PredictionInputs::new(&target, &lookup).with_references(&references);
        facts.predict(&TWICE, &Case::new(), PROBE.predict).unwrap()
    };
    let mut records = one_machine();
    let uncorrected = predict_twice(&records);
    assert_eq!(
        (uncorrected.value, uncorrected.calibration),
        (400.0, None),
        "corrected by another formula of the same text"
    );
    records[0].machine.topology.allowed = Fact::known(vec![0], "a test");
    let calibrated_prediction = predict_twice(&records);
    assert!(
        calibrated_prediction.calibration.is_some() && calibrated_prediction.low < 400.0,
        "{calibrated_prediction:?}"
    );
    assert_eq!((calibrated_prediction.value, calibrated_prediction.high), (400.0, 408.0), "{calibrated_prediction:?}");
}

#[test]
fn own_machine_is_excluded_from_references() {
    let records = one_machine();
    let own_kind = reference_machines(&records, &RULES, 1);
    let prediction = predict_metric(&own_kind, &TWICE, 0.0).unwrap();
    assert_eq!(
        (prediction.value, prediction.low, prediction.high, prediction.calibration),
        (400.0, 100.0, 1600.0, None)
    );
    assert_eq!(predict_metric(&own_kind, &WORK, 0.0).unwrap_err().0, "nothing is published");
}

#[test]
fn metric_without_formula_uses_proxy() {
    let references = reference_machines(&one_machine(), &RULES, 9);
    let prediction = predict_metric(&references, &WORK, 0.0).unwrap();
    assert!(
        (prediction.value - 1000.0).abs() < 1e-6,
        "a call takes twice as long here, so does the work: {prediction:?}"
    );
    assert_eq!(
        (prediction.basis, prediction.formula.as_str()),
        (PredictionBasis::ReferenceMachines, "value on other machines x test.call on this machine over theirs")
    );
    assert_eq!(
        prediction.derivation,
        "500 ns on machine 1 x 2.00 by test.call; no formula, since nothing is published"
    );
    assert_eq!(predict_metric(&references, &SETTING, 0.0).unwrap_err().0, "nothing is published");
    // Without its yardstick, as it is there: in a wider range.
    let unscaled = predict_metric(&references, &CALL, 0.0).unwrap();
    assert!((unscaled.value - 100.0).abs() < 1e-9);
    assert!(unscaled.high / unscaled.low > prediction.high / prediction.low);
    // Two that agree predict better than one.
    let [first] = one_machine();
    let second = reference(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0), (&SETTING, 7.0)]);
    let reference_pair = reference_machines(&[first, second], &RULES, 9);
    let narrower = predict_metric(&reference_pair, &WORK, 0.0).unwrap();
    assert!((narrower.value - 1000.0).abs() < 1e-6 && narrower.high / narrower.low < prediction.high / prediction.low);
}

#[test]
fn missing_size_maps_by_position() {
    let size = |bytes| Case::new().with_number("bytes", bytes);
    let figures = [(16, 1.0), (64, 4.0)].map(|(bytes, value)| ReferenceHeadline {
        metric: WORK.id,
        case: size(bytes),
        value,
        half_width: 0.0,
    });
    let other = ReferenceRecord { name: "another".into(), machine: machine(1), figures: figures.into() };
    let measurement = |bytes| PlannedMeasurement {
        probe: Name::new("test"),
        metrics: vec![WORK.id],
        case: size(bytes),
        only_input: false,
    };
    let rules = ReferenceRules { sized_metrics: &[&WORK], ..ReferenceRules::NONE };
    let references_with_plan = |rules: &ReferenceRules<'_>, plan: &[PlannedMeasurement]| {
        ReferenceMachines::new(&[&PROBE], std::slice::from_ref(&other), rules, (&machine(9), plan))
    };
    let (target, no_values) = (machine(9), |_: &str, _: &Case| None);
    let value = |references: &ReferenceMachines, bytes| {
        let facts = PredictionInputs::new(&target, &no_values).with_references(references);
        let prediction = facts.predict(&WORK, &size(bytes), PROBE.predict);
        prediction.ok().map(|prediction| prediction.value.round())
    };
    let unsized_references = references_with_plan(&ReferenceRules::NONE, &[measurement(32), measurement(8)]);
    assert_eq!((value(&unsized_references, 16), value(&unsized_references, 32)), (Some(1.0), None));
    let sized = references_with_plan(&rules, &[measurement(32), measurement(8)]);
    assert_eq!((value(&sized, 8), value(&sized, 32)), (Some(1.0), Some(4.0)));
    let three_sizes = references_with_plan(&rules, &[measurement(32), measurement(8), measurement(1)]);
    assert_eq!(value(&three_sizes, 32), None, "three sizes are in no two places");
    // The machine's own figures stand for those that a default run of today would measure there.
    let sizes = SizedCases(HashMap::from([(WORK.id, vec![size(8), size(32)])]));
    let headlines = HeadlineTable::new(&other, sizes);
    let value = |bytes| headlines.lookup(&WORK.id, &size(bytes)).map(|headline| headline.value);
    assert_eq!([8, 16, 32, 64].map(value), [Some(1.0), Some(1.0), Some(4.0), Some(4.0)]);
    assert_eq!(value(128), None);
}

#[test]
fn part_case_uses_mean_of_reference_parts() {
    let figure = |place: u64, value| ReferenceHeadline {
        metric: WORK.id,
        case: Case::new().with_number("place", place),
        value,
        half_width: 0.0,
    };
    let other = ReferenceRecord {
        name: "another".into(),
        machine: machine(1),
        figures: vec![figure(0, 40.0), figure(1, 90.0)],
    };
    let references_with_rules = |rules: &ReferenceRules<'_>| reference_machines(std::slice::from_ref(&other), rules, 9);
    let (target, no_values, case) = (machine(9), |_: &str, _: &Case| None, Case::new().with_number("place", 7u64));
    let value = |references: &ReferenceMachines| {
        let facts = PredictionInputs::new(&target, &no_values).with_references(references);
        facts.predict(&WORK, &case, PROBE.predict).ok().map(|prediction| prediction.value)
    };
    assert_eq!(value(&references_with_rules(&ReferenceRules::NONE)), None);
    let mean_value =
        value(&references_with_rules(&ReferenceRules { part_metrics: &[&WORK], ..ReferenceRules::NONE })).unwrap();
    assert!((mean_value - 60.0).abs() < 1e-9, "{mean_value}");
}

#[test]
fn preferred_proxy_replaces_formula() {
    let first = Proxy { is_preferred: true, ..proxy(&TWICE, Some((&CALL, ProxyCases::At(&[])))) };
    let yardsticks = [first];
    let rules = ReferenceRules { proxies: &yardsticks, ..ReferenceRules::NONE };
    let prediction = predict_metric(&reference_machines(&one_machine(), &rules, 9), &TWICE, 0.0).unwrap();
    // 242 ns there, and a call takes twice as long here.
    assert!(
        (prediction.value - 484.0).abs() < 1e-9 && prediction.basis == PredictionBasis::ReferenceMachines,
        "{prediction:?}"
    );
    assert!(
        prediction.derivation.ends_with("the figure of other machines predicts it better than its formula"),
        "{prediction:?}"
    );
    // With no other machine there is the formula.
    let formula_prediction = predict_metric(&reference_machines(&one_machine(), &rules, 1), &TWICE, 0.0).unwrap();
    assert_eq!((formula_prediction.value, formula_prediction.basis), (400.0, PredictionBasis::Derived));
}

/// A run that measured all of it, and one that did not: either the same prediction or none.
#[test]
fn unmeasured_proxy_gives_no_prediction() {
    let predict_without_inputs = |rules: &ReferenceRules<'_>, metric: &Metric| {
        let (target, case, references) = (machine(9), Case::new(), reference_machines(&one_machine(), rules, 9));
        let facts = PredictionInputs::new(&target, &|_, _| None).with_references(&references);
        facts.predict(metric, &case, PROBE.predict)
    };
    let scaled_error = predict_without_inputs(&RULES, &WORK).unwrap_err();
    assert_eq!(scaled_error.0, "it is scaled by test.call, which this run did not measure");
    let derived_error = predict_without_inputs(&RULES, &TWICE).unwrap_err();
    assert_eq!(derived_error.0, "it is derived from test.call, which this run did not measure");
    let first = Proxy { is_preferred: true, ..proxy(&TWICE, Some((&CALL, ProxyCases::At(&[])))) };
    let rules = ReferenceRules { proxies: &[first], ..ReferenceRules::NONE };
    assert_eq!(predict_without_inputs(&rules, &TWICE).unwrap_err().0, scaled_error.0);
    // What nothing scales is predicted as it is, in either run.
    assert!(predict_without_inputs(&ReferenceRules::NONE, &WORK).is_ok());
}

#[test]
fn consistent_proxies_narrow_the_range() {
    // The work takes five calls on the first, and this many times that on the second.
    let range = |times: f64| {
        let [first] = one_machine();
        let second = reference(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0 * times), (&SETTING, 7.0)]);
        let prediction = predict_metric(&reference_machines(&[first, second], &RULES, 9), &WORK, 0.0).unwrap();
        prediction.high / prediction.low
    };
    let single = predict_metric(&reference_machines(&one_machine(), &RULES, 9), &WORK, 0.0).unwrap();
    assert!(range(1.0) < range(1.2) && range(1.2) < range(2.0));
    assert!(range(1.0) < single.high / single.low, "a second machine that agrees tells that the yardstick holds");
}

/// Half of a range by how machines lie from their formulas when each is predicted by the others alone.
#[test]
fn range_covers_worst_predicted_machine() {
    let deviations = |times: &[f64]| {
        let machines = times.iter().enumerate().map(|(model, times)| {
            reference(model as u32 + 1, [(&CALL, 100.0), (&TWICE, 200.0 * times), (&WORK, 500.0), (&SETTING, 7.0)])
        });
        reference_machines(&machines.collect::<Vec<_>>(), &RULES, 9).range_deviations
    };
    let normal = normal_quantile(0.95);
    assert_eq!((deviations(&[]), deviations(&[1.2]), deviations(&[1.1, 1.1, 1.1])), (normal, normal, normal));
    // Two that agree do not predict a third that is three times as far from the formula as they are.
    let max_deviation = deviations(&[1.02, 1.02, 1.5]);
    assert!(max_deviation > 2.0 * normal, "{max_deviation}");
}

#[test]
fn all_cpu_metrics_need_equal_cpu_count() {
    let mut records = one_machine();
    let rules = ReferenceRules { takes_all_cpus: |metric, _| metric.id == WORK.id, ..RULES };
    let is_predicted =
        |records: &[ReferenceRecord]| predict_metric(&reference_machines(records, &rules, 9), &WORK, 0.0).is_ok();
    assert!(is_predicted(&records));
    records[0].machine.topology.allowed = Fact::known(vec![0, 1, 2], "a test");
    assert!(!is_predicted(&records));
    assert!(predict_metric(&reference_machines(&records, &RULES, 9), &WORK, 0.0).is_ok());
}

#[test]
fn bimodal_metric_keeps_formula_range() {
    let rules = ReferenceRules { has_modes: |metric, _| metric.id == TWICE.id, ..ReferenceRules::NONE };
    let predict_with_rules = |rules: &ReferenceRules<'_>| {
        predict_metric(&reference_machines(&one_machine(), rules, 9), &TWICE, 0.0).unwrap()
    };
    assert!(
        predict_with_rules(&rules).calibration.is_none()
            && predict_with_rules(&ReferenceRules::NONE).calibration.is_some()
    );
}

#[test]
fn range_stays_within_floor_and_ceiling() {
    static SHARE: Metric = Metric { ceiling: Some(600.0), floor: Some(450.0), ..WORK };
    let references = reference_machines(&one_machine(), &ReferenceRules::NONE, 9);
    let prediction = predict_metric(&references, &SHARE, 0.0).unwrap();
    assert_eq!((prediction.low, prediction.high), (450.0, 600.0));
}
