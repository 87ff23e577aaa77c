//! Conclusions on the network between two processes of a machine.

use kelvin_analysis::StatedConclusion;
use kelvin_analysis::analyse;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::{Better, Case, Fact, HeadlineSamples, Metric, Run, Unit};

const fn time(id: &'static str) -> Metric {
    Metric::duration(id, "A time of the network").headline(HeadlineSamples::AsFound)
}

const TCP: Metric = time("net.rtt.tcp");
const UNIX: Metric = time("net.rtt.unix");
const STACK: Metric = time("net.stack.tcp");
const CONNECT: Metric = time("net.connect");
const CLOSE: Metric = time("net.close");
const RATE: Metric = Metric::rate("net.bandwidth.tcp", "Bytes that arrive").headline(HeadlineSamples::AsFound);
const SEND_METHOD_RATE: Metric =
    Metric::rate("net.bandwidth.tcp.way", "Bytes that arrive").headline(HeadlineSamples::AsFound);
const LOST: Metric = time("net.bandwidth.udp.lost").unit(Unit::Ratio, Better::Lower);
const KIB: u64 = 1 << 10;

fn network() -> Run {
    testing::empty_run(&[TCP, UNIX, STACK, CONNECT, CLOSE, RATE, SEND_METHOD_RATE, LOST])
}

/// Five rounds around a value, by 1 %.
fn rounds(value: f64) -> [f64; 5] {
    [0.99, 1.0, 1.01, 1.0, 0.99].map(|noise| value * noise)
}

fn add(run: &mut Run, metric: &Metric, case: Case, value: f64) {
    add_scalars(run, metric, case, &rounds(value));
}

fn placement_case(placement: &'static str) -> Case {
    Case::new().with_word(kelvin_core::AxisWord::from_names("placement", placement))
}

fn streams(message: u64, streams: u64, placement: &'static str) -> Case {
    Case::new()
        .with_number("message", message)
        .with_number("streams", streams)
        .with_word(kelvin_core::AxisWord::from_names("placement", placement))
}

fn send_method_case(message: u64, method: &'static str) -> Case {
    Case::new()
        .with_number("message", message)
        .with_word(kelvin_core::AxisWord::from_names("placement", "two_cpus"))
        .with_word(kelvin_core::AxisWord::from_names("way", method))
}

fn conclusion_with<'c>(conclusions: &'c [StatedConclusion], words: &str) -> &'c StatedConclusion {
    conclusions
        .iter()
        .find(|conclusion| conclusion.text.contains(words))
        .unwrap_or_else(|| panic!("no {words:?}: {conclusions:#?}"))
}

/// A stream whose message costs a call of 500 ns and a nanosecond per ten bytes, which two streams double up to what
/// both CPUs can copy.
fn add_streams(run: &mut Run) {
    for message in [64, 4 * KIB, 64 * KIB] {
        let rate = message as f64 * 1e9 / (500.0 + 0.1 * message as f64);
        add(run, &RATE, streams(message, 1, "two_cpus"), rate);
        add(run, &RATE, streams(message, 2, "two_cpus"), (2.0 * rate).min(9e9));
    }
}

#[test]
fn calls_are_compared_with_round_trip() {
    let mut run = network();
    add(&mut run, &TCP, placement_case("same_cpu").with_number("message", 64), 10_000.0);
    add(&mut run, &TCP, placement_case("two_cpus").with_number("message", 64), 40_000.0);
    add(&mut run, &UNIX, placement_case("same_cpu").with_number("message", 64), 10_050.0);
    add(&mut run, &STACK, Case::new().with_number("message", 64), 3500.0);
    add(&mut run, &CONNECT, placement_case("same_cpu"), 20_000.0);
    add(&mut run, &CLOSE, placement_case("same_cpu"), 4000.0);
    let study = testing::study(&run, "net.rtt").unwrap();
    let conclusions = &study.conclusions;
    let share = conclusion_with(conclusions, "on one CPU is sending and receiving, not switching: 70 % (");
    assert!(share.holds == Some(true) && share.text.ends_with("7.00 µs against 10.0 µs"), "{share:?}");
    assert!(
        share.test.contains("ratio of medians of 5 against 5 rounds; p < 0.001 among all conclusions"),
        "{share:?}"
    );
    let placement =
        conclusion_with(conclusions, "over TCP takes longer between two CPUs than on one: 4.00 times as long (95 %: ");
    assert!(placement.holds == Some(true) && placement.text.ends_with("40.0 µs against 10.0 µs"), "{placement:?}");
    // Half a percent apart with one of noise: nothing follows.
    assert_eq!(conclusion_with(conclusions, "takes less time over Unix sockets than over TCP").holds, None);
    assert_eq!(conclusion_with(conclusions, "a TCP connect on one CPU costs more").holds, Some(true));
    assert_eq!(conclusion_with(conclusions, "a TCP close on one CPU costs more").holds, Some(false));
    assert_eq!(conclusions.len(), 5, "{conclusions:#?}");
}

