//! Bytes per second that arrive at another host over TCP, and from it, counted where they arrive.
//!
//! It must not be taken for the speed of the link alone: either host can be the limit.

use kelvin_core::catalogue::net::{
    PEER_BANDWIDTH, PEER_BANDWIDTH_BURST, PEER_BANDWIDTH_BUSY_HERE, PEER_BANDWIDTH_BUSY_THERE, STREAMS, SendMethod,
    StreamDirection,
};
use kelvin_harness::BoundedMetric;
use kelvin_transfer::wire::message::TestDirection;

use super::link_rate;
use super::rate_windows::{SustainedWindows, rates};
use super::streams::{MESSAGE_BYTES, StreamSpec, run_streams};
use crate::prelude::*;

/// Fewest windows of a round: of three the median is left alone by one in which arrives what was lost, or held back, before it.
const MIN_WINDOWS: u32 = 3;

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Bytes to another host over TCP and from it, by streams (--peer HOST)",
    method: include_str!("bandwidth.md"),
    cases: |_, effort| match effort {
        Effort::Quick => numbers(STREAMS, &[1]).words(StreamDirection::ALL),
        // What more streams add depends on the hosts and the network, which seldom differs by direction.
        Effort::Default => [
            numbers(STREAMS, &[1, 2, 4]).words(&[StreamDirection::ToAgent]),
            numbers(STREAMS, &[1, 4]).words(&[StreamDirection::FromAgent]),
        ]
        .concat(),
        Effort::Thorough => numbers(STREAMS, &[1, 2, 4]).words(StreamDirection::ALL),
    },
    run,
    predict: |facts, metric, _| match metric.id == PEER_BANDWIDTH.id {
        true => link_rate::predict(facts),
        false if metric.id == PEER_BANDWIDTH_BURST.id => {
            Err(NoPrediction::new("no host knows how full the token bucket of a shaper in the network is"))
        }
        false => Err(NoPrediction::new("it depends on which of the link and the two hosts is the slowest")),
    },
    ..Probe::study(&[&PEER_BANDWIDTH, &PEER_BANDWIDTH_BURST, &PEER_BANDWIDTH_BUSY_HERE, &PEER_BANDWIDTH_BUSY_THERE])
};

/// For any number of streams. Data from the agent may arrive by another interface than packets to it leave by.
pub(in crate::net) static BOUNDED: BoundedMetric = BoundedMetric {
    metric: &PEER_BANDWIDTH,
    maximum: |hardware, case| match StreamDirection::of(case) {
        Some(StreamDirection::FromAgent) => None,
        Some(StreamDirection::ToAgent) | None => link_rate::payload_bound(hardware, link_rate::MAX_STREAM_PAYLOAD),
    },
};

/// The case of this many streams to the agent.
pub(super) fn streams_to_agent(count: u64) -> Case {
    Case::new().with_number(STREAMS, count).with_word(StreamDirection::ToAgent)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let count = STREAMS.number_in(case).filter(|count| (1..=16).contains(count));
    let count = count.or_fail(format!("the case needs 1 to 16 streams, not {case}"))?;
    let direction = match required(StreamDirection::of(case), case)? {
        StreamDirection::ToAgent => TestDirection::ToAgent,
        StreamDirection::FromAgent => TestDirection::FromAgent,
    };
    let (streams, message) = (count as u32, MESSAGE_BYTES);
    let spec = StreamSpec { direction, streams, method: SendMethod::Send, message, windows: MIN_WINDOWS };
    let (SustainedWindows { windows, burst }, busy) = run_streams(bench, spec)?;
    bench.record(&PEER_BANDWIDTH, rates(&windows));
    if let Some(burst) = burst {
        bench.record(&PEER_BANDWIDTH_BURST, vec![burst.size]);
    }
    bench.record(&PEER_BANDWIDTH_BUSY_HERE, vec![busy[0].max_share()]);
    bench.record(&PEER_BANDWIDTH_BUSY_THERE, vec![busy[1].max_share()]);
    Ok(())
}
