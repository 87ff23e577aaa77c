//! The network between two processes of a machine: the cost of each call, the message size from which bytes cost more than
//! calls, and what more streams, one CPU and other send methods gain.

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
    let small = bytes(SMALL_MESSAGE);
    let trip = |metric: &Metric, placement: PairPlacement| {
        evidence.rounds_at(metric, &Case::new().with_word(placement).with_number(MESSAGE, SMALL_MESSAGE))
    };
    let protocol_share = |name: &str, metric: &Metric, stack: &Metric| {
        let both_ways = evidence.rounds_at(stack, &Case::new().with_number(MESSAGE, SMALL_MESSAGE))?;
        let answer = RatioTest::above(RatioQuestion::ProtocolInRoundTrip, MAJORITY_SHARE)
            .test(trip(metric, PairPlacement::SameCpu)?, &both_ways.clone().scaled(2.0))?;
        let (share, amounts) = (share_text(&answer.ratio), answer.amounts());
        Some(answer.conclude(format!(
            "more than half of a round trip of {small} over {name} on one CPU is sending and receiving, not switching: {share}, {amounts}"
        )))
    };
    let cpu_distance = |name: &str, metric: &Metric| {
        let [same, two] = [PairPlacement::SameCpu, PairPlacement::TwoCpus].map(|placement| trip(metric, placement));
        let answer = RatioTest::above(RatioQuestion::RoundTripBetweenCpus, 1.0).test(same?, two?)?;
        let claim = format!("a round trip of {small} over {name} takes longer between two CPUs than on one");
        Some(answer.conclude_times(&claim, "as long"))
    };
    let against_trip = |call: &str, metric: &Metric, question: RatioQuestion| {
        let cost = evidence.rounds_at(metric, &Case::new().with_word(PairPlacement::SameCpu))?;
        let answer = RatioTest::above(question, 1.0).test(trip(&RTT_TCP, PairPlacement::SameCpu)?, cost)?;
        Some(answer.conclude_times(&format!("a TCP {call} on one CPU costs more than a TCP round trip"), "as long"))
    };
    // On one CPU, where only their work and switches take time.
    let against_tcp = |name: &str, metric: &Metric| {
        let [tcp, other] = [&RTT_TCP, metric].map(|metric| trip(metric, PairPlacement::SameCpu));
        let answer = RatioTest::below(RatioQuestion::RoundTripAgainstTcp, 1.0).test(tcp?, other?)?;
        let claim = format!("a round trip of {small} on one CPU takes less time over {name} than over TCP");
        Some(answer.conclude_times(&claim, "as long"))
    };
    let conclusions = PROTOCOLS
        .iter()
        .flat_map(|(name, metric, stack)| [protocol_share(name, metric, stack), cpu_distance(name, metric)])
        .chain([
            against_trip("connect", &CONNECT, RatioQuestion::ConnectAgainstRoundTrip),
            against_trip("close", &CLOSE, RatioQuestion::CloseAgainstRoundTrip),
        ])
        .chain(PROTOCOLS[1..].iter().map(|(name, metric, _)| against_tcp(name, metric)));
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
    let mut stated = studies.iter().flat_map(|study| &study.conclusions);
    let essential = [
        stated.clone().find(|one| ratio_base(one, RatioQuestion::RoundTripBetweenCpus).is_some_and(is_of_tcp)),
        stated.clone().find(|one| ratio_base(one, RatioQuestion::ConnectAgainstRoundTrip).is_some()),
        stated.clone().find(|one| matches!(one.claim, Claim::BytesOutweighCalls { .. })),
        stated.clone().rfind(|one| ratio_base(one, RatioQuestion::StreamsOnOneCpu).is_some_and(is_large)),
        stated.find(|one| matches!(one.claim, Claim::Share { question: ShareQuestion::CpuOfStreams, .. })),
    ];
    let certain = essential.into_iter().flatten().filter(|one| one.holds == Some(true));
    certain.map(|one| one.text.clone()).collect()
}

