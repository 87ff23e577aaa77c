//! A server under load in words.

use kelvin_catalogue::load::{Pattern, Resource, THINK};
use kelvin_model::units::{decimal_bytes, number, percent, plain};
use kelvin_model::{
    Case, Estimate, Furthest, Hindrance, Knee, LoadClaim, LoadComparison, LoadDoubt, LoadFigure, LoadHindrance,
    LoadLaw, LoadLawCheck, LoadLimit, LoadMoreWorkers, LoadVerdict, LoadWhatIf, Name, PublishedLoad, ResourceUse, Unit,
    UnknownLimit, Unwatched, WhatIf, Whereabouts,
};

use crate::studies::load::{LEAK, LEAKED, MORE, least};

mod answer;

pub(crate) use answer::{across, answer, told_apart};

/// The sentence of a claim.
pub(super) fn claim(claim: &LoadClaim, holds: Option<bool>) -> String {
    match claim {
        LoadClaim::Limit(limit) => of_limit(limit),
        LoadClaim::WhatIf(what_if) => next(what_if),
        LoadClaim::Scalability { contention, coherency, peak, furthest, .. } => {
            scalability(contention, coherency, *peak, furthest)
        }
        LoadClaim::Amplification { resource, times, .. } => format!(
            "the {} reads more than {} bytes for each byte served: {}{}",
            resource_name(*resource),
            number(MORE),
            number(times.value),
            if times.low == times.high {
                String::new()
            } else {
                format!(" ({} to {})", number(times.low), number(times.high))
            }
        ),
        LoadClaim::Law(check) => law(check, holds),
        LoadClaim::Generator { cpu, late } => generator(cpu.as_ref(), *late, holds),
        LoadClaim::MoreWorkers(more) => more_workers(more),
        LoadClaim::Response { alone, crowded } => response(*alone, *crowded),
        LoadClaim::Waiting { users, waiting } => format!(
            "with {users} users, {} of them ({} to {}) are not answered at all while others are served again and again: they wait for \
             a worker, or for their turn",
            number(waiting.value),
            number(waiting.low),
            number(waiting.high)
        ),
        LoadClaim::Growth { of_server, bytes_a_second, bytes_a_request, bytes_in_study } => {
            let span = |of: &Estimate| format!("{} ({} to {})", bytes(of.value), bytes(of.low), bytes(of.high));
            let besides = match bytes_in_study {
                Some(in_study) => format!("{} in the study", span(in_study)),
                None => format!("{} a second", bytes(bytes_a_second.value)),
            };
            format!(
                "the memory of the {} grows by more than {} a request and {} in the study: by {} a request, {besides}",
                if *of_server { "server" } else { "load generator" },
                bytes(LEAK),
                plain(LEAKED, Unit::Bytes),
                span(bytes_a_request)
            )
        }
        LoadClaim::Steady { drift, back, tolerance, .. } => steady(drift, back.as_ref(), *tolerance),
        LoadClaim::Hindrance(hindrance) => hindrance_matters(hindrance),
        LoadClaim::Across(comparison) => comparison_of(comparison),
        LoadClaim::Published(published) => of_published(published),
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
pub(crate) fn held(case: &Case) -> String {
    let pattern = match Pattern::of(case) {
        Some(Pattern::Fixed) => Some("one fixed file".to_owned()),
        Some(Pattern::Sequence) => Some("files in sequence".to_owned()),
        Some(Pattern::Zipf) => Some("few files asked for most".to_owned()),
        _ => None,
    };
    let think = THINK.of(case).filter(|&think| think > 0);
    let think = think.map(|think| format!("{} of think time", given(plain(think as f64 * 1e6, Unit::Nanoseconds))));
    let parts: Vec<String> = pattern.into_iter().chain(think).collect();
    if parts.is_empty() { String::new() } else { format!(" with {}", parts.join(" and ")) }
}

fn joined(words: &[Name], by: &str) -> String {
    let names: Vec<String> = words.iter().map(|&word| format!("the {}", resource_name(word))).collect();
    names.join(&format!(" {by} "))
}

/// `From 10 users (9 to 11) on the network is the limit: 5.6 requests/s of 2.00 MB are 97 % of the 11.6 MB/s that it carries`.
fn of_limit(limit: &LoadLimit) -> String {
    let from = limit.knee.map_or_else(String::new, from_users);
    let sure = if limit.doubts.is_empty() { "" } else { "probably " };
    let said = match &limit.verdict {
        LoadVerdict::Resource { by } => format!("the {} is {sure}the limit", resource_name(*by)),
        LoadVerdict::Both { by } => format!("{} are {sure}the limit together", joined(by, "and")),
        LoadVerdict::OneOf { by } => {
            format!("{} is {sure}the limit; they are too close to tell which", joined(by, "or"))
        }
        LoadVerdict::Client { .. } => format!("the client is {sure}the limit, and nothing follows about the server"),
        LoadVerdict::Unwatched { how, at } => {
            format!("what limits is probably {}: {}", outside(*how, *at), how_outside(*how, *at))
        }
        LoadVerdict::Unknown { because } => return unknown(limit, because),
    };
    let amount = requests(limit);
    let used = limit.used.first().map_or_else(String::new, |first| format!(" {}", takes(limit, first)));
    let others: Vec<String> = limit.used.iter().skip(1).map(busy).collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    format!("{from}{said}{}: {amount}{used}{others}{}", held(&limit.held), doubted(&limit.doubts))
}

/// What limits that was not watched, as a noun.
fn outside(how: Unwatched, at: Whereabouts) -> &'static str {
    match (how, at) {
        (Unwatched::OtherWork { .. }, Whereabouts::Client) => "other work on the CPUs of the load generator",
        (Unwatched::OtherWork { .. }, _) => "other work on the CPUs of the server's host",
        (Unwatched::Memory { .. }, _) => "the memory that is left for files, and then the disk",
        (Unwatched::Stalls { .. }, Whereabouts::Disk) => "stalls of the server at its disk",
        (Unwatched::Stalls { .. }, Whereabouts::Network) => "stalls of the network",
        (Unwatched::Stalls { .. }, Whereabouts::Between) => {
            "stalls of a proxy or another program before the server, or of all of the server"
        }
        (Unwatched::Stalls { .. }, _) => {
            "stalls of the server, such as garbage collection, a checkpoint, a lock that is held for long, or a quota that cannot be seen"
        }
        (Unwatched::Refusals { .. }, _) => "a limit of connections, or of the rate of requests",
        (Unwatched::Losses { .. }, _) => "losses on the way, or a slower link further on that drops",
        (Unwatched::InTurn { .. }, Whereabouts::Server | Whereabouts::Client) => {
            "a lock in the server, threads that wait, another server that it asks, or a limit of its rate"
        }
        (Unwatched::InTurn { .. }, Whereabouts::Between) => {
            "a proxy or another program before the server, by a lock, few connections or a limit of the rate"
        }
        (Unwatched::InTurn { .. }, Whereabouts::Network) => "a slower link further on, or losses on the way",
        (Unwatched::InTurn { .. }, Whereabouts::Disk) => "the disk, by what the server reads or writes",
        (Unwatched::Each { .. }, Whereabouts::Server | Whereabouts::Client) => {
            "a wait of each request in the server, such as a sleep or another server that it asks"
        }
        (Unwatched::Each { .. }, Whereabouts::Between) => {
            "a delay or a limit of each connection, in a proxy or another program before the server"
        }
        (Unwatched::Each { .. }, Whereabouts::Network) => {
            "the network of each connection: round trips, windows or losses"
        }
        (Unwatched::Each { .. }, Whereabouts::Disk) => "the disk, by the time of each read or write",
    }
}

/// `one request at a time is served, for 10 ms each`, and where.
fn how_outside(how: Unwatched, at: Whereabouts) -> String {
    let time = |nanoseconds: u64| given(plain(nanoseconds as f64, Unit::Nanoseconds));
    let at = match at {
        Whereabouts::Client => "at the load generator",
        Whereabouts::Server => "in the server, which does not work meanwhile",
        Whereabouts::Disk => "in the server, which waits for its disk",
        Whereabouts::Network => "on their way to the client",
        Whereabouts::Between => "neither in the server nor on the way from it",
    };
    let what = match how {
        Unwatched::InTurn { at_once: 1, nanoseconds } => {
            format!("one request at a time is served, for {}", time(nanoseconds))
        }
        Unwatched::InTurn { at_once, nanoseconds } => {
            format!("{at_once} requests at a time are served, for {} each", time(nanoseconds))
        }
        Unwatched::Each { nanoseconds } => {
            format!("each request takes {} longer than its work, with any number of users", time(nanoseconds))
        }
        Unwatched::Losses { per_thousand } => {
            format!("of a hundred segments TCP sends {} again", number(per_thousand as f64 / 10.0))
        }
        Unwatched::Stalls { percent, nanoseconds, every_nanoseconds } => format!(
            "nobody is answered for {percent} % of the time, {} at a time and each {} on average",
            time(nanoseconds),
            time(every_nanoseconds)
        ),
        Unwatched::OtherWork { percent } => {
            return format!(
                "for {percent} % of the time of requests, a thread that works for them, at either end, is ready to run and has no CPU"
            );
        }
        Unwatched::Memory { users, percent } => {
            return format!(
                "from {users} users on the disk reads {} bytes for each byte served, and with fewer users next to none",
                number(percent as f64 / 100.0)
            );
        }
        Unwatched::Refusals { percent } => return format!("{percent} % of the requests are turned away, or fail"),
    };
    format!("{what}; requests are most of the time {at}")
}

fn from_users(knee: Knee) -> String {
    let span = if knee.low == knee.high { String::new() } else { format!(" ({} to {})", knee.low, knee.high) };
    match knee.users {
        1 => format!("with a single user{span} "),
        users => format!("from {users} users{span} on "),
    }
}

fn requests(limit: &LoadLimit) -> String {
    let bytes = limit.request_bytes.map_or_else(String::new, |bytes| {
        format!(" of {} ({})", decimal_bytes(bytes), rate(bytes * limit.saturation.value))
    });
    format!("{} requests/s{bytes}", number(limit.saturation.value))
}

/// What the requests take of a resource: `are 97 % of the 11.6 MB/s that the network carries`. What is served is that share only where
/// a request takes as much under load as alone, and all of it passes there; else the share is said of what was watched.
fn takes(limit: &LoadLimit, one: &ResourceUse) -> String {
    const ALIKE: f64 = 0.05;
    let (share, name) = (percent(one.utilisation.value), resource_name(one.resource));
    let used = one.capacity_bytes.map(|capacity| (one.utilisation.value * capacity, capacity));
    let served = limit.request_bytes.map(|bytes| bytes * limit.saturation.value);
    let is_served = |used: f64| served.is_some_and(|served| (used / served - 1.0).abs() <= ALIKE);
    let resource = Resource::ALL.iter().find(|resource| one.resource == *resource.name());
    match (resource, used) {
        (Some(Resource::DiskRequests), _) => format!("take {share} of the requests that the disk serves"),
        (Some(Resource::Workers), _) => format!("keep the workers busy for {}", of_time(one.utilisation.value)),
        (Some(Resource::ClientWindow), _) => format!("keep the {name} full for {}", of_time(one.utilisation.value)),
        (_, Some((used, capacity))) if is_served(used) => {
            format!("are {share} of the {} that the {name} carries", rate(capacity))
        }
        (Some(Resource::Disk), Some((used, capacity))) => {
            format!("take {share} of the {name}, which reads {} for them and carries {}", rate(used), rate(capacity))
        }
        (Some(Resource::ServerThread | Resource::Generator), _) => {
            format!("keep the {name} busy for {}", of_time(one.utilisation.value))
        }
        (Some(Resource::ServerCpu), _) => format!("take {share} of the CPU time that the server may use"),
        (Some(Resource::ClientCpu), _) => format!("take {share} of the CPU time that the client may use"),
        _ => format!("take {share} of the {name}"),
    }
}

/// A share of the time, of which there is no more than all.
fn of_time(share: f64) -> String {
    if share >= 0.995 { "all of the time".into() } else { format!("{} of the time", percent(share)) }
}

fn is_workers(word: Name) -> bool {
    word.as_str() == Resource::Workers.name()
}

/// `disk 27 %`.
fn busy(one: &ResourceUse) -> String {
    format!("{} {}", resource_name(one.resource), percent(one.utilisation.value))
}

fn unknown(limit: &LoadLimit, because: &UnknownLimit) -> String {
    let most = requests(limit);
    let fullest = limit.used.first().map_or_else(String::new, |first| format!(": the fullest is the {}", busy(first)));
    let with = held(&limit.held);
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
            format!("what limits{with} is not known: at {most} {}{fullest}", waiting_workers(*refuted))
        }
        UnknownLimit::BeyondCapacity { resource } => format!(
            "what limits{with} is not known: at {most} the {} gave more than it was measured to have, so that its capacity is wrong",
            resource_name(*resource)
        ),
    }
}

