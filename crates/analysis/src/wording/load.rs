//! A server under load in words.

use kelvin_core::catalogue::load::{RequestPattern, Resource, THINK_TIME};
use kelvin_core::units::{decimal_bytes, number, percent, value_text};
use kelvin_core::{
    Case, Estimate, Hindrance, HindranceClaim, Knee, LawDeviation, LimitProjection, LoadClaim, LoadComparison,
    LoadDoubt, LoadFigure, LoadLaw, LoadLawCheck, LoadLimit, LoadVerdict, MoreWorkersClaim, Name, NextLimitClaim,
    PublishedLoadCase, RequestLocation, ResourceUse, Unit, UnknownLimit, UnwatchedLimit,
};

use crate::studies::load::{MIN_AMPLIFICATION, MIN_LEAK_BYTES, MIN_LEAK_PER_REQUEST, hindrance_threshold};

mod answer;

pub(crate) use answer::{answer, pair_answers, sweep_label};

/// The sentence of a claim.
pub(super) fn claim(claim: &LoadClaim, holds: Option<bool>) -> String {
    match claim {
        LoadClaim::Limit(limit) => limit_sentence(limit),
        LoadClaim::WhatIf(what_if) => next_limit_sentence(what_if),
        LoadClaim::Scalability { contention, coherency, peak, furthest, .. } => {
            scalability_sentence(contention, coherency, *peak, furthest)
        }
        LoadClaim::Amplification { resource, times, .. } => format!(
            "the {} reads more than {} bytes for each byte served: {}{}",
            resource_name(*resource),
            number(MIN_AMPLIFICATION),
            number(times.value),
            if times.low == times.high {
                String::new()
            } else {
                format!(" ({} to {})", number(times.low), number(times.high))
            }
        ),
        LoadClaim::Law(check) => law_sentence(check, holds),
        LoadClaim::Generator { cpu, late } => generator_sentence(cpu.as_ref(), *late, holds),
        LoadClaim::MoreWorkers(more) => more_workers_sentence(more),
        LoadClaim::Response { alone, crowded } => response_sentence(*alone, *crowded),
        LoadClaim::Waiting { users, waiting } => format!(
            "with {users} users, {} of them ({} to {}) are not answered at all while others are served again and again: they wait for \
             a worker, or for their turn",
            number(waiting.value),
            number(waiting.low),
            number(waiting.high)
        ),
        LoadClaim::Growth { of_server, bytes_a_second, bytes_a_request, bytes_in_study } => {
            let span =
                |of: &Estimate| format!("{} ({} to {})", bytes_text(of.value), bytes_text(of.low), bytes_text(of.high));
            let besides = match bytes_in_study {
                Some(in_study) => format!("{} in the study", span(in_study)),
                None => format!("{} a second", bytes_text(bytes_a_second.value)),
            };
            format!(
                "the memory of the {} grows by more than {} a request and {} in the study: by {} a request, {besides}",
                if *of_server { "server" } else { "load generator" },
                bytes_text(MIN_LEAK_PER_REQUEST),
                value_text(MIN_LEAK_BYTES, Unit::Bytes),
                span(bytes_a_request)
            )
        }
        LoadClaim::Steady { drift, back, tolerance, .. } => stability_sentence(drift, back.as_ref(), *tolerance),
        LoadClaim::Hindrance(hindrance) => hindrance_claim(hindrance),
        LoadClaim::Across(comparison) => comparison_sentence(comparison),
        LoadClaim::Published(published) => published_sentence(published),
    }
}

/// A resource, as a noun after "the".
pub(crate) fn resource_name(word: Name) -> &'static str {
    match Resource::ALL.iter().find(|resource| resource.name() == word.as_str()) {
        Some(Resource::Disk) => "disk",
        Some(Resource::DiskRequests) => "disk (by requests)",
        Some(Resource::Link) => "network",
        Some(Resource::ServerCpu) => "CPU of the server",
        Some(Resource::ServerThread) => "busiest thread of the server",
        Some(Resource::Workers) => "number of workers",
        Some(Resource::ClientCpu) => "CPU of the client",
        Some(Resource::Generator) => "thread of the load generator",
        Some(Resource::ClientWindow) => "client's receive window",
        None => word.as_str(),
    }
}

