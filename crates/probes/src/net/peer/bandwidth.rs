//! How many bytes a second arrive at another host over TCP, counted there.
//!
//! It must not be taken for the speed of the link alone: either host can be the limit.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin_harness::{Bench, Effort, Facts, Kind, Method, Probe, Stop};
use kelvin_model::{Axis, AxisScale, Basis, Canaries, Case, Metric, NoPrediction, Prediction, Treatment, Unit};
use kelvin_sys::net;
use kelvin_wire::client::Test;
use kelvin_wire::message::Counted;

use super::{AGENT, client, link, stopped, told};
use crate::net::link::Link;
use crate::predict::Predicting;

/// Connections at a time, each with a thread at either end.
const STREAMS: Axis = Axis::new("streams", "streams, each a thread", AxisScale::Linear);

pub(super) static METRIC: Metric =
    Metric::rate("net.peer.bandwidth", "Bytes per second that arrive at another host over TCP, counted there")
        .over_one(STREAMS)
        .headline(Treatment::AsFound)
        .canaries(Canaries::NONE);

pub(in crate::net) static PROBE: Probe = Probe {
    id: "net.peer.bandwidth",
    summary: "Bytes to another host over TCP, by streams (--peer HOST)",
    kind: Kind::Study,
    method: Method {
        how: "A thread for each stream sends messages of 128 KiB to `kelvin agent` on another host, where a thread for each \
              takes them. The agent counts what arrives, and says it when it is asked, with its own time: the rate is that \
              between two such answers, 200 ms apart at least. Answers are asked for from the moment on when the rate no longer \
              rises, so that slow start is left out. The buffers of each connection grow by themselves; TCP_INFO and \
              congestion control are noted, and the CPU that the agent used.",
        prediction: "What the fastest interface of this machine claims x payload / bytes on the wire of a packet: with \
                     timestamps (MTU - 52) / (MTU + 38) of Ethernet. None if no interface has a rate, as virtual ones have \
                     none. Unremarkable from three quarters of it up to all of it.",
        not_for: "The speed of the link where a host is the limit: look at the CPU use of both.",
        pitfalls: &[
            "A shaper on the way counts other bytes than the wire does, and the claim of the interface knows nothing of it.",
            "Loss: retransmitted segments are noted.",
            AGENT,
        ],
        sources: &["iperf3", "RFC 7323 (timestamps), IEEE 802.3: preamble, header, check sequence, gap of 38 bytes"],
    },
    metrics: &[&METRIC],
    inputs: &[],
    cases: |_, effort| if effort == Effort::Quick { vec![streams(1)] } else { [1, 2, 4].map(streams).to_vec() },
    run,
    predict: |facts, _, _| predict(facts),
};

/// Bytes of a call: many packets, and a part of a cache.
const MESSAGE: usize = 128 << 10;
/// Least time between two counts of a figure: what a shaper saves up while its sender waits for a processor, some 10 ms of bytes,
/// is a small share of it.
const WINDOW: Duration = Duration::from_millis(200);
/// The same while the rate still rises.
const SETTLING: Duration = Duration::from_millis(50);
/// Windows are left out until one is at most by so much above the one before it, and at most so many.
const SETTLED: f64 = 0.05;
const MOST_SETTLING: u32 = 10;
/// Least windows of a round, which is made longer for them.
const FEWEST: u32 = 2;
/// A call that waits longer than this looks whether all is over.
const LOOK: Duration = Duration::from_millis(100);

/// The case of so many streams.
pub(super) fn streams(count: u64) -> Case {
    Case::new().with(&STREAMS.name, count)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let count = case.integer(&STREAMS.name).filter(|count| (1..=16).contains(count));
    let count = count.ok_or_else(|| Stop::fail(format!("the case needs 1 to 16 streams, not {case}")))?;
    let mut client = client(bench)?;
    let mut test = client.streams(count as u32).map_err(stopped)?;
    let sockets = test.socket().iter().map(TcpStream::try_clone).collect::<std::io::Result<Vec<_>>>()?;
    let slice = Duration::from_nanos(bench.slice() as u64);
    let is_over = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        let senders: Vec<_> = sockets.iter().map(|socket| scope.spawn(|| send(socket, &is_over))).collect();
        let counts = watch(&mut test, slice);
        is_over.store(true, Ordering::Relaxed);
        for sender in senders {
            sender.join().map_err(|_| Stop::fail("a sender panicked"))??;
        }
        counts
    })?;
    let known = Link::Tcp(sockets.into_iter().next().ok_or_else(|| Stop::fail("no stream was opened"))?).describe()?;
    bench.record(&METRIC, counts.windows(2).map(|pair| rate(&pair[0], &pair[1])).collect());
    let seen = test.finish().map_err(stopped)?;
    bench.note(format!("{known}; {}", told(&seen, 1)));
    Ok(())
}

