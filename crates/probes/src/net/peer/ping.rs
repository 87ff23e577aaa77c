//! Round trip of an echo request to another host, answered by its kernel.

use std::net::IpAddr;

use kelvin_core::catalogue::net::PEER_PING;

use super::super::prelude::*;
use crate::net::icmp::Ping;

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Round trip of an echo request (ping) to another host (--peer HOST)",
    method: include_str!("ping.md"),
    cases: |_, effort| {
        let sizes = [SMALL_MESSAGE, 1 << 10];
        numbers(MESSAGE, if effort == Effort::Quick { &sizes[..1] } else { &sizes })
    },
    run,
    predict: |_, _, _| Err(NoPrediction::new("the distance to another host is a fact of the network")),
    ..Probe::study(&[&PEER_PING])
};

/// Requests lost in a row after which the host counts as unreachable.
const MAX_LOST: u32 = 5;

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let IpAddr::V4(address) = bench.agent()?.address.ip() else {
        return Err(ProbeError::skip("needs an agent with an IPv4 address"));
    };
    let mut ping = Ping::open(address, message_bytes(case)?, bench.seed() as u16)?;
    let mut attempts = 0;
    while !ping.round_trip()? {
        attempts += 1;
        let reason = format!("needs a host and a network that answer echo requests, and {address} did not");
        skip_if(attempts == MAX_LOST, reason)?;
    }
    bench.note(ping.describe());
    let (mut sent, mut lost) = (0_u64, 0_u64);
    bench.time_each([&PEER_PING], |clock| {
        for _ in 0..MAX_LOST {
            sent += 1;
            let (ticks, is_answered) = clock.time(|| ping.round_trip());
            if is_answered? {
                return Ok([ticks]);
            }
            lost += 1;
        }
        Err(ProbeError::fail(format!("{MAX_LOST} echo requests in a row were not answered")))
    })?;
    bench.note_last_reading(format!("{lost} of {sent} requests or their replies were lost"));
    Ok(())
}