/// What is held over a sweep, where it is not the usual: ` with one fixed file`, ` with 1 s of think time`.
pub(crate) fn sweep_suffix(case: &Case) -> String {
    let pattern = match RequestPattern::of(case) {
        Some(RequestPattern::Fixed) => Some("one fixed file".to_owned()),
        Some(RequestPattern::Sequence) => Some("files in sequence".to_owned()),
        Some(RequestPattern::Zipf) => Some("few files asked for most".to_owned()),
        _ => None,
    };
    let think = THINK_TIME.number_in(case).filter(|&think| think > 0);
    let think = think.map(|think| {
        format!("{} of think time", without_trailing_digits(value_text(think as f64 * 1e6, Unit::Nanoseconds)))
    });
    let parts: Vec<String> = pattern.into_iter().chain(think).collect();
    if parts.is_empty() { String::new() } else { format!(" with {}", parts.join(" and ")) }
}

fn join_resources(words: &[Name], by: &str) -> String {
    let names: Vec<String> = words.iter().map(|&word| format!("the {}", resource_name(word))).collect();
    names.join(&format!(" {by} "))
}

/// `From 10 users (9 to 11) on the network is the limit: 5.6 requests/s of 2.00 MB are 97 % of the 11.6 MB/s that it carries`.
fn limit_sentence(limit: &LoadLimit) -> String {
    let from = limit.knee.map_or_else(String::new, knee_text);
    let sure = if limit.doubts.is_empty() { "" } else { "probably " };
    let said = match &limit.verdict {
        LoadVerdict::Resource { by } => format!("the {} is {sure}the limit", resource_name(*by)),
        LoadVerdict::Both { by } => format!("{} are {sure}the limit together", join_resources(by, "and")),
        LoadVerdict::OneOf { by } => {
            format!("{} is {sure}the limit; they are too close to tell which", join_resources(by, "or"))
        }
        LoadVerdict::Client { .. } => format!("the client is {sure}the limit, and nothing follows about the server"),
        LoadVerdict::Unwatched { how, at } => {
            format!("what limits is probably {}: {}", unwatched_noun(*how, *at), unwatched_sentence(*how, *at))
        }
        LoadVerdict::Unknown { because } => return unknown_limit(limit, because),
    };
    let amount = request_rate(limit);
    let used = limit.used.first().map_or_else(String::new, |first| format!(" {}", use_sentence(limit, first)));
    let others: Vec<String> = limit.used.iter().skip(1).map(busy_text).collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    format!("{from}{said}{}: {amount}{used}{others}{}", sweep_suffix(&limit.held), doubt_suffix(&limit.doubts))
}

