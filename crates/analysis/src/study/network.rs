//! Conclusions on the network between two processes of a machine: which call costs what, from which message on its bytes
//! cost more than its calls, and what more streams add.

use std::cmp::Ordering;

use kelvin_model::units::{bytes, number, percent, plain};
use kelvin_model::{Case, Conclusion, Name, Run, StudyResult, Unit};
use kelvin_stats::{headline, headline_interval};

use super::crossing::{Line, Point, Standing, rounds, standings};
use super::ratio::Ratio;
use super::{FULL, beyond};
use crate::headlines::Desk;
use crate::result::MetricResult;

/// The study of calls and round trips, and that of streams.
pub(crate) const CALLS: Name = Name::new("net.rtt");
pub(crate) const STREAMS: Name = Name::new("net.bandwidth");

/// A small message, of which the bytes cost next to nothing.
pub(super) const SMALL: u64 = 64;
/// A large one, as programs that move much use it.
const LARGE: u64 = 64 << 10;
/// The protocols, with their names for people.
const PROTOCOLS: [(&str, &str); 3] = [("tcp", "TCP"), ("udp", "UDP"), ("unix", "Unix sockets")];
/// Where the two ends of a stream are, and the words for it.
struct Placement {
    name: &'static str,
    words: &'static str,
}

impl Placement {
    /// That of a case.
    fn of(case: &Case) -> Option<&'static Self> {
        PLACEMENTS.iter().find(|known| case.word("placement") == Some(known.name))
    }
}

const ON_ONE: &str = "same_cpu";
/// Both, apart first.
const PLACEMENTS: [Placement; 2] =
    [Placement { name: "two_cpus", words: "between two CPUs" }, Placement { name: ON_ONE, words: "on one CPU" }];
/// A part of a round trip from which on it is the larger one.
const HALF: f64 = 0.5;
/// Times the smallest message's time from which on the bytes of a message cost more than everything else in it.
const TWICE: f64 = 2.0;
/// A share of datagrams lost that is worth saying.
pub(super) const LOST: f64 = 0.01;

/// Conclusions on calls and round trips, from `net.rtt.*`, `net.stack.*`, `net.connect` and `net.close`; `None` unless two
/// of them that belong together were measured.
pub fn calls(run: &Run) -> Option<StudyResult> {
    let network = Network { run, desk: Desk::of(run) };
    let conclusions: Vec<Conclusion> = PROTOCOLS
        .iter()
        .flat_map(|protocol| [network.protocol_share(protocol), network.between_cpus(protocol)])
        .chain([network.connecting(), network.closing()])
        .flatten()
        .chain(network.beside_tcp())
        .collect();
    let design = format!(
        "Messages of {SMALL} B went from one process to another and back, both on one CPU or each on its own; the \
         same message was sent and received by a single process; connections were made, used once and closed; each in several \
         rounds."
    );
    (!conclusions.is_empty()).then_some(StudyResult { id: CALLS, design, conclusions })
}

/// Conclusions on streams, from `net.bandwidth.*`; `None` unless two messages, numbers of streams or ways of sending were
/// measured, or what was lost of datagrams.
pub fn streams(run: &Run) -> Option<StudyResult> {
    let network = Network { run, desk: Desk::of(run) };
    let rates = network.all("net.bandwidth.tcp");
    let conclusions: Vec<Conclusion> = bytes_or_calls(&rates)
        .into_iter()
        .chain(PLACEMENTS.iter().flat_map(|placement| more_streams(&rates, placement)))
        .chain(together(&rates).into_iter().map(|(_, conclusion)| conclusion))
        .chain(other_ways(&network.all("net.bandwidth.tcp.way")))
        .chain(network.cpu_limited())
        .chain(network.lost())
        .collect();
    let design =
        "Bytes were sent from one process to another as fast as they went, in messages of several sizes, by several \
                  numbers of streams and ways of sending, with both ends of a stream on one CPU or on two, and counted where they \
                  arrived, in several rounds. What a message costs is its bytes over the rate; what its calls cost is what the smallest message does."
            .into();
    (!conclusions.is_empty()).then_some(StudyResult { id: STREAMS, design, conclusions })
}

