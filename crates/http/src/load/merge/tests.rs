//! Merged loads against the load of one generator that has all requests; what is refused; and files of hostile authors.

use kelvin_core::load::LoadResult;
use kelvin_stats::Histogram;
use kelvin_sys::random::split_mix;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::load::document::{DocumentError, LOAD_FORMAT};
use crate::load::measured_load::{MergeData, ScheduleMode, ShareOfHosts};
use crate::load::schedule::TimeDistribution;

/// Mutated files that are tried.
const FUZZ_CASES: u64 = 5_000;

fn histogram_of(times: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    times.iter().for_each(|&time| histogram.record(time));
    histogram
}

/// What a generator of this name has measured from this second on for two: answers after these times, half of them in each second.
fn document(id: &str, start: i64, times: &[u64]) -> LoadDocument<LoadSequence> {
    let histogram = histogram_of(times);
    let summary = latency_summary(&histogram);
    let count = times.len() as u64;
    let second = |requests| SecondResult { requests, bytes: 10 * requests, ..SecondResult::default() };
    let mut result = LoadResult {
        offered: OfferedLoad::Rate { rate: 100.0, due: 100.0, delayed: 1 },
        seconds: 2.0,
        answer_seconds: 2.0,
        requests: count,
        bytes: 10 * count,
        response: summary,
        service: summary,
        in_flight: Some(0.5),
        connections: 3,
        series: vec![second(count / 2), second(count - count / 2)],
        ..LoadResult::empty("http://server/")
    };
    result.errors.status.insert(503, 2);
    let schedule = Schedule {
        mode: ScheduleMode::OpenLoop,
        distribution: Some(TimeDistribution::Constant),
        connections: 1000,
        threads: 1,
        share: None,
        warm_up_seconds: 0.2,
        duration_seconds: 2.0,
        requests: None,
        closes_connections: false,
        seed: 1,
        method: "GET".into(),
        paths: 1,
    };
    let histograms =
        LatencyHistograms { response: histogram.clone(), service: histogram, ..LatencyHistograms::default() };
    let start = Timestamp::from_second(start).unwrap();
    let origin = GeneratorOrigin {
        load_format: LOAD_FORMAT,
        id: id.into(),
        kelvin_version: "0.1.0".into(),
        host: None,
        tags: BTreeMap::from([("node".into(), id.into())]),
        clock: ClockState { max_error: Some(1e6), ..ClockState::default() },
    };
    let merge_data = MergeData { start, scheduled_start: None, schedule, histograms };
    LoadDocument { origin, loads: LoadSequence { loads: vec![MeasuredLoad { result, merge_data }] } }
}

/// The document of a single load as it is printed.
fn printed(document: &LoadDocument<LoadSequence>) -> Value {
    let LoadDocument { origin, loads } = document.clone();
    serde_json::to_value(LoadDocument { origin, loads: loads.loads[0].clone() }).unwrap()
}

fn merged(documents: &[LoadDocument<LoadSequence>]) -> Result<MergedLoad, MergeError> {
    let mut merger = LoadMerger::new(false);
    documents.iter().zip(0..).try_for_each(|(document, number)| merger.add(&format!("dir/{number}.json"), document))?;
    Ok(merger.finish().pop().unwrap())
}

/// The error of a file after a right one.
fn refusal(change: impl FnOnce(&mut LoadDocument<LoadSequence>)) -> String {
    let mut changed = document("b", 100, &[5, 6]);
    change(&mut changed);
    merged(&[document("a", 100, &[5, 6]), changed]).unwrap_err().to_string()
}

#[test]
fn counts_are_added_and_shares_are_of_all() {
    let load = merged(&[document("a", 100, &[1000; 300]), document("b", 100, &[2000; 100])]).unwrap();
    assert_eq!((load.requests, load.bytes, load.connections, load.errors.status[&503]), (400, 4000, 6, 4));
    assert_eq!(load.offered, OfferedLoad::Rate { rate: 200.0, due: 200.0, delayed: 2 });
    assert_eq!(load.in_flight, Some(1.0));
    let [a, b] = &load.generators[..] else { panic!("{load:?}") };
    assert_eq!((a.name.as_str(), a.share, a.rate, b.share, b.rate), ("a", 0.75, 150.0, 0.25, 50.0));
    let common = load.common.as_ref().unwrap();
    assert_eq!((common.seconds, common.rate, common.byte_rate), (2.0, 200.0, 2000.0));
    let response = load.response.unwrap();
    assert_eq!((response.count, response.p50, response.p99), (400, 1000.0, 2000.0));
    assert_eq!((load.figures().failed_requests, load.figures().rate), (4, Some(200.0)));
}