/// What limits that was not watched, as a noun.
fn unwatched_noun(how: UnwatchedLimit, at: RequestLocation) -> &'static str {
    match (how, at) {
        (UnwatchedLimit::OtherWork { .. }, RequestLocation::Client) => "other work on the CPUs of the load generator",
        (UnwatchedLimit::OtherWork { .. }, _) => "other work on the CPUs of the server's host",
        (UnwatchedLimit::Memory { .. }, _) => "the memory that is left for files, and then the disk",
        (UnwatchedLimit::Stalls { .. }, RequestLocation::Disk) => "stalls of the server at its disk",
        (UnwatchedLimit::Stalls { .. }, RequestLocation::Network) => "stalls of the network",
        (UnwatchedLimit::Stalls { .. }, RequestLocation::Between) => {
            "stalls of a proxy or another program before the server, or of all of the server"
        }
        (UnwatchedLimit::Stalls { .. }, _) => {
            "stalls of the server, such as garbage collection, a checkpoint, a lock that is held for long, or a quota that cannot be seen"
        }
        (UnwatchedLimit::Refusals { .. }, _) => "a limit of connections, or of the rate of requests",
        (UnwatchedLimit::Losses { .. }, _) => "losses on the way, or a slower link further on that drops",
        (UnwatchedLimit::InTurn { .. }, RequestLocation::Server | RequestLocation::Client) => {
            "a lock in the server, threads that wait, another server that it asks, or a limit of its rate"
        }
        (UnwatchedLimit::InTurn { .. }, RequestLocation::Between) => {
            "a proxy or another program before the server, by a lock, few connections or a limit of the rate"
        }
        (UnwatchedLimit::InTurn { .. }, RequestLocation::Network) => "a slower link further on, or losses on the way",
        (UnwatchedLimit::InTurn { .. }, RequestLocation::Disk) => "the disk, by what the server reads or writes",
        (UnwatchedLimit::Each { .. }, RequestLocation::Server | RequestLocation::Client) => {
            "a wait of each request in the server, such as a sleep or another server that it asks"
        }
        (UnwatchedLimit::Each { .. }, RequestLocation::Between) => {
            "a delay or a limit of each connection, in a proxy or another program before the server"
        }
        (UnwatchedLimit::Each { .. }, RequestLocation::Network) => {
            "the network of each connection: round trips, windows or losses"
        }
        (UnwatchedLimit::Each { .. }, RequestLocation::Disk) => "the disk, by the time of each read or write",
    }
}

/// `one request at a time is served, for 10 ms each`, and where.
fn unwatched_sentence(how: UnwatchedLimit, at: RequestLocation) -> String {
    let time = |nanoseconds: u64| without_trailing_digits(value_text(nanoseconds as f64, Unit::Nanoseconds));
    let at = match at {
        RequestLocation::Client => "at the load generator",
        RequestLocation::Server => "in the server, which does not work meanwhile",
        RequestLocation::Disk => "in the server, which waits for its disk",
        RequestLocation::Network => "on their way to the client",
        RequestLocation::Between => "neither in the server nor on the way from it",
    };
    let what = match how {
        UnwatchedLimit::InTurn { at_once: 1, nanoseconds } => {
            format!("one request at a time is served, for {}", time(nanoseconds))
        }
        UnwatchedLimit::InTurn { at_once, nanoseconds } => {
            format!("{at_once} requests at a time are served, for {} each", time(nanoseconds))
        }
        UnwatchedLimit::Each { nanoseconds } => {
            format!("each request takes {} longer than its work, with any number of users", time(nanoseconds))
        }
        UnwatchedLimit::Losses { per_thousand } => {
            format!("of a hundred segments TCP sends {} again", number(per_thousand as f64 / 10.0))
        }
        UnwatchedLimit::Stalls { percent, nanoseconds, every_nanoseconds } => format!(
            "nobody is answered for {percent} % of the time, {} at a time and each {} on average",
            time(nanoseconds),
            time(every_nanoseconds)
        ),
        UnwatchedLimit::OtherWork { percent } => {
            return format!(
                "for {percent} % of the time of requests, a thread that works for them, at either end, is ready to run and has no CPU"
            );
        }
        UnwatchedLimit::Memory { users, percent } => {
            return format!(
                "from {users} users on the disk reads {} bytes for each byte served, and with fewer users next to none",
                number(percent as f64 / 100.0)
            );
        }
        UnwatchedLimit::Refusals { percent } => return format!("{percent} % of the requests are turned away, or fail"),
    };
    format!("{what}; requests are most of the time {at}")
}

fn knee_text(knee: Knee) -> String {
    let span = if knee.low == knee.high { String::new() } else { format!(" ({} to {})", knee.low, knee.high) };
    match knee.users {
        1 => format!("with a single user{span} "),
        users => format!("from {users} users{span} on "),
    }
}

fn request_rate(limit: &LoadLimit) -> String {
    let bytes = limit.request_bytes.map_or_else(String::new, |bytes| {
        format!(" of {} ({})", decimal_bytes(bytes), rate_text(bytes * limit.saturation.value))
    });
    format!("{} requests/s{bytes}", number(limit.saturation.value))
}