#[test]
fn byte_cost_size_is_found() {
    let mut run = network();
    add_streams(&mut run);
    let study = testing::study(&run, "net.bandwidth").unwrap();
    // A message of 64 B takes 506.4 ns; one of n bytes twice that where 500 + n / 10 is 1012.8: at 5128.
    let crossing = conclusion_with(
        &study.conclusions,
        "bytes cost more than calls in a TCP stream from messages of about 5.01 KiB up",
    );
    assert_eq!(crossing.holds, Some(true));
    assert!(
        crossing.text.contains(
            "which doubles the time of a message: one of 64 KiB takes 13.9 times as long as one of 64 B (95 %: "
        ),
        "{}",
        crossing.text
    );
    assert!(crossing.test.contains("at each of 2 sizes"), "{}", crossing.test);
}

#[test]
fn calls_always_costlier_is_reported() {
    let mut run = network();
    for message in [64, 256, 1024] {
        add(&mut run, &RATE, streams(message, 1, "two_cpus"), message as f64 * 1e9 / (500.0 + 0.1 * message as f64));
    }
    let study = testing::study(&run, "net.bandwidth").unwrap();
    let [conclusion] = &study.conclusions[..] else { panic!("{study:#?}") };
    assert!(
        conclusion.text.starts_with(
            "bytes cost more than calls in a TCP stream up to messages of 1 KiB, which doubles the time of a message: one of 1 KiB takes 1.19 "
        ),
        "{conclusion:?}"
    );
    assert_eq!(conclusion.holds, Some(false));
    // A size at which both costs are equal decides nothing.
    add(&mut run, &RATE, streams(5128, 1, "two_cpus"), 5128.0 * 1e9 / 1012.8);
    assert_eq!(testing::study(&run, "net.bandwidth").unwrap().conclusions[0].holds, None);
}

#[test]
fn stream_method_and_loss_effects_are_sized() {
    let mut run = network();
    add_streams(&mut run);
    let base_rate = 65_536.0 * 1e9 / 7053.6;
    add(&mut run, &SEND_METHOD_RATE, send_method_case(64 * KIB, "send"), base_rate);
    add(&mut run, &SEND_METHOD_RATE, send_method_case(64 * KIB, "sendfile"), 1.2 * base_rate);
    add(&mut run, &SEND_METHOD_RATE, send_method_case(64 * KIB, "zerocopy"), 0.8 * base_rate);
    add(&mut run, &LOST, placement_case("two_cpus").with_number("message", 1472), 0.2);
    let study = testing::study(&run, "net.bandwidth").unwrap();
    let conclusions = &study.conclusions;
    let more_streams = conclusion_with(
        conclusions,
        "2 TCP streams in messages of 4 KiB, each between two CPUs, carry more than one: ",
    );
    assert!(
        more_streams.holds == Some(true) && more_streams.text.contains("9.00 GB/s against 4.50 GB/s"),
        "{more_streams:?}"
    );
    assert_eq!(
        conclusion_with(conclusions, "2 TCP streams in messages of 64 KiB, each between two CPUs, carry more than one")
            .holds,
        Some(false)
    );
    assert_eq!(conclusion_with(conclusions, "sendfile carries more than send in messages of 64 KiB").holds, Some(true));
    assert_eq!(conclusion_with(conclusions, "zerocopy carries more than send").holds, Some(false));
    let lost = conclusion_with(
        conclusions,
        "more than 1.0 % of datagrams of 1472 B are lost between two CPUs of this machine",
    );
    assert!(lost.holds == Some(true) && lost.text.contains("20 % ("), "{lost:?}");
}

#[test]
fn placement_gain_of_streams_is_reported() {
    let mut run = network();
    add_streams(&mut run);
    for (count, rate) in [(1, 8e9), (2, 16e9)] {
        add(&mut run, &RATE, streams(64 * KIB, count, "same_cpu"), rate);
    }
    let study = testing::study(&run, "net.bandwidth").unwrap();
    let conclusions = &study.conclusions;
    let single =
        conclusion_with(conclusions, "a TCP stream in messages of 64 KiB carries more on one CPU than between two: ");
    assert_eq!(single.holds, Some(false), "{single:?}");
    let pair = conclusion_with(
        conclusions,
        "2 TCP streams in messages of 64 KiB carry more each on one CPU than each between two: 1.78 times",
    );
    assert!(pair.holds == Some(true) && pair.text.ends_with("16.0 GB/s against 9.00 GB/s"), "{pair:?}");
    let gain = conclusion_with(
        conclusions,
        "2 TCP streams in messages of 64 KiB, each on one CPU, carry more than one: 2.00 times",
    );
    assert_eq!(gain.holds, Some(true));
    // The paragraph has that of the most streams.
    let text = analyse(&run).findings.into_iter().find(|finding| finding.text.starts_with("Network: ")).unwrap().text;
    assert!(text.contains("2 TCP streams in messages of 64 KiB carry more each on one CPU"), "{text}");
    // On one CPU alone the sizes are compared there.
    let mut one_cpu_run = network();
    for message in [64, 64 * KIB] {
        add(
            &mut one_cpu_run,
            &RATE,
            streams(message, 1, "same_cpu"),
            message as f64 * 1e9 / (500.0 + 0.1 * message as f64),
        );
    }
    let study = testing::study(&one_cpu_run, "net.bandwidth").unwrap();
    assert_eq!(conclusion_with(&study.conclusions, "bytes cost more than calls in a TCP stream").holds, Some(true));
}

