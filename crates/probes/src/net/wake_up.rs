//! The cost to a sender of waking the receiver, which sleeps on another CPU.
//!
//! The call alone. It must not be taken for the time until the receiver runs.

use kelvin_core::catalogue::net::{STACK_TCP, WAKE_TCP};

use super::prelude::*;
use super::rtt::WakeCost;
use super::stack::message_case;

pub(super) static PROBE: Probe = Probe {
    summary: "A send over TCP that wakes its receiver on another CPU",
    method: include_str!("wake_up.md"),
    run,
    predict,
    ..Probe::measure(&[&WAKE_TCP])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let cpu = bench.partner_cpu()?;
    let mut echo = EchoClient::start(Protocol::Tcp, SMALL_MESSAGE as usize, cpu)?;
    let proof = echo.warm_up_and_prove(bench, cpu)?;
    bench.note(proof);
    bench.time_back_to_back([&WAKE_TCP], |clock| Ok([echo.time_send(clock)?]))?;
    echo.finish()
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let stack = measured(facts, &STACK_TCP, &message_case(SMALL_MESSAGE))?;
    let wake = WakeCost::cross_cpu(facts)?;
    let send = (stack / 2.0 + wake.cost / 2.0).widen(wake.factor);
    Ok(send.derived("half of stack and wake"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SWITCH_CHANNEL_CALLS;

    use super::*;
    use crate::os::switch::cross_cpu;
    use crate::testing::with_facts;

    #[test]
    fn sender_pays_half_of_stack_and_wake() {
        let values = [
            (STACK_TCP.id.as_str(), Some(1400.0)),
            (cross_cpu::METRIC.id.as_str(), Some(4300.0)),
            (SWITCH_CHANNEL_CALLS.id.as_str(), Some(300.0)),
        ];
        with_facts(&values, |facts| {
            assert_eq!(predict(facts, &WAKE_TCP, &Case::new()).unwrap().value, 2700.0);
        });
        with_facts(&values[..1], |facts| assert!(predict(facts, &WAKE_TCP, &Case::new()).is_err()));
    }
}