/// What the requests take of a resource: `are 97 % of the 11.6 MB/s that the network carries`. What is served is that share only where
/// a request takes as much under load as alone, and all of it passes there; else the share is said of what was watched.
fn use_sentence(limit: &LoadLimit, one: &ResourceUse) -> String {
    const ALIKE: f64 = 0.05;
    let (share, name) = (percent(one.utilisation.value), resource_name(one.resource));
    let used = one.capacity_bytes.map(|capacity| (one.utilisation.value * capacity, capacity));
    let served = limit.request_bytes.map(|bytes| bytes * limit.saturation.value);
    let is_served = |used: f64| served.is_some_and(|served| (used / served - 1.0).abs() <= ALIKE);
    let resource = Resource::ALL.iter().find(|resource| one.resource == *resource.name());
    match (resource, used) {
        (Some(Resource::DiskRequests), _) => format!("take {share} of the requests that the disk serves"),
        (Some(Resource::Workers), _) => format!("keep the workers busy for {}", time_share(one.utilisation.value)),
        (Some(Resource::ClientWindow), _) => format!("keep the {name} full for {}", time_share(one.utilisation.value)),
        (_, Some((used, capacity))) if is_served(used) => {
            format!("are {share} of the {} that the {name} carries", rate_text(capacity))
        }
        (Some(Resource::Disk), Some((used, capacity))) => {
            format!(
                "take {share} of the {name}, which reads {} for them and carries {}",
                rate_text(used),
                rate_text(capacity)
            )
        }
        (Some(Resource::ServerThread | Resource::Generator), _) => {
            format!("keep the {name} busy for {}", time_share(one.utilisation.value))
        }
        (Some(Resource::ServerCpu), _) => format!("take {share} of the CPU time that the server may use"),
        (Some(Resource::ClientCpu), _) => format!("take {share} of the CPU time that the client may use"),
        _ => format!("take {share} of the {name}"),
    }
}

/// A share of the time, of which there is no more than all.
fn time_share(share: f64) -> String {
    if share >= 0.995 { "all of the time".into() } else { format!("{} of the time", percent(share)) }
}

fn is_workers_resource(word: Name) -> bool {
    word.as_str() == Resource::Workers.name()
}

/// `disk 27 %`.
fn busy_text(one: &ResourceUse) -> String {
    format!("{} {}", resource_name(one.resource), percent(one.utilisation.value))
}

fn unknown_limit(limit: &LoadLimit, because: &UnknownLimit) -> String {
    let most = request_rate(limit);
    let fullest =
        limit.used.first().map_or_else(String::new, |first| format!(": the fullest is the {}", busy_text(first)));
    let with = sweep_suffix(&limit.held);
    match because {
        UnknownLimit::TooLittle => format!("what limits{with} is not known: too little was measured"),
        UnknownLimit::StillGrowing { users } => {
            format!(
                "what limits{with} is not known: throughput still grew at {users} users, and the limit was not reached: it serves at \
                 least {most}{fullest}"
            )
        }
        UnknownLimit::NothingBusy => {
            format!("what limits{with} is not known: at {most} no resource is above 60 %{fullest}")
        }
        UnknownLimit::NothingFull { fullest: word } => format!(
            "what limits{with} is not known: at {most} the fullest resource, the {}, is at {}; something that was not watched limits",
            resource_name(*word),
            limit
                .used
                .iter()
                .find(|one| one.resource == *word)
                .map_or_else(String::new, |one| percent(one.utilisation.value))
        ),
        UnknownLimit::WorkersWait { refuted } => {
            format!("what limits{with} is not known: at {most} {}{fullest}", worker_wait(*refuted))
        }
        UnknownLimit::BeyondCapacity { resource } => format!(
            "what limits{with} is not known: at {most} the {} gave more than it was measured to have, so that its capacity is wrong",
            resource_name(*resource)
        ),
    }
}

