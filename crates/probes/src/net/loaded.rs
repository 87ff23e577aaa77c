//! How long a small message takes to another process and back beside a saturating stream.
//!
//! What waiting behind others costs. Over loopback others are in the way on the CPU, not on a wire: it must not be taken for
//! what a router's buffers cost.

use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{LOADED, SendMethod};
use kelvin_harness::{Bench, Effort, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, NoPrediction};

use super::bulk::{Bulk, Ends, Plan};
use super::echo::Echo;
use super::link::Protocol;
use super::messages::SMALL;
use crate::os::ipc::partner_cpu;

pub(super) static PROBE: Probe = Probe {
    id: LOADED.id.as_str(),
    summary: "Round trip of a small message over TCP while a stream saturates the way",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One stream of 64 KiB messages runs over TCP between two processes as in net.bandwidth.tcp, both on this CPU or one \
              here and one on the next. When its rate no longer rises, a message of 64 bytes goes over a connection of its own from \
              this CPU to a process on the CPU of the stream's receiver and back, as in net.rtt.tcp, each timed by itself. What the \
              stream carried meanwhile, and how busy its ends were, is noted.",
        prediction: "None: what a message waits for is the turn that the scheduler and the kernel's packet work give it, for \
                     which there is no published figure. Beside net.rtt.tcp it says what the load costs.",
        not_for: "The buffers of a network: over loopback a message never waits for a wire. What a loaded program takes \
                  to answer.",
        pitfalls: &[
            "A stream that has not filled the way yet, or has ended: its rate while round trips were timed is noted.",
            "A mean: a message that meets a busy CPU waits for milliseconds, one that does not for microseconds.",
        ],
        sources: &["Flent, the RRUL test", "netperf TCP_RR beside TCP_STREAM"],
    },
    metrics: &[&LOADED],
    inputs: &[],
    cases: |_, effort| {
        let placements = if effort == Effort::Quick { &[Placement::TwoCpus] } else { Placement::ALL };
        placements.iter().map(|&placement| Case::new().at(placement)).collect()
    },
    run,
    predict: |_, _, _| {
        Err(NoPrediction::because(
            "it depends on the turns that the scheduler gives, for which there is no published figure",
        ))
    },
};

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let far = partner_cpu(bench, case)?;
    let streams = vec![Ends { sender: bench.cpu(), receiver: far }];
    let mut echo = Echo::start(Protocol::Tcp, SMALL as usize, far)?;
    let bulk = Bulk::start(Plan { protocol: Protocol::Tcp, way: SendMethod::Send, message: 64 << 10, streams })?;
    bulk.settle()?;
    let before = bulk.totals()?;
    bench.time_in_turn([&LOADED], |clock| Ok([echo.timed(clock)?]))?;
    let rate = bulk.totals()?.rate_since(&before);
    let words = bulk.finish()?.words;
    bench.note_on_last(format!(
        "other end on CPU {far}; the stream carried {:.2} GB/s meanwhile; {words}; of the messages: {}",
        rate / 1e9,
        echo.describe()?
    ));
    if rate <= 0.0 {
        return Err(Stop::fail("nothing of the stream arrived while round trips were timed: there was no load"));
    }
    echo.finish()
}
