//! Tags and notes lead to runs and stay with them; old runs go and labelled ones stay; runs are copied once, with all that is theirs.

use crate::common::{MACHINE, sample_events, sample_metrics, sample_run};
use crate::stores::{Fresh, of_any_store};
use kelvin_model::{Case, Event, Headline, Name, Point, Run, RunStatus};
use kelvin_store::{CopyError, Filter, FindError, InsertError, Inserted, Kin, LabelError, Prune, Store, Tag, copy};

of_any_store! {
    tags_and_notes_are_set_replaced_and_removed,
    a_tag_names_the_runs_that_have_it,
    a_recorded_run_has_its_labels_from_the_beginning,
    old_runs_go_and_what_is_labelled_or_may_run_stays,
    a_run_is_copied_once_with_all_that_belongs_to_it,
    what_differs_or_is_damaged_is_not_copied,
}

/// A run that differs from the sample in its id and start.
fn run_at(id: &str, minute: u32) -> Run {
    let mut run = sample_run();
    run.outline.id = id.into();
    run.outline.started = format!("2026-02-01T10:{minute:02}:00Z");
    run
}

fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

fn ids(store: &Store, filter: &Filter) -> Vec<String> {
    store.list(filter).unwrap().into_iter().map(|line| line.id).collect()
}

/// The tags of a run in words, and its note.
fn labels(store: &Store, id: &str) -> (String, Option<String>) {
    let line = store.list(&Filter::default()).unwrap().into_iter().find(|line| line.id == id).unwrap();
    let tags: Vec<String> = line.labels.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (tags.join(" "), line.labels.note)
}

fn tags_and_notes_are_set_replaced_and_removed(fresh: &Fresh) {
    let store = fresh.store();
    for (id, minute) in [("a-1", 1), ("b-2", 2)] {
        store.insert(&run_at(id, minute)).unwrap();
    }
    assert_eq!(store.tag("a", &[tag("kernel=6.17"), tag("disk=nvme")], &[]).unwrap(), "a-1");
    store.tag("last~1", &[tag("kernel=6.18")], &["disk".into()]).unwrap();
    store.note("a-1", "first").unwrap();
    store.note("a-1", "after the update").unwrap();
    assert_eq!(labels(&store, "a-1"), ("kernel=6.18".into(), Some("after the update".into())));
    assert_eq!(labels(&store, "b-2"), (String::new(), None));
    store.note("a-1", "").unwrap();
    assert_eq!(labels(&store, "a-1").1, None);

    // All or nothing.
    let error = store.tag("a-1", &[tag("x=1")], &["kernel".into(), "disk".into()]).unwrap_err();
    assert!(matches!(error, LabelError::NoSuchTag { .. }));
    assert_eq!(error.to_string(), "run a-1 has no tag disk");
    assert_eq!(labels(&store, "a-1").0, "kernel=6.18");
    assert!(matches!(store.tag("c", &[tag("x=1")], &[]), Err(LabelError::Find(FindError::None { .. }))));
    store.delete("a-1").unwrap();
    assert!(matches!(store.find("tag:kernel=6.18"), Err(FindError::NoneTagged(_))));
}

fn a_tag_names_the_runs_that_have_it(fresh: &Fresh) {
    let store = fresh.store();
    for (id, minute) in [("c", 3), ("a", 1), ("b", 2)] {
        store.insert(&run_at(id, minute)).unwrap();
    }
    for id in ["a", "c"] {
        store.tag(id, &[tag("kernel=6.18"), tag(&format!("only={id}"))], &[]).unwrap();
    }
    store.tag("b", &[tag("kernel=6.17")], &[]).unwrap();
    assert_eq!(store.find_all("tag:kernel=6.18").unwrap(), ["a", "c"]);
    assert_eq!(store.find_all("last").unwrap(), ["c"]);
    assert_eq!(store.find("tag:kernel=6.17").unwrap(), "b");
    assert_eq!(store.load("tag:only=a").unwrap().outline.id, "a");
    let says = |name: &str| store.find(name).unwrap_err().to_string();
    assert_eq!(says("tag:kernel=6.18"), "\"tag:kernel=6.18\" could be c, a");
    assert_eq!(says("tag:kernel=6.1"), "no run has the tag kernel=6.1");
    assert_eq!(says("tag:kernel"), "\"tag:kernel\": a tag is NAME=VALUE, such as kernel=6.18");
    let tagged =
        |tags: &[&str]| ids(&store, &Filter { tags: tags.iter().map(|text| tag(text)).collect(), ..Filter::default() });
    assert_eq!(tagged(&["kernel=6.18"]), ["a", "c"]);
    assert_eq!(tagged(&["kernel=6.18", "only=c"]), ["c"]);
    assert_eq!(tagged(&["kernel=6.17", "only=c"]), [""; 0]);
}

fn a_recorded_run_has_its_labels_from_the_beginning(fresh: &Fresh) {
    let store = fresh.store();
    let mut recorder = store.recorder().labelled(kelvin_store::labels(&[tag("a=1"), tag("a=2")], Some("why")));
    recorder.event(&sample_events()[0]).unwrap();
    assert_eq!(labels(&store, &sample_run().outline.id), ("a=2".into(), Some("why".into())));
}

/// Microseconds since 1970 of 2026-02-01T11:00:00Z.
const NOW: i64 = 1_769_943_600_000_000;
const WEEK: i64 = 7 * 24 * 3600 * 1_000_000;

