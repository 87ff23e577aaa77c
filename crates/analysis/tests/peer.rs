//! Conclusions on the network to another host.

use kelvin_analysis::StatedConclusion;
use kelvin_analysis::analyse;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::{
    Better, Bound, BoundRecord, Case, HeadlineSamples, Metric, Prediction, PredictionBasis, PredictionRecord, Run, Unit,
};

const fn time(id: &'static str) -> Metric {
    Metric::duration(id, "A time of the network").headline(HeadlineSamples::AsFound)
}

const fn rate(id: &'static str) -> Metric {
    Metric::rate(id, "Bytes that arrive").headline(HeadlineSamples::AsFound)
}

const fn share(id: &'static str) -> Metric {
    time(id).unit(Unit::Ratio, Better::Neither)
}

const RATE: Metric = rate("net.peer.bandwidth");
const LOCAL_CPU: Metric = share("net.peer.bandwidth.busy_here");
const REMOTE_CPU: Metric = share("net.peer.bandwidth.busy_there");
const PING: Metric = time("net.peer.ping");
const ROUND_TRIP: Metric = time("net.peer.rtt");
const LOADED_ROUND_TRIP: Metric = time("net.peer.loaded");
const LOST_SHARE: Metric = share("net.peer.bandwidth.udp.lost");
const OFFERED_SENT: Metric = rate("net.peer.offered.sent");
const OFFERED_LOST: Metric = share("net.peer.offered.lost");
/// What a gigabit link carries of TCP.
const GIGABIT_RATE: f64 = 117.685e6;

fn network() -> Run {
    testing::empty_run(&[
        RATE,
        LOCAL_CPU,
        REMOTE_CPU,
        PING,
        ROUND_TRIP,
        LOADED_ROUND_TRIP,
        LOST_SHARE,
        OFFERED_SENT,
        OFFERED_LOST,
    ])
}

/// Five rounds around a value, by 1 %.
fn add(run: &mut Run, metric: &Metric, case: Case, value: f64) {
    add_scalars(run, metric, case, &[0.99, 1.0, 1.01, 1.0, 0.99].map(|noise| value * noise));
}

fn streams(count: u64) -> Case {
    Case::new().with_number("streams", count)
}

/// Streams at a rate, with the share of a CPU of either host that they use.
fn add_streams(run: &mut Run, case: &Case, rate: f64, [local, remote]: [f64; 2]) {
    add(run, &RATE, case.clone(), rate);
    add(run, &LOCAL_CPU, case.clone(), local);
    add(run, &REMOTE_CPU, case.clone(), remote);
}

fn predict(run: &mut Run, case: Case, value: f64) {
    let prediction = Prediction {
        value,
        low: 0.75 * value,
        high: value,
        basis: PredictionBasis::Derived,
        formula: "link".into(),
        inputs: Vec::new(),
        derivation: "125.0 MB/s x 1448 / 1538 = 117.7 MB/s".into(),
        sources: Vec::new(),
        calibration: None,
        formula_name: "a test".into(),
        ceiling: None,
    };
    let record = PredictionRecord { metric: RATE.id, case, prediction: Some(prediction), missing_reason: None };
    run.predictions.push(record);
}

fn conclusions(run: &Run) -> Vec<StatedConclusion> {
    testing::study(run, "net.peer").map_or_else(Vec::new, |study| study.conclusions)
}

fn conclusion_with<'c>(conclusions: &'c [StatedConclusion], words: &str) -> &'c StatedConclusion {
    conclusions
        .iter()
        .find(|conclusion| conclusion.text.contains(words))
        .unwrap_or_else(|| panic!("no {words:?}: {conclusions:#?}"))
}

fn paragraph(run: &Run) -> Option<String> {
    let findings = analyse(run).findings;
    findings.into_iter().map(|finding| finding.text).find(|text| text.starts_with("Network to the other host: "))
}

#[test]
fn saturated_link_and_host_are_distinguished() {
    let mut run = network();
    add_streams(&mut run, &streams(1), 0.98 * GIGABIT_RATE, [0.3, 0.4]);
    predict(&mut run, streams(1), GIGABIT_RATE);
    let results = conclusions(&run);
    let saturation = conclusion_with(&results, "1 TCP stream to the agent used at least 75 % of the link: 98 % (");
    assert!(saturation.holds == Some(true) && saturation.text.ends_with("115 MB/s of 118 MB/s"), "{saturation:?}");
    assert!(saturation.test.contains("over 125.0 MB/s x 1448 / 1538"), "{saturation:?}");
    let limit = conclusion_with(&results, "1 TCP stream to the agent is CPU-limited on neither host: ");
    assert!(limit.holds == Some(true) && limit.text.contains(": the test uses 30 % ("), "{limit:?}");
    assert!(limit.text.contains("and 40 % ("), "{limit:?}");
    assert_eq!(results.len(), 2, "{results:#?}");
    let text = paragraph(&run).unwrap();
    assert!(text.contains("), 98 % of the link and is CPU-limited on neither host (the test uses"), "{text}");

    let mut limited = network();
    add_streams(&mut limited, &streams(1), 0.4 * GIGABIT_RATE, [0.3, 1.0]);
    predict(&mut limited, streams(1), GIGABIT_RATE);
    let results = conclusions(&limited);
    assert_eq!(conclusion_with(&results, "of the link").holds, Some(false));
    assert_eq!(conclusion_with(&results, "is CPU-limited on the agent's host: ").holds, Some(true));
}

