//! The network: round trips, bandwidth and connections between two ends.

mod accepting;
mod axes;
mod bandwidth;
mod bulk;
mod connect;
mod echo;
mod icmp;
mod link;
mod loaded;
mod peer;
mod rtt;
mod sender;
mod stack;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &stack::TCP,
    &stack::UDP,
    &stack::UNIX,
    &rtt::TCP,
    &rtt::UDP,
    &rtt::UNIX,
    &icmp::PROBE,
    &connect::PROBE,
    &connect::RATE,
    &bandwidth::TCP,
    &bandwidth::UDP,
    &bandwidth::UNIX,
    &loaded::PROBE,
    &peer::ping::PROBE,
    &peer::connect::PROBE,
    &peer::bandwidth::PROBE,
    &peer::rtt::PROBE,
    &peer::loaded::PROBE,
];
