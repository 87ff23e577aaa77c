//! The network to another host: its rate and whether link or hosts limit it, the gain of more streams, the cost of a program
//! over its kernel, losses, and how long a message waits behind a stream.

use kelvin_core::catalogue::net::{
    MESSAGE, OFFERED_RATE, PEER_BANDWIDTH, PEER_BANDWIDTH_BUSY_HERE, PEER_BANDWIDTH_BUSY_THERE,
    PEER_BANDWIDTH_UDP_LOST, PEER_LOADED, PEER_OFFERED_LOST, PEER_OFFERED_SENT, PEER_PING, PEER_RTT, STREAMS,
    Transport,
};
use kelvin_core::{Case, Claim, Conclusion, Name, RatioQuestion, ShareQuestion, TestEvidence};

use super::crossing::without_axes;
use super::network::{DOUBLED_TIME, MIN_LOST_SHARE, SMALL_MESSAGE, loss_conclusions};
use super::{FULL_CPU_SHARE, find_conclusion};
use crate::evidence::{
    Evidence, LimitSide, RatioTest, RoundHeadlines, TestedFigure, outcome_of_p_value, p_value_of_all, p_value_of_any,
    share_conclusion,
};
use crate::result::Study;

/// The study.
pub(crate) const PEER_STUDY: Name = Name::new("net.peer");

/// Conclusions from `net.peer.*`.
pub(crate) fn peer(evidence: &Evidence<'_>) -> Option<Study> {
    let streams = evidence.all_cases(&PEER_BANDWIDTH);
    let of_streams = fastest_streams(&streams)
        .into_iter()
        .flat_map(|stream| [link_saturation(evidence, stream), host_limit(evidence, stream)]);
    let conclusions = of_streams
        .flatten()
        .chain(more_streams(&streams))
        .chain(Transport::ALL.iter().filter_map(|&transport| program_cost(evidence, transport)))
        .chain(loss_conclusions(evidence, &PEER_BANDWIDTH_UDP_LOST, ShareQuestion::DatagramsLostToHost))
        .chain(paced_loss(evidence))
        .chain(queueing_delay(evidence));
    let design = format!(
        "Bytes were sent to another host, and from it, as fast as possible over several numbers of TCP connections, and counted \
         on arrival, while both hosts were watched for a thread or CPU without idle time. Messages of {SMALL_MESSAGE} B went to a program \
         there and back, alone and beside a stream, and echo requests to its kernel. Datagrams were sent as fast as possible and \
         paced. Each in several rounds."
    );
    Study::new(PEER_STUDY, design, conclusions.collect())
}

/// The essentials of the path to the other host: what the fastest streams of each direction carried, with the link's share and
/// the limit, if known; and what tests support.
pub(crate) struct PeerEssentials {
    pub streams: Vec<StreamEssentials>,
    pub certain: Vec<Conclusion>,
}

/// What streams in one direction carried.
pub(crate) struct StreamEssentials {
    pub rate: kelvin_core::MetricValue,
    pub interval: Option<kelvin_core::Estimate>,
    /// Share of the link.
    pub link_share: Option<Conclusion>,
    /// Which host is the limit, if known.
    pub limit: Option<Conclusion>,
}

pub(crate) fn peer_essentials(evidence: &Evidence<'_>, studies: &[Study]) -> Option<PeerEssentials> {
    let streams = evidence.all_cases(&PEER_BANDWIDTH);
    let among_all = |one: Conclusion| find_conclusion(studies, &one.claim).map(|one| one.conclusion.clone());
    let is_sure = |conclusion: &Conclusion| conclusion.holds == Some(true);
    let of_stream = |stream: &RoundHeadlines<'_>| StreamEssentials {
        rate: stream.metric_value(),
        interval: stream.estimate(),
        link_share: link_saturation(evidence, stream).and_then(among_all),
        limit: host_limit(evidence, stream).and_then(among_all).filter(|limit| limit.holds.is_some()),
    };
    let highest = paced_loss(evidence).into_iter().filter_map(among_all).rfind(is_sure);
    let more = more_streams(&streams).into_iter().chain(program_cost(evidence, Transport::Tcp));
    let lost = loss_conclusions(evidence, &PEER_BANDWIDTH_UDP_LOST, ShareQuestion::DatagramsLostToHost);
    let sure = more.chain(lost).chain(highest).chain(queueing_delay(evidence)).filter_map(among_all).filter(is_sure);
    let sure = sure.collect::<Vec<_>>();
    let streams: Vec<StreamEssentials> = fastest_streams(&streams).into_iter().map(of_stream).collect();
    (!streams.is_empty() || !sure.is_empty()).then_some(PeerEssentials { streams, certain: sure })
}

/// For each direction the number of streams that carried most.
fn fastest_streams<'a, 'r>(streams: &'a [RoundHeadlines<'r>]) -> Vec<&'a RoundHeadlines<'r>> {
    let held = |stream: &RoundHeadlines<'_>| without_axes(stream.case, &[STREAMS]);
    let mut best: Vec<&RoundHeadlines<'r>> = Vec::new();
    for stream in streams.iter().filter(|stream| STREAMS.number_in(stream.case).is_some()) {
        match best.iter_mut().find(|known| held(known) == held(stream)) {
            Some(known) if known.headline() < stream.headline() => *known = stream,
            Some(_) => {}
            None => best.push(stream),
        }
    }
    best
}

