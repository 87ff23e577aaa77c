//! What limits where nothing that was watched is full: how it does, by throughput and response times, and where requests are meanwhile.

use super::hindrance::{MIN_RETRANSMITTED_SHARE, STALLING};
use super::laws::{client_in_flight, service_time};
use super::saturated_sweep::min_server_threads;
use super::*;

/// Share of a request's time from which on it is most of it.
const MIN_MAJOR_SHARE: f64 = 0.5;
/// Like `MIN_MAJOR_SHARE`, where nothing else may matter: each of many users would meet it.
const MIN_SOLE_SHARE: f64 = 0.8;
/// Share of the places that something has which are taken at saturation, at least: not all, since who gets one has to be woken up first.
const MIN_TAKEN_SHARE: f64 = 0.7;
/// The median of the response times of a single user over their mean, from which on they are alike: of an exponential distribution it is
/// 0.69. Where it is less, a few requests take long, and most do not wait at all.
const MIN_MEDIAN_TO_MEAN: f64 = 0.65;
/// How much longer a request may wait with the most users than with the fewest where users do not wait for each other.
const MAX_WAIT_GROWTH: f64 = 1.15;
/// Seconds below which waking up and scheduling take as long as what a request waits for.
const MIN_MEASURABLE_SECONDS: f64 = 1e-3;
/// Share of requests that fail from which on that is what keeps users from answers.
const MIN_REFUSED_SHARE: f64 = 0.1;
/// Bytes of the disk for each byte served from which the server waits for what it reads.
const MIN_DISK_BYTES: f64 = 0.1;
/// Bytes that the server writes with each request, and requests to the disk, where it has its writes flushed: half a page, and half a write.
/// A log that is written behind is a hundredth of that.
const MIN_FLUSHED_BYTES: f64 = 2048.0;
const MIN_DISK_WRITES: f64 = 0.5;
/// Share of the time in which tasks wait for the disk, from which on it is there: who waits for a journal does so for a part of it.
const MIN_FLUSHING_SHARE: f64 = 0.1;

/// What the requests of a number of users take.
struct RequestTimes {
    /// Seconds of one from when it left until its answer had come.
    seconds: f64,
    /// Of these, those that no resource which was watched works for it.
    unwatched_seconds: f64,
}

impl RequestTimes {
    /// `None` where it was not measured.
    fn from_load(sweep: &Sweep, load: &UserLoad) -> Option<Self> {
        let seconds = mean_figure(load, service_time)?;
        let watched_time = mean_figure(load, |visit| Some(watched_seconds(sweep, visit) / visit.throughput))?;
        Some(Self { seconds, unwatched_seconds: (seconds - watched_time).max(0.0) })
    }

    /// Of a single user, whose requests wait for nobody else's; `None` without a visit to one.
    fn of_single_user(sweep: &Sweep) -> Option<Self> {
        Self::from_load(sweep, sweep.loads.first().filter(|load| load.users == 1)?)
    }

    fn unwatched_share(&self) -> f64 {
        self.unwatched_seconds / self.seconds
    }
}

/// Users that may each wait for a slow answer of his own: only where there are more, all of them show a stall.
const FEW_USERS: u64 = 4;
/// Stalls that were seen, from which on it was no single one.
const SOME_STALLS: f64 = 3.0;
/// Growth of throughput that counts as none, as for the knee.
const NO_GROWTH: f64 = 1.05;

