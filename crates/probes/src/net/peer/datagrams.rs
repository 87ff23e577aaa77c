//! Bytes per second of datagrams that arrive at another host, sent as fast as possible or offered at a rate, and how many are
//! lost and reordered.
//!
//! What was sent must not be taken for what arrived: the agent counts, and gaps in the numbers show what is missing.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_catalogue::net::{
    MESSAGE, OFFERED, PEER_BANDWIDTH, PEER_BANDWIDTH_UDP, PEER_BANDWIDTH_UDP_LOST, PEER_BANDWIDTH_UDP_REORDERED,
    PEER_BANDWIDTH_UDP_SENT, PEER_OFFERED, PEER_OFFERED_LOST, PEER_OFFERED_REORDERED, PEER_OFFERED_SENT, STREAM_UDP,
};
use kelvin_harness::{Bench, Bounded, Effort, Facts, Hardware, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Bound, Case, Input, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::clock::monotonic;
use kelvin_sys::spawn::Thread;
use kelvin_wire::message::Direction;
use kelvin_wire::numbered::NUMBER;

use super::bandwidth::streams;
use super::link_rate::{self, Carried, Packets, Payload, STREAM};
use super::pace::Pace;
use super::watched::{FEWEST, Moving, Sustained, Watched, Window, burst_words, busy, busy_words};
use super::{AGENT, client, over, stopped, told};
use crate::net::link::{Link, Protocol};
use crate::net::messages::{SMALL, message};
use crate::net::stream;
use crate::predict::Predicting;

/// The metrics of datagrams: what arrived, was sent, was lost, was reordered.
type Four = [&'static Metric; 4];

static UNPACED: Four =
    [&PEER_BANDWIDTH_UDP, &PEER_BANDWIDTH_UDP_SENT, &PEER_BANDWIDTH_UDP_LOST, &PEER_BANDWIDTH_UDP_REORDERED];
static PACED: Four = [&PEER_OFFERED, &PEER_OFFERED_SENT, &PEER_OFFERED_LOST, &PEER_OFFERED_REORDERED];
pub(in crate::net) static PROBE: Probe = Probe {
    id: PEER_BANDWIDTH_UDP.id.as_str(),
    summary: "Datagrams sent to another host as fast as possible: how many arrive, are lost, are reordered (--peer \
              HOST)",
    kind: ProbeKind::Study,
    method: METHOD,
    metrics: &UNPACED,
    inputs: INPUTS,
    cases: |_, effort| {
        let all = [PACKET, SMALL];
        let messages = if effort == Effort::Quick { &all[..1] } else { &all };
        messages.iter().map(|&bytes| Case::new().with(MESSAGE, bytes)).collect()
    },
    run: |bench, case| {
        let bytes = message(case)?;
        let figures = measure(bench, bytes, None)?;
        record(bench, &UNPACED, &figures)
    },
    predict: |facts, metric, case| {
        if metric.id != PEER_BANDWIDTH_UDP.id {
            return Err(follows());
        }
        predict(facts, MESSAGE.of(case).unwrap_or(PACKET), None)
    },
};

pub(in crate::net) static OFFERED_PROBE: Probe = Probe {
    id: PEER_OFFERED.id.as_str(),
    summary: "Datagrams offered to another host at an even rate: how many arrive, are lost, are reordered (--peer \
              HOST)",
    kind: ProbeKind::Study,
    method: METHOD,
    metrics: &PACED,
    inputs: INPUTS,
    cases: |_, effort| {
        let all = [10_000_000_u64, 100_000_000, 1_000_000_000];
        let rates = if effort == Effort::Quick { &all[..1] } else { &all };
        rates.iter().map(|&rate| Case::new().with(OFFERED, rate)).collect()
    },
    run: |bench, case| {
        let bits = OFFERED.of(case).filter(|bits| (1_000..=1_000_000_000_000).contains(bits));
        let bits =
            bits.ok_or_else(|| Stop::fail(format!("the case needs at least 1,000 bits per second, not {case}")))?;
        let figures = measure(bench, PACKET as usize, Some(bits as f64 / 8.0))?;
        record(bench, &PACED, &figures)
    },
    predict: |facts, metric, case| {
        if metric.id != PEER_OFFERED.id {
            return Err(follows());
        }
        predict(facts, PACKET, OFFERED.of(case).map(|bits| bits as f64 / 8.0))
    },
};

pub(in crate::net) static BOUNDED: Bounded =
    Bounded { metric: &PEER_BANDWIDTH_UDP, most: |hardware, case| bound(hardware, MESSAGE.of(case)?) };

pub(in crate::net) static OFFERED_BOUNDED: Bounded =
    Bounded { metric: &PEER_OFFERED, most: |hardware, _| bound(hardware, PACKET) };

fn bound(hardware: Hardware<'_>, bytes: u64) -> Option<Bound> {
    link_rate::bound(hardware, Payload::Datagrams(bytes))
}

const INPUTS: &[&str] = &[PEER_BANDWIDTH.id.as_str(), STREAM_UDP.id.as_str()];

const METHOD: Method = Method {
    how: "One thread sends numbered datagrams to `kelvin agent` on another host: as fast as the system accepts them \
          (net.peer.bandwidth.udp), or 1472 bytes each at an even rate, as many as are due every 0.2 ms \
          (net.peer.offered). The agent counts what arrives and reports it on request, with its own time: the rate is \
          that between two reports, at least 200 ms apart, once it no longer rises. Lost are the numbers missing among \
          those that arrived, reordered those that arrived after a later one; how many of the lost ones reached the \
          agent's host and found its socket full is noted (a buffer of 4 MiB where the system allows it). The rate \
          actually sent stands beside the rate to be offered; arrears of more than 10 ms are not made up for. CPU use \
          of both hosts is noted, and a saturated CPU is named.",
    prediction: "The least of: the link's rate of datagrams; the slower of sender and receiver, both measured on this \
                 host (net.stream.udp); the offered rate. The link's rate is the line rate of the interface by which \
                 packets leave x payload / bytes on the wire of a datagram's packets, over IPv4 or IPv6; where no line \
                 rate is known (see net.peer.bandwidth) it is TCP's throughput (net.peer.bandwidth) times that share \
                 over TCP's. Predicted range: of an offer below half of the other two at least 95 %; otherwise a \
                 factor of two either way. A figure above a known line rate is invalid and no headline.",
    not_for: "The rate at which to use a network: there is no congestion control here. A datagram larger than a \
              packet, which is lost with any of its fragments.",
    pitfalls: &[
        "The sender's rate taken for throughput: what was sent may never arrive. The agent counts.",
        "Loss taken for the network's: an agent too slow to receive loses datagrams too, which is noted.",
        "A sender held back because the system's own queue is full loses nothing, and offers less.",
        "Over IPv6 a datagram of 1472 bytes is two packets of an Ethernet.",
        AGENT,
    ],
    sources: &["iperf3 -u, with -b for what is offered", "netperf UDP_STREAM", "RFC 2544, 26.3: frame loss rate"],
};

/// Bytes of a datagram that is one packet of an Ethernet over IPv4.
const PACKET: u64 = 1472;
/// Datagrams between two checks of the clock and of the end.
const BURST: u64 = 16;
/// A call that waits longer than this checks for the end.
const LOOK: Duration = Duration::from_millis(100);
/// Linux's error where its own queue has no room: the datagram was not sent.
const NO_ROOM: i32 = 105;

/// The outcome.
struct Figures {
    windows: Vec<Window>,
    notes: Vec<String>,
}

/// Sends datagrams of so many bytes, so many bytes a second or as fast as possible.
fn measure(bench: &Bench<'_>, bytes: usize, rate: Option<f64>) -> Result<Figures, Stop> {
    let mut client = client(bench)?;
    let own = client.own();
    let mut test = client.datagrams(bytes as u32).map_err(stopped)?;
    let socket = test.socket().0.try_clone()?;
    let slice = Duration::from_nanos(bench.slice() as u64);
    let moving = Moving::default();
    let Sustained { windows, burst } = std::thread::scope(|scope| {
        let sender = Thread::named("sender").start_in(scope, || send(&socket, bytes, rate, &moving))?;
        let windows = Watched::begin(&mut test, &moving, Direction::ToAgent, &[]).windows(slice, FEWEST);
        moving.is_over.store(true, Ordering::Relaxed);
        sender.join().map_err(|_| Stop::fail("the sender panicked"))??;
        windows
    })?;
    let known = Link::Udp(socket).describe()?;
    let seen = test.finish().map_err(stopped)?;
    let notes =
        [format!("{known}; {}", told(&seen, 1)), over(own, &seen)].into_iter().chain(burst.as_ref().map(burst_words));
    Ok(Figures { windows, notes: notes.collect() })
}

/// Sends until stopped.
fn send(socket: &UdpSocket, bytes: usize, rate: Option<f64>, moving: &Moving) -> Result<(), Stop> {
    moving.threads.enter();
    socket.set_write_timeout(Some(LOOK))?;
    let mut datagram = vec![0x5a; bytes];
    let mut pace = rate.map(|rate| Pace::new(bytes as f64 * 1e9 / rate, monotonic()));
    let mut number = 0_u64;
    while !moving.is_over.load(Ordering::Relaxed) {
        for _ in 0..pace.as_mut().map_or(BURST, |pace| pace.due(monotonic())) {
            datagram[..NUMBER].copy_from_slice(&(number + 1).to_le_bytes());
            match socket.send(&datagram) {
                Ok(_) => {
                    number += 1;
                    moving.bytes.store(number * bytes as u64, Ordering::Relaxed);
                }
                Err(error) if error.raw_os_error() == Some(NO_ROOM) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => return Err(Stop::fail(format!("cannot send to the agent: {error}"))),
            }
        }
        if let Some(pace) = &pace {
            std::thread::sleep(pace.wait(monotonic()));
        }
    }
    Ok(())
}

fn record(bench: &mut Bench<'_>, [arrived, sent, lost, reordered]: &Four, figures: &Figures) -> Result<(), Stop> {
    let nothing = || Stop::fail("no datagram arrived");
    let Figures { windows, notes } = figures;
    let (first, last) = (windows.first().ok_or_else(nothing)?, windows.last().ok_or_else(nothing)?);
    let dropped = last.counted.dropped - first.counted.dropped;
    let numbers = (&last.counted.numbers, &first.counted.numbers);
    bench.note(format!("{dropped} datagrams found the agent's socket full"));
    notes.iter().for_each(|note| bench.note(note));
    if let Some(busy) = busy(windows) {
        bench.note(busy_words(&busy));
    }
    bench.record(arrived, windows.windows(2).map(|pair| pair[1].rate_since(&pair[0])).collect());
    bench.record(sent, vec![last.sent_since(first)]);
    bench.record(lost, vec![numbers.0.lost_since(numbers.1).ok_or_else(nothing)?]);
    bench.record(reordered, vec![numbers.0.reordered_since(numbers.1).ok_or_else(nothing)?]);
    Ok(())
}

fn follows() -> NoPrediction {
    NoPrediction::because("it depends on the slowest of the link and the two hosts, and on the buffers between them")
}

fn predict(facts: &Facts<'_>, bytes: u64, offered: Option<f64>) -> Result<Prediction, NoPrediction> {
    let tcp = facts.measured(&PEER_BANDWIDTH, &streams(1))?;
    let of = Case::new().with(MESSAGE, bytes);
    let ends = stream::Ends::of(Protocol::Udp);
    let (send, receive) = (facts.measured(ends.send, &of)?, facts.measured(ends.receive, &of)?);
    let link = over_link(facts.hardware(), tcp, bytes);
    let hosts = bytes as f64 * 1e9 / send.value.max(receive.value);
    let (most, unit) = (link.value.min(hosts), 1e6);
    let value = offered.unwrap_or(f64::INFINITY).min(most);
    let offer = offered.map_or(String::new(), |offered| format!("{:.1} MB/s offered, ", offered / unit));
    let derivation = format!(
        "the least of {offer}{} = {:.1} MB/s, and {bytes} B / {:.0} ns = {:.1} MB/s",
        link.derivation,
        link.value / unit,
        send.value.max(receive.value),
        hosts / unit
    );
    let (predicting, name) = if value < most / 2.0 {
        (Predicting::between(Basis::Derived, value, value * 0.95, value * 1.01).at_most(value), "the rate offered")
    } else {
        (Predicting::within_factor(Basis::Derived, value, 2.0), "link or hosts")
    };
    let predicting = match offered {
        Some(offered) => predicting.constant("offered", offered, Unit::BytesPerSecond, "the case"),
        None => predicting,
    };
    Ok(predicting
        .formula(name, "the least of the offered rate, the link's rate of datagrams, and message / net.stream.udp")
        .input(link.rests_on)
        .input(send)
        .input(receive)
        .source(link_rate::SOURCES)
        .derived_as(derivation))
}

/// The link's rate of datagrams, in bytes per second.
struct OverLink {
    value: f64,
    rests_on: Input,
    derivation: String,
}

/// By its line rate, or where that is not known by TCP's throughput.
fn over_link(hardware: Hardware<'_>, tcp: Input, bytes: u64) -> OverLink {
    let datagrams = Payload::Datagrams(bytes);
    let in_figures =
        |rate: f64, packets: Packets| format!("{:.1} MB/s x {}", rate / 1e6, packets.share_in_figures(datagrams));
    match link_rate::carried(hardware, datagrams) {
        Ok(Carried { value, rate, packets }) => {
            OverLink { value, derivation: in_figures(rate.value, packets), rests_on: rate }
        }
        Err(_) => {
            let packets = Packets::of(hardware);
            let value = tcp.value * packets.share(datagrams) / packets.share(STREAM);
            let derivation =
                format!("{} / ({}) by TCP", in_figures(tcp.value, packets), packets.share_in_figures(STREAM));
            OverLink { value, derivation, rests_on: tcp }
        }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::net::STREAM_UDP_RECEIVE;
    use kelvin_model::{Fact, PathToAgent};

    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn what_arrives_is_the_least_of_offer_link_and_hosts() {
        let known = [
            (PEER_BANDWIDTH.id.as_str(), Some(117.685e6)),
            (STREAM_UDP.id.as_str(), Some(3000.0)),
            (STREAM_UDP_RECEIVE.id.as_str(), Some(1000.0)),
        ];
        facts_about(&known, |facts| {
            // A gigabit link carries 957 Mbit/s of datagrams, as every iperf3 on one shows.
            let full = predict(facts, 1472, None).unwrap();
            assert!((full.value * 8.0 / 1e6 - 957.1).abs() < 0.1, "{}", full.value);
            // 64 bytes in 3 us.
            assert!((predict(facts, 64, None).unwrap().value - 64.0 / 3e-6).abs() < 1.0);
            let offered = predict(facts, 1472, Some(12.5e6)).unwrap();
            assert_eq!((offered.value, offered.low), (12.5e6, 12.5e6 * 0.95));
            assert!(offered.derivation.contains("12.5 MB/s offered"), "{}", offered.derivation);
            assert_eq!(predict(facts, 1472, Some(1e9)).unwrap().value, full.value);
        });
        facts_about(&[], |facts| assert!(predict(facts, 1472, None).is_err()));
    }

    #[test]
    fn the_line_counts_where_it_is_known_and_not_what_tcp_got_through() {
        let mut machine = crate::testing::machine();
        machine.nics = vec![crate::testing::nic("eth0", Fact::known(1e9, "ethtool"))];
        machine.nics[0].mtu = Fact::known(1500, "a test");
        let way = PathToAgent {
            protocol: 6,
            interface: Fact::known("eth0".into(), "a test"),
            advertised_there: Fact::unknown("a test"),
            mtu_there: Fact::unknown("a test"),
        };
        let measured = |id: &str, _: &Case| {
            let value = if id == PEER_BANDWIDTH.id.as_str() { 20e6 } else { 1000.0 };
            Some(kelvin_harness::MeasuredValue { value, half_width: 0.0 })
        };
        let facts = Facts::new(&machine, &measured).by_way(Some(&way));
        let found = predict(&facts, 1452, None).unwrap();
        assert!((found.value - 125e6 * 1452.0 / 1538.0).abs() < 1.0, "{found:?}");
        assert!(found.derivation.contains("125.0 MB/s x 1452 / 1538 = 118.0 MB/s"), "{}", found.derivation);
        let most = (BOUNDED.most)(facts.hardware(), &Case::new().with(MESSAGE, 1452)).unwrap().most;
        assert!((most / found.value - 1.01).abs() < 1e-9);
        let offered = (OFFERED_BOUNDED.most)(facts.hardware(), &Case::new().with(OFFERED, 1_000_000)).unwrap();
        // 1472 bytes are two packets of IPv6.
        assert!((offered.most / (125e6 * 1472.0 / 1652.0) - 1.01).abs() < 1e-9, "{offered:?}");
    }

    #[test]
    fn datagrams_are_offered_at_their_rate() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        let moving = Moving::default();
        let sent = || moving.bytes.load(Ordering::Relaxed) / 1000;
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&near, 1000, Some(1e6), &moving));
            while sent() < 20 && !sender.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            moving.is_over.store(true, Ordering::Relaxed);
            sender.join().unwrap().unwrap();
        });
        // A thousand in a second, one of them at once; a busy machine may delay it, and arrears are not made up for.
        let (sent, most) = (sent(), 1 + begun.elapsed().as_millis() as u64 + 1);
        assert!((20..=most).contains(&sent), "{sent} of {most}");
        let mut datagram = [0; 2000];
        for number in 1..=20u64 {
            assert_eq!(far.recv(&mut datagram).unwrap(), 1000);
            assert_eq!(datagram[..NUMBER], number.to_le_bytes());
        }
    }
}
