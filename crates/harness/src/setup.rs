//! What a run measures with: found and checked once, before the first round, and given to the process of every round.

use std::ffi::OsString;

use kelvin_model::ClockInfo;
use serde::{Deserialize, Serialize};

/// All that a probe measures with and is bound by, beside its case. The machine is no part of it: what is to be measured on it
/// is in the cases, and what is predicted for it needs no process of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The clock, calibrated.
    pub clock: ClockInfo,
    /// CPUs.
    pub placement: Placement,
    /// Whether canaries are read between batches.
    pub canaries: bool,
    /// Whether SCHED_FIFO is asked for.
    pub realtime: bool,
    /// cpu.stat of the cgroup, where throttling is counted.
    pub throttle_file: Option<String>,
    /// Directory in which probes may make files.
    pub scratch: OsString,
    /// A second such directory, behind a network, if one was named.
    pub remote: Option<OsString>,
    /// Most bytes that all rounds together may write to files.
    pub write_limit: u64,
    /// The agent of another host, if one was named.
    pub agent: Option<OtherHost>,
    /// What the sockets of TCP streams are asked for.
    pub sockets: SocketOptions,
}

/// The CPUs that a run uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Where single-CPU probes run.
    pub cpu: u32,
    /// The other end of pairs, if there is a second CPU.
    pub partner: Option<u32>,
    /// CPUs that probes of many CPUs may use.
    pub allowed: Vec<u32>,
}

/// An agent that a probe may ask to be the other end of what it measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherHost {
    /// Its address and port.
    pub address: std::net::SocketAddr,
    /// The file with the secret that it wants. The secret itself is in no request and no run.
    pub token_file: Option<OsString>,
}

/// What the sockets of TCP streams are asked for, beyond what they have by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Congestion control, by name.
    pub congestion_control: Option<String>,
    /// Bytes in each of a socket's two buffers.
    pub buffers: Option<u32>,
}

#[cfg(test)]
impl Setup {
    /// A setup of a test, timed by a script of one tick a nanosecond.
    pub(crate) fn scripted(cpu: u32) -> Self {
        let clock = ClockInfo {
            kind: kelvin_model::ClockKind::Scripted,
            hertz: 1e9,
            relative_error: 0.0,
            pair_nanoseconds: 0.0,
            multiply_cycles: kelvin_model::Fact::known(3, "a test"),
            note: None,
            source_before: None,
            source_after: None,
        };
        Self {
            clock,
            placement: Placement { cpu, partner: None, allowed: vec![cpu] },
            canaries: true,
            realtime: false,
            throttle_file: None,
            scratch: OsString::new(),
            remote: None,
            write_limit: 0,
            agent: None,
            sockets: SocketOptions::default(),
        }
    }
}
