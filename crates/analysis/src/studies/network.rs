//! The network between two processes of a machine: the cost of each call, the message size from which bytes cost more than
//! calls, and what more streams, one CPU and other send methods gain.

use kelvin_core::IndirectSort;
use std::cmp::Ordering;

use kelvin_core::catalogue::net::*;

use super::FULL_CPU_SHARE;
use super::crossing::{LinePoint, LineRatio, joint_test, line_ratio, side_p_value};
use crate::prelude::*;

/// The study of calls and round trips, and that of streams.
pub(crate) const CALLS_STUDY: Name = Name::new("net.rtt");
pub(crate) const STREAMS_STUDY: Name = Name::new("net.bandwidth");

/// What the first of them rests on.
pub(super) const CALLS_METRICS: [&str; 4] = [CALLS_STUDY.as_str(), "net.stack", CONNECT.id.as_str(), CLOSE.id.as_str()];

/// A small message, whose bytes cost next to nothing.
pub(super) const SMALL_MESSAGE: u64 = 64;
/// A large one, as in bulk transfers.
const LARGE_MESSAGE: u64 = 64 << 10;
/// Share of a round trip from which it is the larger part.
const MAJORITY_SHARE: f64 = 0.5;
/// Multiple of the smallest message's time from which bytes cost more than everything else.
pub(crate) const DOUBLED_TIME: f64 = 2.0;
/// Share of lost datagrams that matters.
pub(super) const MIN_LOST_SHARE: f64 = 0.01;

/// Round trips and their protocol part, TCP first.
static PROTOCOLS: [(&str, &Metric, &Metric); 3] =
    [("TCP", &RTT_TCP, &STACK_TCP), ("UDP", &RTT_UDP, &STACK_UDP), ("Unix sockets", &RTT_UNIX, &STACK_UNIX)];

/// Conclusions on calls and round trips, from `net.rtt.*`, `net.stack.*`, `net.connect` and `net.close`.
pub(crate) fn calls(evidence: &Evidence<'_>) -> Option<Study> {
    let size = bytes(SMALL_MESSAGE);
    let trip = |metric: &Metric, placement: PairPlacement| {
        evidence.rounds_at(metric, &Case::new().with_word(placement).with_number(MESSAGE, SMALL_MESSAGE))
    };
    let protocol_share = |name: &str, metric: &Metric, stack: &Metric| {
        let stack_time = evidence.rounds_at(stack, &Case::new().with_number(MESSAGE, SMALL_MESSAGE))?;
        let answer = RatioTest::above(RatioQuestion::ProtocolInRoundTrip, MAJORITY_SHARE)
            .test(trip(metric, PairPlacement::SameCpu)?, &stack_time.clone().scaled(2.0))?;
        let (share, amounts) = (share_text(&answer.ratio), answer.amounts());
        Some(answer.conclude(format!(
            "more than half of a round trip of {size} over {name} on one CPU is sending and receiving, not switching: {share}, {amounts}"
        )))
    };
    let cpu_distance = |name: &str, metric: &Metric| {
        let [same_cpu, two_cpus] =
            [PairPlacement::SameCpu, PairPlacement::TwoCpus].map(|placement| trip(metric, placement));
        let answer = RatioTest::above(RatioQuestion::RoundTripBetweenCpus, 1.0).test(same_cpu?, two_cpus?)?;
        let claim = format!("a round trip of {size} over {name} takes longer between two CPUs than on one");
        Some(answer.conclude_times(&claim, "as long"))
    };
    let ratio_to_trip = |call: &str, metric: &Metric, question: RatioQuestion| {
        let cost = evidence.rounds_at(metric, &Case::new().with_word(PairPlacement::SameCpu))?;
        let answer = RatioTest::above(question, 1.0).test(trip(&RTT_TCP, PairPlacement::SameCpu)?, cost)?;
        Some(answer.conclude_times(&format!("a TCP {call} on one CPU costs more than a TCP round trip"), "as long"))
    };
    // On one CPU, where only their work and switches take time.
    let ratio_to_tcp = |name: &str, metric: &Metric| {
        let [tcp, other] = [&RTT_TCP, metric].map(|metric| trip(metric, PairPlacement::SameCpu));
        let answer = RatioTest::below(RatioQuestion::RoundTripAgainstTcp, 1.0).test(tcp?, other?)?;
        let claim = format!("a round trip of {size} on one CPU takes less time over {name} than over TCP");
        Some(answer.conclude_times(&claim, "as long"))
    };
    let conclusions = PROTOCOLS
        .iter()
        .flat_map(|(name, metric, stack)| [protocol_share(name, metric, stack), cpu_distance(name, metric)])
        .chain([
            ratio_to_trip("connect", &CONNECT, RatioQuestion::ConnectAgainstRoundTrip),
            ratio_to_trip("close", &CLOSE, RatioQuestion::CloseAgainstRoundTrip),
        ])
        .chain(PROTOCOLS[1..].iter().map(|(name, metric, _)| ratio_to_tcp(name, metric)));
    let design = format!(
        "Messages of {SMALL_MESSAGE} B went from one process to another and back, both on one CPU or each on its own; the same message \
         was sent and received by a single process; connections were made, used once and closed; each in several rounds."
    );
    Study::new(CALLS_STUDY, design, conclusions.flatten().collect())
}

