//! The cost to a sender of waking the receiver, which sleeps on another CPU.
//!
//! The call alone. It must not be taken for the time until the receiver runs.

use kelvin_catalogue::net::WAKE_TCP;
use kelvin_harness::{Bench, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, NoPrediction};

use super::echo::Echo;
use super::link::Protocol;
use super::messages::SMALL;

pub(super) static PROBE: Probe = Probe {
    id: WAKE_TCP.id.as_str(),
    summary: "A send over TCP that wakes its receiver on another CPU",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Round trips of 64 bytes between two processes, each on its own CPU, as in net.rtt.tcp with \
              placement=two_cpus; only the send call is timed. The receiver sleeps by then: the sender itself had to \
              be woken for the last answer. The call carries the packet through the stack to the receiver's socket, as \
              any send does, and issues a remote wake-up; in a virtual machine the hypervisor delivers that, and the \
              sender waits for it.",
        prediction: "None: no cost of a remote wake-up is published, least of all through a hypervisor. Compared with \
                     net.stack.tcp, which wakes nobody, it shows what waking adds; predictions of connecting and \
                     closing rest on it.",
        not_for: "The time until the receiver runs (net.rtt.tcp); a send on one CPU, where waking only queues the \
                  receiver, which may get the CPU within the call.",
        pitfalls: &[
            "A receiver still awake because messages follow each other too fast: the call then wakes nobody. One \
             message is in flight at a time.",
            "A figure of bare metal applied to a virtual machine: a remote wake-up is an instruction or two on one, \
             and may trap into the hypervisor on the other.",
        ],
        sources: &["tcp(7)", "Linux kernel, kernel/sched/core.c: try_to_wake_up"],
    },
    metrics: &[&WAKE_TCP],
    inputs: &[],
    cases: |_, _| vec![Case::new()],
    run,
    predict: |_, _, _| {
        Err(NoPrediction::because("no cost of a remote wake-up is published, and a hypervisor may be part of it"))
    },
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let cpu = bench.partner_cpu()?;
    let mut echo = Echo::start(Protocol::Tcp, SMALL as usize, cpu)?;
    let proof = echo.prove(bench, cpu)?;
    bench.note(proof);
    bench.time_in_turn([&WAKE_TCP], |clock| Ok([echo.timed_send(clock)?]))?;
    echo.finish()
}
