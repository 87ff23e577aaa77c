//! The network to another host: its rate and whether link or hosts limit it, the gain of more streams, the cost of a program
//! over its kernel, losses, and how long a message waits behind a stream.

use kelvin_catalogue::net::{
    MESSAGE, OFFERED, PEER_BANDWIDTH, PEER_BANDWIDTH_BUSY_HERE, PEER_BANDWIDTH_BUSY_THERE, PEER_BANDWIDTH_UDP_LOST,
    PEER_LOADED, PEER_OFFERED_LOST, PEER_OFFERED_SENT, PEER_PING, PEER_RTT, STREAMS, Transport,
};
use kelvin_model::{Case, Claim, Conclusion, Name, RatioQuestion, ShareQuestion, Test};

use super::crossing::without;
use super::network::{LOST, SMALL, TWICE, lost};
use super::{FULL, concluded};
use crate::evidence::{Ask, Beyond, Evidence, Rounds, Weighed, chance_of_all, chance_of_any, decided_by, share};
use crate::result::Study;

/// The study.
pub(crate) const PEER: Name = Name::new("net.peer");

/// Conclusions from `net.peer.*`.
pub(crate) fn peer(evidence: &Evidence<'_>) -> Option<Study> {
    let streams = evidence.all(&PEER_BANDWIDTH);
    let of_streams =
        fastest(&streams).into_iter().flat_map(|stream| [carried(evidence, stream), limit(evidence, stream)]);
    let conclusions = of_streams
        .flatten()
        .chain(more_streams(&streams))
        .chain(Transport::ALL.iter().filter_map(|&transport| program(evidence, transport)))
        .chain(lost(evidence, &PEER_BANDWIDTH_UDP_LOST, ShareQuestion::DatagramsLostToHost))
        .chain(arrives(evidence))
        .chain(waiting(evidence));
    let design = format!(
        "Bytes were sent to another host, and from it, as fast as possible over several numbers of TCP connections, and counted \
         on arrival, while both hosts were watched for a thread or CPU without idle time. Messages of {SMALL} B went to a program \
         there and back, alone and beside a stream, and echo requests to its kernel. Datagrams were sent as fast as possible and \
         paced. Each in several rounds."
    );
    Study::new(PEER, design, conclusions.collect())
}

/// The essentials of the path to the other host: what the fastest streams of each direction carried, with the link's share and
/// the limit, if known; and what tests support.
pub(crate) struct Essence {
    pub streams: Vec<EssentialStream>,
    pub sure: Vec<Conclusion>,
}

/// What streams in one direction carried.
pub(crate) struct EssentialStream {
    pub rate: kelvin_model::Side,
    pub interval: Option<kelvin_model::Estimate>,
    /// Share of the link.
    pub carried: Option<Conclusion>,
    /// Which host is the limit, if known.
    pub limit: Option<Conclusion>,
}

pub(crate) fn essence(evidence: &Evidence<'_>, studies: &[Study]) -> Option<Essence> {
    let streams = evidence.all(&PEER_BANDWIDTH);
    let among_all = |one: Conclusion| concluded(studies, &one.claim).map(|one| one.conclusion.clone());
    let is_sure = |conclusion: &Conclusion| conclusion.holds == Some(true);
    let of_stream = |stream: &Rounds<'_>| EssentialStream {
        rate: stream.side(),
        interval: stream.estimate(),
        carried: carried(evidence, stream).and_then(among_all),
        limit: limit(evidence, stream).and_then(among_all).filter(|limit| limit.holds.is_some()),
    };
    let highest = arrives(evidence).into_iter().filter_map(among_all).rfind(is_sure);
    let more = more_streams(&streams).into_iter().chain(program(evidence, Transport::Tcp));
    let lost = lost(evidence, &PEER_BANDWIDTH_UDP_LOST, ShareQuestion::DatagramsLostToHost);
    let sure = more.chain(lost).chain(highest).chain(waiting(evidence)).filter_map(among_all).filter(is_sure);
    let sure = sure.collect::<Vec<_>>();
    let streams: Vec<EssentialStream> = fastest(&streams).into_iter().map(of_stream).collect();
    (!streams.is_empty() || !sure.is_empty()).then_some(Essence { streams, sure })
}

/// For each direction the number of streams that carried most.
fn fastest<'a, 'r>(streams: &'a [Rounds<'r>]) -> Vec<&'a Rounds<'r>> {
    let held = |stream: &Rounds<'_>| without(stream.case, &[STREAMS]);
    let mut best: Vec<&Rounds<'r>> = Vec::new();
    for stream in streams.iter().filter(|stream| STREAMS.of(stream.case).is_some()) {
        match best.iter_mut().find(|known| held(known) == held(stream)) {
            Some(known) if known.headline() < stream.headline() => *known = stream,
            Some(_) => {}
            None => best.push(stream),
        }
    }
    best
}