/// The network in one paragraph: what matters to most of it, as far as its test says that it holds. `None` where none does.
pub(crate) fn paragraph(run: &Run) -> Option<String> {
    let network = Network { run, desk: Desk::of(run) };
    let rates = network.all("net.bandwidth.tcp");
    let all = [
        network.between_cpus(&PROTOCOLS[0]),
        network.connecting(),
        bytes_or_calls(&rates),
        together(&rates).into_iter().rfind(|(message, _)| *message == LARGE).map(|(_, conclusion)| conclusion),
        network.cpu_limited(),
    ];
    let said: Vec<String> =
        all.into_iter().flatten().filter(|one| one.holds == Some(true)).map(|one| one.text).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// What streams would carry if only bytes cost time, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamCeiling {
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The ceiling of so many TCP streams on these CPUs with their ends on one CPU (`same_cpu`) or not, from `net.stream.tcp`: what a
/// message costs either end grows with its bytes, and that growth alone is what copying costs. The ends of one stream work at the same
/// time if they are on two CPUs; those of several share the CPUs. `None` where fewer than two messages were measured.
pub fn stream_ceiling(results: &[MetricResult], cpus: u64, streams: u64, placement: &str) -> Option<StreamCeiling> {
    let send = cost_of_bytes(results, "net.stream.tcp")?;
    let receive = cost_of_bytes(results, "net.stream.tcp.receive")?;
    let share = streams as f64 / cpus.max(1) as f64;
    let carried = |send: f64, receive: f64| {
        let both = send + receive;
        let alone = if placement == ON_ONE { both } else { send.max(receive) };
        streams as f64 * 1e9 / alone.max(share * both)
    };
    // The dearest bytes make the lowest rate.
    Some(StreamCeiling { low: carried(send.1, receive.1), high: carried(send.0, receive.0) })
}

/// Nanoseconds that a byte more costs between the two largest messages of a metric: the ends of the interval. `None` where it
/// is not surely above nothing.
fn cost_of_bytes(results: &[MetricResult], metric: &str) -> Option<(f64, f64)> {
    let ends = |result: &MetricResult| {
        let summary = result.outcome.summary()?;
        let interval = summary.interval?;
        Some((result.case.integer("message")?, interval.lower, interval.upper))
    };
    let of_metric = results.iter().filter(|result| result.metric.id == *metric);
    let mut points: Vec<(u64, f64, f64)> = of_metric.filter_map(ends).collect();
    points.sort_by_key(|&(message, ..)| message);
    let [.., (small, least, most), (large, lower, upper)] = points[..] else { return None };
    let bytes = (large - small) as f64;
    let (low, high) = ((lower - most) / bytes, (upper - least) / bytes);
    (low > 0.0).then_some((low, high))
}

struct Network<'r> {
    run: &'r Run,
    desk: Desk<'r>,
}

impl<'r> Network<'r> {
    fn all(&self, metric: &str) -> Vec<(&'r Case, Vec<f64>)> {
        rounds(self.run, &self.desk, metric)
    }

    /// The rounds of a metric at the case that has these parameters and no others.
    fn at(&self, metric: &str, case: &Case) -> Option<Vec<f64>> {
        self.all(metric).into_iter().find(|(known, _)| *known == case).map(|(_, rounds)| rounds)
    }

    /// The rounds of a round trip of a small message.
    fn trip(&self, protocol: &str, placement: &'static str) -> Option<Vec<f64>> {
        let case = Case::new().with_word("placement", placement).with("message", SMALL);
        self.at(&format!("net.rtt.{protocol}"), &case)
    }

    /// What of a round trip is the protocol.
    fn protocol_share(&self, &(protocol, name): &(&str, &str)) -> Option<Conclusion> {
        let trip = self.trip(protocol, "same_cpu")?;
        let stack = self.at(&format!("net.stack.{protocol}"), &Case::new().with("message", SMALL))?;
        let both_ways: Vec<f64> = stack.iter().map(|value| 2.0 * value).collect();
        let ratio = Ratio::of(&trip, &both_ways)?;
        let text = format!(
            "of a round trip of {SMALL} B over {name} on one CPU more than half is sending and receiving, not switching: \
             {} ({} to {}), {}",
            percent(ratio.value),
            percent(ratio.low),
            percent(ratio.high),
            ratio.amounts(Unit::Nanoseconds)
        );
        Some(ratio.above(HALF, text))
    }

