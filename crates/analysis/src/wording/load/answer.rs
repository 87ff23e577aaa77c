//! The answer of a study of a server under load: for each of its sweeps a few lines, drawn from its conclusions.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{RequestPattern, Resource, THINK_TIME};
use kelvin_core::units::{number, percent, value_text};
use kelvin_core::{
    Axis, Case, Claim, Conclusion, Estimate, Knee, LoadClaim, LoadComparison, LoadDoubt, LoadFigure, LoadLaw,
    LoadLawCheck, LoadLimit, LoadVerdict, MoreWorkersClaim, Name, NextLimitClaim, ResourceUse, Unit, UnknownLimit,
    UnwatchedLimit,
};

use super::{
    doubt_text, is_workers_resource, join_resources, knee_interval, limit_by_capacity, resource_name, signed_percent,
    users_text, without_trailing_digits,
};
use crate::result::StudyAnswer;

/// Resources whose use is said beside that of the limit; the table has all.
const MAX_OTHER_RESOURCES: usize = 3;

/// The answer of a sweep; `None` where its limit was not asked for. `all` are the cases of the study's sweeps.
pub(crate) fn answer(conclusions: &[Conclusion], all: &[Case]) -> Option<StudyAnswer> {
    let claims = || conclusions.iter().filter_map(|one| Some((load_claim(one)?, one.holds)));
    let limit = claims().find_map(|(claim, _)| match claim {
        LoadClaim::Limit(limit) => Some(limit),
        _ => None,
    })?;
    let laws: Vec<(&LoadLawCheck, Option<bool>)> = claims().filter_map(law_check).collect();
    let line = |wanted: &dyn Fn(&LoadClaim, Option<bool>) -> Option<String>| {
        claims().filter_map(|(claim, holds)| wanted(claim, holds)).collect::<Vec<String>>().join(" ")
    };
    let lines = [
        doubt_sentence(&limit.doubts),
        use_text(limit),
        other_uses(limit),
        line(&next_limit_line),
        self::law_summary(&laws),
        line(&|claim, holds| generator_line(claim, holds, &limit.verdict)),
        line(&response_line),
        line(&trouble_line),
    ];
    let apart = sweep_label(&limit.held, all);
    let says = if apart.is_empty() { verdict_text(limit) } else { format!("{apart}: {}", verdict_text(limit)) };
    let says = format!("{}.", capitalise(&says));
    Some(StudyAnswer { says, because: lines.into_iter().filter(|line| !line.is_empty()).collect() })
}

fn load_claim(conclusion: &Conclusion) -> Option<&LoadClaim> {
    match &conclusion.claim {
        Claim::Load(claim) => Some(claim),
        _ => None,
    }
}

fn law_check((claim, holds): (&LoadClaim, Option<bool>)) -> Option<(&LoadLawCheck, Option<bool>)> {
    match claim {
        LoadClaim::Law(check) => Some((check, holds)),
        _ => None,
    }
}

/// The answers on pairs of cases.
pub(crate) fn pair_answers(conclusions: &[Conclusion]) -> Vec<StudyAnswer> {
    let claims = conclusions.iter().filter_map(|one| match load_claim(one)? {
        LoadClaim::Across(comparison) => Some((&**comparison, one.holds)),
        _ => None,
    });
    let claims: Vec<(&LoadComparison, Option<bool>)> = claims.collect();
    let pairs = claims.chunk_by(|(one, _), (other, _)| one.cases == other.cases);
    pairs.filter_map(|pair| pair.split_first()).map(|(first, rest)| pair_answer(*first, rest)).collect()
}

/// `1 s of think time instead of no think time: the throughput at saturation is the same`, and what changes instead.
fn pair_answer(
    (first, holds): (&LoadComparison, Option<bool>),
    rest: &[(&LoadComparison, Option<bool>)],
) -> StudyAnswer {
    let [usual, other] = [&first.cases[0], &first.cases[1]].map(|held| property_text(first.by, held));
    let is_same = match holds {
        Some(true) => "is the same",
        Some(false) => "differs",
        None => "is not certainly the same",
    };
    let says = format!("{other} instead of {usual}: the throughput at saturation {is_same}.");
    let lines = std::iter::once((first, holds)).chain(rest.iter().copied()).map(|(of, holds)| change_text(of, holds));
    StudyAnswer { says: capitalise(&says), because: lines.collect() }
}