/// The second of two began a second after the first: only one of its seconds is common, with a third of the first one's rate.
#[test]
fn rates_are_those_of_the_common_time() {
    let load = merged(&[document("a", 100, &[1000; 300]), document("b", 101, &[1000; 100])]).unwrap();
    let common = load.common.as_ref().unwrap();
    assert_eq!((common.seconds, common.rate, load.seconds), (1.0, 150.0 + 50.0, 3.0));
    assert_eq!(common.start, Timestamp::from_second(101).unwrap());
    let offsets: Vec<(f64, f64)> = load.generators.iter().map(|share| (share.start_offset, share.end_offset)).collect();
    assert_eq!(offsets, [(-0.5, -0.5), (0.5, 0.5)]);
    let figures: Vec<StragglerFigure> = load.stragglers.iter().map(|straggler| straggler.figure).collect();
    let of_two = |figure| [figure, figure];
    assert_eq!(
        figures,
        [of_two(StragglerFigure::Rate), of_two(StragglerFigure::Start), of_two(StragglerFigure::End)].concat()
    );
    let apart = merged(&[document("a", 100, &[1000; 300]), document("b", 102, &[1000; 100])]).unwrap();
    assert_eq!((&apart.common, apart.seconds, apart.figures().rate), (&None, 4.0, None));
    assert!(apart.generators.iter().all(|share| share.common_rate.is_none()));
}

#[test]
fn straggler_is_named_by_each_figure() {
    let mut documents: Vec<_> =
        (0..6).map(|number| document(&format!("n{number}"), 100, &vec![1_000_000; 2000])).collect();
    assert_eq!(merged(&documents).unwrap().stragglers, []);
    documents[4] = document("n4", 101, &vec![1_600_000; 1800]);
    let load = merged(&documents).unwrap();
    assert!(load.stragglers.iter().all(|straggler| straggler.generator == "n4"), "{:?}", load.stragglers);
    let figures: Vec<StragglerFigure> = load.stragglers.iter().map(|straggler| straggler.figure).collect();
    let all = [
        StragglerFigure::Rate,
        StragglerFigure::Start,
        StragglerFigure::End,
        StragglerFigure::P50,
        StragglerFigure::P99,
    ];
    assert_eq!(figures, all);
    let rate = &load.stragglers[0];
    assert_eq!((rate.value, rate.peers, rate.deviations), (9.0, 10.0, None));
}

#[test]
fn generators_of_one_name_are_named_by_file() {
    let mut documents = [document("a", 100, &[1]), document("b", 100, &[1]), document("c", 100, &[1])];
    documents[1].origin.tags.insert("node".into(), "a".into());
    documents[2].origin.tags.clear();
    let names: Vec<String> = merged(&documents).unwrap().generators.into_iter().map(|share| share.name).collect();
    assert_eq!(names, ["dir/0.json", "dir/1.json", "2"]);
}

#[test]
fn other_loads_are_refused() {
    let again = refusal(|other| other.origin.id = "a".into());
    assert_eq!(again, "it is the same result as dir/0.json: give each result once");
    let closed = refusal(|other| {
        other.loads.loads[0].result.offered = OfferedLoad::Users { users: 2, think: 0.0 };
        other.loads.loads[0].merge_data.schedule.mode = ScheduleMode::ClosedLoop;
    });
    assert!(
        closed.starts_with("its load is of users without think time, GET, and that of dir/0.json is at a rate"),
        "{closed}"
    );
    let exponential = |other: &mut LoadDocument<LoadSequence>| {
        other.loads.loads[0].merge_data.schedule.distribution = Some(TimeDistribution::Exponential);
    };
    assert!(refusal(exponential).contains("at a rate with exponential times between requests"));
    let post = refusal(|other| other.loads.loads[0].merge_data.schedule.method = "POST".into());
    assert!(post.contains("POST"), "{post}");
    let share =
        refusal(|other| other.loads.loads[0].merge_data.schedule.share = Some(ShareOfHosts { number: 1, of: 4 }));
    assert!(share.contains("in 4 shares with --seed 1"), "{share}");
    let target = refusal(|other| other.loads.loads[0].result.target = "http://other/".into());
    assert!(
        target.ends_with("http://other/, and that of dir/0.json is http://server/: --different-targets allows that"),
        "{target}"
    );
    let count = refusal(|other| other.loads.loads.extend(other.loads.loads.clone()));
    assert!(count.starts_with("it has 2 loads and dir/0.json has 1"), "{count}");
    assert!(refusal(|other| other.loads.loads.clear()).contains("loads: there must be at least one"));
}

