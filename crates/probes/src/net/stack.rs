//! The cost of sending and receiving a message when nobody has to be woken: one process holds both ends of a connection.
//!
//! It is the part of a local round trip that is not switching or waking. It must not be taken for half of a round trip.

use kelvin_core::catalogue::mem::BANDWIDTH_COPY;
use kelvin_core::catalogue::net::{STACK_TCP, STACK_UDP, STACK_UNIX};

use super::link::{MEDIUM_MESSAGE, ProtocolType, Tcp, Udp, Unix, round_trip_messages};
use super::prelude::*;
use crate::memory::bandwidth;

pub(super) static TCP: Probe =
    stack_probe::<Tcp>("Sending and receiving over a local TCP connection without waking a task", &[&STACK_TCP]);

pub(super) static UDP: Probe =
    stack_probe::<Udp>("Sending and receiving a datagram over loopback without waking a task", &[&STACK_UDP]);

pub(super) static UNIX: Probe =
    stack_probe::<Unix>("Sending and receiving over Unix sockets without waking a task", &[&STACK_UNIX]);

const fn stack_probe<P: ProtocolType>(summary: &'static str, metrics: &'static [&'static Metric]) -> Probe {
    Probe {
        summary,
        method: METHOD,
        cases: |_, effort| numbers(MESSAGE, &round_trip_messages(P::PROTOCOL, effort)),
        run: |bench, case| run(bench, case, P::PROTOCOL),
        predict,
        ..Probe::measure(metrics)
    }
}

const METHOD: &str = include_str!("stack.md");

fn run(bench: &mut Bench<'_>, case: &Case, protocol: Protocol) -> ProbeResult {
    let size = message_bytes(case)?;
    let (client, server) = Link::single_process_pair(protocol)?;
    let (payload, mut received) = (vec![0x5a; size], vec![0; size]);
    let mut ends = [&client, &server];
    bench.time(protocol.metrics().stack, |iterations| {
        for _ in 0..iterations {
            ends[0].send(&payload)?;
            ends[1].receive(&mut received)?;
            ends.swap(0, 1);
        }
        Ok(())
    })?;
    fail_if(received != payload, "the data received is not the data sent")?;
    bench.note_last_reading(client.describe()?);
    Ok(())
}

/// The smallest message has no formula; a medium one adds two copies, and all others lie on the line through both.
fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let message = required_number(MESSAGE, case)?;
    unpredicted_if(message == SMALL_MESSAGE, "no cost of the kernel's protocol code is published")?;
    let small_time = measured(facts, metric, &message_case(SMALL_MESSAGE))?;
    let (time, name) = if message == MEDIUM_MESSAGE {
        // Copied into the kernel and out of it; a copy counts the bytes read and the bytes written.
        let copy = measured(facts, &BANDWIDTH_COPY, &bandwidth::second_level_case(facts.machine())?)? / 2.0;
        let copies = fact("copies", 2.0, Unit::Count, "into the kernel and out of it");
        (small_time + copies * bytes_of("message", MEDIUM_MESSAGE) / copy, "two copies")
    } else {
        let medium = measured(facts, metric, &message_case(MEDIUM_MESSAGE))?;
        let further_bytes = quantity("further bytes", message as f64 - SMALL_MESSAGE as f64, Unit::Count);
        (small_time.clone() + further_bytes * byte_cost(small_time, medium, MEDIUM_MESSAGE), "line through two")
    };
    Ok(time.widen(1.5).derived(name))
}

/// The case of a message of this many bytes.
pub(super) fn message_case(bytes: u64) -> Case {
    Case::new().with_number(MESSAGE, bytes)
}

/// What a byte of a message costs, by the small message and one of more bytes. Noise may reverse the order of two figures.
pub(super) fn byte_cost(small_time: Expr, larger_time: Expr, bytes: u64) -> Expr {
    ((larger_time - small_time) / count_of("bytes", bytes - SMALL_MESSAGE)).at_least_zero()
}

#[cfg(test)]
mod tests {
    use kelvin_core::MeasuredValue;

    use super::*;
    use crate::testing;

    #[test]
    fn larger_messages_follow_from_small() {
        let mut machine = testing::machine();
        machine.topology.caches = testing::caches(&[(1, 32 << 10), (2, 1 << 20)]);
        let measured = |id: &str, case: &Case| {
            let value = match (id, MESSAGE.number_in(case)) {
                (id, None) if id == BANDWIDTH_COPY.id.as_str() => 65.536e9,
                (id, Some(SMALL_MESSAGE)) if id == STACK_TCP.id.as_str() => 1000.0,
                (id, Some(MEDIUM_MESSAGE)) if id == STACK_TCP.id.as_str() => 2632.0,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |bytes| predict(&facts, &STACK_TCP, &message_case(bytes)).map(|prediction| prediction.value);
        assert!(predicted(SMALL_MESSAGE).is_err());
        // 2 x 16 KiB at 32.768 GB/s
        assert!((predicted(MEDIUM_MESSAGE).unwrap() - 2000.0).abs() < 1e-9);
        // A tenth of a nanosecond for each byte.
        assert!(
            (predicted(1024).unwrap() - 1096.0).abs() < 1e-9 && (predicted(64 << 10).unwrap() - 7547.2).abs() < 1e-9
        );
        assert!(predict(&facts, &STACK_UDP, &message_case(1024)).is_err());
    }
}
