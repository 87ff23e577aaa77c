//! Fleets: which runs are selected, and that headlines come with their run and series from any store.

use std::collections::HashMap;

use crate::common::sample_header;
use crate::stores::{StoreFactory, of_any_store};
use kelvin_core::{Case, Name, Run, RunStatus, StoredHeadline};
use kelvin_store::{RunSelection, Store, labels};

of_any_store! {
    selections_of_runs,
    headlines_come_by_run_and_series,
    deleted_run_is_named,
}

/// A run of a host at a minute, with a tag and one headline of each number.
fn insert_run(store: &Store, host: &str, minute: u32, values: &[(u64, f64)]) -> String {
    let mut header = sample_header(&format!("{host}-{minute:02}"));
    header.started = format!("2026-01-31T12:{minute:02}:00Z");
    header.machine.identity = host.into();
    header.plan.clear();
    let mut run = Run::from_header(header);
    run.status = RunStatus::Complete;
    run.labels = labels(&["node=".to_owned() + host, "fleet=x".into()].map(|tag| tag.parse().unwrap()), None);
    store.insert(&run).unwrap();
    let headline = |&(number, value): &(u64, f64)| StoredHeadline {
        metric: Name::new("os.a"),
        version: 2,
        case: Case::new().with_number("n", number),
        value,
        within_variance: 0.25,
    };
    let headlines: Vec<StoredHeadline> = values.iter().map(headline).collect();
    store.record_headlines(&run.header.id, &headlines).unwrap();
    run.header.id
}

fn selections_of_runs(factory: &StoreFactory) {
    let store = factory.new_store();
    for (minute, host) in [(1, "h1"), (2, "h2"), (3, "h1")] {
        insert_run(&store, host, minute, &[(1, 1.0)]);
    }
    insert_run(&store, "h3", 4, &[]);
    store.update_tags("h2-02", &["rack=b".parse().unwrap()], &[]).unwrap();
    let ids = |selection: &RunSelection| -> Vec<String> {
        store.fleet_runs(selection).unwrap().into_iter().map(|run| run.id).collect()
    };
    assert_eq!(ids(&RunSelection::All), ["h1-01", "h2-02", "h1-03"], "a run without headlines is none");
    assert_eq!(ids(&RunSelection::Tag("rack=b".parse().unwrap())), ["h2-02"]);
    assert_eq!(ids(&RunSelection::Range("h2-02".into(), "h1-03".into())), ["h2-02", "h1-03"]);
    let runs = store.fleet_runs(&RunSelection::All).unwrap();
    let headers = store.fleet_headers(&[&runs[2], &runs[1]]).unwrap();
    assert_eq!([&headers[0], &headers[1]].map(|header| header.machine.identity.as_str()), ["h1", "h2"]);
    assert_eq!(headers[0].metrics[..], sample_header("x").metrics);
    // More than one statement reads.
    let repeated: Vec<_> = std::iter::repeat_n(&runs[2], 1000).chain([&runs[1]]).collect();
    let headers = store.fleet_headers(&repeated).unwrap();
    assert_eq!(headers.len(), 1001);
    assert_eq!([&headers[999], &headers[1000]].map(|header| header.machine.identity.as_str()), ["h1", "h2"]);
    assert!(headers[1000].tags.contains(&("rack".into(), "b".into())) && headers[1000].tags.len() == 3);
}

fn headlines_come_by_run_and_series(factory: &StoreFactory) {
    let store = factory.new_store();
    insert_run(&store, "h1", 1, &[(1, 1.5), (2, 2.5)]);
    insert_run(&store, "h2", 2, &[(2, 4.5)]);
    insert_run(&store, "h3", 3, &[(1, 9.0)]);
    let runs = store.fleet_runs(&RunSelection::Range("h1-01".into(), "h2-02".into())).unwrap();
    let series = store.fleet_series(&runs, &HashMap::from([("os.a".to_owned(), 2)])).unwrap();
    let case = |number| (Name::new("os.a"), 2, Case::new().with_number("n", number));
    assert_eq!(series.iter().map(|series| series.id.clone()).collect::<Vec<_>>(), [case(1), case(2)]);
    assert_eq!(series[1].values, [2.5, 4.5]);
    assert!(series[0].values[0] == 1.5 && series[0].values[1].is_nan(), "{:?}", series[0].values);
    assert!(store.fleet_series(&runs, &HashMap::from([("os.a".to_owned(), 1)])).unwrap().is_empty(), "another version");
    assert!(store.fleet_series(&[], &HashMap::from([("os.a".to_owned(), 2)])).unwrap().is_empty());
}

fn deleted_run_is_named(factory: &StoreFactory) {
    let store = factory.new_store();
    insert_run(&store, "h1", 1, &[(1, 1.5)]);
    let runs = store.fleet_runs(&RunSelection::All).unwrap();
    store.delete("h1-01").unwrap();
    let error = store.fleet_headers(&[&runs[0]]).unwrap_err();
    assert!(error.to_string().contains("h1-01"), "{error}");
}