    /// What another CPU adds to a round trip.
    fn between_cpus(&self, &(protocol, name): &(&str, &str)) -> Option<Conclusion> {
        let ratio = Ratio::of(&self.trip(protocol, "same_cpu")?, &self.trip(protocol, "two_cpus")?)?;
        let text = format!(
            "a round trip of {SMALL} B over {name} between two CPUs takes longer than on one: {}, {}",
            ratio.times(),
            ratio.amounts(Unit::Nanoseconds)
        );
        Some(ratio.above(1.0, text))
    }

    /// The other protocols beside TCP, on one CPU, where nothing but their work and switches takes time.
    fn beside_tcp(&self) -> Vec<Conclusion> {
        let Some(tcp) = self.trip("tcp", "same_cpu") else { return Vec::new() };
        let beside = |(protocol, name): &(&str, &str)| {
            let ratio = Ratio::of(&tcp, &self.trip(protocol, "same_cpu")?)?;
            let text = format!(
                "a round trip of {SMALL} B on one CPU is shorter over {name} than over TCP: {}, {}",
                ratio.times(),
                ratio.amounts(Unit::Nanoseconds)
            );
            Some(ratio.below(1.0, text))
        };
        PROTOCOLS[1..].iter().filter_map(beside).collect()
    }

    /// What making a connection costs beside using it once.
    fn connecting(&self) -> Option<Conclusion> {
        self.beside_trip("net.connect", "connecting over TCP")
    }

    /// What ending one costs.
    fn closing(&self) -> Option<Conclusion> {
        self.beside_trip("net.close", "closing a TCP connection")
    }

    fn beside_trip(&self, metric: &str, what: &str) -> Option<Conclusion> {
        let cost = self.at(metric, &Case::new().with_word("placement", "same_cpu"))?;
        let ratio = Ratio::of(&self.trip("tcp", "same_cpu")?, &cost)?;
        let text = format!(
            "{what} on one CPU costs more than a round trip over it: {}, {}",
            ratio.times(),
            ratio.amounts(Unit::Nanoseconds)
        );
        Some(ratio.above(1.0, text))
    }

    /// Whether a CPU is the limit of streams, whatever they send and how.
    fn cpu_limited(&self) -> Option<Conclusion> {
        let all = self.all("net.bandwidth.tcp.busy");
        let standing = |shares: &[f64]| {
            let interval = headline_interval(shares, None)?;
            Some((headline(shares), beyond(interval.lower, interval.upper, FULL)))
        };
        let found: Vec<(f64, Option<bool>)> = all.iter().map(|(_, shares)| standing(shares)).collect::<Option<_>>()?;
        let least = found.iter().map(|(share, _)| *share).reduce(f64::min)?;
        let holds = match found.iter().all(|(_, is_full)| *is_full == Some(true)) {
            true => Some(true),
            false => found.iter().any(|(_, is_full)| *is_full == Some(false)).then_some(false),
        };
        let rounds = all.first().map_or(0, |(_, shares)| shares.len());
        let cases = if all.len() == 1 { "the one case measured".into() } else { format!("all {} cases", all.len()) };
        Some(Conclusion {
            text: format!(
                "TCP streams on this machine are limited by a CPU in {cases}: where most of it is idle, the fullest is busy {} of \
                 the time",
                percent(least)
            ),
            holds,
            test: format!("median of {rounds} rounds and its interval against {}, case by case", percent(FULL)),
        })
    }

