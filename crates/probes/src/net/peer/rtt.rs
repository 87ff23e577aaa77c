//! Round trip of a message to a program on another host.
//!
//! Half of it must not be called the one-way latency, which may differ by direction.

use kelvin_catalogue::net::{MESSAGE, PEER_BANDWIDTH, PEER_CONNECT, PEER_RTT, STACK_TCP, Transport};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, NoPrediction, Prediction};
use kelvin_sys::usage::{Who, usage};

use super::{AGENT, bandwidth, client, over, stopped, told};
use crate::net::echo::Echo;
use crate::net::link::{Link, Protocol};
use crate::net::messages::{SMALL, message, round_trip_messages};
use crate::net::rtt::Switching;
use crate::os::switch::{cross_cpu, pipe};
use crate::predict::Predicting;

pub(in crate::net) static PROBE: Probe = Probe {
    id: PEER_RTT.id.as_str(),
    summary: "Round trip of a message to another host over TCP and UDP (--peer HOST)",
    kind: ProbeKind::Study,
    method: Method {
        how: "A message goes to `kelvin agent` on another host, which returns it; each round trip is timed by itself, \
              carries its number, and is counted by the agent. TCP_NODELAY is set on both hosts. A datagram not \
              answered within half a second counts as lost, and only its repetition is timed.",
        prediction: "Opening a connection (net.peer.connect: the network and two kernels) + waking a program there \
                     (os.switch.cross_cpu of this host, less a pipe's calls) + sending and receiving there (net.stack \
                     of this host) + 2 x message / net.peer.bandwidth. The other host is assumed to be like this one. \
                     Predicted range: a factor of two either way.",
        not_for: "Half of it as the one-way latency; a busy link.",
        pitfalls: &[
            "Interrupts that the network card delays to gather packets: tens of microseconds that no program sees.",
            "A congestion control that paces what it sends: the one in use is noted.",
            AGENT,
        ],
        sources: &["netperf TCP_RR, UDP_RR", "sockperf ping-pong, which prints half of it"],
    },
    metrics: &[&PEER_RTT],
    inputs: &[
        PEER_CONNECT.id.as_str(),
        PEER_BANDWIDTH.id.as_str(),
        STACK_TCP.id.as_str(),
        pipe::PROCESS_SWITCH.id.as_str(),
        cross_cpu::METRIC.id.as_str(),
    ],
    cases: |_, effort| cases(effort),
    run,
    predict: |facts, _, case| predict(facts, case),
};

/// The case of a small message over TCP.
pub(super) fn small_over_tcp() -> Case {
    Case::new().at(Transport::Tcp).with(MESSAGE, SMALL)
}

fn cases(effort: Effort) -> Vec<Case> {
    let of = |transport, protocol| {
        let all = round_trip_messages(protocol);
        let messages = if effort == Effort::Quick { vec![SMALL] } else { all.to_vec() };
        messages.into_iter().map(move |bytes| Case::new().at(transport).with(MESSAGE, bytes))
    };
    of(Transport::Tcp, Protocol::Tcp).chain(of(Transport::Udp, Protocol::Udp)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let size = message(case)?;
    let mut client = client(bench)?;
    let own = client.own();
    let seen = match Transport::of(case) {
        Some(Transport::Tcp) => {
            let mut test = client.echo_tcp(size as u32).map_err(stopped)?;
            time(bench, Link::Tcp(test.socket().try_clone()?), size)?;
            test.finish()
        }
        Some(Transport::Udp) => {
            let mut test = client.echo_udp(size as u32).map_err(stopped)?;
            time(bench, Link::Udp(test.socket().try_clone()?), size)?;
            test.finish()
        }
        None => return Err(Stop::fail(format!("the case needs protocol tcp or udp, not {case}"))),
    };
    let seen = seen.map_err(stopped)?;
    bench.note_on_last(format!("the agent returned {} messages; {}", seen.arrived, told(&seen, 1)));
    bench.note_on_last(over(own, &seen));
    Ok(())
}

/// Times round trips over a link until the slice is over; the link is closed afterwards.
fn time(bench: &mut Bench<'_>, link: Link, size: usize) -> Result<(), Stop> {
    let mut echo = Echo::over(link, size)?;
    let before = usage(Who::Thread);
    bench.time_each([&PEER_RTT], |clock| Ok([echo.timed(clock)?]))?;
    let used = usage(Who::Thread).since(before);
    let [user, system] = [used.user, used.system].map(|nanoseconds| nanoseconds as f64 / 1e6);
    bench.note_on_last(format!(
        "{}; this host used {user:.0} ms of CPU in user mode and {system:.0} ms in the kernel",
        echo.describe()?
    ));
    Ok(())
}

fn predict(facts: &Facts<'_>, case: &Case) -> Result<Prediction, NoPrediction> {
    let bytes = MESSAGE.of(case).unwrap_or_default();
    let connect = facts.measured(&PEER_CONNECT, &Case::new())?;
    let rate = facts.measured(&PEER_BANDWIDTH, &bandwidth::streams(1))?;
    let stack = facts.measured(&STACK_TCP, &Case::new().with(MESSAGE, SMALL))?;
    let wake = Switching::wake(facts)?;
    let wire = 2.0 * bytes as f64 * 1e9 / rate.value;
    let value = connect.value + wake.nanoseconds + stack.value + wire;
    let derivation = format!(
        "{:.1} us to connect + {:.1} us to wake a program there + {:.1} us to receive and send + 2 x {bytes} B / {:.0} MB/s \
         = {:.1} us",
        connect.value / 1e3,
        wake.nanoseconds / 1e3,
        stack.value / 1e3,
        rate.value / 1e6,
        value / 1e3
    );
    let predicting = Predicting::within_factor(Basis::Derived, value, 2.0)
        .formula(
            "connect, wake and wire",
            "net.peer.connect + waking + net.stack.tcp + 2 x message / net.peer.bandwidth",
        )
        .input(connect)
        .input(stack)
        .input(rate);
    Ok(predicting.inputs(wake.inputs).derived_as(derivation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn a_round_trip_is_a_connection_a_program_and_the_wire() {
        let known = [
            (PEER_CONNECT.id.as_str(), Some(100_000.0)),
            (PEER_BANDWIDTH.id.as_str(), Some(12.5e6)),
            (STACK_TCP.id.as_str(), Some(3000.0)),
            (cross_cpu::METRIC.id.as_str(), Some(8500.0)),
            (pipe::PROCESS_OWN.id.as_str(), Some(500.0)),
        ];
        facts_about(&known, |facts| {
            let of = |bytes| predict(facts, &Case::new().at(Transport::Tcp).with(MESSAGE, bytes)).unwrap();
            // 100 us + 8 us + 3 us, and 2 x 1250 B at 12.5 MB/s: 200 us.
            assert_eq!(of(1250).value, 311_000.0);
            assert_eq!((of(1250).low, of(1250).high), (155_500.0, 622_000.0));
        });
        assert_eq!((cases(Effort::Quick).len(), cases(Effort::Default).len()), (2, 10));
    }
}
