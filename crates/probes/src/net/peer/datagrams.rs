//! Bytes per second of datagrams that arrive at another host, sent as fast as possible or offered at a rate. Also how
//! many are lost and reordered.
//!
//! What was sent must not be taken for what arrived: the agent counts, and gaps in the numbers show what is missing.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_core::Bound;
use kelvin_core::catalogue::net::{
    OFFERED_RATE, PEER_BANDWIDTH, PEER_BANDWIDTH_UDP, PEER_BANDWIDTH_UDP_LOST, PEER_BANDWIDTH_UDP_REORDERED,
    PEER_BANDWIDTH_UDP_SENT, PEER_OFFERED, PEER_OFFERED_LOST, PEER_OFFERED_REORDERED, PEER_OFFERED_SENT,
};
use kelvin_harness::{BoundedMetric, HardwareFacts};
use kelvin_sys::clock::monotonic;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_transfer::wire::message::NUMBER_BYTES;
use kelvin_transfer::wire::message::TestDirection;
use kelvin_transfer::wire::throughput::Pacer;

use super::super::prelude::*;
use super::bandwidth::streams_to_agent;
use super::link_rate::{self, PacketLayout, Payload, STREAM_PAYLOAD};
use super::rate_windows::{
    MIN_WINDOWS, RateWatch, SustainedWindows, Transfer, describe_burst, describe_busy, host_busy_shares, rates,
};
use super::{connect_agent, describe_agent_side, describe_interfaces, probe_error};

/// The metrics of datagrams: what arrived, was sent, was lost, was reordered.
type DatagramMetrics = [&'static Metric; 4];

static UNPACED_METRICS: DatagramMetrics =
    [&PEER_BANDWIDTH_UDP, &PEER_BANDWIDTH_UDP_SENT, &PEER_BANDWIDTH_UDP_LOST, &PEER_BANDWIDTH_UDP_REORDERED];
static PACED_METRICS: DatagramMetrics =
    [&PEER_OFFERED, &PEER_OFFERED_SENT, &PEER_OFFERED_LOST, &PEER_OFFERED_REORDERED];
pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Datagrams sent to another host as fast as possible: how many arrive, are lost, are reordered (--peer \
              HOST)",
    method: METHOD,
    cases: |_, effort| {
        let sizes = [PACKET_PAYLOAD, SMALL_MESSAGE];
        numbers(MESSAGE, if effort == Effort::Quick { &sizes[..1] } else { &sizes })
    },
    run: |bench, case| run(bench, message_bytes(case)?, None, &UNPACED_METRICS),
    predict: |facts, metric, case| {
        if metric.id != PEER_BANDWIDTH_UDP.id {
            return Err(no_own_prediction());
        }
        predict(facts, MESSAGE.number_in(case).unwrap_or(PACKET_PAYLOAD), None)
    },
    ..Probe::study(&UNPACED_METRICS)
};

pub(in crate::net) static OFFERED_PROBE: Probe = Probe {
    summary: "Datagrams offered to another host at an even rate: how many arrive, are lost, are reordered (--peer \
              HOST)",
    method: METHOD,
    cases: |_, effort| {
        let offered_rates = [10_000_000_u64, 100_000_000, 1_000_000_000];
        numbers(OFFERED_RATE, if effort == Effort::Quick { &offered_rates[..1] } else { &offered_rates })
    },
    run: |bench, case| {
        let bits = OFFERED_RATE.number_in(case).filter(|bits| (1_000..=1_000_000_000_000).contains(bits));
        let bits = bits.or_fail(format!("the case needs at least 1,000 bits per second, not {case}"))?;
        run(bench, PACKET_PAYLOAD as usize, Some(bits as f64 / 8.0), &PACED_METRICS)
    },
    predict: |facts, metric, case| {
        if metric.id != PEER_OFFERED.id {
            return Err(no_own_prediction());
        }
        predict(facts, PACKET_PAYLOAD, OFFERED_RATE.number_in(case).map(|bits| bits as f64 / 8.0))
    },
    ..Probe::study(&PACED_METRICS)
};

pub(in crate::net) static BOUNDED: BoundedMetric = BoundedMetric {
    metric: &PEER_BANDWIDTH_UDP,
    maximum: |hardware, case| datagram_bound(hardware, MESSAGE.number_in(case)?),
};

pub(in crate::net) static OFFERED_BOUNDED: BoundedMetric =
    BoundedMetric { metric: &PEER_OFFERED, maximum: |hardware, _| datagram_bound(hardware, PACKET_PAYLOAD) };

fn datagram_bound(hardware: HardwareFacts<'_>, bytes: u64) -> Option<Bound> {
    link_rate::payload_bound(hardware, Payload::Datagrams(bytes))
}

const METHOD: &str = include_str!("datagrams.md");

