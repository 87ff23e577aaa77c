//! One switch of a CPU between two tasks that pass a byte over two pipes: processes, and threads of one process.
//!
//! The classic figure for "a context switch". It must not be used as the cost of switching with a working set, nor
//! compared with figures that include the pipe's calls.

pub(crate) use kelvin_core::catalogue::os::{
    SWITCH_PROCESS_PIPE as PROCESS_SWITCH, SWITCH_PROCESS_PIPE_CALLS as PROCESS_OWN,
};
use kelvin_core::catalogue::os::{
    SWITCH_PROCESS_PIPE, SWITCH_PROCESS_PIPE_CALLS, SWITCH_PROCESS_PIPE_ROUND_TRIP, SWITCH_THREAD_PIPE,
    SWITCH_THREAD_PIPE_CALLS, SWITCH_THREAD_PIPE_ROUND_TRIP,
};
use kelvin_harness::{Method, Probe};
use kelvin_sys::handoff::HandoffMethod;
use kelvin_sys::partner::PartnerKind;

use super::prediction::FromPipeSwitch;
use super::{SwitchExperiment, probe, shared_text};

pub(in crate::os) static PROCESS: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Pipe,
        task: PartnerKind::Process,
        switch: &SWITCH_PROCESS_PIPE,
        round_trip: &SWITCH_PROCESS_PIPE_ROUND_TRIP,
        own: Some(&SWITCH_PROCESS_PIPE_CALLS),
        like: None,
    },
    "Switching a CPU between two processes that pass a byte over pipes",
    METHOD,
    &[&SWITCH_PROCESS_PIPE, &SWITCH_PROCESS_PIPE_ROUND_TRIP, &SWITCH_PROCESS_PIPE_CALLS],
);

pub(in crate::os) static THREAD: Probe = probe!(
    SwitchExperiment {
        means: HandoffMethod::Pipe,
        task: PartnerKind::Thread,
        switch: &SWITCH_THREAD_PIPE,
        round_trip: &SWITCH_THREAD_PIPE_ROUND_TRIP,
        own: Some(&SWITCH_THREAD_PIPE_CALLS),
        like: Some(FromPipeSwitch { input_parts: &[&SWITCH_PROCESS_PIPE], factor: 1.5, why: DIFFERENCE_FROM_PROCESS }),
    },
    "Switching a CPU between two threads that pass a byte over pipes",
    METHOD,
    &[&SWITCH_THREAD_PIPE, &SWITCH_THREAD_PIPE_ROUND_TRIP, &SWITCH_THREAD_PIPE_CALLS],
);

/// Why a switch between threads may differ from one between processes.
const DIFFERENCE_FROM_PROCESS: &str = "the scheduler's work is the same, but threads keep their address space";

const METHOD: Method = Method {
    how: concat!(
        shared_text!(how),
        "The token is one byte, by bare write and read system calls. `perf bench sched pipe` pinned to one CPU prints \
         the round trip as its usecs/op: each iteration is a write and a read on either side, two messages and two \
         switches. lmbench's lat_ctx -s 0 2 prints the headline."
    ),
    prediction: "Between processes: a published figure for the same quantity, with the pipe's calls subtracted in the same way, \
                 taken as a time, or what other machines take over the calls of one pass, where such are known; the round \
                 trip is two of those plus twice the calls measured in this run. Between threads: the switch between \
                 processes of this run, whose address spaces differ. The calls alone are two short ways into the \
                 kernel, as long as os.syscall.write and os.syscall.read. The kernel entries of a pass (a write and a \
                 read) are subtracted with the calls, so they count towards the round trip, not the switch. Mitigations \
                 that the published machine did not have are named but not added.",
    not_for: shared_text!(not_for),
    pitfalls: &[
        shared_text!(placement),
        shared_text!(proof),
        "Half a round trip published as a switch: a tenth to a third of it is a write and a read.",
        "The pipe's cost taken from another process or another minute: here it is measured in the same batch.",
    ],
    sources: &[
        "McVoy and Staelin, lmbench: Portable Tools for Performance Analysis, USENIX 1996 (lat_ctx)",
        "perf bench sched pipe (tools/perf/bench/sched-pipe.c in the Linux source)",
        "Li, Ding and Shen, Quantifying the Cost of Context Switch, ExpCS 2007",
        "Linux kernel documentation, admin-guide/hw-vuln/spectre.rst (mitigations on a switch)",
    ],
};
