//! How many bytes a second arrive at another host over TCP, counted there.
//!
//! It must not be taken for the speed of the link alone: either host can be the limit.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_harness::{Bench, Bounded, Effort, Kind, Method, Probe, Stop};
use kelvin_model::{Axis, AxisScale, Better, Canaries, Case, Metric, NoPrediction, Treatment};
use kelvin_sys::{cpu, net};

use super::link_rate::{self, Payload};
use super::watched::{Sending, Watched, busy, busy_words, share};
use super::{AGENT, client, over, stopped, told};
use crate::net::bandwidth::cpus;
use crate::net::link::Link;

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
        prediction: link_rate::STREAM_PREDICTION,
        not_for: "The speed of the link where a host is the limit: it is said then that it is CPU-limited.",
        pitfalls: &[
            "A shaper on the way counts other bytes than the wire does, and the rate of the line knows nothing of it.",
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
        true => link_rate::predict(facts),
        false => Err(NoPrediction::because("it depends on which of the link and the two hosts is the slowest")),
    },
};

/// Whatever the streams and messages, by packets that have no time stamps. What comes from the agent may come in by another
/// interface than the one by which packets to it leave.
pub(in crate::net) static BOUNDED: Bounded = Bounded {
    metric: &METRIC,
    most: |hardware, case| match case.word("direction") {
        Some("from_agent") => None,
        _ => link_rate::bound(hardware, Payload::Stream { time_stamps: false }),
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