/// Conclusions on streams, from `net.bandwidth.*`.
pub(crate) fn streams(evidence: &Evidence<'_>) -> Option<Study> {
    let rates = evidence.all_cases(&BANDWIDTH_TCP);
    let lost = evidence.all_cases(&BANDWIDTH_UDP_LOST).iter();
    let lost = lost.filter_map(|lost| datagrams_lost(lost, ShareQuestion::DatagramsLost));
    let conclusions = byte_cost_size(rates)
        .into_iter()
        .chain(PLACEMENTS.iter().flat_map(|&placement| more_streams(rates, placement)))
        .chain(one_cpu_gain(rates))
        .chain(send_method_gain(evidence.all_cases(&BANDWIDTH_TCP_METHOD)))
        .chain(cpu_limited(evidence))
        .chain(lost);
    let design = "Bytes were sent from one process to another as fast as possible, in messages of several sizes, by several \
                  numbers of streams and send methods, with both ends of a stream on one CPU or on two, and counted on arrival, \
                  in several rounds. A message costs its bytes over the rate; its calls cost what the smallest message costs.";
    Study::new(STREAMS_STUDY, design, conclusions.collect())
}

/// What matters most of the network, where the test supports it.
pub(crate) fn essential_sentences(studies: &[Study]) -> Vec<String> {
    let is_of_tcp = |base: &MetricValue| base.metric == RTT_TCP.id;
    let is_large = |base: &MetricValue| MESSAGE.number_in(&base.case) == Some(LARGE_MESSAGE);
    let mut conclusions = studies.iter().flat_map(|study| &study.conclusions);
    let essential = [
        conclusions
            .clone()
            .find(|conclusion| ratio_base(conclusion, RatioQuestion::RoundTripBetweenCpus).is_some_and(is_of_tcp)),
        conclusions.clone().find(|conclusion| ratio_base(conclusion, RatioQuestion::ConnectAgainstRoundTrip).is_some()),
        conclusions.clone().find(|conclusion| matches!(conclusion.claim, Claim::BytesOutweighCalls { .. })),
        conclusions
            .clone()
            .rfind(|conclusion| ratio_base(conclusion, RatioQuestion::StreamsOnOneCpu).is_some_and(is_large)),
        conclusions
            .find(|conclusion| matches!(conclusion.claim, Claim::Share { question: ShareQuestion::CpuOfStreams, .. })),
    ];
    let proven = essential.into_iter().flatten().filter(|conclusion| conclusion.holds == Some(true));
    proven.map(|conclusion| conclusion.text.clone()).collect()
}

