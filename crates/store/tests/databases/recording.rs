//! What is recorded is what is loaded, whole or partial; and it is found, listed, learned from and deleted.

use crate::common::sample_run;
use crate::common::{MACHINE, sample_events, sample_header, sample_metrics, sample_notes, sample_round};
use crate::stores::{StoreFactory, of_any_store};
use kelvin_core::{
    AmountShare, AmountUnit, Case, EXPLANATION_FORMAT, Estimate, Event, ExplainedPart, Explanation, Metric, Name,
    PartKind, Run, RunStatus, StoredHeadline,
};
use kelvin_store::{AppendError, FindError, HistoryFilter, InsertError, InsertOutcome, RunConclusion, RunFilter};

of_any_store! {
    recorded_run_round_trips,
    run_without_end_is_partial,
    inserted_run_round_trips_once,
    partial_run_can_be_inserted,
    invalid_events_are_refused_and_not_stored,
    run_deleted_during_recording_is_gone,
    header_is_replaced_but_not_its_plan,
    later_conclusion_replaces_earlier,
    names_find_runs,
    ambiguous_name_lists_few_candidates,
    list_is_filtered_and_oldest_first,
    spread_history_needs_same_machine_mode_method,
    invalid_headlines_are_refused,
}

/// A run that differs from the sample in its id and start.
fn run_at(id: &str, minute: u32) -> Run {
    let mut run = sample_run();
    run.header.id = id.into();
    run.header.started = format!("2026-02-01T10:{minute:02}:00Z");
    run
}

fn recorded_run_round_trips(factory: &StoreFactory) {
    let store = factory.new_store();
    let mut recorder = store.recorder();
    for event in sample_events() {
        recorder.event(&event).unwrap();
    }
    let id = &sample_run().header.id;
    let explanations = vec![explanation()];
    let conclusion = RunConclusion { notes: sample_notes(), explanations, ..RunConclusion::from_run(&sample_run()) };
    store.store_conclusion(id, &conclusion).unwrap();
    let expected = Run { explanations: vec![explanation()], ..sample_run() };
    assert_eq!(store.load(id).unwrap(), expected);
    let undefined_metric = Metric { id: Name::new("test.nothing"), ..sample_metrics()[0] };
    let explanations = vec![Explanation { metric: undefined_metric, ..explanation() }];
    let result = store.store_conclusion(id, &RunConclusion { explanations, ..RunConclusion::default() });
    assert!(matches!(result, Err(AppendError::Invalid(_))), "{result:?}");
    assert_eq!(store.load(id).unwrap(), expected);
}

/// What was found of the causes of a gap: nothing.
fn explanation() -> Explanation {
    let metric = sample_metrics()[0];
    let estimate = Estimate { value: 100.0, low: 99.0, high: 101.5, is_range: false };
    Explanation {
        why_format: EXPLANATION_FORMAT,
        kelvin: "0.1.0".into(),
        probe: metric.id,
        metric,
        case: Case::new(),
        passes: 4,
        seconds: 1.5,
        figure: estimate,
        amounts: AmountUnit::Operation,
        whole: estimate,
        predicted: None,
        no_prediction_reason: None,
        predicted_without: None,
        parts: vec![ExplainedPart {
            kind: PartKind::Rest,
            share: AmountShare { amount: estimate, share: estimate.divided_by(100.0) },
        }],
        not_explained: AmountShare { amount: estimate, share: estimate.divided_by(100.0) },
        is_explained: false,
        causes: Vec::new(),
        counters: Vec::new(),
    }
}

fn run_without_end_is_partial(factory: &StoreFactory) {
    let store = factory.new_store();
    let events = sample_events();
    for length in 1..events.len() {
        let mut recorder = store.recorder();
        events[..length].iter().for_each(|event| recorder.event(event).unwrap());
        let stored = store.load("last").unwrap();
        assert_eq!(stored, Run::from_events(events[..length].to_vec()).unwrap());
        assert!(matches!(stored.status, RunStatus::Partial(_)));
        assert_eq!(store.list(&RunFilter::default()).unwrap()[0].status, None);
        store.delete("last").unwrap();
    }
}

fn inserted_run_round_trips_once(factory: &StoreFactory) {
    let store = factory.new_store();
    let run = sample_run();
    assert_eq!(store.insert(&run).unwrap(), InsertOutcome::New);
    assert_eq!(store.load(&run.header.id).unwrap(), run);
    assert_eq!(store.insert(&run).unwrap(), InsertOutcome::AlreadyThere);

    let mut changed_run = run.clone();
    changed_run.notes.push("another note".into());
    let error = store.insert(&changed_run).unwrap_err();
    assert!(matches!(error, InsertError::Differs { .. }));
    assert_eq!(
        error.to_string(),
        "run 20260131T120000-5f2c is already in the store with different content: delete it first, or keep it"
    );
    assert_eq!(store.load(&run.header.id).unwrap(), run);
}