/// Other programs that have the CPUs, where most of what requests take is waiting for one, with a single user as well.
pub(super) fn other_work(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let saturated = facts.saturated.filter(|saturated| saturated.is_cpu_used_by_others())?;
    let waiting_threads = |visit: &LoadStep, host| visit.host_figure(host, &hosts::THREADS_WITHOUT_CPU).unwrap_or(0.0);
    // Requests of users who think for longer are not held up by it.
    let is_wait_long = mean_over_loads(saturated.loads(), service_time)? >= facts.sweep.think_seconds();
    let waited_share = |visit: &LoadStep| {
        let waiting = waiting_threads(visit, LoadHost::Server) + waiting_threads(visit, LoadHost::Client);
        Some(waiting / visit.throughput / service_time(visit)?)
    };
    let single_user = facts.sweep.loads.first().filter(|load| load.users == 1);
    let single_share = single_user.and_then(|load| mean_figure(load, waited_share));
    // Of many users, whose threads wait at the same time, by what either end wants.
    let capped_percent = |share: f64| (share.min(1.0) * 100.0).round() as u64;
    let [server, client] = [LoadHost::Server, LoadHost::Client]
        .map(|host| mean_over_loads(saturated.loads(), |visit| Some(waiting_threads(visit, host))).unwrap_or(0.0));
    let location = if client > server { RequestLocation::Client } else { RequestLocation::Server };
    let percent = capped_percent(single_share.unwrap_or(client + server));
    let is_most = single_share.is_none_or(|share| share >= MIN_MAJOR_SHARE);
    (is_wait_long && is_most).then_some(not_sampled(UnsampledLimit::OtherWork { percent }, location))
}

/// Stalls in which nobody is answered, for a tenth of the time or longer. Where a CPU is waited for or taken away as long, that is why.
pub(super) fn stalls(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let saturated = facts.saturated.filter(|_| facts.sweep.max_users() >= FEW_USERS)?;
    // Those with enough users, whether or not fewer serve as much.
    let visits = || saturated.loads().iter().filter(|load| load.users >= FEW_USERS).flat_map(|load| &load.steps);
    let mean_of = |metric| mean_if_complete(visits().filter_map(move |visit| visit.get(metric)));
    let (share, rate) = (mean_of(&STALLED)?, mean_of(&STALLS)?);
    let stall_count: f64 = visits().filter_map(|visit| Some(visit.get(&STALLS)? * visit.seconds)).sum();
    let cpu_loss = |visit: &LoadStep| {
        let steal = visit.host_figure(LoadHost::Server, &hosts::CPU_STEAL).unwrap_or(0.0);
        visit.host_figure(LoadHost::Client, &hosts::THREADS_WITHOUT_CPU).unwrap_or(0.0).max(steal)
    };
    let lost_share = mean_if_complete(visits().map(cpu_loss))?;
    let stalls = UnsampledLimit::Stalls {
        percent: (share * 100.0).round() as u64,
        nanoseconds: to_nanoseconds(share / rate),
        period_nanoseconds: to_nanoseconds(1.0 / rate),
    };
    let location = request_location(facts.sweep, saturated.loads())?;
    (share >= STALLING && stall_count >= SOME_STALLS && lost_share < share).then_some(not_sampled(stalls, location))
}

/// From how many users on files come from the disk that fewer users have in memory, and how many bytes of each that is served.
pub(super) fn memory_crossing(sweep: &Sweep) -> Option<(usize, f64)> {
    let read_ratio =
        |visit: &LoadStep| Some(visit.get(&DISK_BYTE_RATE)? / visit.get(&RATE).filter(|rate| *rate > 0.0)?);
    let ratios =
        |loads: &[UserLoad]| loads.iter().flat_map(|load| &load.steps).filter_map(read_ratio).collect::<Vec<f64>>();
    let first_index =
        sweep.loads.iter().rposition(|load| mean_figure(load, read_ratio).is_none_or(|read| read < MIN_DISK_BYTES))?
            + 1;
    let (few_users, many_users) = sweep.loads.split_at(first_index);
    let (low_ratios, high_ratios) = (ratios(few_users), ratios(many_users));
    let increase = UncertainValue::mean(&high_ratios)?.minus(UncertainValue::mean(&low_ratios)?);
    (mean(&low_ratios) < MIN_DISK_BYTES && interval_estimate(increase, CONFIDENCE_LEVEL).low >= MIN_DISK_BYTES)
        .then(|| (first_index, mean(&high_ratios)))
}

