//! Round trip of a message to a program on another host.
//!
//! Half of it must not be called the one-way latency, which may differ by direction.

use kelvin_core::catalogue::net::{PEER_BANDWIDTH, PEER_CONNECT, PEER_RTT, STACK_TCP, Transport};
use kelvin_sys::usage::{UsageScope, read_usage};

use super::super::prelude::*;
use super::{bandwidth, connect_agent, describe_agent_side, describe_interfaces, probe_error};
use crate::net::link::round_trip_messages;
use crate::net::rtt::WakeCost;

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Round trip of a message to another host over TCP and UDP (--peer HOST)",
    method: include_str!("rtt.md"),
    cases: |_, effort| cases(effort),
    run,
    predict: |facts, _, case| predict(facts, case),
    ..Probe::study(&[&PEER_RTT])
};

/// The case of a small message over TCP.
pub(super) fn small_tcp_case() -> Case {
    Case::new().with_word(Transport::Tcp).with_number(MESSAGE, SMALL_MESSAGE)
}

fn cases(effort: Effort) -> Vec<Case> {
    let cases_of =
        |transport: Transport, protocol| words(&[transport]).numbers(MESSAGE, &round_trip_messages(protocol, effort));
    [cases_of(Transport::Tcp, Protocol::Tcp), cases_of(Transport::Udp, Protocol::Udp)].concat()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let size = message_bytes(case)?;
    let mut client = connect_agent(bench)?;
    let local_address = client.local_addr;
    let report = match required(Transport::of(case), case)? {
        Transport::Tcp => {
            let test = client.echo_tcp(size as u32).map_err(probe_error)?;
            time_round_trips(bench, Link::Tcp(test.socket.try_clone()?), size)?;
            test.finish()
        }
        Transport::Udp => {
            let test = client.echo_udp(size as u32).map_err(probe_error)?;
            time_round_trips(bench, Link::Udp(test.socket.try_clone()?), size)?;
            test.finish()
        }
    };
    let report = report.map_err(probe_error)?;
    bench.note_last_reading(format!(
        "the agent returned {} messages; {}",
        report.arrived,
        describe_agent_side(&report, 1)
    ));
    bench.note_last_reading(describe_interfaces(local_address, &report));
    Ok(())
}

/// Times round trips over a link until the slice is over; the link is closed afterwards.
fn time_round_trips(bench: &mut Bench<'_>, link: Link, size: usize) -> ProbeResult {
    let mut echo = EchoClient::over_link(link, size)?;
    let before = read_usage(UsageScope::Thread);
    bench.time_each([&PEER_RTT], |clock| Ok([echo.time_round_trip(clock)?]))?;
    let usage = read_usage(UsageScope::Thread).since(before);
    let [user, system] = [usage.user, usage.system].map(|nanoseconds| nanoseconds as f64 / 1e6);
    bench.note_last_reading(format!(
        "{}; this host used {user:.0} ms of CPU in user mode and {system:.0} ms in the kernel",
        echo.describe()?
    ));
    Ok(())
}

fn predict(facts: &PredictionInputs<'_>, case: &Case) -> Predicted {
    let bytes = MESSAGE.number_in(case).unwrap_or_default();
    let connect = measured(facts, &PEER_CONNECT, &Case::new())?;
    let rate = measured(facts, &PEER_BANDWIDTH, &bandwidth::streams_to_agent(1))?;
    let stack = measured(facts, &STACK_TCP, &Case::new().with_number(MESSAGE, SMALL_MESSAGE))?;
    let wake = WakeCost::cross_cpu(facts)?.cost;
    let trip = connect + wake + stack + 2.0 * bytes_of("message", bytes) / rate;
    Ok(trip.widen(2.0).derived("connect, wake and wire"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SWITCH_CHANNEL_CALLS;

    use super::*;
    use crate::os::switch::cross_cpu;
    use crate::testing::with_facts;

    #[test]
    fn rtt_sums_host_and_wire_time() {
        let values = [
            (PEER_CONNECT.id.as_str(), Some(100_000.0)),
            (PEER_BANDWIDTH.id.as_str(), Some(12.5e6)),
            (STACK_TCP.id.as_str(), Some(3000.0)),
            (cross_cpu::METRIC.id.as_str(), Some(8500.0)),
            (SWITCH_CHANNEL_CALLS.id.as_str(), Some(500.0)),
        ];
        with_facts(&values, |facts| {
            let predicted =
                |bytes| predict(facts, &Case::new().with_word(Transport::Tcp).with_number(MESSAGE, bytes)).unwrap();
            // 100 us + 8 us + 3 us, and 2 x 1250 B at 12.5 MB/s: 200 us.
            assert_eq!(predicted(1250).value, 311_000.0);
            assert_eq!((predicted(1250).low, predicted(1250).high), (155_500.0, 622_000.0));
        });
        assert_eq!((cases(Effort::Quick).len(), cases(Effort::Default).len()), (2, 10));
    }
}
