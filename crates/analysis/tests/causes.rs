//! Experiments with causes of known size planted in them: which are named, with which share, and what remains.

use kelvin_analysis::explain;
use kelvin_analysis::words::why::worded;
use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{BANDWIDTH_TCP, MESSAGE, RTT_TCP};
use kelvin_catalogue::os::SWITCH_PROCESS_PIPE;
use kelvin_model::{
    AmountBy, Arm, Attempt, Basis, Case, CauseVerdict, Experiment, Explanation, Measurement, Metric, MetricAt, Name,
    OverheadReading, PartOf, Planned, Prediction, PredictionRecord, Reading, Readings, Reason, Round, TriedCause,
    TriedMechanism,
};
use kelvin_stats::Random;

const PASSES: usize = 14;

/// An experiment on one metric, whose rounds scatter by a percent of their value.
struct Planted {
    experiment: Experiment,
    random: Random,
}

fn at(metric: &Metric) -> Case {
    if metric.id == SWITCH_PROCESS_PIPE.id {
        return Case::new();
    }
    Case::new().at(Placement::TwoCpus).with(MESSAGE, 64)
}

impl Planted {
    fn on(metric: &Metric, figure: f64) -> Self {
        let experiment = Experiment {
            probe: metric.id,
            metric: *metric,
            case: at(metric),
            is_virtual: true,
            causes: Vec::new(),
            arms: Vec::new(),
            predicted: None,
            predicted_without: None,
            seconds: 1.0,
        };
        Self { experiment, random: Random::new(7) }.measured(&[], metric, figure)
    }

    /// Rounds of a metric under controls.
    fn measured(mut self, under: &[&'static str], metric: &Metric, value: f64) -> Self {
        let rounds = (0..PASSES).map(|index| Round {
            index: index as u32,
            at: 0.0,
            seconds: 0.01,
            timing: None,
            cpu: 0,
            attempt: Attempt::Measured(vec![Reading {
                metric: metric.id,
                readings: Readings::Scalars(vec![value * (1.0 + 0.01 * self.random.normal())]),
                overhead: OverheadReading::default(),
                notes: Vec::new(),
            }]),
        });
        let planned = Planned { probe: metric.id, metrics: vec![metric.id], case: at(metric), only_input: false };
        let measurement = Measurement { planned, rounds: rounds.collect(), skipped: None };
        self.experiment.arms.push(Arm { under: under.iter().map(|id| Name::new(id)).collect(), measurement });
        self
    }

    /// A cause with a control for each of these ids, under which what it cannot touch takes so long.
    fn cause(mut self, id: &'static str, controls: &[&'static str], bystander: f64) -> Self {
        let mechanism = |control: &&'static str| TriedMechanism {
            how: Name::new(control),
            amount: AmountBy::Without(Name::new(control)),
            refused: None,
            idle_in_guest: None,
            is_substitute: false,
        };
        self.experiment.causes.push(TriedCause {
            id: Name::new(id),
            what: Name::new(id),
            helps: Name::new("nothing"),
            mechanisms: controls.iter().map(mechanism).collect(),
            bystander: Some(MetricAt { metric: SWITCH_PROCESS_PIPE.id, case: Case::new() }),
            size: None,
        });
        let mut planted = self.measured(&[], &SWITCH_PROCESS_PIPE, 2000.0);
        for control in controls {
            planted = planted.measured(&[control], &SWITCH_PROCESS_PIPE, bystander);
        }
        planted
    }

    fn last(&mut self) -> &mut TriedMechanism {
        self.experiment.causes.last_mut().unwrap().mechanisms.last_mut().unwrap()
    }

    fn explained(&self) -> Explanation {
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
    let part = explanation.parts.iter().find(|part| part.of == PartOf::Cause(Name::intern(id)))?;
    Some(100.0 * part.share.share.value)
}

