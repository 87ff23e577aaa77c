//! The time to open and to close a connection to another host, and how many can be made per second with a request on each.
//!
//! Opening is a round trip answered by the other kernel alone: the shortest on the network that needs no privilege. It must not
//! be taken for the time of a request.

use std::net::{SocketAddr, TcpStream};

use kelvin_core::catalogue::net::{
    CLOSE, CONNECT, MESSAGE, PEER_CLOSE, PEER_CONNECT, PEER_CRR, PEER_PING, PEER_RTT, RTT_ICMP,
};
use kelvin_transfer::wire::client;
use kelvin_transfer::wire::message::TestReport;

use super::{connect_agent, describe_agent_side, describe_interfaces, probe_error, rtt};
use crate::net::accept_server::AcceptServer;
use crate::net::connect::{self, time_connect_and_close, transact};
use crate::net::held_ports;
use crate::net::link::SMALL_MESSAGE;
use crate::prelude::*;

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Opening a TCP connection to another host, answered by its kernel, and closing it (--peer HOST)",
    method: include_str!("connect.md"),
    run: |bench, _| {
        with_agent(bench, "connections", |bench, server| {
            time_connect_and_close(bench, [&PEER_CONNECT, &PEER_CLOSE], server)
        })
    },
    predict,
    ..Probe::study(&[&PEER_CONNECT, &PEER_CLOSE])
};

pub(in crate::net) static RATE: Probe = Probe {
    summary: "Connecting to another host, one request with its answer, and closing, repeatedly (--peer HOST)",
    method: include_str!("connect_rate.md"),
    run: |bench, _| {
        with_agent(bench, "transactions", |bench, server| {
            bench.time_each_work([&PEER_CRR], 1.0, |clock| {
                let (ticks, outcome) = clock.time(|| transact(server));
                outcome.map(|()| [ticks])
            })
        })
    },
    predict,
    ..Probe::study(&[&PEER_CRR])
};

/// The agent, accepting connections.
struct AgentAcceptServer(client::AcceptTarget);

impl AcceptServer for AgentAcceptServer {
    #[inline(always)]
    fn connect(&self) -> ProbeResult<TcpStream> {
        self.0.connect().or_fail("cannot connect to the agent")
    }

    #[inline(always)]
    fn request(&self, connection: &mut TcpStream) -> ProbeResult {
        self.0.exchange(connection).map_err(probe_error)
    }

    /// It sees it when the packet comes.
    fn await_client_close(&self) -> ProbeResult {
        Ok(())
    }
}

/// Has the agent accept connections, named `description`, during a timed test, and notes how many still hold a port.
fn with_agent(
    bench: &mut Bench<'_>,
    description: &str,
    measure: impl FnOnce(&mut Bench<'_>, &AgentAcceptServer) -> ProbeResult,
) -> ProbeResult {
    let mut client = connect_agent(bench)?;
    let local_address = client.local_addr;
    let test = client.accept_connections().map_err(probe_error)?;
    let server = AgentAcceptServer(test.socket);
    let address = server.0.address;
    // The kernel's tables give no zone.
    let address = SocketAddr::new(address.ip(), address.port());
    let before = held_ports::count_held_ports(|remote| remote == address)?;
    measure(bench, &server)?;
    let ports_left = held_ports::count_left_behind(address, before)?;
    let report: TestReport = test.finish().map_err(probe_error)?;
    bench.note_last_reading(format!("{} {description}", report.arrived));
    bench.note_last_reading(format!("{ports_left} of them still hold a port"));
    bench.note_last_reading(describe_agent_side(&report, 1));
    bench.note_last_reading(describe_interfaces(local_address, &report));
    Ok(())
}

/// Of connecting, of closing, and of one after another with a request on each.
fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    let (figure, name) = match metric.id {
        id if id == PEER_CONNECT.id => {
            let small_case = Case::new().with_number(MESSAGE, SMALL_MESSAGE);
            let ping = measured(facts, &PEER_PING, &small_case)?;
            let connect_overhead = (measured(facts, &CONNECT, &connect::one_cpu_case())?
                - measured(facts, &RTT_ICMP, &small_case)?)
            .at_least_zero();
            let source = "RFC 9293, 3.5: SYN, and SYN with ACK; RFC 792: echo, and echo reply";
            ((ping + connect_overhead).source(source), "ping and connect")
        }
        id if id == PEER_CLOSE.id => (measured(facts, &CLOSE, &connect::one_cpu_case())?, "close over loopback"),
        _ => {
            let open_time =
                measured(facts, &PEER_CONNECT, &Case::new())? + measured(facts, &PEER_RTT, &rtt::small_tcp_case())?;
            (1.0 / (open_time + measured(facts, &PEER_CLOSE, &Case::new())?), "connect, ask and close")
        }
    };
    Ok(figure.widen(2.0).derived(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn connect_is_ping_transaction_is_sum() {
        let values = [
            (PEER_PING.id.as_str(), Some(100_000.0)),
            (CLOSE.id.as_str(), Some(6000.0)),
            (CONNECT.id.as_str(), Some(17_000.0)),
            (RTT_ICMP.id.as_str(), Some(7000.0)),
            (PEER_CONNECT.id.as_str(), Some(120_000.0)),
            (PEER_RTT.id.as_str(), Some(270_000.0)),
            (PEER_CLOSE.id.as_str(), Some(10_000.0)),
        ];
        with_facts(&values, |facts| {
            let connect = predict(facts, &PEER_CONNECT, &Case::new()).unwrap();
            assert_eq!((connect.value, connect.low, connect.high), (110_000.0, 55_000.0, 220_000.0));
            assert_eq!(predict(facts, &PEER_CLOSE, &Case::new()).unwrap().value, 6000.0);
            // 120 + 270 + 10 microseconds.
            let rate = predict(facts, &PEER_CRR, &Case::new()).unwrap();
            assert_eq!((rate.value, rate.inputs.len()), (2500.0, 3));
        });
        with_facts(&values[1..4], |facts| {
            let reason = predict(facts, &PEER_CONNECT, &Case::new()).unwrap_err();
            assert!(reason.0.contains(&*PEER_PING.id), "{}", reason.0);
            assert!(predict(facts, &PEER_CRR, &Case::new()).is_err());
        });
    }
}
