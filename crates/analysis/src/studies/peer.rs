//! The network to another host: its rate and whether link or hosts limit it, the gain of more streams, the cost of a program
//! over its kernel, losses, and how long a message waits behind a stream.

use kelvin_core::IndirectSort;
use kelvin_core::catalogue::net::*;

use super::crossing::{MetricLine, lines};
use super::network::{DOUBLED_TIME, MIN_LOST_SHARE, SMALL_MESSAGE, datagrams_lost, full_cpu_p_value, message_text};
use super::{FULL_CPU_SHARE, find_conclusion};
use crate::growth_end::{MAX_FURTHER_GAIN, growth_end};
use crate::prelude::*;

/// The study.
pub(crate) const PEER_STUDY: Name = Name::new("net.peer");

/// Conclusions from `net.peer.*`.
pub(crate) fn peer(evidence: &Evidence<'_>) -> Option<Study> {
    let streams = evidence.all_cases(&PEER_BANDWIDTH);
    let stream_conclusions = fastest_streams(streams)
        .into_iter()
        .flat_map(|stream| [link_saturation(evidence, stream), host_limit(evidence, stream)]);
    let conclusions = stream_conclusions
        .flatten()
        .chain(more_streams(streams))
        .chain(end_of_growth(evidence, streams))
        .chain(Transport::ALL.iter().filter_map(|&transport| program_cost(evidence, transport)))
        .chain(losses(evidence))
        .chain(paced_loss(evidence))
        .chain(queueing_delay(evidence));
    let design = format!(
        "Bytes were sent to another host, and from it, as fast as possible over several numbers of TCP connections, and counted \
         on arrival, while both hosts were watched for a thread or CPU without idle time. Messages of {SMALL_MESSAGE} B went to a program \
         there and back, alone and during a stream, and echo requests to its kernel. Datagrams were sent as fast as possible and \
         paced. Each in several rounds."
    );
    Study::new(PEER_STUDY, design, conclusions.collect())
}

/// The essentials of the path to the other host: what the fastest streams of each direction carried, with the link's share and
/// the limit, if known; and what tests support.
pub(crate) fn essential_sentences(evidence: &Evidence<'_>, studies: &[Study]) -> Vec<String> {
    let streams = evidence.all_cases(&PEER_BANDWIDTH);
    let corrected = |conclusion: StatedConclusion| find_conclusion(studies, &conclusion.claim);
    let is_sure = |conclusion: &&StatedConclusion| conclusion.holds == Some(true);
    // `4 TCP streams to the agent carry 117 MB/s (116 MB/s to 118 MB/s), 98 % of the link`.
    let stream_sentence = |stream: &RoundHeadlines<'_>| {
        let is_single = STREAMS.number_in(stream.case) == Some(1);
        let rate = |value| value_text(value, stream.metric.unit);
        let rate_text =
            stream.estimate().map_or_else(|| rate(stream.headline()), |estimate| span_text(&estimate, rate));
        let link = link_saturation(evidence, stream).and_then(corrected);
        let link = link.map_or_else(String::new, |conclusion| match &conclusion.claim {
            Claim::Share { share, .. } => format!(", {} of the link", percent(share.value)),
            _ => String::new(),
        });
        let limit = host_limit(evidence, stream).and_then(corrected).filter(|limit| limit.holds.is_some());
        let limit = limit.map_or_else(String::new, |conclusion| match &conclusion.claim {
            Claim::HostLimit { busy, full, .. } => {
                let verb = if is_single { "is" } else { "are" };
                let [local_share, remote_share] = busy.map(|share| percent(share.value));
                let limit = limiting_host(busy.map(|share| share.is_above(*full)));
                format!(" and {verb} {limit} (the test uses {local_share} of a CPU here, {remote_share} there)")
            }
            _ => String::new(),
        });
        let carry = if is_single { "carries" } else { "carry" };
        format!("{} {carry} {rate_text}{link}{limit}", streams_text(stream.case))
    };
    let highest = paced_loss(evidence).into_iter().filter_map(corrected).rfind(is_sure);
    let other_conclusions = more_streams(streams)
        .into_iter()
        .chain(end_of_growth(evidence, streams))
        .chain(program_cost(evidence, Transport::Tcp))
        .chain(losses(evidence));
    let candidates = other_conclusions.filter_map(corrected).chain(highest);
    let certain_texts = candidates
        .chain(queueing_delay(evidence).and_then(corrected))
        .filter(is_sure)
        .map(|conclusion| conclusion.text.clone());
    fastest_streams(streams).into_iter().map(stream_sentence).chain(certain_texts).collect()
}

/// `4 TCP streams to the agent`.
fn streams_text(case: &Case) -> String {
    format!("{} {}", counted_text(STREAMS.number_in(case).unwrap_or(1), "TCP stream"), direction_text(case))
}

fn direction_text(case: &Case) -> &'static str {
    match StreamDirection::of(case) {
        Some(StreamDirection::FromAgent) => "from the agent",
        _ => "to the agent",
    }
}