    /// Whether datagrams get lost between two processes when the sender does not wait.
    fn lost(&self) -> Vec<Conclusion> {
        let of = |(case, shares): (&Case, Vec<f64>)| {
            let message = case.integer("message").map(bytes)?;
            let placement = Placement::of(case)?.words;
            let beyond =
                format!("of datagrams of {message} are lost {placement} of this machine if the sender does not wait");
            lost_beyond(&shares, &beyond)
        };
        self.all("net.bandwidth.udp.lost").into_iter().filter_map(of).collect()
    }
}

/// That more of something is lost than is worth saying.
pub(super) fn lost_beyond(shares: &[f64], what: &str) -> Option<Conclusion> {
    let interval = headline_interval(shares, None)?;
    Some(Conclusion {
        text: format!(
            "more than {} {what}: {} ({} to {})",
            percent(LOST),
            percent(headline(shares)),
            percent(interval.lower.max(0.0)),
            percent(interval.upper.min(1.0))
        ),
        holds: beyond(interval.lower, interval.upper, LOST),
        test: format!("median of {} rounds and its interval", shares.len()),
    })
}

/// The points of so many streams that are placed in this way, by message.
fn sent(rates: &[(&Case, Vec<f64>)], streams: u64, placement: &str) -> Vec<Point> {
    let is_of = |case: &Case| case.integer("streams") == Some(streams) && case.word("placement") == Some(placement);
    let positive = |rates: &[f64]| rates.iter().all(|&rate| rate > 0.0);
    let mut points: Vec<Point> = rates
        .iter()
        .filter(|(case, rates)| is_of(case) && positive(rates))
        .filter_map(|(case, rates)| Some(Point { at: case.integer("message")?, rounds: rates.clone() }))
        .collect();
    points.sort_by_key(|point| point.at);
    points
}

/// From which message on its bytes cost more than its calls, with one stream.
fn bytes_or_calls(rates: &[(&Case, Vec<f64>)]) -> Option<Conclusion> {
    let takes = |point: &Point, factor: f64| Point {
        at: point.at,
        rounds: point.rounds.iter().map(|rate| factor * 1e9 * point.at as f64 / rate).collect(),
    };
    // Between two CPUs, where there are two.
    let points = PLACEMENTS.iter().map(|placement| sent(rates, 1, placement.name)).find(|points| !points.is_empty())?;
    let (smallest, larger) = points.split_first()?;
    let line = |points: Vec<Point>| Line { name: String::new(), points };
    let calls = |point: &Point| Point { at: point.at, ..takes(smallest, TWICE) };
    let calls = line(larger.iter().map(calls).collect());
    let all = line(larger.iter().map(|point| takes(point, 1.0)).collect());
    let standings = standings(&calls, &all);
    let (first, last) = (standings.first()?, standings.last()?);
    // Beside the smallest message itself, not beside twice it.
    let beside = |standing: &Standing| {
        format!(
            "{} takes {} times ({} to {}) as long as one of {}",
            bytes(standing.at),
            number(TWICE * standing.ratio),
            number(TWICE * standing.low),
            number(TWICE * standing.high),
            bytes(smallest.at)
        )
    };
    let begins = "bytes cost more than calls in a TCP stream";
    let found = standings.iter().position(|standing| standing.side() == Ordering::Greater);
    let (text, holds) = match found {
        Some(index) => {
            let from = &standings[index];
            let before = standings[..index].iter().rfind(|standing| standing.side() == Ordering::Less);
            let after = before.map_or(smallest.at, |standing| standing.at);
            let near = even(smallest, larger, (after, from.at));
            let words = format!(
                "{begins} from messages of about {} on (between {} and {}): one of {}",
                plain(near, Unit::Bytes),
                bytes(after),
                bytes(from.at),
                beside(from)
            );
            (words, Some(true))
        }
        None => {
            let is_never = standings.iter().all(|standing| standing.side() == Ordering::Less);
            (format!("{begins}: one of {}", beside(last)), is_never.then_some(false))
        }
    };
    let test = format!(
        "time of a message against {TWICE} times that of the smallest at each of {} larger sizes up to {}, intervals by \
         Welch's test on logarithms of rounds such that all hold together with 95 %, {} against {} rounds; the size between \
         two measured ones on a straight line",
        standings.len(),
        bytes(last.at),
        all.at(first.at).map_or(0, <[f64]>::len),
        smallest.rounds.len()
    );
    Some(Conclusion { text, holds, test })
}