/// Whether the most streams carry more than one, by direction.
fn more_streams(streams: &[Rounds<'_>]) -> Vec<Conclusion> {
    let held = |stream: &Rounds<'_>| without(stream.case, &[STREAMS]);
    let count = |stream: &Rounds<'_>| STREAMS.of(stream.case).unwrap_or(0);
    let beside = |one: &Rounds<'_>| {
        let same = streams.iter().filter(|other| held(other) == held(one) && count(other) > 1);
        Ask::above(RatioQuestion::MoreStreamsToHost, 1.0).of(one, same.max_by_key(|other| count(other))?)
    };
    streams.iter().filter(|stream| count(stream) == 1).filter_map(beside).collect()
}

/// Whether streams saturate the link, if its capacity is known.
fn carried(evidence: &Evidence<'_>, stream: &Rounds<'_>) -> Option<Conclusion> {
    let record = evidence.run.prediction(&PEER_BANDWIDTH.id, stream.case)?;
    let prediction = record.prediction.as_ref().filter(|known| known.value > 0.0)?;
    let shares = stream.clone().times(1.0 / prediction.value);
    let most = prediction.low / prediction.value;
    let conclusion = share(ShareQuestion::LinkUsed, stream.side(), &shares, most, Beyond::Above)?;
    let test = Test::Median { rounds: shares.values.len(), over: Some(prediction.derivation.clone()) };
    Some(Conclusion { evidence: test, ..conclusion })
}

/// Which host has a CPU saturated by the streams, if one has.
fn limit(evidence: &Evidence<'_>, stream: &Rounds<'_>) -> Option<Conclusion> {
    let here = evidence.at(&PEER_BANDWIDTH_BUSY_HERE, stream.case)?;
    let weighed = [here.weighed()?, evidence.at(&PEER_BANDWIDTH_BUSY_THERE, stream.case)?.weighed()?];
    let busy = weighed.map(|share| share.estimate);
    let full = busy.map(|share| share.is_above(FULL));
    // That neither host is the limit is a claim that holds.
    let is_known = full.contains(&Some(true)) || full == [Some(false); 2];
    Some(Conclusion {
        claim: Claim::HostLimit { of: stream.side(), busy, full: FULL },
        holds: is_known.then_some(true),
        evidence: Test::Median { rounds: here.values.len(), over: None },
        tested: decided_by(chance_of_limit(&weighed, &full)),
    })
}

/// The chance by which the answer stands: of the one that is full, among two; or of both that are not.
fn chance_of_limit(busy: &[Weighed; 2], full: &[Option<bool>; 2]) -> Option<f64> {
    let of_full =
        busy.iter().zip(full).filter(|(_, is_full)| **is_full == Some(true)).map(|(share, _)| share.chance(FULL));
    match full.contains(&Some(true)) {
        true => chance_of_any(of_full, busy.len()),
        false => chance_of_all(busy.iter().map(|share| share.chance(FULL))),
    }
}

/// The cost of a remote program over its kernel, which answers echo requests.
fn program(evidence: &Evidence<'_>, transport: Transport) -> Option<Conclusion> {
    let ping = evidence.at(&PEER_PING, &Case::new().with(MESSAGE, SMALL))?;
    Ask::above(RatioQuestion::ProgramBesideKernel, 1.0).of(&ping, &trip(evidence, transport)?)
}

/// The rounds of a round trip of a small message.
fn trip<'r>(evidence: &Evidence<'r>, transport: Transport) -> Option<Rounds<'r>> {
    evidence.at(&PEER_RTT, &Case::new().at(transport).with(MESSAGE, SMALL))
}

/// Whether paced datagrams arrive, by the offered rate, the lowest first.
fn arrives(evidence: &Evidence<'_>) -> Vec<Conclusion> {
    let mut all = evidence.all(&PEER_OFFERED_LOST);
    all.retain(|lost| OFFERED.of(lost.case).is_some());
    all.sort_by_key(|lost| OFFERED.of(lost.case));
    let of = |lost: &Rounds<'_>| {
        let sent = evidence.at(&PEER_OFFERED_SENT, lost.case)?;
        share(ShareQuestion::PacedDatagramsLost, sent.side(), lost, LOST, Beyond::Below)
    };
    all.iter().filter_map(of).collect()
}

/// How much longer a message takes beside a saturating stream.
fn waiting(evidence: &Evidence<'_>) -> Option<Conclusion> {
    let loaded = evidence.at(&PEER_LOADED, &Case::new())?;
    Ask::above(RatioQuestion::WaitBehindStream, TWICE).of(&trip(evidence, Transport::Tcp)?, &loaded)
}