#[test]
fn host_with_saturated_cpu_is_named() {
    let host_limit = |busy: [f64; 2]| {
        let mut run = network();
        add_streams(&mut run, &streams(1), 1e9, busy);
        let results = conclusions(&run);
        let [limit] = &results[..] else { panic!("{results:#?}") };
        (limit.text.split(':').next().unwrap().to_owned(), limit.holds)
    };
    assert_eq!(host_limit([1.0, 0.2]), ("1 TCP stream to the agent is CPU-limited on this host".into(), Some(true)));
    assert_eq!(host_limit([1.0, 1.0]), ("1 TCP stream to the agent is CPU-limited on both hosts".into(), Some(true)));
    // About as full as the limit: it may be, and may not be.
    assert_eq!(host_limit([0.95, 0.2]), ("1 TCP stream to the agent is CPU-limited on one of the hosts".into(), None));
    assert_eq!(
        host_limit([0.95, 1.0]),
        ("1 TCP stream to the agent is CPU-limited on the agent's host".into(), Some(true))
    );
}

#[test]
fn fastest_stream_count_per_direction_is_used() {
    let mut run = network();
    let stream_case =
        |count, direction| streams(count).with_word(kelvin_core::AxisWord::from_names("direction", direction));
    add_streams(&mut run, &stream_case(1, "to_agent"), 1e9, [1.0, 0.5]);
    add_streams(&mut run, &stream_case(4, "to_agent"), 2e9, [1.0, 1.0]);
    add_streams(&mut run, &stream_case(1, "from_agent"), 3e9, [0.5, 1.0]);
    add_streams(&mut run, &stream_case(4, "from_agent"), 2.9e9, [0.5, 1.0]);
    let results = conclusions(&run);
    conclusion_with(&results, "4 TCP streams to the agent are CPU-limited on both hosts: ");
    conclusion_with(&results, "1 TCP stream from the agent is CPU-limited on the agent's host: ");
    let gain = conclusion_with(&results, "4 TCP streams to the agent carry more than one: 2.00 times as much (95 %: ");
    assert!(gain.holds == Some(true) && gain.text.ends_with("2.00 GB/s against 1.00 GB/s"), "{gain:?}");
    assert_eq!(conclusion_with(&results, "4 TCP streams from the agent carry more than one").holds, Some(false));
    assert_eq!(results.len(), 4, "{results:#?}");
    let text = paragraph(&run).unwrap();
    assert!(text.contains("4 TCP streams to the agent carry 2.00 GB/s (") && text.contains("both hosts"), "{text}");
    assert!(!text.contains("4 TCP streams from the agent"), "{text}");
}

#[test]
fn end_of_growth_names_streams_and_limit() {
    let growth = |rates: &[(u64, f64)], busy: [f64; 2]| {
        let mut run = network();
        for &(count, rate) in rates {
            add_streams(&mut run, &streams(count), rate, busy);
        }
        let text = paragraph(&run).unwrap();
        let conclusion = conclusion_with(&conclusions(&run), "stops growing at").clone();
        assert_eq!(text.contains("stops growing at"), conclusion.holds == Some(true), "{text}");
        conclusion
    };
    let link_limited = [(1, 3e9), (2, 6e9), (4, 11.7e9), (8, 11.8e9), (16, 11.6e9)];
    let end = growth(&link_limited, [0.5, 0.6]);
    let expected = "the rate of TCP streams to the agent stops growing at 4, limited by the link or a shaper on it: 8 TCP streams to the \
                    agent carry 1.01 times as much (95 %: ";
    assert!(end.holds == Some(true) && end.text.starts_with(expected), "{end:?}");
    assert!(end.text.ends_with("11.8 GB/s against 11.7 GB/s"), "{end:?}");
    let end = growth(&link_limited, [0.5, 1.0]);
    assert!(end.text.contains(" at 4, CPU-limited on the agent's host: 8 TCP streams"), "{end:?}");
    // About as full as the limit: nothing is said of it.
    assert!(growth(&link_limited, [0.95, 0.5]).text.contains(" at 4: 8 TCP streams"));
    let growing = growth(&[(1, 3e9), (2, 6e9), (4, 12e9), (8, 23e9)], [1.0, 1.0]);
    assert_eq!(growing.holds, Some(false), "{growing:?}");
    assert!(growing.text.contains("stops growing at 4, CPU-limited on both hosts: 8 TCP streams"), "{growing:?}");
    // One stream saturates it; and of two points nothing more is said than that more streams carry more.
    assert!(
        growth(&[(1, 117e6), (2, 118e6), (4, 117e6)], [0.1, 0.1])
            .text
            .contains("stops growing at 1, limited by the link")
    );
    let mut two = network();
    add_streams(&mut two, &streams(1), 1e9, [0.1, 0.1]);
    add_streams(&mut two, &streams(4), 1e9, [0.1, 0.1]);
    assert!(conclusions(&two).iter().all(|conclusion| !conclusion.text.contains("stops growing")));
}

