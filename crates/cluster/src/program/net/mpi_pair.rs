//! A pair over MPI: round trips of small messages, then the rate of large ones in each direction, as osu_latency and osu_bw measure them.
//!
//! Both ends wait inside MPI, which polls: a round trip contains no wake-up.

use std::time::{Duration, Instant};

use kelvin_cluster::net::round_trips::{LAST, MESSAGE_BYTES, time_round_trips};
use kelvin_cluster::net::task::{PairFigures, PairPlan, PairTask, RoundTrip};
use kelvin_cluster::network;
use mpi::request::multiple_scope;
use mpi::topology::{Process, SimpleCommunicator};
use mpi::traits::{Communicator, Destination, Source};

use crate::channel::tag;

/// Messages in flight: no more than osu_bw has, and at least two, so that one is on its way while another is handled.
const MAX_WINDOW: usize = 64;
const MIN_WINDOW: usize = 2;
const FIRST_WINDOW: usize = 4;
/// A window lasts this part of the time, so that the answer at its end, a round trip, is a small part of it, and several are counted.
const WINDOW_SHARE: f64 = 0.2;
/// The part of the time of a rate that does not count: connecting, slow start, the burst of a token bucket.
const WARM_UP_SHARE: f64 = 0.25;

/// Measures with a peer that does the same as the other part of the pair. The figures are those of the one that began.
pub fn measure(world: &SimpleCommunicator, task: &PairTask) -> std::io::Result<Option<PairFigures>> {
    let peer = world.process_at_rank(task.peer as i32);
    let mut buffer = vec![1; MAX_WINDOW * task.plan.message_bytes];
    if !task.is_initiator {
        if task.plan.round_trip_seconds > 0.0 {
            answer_round_trips(&peer);
        }
        receive(&peer, &mut buffer, task.plan.message_bytes);
        send(&peer, &buffer[..task.plan.message_bytes], &task.plan);
        return Ok(None);
    }
    let round_trip = (task.plan.round_trip_seconds > 0.0).then(|| round_trips(&peer, task.plan.round_trip_seconds));
    let before = network::sent_bytes()?;
    let forward = send(&peer, &buffer[..task.plan.message_bytes], &task.plan);
    let interface_bytes = network::sent_bytes()?.saturating_sub(before);
    let backward = receive(&peer, &mut buffer, task.plan.message_bytes);
    Ok(Some(PairFigures {
        round_trip,
        bytes_per_second: [forward.bytes_per_second, backward],
        sent_bytes: forward.bytes,
        interface_bytes,
        cpu_wait: 0.0,
    }))
}

fn round_trips(peer: &Process<'_>, seconds: f64) -> RoundTrip {
    let mut answer = [0_u8; MESSAGE_BYTES];
    let result = time_round_trips(seconds, |message| {
        peer.send_with_tag(&message[..], tag::ROUND_TRIP);
        peer.receive_into_with_tag(&mut answer[..], tag::ROUND_TRIP);
        Ok::<(), std::convert::Infallible>(())
    });
    match result {
        Ok(round_trip) => round_trip,
        Err(never) => match never {},
    }
}

fn answer_round_trips(peer: &Process<'_>) {
    let mut message = [0_u8; MESSAGE_BYTES];
    while message != LAST {
        peer.receive_into_with_tag(&mut message[..], tag::ROUND_TRIP);
        peer.send_with_tag(&message[..], tag::ROUND_TRIP);
    }
}

/// What a sender reached.
struct Sent {
    bytes_per_second: f64,
    /// All bytes, with those of the warm-up.
    bytes: u64,
}

/// Sends windows of messages for a time, each of which the receiver answers when it has all. After the last it sends the rate.
fn send(peer: &Process<'_>, message: &[u8], plan: &PairPlan) -> Sent {
    let start = Instant::now();
    let warm_up = Duration::from_secs_f64(plan.rate_seconds * WARM_UP_SHARE);
    let end = Duration::from_secs_f64(plan.rate_seconds);
    let mut window = FIRST_WINDOW;
    let mut sent = 0;
    let (mut counted_bytes, mut counted_time) = (0, Duration::ZERO);
    loop {
        let window_start = Instant::now();
        send_window(peer, message, window);
        let elapsed = window_start.elapsed();
        let bytes = (window * message.len()) as u64;
        // The first window connects: it counts never.
        if sent > 0 && window_start - start >= warm_up {
            counted_bytes += bytes;
            counted_time += elapsed;
        }
        sent += bytes;
        if start.elapsed() >= end && counted_bytes > 0 {
            break;
        }
        let wanted = window as f64 * WINDOW_SHARE * plan.rate_seconds / elapsed.as_secs_f64();
        window = (wanted as usize).clamp(MIN_WINDOW, MAX_WINDOW);
    }
    let bytes_per_second = counted_bytes as f64 / counted_time.as_secs_f64();
    peer.send_with_tag(&[0, bytes_per_second.to_bits()][..], tag::WINDOW);
    Sent { bytes_per_second, bytes: sent }
}

fn send_window(peer: &Process<'_>, message: &[u8], count: usize) {
    peer.send_with_tag(&[count as u64, 0][..], tag::WINDOW);
    multiple_scope(count, |scope, requests| {
        for _ in 0..count {
            requests.add(peer.immediate_send_with_tag(scope, message, tag::DATA));
        }
        requests.wait_all(&mut Vec::with_capacity(count));
    });
    peer.receive_into_with_tag(&mut [0_u8][..], tag::WINDOW);
}

/// Receives windows until the sender ends; returns its rate in bytes per second.
fn receive(peer: &Process<'_>, buffer: &mut [u8], message_bytes: usize) -> f64 {
    loop {
        let mut header = [0_u64; 2];
        peer.receive_into_with_tag(&mut header[..], tag::WINDOW);
        let [count, rate] = header;
        if count == 0 {
            return f64::from_bits(rate);
        }
        let messages = buffer.chunks_exact_mut(message_bytes).take(count as usize);
        multiple_scope(count as usize, |scope, requests| {
            for message in messages {
                requests.add(peer.immediate_receive_into_with_tag(scope, message, tag::DATA));
            }
            requests.wait_all(&mut Vec::with_capacity(count as usize));
        });
        peer.send_with_tag(&[1_u8][..], tag::WINDOW);
    }
}
