//! Tags and notes lead to runs and stay with them; old runs go and labelled ones stay; runs are copied once, with all that is theirs.

use crate::common::{MACHINE, sample_events, sample_metrics, sample_run};
use crate::stores::{StoreFactory, of_any_store};
use kelvin_core::{AxisWord, Case, Event, Name, Run, RunStatus, StoredHeadline};
use kelvin_store::{
    CopyError, FindError, HistoryFilter, InsertError, InsertOutcome, LabelError, PruneOptions, RunFilter, Store, Tag,
    copy,
};

of_any_store! {
    tags_and_notes_are_set_and_removed,
    tag_selects_its_runs,
    recorded_run_has_labels_from_start,
    prune_keeps_labelled_and_running,
    run_is_copied_once_and_whole,
    differing_or_damaged_run_is_not_copied,
}

/// A run that differs from the sample in its id and start.
fn run_at(id: &str, minute: u32) -> Run {
    let mut run = sample_run();
    run.header.id = id.into();
    run.header.started = format!("2026-02-01T10:{minute:02}:00Z");
    run
}

fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

fn ids(store: &Store, filter: &RunFilter) -> Vec<String> {
    store.list(filter).unwrap().into_iter().map(|line| line.id).collect()
}

/// The tags of a run in words, and its note.
fn labels(store: &Store, id: &str) -> (String, Option<String>) {
    let line = store.list(&RunFilter::default()).unwrap().into_iter().find(|line| line.id == id).unwrap();
    let tags: Vec<String> = line.labels.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (tags.join(" "), line.labels.note)
}

fn tags_and_notes_are_set_and_removed(factory: &StoreFactory) {
    let store = factory.new_store();
    for (id, minute) in [("a-1", 1), ("b-2", 2)] {
        store.insert(&run_at(id, minute)).unwrap();
    }
    assert_eq!(store.update_tags("a", &[tag("kernel=6.17"), tag("disk=nvme")], &[]).unwrap(), "a-1");
    store.update_tags("last~1", &[tag("kernel=6.18")], &["disk".into()]).unwrap();
    store.set_note("a-1", "first").unwrap();
    store.set_note("a-1", "after the update").unwrap();
    assert_eq!(labels(&store, "a-1"), ("kernel=6.18".into(), Some("after the update".into())));
    assert_eq!(labels(&store, "b-2"), (String::new(), None));
    store.set_note("a-1", "").unwrap();
    assert_eq!(labels(&store, "a-1").1, None);

    // All or nothing.
    let error = store.update_tags("a-1", &[tag("x=1")], &["kernel".into(), "disk".into()]).unwrap_err();
    assert!(matches!(error, LabelError::NoSuchTag { .. }));
    assert_eq!(error.to_string(), "run a-1 has no tag disk");
    assert_eq!(labels(&store, "a-1").0, "kernel=6.18");
    assert!(matches!(store.update_tags("c", &[tag("x=1")], &[]), Err(LabelError::Find(FindError::None { .. }))));
    store.delete("a-1").unwrap();
    assert!(matches!(store.find("tag:kernel=6.18"), Err(FindError::NoneTagged(_))));
}

