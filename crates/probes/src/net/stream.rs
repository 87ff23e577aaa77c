//! The cost of a message in a stream to its sender and to its receiver when neither waits for the other: one process is both.
//!
//! It is the part of a stream's time that is not waking or waiting. It must not be taken for the rate of one.

use kelvin_core::catalogue::net::{
    STREAM_TCP, STREAM_TCP_RECEIVE, STREAM_UDP, STREAM_UDP_RECEIVE, STREAM_UNIX, STREAM_UNIX_RECEIVE,
};

use super::link::{LARGEST_DATAGRAM, ProtocolMetrics, ProtocolType, Tcp, Udp, Unix, largest_message};
use super::prelude::*;
use super::stack::{byte_cost, message_case};

/// Largest message measured: a larger one costs as many of these as it holds.
pub(super) const MAX_MESSAGE: u64 = 64 << 10;
/// Bytes sent before any are received: two packets of the loopback device, which stay in a cache and fit the kernel's usual
/// buffer limits.
const WINDOW_BYTES: usize = 128 << 10;
/// Most messages in flight where each is a packet of its own, with the kernel's book-keeping next to it.
const MAX_PACKETS: usize = 64;

pub(super) static TCP: Probe = stream_probe::<Tcp>(
    "Sending and receiving of a local TCP stream, neither waiting for the other",
    &[&STREAM_TCP, &STREAM_TCP_RECEIVE],
);

pub(super) static UDP: Probe = stream_probe::<Udp>(
    "Sending and receiving of datagrams over loopback, neither waiting for the other",
    &[&STREAM_UDP, &STREAM_UDP_RECEIVE],
);

pub(super) static UNIX: Probe = stream_probe::<Unix>(
    "Sending and receiving of a stream over Unix sockets, neither waiting for the other",
    &[&STREAM_UNIX, &STREAM_UNIX_RECEIVE],
);

const fn stream_probe<P: ProtocolType>(summary: &'static str, metrics: &'static [&'static Metric]) -> Probe {
    Probe {
        summary,
        method: METHOD,
        cases: |_, effort| cases(effort, P::PROTOCOL),
        run: |bench, case| run(bench, case, P::PROTOCOL),
        predict: |facts, metric, case| predict(facts, metric, case, P::PROTOCOL),
        ..Probe::measure(metrics)
    }
}

const METHOD: &str = include_str!("stream.md");

/// The messages of a protocol, the smallest first.
fn message_sizes(protocol: Protocol) -> &'static [u64] {
    match protocol {
        Protocol::Tcp => &[SMALL_MESSAGE, 4 << 10, MAX_MESSAGE],
        Protocol::Udp => &[SMALL_MESSAGE, 1472, 16 << 10, LARGEST_DATAGRAM],
        Protocol::Unix => &[4 << 10, MAX_MESSAGE],
    }
}

fn cases(effort: Effort, protocol: Protocol) -> Vec<Case> {
    let sizes = message_sizes(protocol);
    // A quick run predicts one size of each protocol, the second of these or the first.
    let quick = if sizes.len() > 2 { &sizes[1..2] } else { &sizes[..1] };
    let messages = if effort == Effort::Quick { quick } else { sizes };
    numbers(MESSAGE, messages)
}

fn run(bench: &mut Bench<'_>, case: &Case, protocol: Protocol) -> ProbeResult {
    let size = message_bytes(case)?;
    let (client, server) = Link::single_process_pair(protocol)?;
    let max_messages = if protocol == Protocol::Tcp { WINDOW_BYTES } else { MAX_PACKETS };
    let window = (WINDOW_BYTES / size).clamp(1, max_messages) as u64;
    let (payload, mut received) = (vec![0x5a; size], vec![0; size]);
    let ProtocolMetrics { send, receive, .. } = protocol.metrics();
    bench.time_parts([send, receive], |clock, messages| {
        let mut ticks = [0.0; 2];
        let mut remaining = messages;
        while remaining > 0 {
            let batch = window.min(remaining);
            let send_start = clock.start();
            for number in 1..=batch {
                if number < batch { client.send_more(&payload)? } else { client.send(&payload)? }
            }
            let send_end = clock.stop();
            let receive_start = clock.start();
            for _ in 0..batch {
                server.receive(&mut received)?;
            }
            let receive_end = clock.stop();
            ticks[0] += send_end.wrapping_sub(send_start) as f64;
            ticks[1] += receive_end.wrapping_sub(receive_start) as f64;
            remaining -= batch;
        }
        Ok(ticks)
    })?;
    fail_if(received != payload, "the data received is not the data sent")?;
    bench.note_last_reading(format!("{window} messages in flight; {}", client.describe()?));
    Ok(())
}

/// The smallest message has no formula; each byte of a larger one costs its sender and its receiver half of what it costs who is both.
fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case, protocol: Protocol) -> Predicted {
    let message = required_number(MESSAGE, case)?;
    let first_size = message_sizes(protocol)[0];
    unpredicted_if(message <= first_size, "no cost of the kernel's protocol code is published")?;
    let smallest = measured(facts, metric, &message_case(first_size))?;
    let stack = protocol.metrics().stack;
    let largest = largest_message(protocol);
    let small_time = measured(facts, stack, &message_case(SMALL_MESSAGE))?;
    let byte_time = byte_cost(small_time, measured(facts, stack, &message_case(largest))?, largest);
    let time = smallest + count_of("further bytes", message - first_size) * byte_time / 2.0;
    Ok(time.widen(1.5).derived("half of each byte"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::MeasuredValue;
    use kelvin_core::catalogue::net::STACK_TCP;

    use super::*;

    #[test]
    fn byte_cost_is_split_between_ends() {
        let machine = crate::testing::machine();
        let measured = |id: &str, case: &Case| {
            let value = match (id, MESSAGE.number_in(case)?) {
                (id, SMALL_MESSAGE) if id == STACK_TCP.id.as_str() => 1000.0,
                (id, MAX_MESSAGE) if id == STACK_TCP.id.as_str() => 7547.2,
                (id, SMALL_MESSAGE) if id == STREAM_TCP.id.as_str() => 200.0,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |metric, bytes| predict(&facts, metric, &message_case(bytes), Protocol::Tcp);
        // 4032 further bytes, a tenth of a nanosecond each for both ends.
        assert!((predicted(&STREAM_TCP, 4096).unwrap().value - 401.6).abs() < 1e-9);
        assert!(predicted(&STREAM_TCP, SMALL_MESSAGE).is_err() && predicted(&STREAM_TCP_RECEIVE, 4096).is_err());
    }
}
