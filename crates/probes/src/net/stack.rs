//! The cost of sending and receiving a message when nobody has to be woken: one process holds both ends of a connection.
//!
//! It is the part of a local round trip that is not switching or waking. It must not be taken for half of a round trip.

use kelvin_catalogue::mem::{BANDWIDTH, BANDWIDTH_COPY};
use kelvin_catalogue::net::{MESSAGE, STACK_TCP, STACK_UDP, STACK_UNIX};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::units::bytes;
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction, Unit};

use super::link::{Link, Protocol};
use super::messages::{MEDIUM, SMALL, message, round_trip_messages};
use crate::memory::bandwidth;
use crate::predict::Predicting;

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
    let inputs = const { &[BANDWIDTH.as_str()] };
    Probe { id, summary, kind: ProbeKind::Measure, method: METHOD, metrics, inputs, cases, run, predict }
}

const METHOD: Method = Method {
    how: "One process holds both ends of a loopback connection (or of a pair of Unix sockets). An iteration is one \
          send and one receive; iterations alternate direction, so that acknowledgements travel with data as in a \
          ping-pong. Nothing sleeps: a message has arrived before it is received. Iterations are timed in batches. \
          TCP_NODELAY is set; socket buffers of 1 MiB are requested, for a message must fit into them.",
    prediction: "A message of 64 bytes: none, for no cost of the protocol's code is published; predictions of round trips \
                 rest on it. One of 16 KiB: that, and its bytes copied into the kernel and out of it, at half of \
                 mem.bandwidth.copy in L2, which counts bytes read and bytes written. All others lie on the line through \
                 these two: larger ones leave the nearest caches, and lie above it.",
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

/// The smallest message has no formula; a medium one adds two copies, and all others lie on the line through both.
fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let message = MESSAGE.of(case).ok_or_else(|| NoPrediction::because("the case has no message"))?;
    if message == SMALL {
        return Err(NoPrediction::because("no cost of the kernel's protocol code is published"));
    }
    let small = facts.measured(metric, &of_message(SMALL))?;
    if message == MEDIUM {
        return copied_twice(facts, small);
    }
    let each = CostOfBytes::between(&small, facts.measured(metric, &of_message(MEDIUM))?, MEDIUM);
    let value = small.value + each.nanoseconds * (message as f64 - SMALL as f64);
    Ok(Predicting::within_factor(Basis::Derived, value, 1.5)
        .formula("line through two", format!("{} + bytes x ({} less that) / 16 KiB", small.name, each.larger.name))
        .input(small.clone())
        .input(each.larger)
        .derived_as(format!(
            "{:.0} ns for {SMALL} B + {:.3} ns for each further byte = {value:.0} ns",
            small.value, each.nanoseconds
        )))
}

/// A small message, and the bytes of a medium one copied in and out.
fn copied_twice(facts: &Facts<'_>, small: Input) -> Result<Prediction, NoPrediction> {
    let copy = facts.measured(&BANDWIDTH_COPY, &bandwidth::in_second_level(facts.machine())?)?;
    let copies = 2.0 * MEDIUM as f64 * 1e9 / (copy.value / 2.0);
    let value = small.value + copies;
    Ok(Predicting::within_factor(Basis::Derived, value, 1.5)
        .formula("two copies", format!("{} + 2 x bytes / half of {}", small.name, copy.name))
        .input(small.clone())
        .input(copy.clone())
        .constant("copies", 2.0, Unit::Count, "into the kernel and out of it")
        .derived_as(format!(
            "{:.0} ns for {SMALL} B + 2 x {} / {:.1} GB/s = {value:.0} ns",
            small.value,
            bytes(MEDIUM),
            copy.value / 2e9
        )))
}

/// The case of a message of so many bytes.
pub(super) fn of_message(bytes: u64) -> Case {
    Case::new().with(MESSAGE, bytes)
}

/// What a byte of a message costs, by two messages.
pub(super) struct CostOfBytes {
    pub nanoseconds: f64,
    pub larger: Input,
}

impl CostOfBytes {
    /// By the small message and one of more bytes. Two figures may come out the wrong way round by their noise.
    pub(super) fn between(small: &Input, larger: Input, bytes: u64) -> Self {
        Self { nanoseconds: ((larger.value - small.value) / (bytes - SMALL) as f64).max(0.0), larger }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_model::MeasuredValue;

    use super::*;
    use crate::testing;

    #[test]
    fn larger_messages_follow_from_a_small_one_and_its_bytes() {
        let mut machine = testing::machine();
        machine.topology.caches = testing::caches(&[(1, 32 << 10), (2, 1 << 20)]);
        let measured = |id: &str, case: &Case| {
            let value = match (id, MESSAGE.of(case)) {
                (id, None) if id == BANDWIDTH_COPY.id.as_str() => 65.536e9,
                (id, Some(SMALL)) if id == STACK_TCP.id.as_str() => 1000.0,
                (id, Some(MEDIUM)) if id == STACK_TCP.id.as_str() => 2632.0,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = Facts::new(&machine, &measured);
        let of = |bytes| predict(&facts, &STACK_TCP, &of_message(bytes)).map(|prediction| prediction.value);
        assert!(of(SMALL).is_err());
        // 2 x 16 KiB at 32.768 GB/s
        assert!((of(MEDIUM).unwrap() - 2000.0).abs() < 1e-9);
        // A tenth of a nanosecond for each byte.
        assert!((of(1024).unwrap() - 1096.0).abs() < 1e-9 && (of(64 << 10).unwrap() - 7547.2).abs() < 1e-9);
        assert!(predict(&facts, &STACK_UDP, &of_message(1024)).is_err());
    }
}