/// What workers that do not work wait for.
fn waiting_workers(refuted: bool) -> &'static str {
    if refuted {
        "more workers serve no more: they wait for each other, or for what serves one at a time, such as a lock or another server"
    } else {
        "all workers have a connection and most of the time do not work: they wait for what was not watched, such as a lock, a sleep or \
         another server; whether more of them would serve more is not known"
    }
}

/// `more workers serve more: 4 instead of 2 give 40 users 196 requests/s instead of 98, 2.0 times (1.9 to 2.1)`.
fn more_workers(of: &LoadMoreWorkers) -> String {
    let ([few, many], [before, after]) = (of.workers, of.throughput.map(number));
    let [times, low, high] = [of.times.value, of.times.low, of.times.high].map(number);
    format!(
        "more workers serve more by {} or more: {many} instead of {few} give {} {after} requests/s instead of {before}, {times} times as \
         many ({low} to {high})",
        percent(of.least - 1.0),
        users(of.users)
    )
}

fn doubted(doubts: &[LoadDoubt]) -> String {
    let words: Vec<&str> = doubts.iter().map(doubt).collect();
    if words.is_empty() { String::new() } else { format!("; not certain, as {}", words.join(" and ")) }
}

fn doubt(doubt: &LoadDoubt) -> &'static str {
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
fn hindrance_matters(of: &LoadHindrance) -> String {
    let (limit, whose) = (least(of.by, of.of_server).unwrap_or(0.0), whose(of));
    let (share, figure) = (percent(limit), figure(of));
    match of.by {
        Hindrance::AcceptQueue => {
            format!("the accept queue of the server overflows for a connection of each visit or more: {figure}")
        }
        Hindrance::Steal => {
            format!("the hypervisor takes at least {share} of the CPU time of the host of the {whose}: {figure}")
        }
        Hindrance::Quota => format!(
            "its CPU quota keeps the {whose} from running in at least {share} of the quota's periods: {figure}{}",
            how_it_limits(of)
        ),
        Hindrance::Retransmissions => {
            format!("TCP sends at least {share} of the server's segments again: {figure}{}", how_it_limits(of))
        }
        Hindrance::WithoutCpu => without_cpu(whose, &figure),
        Hindrance::Stalls => format!("nobody is answered at all for at least {share} of the time: {figure}"),
    }
}