/// Memory that holds the files of fewer users only, where more of them bring nothing and no resource is full by it.
pub(super) fn memory(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let (first_index, read) = memory_crossing(facts.sweep)?;
    let (few_users, many_users) = facts.sweep.loads.split_at(first_index);
    let throughput = |load: &UserLoad| mean(&load.throughputs());
    let highest = few_users.iter().map(throughput).fold(0.0, f64::max);
    let is_no_more = mean(&many_users.iter().map(throughput).collect::<Vec<f64>>()) <= NO_GROWTH * highest;
    let is_of_disk = |resource: &Resource| matches!(resource.group(), ResourceGroup::Disk | ResourceGroup::Workers);
    let max_use = |visit: &LoadStep| {
        let other_uses = visit.resource_use.iter().filter(|(resource, _)| !is_of_disk(resource));
        Some(other_uses.map(|(_, share)| *share).fold(0.0, f64::max))
    };
    let is_idle = mean_over_loads(many_users, max_use)? < MIN_NEAR_USE;
    let memory = UnsampledLimit::Memory { users: many_users.first()?.users, percent: (read * 100.0).round() as u64 };
    (is_no_more && is_idle).then_some(not_sampled(memory, RequestLocation::Disk))
}

/// The disk, where the server's threads were seen to wait in the kernel for most of what requests take, with a single user as well, and it
/// reads what is served or has its writes flushed.
pub(super) fn blocked(facts: &VerdictFacts<'_>, loads: &[UserLoad]) -> Option<LoadVerdict> {
    let first = facts.sweep.loads.first().filter(|load| load.users == 1)?;
    let blocked = |visit: &LoadStep| Some(visit.get(&BLOCKED)? / visit.throughput);
    let (single, loaded) = (mean_figure(first, blocked)?, mean_over_loads(loads, blocked)?);
    let location = request_location(facts.sweep, loads).filter(|location| *location == RequestLocation::Disk)?;
    let throughput = mean_over_loads(loads, |visit| Some(visit.throughput))?;
    // Requests of users who think for longer are not held up by it.
    let is_wait_long = mean_over_loads(loads, service_time)? >= facts.sweep.think_seconds();
    let nanoseconds = to_nanoseconds(single);
    let concurrency = (throughput * single).round().max(1.0) as u64;
    let limit = match loaded <= MAX_WAIT_GROWTH * single {
        true => UnsampledLimit::PerRequest { nanoseconds },
        false => UnsampledLimit::LimitedConcurrency { concurrency, nanoseconds },
    };
    let share = blocked_share(facts.sweep, std::slice::from_ref(first))?;
    (is_wait_long && share >= MIN_MAJOR_SHARE).then_some(not_sampled(limit, location))
}

/// The share of the time of requests for which a thread of the server that works for them was in uninterruptible sleep; `None` where that
/// was not seen.
fn blocked_share(sweep: &Sweep, loads: &[UserLoad]) -> Option<f64> {
    let servers = sweep.servers(Resource::ServerCpu).unwrap_or(1.0);
    let visit_share = |visit: &LoadStep| {
        let in_flight = visit.get(&IN_FLIGHT)?;
        // One may have several requests.
        let threads = min_server_threads(visit, servers);
        Some(visit.get(&BLOCKED)? / threads.map_or(in_flight, |threads| in_flight.min(threads.max(1.0))))
    };
    mean_over_loads(loads, visit_share)
}

/// Requests that are turned away.
pub(super) fn refusals(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let saturated = facts.saturated?;
    let share = |visit: &LoadStep| visit.get(&ERRORS).map(|errors| errors / (errors + visit.throughput));
    let share = mean_over_loads(saturated.loads(), share)?;
    let refusals = UnsampledLimit::Refusals { percent: (share * 100.0).round() as u64 };
    let location = request_location(facts.sweep, saturated.loads())?;
    (share >= MIN_REFUSED_SHARE).then_some(not_sampled(refusals, location))
}

