//! Whether the number of workers can be what limits: a worker that has a connection and waits is no full resource.

use super::knee::KNEE_SHARE;
use super::*;

/// How many times the throughput counts as more: what gives less is no more a limit than others within 10 % of it.
const MIN_THROUGHPUT_GAIN: f64 = 1.0 / BOTH_FULL_RATIO;
/// A demand that is less by this is not the same: the utilisation law is checked to as much.
const MIN_SAME_DEMAND: f64 = 0.95;
/// Use from which a demand can be distinguished from what else the resource does.
const MIN_MEASURABLE_USE: f64 = 0.2;
/// Share of the workers' time that is known to be work, or the time of users who think, from which it is most of it.
const MIN_WORK_SHARE: f64 = 0.5;

/// Whether all workers have a connection with the most users.
pub(super) fn is_worker_bound(sweep: &Sweep) -> bool {
    sweep.loads.last().and_then(workers_use).is_some_and(|used| used.value >= MIN_NEAR_USE)
}

/// What is known of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerEvidence {
    /// Nothing speaks against their number as the limit, and no visit has tested it.
    Untested,
    /// With more of them the server served more.
    Tested,
    /// They have connections, and wait most of the time for something that was not watched.
    Waiting {
        /// More of them served no more.
        refuted: bool,
    },
}

impl WorkerEvidence {
    /// By an intervention where there was one; else by the numbers of users with which some workers had no connection; else by what they
    /// do all day.
    pub fn from_sweep(saturated: &SaturatedSweep<'_>) -> Self {
        if let Some(holds) = more_workers_claim(saturated.sweep).and_then(|claim| is_more(&claim.ratio)) {
            return if holds { Self::Tested } else { Self::Waiting { refuted: true } };
        }
        if is_saturated_with_fewer(saturated) {
            return Self::Waiting { refuted: true };
        }
        let is_working = is_growing_with_workers(saturated)
            .unwrap_or_else(|| worked_share(saturated).is_some_and(|share| share >= MIN_WORK_SHARE));
        if is_working { Self::Untested } else { Self::Waiting { refuted: false } }
    }
}

/// Whether a ratio of throughputs is certainly more, or certainly is not.
fn is_more(times: &Estimate) -> Option<bool> {
    (times.low > MIN_THROUGHPUT_GAIN).then_some(true).or((times.high < MIN_THROUGHPUT_GAIN).then_some(false))
}

/// What more workers served, with as many users, if that was visited.
pub(super) fn more_workers_claim(sweep: &Sweep) -> Option<MoreWorkersClaim> {
    let (users, throughputs) = sweep.more_workers.as_ref()?;
    let base_throughputs = sweep.loads.iter().find(|load| load.users == *users)?.throughputs();
    let workers = sweep.servers(Resource::Workers)?.round() as u64;
    let times = interval_estimate(ratio_of_means(throughputs, &base_throughputs)?, CONFIDENCE_LEVEL);
    Some(MoreWorkersClaim {
        fixed: sweep.fixed.clone(),
        users: *users,
        workers: [workers, 2 * workers],
        throughput: [mean(&base_throughputs), mean(throughputs)],
        ratio: times,
        limit: MIN_THROUGHPUT_GAIN,
    })
}

/// The ratio of two means of visits, whose shares of error are those of either together: a few visits by themselves show little of it.
fn ratio_of_means(top: &[f64], base: &[f64]) -> Option<UncertainValue> {
    let degrees = (top.len() + base.len()).checked_sub(2).filter(|&degrees| degrees > 0 && !top.is_empty())? as f64;
    let shares = |values: &[f64]| {
        let average = mean(values);
        values.iter().map(|value| (value / average - 1.0).powi(2)).sum::<f64>()
    };
    let variance = (shares(top) + shares(base)) / degrees * (1.0 / top.len() as f64 + 1.0 / base.len() as f64);
    let value = mean(top) / mean(base);
    Some(UncertainValue::from_variance(value, VarianceEstimate { variance: variance * value.powi(2), degrees }))
}