/// `threads of the server wait for a CPU, 1.6 (1.5 to 1.7) on average: ...`.
fn without_cpu(whose: &str, figure: &str) -> String {
    format!(
        "threads of the {whose} wait for a CPU, {figure} on average: other work has the CPUs of its host, or a quota stops it that cannot \
         be seen"
    )
}

/// `12 % (11 % to 13 %)`, or so many connections.
fn figure(of: &LoadHindrance) -> String {
    let Estimate { value, low, high, .. } = of.amount;
    match of.by {
        Hindrance::AcceptQueue | Hindrance::WithoutCpu => {
            format!("{} ({} to {})", number(value), number(low), number(high))
        }
        _ => format!("{} ({} to {})", percent(value), percent(low), percent(high.min(1.0))),
    }
}

fn whose(of: &LoadHindrance) -> &'static str {
    if of.of_server { "server" } else { "load generator" }
}

/// Where it is how the limit acts, that it is.
fn how_it_limits(of: &LoadHindrance) -> &'static str {
    match of.by {
        Hindrance::Quota if of.is_how_it_limits => ", which is how it limits",
        Hindrance::Retransmissions if of.is_how_it_limits => ", as a full link makes it",
        _ => "",
    }
}

/// `the hypervisor took 12 % (11 % to 13 %) of the CPU time of the server's host`.
fn hindered(of: &LoadHindrance) -> String {
    let (share, whose, why) = (figure(of), whose(of), how_it_limits(of));
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
        Hindrance::WithoutCpu => without_cpu(whose, &share),
        Hindrance::Stalls => format!("nobody is answered at all for {share} of the time"),
    }
}

