//! What limits a server, and from how many users on: the verdict with its doubts, as a claim and as the answer of its sweep.

use kelvin_core::units::decimal_bytes;

use super::labels::sweep_label;
use super::laws::{LawCheckResult, violated_laws};
use super::unwatched_limit::{limit_noun, limit_sentence};
use super::verdict::{doubt_text, doubts};
use super::*;

/// Bytes of an answer over those of its file, at most: parts of answers that the ends of a visit cut off count as well.
const MAX_ANSWER_TO_FILE: f64 = 2.0;
/// Maximum bytes of the header of an answer.
const MAX_HEADER_BYTES: f64 = (64 << 10) as f64;
/// Resources whose use is in the answer in addition to that of the limit; the table has all.
const MAX_OTHER_RESOURCES: usize = 3;
/// How far what is served may be from what is used of a resource, as a share, to be the same.
const MAX_SERVED_GAP: f64 = 0.05;

/// The limit of a sweep; `None` of one without visits.
pub(super) fn limit(
    sweep: &Sweep,
    saturated: Option<&SaturatedSweep<'_>>,
    facts: &VerdictFacts<'_>,
    laws: &[LawCheckResult],
) -> Option<LoadLimit> {
    let (verdict, rule) = facts.verdict();
    let highest = sweep.loads.iter().map(|load| mean(&load.throughputs())).max_by(f64::total_cmp)?;
    let limit = LoadLimit {
        fixed: sweep.fixed.clone(),
        verdict,
        rule: rule.text.into(),
        doubts: Vec::new(),
        knee: None,
        saturation: Estimate::exact(highest),
        request_bytes: sweep.file_bytes(),
        utilisations: Vec::new(),
    };
    let Some(saturated) = saturated else { return Some(limit) };
    let doubts = match &limit.verdict {
        LoadVerdict::Unknown { .. } => Vec::new(),
        verdict => doubts(facts, verdict, &violated_laws(laws)),
    };
    // What was not reached has no figure: what is known is the throughput with the most users.
    let last_load = sweep.loads.last().filter(|_| !facts.is_reached());
    let last_throughput = last_load.and_then(|load| mean_estimate(&load.throughputs()));
    // Those of a file where no bytes were counted, and none where more than a file and its header came, which is no answer.
    let answer_bytes = saturated.values(|visit| Some(visit.get(&RATE)? / visit.throughput));
    let file = sweep.file_bytes();
    let is_answer = |bytes: &f64| file.is_none_or(|file| *bytes <= MAX_ANSWER_TO_FILE * file + MAX_HEADER_BYTES);
    let request_bytes = if answer_bytes.is_empty() { file } else { Some(median(&answer_bytes)).filter(is_answer) };
    let resource_use = |usage: &SaturationUse| ResourceUse {
        resource: resource_id(usage.resource),
        utilisation: usage.utilisation,
        capacity_bytes: sweep.capacities.get(&usage.resource).and_then(|capacity| capacity.bytes),
    };
    Some(LoadLimit {
        doubts,
        knee: Some(saturated.saturation.knee).filter(|_| last_throughput.is_none()),
        saturation: last_throughput.unwrap_or(saturated.saturation.throughput),
        request_bytes,
        utilisations: saturated.uses.iter().map(resource_use).collect(),
        ..limit
    })
}

/// The claim, certain where nothing is doubted and something is known.
///
/// `from 10 users (9 to 11) on the network is the limit: 5.6 requests/s of 2.00 MB are 97 % of the 11.6 MB/s that it carries`.
pub(super) fn conclusion(sweep: &Sweep, limit: &LoadLimit) -> LoadConclusion {
    let amount = request_rate(limit);
    let text = match &limit.verdict {
        LoadVerdict::Unknown { reason: unknown } => {
            let fullest_clause =
                limit.utilisations.first().map(|first| format!(": the fullest is the {}", busy_text(first)));
            let fullest_text = fullest_clause.unwrap_or_default();
            let reason = unknown_reason(unknown);
            let reason = match unknown {
                UnknownLimit::TooFewSamples => reason,
                UnknownLimit::StillGrowing { .. } => format!("{reason}: it serves at least {amount}{fullest_text}"),
                UnknownLimit::BeyondCapacity { .. } => format!("at {amount} {reason}"),
                _ => format!("at {amount} {reason}{fullest_text}"),
            };
            format!("what limits{} is not known: {reason}", sweep_suffix(&limit.fixed))
        }
        _ => {
            let [from, _] = knee_texts(limit);
            let usage_text =
                limit.utilisations.first().map_or_else(String::new, |first| format!(" {}", use_sentence(limit, first)));
            let other_texts: Vec<String> = limit.utilisations.iter().skip(1).map(busy_text).collect();
            let others_text =
                if other_texts.is_empty() { String::new() } else { format!("; {}", other_texts.join(", ")) };
            let doubts = doubt_texts(limit).map_or_else(String::new, |doubts| format!("; not certain, as {doubts}"));
            let (verdict, suffix) = (verdict_text(limit, "", ';'), sweep_suffix(&limit.fixed));
            format!("{from}{verdict}{suffix}: {amount}{usage_text}{others_text}{doubts}")
        }
    };
    let is_certain = limit.doubts.is_empty() && !matches!(limit.verdict, LoadVerdict::Unknown { .. });
    LoadConclusion::new(LoadClaim::Limit(Box::new(limit.clone())), is_certain.then_some(true), visits_test(sweep), text)
}

