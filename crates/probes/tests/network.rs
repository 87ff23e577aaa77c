//! Every measure of the network runs once for real, and its figures agree with one another.

mod common;

use kelvin_catalogue::Placement::{self, SameCpu, TwoCpus};
use kelvin_catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_WAY, BANDWIDTH_UDP, BANDWIDTH_UDP_LOST, BANDWIDTH_UDP_OVERTAKEN, BANDWIDTH_UDP_SENT,
    BANDWIDTH_UNIX, CONNECT, CRR, LOADED, MESSAGE, RTT_ICMP, RTT_TCP, RTT_UDP, RTT_UNIX, STACK_TCP, STACK_UDP,
    STACK_UNIX, STREAMS, SendMethod, WAKE_TCP,
};
use kelvin_harness::SocketOptions;
use kelvin_model::{Attempt, Case, Metric, Name, Point, Reading, Readings};
use kelvin_sys::cpu;

/// Milliseconds of the timed part.
const SLICE: u64 = 8;

/// What needs a second CPU is measured where there is one, and skipped with the reason where there is none.
fn measured_or_skipped(probe: &Metric, case: &Case) -> Option<Vec<Reading>> {
    let id = probe.id;
    match common::run_probe(&id, case, SLICE) {
        Attempt::Measured(readings) => Some(readings),
        Attempt::Skipped(reason) => {
            assert!(cpu::allowed().unwrap().len() < 2, "{id} {case}: {reason:?}");
            None
        }
        other => panic!("{id} {case}: {other:?}"),
    }
}

fn placed(placement: Placement, message: u64) -> Case {
    Case::new().at(placement).with(MESSAGE, message)
}

#[test]
fn messages_go_round_wherever_the_other_end_runs() {
    for probe in [&RTT_TCP, &RTT_UDP, &RTT_UNIX] {
        for (placement, message) in [(SameCpu, 1), (SameCpu, 64), (TwoCpus, 64), (TwoCpus, 16 << 10)] {
            let Some(readings) = measured_or_skipped(probe, &placed(placement, message)) else { continue };
            let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
            assert!(batches.iterations.iter().all(|&one| one == 1), "round trips are timed one by one");
            let notes = readings[0].notes.join("\n");
            assert!(notes.contains("context switches of this task per round trip"), "{notes}");
            assert!(notes.contains("socket buffers of"), "{notes}");
            assert_eq!(notes.contains("TCP_INFO"), probe.id == RTT_TCP.id, "{notes}");
            assert_eq!(notes.contains("were lost"), probe.id == RTT_UDP.id, "{notes}");
        }
    }
}

#[test]
fn a_round_trip_on_one_cpu_takes_longer_than_twice_the_stack() {
    for (stack, trip) in [(&STACK_TCP, &RTT_TCP), (&STACK_UDP, &RTT_UDP), (&STACK_UNIX, &RTT_UNIX)] {
        let id = trip.id;
        let stack = common::measure(&stack.id, &Case::new().with(MESSAGE, 64), SLICE);
        let trip = common::measure(&id, &placed(SameCpu, 64), SLICE);
        let (stack, trip) = (common::median(&stack[0]), common::median(&trip[0]));
        // A round trip holds two of these and two switches; a tenth for what neighbours do between the two measurements.
        assert!(trip > 1.8 * stack, "{id}: {trip} ns there and back, {stack} ns the stack");
    }
}

#[test]
fn the_largest_messages_go_through_too() {
    for (stack, trip, bytes) in
        [(&STACK_TCP, &RTT_TCP, 64 << 10), (&STACK_UDP, &RTT_UDP, 65_507), (&STACK_UNIX, &RTT_UNIX, 64 << 10)]
    {
        common::measure(&stack.id, &Case::new().with(MESSAGE, bytes), SLICE);
        common::measure(&trip.id, &placed(SameCpu, bytes), SLICE);
    }
}