/// The base of the ratio that answers a question.
fn ratio_base(conclusion: &StatedConclusion, expected: RatioQuestion) -> Option<&MetricValue> {
    match &conclusion.claim {
        Claim::Ratio { question, base, .. } if *question == expected => Some(base),
        _ => None,
    }
}

/// Both placements, apart first.
const PLACEMENTS: [PairPlacement; 2] = [PairPlacement::TwoCpus, PairPlacement::SameCpu];

pub(super) fn placement_text(case: &Case) -> &'static str {
    if PairPlacement::of(case) == Some(PairPlacement::SameCpu) { "on one CPU" } else { "between two CPUs" }
}

pub(super) fn message_text(case: &Case) -> String {
    bytes(MESSAGE.number_in(case).unwrap_or(0))
}

/// Whether a CPU limits streams in every message size and send method: the case whose busiest CPU is least busy.
fn cpu_limited(evidence: &Evidence<'_>) -> Option<StatedConclusion> {
    let stream_cases = evidence.all_cases(&BANDWIDTH_TCP_CPU);
    let busy: Vec<TestedFigure> = stream_cases.iter().map(RoundHeadlines::tested_figure).collect::<Option<_>>()?;
    let full_states: Vec<Option<bool>> = busy.iter().map(|busy| busy.estimate.is_above(FULL_CPU_SHARE)).collect();
    let least_busy = stream_cases.iter().min_by(|a, b| a.headline().total_cmp(&b.headline()))?;
    let holds = match full_states.iter().all(|&is_full| is_full == Some(true)) {
        true => Some(true),
        false => full_states.contains(&Some(false)).then_some(false),
    };
    // One that is not full is found among all, while all are full only together.
    let chance = full_cpu_p_value(&busy, holds.filter(|is_full| !is_full));
    let (cases, rounds, share) = (stream_cases.len(), least_busy.values.len(), least_busy.estimate()?);
    let text = format!(
        "TCP streams on this machine are CPU-limited in {}, with a CPU busy for more than {} of the time: the busiest is busy for {} in the \
         case with most idle time",
        if cases == 1 { "the one case measured".to_owned() } else { format!("all {cases} cases") },
        percent(FULL_CPU_SHARE),
        percent(share.value)
    );
    let (question, figure) = (ShareQuestion::CpuOfStreams, least_busy.metric_value());
    let test = format!("median of {rounds} rounds, case by case");
    let test = ClaimTest::new(TestEvidence::CaseByCase { cases, rounds }, test, outcome_of_p_value(chance));
    Some(test.conclude(Claim::Share { question, figure, share, limit: FULL_CPU_SHARE }, holds, text))
}

/// The chance by which it stands that a CPU is full, or not, found among these; without such an answer that of all together.
pub(super) fn full_cpu_p_value(busy: &[TestedFigure], answer: Option<bool>) -> Option<f64> {
    let chance = |busy: &TestedFigure| busy.p_value(FULL_CPU_SHARE);
    let is_of_answer = |busy: &&TestedFigure| busy.estimate.is_above(FULL_CPU_SHARE) == answer;
    match answer {
        Some(_) => p_value_of_any(busy.iter().filter(is_of_answer).map(chance), busy.len()),
        None => p_value_of_all(busy.iter().map(chance)),
    }
}

/// Whether datagrams are lost when the sender does not wait, between two processes of this machine or to another host.
pub(super) fn datagrams_lost(lost: &RoundHeadlines<'_>, question: ShareQuestion) -> Option<StatedConclusion> {
    let (side, limit) = (Estimate::is_above, MIN_LOST_SHARE);
    ShareTest { question, figure: lost.metric_value(), shares: lost, side, limit }.conclude(|figure, share| {
        let (limit, message, share) = (percent(limit), message_text(&figure.case), share_text(share));
        let lost = match question {
            ShareQuestion::DatagramsLost => format!("are lost {} of this machine", placement_text(&figure.case)),
            _ => "to the agent are lost".to_owned(),
        };
        format!("more than {limit} of datagrams of {message} {lost} if the sender does not wait: {share}")
    })
}