fn partial_run_can_be_inserted(factory: &StoreFactory) {
    let store = factory.new_store();
    let events = sample_events();
    let run = Run::from_events(events[..4].to_vec()).unwrap();
    store.insert(&run).unwrap();
    assert_eq!(store.load("last").unwrap(), run);
}

fn invalid_events_are_refused_and_not_stored(factory: &StoreFactory) {
    let store = factory.new_store();
    let events = sample_events();
    let mut recorder = store.recorder();
    assert!(matches!(recorder.event(&events[2]), Err(AppendError::NotStarted)));
    recorder.event(&events[0]).unwrap();
    assert!(matches!(recorder.event(&events[0]), Err(AppendError::AlreadyStarted { .. })));
    assert!(matches!(store.recorder().event(&events[0]), Err(AppendError::Duplicate { .. })));

    let mut round = sample_round(0);
    round.seconds = f64::NAN;
    let invalid_event = Event::RoundFinished {
        probe: Name::new("os.syscall.null"),
        case: Case::new().with_word(kelvin_core::AxisWord::from_names("call", "getppid")),
        round: Box::new(round),
    };
    let error = recorder.event(&invalid_event).unwrap_err().to_string();
    assert_eq!(error, "field os.syscall.null call=getppid round 0.seconds: NaN is not a finite number");
    assert_eq!(store.load("last").unwrap(), Run::from_events(events[..1].to_vec()).unwrap());

    // It goes on after a refusal.
    recorder.event(&events[2]).unwrap();
    assert_eq!(store.load("last").unwrap().measurements[0].rounds.len(), 1);
}

fn run_deleted_during_recording_is_gone(factory: &StoreFactory) {
    let store = factory.new_store();
    let events = sample_events();
    let mut recorder = store.recorder();
    recorder.event(&events[0]).unwrap();
    store.delete("last").unwrap();
    for event in [&events[2], &events[6], &events[7]] {
        assert!(matches!(recorder.event(event), Err(AppendError::Gone { .. })));
    }
    assert!(matches!(
        store.store_conclusion("20260131T120000-5f2c", &RunConclusion::default()),
        Err(AppendError::Gone { .. })
    ));
}

fn header_is_replaced_but_not_its_plan(factory: &StoreFactory) {
    let store = factory.new_store();
    store.insert(&sample_run()).unwrap();
    let mut header = sample_header("20260131T120000-5f2c");
    header.clock.source_after = Some("hpet".into());
    store.replace_header(&header).unwrap();
    let stored = store.load("last").unwrap();
    assert!(stored.has_clock_changed());
    assert_eq!(stored.measurements, sample_run().measurements);
    header.plan.pop();
    assert!(matches!(store.replace_header(&header), Err(AppendError::OtherPlan { .. })));
}

fn later_conclusion_replaces_earlier(factory: &StoreFactory) {
    let store = factory.new_store();
    store.insert(&sample_run()).unwrap();
    let conclusion = RunConclusion { notes: vec!["later".into()], ..RunConclusion::default() };
    store.store_conclusion("20260131T120000-5f2c", &conclusion).unwrap();
    let stored = store.load("last").unwrap();
    assert!(stored.predictions.is_empty());
    assert_eq!(stored.notes.last().map(String::as_str), Some("later"));
}

fn names_find_runs(factory: &StoreFactory) {
    let store = factory.new_store();
    assert!(matches!(store.find("last"), Err(FindError::Empty { .. })));
    // Stored in another order than they were made.
    for (id, minute) in [("b-2", 2), ("a-1", 1), ("a-10", 3)] {
        store.insert(&run_at(id, minute)).unwrap();
    }
    assert_eq!(store.find("last").unwrap(), "a-10");
    assert_eq!(store.find("last~0").unwrap(), "a-10");
    assert_eq!(store.find("last~2").unwrap(), "a-1");
    assert_eq!(store.find("b").unwrap(), "b-2");
    assert_eq!(store.find("a-1").unwrap(), "a-1", "a whole id wins over a beginning");
    let find_error = |name: &str| store.find(name).unwrap_err().to_string();
    assert_eq!(find_error("a"), "\"a\" could be a-10, a-1");
    assert_eq!(find_error("last~3"), "last~3 goes back further than the 3 stored runs");
    assert_eq!(find_error("last~-1"), "\"last~-1\" is not last~N with a whole number N");
    assert_eq!(find_error("last~"), "\"last~\" is not last~N with a whole number N");
    assert_eq!(find_error("%"), "no run is called \"%\" or begins with it; `kelvin runs list` lists them");
    assert_eq!(find_error(""), "no run is called \"\" or begins with it; `kelvin runs list` lists them");
}

