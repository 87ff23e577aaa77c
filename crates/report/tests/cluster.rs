//! The page of `kelvin-cluster net`, from a file of results as the program writes it, whole and broken.

use kelvin_core::cluster::{Cell, Quantity};
use kelvin_report::cluster::{NetJob, is_cluster_file, write_page};
use serde_json::{Value, json};

/// Largest page, of one quantity.
const MAX_PAGE_BYTES: usize = 2 << 20;

fn start(hosts: usize) -> Value {
    let rank = |rank: usize| {
        json!({"rank": rank, "label": format!("<b>n{rank}"), "host": null, "kernel": rank / 2, "cpus": 8,
        "address": "10.0.0.1", "clock_offset_s": 0.0, "clock_error_s": 1e-5})
    };
    let ranks: Vec<Value> = (0..hosts).map(rank).collect();
    json!({"event": "start", "format": "kelvin-cluster 1", "program": "kelvin-cluster 0.1.0", "mpi": "a test", "time_s": 1.0,
        "ranks": ranks, "plans": [], "tolerance": 0.1})
}

fn expected(value: f64) -> Value {
    json!({"value": value, "low": 0.97 * value, "high": 1.03 * value})
}

/// All pairs of hosts at 1 GB/s, but 0.6 from rank 1 to rank 3.
fn analysis(hosts: usize) -> Value {
    let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let cell = |(from, to)| {
        let value = if (from, to) == (1, 3) { 0.6e9 } else { 1e9 };
        json!({"from": from, "to": to, "value": value, "expected": expected(1e9), "is_disturbed": false})
    };
    let cells: Vec<Value> = pairs.map(cell).collect();
    json!({"event": "analysis", "analysis": {
        "matrices": [{"transport": "tcp", "quantity": "bytes_per_second", "cells": cells, "deviation": 0.011}],
        "findings": [{"subject": {"link": {"from": 1, "to": 3}}, "transport": "tcp", "quantity": "bytes_per_second",
            "value": 0.6e9, "expected": expected(1e9), "p_value": 1e-9}],
    }})
}

/// As the file has them: a line each.
fn file(events: &[Value]) -> String {
    // The program writes `event` and `format` first.
    let line = |event: &Value| {
        let text = event.to_string();
        match event["event"] == "start" {
            true => {
                let rest = text.replace("\"event\":\"start\",", "").replace("\"format\":\"kelvin-cluster 1\",", "");
                format!("{{\"event\":\"start\",\"format\":\"kelvin-cluster 1\",{}\n", &rest[1..])
            }
            false => text + "\n",
        }
    };
    events.iter().map(line).collect()
}