/// What workers that do not work wait for.
fn worker_wait(refuted: bool) -> &'static str {
    if refuted {
        "more workers serve no more: they wait for each other, or for what serves one at a time, such as a lock or another server"
    } else {
        "all workers have a connection and most of the time do not work: they wait for what was not watched, such as a lock, a sleep or \
         another server; whether more of them would serve more is not known"
    }
}

/// `more workers serve more: 4 instead of 2 give 40 users 196 requests/s instead of 98, 2.0 times (1.9 to 2.1)`.
fn more_workers_sentence(of: &MoreWorkersClaim) -> String {
    let ([few, many], [before, after]) = (of.workers, of.throughput.map(number));
    let [times, low, high] = [of.times.value, of.times.low, of.times.high].map(number);
    format!(
        "more workers serve more by {} or more: {many} instead of {few} give {} {after} requests/s instead of {before}, {times} times as \
         many ({low} to {high})",
        percent(of.least - 1.0),
        users_text(of.users)
    )
}

fn doubt_suffix(doubts: &[LoadDoubt]) -> String {
    let words: Vec<&str> = doubts.iter().map(doubt_text).collect();
    if words.is_empty() { String::new() } else { format!("; not certain, as {}", words.join(" and ")) }
}

fn doubt_text(doubt: &LoadDoubt) -> &'static str {
    match doubt {
        LoadDoubt::Unexplained => "what was watched would allow more than 5 % more",
        LoadDoubt::Law(law) => match law {
            LoadLaw::Little => "Little's law does not hold",
            LoadLaw::FlowBalance => "the bytes sent and received differ",
            LoadLaw::Utilisation => "its work for a request changes with the number of users",
        },
        LoadDoubt::ClientNotWatched => "the client was not watched",
        LoadDoubt::LateGenerator => "requests were sent late",
        LoadDoubt::Errors => "more than one request in a hundred failed",
        LoadDoubt::NotWatched => "it was not watched itself, and a trace of what requests wait for would decide it",
        LoadDoubt::OthersWork => "no visit was made without that work, which would decide it",
        LoadDoubt::NoMoreMemory => "no visit was made with more memory, which would decide it",
        LoadDoubt::Untested => "no visit with more workers has tested it, which would decide it",
        LoadDoubt::Unsteady => "it was not the same throughout the study",
        LoadDoubt::Hindered { by, of_server } => match (by, of_server) {
            (Hindrance::AcceptQueue, _) => "connections found the accept queue full",
            (Hindrance::Steal, true) => "the hypervisor took CPU time from the server",
            (Hindrance::Steal, false) => "the hypervisor took CPU time from the client",
            (Hindrance::Quota, true) => "a CPU quota kept the server from running",
            (Hindrance::Quota, false) => "a CPU quota kept the client from running",
            (Hindrance::Retransmissions, _) => "segments were lost and sent again",
            (Hindrance::WithoutCpu, true) => {
                "threads of the server wait for CPUs that other work has, or that a quota keeps from them which cannot be seen"
            }
            (Hindrance::Stalls, _) => "nobody was answered at all for a part of the time",
            (Hindrance::WithoutCpu, false) => "threads of the client wait for CPUs that other work has",
        },
    }
}

/// The claim that it matters: `the hypervisor takes at least 5.0 % of the CPU time of the host of the server: 12 % (11 % to 13 %)`.
fn hindrance_claim(of: &HindranceClaim) -> String {
    let (limit, whose) = (hindrance_threshold(of.by, of.of_server).unwrap_or(0.0), hindered_side(of));
    let (share, figure) = (percent(limit), hindrance_figure(of));
    match of.by {
        Hindrance::AcceptQueue => {
            format!("the accept queue of the server overflows for a connection of each visit or more: {figure}")
        }
        Hindrance::Steal => {
            format!("the hypervisor takes at least {share} of the CPU time of the host of the {whose}: {figure}")
        }
        Hindrance::Quota => format!(
            "its CPU quota keeps the {whose} from running in at least {share} of the quota's periods: {figure}{}",
            limit_action(of)
        ),
        Hindrance::Retransmissions => {
            format!("TCP sends at least {share} of the server's segments again: {figure}{}", limit_action(of))
        }
        Hindrance::WithoutCpu => cpu_wait_text(whose, &figure),
        Hindrance::Stalls => format!("nobody is answered at all for at least {share} of the time: {figure}"),
    }
}

