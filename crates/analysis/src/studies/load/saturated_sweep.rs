//! How full each resource is at saturation, and whether what is full explains the throughput.

use super::knee::Saturation;
use super::*;
use kelvin_core::IndirectSort;

/// A resource at saturation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SaturationUse {
    pub resource: Resource,
    /// Share of its capacity that the saturation throughput takes.
    pub utilisation: Estimate,
    /// That share as it limits: of a CPU that its quota keeps from more, all.
    pub fullness: Estimate,
}

impl SaturationUse {
    /// How much more counts than is used.
    fn fullness_to_use(&self) -> f64 {
        if self.fullness == self.utilisation { 1.0 } else { self.fullness.value / self.utilisation.value }
    }
}

/// A mean with Student's 95 % interval; `None` with fewer than two values.
pub(super) fn mean_estimate(values: &[f64]) -> Option<Estimate> {
    UncertainValue::mean(values).map(|mean| interval_estimate(mean, CONFIDENCE_LEVEL))
}

/// What is never below nothing, however far its visits are apart: a share, a ratio of amounts.
pub(super) fn clamp_to_zero(estimate: Estimate) -> Estimate {
    estimate.map(|value| value.max(0.0))
}

/// The sweep at saturation.
pub(crate) struct SaturatedSweep<'s> {
    pub sweep: &'s Sweep,
    pub saturation: Saturation,
    /// Every resource that was watched, the fullest first.
    pub uses: Vec<SaturationUse>,
}

impl<'s> SaturatedSweep<'s> {
    pub(crate) fn new(sweep: &'s Sweep, saturation: Saturation) -> Self {
        let mut saturated = Self { sweep, saturation, uses: Vec::new() };
        let every = Resource::ALL.iter();
        saturated.uses = every.filter_map(|&resource| saturated.resource_use(resource)).collect();
        saturated.uses.indirect_sort_by(|a, b| b.fullness.value.total_cmp(&a.fullness.value));
        saturated
    }

