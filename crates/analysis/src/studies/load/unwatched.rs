//! What limits where nothing that was watched is full: how it does, by throughput and response times, and where requests are meanwhile.

use kelvin_catalogue::load::hosts::{CPU_STEAL, DISK_WRITES, Host, PRESSURE_IO, RETRANSMITTED, WITHOUT_CPU};
use kelvin_catalogue::load::{
    BLOCKED, Device, ERRORS, FROM_DISK, IN_FLIGHT, IN_NETWORK, RATE, RESPONSE, RESPONSE_P50, Resource, SERVICE,
    STALLED, STALLS, WRITTEN,
};
use kelvin_model::{Hindrance, LoadVerdict, Unwatched, Whereabouts};
use kelvin_stats::{LEVEL, Uncertain, mean};

use super::hindrance::STALLING;
use super::laws::{in_flight_at_client, service};
use super::sweep::{Load, Sweep, Visit};
use super::used::with_interval;
use super::verdict::{Facts, NEAR};

/// Share of a request's time from which on it is most of it.
const MOST: f64 = 0.5;
/// The same where nothing else may matter: each of many users would meet it.
const NEARLY_ALL: f64 = 0.8;
/// Share of the places that something has which are taken at saturation, at least: not all, since who gets one has to be woken up first.
const TAKEN: f64 = 0.7;
/// The median of the response times of a single user over their mean, from which on they are alike: of an exponential distribution it is
/// 0.69. Where it is less, a few requests take long, and most do not wait at all.
const ALIKE: f64 = 0.65;
/// How much longer a request may wait with the most users than with the fewest where users do not wait for each other.
const AS_LONG: f64 = 1.15;
/// Seconds below which waking up and scheduling take as long as what a request waits for.
const TELLING: f64 = 1e-3;
/// Share of requests that fail from which on that is what keeps users from answers.
const REFUSED: f64 = 0.1;
/// Bytes of the disk for each byte served from which the server waits for what it reads.
const FROM_THE_DISK: f64 = 0.1;
/// What the server writes and the disk is asked for with each request where it has its writes flushed: half a page, and half a write. A log
/// that is written behind is a hundredth of that.
const FLUSHED: f64 = 2048.0;
const WRITES: f64 = 0.5;
/// Share of the time in which tasks wait for the disk, from which on it is there: who waits for a journal does so for a part of it.
const FLUSHING: f64 = 0.1;

/// What the requests of a number of users take.
struct Taken {
    /// Seconds of one from when it left until its answer had come.
    seconds: f64,
    /// Of these, those that no resource which was watched works for it.
    unwatched: f64,
}

impl Taken {
    /// `None` where it was not measured.
    fn of(sweep: &Sweep, load: &Load) -> Option<Self> {
        let seconds = mean_of(load, service)?;
        let watched = mean_of(load, |visit| Some(worked(sweep, visit) / visit.throughput))?;
        Some(Self { seconds, unwatched: (seconds - watched).max(0.0) })
    }

    /// Of a single user, whose requests wait for nobody else's; `None` without a visit to one.
    fn alone(sweep: &Sweep) -> Option<Self> {
        Self::of(sweep, sweep.loads.first().filter(|load| load.users == 1)?)
    }

    fn share(&self) -> f64 {
        self.unwatched / self.seconds
    }
}

/// Users of whom each may wait for a slow answer of his own: only where there are more, all of them tell of a stall.
const FEW_USERS: u64 = 4;
/// Stalls that were seen, from which on it was no single one.
const SOME_STALLS: f64 = 3.0;
/// Growth of throughput that counts as none, as the knee is told.
const NO_GROWTH: f64 = 1.05;