/// `threads of the server wait for a CPU, 1.6 (1.5 to 1.7) on average: ...`.
fn cpu_wait_text(whose: &str, figure: &str) -> String {
    format!(
        "threads of the {whose} wait for a CPU, {figure} on average: other work has the CPUs of its host, or a quota stops it that cannot \
         be seen"
    )
}

/// `12 % (11 % to 13 %)`, or so many connections.
fn hindrance_figure(of: &HindranceClaim) -> String {
    let Estimate { value, low, high, .. } = of.amount;
    match of.by {
        Hindrance::AcceptQueue | Hindrance::WithoutCpu => {
            format!("{} ({} to {})", number(value), number(low), number(high))
        }
        _ => format!("{} ({} to {})", percent(value), percent(low), percent(high.min(1.0))),
    }
}

fn hindered_side(of: &HindranceClaim) -> &'static str {
    if of.of_server { "server" } else { "load generator" }
}

/// Where it is how the limit acts, that it is.
fn limit_action(of: &HindranceClaim) -> &'static str {
    match of.by {
        Hindrance::Quota if of.is_how_it_limits => ", which is how it limits",
        Hindrance::Retransmissions if of.is_how_it_limits => ", as a full link makes it",
        _ => "",
    }
}

/// `the hypervisor took 12 % (11 % to 13 %) of the CPU time of the server's host`.
fn hindrance_text(of: &HindranceClaim) -> String {
    let (share, whose, why) = (hindrance_figure(of), hindered_side(of), limit_action(of));
    match of.by {
        Hindrance::AcceptQueue => {
            let Estimate { value, low, high, .. } = of.amount;
            format!(
                "the accept queue of the server overflows: {} connections of a visit ({} to {}) find it full, and are tried again a second \
                 or more later",
                number(value),
                number(low),
                number(high)
            )
        }
        Hindrance::Steal => format!("the hypervisor takes {share} of the CPU time of the host of the {whose}"),
        Hindrance::Quota => {
            format!("its CPU quota keeps the {whose} from running in {share} of the quota's periods{why}")
        }
        Hindrance::Retransmissions => format!("TCP sends {share} of the server's segments again{why}"),
        Hindrance::WithoutCpu => cpu_wait_text(whose, &share),
        Hindrance::Stalls => format!("nobody is answered at all for {share} of the time"),
    }
}

/// `with a network 3.8 times as fast the disk would be the limit, at 21.8 requests/s; with one 1.6 times as fast, at 9.1, if ...`.
fn next_limit_sentence(of: &NextLimitClaim) -> String {
    let (limit, next) = (resource_name(of.limit), resource_name(of.next));
    let how = if is_workers_resource(of.limit) { "as high" } else { "as fast" };
    let at =
        |times: f64, throughput: f64| format!("{} times {how}, at {} requests/s", number(times), number(throughput));
    let measured = at(of.as_measured.times, of.as_measured.throughput);
    match limit_by_capacity(of) {
        Some(alone) => format!(
            "of what was watched the next limit is the {next}: if the {limit} were {}, by its capacity alone; {measured}, if each \
             request goes on taking as much of it as under load",
            at(alone.times, alone.throughput)
        ),
        None => format!("of what was watched the next limit is the {next}: if the {limit} were {measured}"),
    }
}

/// How far the next limit is away by capacities alone, where that is more than 10 % from what follows from the use under load.
fn limit_by_capacity(of: &NextLimitClaim) -> Option<LimitProjection> {
    of.from_capacity.filter(|alone| (alone.times / of.as_measured.times).ln().abs() > 0.1_f64.ln_1p())
}