fn change_text(of: &LoadComparison, holds: Option<bool>) -> String {
    let [before, after] = of.values.map(|estimate| number(estimate.value));
    match of.figure {
        LoadFigure::Throughput { off, .. } => format!(
            "{after} instead of {before} requests/s: {} ({} to {}).",
            signed_percent(off.value),
            signed_percent(off.low),
            signed_percent(off.high)
        ),
        LoadFigure::Knee => {
            let [before, after] = of.values.map(|knee| knee_interval(&knee));
            let is_later = if holds == Some(true) { "later" } else { "not certainly later" };
            format!("The knee is {is_later}: at {after} instead of {before} users.")
        }
        LoadFigure::FromDisk => format!("The disk reads {after} instead of {before} bytes for each byte served."),
    }
}

/// What tells a sweep from the others of its study or from a usual one: `one fixed file, 1 s of think time`; often nothing.
pub(crate) fn sweep_label(held: &Case, all: &[Case]) -> String {
    let differs = |axis: Axis| all.iter().any(|other| other.get(&axis.name) != held.get(&axis.name));
    let parts = [
        (
            RequestPattern::AXIS,
            matches!(RequestPattern::of(held), Some(RequestPattern::Random) | None),
            pattern_text(held),
        ),
        (CacheState::AXIS, true, cache_text(held)),
        (THINK_TIME, THINK_TIME.number_in(held).unwrap_or(0) == 0, think_time_text(held)),
    ];
    let said = parts.into_iter().filter(|(axis, is_usual, _)| !is_usual || differs(*axis));
    said.map(|(_, _, part)| part).collect::<Vec<String>>().join(", ")
}

/// What a sweep has of the property of an axis by which sweeps differ.
pub(super) fn property_text(by: Name, held: &Case) -> String {
    match by {
        by if by == THINK_TIME.name => think_time_text(held),
        by if by == CacheState::AXIS.name => cache_text(held),
        _ => pattern_text(held),
    }
}

fn pattern_text(held: &Case) -> String {
    let words = match RequestPattern::of(held) {
        Some(RequestPattern::Fixed) => "one fixed file",
        Some(RequestPattern::Sequence) => "files in sequence",
        Some(RequestPattern::Zipf) => "few files asked for most",
        Some(RequestPattern::Random) | None => "random files",
    };
    words.into()
}

fn cache_text(held: &Case) -> String {
    if CacheState::of(held) == Some(CacheState::Cached) { "files in memory" } else { "files from the disk" }.into()
}

fn think_time_text(held: &Case) -> String {
    match THINK_TIME.number_in(held).unwrap_or(0) {
        0 => "no think time".into(),
        milliseconds => format!(
            "{} of think time",
            without_trailing_digits(value_text(milliseconds as f64 * 1e6, Unit::Nanoseconds))
        ),
    }
}

/// `the network is the limit from 10 users on (9 to 11)`.
fn verdict_text(limit: &LoadLimit) -> String {
    let sure = if limit.doubts.is_empty() { "" } else { "probably " };
    let from = limit.knee.map_or_else(String::new, knee_suffix);
    match &limit.verdict {
        LoadVerdict::Resource { by } => format!("the {} is {sure}the limit{from}", resource_name(*by)),
        LoadVerdict::Both { by } => format!("{} are {sure}the limit together{from}", join_resources(by, "and")),
        LoadVerdict::OneOf { by } => {
            format!("{} is {sure}the limit{from}: they are too close to tell which", join_resources(by, "or"))
        }
        LoadVerdict::Client { .. } => {
            format!("the client is {sure}the limit{from}: nothing follows about the server")
        }
        LoadVerdict::Unwatched { how, at } => {
            format!(
                "what limits is probably {}{from}: {}",
                super::unwatched_noun(*how, *at),
                super::unwatched_sentence(*how, *at)
            )
        }
        LoadVerdict::Unknown { because } => format!("what limits is not known: {}", unknown_reason(because)),
    }
}

fn knee_suffix(knee: Knee) -> String {
    let span = if knee.low == knee.high { String::new() } else { format!(" ({} to {})", knee.low, knee.high) };
    match knee.users {
        1 => format!(" with a single user{span}"),
        users => format!(" from {users} users on{span}"),
    }
}

fn unknown_reason(because: &UnknownLimit) -> String {
    match because {
        UnknownLimit::TooLittle => "too little was measured".into(),
        UnknownLimit::StillGrowing { users } => {
            format!("throughput still grew at {users} users, and the limit was not reached")
        }
        UnknownLimit::NothingBusy => "no resource is above 60 %".into(),
        UnknownLimit::NothingFull { .. } => "no resource is full, so something that was not watched limits".into(),
        UnknownLimit::WorkersWait { refuted } => super::worker_wait(*refuted).into(),
        UnknownLimit::BeyondCapacity { resource } => {
            format!(
                "the {} gave more than it was measured to have, so that its capacity is wrong",
                resource_name(*resource)
            )
        }
    }
}

