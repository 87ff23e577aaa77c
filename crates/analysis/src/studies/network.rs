//! The network between two processes of a machine: the cost of each call, the message size from which bytes cost more than
//! calls, and what more streams, one CPU and other send methods gain.

use std::cmp::Ordering;

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_CPU, BANDWIDTH_TCP_METHOD, BANDWIDTH_UDP_LOST, CLOSE, CONNECT, MESSAGE, RTT_TCP,
    RTT_UDP, RTT_UNIX, STACK_TCP, STACK_UDP, STACK_UNIX, STREAMS, SendMethod,
};
use kelvin_core::{Case, Claim, Conclusion, Crossover, Metric, Name, RatioQuestion, ShareQuestion, TestEvidence};

use super::crossing::{LinePoint, LineRatio, MetricLine, line_ratios, side_p_value, without_axes};
use super::{FULL_CPU_SHARE, find_conclusion};
use crate::evidence::{
    Evidence, LimitSide, RatioTest, RoundHeadlines, TestedFigure, outcome_of_p_value, p_value_of_all, p_value_of_any,
    share_conclusion,
};
use crate::result::{StatedConclusion, Study};

/// The study of calls and round trips, and that of streams.
pub(crate) const CALLS_STUDY: Name = Name::new("net.rtt");
pub(crate) const STREAMS_STUDY: Name = Name::new("net.bandwidth");

/// What the first of them also rests on.
pub(super) const ROUND_TRIP_INPUTS: [&str; 3] = ["net.stack", CONNECT.id.as_str(), CLOSE.id.as_str()];

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
static PROTOCOLS: [(&Metric, &Metric); 3] = [(&RTT_TCP, &STACK_TCP), (&RTT_UDP, &STACK_UDP), (&RTT_UNIX, &STACK_UNIX)];

/// Conclusions on calls and round trips, from `net.rtt.*`, `net.stack.*`, `net.connect` and `net.close`.
pub(crate) fn calls(evidence: &Evidence<'_>) -> Option<Study> {
    let of_protocol = |&(trip, stack): &(&Metric, &Metric)| {
        [protocol_share(evidence, trip, stack), cpu_distance_cost(evidence, trip)]
    };
    let conclusions = PROTOCOLS
        .iter()
        .flat_map(of_protocol)
        .chain([connect_cost(evidence), close_cost(evidence)])
        .chain(PROTOCOLS[1..].iter().map(|(trip, _)| protocol_against_tcp(evidence, trip)));
    let design = format!(
        "Messages of {SMALL_MESSAGE} B went from one process to another and back, both on one CPU or each on its own; the same message \
         was sent and received by a single process; connections were made, used once and closed; each in several rounds."
    );
    Study::new(CALLS_STUDY, design, conclusions.flatten().collect())
}

/// Conclusions on streams, from `net.bandwidth.*`.
pub(crate) fn streams(evidence: &Evidence<'_>) -> Option<Study> {
    let rates = evidence.all_cases(&BANDWIDTH_TCP);
    let conclusions = byte_cost_size(&rates)
        .into_iter()
        .chain(PLACEMENTS.iter().flat_map(|&placement| more_streams(&rates, placement)))
        .chain(one_cpu_gain(&rates))
        .chain(send_method_gain(&evidence.all_cases(&BANDWIDTH_TCP_METHOD)))
        .chain(cpu_limited(evidence))
        .chain(loss_conclusions(evidence, &BANDWIDTH_UDP_LOST, ShareQuestion::DatagramsLost));
    let design = "Bytes were sent from one process to another as fast as possible, in messages of several sizes, by several \
                  numbers of streams and send methods, with both ends of a stream on one CPU or on two, and counted on arrival, \
                  in several rounds. A message costs its bytes over the rate; its calls cost what the smallest message costs.";
    Study::new(STREAMS_STUDY, design, conclusions.collect())
}

/// What matters most of the network, where the test supports it.
pub(crate) fn network_essentials<'s>(evidence: &Evidence<'_>, studies: &'s [Study]) -> Vec<&'s StatedConclusion> {
    let rates = evidence.all_cases(&BANDWIDTH_TCP);
    let is_large = |one: &Conclusion| matches!(&one.claim, Claim::Ratio { base, .. } if MESSAGE.number_in(&base.case) == Some(LARGE_MESSAGE));
    let all = [
        cpu_distance_cost(evidence, &RTT_TCP),
        connect_cost(evidence),
        byte_cost_size(&rates),
        one_cpu_gain(&rates).into_iter().rfind(is_large),
        cpu_limited(evidence),
    ];
    let concluded = all.into_iter().flatten().filter_map(|one| find_conclusion(studies, &one.claim));
    concluded.filter(|one| one.holds == Some(true)).collect()
}

/// Both placements, apart first.
const PLACEMENTS: [PairPlacement; 2] = [PairPlacement::TwoCpus, PairPlacement::SameCpu];

