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

use super::{AGENT_PITFALL, connect_agent, describe_agent_side, describe_interfaces, probe_error, rtt};
use crate::net::accept_server::AcceptServer;
use crate::net::connect::{self, time_connect_and_close, transact};
use crate::net::held_ports;
use crate::net::link::SMALL_MESSAGE;
use crate::prelude::*;

/// What both say of ports.
const PORTS_TEXT: &str = "Ports in TIME_WAIT after a close (60 s): some 28,000 to one address and port are soon used up. \
                     The agent answers the close by a reset, as in net.connect, so that none waits; those that do, \
                     because something on the path drops resets, are counted and noted. They delay nobody else: each \
                     round has its own port of the agent.";

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Opening a TCP connection to another host, answered by its kernel, and closing it (--peer HOST)",
    method: Method {
        how: "The calls socket and connect to a port of `kelvin agent` on another host, timed together; then, untimed, \
              a request of 16 bytes, by which the agent recognises the connection, and its answer, so that it is \
              accepted; then the call close, timed. Each connection is timed by itself, one after the other. The \
              client closes first; the agent then resets the connection.",
        prediction: "connect: one round trip answered by a kernel, like an echo request's (net.peer.ping, 64 bytes), \
                     plus the local cost of connecting beyond an echo request (net.connect on one CPU less \
                     net.rtt.icmp): a socket and another packet. close: a call that sends one packet and waits for \
                     nothing, as on loopback (net.close on one CPU). Predicted range: a factor of two either way, as \
                     neither an interface's time for a packet nor the wake-up of an agent on this machine is counted.",
        not_for: "The time of a request, for which a program of the other host must wake; the time until the server \
                  knows of the close.",
        pitfalls: &[
            PORTS_TEXT,
            "A full accept queue: the first packet is sent again after a second, which shows as a maximum.",
            "A network that treats echo requests differently from connections: the prediction is then wrong, the \
             figure is not.",
            AGENT_PITFALL,
        ],
        sources: &["lmbench lat_connect", "RFC 9293, 3.5"],
    },
    run: |bench, _| {
        with_agent(bench, "connections", |bench, accepting| {
            time_connect_and_close(bench, [&PEER_CONNECT, &PEER_CLOSE], accepting)
        })
    },
    predict,
    ..Probe::study(&[&PEER_CONNECT, &PEER_CLOSE])
};

