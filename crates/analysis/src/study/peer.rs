//! Conclusions on the network to another host: what it carries and which of link and hosts is the limit, what more streams
//! add, what a message costs beside the way itself, what is lost, and how long a message waits behind a stream.

use kelvin_model::units::{bytes, number, percent, plain};
use kelvin_model::{Case, Conclusion, Name, Prediction, Run, StudyResult, Unit};
use kelvin_stats::{headline, headline_interval};

use super::beyond;
use super::crossing::{name, rounds};
use super::network::{LOST, SMALL, lost_beyond};
use super::ratio::Ratio;
use crate::headlines::Desk;

/// The study.
pub(crate) const PEER: Name = Name::new("net.peer");

/// A CPU that a test fills to this share has no more to give: what the network's own notes go by.
pub const FULL: f64 = 0.95;
/// Times a round trip of an idle way from which on most of it is waiting behind others.
const TWICE: f64 = 2.0;
const RATE: &str = "net.peer.bandwidth";
const BUSY: [&str; 2] = ["net.peer.bandwidth.busy_here", "net.peer.bandwidth.busy_there"];

/// Conclusions from `net.peer.*`; `None` unless two of them that belong together were measured.
pub fn peer(run: &Run) -> Option<StudyResult> {
    let peer = Peer { run, desk: Desk::of(run) };
    let streams = peer.streams();
    let fastest = fastest(&streams);
    let conclusions: Vec<Conclusion> = fastest
        .iter()
        .flat_map(|stream| [peer.carried(stream), peer.limit(stream)])
        .flatten()
        .chain(more_streams(&streams))
        .chain(PROTOCOLS.iter().filter_map(|protocol| peer.program(protocol)))
        .chain(peer.lost_unpaced())
        .chain(peer.arrives().into_iter().map(|(_, conclusion)| conclusion))
        .chain(peer.waiting())
        .collect();
    let design = format!(
        "Bytes went to another host, and from it, as fast as they went over several numbers of TCP connections, and were \
         counted where they arrived, while both hosts were watched for a thread or CPU without idle time. Messages of {SMALL} \
         bytes went to a program there and back, alone and beside a stream, and echo requests to its kernel. Datagrams were \
         sent as fast as possible and at even rates. Each in several rounds."
    );
    (!conclusions.is_empty()).then_some(StudyResult { id: PEER, design, conclusions })
}

/// The network to the other host in one paragraph: what it carried, and then what a test says for sure. `None` where nothing was
/// carried, and no test says anything.
pub(crate) fn paragraph(run: &Run) -> Option<String> {
    let peer = Peer { run, desk: Desk::of(run) };
    let streams = peer.streams();
    let fastest = fastest(&streams);
    let of_streams = fastest.iter().map(|stream| peer.in_words(stream));
    let highest = peer.arrives().into_iter().rev().map(|(_, conclusion)| conclusion).find(is_sure);
    let more = more_streams(&streams).into_iter().chain(peer.program(&PROTOCOLS[0])).chain(peer.lost_unpaced());
    let sure = more.chain(highest).chain(peer.waiting()).filter(is_sure).map(|conclusion| conclusion.text);
    let said: Vec<String> = of_streams.chain(sure).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn is_sure(conclusion: &Conclusion) -> bool {
    conclusion.holds == Some(true)
}

/// The protocols of round trips, with their names for people.
const PROTOCOLS: [(&str, &str); 2] = [("tcp", "TCP"), ("udp", "UDP")];

/// What so many TCP connections carried in one direction.
struct Stream<'r> {
    case: &'r Case,
    count: u64,
    rounds: Vec<f64>,
}

impl Stream<'_> {
    /// `1 TCP stream to the agent`.
    fn words(&self) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        format!("{} TCP stream{plural} {}", self.count, self.direction())
    }

    fn direction(&self) -> &'static str {
        if self.case.word("direction") == Some("from_agent") { "from the agent" } else { "to the agent" }
    }

    /// The parameters beside the number of streams.
    fn held(&self) -> String {
        name(self.case, "streams")
    }

    /// `4 TCP streams to the agent carry 117 MB/s (116 MB/s to 118 MB/s)`.
    fn carried_in_words(&self) -> String {
        let carries = if self.count == 1 { "carries" } else { "carry" };
        let rate = |value| plain(value, Unit::BytesPerSecond);
        let interval = headline_interval(&self.rounds, None)
            .map_or_else(String::new, |found| format!(" ({} to {})", rate(found.lower), rate(found.upper)));
        format!("{} {carries} {}{interval}", self.words(), rate(headline(&self.rounds)))
    }
}