fn tag_selects_its_runs(factory: &StoreFactory) {
    let store = factory.new_store();
    for (id, minute) in [("c", 3), ("a", 1), ("b", 2)] {
        store.insert(&run_at(id, minute)).unwrap();
    }
    for id in ["a", "c"] {
        store.update_tags(id, &[tag("kernel=6.18"), tag(&format!("only={id}"))], &[]).unwrap();
    }
    store.update_tags("b", &[tag("kernel=6.17")], &[]).unwrap();
    assert_eq!(store.find_all("tag:kernel=6.18").unwrap(), ["a", "c"]);
    assert_eq!(store.find_all("last").unwrap(), ["c"]);
    assert_eq!(store.find("tag:kernel=6.17").unwrap(), "b");
    assert_eq!(store.load("tag:only=a").unwrap().header.id, "a");
    let find_error = |name: &str| store.find(name).unwrap_err().to_string();
    assert_eq!(find_error("tag:kernel=6.18"), "\"tag:kernel=6.18\" could be c, a");
    assert_eq!(find_error("tag:kernel=6.1"), "no run has the tag kernel=6.1");
    assert_eq!(find_error("tag:kernel"), "\"tag:kernel\": a tag is NAME=VALUE, such as kernel=6.18");
    let ids_with_tags = |tags: &[&str]| {
        ids(&store, &RunFilter { tags: tags.iter().map(|text| tag(text)).collect(), ..RunFilter::default() })
    };
    assert_eq!(ids_with_tags(&["kernel=6.18"]), ["a", "c"]);
    assert_eq!(ids_with_tags(&["kernel=6.18", "only=c"]), ["c"]);
    assert_eq!(ids_with_tags(&["kernel=6.17", "only=c"]), [""; 0]);
}

fn recorded_run_has_labels_from_start(factory: &StoreFactory) {
    let store = factory.new_store();
    let mut recorder = store.recorder().with_labels(kelvin_store::labels(&[tag("a=1"), tag("a=2")], Some("why")));
    recorder.event(&sample_events()[0]).unwrap();
    assert_eq!(labels(&store, &sample_run().header.id), ("a=2".into(), Some("why".into())));
}

/// Microseconds since 1970 of 2026-02-01T11:00:00Z.
const NOW: i64 = 1_769_943_600_000_000;
const WEEK: i64 = 7 * 24 * 3600 * 1_000_000;

fn prune_keeps_labelled_and_running(factory: &StoreFactory) {
    let store = factory.new_store();
    for minute in 1..=6 {
        store.insert(&run_at(&format!("run-{minute}"), minute)).unwrap();
    }
    let mut other_machine = run_at("elsewhere", 0);
    other_machine.header.machine.identity = "elsewhere".into();
    let mut thorough_run = run_at("thorough", 0);
    thorough_run.header.settings.mode = Name::new("thorough");
    for run in [other_machine, thorough_run] {
        store.insert(&run).unwrap();
    }
    store.update_tags("run-1", &[tag("release=1")], &[]).unwrap();
    store.set_note("run-2", "keep me").unwrap();
    let mut running = run_at("running", 0);
    running.header.started = "2026-02-01T09:00:00Z".into();
    store.recorder().event(&Event::Started(Box::new(running.header))).unwrap();

    let prune = PruneOptions { keep: 2, include_labelled: false, now: NOW };
    let prunable_ids = |prune| store.prunable(prune).unwrap().into_iter().map(|line| line.id).collect::<Vec<_>>();
    let expected = ["run-3", "run-4"];
    assert_eq!(prunable_ids(prune), expected);
    assert_eq!(prunable_ids(PruneOptions { include_labelled: true, ..prune }), ["run-1", "run-2", "run-3", "run-4"]);
    assert_eq!(prunable_ids(PruneOptions { now: NOW + WEEK, ..prune }), ["running", "run-3", "run-4"]);
    assert_eq!(prunable_ids(PruneOptions { keep: usize::MAX, ..prune }), [""; 0]);
    assert_eq!(ids(&store, &RunFilter::default()).len(), 9, "nothing is gone so far");

    let removed: Vec<String> = store.prune(prune).unwrap().into_iter().map(|line| line.id).collect();
    assert_eq!(removed, expected);
    let remaining = ["running", "elsewhere", "thorough", "run-1", "run-2", "run-5", "run-6"];
    assert_eq!(ids(&store, &RunFilter::default()), remaining);
    let labelled_run = Run { labels: kelvin_store::labels(&[tag("release=1")], None), ..run_at("run-1", 1) };
    assert_eq!(store.load("run-1").unwrap(), labelled_run);
    assert_eq!(store.prune(prune).unwrap(), []);
}

