//! An explanation: a trip of which waking a CPU takes nearly all.

use kelvin_core::*;

static TRIP: Metric = Metric::duration("test.trip", "A trip to another CPU and back");

const TOTAL_NANOSECONDS: f64 = 62_400.0;

pub fn estimate(value: f64, low: f64, high: f64) -> Estimate {
    Estimate { value, low, high, is_range: false }
}

pub fn share(value: f64, low: f64, high: f64) -> AmountShare {
    let amount = estimate(value, low, high);
    AmountShare { amount, share: amount.divided_by(TOTAL_NANOSECONDS) }
}

fn switch() -> MetricCase {
    MetricCase { metric: Name::new("test.switch"), case: Case::new() }
}

fn cause(name: &'static str, verdict: CauseVerdict, share: Option<AmountShare>) -> CauseResult {
    CauseResult {
        id: Name::new(name),
        summary: Name::new(name),
        remedy: Name::new("spin before sleeping"),
        verdict,
        share,
        host_share: None,
        evidence: Vec::new(),
        by_formula: None,
    }
}

/// One with every kind of verdict that a page words differently.
pub fn explanation() -> Explanation {
    let switch_case = switch();
    let bystander = NegativeControl {
        at: switch_case.clone(),
        value: 1900.0,
        unit: Unit::Nanoseconds,
        ratio: estimate(1.02, 0.99, 1.04),
        moved: false,
    };
    let waking = CauseResult {
        evidence: vec![MechanismEvidence {
            description: Name::new("with the CPUs kept awake by spinners"),
            amount: Some(estimate(55_900.0, 54_000.0, 57_000.0)),
            missing_reason: None,
            negative_control: Some(bystander),
        }],
        by_formula: Some(FormulaSize {
            formula: FigureDifference {
                minuend: MetricCase { metric: Name::new("test.wake"), case: Case::new() },
                subtrahend: switch_case,
                factor: 2.0,
            },
            nanoseconds: estimate(54_000.0, 53_000.0, 55_000.0),
        }),
        host_share: Some(share(52_000.0, 50_000.0, 54_500.0)),
        ..cause("waking an idle CPU", CauseVerdict::Shown, Some(share(55_900.0, 54_000.0, 57_000.0)))
    };
    Explanation {
        why_format: EXPLANATION_FORMAT,
        kelvin: "0.1.0".into(),
        probe: TRIP.id,
        metric: TRIP,
        case: Case::new().with_word(AxisWord::from_names("placement", "two_cpus")).with_number("message", 64),
        passes: 24,
        seconds: 12.0,
        figure: estimate(TOTAL_NANOSECONDS, 61_000.0, 63_900.0),
        amounts: AmountUnit::Operation,
        whole: estimate(TOTAL_NANOSECONDS, 61_000.0, 63_900.0),
        predicted: None,
        no_prediction_reason: Some("a test has none".into()),
        predicted_without: None,
        parts: vec![
            ExplainedPart { kind: PartKind::Rest, share: share(5300.0, 5200.0, 5400.0) },
            ExplainedPart { kind: PartKind::Cause(waking.id), share: share(55_900.0, 54_000.0, 57_000.0) },
        ],
        not_explained: share(1200.0, -400.0, 2800.0),
        is_explained: true,
        causes: vec![
            waking,
            cause("congestion control", CauseVerdict::RuledOut, Some(share(100.0, -300.0, 400.0))),
            cause("mitigations", CauseVerdict::NotTried(SkipReason::new("only a boot can change them")), None),
        ],
        counters: Vec::new(),
    }
}