/// The answer of a sweep, with the lines that follow those of the limit. `cases` are those of the study's sweeps.
pub(super) fn answer(limit: &LoadLimit, lines: impl Iterator<Item = String>, cases: &[Case]) -> StudyAnswer {
    let [_, from] = knee_texts(limit);
    let verdict = verdict_text(limit, &from, ':');
    let label = sweep_label(&limit.fixed, cases);
    let sentence = if label.is_empty() { verdict } else { format!("{label}: {verdict}") };
    let doubts = doubt_texts(limit).map(|doubts| format!("Not certain, as {doubts}."));
    let unnamed_uses: Vec<&ResourceUse> = limit.utilisations.iter().filter(|usage| !is_named(limit, usage)).collect();
    let mut uses: Vec<String> = unnamed_uses.iter().take(MAX_OTHER_RESOURCES).map(|usage| busy_text(usage)).collect();
    if unnamed_uses.len() > MAX_OTHER_RESOURCES {
        uses.push("others less".into());
    }
    let is_unknown = matches!(limit.verdict, LoadVerdict::NotSampled { .. } | LoadVerdict::Unknown { .. });
    let prefix = if is_unknown { "In use" } else { "In use as well" };
    let other_uses = (!uses.is_empty()).then(|| format!("{prefix}: {}.", uses.join(", ")));
    let reasons = doubts.into_iter().chain([use_text(limit)]).chain(other_uses);
    StudyAnswer {
        text: format!("{}.", capitalise(&sentence)),
        reasons: reasons.chain(lines.filter(|line| !line.is_empty())).collect(),
    }
}

/// From how many users on it limits, before the verdict and after it: `from 10 users (9 to 11) on `, ` from 10 users on (9 to 11)`.
fn knee_texts(limit: &LoadLimit) -> [String; 2] {
    let Some(knee) = limit.knee else { return Default::default() };
    let (users, span) = (knee.users, knee_span(knee.low as f64, knee.high as f64));
    match users {
        1 => [format!("with a single user{span} "), format!(" with a single user{span}")],
        _ => [format!("from {users} users{span} on "), format!(" from {users} users on{span}")],
    }
}

/// ` (9 to 11)`; nothing of a single number.
pub(super) fn knee_span(low: f64, high: f64) -> String {
    if low == high { String::new() } else { format!(" ({low} to {high})") }
}

fn doubt_texts(limit: &LoadLimit) -> Option<String> {
    let words: Vec<&str> = limit.doubts.iter().map(doubt_text).collect();
    (!words.is_empty()).then(|| words.join(" and "))
}

/// `the network is the limit from 10 users on (9 to 11)`.
fn verdict_text(limit: &LoadLimit, from: &str, separator: char) -> String {
    let certainty = if limit.doubts.is_empty() { "" } else { "probably " };
    let join = |words: &[Name], conjunction: &str| {
        words.iter().map(|&word| format!("the {}", resource_name(word))).collect::<Vec<_>>().join(conjunction)
    };
    match &limit.verdict {
        LoadVerdict::Resource { resource } => format!("the {} is {certainty}the limit{from}", resource_name(*resource)),
        LoadVerdict::Both { resources } => {
            format!("{} are {certainty}the limit together{from}", join(resources, " and "))
        }
        LoadVerdict::OneOf { resources } => {
            format!(
                "{} is {certainty}the limit{from}{separator} they are too close to decide which",
                join(resources, " or ")
            )
        }
        LoadVerdict::Client { .. } => {
            format!("the client is {certainty}the limit{from}{separator} nothing follows about the server")
        }
        LoadVerdict::NotSampled { limit: unsampled, location } => {
            format!(
                "what limits is probably {}{from}: {}",
                limit_noun(*unsampled, *location),
                limit_sentence(*unsampled, *location)
            )
        }
        LoadVerdict::Unknown { reason } => format!("what limits is not known: {}", unknown_reason(reason)),
    }
}