fn law_sentence(check: &LoadLawCheck, holds: Option<bool>) -> String {
    let name = match check.law {
        LoadLaw::Little => "Little's law holds: requests in flight at the server are throughput times response time",
        LoadLaw::FlowBalance => "flow balance holds: the bytes that the server sent are those that the client received",
        LoadLaw::Utilisation => {
            "the utilisation law holds: from half the knee on, the fullest resource works as much for a request as at saturation"
        }
    };
    let at = check.at.map_or_else(String::new, |users| format!(" with {users} users"));
    let off = &check.off;
    let verdict = if holds == Some(false) { ", which is too far" } else { "" };
    format!(
        "{name}, to within {}: {}{at} ({} to {}){verdict}",
        percent(check.tolerance),
        signed_percent(off.value),
        signed_percent(off.low),
        signed_percent(off.high)
    )
}

fn signed_percent(share: f64) -> String {
    // Zero that is added makes minus zero plain.
    format!("{:+.1} %", (share * 1000.0).round() / 10.0 + 0.0)
}

fn stability_sentence(drift: &Estimate, back: Option<&(u64, Estimate)>, tolerance: f64) -> String {
    let span = |of: &Estimate| {
        format!("{} ({} to {})", signed_percent(of.value), signed_percent(of.low), signed_percent(of.high))
    };
    let back = back.map_or_else(String::new, |(count, off)| {
        format!("; the last visit, to {} again, differs from those before by {}", users_text(*count), span(off))
    });
    format!(
        "the server is at the end what it was at the start, within {}: over the study throughput changes by {} at equal numbers of \
         users{back}",
        percent(tolerance),
        span(drift)
    )
}

fn generator_sentence(cpu: Option<&Estimate>, late: Option<f64>, holds: Option<bool>) -> String {
    let cpu = cpu.map(|cpu| format!("{} of its CPU", percent(cpu.value)));
    let late = late.map(|late| format!("at most {} late", value_text(late, Unit::Nanoseconds)));
    let parts: Vec<String> = cpu.into_iter().chain(late).collect();
    let not_so = if holds == Some(false) { ", which is not so" } else { "" };
    format!("the load generator was not the limit{not_so}: {}", parts.join(", "))
}

fn response_sentence((few, alone): (u64, f64), (many, crowded): (u64, f64)) -> String {
    let time = |value: f64| value_text(value, Unit::Nanoseconds);
    let waiting =
        if crowded > alone { format!(", {} of it spent waiting", time(crowded - alone)) } else { String::new() };
    format!(
        "the response time grows with the number of users: {} with {}, {} with {}{waiting}",
        time(alone),
        users_text(few),
        time(crowded),
        users_text(many)
    )
}

fn users_text(count: u64) -> String {
    if count == 1 { "one user".to_owned() } else { format!("{count} users") }
}

fn scalability_sentence(
    contention: &Estimate,
    coherency: &Estimate,
    peak: Option<f64>,
    furthest: &LawDeviation,
) -> String {
    let span = |of: &Estimate| format!("{} ({} to {})", percent(of.value), percent(of.low), percent(of.high));
    let peak = peak.map_or_else(
        || "it does not fall within the measured range".to_owned(),
        |peak| format!("highest with {}", users_text(peak as u64)),
    );
    format!(
        "the universal scalability law describes throughput by users: contention {}, coherency {}, {peak}; at {} users it is {} \
         times what was measured",
        span(contention),
        span(coherency),
        furthest.workers,
        number(furthest.ratio)
    )
}

/// `the throughput at saturation is the same within 5.0 % with 1 s of think time as with no think time: 5.8 and 5.7 requests/s`.
fn comparison_sentence(of: &LoadComparison) -> String {
    let [usual, other] = [&of.cases[0], &of.cases[1]].map(|held| answer::property_text(of.by, held));
    let [before, after] = of.values.map(|estimate| number(estimate.value));
    match of.figure {
        LoadFigure::Throughput { off, tolerance } => format!(
            "the throughput at saturation is the same within {} with {other} as with {usual}: {after} and {before} requests/s, {} \
             ({} to {})",
            percent(tolerance),
            signed_percent(off.value),
            signed_percent(off.low),
            signed_percent(off.high)
        ),
        LoadFigure::Knee => {
            let [before, after] = of.values.map(|knee| knee_interval(&knee));
            format!("with {other} the knee is later than with {usual}: at {after} and {before} users")
        }
        LoadFigure::FromDisk => format!(
            "with {other} the disk reads less than with {usual}: {after} and {before} bytes for each byte served"
        ),
    }
}

