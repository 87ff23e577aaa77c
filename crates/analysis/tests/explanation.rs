//! Experiments with causes of known size planted in them: which are named, with which share, and what remains.

use kelvin_analysis::explain;
use kelvin_analysis::wording::explanation::word_explanation;
use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP, MESSAGE, RTT_TCP};
use kelvin_core::catalogue::os::{HandoffMechanism, SWITCH_COST};
use kelvin_core::{
    AmountFormula, Arm, Case, CauseTrial, CauseVerdict, CountedOperations, Experiment, Explanation, Measurement,
    MechanismTrial, Metric, MetricCase, MetricReadings, Name, OverheadReading, PartKind, PlannedMeasurement,
    Prediction, PredictionBasis, PredictionRecord, Readings, Round, RoundOutcome, SkipReason,
};
use kelvin_stats::Random;
use kelvin_testing::recorded_counters;

const PASSES: usize = 14;

/// An experiment on one metric, whose rounds scatter by a percent of their value.
struct PlantedExperiment {
    experiment: Experiment,
    random: Random,
}

fn case_of(metric: &Metric) -> Case {
    if metric.id == SWITCH_COST.id {
        return HandoffMechanism::Pipe.between_processes();
    }
    Case::new().with_word(PairPlacement::TwoCpus).with_number(MESSAGE, 64)
}

impl PlantedExperiment {
    fn new(metric: &Metric, figure: f64) -> Self {
        let experiment = Experiment {
            probe: metric.id,
            metric: *metric,
            case: case_of(metric),
            is_virtual: true,
            causes: Vec::new(),
            arms: Vec::new(),
            predicted: None,
            predicted_without: None,
            seconds: 1.0,
        };
        Self { experiment, random: Random::new(7) }.with_rounds(&[], metric, figure)
    }

    /// Rounds of a metric under controls.
    fn with_rounds(mut self, controls: &[&'static str], metric: &Metric, value: f64) -> Self {
        let rounds = (0..PASSES).map(|index| Round {
            index: index as u32,
            start_seconds: 0.0,
            seconds: 0.01,
            timing: None,
            cpu: 0,
            outcome: RoundOutcome::Measured(vec![MetricReadings {
                metric: metric.id,
                readings: Readings::Scalars(vec![value * (1.0 + 0.01 * self.random.normal())]),
                overhead: OverheadReading::default(),
                notes: Vec::new(),
                counted: None,
            }]),
        });
        let planned =
            PlannedMeasurement { probe: metric.id, metrics: vec![metric.id], case: case_of(metric), only_input: false };
        let measurement = Measurement { planned, rounds: rounds.collect(), skipped: None };
        self.experiment.arms.push(Arm { controls: controls.iter().map(|id| Name::new(id)).collect(), measurement });
        self
    }

    /// A cause with a control for each of these ids, under which what it cannot touch takes so long.
    fn with_cause(mut self, id: &'static str, controls: &[&'static str], bystander: f64) -> Self {
        let mechanism = |control: &&'static str| MechanismTrial {
            description: Name::new(control),
            amount: AmountFormula::Without(Name::new(control)),
            refused: None,
            idle_in_guest: None,
            is_substitute: false,
        };
        self.experiment.causes.push(CauseTrial {
            id: Name::new(id),
            summary: Name::new(id),
            remedy: Name::new("nothing"),
            mechanisms: controls.iter().map(mechanism).collect(),
            negative_control: Some(MetricCase { metric: SWITCH_COST.id, case: case_of(&SWITCH_COST) }),
            size: None,
        });
        let mut planted = self.with_rounds(&[], &SWITCH_COST, 2000.0);
        for control in controls {
            planted = planted.with_rounds(&[control], &SWITCH_COST, bystander);
        }
        planted
    }

    fn last_mechanism(&mut self) -> &mut MechanismTrial {
        self.experiment.causes.last_mut().unwrap().mechanisms.last_mut().unwrap()
    }

    fn explain(&self) -> Explanation {
        let explanation = explain(&self.experiment).unwrap();
        let parts: f64 = explanation.parts.iter().map(|part| part.share.amount.value).sum();
        let sum = parts + explanation.not_explained.amount.value;
        assert!((sum / explanation.whole.value - 1.0).abs() < 1e-9, "{sum} is not {:?}", explanation.whole);
        explanation
    }
}

fn verdict<'e>(explanation: &'e Explanation, id: &str) -> &'e CauseVerdict {
    &explanation.causes.iter().find(|cause| cause.id == *id).unwrap().verdict
}

/// The share of a cause in percent, if it is a part of the sum.
fn share(explanation: &Explanation, id: &str) -> Option<f64> {
    let part = explanation.parts.iter().find(|part| part.kind == PartKind::Cause(Name::intern(id)))?;
    Some(100.0 * part.share.share.value)
}