/// Whether the most streams carry more than one, by direction.
fn more_streams(streams: &[RoundHeadlines<'_>]) -> Vec<Conclusion> {
    let held = |stream: &RoundHeadlines<'_>| without_axes(stream.case, &[STREAMS]);
    let count = |stream: &RoundHeadlines<'_>| STREAMS.number_in(stream.case).unwrap_or(0);
    let beside = |one: &RoundHeadlines<'_>| {
        let same = streams.iter().filter(|other| held(other) == held(one) && count(other) > 1);
        RatioTest::above(RatioQuestion::MoreStreamsToHost, 1.0).test(one, same.max_by_key(|other| count(other))?)
    };
    streams.iter().filter(|stream| count(stream) == 1).filter_map(beside).collect()
}

/// Whether streams saturate the link, if its capacity is known.
fn link_saturation(evidence: &Evidence<'_>, stream: &RoundHeadlines<'_>) -> Option<Conclusion> {
    let record = evidence.run.prediction(&PEER_BANDWIDTH.id, stream.case)?;
    let prediction = record.prediction.as_ref().filter(|known| known.value > 0.0)?;
    let shares = stream.clone().scaled(1.0 / prediction.value);
    let most = prediction.low / prediction.value;
    let conclusion = share_conclusion(ShareQuestion::LinkUsed, stream.metric_value(), &shares, most, LimitSide::Above)?;
    let test = TestEvidence::Median { rounds: shares.values.len(), over: Some(prediction.derivation.clone()) };
    Some(Conclusion { evidence: test, ..conclusion })
}

/// Which host has a CPU saturated by the streams, if one has.
fn host_limit(evidence: &Evidence<'_>, stream: &RoundHeadlines<'_>) -> Option<Conclusion> {
    let here = evidence.rounds_at(&PEER_BANDWIDTH_BUSY_HERE, stream.case)?;
    let weighed =
        [here.tested_figure()?, evidence.rounds_at(&PEER_BANDWIDTH_BUSY_THERE, stream.case)?.tested_figure()?];
    let busy = weighed.map(|share| share.estimate);
    let full = busy.map(|share| share.is_above(FULL_CPU_SHARE));
    // That neither host is the limit is a claim that holds.
    let is_known = full.contains(&Some(true)) || full == [Some(false); 2];
    Some(Conclusion {
        claim: Claim::HostLimit { of: stream.metric_value(), busy, full: FULL_CPU_SHARE },
        holds: is_known.then_some(true),
        evidence: TestEvidence::Median { rounds: here.values.len(), over: None },
        tested: outcome_of_p_value(limit_p_value(&weighed, &full)),
    })
}

/// The chance by which the answer stands: of the one that is full, among two; or of both that are not.
fn limit_p_value(busy: &[TestedFigure; 2], full: &[Option<bool>; 2]) -> Option<f64> {
    let of_full = busy
        .iter()
        .zip(full)
        .filter(|(_, is_full)| **is_full == Some(true))
        .map(|(share, _)| share.p_value(FULL_CPU_SHARE));
    match full.contains(&Some(true)) {
        true => p_value_of_any(of_full, busy.len()),
        false => p_value_of_all(busy.iter().map(|share| share.p_value(FULL_CPU_SHARE))),
    }
}

/// The cost of a remote program over its kernel, which answers echo requests.
fn program_cost(evidence: &Evidence<'_>, transport: Transport) -> Option<Conclusion> {
    let ping = evidence.rounds_at(&PEER_PING, &Case::new().with_number(MESSAGE, SMALL_MESSAGE))?;
    RatioTest::above(RatioQuestion::ProgramBesideKernel, 1.0).test(&ping, &small_round_trip(evidence, transport)?)
}

/// The rounds of a round trip of a small message.
fn small_round_trip<'r>(evidence: &Evidence<'r>, transport: Transport) -> Option<RoundHeadlines<'r>> {
    evidence.rounds_at(&PEER_RTT, &Case::new().with_word(transport).with_number(MESSAGE, SMALL_MESSAGE))
}

/// Whether paced datagrams arrive, by the offered rate, the lowest first.
fn paced_loss(evidence: &Evidence<'_>) -> Vec<Conclusion> {
    let mut all = evidence.all_cases(&PEER_OFFERED_LOST);
    all.retain(|lost| OFFERED_RATE.number_in(lost.case).is_some());
    all.sort_by_key(|lost| OFFERED_RATE.number_in(lost.case));
    let of = |lost: &RoundHeadlines<'_>| {
        let sent = evidence.rounds_at(&PEER_OFFERED_SENT, lost.case)?;
        share_conclusion(ShareQuestion::PacedDatagramsLost, sent.metric_value(), lost, MIN_LOST_SHARE, LimitSide::Below)
    };
    all.iter().filter_map(of).collect()
}

/// How much longer a message takes beside a saturating stream.
fn queueing_delay(evidence: &Evidence<'_>) -> Option<Conclusion> {
    let loaded = evidence.rounds_at(&PEER_LOADED, &Case::new())?;
    RatioTest::above(RatioQuestion::WaitBehindStream, DOUBLED_TIME)
        .test(&small_round_trip(evidence, Transport::Tcp)?, &loaded)
}
