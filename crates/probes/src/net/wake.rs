//! What a send costs the sender when it has to wake the receiver, which sleeps on another CPU.
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
        how: "Round trips of 64 bytes between two processes, each on a CPU of its own, as in net.rtt.tcp with \
              placement=two_cpus; of each only the call that sends is timed. The receiver sleeps by then: this end had to be woken \
              itself to see its last answer. The call carries the packet through the stack up to the receiver's socket, as a \
              send does that wakes nobody, and tells the other CPU to run it; in a virtual machine the hypervisor does that, \
              and the sender waits for it.",
        prediction: "None: there is no published figure of what telling another CPU takes, least of all through a hypervisor. \
                     Beside net.stack.tcp, which wakes nobody, it says what waking adds, and predictions of connecting and \
                     closing rest on it.",
        not_for: "The time until the receiver runs (net.rtt.tcp); a send on one CPU, where waking is an entry in a queue and the \
                  receiver may be given the CPU within the call.",
        pitfalls: &[
            "A receiver that is still awake, because messages follow each other too fast: then the call wakes nobody. One \
             message is on its way at a time.",
            "A figure from hardware taken to a virtual machine: waking another CPU is an instruction or two on one, and a stop \
             of the sender on the other.",
        ],
        sources: &["tcp(7)", "Linux kernel, kernel/sched/core.c: try_to_wake_up"],
    },
    metrics: &[&WAKE_TCP],
    inputs: &[],
    cases: |_, _| vec![Case::new()],
    run,
    predict: |_, _, _| {
        Err(NoPrediction::because(
            "there is no published figure of what a remote wake-up takes, in which a hypervisor may have a part",
        ))
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