#[test]
fn planted_cause_has_its_share() {
    let planted = PlantedExperiment::new(&RTT_TCP, 60_000.0)
        .with_cause("waking", &["awake"], 2000.0)
        .with_rounds(&["awake"], &RTT_TCP, 6000.0)
        .with_cause("weather", &["umbrella"], 2000.0)
        .with_rounds(&["umbrella"], &RTT_TCP, 60_000.0);
    let explanation = planted.explain();
    assert_eq!(verdict(&explanation, "waking"), &CauseVerdict::Shown);
    assert!((share(&explanation, "waking").unwrap() - 90.0).abs() < 2.0);
    assert_eq!(verdict(&explanation, "weather"), &CauseVerdict::RuledOut);
    assert!(explanation.is_explained && explanation.not_explained.share.high < 0.05, "{explanation:?}");
    let words = word_explanation(&explanation);
    assert_eq!(words.unit, "µs");
    assert!(
        words.notes.iter().any(|(label, text)| *label == "ruled out" && text.starts_with("weather (")),
        "{words:?}"
    );
}

#[test]
fn smaller_mechanism_amount_counts() {
    let planted = PlantedExperiment::new(&RTT_TCP, 60_000.0)
        .with_cause("waking", &["spin", "poll"], 2000.0)
        .with_rounds(&["spin"], &RTT_TCP, 30_000.0)
        .with_rounds(&["poll"], &RTT_TCP, 12_000.0);
    let explanation = planted.explain();
    assert!((share(&explanation, "waking").unwrap() - 50.0).abs() < 2.0);
    // What only the stronger one takes away is not explained.
    assert!((explanation.not_explained.share.value - 0.3).abs() < 0.02 && !explanation.is_explained);
}

#[test]
fn empty_mechanism_contradicts_unless_idle_in_guest() {
    let planted = |idle: Option<&'static str>| {
        let mut planted = PlantedExperiment::new(&RTT_TCP, 60_000.0)
            .with_cause("waking", &["spin", "poll"], 2000.0)
            .with_rounds(&["spin"], &RTT_TCP, 6000.0)
            .with_rounds(&["poll"], &RTT_TCP, 60_000.0)
            .with_rounds(&["short"], &RTT_TCP, 8000.0)
            .with_rounds(&["long"], &RTT_TCP, 60_000.0);
        planted.last_mechanism().idle_in_guest = idle.map(Name::new);
        let sweep = MechanismTrial {
            description: Name::new("sweep"),
            amount: AmountFormula::Sweep([Name::new("short"), Name::new("long")]),
            refused: None,
            idle_in_guest: None,
            is_substitute: true,
        };
        planted.experiment.causes[0].mechanisms.push(sweep);
        planted
    };
    assert_eq!(verdict(&planted(None).explain(), "waking"), &CauseVerdict::MechanismsDisagree);
    let in_guest = planted(Some("the host halts it")).explain();
    assert_eq!(verdict(&in_guest, "waking"), &CauseVerdict::Shown);
    // Taking the guest's own part away changes nothing: all that the sweep shows is the host's.
    let host_percent =
        |explanation: &Explanation| explanation.causes[0].host_share.map(|share| 100.0 * share.share.value);
    assert!((host_percent(&in_guest).unwrap() - 86.7).abs() < 2.0);
    assert_eq!(host_percent(&planted(None).explain()), None);
    let text = word_explanation(&in_guest);
    let host = text.rows.iter().position(|row| row.is_within).unwrap();
    assert_eq!((text.rows[host].label.as_str(), text.rows[host - 1].label.as_str()), ("of that the host", "waking"));
    // The sweep shows less than the spinner.
    assert!((share(&in_guest, "waking").unwrap() - 86.7).abs() < 2.0);
    let mut single = planted(Some("the host halts it"));
    single.last_mechanism().refused = Some(SkipReason::new("not here"));
    assert_eq!(verdict(&single.explain(), "waking"), &CauseVerdict::OneMechanism);
    let mut bare_metal = planted(Some("the host halts it"));
    bare_metal.experiment.is_virtual = false;
    assert_eq!(verdict(&bare_metal.explain(), "waking"), &CauseVerdict::MechanismsDisagree);
}

#[test]
fn control_moving_negative_control_is_void() {
    let explanation_with = |bystander| {
        let planted = PlantedExperiment::new(&RTT_TCP, 60_000.0).with_cause("waking", &["awake"], bystander);
        planted.with_rounds(&["awake"], &RTT_TCP, 6000.0).explain()
    };
    assert_eq!(verdict(&explanation_with(12_000.0), "waking"), &CauseVerdict::Invalid);
    assert_eq!(share(&explanation_with(12_000.0), "waking"), None);
    // By less than matters to a figure of 60 us.
    assert_eq!(verdict(&explanation_with(3000.0), "waking"), &CauseVerdict::Shown);
}