/// Bytes of a datagram that is one packet of an Ethernet over IPv4.
const PACKET_PAYLOAD: u64 = 1472;
/// Datagrams between two checks of the clock and of the end.
const BURST_DATAGRAMS: u64 = 16;
/// A call that waits longer than this checks for the end.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Linux's error where its own queue has no room: the datagram was not sent.
const ENOBUFS: i32 = 105;

/// Sends datagrams of this many bytes, this many bytes a second or as fast as possible.
fn run(
    bench: &mut Bench<'_>,
    bytes: usize,
    rate: Option<f64>,
    [arrived, sent, lost, reordered]: &DatagramMetrics,
) -> ProbeResult {
    let mut client = connect_agent(bench)?;
    let local_address = client.local_addr;
    let mut test = client.count_datagrams(bytes as u32).map_err(probe_error)?;
    let socket = test.socket.try_clone()?;
    let slice = Duration::from_nanos(bench.slice() as u64);
    let transfer = Transfer::new(TestDirection::ToAgent, Vec::new());
    let SustainedWindows { windows, burst } = std::thread::scope(|scope| {
        let sender =
            ThreadBuilder::named("sender").start_in(scope, || send_until_stopped(&socket, bytes, rate, &transfer))?;
        let windows = RateWatch::start(&mut test, &transfer).measure_windows(slice, MIN_WINDOWS);
        transfer.is_over.store(true, Ordering::Relaxed);
        sender.join().map_err(|_| ProbeError::fail("the sender panicked"))??;
        windows
    })?;
    let socket_description = Link::Udp(socket).describe()?;
    let report = test.finish().map_err(probe_error)?;
    let ends = windows.first().zip(windows.last());
    let (first, last) = ends.or_fail("no datagram arrived")?;
    bench.note(format!("{} datagrams found the agent's socket full", last.dropped - first.dropped));
    bench.note(format!("{socket_description}; {}", describe_agent_side(&report, 1)));
    bench.note(describe_interfaces(local_address, &report));
    burst.iter().for_each(|burst| bench.note(describe_burst(burst)));
    if let Some(busy) = host_busy_shares(&windows) {
        bench.note(describe_busy(&busy));
    }
    bench.record(arrived, rates(&windows));
    last.totals.record_datagrams_since(&first.totals, bench, [sent, lost, reordered])
}

/// Sends until stopped.
fn send_until_stopped(socket: &UdpSocket, bytes: usize, rate: Option<f64>, transfer: &Transfer) -> ProbeResult {
    transfer.threads.register();
    socket.set_write_timeout(Some(STOP_CHECK_INTERVAL))?;
    let mut datagram = vec![0x5a; bytes];
    let mut pace = rate.map(|rate| Pacer::new(bytes as f64 * 1e9 / rate, MAX_BACKLOG_NANOSECONDS, monotonic()));
    let mut number = 0_u64;
    while !transfer.is_over.load(Ordering::Relaxed) {
        for _ in 0..pace.as_mut().map_or(BURST_DATAGRAMS, |pace| pace.take_due(monotonic())) {
            datagram[..NUMBER_BYTES].copy_from_slice(&(number + 1).to_le_bytes());
            match socket.send(&datagram) {
                Ok(_) => {
                    number += 1;
                    transfer.bytes.store(number * bytes as u64, Ordering::Relaxed);
                }
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => return Err(ProbeError::fail(format!("cannot send to the agent: {error}"))),
            }
        }
        if let Some(pace) = &pace {
            std::thread::sleep(pace.time_to_next(monotonic()));
        }
    }
    Ok(())
}

/// Arrears of more than this are not made up for: a burst would be another offer. In nanoseconds.
const MAX_BACKLOG_NANOSECONDS: f64 = 10e6;

fn no_own_prediction() -> NoPrediction {
    NoPrediction::new("it depends on the slowest of the link and the two hosts, and on the buffers between them")
}