/// Of each direction the number of streams that carried most.
fn fastest<'s, 'r>(streams: &'s [Stream<'r>]) -> Vec<&'s Stream<'r>> {
    let mut best: Vec<&Stream<'r>> = Vec::new();
    for stream in streams {
        match best.iter_mut().find(|known| known.held() == stream.held()) {
            Some(known) if headline(&known.rounds) < headline(&stream.rounds) => *known = stream,
            Some(_) => {}
            None => best.push(stream),
        }
    }
    best
}

/// Whether the most streams carry more than one, by direction.
fn more_streams(streams: &[Stream<'_>]) -> Vec<Conclusion> {
    let beside = |one: &Stream<'_>| {
        let same = streams.iter().filter(|other| other.held() == one.held() && other.count > 1);
        let many = same.max_by_key(|other| other.count)?;
        let ratio = Ratio::of(&one.rounds, &many.rounds)?;
        let text =
            format!("{} carry more than one: {}, {}", many.words(), ratio.times(), ratio.amounts(Unit::BytesPerSecond));
        Some(ratio.above(1.0, text))
    };
    streams.iter().filter(|stream| stream.count == 1).filter_map(beside).collect()
}

/// A share of something with its interval over rounds.
struct Share {
    value: f64,
    low: f64,
    high: f64,
    rounds: usize,
}

impl Share {
    fn of(shares: &[f64]) -> Option<Self> {
        let interval = headline_interval(shares, None)?;
        Some(Self { value: headline(shares), low: interval.lower, high: interval.upper, rounds: shares.len() })
    }

    /// `98 % (97 % to 99 %)`.
    fn words(&self) -> String {
        format!("{} ({} to {})", percent(self.value), percent(self.low.max(0.0)), percent(self.high))
    }

    fn is_beyond(&self, limit: f64) -> Option<bool> {
        beyond(self.low, self.high, limit)
    }
}

/// Which host is the limit of streams.
struct Limit {
    /// `is CPU-limited by this host`.
    claim: String,
    /// How busy this host was, and the agent's.
    busy: [Share; 2],
    holds: Option<bool>,
    test: String,
}

struct Peer<'r> {
    run: &'r Run,
    desk: Desk<'r>,
}

impl<'r> Peer<'r> {
    fn all(&self, metric: &str) -> Vec<(&'r Case, Vec<f64>)> {
        rounds(self.run, &self.desk, metric)
    }

    fn at(&self, metric: &str, case: &Case) -> Option<Vec<f64>> {
        self.all(metric).into_iter().find(|(known, _)| *known == case).map(|(_, rounds)| rounds)
    }

    fn streams(&self) -> Vec<Stream<'r>> {
        let of = |(case, rounds): (&'r Case, Vec<f64>)| Some(Stream { case, count: case.integer("streams")?, rounds });
        self.all(RATE).into_iter().filter_map(of).collect()
    }

    /// What streams carried, how much that is of the link, and which host is the limit, as far as each is known.
    fn in_words(&self, stream: &Stream<'_>) -> String {
        let of_link = |(share, _): (Share, _)| format!(", {} of what the link can", percent(share.value));
        let link = self.of_link(stream).map_or_else(String::new, of_link);
        let limit = match self.limited(stream).filter(|limit| limit.holds.is_some()) {
            Some(Limit { claim, busy, .. }) => {
                let [here, there] = busy.map(|share| percent(share.value));
                format!(" and {claim} (the test fills {here} of a CPU here, {there} there)")
            }
            None => String::new(),
        };
        format!("{}{link}{limit}", stream.carried_in_words())
    }

    /// The share of what the link carries that arrived, where that is known.
    fn of_link(&self, stream: &Stream<'_>) -> Option<(Share, &'r Prediction)> {
        let prediction =
            self.run.prediction(RATE, stream.case)?.prediction.as_ref().filter(|known| known.value > 0.0)?;
        let shares: Vec<f64> = stream.rounds.iter().map(|rate| rate / prediction.value).collect();
        Some((Share::of(&shares)?, prediction))
    }

    /// Whether the link is what streams fill.
    fn carried(&self, stream: &Stream<'_>) -> Option<Conclusion> {
        let (share, prediction) = self.of_link(stream)?;
        let most = prediction.low / prediction.value;
        Some(Conclusion {
            text: format!(
                "{} carried {} and more of what the link can: {}, {} of {}",
                stream.words(),
                percent(most),
                share.words(),
                plain(headline(&stream.rounds), Unit::BytesPerSecond),
                plain(prediction.value, Unit::BytesPerSecond)
            ),
            holds: share.is_beyond(most),
            test: format!("median of {} rounds and its interval, over {}", share.rounds, prediction.derivation),
        })
    }