/// Other programs that have the CPUs, where most of what requests take is waiting for one, with a single user as well.
pub(super) fn other_work(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let saturated = facts.saturated.filter(|saturated| saturated.others_have_cpus())?;
    let waited = |visit: &Visit, host| visit.of_host(host, &WITHOUT_CPU).unwrap_or(0.0);
    // Requests of users who think for longer are not held up by it.
    let is_telling = mean_of_all(saturated.visits().filter_map(service))? >= facts.sweep.think();
    let of_alone = |visit: &Visit| {
        let waited = waited(visit, Host::Server) + waited(visit, Host::Client);
        Some(waited / visit.throughput / service(visit)?)
    };
    let alone = facts.sweep.loads.first().filter(|load| load.users == 1);
    let alone = alone.and_then(|load| mean_of(load, of_alone));
    // Of many users, whose threads wait at the same time, by what either end wants.
    let at_most = |share: f64| (share.min(1.0) * 100.0).round() as u64;
    let of = |host| mean_of_all(saturated.visits().map(|visit| waited(visit, host))).unwrap_or(0.0);
    let at = if of(Host::Client) > of(Host::Server) { Whereabouts::Client } else { Whereabouts::Server };
    let percent = at_most(alone.unwrap_or(of(Host::Client) + of(Host::Server)));
    let how = Unwatched::OtherWork { percent };
    (is_telling && alone.is_none_or(|share| share >= MOST)).then_some(LoadVerdict::Unwatched { how, at })
}

/// Stalls in which nobody is answered, for a tenth of the time or longer. Where a CPU is waited for or taken away as long, that is why.
pub(super) fn stalls(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let saturated = facts.saturated.filter(|_| facts.sweep.most_users() >= FEW_USERS)?;
    // Those with enough users, whether or not fewer serve as much.
    let visits = || saturated.loads().iter().filter(|load| load.users >= FEW_USERS).flat_map(|load| &load.visits);
    let of = |metric| mean_of_all(visits().filter_map(move |visit| visit.get(metric)));
    let (share, rate) = (of(&STALLED)?, of(&STALLS)?);
    let seen: f64 = visits().filter_map(|visit| Some(visit.get(&STALLS)? * visit.seconds)).sum();
    let taken = |visit: &Visit| {
        let steal = visit.of_host(Host::Server, &CPU_STEAL).unwrap_or(0.0);
        visit.of_host(Host::Client, &WITHOUT_CPU).unwrap_or(0.0).max(steal)
    };
    let taken = mean_of_all(visits().map(taken))?;
    let how = Unwatched::Stalls {
        percent: (share * 100.0).round() as u64,
        nanoseconds: nanoseconds(share / rate),
        every_nanoseconds: nanoseconds(1.0 / rate),
    };
    let at = whereabouts(facts.sweep, saturated.loads())?;
    (share >= STALLING && seen >= SOME_STALLS && taken < share).then_some(LoadVerdict::Unwatched { how, at })
}

/// From how many users on files come from the disk that fewer users have in memory, and how many bytes of each that is served.
pub(super) fn beyond_memory(sweep: &Sweep) -> Option<(usize, f64)> {
    let read = |visit: &Visit| Some(visit.get(&FROM_DISK)? / visit.get(&RATE).filter(|rate| *rate > 0.0)?);
    let of = |loads: &[Load]| loads.iter().flat_map(|load| &load.visits).filter_map(read).collect::<Vec<f64>>();
    let from = sweep.loads.iter().rposition(|load| mean_of(load, read).is_none_or(|read| read < FROM_THE_DISK))? + 1;
    let (below, above) = sweep.loads.split_at(from);
    let (below, above) = (of(below), of(above));
    let more = Uncertain::mean(&above)?.minus(Uncertain::mean(&below)?);
    (mean(&below) < FROM_THE_DISK && with_interval(more, LEVEL).low >= FROM_THE_DISK).then(|| (from, mean(&above)))
}

/// Memory that holds the files of fewer users only, where more of them bring nothing and no resource is full by it.
pub(super) fn memory(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let (from, read) = beyond_memory(facts.sweep)?;
    let (below, above) = facts.sweep.loads.split_at(from);
    let throughput = |load: &Load| mean(&load.throughputs());
    let most = below.iter().map(throughput).fold(0.0, f64::max);
    let is_no_more = mean(&above.iter().map(throughput).collect::<Vec<f64>>()) <= NO_GROWTH * most;
    let is_of_disk = |resource: &Resource| matches!(resource.device(), Device::Disk | Device::Workers);
    let used = |visit: &Visit| {
        let others = visit.used.iter().filter(|(resource, _)| !is_of_disk(resource));
        Some(others.map(|(_, share)| *share).fold(0.0, f64::max))
    };
    let is_idle = mean_of_all(above.iter().flat_map(|load| &load.visits).filter_map(used))? < NEAR;
    let how = Unwatched::Memory { users: above.first()?.users, percent: (read * 100.0).round() as u64 };
    (is_no_more && is_idle).then_some(LoadVerdict::Unwatched { how, at: Whereabouts::Disk })
}

