//! What the hosts of a server and of its load generator did with a number of users.
//!
//! It shows what a limit comes from and what else was going on. It must not be read as the server's own use where others work on the
//! same host.

use kelvin_core::catalogue::load::hosts::{HOST_METRICS, LoadHost};

use super::users;
use crate::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: what the hosts of server and load generator did by number of users",
    method: Method {
        how: "From looks at either end before a visit, and when its time that counts begins and ends: CPU time of the host by kind, periods \
              of a CPU quota that it cut short, threads that had to wait for a CPU, context switches, pressure (PSI), memory, the requests \
              and bytes of the disk below the files, TCP segments that were sent again, connections that found an accept queue full, \
              sockets, processes and threads. Connections are made in the warm-up, so that accept queues are counted from its beginning. \
              Run queue, memory, sockets, processes and threads are those of the moment. Where both ends are on one host, its figures are \
              the server's; where they are in one network namespace, those of TCP are as well. What a kernel does not count is left out.",
        prediction: "None: these tell what else happened while the figures that have predictions were measured.",
        not_for: "The server's own use where others work on its host: CPU time, pressure, disk and TCP are of all of them. A verdict by \
                  itself: it is drawn from utilisations, and these figures explain it or cast doubt on it.",
        pitfalls: &[
            "A run queue of the moment taken for its mean: it is seen twice a visit, and the threads without a CPU are the mean.",
            "Steal taken for the server's work: the hypervisor gave that time to others.",
            "Retransmissions over a shaped link taken for a fault: dropping segments is how a full link makes TCP slow down.",
        ],
        sources: &[
            "proc_stat(5), proc_pid_schedstat, proc_pid_net(5), Documentation/accounting/psi.rst, Documentation/scheduler/sched-bwc.rst",
        ],
    },
    cases: |machine, effort| (users::PROBE.cases)(machine, effort).words(&[LoadHost::Server, LoadHost::Client]),
    run: super::refuse_single_round,
    predict: |_, _, _| Err(NoPrediction::new("it tells what else happened on a host, which follows from no capacity")),
    ..Probe::study(HOST_METRICS)
};