/// What each request waits for by itself, of a sweep whose throughput grows to the end.
pub(super) fn per_request_delay(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let (single_user, max_load) = (RequestTimes::of_single_user(facts.sweep)?, facts.sweep.loads.last()?);
    let is_as_long = RequestTimes::from_load(facts.sweep, max_load)?.unwatched_seconds
        <= MAX_WAIT_GROWTH * single_user.unwatched_seconds;
    let is_wait_long = single_user.unwatched_seconds >= MIN_MEASURABLE_SECONDS.max(facts.sweep.think_seconds())
        && single_user.unwatched_share() >= MIN_SOLE_SHARE;
    let wait = UnsampledLimit::PerRequest { nanoseconds: to_nanoseconds(single_user.unwatched_seconds) };
    let location = request_location(facts.sweep, std::slice::from_ref(max_load))?;
    (is_as_long && is_wait_long).then_some(not_sampled(wait, location))
}

/// What serves some requests at a time: as many as would be there at saturation, did each take as long as a single user's.
pub(super) fn limited_concurrency(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let (saturated, single_user) = (facts.saturated?, RequestTimes::of_single_user(facts.sweep)?);
    let places = saturated.saturation.throughput.value * single_user.unwatched_seconds;
    let slots = places.round().max(1.0);
    // The requests of a single user take about as long as each other.
    let median_to_mean = |visit: &LoadStep| Some(visit.get(&RESPONSE_P50)? / visit.get(&RESPONSE)?);
    let median_to_mean = mean_figure(facts.sweep.loads.first()?, median_to_mean);
    let is_constant_time = median_to_mean.is_none_or(|ratio| ratio >= MIN_MEDIAN_TO_MEAN);
    let is_sole_wait = single_user.unwatched_share() >= MIN_MAJOR_SHARE && is_constant_time;
    let (concurrency, nanoseconds) = (slots as u64, to_nanoseconds(single_user.unwatched_seconds));
    let location = request_location(facts.sweep, saturated.loads())?;
    (is_sole_wait && places >= MIN_TAKEN_SHARE * slots)
        .then_some(not_sampled(UnsampledLimit::LimitedConcurrency { concurrency, nanoseconds }, location))
}

/// Losses, of requests that are on their way most of the time.
pub(super) fn losses(sweep: &Sweep, loads: &[UserLoad]) -> Option<LoadVerdict> {
    let share = mean_over_loads(loads, |visit| visit.host_figure(LoadHost::Server, &hosts::RETRANSMITTED_SEGMENTS))?;
    let location = request_location(sweep, loads)
        .filter(|location| share >= MIN_RETRANSMITTED_SHARE && *location == RequestLocation::Network)?;
    Some(not_sampled(UnsampledLimit::Losses { per_thousand: (share * 1e3).round() as u64 }, location))
}

fn not_sampled(limit: UnsampledLimit, location: RequestLocation) -> LoadVerdict {
    LoadVerdict::NotSampled { limit, location }
}

fn to_nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Resources that work for requests in the time that a request takes, or are waited for, on average: of each device its fullest part. A
/// worker that has a connection does not work for that, and the client not where the time is from when a request left.
fn watched_seconds(sweep: &Sweep, visit: &LoadStep) -> f64 {
    let client = visit.get(&SERVICE).is_none().then_some(ResourceGroup::Client);
    let part_time = |(resource, share): (&Resource, &f64)| share * sweep.servers(*resource).unwrap_or(1.0);
    let device_time = |device: ResourceGroup| {
        let parts = visit.resource_use.iter().filter(|(resource, _)| resource.group() == device);
        parts.map(part_time).fold(0.0, f64::max)
    };
    let waiting = visit.host_figure(LoadHost::Server, &hosts::THREADS_WITHOUT_CPU).unwrap_or(0.0);
    let devices = [ResourceGroup::Disk, ResourceGroup::Link, ResourceGroup::ServerCpu].into_iter().chain(client);
    devices.map(device_time).sum::<f64>() + waiting
}