/// The disk, where the server's threads were seen to wait in the kernel for most of what requests take, with a single user as well, and it
/// reads what is served or has its writes flushed.
pub(super) fn blocked(facts: &Facts<'_>, loads: &[Load]) -> Option<LoadVerdict> {
    let first = facts.sweep.loads.first().filter(|load| load.users == 1)?;
    let each = mean_of(first, |visit| Some(visit.get(&BLOCKED)? / visit.throughput))?;
    let visits = || loads.iter().flat_map(|load| &load.visits);
    let with_most = mean_of_all(visits().filter_map(|visit| Some(visit.get(&BLOCKED)? / visit.throughput)))?;
    let at = whereabouts(facts.sweep, loads).filter(|at| *at == Whereabouts::Disk)?;
    let throughput = mean_of_all(visits().map(|visit| visit.throughput))?;
    // Requests of users who think for longer are not held up by it.
    let is_telling = mean_of_all(visits().filter_map(service))? >= facts.sweep.think();
    let nanoseconds = nanoseconds(each);
    let how = match with_most <= AS_LONG * each {
        true => Unwatched::Each { nanoseconds },
        false => Unwatched::InTurn { at_once: (throughput * each).round().max(1.0) as u64, nanoseconds },
    };
    let share = blocked_share(facts.sweep, std::slice::from_ref(first))?;
    (is_telling && share >= MOST).then_some(LoadVerdict::Unwatched { how, at })
}

/// The share of the time of requests for which a thread of the server that works for them was in uninterruptible sleep; `None` where that
/// was not seen.
fn blocked_share(sweep: &Sweep, loads: &[Load]) -> Option<f64> {
    let servers = sweep.capacities.get(&Resource::ServerCpu).and_then(|one| one.servers).unwrap_or(1.0);
    let of_visit = |visit: &Visit| {
        // What the busiest does of all CPU time says how many threads there are at least: one may have several requests.
        let [all, busiest] = [Resource::ServerCpu, Resource::ServerThread].map(|resource| visit.used.get(&resource));
        let in_flight = visit.get(&IN_FLIGHT)?;
        let threads =
            all.zip(busiest).filter(|(_, busiest)| **busiest > 0.0).map(|(all, busiest)| servers * all / busiest);
        Some(visit.get(&BLOCKED)? / threads.map_or(in_flight, |threads| in_flight.min(threads.max(1.0))))
    };
    mean_of_all(loads.iter().flat_map(|load| &load.visits).filter_map(of_visit))
}

/// Requests that are turned away.
pub(super) fn refusals(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let saturated = facts.saturated?;
    let share = |visit: &Visit| visit.get(&ERRORS).map(|errors| errors / (errors + visit.throughput));
    let share = mean_of_all(saturated.visits().filter_map(share))?;
    let how = Unwatched::Refusals { percent: (share * 100.0).round() as u64 };
    (share >= REFUSED).then_some(LoadVerdict::Unwatched { how, at: whereabouts(facts.sweep, saturated.loads())? })
}

/// What each request waits for by itself, of a sweep whose throughput grows to the end.
pub(super) fn each(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let (alone, most) = (Taken::alone(facts.sweep)?, facts.sweep.loads.last()?);
    let is_as_long = Taken::of(facts.sweep, most)?.unwatched <= AS_LONG * alone.unwatched;
    let is_telling = alone.unwatched >= TELLING.max(facts.sweep.think()) && alone.share() >= NEARLY_ALL;
    let how = Unwatched::Each { nanoseconds: nanoseconds(alone.unwatched) };
    (is_as_long && is_telling)
        .then_some(LoadVerdict::Unwatched { how, at: whereabouts(facts.sweep, std::slice::from_ref(most))? })
}

/// What serves some requests at a time: as many as would be there at saturation, did each take as long as a single user's.
pub(super) fn in_turn(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let (saturated, alone) = (facts.saturated?, Taken::alone(facts.sweep)?);
    let places = saturated.at.throughput.value * alone.unwatched;
    let at_once = places.round().max(1.0);
    let is_telling = alone.share() >= MOST && are_alike(facts.sweep.loads.first()?);
    let how = Unwatched::InTurn { at_once: at_once as u64, nanoseconds: nanoseconds(alone.unwatched) };
    let at = whereabouts(facts.sweep, saturated.loads())?;
    (is_telling && places >= TAKEN * at_once).then_some(LoadVerdict::Unwatched { how, at })
}