/// The rates of this many streams with this placement, by message.
fn rates_by_message<'a, 'r>(
    rates: &'a [RoundHeadlines<'r>],
    streams: u64,
    placement: PairPlacement,
) -> Vec<&'a RoundHeadlines<'r>> {
    let is_at = |case: &Case| STREAMS.number_in(case) == Some(streams) && PairPlacement::of(case) == Some(placement);
    let mut points: Vec<&RoundHeadlines<'r>> =
        rates.iter().filter(|rate| is_at(rate.case) && rate.are_positive()).collect();
    points.retain(|point| MESSAGE.number_in(point.case).is_some());
    points.indirect_sort_by_key(|point| MESSAGE.number_in(point.case));
    points
}

/// The message size from which bytes cost more than calls, with one stream, between two CPUs if there are two.
fn byte_cost_size(rates: &[RoundHeadlines<'_>]) -> Option<StatedConclusion> {
    let points =
        PLACEMENTS.iter().map(|&placement| rates_by_message(rates, 1, placement)).find(|points| !points.is_empty())?;
    let message_times = |rate: &&RoundHeadlines<'_>| {
        let size = MESSAGE.number_in(rate.case).unwrap_or(0);
        LinePoint { position: size, rounds: rate.values.iter().map(|rate| 1e9 * size as f64 / rate).collect() }
    };
    let points: Vec<LinePoint> = points.iter().map(message_times).collect();
    let (smallest, larger_messages) = points.split_first()?;
    let doubled_times: Vec<f64> = smallest.rounds.iter().map(|time| DOUBLED_TIME * time).collect();
    let ratio_to_twice =
        |point: &LinePoint| line_ratio(point.position, &doubled_times, &point.rounds, larger_messages.len());
    let standings: Vec<LineRatio> = larger_messages.iter().filter_map(ratio_to_twice).collect();
    let crossing = standings.iter().position(|standing| standing.side() == Ordering::Greater);
    let example = crossing.map_or(standings.last()?, |index| &standings[index]);
    let from = crossing.map(|index| {
        let before = standings[..index].iter().rfind(|standing| standing.side() == Ordering::Less);
        let (after, until) =
            (before.map_or(smallest.position, |standing| standing.position), standings[index].position);
        // Between the two it is taken to grow by the same time a byte.
        let time_at =
            |size: u64| points.iter().find(|point| point.position == size).map_or(0.0, |point| headline(&point.rounds));
        let doubled = DOUBLED_TIME * time_at(points[0].position);
        let share = (doubled - time_at(after)) / (time_at(until) - time_at(after));
        let near = after as f64 + share.clamp(0.0, 1.0) * (until - after) as f64;
        Crossover { after, until, near, reversed: false }
    });
    let is_never = standings.iter().all(|standing| standing.side() == Ordering::Less);
    // Against the smallest message itself, not twice it.
    let times = example.ratio.divided_by(1.0 / DOUBLED_TIME);
    let range_text = match from {
        Some(Crossover { after, until, near, .. }) => {
            let (near, [after, until]) = (value_text(near, Unit::Bytes), [after, until].map(bytes));
            format!(" from messages of about {near} up (between {after} and {until})")
        }
        // Of larger messages nothing is known.
        None => format!(" up to messages of {}", bytes(example.position)),
    };
    let text = format!(
        "bytes cost more than calls in a TCP stream{range_text}, which doubles the time of a message: one of {} takes {}",
        bytes(example.position),
        ratio_text(&times, &format!("as long as one of {}", bytes(smallest.position)))
    );
    let chance = match crossing {
        Some(_) => side_p_value(&standings, Ordering::Greater),
        None => p_value_of_all(standings.iter().map(|standing| standing.p_value)),
    };
    let description = format!("time of a message against {DOUBLED_TIME} times that of the smallest");
    let test = joint_test(&description, &standings, smallest.rounds.len(), outcome_of_p_value(chance));
    let claim =
        Claim::BytesOutweighCalls { smallest: smallest.position, from, example_bytes: example.position, ratio: times };
    Some(test.conclude(claim, from.map(|_| true).or(is_never.then_some(false)), text))
}