/// Where requests are most of the time; `None` where that was not counted, or is no place alone.
fn request_location(sweep: &Sweep, loads: &[UserLoad]) -> Option<RequestLocation> {
    let share = |quantity: &dyn Fn(&LoadStep) -> Option<f64>| mean_over_loads(loads, quantity);
    let server_share = share(&|visit| Some(visit.get(&IN_FLIGHT)? / client_in_flight(visit)?))?;
    if server_share < MIN_MAJOR_SHARE {
        return Some(RequestLocation::Between);
    }
    if share(&|visit| visit.get(&NETWORK_IN_FLIGHT)).is_some_and(|share| share >= MIN_MAJOR_SHARE) {
        return Some(RequestLocation::Network);
    }
    // Its own threads show it, or those of the host: short waits are not met by samples of the former.
    let blocked = blocked_share(sweep, loads);
    let io_pressure = share(&|visit| visit.host_figure(LoadHost::Server, &hosts::PRESSURE_IO)).unwrap_or(0.0);
    let is_blocked = blocked.is_some_and(|share| share >= MIN_MAJOR_SHARE);
    let waits_for = |min_share: f64| is_blocked || io_pressure >= min_share;
    let reads = share(&|visit| Some(visit.get(&DISK_BYTE_RATE)? / visit.get(&RATE).filter(|rate| *rate > 0.0)?));
    let is_read = waits_for(MIN_MAJOR_SHARE) && reads.is_some_and(|reads| reads >= MIN_DISK_BYTES);
    let written = share(&|visit| Some(visit.get(&WRITTEN_BYTE_RATE)? / visit.throughput));
    let writes = share(&|visit| Some(visit.host_figure(LoadHost::Server, &hosts::DISK_WRITES)? / visit.throughput));
    // Several requests may be flushed together, which who waits for it shows.
    let is_written = is_blocked || writes.is_some_and(|writes| writes >= MIN_DISK_WRITES);
    let is_flushed =
        is_written && written.is_some_and(|bytes| bytes >= MIN_FLUSHED_BYTES) && waits_for(MIN_FLUSHING_SHARE);
    Some(if is_read || is_flushed { RequestLocation::Disk } else { RequestLocation::Server })
}

fn mean_figure(load: &UserLoad, figure: impl Fn(&LoadStep) -> Option<f64>) -> Option<f64> {
    mean_over_loads(std::slice::from_ref(load), figure)
}

/// A quantity of the visits that have it.
fn mean_over_loads(loads: &[UserLoad], quantity: impl Fn(&LoadStep) -> Option<f64>) -> Option<f64> {
    mean_if_complete(loads.iter().flat_map(|load| &load.steps).filter_map(quantity))
}

fn mean_if_complete(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then(|| mean(&values))
}