fn predict(facts: &PredictionInputs<'_>, bytes: u64, offered: Option<f64>) -> Predicted {
    let tcp = measured(facts, &PEER_BANDWIDTH, &streams_to_agent(1))?;
    let message = Case::new().with_number(MESSAGE, bytes);
    let ends = Protocol::Udp.metrics();
    let (send, receive) = (measured(facts, ends.send, &message)?, measured(facts, ends.receive, &message)?);
    let hosts = bytes_of("message", bytes) / send.max(receive);
    // The link's rate of datagrams: by its line rate, or where that is not known by TCP's throughput.
    let (hardware, datagrams) = (facts.hardware(), Payload::Datagrams(bytes));
    let link = link_rate::payload_rate(hardware, datagrams).unwrap_or_else(|_| {
        let packets = PacketLayout::to_agent(hardware);
        let share =
            |payload| quantity(packets.describe_payload_share(payload), packets.payload_share(payload), Unit::Ratio);
        tcp * share(datagrams) / share(STREAM_PAYLOAD)
    });
    let carried_rate = link.min(hosts).source(link_rate::SOURCES);
    let Some(offered) = offered else {
        return Ok(carried_rate.widen(2.0).derived("link or hosts"));
    };
    let is_offer_limited = offered < carried_rate.value() / 2.0;
    let rate = fact("offered", offered, Unit::BytesPerSecond, "the case").min(carried_rate);
    if !is_offer_limited {
        return Ok(rate.widen(2.0).derived("link or hosts"));
    }
    let rate = rate.of_value([0.95, 1.01]).with_maximum(offered);
    Ok(rate.derived("the rate offered"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::net::{STREAM_UDP, STREAM_UDP_RECEIVE};
    use kelvin_core::{Fact, NetworkPath};

    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn arrival_is_minimum_of_limits() {
        let values = [
            (PEER_BANDWIDTH.id.as_str(), Some(117.685e6)),
            (STREAM_UDP.id.as_str(), Some(3000.0)),
            (STREAM_UDP_RECEIVE.id.as_str(), Some(1000.0)),
        ];
        with_facts(&values, |facts| {
            // A gigabit link carries 957 Mbit/s of datagrams, as every iperf3 on one shows.
            let link_limited = predict(facts, 1472, None).unwrap();
            assert!((link_limited.value * 8.0 / 1e6 - 957.1).abs() < 0.1, "{}", link_limited.value);
            // 64 bytes in 3 us.
            assert!((predict(facts, 64, None).unwrap().value - 64.0 / 3e-6).abs() < 1.0);
            let offered = predict(facts, 1472, Some(12.5e6)).unwrap();
            assert_eq!((offered.value, offered.low), (12.5e6, 12.5e6 * 0.95));
            assert!(offered.formula.starts_with("the smaller of offered and"), "{}", offered.formula);
            assert_eq!(predict(facts, 1472, Some(1e9)).unwrap().value, link_limited.value);
        });
        with_facts(&[], |facts| assert!(predict(facts, 1472, None).is_err()));
    }

    #[test]
    fn line_rate_overrides_tcp_throughput() {
        let mut machine = crate::testing::machine();
        machine.nics = vec![crate::testing::nic("eth0", Fact::known(1e9, "ethtool"))];
        machine.nics[0].mtu = Fact::known(1500, "a test");
        let path = NetworkPath {
            protocol: 6,
            interface: Fact::known("eth0".into(), "a test"),
            agent_link_speed: Fact::unknown("a test"),
            agent_mtu: Fact::unknown("a test"),
            agent_cpus: Fact::unknown("a test"),
        };
        let measured = |id: &str, _: &Case| {
            let value = if id == PEER_BANDWIDTH.id.as_str() { 20e6 } else { 1000.0 };
            Some(kelvin_harness::MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured).with_path(Some(&path));
        let prediction = predict(&facts, 1452, None).unwrap();
        assert!((prediction.value - 125e6 * 1452.0 / 1538.0).abs() < 1.0, "{prediction:?}");
        assert!(prediction.derivation.contains("125 MB/s x 0.944"), "{}", prediction.derivation);
        let limit = (BOUNDED.maximum)(facts.hardware(), &Case::new().with_number(MESSAGE, 1452)).unwrap().limit;
        assert!((limit / prediction.value - 1.01).abs() < 1e-9);
        let offered =
            (OFFERED_BOUNDED.maximum)(facts.hardware(), &Case::new().with_number(OFFERED_RATE, 1_000_000)).unwrap();
        // 1472 bytes are two packets of IPv6.
        assert!((offered.limit / (125e6 * 1472.0 / 1652.0) - 1.01).abs() < 1e-9, "{offered:?}");
    }

    #[test]
    fn datagrams_are_offered_at_their_rate() {
        let [client, server] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        let transfer = Transfer::new(TestDirection::ToAgent, Vec::new());
        let count_sent = || transfer.bytes.load(Ordering::Relaxed) / 1000;
        let start = std::time::Instant::now();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_until_stopped(&client, 1000, Some(1e6), &transfer));
            while count_sent() < 20 && !sender.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            transfer.is_over.store(true, Ordering::Relaxed);
            sender.join().unwrap().unwrap();
        });
        // A thousand in a second, one of them at once; a busy machine may delay it, and arrears are not made up for.
        let (sent, max_sent) = (count_sent(), 1 + start.elapsed().as_millis() as u64 + 1);
        assert!((20..=max_sent).contains(&sent), "{sent} of {max_sent}");
        let mut datagram = [0; 2000];
        for number in 1..=20u64 {
            assert_eq!(server.recv(&mut datagram).unwrap(), 1000);
            assert_eq!(datagram[..NUMBER_BYTES], number.to_le_bytes());
        }
    }
}