    /// The numbers of users from the knee to where throughput is highest.
    pub fn loads(&self) -> &'s [UserLoad] {
        &self.sweep.loads[self.saturation.first..=self.saturation.last]
    }

    /// The visits to them.
    pub fn steps(&self) -> impl Iterator<Item = &'s LoadStep> {
        self.loads().iter().flat_map(|load| &load.steps)
    }

    /// The test of what all of them show.
    pub fn test(&self) -> ClaimTest {
        saturated_test(self.steps().count())
    }

    /// A quantity of each visit that has it.
    pub fn values(&self, quantity: impl Fn(&LoadStep) -> Option<f64>) -> Vec<f64> {
        self.steps().filter_map(quantity).collect()
    }

    /// By the utilisation law U = X D: the demand D is the same at all of these visits, X their saturation.
    fn resource_use(&self, resource: Resource) -> Option<SaturationUse> {
        let usage = |visit: &LoadStep| Some((visit.throughput, *visit.resource_use.get(&resource)?));
        let visits: Vec<(f64, f64)> = self.steps().filter_map(usage).collect();
        let utilisation = clamp_to_zero(interval_estimate(
            service_demand(&visits)?.times(self.saturation.throughput.value),
            CONFIDENCE_LEVEL,
        ));
        let is_cut_short = utilisation.value > MIN_RELEVANT_USE && self.is_cut_short(resource);
        let wanted_share = (resource == Resource::ServerCpu).then(|| self.wanted_cpu_share()).flatten();
        let min_share = if is_cut_short { 1.0 } else { wanted_share.unwrap_or(f64::NEG_INFINITY) };
        Some(SaturationUse { resource, utilisation, fullness: utilisation.map(|share| share.max(min_share)) })
    }

    /// Whether a resource is certainly full: at the saturation throughput, or in the visits as they were. Where users think, throughput
    /// differs by chance from visit to visit, and what serves them may be full in each.
    pub fn is_full(&self, usage: &SaturationUse) -> bool {
        let visit_uses = || self.values(|visit| visit.resource_use.get(&usage.resource).copied());
        usage.fullness.low >= FULL_USE || mean_estimate(&visit_uses()).is_some_and(|used| used.low >= FULL_USE)
    }

    /// Whether a quota keeps the processes on these CPUs from running in nearly all of its periods. Then they have no more to give,
    /// although a part of each period's share is left with CPUs on which nothing runs. The kernel counts no period in which nothing
    /// ran, so that this alone would not detect a server that mostly sleeps.
    fn is_cut_short(&self, resource: Resource) -> bool {
        let periods = self.values(|visit| visit.host_figure(cpu_host(resource)?, &hosts::CPU_THROTTLED));
        mean_estimate(&periods).is_some_and(|share| share.low > MIN_THROTTLED_PERIODS)
    }

    /// The share of the CPUs that the server may use for which it has threads ready to run, where they wait for a CPU and it is not by its own
    /// work that none is free: other work has them all, or a quota may stop it that cannot be seen. `None` where neither is so: threads
    /// that are woken together wait for each other on CPUs that are not full.
    fn wanted_cpu_share(&self) -> Option<f64> {
        let visit_share = |visit: &LoadStep| {
            let used = *visit.resource_use.get(&Resource::ServerCpu)?;
            let is_quota_hidden = visit.host_figure(LoadHost::Server, &hosts::CPU_THROTTLED).is_none();
            let shares = used + self.waiting_cpu_share(visit, Resource::ServerCpu)?;
            let is_waiting_counted = busy_cpu_share(visit, LoadHost::Server)? >= FULL_USE || is_quota_hidden;
            Some(if is_waiting_counted { shares.min(1.0) } else { used })
        };
        let shares = self.values(visit_share);
        (!shares.is_empty()).then(|| mean(&shares))
    }

    /// The share of the CPUs, or of the threads that have work where these are more, that waited for a CPU. Of many threads that each have a
    /// request some wait at any time, and their requests hardly at all.
    fn waiting_cpu_share(&self, visit: &LoadStep, resource: Resource) -> Option<f64> {
        let servers = self.sweep.servers(resource)?;
        let threads = min_server_threads(visit, servers).filter(|_| resource == Resource::ServerCpu).unwrap_or(servers);
        let active_threads = threads.min(visit.get(&IN_FLIGHT).unwrap_or(threads)).max(servers);
        Some(visit.host_figure(cpu_host(resource)?, &hosts::THREADS_WITHOUT_CPU)? / active_threads)
    }

    /// Whether other work has the CPUs of either end, for which its threads wait longer than they run, and the threads of both run or wait for
    /// a CPU most of the time: of what is short to either end of a study no resource need be full by what it wants alone. Threads that
    /// wait now and then next to other work do not show that it limits.
    pub fn is_cpu_used_by_others(&self) -> bool {
        let wanted_share = |visit: &LoadStep, resource| {
            cpu_shares(self, visit, resource).map_or(0.0, |(used, waiting)| used + waiting)
        };
        let is_wanted =
            |visit: &LoadStep| ENDS.map(|end| wanted_share(visit, end)).iter().sum::<f64>() >= MIN_WANTED_CPU_SHARE;
        ENDS.iter().any(|&end| self.has_foreign_load(end)) && self.is_mostly(|visit| Some(is_wanted(visit)))
    }

    /// Whether the CPUs that an end may run on are full in most visits while its threads wait for one longer than they run, and what neither
    /// end does is more than what this one does: two ends on the same CPUs wait for each other.
    pub fn has_foreign_load(&self, end: Resource) -> bool {
        let is_same_host = NetworkSetup::of(&self.sweep.fixed) != Some(NetworkSetup::Hosts);
        let servers = |end| self.sweep.servers(end).unwrap_or(1.0);
        let cpus_used = |visit: &LoadStep, resource: Resource| {
            visit.resource_use.get(&resource).copied().unwrap_or(0.0) * servers(resource)
        };
        self.is_mostly(|visit| {
            let (used, waiting) = cpu_shares(self, visit, end)?;
            let busy = busy_cpu_share(visit, cpu_host(end)?)?;
            let own_cpus: f64 = ENDS
                .iter()
                .filter(|&&candidate| candidate == end || is_same_host)
                .map(|&side| cpus_used(visit, side))
                .sum();
            Some(busy >= FULL_USE && waiting > used && busy - own_cpus / servers(end) > used)
        })
    }

    /// Whether something is so in most of the visits of which it is known.
    fn is_mostly(&self, predicate: impl Fn(&LoadStep) -> Option<bool>) -> bool {
        let answers: Vec<bool> = self.steps().filter_map(predicate).collect();
        2 * answers.iter().filter(|answer| **answer).count() > answers.len()
    }

    /// Whether the CPUs of the server count as full for what its threads wait, more than for what they do.
    pub fn is_without_cpu(&self) -> bool {
        let cpu = self.uses.iter().find(|usage| usage.resource == Resource::ServerCpu);
        let is_raised = cpu.is_some_and(|cpu| cpu.fullness.value > cpu.utilisation.value.max(MIN_RELEVANT_USE));
        let is_full = cpu.is_some_and(|cpu| cpu.utilisation.value >= MIN_NEAR_USE);
        !self.is_cut_short(Resource::ServerCpu)
            && !is_full
            && (is_raised || self.has_foreign_load(Resource::ServerCpu) && self.is_cpu_used_by_others())
    }

    /// Whether a resource was not full in some visits, though on the whole it may be.
    pub fn is_unsteady(&self, usage: &SaturationUse) -> bool {
        const MIN_UNSTEADY_STEPS: usize = 2;
        let fullness = |visit: &LoadStep| Some(visit.resource_use.get(&usage.resource)? * usage.fullness_to_use());
        !self.is_full(usage)
            && self.steps().filter_map(fullness).filter(|used| *used < MIN_NEAR_USE).count() >= MIN_UNSTEADY_STEPS
    }

    /// The fullest part of each device, the fullest first. Workers that wait for full hardware are not what limits.
    pub fn fullest_by_group(&self) -> Vec<SaturationUse> {
        let mut devices: Vec<SaturationUse> = Vec::new();
        for usage in &self.uses {
            if devices.iter().all(|other| other.resource.group() != usage.resource.group()) {
                devices.push(*usage);
            }
        }
        let is_workers = |usage: &SaturationUse| usage.resource.group() == ResourceGroup::Workers;
        if devices.iter().any(|usage| !is_workers(usage) && usage.fullness.value >= FULL_USE) {
            devices.retain(|usage| !is_workers(usage));
        }
        devices
    }

    /// How full a resource is over how full another is, in the same visits.
    pub fn use_ratio(&self, top: &SaturationUse, base: &SaturationUse) -> Option<Estimate> {
        let ratio =
            |visit: &LoadStep| Some(visit.resource_use.get(&top.resource)? / visit.resource_use.get(&base.resource)?);
        let times = top.fullness_to_use() / base.fullness_to_use();
        mean_estimate(&self.values(|visit| Some(ratio(visit)? * times))).map(clamp_to_zero)
    }

    /// Throughput over what a network of the resources that were watched gives with as many users, by mean value analysis.
    /// Its demands are those under load, U / X; what one user waits beyond them is a delay. Below 1 something else limits.
    pub fn explained_throughput(&self) -> Option<f64> {
        let devices: Vec<SaturationUse> =
            self.fullest_by_group().into_iter().filter(|usage| usage.resource.group().is_station()).collect();
        let station = |usage: &SaturationUse| {
            let servers = round_server_count(self.sweep.servers(usage.resource).unwrap_or(1.0));
            let share = usage.fullness.value.max(0.0) / self.saturation.throughput.value;
            Station::servers(share * f64::from(servers.get()), servers)
        };
        let mut stations: Vec<Station> = devices.iter().map(station).collect();
        let demand: f64 = stations.iter().map(|station| station.demand).sum();
        let single_user = self.sweep.loads.first().filter(|load| load.users == 1);
        let response = single_user
            .map(|load| load.figure_values(&RESPONSE))
            .filter(|values| !values.is_empty())
            .map(|values| mean(&values) / 1e9);
        stations.push(Station::delay((response.unwrap_or(0.0) - demand).max(0.0)));
        let network = ClosedNetwork::new(stations, self.sweep.think_seconds()).ok()?;
        let steps = network.solve(usize::try_from(self.sweep.max_users()).ok()?);
        let share = |load: &UserLoad| mean(&load.throughputs()) / steps[load.users as usize - 1].throughput;
        Some(mean(&self.loads().iter().map(share).collect::<Vec<f64>>()))
    }
}