/// The numbers of streams that were measured, in order.
fn stream_counts(rates: &[RoundHeadlines<'_>]) -> Vec<u64> {
    distinct(rates.iter().filter_map(|rate| STREAMS.number_in(rate.case)))
}

/// Whether the most streams carry more than one, by message.
fn more_streams(rates: &[RoundHeadlines<'_>], placement: PairPlacement) -> Vec<StatedConclusion> {
    let [1, .., max_streams] = stream_counts(rates)[..] else { return Vec::new() };
    let test = RatioTest::above(RatioQuestion::MoreStreams, 1.0);
    let answer =
        test_by_message(test, &rates_by_message(rates, 1, placement), &rates_by_message(rates, max_streams, placement));
    let state = |answer: RatioAnswer| {
        let (message, placement) = (message_text(&answer.other.case), placement_text(&answer.other.case));
        let claim =
            format!("{max_streams} TCP streams in messages of {message}, each {placement}, carry more than one");
        answer.conclude_times(&claim, "as much")
    };
    answer.into_iter().map(state).collect()
}

/// The answer at each message that both have.
fn test_by_message(test: RatioTest, bases: &[&RoundHeadlines<'_>], others: &[&RoundHeadlines<'_>]) -> Vec<RatioAnswer> {
    let answer = |base: &&RoundHeadlines<'_>| {
        let other =
            others.iter().find(|candidate| MESSAGE.number_in(candidate.case) == MESSAGE.number_in(base.case))?;
        test.test(base, other)
    };
    bases.iter().filter_map(answer).collect()
}

/// Whether streams carry more with both ends on one CPU than on two, by message, the most streams last.
fn one_cpu_gain(rates: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    let test = RatioTest::above(RatioQuestion::StreamsOnOneCpu, 1.0);
    let [two_cpus, same_cpu] = PLACEMENTS;
    let state = |streams: u64, answer: RatioAnswer| {
        let message = message_text(&answer.other.case);
        let claim = match streams {
            1 => format!("a TCP stream in messages of {message} carries more on one CPU than between two"),
            _ => format!(
                "{streams} TCP streams in messages of {message} carry more each on one CPU than each between two"
            ),
        };
        answer.conclude_times(&claim, "as much")
    };
    let count_conclusions = |streams| {
        let [two_cpus_rates, same_cpu_rates] =
            [two_cpus, same_cpu].map(|placement| rates_by_message(rates, streams, placement));
        test_by_message(test, &two_cpus_rates, &same_cpu_rates).into_iter().map(move |answer| state(streams, answer))
    };
    stream_counts(rates).into_iter().flat_map(count_conclusions).collect()
}

/// Whether a send method that saves the sender's copy carries more.
fn send_method_gain(rates: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    let gain = |other: &RoundHeadlines<'_>| {
        let method = SendMethod::of(other.case).filter(|&method| method != SendMethod::Send)?;
        let base_case = other.case.clone().with_word(SendMethod::Send);
        let base = rates.iter().find(|candidate| *candidate.case == base_case)?;
        let answer = RatioTest::above(RatioQuestion::SendMethod, 1.0).test(base, other)?;
        let (message, placement) = (message_text(other.case), placement_text(other.case));
        let claim = format!("{} carries more than send in messages of {message} {placement}", method.name());
        Some(answer.conclude_times(&claim, "as much"))
    };
    rates.iter().filter_map(gain).collect()
}
