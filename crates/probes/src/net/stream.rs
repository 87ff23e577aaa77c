//! What a message of a stream costs each of its two ends when neither has to wait for the other: one process at both.
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

/// Largest message that is measured: larger ones cost as many of these as they hold.
pub(super) const LARGEST: u64 = 64 << 10;
/// Bytes that are sent before they are received: two packets of the loopback device, which stay in a cache and fit into buffers
/// of the kernel's usual limits.
const WINDOW: usize = 128 << 10;
/// Most messages of them where each is a packet of its own, with the kernel's book-keeping beside it.
const MOST_PACKETS: usize = 64;

/// What the two ends of a stream cost.
pub(super) struct Ends {
    pub send: &'static Metric,
    pub receive: &'static Metric,
}

impl Ends {
    /// Those of a protocol.
    pub(super) fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self { send: &STREAM_TCP, receive: &STREAM_TCP_RECEIVE },
            Protocol::Udp => Self { send: &STREAM_UDP, receive: &STREAM_UDP_RECEIVE },
            Protocol::Unix => Self { send: &STREAM_UNIX, receive: &STREAM_UNIX_RECEIVE },
        }
    }
}

pub(super) static TCP: Probe = probe(
    "Both ends of a local TCP stream with nobody to wait for",
    &[&STREAM_TCP, &STREAM_TCP_RECEIVE],
    |_, effort| cases(effort, &[64, 4 << 10, LARGEST]),
    |bench, case| run(bench, case, Protocol::Tcp),
);

pub(super) static UDP: Probe = probe(
    "Both ends of datagrams over loopback with nobody to wait for",
    &[&STREAM_UDP, &STREAM_UDP_RECEIVE],
    |_, effort| cases(effort, &[64, 1472, 16 << 10, LARGEST_DATAGRAM]),
    |bench, case| run(bench, case, Protocol::Udp),
);

pub(super) static UNIX: Probe = probe(
    "Both ends of a stream over Unix sockets with nobody to wait for",
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
    how: "One process has both ends of a connection over the loopback device (or of a pair of Unix sockets). It sends messages \
          until 128 KiB are on their way (of datagrams and over Unix sockets 64 messages at most), and then receives them; the \
          two halves are timed apart. Over TCP all but the last of them say that more will come (MSG_MORE), so that the kernel \
          gathers them into packets of up to 64 KiB, as it does for a stream that is ahead of its receiver; what delivers a \
          packet over loopback runs within the send. Nothing sleeps: what is received has arrived before it is asked for.",
    prediction: "None: no published cost of the protocol's code is built in. It is what predictions of bandwidth rest on.",
    not_for: "The rate of a stream, whose ends wait for each other and are woken; its bytes, of which more are on their way, may \
              lie in a slower cache.",
    pitfalls: &[
        "Small messages that each become a packet, because nothing was on its way before them: a busy stream gathers them.",
        "A receive that has to wait: a call that sleeps would never return here, for nobody else sends; it fails after five \
         seconds.",
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
        return Err(Stop::fail("what was received is not what was sent"));
    }
    bench.note_on_last(format!("{window} messages on their way at a time; {}", near.describe()?));
    Ok(())
}