/// For each direction the number of streams that carried most.
fn fastest_streams<'a, 'r>(streams: &'a [RoundHeadlines<'r>]) -> Vec<&'a RoundHeadlines<'r>> {
    let faster_of = |best: &'a RoundHeadlines<'r>, next: &'a RoundHeadlines<'r>| {
        if best.headline() < next.headline() { next } else { best }
    };
    let fastest = |line: MetricLine<'a, 'r>| line.points.into_iter().map(|(_, stream)| stream).reduce(faster_of);
    lines(streams, STREAMS).into_iter().filter_map(fastest).collect()
}

/// Whether the most streams carry more than one, by direction.
fn more_streams(streams: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    let gain = |line: MetricLine<'_, '_>| {
        let [(1, single), .., (_, multiple)] = line.points[..] else { return None };
        let answer = RatioTest::above(RatioQuestion::MoreStreamsToHost, 1.0).test(single, multiple)?;
        Some(answer.conclude_times(&format!("{} carry more than one", streams_text(multiple.case)), "as much"))
    };
    lines(streams, STREAMS).into_iter().filter_map(gain).collect()
}

/// From how many streams on more of them carry no more, by direction, and what limits them.
fn end_of_growth(evidence: &Evidence<'_>, streams: &[RoundHeadlines<'_>]) -> Vec<StatedConclusion> {
    lines(streams, STREAMS).iter().filter_map(|line| line_growth(evidence, line)).collect()
}

/// That the rate stops growing at the knee of three numbers of streams and more; where there is none, at the last but one, of which the
/// claim does not hold.
fn line_growth(evidence: &Evidence<'_>, line: &MetricLine<'_, '_>) -> Option<StatedConclusion> {
    let [_, .., (before_last, _), _] = line.points[..] else { return None };
    let count = growth_end(line, STREAMS).map_or(before_last, |knee| knee.at);
    let end = line.rounds_at(count)?;
    let beyond = line.points.iter().filter(|point| point.0 > count).map(|&(_, stream)| stream);
    let beyond = beyond.max_by(|first, second| first.headline().total_cmp(&second.headline()))?;
    let test = RatioTest::below(RatioQuestion::FurtherStreamsToHost, MAX_FURTHER_GAIN).chosen_among(line.points.len());
    let answer = test.test(end, beyond)?;
    let is_full = tested_busy(evidence, beyond).map(|busy| busy.map(|share| share.estimate.is_above(FULL_CPU_SHARE)));
    let limit = match is_full {
        Some([Some(false), Some(false)]) => ", limited by the link or a shaper on it".to_owned(),
        Some(is_full) if is_full.contains(&Some(true)) => format!(", {}", limiting_host(is_full)),
        _ => String::new(),
    };
    let (direction, times) = (direction_text(end.case), answer.times("as much"));
    let text = format!(
        "the rate of TCP streams {direction} stops growing at {count}{limit}: {} carry {times}",
        streams_text(beyond.case)
    );
    Some(answer.conclude(text))
}

/// How busy this host and the agent's were with streams.
fn tested_busy(evidence: &Evidence<'_>, stream: &RoundHeadlines<'_>) -> Option<[TestedFigure; 2]> {
    let tested = |metric: &Metric| evidence.rounds_at(metric, stream.case)?.tested_figure();
    Some([tested(&PEER_BANDWIDTH_BUSY_HERE)?, tested(&PEER_BANDWIDTH_BUSY_THERE)?])
}

/// Whether streams saturate the link, if its capacity is known: one stream is predicted by that alone.
fn link_saturation(evidence: &Evidence<'_>, stream: &RoundHeadlines<'_>) -> Option<StatedConclusion> {
    let record = evidence.run.prediction(&PEER_BANDWIDTH.id, &stream.case.clone().with_number(STREAMS, 1))?;
    let prediction = record.prediction.as_ref().filter(|candidate| candidate.value > 0.0)?;
    let shares = stream.clone().scaled(1.0 / prediction.value);
    let limit = prediction.low / prediction.value;
    let tested = shares.tested_figure()?;
    let (figure, share) = (stream.metric_value(), tested.estimate);
    let (streams, limit_text) = (streams_text(stream.case), percent(limit));
    let (used, rate, link) =
        (share_text(&share), amount_text(&figure), value_text(figure.value / share.value, figure.unit));
    let text = format!("{streams} used at least {limit_text} of the link: {used}, {rate} of {link}");
    let source = Some(prediction.derivation.clone());
    let test = ClaimTest::median(shares.values.len(), source, tested.test(limit, None));
    let claim = Claim::Share { question: ShareQuestion::LinkUsed, figure, share, limit };
    Some(test.conclude(claim, share.is_above(limit), text))
}