fn doubt_sentence(doubts: &[LoadDoubt]) -> String {
    let words: Vec<&str> = doubts.iter().map(doubt_text).collect();
    if words.is_empty() { String::new() } else { format!("Not certain, as {}.", words.join(" and ")) }
}

/// `5.6 requests/s of 2 MB (11.2 MB/s) are 97 % of the 11.6 MB/s that the network carries`.
fn use_text(limit: &LoadLimit) -> String {
    let seen = match limit.verdict {
        LoadVerdict::Unknown { because: UnknownLimit::StillGrowing { users: count } } => {
            format!("With {} it serves at least ", users_text(count))
        }
        LoadVerdict::Unwatched { how: UnwatchedLimit::Each { .. }, .. } => "With the most users it serves ".into(),
        LoadVerdict::Unknown { because: UnknownLimit::TooLittle } => "The highest throughput that was seen is ".into(),
        LoadVerdict::Unwatched { .. } | LoadVerdict::Unknown { .. } => "At saturation it serves ".into(),
        _ => String::new(),
    };
    let taken: Vec<String> =
        limit.used.iter().filter(|one| is_named(limit, one)).map(|one| super::use_sentence(limit, one)).collect();
    let taken = if taken.is_empty() {
        String::new()
    } else {
        format!(" {}", taken.join(" and ").replace(" and are ", " and "))
    };
    format!("{seen}{}{taken}.", super::request_rate(limit))
}

/// Whether the verdict names this resource.
fn is_named(limit: &LoadLimit, one: &ResourceUse) -> bool {
    match &limit.verdict {
        LoadVerdict::Resource { by } | LoadVerdict::Client { by } => *by == one.resource,
        LoadVerdict::Both { by } | LoadVerdict::OneOf { by } => by.contains(&one.resource),
        LoadVerdict::Unwatched { .. } | LoadVerdict::Unknown { .. } => false,
    }
}

/// `In use besides: disk 27 %, CPU of the server 6 %`.
fn other_uses(limit: &LoadLimit) -> String {
    let others: Vec<&ResourceUse> = limit.used.iter().filter(|one| !is_named(limit, one)).collect();
    let busy = |one: &&ResourceUse| format!("{} {}", resource_name(one.resource), percent(one.utilisation.value));
    let mut said: Vec<String> = others.iter().take(MAX_OTHER_RESOURCES).map(busy).collect();
    if others.len() > MAX_OTHER_RESOURCES {
        said.push("others less".into());
    }
    let (beginning, said) = (if is_unknown(limit) { "In use" } else { "In use besides" }, said.join(", "));
    if said.is_empty() { said } else { format!("{beginning}: {said}.") }
}

fn is_unknown(limit: &LoadLimit) -> bool {
    matches!(limit.verdict, LoadVerdict::Unwatched { .. } | LoadVerdict::Unknown { .. })
}

/// `The next limit is the disk, at 9.1 requests/s, if the network were 1.6 times as fast`, and what the limit does in excess.
fn next_limit_line(claim: &LoadClaim, holds: Option<bool>) -> Option<String> {
    match claim {
        LoadClaim::WhatIf(what_if) => Some(next_limit(what_if, holds)),
        LoadClaim::Amplification { resource, times, .. } if holds == Some(true) => {
            Some(format!("The {} reads {} bytes for each byte served.", resource_name(*resource), number(times.value)))
        }
        _ => None,
    }
}

fn next_limit(of: &NextLimitClaim, holds: Option<bool>) -> String {
    let (limit, how) = (resource_name(of.limit), if is_workers_resource(of.limit) { "as high" } else { "as fast" });
    let measured = format!(
        "The next limit {} the {}, at {} requests/s, if the {limit} were {} times {how}",
        if holds == Some(true) { "is" } else { "may be" },
        resource_name(of.next),
        number(of.as_measured.throughput),
        number(of.as_measured.times)
    );
    match limit_by_capacity(of) {
        Some(alone) => format!(
            "{measured}; by its capacity alone at {}, if {} times; no visit has tested it.",
            number(alone.throughput),
            number(alone.times)
        ),
        None => format!("{measured}; no visit has tested it."),
    }
}