fn ambiguous_name_lists_few_candidates(factory: &StoreFactory) {
    let store = factory.new_store();
    for i in 0..10 {
        store.insert(&run_at(&format!("x{i}"), i)).unwrap();
    }
    assert_eq!(store.find("x").unwrap_err().to_string(), "\"x\" could be x9, x8, x7, x6, x5, x4, x3, x2 or 2 more");
}

fn list_is_filtered_and_oldest_first(factory: &StoreFactory) {
    let store = factory.new_store();
    let mut other_machine = run_at("b", 2);
    other_machine.header.machine.identity = "elsewhere".into();
    let mut partial = run_at("c", 1);
    partial.status = RunStatus::Partial("interrupted".into());
    for run in [run_at("a", 3), other_machine, partial] {
        store.insert(&run).unwrap();
    }
    let ids =
        |filter: &RunFilter| -> Vec<String> { store.list(filter).unwrap().into_iter().map(|line| line.id).collect() };
    assert_eq!(ids(&RunFilter::default()), ["c", "b", "a"]);
    assert_eq!(ids(&RunFilter { limit: Some(2), ..RunFilter::default() }), ["b", "a"]);
    assert_eq!(ids(&RunFilter { machine: Some(MACHINE.into()), ..RunFilter::default() }), ["c", "a"]);
    assert_eq!(ids(&RunFilter { complete: true, ..RunFilter::default() }), ["b", "a"]);
    assert_eq!(ids(&RunFilter { mode: Some("thorough".into()), ..RunFilter::default() }), [""; 0]);

    let line = &store.list(&RunFilter::default()).unwrap()[0];
    assert_eq!(line.status, Some(RunStatus::Partial("interrupted".into())));
    assert_eq!(line.cpu_model.as_deref(), Some("AMD EPYC 9B45"));
    assert_eq!(line.measured_rounds, 2, "failed and declined rounds are not measured ones");
    assert!(line.bytes > 1000, "{}", line.bytes);
}

#[test]
fn deleted_run_frees_disk_space() {
    let factory = StoreFactory::file();
    let store = factory.new_store();
    store.insert(&run_at("kept", 1)).unwrap();
    let mut large = run_at("large", 2);
    // Text that zstd cannot shrink much.
    large.notes = (0..200_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string()).collect();
    let size = || std::fs::metadata(store.name()).unwrap().len();
    store.insert(&large).unwrap();
    store.record_headlines("large", &[headline(1.0)]).unwrap();
    assert_eq!(store.delete("large").unwrap(), "large");
    store.reclaim().unwrap();
    assert!(size() < 300_000, "{} bytes are left", size());
    assert_eq!(store.load("last").unwrap(), run_at("kept", 1));
    assert!(store.spread_history(&SAMPLE_FILTER, &sample_metrics(), 10).unwrap().is_empty());
}

/// Whose runs teach: those of the machine and mode of the sample.
const SAMPLE_FILTER: HistoryFilter<'_> = HistoryFilter { machine: MACHINE, mode: Some("quick"), excluded: &[] };

fn headline(value: f64) -> StoredHeadline {
    StoredHeadline {
        metric: Name::new("os.syscall.null"),
        version: 1,
        case: Case::new().with_word(kelvin_core::AxisWord::from_names("call", "getppid")),
        value,
        within_variance: 0.25,
    }
}