/// `with a network 3.8 times as fast the disk would be the limit, at 21.8 requests/s; with one 1.6 times as fast, at 9.1, if ...`.
fn next(of: &LoadWhatIf) -> String {
    let (limit, next) = (resource_name(of.limit), resource_name(of.next));
    let how = if is_workers(of.limit) { "as high" } else { "as fast" };
    let at =
        |times: f64, throughput: f64| format!("{} times {how}, at {} requests/s", number(times), number(throughput));
    let measured = at(of.as_measured.times, of.as_measured.throughput);
    match alone(of) {
        Some(alone) => format!(
            "of what was watched the next limit is the {next}: if the {limit} were {}, by its capacity alone; {measured}, if each \
             request goes on taking as much of it as under load",
            at(alone.times, alone.throughput)
        ),
        None => format!("of what was watched the next limit is the {next}: if the {limit} were {measured}"),
    }
}

/// How far the next limit is away by capacities alone, where that is more than 10 % from what follows from the use under load.
fn alone(of: &LoadWhatIf) -> Option<WhatIf> {
    of.from_capacity.filter(|alone| (alone.times / of.as_measured.times).ln().abs() > 0.1_f64.ln_1p())
}

fn law(check: &LoadLawCheck, holds: Option<bool>) -> String {
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
        signed(off.value),
        signed(off.low),
        signed(off.high)
    )
}

