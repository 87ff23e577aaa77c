//! Tests of throughput with an agent of this process: what both ends count, and how a test ends.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::secret;
use crate::wire::admission::AgentLimits;
use crate::wire::agent::{Agent, AgentEvent};
use crate::wire::client::AgentClient;
use crate::wire::client::throughput::{ThroughputOutcome, ThroughputSchedule};
use crate::wire::message::{AgentRequest, AgentResponse, Transport};
use crate::wire::test_socket::TestSocketOptions;
use crate::wire::throughput::{EndCounts, ThroughputSpec};

/// Runs an agent, and at the same time a function of its address and what ends clients.
fn with_agent<T>(body: impl FnOnce(SocketAddr, &Receiver<String>) -> T) -> T {
    let (sender, ends) = channel();
    let log = move |_: SocketAddr, event: &AgentEvent| match event {
        AgentEvent::Fault(error) => drop(sender.send(error.to_string())),
        AgentEvent::Disconnected => drop(sender.send("disconnected".into())),
        _ => {}
    };
    let limits = AgentLimits { idle_timeout: Duration::from_secs(5), ..AgentLimits::default() };
    let agent = Agent::listen("127.0.0.1:0".parse().unwrap(), secret(), limits, Box::new(log)).unwrap();
    let (address, is_over) = (agent.address().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(address, &ends)));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn spec(transport: Transport, to_agent: u32, from_agent: u32) -> ThroughputSpec {
    ThroughputSpec {
        transport,
        to_agent,
        from_agent,
        message: 4000,
        bits_per_second: None,
        bytes: None,
        seconds: 10,
        no_delay: false,
        sockets: TestSocketOptions::default(),
    }
}

fn for_time(milliseconds: u64) -> ThroughputSchedule {
    let time = Some(Duration::from_millis(milliseconds));
    ThroughputSchedule { warm_up: Duration::ZERO, time, interval: Duration::from_millis(50) }
}

fn until_sent() -> ThroughputSchedule {
    ThroughputSchedule { time: None, ..for_time(0) }
}

fn measure(spec: &ThroughputSpec, schedule: &ThroughputSchedule) -> ThroughputOutcome {
    with_agent(|address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        client.measure_throughput(spec, schedule, &|| false, &mut |_, _| ()).unwrap()
    })
}

/// What both ends counted in the end.
fn last(outcome: &ThroughputOutcome) -> [&EndCounts; 2] {
    let last = outcome.last.as_ref().unwrap();
    [&last.here, &last.there]
}

fn bytes(counts: &EndCounts) -> Vec<u64> {
    counts.streams.iter().map(|stream| stream.bytes).collect()
}

#[test]
fn both_ends_count_the_same_bytes_of_streams() {
    for (to_agent, from_agent) in [(3, 0), (0, 3), (2, 2)] {
        let outcome = measure(&spec(Transport::Tcp, to_agent, from_agent), &for_time(150));
        let [here, there] = last(&outcome);
        assert_eq!(bytes(here), bytes(there), "{to_agent} {from_agent}");
        assert!(bytes(here).iter().all(|&bytes| bytes > 0), "{here:?}");
        let ended = |end: &EndCounts| end.streams.iter().all(|stream| stream.ended.is_some());
        assert!(ended(here) && ended(there), "{outcome:?}");
        // The end that sends knows of the connection.
        for (number, (here, there)) in here.streams.iter().zip(&there.streams).enumerate() {
            let sends_here = number < to_agent as usize;
            assert_eq!((here.tcp.is_some(), there.tcp.is_some()), (sends_here, !sends_here));
        }
        assert!(outcome.samples.len() >= 4 && outcome.connection.is_some(), "{outcome:?}");
        let report = outcome.report.as_ref().unwrap();
        assert_eq!(report.arrived, bytes(here)[..to_agent as usize].iter().sum::<u64>());
    }
}

#[test]
fn amount_of_bytes_ends_test() {
    for (to_agent, from_agent) in [(2, 0), (0, 2), (1, 1)] {
        let amount = 1_000_001;
        let spec = ThroughputSpec { bytes: Some(amount), ..spec(Transport::Tcp, to_agent, from_agent) };
        let outcome = measure(&spec, &until_sent());
        let [here, there] = last(&outcome);
        assert_eq!(bytes(here), bytes(there));
        let (to, from) = here.streams.split_at(to_agent as usize);
        for streams in [to, from].into_iter().filter(|streams| !streams.is_empty()) {
            assert_eq!(streams.iter().map(|stream| stream.bytes).sum::<u64>(), amount, "{here:?}");
        }
    }
    // Datagrams are whole.
    for (to_agent, from_agent) in [(1, 0), (0, 1)] {
        let spec = ThroughputSpec { bytes: Some(40_001), ..spec(Transport::Udp, to_agent, from_agent) };
        let outcome = measure(&spec, &until_sent());
        assert_eq!(last(&outcome).map(bytes), [[44_000], [44_000]]);
    }
}

