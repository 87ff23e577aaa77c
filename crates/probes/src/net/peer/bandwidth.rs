//! Bytes per second that arrive at another host over TCP, and from it, counted where they arrive.
//!
//! It must not be taken for the speed of the link alone: either host can be the limit.

use kelvin_core::catalogue::net::{
    PEER_BANDWIDTH, PEER_BANDWIDTH_BURST, PEER_BANDWIDTH_BUSY_HERE, PEER_BANDWIDTH_BUSY_THERE, STREAMS, SendMethod,
    StreamDirection,
};
use kelvin_harness::BoundedMetric;
use kelvin_transfer::wire::admission::MAX_TEST_STREAMS;
use kelvin_transfer::wire::message::{StreamPlacement, TestDirection};

use super::link_rate;
use super::rate_windows::{SustainedWindows, rates};
use super::stream_cpus::{max_streams, stream_counts};
use super::streams::{MESSAGE_BYTES, StreamSpec, run_streams};
use crate::memory::memory_budget::allowed_cpu_count;
use crate::prelude::*;

/// Fewest windows of a round: of three the median is left alone by one in which arrives what was lost, or held back, before it.
const MIN_WINDOWS: u32 = 3;
/// Of what streams on CPUs of their own would carry if none slowed another: what they share, such as memory, a lock or a queue of the
/// interface, takes half of it at most, and a single stream's rate differs by a tenth from round to round.
const STREAM_GAIN_RANGE: [f64; 2] = [0.5, 1.1];

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Bytes to another host over TCP and from it, by streams (--peer HOST)",
    method: include_str!("bandwidth.md"),
    cases,
    run,
    predict: |facts, metric, case| match metric.id == PEER_BANDWIDTH.id {
        true => predict(facts, case),
        false if metric.id == PEER_BANDWIDTH_BURST.id => {
            Err(NoPrediction::new("no host knows how full the token bucket of a shaper in the network is"))
        }
        false => Err(NoPrediction::new("it depends on which of the link and the two hosts is the slowest")),
    },
    ..Probe::study(&[&PEER_BANDWIDTH, &PEER_BANDWIDTH_BURST, &PEER_BANDWIDTH_BUSY_HERE, &PEER_BANDWIDTH_BUSY_THERE])
};

/// For any number of streams. Data from the agent may arrive by another interface than packets to it leave by.
pub(in crate::net) static BOUNDED: BoundedMetric = BoundedMetric {
    metric: &PEER_BANDWIDTH,
    maximum: |hardware, case| match StreamDirection::of(case) {
        Some(StreamDirection::FromAgent) => None,
        Some(StreamDirection::ToAgent) | None => link_rate::payload_bound(hardware, link_rate::MAX_STREAM_PAYLOAD),
    },
};

/// The case of this many streams to the agent.
pub(super) fn streams_to_agent(count: u64) -> Case {
    Case::new().with_number(STREAMS, count).with_word(StreamDirection::ToAgent)
}

/// A case with no more streams than an agent of this many CPUs has CPUs for.
pub(crate) fn case_on_agent(case: &Case, agent_cpus: u64) -> Case {
    let streams = STREAMS.number_in(case).map(|streams| streams.min(max_streams(agent_cpus)));
    streams.map_or_else(|| case.clone(), |streams| case.clone().with_number(STREAMS, streams))
}

/// Those for the CPUs of this machine. The agent's are known only once it is asked.
fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let counts = stream_counts(allowed_cpu_count(machine), effort);
    // What more streams add depends on the hosts and the network, which seldom differs by direction.
    let is_measured_back = |&count: &u64| {
        effort != Effort::Default || [1, 4].contains(&count) || count > 4 && Some(&count) == counts.last()
    };
    let counts_back: Vec<u64> = counts.iter().copied().filter(is_measured_back).collect();
    let by_direction = |counts, direction| numbers(STREAMS, counts).words(&[direction]);
    match effort {
        Effort::Default => {
            [by_direction(&counts, StreamDirection::ToAgent), by_direction(&counts_back, StreamDirection::FromAgent)]
                .concat()
        }
        Effort::Quick | Effort::Thorough => numbers(STREAMS, &counts).words(StreamDirection::ALL),
    }
}