/// Whose CPUs a resource is.
fn cpu_host(resource: Resource) -> Option<LoadHost> {
    match resource {
        Resource::ServerCpu => Some(LoadHost::Server),
        Resource::ClientCpu => Some(LoadHost::Client),
        _ => None,
    }
}

/// The CPUs of either end.
const ENDS: [Resource; 2] = [Resource::ServerCpu, Resource::ClientCpu];

/// The shares of its CPUs, or of the threads that have work, for which an end ran, and waited for a CPU.
fn cpu_shares(saturated: &SaturatedSweep<'_>, visit: &LoadStep, end: Resource) -> Option<(f64, f64)> {
    Some((*visit.resource_use.get(&end)?, saturated.waiting_cpu_share(visit, end)?))
}

/// How many threads the server has at least, by what the busiest does of the time of this many CPUs.
pub(super) fn min_server_threads(visit: &LoadStep, servers: f64) -> Option<f64> {
    let busiest = visit.resource_use.get(&Resource::ServerThread).filter(|&&busiest| busiest > 0.0)?;
    Some(servers * visit.resource_use.get(&Resource::ServerCpu)? / busiest)
}

/// How busy the CPUs are that an end may run on, for any process; those of its host where that was not reported.
fn busy_cpu_share(visit: &LoadStep, host: LoadHost) -> Option<f64> {
    let figure = |metric| visit.host_figure(host, metric);
    figure(&hosts::CPU_ALLOWED).or_else(|| {
        Some(figure(&hosts::CPU_USER)? + figure(&hosts::CPU_SYSTEM)? + figure(&hosts::CPU_STEAL).unwrap_or(0.0))
    })
}

