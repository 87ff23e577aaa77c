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

/// What these machines tell of one of this model, with nothing planned.
fn reference_machines(others: &[ReferenceRecord], rules: &ReferenceRules<'_>, model: u32) -> ReferenceMachines {
    ReferenceMachines::new(&[&PROBE], others, rules, (&machine(model), &[]))
}

const fn proxy(metric: &'static Metric, by: Option<(&'static Metric, ProxyCases)>) -> Proxy {
    Proxy { metric, words: &[], scales_with: by, is_preferred: false }
}

fn machine(model: u32) -> Machine {
    let mut machine = Machine::default();
    machine.cpu.model = Fact::known(model, "a test");
    machine
}

/// A machine on which a call takes this long, two calls and the work as long as said.
fn reference(model: u32, figures: [(&'static Metric, f64); 4]) -> ReferenceRecord {
    let figures = figures.map(|(metric, value)| ReferenceHeadline {
        metric: metric.id,
        case: Case::new(),
        value,
        half_width: 0.0,
    });
    ReferenceRecord { name: format!("machine {model}"), machine: machine(model), figures: figures.into() }
}

fn predicted(elsewhere: &ReferenceMachines, metric: &Metric, half_width: f64) -> Result<Prediction, NoPrediction> {
    let (here, case) = (machine(9), Case::new());
    let measured = |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width });
    let facts = PredictionInputs::new(&here, &measured).with_references(elsewhere);
    facts.predict(metric, &case, PROBE.predict)
}

fn one_machine() -> [ReferenceRecord; 1] {
    // Two calls take 1.21 times what the formula says, and the work as long as five calls.
    [reference(1, [(&CALL, 100.0), (&TWICE, 242.0), (&WORK, 500.0), (&SETTING, 7.0)])]
}

#[test]
fn formula_is_corrected_by_reference_errors() {
    let elsewhere = reference_machines(&one_machine(), &RULES, 9);
    let found = predicted(&elsewhere, &TWICE, 0.0).unwrap();
    // Half of what it was off returns.
    assert!((found.value - 400.0 * 1.1).abs() < 1e-9, "{found:?}");
    assert!(((found.value / found.low).ln() - (found.high / found.value).ln()).abs() < 1e-9);
    let calibration = found.calibration.unwrap();
    assert_eq!((calibration.figures, calibration.machines), (1, 1));
    assert!((found.high / 400.0 - calibration.high).abs() < 1e-9 && calibration.high < 2.0, "{calibration:?}");
    assert!(found.derivation.starts_with("2 x call; on one other machine "), "{found:?}");
    let wider = predicted(&elsewhere, &TWICE, 100.0).unwrap();
    // The input is half as much again or half as much at the ends of its interval: a range at 90 % is 1.645 / 1.96 of one at 95 %.
    let of_input = (3.0_f64).ln() / 2.0 * 1.644_854 / 1.959_964;
    let expected = (found.high / found.value).ln().hypot(of_input);
    assert!(((wider.high / wider.value).ln() - expected).abs() < 1e-5, "{wider:?}");
    assert!((wider.value - found.value).abs() < 1e-9);
}

/// Formulas of one text: that of two calls is another one where the machine states its CPUs.
#[test]
fn correction_is_per_formula_and_below_ceiling() {
    let predicted = |others: &[ReferenceRecord]| {
        let mut here = machine(9);
        here.topology.allowed = Fact::known(vec![0], "a test");
        let measured =
            |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width: 0.0 });
        let elsewhere = ReferenceMachines::new(&[&PROBE], others, &RULES, (&here, &[]));
        let facts = PredictionInputs::new(&here, &measured).with_references(&elsewhere);
        facts.predict(&TWICE, &Case::new(), PROBE.predict).unwrap()
    };
    let mut others = one_machine();
    let apart = predicted(&others);
    assert_eq!((apart.value, apart.calibration), (400.0, None), "corrected by another formula of the same text");
    others[0].machine.topology.allowed = Fact::known(vec![0], "a test");
    let corrected = predicted(&others);
    assert!(corrected.calibration.is_some() && corrected.low < 400.0, "{corrected:?}");
    assert_eq!((corrected.value, corrected.high), (400.0, 408.0), "{corrected:?}");
}

#[test]
fn own_machine_is_excluded_from_references() {
    let others = one_machine();
    let own_kind = reference_machines(&others, &RULES, 1);
    let found = predicted(&own_kind, &TWICE, 0.0).unwrap();
    assert_eq!((found.value, found.low, found.high, found.calibration), (400.0, 100.0, 1600.0, None));
    assert_eq!(predicted(&own_kind, &WORK, 0.0).unwrap_err().0, "nothing is published");
}