/// `Little's law +0.4 %, flow balance +0.2 %: both hold`, and those that do not, or may not.
fn law_summary(laws: &[(&LoadLawCheck, Option<bool>)]) -> String {
    let of = |wanted: Option<bool>| laws.iter().filter(move |(_, holds)| *holds == wanted).map(|(check, _)| *check);
    let held: Vec<String> =
        of(Some(true)).map(|check| format!("{} {}", law_name(check.law), signed_percent(check.off.value))).collect();
    let verdict = match held.len() {
        0 => None,
        1 => Some("holds"),
        2 if laws.len() == 2 => Some("both hold"),
        count if count == laws.len() => Some("all hold"),
        _ => Some("hold"),
    };
    let held = verdict.map(|verdict| capitalise(&format!("{}: {verdict}.", held.join(", "))));
    let broken = of(Some(false)).map(|check| {
        let at = check.at.map_or_else(String::new, |count| format!(" with {}", users_text(count)));
        let (off, most) = (signed_percent(check.off.value), percent(check.tolerance));
        capitalise(&format!("{} does not hold: {off}{at}, and {most} is allowed.", law_name(check.law)))
    });
    let open = of(None).map(|check| {
        let Estimate { low, high, .. } = check.off;
        let span = format!("{} ({} to {})", signed_percent(check.off.value), signed_percent(low), signed_percent(high));
        capitalise(&format!("{} {span}: not certain.", law_name(check.law)))
    });
    broken.chain(held).chain(open).collect::<Vec<String>>().join(" ")
}

fn law_name(law: LoadLaw) -> &'static str {
    match law {
        LoadLaw::Little => "Little's law",
        LoadLaw::FlowBalance => "flow balance",
        LoadLaw::Utilisation => "utilisation law",
    }
}

fn generator_line(claim: &LoadClaim, holds: Option<bool>, limit: &LoadVerdict) -> Option<String> {
    let LoadClaim::Generator { cpu, late } = claim else { return None };
    let cpu = cpu.as_ref().map(|cpu| format!("{} of its CPU", percent(cpu.value)));
    let late = late.map(|late| format!("at most {} late", value_text(late, Unit::Nanoseconds)));
    let verdict = match (holds, limit) {
        (Some(true), _) => "was not",
        (_, LoadVerdict::Client { by }) if *by == *Resource::Generator.name() => "was",
        _ => "may have been",
    };
    // Of a generator that is at ease, its lateness is the reason.
    let reasons = if verdict == "may have been" { [late, cpu] } else { [cpu, late] };
    let used = reasons.into_iter().flatten().collect::<Vec<String>>().join(", ");
    Some(format!("The load generator {verdict} the limit: {used}."))
}

fn response_line(claim: &LoadClaim, _: Option<bool>) -> Option<String> {
    let LoadClaim::Response { alone: (few, alone), crowded: (many, crowded) } = claim else { return None };
    let time = |value: f64| value_text(value, Unit::Nanoseconds);
    let waiting =
        if crowded > alone { format!(", {} of it spent waiting", time(crowded - alone)) } else { String::new() };
    Some(format!("Response time {} with {}, {} with {many}{waiting}.", time(*alone), users_text(*few), time(*crowded)))
}

/// What is wrong beside: users who are not served, memory that grows.
fn trouble_line(claim: &LoadClaim, holds: Option<bool>) -> Option<String> {
    match claim {
        LoadClaim::Waiting { users, waiting } => Some(format!(
            "With {users} users, {} of them are not answered at all while others are served again and again.",
            number(waiting.value)
        )),
        LoadClaim::Hindrance(hindrance) => Some(format!("{}.", capitalise(&super::hindrance_text(hindrance)))),
        LoadClaim::MoreWorkers(more) => Some(more_workers_line(more, holds)),
        LoadClaim::Steady { drift, .. } if holds == Some(false) => Some(format!(
            "The server is not what it was at the start: throughput changes by {} over the study, at equal numbers of users.",
            signed_percent(drift.value)
        )),
        LoadClaim::Growth { of_server, bytes_a_request, .. } if holds == Some(true) => Some(format!(
            "The memory of the {} grows by {} a request.",
            if *of_server { "server" } else { "load generator" },
            super::bytes_text(bytes_a_request.value)
        )),
        _ => None,
    }
}

/// `With 4 workers instead of 2, 40 users get 196 requests/s instead of 98`.
fn more_workers_line(of: &MoreWorkersClaim, holds: Option<bool>) -> String {
    let ([few, many], [before, after]) = (of.workers, of.throughput.map(number));
    let said = if holds.is_none() { ", which decides nothing" } else { "" };
    format!(
        "With {many} workers instead of {few}, {} get {after} requests/s instead of {before}{said}.",
        users_text(of.users)
    )
}

fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