/// The base of the ratio that answers a question.
fn ratio_base(conclusion: &StatedConclusion, asked: RatioQuestion) -> Option<&MetricValue> {
    match &conclusion.claim {
        Claim::Ratio { question, base, .. } if *question == asked => Some(base),
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
    let cases_of_streams = evidence.all_cases(&BANDWIDTH_TCP_CPU);
    let busy: Vec<TestedFigure> = cases_of_streams.iter().map(RoundHeadlines::tested_figure).collect::<Option<_>>()?;
    let full: Vec<Option<bool>> = busy.iter().map(|busy| busy.estimate.is_above(FULL_CPU_SHARE)).collect();
    let idlest = cases_of_streams.iter().min_by(|a, b| a.headline().total_cmp(&b.headline()))?;
    let holds = match full.iter().all(|&is_full| is_full == Some(true)) {
        true => Some(true),
        false => full.contains(&Some(false)).then_some(false),
    };
    // One that is not full is found among all, while all are full only together.
    let chance = full_cpu_p_value(&busy, holds.filter(|is_full| !is_full));
    let (cases, rounds, share) = (cases_of_streams.len(), idlest.values.len(), idlest.estimate()?);
    let text = format!(
        "TCP streams on this machine are CPU-limited in {}, with a CPU busy for more than {} of the time: the busiest is busy for {} in the \
         case with most idle time",
        if cases == 1 { "the one case measured".to_owned() } else { format!("all {cases} cases") },
        percent(FULL_CPU_SHARE),
        percent(share.value)
    );
    let (question, of) = (ShareQuestion::CpuOfStreams, idlest.metric_value());
    let test = format!("median of {rounds} rounds, case by case");
    let test = ClaimTest::new(TestEvidence::CaseByCase { cases, rounds }, test, outcome_of_p_value(chance));
    Some(test.conclude(Claim::Share { question, figure: of, share, limit: FULL_CPU_SHARE }, holds, text))
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
    let (holds, limit) = (Estimate::is_above, MIN_LOST_SHARE);
    ShareTest { question, of: lost.metric_value(), shares: lost, holds, limit }.conclude(|figure, share| {
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
    let is_of = |case: &Case| STREAMS.number_in(case) == Some(streams) && PairPlacement::of(case) == Some(placement);
    let mut points: Vec<&RoundHeadlines<'r>> =
        rates.iter().filter(|rate| is_of(rate.case) && rate.are_positive()).collect();
    points.retain(|point| MESSAGE.number_in(point.case).is_some());
    points.sort_by_key(|point| MESSAGE.number_in(point.case));
    points
}

/// The message size from which bytes cost more than calls, with one stream, between two CPUs if there are two.
fn byte_cost_size(rates: &[RoundHeadlines<'_>]) -> Option<StatedConclusion> {
    let points =
        PLACEMENTS.iter().map(|&placement| rates_by_message(rates, 1, placement)).find(|points| !points.is_empty())?;
    let takes = |rate: &&RoundHeadlines<'_>| {
        let size = MESSAGE.number_in(rate.case).unwrap_or(0);
        LinePoint { position: size, rounds: rate.values.iter().map(|rate| 1e9 * size as f64 / rate).collect() }
    };
    let points: Vec<LinePoint> = points.iter().map(takes).collect();
    let (smallest, larger) = points.split_first()?;
    let twice: Vec<f64> = smallest.rounds.iter().map(|time| DOUBLED_TIME * time).collect();
    let against_twice = |point: &LinePoint| line_ratio(point.position, &twice, &point.rounds, larger.len());
    let standings: Vec<LineRatio> = larger.iter().filter_map(against_twice).collect();
    let crossing = standings.iter().position(|standing| standing.side() == Ordering::Greater);
    let shown = crossing.map_or(standings.last()?, |index| &standings[index]);
    let from = crossing.map(|index| {
        let before = standings[..index].iter().rfind(|standing| standing.side() == Ordering::Less);
        let (after, until) =
            (before.map_or(smallest.position, |standing| standing.position), standings[index].position);
        // Between the two it is taken to grow by the same time a byte.
        let takes =
            |size: u64| points.iter().find(|point| point.position == size).map_or(0.0, |point| headline(&point.rounds));
        let doubled = DOUBLED_TIME * takes(points[0].position);
        let share = (doubled - takes(after)) / (takes(until) - takes(after));
        let near = after as f64 + share.clamp(0.0, 1.0) * (until - after) as f64;
        Crossover { after, until, near, reversed: false }
    });
    let is_never = standings.iter().all(|standing| standing.side() == Ordering::Less);
    // Against the smallest message itself, not twice it.
    let times = shown.ratio.divided_by(1.0 / DOUBLED_TIME);
    let where_from = match from {
        Some(Crossover { after, until, near, .. }) => {
            let (near, [after, until]) = (value_text(near, Unit::Bytes), [after, until].map(bytes));
            format!(" from messages of about {near} up (between {after} and {until})")
        }
        // Of larger messages nothing is known.
        None => format!(" up to messages of {}", bytes(shown.position)),
    };
    let text = format!(
        "bytes cost more than calls in a TCP stream{where_from}, which doubles the time of a message: one of {} takes {}",
        bytes(shown.position),
        ratio_text(&times, &format!("as long as one of {}", bytes(smallest.position)))
    );
    let chance = match crossing {
        Some(_) => side_p_value(&standings, Ordering::Greater),
        None => p_value_of_all(standings.iter().map(|standing| standing.p_value)),
    };
    let what = format!("time of a message against {DOUBLED_TIME} times that of the smallest");
    let test = joint_test(&what, &standings, smallest.rounds.len(), outcome_of_p_value(chance));
    let claim =
        Claim::BytesOutweighCalls { smallest: smallest.position, from, example_bytes: shown.position, ratio: times };
    Some(test.conclude(claim, from.map(|_| true).or(is_never.then_some(false)), text))
}

/// The numbers of streams that were measured, in order.
fn stream_counts(rates: &[RoundHeadlines<'_>]) -> Vec<u64> {
    distinct(rates.iter().filter_map(|rate| STREAMS.number_in(rate.case)))
}

/// Whether the most streams carry more than one, by message.
fn more_streams(rates: &[RoundHeadlines<'_>], placement: PairPlacement) -> Vec<StatedConclusion> {
    let [1, .., most] = stream_counts(rates)[..] else { return Vec::new() };
    let more = RatioTest::above(RatioQuestion::MoreStreams, 1.0);
    let answer =
        test_by_message(more, &rates_by_message(rates, 1, placement), &rates_by_message(rates, most, placement));
    let state = |answer: RatioAnswer| {
        let (message, placement) = (message_text(&answer.other.case), placement_text(&answer.other.case));
        let claim = format!("{most} TCP streams in messages of {message}, each {placement}, carry more than one");
        answer.conclude_times(&claim, "as much")
    };
    answer.into_iter().map(state).collect()
}

/// The answer at each message that both have.
fn test_by_message(ask: RatioTest, bases: &[&RoundHeadlines<'_>], others: &[&RoundHeadlines<'_>]) -> Vec<RatioAnswer> {
    let answer = |base: &&RoundHeadlines<'_>| {
        let other = others.iter().find(|other| MESSAGE.number_in(other.case) == MESSAGE.number_in(base.case))?;
        ask.test(base, other)
    };
    bases.iter().filter_map(answer).collect()
}

/// Whether streams carry more with both ends on one CPU than on two, by message, the most streams last.
fn one_cpu_gain(rates: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    let ask = RatioTest::above(RatioQuestion::StreamsOnOneCpu, 1.0);
    let [apart, on_one] = PLACEMENTS;
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
    let of_count = |streams| {
        let [apart, on_one] = [apart, on_one].map(|placement| rates_by_message(rates, streams, placement));
        test_by_message(ask, &apart, &on_one).into_iter().map(move |answer| state(streams, answer))
    };
    stream_counts(rates).into_iter().flat_map(of_count).collect()
}

/// Whether a send method that saves the sender's copy carries more.
fn send_method_gain(rates: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    let gain = |other: &RoundHeadlines<'_>| {
        let method = SendMethod::of(other.case).filter(|&method| method != SendMethod::Send)?;
        let usual = other.case.clone().with_word(SendMethod::Send);
        let usual = rates.iter().find(|known| *known.case == usual)?;
        let answer = RatioTest::above(RatioQuestion::SendMethod, 1.0).test(usual, other)?;
        let (message, placement) = (message_text(other.case), placement_text(other.case));
        let claim = format!("{} carries more than send in messages of {message} {placement}", method.name());
        Some(answer.conclude_times(&claim, "as much"))
    };
    rates.iter().filter_map(gain).collect()
}