fn signed(share: f64) -> String {
    // Zero that is added makes minus zero plain.
    format!("{:+.1} %", (share * 1000.0).round() / 10.0 + 0.0)
}

fn steady(drift: &Estimate, back: Option<&(u64, Estimate)>, tolerance: f64) -> String {
    let span = |of: &Estimate| format!("{} ({} to {})", signed(of.value), signed(of.low), signed(of.high));
    let back = back.map_or_else(String::new, |(count, off)| {
        format!("; the last visit, to {} again, differs from those before by {}", users(*count), span(off))
    });
    format!(
        "the server is at the end what it was at the start, within {}: over the study throughput changes by {} at equal numbers of \
         users{back}",
        percent(tolerance),
        span(drift)
    )
}

fn generator(cpu: Option<&Estimate>, late: Option<f64>, holds: Option<bool>) -> String {
    let cpu = cpu.map(|cpu| format!("{} of its CPU", percent(cpu.value)));
    let late = late.map(|late| format!("at most {} late", plain(late, Unit::Nanoseconds)));
    let parts: Vec<String> = cpu.into_iter().chain(late).collect();
    let not_so = if holds == Some(false) { ", which is not so" } else { "" };
    format!("the load generator was not the limit{not_so}: {}", parts.join(", "))
}

fn response((few, alone): (u64, f64), (many, crowded): (u64, f64)) -> String {
    let time = |value: f64| plain(value, Unit::Nanoseconds);
    let waiting =
        if crowded > alone { format!(", {} of it spent waiting", time(crowded - alone)) } else { String::new() };
    format!(
        "the response time grows with the number of users: {} with {}, {} with {}{waiting}",
        time(alone),
        users(few),
        time(crowded),
        users(many)
    )
}