/// Whose runs teach: those of the machine and mode of the sample.
const SAMPLE_FILTER: HistoryFilter<'_> = HistoryFilter { machine: MACHINE, mode: Some("quick"), excluded: &[] };

fn run_is_copied_once_and_whole(factory: &StoreFactory) {
    let (source, target) = (factory.new_store(), factory.new_store());
    let run = run_at("copied", 1);
    source.insert(&run).unwrap();
    let headline = StoredHeadline {
        metric: Name::new("os.syscall.null"),
        version: 1,
        case: Case::new().with_word(AxisWord::from_names("call", "getppid")),
        value: 61.25,
        within_variance: 0.5,
    };
    let other_headline = StoredHeadline { case: Case::new(), value: 2.5, ..headline.clone() };
    source.record_headlines("copied", &[headline, other_headline]).unwrap();
    source.update_tags("copied", &[tag("kernel=6.18")], &[]).unwrap();
    let line = || source.list(&RunFilter::default()).unwrap().remove(0);
    assert_eq!(copy(&source, &target, &line()).unwrap(), InsertOutcome::New);
    let labelled_run = Run { labels: kelvin_store::labels(&[tag("kernel=6.18")], None), ..run };
    assert_eq!(target.load("copied").unwrap(), labelled_run);
    assert_eq!(labels(&target, "copied").0, "kernel=6.18");
    let history = |store: &Store| store.spread_history(&SAMPLE_FILTER, &sample_metrics(), 10).unwrap();
    assert_eq!(history(&target), history(&source));
    assert_eq!(history(&target).len(), 2);

    // Again: what it lacks is added, what it has stays.
    target.update_tags("copied", &[tag("kernel=6.19")], &[]).unwrap();
    source.update_tags("copied", &[tag("disk=nvme")], &[]).unwrap();
    source.set_note("copied", "said later").unwrap();
    assert_eq!(copy(&source, &target, &line()).unwrap(), InsertOutcome::AlreadyThere);
    assert_eq!(labels(&target, "copied"), ("disk=nvme kernel=6.19".into(), Some("said later".into())));
    assert_eq!(target.list(&RunFilter::default()).unwrap().len(), 1);
}

fn differing_or_damaged_run_is_not_copied(factory: &StoreFactory) {
    let (source, target) = (factory.new_store(), factory.new_store());
    source.insert(&run_at("a", 1)).unwrap();
    let mut other_run = run_at("a", 1);
    other_run.status = RunStatus::Partial("interrupted".into());
    target.insert(&other_run).unwrap();
    let line = source.list(&RunFilter::default()).unwrap().remove(0);
    let error = copy(&source, &target, &line).unwrap_err();
    assert!(matches!(&error, CopyError::Insert(InsertError::Differs { .. })) && !error.is_store_failure(), "{error}");
    assert_eq!(target.load("a").unwrap(), other_run);
    source.delete("a").unwrap();
    target.delete("a").unwrap();
    let missing_error = copy(&source, &target, &line).unwrap_err();
    assert_eq!(missing_error.to_string(), "no run is called \"a\" or begins with it; `kelvin runs list` lists them");
}

#[test]
fn pruned_runs_free_disk_space() {
    let factory = StoreFactory::file();
    let store = factory.new_store();
    let mut large = run_at("large", 1);
    // Text that zstd cannot shrink much.
    large.notes = (0..200_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string()).collect();
    store.insert(&large).unwrap();
    store.insert(&run_at("kept", 2)).unwrap();
    assert_eq!(store.prune(PruneOptions { keep: 1, include_labelled: false, now: NOW }).unwrap().len(), 1);
    store.reclaim().unwrap();
    let remaining_bytes = std::fs::metadata(store.name()).unwrap().len();
    assert!(remaining_bytes < 300_000, "{remaining_bytes} bytes are left");
}