fn unknown_reason(reason: &UnknownLimit) -> String {
    match reason {
        UnknownLimit::TooFewSamples => "too little was measured".into(),
        UnknownLimit::StillGrowing { users } => {
            format!("throughput still grew at {users} users, and the limit was not reached")
        }
        UnknownLimit::NoneBusy => "no resource is above 60 %".into(),
        UnknownLimit::NoneSaturated { .. } => "no resource is full, so something that was not watched limits".into(),
        UnknownLimit::WorkersWait { refuted: true } => {
            "more workers serve no more: they wait for each other, or for what serves one at a time, such as a lock or another server".into()
        }
        UnknownLimit::WorkersWait { refuted: false } => {
            "all workers have a connection and most of the time do not work: they wait for what was not watched, such as a lock, a sleep or \
             another server; whether more of them would serve more is not known"
                .into()
        }
        UnknownLimit::BeyondCapacity { resource } => format!(
            "the {} gave more than it was measured to have, so that its capacity is wrong",
            resource_name(*resource)
        ),
    }
}

fn request_rate(limit: &LoadLimit) -> String {
    let bytes = limit.request_bytes.map_or_else(String::new, |bytes| {
        format!(" of {} ({})", decimal_bytes(bytes), rate_text(bytes * limit.saturation.value))
    });
    format!("{} requests/s{bytes}", number(limit.saturation.value))
}

/// What the requests take of a resource: `are 97 % of the 11.6 MB/s that the network carries`. What is served is that share only where
/// a request takes as much under load as alone, and all of it passes there; else the share is that of what was watched.
fn use_sentence(limit: &LoadLimit, usage: &ResourceUse) -> String {
    let (share, name) = (percent(usage.utilisation.value), resource_name(usage.resource));
    // There is no more than all of the time.
    let time = if usage.utilisation.value >= 0.995 { "all".to_owned() } else { share.clone() };
    let used = usage.capacity_bytes.map(|capacity| (usage.utilisation.value * capacity, capacity));
    let served_rate = limit.request_bytes.map(|bytes| bytes * limit.saturation.value);
    let is_served = |used: f64| served_rate.is_some_and(|rate| (used / rate - 1.0).abs() <= MAX_SERVED_GAP);
    match (resource(usage.resource), used) {
        (Some(Resource::DiskRequests), _) => format!("take {share} of the requests that the disk serves"),
        (Some(Resource::Workers), _) => format!("keep the workers busy for {time} of the time"),
        (Some(Resource::ClientWindow), _) => format!("keep the {name} full for {time} of the time"),
        (_, Some((used, capacity))) if is_served(used) => {
            format!("are {share} of the {} that the {name} carries", rate_text(capacity))
        }
        (Some(Resource::Disk), Some((used, capacity))) => format!(
            "take {share} of the {name}, which reads {} for them and carries {}",
            rate_text(used),
            rate_text(capacity)
        ),
        (Some(Resource::ServerThread | Resource::Generator), _) => {
            format!("keep the {name} busy for {time} of the time")
        }
        (Some(Resource::ServerCpu), _) => format!("take {share} of the CPU time that the server may use"),
        (Some(Resource::ClientCpu), _) => format!("take {share} of the CPU time that the client may use"),
        _ => format!("take {share} of the {name}"),
    }
}

fn rate_text(bytes_a_second: f64) -> String {
    value_text(bytes_a_second, Unit::BytesPerSecond)
}

/// `disk 27 %`.
fn busy_text(usage: &ResourceUse) -> String {
    format!("{} {}", resource_name(usage.resource), percent(usage.utilisation.value))
}

/// `5.6 requests/s of 2 MB (11.2 MB/s) are 97 % of the 11.6 MB/s that the network carries`.
fn use_text(limit: &LoadLimit) -> String {
    let prefix = match limit.verdict {
        LoadVerdict::Unknown { reason: UnknownLimit::StillGrowing { users } } => {
            format!("With {} it serves at least ", users_text(users))
        }
        LoadVerdict::NotSampled { limit: UnsampledLimit::PerRequest { .. }, .. } => {
            "With the most users it serves ".into()
        }
        LoadVerdict::Unknown { reason: UnknownLimit::TooFewSamples } => {
            "The highest throughput that was seen is ".into()
        }
        LoadVerdict::NotSampled { .. } | LoadVerdict::Unknown { .. } => "At saturation it serves ".into(),
        _ => String::new(),
    };
    let limiting_uses = limit.utilisations.iter().filter(|usage| is_named(limit, usage));
    let sentences: Vec<String> = limiting_uses.map(|usage| use_sentence(limit, usage)).collect();
    let space = if sentences.is_empty() { "" } else { " " };
    format!("{prefix}{}{space}{}.", request_rate(limit), sentences.join(" and ").replace(" and are ", " and "))
}

/// Whether the verdict names this resource.
fn is_named(limit: &LoadLimit, usage: &ResourceUse) -> bool {
    limit.verdict.resources().contains(&usage.resource)
}
