//! Round trip of a small message to another process beside a saturating stream.
//!
//! The cost of waiting behind others. Over loopback they compete for the CPU, not for a wire: it must not be taken for the cost
//! of a router's buffers.

use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{LOADED, MESSAGE, RTT_TCP, SendMethod};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Metric, NoPrediction, Prediction};

use super::bulk::{Bulk, Ends, Plan};
use super::echo::Echo;
use super::link::Protocol;
use super::messages::SMALL;
use crate::os::ipc::partner_cpu;
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: LOADED.id.as_str(),
    summary: "Round trip of a small message over TCP beside a saturating stream",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One stream of 64 KiB messages runs over TCP between two processes as in net.bandwidth.tcp, both on this \
              CPU or one here and one on the next. Once its rate no longer rises, a message of 64 bytes goes over its \
              own connection from this CPU to a process on the receiver's CPU and back, as in net.rtt.tcp, each timed \
              by itself. The stream's rate meanwhile, and how busy its sender and receiver were, is noted.",
        prediction: "On one CPU: net.rtt.tcp, for the scheduler lets who was asleep go first. Between two: none, for a \
                     message finds both CPUs awake but busy, and waits for its turn, of which nothing is published. Compared \
                     with net.rtt.tcp it shows what the load costs.",
        not_for: "The buffers of a network: over loopback a message never waits for a wire. The response time of a \
                  loaded program.",
        pitfalls: &[
            "A stream that does not saturate yet, or has ended: its rate while round trips were timed is noted.",
            "A mean: a message that meets a busy CPU waits for milliseconds, any other for microseconds.",
        ],
        sources: &["Flent, the RRUL test", "netperf TCP_RR beside TCP_STREAM"],
    },
    metrics: &[&LOADED],
    inputs: &[RTT_TCP.id.as_str()],
    cases: |_, effort| {
        let placements = if effort == Effort::Quick { &[Placement::TwoCpus] } else { Placement::ALL };
        placements.iter().map(|&placement| Case::new().at(placement)).collect()
    },
    run,
    predict,
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
        "server on CPU {far}; the stream carried {:.2} GB/s meanwhile; {words}; of the messages: {}",
        rate / 1e9,
        echo.describe()?
    ));
    if rate <= 0.0 {
        return Err(Stop::fail("no bytes of the stream arrived while round trips were timed: there was no load"));
    }
    echo.finish()
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if Placement::of(case) != Some(Placement::SameCpu) {
        return Err(NoPrediction::because(
            "it depends on the turns that the scheduler gives, of which nothing is published",
        ));
    }
    let alone = facts.measured(&RTT_TCP, &case.clone().with(MESSAGE, SMALL))?;
    Ok(Predicting::same_as(alone, 2.0, " as without the stream: who was asleep goes first").complete())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn on_one_cpu_a_message_does_not_wait_for_the_stream() {
        facts_about(&[(RTT_TCP.id.as_str(), Some(5000.0))], |facts| {
            let at = |placement| predict(facts, &LOADED, &Case::new().at(placement));
            assert_eq!(at(Placement::SameCpu).unwrap().value, 5000.0);
            assert!(at(Placement::TwoCpus).is_err());
        });
    }
}