fn rates(reading: &Reading) -> &[f64] {
    match &reading.readings {
        Readings::Scalars(values) => values,
        other => panic!("{other:?}"),
    }
}

#[test]
fn streams_are_counted_where_they_arrive() {
    for &method in SendMethod::ALL {
        let case = placed(TwoCpus, 64 << 10).at(method);
        let readings = common::measure(&BANDWIDTH_TCP_WAY.id, &case, SLICE);
        assert!(rates(&readings[0]).iter().sum::<f64>() > 1e6, "{readings:?}");
        let note = readings[0].notes.join("\n");
        assert!(note.contains("congestion control") && note.contains("are left out"), "{note}");
        assert_eq!(note.matches("receiver on CPU").count(), 1, "{note}");
    }
    let case = placed(TwoCpus, 64 << 10);
    assert!(rates(&common::measure(&BANDWIDTH_UNIX.id, &case, SLICE)[0])[0] > 1e6);
}

/// The CPUs of the two ends of each stream, as a note tells them.
fn ends(note: &str) -> Vec<(String, String)> {
    let on = |what: &str| -> Vec<String> {
        let cpu = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
        note.split(&format!("{what} on CPU ")).skip(1).map(cpu).collect()
    };
    on("sender").into_iter().zip(on("receiver")).collect()
}

#[test]
fn the_ends_of_a_stream_are_where_its_case_has_them() {
    for (placement, streams) in [(SameCpu, 1), (SameCpu, 2), (TwoCpus, 1), (TwoCpus, 2)] {
        let case = placed(placement, 4 << 10).with(STREAMS, streams);
        let readings = common::measure(&BANDWIDTH_TCP.id, &case, SLICE);
        let ends = ends(&readings[0].notes.join("\n"));
        assert_eq!(ends.len(), streams as usize, "{readings:?}");
        for (sender, receiver) in &ends {
            assert_eq!(sender == receiver, placement == SameCpu, "{ends:?}");
        }
        assert!(streams == 1 || ends[0].0 != ends[1].0, "the streams begin on the CPUs in turn: {ends:?}");
        assert_eq!(rates(&readings[1]).len(), 1, "how busy the fullest CPU was: {readings:?}");
    }
}

