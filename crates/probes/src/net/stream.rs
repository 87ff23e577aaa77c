//! The cost of a message in a stream to its sender and to its receiver when neither waits for the other: one process is both.
//!
//! It is the part of a stream's time that is not waking or waiting. It must not be taken for the rate of one.

use kelvin_catalogue::net::{
    MESSAGE, STREAM_TCP, STREAM_TCP_RECEIVE, STREAM_UDP, STREAM_UDP_RECEIVE, STREAM_UNIX, STREAM_UNIX_RECEIVE,
};
use kelvin_harness::{Bench, Effort, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric};

use super::link::{LARGEST_DATAGRAM, Link, Protocol};
use super::messages::message;
use super::stack::predict;

/// Largest message measured: a larger one costs as many of these as it holds.
pub(super) const LARGEST: u64 = 64 << 10;
/// Bytes sent before any are received: two packets of the loopback device, which stay in a cache and fit the kernel's usual
/// buffer limits.
const WINDOW: usize = 128 << 10;
/// Most messages in flight where each is a packet of its own, with the kernel's book-keeping beside it.
const MOST_PACKETS: usize = 64;

/// Sender's and receiver's cost of a message.
pub(super) struct Ends {
    pub send: &'static Metric,
    pub receive: &'static Metric,
}

impl Ends {
    /// The metrics of a protocol.
    pub(super) fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self { send: &STREAM_TCP, receive: &STREAM_TCP_RECEIVE },
            Protocol::Udp => Self { send: &STREAM_UDP, receive: &STREAM_UDP_RECEIVE },
            Protocol::Unix => Self { send: &STREAM_UNIX, receive: &STREAM_UNIX_RECEIVE },
        }
    }
}

pub(super) static TCP: Probe = probe(
    "Sending and receiving of a local TCP stream, neither waiting for the other",
    &[&STREAM_TCP, &STREAM_TCP_RECEIVE],
    |_, effort| cases(effort, &[64, 4 << 10, LARGEST]),
    |bench, case| run(bench, case, Protocol::Tcp),
);

pub(super) static UDP: Probe = probe(
    "Sending and receiving of datagrams over loopback, neither waiting for the other",
    &[&STREAM_UDP, &STREAM_UDP_RECEIVE],
    |_, effort| cases(effort, &[64, 1472, 16 << 10, LARGEST_DATAGRAM]),
    |bench, case| run(bench, case, Protocol::Udp),
);

pub(super) static UNIX: Probe = probe(
    "Sending and receiving of a stream over Unix sockets, neither waiting for the other",
    &[&STREAM_UNIX, &STREAM_UNIX_RECEIVE],
    |_, effort| cases(effort, &[4 << 10, LARGEST]),
    |bench, case| run(bench, case, Protocol::Unix),
);

/// What the three have in common.
const fn probe(
    summary: &'static str,
    metrics: &'static [&'static Metric],
    cases: fn(&Machine, Effort) -> Vec<Case>,
    run: fn(&mut Bench<'_>, &Case) -> Result<(), Stop>,
) -> Probe {
    let id = metrics[0].id.as_str();
    Probe { id, summary, kind: ProbeKind::Measure, method: METHOD, metrics, inputs: &[], cases, run, predict }
}

const METHOD: Method = Method {
    how: "One process holds both ends of a loopback connection (or of a pair of Unix sockets). It sends messages until \
          128 KiB are in flight (at most 64 messages of datagrams and over Unix sockets), then receives them; the two \
          halves are timed apart. Over TCP all but the last carry MSG_MORE, so that the kernel gathers them into \
          packets of up to 64 KiB, as it does for a stream that is ahead of its receiver; loopback delivers a packet \
          within the send. Nothing sleeps: a message has arrived before it is received.",
    prediction: "None: no cost of the protocol's code is published. Predictions of bandwidth rest on this figure.",
    not_for: "The rate of a stream, whose sender and receiver wait for and wake each other; with more bytes in flight \
              they may lie in a slower cache.",
    pitfalls: &[
        "Small messages sent as a packet each, because nothing was in flight before them: a busy stream gathers them.",
        "A receive that has to wait would wait for ever, since nobody else sends: it fails after five seconds.",
    ],
    sources: &["send(2): MSG_MORE", "tcp(7), udp(7), unix(7)"],
};

fn cases(effort: Effort, all: &[u64]) -> Vec<Case> {
    // A quick run predicts one size of each protocol, the second of these or the first.
    let quick = if all.len() > 2 { &all[1..2] } else { &all[..1] };
    let messages = if effort == Effort::Quick { quick } else { all };
    messages.iter().map(|&bytes| Case::new().with(MESSAGE, bytes)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case, protocol: Protocol) -> Result<(), Stop> {
    let size = message(case)?;
    let (near, far) = Link::pair_of_one(protocol)?;
    let most = if protocol == Protocol::Tcp { WINDOW } else { MOST_PACKETS };
    let window = (WINDOW / size).clamp(1, most) as u64;
    let (sent, mut arrived) = (vec![0x5a; size], vec![0; size]);
    let Ends { send, receive } = Ends::of(protocol);
    bench.time_parts([send, receive], |clock, messages| {
        let mut ticks = [0.0; 2];
        let mut left = messages;
        while left > 0 {
            let now = window.min(left);
            let begun = clock.start();
            for number in 1..=now {
                if number < now { near.send_more(&sent)? } else { near.send(&sent)? }
            }
            let between = clock.stop();
            let second = clock.start();
            for _ in 0..now {
                far.receive(&mut arrived)?;
            }
            let ended = clock.stop();
            ticks[0] += between.wrapping_sub(begun) as f64;
            ticks[1] += ended.wrapping_sub(second) as f64;
            left -= now;
        }
        Ok(ticks)
    })?;
    if arrived != sent {
        return Err(Stop::fail("the data received is not the data sent"));
    }
    bench.note_on_last(format!("{window} messages in flight; {}", near.describe()?));
    Ok(())
}
