//! The supervisor over scripted rounds: events, retries, failures.

use std::cell::Cell;

use kelvin_core::{
    Axis, AxisScale, Case, Machine, Metric, MetricReadings, NoPrediction, OverheadReading, RUN_FORMAT, Readings, Run,
    RunSettings, SkipReason, SteadyState,
};

use super::*;
use crate::plan::PlanContext;
use crate::probe::{Effort, Probe, ProbeKind};
use crate::protocol::{RoundRequest, RoundResponse};

/// A budget that grows as far as it has to.
const EXTENDABLE: BudgetLimit = BudgetLimit::ExtendableTo(Duration::MAX);

const N: Axis = Axis::new("n", "", AxisScale::Linear);

static METRIC: Metric = Metric::duration("test.metric", "A metric of a script");

static PROBE: Probe = Probe {
    id: "test.metric",
    summary: "A probe of a script",
    kind: ProbeKind::Measure,
    method: "",
    metrics: &[&METRIC],
    cases: |_, effort| {
        let cases = if effort == Effort::Quick { 0..3 } else { 0..5 };
        cases.map(|n| Case::new().with_number("n", n)).collect()
    },
    run: |_, _| Ok(()),
    predict: |_, _, _| Err(NoPrediction::new("scripted")),
};

/// Answers by the case's `n`; a round takes this overhead and its slice, or as long as it is waited for, and goes on for half of what
/// it may.
struct ScriptedLauncher<F> {
    answer: F,
    overhead: fn(u64) -> f64,
    now: Cell<f64>,
    extensions: Vec<Option<Extension>>,
}

impl<F: FnMut(u64, u32) -> Option<RoundOutcome>> Launcher for ScriptedLauncher<F> {
    fn launch(&mut self, request: &RoundRequest, wait_limit: WaitLimit) -> Option<RoundResponse> {
        let n = N.number_in(&request.case).unwrap();
        let extension = request.extension.map_or(0, |extension| extension.max_nanoseconds / 2);
        self.extensions.push(request.extension);
        let round_time = (self.overhead)(n) + (request.slice + extension) as f64;
        let max_time = wait_limit.max.as_nanos() as f64;
        self.now.set(self.now.get() + round_time.min(max_time));
        let attempt = if round_time > max_time {
            Some(RoundOutcome::Failed("it was still running".into()))
        } else {
            (self.answer)(n, request.round)
        };
        attempt.map(|attempt| RoundResponse { outcome: attempt, extended_by: extension })
    }

    fn now(&self) -> f64 {
        self.now.get()
    }
}

/// Keeps all events, and judges all rounds to count; after this many it knows how the core reads, if it ever does.
#[derive(Default)]
struct RecordingObserver(Vec<Event>, Option<usize>);

impl RunObserver for RecordingObserver {
    fn case_status(&mut self) -> HashMap<(Name, Case), CaseStatus> {
        let mut rounds: HashMap<(Name, Case), Vec<f64>> = HashMap::new();
        for event in &self.0 {
            if let Event::RoundFinished { probe, case, round } = event
                && let RoundOutcome::Measured(readings) = &round.outcome
                && let Readings::Scalars(values) = &readings[0].readings
            {
                rounds.entry((*probe, case.clone())).or_default().extend(values);
            }
        }
        let status = |(key, values): ((Name, Case), Vec<f64>)| {
            let (low, high) =
                values.iter().fold((f64::MAX, f64::MIN), |ends, value| (ends.0.min(*value), ends.1.max(*value)));
            let width = Some((high - low) / low);
            (key, CaseStatus { counted_rounds: values.len() as u32, half_width: width, narrowable: width })
        };
        rounds.into_iter().map(status).collect()
    }

    fn steady_core(&self) -> Option<CoreSteadyState> {
        let rounds = self.0.iter().filter(|event| matches!(event, Event::RoundFinished { .. })).count();
        self.1.filter(|&min_rounds| rounds >= min_rounds).map(|_| CORE)
    }
}

/// How the core reads, once that is known.
const STEADY: SteadyState = SteadyState { nanoseconds: 20.0, tolerance: 0.02 };
const CORE: CoreSteadyState = CoreSteadyState { chain: STEADY, block: STEADY };