#[test]
fn what_sockets_were_asked_for_and_what_they_obtained_is_told() {
    let case = placed(TwoCpus, 4 << 10).with(STREAMS, 1);
    let directories = common::Directories::scratch(&std::env::temp_dir());
    let ask = |sockets| common::run_probe_asking(&directories, sockets, &BANDWIDTH_TCP.id, &case, SLICE);
    let notes = |sockets: SocketOptions| match ask(sockets) {
        Attempt::Measured(readings) => readings[0].notes.join("\n"),
        other => panic!("{other:?}"),
    };
    let usual = notes(SocketOptions::default());
    assert!(
        usual.contains("asked for: cubic where the kernel grants it, else reno, buffers that grow by themselves"),
        "{usual}"
    );
    let asked = SocketOptions { congestion_control: Some("reno".into()), buffers: Some(32 << 10) };
    let own = notes(asked);
    assert!(own.contains("asked for: reno, buffers of 32 KiB"), "{own}");
    assert!(own.contains("congestion control reno") && own.contains("TCP_INFO: round trip"), "{own}");
    assert!(own.contains("socket buffers of 64 KiB to send, 64 KiB to receive"), "{own}");
    assert!(own.contains("the other end's has 64 KiB to receive"), "{own}");
    let unknown = SocketOptions { congestion_control: Some("no-such".into()), buffers: None };
    match ask(unknown) {
        Attempt::Failed(reason) => assert!(reason.contains("refused the congestion control no-such"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_sent_over_udp_is_not_claimed_as_received() {
    let case = placed(TwoCpus, 1472);
    let readings = common::measure(&BANDWIDTH_UDP.id, &case, SLICE);
    let ids: Vec<Name> = readings.iter().map(|reading| reading.metric).collect();
    let all = [&BANDWIDTH_UDP, &BANDWIDTH_UDP_SENT, &BANDWIDTH_UDP_LOST, &BANDWIDTH_UDP_OVERTAKEN];
    assert_eq!(ids, all.map(|metric| metric.id));
    let (sent, lost, reordered) = (rates(&readings[1])[0], rates(&readings[2])[0], rates(&readings[3])[0]);
    assert!(sent > 1e6 && (0.0..1.0).contains(&lost) && (0.0..=1.0).contains(&reordered), "{readings:?}");
    let small = placed(TwoCpus, 4);
    match common::run_probe(&BANDWIDTH_UDP.id, &small, SLICE) {
        Attempt::Failed(reason) => assert!(reason.contains("no room for its number"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn echo_requests_are_answered_or_the_right_that_is_missing_is_named() {
    match common::run_probe(&RTT_ICMP.id, &Case::new().with(MESSAGE, 64), SLICE) {
        Attempt::Measured(readings) => {
            assert!(common::median(&readings[0]) > 100.0);
            assert!(readings[0].notes[0].contains("socket"), "{:?}", readings[0].notes);
        }
        Attempt::Skipped(reason) => {
            eprintln!("{} skipped: {reason}", RTT_ICMP.id);
            assert!(reason.0.contains("ping_group_range") || reason.0.contains("icmp_echo_ignore_all"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn connections_are_made_and_closed_wherever_the_other_end_runs() {
    for &placement in Placement::ALL {
        let case = Case::new().at(placement);
        let Some(parts) = measured_or_skipped(&CONNECT, &case) else { continue };
        let Some(whole) = measured_or_skipped(&CRR, &case) else { continue };
        let (connect, close) = (common::median(&parts[0]), common::median(&parts[1]));
        let whole = common::median(&whole[0]);
        assert!(connect > close && close > 100.0, "{case}: connect {connect} ns, close {close} ns");
        // A transaction also holds a round trip; a fifth for what neighbours do between the two measurements.
        assert!(whole > 0.8 * (connect + close), "{case}: {whole} ns for {connect} ns and {close} ns");
    }
}

#[test]
fn a_send_that_wakes_another_cpu_is_a_part_of_a_round_trip() {
    let Some(readings) = measured_or_skipped(&WAKE_TCP, &Case::new()) else { return };
    let sends = common::median(&readings[0]);
    let trip = common::median(&common::measure(&RTT_TCP.id, &placed(TwoCpus, 64), SLICE)[0]);
    // The send is a part of it; a half more for what neighbours do between the two measurements.
    assert!(sends > 200.0 && sends < 1.5 * trip, "{sends} ns to send, {trip} ns there and back");
}

#[test]
fn a_message_beside_a_stream_comes_back() {
    for &placement in Placement::ALL {
        let readings = common::measure(&LOADED.id, &Case::new().at(placement), SLICE);
        let note = readings[0].notes.join("\n");
        assert!(note.contains("GB/s meanwhile") && note.contains("of the messages: TCP_INFO"), "{note}");
        let [(sender, receiver)] = &ends(&note)[..] else { panic!("{note}") };
        assert_eq!(sender == receiver, placement == SameCpu, "{note}");
        assert!(common::median(&readings[0]) > 1000.0);
    }
}

#[test]
fn a_case_that_makes_no_sense_is_refused_by_name() {
    let refused = |probe: &Metric, case: Case| match common::run_probe(&probe.id, &case, SLICE) {
        Attempt::Failed(reason) => reason,
        other => panic!("{}: {other:?}", probe.id),
    };
    let elsewhere = Case::new().at(Point::new(Placement::AXIS, "elsewhere")).with(MESSAGE, 64);
    assert!(refused(&RTT_TCP, elsewhere).contains("placement=same_cpu or placement=two_cpus"));
    assert!(refused(&RTT_TCP, placed(SameCpu, 0)).contains("a message of 1 byte and more"));
    assert!(refused(&RTT_UDP, placed(SameCpu, 65_508)).contains("too long"));
}