/// Sends until it is told to stop.
pub(super) fn send(mut socket: &TcpStream, is_over: &AtomicBool) -> Result<(), Stop> {
    let message = vec![0x5a; MESSAGE];
    socket.set_write_timeout(Some(LOOK))?;
    while !is_over.load(Ordering::Relaxed) {
        match socket.write(&message) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(Stop::fail(format!("cannot send to the agent: {error}"))),
        }
    }
    // What is still in the buffers is of no interest to anybody, and may be seconds of a slow link.
    Ok(net::reset_on_close(&socket)?)
}

/// Bytes per second between two counts.
pub(super) fn rate(from: &Counted, to: &Counted) -> f64 {
    (to.bytes - from.bytes) as f64 * 1e9 / (to.at - from.at).max(1) as f64
}

/// Waits until the rate no longer rises; what has arrived by then.
pub(super) fn settle(test: &mut Test<'_, Vec<TcpStream>>) -> Result<Counted, Stop> {
    let mut last = next(test, SETTLING)?;
    let mut before = 0.0;
    for _ in 0..MOST_SETTLING {
        let now = next(test, SETTLING)?;
        let arriving = rate(&last, &now);
        last = now;
        if before > 0.0 && arriving <= before * (1.0 + SETTLED) {
            break;
        }
        before = arriving;
    }
    Ok(last)
}

/// What has arrived a time later.
fn next(test: &mut Test<'_, Vec<TcpStream>>, later: Duration) -> Result<Counted, Stop> {
    std::thread::sleep(later);
    test.counted().map_err(stopped)
}

/// What had arrived at the beginning and at the end of each window.
fn watch(test: &mut Test<'_, Vec<TcpStream>>, slice: Duration) -> Result<Vec<Counted>, Stop> {
    let windows = (slice.as_secs_f64() / WINDOW.as_secs_f64()) as u32;
    let mut counts = vec![settle(test)?];
    for _ in 0..windows.max(FEWEST) {
        counts.push(next(test, WINDOW)?);
    }
    Ok(counts)
}

fn predict(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let Some((claimed, mtu)) = link(facts.machine()) else {
        return Err(NoPrediction::because("no interface of this machine has a rate that is known"));
    };
    let share = payload_share(mtu);
    let value = claimed.value * share;
    let derivation = format!("{:.1} MB/s x ({mtu} - 52) / ({mtu} + 38) = {:.1} MB/s", claimed.value / 1e6, value / 1e6);
    Ok(Predicting::between(Basis::Derived, value, value * 0.75, value)
        .formula("link rate x (MTU - 52) / (MTU + 38)")
        .input(claimed)
        .constant("MTU", f64::from(mtu), Unit::Bytes, "the same interface")
        .source("IEEE 802.3: preamble 8, header 14, check sequence 4, gap 12 bytes; IP 20, TCP 20, timestamps 12 bytes")
        .derived_as(derivation))
}

/// The share of the bytes on an Ethernet that is payload of TCP with timestamps.
fn payload_share(mtu: u32) -> f64 {
    (f64::from(mtu) - 52.0) / (f64::from(mtu) + 38.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_of_an_ethernet_is_as_it_is_known() {
        // 941.48 Mbit/s of a gigabit link, as every iperf3 on one shows.
        assert!((payload_share(1500) - 0.941_482).abs() < 1e-6);
        assert!((payload_share(9000) - 0.990_04).abs() < 1e-5);
    }

    #[test]
    fn a_rate_is_that_of_the_agent_s_own_time() {
        let (from, to) = (Counted { bytes: 1000, at: 5 }, Counted { bytes: 3000, at: 1_000_000_005 });
        assert_eq!(rate(&from, &to), 2000.0);
    }
}