#[test]
fn rates_are_explained_by_times() {
    // 3.2 GB/s without a cause and 0.8 GB/s with it: three quarters of the time.
    let planted = PlantedExperiment::new(&BANDWIDTH_TCP, 0.8e9)
        .with_cause("pacing", &["cubic"], 2000.0)
        .with_rounds(&["cubic"], &BANDWIDTH_TCP, 3.2e9)
        .with_cause("weather", &["umbrella"], 2000.0)
        .with_rounds(&["umbrella"], &BANDWIDTH_TCP, 0.4e9);
    let explanation = planted.explain();
    assert!((share(&explanation, "pacing").unwrap() - 75.0).abs() < 2.0);
    assert_eq!(verdict(&explanation, "weather"), &CauseVerdict::Opposite);
    assert_eq!(word_explanation(&explanation).unit, "ms/MB");
}

#[test]
fn excess_without_cause_is_unexplained() {
    let predicted = |value: f64| PredictionRecord {
        metric: RTT_TCP.id,
        case: case_of(&RTT_TCP),
        prediction: Some(Prediction {
            value,
            low: 0.8 * value,
            high: 1.2 * value,
            basis: PredictionBasis::Derived,
            formula: "a formula".into(),
            inputs: Vec::new(),
            derivation: "derived".into(),
            sources: Vec::new(),
            calibration: None,
            formula_name: "a test".into(),
            ceiling: None,
        }),
        missing_reason: None,
    };
    let mut planted = PlantedExperiment::new(&RTT_TCP, 60_000.0);
    planted.experiment.predicted = Some(predicted(20_000.0));
    let explanation = planted.explain();
    assert_eq!(explanation.parts[0].kind, PartKind::Expected);
    assert!(!explanation.is_explained && (explanation.not_explained.share.value - 2.0 / 3.0).abs() < 0.02);
    planted.experiment.predicted = Some(predicted(55_000.0));
    assert!(planted.explain().is_explained);
    // With a cause, what is left of it is judged by the prediction without it.
    let mut planted = PlantedExperiment::new(&RTT_TCP, 60_000.0).with_cause("waking", &["awake"], 2000.0);
    planted = planted.with_rounds(&["awake"], &RTT_TCP, 30_000.0);
    planted.experiment.predicted = Some(predicted(55_000.0));
    planted.experiment.predicted_without = Some(predicted(10_000.0));
    let explanation = planted.explain();
    assert!((share(&explanation, "waking").unwrap() - 50.0).abs() < 2.0);
    assert!((explanation.not_explained.share.value - 1.0 / 3.0).abs() < 0.02, "{:?}", explanation.not_explained);
}

#[test]
fn fewer_than_four_rounds_give_none() {
    let mut planted = PlantedExperiment::new(&RTT_TCP, 60_000.0);
    planted.experiment.arms[0].measurement.rounds.truncate(3);
    assert!(explain(&planted.experiment).is_none());
}

#[test]
fn interval_of_scattered_rounds_ends_at_zero() {
    let mut planted = PlantedExperiment::new(&RTT_TCP, 50_000.0);
    for (index, round) in planted.experiment.arms[0].measurement.rounds.iter_mut().enumerate() {
        let RoundOutcome::Measured(readings) = &mut round.outcome else { panic!("a round that measured nothing") };
        readings[0].readings = Readings::Scalars(vec![[900_000.0, 40_000.0, 50_000.0][index % 3]]);
    }
    let explanation = planted.explain();
    assert_eq!((explanation.whole.low, explanation.figure.low), (0.0, 0.0));
}

#[test]
fn counted_events_of_an_operation_are_said() {
    let mut planted = PlantedExperiment::new(&RTT_TCP, 60_000.0);
    let counted: CountedOperations = serde_json::from_str(recorded_counters::COUNTED_OPERATIONS).unwrap();
    // A round without counters, and one that counted four times as much.
    let of_more = CountedOperations { operations: counted.operations / 4, ..counted.clone() };
    let by_round = [Some(of_more), Some(counted.clone()), None, Some(counted)];
    for (round, counted) in planted.experiment.arms[0].measurement.rounds.iter_mut().zip(by_round) {
        let RoundOutcome::Measured(readings) = &mut round.outcome else { panic!("a round that failed") };
        readings[0].counted = counted;
    }
    let explanation = planted.explain();
    let rates: Vec<f64> = explanation.counters.iter().map(|rate| rate.per_operation).collect();
    assert_eq!(rates, [12.5, 50.0, 0.98, 0.0125, 0.25]);
    let words = word_explanation(&explanation);
    let said = words.notes.iter().find(|(label, _)| *label == "counted").map(|(_, text)| text.as_str());
    let events = recorded_counters::EVENTS_OF_AN_OPERATION;
    assert_eq!(said, Some(format!("by the processor, for each operation {events}").as_str()));
}
