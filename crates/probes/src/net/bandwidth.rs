//! Bytes per second that arrive at another process, by message, number of streams and sending method.
//!
//! Counted where they arrive. It must not be taken for the throughput of a network between two machines.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use kelvin_core::catalogue::mem::BANDWIDTH_READ;
use kelvin_core::catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_CPU, BANDWIDTH_TCP_METHOD, BANDWIDTH_TCP_SYSTEM, BANDWIDTH_UDP, BANDWIDTH_UDP_LOST,
    BANDWIDTH_UDP_REORDERED, BANDWIDTH_UDP_SENT, BANDWIDTH_UNIX, STREAMS,
};
use kelvin_harness::TcpOptions;
use kelvin_sys::{Error, Result as Done, net};
use kelvin_transfer::wire::message::NUMBER_BYTES;

use super::bulk::{BulkStreams, StreamPlan, StreamReport, place_streams};
use super::link::{DEFAULT_CONTROL_TEXT, LARGEST_DATAGRAM, prefer_congestion_control};
use super::prelude::*;
use super::{sender, stream};
use crate::descriptors::allow_descriptors;
use crate::memory::{bandwidth, core_to_core, latency, memory_budget};
use crate::os::switch::process_switch;
use crate::working_cpus::neighbours_on_machine;

/// A window over which arrivals are counted: several turns of two threads that share a CPU. The headline is the median over
/// windows, the best one the peak.
const COUNT_WINDOW: Duration = Duration::from_millis(10);
/// Fewest windows of a round, which is made longer for them: rounds differ several times as much as windows.
const MIN_WINDOWS: u32 = 3;
pub(super) static TCP: Probe = Probe {
    summary: "Bytes from one process to another over TCP, by message, streams and placement",
    method: METHOD,
    cases: tcp_cases,
    run: |bench, case| run(bench, case, Protocol::Tcp, &BANDWIDTH_TCP),
    predict: |facts, metric, case| {
        if metric.id == BANDWIDTH_TCP.id {
            return predict(facts, case, Protocol::Tcp);
        }
        // Nothing waits for a device, so that its sender or its receiver has work all the time.
        let busiest = fact("CPUs that always have work", 1.0, Unit::Count, "nothing else is waited for");
        let remark = "less where each waits for the other, and a little more by how CPU time is counted";
        Ok(busiest.with_interval((0.8, 1.05)).explained(PredictionBasis::Derived, "one always works", remark))
    },
    ..Probe::measure(&[&BANDWIDTH_TCP, &BANDWIDTH_TCP_CPU])
};

pub(super) static TCP_SEND_METHOD: Probe = Probe {
    summary: "Bytes from one process to another over TCP, with and without copying out of the program's memory",
    method: METHOD,
    cases: send_method_cases,
    run: |bench, case| run(bench, case, Protocol::Tcp, &BANDWIDTH_TCP_METHOD),
    predict: |facts, _, case| predict(facts, case, Protocol::Tcp),
    ..Probe::measure(&[&BANDWIDTH_TCP_METHOD])
};

pub(super) static TCP_SYSTEM_CONTROL: Probe = Probe {
    summary: "Bytes from one process to another over TCP, with the congestion control that programs have by default",
    method: METHOD,
    cases: |_, effort| {
        let call_bound_cases = numbers(MESSAGE, &[CALL_BOUND_MESSAGE]).words(&[PairPlacement::TwoCpus]);
        let byte_bound_messages: &[u64] = if effort == Effort::Quick { &[] } else { &[BYTE_BOUND_MESSAGE] };
        [call_bound_cases, numbers(MESSAGE, byte_bound_messages).words(PairPlacement::ALL)].concat()
    },
    run: |bench, case| run(bench, case, Protocol::Tcp, &BANDWIDTH_TCP_SYSTEM),
    predict: |facts, _, case| predict(facts, case, Protocol::Tcp),
    ..Probe::measure(&[&BANDWIDTH_TCP_SYSTEM])
};