#[test]
fn metric_without_formula_uses_proxy() {
    let known = reference_machines(&one_machine(), &RULES, 9);
    let found = predicted(&known, &WORK, 0.0).unwrap();
    assert!((found.value - 1000.0).abs() < 1e-6, "a call takes twice as long here, so does the work: {found:?}");
    assert_eq!(
        (found.basis, found.formula.as_str()),
        (PredictionBasis::ReferenceMachines, "value on other machines x test.call on this machine over theirs")
    );
    assert_eq!(found.derivation, "500 ns on machine 1 x 2.00 by test.call; no formula, since nothing is published");
    assert_eq!(predicted(&known, &SETTING, 0.0).unwrap_err().0, "nothing is published");
    // Without its yardstick, as it is there: in a wider range.
    let as_it_is = predicted(&known, &CALL, 0.0).unwrap();
    assert!((as_it_is.value - 100.0).abs() < 1e-9);
    assert!(as_it_is.high / as_it_is.low > found.high / found.low);
    // Two that agree tell more than one.
    let [first] = one_machine();
    let second = reference(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0), (&SETTING, 7.0)]);
    let both = reference_machines(&[first, second], &RULES, 9);
    let narrower = predicted(&both, &WORK, 0.0).unwrap();
    assert!((narrower.value - 1000.0).abs() < 1e-6 && narrower.high / narrower.low < found.high / found.low);
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
    let planned = |bytes| PlannedMeasurement {
        probe: Name::new("test"),
        metrics: vec![WORK.id],
        case: size(bytes),
        only_input: false,
    };
    let rules = ReferenceRules { sized_metrics: &[&WORK], ..ReferenceRules::NONE };
    let of = |rules: &ReferenceRules<'_>, plan: &[PlannedMeasurement]| {
        ReferenceMachines::new(&[&PROBE], std::slice::from_ref(&other), rules, (&machine(9), plan))
    };
    let (here, nothing) = (machine(9), |_: &str, _: &Case| None);
    let value = |elsewhere: &ReferenceMachines, bytes| {
        let facts = PredictionInputs::new(&here, &nothing).with_references(elsewhere);
        let found = facts.predict(&WORK, &size(bytes), PROBE.predict);
        found.ok().map(|found| found.value.round())
    };
    let of_any = of(&ReferenceRules::NONE, &[planned(32), planned(8)]);
    assert_eq!((value(&of_any, 16), value(&of_any, 32)), (Some(1.0), None));
    let sized = of(&rules, &[planned(32), planned(8)]);
    assert_eq!((value(&sized, 8), value(&sized, 32)), (Some(1.0), Some(4.0)));
    let of_more_sizes = of(&rules, &[planned(32), planned(8), planned(1)]);
    assert_eq!(value(&of_more_sizes, 32), None, "three sizes are in no two places");
    // The machine's own figures stand for those that a default run of today would measure there.
    let sizes = SizedCases(HashMap::from([(WORK.id, vec![size(8), size(32)])]));
    let headlines = HeadlineTable::new(&other, sizes);
    let value = |bytes| headlines.lookup(&WORK.id, &size(bytes)).map(|found| found.value);
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
    let of = |rules: &ReferenceRules<'_>| reference_machines(std::slice::from_ref(&other), rules, 9);
    let (here, nothing, case) = (machine(9), |_: &str, _: &Case| None, Case::new().with_number("place", 7u64));
    let value = |elsewhere: &ReferenceMachines| {
        let facts = PredictionInputs::new(&here, &nothing).with_references(elsewhere);
        facts.predict(&WORK, &case, PROBE.predict).ok().map(|found| found.value)
    };
    assert_eq!(value(&of(&ReferenceRules::NONE)), None);
    let found = value(&of(&ReferenceRules { part_metrics: &[&WORK], ..ReferenceRules::NONE })).unwrap();
    assert!((found - 60.0).abs() < 1e-9, "{found}");
}

#[test]
fn preferred_proxy_replaces_formula() {
    let first = Proxy { is_preferred: true, ..proxy(&TWICE, Some((&CALL, ProxyCases::At(&[])))) };
    let yardsticks = [first];
    let rules = ReferenceRules { proxies: &yardsticks, ..ReferenceRules::NONE };
    let found = predicted(&reference_machines(&one_machine(), &rules, 9), &TWICE, 0.0).unwrap();
    // 242 ns there, and a call takes twice as long here.
    assert!((found.value - 484.0).abs() < 1e-9 && found.basis == PredictionBasis::ReferenceMachines, "{found:?}");
    assert!(found.derivation.ends_with("the figure of other machines tells more than its formula"), "{found:?}");
    // With no other machine there is the formula.
    let alone = predicted(&reference_machines(&one_machine(), &rules, 1), &TWICE, 0.0).unwrap();
    assert_eq!((alone.value, alone.basis), (400.0, PredictionBasis::Derived));
}