/// Losses, of requests that are on their way most of the time.
pub(super) fn losses(sweep: &Sweep, loads: &[Load]) -> Option<LoadVerdict> {
    let least = super::least(Hindrance::Retransmissions, true)?;
    let visits = loads.iter().flat_map(|load| &load.visits);
    let share = mean_of_all(visits.filter_map(|visit| visit.of_host(Host::Server, &RETRANSMITTED)))?;
    let at = whereabouts(sweep, loads).filter(|at| share >= least && *at == Whereabouts::Network)?;
    Some(LoadVerdict::Unwatched { how: Unwatched::Losses { per_thousand: (share * 1e3).round() as u64 }, at })
}

/// Whether the requests of a user take about as long as each other.
fn are_alike(load: &Load) -> bool {
    let of_visit = |visit: &Visit| Some(visit.get(&RESPONSE_P50)? / visit.get(&RESPONSE)?);
    mean_of(load, of_visit).is_none_or(|median| median >= ALIKE)
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Resources that work for requests in the time that a request takes, or are waited for, on average: of each device its fullest part. A
/// worker that has a connection does not work for that, and the client not where the time is from when a request left.
fn worked(sweep: &Sweep, visit: &Visit) -> f64 {
    let client = visit.get(&SERVICE).is_none().then_some(Device::Client);
    let of_part = |(resource, share): (&Resource, &f64)| {
        share * sweep.capacities.get(resource).and_then(|capacity| capacity.servers).unwrap_or(1.0)
    };
    let of_device = |device: Device| {
        let parts = visit.used.iter().filter(|(resource, _)| resource.device() == device);
        parts.map(of_part).fold(0.0, f64::max)
    };
    let waiting = visit.of_host(Host::Server, &WITHOUT_CPU).unwrap_or(0.0);
    let devices = [Device::Disk, Device::Link, Device::ServerCpu].into_iter().chain(client);
    devices.map(of_device).sum::<f64>() + waiting
}

/// Where requests are most of the time; `None` where that was not counted, or is no place alone.
fn whereabouts(sweep: &Sweep, loads: &[Load]) -> Option<Whereabouts> {
    let share =
        |of: &dyn Fn(&Visit) -> Option<f64>| mean_of_all(loads.iter().flat_map(|load| &load.visits).filter_map(of));
    let at_server = share(&|visit| Some(visit.get(&IN_FLIGHT)? / in_flight_at_client(visit)?))?;
    if at_server < MOST {
        return Some(Whereabouts::Between);
    }
    if share(&|visit| visit.get(&IN_NETWORK)).is_some_and(|share| share >= MOST) {
        return Some(Whereabouts::Network);
    }
    // Its own threads tell it, or those of the host: short waits are not met by samples of the former.
    let blocked = blocked_share(sweep, loads);
    let waits = share(&|visit| visit.of_host(Host::Server, &PRESSURE_IO)).unwrap_or(0.0);
    let is_blocked = blocked.is_some_and(|share| share >= MOST);
    let waits_for = |least: f64| is_blocked || waits >= least;
    let reads = share(&|visit| Some(visit.get(&FROM_DISK)? / visit.get(&RATE).filter(|rate| *rate > 0.0)?));
    let is_read = waits_for(MOST) && reads.is_some_and(|reads| reads >= FROM_THE_DISK);
    let written = share(&|visit| Some(visit.get(&WRITTEN)? / visit.throughput));
    let writes = share(&|visit| Some(visit.of_host(Host::Server, &DISK_WRITES)? / visit.throughput));
    // Several requests may be flushed together, which who waits for it shows.
    let is_written = is_blocked || writes.is_some_and(|writes| writes >= WRITES);
    let is_flushed = is_written && written.is_some_and(|bytes| bytes >= FLUSHED) && waits_for(FLUSHING);
    Some(if is_read || is_flushed { Whereabouts::Disk } else { Whereabouts::Server })
}

fn mean_of(load: &Load, of: impl Fn(&Visit) -> Option<f64>) -> Option<f64> {
    mean_of_all(load.visits.iter().filter_map(of))
}

fn mean_of_all(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then(|| mean(&values))
}