#[test]
fn datagrams_are_sent_at_their_rate_and_counted() {
    for (to_agent, from_agent) in [(2, 0), (0, 2)] {
        // 1,000 datagrams a second.
        let spec = ThroughputSpec { bits_per_second: Some(32_000_000), ..spec(Transport::Udp, to_agent, from_agent) };
        let outcome = measure(&spec, &for_time(200));
        let [here, there] = last(&outcome);
        let (senders, receivers) = if to_agent > 0 { (here, there) } else { (there, here) };
        let time = outcome.last.as_ref().unwrap().time.max(senders.time()).as_millis() as u64;
        for (sender, receiver) in senders.streams.iter().zip(&receivers.streams) {
            let [sent, arrived] = [sender, receiver].map(|stream| stream.datagrams.unwrap());
            assert_eq!((sender.bytes, receiver.bytes), (sent.count * 4000, arrived.count * 4000));
            // A busy machine may delay them; arrears of more than a tenth of a second are not made up for.
            assert!(sent.count > 20 && sent.count <= time + 2, "{sent:?} in {time} ms");
            // Loopback loses what a full socket drops, and nothing else.
            assert_eq!((sent.count, arrived.latest), (arrived.count + arrived.dropped, sent.count), "{arrived:?}");
            assert!(arrived.jitter > 0 && arrived.reordered == 0, "{arrived:?}");
        }
    }
}

#[test]
fn streams_keep_to_their_rate() {
    // 400 kB/s, in messages of 4000 bytes: one each 10 ms.
    let spec = ThroughputSpec { bits_per_second: Some(3_200_000), ..spec(Transport::Tcp, 1, 1) };
    let outcome = measure(&spec, &for_time(300));
    let [here, there] = last(&outcome);
    assert_eq!(bytes(here), bytes(there));
    let most = 4000 * (2 + there.time().max(outcome.last.as_ref().unwrap().time).as_millis() as u64 / 10);
    for bytes in bytes(here) {
        assert!((40_000..=most).contains(&bytes), "{bytes} of at most {most}");
    }
}

#[test]
fn warm_up_is_looked_at_and_ends_at_a_look() {
    let schedule = ThroughputSchedule { warm_up: Duration::from_millis(75), ..for_time(100) };
    let outcome = measure(&spec(Transport::Tcp, 1, 0), &schedule);
    let times: Vec<u128> = outcome.samples.iter().map(|sample| sample.time.as_millis()).collect();
    assert_eq!(times.len(), 5, "{times:?}");
    assert!(times[1] >= 50 && times[2] >= 75 && times[4] >= 175, "{times:?}");
}

#[test]
fn stopped_test_has_its_counts() {
    with_agent(|address, ends| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        let start = Instant::now();
        let is_stopped = || start.elapsed() > Duration::from_millis(100);
        let schedule = for_time(60_000);
        let outcome =
            client.measure_throughput(&spec(Transport::Tcp, 1, 1), &schedule, &is_stopped, &mut |_, _| ()).unwrap();
        let [here, there] = last(&outcome);
        assert_eq!(bytes(here), bytes(there));
        // The agent serves the next one.
        let spec = ThroughputSpec { bytes: Some(1), ..spec(Transport::Tcp, 1, 0) };
        assert_eq!(
            bytes(last(&client.measure_throughput(&spec, &until_sent(), &|| false, &mut |_, _| ()).unwrap())[1]),
            [1]
        );
        drop(client);
        assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), "disconnected");
    });
}

#[test]
fn refusal_names_what_is_too_much() {
    with_agent(|address, _| {
        let mut client = AgentClient::connect(&[address], &secret()).unwrap();
        for (spec, what) in [
            (spec(Transport::Tcp, 129, 0), "streams must be from 1 to 128"),
            (ThroughputSpec { message: 70_000, ..spec(Transport::Udp, 1, 0) }, "bytes of a message must be from 17"),
        ] {
            let error = client.measure_throughput(&spec, &until_sent(), &|| false, &mut |_, _| ()).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    });
}

/// A client that is gone in the middle of a test leaves no thread and no connection behind.
#[test]
fn vanished_client_ends_test_at_agent() {
    with_agent(|address, ends| {
        for transport in [Transport::Tcp, Transport::Udp] {
            let mut client = AgentClient::connect(&[address], &secret()).unwrap();
            let spec = ThroughputSpec { bits_per_second: Some(1_000_000), ..spec(transport, 1, 1) };
            client.channel.send(&AgentRequest::Throughput(spec.clone()), Duration::from_secs(5)).unwrap();
            let sockets = match transport {
                Transport::Tcp => client.throughput_connections(&spec).unwrap(),
                Transport::Udp => client.throughput_datagrams(&spec).unwrap(),
            };
            let begun: AgentResponse = client.channel.receive(Duration::from_secs(5)).unwrap();
            assert!(matches!(begun, AgentResponse::Carried(EndCounts { streams, .. }) if streams.len() == 2));
            client.channel.send(&AgentRequest::Count, Duration::from_secs(5)).unwrap();
            let _: AgentResponse = client.channel.receive(Duration::from_secs(5)).unwrap();
            drop((client, sockets));
            let end = ends.recv_timeout(Duration::from_secs(10)).unwrap();
            assert!(end == "disconnected" || end.contains("closed the connection"), "{end}");
            let mut client = AgentClient::connect(&[address], &secret()).unwrap();
            let spec = ThroughputSpec { bytes: Some(1), ..spec };
            let next = client.measure_throughput(&spec, &until_sent(), &|| false, &mut |_, _| ()).unwrap();
            assert_eq!(next.report.unwrap().max_concurrent_tests, 1, "the first one is over");
            drop(client);
            assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), "disconnected");
        }
    });
}