fn users(count: u64) -> String {
    if count == 1 { "one user".to_owned() } else { format!("{count} users") }
}

fn scalability(contention: &Estimate, coherency: &Estimate, peak: Option<f64>, furthest: &Furthest) -> String {
    let span = |of: &Estimate| format!("{} ({} to {})", percent(of.value), percent(of.low), percent(of.high));
    let peak = peak.map_or_else(
        || "it does not fall within the measured range".to_owned(),
        |peak| format!("highest with {}", users(peak as u64)),
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
fn comparison_of(of: &LoadComparison) -> String {
    let [usual, other] = [&of.cases[0], &of.cases[1]].map(|held| answer::property(of.by, held));
    let [before, after] = of.values.map(|estimate| number(estimate.value));
    match of.figure {
        LoadFigure::Throughput { off, tolerance } => format!(
            "the throughput at saturation is the same within {} with {other} as with {usual}: {after} and {before} requests/s, {} \
             ({} to {})",
            percent(tolerance),
            signed(off.value),
            signed(off.low),
            signed(off.high)
        ),
        LoadFigure::Knee => {
            let [before, after] = of.values.map(|knee| knee_span(&knee));
            format!("with {other} the knee is later than with {usual}: at {after} and {before} users")
        }
        LoadFigure::FromDisk => format!(
            "with {other} the disk reads less than with {usual}: {after} and {before} bytes for each byte served"
        ),
    }
}

/// `12 (10 to 14)`.
fn knee_span(knee: &Estimate) -> String {
    let span = if knee.low == knee.high { String::new() } else { format!(" ({} to {})", knee.low, knee.high) };
    format!("{}{span}", knee.value)
}

fn of_published(of: &PublishedLoad) -> String {
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
fn given(text: String) -> String {
    text.replace(".00 ", " ").replace(".0 ", " ")
}

fn rate(bytes_a_second: f64) -> String {
    plain(bytes_a_second, Unit::BytesPerSecond)
}

/// Bytes of which a fraction is no more than noise.
fn bytes(value: f64) -> String {
    if value.abs() < 10.0 { format!("{:.1} B", (value * 10.0).round() / 10.0 + 0.0) } else { plain(value, Unit::Bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What 100 requests a second of 1 MB take of a resource that carries so much.
    fn taken(resource: Resource, utilisation: f64, capacity_bytes: Option<f64>) -> String {
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
        takes(&limit, &one)
    }

    #[test]
    fn a_share_is_said_of_what_is_served_only_where_that_is_what_was_used() {
        let network = |utilisation| taken(Resource::Link, utilisation, Some(103e6));
        assert_eq!(network(0.97), "are 97 % of the 103 MB/s that the network carries");
        assert_eq!(network(0.7), "take 70 % of the network");
        assert_eq!(
            taken(Resource::Disk, 1.01, Some(80e6)),
            "take 101 % of the disk, which reads 80.8 MB/s for them and carries 80.0 MB/s"
        );
        assert_eq!(taken(Resource::DiskRequests, 0.98, Some(80e6)), "take 98 % of the requests that the disk serves");
        assert_eq!(taken(Resource::ServerCpu, 1.09, Some(60e6)), "take 109 % of the CPU time that the server may use");
        let thread = |utilisation| taken(Resource::Generator, utilisation, Some(8e9));
        assert_eq!(thread(0.98), "keep the thread of the load generator busy for 98 % of the time");
        assert_eq!(thread(1.02), "keep the thread of the load generator busy for all of the time");
        assert_eq!(taken(Resource::Workers, 1.06, None), "keep the workers busy for all of the time");
    }
}