pub(super) static UDP: Probe = Probe {
    summary: "Datagrams from one process to another: how many arrive, are lost, are reordered",
    method: METHOD,
    cases: |_, effort| {
        const THOROUGH: &[u64] = &[SMALL_MESSAGE, 1472, 16 << 10, LARGEST_DATAGRAM];
        let default_messages = &[SMALL_MESSAGE, 1472, LARGEST_DATAGRAM];
        numbers(MESSAGE, by_effort(effort, [&[1472], default_messages, THOROUGH])).words(PairPlacement::ALL)
    },
    run: |bench, case| run(bench, case, Protocol::Udp, &BANDWIDTH_UDP),
    predict: predict_datagrams,
    ..Probe::measure(&[&BANDWIDTH_UDP, &BANDWIDTH_UDP_SENT, &BANDWIDTH_UDP_LOST, &BANDWIDTH_UDP_REORDERED])
};

pub(super) static UNIX: Probe = Probe {
    summary: "Bytes from one process to another over Unix sockets, by message and placement",
    method: METHOD,
    cases: |_, effort| {
        numbers(MESSAGE, if effort == Effort::Quick { &[4 << 10] } else { &[4 << 10, 64 << 10] })
            .words(PairPlacement::ALL)
    },
    run: |bench, case| run(bench, case, Protocol::Unix, &BANDWIDTH_UNIX),
    predict: |facts, _, case| predict(facts, case, Protocol::Unix),
    ..Probe::measure(&[&BANDWIDTH_UNIX])
};

const METHOD: &str = include_str!("bandwidth.md");

fn stream_cases(messages: &[u64], streams: &[u64]) -> Vec<Case> {
    numbers(MESSAGE, messages).numbers(STREAMS, streams).words(PairPlacement::ALL)
}

/// Most streams at once: each has two threads.
const MAX_STREAMS: u64 = 1024;
/// Descriptors of a stream: two sockets, and a file and a pipe for the methods that send from them.
const DESCRIPTORS_PER_STREAM: u64 = 5;

/// One stream, two, and one for each CPU.
fn stream_counts(machine: &Machine) -> Vec<u64> {
    let mut counts = vec![1, 2, memory_budget::allowed_cpu_count(machine).min(MAX_STREAMS)];
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Messages of which calls, and of which bytes are most of the cost.
const CALL_BOUND_MESSAGE: u64 = 4 << 10;
const BYTE_BOUND_MESSAGE: u64 = 64 << 10;

/// Messages of one stream, and of several those where calls are most of the cost and where bytes are.
fn tcp_cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let messages = [SMALL_MESSAGE, CALL_BOUND_MESSAGE, BYTE_BOUND_MESSAGE, 1 << 20];
    match effort {
        Effort::Quick => stream_cases(&[CALL_BOUND_MESSAGE], &[1, 2]),
        Effort::Default => [
            stream_cases(&messages, &[1]),
            stream_cases(&[CALL_BOUND_MESSAGE, BYTE_BOUND_MESSAGE], &stream_counts(machine)[1..]),
        ]
        .concat(),
        Effort::Thorough => stream_cases(&messages, &stream_counts(machine)),
    }
}

/// At one size, which saving a copy is for, between two CPUs, where the copy saved may overlap the receiver's work.
fn send_method_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let two_cpus = &[PairPlacement::TwoCpus][..];
    let (messages, methods, placements) = match effort {
        Effort::Quick => (&[64 << 10][..], &[SendMethod::Send, SendMethod::Sendfile][..], two_cpus),
        Effort::Default => (&[64 << 10][..], SendMethod::ALL, two_cpus),
        Effort::Thorough => (&[4 << 10, 64 << 10][..], SendMethod::ALL, PairPlacement::ALL),
    };
    numbers(MESSAGE, messages).words(methods).words(placements)
}