/// The rounds of a round trip of a small message.
fn small_round_trip<'r>(
    evidence: &Evidence<'r>,
    metric: &Metric,
    placement: PairPlacement,
) -> Option<RoundHeadlines<'r>> {
    evidence.rounds_at(metric, &Case::new().with_word(placement).with_number(MESSAGE, SMALL_MESSAGE))
}

/// The protocol's share of a round trip.
fn protocol_share(evidence: &Evidence<'_>, metric: &Metric, stack: &Metric) -> Option<Conclusion> {
    let both_ways = evidence.rounds_at(stack, &Case::new().with_number(MESSAGE, SMALL_MESSAGE))?.scaled(2.0);
    let trip = small_round_trip(evidence, metric, PairPlacement::SameCpu)?;
    RatioTest::above(RatioQuestion::ProtocolInRoundTrip, MAJORITY_SHARE).test(&trip, &both_ways)
}

/// What another CPU adds to a round trip.
fn cpu_distance_cost(evidence: &Evidence<'_>, metric: &Metric) -> Option<Conclusion> {
    let [same, two] =
        [PairPlacement::SameCpu, PairPlacement::TwoCpus].map(|placement| small_round_trip(evidence, metric, placement));
    RatioTest::above(RatioQuestion::RoundTripBetweenCpus, 1.0).test(&same?, &two?)
}

/// Another protocol against TCP, on one CPU, where only their work and switches take time.
fn protocol_against_tcp(evidence: &Evidence<'_>, metric: &Metric) -> Option<Conclusion> {
    let [tcp, other] = [&RTT_TCP, metric].map(|metric| small_round_trip(evidence, metric, PairPlacement::SameCpu));
    RatioTest::below(RatioQuestion::RoundTripBesideTcp, 1.0).test(&tcp?, &other?)
}

/// The cost of a connect against one round trip.
fn connect_cost(evidence: &Evidence<'_>) -> Option<Conclusion> {
    against_round_trip(evidence, &CONNECT, RatioQuestion::ConnectBesideRoundTrip)
}

/// The cost of a close.
fn close_cost(evidence: &Evidence<'_>) -> Option<Conclusion> {
    against_round_trip(evidence, &CLOSE, RatioQuestion::CloseBesideRoundTrip)
}

fn against_round_trip(evidence: &Evidence<'_>, metric: &Metric, question: RatioQuestion) -> Option<Conclusion> {
    let cost = evidence.rounds_at(metric, &Case::new().with_word(PairPlacement::SameCpu))?;
    RatioTest::above(question, 1.0).test(&small_round_trip(evidence, &RTT_TCP, PairPlacement::SameCpu)?, &cost)
}

/// Whether a CPU limits streams, whatever they send and how: the case whose busiest CPU is least busy.
fn cpu_limited(evidence: &Evidence<'_>) -> Option<Conclusion> {
    let all = evidence.all_cases(&BANDWIDTH_TCP_CPU);
    let busy: Vec<TestedFigure> = all.iter().map(RoundHeadlines::tested_figure).collect::<Option<_>>()?;
    let full: Vec<Option<bool>> = busy.iter().map(|busy| busy.estimate.is_above(FULL_CPU_SHARE)).collect();
    let least = all.iter().min_by(|one, other| one.headline().total_cmp(&other.headline()))?;
    let holds = match full.iter().all(|&is_full| is_full == Some(true)) {
        true => Some(true),
        false => full.contains(&Some(false)).then_some(false),
    };
    let conclusion =
        share_conclusion(ShareQuestion::CpuOfStreams, least.metric_value(), least, FULL_CPU_SHARE, LimitSide::Above)?;
    let evidence = TestEvidence::CaseByCase { cases: all.len(), rounds: least.values.len() };
    // One that is not full is found among so many, while all are full only together.
    let chances = |answer| {
        busy.iter().zip(&full).filter(move |(_, full)| **full == answer).map(|one| one.0.p_value(FULL_CPU_SHARE))
    };
    let tested = outcome_of_p_value(match holds {
        Some(false) => p_value_of_any(chances(holds), all.len()),
        _ => p_value_of_all(busy.iter().map(|busy| busy.p_value(FULL_CPU_SHARE))),
    });
    Some(Conclusion { holds, evidence, tested, ..conclusion })
}

