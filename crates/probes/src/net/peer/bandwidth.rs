//! How many bytes a second arrive at another host over TCP, counted there.
//!
//! It must not be taken for the speed of the link alone: either host can be the limit.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_harness::{Bench, Effort, Facts, Kind, Method, Probe, Stop};
use kelvin_model::{Axis, AxisScale, Basis, Better, Canaries, Case, Metric, NoPrediction, Prediction, Treatment, Unit};
use kelvin_sys::{cpu, net};

use super::watched::{Sending, Watched, busy, busy_words, share};
use super::{AGENT, client, over, stopped, told};
use crate::claimed::fastest_link;
use crate::net::bandwidth::cpus;
use crate::net::link::Link;
use crate::predict::Predicting;

/// Connections at a time, each with a thread at either end.
const STREAMS: Axis = Axis::new("streams", "streams, each a thread", AxisScale::Linear);

const fn metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::rate(id, summary).over_one(STREAMS).headline(Treatment::AsFound).canaries(Canaries::NONE)
}

pub(super) static METRIC: Metric =
    metric("net.peer.bandwidth", "Bytes per second that arrive at another host over TCP, counted there");
static BUSY_HERE: Metric = share(
    metric("net.peer.bandwidth.busy_here", "Share of a CPU that the fullest CPU or thread of this host was busy"),
    Better::Neither,
);
static BUSY_THERE: Metric = share(
    metric(
        "net.peer.bandwidth.busy_there",
        "Share of a CPU that the fullest CPU or thread of the agent's host was busy",
    ),
    Better::Neither,
);

pub(in crate::net) static PROBE: Probe = Probe {
    id: "net.peer.bandwidth",
    summary: "Bytes to another host over TCP, by streams (--peer HOST)",
    kind: Kind::Study,
    method: Method {
        how: "A thread for each stream, on the CPUs in turn, sends messages of 128 KiB to `kelvin agent` on another host, where a thread for each \
              takes them. The agent counts what arrives, and says it when it is asked, with its own time: the rate is that \
              between two such answers, 200 ms apart at least. Answers are asked for from the moment on when the rate no longer \
              rises, so that slow start is left out. The buffers of each connection grow by themselves; TCP_INFO, \
              congestion control and the interfaces of both ends are noted. How busy either host was is measured in the same \
              windows: its busiest thread of the test, and its fullest CPU by the kernel's own account (/proc/stat), which also \
              has the packets in it. A host that is the limit is named.",
        prediction: "What the fastest interface of this machine claims x payload / bytes on the wire of a packet: with \
                     timestamps (MTU - 52) / (MTU + 38) of Ethernet. None if no interface has a rate, as virtual ones have \
                     none. Unremarkable from three quarters of it up to all of it.",
        not_for: "The speed of the link where a host is the limit: it is said then that it is CPU-limited.",
        pitfalls: &[
            "A shaper on the way counts other bytes than the wire does, and the claim of the interface knows nothing of it.",
            "Loss: retransmitted segments are noted.",
            AGENT,
        ],
        sources: &["iperf3", "RFC 7323 (timestamps), IEEE 802.3: preamble, header, check sequence, gap of 38 bytes"],
    },
    metrics: &[&METRIC, &BUSY_HERE, &BUSY_THERE],
    inputs: &[],
    cases: |_, effort| if effort == Effort::Quick { vec![streams(1)] } else { [1, 2, 4].map(streams).to_vec() },
    run,
    predict: |facts, metric, _| match metric.id == METRIC.id {
        true => predict(facts),
        false => Err(NoPrediction::because("it depends on which of the link and the two hosts is the slowest")),
    },
};

/// Bytes of a call: many packets, and a part of a cache.
const MESSAGE: usize = 128 << 10;
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
    let own = client.own();
    let mut test = client.streams(count as u32).map_err(stopped)?;
    let sockets = test.socket().iter().map(TcpStream::try_clone).collect::<std::io::Result<Vec<_>>>()?;
    let slice = Duration::from_nanos(bench.slice() as u64);
    let sending = Sending::default();
    let cpus = cpus(bench);
    let windows = std::thread::scope(|scope| {
        let place = |(number, socket)| {
            let (cpu, sending) = (cpus[number % cpus.len()], &sending);
            scope.spawn(move || {
                cpu::pin(&[cpu])?;
                send(socket, sending)
            })
        };
        let senders: Vec<_> = sockets.iter().enumerate().map(place).collect();
        let windows = Watched::begin(&mut test, &sending).windows(slice);
        sending.is_over.store(true, Ordering::Relaxed);
        for sender in senders {
            sender.join().map_err(|_| Stop::fail("a sender panicked"))??;
        }
        windows
    })?;
    let first = sockets.into_iter().next().ok_or_else(|| Stop::fail("no stream was opened"))?;
    let known = Link::Tcp(first).describe()?;
    let seen = test.finish().map_err(stopped)?;
    let busy = busy(&windows).ok_or_else(|| Stop::fail("nothing was counted"))?;
    bench.note(format!("{known}; {}", told(&seen, 1)));
    bench.note(over(own, &seen));
    bench.note(busy_words(&busy));
    bench.record(&METRIC, windows.windows(2).map(|pair| pair[1].rate_since(&pair[0])).collect());
    bench.record(&BUSY_HERE, vec![busy[0].fullest()]);
    bench.record(&BUSY_THERE, vec![busy[1].fullest()]);
    Ok(())
}

/// Sends until it is told to stop.
pub(super) fn send(mut socket: &TcpStream, sending: &Sending) -> Result<(), Stop> {
    sending.threads.enter();
    let message = vec![0x5a; MESSAGE];
    socket.set_write_timeout(Some(LOOK))?;
    while !sending.is_over.load(Ordering::Relaxed) {
        match socket.write(&message) {
            Ok(sent) => drop(sending.sent.fetch_add(sent as u64, Ordering::Relaxed)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(Stop::fail(format!("cannot send to the agent: {error}"))),
        }
    }
    // What is still in the buffers is of no interest to anybody, and may be seconds of a slow link.
    Ok(net::reset_on_close(&socket)?)
}

fn predict(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let Some((claimed, interface)) = fastest_link(facts.machine()) else {
        return Err(NoPrediction::because("no interface of this machine has a rate that is known"));
    };
    let Some(&mtu) = interface.mtu.get() else {
        return Err(NoPrediction::because(format!("the MTU of {} is not known", interface.name)));
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
}
