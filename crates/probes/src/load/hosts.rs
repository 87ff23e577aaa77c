//! What the hosts of a server and of its load generator did with a number of users.
//!
//! It shows what a limit comes from and what else was going on. It must not be read as the server's own use where others work on the
//! same host.

use kelvin_core::catalogue::load::hosts::{HOST_METRICS, LoadHost};

use super::users;
use crate::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: what the hosts of server and load generator did by number of users",
    method: include_str!("hosts.md"),
    cases: |machine, effort| (users::PROBE.cases)(machine, effort).words(&[LoadHost::Server, LoadHost::Client]),
    run: super::refuse_single_round,
    predict: |_, _, _| Err(NoPrediction::new("it shows what else happened on a host, which follows from no capacity")),
    ..Probe::study(HOST_METRICS)
};