#[test]
fn cpu_limited_streams_are_reported_once() {
    const BUSY: Metric = time("net.bandwidth.tcp.busy").unit(Unit::Ratio, Better::Neither);
    let limited = |shares: &[f64]| {
        let mut run = testing::empty_run(&[BUSY]);
        for (message, share) in [64, 4 * KIB, 64 * KIB].into_iter().zip(shares) {
            add(&mut run, &BUSY, streams(message, 1, "two_cpus"), *share);
        }
        let conclusions = testing::study(&run, "net.bandwidth").unwrap().conclusions;
        let [conclusion] = &conclusions[..] else { panic!("{conclusions:#?}") };
        (conclusion.text.clone(), conclusion.holds)
    };
    let (text, holds) = limited(&[1.0, 0.99, 0.98]);
    assert_eq!(
        text,
        "TCP streams on this machine are CPU-limited in all 3 cases, with a CPU busy for more than 95 % of the time: the busiest is \
         busy for 98 % in the case with most idle time"
    );
    assert_eq!(holds, Some(true));
    assert_eq!(limited(&[1.0, 0.5, 1.0]).1, Some(false));
    // About as full as the limit.
    assert_eq!(limited(&[1.0, 0.95, 1.0]).1, None);
    let mut run = testing::empty_run(&[BUSY]);
    add(&mut run, &BUSY, streams(64, 1, "two_cpus"), 1.0);
    let text = analyse(&run).findings.into_iter().find(|finding| finding.text.starts_with("Network: ")).unwrap().text;
    assert!(
        text.starts_with("Network: TCP streams on this machine are CPU-limited in the one case measured"),
        "{text}"
    );
}

#[test]
fn stream_ceiling_is_byte_cost() {
    const SEND: Metric = time("net.stream.tcp");
    const RECEIVE: Metric = time("net.stream.tcp.receive");
    let mut run = testing::empty_run(&[SEND, RECEIVE, RATE]);
    for message in [64, 4 * KIB, 64 * KIB] {
        // A byte costs 0.1 ns here and 0.06 ns there; calls cost the same at every size.
        add(&mut run, &SEND, Case::new().with_number("message", message), 300.0 + 0.1 * message as f64);
        add(&mut run, &RECEIVE, Case::new().with_number("message", message), 500.0 + 0.06 * message as f64);
    }
    let check_ceiling = |cpus: u32, streams, placement, truth: f64| {
        let mut run = run.clone();
        run.header.machine.topology.allowed = Fact::known((0..cpus).collect(), "a test");
        add(
            &mut run,
            &RATE,
            placement_case(placement).with_number("streams", streams).with_number("message", 64 * KIB),
            5e9,
        );
        let [ceiling] = &analyse(&run).ceilings[..] else { panic!("one line has one ceiling") };
        assert!(
            ceiling.low < truth && truth < ceiling.high && ceiling.high < 1.1 * ceiling.low,
            "{ceiling:?} around {truth}"
        );
    };
    // The slower end of one stream; both ends of two streams on two CPUs; all on one CPU.
    check_ceiling(2, 1, "two_cpus", 10e9);
    check_ceiling(2, 2, "two_cpus", 12.5e9);
    check_ceiling(1, 1, "two_cpus", 6.25e9);
    // Both ends of one on one CPU, of two on a CPU each.
    check_ceiling(2, 1, "same_cpu", 6.25e9);
    check_ceiling(2, 2, "same_cpu", 12.5e9);
    let mut without_costs = testing::empty_run(&[RATE]);
    add(
        &mut without_costs,
        &RATE,
        placement_case("two_cpus").with_number("streams", 1).with_number("message", 64 * KIB),
        5e9,
    );
    assert_eq!(analyse(&without_costs).ceilings, []);
}

#[test]
fn network_paragraph_has_supported_claims_only() {
    let mut run = network();
    assert!(testing::study(&run, "net.rtt").is_none() && testing::study(&run, "net.bandwidth").is_none());
    let network_of =
        |run: &Run| analyse(run).findings.into_iter().find(|finding| finding.text.starts_with("Network: "));
    assert!(network_of(&run).is_none());
    add_streams(&mut run);
    add(&mut run, &TCP, placement_case("same_cpu").with_number("message", 64), 10_000.0);
    add(&mut run, &CONNECT, placement_case("same_cpu"), 5000.0);
    let text = network_of(&run).unwrap().text;
    assert!(text.starts_with("Network: bytes cost more than calls in a TCP stream from messages of"), "{text}");
    // Connecting costs less than a round trip here, and two streams carry no more in large messages.
    assert!(!text.contains("connect") && !text.contains("streams in messages"), "{text}");
    let analysis = analyse(&run);
    assert_eq!(analysis.studies.iter().filter(|study| study.id.starts_with("net.")).count(), 2);
    assert!(analysis.verdict.contains(&text), "{:?}", analysis.verdict);
}