/// Where a message takes twice the time of the smallest, on a straight line over bytes between two sizes.
fn even(smallest: &Point, larger: &[Point], (after, until): (u64, u64)) -> f64 {
    let takes = |point: &Point| point.at as f64 / headline(&point.rounds);
    let at = |size: u64| larger.iter().find(|point| point.at == size).unwrap_or(smallest);
    let (low, high) = (at(after), at(until));
    let wanted = TWICE * takes(smallest);
    let share = (wanted - takes(low)) / (takes(high) - takes(low));
    low.at as f64 + share.clamp(0.0, 1.0) * (high.at - low.at) as f64
}

/// The numbers of streams that were measured, in order.
fn counts(rates: &[(&Case, Vec<f64>)]) -> Vec<u64> {
    let mut counts: Vec<u64> = rates.iter().filter_map(|(case, _)| case.integer("streams")).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Whether the most streams carry more than one, by message.
fn more_streams(rates: &[(&Case, Vec<f64>)], placement: &Placement) -> Vec<Conclusion> {
    let [1, .., most] = counts(rates)[..] else { return Vec::new() };
    let conclusion = |(message, ratio): (u64, Ratio)| {
        let text = format!(
            "{most} TCP streams in messages of {}, each {}, carry more than one: {}, {}",
            bytes(message),
            placement.words,
            ratio.times(),
            ratio.amounts(Unit::BytesPerSecond)
        );
        ratio.above(1.0, text)
    };
    let ratios = by_message(&sent(rates, 1, placement.name), &sent(rates, most, placement.name));
    ratios.into_iter().map(conclusion).collect()
}

/// How much more the second ones carry, at each message that both have.
fn by_message(first: &[Point], second: &[Point]) -> Vec<(u64, Ratio)> {
    let beside = |one: &Point| {
        let other = second.iter().find(|other| other.at == one.at)?;
        Some((one.at, Ratio::of(&one.rounds, &other.rounds)?))
    };
    first.iter().filter_map(beside).collect()
}

/// Whether streams carry more with both ends on one CPU than on two, by message, the most streams last.
fn together(rates: &[(&Case, Vec<f64>)]) -> Vec<(u64, Conclusion)> {
    let [apart, on_one] = &PLACEMENTS;
    let of_count = |streams: u64| {
        let (what, carry) = match streams {
            1 => ("a TCP stream".into(), "carries more on one CPU than between two"),
            _ => (format!("{streams} TCP streams"), "carry more each on one CPU than each between two"),
        };
        let conclusion = move |(message, ratio): (u64, Ratio)| {
            let text = format!(
                "{what} in messages of {} {carry}: {}, {}",
                bytes(message),
                ratio.times(),
                ratio.amounts(Unit::BytesPerSecond)
            );
            (message, ratio.above(1.0, text))
        };
        by_message(&sent(rates, streams, apart.name), &sent(rates, streams, on_one.name)).into_iter().map(conclusion)
    };
    counts(rates).into_iter().flat_map(of_count).collect()
}

/// Whether a way of sending that saves the sender's copy carries more.
fn other_ways(rates: &[(&Case, Vec<f64>)]) -> Vec<Conclusion> {
    let beside = |(case, other): &(&Case, Vec<f64>)| {
        let way = case.word("way").filter(|&way| way != "send")?;
        let is_usual = |known: &Case| {
            known.word("way") == Some("send")
                && known.integer("message") == case.integer("message")
                && known.word("placement") == case.word("placement")
        };
        let (_, usual) = rates.iter().find(|(known, _)| is_usual(known))?;
        let ratio = Ratio::of(usual, other)?;
        let text = format!(
            "{way} carries more than send in messages of {} {}: {}, {}",
            bytes(case.integer("message")?),
            Placement::of(case)?.words,
            ratio.times(),
            ratio.amounts(Unit::BytesPerSecond)
        );
        Some(ratio.above(1.0, text))
    };
    rates.iter().filter_map(beside).collect()
}
