//! The network: round trips, bandwidth and connections, on this machine and to another host.

mod accept_server;
pub(crate) mod bandwidth;
pub(crate) mod bulk;
mod connect;
pub(crate) mod echo;
mod held_ports;
mod icmp;
pub(crate) mod link;
mod loaded_rtt;
pub(crate) mod peer;
mod prelude;
mod rivals;
mod rtt;
pub(crate) mod sender;
mod stack;
mod steady_state;
mod stream;
mod wake_up;

use kelvin_harness::{BoundedMetric, Probe};

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
    &wake_up::PROBE,
    &connect::PROBE,
    &connect::RATE,
    &bandwidth::TCP,
    &bandwidth::TCP_SEND_METHOD,
    &bandwidth::TCP_SYSTEM_CONTROL,
    &bandwidth::UDP,
    &bandwidth::UNIX,
    &loaded_rtt::PROBE,
    &peer::ping::PROBE,
    &peer::connect::PROBE,
    &peer::connect::RATE,
    &peer::bandwidth::PROBE,
    &peer::message_streams::PROBE,
    &peer::datagrams::PROBE,
    &peer::datagrams::OFFERED_PROBE,
    &peer::rtt::PROBE,
    &peer::loaded_rtt::PROBE,
    &rivals::PROBE,
];

/// What the link to another host bounds.
pub(crate) static BOUNDED: &[&BoundedMetric] = &[
    &peer::bandwidth::BOUNDED,
    &peer::message_streams::BOUNDED,
    &peer::datagrams::BOUNDED,
    &peer::datagrams::OFFERED_BOUNDED,
];
