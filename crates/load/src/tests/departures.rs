//! Messages of the kernel that a request has left, of which there may be more than were asked for: where an acknowledgement comes
//! late, it sends the request again, and tells of that as well.

use std::io::Write;

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::departure;

use super::*;
use crate::connection::Phase;
use crate::poll::{Poll, Wanted};
use crate::request::Requests;
use crate::tally::{Belongs, Tally, Times};
use crate::traffic::{MOST_FUTILE, Traffic};

/// Nanoseconds in which what happens on this host has happened.
const LONG: u64 = 60_000_000_000;

fn traffic(setup: &Setup) -> Traffic {
    let requests = Requests::new(&setup.target, &setup.form, &setup.paths);
    let tally = Tally::new(0..u64::MAX, Belongs::WhenOver);
    Traffic::new(setup, Peer::reach(setup).unwrap(), requests, tally, Poll::new().unwrap())
}

/// Takes what sockets have until the first connection is in this phase.
fn until(traffic: &mut Traffic, phase: Phase) {
    while traffic.connections[0].phase != phase {
        take_all(traffic);
    }
}

fn take_all(traffic: &mut Traffic) {
    let ready = traffic.poll.wait(LONG).unwrap();
    assert!(ready > 0, "nothing has happened");
    for ready in (0..ready).filter_map(|one| traffic.poll.ready(one)).collect::<Vec<_>>() {
        traffic.take(ready, monotonic());
    }
}

/// Has the kernel put a message into the error queue that nobody waits for.
fn message(traffic: &Traffic) {
    let socket = &traffic.connections[0].wire.as_ref().unwrap().socket;
    departure::keep(socket).unwrap();
    (&*socket).write_all(b"x").unwrap();
}

#[test]
fn a_message_that_nobody_waits_for_wakes_the_generator_once() {
    let server = Server::start(|_| (Vec::new(), Then::Stay));
    let mut traffic = traffic(&setup(&server));
    traffic.send(0, 0, Times::default());
    until(&mut traffic, Phase::InFlight);
    message(&traffic);
    take_all(&mut traffic);
    assert_eq!(traffic.poll.wait(0).unwrap(), 0, "it is still there, and would wake the generator for ever");
    assert_eq!(traffic.connections[0].phase, Phase::InFlight);
}

#[test]
fn a_message_ends_no_idle_connection() {
    let server = Server::start(|_| (ok(b"x"), Then::Stay));
    let mut traffic = traffic(&setup(&server));
    traffic.send(0, 0, Times::default());
    until(&mut traffic, Phase::InFlight);
    until(&mut traffic, Phase::Idle);
    message(&traffic);
    take_all(&mut traffic);
    assert_eq!(traffic.poll.wait(0).unwrap(), 0);
    assert!(traffic.connections[0].wire.is_some());
}

#[test]
fn a_socket_that_is_ready_for_ever_and_has_nothing_ends_its_request() {
    let server = Server::start(|_| (Vec::new(), Then::Stay));
    let mut traffic = traffic(&setup(&server));
    traffic.send(0, 0, Times::default());
    until(&mut traffic, Phase::InFlight);
    // There is room, for which nobody waits.
    let connection = &traffic.connections[0];
    traffic.poll.change(connection.wire.as_ref().unwrap(), connection.token, Wanted::ReadOrWrite).unwrap();
    (1..MOST_FUTILE).for_each(|_| take_all(&mut traffic));
    assert_eq!(traffic.connections[0].phase, Phase::InFlight);
    take_all(&mut traffic);
    let figures = traffic.figures();
    assert_eq!((traffic.connections[0].phase, figures.errors.closed), (Phase::Idle, 1));
    assert!(figures.errors.first.is_some_and(|said| said.contains("ready again and again")));
    assert_eq!(traffic.poll.wait(0).unwrap(), 0);
}
