//! The network between two processes of a machine: the cost of each call, the message size from which bytes cost more than
//! calls, and what more streams, one CPU and other send methods gain.

use std::cmp::Ordering;

use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{
    BANDWIDTH_TCP, BANDWIDTH_TCP_BUSY, BANDWIDTH_TCP_WAY, BANDWIDTH_UDP_LOST, CLOSE, CONNECT, MESSAGE, RTT_TCP,
    RTT_UDP, RTT_UNIX, STACK_TCP, STACK_UDP, STACK_UNIX, STREAMS, SendMethod,
};
use kelvin_model::{Case, ChangeOfSides, Claim, Conclusion, Metric, Name, RatioQuestion, ShareQuestion, Test};

use super::crossing::{Line, Point, Standing, chance_of_side, standings, without};
use super::{FULL, concluded};
use crate::evidence::{Ask, Beyond, Evidence, Rounds, Weighed, chance_of_all, chance_of_any, decided_by, share};
use crate::result::{Concluded, Study};

/// The study of calls and round trips, and that of streams.
pub(crate) const CALLS_STUDY: Name = Name::new("net.rtt");
pub(crate) const STREAMS_STUDY: Name = Name::new("net.bandwidth");

/// What the first of them also rests on.
pub(super) const BESIDE_ROUND_TRIPS: [&str; 3] = ["net.stack", CONNECT.id.as_str(), CLOSE.id.as_str()];

/// A small message, whose bytes cost next to nothing.
pub(super) const SMALL: u64 = 64;
/// A large one, as in bulk transfers.
const LARGE: u64 = 64 << 10;
/// Share of a round trip from which it is the larger part.
const HALF: f64 = 0.5;
/// Multiple of the smallest message's time from which bytes cost more than everything else.
pub(crate) const TWICE: f64 = 2.0;
/// Share of lost datagrams that matters.
pub(super) const LOST: f64 = 0.01;

/// Round trips and their protocol part, TCP first.
static PROTOCOLS: [(&Metric, &Metric); 3] = [(&RTT_TCP, &STACK_TCP), (&RTT_UDP, &STACK_UDP), (&RTT_UNIX, &STACK_UNIX)];

/// Conclusions on calls and round trips, from `net.rtt.*`, `net.stack.*`, `net.connect` and `net.close`.
pub(crate) fn calls(evidence: &Evidence<'_>) -> Option<Study> {
    let of_protocol =
        |&(trip, stack): &(&Metric, &Metric)| [protocol_share(evidence, trip, stack), between_cpus(evidence, trip)];
    let conclusions = PROTOCOLS
        .iter()
        .flat_map(of_protocol)
        .chain([connecting(evidence), closing(evidence)])
        .chain(PROTOCOLS[1..].iter().map(|(trip, _)| beside_tcp(evidence, trip)));
    let design = format!(
        "Messages of {SMALL} B went from one process to another and back, both on one CPU or each on its own; the same message \
         was sent and received by a single process; connections were made, used once and closed; each in several rounds."
    );
    Study::new(CALLS_STUDY, design, conclusions.flatten().collect())
}

/// Conclusions on streams, from `net.bandwidth.*`.
pub(crate) fn streams(evidence: &Evidence<'_>) -> Option<Study> {
    let rates = evidence.all(&BANDWIDTH_TCP);
    let conclusions = bytes_or_calls(&rates)
        .into_iter()
        .chain(PLACEMENTS.iter().flat_map(|&placement| more_streams(&rates, placement)))
        .chain(on_one_cpu(&rates))
        .chain(other_methods(&evidence.all(&BANDWIDTH_TCP_WAY)))
        .chain(cpu_limited(evidence))
        .chain(lost(evidence, &BANDWIDTH_UDP_LOST, ShareQuestion::DatagramsLost));
    let design = "Bytes were sent from one process to another as fast as possible, in messages of several sizes, by several \
                  numbers of streams and send methods, with both ends of a stream on one CPU or on two, and counted on arrival, \
                  in several rounds. A message costs its bytes over the rate; its calls cost what the smallest message costs.";
    Study::new(STREAMS_STUDY, design, conclusions.collect())
}

/// What matters most of the network, where the test supports it.
pub(crate) fn essence<'s>(evidence: &Evidence<'_>, studies: &'s [Study]) -> Vec<&'s Concluded> {
    let rates = evidence.all(&BANDWIDTH_TCP);
    let is_large =
        |one: &Conclusion| matches!(&one.claim, Claim::Ratio { base, .. } if MESSAGE.of(&base.case) == Some(LARGE));
    let all = [
        between_cpus(evidence, &RTT_TCP),
        connecting(evidence),
        bytes_or_calls(&rates),
        on_one_cpu(&rates).into_iter().rfind(is_large),
        cpu_limited(evidence),
    ];
    let concluded = all.into_iter().flatten().filter_map(|one| concluded(studies, &one.claim));
    concluded.filter(|one| one.holds == Some(true)).collect()
}