/// Which host has a CPU saturated by the streams, if one has.
fn host_limit(evidence: &Evidence<'_>, stream: &RoundHeadlines<'_>) -> Option<StatedConclusion> {
    let rounds = evidence.rounds_at(&PEER_BANDWIDTH_BUSY_HERE, stream.case)?.values.len();
    let tested = tested_busy(evidence, stream)?;
    let busy = tested.map(|share| share.estimate);
    let is_full = busy.map(|share| share.is_above(FULL_CPU_SHARE));
    // That neither host is the limit is a claim that holds.
    let is_known = is_full.contains(&Some(true)) || is_full == [Some(false); 2];
    // The chance by which the answer stands: of the one that is full, among two; or of both that are not.
    let chance = full_cpu_p_value(&tested, is_full.contains(&Some(true)).then_some(true));
    let (streams, limit, [local_share, remote_share]) =
        (streams_text(stream.case), limiting_host(is_full), busy.map(|share| share_text(&share)));
    let verb = if STREAMS.number_in(stream.case) == Some(1) { "is" } else { "are" };
    let text = format!(
        "{streams} {verb} {limit}: the test uses {local_share} of a CPU on this host, and {remote_share} of one on the agent's host"
    );
    let test = ClaimTest::median(rounds, None, outcome_of_p_value(chance));
    let claim = Claim::HostLimit { figure: stream.metric_value(), busy, full: FULL_CPU_SHARE };
    Some(test.conclude(claim, is_known.then_some(true), text))
}

/// Which host's CPU limits streams, by whether that of this host and of the other one is full.
fn limiting_host(is_full: [Option<bool>; 2]) -> &'static str {
    match is_full {
        [Some(true), Some(true)] => "CPU-limited on both hosts",
        [Some(true), _] => "CPU-limited on this host",
        [_, Some(true)] => "CPU-limited on the agent's host",
        [Some(false), Some(false)] => "CPU-limited on neither host",
        _ => "CPU-limited on one of the hosts",
    }
}

/// The cost of a remote program over its kernel, which answers echo requests.
fn program_cost(evidence: &Evidence<'_>, transport: Transport) -> Option<StatedConclusion> {
    let ping = evidence.rounds_at(&PEER_PING, &Case::new().with_number(MESSAGE, SMALL_MESSAGE))?;
    let trip = small_round_trip(evidence, transport)?;
    let answer = RatioTest::above(RatioQuestion::ProgramAgainstKernel, 1.0).test(ping, trip)?;
    let claim = format!(
        "a round trip of {} over {} to a program on that host takes longer than an echo request to its kernel",
        message_text(ping.case),
        if transport == Transport::Udp { "UDP" } else { "TCP" }
    );
    Some(answer.conclude_times(&claim, "as long"))
}

/// The rounds of a round trip of a small message.
fn small_round_trip<'e, 'r>(evidence: &'e Evidence<'r>, transport: Transport) -> Option<&'e RoundHeadlines<'r>> {
    evidence.rounds_at(&PEER_RTT, &Case::new().with_word(transport).with_number(MESSAGE, SMALL_MESSAGE))
}

/// Whether datagrams to the agent are lost when the sender does not wait.
fn losses(evidence: &Evidence<'_>) -> Vec<StatedConclusion> {
    let rates = evidence.all_cases(&PEER_BANDWIDTH_UDP_LOST).iter();
    rates.filter_map(|lost| datagrams_lost(lost, ShareQuestion::DatagramsLostToHost)).collect()
}

/// Whether paced datagrams arrive, by the offered rate, the lowest first.
fn paced_loss(evidence: &Evidence<'_>) -> Vec<StatedConclusion> {
    let rates = evidence.all_cases(&PEER_OFFERED_LOST).iter();
    let mut rates: Vec<&RoundHeadlines<'_>> =
        rates.filter(|lost| OFFERED_RATE.number_in(lost.case).is_some()).collect();
    rates.indirect_sort_by_key(|lost| OFFERED_RATE.number_in(lost.case));
    let loss_conclusion = |lost: &RoundHeadlines<'_>| {
        let figure = evidence.rounds_at(&PEER_OFFERED_SENT, lost.case)?.metric_value();
        let (question, side, limit) = (ShareQuestion::PacedDatagramsLost, Estimate::is_below, MIN_LOST_SHARE);
        ShareTest { question, figure, shares: lost, side, limit }.conclude(|sent, share| {
            let offered = number(OFFERED_RATE.number_in(&sent.case).unwrap_or(0) as f64 / 1e6);
            let (rate, limit_text, lost) = (amount_text(sent), percent(limit), share_text(share));
            format!("of datagrams paced at {rate} ({offered} Mbit/s offered) at most {limit_text} are lost: {lost}")
        })
    };
    rates.into_iter().filter_map(loss_conclusion).collect()
}

/// How much longer a message takes during a saturating stream.
fn queueing_delay(evidence: &Evidence<'_>) -> Option<StatedConclusion> {
    let loaded = evidence.rounds_at(&PEER_LOADED, &Case::new())?;
    let unloaded = small_round_trip(evidence, Transport::Tcp)?;
    let answer = RatioTest::above(RatioQuestion::WaitBehindStream, DOUBLED_TIME).test(unloaded, loaded)?;
    let claim = format!(
        "during a saturating stream a round trip of {} queues in buffers and takes more than {DOUBLED_TIME} times as long",
        message_text(unloaded.case)
    );
    Some(answer.conclude_times(&claim, "as long"))
}