fn old_runs_go_and_what_is_labelled_or_may_run_stays(fresh: &Fresh) {
    let store = fresh.store();
    for minute in 1..=6 {
        store.insert(&run_at(&format!("run-{minute}"), minute)).unwrap();
    }
    let mut elsewhere = run_at("elsewhere", 0);
    elsewhere.outline.machine.identity = "elsewhere".into();
    let mut thorough = run_at("thorough", 0);
    thorough.outline.settings.mode = Name::new("thorough");
    for run in [elsewhere, thorough] {
        store.insert(&run).unwrap();
    }
    store.tag("run-1", &[tag("release=1")], &[]).unwrap();
    store.note("run-2", "keep me").unwrap();
    let mut running = run_at("running", 0);
    running.outline.started = "2026-02-01T09:00:00Z".into();
    store.recorder().event(&Event::Started(Box::new(running.outline))).unwrap();

    let prune = Prune { keep: 2, labelled_too: false, now: NOW };
    let chosen = |prune| store.prunable(prune).unwrap().into_iter().map(|line| line.id).collect::<Vec<_>>();
    let wanted = ["run-3", "run-4"];
    assert_eq!(chosen(prune), wanted);
    assert_eq!(chosen(Prune { labelled_too: true, ..prune }), ["run-1", "run-2", "run-3", "run-4"]);
    assert_eq!(chosen(Prune { now: NOW + WEEK, ..prune }), ["running", "run-3", "run-4"]);
    assert_eq!(chosen(Prune { keep: usize::MAX, ..prune }), [""; 0]);
    assert_eq!(ids(&store, &Filter::default()).len(), 9, "nothing is gone so far");

    let removed: Vec<String> = store.prune(prune).unwrap().into_iter().map(|line| line.id).collect();
    assert_eq!(removed, wanted);
    let left = ["running", "elsewhere", "thorough", "run-1", "run-2", "run-5", "run-6"];
    assert_eq!(ids(&store, &Filter::default()), left);
    let tagged = Run { labels: kelvin_store::labels(&[tag("release=1")], None), ..run_at("run-1", 1) };
    assert_eq!(store.load("run-1").unwrap(), tagged);
    assert_eq!(store.prune(prune).unwrap(), []);
}

/// Whose runs teach: those of the machine and mode of the sample.
const KIN: Kin<'_> = Kin { machine: MACHINE, mode: Some("quick"), but: &[] };

fn a_run_is_copied_once_with_all_that_belongs_to_it(fresh: &Fresh) {
    let (from, to) = (fresh.store(), fresh.store());
    let run = run_at("copied", 1);
    from.insert(&run).unwrap();
    let headline = Headline {
        metric: Name::new("os.syscall.null"),
        version: 1,
        case: Case::new().at(Point::named("call", "getppid")),
        value: 61.25,
        within_variance: 0.5,
    };
    let other = Headline { case: Case::new(), value: 2.5, ..headline.clone() };
    from.record_headlines("copied", &[headline, other]).unwrap();
    from.tag("copied", &[tag("kernel=6.18")], &[]).unwrap();
    let line = || from.list(&Filter::default()).unwrap().remove(0);
    assert_eq!(copy(&from, &to, &line()).unwrap(), Inserted::New);
    let tagged = Run { labels: kelvin_store::labels(&[tag("kernel=6.18")], None), ..run };
    assert_eq!(to.load("copied").unwrap(), tagged);
    assert_eq!(labels(&to, "copied").0, "kernel=6.18");
    let learned = |store: &Store| store.learned(&KIN, &sample_metrics(), 10).unwrap();
    assert_eq!(learned(&to), learned(&from));
    assert_eq!(learned(&to).len(), 2);

    // Again: what it lacks is added, what it has stays.
    to.tag("copied", &[tag("kernel=6.19")], &[]).unwrap();
    from.tag("copied", &[tag("disk=nvme")], &[]).unwrap();
    from.note("copied", "said later").unwrap();
    assert_eq!(copy(&from, &to, &line()).unwrap(), Inserted::AlreadyThere);
    assert_eq!(labels(&to, "copied"), ("disk=nvme kernel=6.19".into(), Some("said later".into())));
    assert_eq!(to.list(&Filter::default()).unwrap().len(), 1);
}

fn what_differs_or_is_damaged_is_not_copied(fresh: &Fresh) {
    let (from, to) = (fresh.store(), fresh.store());
    from.insert(&run_at("a", 1)).unwrap();
    let mut other = run_at("a", 1);
    other.status = RunStatus::Partial("interrupted".into());
    to.insert(&other).unwrap();
    let line = from.list(&Filter::default()).unwrap().remove(0);
    let error = copy(&from, &to, &line).unwrap_err();
    assert!(matches!(&error, CopyError::Insert(InsertError::Differs { .. })) && !error.is_of_store(), "{error}");
    assert_eq!(to.load("a").unwrap(), other);
    from.delete("a").unwrap();
    to.delete("a").unwrap();
    let gone = copy(&from, &to, &line).unwrap_err();
    assert_eq!(gone.to_string(), "no run is called \"a\" or begins with it");
}

#[test]
fn pruned_runs_give_their_space_back() {
    let fresh = Fresh::file();
    let store = fresh.store();
    let mut large = run_at("large", 1);
    // Text that zstd cannot shrink much.
    large.notes = (0..200_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string()).collect();
    store.insert(&large).unwrap();
    store.insert(&run_at("kept", 2)).unwrap();
    assert_eq!(store.prune(Prune { keep: 1, labelled_too: false, now: NOW }).unwrap().len(), 1);
    store.reclaim().unwrap();
    let left = std::fs::metadata(store.name()).unwrap().len();
    assert!(left < 300_000, "{left} bytes are left");
}
