//! The supervisor over scripted rounds: events, retries, failures.

use std::cell::Cell;

use kelvin_model::{Case, FORMAT, Machine, Metric, NoPrediction, OverheadReading, Reason, Run, RunSettings};

use super::*;
use crate::probe::{Effort, Method, Probe, ProbeKind};

static METRIC: Metric = Metric::duration("test.metric", "A metric of a script");
static METHOD: Method = Method { how: "", prediction: "", not_for: "", pitfalls: &[], sources: &[] };

static PROBE: Probe = Probe {
    id: "test.metric",
    summary: "A probe of a script",
    kind: ProbeKind::Measure,
    method: METHOD,
    metrics: &[&METRIC],
    inputs: &[],
    cases: |_, effort| {
        let cases = if effort == Effort::Quick { 0..3 } else { 0..5 };
        cases.map(|n| Case::new().with("n", n)).collect()
    },
    run: |_, _| Ok(()),
    predict: |_, _, _| Err(NoPrediction::because("scripted")),
};

/// Answers by the case's `n`, each round taking 5 ms beside its slice.
struct Scripted<F> {
    answer: F,
    now: Cell<f64>,
}

impl<F: FnMut(u64, u32) -> Option<Attempt>> Launch for Scripted<F> {
    fn launch(&mut self, request: &Request, _: Patience) -> Option<Attempt> {
        self.now.set(self.now.get() + 5e6 + request.slice as f64);
        (self.answer)(
            kelvin_model::Axis::new("n", "", kelvin_model::AxisScale::Linear).of(&request.case).unwrap(),
            request.round,
        )
    }

    fn now(&self) -> f64 {
        self.now.get()
    }
}

/// Keeps all events.
#[derive(Default)]
struct Kept(Vec<Event>);

impl Sink for Kept {
    fn event(&mut self, event: &Event) {
        self.0.push(event.clone());
    }
}

fn machine() -> Machine {
    Machine::default()
}

fn outline(plan: &Plan) -> Outline {
    Outline {
        format: FORMAT,
        id: "test".into(),
        started: "2026-01-01T00:00:00Z".into(),
        kelvin: "0".into(),
        command: Vec::new(),
        settings: RunSettings {
            mode: Name::new("default"),
            budget_seconds: 1.5,
            rounds: 6,
            target: 0.02,
            seed: 1,
            cpu: 1,
            partner_cpu: None,
            canaries: true,
            realtime: false,
        },
        clock: Setup::scripted(1).clock,
        machine: machine(),
        hazards: Vec::new(),
        metrics: vec![METRIC],
        plan: plan.planned(),
        learned: Vec::new(),
        learned_core: Vec::new(),
        way: None,
        bounds: Vec::new(),
    }
}

fn measured(value: f64) -> Option<Attempt> {
    let overhead = OverheadReading::default();
    let readings = Readings::Scalars(vec![value]);
    Some(Attempt::Measured(vec![Reading { metric: METRIC.id, readings, overhead, notes: Vec::new() }]))
}

fn play(effort: Effort, answer: impl FnMut(u64, u32) -> Option<Attempt>) -> (Run, Vec<Event>) {
    let plan = Plan::new(&[&PROBE], ProbeKind::Measure, &[], &machine(), effort).unwrap();
    let outline = outline(&plan);
    let options = Options {
        program: ("none".into(), Vec::new()),
        round_limit: Duration::from_secs(5),
        setup: Setup::scripted(1),
    };
    let mut kept = Kept::default();
    run(&plan, &outline, &options, &mut Scripted { answer, now: Cell::new(0.0) }, &mut kept);
    (Run::from_events(kept.0.clone()).unwrap(), kept.0)
}

fn rounds(run: &Run) -> Vec<usize> {
    run.measurements.iter().map(|measurement| measurement.rounds.len()).collect()
}

#[test]
fn a_steady_run_is_complete_and_in_the_order_of_reports() {
    let (run, events) = play(Effort::Default, |n, _| measured(100.0 + n as f64));
    assert_eq!(run.status, RunStatus::Complete);
    assert_eq!(rounds(&run), [6; 5]);
    let cases: Vec<_> = run
        .measurements
        .iter()
        .map(|m| kelvin_model::Axis::new("n", "", kelvin_model::AxisScale::Linear).of(&m.planned.case).unwrap())
        .collect();
    assert_eq!(cases, [0, 1, 2, 3, 4]);
    assert!(matches!(events.first(), Some(Event::Started(_))));
    assert!(matches!(events.last(), Some(Event::Finished { .. })));
    assert!(run.notes.is_empty(), "{:?}", run.notes);
}

#[test]
fn a_failing_case_is_tried_twice_and_costs_only_itself() {
    let (run, _) = play(Effort::Default, |n, _| match n {
        2 => Some(Attempt::Failed("it crashed by signal 11".into())),
        _ => measured(1.0),
    });
    assert_eq!(rounds(&run), [6, 6, 2, 6, 6]);
    assert_eq!(run.measurements[2].failures().next(), Some("it crashed by signal 11"));
    assert_eq!(run.status, RunStatus::Complete);
}

#[test]
fn a_chance_failure_is_forgiven() {
    let (run, _) = play(Effort::Default, |n, round| match (n, round) {
        (2, 1) => Some(Attempt::Failed("once".into())),
        _ => measured(1.0),
    });
    assert_eq!(rounds(&run), [6; 5]);
    assert_eq!(run.measurements[2].failures().count(), 1);
}

#[test]
fn a_skipped_case_is_tried_once() {
    let (run, _) = play(Effort::Default, |n, _| match n {
        4 => Some(Attempt::Skipped(Reason::new("needs two CPUs"))),
        _ => measured(1.0),
    });
    assert_eq!(rounds(&run), [6, 6, 6, 6, 1]);
    assert_eq!(run.measurements[4].skip_reason(), Some(&Reason::new("needs two CPUs")));
}

#[test]
fn what_quick_omits_is_reported() {
    let (run, _) = play(Effort::Quick, |_, _| measured(1.0));
    assert_eq!(run.measurements.len(), 5);
    let reasons: Vec<bool> = run.measurements.iter().map(|m| m.skip_reason().is_some()).collect();
    assert_eq!(reasons, [false, false, false, true, true]);
}

#[test]
fn a_wide_interval_is_reported() {
    let (run, _) = play(Effort::Default, |n, round| measured(if n == 1 && round % 2 == 0 { 10.0 } else { 1.0 }));
    assert!(run.notes.iter().any(|note| note.contains("1 of 5 cases still have an interval wider")), "{:?}", run.notes);
}

#[test]
fn events_truncated_anywhere_are_a_partial_run() {
    let (_, events) = play(Effort::Default, |_, _| measured(1.0));
    for end in 1..events.len() {
        let run = Run::from_events(events[..end].iter().cloned()).unwrap();
        assert!(matches!(run.status, RunStatus::Partial(_)));
    }
    assert_eq!(Run::from_events([]), None);
}