fn run(bench: &mut Bench<'_>, case: &Case, protocol: Protocol, metric: &'static Metric) -> ProbeResult {
    let plan = stream_plan(bench, case, protocol)?;
    allow_descriptors(plan.streams.len() as u64 * DESCRIPTORS_PER_STREAM)?;
    let (sockets, is_system_metric) = (bench.sockets(), metric.id == BANDWIDTH_TCP_SYSTEM.id);
    let connect = |_| match protocol {
        Protocol::Tcp => Link::local_tcp_pair(|socket| set_options(socket, sockets, is_system_metric)),
        Protocol::Udp => Link::pair(protocol),
        Protocol::Unix => {
            let (sender, receiver) = Link::pair(protocol)?;
            if let Some(bytes) = sockets.buffers {
                net::set_buffers(&sender, bytes)?;
                net::set_buffers(&receiver, bytes)?;
            }
            Ok((sender, receiver))
        }
    };
    let connections = plan.streams.iter().map(connect).collect::<Done<_>>();
    let connections = connections.or_fail("cannot connect")?;
    let bulk = BulkStreams::over_links(connections, plan)?;
    if protocol == Protocol::Tcp && !is_system_metric {
        bench.note(describe_options(bench.sockets(), DEFAULT_CONTROL_TEXT));
    }
    let settle_time = bulk.wait_until_settled()?;
    // The totals at the beginning and at the end of each window.
    let mut totals = vec![bulk.totals()?];
    for _ in 0..((bench.slice() / COUNT_WINDOW.as_nanos() as f64) as u32).max(MIN_WINDOWS) {
        std::thread::sleep(COUNT_WINDOW);
        totals.push(bulk.totals()?);
    }
    let (first, last) = (totals[0], totals[totals.len() - 1]);
    let StreamReport { words, max_cpu_share } = bulk.finish()?;
    bench.note(format!("{words}; the first {:.0} ms are left out", settle_time.as_secs_f64() * 1e3));
    bench.record(metric, totals.windows(2).map(|pair| pair[1].rate_since(&pair[0])).collect());
    if metric.id == BANDWIDTH_TCP.id {
        bench.record(&BANDWIDTH_TCP_CPU, vec![max_cpu_share]);
    }
    if protocol == Protocol::Udp {
        let metrics = [&BANDWIDTH_UDP_SENT, &BANDWIDTH_UDP_LOST, &BANDWIDTH_UDP_REORDERED];
        last.record_datagrams_since(&first, bench, metrics)?;
    }
    Ok(())
}

/// Sets what was requested of a socket, and otherwise the default; of one that takes all from the system, nothing but what was requested
/// over it.
fn set_options(socket: BorrowedFd<'_>, options: &TcpOptions, is_system_metric: bool) -> Done<()> {
    if is_system_metric && !options.override_system {
        return Ok(());
    }
    match &options.congestion_control {
        Some(name) => net::set_congestion_control(&socket, name)
            .map_err(|error| Error::other(format!("the kernel refused the congestion control {name}: {error}")))?,
        None if is_system_metric => {}
        None => prefer_congestion_control(socket)?,
    }
    options.buffers.map_or(Ok(()), |bytes| net::set_buffers(&socket, bytes))
}

/// The requested options in words, and the defaults in their place; what was obtained is stated next to it.
pub(super) fn describe_options(sockets: &TcpOptions, default_control: &str) -> String {
    let control = sockets.congestion_control.as_deref().unwrap_or(default_control);
    let buffers = sockets.buffers.map_or("buffers that grow automatically".into(), |bytes| {
        format!("buffers of {} KiB, which the kernel doubles for its own book-keeping", bytes >> 10)
    });
    format!("requested: {control}, {buffers}")
}

/// The plan of a case, on the CPUs that there are.
fn stream_plan(bench: &Bench<'_>, case: &Case, protocol: Protocol) -> ProbeResult<StreamPlan> {
    let message = message_bytes(case)?;
    let reason = format!("a datagram of {message} bytes has no room for its number of {NUMBER_BYTES}");
    fail_if(protocol == Protocol::Udp && message < NUMBER_BYTES, reason)?;
    let streams = STREAMS.number_in(case).unwrap_or(1);
    fail_if(!(1..=MAX_STREAMS).contains(&streams), format!("the case needs 1 to {MAX_STREAMS} streams, not {case}"))?;
    let method = sender::send_method(case)?;
    let receiver_offset = usize::from(partner_cpu(bench, case)? != bench.cpu());
    Ok(StreamPlan {
        protocol,
        method,
        message,
        streams: place_streams(streams, &stream_cpus(bench, streams), receiver_offset),
    })
}

