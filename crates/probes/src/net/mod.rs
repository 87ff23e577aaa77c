//! The network: round trips, bandwidth and connections, on this machine and to another host.

mod accepting;
pub(crate) mod bandwidth;
pub(crate) mod bulk;
mod connect;
pub(crate) mod echo;
mod icmp;
pub(crate) mod link;
mod loaded;
mod messages;
mod peer;
mod ports;
mod rivals;
mod rtt;
pub(crate) mod sender;
mod settle;
mod stack;
mod stream;
mod wake;

use kelvin_harness::{Bounded, Probe};

pub(crate) static PROBES: &[&Probe] = &[
    &stack::TCP,
    &stack::UDP,
    &stack::UNIX,
    &stream::TCP,
    &stream::UDP,
    &stream::UNIX,
    &rtt::TCP,
    &rtt::UDP,
    &rtt::UNIX,
    &icmp::PROBE,
    &wake::PROBE,
    &connect::PROBE,
    &connect::RATE,
    &bandwidth::TCP,
    &bandwidth::TCP_WAY,
    &bandwidth::TCP_SYSTEM,
    &bandwidth::UDP,
    &bandwidth::UNIX,
    &loaded::PROBE,
    &peer::ping::PROBE,
    &peer::connect::PROBE,
    &peer::connect::RATE,
    &peer::bandwidth::PROBE,
    &peer::message::PROBE,
    &peer::datagrams::PROBE,
    &peer::datagrams::OFFERED_PROBE,
    &peer::rtt::PROBE,
    &peer::loaded::PROBE,
    &rivals::PROBE,
];

/// What the link to another host bounds.
pub(crate) static BOUNDED: &[&Bounded] =
    &[&peer::bandwidth::BOUNDED, &peer::message::BOUNDED, &peer::datagrams::BOUNDED, &peer::datagrams::OFFERED_BOUNDED];