/// `12 (10 to 14)`.
fn knee_interval(knee: &Estimate) -> String {
    let span = if knee.low == knee.high { String::new() } else { format!(" ({} to {})", knee.low, knee.high) };
    format!("{}{span}", knee.value)
}

fn published_sentence(of: &PublishedLoadCase) -> String {
    format!(
        "{}: the capacities give what was seen: the {} as the limit, at {} requests/s; the study named the {}, and saw {}{}. The bounds cross at \
         {} users; by mean value analysis 95 % are reached with {}, 95 % of what was seen with {}; the study saw the knee at {}",
        of.name,
        resource_name(of.limit),
        number(of.capacity),
        resource_name(of.limit_seen),
        number(of.saturation_seen),
        if of.saturation_of_others { " in its other cases" } else { "" },
        number(of.crossing),
        of.knee,
        of.knee_against_seen,
        of.knee_seen
    )
}

/// What was asked for rather than measured, without digits that tell of measurement: `2 MB` for `2.00 MB`.
fn without_trailing_digits(text: String) -> String {
    text.replace(".00 ", " ").replace(".0 ", " ")
}

fn rate_text(bytes_a_second: f64) -> String {
    value_text(bytes_a_second, Unit::BytesPerSecond)
}

/// Bytes of which a fraction is no more than noise.
fn bytes_text(value: f64) -> String {
    if value.abs() < 10.0 {
        format!("{:.1} B", (value * 10.0).round() / 10.0 + 0.0)
    } else {
        value_text(value, Unit::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What 100 requests a second of 1 MB take of a resource that carries so much.
    fn use_of_requests(resource: Resource, utilisation: f64, capacity_bytes: Option<f64>) -> String {
        let certain = |value| Estimate { value, low: value, high: value, is_range: false };
        let one = ResourceUse { resource: resource.name().into(), utilisation: certain(utilisation), capacity_bytes };
        let limit = LoadLimit {
            held: Case::new(),
            verdict: LoadVerdict::Resource { by: one.resource },
            rule: String::new(),
            doubts: Vec::new(),
            knee: None,
            saturation: certain(100.0),
            request_bytes: Some(1e6),
            used: vec![one],
        };
        use_sentence(&limit, &one)
    }

    #[test]
    fn served_share_shown_only_if_used() {
        let network = |utilisation| use_of_requests(Resource::Link, utilisation, Some(103e6));
        assert_eq!(network(0.97), "are 97 % of the 103 MB/s that the network carries");
        assert_eq!(network(0.7), "take 70 % of the network");
        assert_eq!(
            use_of_requests(Resource::Disk, 1.01, Some(80e6)),
            "take 101 % of the disk, which reads 80.8 MB/s for them and carries 80.0 MB/s"
        );
        assert_eq!(
            use_of_requests(Resource::DiskRequests, 0.98, Some(80e6)),
            "take 98 % of the requests that the disk serves"
        );
        assert_eq!(
            use_of_requests(Resource::ServerCpu, 1.09, Some(60e6)),
            "take 109 % of the CPU time that the server may use"
        );
        let thread = |utilisation| use_of_requests(Resource::Generator, utilisation, Some(8e9));
        assert_eq!(thread(0.98), "keep the thread of the load generator busy for 98 % of the time");
        assert_eq!(thread(1.02), "keep the thread of the load generator busy for all of the time");
        assert_eq!(use_of_requests(Resource::Workers, 1.06, None), "keep the workers busy for all of the time");
    }
}