/// This process's CPU, its partner's, and for several streams the others, so that the ends of each stream are near each other.
pub(crate) fn stream_cpus(bench: &Bench<'_>, streams: u64) -> Vec<u32> {
    let mut cpus = vec![bench.cpu()];
    cpus.extend(bench.partner_cpu().ok());
    if streams > 1 {
        let others = neighbours_on_machine(bench.cpu(), bench.allowed_cpus());
        cpus.extend(others.into_iter().filter(|cpu| !cpus.contains(cpu)).collect::<Vec<_>>());
    }
    cpus
}

/// Of two processes that share a CPU the sender does not wait: the scheduler gives it half of the time. What it sends
/// to a full buffer before the receiver runs is lost.
fn predict_datagrams(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let reason = "it depends on how much the receiver's buffer holds, and on where the kernel runs its own work";
    unpredicted_if(![BANDWIDTH_UDP.id, BANDWIDTH_UDP_SENT.id].contains(&metric.id), reason)?;
    if PairPlacement::of(case) != Some(PairPlacement::SameCpu) {
        return predict(facts, case, Protocol::Udp);
    }
    if metric.id == BANDWIDTH_UDP_SENT.id {
        let bytes = MESSAGE.number_in(case).unwrap_or(1);
        let send = measured(facts, Protocol::Udp.metrics().send, &Case::new().with_number(MESSAGE, bytes))?;
        let rate = bytes_of("message", bytes) / (2.0 * send);
        return Ok(rate.widen(2.0).derived("half of the time"));
    }
    let (sent, lost) = (measured(facts, &BANDWIDTH_UDP_SENT, case)?, measured(facts, &BANDWIDTH_UDP_LOST, case)?);
    unpredicted_if(lost.value() >= 1.0, "all datagrams were lost")?;
    Ok((sent * (1.0 - lost)).widen(1.2).derived("sent and not lost"))
}

/// On one CPU the receiver runs when the buffer is full: by then what came first has left the nearer caches. Its book-keeping is one
/// load from memory, its bytes come from the outermost cache; of a message that is larger than half of L2, those that are sent do too.
fn same_cpu_overhead(facts: &PredictionInputs<'_>, bytes: u64, message: u64) -> Predicted<Expr> {
    let machine = facts.machine();
    let load = latency::memory_latency(facts)?;
    let rate = measured(facts, &BANDWIDTH_READ, &bandwidth::case_for_set(machine, SOCKET_BUFFER_BYTES))
        .or_else(|_| bandwidth::in_memory(facts, &BANDWIDTH_READ))?;
    let size = memory_budget::second_level_bytes(machine);
    let passes = if size.is_some_and(|l2_bytes| message > l2_bytes / 2) { 2.0 } else { 1.0 };
    Ok(load + passes * bytes_of("bytes", bytes) / rate)
}

/// Bytes of a full socket buffer: the kernel lets it grow to 6 MiB (tcp_rmem).
const SOCKET_BUFFER_BYTES: u64 = 6 << 20;

fn predict(facts: &PredictionInputs<'_>, case: &Case, protocol: Protocol) -> Predicted {
    let bytes = MESSAGE.number_in(case).unwrap_or(1);
    let streams = STREAMS.number_in(case).unwrap_or(1) as f64;
    let part = bytes.min(stream::MAX_MESSAGE);
    let parts = quantity("parts", bytes as f64 / part as f64, Unit::Ratio);
    let part_case = Case::new().with_number(MESSAGE, part);
    let ends = protocol.metrics();
    let (send, receive) = (measured(facts, ends.send, &part_case)?, measured(facts, ends.receive, &part_case)?);
    let is_cross_cpu = PairPlacement::of(case) != Some(PairPlacement::SameCpu);
    // To another CPU: the line of its book-keeping, and its own lines, several at a time.
    let overhead = if is_cross_cpu {
        let lines = 1.0 + core_to_core::extra_line_times(part as f64);
        quantity("cache lines / 10", lines, Unit::Count) * core_to_core::default_pair_latency(facts)?
    } else {
        same_cpu_overhead(facts, part, bytes)?
    };
    let receive_time = receive + overhead;
    let both_ends = send.clone() + receive_time.clone();
    let (stream_time, name) = match is_cross_cpu {
        // Datagrams are not gathered: a receiver that is faster sleeps before each.
        true if protocol == Protocol::Udp && receive_time.value() < send.value() => {
            (send + process_switch(facts)?, "woken for each")
        }
        true if streams == 1.0 => (send.max(receive_time), "the slower end"),
        // Of several streams between two CPUs a CPU has the sender of one and the receiver of another.
        true => (both_ends.clone(), "both ends of several"),
        false if streams == 1.0 => (both_ends.clone(), "both ends on one CPU"),
        false => (both_ends.clone(), "both ends of several on one CPU"),
    };
    // All streams share the CPUs; but no CPU helps another one with its half of a stream, nor two where both halves are on one.
    let cpus = memory_budget::allowed_cpu_count(facts.machine()) as f64;
    let cpus = fact("CPUs", cpus, Unit::Count, "the CPUs that this process may use");
    let streams = quantity("streams", streams, Unit::Count);
    let time = parts * stream_time.max(streams.clone() * both_ends / cpus);
    let rate = streams * bytes_of("message", bytes) / time;
    Ok(rate.widen(2.0).derived(name))
}