/// One stream fills the link, if it can. Several carry as many times what one carries as have a CPU of their own at both hosts, up to what
/// the link carries.
fn predict(facts: &PredictionInputs<'_>, case: &Case) -> Predicted {
    let (link, streams) = (link_rate::stream_rate(facts), required_number(STREAMS, case)?);
    if streams == 1 {
        let link = link?;
        let maximum = link.value();
        return Ok(link.of_value(link_rate::PREDICTED_SHARES).with_maximum(maximum).derived("payload of the link"));
    }
    let single = measured(facts, &PEER_BANDWIDTH, &case.clone().with_number(STREAMS, 1))?;
    let local_cpus = allowed_cpu_count(facts.machine());
    let agent_cpus = facts.hardware().network_path.and_then(|path| path.agent_cpus.get()).copied();
    let working_cpus = streams.min(local_cpus).min(agent_cpus.map_or(u64::MAX, u64::from));
    let agent_text = agent_cpus.map_or_else(|| "an unknown number".into(), |cpus| cpus.to_string());
    let source = format!("the least of {streams} streams, {local_cpus} CPUs here and {agent_text} at the agent");
    let hosts = single.clone() * fact("streams with a CPU of their own", working_cpus as f64, Unit::Count, source);
    let [min_gain, max_gain] = STREAM_GAIN_RANGE.map(|share| share * hosts.value());
    match link {
        Ok(link) => {
            let maximum = link.value();
            let interval = (min_gain.min(link_rate::PREDICTED_SHARES[0] * maximum), max_gain.min(maximum));
            Ok(hosts.min(link).with_interval(interval).with_maximum(maximum).derived("streams or the link"))
        }
        Err(NoPrediction(reason)) => {
            let interval = (STREAM_GAIN_RANGE[0] * single.value(), max_gain);
            let remark = format!("no more than one stream carries where the link is the limit, for {reason}");
            Ok(hosts.with_interval(interval).explained(PredictionBasis::Derived, "streams", &remark))
        }
    }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let count = STREAMS.number_in(case).filter(|count| (1..=u64::from(MAX_TEST_STREAMS)).contains(count));
    let count = count.or_fail(format!("the case needs 1 to {MAX_TEST_STREAMS} streams, not {case}"))?;
    let direction = match required(StreamDirection::of(case), case)? {
        StreamDirection::ToAgent => TestDirection::ToAgent,
        StreamDirection::FromAgent => TestDirection::FromAgent,
    };
    let (streams, message) = (count as u32, MESSAGE_BYTES);
    let placement = StreamPlacement::OwnCpus;
    let spec = StreamSpec { direction, streams, placement, method: SendMethod::Send, message, windows: MIN_WINDOWS };
    let (SustainedWindows { windows, burst }, busy) = run_streams(bench, spec)?;
    bench.record(&PEER_BANDWIDTH, rates(&windows));
    if let Some(burst) = burst {
        bench.record(&PEER_BANDWIDTH_BURST, vec![burst.size]);
    }
    bench.record(&PEER_BANDWIDTH_BUSY_HERE, vec![busy[0].max_share()]);
    bench.record(&PEER_BANDWIDTH_BUSY_THERE, vec![busy[1].max_share()]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Fact, NetworkPath};
    use kelvin_harness::MeasuredValue;

    use super::*;
    use crate::testing;

    fn machine(cpus: u32, link_bits: Fact<f64>) -> Machine {
        let mut machine = testing::machine();
        machine.topology.allowed = Fact::known((0..cpus).collect(), "a test");
        machine.nics = vec![testing::nic("eth0", link_bits)];
        machine.nics[0].mtu = Fact::known(1500, "a test");
        machine
    }

    fn unknown_link() -> Fact<f64> {
        Fact::unknown("eth0 is virtual")
    }

    fn counts(machine: &Machine, effort: Effort, direction: StreamDirection) -> Vec<u64> {
        let all = cases(machine, effort);
        let of_direction = all.iter().filter(|case| StreamDirection::of(case) == Some(direction));
        of_direction.filter_map(|case| STREAMS.number_in(case)).collect()
    }

    #[test]
    fn two_cpus_have_cases_up_to_four_streams() {
        use StreamDirection::{FromAgent, ToAgent};
        let machine = machine(2, unknown_link());
        let at = |effort| [ToAgent, FromAgent].map(|direction| counts(&machine, effort, direction));
        assert_eq!(at(Effort::Quick), [vec![1], vec![1]]);
        assert_eq!(at(Effort::Default), [vec![1, 2, 4], vec![1, 4]]);
        assert_eq!(at(Effort::Thorough), [vec![1, 2, 4], vec![1, 2, 4]]);
    }

    #[test]
    fn many_cpus_have_a_stream_each_up_to_bound() {
        use StreamDirection::{FromAgent, ToAgent};
        let machine = machine(128, unknown_link());
        let at = |effort| [ToAgent, FromAgent].map(|direction| counts(&machine, effort, direction));
        assert_eq!(at(Effort::Quick), [vec![1, 64], vec![1, 64]]);
        assert_eq!(at(Effort::Default), [vec![1, 2, 4, 8, 16, 32, 64], vec![1, 4, 64]]);
        assert_eq!(at(Effort::Thorough)[0].last(), Some(&128));
        assert_eq!(at(Effort::Thorough)[0], at(Effort::Thorough)[1]);
        let on_agent = |streams, cpus| STREAMS.number_in(&case_on_agent(&streams_to_agent(streams), cpus));
        assert_eq!([on_agent(64, 24), on_agent(64, 128), on_agent(4, 2), on_agent(8, 2)], [24, 64, 4, 4].map(Some));
    }

    /// The prediction of streams to an agent of 64 CPUs, on a machine of this many, where one stream carries 2 GB/s.
    fn predicted(streams: u64, cpus: u32, link_bits: Fact<f64>) -> Predicted {
        let (machine, path) = (
            machine(cpus, link_bits),
            NetworkPath {
                protocol: 4,
                interface: Fact::known("eth0".into(), "a test"),
                agent_link_speed: Fact::unknown("a test"),
                agent_mtu: Fact::known(1500, "a test"),
                agent_cpus: Fact::known(64, "a test"),
            },
        );
        let measured = |id: &str, case: &Case| {
            (id == PEER_BANDWIDTH.id.as_str() && *case == streams_to_agent(1))
                .then_some(MeasuredValue { value: 2e9, half_width: 0.0 })
        };
        predict(&PredictionInputs::new(&machine, &measured).with_path(Some(&path)), &streams_to_agent(streams))
    }

    #[test]
    fn streams_add_up_to_link_or_cpus() {
        let link = || Fact::known(100e9, "ethtool");
        let payload = 12.5e9 * 1448.0 / 1538.0;
        let ends = |streams, cpus, link| {
            let prediction = predicted(streams, cpus, link).unwrap();
            (prediction.value, prediction.low, prediction.high)
        };
        assert_eq!(ends(1, 128, link()), (payload, 0.75 * payload, payload));
        assert_eq!(ends(4, 128, link()), (8e9, 4e9, 8.8e9));
        // Sixteen would carry 32 GB/s.
        assert_eq!(ends(16, 128, link()), (payload, 0.75 * payload, payload));
        // Two CPUs serve two of four streams at a time.
        assert_eq!(ends(4, 2, link()), (4e9, 2e9, 4.4e9));
        // A link of an unknown rate may be the limit of one already.
        assert_eq!(ends(128, 128, unknown_link()), (128e9, 1e9, 1.1 * 128e9));
        let unknown = predicted(8, 128, unknown_link()).unwrap();
        assert!(unknown.derivation.contains("whose line rate is not known: eth0 is virtual"), "{unknown:?}");
        assert!(predicted(1, 128, unknown_link()).is_err());
    }
}
