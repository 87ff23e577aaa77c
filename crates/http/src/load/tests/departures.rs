//! Messages of the kernel that a request has left, of which there may be more than were asked for: where an acknowledgement comes
//! late, it sends the request again, and reports that as well.

use std::io::Write;

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::tx_timestamp;

use super::*;
use crate::load::connection_pool::{ConnectionPool, MAX_FUTILE_WAKEUPS, Phase};
use crate::load::load_run::LoadRun;
use crate::load::request_pool::RequestPool;
use crate::load::request_stats::RequestTimestamps;

/// Nanoseconds in which what happens on this host has happened.
const MAX_WAIT: u64 = 60_000_000_000;

/// The connections of a load that lasts as long as the test program.
fn connection_pool(setup: LoadSetup) -> ConnectionPool<'static> {
    let peer = ServerEndpoint::connect_first(&setup).unwrap();
    let (setup, peer) = Box::leak(Box::new((setup, peer)));
    let run = Box::leak(Box::new(LoadRun::new(setup, peer).unwrap()));
    let mut pool = ConnectionPool::prepare(run, setup.share).unwrap();
    pool.state.stats.window = 0..u64::MAX;
    pool
}

/// Takes what sockets have until the first connection is in this phase.
fn run_until(traffic: &mut ConnectionPool<'_>, phase: Phase) {
    while traffic.connections[0].phase != phase {
        drain(traffic);
    }
}

fn drain(traffic: &mut ConnectionPool<'_>) {
    let ready = traffic.state.poller.wait(MAX_WAIT).unwrap();
    assert!(ready > 0, "nothing has happened");
    for (token, flags) in (0..ready).filter_map(|index| traffic.state.poller.ready(index)).collect::<Vec<_>>() {
        traffic.handle_ready(token, flags, monotonic());
    }
}

/// Has the kernel put a message into the error queue that nobody waits for.
fn inject_error_message(traffic: &ConnectionPool<'_>) {
    let socket = &traffic.connections[0].transport.as_ref().unwrap().socket;
    tx_timestamp::enable(socket).unwrap();
    (&*socket).write_all(b"x").unwrap();
}

#[test]
fn stray_message_wakes_once() {
    let server = ScriptedServer::start(|_| (Vec::new(), AfterAnswer::Stay));
    let mut traffic = connection_pool(two_user_setup(&server));
    traffic.send_request(0, 0, RequestTimestamps::default());
    run_until(&mut traffic, Phase::InFlight);
    inject_error_message(&traffic);
    drain(&mut traffic);
    assert_eq!(traffic.state.poller.wait(0).unwrap(), 0, "it is still there, and would wake the generator for ever");
    assert_eq!(traffic.connections[0].phase, Phase::InFlight);
}

#[test]
fn stray_message_keeps_idle_connection() {
    let server = ScriptedServer::start(|_| (ok(b"x"), AfterAnswer::Stay));
    let mut traffic = connection_pool(two_user_setup(&server));
    traffic.send_request(0, 0, RequestTimestamps::default());
    run_until(&mut traffic, Phase::InFlight);
    run_until(&mut traffic, Phase::Idle);
    inject_error_message(&traffic);
    drain(&mut traffic);
    assert_eq!(traffic.state.poller.wait(0).unwrap(), 0);
    assert!(traffic.connections[0].transport.is_some());
}

#[test]
fn always_ready_empty_socket_fails_request() {
    let server = ScriptedServer::start(|_| (Vec::new(), AfterAnswer::Stay));
    let mut traffic = connection_pool(two_user_setup(&server));
    traffic.send_request(0, 0, RequestTimestamps::default());
    run_until(&mut traffic, Phase::InFlight);
    // There is room, for which nobody waits.
    let connection = &traffic.connections[0];
    traffic.state.poller.change(connection.transport.as_ref().unwrap(), connection.token, true).unwrap();
    (1..MAX_FUTILE_WAKEUPS).for_each(|_| drain(&mut traffic));
    assert_eq!(traffic.connections[0].phase, Phase::InFlight);
    drain(&mut traffic);
    let figures = traffic.state.stats.summary();
    assert_eq!((traffic.connections[0].phase, figures.errors.closed), (Phase::Idle, 1));
    assert!(figures.errors.first.is_some_and(|text| text.contains("ready again and again")));
    assert_eq!(traffic.state.poller.wait(0).unwrap(), 0);
}