#[cfg(test)]
mod tests {
    use kelvin_core::Metric;
    use kelvin_core::catalogue::mem::{CORE_TO_CORE, LATENCY};
    use kelvin_core::catalogue::net::{
        STREAM_TCP, STREAM_TCP_RECEIVE, STREAM_UDP, STREAM_UDP_RECEIVE, STREAM_UNIX, STREAM_UNIX_RECEIVE,
    };
    use kelvin_core::catalogue::os::SWITCH_COST;

    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn prediction_matches_hand_calculation() {
        let values = [
            (STREAM_TCP.id.as_str(), Some(9000.0)),
            (STREAM_TCP_RECEIVE.id.as_str(), Some(7000.0)),
            (STREAM_UNIX.id.as_str(), Some(1000.0)),
            (STREAM_UNIX_RECEIVE.id.as_str(), Some(600.0)),
            (CORE_TO_CORE.id.as_str(), Some(50.0)),
            (LATENCY.id.as_str(), Some(100.0)),
            (BANDWIDTH_READ.id.as_str(), Some(40.96e9)),
        ];
        with_facts(&values, |facts| {
            // One CPU is known: senders and receivers of all streams share it. A line comes in 50 ns, 1023 more in 5 ns each.
            let case =
                Case::new().with_number(MESSAGE, 65_536).with_number(STREAMS, 1).with_word(PairPlacement::TwoCpus);
            let tcp = predict(facts, &case, Protocol::Tcp).unwrap();
            assert!((tcp.value - 65_536.0 / 21.165e-6).abs() < 1.0, "{}", tcp.value);
            assert_eq!(tcp.inputs.len(), 4);
            // A message of 1 MiB is sixteen of those.
            let case =
                Case::new().with_number(MESSAGE, 1 << 20).with_word(PairPlacement::TwoCpus).with_word(SendMethod::Send);
            assert!((predict(facts, &case, Protocol::Tcp).unwrap().value / tcp.value - 1.0).abs() < 1e-9);
            // On one CPU a load from memory, and 4096 B at 40.96 GB/s.
            let case = Case::new().with_number(MESSAGE, 4096).with_number(STREAMS, 2).with_word(PairPlacement::SameCpu);
            let unix = predict(facts, &case, Protocol::Unix).unwrap();
            assert!((unix.value - 2.0 * 4096.0 / (2.0 * 1.8e-6)).abs() < 1.0, "{}", unix.value);
            assert!(predict(facts, &case, Protocol::Udp).is_err());
        });
    }

