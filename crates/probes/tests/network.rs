//! Every network probe runs once for real, and notes where its processes were and what its sockets obtained.

mod common;

use common::{measure, measure_if_possible, median, notes, reading_of};
use kelvin_core::{Case, MetricReadings, Readings, RoundOutcome};
use kelvin_harness::TcpOptions;

/// Milliseconds of the timed part.
const SLICE: u64 = 8;

fn placement_case(placement: &'static str, message: u64) -> Case {
    Case::new().with_word(kelvin_core::AxisWord::from_names("placement", placement)).with_number("message", message)
}

#[test]
fn messages_return_at_every_placement() {
    for protocol in ["tcp", "udp", "unix"] {
        for (placement, message) in [("same_cpu", 1), ("same_cpu", 64), ("two_cpus", 64), ("two_cpus", 16 << 10)] {
            let id = format!("net.rtt.{protocol}");
            let case = placement_case(placement, message);
            let Some(readings) = measure_if_possible(&id, &case, SLICE) else { continue };
            let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
            assert!(batches.iterations.iter().all(|&count| count == 1), "round trips are timed one by one");
            let notes = readings[0].notes.join("\n");
            assert!(notes.contains("context switches of this task per round trip"), "{notes}");
            assert!(notes.contains("socket buffers of"), "{notes}");
            assert_eq!(notes.contains("TCP_INFO"), protocol == "tcp", "{notes}");
            assert_eq!(notes.contains("were lost"), protocol == "udp", "{notes}");
        }
    }
}

#[test]
fn messages_of_all_sizes_pass_stack() {
    for (protocol, largest) in [("tcp", 64 << 10), ("udp", 65_507), ("unix", 64 << 10)] {
        for bytes in [64, largest] {
            let id = format!("net.stack.{protocol}");
            reading_of(&measure(&id, &Case::new().with_number("message", bytes), SLICE), &id);
        }
        measure(&format!("net.rtt.{protocol}"), &placement_case("same_cpu", largest), SLICE);
    }
}

#[test]
fn streams_are_counted_at_receiver() {
    for method in ["send", "sendfile", "splice", "zerocopy"] {
        let case = placement_case("two_cpus", 64 << 10).with_word(kelvin_core::AxisWord::from_names("way", method));
        let Some(readings) = measure_if_possible("net.bandwidth.tcp.way", &case, SLICE) else { return };
        let notes = &reading_of(&readings, "net.bandwidth.tcp.way").notes.join("\n");
        assert!(notes.contains("congestion control") && notes.contains("are left out"), "{notes}");
        assert_eq!(notes.matches("receiver on CPU").count(), 1, "{notes}");
    }
    reading_of(&measure("net.bandwidth.unix", &placement_case("two_cpus", 64 << 10), SLICE), "net.bandwidth.unix");
}

/// The CPUs of each stream's sender and receiver, from a note.
fn parse_end_cpus(note: &str) -> Vec<(String, String)> {
    let cpus_of = |role: &str| -> Vec<String> {
        let cpu = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
        note.split(&format!("{role} on CPU ")).skip(1).map(cpu).collect()
    };
    cpus_of("sender").into_iter().zip(cpus_of("receiver")).collect()
}

#[test]
fn ends_run_on_case_cpus() {
    for (placement, streams) in [("same_cpu", 1), ("same_cpu", 2), ("two_cpus", 1), ("two_cpus", 2)] {
        let case = placement_case(placement, 4 << 10).with_number("streams", streams);
        let Some(readings) = measure_if_possible("net.bandwidth.tcp", &case, SLICE) else { continue };
        let ends = parse_end_cpus(&readings[0].notes.join("\n"));
        assert_eq!(ends.len(), streams as usize, "{readings:?}");
        for (sender, receiver) in &ends {
            assert_eq!(sender == receiver, placement == "same_cpu", "{ends:?}");
        }
        let is_single = streams == 1 || kelvin_sys::cpu::affinity().unwrap().len() == 1;
        assert!(is_single || ends[0].0 != ends[1].0, "the senders take the CPUs in turn: {ends:?}");
        let Readings::Scalars(busy) = &readings[1].readings else { panic!("{readings:?}") };
        assert_eq!(busy.len(), 1, "the load of the busiest CPU: {readings:?}");
    }
}