#[test]
fn different_targets_merge_when_allowed() {
    let mut other = document("b", 100, &[5]);
    other.loads.loads[0].result.target = "http://other/".into();
    let mut merger = LoadMerger::new(true);
    merger.add("a", &document("a", 100, &[5])).unwrap();
    merger.add("b", &other).unwrap();
    assert_eq!(merger.finish()[0].targets, ["http://server/", "http://other/"]);
}

#[test]
fn shares_of_hosts_are_each_counted_once() {
    let shared = |id, number| {
        let mut document = document(id, 100, &[5]);
        document.loads.loads[0].merge_data.schedule.share = Some(ShareOfHosts { number, of: 3 });
        document
    };
    assert_eq!(merged(&[shared("a", 1), shared("b", 3)]).unwrap().missing_shares(), 1);
    assert_eq!(merged(&[shared("a", 1), shared("b", 2), shared("c", 3)]).unwrap().missing_shares(), 0);
    let error = merged(&[shared("a", 2), shared("b", 2)]).unwrap_err().to_string();
    assert_eq!(error, "it is share 2 of 3, as dir/0.json is: each host has a share of its own");
}

#[test]
fn impossible_figures_are_refused() {
    let result = |change: fn(&mut LoadResult)| refusal(|other| change(&mut other.loads.loads[0].result));
    for (error, expected) in [
        (result(|load| load.seconds = -1.0), "seconds: it must be from 0"),
        (result(|load| load.answer_seconds = 1e12), "answer_seconds: it must be from 0"),
        (result(|load| load.requests = u64::MAX), "requests: it must be at most"),
        (result(|load| load.errors.connect = u64::MAX), "errors: it must be at most"),
        (result(|load| load.bytes = u64::MAX), "too large to be added"),
        (result(|load| load.in_flight = Some(-1.0)), "in_flight: it must be from 0"),
        (result(|load| load.offered = OfferedLoad::Users { users: 1, think: 0.0 }), "schedule.mode: "),
        (result(|load| load.response.count = 3), "histograms.response: it has 2 times, and its summary 3"),
        (result(|load| load.target = "x".repeat(20_000)), "a text has more than"),
        (refusal(|other| other.origin.id.clear()), "id: it must not be empty"),
    ] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

fn parse_error(value: &Value) -> DocumentError {
    LoadDocument::parse(value.to_string().as_bytes()).unwrap_err()
}

#[test]
fn printed_document_returns() {
    let original = document("a", 100, &[1, 1000, 5_000_000]);
    assert_eq!(LoadDocument::parse(printed(&original).to_string().as_bytes()).unwrap(), original);
    let several = serde_json::to_vec_pretty(&original).unwrap();
    assert_eq!(LoadDocument::parse(&several).unwrap(), original);
}

#[test]
fn foreign_document_is_refused_with_its_reason() {
    let valid = printed(&document("a", 100, &[1]));
    let changed = |field: &str, value: Value| {
        let mut document = valid.clone();
        document[field] = value;
        parse_error(&document)
    };
    assert!(matches!(LoadDocument::parse(b"").unwrap_err(), DocumentError::Foreign));
    assert!(matches!(LoadDocument::parse(b"{\"seconds\": NaN}").unwrap_err(), DocumentError::Foreign));
    assert!(matches!(parse_error(&json!([1])), DocumentError::Foreign));
    assert!(matches!(parse_error(&json!({"loads": []})), DocumentError::WithoutHistograms));
    assert!(matches!(changed("load_format", json!(2)), DocumentError::Newer(2)));
    assert!(matches!(changed("load_format", json!("1")), DocumentError::Foreign));
    assert!(matches!(changed("load_merge_format", json!(1)), DocumentError::Merged));
    assert!(matches!(changed("tries", json!([])), DocumentError::Search));
    for (field, value) in [
        ("requests", json!(-1)),
        ("requests", json!(1e30)),
        ("seconds", json!("2")),
        ("start", json!("yesterday")),
        ("histograms", json!({"response": "HIST"})),
        ("loads", json!(5)),
    ] {
        assert!(matches!(changed(field, value.clone()), DocumentError::Invalid(_)), "{field} {value}");
    }
}

proptest! {
    /// Samples over several generators, written and read again, have the figures of one generator that has all of them.
    #[test]
    fn merge_equals_one_generator_with_all_samples(
        samples in prop::collection::vec((0usize..4, prop_oneof![0u64..5_000_000, 0u64..1 << 43]), 1..300),
    ) {
        let times_of = |generator: usize| -> Vec<u64> {
            samples.iter().filter(|sample| sample.0 == generator).map(|&(_, time)| time).collect()
        };
        let documents: Vec<_> = (0..4)
            .map(|generator| document(&format!("n{generator}"), 100, &times_of(generator)))
            .map(|document| LoadDocument::parse(printed(&document).to_string().as_bytes()).unwrap())
            .collect();
        let load = merged(&documents).unwrap();
        let all = histogram_of(&samples.iter().map(|&(_, time)| time).collect::<Vec<_>>());
        prop_assert_eq!(&load.histograms.response, &all);
        prop_assert_eq!(load.response, Some(latency_summary(&all)));
        prop_assert_eq!(load.service, Some(latency_summary(&all)));
        prop_assert_eq!(load.requests, samples.len() as u64);
        for share in [0.1, 0.5, 0.9, 0.99, 0.9999] {
            prop_assert_eq!(load.histograms.response.quantile(share), all.quantile(share));
        }
    }
}

/// Values that a hostile author may write.
fn hostile_value(state: &mut u64) -> Value {
    const HUGE: &str = "HISTFAAAACl4nJNpmSzMwMDAwQABzFCaEch0M9ixgMH+A0SA6Sw/y9FfzEwAffwG+Q==";
    match split_mix(state) % 12 {
        0 => json!(null),
        1 => json!(-1),
        2 => json!(u64::MAX),
        3 => json!(1e300),
        4 => json!(""),
        5 => json!(HUGE),
        6 => json!([]),
        7 => json!({}),
        8 => json!(true),
        9 => json!("9999-12-30T22:00:00Z"),
        10 => json!(1u64 << 47),
        _ => json!(split_mix(state)),
    }
}

/// Replaces one value, wherever it is.
fn mutate(value: &mut Value, state: &mut u64) {
    let is_here = split_mix(state).is_multiple_of(4);
    match value {
        Value::Object(fields) if !is_here && !fields.is_empty() => {
            let index = (split_mix(state) % fields.len() as u64) as usize;
            if let Some((_, field)) = fields.iter_mut().nth(index) {
                mutate(field, state);
            }
        }
        Value::Array(items) if !is_here && !items.is_empty() => {
            let index = (split_mix(state) % items.len() as u64) as usize;
            mutate(&mut items[index], state);
        }
        value => *value = hostile_value(state),
    }
}

/// No file makes the merge panic, and each error is one line. What is taken can be written and read again.
#[test]
fn hostile_files_are_merged_or_refused() {
    let factor: u64 = std::env::var("KELVIN_FUZZ_TIMES").map_or(1, |factor| factor.parse().unwrap());
    let valid = document("b", 100, &[1, 1000, 5_000_000]);
    let first = document("a", 100, &[7, 9]);
    let (text, tree) = (serde_json::to_vec(&valid).unwrap(), printed(&valid));
    let (mut state, mut merges) = (0x6b65_6c76_696e, 0u64);
    for case in 0..FUZZ_CASES * factor {
        let bytes = if case % 2 == 0 {
            let mut tree = tree.clone();
            (0..=split_mix(&mut state) % 3).for_each(|_| mutate(&mut tree, &mut state));
            tree.to_string().into_bytes()
        } else {
            let mut bytes = text.clone();
            for _ in 0..=split_mix(&mut state) % 4 {
                let index = (split_mix(&mut state) % bytes.len().max(1) as u64) as usize;
                match split_mix(&mut state) % 3 {
                    0 => bytes.truncate(index),
                    1 => bytes.extend_from_within(index..),
                    _ if bytes.is_empty() => {}
                    _ => bytes[index] ^= 1 << (split_mix(&mut state) % 8),
                }
                bytes.truncate(1 << 16);
            }
            bytes
        };
        let document = match LoadDocument::parse(&bytes) {
            Ok(document) => document,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{case}: {error}");
                continue;
            }
        };
        match merged(&[first.clone(), document]) {
            Ok(load) => {
                merges += 1;
                let text = serde_json::to_string(&load).unwrap();
                assert!(serde_json::from_str::<Value>(&text).is_ok(), "{case}");
                let figures = load.figures();
                assert!(
                    figures.failed_share().is_finite() && figures.rate.is_none_or(f64::is_finite),
                    "{case}: {load:?}"
                );
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{case}: {error}"),
        }
    }
    assert!(merges > 0 && merges < FUZZ_CASES * factor, "{merges}");
}
