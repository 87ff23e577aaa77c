//! Bytes per second that arrive at another host over one TCP stream, by message and sending method.
//!
//! It must not be taken for the cost of sending: where the link is the limit, all methods reach the same rate.

use kelvin_core::catalogue::net::{PEER_BANDWIDTH, PEER_BANDWIDTH_MESSAGE};
use kelvin_harness::BoundedMetric;
use kelvin_transfer::wire::message::{StreamPlacement, TestDirection};

use super::super::prelude::*;
use super::rate_windows::rates;
use super::streams::{StreamSpec, run_streams};
use super::{bandwidth, link_rate};
use crate::net::sender;
use crate::net::stream::MAX_MESSAGE;

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Bytes to another host over one TCP stream, by message and sending method (--peer HOST)",
    method: include_str!("message_streams.md"),
    cases: |_, effort| cases(effort),
    run,
    predict: |facts, _, case| predict(facts, case),
    ..Probe::study(&[&PEER_BANDWIDTH_MESSAGE])
};

/// All of them go to the agent.
pub(in crate::net) static BOUNDED: BoundedMetric = BoundedMetric {
    metric: &PEER_BANDWIDTH_MESSAGE,
    maximum: |hardware, _| link_rate::payload_bound(hardware, link_rate::MAX_STREAM_PAYLOAD),
};

fn cases(effort: Effort) -> Vec<Case> {
    if effort == Effort::Quick {
        return numbers(MESSAGE, &[4 << 10]).words(&[SendMethod::Send]);
    }
    let send_cases = numbers(MESSAGE, &[SMALL_MESSAGE, 4 << 10, MAX_MESSAGE, 1 << 20]).words(&[SendMethod::Send]);
    let mut other_methods = numbers(MESSAGE, &[MAX_MESSAGE]).words(SendMethod::ALL);
    other_methods.retain(|case| !send_cases.contains(case));
    [send_cases, other_methods].concat()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (direction, placement) = (TestDirection::ToAgent, StreamPlacement::Scheduler);
    // One window of a round: there are many cases, and each needs its rounds within the run's time.
    let (method, message) = (sender::send_method(case)?, message_bytes(case)?);
    let spec = StreamSpec { direction, streams: 1, placement, method, message, windows: 1 };
    let (sustained, _) = run_streams(bench, spec)?;
    bench.record(&PEER_BANDWIDTH_MESSAGE, rates(&sustained.windows));
    Ok(())
}

fn predict(facts: &PredictionInputs<'_>, case: &Case) -> Predicted {
    let bytes = MESSAGE.number_in(case).unwrap_or(1);
    let link = measured(facts, &PEER_BANDWIDTH, &bandwidth::streams_to_agent(1))?;
    let (part, ends) = (bytes.min(MAX_MESSAGE), Protocol::Tcp.metrics());
    let part_case = Case::new().with_number(MESSAGE, part);
    let (send, receive) = (measured(facts, ends.send, &part_case)?, measured(facts, ends.receive, &part_case)?);
    let hosts = bytes_of("message", part) / send.max(receive);
    let is_link_limited = link.value() < hosts.value() / 2.0;
    let rate = link.min(hosts);
    if !is_link_limited {
        return Ok(rate.widen(2.0).derived("link or hosts"));
    }
    let maximum = rate.value();
    Ok(rate.widen_by_share(0.1).with_maximum(maximum).derived("the link"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::net::{STREAM_TCP, STREAM_TCP_RECEIVE};

    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn stream_is_limited_by_link_or_hosts() {
        let values = |link: f64| {
            [
                (PEER_BANDWIDTH.id.as_str(), Some(link)),
                (STREAM_TCP.id.as_str(), Some(2000.0)),
                (STREAM_TCP_RECEIVE.id.as_str(), Some(1000.0)),
            ]
        };
        let send_case = |bytes| Case::new().with_number(MESSAGE, bytes).with_word(SendMethod::Send);
        // 4096 bytes in 2 us are 2048 MB/s; a gigabit link has a twentieth of it.
        with_facts(&values(117e6), |facts| {
            let link_limited = predict(facts, &send_case(4096)).unwrap();
            assert_eq!((link_limited.value, link_limited.low), (117e6, 117e6 * 0.9));
            let host_limited = predict(facts, &send_case(64)).unwrap();
            assert_eq!((host_limited.value, host_limited.low, host_limited.high), (32e6, 16e6, 64e6));
        });
        with_facts(&values(1e10), |facts| {
            assert_eq!(predict(facts, &send_case(4096)).unwrap().value, 2.048e9);
            // A message of 1 MiB is sixteen of 64 KiB.
            assert_eq!(
                predict(facts, &send_case(1 << 20)).unwrap().value,
                predict(facts, &send_case(MAX_MESSAGE)).unwrap().value
            );
        });
        with_facts(&[(PEER_BANDWIDTH.id.as_str(), Some(1e9))], |facts| {
            assert!(predict(facts, &send_case(64)).is_err())
        });
    }

    #[test]
    fn send_methods_are_compared_at_one_size() {
        let default_cases = cases(Effort::Default);
        let is_sent = |case: &&Case| SendMethod::of(case) == Some(SendMethod::Send);
        let (send_cases, other_cases): (Vec<&Case>, _) = default_cases.iter().partition(is_sent);
        assert!(other_cases.len() == 3 && other_cases.iter().all(|case| MESSAGE.number_in(case) == Some(MAX_MESSAGE)));
        assert!(send_cases.iter().any(|case| MESSAGE.number_in(case) == Some(MAX_MESSAGE)));
        assert!(default_cases.contains(&cases(Effort::Quick)[0]));
    }
}