#[test]
fn share_of_link_is_that_of_one_stream() {
    let mut run = network();
    add_streams(&mut run, &streams(1), 0.5 * GIGABIT_RATE, [0.3, 0.4]);
    add_streams(&mut run, &streams(4), 0.98 * GIGABIT_RATE, [0.3, 0.4]);
    predict(&mut run, streams(1), GIGABIT_RATE);
    // Four times what one carries would be more than the link.
    predict(&mut run, streams(4), 2.0 * GIGABIT_RATE);
    let results = conclusions(&run);
    let saturation = conclusion_with(&results, "4 TCP streams to the agent used at least 75 % of the link: 98 % (");
    assert_eq!(saturation.holds, Some(true));
}

#[test]
fn program_loss_and_queueing_effects_are_sized() {
    let mut run = network();
    let (message_case, trip) = (
        Case::new().with_number("message", 64),
        Case::new().with_word(kelvin_core::AxisWord::from_names("protocol", "tcp")).with_number("message", 64),
    );
    add(&mut run, &PING, message_case, 100_000.0);
    add(&mut run, &ROUND_TRIP, trip, 130_000.0);
    add(&mut run, &LOADED_ROUND_TRIP, Case::new(), 30e6);
    add(&mut run, &LOST_SHARE, Case::new().with_number("message", 1472), 0.3);
    for (offered, lost) in [(10_000_000, 0.0), (100_000_000, 0.002), (1_000_000_000, 0.4)] {
        add(&mut run, &OFFERED_SENT, Case::new().with_number("offered", offered), offered as f64 / 8.0);
        add(&mut run, &OFFERED_LOST, Case::new().with_number("offered", offered), lost);
    }
    let results = conclusions(&run);
    let program = conclusion_with(
        &results,
        "over TCP to a program on that host takes longer than an echo request to its kernel: 1.30 ",
    );
    assert!(program.holds == Some(true) && program.text.ends_with("130 µs against 100 µs"), "{program:?}");
    let waiting =
        conclusion_with(&results, "queues in buffers and takes more than 2 times as long: 231 times as long (95 %: ");
    assert!(waiting.holds == Some(true) && waiting.text.ends_with("30.0 ms against 130 µs"), "{waiting:?}");
    let lost = conclusion_with(
        &results,
        "more than 1.0 % of datagrams of 1472 B to the agent are lost if the sender does not wait: 30 %",
    );
    assert_eq!(lost.holds, Some(true));
    let delivery = conclusion_with(&results, "paced at 12.5 MB/s (100 Mbit/s offered) at most 1.0 % are lost: 0.2 % (");
    assert_eq!(delivery.holds, Some(true));
    assert_eq!(conclusion_with(&results, "(1000 Mbit/s offered) at most").holds, Some(false));
    // Of all that arrive the highest is reported.
    let text = paragraph(&run).unwrap();
    assert!(text.contains("(100 Mbit/s offered)") && !text.contains("(10.0 Mbit/s offered)"), "{text}");
    assert!(!text.contains("1000 Mbit/s"), "{text}");
}

#[test]
fn peer_paragraph_is_separate_and_once() {
    let mut run = network();
    assert!(testing::study(&run, "net.peer").is_none() && paragraph(&run).is_none());
    add(&mut run, &RATE, streams(1), 1e9);
    // A rate alone has nothing to be compared with, and is reported.
    assert!(testing::study(&run, "net.peer").is_none());
    assert_eq!(
        paragraph(&run).unwrap(),
        "Network to the other host: 1 TCP stream to the agent carries 1.00 GB/s (989 MB/s to 1.01 GB/s)."
    );
    add(&mut run, &LOCAL_CPU, streams(1), 1.0);
    add(&mut run, &REMOTE_CPU, streams(1), 0.1);
    let analysis = analyse(&run);
    let text = paragraph(&run).unwrap();
    assert!(
        text.contains(") and is CPU-limited on this host (the test uses 100 % of a CPU here, 10 % there)."),
        "{text}"
    );
    assert_eq!(analysis.verdict.iter().filter(|line| line.starts_with("Network")).count(), 1, "{:?}", analysis.verdict);
    assert_eq!(analysis.studies.iter().filter(|study| study.id == *"net.peer").count(), 1);
    // Impossible figures are left out.
    let bound = Bound { limit: 1e8, inputs: Vec::new(), derivation: "a line".into(), likely_cause: "a route".into() };
    run.header.bounds.push(BoundRecord { metric: RATE.id, case: streams(1), bound });
    assert!(testing::study(&run, "net.peer").is_none() && paragraph(&run).is_none());
}