fn spread_history_needs_same_machine_mode_method(factory: &StoreFactory) {
    let store = factory.new_store();
    let mut other_machine = run_at("elsewhere", 4);
    other_machine.header.machine.identity = "elsewhere".into();
    let mut partial = run_at("partial", 5);
    partial.status = RunStatus::Partial("interrupted".into());
    let mut thorough = run_at("thorough", 7);
    thorough.header.settings.mode = Name::new("thorough");
    let runs = [(run_at("c", 3), 3.0), (run_at("a", 1), 1.0), (other_machine, 9.0), (partial, 8.0), (thorough, 4.0)];
    for (run, value) in runs {
        store.insert(&run).unwrap();
        store.record_headlines(&run.header.id, &[headline(value)]).unwrap();
    }
    store.insert(&run_at("b", 2)).unwrap();
    let other_case = StoredHeadline {
        case: Case::new().with_word(kelvin_core::AxisWord::from_names("call", "gettid")),
        ..headline(20.0)
    };
    store.record_headlines("b", &[headline(7.0)]).unwrap();
    store.record_headlines("b", &[headline(2.0), other_case]).unwrap();
    let newer_method = StoredHeadline { version: 2, ..headline(99.0) };
    store.insert(&run_at("d", 6)).unwrap();
    store.record_headlines("d", &[newer_method]).unwrap();

    let history = store.spread_history(&SAMPLE_FILTER, &sample_metrics(), 10).unwrap();
    let rows: Vec<_> =
        history.iter().map(|l| (l.case.to_string(), l.headlines.clone(), l.within_variances.clone())).collect();
    assert_eq!(
        rows,
        [
            ("call=getppid".to_owned(), vec![1.0, 2.0, 3.0], vec![0.25; 3]),
            ("call=gettid".to_owned(), vec![20.0], vec![0.25]),
        ]
    );
    assert_eq!(store.spread_history(&SAMPLE_FILTER, &sample_metrics(), 2).unwrap()[0].headlines, [2.0, 3.0]);
    let base = Metric::duration("test.base", "What others are held over");
    let record_over = |run: &str, value: f64, base_value: f64| {
        let base_headline = StoredHeadline { metric: base.id, case: Case::new(), ..headline(base_value) };
        store.record_headlines(run, &[headline(value), base_headline]).unwrap();
    };
    record_over("a", 1.0, 2.0);
    record_over("c", 3.0, 4.0);
    let over_base = store.spread_history_over(&SAMPLE_FILTER, &sample_metrics(), Some(&base), 10).unwrap();
    let rows: Vec<_> = over_base.iter().map(|l| (l.headlines.clone(), l.within_variances.clone())).collect();
    assert_eq!(rows, [(vec![0.5, 0.75], vec![0.25 / 4.0, 0.25 / 16.0])]);
    let without_a = store
        .spread_history_over(&HistoryFilter { excluded: &["a"], ..SAMPLE_FILTER }, &sample_metrics(), Some(&base), 10)
        .unwrap();
    assert_eq!(without_a[0].headlines, [0.75]);
    let without_two = store
        .spread_history(&HistoryFilter { excluded: &["a", "c", "nobody"], ..SAMPLE_FILTER }, &sample_metrics(), 10)
        .unwrap();
    assert_eq!(without_two[0].headlines, [2.0]);
    let any_mode_history =
        store.spread_history(&HistoryFilter { mode: None, ..SAMPLE_FILTER }, &sample_metrics(), 10).unwrap();
    assert_eq!(any_mode_history[0].headlines, [1.0, 2.0, 3.0, 4.0]);
}

fn invalid_headlines_are_refused(factory: &StoreFactory) {
    let store = factory.new_store();
    store.insert(&sample_run()).unwrap();
    let headline_error = |headlines: &[StoredHeadline]| {
        store.record_headlines("20260131T120000-5f2c", headlines).unwrap_err().to_string()
    };
    assert_eq!(headline_error(&[headline(f64::NAN)]), "field headlines[0].value: NaN is not a finite number");
    assert_eq!(
        headline_error(&[headline(1.0), headline(2.0)]),
        "field headlines[1]: os.syscall.null call=getppid comes twice"
    );
    let negative = StoredHeadline { within_variance: -1.0, ..headline(1.0) };
    assert_eq!(headline_error(&[negative]), "field headlines[0].within_variance: -1 is below 0");
    assert!(matches!(store.record_headlines("nobody", &[]), Err(AppendError::Gone { .. })));
}

#[test]
fn damaged_or_newer_run_is_named() {
    let factory = StoreFactory::file();
    let store = factory.new_store();
    for (id, minute) in [("whole", 1), ("damaged", 2), ("newer", 3)] {
        store.insert(&run_at(id, minute)).unwrap();
    }
    let connection = rusqlite::Connection::open(store.name()).unwrap();
    let damage = "UPDATE round SET payload = zeroblob(40)
                  WHERE sequence = 1 AND run = (SELECT key FROM run WHERE id = 'damaged')";
    assert_eq!(connection.execute(damage, []).unwrap(), 1);
    assert_eq!(connection.execute("UPDATE run SET format = 2 WHERE id = 'newer'", []).unwrap(), 1);

    let load_error = |id: &str| store.load(id).unwrap_err().to_string();
    let part = "event 1 (os.syscall.null {\"call\":\"getppid\"}) of run damaged is damaged: ";
    assert!(load_error("damaged").starts_with(part), "{}", load_error("damaged"));
    assert_eq!(load_error("newer"), "run newer has format 2, but this kelvin knows only up to 1: use a newer kelvin");
    assert!(matches!(store.insert(&run_at("damaged", 2)), Err(InsertError::Incomparable { .. })));
    assert_eq!(store.load("whole").unwrap(), run_at("whole", 1));
}