    /// Which host is the limit of streams, as a statement.
    fn limit(&self, stream: &Stream<'_>) -> Option<Conclusion> {
        let Limit { claim, busy: [here, there], holds, test } = self.limited(stream)?;
        let text = format!(
            "{} {claim}: the test fills {} of a CPU of this host, and {} of one of the agent's host",
            stream.words(),
            here.words(),
            there.words()
        );
        Some(Conclusion { text, holds, test })
    }

    /// Which host has a CPU that is full of the streams, if one has.
    fn limited(&self, stream: &Stream<'_>) -> Option<Limit> {
        let [here, there] = BUSY.map(|metric| self.at(metric, stream.case).and_then(|shares| Share::of(&shares)));
        let (here, there) = (here?, there?);
        let are = if stream.count == 1 { "is" } else { "are" };
        let (claim, holds) = match [&here, &there].map(|share| share.is_beyond(FULL)) {
            [Some(true), Some(true)] => ("CPU-limited by both hosts", Some(true)),
            [Some(true), _] => ("CPU-limited by this host", Some(true)),
            [_, Some(true)] => ("CPU-limited by the agent's host", Some(true)),
            // A statement of its own, which holds.
            [Some(false), Some(false)] => ("limited by no host's CPU", Some(true)),
            _ => ("CPU-limited by a host", None),
        };
        Some(Limit {
            claim: format!("{are} {claim}"),
            holds,
            test: format!("medians of {} rounds and their intervals against {}", here.rounds, percent(FULL)),
            busy: [here, there],
        })
    }

    /// What a program at the other end costs beside its kernel, which answers echo requests.
    fn program(&self, &(protocol, name): &(&'static str, &str)) -> Option<Conclusion> {
        let ping = self.at("net.peer.ping", &Case::new().with("message", SMALL))?;
        let ratio = Ratio::of(&ping, &self.trip(protocol)?)?;
        let text = format!(
            "a round trip of {SMALL} B to a program there over {name} takes longer than an echo request that its kernel \
             answers: {}, {}",
            ratio.times(),
            ratio.amounts(Unit::Nanoseconds)
        );
        Some(ratio.above(1.0, text))
    }

    /// The rounds of a round trip of a small message.
    fn trip(&self, protocol: &'static str) -> Option<Vec<f64>> {
        self.at("net.peer.rtt", &Case::new().with_word("protocol", protocol).with("message", SMALL))
    }

    /// Whether datagrams get lost when the sender does not wait.
    fn lost_unpaced(&self) -> Vec<Conclusion> {
        let of = |(case, shares): (&Case, Vec<f64>)| {
            let message = case.integer("message").map(bytes)?;
            lost_beyond(
                &shares,
                &format!("of datagrams of {message} to the agent are lost if the sender does not wait"),
            )
        };
        self.all("net.peer.bandwidth.udp.lost").into_iter().filter_map(of).collect()
    }

    /// Whether datagrams arrive that are sent at an even rate, by the rate that was offered, the lowest first.
    fn arrives(&self) -> Vec<(u64, Conclusion)> {
        let of = |(case, shares): (&Case, Vec<f64>)| {
            let (offered, lost) = (case.integer("offered")?, Share::of(&shares)?);
            let sent = self.at("net.peer.offered.sent", case)?;
            let conclusion = Conclusion {
                text: format!(
                    "datagrams sent evenly at {} ({} Mbit/s offered) arrive but for {} at most: {} are lost",
                    plain(headline(&sent), Unit::BytesPerSecond),
                    number(offered as f64 / 1e6),
                    percent(LOST),
                    lost.words()
                ),
                holds: lost.is_beyond(LOST).map(|is_beyond| !is_beyond),
                test: format!("median of {} rounds and its interval", lost.rounds),
            };
            Some((offered, conclusion))
        };
        let mut all: Vec<(u64, Conclusion)> = self.all("net.peer.offered.lost").into_iter().filter_map(of).collect();
        all.sort_by_key(|(offered, _)| *offered);
        all
    }

    /// How much longer a message takes while a stream fills the way.
    fn waiting(&self) -> Option<Conclusion> {
        let ratio = Ratio::of(&self.trip("tcp")?, &self.at("net.peer.loaded", &Case::new())?)?;
        let text = format!(
            "beside a stream that fills the way a round trip of {SMALL} B takes more than {TWICE} times as long, in buffers: \
             {}, {}",
            ratio.times(),
            ratio.amounts(Unit::Nanoseconds)
        );
        Some(ratio.above(TWICE, text))
    }
}