/// What limits that was not watched, as a noun.
pub(super) fn limit_noun(limit: UnsampledLimit, location: RequestLocation) -> &'static str {
    match (limit, location) {
        (UnsampledLimit::OtherWork { .. }, RequestLocation::Client) => "other work on the CPUs of the load generator",
        (UnsampledLimit::OtherWork { .. }, _) => "other work on the CPUs of the server's host",
        (UnsampledLimit::Memory { .. }, _) => "the memory that is left for files, and then the disk",
        (UnsampledLimit::Stalls { .. }, RequestLocation::Disk) => "stalls of the server at its disk",
        (UnsampledLimit::Stalls { .. }, RequestLocation::Network) => "stalls of the network",
        (UnsampledLimit::Stalls { .. }, RequestLocation::Between) => {
            "stalls of a proxy or another program before the server, or of all of the server"
        }
        (UnsampledLimit::Stalls { .. }, _) => {
            "stalls of the server, such as garbage collection, a checkpoint, a lock that is held for long, or a quota that cannot be seen"
        }
        (UnsampledLimit::Refusals { .. }, _) => "a limit of connections, or of the rate of requests",
        (UnsampledLimit::Losses { .. }, _) => "losses on the way, or a slower link further on that drops",
        (UnsampledLimit::LimitedConcurrency { .. }, RequestLocation::Server | RequestLocation::Client) => {
            "a lock in the server, threads that wait, another server that it asks, or a limit of its rate"
        }
        (UnsampledLimit::LimitedConcurrency { .. }, RequestLocation::Between) => {
            "a proxy or another program before the server, by a lock, few connections or a limit of the rate"
        }
        (UnsampledLimit::LimitedConcurrency { .. }, RequestLocation::Network) => {
            "a slower link further on, or losses on the way"
        }
        (UnsampledLimit::LimitedConcurrency { .. }, RequestLocation::Disk) => {
            "the disk, by what the server reads or writes"
        }
        (UnsampledLimit::PerRequest { .. }, RequestLocation::Server | RequestLocation::Client) => {
            "a wait of each request in the server, such as a sleep or another server that it asks"
        }
        (UnsampledLimit::PerRequest { .. }, RequestLocation::Between) => {
            "a delay or a limit of each connection, in a proxy or another program before the server"
        }
        (UnsampledLimit::PerRequest { .. }, RequestLocation::Network) => {
            "the network of each connection: round trips, windows or losses"
        }
        (UnsampledLimit::PerRequest { .. }, RequestLocation::Disk) => "the disk, by the time of each read or write",
    }
}

/// `one request at a time is served, for 10 ms each`, and where.
pub(super) fn limit_sentence(limit: UnsampledLimit, location: RequestLocation) -> String {
    let time = |nanoseconds: u64| round_time(nanoseconds as f64);
    let location = match location {
        RequestLocation::Client => "at the load generator",
        RequestLocation::Server => "in the server, which does not work meanwhile",
        RequestLocation::Disk => "in the server, which waits for its disk",
        RequestLocation::Network => "on their way to the client",
        RequestLocation::Between => "neither in the server nor on the way from it",
    };
    let description = match limit {
        UnsampledLimit::LimitedConcurrency { concurrency: 1, nanoseconds } => {
            format!("one request at a time is served, for {}", time(nanoseconds))
        }
        UnsampledLimit::LimitedConcurrency { concurrency, nanoseconds } => {
            format!("{concurrency} requests at a time are served, for {} each", time(nanoseconds))
        }
        UnsampledLimit::PerRequest { nanoseconds } => {
            format!("each request takes {} longer than its work, with any number of users", time(nanoseconds))
        }
        UnsampledLimit::Losses { per_thousand } => {
            format!("TCP retransmits {} of a hundred segments", number(per_thousand as f64 / 10.0))
        }
        UnsampledLimit::Stalls { percent, nanoseconds, period_nanoseconds } => format!(
            "no request is answered for {percent} % of the time, {} at a time and each {} on average",
            time(nanoseconds),
            time(period_nanoseconds)
        ),
        UnsampledLimit::OtherWork { percent } => {
            return format!(
                "for {percent} % of the time of requests, a thread that works for them, at either end, is ready to run and has no CPU"
            );
        }
        UnsampledLimit::Memory { users, percent } => {
            return format!(
                "from {users} users on the disk reads {} bytes for each byte served, and with fewer users next to none",
                number(percent as f64 / 100.0)
            );
        }
        UnsampledLimit::Refusals { percent } => return format!("{percent} % of the requests are turned away, or fail"),
    };
    format!("{description}; requests are most of the time {location}")
}