pub(in crate::net) static RATE: Probe = Probe {
    summary: "Connecting to another host, one request with its answer, and closing, repeatedly (--peer HOST)",
    method: Method {
        how: "Connects to `kelvin agent` on another host, sends 16 bytes, by which the agent recognises the \
              connection, receives as many in answer, and closes; one transaction after another, each timed by itself. \
              The rate is one over that time. As in net.peer.connect the agent answers the close by a reset.",
        prediction: "One over the sum of net.peer.connect, a round trip of net.peer.rtt over TCP (64 bytes) and \
                     net.peer.close. Predicted range: a factor of two either way, as the agent's work to accept is not \
                     counted.",
        not_for: "Requests per second over kept connections; a server with many connections at once; the rate of \
                  netperf TCP_CRR, whose connections end in TIME_WAIT.",
        pitfalls: &[
            PORTS_TEXT,
            "Several connections at a time taken for a faster connection: there is one here.",
            AGENT_PITFALL,
        ],
        sources: &["netperf TCP_CRR", "tcp(7)"],
    },
    run: |bench, _| {
        with_agent(bench, "transactions", |bench, accepting| {
            bench.time_each_work([&PEER_CRR], 1.0, |clock| {
                let start = clock.start();
                transact(accepting)?;
                Ok([clock.stop().wrapping_sub(start)])
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
    fn connect(&self) -> Result<TcpStream, ProbeError> {
        self.0.connect().map_err(|error| ProbeError::fail(format!("cannot connect to the agent: {error}")))
    }

    #[inline(always)]
    fn request(&self, connection: &mut TcpStream) -> Result<(), ProbeError> {
        self.0.exchange(connection).map_err(probe_error)
    }

    /// It sees it when the packet comes.
    fn await_client_close(&self) -> Result<(), ProbeError> {
        Ok(())
    }
}

/// Has the agent accept connections, named `what`, during a timed test, and notes how many still hold a port.
fn with_agent(
    bench: &mut Bench<'_>,
    what: &str,
    timed: impl FnOnce(&mut Bench<'_>, &AgentAcceptServer) -> Result<(), ProbeError>,
) -> Result<(), ProbeError> {
    let mut client = connect_agent(bench)?;
    let own = client.local_addr();
    let mut test = client.accept_connections().map_err(probe_error)?;
    let accepting = AgentAcceptServer(*test.socket());
    let address = accepting.0.address();
    // The kernel's tables give no zone.
    let address = SocketAddr::new(address.ip(), address.port());
    let before = held_ports::count_held_ports(|far| far == address)?;
    timed(bench, &accepting)?;
    let left_behind = held_ports::count_left_behind(address, before)?;
    let report: TestReport = test.finish().map_err(probe_error)?;
    bench.note_last_reading(format!("{} {what}", report.arrived));
    bench.note_last_reading(format!("{left_behind} of them still hold a port"));
    bench.note_last_reading(describe_agent_side(&report, 1));
    bench.note_last_reading(describe_interfaces(own, &report));
    Ok(())
}

/// Of connecting, of closing, and of one after another with a request on each.
fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    let (figure, name) = match metric.id {
        id if id == PEER_CONNECT.id => {
            let small = Case::new().with_number(MESSAGE, SMALL_MESSAGE);
            let ping = measured(facts, &PEER_PING, &small)?;
            let beyond = (measured(facts, &CONNECT, &connect::one_cpu_case())? - measured(facts, &RTT_ICMP, &small)?)
                .at_least_zero();
            let source = "RFC 9293, 3.5: SYN, and SYN with ACK; RFC 792: echo, and echo reply";
            ((ping + beyond).source(source), "ping and connect")
        }
        id if id == PEER_CLOSE.id => (measured(facts, &CLOSE, &connect::one_cpu_case())?, "close over loopback"),
        _ => {
            let opened =
                measured(facts, &PEER_CONNECT, &Case::new())? + measured(facts, &PEER_RTT, &rtt::small_tcp_case())?;
            (1.0 / (opened + measured(facts, &PEER_CLOSE, &Case::new())?), "connect, ask and close")
        }
    };
    Ok(figure.within(2.0).predict(PredictionBasis::Derived, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn connect_is_ping_transaction_is_sum() {
        let known = [
            (PEER_PING.id.as_str(), Some(100_000.0)),
            (CLOSE.id.as_str(), Some(6000.0)),
            (CONNECT.id.as_str(), Some(17_000.0)),
            (RTT_ICMP.id.as_str(), Some(7000.0)),
            (PEER_CONNECT.id.as_str(), Some(120_000.0)),
            (PEER_RTT.id.as_str(), Some(270_000.0)),
            (PEER_CLOSE.id.as_str(), Some(10_000.0)),
        ];
        with_facts(&known, |facts| {
            let connect = predict(facts, &PEER_CONNECT, &Case::new()).unwrap();
            assert_eq!((connect.value, connect.low, connect.high), (110_000.0, 55_000.0, 220_000.0));
            assert_eq!(predict(facts, &PEER_CLOSE, &Case::new()).unwrap().value, 6000.0);
            // 120 + 270 + 10 microseconds.
            let rate = predict(facts, &PEER_CRR, &Case::new()).unwrap();
            assert_eq!((rate.value, rate.inputs.len()), (2500.0, 3));
        });
        with_facts(&known[1..4], |facts| {
            let why = predict(facts, &PEER_CONNECT, &Case::new()).unwrap_err();
            assert!(why.0.contains(&*PEER_PING.id), "{}", why.0);
            assert!(predict(facts, &PEER_CRR, &Case::new()).is_err());
        });
    }
}