#[test]
fn a_cause_has_its_share_and_another_has_none() {
    let planted = Planted::on(&RTT_TCP, 60_000.0)
        .cause("waking", &["awake"], 2000.0)
        .measured(&["awake"], &RTT_TCP, 6000.0)
        .cause("weather", &["umbrella"], 2000.0)
        .measured(&["umbrella"], &RTT_TCP, 60_000.0);
    let explanation = planted.explained();
    assert_eq!(verdict(&explanation, "waking"), &CauseVerdict::Shown);
    assert!((share(&explanation, "waking").unwrap() - 90.0).abs() < 2.0);
    assert_eq!(verdict(&explanation, "weather"), &CauseVerdict::RuledOut);
    assert!(explanation.is_explained && explanation.not_explained.share.high < 0.05, "{explanation:?}");
    let words = worded(&explanation);
    assert_eq!(words.unit, "µs");
    assert!(
        words.notes.iter().any(|(label, text)| *label == "ruled out" && text.starts_with("weather (")),
        "{words:?}"
    );
}

#[test]
fn as_much_counts_as_both_mechanisms_show() {
    let planted = Planted::on(&RTT_TCP, 60_000.0)
        .cause("waking", &["spin", "poll"], 2000.0)
        .measured(&["spin"], &RTT_TCP, 30_000.0)
        .measured(&["poll"], &RTT_TCP, 12_000.0);
    let explanation = planted.explained();
    assert!((share(&explanation, "waking").unwrap() - 50.0).abs() < 2.0);
    // What only the stronger one takes away is not explained.
    assert!((explanation.not_explained.share.value - 0.3).abs() < 0.02 && !explanation.is_explained);
}

#[test]
fn a_mechanism_that_shows_nothing_contradicts_unless_a_guest_makes_it_idle() {
    let planted = |idle: Option<&'static str>| {
        let mut planted = Planted::on(&RTT_TCP, 60_000.0)
            .cause("waking", &["spin", "poll"], 2000.0)
            .measured(&["spin"], &RTT_TCP, 6000.0)
            .measured(&["poll"], &RTT_TCP, 60_000.0)
            .measured(&["short"], &RTT_TCP, 8000.0)
            .measured(&["long"], &RTT_TCP, 60_000.0);
        planted.last().idle_in_guest = idle.map(Name::new);
        let sweep = TriedMechanism {
            how: Name::new("sweep"),
            amount: AmountBy::Sweep([Name::new("short"), Name::new("long")]),
            refused: None,
            idle_in_guest: None,
            is_substitute: true,
        };
        planted.experiment.causes[0].mechanisms.push(sweep);
        planted
    };
    assert_eq!(verdict(&planted(None).explained(), "waking"), &CauseVerdict::MechanismsDisagree);
    let in_guest = planted(Some("the host halts it")).explained();
    assert_eq!(verdict(&in_guest, "waking"), &CauseVerdict::Shown);
    // Taking the guest's own part away changes nothing: all that the sweep shows is the host's.
    let of_host = |explanation: &Explanation| explanation.causes[0].of_host.map(|share| 100.0 * share.share.value);
    assert!((of_host(&in_guest).unwrap() - 86.7).abs() < 2.0);
    assert_eq!(of_host(&planted(None).explained()), None);
    let said = worded(&in_guest);
    let host = said.rows.iter().position(|row| row.is_within).unwrap();
    assert_eq!((said.rows[host].what.as_str(), said.rows[host - 1].what.as_str()), ("of that the host", "waking"));
    // The sweep shows less than the spinner.
    assert!((share(&in_guest, "waking").unwrap() - 86.7).abs() < 2.0);
    let mut alone = planted(Some("the host halts it"));
    alone.last().refused = Some(Reason::new("not here"));
    assert_eq!(verdict(&alone.explained(), "waking"), &CauseVerdict::OneMechanism);
    let mut on_metal = planted(Some("the host halts it"));
    on_metal.experiment.is_virtual = false;
    assert_eq!(verdict(&on_metal.explained(), "waking"), &CauseVerdict::MechanismsDisagree);
}