/// `more workers serve more by 11 % or more: 4 instead of 2 give 40 users 196 requests/s instead of 98, 2.0 times as many (1.9 to 2.1)`.
pub(super) fn conclusion(sweep: &Sweep) -> Option<LoadConclusion> {
    let claim = more_workers_claim(sweep)?;
    let holds = is_more(&claim.ratio);
    let visits = sweep.more_workers.as_ref().map_or(0, |(_, visits)| visits.len());
    let ([few_workers, many_workers], [before, after]) = (claim.workers, claim.throughput.map(number));
    let [times, low, high] = claim.ratio.parts().map(number);
    let users = users_text(claim.users);
    let text = format!(
        "more workers serve more by {} or more: {many_workers} instead of {few_workers} give {users} {after} requests/s instead of {before}, {times} times \
         as many ({low} to {high})",
        percent(claim.limit - 1.0)
    );
    let outcome = if holds.is_none() { ", which decides nothing" } else { "" };
    let line = format!(
        "With {many_workers} workers instead of {few_workers}, {users} get {after} requests/s instead of {before}{outcome}."
    );
    let conclusion = LoadConclusion::new(LoadClaim::MoreWorkers(claim), holds, load_steps_test(1, visits), text);
    Some(conclusion.with_line(AnswerLine::Trouble, Some(line)))
}

/// Whether the saturation throughput was certainly there when certainly not all workers had a connection. Then more of them that have one
/// bring nothing: what they wait for serves a few at a time.
fn is_saturated_with_fewer(saturated: &SaturatedSweep<'_>) -> bool {
    let loads = &saturated.sweep.loads;
    let bound_loads = loads.iter().filter(|load| workers_use(load).is_some_and(|used| used.low >= MIN_NEAR_USE));
    let bound_throughputs: Vec<f64> = bound_loads.flat_map(UserLoad::throughputs).collect();
    let is_idle = |load: &&UserLoad| workers_use(load).is_some_and(|used| used.high < MIN_NEAR_USE);
    let share_of_bound = |load: &UserLoad| {
        ratio_of_means(&load.throughputs(), &bound_throughputs).map(|share| interval_estimate(share, CONFIDENCE_LEVEL))
    };
    !bound_throughputs.is_empty()
        && loads.iter().filter(is_idle).filter_map(share_of_bound).any(|share| share.low >= KNEE_SHARE)
}

/// Whether throughput grows as workers do that have a connection, by the numbers of users with which some have none: then they do not wait
/// for each other. `None` where there were no such numbers.
fn is_growing_with_workers(saturated: &SaturatedSweep<'_>) -> Option<bool> {
    let demand = |visit: &LoadStep| Some(visit.resource_use.get(&Resource::Workers)? / visit.throughput);
    let demands = saturated.values(demand);
    let saturation_demand = (!demands.is_empty()).then(|| mean(&demands))?;
    let is_partly_used = |load: &&UserLoad| {
        workers_use(load).is_some_and(|used| used.low > MIN_MEASURABLE_USE && used.high < MIN_NEAR_USE)
    };
    let ratios = saturated.sweep.loads.iter().filter(is_partly_used).filter_map(|load| {
        let demand_ratio = |visit: &LoadStep| Some(demand(visit)? / saturation_demand);
        mean_estimate(&load.values(demand_ratio))
    });
    // Where they wait for each other, each request takes longer of a worker at saturation.
    ratios.map(|ratio| ratio.high >= MIN_SAME_DEMAND).reduce(|a, b| a && b)
}

fn workers_use(load: &UserLoad) -> Option<Estimate> {
    mean_estimate(&load.values(|visit| visit.resource_use.get(&Resource::Workers).copied()))
}

/// The share of the workers' time in which, as far as was watched, the hardware worked for them or their users thought. At least: what is
/// idle next to them makes a request slower than by its work at capacity. `None` where their number is not known.
fn worked_share(saturated: &SaturatedSweep<'_>) -> Option<f64> {
    let servers = |resource: Resource| saturated.sweep.servers(resource);
    let workers = servers(Resource::Workers)?;
    let thinking = saturated.saturation.throughput.value * saturated.sweep.think_seconds();
    // The fullest part of each device works for a request.
    let devices = [ResourceGroup::Disk, ResourceGroup::Link, ResourceGroup::ServerCpu];
    let device_uses =
        devices.iter().filter_map(|device| saturated.uses.iter().find(|usage| usage.resource.group() == *device));
    let working: f64 = device_uses.map(|usage| usage.utilisation.value * servers(usage.resource).unwrap_or(1.0)).sum();
    Some(((thinking + working) / workers).min(1.0))
}