    #[test]
    fn multiple_streams_use_each_cpu_twice() {
        let mut machine = crate::testing::machine();
        machine.topology.allowed = kelvin_core::Fact::known((0..16).collect(), "a test");
        let measured = |id: &str, _: &Case| {
            let value = match id {
                id if id == STREAM_TCP.id.as_str() => 6000.0,
                id if id == STREAM_TCP_RECEIVE.id.as_str() => 4000.0,
                _ => 100.0,
            };
            Some(kelvin_core::MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let round_time = |streams: u64| {
            let case = Case::new()
                .with_number(MESSAGE, 65_536)
                .with_number(STREAMS, streams)
                .with_word(PairPlacement::TwoCpus);
            let predicted = predict(&facts, &case, Protocol::Tcp).unwrap();
            streams as f64 * 65_536e9 / predicted.value
        };
        // A line in 100 ns and then ten in as many, to a receiver that is then slower than the sender.
        assert!((round_time(1) - 14_330.0).abs() < 1e-6, "{}", round_time(1));
        assert!(
            (round_time(2) - 20_330.0).abs() < 1e-6 && (round_time(16) - 20_330.0).abs() < 1e-6,
            "{}",
            round_time(2)
        );
        assert!((round_time(32) - 40_660.0).abs() < 1e-6, "{}", round_time(32));
    }

    #[test]
    fn datagram_sender_wakes_faster_receiver() {
        let values = |receive: f64| {
            [
                (STREAM_UDP.id.as_str(), Some(700.0)),
                (STREAM_UDP_RECEIVE.id.as_str(), Some(receive)),
                (CORE_TO_CORE.id.as_str(), Some(50.0)),
                (SWITCH_COST.id.as_str(), Some(800.0)),
            ]
        };
        let message_time = |metric: &Metric, placement, receive| {
            with_facts(&values(receive), |facts| {
                let case = Case::new().with_number(MESSAGE, 64).with_word(placement);
                64e9 / (UDP.predict)(facts, metric, &case).unwrap().value
            })
        };
        for metric in [&BANDWIDTH_UDP, &BANDWIDTH_UDP_SENT] {
            // Alone; and where it is slower, the line of the book-keeping, with one known CPU for both.
            assert!((message_time(metric, PairPlacement::TwoCpus, 200.0) - 1500.0).abs() < 1e-9);
            assert!((message_time(metric, PairPlacement::TwoCpus, 700.0) - 1450.0).abs() < 1e-9);
        }
        assert!((message_time(&BANDWIDTH_UDP_SENT, PairPlacement::SameCpu, 200.0) - 1400.0).abs() < 1e-9);
    }

    #[test]
    fn arrived_plus_lost_is_sent() {
        let values = [(BANDWIDTH_UDP_SENT.id.as_str(), Some(4e9)), (BANDWIDTH_UDP_LOST.id.as_str(), Some(0.75))];
        with_facts(&values, |facts| {
            let case = Case::new().with_number(MESSAGE, 64).with_word(PairPlacement::SameCpu);
            assert!(((UDP.predict)(facts, &BANDWIDTH_UDP, &case).unwrap().value - 1e9).abs() < 1.0);
        });
    }

    #[test]
    fn send_methods_are_compared_at_one_size() {
        let machine = crate::testing::machine();
        let method_cases = |effort| send_method_cases(&machine, effort);
        let default_cases = method_cases(Effort::Default);
        assert_eq!(
            (method_cases(Effort::Quick).len(), default_cases.len(), method_cases(Effort::Thorough).len()),
            (2, 4, 16)
        );
        let is_at_one_size =
            |case| PairPlacement::of(case) == Some(PairPlacement::TwoCpus) && MESSAGE.number_in(case) == Some(65_536);
        assert!(default_cases.iter().all(is_at_one_size), "{default_cases:?}");
    }

    #[test]
    fn streams_have_both_placements() {
        let machine = crate::testing::machine();
        let count_cases = |effort, placement| {
            tcp_cases(&machine, effort).iter().filter(|case| PairPlacement::of(case) == Some(placement)).count()
        };
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            assert_eq!(count_cases(effort, PairPlacement::SameCpu), count_cases(effort, PairPlacement::TwoCpus));
        }
        // Four messages of one stream; two and eight of two numbers of streams.
        let same_cpu_counts = [Effort::Quick, Effort::Default, Effort::Thorough]
            .map(|effort| count_cases(effort, PairPlacement::SameCpu));
        assert_eq!(same_cpu_counts, [2, 6, 8]);
    }

    #[test]
    fn all_cpus_have_a_stream_each_up_to_the_limit() {
        let counts = |cpus: u32| {
            let mut machine = crate::testing::machine();
            machine.topology.allowed = kelvin_core::Fact::known((0..cpus).collect(), "a test");
            stream_counts(&machine)
        };
        assert_eq!([1, 2, 512, 2048].map(counts), [vec![1, 2], vec![1, 2], vec![1, 2, 512], vec![1, 2, MAX_STREAMS]]);
    }
}