impl EventSink for RecordingObserver {
    fn event(&mut self, event: &Event) {
        self.0.push(event.clone());
    }
}

fn machine() -> Machine {
    Machine::default()
}

fn outline(plan: &Plan, budget_seconds: f64) -> RunHeader {
    RunHeader {
        foreign: None,
        format: RUN_FORMAT,
        id: "test".into(),
        started: "2026-01-01T00:00:00Z".into(),
        kelvin: "0".into(),
        build: None,
        command: Vec::new(),
        settings: RunSettings {
            mode: Name::new("default"),
            budget_seconds,
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
        plan: plan.measurements(),
        spread_history: Vec::new(),
        core_ratio_history: Vec::new(),
        network_path: None,
        bounds: Vec::new(),
    }
}

fn measured_outcome(value: f64) -> Option<RoundOutcome> {
    let overhead = OverheadReading::default();
    let readings = Readings::Scalars(vec![value]);
    Some(RoundOutcome::Measured(vec![MetricReadings {
        metric: METRIC.id,
        readings,
        overhead,
        notes: Vec::new(),
        counted: None,
    }]))
}

fn play(effort: Effort, answer: impl FnMut(u64, u32) -> Option<RoundOutcome>) -> (Run, Vec<Event>) {
    // Six rounds of five cases, and not a seventh.
    play_within((EXTENDABLE, 0.56), effort, |_| 5e6, answer)
}

/// Plays a run whose rounds have this overhead in nanoseconds, by the case's `n`.
fn play_within(
    (limit, seconds): (BudgetLimit, f64),
    effort: Effort,
    overhead: fn(u64) -> f64,
    answer: impl FnMut(u64, u32) -> Option<RoundOutcome>,
) -> (Run, Vec<Event>) {
    let (run, events, _) = play_with_budget(RecordingObserver::default(), (limit, seconds), effort, (overhead, answer));
    (run, events)
}

/// Like `play_within`, on a core of which that much becomes known; with how far each round might go on.
fn play_with_budget(
    mut observer: RecordingObserver,
    (limit, seconds): (BudgetLimit, f64),
    effort: Effort,
    (overhead, answer): (fn(u64) -> f64, impl FnMut(u64, u32) -> Option<RoundOutcome>),
) -> (Run, Vec<Event>, Vec<Option<Extension>>) {
    let (probes, machine): ([&'static Probe; 1], _) = ([&PROBE], machine());
    let sources = PlanContext { probes: &probes, machine: &machine, references: None };
    let plan = Plan::new(&sources, ProbeKind::Measure, &[], effort).unwrap();
    let outline = outline(&plan, seconds);
    let options = SuperviseOptions {
        program: ("none".into(), Vec::new()),
        round_limit: Duration::from_secs(5),
        limit,
        start: Instant::now(),
        reserve: Duration::ZERO,
        setup: Setup::scripted(1),
    };
    let mut launcher = ScriptedLauncher { answer, overhead, now: Cell::new(0.0), extensions: Vec::new() };
    run(&plan, &outline, &options, &mut launcher, &mut observer);
    (Run::from_events(observer.0.clone()).unwrap(), observer.0, launcher.extensions)
}

fn rounds(run: &Run) -> Vec<usize> {
    run.measurements.iter().map(|measurement| measurement.rounds.len()).collect()
}

#[test]
fn steady_run_completes_in_report_order() {
    let (run, events) = play(Effort::Default, |n, _| measured_outcome(100.0 + n as f64));
    assert_eq!(run.status, RunStatus::Complete);
    assert_eq!(rounds(&run), [6; 5]);
    let cases: Vec<_> = run.measurements.iter().map(|m| N.number_in(&m.planned.case).unwrap()).collect();
    assert_eq!(cases, [0, 1, 2, 3, 4]);
    assert!(matches!(events.first(), Some(Event::Started(_))));
    assert!(matches!(events.last(), Some(Event::Finished { .. })));
    assert!(run.notes.is_empty(), "{:?}", run.notes);
}

#[test]
fn failing_case_is_tried_twice() {
    let (run, _) = play(Effort::Default, |n, _| match n {
        2 => Some(RoundOutcome::Failed("it crashed with signal 11".into())),
        _ => measured_outcome(1.0),
    });
    assert_eq!(rounds(&run)[2], 2);
    assert!((0..5).all(|n| n == 2 || rounds(&run)[n] >= 6), "{:?}", rounds(&run));
    assert_eq!(run.measurements[2].failures().next(), Some("it crashed with signal 11"));
    assert_eq!(run.status, RunStatus::Complete);
}

#[test]
fn single_failure_is_retried() {
    let (run, _) = play(Effort::Default, |n, round| match (n, round) {
        (2, 1) => Some(RoundOutcome::Failed("once".into())),
        _ => measured_outcome(1.0),
    });
    assert_eq!(rounds(&run), [6, 6, 7, 6, 6], "a failed round is made up for");
    assert_eq!(run.measurements[2].failures().count(), 1);
}

#[test]
fn skipped_case_is_tried_once() {
    let (run, _) = play(Effort::Default, |n, _| match n {
        4 => Some(RoundOutcome::Skipped(SkipReason::new("needs two CPUs"))),
        _ => measured_outcome(1.0),
    });
    assert_eq!(rounds(&run)[4], 1);
    assert!(rounds(&run)[..4].iter().all(|&rounds| rounds >= 6), "{:?}", rounds(&run));
    assert_eq!(run.measurements[4].skip_reason(), Some(&SkipReason::new("needs two CPUs")));
}

#[test]
fn quick_omissions_are_reported() {
    let (run, _) = play(Effort::Quick, |_, _| measured_outcome(1.0));
    assert_eq!(run.measurements.len(), 5);
    let reasons: Vec<bool> = run.measurements.iter().map(|m| m.skip_reason().is_some()).collect();
    assert_eq!(reasons, [false, false, false, true, true]);
}

#[test]
fn wide_interval_is_reported() {
    let (run, _) =
        play(Effort::Default, |n, round| measured_outcome(if n == 1 && round % 2 == 0 { 10.0 } else { 1.0 }));
    assert!(run.notes.iter().any(|note| note.contains("1 of 5 cases still have an interval wider")), "{:?}", run.notes);
}

#[test]
fn truncated_events_are_a_partial_run() {
    let (_, events) = play(Effort::Default, |_, _| measured_outcome(1.0));
    for end in 1..events.len() {
        let run = Run::from_events(events[..end].iter().cloned()).unwrap();
        assert!(matches!(run.status, RunStatus::Partial(_)));
    }
    assert_eq!(Run::from_events([]), None);
}

/// The cases that were skipped after the first round of any, with the reason.
fn skipped_cases(events: &[Event]) -> Vec<(u64, &str)> {
    let first_start = events.iter().position(|event| matches!(event, Event::RoundStarted { .. })).unwrap();
    let skipped = events[first_start..].iter().filter_map(|event| match event {
        Event::CaseSkipped { case, reason, .. } => Some((N.number_in(case).unwrap(), reason.0.as_str())),
        _ => None,
    });
    skipped.collect()
}

#[test]
fn over_budget_cases_are_reported_as_skipped() {
    let overhead = |n| if n == 2 { 300e6 } else { 5e6 };
    let (run, events) = play_within((BudgetLimit::Fixed, 1.5), Effort::Default, overhead, |_, _| measured_outcome(1.0));
    assert_eq!(skipped_cases(&events), [(2, OUT_OF_TIME)]);
    assert_eq!(run.status, RunStatus::Complete);
    assert!(run.seconds <= 1.5, "{}", run.seconds);
    assert!((0..5).all(|n| n == 2 || rounds(&run)[n] >= 6), "{:?}", rounds(&run));
}

#[test]
fn round_cut_by_budget_is_no_failure() {
    let overhead = |n| if n == 4 { 60e9 } else { 5e6 };
    let (run, events) = play_within((BudgetLimit::Fixed, 1.5), Effort::Default, overhead, |_, _| measured_outcome(1.0));
    assert_eq!(skipped_cases(&events).iter().map(|skipped| skipped.0).collect::<Vec<_>>(), [4]);
    assert!(run.seconds <= 1.5 && rounds(&run)[..4].iter().all(|&rounds| rounds >= 6), "{:?}", rounds(&run));
    assert!(run.measurements.iter().all(|measurement| measurement.failures().next().is_none()));
}

#[test]
fn lengthened_run_is_announced_and_noted() {
    let (run, events) = play_within((EXTENDABLE, 1.5), Effort::Default, |_| 100e6, |_, _| measured_outcome(1.0));
    assert_eq!(rounds(&run), [6; 5]);
    let budgets: Vec<f64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Extended { seconds } => Some(*seconds),
            _ => None,
        })
        .collect();
    // It is announced again only once it has grown by half beyond the last announcement.
    assert!(budgets.windows(2).all(|pair| pair[1] >= 1.5 * pair[0]), "{budgets:?}");
    assert!(
        !budgets.is_empty() && (0.95..1.5).contains(&(run.seconds / budgets[budgets.len() - 1])),
        "{budgets:?} {}",
        run.seconds
    );
    assert!(run.notes[0].starts_with("6 rounds of each case take "), "{:?}", run.notes);
}

#[test]
fn extensions_begin_once_core_is_known() {
    let run_with_core = |min_rounds| {
        let answer = |_, _| measured_outcome(1.0);
        play_with_budget(
            RecordingObserver(Vec::new(), min_rounds),
            (EXTENDABLE, 1.0),
            Effort::Default,
            (|_| 5e6, answer),
        )
    };
    let (run, _, extensions) = run_with_core(Some(FIRST_CORE_CHECK));
    assert!(extensions[..FIRST_CORE_CHECK].iter().all(Option::is_none));
    assert!(
        extensions[FIRST_CORE_CHECK..]
            .iter()
            .all(|extension| extension.is_some_and(|extension| extension.core == CORE && extension.max_nanoseconds > 0))
    );
    // What they took of it is time of timing, and is reported.
    let timing: f64 =
        run.measurements.iter().flat_map(|measurement| &measurement.rounds).filter_map(|round| round.timing).sum();
    let used_time: u64 = extensions.iter().flatten().map(|extension| extension.max_nanoseconds / 2).sum();
    assert!(timing > used_time as f64 / 1e9, "{timing} {used_time}");
    assert!(run.notes.iter().any(|note| note.starts_with("rounds went on for ")), "{:?}", run.notes);
    assert!(run.seconds <= 1.0, "{}", run.seconds);
    let (run, _, extensions) = run_with_core(None);
    assert!(extensions.iter().all(Option::is_none));
    assert!(!run.notes.iter().any(|note| note.starts_with("rounds went on")), "{:?}", run.notes);
}

/// Rounds that take so long from the start of the run on, and when it ended.
fn end_of_busy_run(limit: BudgetLimit, seconds: f64, overhead: fn(u64) -> f64) -> (f64, Vec<usize>) {
    let (run, _) = play_within((limit, seconds), Effort::Default, overhead, |_, _| measured_outcome(1.0));
    assert_eq!(run.status, RunStatus::Complete);
    (run.seconds, rounds(&run))
}

#[test]
fn run_ends_with_its_time_on_any_machine() {
    let most = |seconds| BudgetLimit::ExtendableTo(Duration::from_secs(seconds));
    // What rounds take, in nanoseconds: a machine that is far too slow, one on which rounds hang, and both.
    let machines: [fn(u64) -> f64; 4] = [|_| 3e9, |_| 9e9, |_| f64::MAX, |n| if n < 2 { 10e6 } else { 1e12 }];
    for overhead in machines {
        for (limit, seconds, max_seconds) in
            [(BudgetLimit::Fixed, 10.0, 10.0), (most(100), 10.0, 100.0), (most(100), 0.0, 100.0)]
        {
            let (end, rounds) = end_of_busy_run(limit, seconds, overhead);
            assert!(end <= 1.05 * max_seconds, "{limit:?}: {end} s for {rounds:?}");
        }
    }
    // What fits is measured.
    let (end, rounds) = end_of_busy_run(most(100), 10.0, machines[3]);
    assert!(rounds[..2].iter().all(|&rounds| rounds >= 6) && end < 105.0, "{end} {rounds:?}");
}