fn page(job: &NetJob) -> String {
    let mut out = Vec::new();
    write_page(job, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn page_shows_slow_links_and_a_map() {
    let text = file(&[
        start(6),
        json!({"event": "pair_failed", "transport": "tcp", "pair": [0, 1], "reason": "x"}),
        json!({"event": "all_to_all", "bytes": 1000, "count": 10, "seconds": 2.0}),
        json!({"event": "invented_later", "field": 1}),
        analysis(6),
        json!({"event": "end"}),
    ]);
    assert!(is_cluster_file(text.as_bytes()));
    let job = NetJob::read(text.as_bytes()).unwrap();
    // Six ranks send 1000 bytes to five others, ten times, in 2 s.
    assert_eq!(job.all_to_all_bytes_per_second, Some(150_000.0));
    let page = page(&job);
    for part in [
        "6 hosts, 15 pairs, MPI: a test",
        "1 link or host is more than 10 % slower than the others predict:",
        "link from &lt;b&gt;n1 to &lt;b&gt;n3",
        "600 MB/s (-40 %)",
        "from &lt;b&gt;n1 to &lt;b&gt;n3: 600 MB/s, predicted 1.00 GB/s",
        "3 kernels run these hosts",
        "150 kB/s in total, 25.0 kB/s from each host",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("<b>n1") && !page.contains("ended early"));
    assert_eq!(page.matches("class=\"h5\"").count(), 2, "the slow link, and the legend");
}

#[test]
fn job_that_ended_early_shows_its_pairs() {
    let pair = |pass: usize, rate: f64| {
        json!({"event": "pair", "transport": "mpi", "pass": pass, "pair": [0, 1], "figures": {
            "round_trip": {"count": 9, "mean_ns": 21.0, "median_ns": 20_000.0, "p99_ns": 30.0},
            "bytes_per_second": [rate, 2.0 * rate], "sent_bytes": 1, "interface_bytes": 2, "cpu_wait": 0.0}})
    };
    let failure = json!({"event": "failure", "rank": 2, "reason": "rank 2 (n2) has died"});
    let text = file(&[start(3), pair(1, 1e8), pair(2, 3e8), failure]) + "{\"event\":\"pair\",\"tran";
    let job = NetJob::read(text.as_bytes()).unwrap();
    let [round_trips, rates] = &job.matrices[..] else { panic!("{:?}", job.matrices) };
    let pair_of = |cell: &Cell| (cell.from, cell.to, cell.value);
    assert_eq!((rates.quantity, round_trips.quantity), (Quantity::RoundTripNs, Quantity::BytesPerSecond));
    assert_eq!(round_trips.cells.iter().map(pair_of).collect::<Vec<_>>(), [(0, 1, 2e8), (1, 0, 4e8)]);
    assert_eq!(rates.cells.iter().map(pair_of).collect::<Vec<_>>(), [(0, 1, 20_000.0)]);
    let page = page(&job);
    assert!(page.contains("The job ended early: rank 2 (n2) has died."), "{page}");
    assert!(page.contains("No pair is predicted from the others") && page.contains("Slower than the median by"));
}

#[test]
fn broken_files_are_one_line() {
    let error = |text: &str| NetJob::read(text.as_bytes()).unwrap_err().to_string();
    let start_text = file(&[start(2)]);
    let cell = json!({"from": 0, "to": 7, "value": 1.0, "expected": null});
    let analysis_of = |cell: Value| {
        let matrix = json!({"transport": "tcp", "quantity": "bytes_per_second", "cells": [cell], "deviation": null});
        start_text.clone() + &file(&[json!({"event": "analysis", "analysis": {"matrices": [matrix], "findings": []}})])
    };
    let mut negative = cell.clone();
    (negative["to"], negative["value"]) = (json!(1), json!(-1.0));
    for (text, expected) in [
        (String::new(), "line 1: it has no whole line"),
        ("{\"event\":\"end\"}\n".into(), "line 1: a job starts in the first line alone"),
        (start_text.repeat(2), "line 2: a job starts in the first line alone"),
        (start_text.replace("kelvin-cluster 1\"", "kelvin-cluster 9\""), "line 1: its format is \"kelvin-cluster 9\""),
        (
            start_text.replacen('{', "{\"command\":\"file\",", 1),
            "line 1: it is of kelvin-cluster file, and net alone has a page",
        ),
        (start_text.clone() + "words\n", "line 2: expected value"),
        (analysis_of(cell), "line 2: it names rank 7, of 2 ranks"),
        (analysis_of(negative), "line 2: it has the value -1"),
    ] {
        let error = error(&text);
        assert!(error.starts_with(expected) && !error.contains('\n'), "{error}");
    }
    for other in ["", "{\"format\":1}", "words", "{\"format\":\"kelvin\""] {
        assert!(!is_cluster_file(other.as_bytes()), "{other}");
    }
}

#[test]
fn page_of_many_hosts_is_small_and_shows_what_is_slow() {
    let job = NetJob::read(file(&[start(200), analysis(200)]).as_bytes()).unwrap();
    let page = page(&job);
    assert!(page.len() < MAX_PAGE_BYTES, "{}", page.len());
    assert!(page.contains("136 are not shown") && page.contains("The slowest 500 of 39800 pairs"));
    assert!(page.contains("from &lt;b&gt;n1 to &lt;b&gt;n3: 600 MB/s"));
}
