//! Round trip of a small message to another process during a saturating stream.
//!
//! The cost of waiting behind others. Over loopback they compete for the CPU, not for a wire: it must not be taken for the cost
//! of a router's buffers.

use kelvin_core::catalogue::net::{LOADED_ROUND_TRIP, RTT_TCP};

use super::bulk::{BulkStreams, StreamCpus, StreamPlan};
use super::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "Round trip of a small message over TCP during a saturating stream",
    method: include_str!("loaded_rtt.md"),
    cases: |_, effort| words(if effort == Effort::Quick { &[PairPlacement::TwoCpus] } else { PairPlacement::ALL }),
    run,
    predict,
    ..Probe::measure(&[&LOADED_ROUND_TRIP])
};

/// How long the stream may wait for its turn, at most.
const MAX_WAIT_NANOSECONDS: u64 = 1_000_000_000;

/// Makes round trips until bytes of the stream arrive beside them. On one CPU the scheduler may first give all turns to the tasks that slept:
/// CFS places them half of its latency ahead, which is tens of milliseconds on machines of many CPUs (`place_entity`, kernel/sched/fair.c).
fn wait_for_load(bench: &Bench<'_>, echo: &mut EchoClient, bulk: &BulkStreams) -> ProbeResult {
    let start = bulk.totals()?;
    loop {
        echo.time_round_trip(bench.clock())?;
        let now = bulk.totals()?;
        if now.bytes > start.bytes || now.time - start.time > MAX_WAIT_NANOSECONDS {
            return Ok(());
        }
    }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let server_cpu = partner_cpu(bench, case)?;
    let streams = vec![StreamCpus { sender: bench.cpu(), receiver: server_cpu }];
    let mut echo = EchoClient::start(Protocol::Tcp, SMALL_MESSAGE as usize, server_cpu)?;
    let bulk = BulkStreams::start(StreamPlan::tcp(64 << 10, streams))?;
    bulk.wait_until_settled()?;
    wait_for_load(bench, &mut echo, &bulk)?;
    let before = bulk.totals()?;
    bench.time_back_to_back([&LOADED_ROUND_TRIP], |clock| Ok([echo.time_round_trip(clock)?]))?;
    let rate = bulk.totals()?.rate_since(&before);
    let words = bulk.finish()?.words;
    bench.note_last_reading(format!(
        "server on CPU {server_cpu}; the stream carried {:.2} GB/s meanwhile; {words}; of the messages: {}",
        rate / 1e9,
        echo.describe()?
    ));
    fail_if(rate <= 0.0, "no bytes of the stream arrived while round trips were timed: there was no load")?;
    echo.finish()
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let reason = "it depends on how the scheduler assigns time slices, of which nothing is published";
    unpredicted_if(PairPlacement::of(case) != Some(PairPlacement::SameCpu), reason)?;
    let round_trip = measured(facts, &RTT_TCP, &case.clone().with_number(MESSAGE, SMALL_MESSAGE))?;
    let remark = "as without the stream: the task that was asleep runs first";
    Ok(round_trip.widen(2.0).explained(PredictionBasis::Derived, "the same", remark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn same_cpu_message_does_not_queue() {
        with_facts(&[(RTT_TCP.id.as_str(), Some(5000.0))], |facts| {
            let predicted = |placement| predict(facts, &LOADED_ROUND_TRIP, &Case::new().with_word(placement));
            assert_eq!(predicted(PairPlacement::SameCpu).unwrap().value, 5000.0);
            assert!(predicted(PairPlacement::TwoCpus).is_err());
        });
    }
}
