//! The cost of sending and receiving a message when nobody has to be woken: one process holds both ends of a connection.
//!
//! It is the part of a local round trip that is not switching or waking. It must not be taken for half of a round trip.

use kelvin_catalogue::net::{MESSAGE, STACK_TCP, STACK_UDP, STACK_UNIX};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};

use super::link::{Link, Protocol};
use super::messages::{SMALL, message, round_trip_messages};

pub(super) static TCP: Probe = probe(
    "Sending and receiving over a local TCP connection with nobody to wake",
    &[&STACK_TCP],
    |machine, effort| cases(machine, effort, Protocol::Tcp),
    |bench, case| run(bench, case, Protocol::Tcp, &STACK_TCP),
);

pub(super) static UDP: Probe = probe(
    "Sending and receiving a datagram over loopback with nobody to wake",
    &[&STACK_UDP],
    |machine, effort| cases(machine, effort, Protocol::Udp),
    |bench, case| run(bench, case, Protocol::Udp, &STACK_UDP),
);

pub(super) static UNIX: Probe = probe(
    "Sending and receiving over Unix sockets with nobody to wake",
    &[&STACK_UNIX],
    |machine, effort| cases(machine, effort, Protocol::Unix),
    |bench, case| run(bench, case, Protocol::Unix, &STACK_UNIX),
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
    how: "One process holds both ends of a loopback connection (or of a pair of Unix sockets). An iteration is one \
          send and one receive; iterations alternate direction, so that acknowledgements travel with data as in a \
          ping-pong. Nothing sleeps: a message has arrived before it is received. Iterations are timed in batches. \
          TCP_NODELAY is set; socket buffers of 1 MiB are requested, for a message must fit into them.",
    prediction: "None: no cost of the protocol's code is published. Predictions of round trips rest on this figure.",
    not_for: "Half a round trip between two processes, which includes a switch or a wake-up; the rate of a stream, \
              whose sends and receives overlap.",
    pitfalls: &[
        "A receive that has to wait would wait for ever, since nobody else sends: it fails after five seconds.",
        "Acknowledgements in packets of their own: with data in one direction only, every second packet is \
         acknowledged by one. Here they travel with data.",
    ],
    sources: &[
        "tcp(7), udp(7), unix(7)",
        "McVoy and Staelin, lmbench: Portable Tools for Performance Analysis, USENIX 1996",
    ],
};

fn cases(_: &Machine, effort: Effort, protocol: Protocol) -> Vec<Case> {
    let all = round_trip_messages(protocol);
    let messages = if effort == Effort::Quick { &[SMALL][..] } else { &all };
    messages.iter().map(|&bytes| Case::new().with(MESSAGE, bytes)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case, protocol: Protocol, metric: &Metric) -> Result<(), Stop> {
    let size = message(case)?;
    let (near, far) = Link::pair_of_one(protocol)?;
    let (sent, mut arrived) = (vec![0x5a; size], vec![0; size]);
    let mut ends = [&near, &far];
    bench.time(metric, |iterations| {
        for _ in 0..iterations {
            ends[0].send(&sent)?;
            ends[1].receive(&mut arrived)?;
            ends.swap(0, 1);
        }
        Ok(())
    })?;
    if arrived != sent {
        return Err(Stop::fail("the data received is not the data sent"));
    }
    bench.note_on_last(near.describe()?);
    Ok(())
}

/// The prediction for one process that holds both ends.
pub(super) fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because("no cost of the kernel's protocol code is published"))
}