/// Both placements, apart first.
const PLACEMENTS: [Placement; 2] = [Placement::TwoCpus, Placement::SameCpu];

/// The rounds of a round trip of a small message.
fn trip<'r>(evidence: &Evidence<'r>, metric: &Metric, placement: Placement) -> Option<Rounds<'r>> {
    evidence.at(metric, &Case::new().at(placement).with(MESSAGE, SMALL))
}

/// The protocol's share of a round trip.
fn protocol_share(evidence: &Evidence<'_>, metric: &Metric, stack: &Metric) -> Option<Conclusion> {
    let both_ways = evidence.at(stack, &Case::new().with(MESSAGE, SMALL))?.times(2.0);
    let trip = trip(evidence, metric, Placement::SameCpu)?;
    Ask::above(RatioQuestion::ProtocolInRoundTrip, HALF).of(&trip, &both_ways)
}

/// What another CPU adds to a round trip.
fn between_cpus(evidence: &Evidence<'_>, metric: &Metric) -> Option<Conclusion> {
    let [same, two] = [Placement::SameCpu, Placement::TwoCpus].map(|placement| trip(evidence, metric, placement));
    Ask::above(RatioQuestion::RoundTripBetweenCpus, 1.0).of(&same?, &two?)
}

/// Another protocol against TCP, on one CPU, where only their work and switches take time.
fn beside_tcp(evidence: &Evidence<'_>, metric: &Metric) -> Option<Conclusion> {
    let [tcp, other] = [&RTT_TCP, metric].map(|metric| trip(evidence, metric, Placement::SameCpu));
    Ask::below(RatioQuestion::RoundTripBesideTcp, 1.0).of(&tcp?, &other?)
}

/// The cost of a connect against one round trip.
fn connecting(evidence: &Evidence<'_>) -> Option<Conclusion> {
    beside_trip(evidence, &CONNECT, RatioQuestion::ConnectBesideRoundTrip)
}

/// The cost of a close.
fn closing(evidence: &Evidence<'_>) -> Option<Conclusion> {
    beside_trip(evidence, &CLOSE, RatioQuestion::CloseBesideRoundTrip)
}

fn beside_trip(evidence: &Evidence<'_>, metric: &Metric, question: RatioQuestion) -> Option<Conclusion> {
    let cost = evidence.at(metric, &Case::new().at(Placement::SameCpu))?;
    Ask::above(question, 1.0).of(&trip(evidence, &RTT_TCP, Placement::SameCpu)?, &cost)
}

/// Whether a CPU limits streams, whatever they send and how: the case whose busiest CPU is least busy.
fn cpu_limited(evidence: &Evidence<'_>) -> Option<Conclusion> {
    let all = evidence.all(&BANDWIDTH_TCP_BUSY);
    let busy: Vec<Weighed> = all.iter().map(Rounds::weighed).collect::<Option<_>>()?;
    let full: Vec<Option<bool>> = busy.iter().map(|busy| busy.estimate.is_above(FULL)).collect();
    let least = all.iter().min_by(|one, other| one.headline().total_cmp(&other.headline()))?;
    let holds = match full.iter().all(|&is_full| is_full == Some(true)) {
        true => Some(true),
        false => full.contains(&Some(false)).then_some(false),
    };
    let conclusion = share(ShareQuestion::CpuOfStreams, least.side(), least, FULL, Beyond::Above)?;
    let evidence = Test::CaseByCase { cases: all.len(), rounds: least.values.len() };
    // One that is not full is found among so many, while all are full only together.
    let chances =
        |answer| busy.iter().zip(&full).filter(move |(_, full)| **full == answer).map(|one| one.0.chance(FULL));
    let tested = decided_by(match holds {
        Some(false) => chance_of_any(chances(holds), all.len()),
        _ => chance_of_all(busy.iter().map(|busy| busy.chance(FULL))),
    });
    Some(Conclusion { holds, evidence, tested, ..conclusion })
}

/// Whether datagrams are lost when the sender does not wait.
pub(super) fn lost(evidence: &Evidence<'_>, metric: &Metric, question: ShareQuestion) -> Vec<Conclusion> {
    let all = evidence.all(metric);
    all.iter().filter_map(|lost| share(question, lost.side(), lost, LOST, Beyond::Above)).collect()
}

/// The rates of this many streams with this placement, by message.
fn sent<'a, 'r>(rates: &'a [Rounds<'r>], streams: u64, placement: Placement) -> Vec<&'a Rounds<'r>> {
    let is_of = |case: &Case| STREAMS.of(case) == Some(streams) && Placement::of(case) == Some(placement);
    let mut points: Vec<&Rounds<'r>> = rates.iter().filter(|rate| is_of(rate.case) && rate.are_positive()).collect();
    points.retain(|point| MESSAGE.of(point.case).is_some());
    points.sort_by_key(|point| MESSAGE.of(point.case));
    points
}