/// Whether datagrams are lost when the sender does not wait.
pub(super) fn loss_conclusions(evidence: &Evidence<'_>, metric: &Metric, question: ShareQuestion) -> Vec<Conclusion> {
    let all = evidence.all_cases(metric);
    all.iter()
        .filter_map(|lost| share_conclusion(question, lost.metric_value(), lost, MIN_LOST_SHARE, LimitSide::Above))
        .collect()
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
fn byte_cost_size(rates: &[RoundHeadlines<'_>]) -> Option<Conclusion> {
    let points =
        PLACEMENTS.iter().map(|&placement| rates_by_message(rates, 1, placement)).find(|points| !points.is_empty())?;
    let takes = |rate: &&RoundHeadlines<'_>| {
        let at = MESSAGE.number_in(rate.case).unwrap_or(0);
        LinePoint { position: at, rounds: rate.values.iter().map(|rate| 1e9 * at as f64 / rate).collect() }
    };
    let points: Vec<LinePoint> = points.iter().map(takes).collect();
    let (smallest, larger) = points.split_first()?;
    let twice: Vec<f64> = smallest.rounds.iter().map(|time| DOUBLED_TIME * time).collect();
    let line = |points: Vec<LinePoint>| MetricLine { held: Case::new(), points };
    let calls =
        line(larger.iter().map(|point| LinePoint { position: point.position, rounds: twice.clone() }).collect());
    let standings = line_ratios(&calls, &line(larger.to_vec()));
    let found = standings.iter().position(|standing| standing.side() == Ordering::Greater);
    let shown = found.map_or(standings.last()?, |index| &standings[index]);
    let from = found.map(|index| {
        let before = standings[..index].iter().rfind(|standing| standing.side() == Ordering::Less);
        let (after, until) =
            (before.map_or(smallest.position, |standing| standing.position), standings[index].position);
        Crossover { after, until, near: doubling_size(&points, (after, until)), to_below: false }
    });
    let is_never = standings.iter().all(|standing| standing.side() == Ordering::Less);
    Some(Conclusion {
        // Against the smallest message itself, not twice it.
        claim: Claim::BytesOutweighCalls {
            smallest: smallest.position,
            from,
            shown_at: shown.position,
            times: shown.ratio.divided_by(1.0 / DOUBLED_TIME),
        },
        holds: from.map(|_| true).or(is_never.then_some(false)),
        evidence: joint_evidence(&standings, smallest.rounds.len()),
        tested: outcome_of_p_value(match found {
            Some(_) => side_p_value(&standings, Ordering::Greater),
            None => p_value_of_all(standings.iter().map(|one| one.p_value)),
        }),
    })
}

fn joint_evidence(standings: &[LineRatio], rounds: usize) -> TestEvidence {
    TestEvidence::Together { ratios: standings.iter().map(|one| (Some(one.position), one.ratio)).collect(), rounds }
}

/// Where a message takes twice the time of the smallest, on a straight line over bytes between two sizes.
fn doubling_size(points: &[LinePoint], (after, until): (u64, u64)) -> f64 {
    let takes = |at: u64| {
        points.iter().find(|point| point.position == at).map_or(0.0, |point| kelvin_stats::headline(&point.rounds))
    };
    let wanted = DOUBLED_TIME * takes(points[0].position);
    let share = (wanted - takes(after)) / (takes(until) - takes(after));
    after as f64 + share.clamp(0.0, 1.0) * (until - after) as f64
}

/// The numbers of streams that were measured, in order.
fn stream_counts(rates: &[RoundHeadlines<'_>]) -> Vec<u64> {
    let mut counts: Vec<u64> = rates.iter().filter_map(|rate| STREAMS.number_in(rate.case)).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Whether the most streams carry more than one, by message.
fn more_streams(rates: &[RoundHeadlines<'_>], placement: PairPlacement) -> Vec<Conclusion> {
    let [1, .., most] = stream_counts(rates)[..] else { return Vec::new() };
    let more = RatioTest::above(RatioQuestion::MoreStreams, 1.0);
    test_by_message(more, &rates_by_message(rates, 1, placement), &rates_by_message(rates, most, placement))
}

/// The answer at each message that both have.
fn test_by_message(ask: RatioTest, bases: &[&RoundHeadlines<'_>], others: &[&RoundHeadlines<'_>]) -> Vec<Conclusion> {
    let beside = |base: &&RoundHeadlines<'_>| {
        let other = others.iter().find(|other| MESSAGE.number_in(other.case) == MESSAGE.number_in(base.case))?;
        ask.test(base, other)
    };
    bases.iter().filter_map(beside).collect()
}

/// Whether streams carry more with both ends on one CPU than on two, by message, the most streams last.
fn one_cpu_gain(rates: &[RoundHeadlines<'_>]) -> Vec<Conclusion> {
    let ask = RatioTest::above(RatioQuestion::StreamsOnOneCpu, 1.0);
    let [apart, on_one] = PLACEMENTS;
    let of_count = |streams| {
        test_by_message(ask, &rates_by_message(rates, streams, apart), &rates_by_message(rates, streams, on_one))
    };
    stream_counts(rates).into_iter().flat_map(of_count).collect()
}

/// Whether a send method that saves the sender's copy carries more.
fn send_method_gain(rates: &[RoundHeadlines<'_>]) -> Vec<Conclusion> {
    let beside = |other: &RoundHeadlines<'_>| {
        SendMethod::of(other.case).filter(|&method| method != SendMethod::Send)?;
        let rest = |case: &Case| without_axes(case, &[SendMethod::AXIS]);
        let is_usual = |known: &&RoundHeadlines<'_>| {
            SendMethod::of(known.case) == Some(SendMethod::Send) && rest(known.case) == rest(other.case)
        };
        RatioTest::above(RatioQuestion::SendMethod, 1.0).test(rates.iter().find(is_usual)?, other)
    };
    rates.iter().filter_map(beside).collect()
}
