//! A comparison whose texts try to break out of every language; used by tests and by the sample page.
#![allow(dead_code, reason = "the example uses a part of it")]

use kelvin_analysis::wording::compare::{figure_name, not_compared_name};
use kelvin_core::{
    Axis, AxisScale, COMPARE_FORMAT, Case, ChangeVerdict, ComparedFigure, ComparedRun, ComparedRung, ComparedSide,
    Comparison, Estimate, FactDifference, GateFinding, GateReason, GateResult, KnownIssue, Metric, NotCompared,
    NotComparedReason, SideFigure, SpreadSource, UndecidedReason,
};

pub const BYTES: Axis = Axis::new("bytes", "set", AxisScale::Bytes);
pub static LATENCY: Metric = Metric::duration("test.latency", "A load").with_axes([BYTES]);

fn side(name: &str, id: &str) -> ComparedSide {
    let run = ComparedRun {
        id: id.into(),
        started: "2026-11-24T10:00:00Z".into(),
        seconds: 150.0,
        is_partial: false,
        foreign: None,
    };
    ComparedSide { name: name.into(), runs: vec![run] }
}

/// Rounds that spread by 2 % around a value.
fn figure_of_side(value: f64, rounds: usize) -> SideFigure {
    let round = |number: usize| value * (0.98 + 0.04 * (number * 3 % rounds) as f64 / rounds as f64);
    SideFigure {
        interval: Some([0.97 * value, 1.03 * value]),
        rounds: vec![(0..rounds).map(round).collect()],
        modes: Vec::new(),
    }
}

fn figure(bytes: u64, [base, other]: [f64; 2], verdict: ChangeVerdict) -> ComparedFigure {
    let ratio = other / base;
    ComparedFigure {
        metric: LATENCY,
        case: Case::new().with_number(BYTES, bytes),
        base,
        other,
        rounds: [8, 8],
        sides: [base, other].map(|value| figure_of_side(value, 8)),
        ratio: Estimate { value: ratio, low: 0.98 * ratio, high: 1.02 * ratio, is_range: false },
        ratio_basis: None,
        spread_source: SpreadSource::Runs(7),
        verdict,
        difference: None,
        equivalence: None,
        detectable_change: Some(0.04),
        times_to_decide: Some(3.0),
        cause: None,
    }
}

/// What came from a file that somebody else wrote: its names mean something in every language.
pub fn comparison() -> Comparison {
    let undecided = ChangeVerdict::NotKnown(UndecidedReason::Undecided);
    let fact = FactDifference {
        group: "Kernel".into(),
        label: "Release".into(),
        base: Some("6.18 | <script>alert(1)</script>".into()),
        other: None,
    };
    let not_compared = |metric: &Metric, reason| NotCompared { metric: metric.id, case: "bytes=\"1\"".into(), reason };
    Comparison {
        compare_format: COMPARE_FORMAT,
        base: side("before.json", "a"),
        other: side("a\"<b>&|`*_\u{1b}[31m", "b"),
        threshold: 0.01,
        differences: vec![fact],
        clocks: None,
        frequency: None,
        median_ratio: None,
        interval_inflation: 1.0,
        figures: vec![
            figure(4096, [10.0, 12.7], ChangeVerdict::Worse),
            figure(8192, [10.0, 10.4], ChangeVerdict::Worse),
            figure(16_384, [12.0, 11.0], ChangeVerdict::Better),
            figure(32_768, [20.0, 20.3], undecided),
            figure(65_536, [30.0, 30.01], ChangeVerdict::Same),
        ],
        ladder: ladder(),
        not_compared: vec![
            not_compared(&LATENCY, NotComparedReason::MethodVersion([1, 2])),
            not_compared(&LATENCY, NotComparedReason::OnlyBase("skipped: <needs> two CPUs".into())),
        ],
        interleaving: None,
        gate: None,
    }
}

/// What a gate of 5 % finds, with a known issue and an owner.
pub fn gated_comparison() -> Comparison {
    let mut comparison = comparison();
    let finding = |figure: &str, reason, issue, owner: Option<&str>| GateFinding {
        metric: LATENCY.id,
        figure: figure.into(),
        reason,
        issue,
        owner: owner.map(str::to_owned),
    };
    let names: Vec<String> = comparison.figures.iter().map(figure_name).collect();
    let worse = |change| GateReason::Worse { change, allowed: 0.05 };
    let issue = KnownIssue { reason: "a <known> issue".into(), until: Some("2026-12-31".into()), worse: Some(0.5) };
    comparison.gate = Some(GateResult {
        failures: vec![
            finding(&names[0], worse(0.27), None, Some("@memory|team")),
            finding(&not_compared_name(&comparison.not_compared[0]), GateReason::NotCompared, None, None),
        ],
        known: vec![finding(
            &names[1],
            GateReason::Undetectable { detectable: Some(0.3), required: 0.1 },
            Some(issue),
            None,
        )],
        undetectable: 3,
        resolved: vec!["nothing of it".into()],
    });
    comparison
}

/// Two times of it, and one that only the other side has.
fn ladder() -> Vec<ComparedRung> {
    let rung = |label: &str, seconds, figure| ComparedRung { label: label.into(), continues: false, seconds, figure };
    vec![
        rung("a <b>load</b>", [Some(10e-9), Some(12.7e-9)], Some(0)),
        ComparedRung { continues: true, ..rung("of \"16 KiB\"", [Some(12e-9), Some(11e-9)], Some(2)) },
        rung("a fork", [None, Some(50e-6)], None),
    ]
}

/// This many figures, each with as many rounds as a run of several has.
pub fn large_comparison(figures: usize) -> Comparison {
    let verdicts = [
        ChangeVerdict::Worse,
        ChangeVerdict::NotKnown(UndecidedReason::Undecided),
        ChangeVerdict::Same,
        ChangeVerdict::Better,
    ];
    let numbered_figure = |number: usize| {
        let verdict = verdicts[number % verdicts.len()].clone();
        let template = figure(4096 + number as u64, [1234.5, 1234.5 * (0.5 + number as f64 / figures as f64)], verdict);
        ComparedFigure {
            sides: [template.base, template.other].map(|value| figure_of_side(value, 160)),
            rounds: [160, 160],
            ..template
        }
    };
    Comparison { figures: (0..figures).map(numbered_figure).collect(), ..comparison() }
}