/// The message size from which bytes cost more than calls, with one stream, between two CPUs if there are two.
fn bytes_or_calls(rates: &[Rounds<'_>]) -> Option<Conclusion> {
    let points = PLACEMENTS.iter().map(|&placement| sent(rates, 1, placement)).find(|points| !points.is_empty())?;
    let takes = |rate: &&Rounds<'_>| {
        let at = MESSAGE.of(rate.case).unwrap_or(0);
        Point { at, rounds: rate.values.iter().map(|rate| 1e9 * at as f64 / rate).collect() }
    };
    let points: Vec<Point> = points.iter().map(takes).collect();
    let (smallest, larger) = points.split_first()?;
    let twice: Vec<f64> = smallest.rounds.iter().map(|time| TWICE * time).collect();
    let line = |points: Vec<Point>| Line { held: Case::new(), points };
    let calls = line(larger.iter().map(|point| Point { at: point.at, rounds: twice.clone() }).collect());
    let standings = standings(&calls, &line(larger.to_vec()));
    let found = standings.iter().position(|standing| standing.side() == Ordering::Greater);
    let shown = found.map_or(standings.last()?, |index| &standings[index]);
    let from = found.map(|index| {
        let before = standings[..index].iter().rfind(|standing| standing.side() == Ordering::Less);
        let (after, until) = (before.map_or(smallest.at, |standing| standing.at), standings[index].at);
        ChangeOfSides { after, until, near: even(&points, (after, until)), to_below: false }
    });
    let is_never = standings.iter().all(|standing| standing.side() == Ordering::Less);
    Some(Conclusion {
        // Against the smallest message itself, not twice it.
        claim: Claim::BytesOutweighCalls {
            smallest: smallest.at,
            from,
            shown_at: shown.at,
            times: shown.ratio.over(1.0 / TWICE),
        },
        holds: from.map(|_| true).or(is_never.then_some(false)),
        evidence: together(&standings, smallest.rounds.len()),
        tested: decided_by(match found {
            Some(_) => chance_of_side(&standings, Ordering::Greater),
            None => chance_of_all(standings.iter().map(|one| one.chance)),
        }),
    })
}

fn together(standings: &[Standing], rounds: usize) -> Test {
    Test::Together { ratios: standings.iter().map(|one| (Some(one.at), one.ratio)).collect(), rounds }
}

/// Where a message takes twice the time of the smallest, on a straight line over bytes between two sizes.
fn even(points: &[Point], (after, until): (u64, u64)) -> f64 {
    let takes =
        |at: u64| points.iter().find(|point| point.at == at).map_or(0.0, |point| kelvin_stats::headline(&point.rounds));
    let wanted = TWICE * takes(points[0].at);
    let share = (wanted - takes(after)) / (takes(until) - takes(after));
    after as f64 + share.clamp(0.0, 1.0) * (until - after) as f64
}

/// The numbers of streams that were measured, in order.
fn counts(rates: &[Rounds<'_>]) -> Vec<u64> {
    let mut counts: Vec<u64> = rates.iter().filter_map(|rate| STREAMS.of(rate.case)).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Whether the most streams carry more than one, by message.
fn more_streams(rates: &[Rounds<'_>], placement: Placement) -> Vec<Conclusion> {
    let [1, .., most] = counts(rates)[..] else { return Vec::new() };
    let more = Ask::above(RatioQuestion::MoreStreams, 1.0);
    by_message(more, &sent(rates, 1, placement), &sent(rates, most, placement))
}

/// The answer at each message that both have.
fn by_message(ask: Ask, bases: &[&Rounds<'_>], others: &[&Rounds<'_>]) -> Vec<Conclusion> {
    let beside = |base: &&Rounds<'_>| {
        let other = others.iter().find(|other| MESSAGE.of(other.case) == MESSAGE.of(base.case))?;
        ask.of(base, other)
    };
    bases.iter().filter_map(beside).collect()
}

/// Whether streams carry more with both ends on one CPU than on two, by message, the most streams last.
fn on_one_cpu(rates: &[Rounds<'_>]) -> Vec<Conclusion> {
    let ask = Ask::above(RatioQuestion::StreamsOnOneCpu, 1.0);
    let [apart, on_one] = PLACEMENTS;
    let of_count = |streams| by_message(ask, &sent(rates, streams, apart), &sent(rates, streams, on_one));
    counts(rates).into_iter().flat_map(of_count).collect()
}

/// Whether a send method that saves the sender's copy carries more.
fn other_methods(rates: &[Rounds<'_>]) -> Vec<Conclusion> {
    let beside = |other: &Rounds<'_>| {
        SendMethod::of(other.case).filter(|&method| method != SendMethod::Send)?;
        let rest = |case: &Case| without(case, &[SendMethod::AXIS]);
        let is_usual = |known: &&Rounds<'_>| {
            SendMethod::of(known.case) == Some(SendMethod::Send) && rest(known.case) == rest(other.case)
        };
        Ask::above(RatioQuestion::SendMethod, 1.0).of(rates.iter().find(is_usual)?, other)
    };
    rates.iter().filter_map(beside).collect()
}
