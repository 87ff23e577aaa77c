//! The network: round trips, bandwidth and connections between two ends.

mod axes;
mod bandwidth;
mod bulk;
mod echo;
mod link;
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
    &bandwidth::TCP,
    &bandwidth::UDP,
    &bandwidth::UNIX,
    &peer::connect::PROBE,
    &peer::bandwidth::PROBE,
    &peer::rtt::PROBE,
];
