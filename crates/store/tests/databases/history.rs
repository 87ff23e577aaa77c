//! Histories: which runs and values are read, in which order, and what is damaged.

use crate::common::{sample_header, sample_run};
use crate::stores::{StoreFactory, of_any_store};
use kelvin_core::{Case, Name, Run, RunStatus, StoredHeadline};
use kelvin_store::Store;

struct HistoryStore {
    store: Store,
}

impl HistoryStore {
    fn new(factory: &StoreFactory) -> Self {
        Self { store: factory.new_store() }
    }

    /// A run at a minute, with figures of metrics at versions of their methods.
    fn insert_run(&self, (machine, mode): (&str, &str), minute: u32, figures: &[(&'static str, u32, f64)]) {
        let mut header = sample_header(&format!("{machine}-{minute:02}"));
        header.started = format!("2026-01-31T12:{minute:02}:00Z");
        header.machine.identity = machine.into();
        header.settings.mode = Name::intern(mode);
        header.plan.clear();
        let mut run = Run::from_header(header);
        run.status = RunStatus::Complete;
        self.store.insert(&run).unwrap();
        let headline = |&(metric, version, value): &(&'static str, u32, f64)| StoredHeadline {
            metric: Name::new(metric),
            version,
            case: Case::new().with_number("n", 1),
            value,
            within_variance: 0.25,
        };
        let headlines: Vec<StoredHeadline> = figures.iter().map(headline).collect();
        self.store.record_headlines(&run.header.id, &headlines).unwrap();
    }
}

of_any_store! {
    values_are_in_time_order,
    machines_are_listed_newest_first,
    latest_value_of_other_machines_counts,
}

/// A metric, the version of its method, and its values by run.
type SeriesRead = (String, u32, Vec<(usize, f64)>);

fn any_metric(_: &str) -> bool {
    true
}

fn values_are_in_time_order(factory: &StoreFactory) {
    let history = HistoryStore::new(factory);
    let machine_mode = ("m1", "quick");
    history.insert_run(machine_mode, 9, &[("os.b", 2, 9.0), ("os.a", 1, 90.0)]);
    history.insert_run(machine_mode, 3, &[("os.b", 1, 3.0)]);
    history.insert_run(machine_mode, 5, &[("os.b", 2, 5.0)]);
    history.insert_run(("m2", "quick"), 6, &[("os.b", 2, 600.0)]);
    history.insert_run(("m1", "default"), 7, &[("os.b", 2, 700.0)]);
    let runs = history.store.history_runs(&["m1".into()], "quick", 10).unwrap();
    assert_eq!(runs.iter().map(|run| run.id.as_str()).collect::<Vec<&str>>(), ["m1-03", "m1-05", "m1-09"]);
    let read_series = |is_requested: &dyn Fn(&str) -> bool| -> Vec<SeriesRead> {
        let series = history.store.series_values(&runs, is_requested).unwrap().into_iter();
        let values = |stored_series: &kelvin_store::StoredSeries| {
            stored_series.values.iter().map(|value| (value.run, value.value)).collect()
        };
        series
            .map(|stored_series| (stored_series.metric.to_string(), stored_series.version, values(&stored_series)))
            .collect()
    };
    let b = [("os.b".to_owned(), 1, vec![(0, 3.0)]), ("os.b".to_owned(), 2, vec![(1, 5.0), (2, 9.0)])];
    assert_eq!(read_series(&|metric| metric == "os.b"), b);
    assert_eq!(read_series(&any_metric)[0], ("os.a".to_owned(), 1, vec![(2, 90.0)]));
    // The newest of them only.
    assert_eq!(history.store.history_runs(&["m1".into()], "quick", 2).unwrap()[0].id, "m1-05");
    let merged_runs = history.store.history_runs(&["m1".into(), "m2".into()], "quick", 9).unwrap();
    assert_eq!(
        merged_runs.iter().map(|run| run.id.as_str()).collect::<Vec<&str>>(),
        ["m1-03", "m1-05", "m2-06", "m1-09"]
    );
}

fn machines_are_listed_newest_first(factory: &StoreFactory) {
    let history = HistoryStore::new(factory);
    history.insert_run(("m1", "quick"), 1, &[("os.a", 1, 1.0)]);
    history.insert_run(("m1", "quick"), 2, &[("os.a", 1, 2.0)]);
    history.insert_run(("m2", "default"), 3, &[("os.a", 1, 3.0)]);
    history.insert_run(("m3", "quick"), 4, &[]);
    // A partial run has no figures that count.
    history.store.insert(&Run { status: RunStatus::Partial("killed".into()), ..sample_run() }).unwrap();
    let machines = history.store.machines().unwrap();
    let rows: Vec<(&str, &str, usize, &str)> = machines
        .iter()
        .map(|machine| (machine.machine.as_str(), machine.mode.as_str(), machine.runs, machine.newest.as_str()))
        .collect();
    assert_eq!(rows, [("m2", "default", 1, "m2-03"), ("m1", "quick", 2, "m1-02")]);
    let header = history.store.header_of("m2-03").unwrap();
    assert_eq!((header.id.as_str(), header.machine.identity.as_str()), ("m2-03", "m2"));
    assert!(history.store.header_of("m2").is_err(), "an id, and no beginning of one");
}

fn latest_value_of_other_machines_counts(factory: &StoreFactory) {
    let history = HistoryStore::new(factory);
    history.insert_run(("m1", "quick"), 1, &[("os.a", 1, 1.0), ("os.b", 1, 10.0)]);
    history.insert_run(("m1", "quick"), 2, &[("os.a", 1, 2.0)]);
    history.insert_run(("m2", "quick"), 3, &[("os.a", 1, 3.0)]);
    history.insert_run(("m2", "default"), 4, &[("os.a", 1, 4.0)]);
    let machines = [vec!["m1".to_owned()], vec!["m2".to_owned(), "m9".to_owned()]];
    let latest = history.store.latest_values(&machines, "quick", &any_metric).unwrap();
    let latest_of =
        |metric: &'static str| latest.get(&(Name::new(metric), 1, Case::new().with_number("n", 1))).cloned();
    assert_eq!((latest_of("os.a"), latest_of("os.b")), (Some(vec![2.0, 3.0]), Some(vec![10.0])));
    assert!(history.store.latest_values(&[], "quick", &any_metric).unwrap().is_empty());
}

/// A store may come from anybody.
#[test]
fn damaged_series_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("runs.sqlite");
    let history = HistoryStore { store: Store::open(file.as_path()).unwrap() };
    history.insert_run(("m1", "quick"), 1, &[("os.a", 1, 1.0)]);
    let runs = history.store.history_runs(&["m1".into()], "quick", 1).unwrap();
    let damage = |sql: &str| rusqlite::Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    let assert_error = |part: &str| {
        let error = history.store.series_values(&runs, &any_metric).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("is damaged"), "{error}");
    };
    damage("UPDATE headline SET value = 9e999");
    assert_error("a value");
    damage("UPDATE headline SET value = 1; UPDATE series SET axes = '[1'");
    assert_error("the case");
    damage("UPDATE series SET axes = '{}', metric = 'os a'");
    assert_error("the metric");
    damage("UPDATE series SET metric = 'os.a'");
    assert_eq!(history.store.series_values(&runs, &any_metric).unwrap()[0].values[0].value, 1.0);
}
