//! Bytes per second that arrive at another host over TCP, and from it, counted where they arrive.
//!
//! It must not be taken for the speed of the link alone: either host can be the limit.

use kelvin_core::catalogue::net::{
    PEER_BANDWIDTH, PEER_BANDWIDTH_BURST, PEER_BANDWIDTH_BUSY_HERE, PEER_BANDWIDTH_BUSY_THERE, STREAMS, SendMethod,
    StreamDirection,
};
use kelvin_harness::BoundedMetric;
use kelvin_transfer::wire::message::TestDirection;

use super::rate_windows::{SustainedWindows, rates};
use super::streams::{MESSAGE_BYTES, StreamSpec, run_streams};
use super::{AGENT_PITFALL, link_rate};
use crate::prelude::*;

/// Fewest windows of a round: of three the median is left alone by one in which arrives what was lost, or held back, before it.
const MIN_WINDOWS: u32 = 3;

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Bytes to another host over TCP and from it, by streams (--peer HOST)",
    method: Method {
        how: "direction=to_agent: a thread per stream, on the CPUs in turn, sends messages of 128 KiB to `kelvin \
              agent` on another host, where a thread per stream receives them. The agent counts what arrives and \
              reports it on request, with its own time: the rate is that between two reports, at least 200 ms apart, and \
              of several streams as long as a megabyte of each takes, up to a second, so that what waits behind a lost \
              segment is a small share. A round has three at least, of which the middle one counts. \
              direction=from_agent: the agent sends over connections that this host opened, and threads of this host \
              receive and count by this host's clock, over the same windows (iperf3 -R). Windows begin when the rate \
              neither rises nor falls, so that slow start and the burst of a token bucket (a shaper, a provider's \
              limit) are left out; where it falls by a fifth or more between windows and stays there, only those after \
              the fall count, and up to ten are added for that. What had arrived by then beyond the sustained rate is \
              net.peer.bandwidth.burst, if it is at least 50 ms of that rate and a quarter more than it: the size of \
              the bucket, if it was full when the round began. Each connection's buffers grow automatically and its \
              congestion control is each system's own, unless --congestion-control and --socket-buffers request \
              otherwise, for both hosts; what was requested and obtained, TCP_INFO of both sides and the interfaces \
              are noted. CPU use of both hosts is measured in the same windows: the test's busiest thread, and the \
              busiest CPU by the kernel's account (/proc/stat), which includes packet processing. A host that is the \
              limit is named.",
        prediction: link_rate::STREAM_PREDICTION,
        not_for: "The speed of the link where a host is the limit: the result then says CPU-limited.",
        pitfalls: &[
            "A bucket that lasts longer than a round, some seconds: all rounds then see the burst, or the first ones alone.",
            "A traffic shaper counts other bytes than the wire does, and is not part of the line rate.",
            "Loss: retransmitted segments are noted, by the side that sent them.",
            AGENT_PITFALL,
        ],
        sources: &["iperf3", "RFC 7323 (timestamps), IEEE 802.3: preamble, header, check sequence, gap of 38 bytes"],
    },
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
            Err(NoPrediction::new("no host knows what a shaper of the network has saved up"))
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

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), ProbeError> {
    let count = STREAMS.number_in(case).filter(|count| (1..=16).contains(count));
    let count = count.ok_or_else(|| ProbeError::fail(format!("the case needs 1 to 16 streams, not {case}")))?;
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