#[test]
fn requested_and_obtained_socket_options_are_noted() {
    let case = placement_case("same_cpu", 4 << 10).with_number("streams", 1);
    let directories = common::TestDirectories::with_scratch(&std::env::temp_dir());
    let attempt_with = |sockets| common::run_probe_with(&directories, sockets, "net.bandwidth.tcp", &case, SLICE);
    let notes = |sockets: TcpOptions| match attempt_with(sockets) {
        RoundOutcome::Measured(readings) => readings[0].notes.join("\n"),
        other => panic!("{other:?}"),
    };
    let default_notes = notes(TcpOptions::default());
    assert!(
        default_notes
            .contains("requested: cubic where the kernel grants it, else reno, buffers that grow automatically"),
        "{default_notes}"
    );
    let requested =
        TcpOptions { congestion_control: Some("reno".into()), buffers: Some(32 << 10), ..TcpOptions::default() };
    let requested_notes = notes(requested);
    assert!(requested_notes.contains("requested: reno, buffers of 32 KiB"), "{requested_notes}");
    assert!(
        requested_notes.contains("congestion control reno") && requested_notes.contains("TCP_INFO: round trip"),
        "{requested_notes}"
    );
    assert!(requested_notes.contains("socket buffers of 64 KiB to send, 64 KiB to receive"), "{requested_notes}");
    assert!(requested_notes.contains("the receiver's has 64 KiB to receive"), "{requested_notes}");
    let unknown = TcpOptions { congestion_control: Some("no-such".into()), ..TcpOptions::default() };
    match attempt_with(unknown) {
        RoundOutcome::Failed(reason) => assert!(reason.contains("refused the congestion control no-such"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn udp_sent_is_not_counted_received() {
    let case = placement_case("two_cpus", 1472);
    let Some(readings) = measure_if_possible("net.bandwidth.udp", &case, SLICE) else { return };
    let ids: Vec<String> = readings.iter().map(|reading| reading.metric.to_string()).collect();
    let expected_ids =
        ["net.bandwidth.udp", "net.bandwidth.udp.sent", "net.bandwidth.udp.lost", "net.bandwidth.udp.reordered"];
    assert_eq!(ids, expected_ids);
    for share in [&readings[2], &readings[3]] {
        assert!((0.0..=1.0).contains(&median(share)), "{readings:?}");
    }
    let small_case = placement_case("two_cpus", 4);
    match common::run_probe("net.bandwidth.udp", &small_case, SLICE) {
        RoundOutcome::Failed(reason) => assert!(reason.contains("no room for its number"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ping_works_or_names_missing_right() {
    let case = Case::new().with_number("message", 64);
    match common::run_probe("net.rtt.icmp", &case, SLICE) {
        RoundOutcome::Measured(readings) => assert!(readings[0].notes[0].contains("socket"), "{:?}", readings[0].notes),
        RoundOutcome::Skipped(reason) => {
            assert!(reason.0.contains("ping_group_range") || reason.0.contains("icmp_echo_ignore_all"), "{reason}");
            common::report_skip("net.rtt.icmp", &case, &reason);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn connections_work_at_every_placement() {
    for (placement, wait) in [("same_cpu", "the end of the timed call"), ("two_cpus", "connections, as a server")] {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("placement", placement));
        let Some(parts) = measure_if_possible("net.connect", &case, SLICE) else { continue };
        let [connect, close] = ["net.connect", "net.close"].map(|metric| match &reading_of(&parts, metric).readings {
            Readings::Batches(batches) => &batches.iterations,
            other => panic!("{other:?}"),
        });
        assert!(
            connect == close && connect.iter().all(|&count| count == 1),
            "each connection is opened and closed: {parts:?}"
        );
        assert!(notes(&parts).contains(&format!("waiting for {wait}")), "{parts:?}");
        if let Some(transactions) = measure_if_possible("net.crr", &case, SLICE) {
            reading_of(&transactions, "net.crr");
        }
    }
}

#[test]
fn send_wakes_receiver_on_other_cpu() {
    let Some(readings) = measure_if_possible("net.wake.tcp", &Case::new(), SLICE) else { return };
    assert!(notes(&readings).contains("context switches of this task per round trip"), "{readings:?}");
}

/// The readings of the first round that does not fail for this reason: with other tests on the same CPU the stream may
/// get no turn in a whole slice. A run then makes another round.
fn measure_with_retry(id: &str, case: &Case, failure_text: &str) -> Option<Vec<MetricReadings>> {
    const MAX_REPEATS: u32 = 20;
    for _ in 1..MAX_REPEATS {
        match common::run_probe(id, case, SLICE) {
            RoundOutcome::Failed(reason) if reason.contains(failure_text) => {}
            attempt => return common::measured_if_possible(id, case, attempt),
        }
    }
    measure_if_possible(id, case, SLICE)
}

#[test]
fn message_returns_under_load() {
    for placement in ["same_cpu", "two_cpus"] {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("placement", placement));
        let Some(readings) = measure_with_retry("net.loaded", &case, "there was no load") else { continue };
        let note = readings[0].notes.join("\n");
        assert!(note.contains("GB/s meanwhile") && note.contains("of the messages: TCP_INFO"), "{note}");
        let [(sender, receiver)] = &parse_end_cpus(&note)[..] else { panic!("{note}") };
        assert_eq!(sender == receiver, placement == "same_cpu", "{note}");
    }
}

#[test]
fn invalid_case_is_refused_by_name() {
    let refusal = |id: &str, case: Case| match common::run_probe(id, &case, SLICE) {
        RoundOutcome::Failed(reason) => reason,
        other => panic!("{id}: {other:?}"),
    };
    assert!(
        refusal("net.rtt.tcp", placement_case("elsewhere", 64)).contains("placement=same_cpu or placement=two_cpus")
    );
    assert!(refusal("net.rtt.tcp", placement_case("same_cpu", 0)).contains("a message of at least 1 byte"));
    assert!(refusal("net.rtt.udp", placement_case("same_cpu", 65_508)).contains("too long"));
}
