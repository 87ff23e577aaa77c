//! Whether the number of workers can be what limits: a worker that has a connection and waits is no full resource.

use kelvin_catalogue::load::{Device, Resource};
use kelvin_model::{Conclusion, Estimate, LoadClaim, LoadMoreWorkers, Test};
use kelvin_stats::{LEVEL, Spread, Uncertain, mean};

use super::knee::KNEE_SHARE;
use super::of;
use super::sweep::{Load, Sweep, Visit};
use super::used::{Saturated, estimate, with_interval};
use super::verdict::{AS_FULL, NEAR};

/// How many times the throughput counts as more: what gives less is no more a limit than others within 10 % of it.
const LEAST: f64 = 1.0 / AS_FULL;
/// A demand that is less by this is not the same: the utilisation law is checked to as much.
const SAME_DEMAND: f64 = 0.95;
/// Use from which a demand can be told from what else the resource does.
const TELLING: f64 = 0.2;
/// Share of the workers' time that is known to be work, or the time of users who think, from which it is most of it.
const MOST: f64 = 0.5;

/// Whether all workers have a connection with the most users.
pub(super) fn are_bound(sweep: &Sweep) -> bool {
    sweep.loads.last().and_then(used).is_some_and(|used| used.value >= NEAR)
}

/// What is known of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// Nothing speaks against their number as the limit, and no visit has tested it.
    Untested,
    /// With more of them the server served more.
    Tested,
    /// They have connections, and wait most of the time for something that was not watched.
    Wait {
        /// More of them served no more.
        refuted: bool,
    },
}

impl Workers {
    /// By an intervention where there was one; else by the numbers of users with which some workers had no connection; else by what they
    /// do all day.
    pub fn of(saturated: &Saturated<'_>) -> Self {
        if let Some(holds) = more(saturated.sweep).and_then(|more| serve_more(&more.times)) {
            return if holds { Self::Tested } else { Self::Wait { refuted: true } };
        }
        if serves_as_much_with_fewer(saturated) {
            return Self::Wait { refuted: true };
        }
        let works = grows_with_them(saturated).unwrap_or_else(|| worked(saturated).is_some_and(|share| share >= MOST));
        if works { Self::Untested } else { Self::Wait { refuted: false } }
    }
}

/// Whether a ratio of throughputs is certainly more, or certainly is not.
fn serve_more(times: &Estimate) -> Option<bool> {
    (times.low > LEAST).then_some(true).or((times.high < LEAST).then_some(false))
}

/// What more workers served, with as many users, if that was visited.
pub(super) fn more(sweep: &Sweep) -> Option<LoadMoreWorkers> {
    let (users, throughputs) = sweep.more_workers.as_ref()?;
    let usual = sweep.loads.iter().find(|load| load.users == *users)?.throughputs();
    let workers = sweep.capacities.get(&Resource::Workers)?.servers?.round() as u64;
    let times = with_interval(ratio(throughputs, &usual)?, LEVEL);
    Some(LoadMoreWorkers {
        held: sweep.held.clone(),
        users: *users,
        workers: [workers, 2 * workers],
        throughput: [mean(&usual), mean(throughputs)],
        times,
        least: LEAST,
    })
}

/// The ratio of two means of visits, whose shares of error are those of either together: a few visits by themselves tell little of it.
fn ratio(of: &[f64], to: &[f64]) -> Option<Uncertain> {
    let degrees = (of.len() + to.len()).checked_sub(2).filter(|&degrees| degrees > 0 && !of.is_empty())? as f64;
    let shares = |values: &[f64]| {
        let all = mean(values);
        values.iter().map(|value| (value / all - 1.0).powi(2)).sum::<f64>()
    };
    let variance = (shares(of) + shares(to)) / degrees * (1.0 / of.len() as f64 + 1.0 / to.len() as f64);
    let value = mean(of) / mean(to);
    Some(Uncertain::of(value, Spread { variance: variance * value.powi(2), degrees }))
}

/// The conclusion from it.
pub(super) fn conclusion(sweep: &Sweep) -> Option<Conclusion> {
    let more = more(sweep)?;
    let holds = serve_more(&more.times);
    let visits = sweep.more_workers.as_ref().map_or(0, |(_, visits)| visits.len());
    Some(of(LoadClaim::MoreWorkers(more), holds, Test::Visits { loads: 1, visits }))
}

/// Whether the saturation throughput was certainly there when certainly not all workers had a connection. Then more of them that have one
/// bring nothing: what they wait for serves a few at a time.
fn serves_as_much_with_fewer(saturated: &Saturated<'_>) -> bool {
    let loads = &saturated.sweep.loads;
    let full = loads.iter().filter(|load| used(load).is_some_and(|used| used.low >= NEAR));
    let full: Vec<f64> = full.flat_map(Load::throughputs).collect();
    let is_idle = |load: &&Load| used(load).is_some_and(|used| used.high < NEAR);
    let of_full = |load: &Load| ratio(&load.throughputs(), &full).map(|share| with_interval(share, LEVEL));
    !full.is_empty() && loads.iter().filter(is_idle).filter_map(of_full).any(|share| share.low >= KNEE_SHARE)
}

/// Whether throughput grows as workers do that have a connection, by the numbers of users with which some have none: then they do not wait
/// for each other. `None` where there were no such numbers.
fn grows_with_them(saturated: &Saturated<'_>) -> Option<bool> {
    let demand = |visit: &Visit| Some(visit.used.get(&Resource::Workers)? / visit.throughput);
    let all: Vec<f64> = saturated.visits().filter_map(demand).collect();
    let at_saturation = (!all.is_empty()).then(|| mean(&all))?;
    let partly = |load: &&Load| used(load).is_some_and(|used| used.low > TELLING && used.high < NEAR);
    let ratios = saturated.sweep.loads.iter().filter(partly).filter_map(|load| {
        let of_visit = |visit: &Visit| Some(demand(visit)? / at_saturation);
        estimate(&load.visits.iter().filter_map(of_visit).collect::<Vec<f64>>())
    });
    // Where they wait for each other, each request takes longer of a worker at saturation.
    ratios.map(|ratio| ratio.high >= SAME_DEMAND).reduce(|one, other| one && other)
}

fn used(load: &Load) -> Option<Estimate> {
    estimate(&load.visits.iter().filter_map(|visit| visit.used.get(&Resource::Workers).copied()).collect::<Vec<f64>>())
}

/// The share of the workers' time in which, as far as was watched, the hardware worked for them or their users thought. At least: what is
/// idle beside them makes a request slower than by its work at capacity. `None` where their number is not known.
fn worked(saturated: &Saturated<'_>) -> Option<f64> {
    let servers = |resource: Resource| saturated.sweep.capacities.get(&resource).and_then(|one| one.servers);
    let workers = servers(Resource::Workers)?;
    let is_served_by = |device: Device| matches!(device, Device::Disk | Device::Link | Device::ServerCpu);
    let mut seen: Vec<Device> = Vec::new();
    let mut at_work = saturated.at.throughput.value * saturated.sweep.think();
    for one in saturated.used.iter().filter(|one| is_served_by(one.resource.device())) {
        if !seen.contains(&one.resource.device()) {
            seen.push(one.resource.device());
            at_work += one.utilisation.value * servers(one.resource).unwrap_or(1.0);
        }
    }
    Some((at_work / workers).min(1.0))
}