/// What a request takes of a resource, by throughput and use of visits: the ratio of their means, whose error is that of the uses around
/// it (W. G. Cochran, Sampling Techniques, 3rd edition, section 2.11). The mean of ratios would be too large where throughput differs by
/// chance and use does not. `None` with fewer than two visits.
fn service_demand(visits: &[(f64, f64)]) -> Option<UncertainValue> {
    let degrees = visits.len().checked_sub(1).filter(|&degrees| degrees > 0)? as f64;
    let mean_of = |part: fn(&(f64, f64)) -> f64| mean(&visits.iter().map(part).collect::<Vec<f64>>());
    let throughput = mean_of(|visit| visit.0);
    let demand = mean_of(|visit| visit.1) / throughput;
    let residual: f64 = visits.iter().map(|(throughput, used)| (used - demand * throughput).powi(2)).sum();
    let variance = residual / degrees / visits.len() as f64 / throughput.powi(2);
    Some(UncertainValue::from_variance(demand, VarianceEstimate { variance, degrees }))
}

/// Share of the time for which CPUs are used or waited for, at either end together, from which that is most of what requests take.
const MIN_WANTED_CPU_SHARE: f64 = 0.5;
/// Utilisation above which a resource may matter at all.
pub(super) const MIN_RELEVANT_USE: f64 = 0.6;
/// Share of the periods of a quota that is nearly all of them.
const MIN_THROTTLED_PERIODS: f64 = 0.9;
/// Utilisation from which a resource is full: more cannot be distinguished from a measured capacity.
pub(super) const FULL_USE: f64 = 0.95;