#[test]
fn a_control_that_moves_its_bystander_is_void() {
    let with = |bystander| {
        let planted = Planted::on(&RTT_TCP, 60_000.0).cause("waking", &["awake"], bystander);
        planted.measured(&["awake"], &RTT_TCP, 6000.0).explained()
    };
    assert_eq!(verdict(&with(12_000.0), "waking"), &CauseVerdict::Void);
    assert_eq!(share(&with(12_000.0), "waking"), None);
    // By less than matters to a figure of 60 us.
    assert_eq!(verdict(&with(3000.0), "waking"), &CauseVerdict::Shown);
}

#[test]
fn rates_are_explained_as_times() {
    // 3.2 GB/s without a cause and 0.8 GB/s with it: three quarters of the time.
    let planted = Planted::on(&BANDWIDTH_TCP, 0.8e9)
        .cause("pacing", &["cubic"], 2000.0)
        .measured(&["cubic"], &BANDWIDTH_TCP, 3.2e9)
        .cause("weather", &["umbrella"], 2000.0)
        .measured(&["umbrella"], &BANDWIDTH_TCP, 0.4e9);
    let explanation = planted.explained();
    assert!((share(&explanation, "pacing").unwrap() - 75.0).abs() < 2.0);
    assert_eq!(verdict(&explanation, "weather"), &CauseVerdict::Opposite);
    assert_eq!(worded(&explanation).unit, "ms/MB");
}

#[test]
fn what_is_longer_than_predicted_without_any_cause_is_not_explained() {
    let predicted = |value: f64| PredictionRecord {
        metric: RTT_TCP.id,
        case: at(&RTT_TCP),
        prediction: Some(Prediction {
            value,
            low: 0.8 * value,
            high: 1.2 * value,
            basis: Basis::Derived,
            formula: "a formula".into(),
            inputs: Vec::new(),
            derivation: "derived".into(),
            sources: Vec::new(),
            calibration: None,
            formula_name: "a test".into(),
            ceiling: None,
        }),
        none_because: None,
    };
    let mut planted = Planted::on(&RTT_TCP, 60_000.0);
    planted.experiment.predicted = Some(predicted(20_000.0));
    let explanation = planted.explained();
    assert_eq!(explanation.parts[0].of, PartOf::Expected);
    assert!(!explanation.is_explained && (explanation.not_explained.share.value - 2.0 / 3.0).abs() < 0.02);
    planted.experiment.predicted = Some(predicted(55_000.0));
    assert!(planted.explained().is_explained);
    // With a cause, what is left of it is judged by the prediction without it.
    let mut planted = Planted::on(&RTT_TCP, 60_000.0).cause("waking", &["awake"], 2000.0);
    planted = planted.measured(&["awake"], &RTT_TCP, 30_000.0);
    planted.experiment.predicted = Some(predicted(55_000.0));
    planted.experiment.predicted_without = Some(predicted(10_000.0));
    let explanation = planted.explained();
    assert!((share(&explanation, "waking").unwrap() - 50.0).abs() < 2.0);
    assert!((explanation.not_explained.share.value - 1.0 / 3.0).abs() < 0.02, "{:?}", explanation.not_explained);
}

#[test]
fn without_four_rounds_there_is_nothing_to_explain() {
    let mut planted = Planted::on(&RTT_TCP, 60_000.0);
    planted.experiment.arms[0].measurement.rounds.truncate(3);
    assert!(explain(&planted.experiment).is_none());
}

#[test]
fn interval_of_rounds_far_apart_ends_at_zero() {
    let mut planted = Planted::on(&RTT_TCP, 50_000.0);
    for (index, round) in planted.experiment.arms[0].measurement.rounds.iter_mut().enumerate() {
        let Attempt::Measured(readings) = &mut round.attempt else { panic!("a round that measured nothing") };
        readings[0].readings = Readings::Scalars(vec![[900_000.0, 40_000.0, 50_000.0][index % 3]]);
    }
    let explanation = planted.explained();
    assert_eq!((explanation.whole.low, explanation.figure.low), (0.0, 0.0));
}
