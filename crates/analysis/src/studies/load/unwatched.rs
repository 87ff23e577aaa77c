//! What limits where nothing that was watched is full: how it does, by throughput and response times, and where requests are meanwhile.

use kelvin_catalogue::load::hosts::{DISK_WRITES, Host, PRESSURE_IO, RETRANSMITTED, WITHOUT_CPU};
use kelvin_catalogue::load::{
    Device, ERRORS, FROM_DISK, IN_FLIGHT, IN_NETWORK, RATE, RESPONSE, RESPONSE_P50, Resource, SERVICE, WRITTEN,
};
use kelvin_model::{Hindrance, LoadVerdict, Unwatched, Whereabouts};
use kelvin_stats::mean;

use super::laws::{in_flight_at_client, service};
use super::sweep::{Load, Sweep, Visit};
use super::verdict::Facts;

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

/// Requests that are turned away.
pub(super) fn refusals(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let saturated = facts.saturated?;
    let share = |visit: &Visit| visit.get(&ERRORS).map(|errors| errors / (errors + visit.throughput));
    let share = mean_of_all(saturated.visits().filter_map(share))?;
    let how = Unwatched::Refusals { percent: (share * 100.0).round() as u64 };
    (share >= REFUSED).then_some(LoadVerdict::Unwatched { how, at: whereabouts(saturated.loads())? })
}

/// What each request waits for by itself, of a sweep whose throughput grows to the end.
pub(super) fn each(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let (alone, most) = (Taken::alone(facts.sweep)?, facts.sweep.loads.last()?);
    let is_as_long = Taken::of(facts.sweep, most)?.unwatched <= AS_LONG * alone.unwatched;
    let is_telling = alone.unwatched >= TELLING.max(facts.sweep.think()) && alone.share() >= NEARLY_ALL;
    let how = Unwatched::Each { nanoseconds: nanoseconds(alone.unwatched) };
    (is_as_long && is_telling).then_some(LoadVerdict::Unwatched { how, at: whereabouts(std::slice::from_ref(most))? })
}

/// What serves some requests at a time: as many as would be there at saturation, did each take as long as a single user's.
pub(super) fn in_turn(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let (saturated, alone) = (facts.saturated?, Taken::alone(facts.sweep)?);
    let places = saturated.at.throughput.value * alone.unwatched;
    let at_once = places.round().max(1.0);
    let is_telling = alone.share() >= MOST && are_alike(facts.sweep.loads.first()?);
    let how = Unwatched::InTurn { at_once: at_once as u64, nanoseconds: nanoseconds(alone.unwatched) };
    let at = whereabouts(saturated.loads())?;
    (is_telling && places >= TAKEN * at_once).then_some(LoadVerdict::Unwatched { how, at })
}

/// Losses, of requests that are on their way most of the time.
pub(super) fn losses(loads: &[Load]) -> Option<LoadVerdict> {
    let least = super::least(Hindrance::Retransmissions, true)?;
    let visits = loads.iter().flat_map(|load| &load.visits);
    let share = mean_of_all(visits.filter_map(|visit| visit.of_host(Host::Server, &RETRANSMITTED)))?;
    let at = whereabouts(loads).filter(|at| share >= least && *at == Whereabouts::Network)?;
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
fn whereabouts(loads: &[Load]) -> Option<Whereabouts> {
    let share =
        |of: &dyn Fn(&Visit) -> Option<f64>| mean_of_all(loads.iter().flat_map(|load| &load.visits).filter_map(of));
    let at_server = share(&|visit| Some(visit.get(&IN_FLIGHT)? / in_flight_at_client(visit)?))?;
    if at_server < MOST {
        return Some(Whereabouts::Between);
    }
    if share(&|visit| visit.get(&IN_NETWORK)).is_some_and(|share| share >= MOST) {
        return Some(Whereabouts::Network);
    }
    let waits = share(&|visit| visit.of_host(Host::Server, &PRESSURE_IO)).unwrap_or(0.0);
    let reads = share(&|visit| Some(visit.get(&FROM_DISK)? / visit.get(&RATE).filter(|rate| *rate > 0.0)?));
    let is_read = waits >= MOST && reads.is_some_and(|reads| reads >= FROM_THE_DISK);
    let written = share(&|visit| Some(visit.get(&WRITTEN)? / visit.throughput));
    let writes = share(&|visit| Some(visit.of_host(Host::Server, &DISK_WRITES)? / visit.throughput));
    let is_flushed = written.is_some_and(|bytes| bytes >= FLUSHED) && writes.is_some_and(|writes| writes >= WRITES);
    Some(if is_read || is_flushed && waits >= FLUSHING { Whereabouts::Disk } else { Whereabouts::Server })
}

fn mean_of(load: &Load, of: impl Fn(&Visit) -> Option<f64>) -> Option<f64> {
    mean_of_all(load.visits.iter().filter_map(of))
}

fn mean_of_all(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then(|| mean(&values))
}