/// A run that measured all of it, and one that did not: either the same prediction or none.
#[test]
fn unmeasured_proxy_gives_no_prediction() {
    let predicted = |rules: &ReferenceRules<'_>, metric: &Metric| {
        let (here, case, elsewhere) = (machine(9), Case::new(), reference_machines(&one_machine(), rules, 9));
        let facts = PredictionInputs::new(&here, &|_, _| None).with_references(&elsewhere);
        facts.predict(metric, &case, PROBE.predict)
    };
    let scaled = predicted(&RULES, &WORK).unwrap_err();
    assert_eq!(scaled.0, "it is scaled by test.call, which this run did not measure");
    let derived = predicted(&RULES, &TWICE).unwrap_err();
    assert_eq!(derived.0, "it is derived from test.call, which this run did not measure");
    let first = Proxy { is_preferred: true, ..proxy(&TWICE, Some((&CALL, ProxyCases::At(&[])))) };
    let rules = ReferenceRules { proxies: &[first], ..ReferenceRules::NONE };
    assert_eq!(predicted(&rules, &TWICE).unwrap_err().0, scaled.0);
    // What nothing scales is told as it is, in either run.
    assert!(predicted(&ReferenceRules::NONE, &WORK).is_ok());
}

#[test]
fn consistent_proxies_narrow_the_range() {
    // The work takes five calls on the first, and this many times that on the second.
    let range = |times: f64| {
        let [first] = one_machine();
        let second = reference(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0 * times), (&SETTING, 7.0)]);
        let found = predicted(&reference_machines(&[first, second], &RULES, 9), &WORK, 0.0).unwrap();
        found.high / found.low
    };
    let one = predicted(&reference_machines(&one_machine(), &RULES, 9), &WORK, 0.0).unwrap();
    assert!(range(1.0) < range(1.2) && range(1.2) < range(2.0));
    assert!(range(1.0) < one.high / one.low, "a second machine that agrees tells that the yardstick holds");
}

/// Half of a range by how machines lie from their formulas when each is told by the others alone.
#[test]
fn range_covers_worst_predicted_machine() {
    let of = |times: &[f64]| {
        let machines = times.iter().enumerate().map(|(model, times)| {
            reference(model as u32 + 1, [(&CALL, 100.0), (&TWICE, 200.0 * times), (&WORK, 500.0), (&SETTING, 7.0)])
        });
        reference_machines(&machines.collect::<Vec<_>>(), &RULES, 9).range_deviations
    };
    let normal = normal_quantile(0.95);
    assert_eq!((of(&[]), of(&[1.2]), of(&[1.1, 1.1, 1.1])), (normal, normal, normal));
    // Two that agree tell nothing of a third that is three times as far from the formula as they are.
    let worst = of(&[1.02, 1.02, 1.5]);
    assert!(worst > 2.0 * normal, "{worst}");
}

#[test]
fn all_cpu_metrics_need_equal_cpu_count() {
    let mut others = one_machine();
    let rules = ReferenceRules { takes_all_cpus: |metric, _| metric.id == WORK.id, ..RULES };
    let is_told = |others: &[ReferenceRecord]| predicted(&reference_machines(others, &rules, 9), &WORK, 0.0).is_ok();
    assert!(is_told(&others));
    others[0].machine.topology.allowed = Fact::known(vec![0, 1, 2], "a test");
    assert!(!is_told(&others));
    assert!(predicted(&reference_machines(&others, &RULES, 9), &WORK, 0.0).is_ok());
}

#[test]
fn bimodal_metric_keeps_formula_range() {
    let rules = ReferenceRules { has_modes: |metric, _| metric.id == TWICE.id, ..ReferenceRules::NONE };
    let of =
        |rules: &ReferenceRules<'_>| predicted(&reference_machines(&one_machine(), rules, 9), &TWICE, 0.0).unwrap();
    assert!(of(&rules).calibration.is_none() && of(&ReferenceRules::NONE).calibration.is_some());
}

#[test]
fn range_stays_within_floor_and_ceiling() {
    static SHARE: Metric = Metric { ceiling: Some(600.0), floor: Some(450.0), ..WORK };
    let elsewhere = reference_machines(&one_machine(), &ReferenceRules::NONE, 9);
    let found = predicted(&elsewhere, &SHARE, 0.0).unwrap();
    assert_eq!((found.low, found.high), (450.0, 600.0));
}
