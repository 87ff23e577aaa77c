//! What limits a server: the rules by which it is decided, in their order.

use super::hindrance::{self, ObservedHindrance};
use super::saturated_sweep::{FULL_USE, MIN_RELEVANT_USE};
use super::unwatched_limit;
use super::workers::{WorkerEvidence, is_worker_bound};
use super::*;

/// Utilisation below which a resource is not near its capacity, with any errors of both.
pub(super) const MIN_NEAR_USE: f64 = 0.85;
/// Two resources are both the limit if the use of one is at least this share of the other's.
pub(super) const BOTH_FULL_RATIO: f64 = 0.9;
/// A resource that gives more than its capacity times this has another capacity: CPU time, of which quotas let more pass at times; and
/// bytes, whose capacity is known to within as much as it may be full by.
const MAX_CAPACITY_EXCESS: f64 = 1.1;
const MAX_BYTE_CAPACITY_EXCESS: f64 = 1.0 / FULL_USE;
/// Throughput as a share of what the resources that were watched allow, from which they explain it.
const MIN_EXPLAINED_SHARE: f64 = 0.95;
/// Lateness as a share of the time of a user from one request to the next, of which 99th percentiles are taken and the mean time to
/// think, from which the generator's own delays matter to how many requests there are.
const MIN_LATENESS_SHARE: f64 = 0.1;
/// Failed requests for each that was answered, from which they matter.
const MIN_FAILURE_RATIO: f64 = 0.01;

/// What the rules look at.
pub(crate) struct VerdictFacts<'s> {
    pub sweep: &'s Sweep,
    /// `None` where too little was measured to know.
    pub saturated: Option<&'s SaturatedSweep<'s>>,
    /// The fullest part of each device, the fullest first, without workers that wait.
    pub devices: Vec<SaturationUse>,
    /// What is known of workers that all have a connection.
    pub workers: Option<WorkerEvidence>,
    /// Whether throughput is at the end what it was at the start, as far as is certain.
    pub is_steady: Option<bool>,
}

/// A rule: its text, and its verdict where it applies.
pub(crate) struct VerdictRule {
    pub text: &'static str,
    decide: fn(&VerdictFacts<'_>) -> Option<LoadVerdict>,
}

const fn rule(text: &'static str, decide: fn(&VerdictFacts<'_>) -> Option<LoadVerdict>) -> VerdictRule {
    VerdictRule { text, decide }
}

/// The rules; the first that applies decides.
pub(crate) static VERDICT_RULES: [VerdictRule; 17] = [
    rule("two visits to each of three numbers of users, and a resource that was watched, are needed", |facts| {
        let is_watched = facts.saturated.is_some_and(|saturated| !saturated.uses.is_empty());
        (!is_watched).then_some(LoadVerdict::Unknown { reason: UnknownLimit::TooFewSamples })
    }),
    rule("a resource that gives more than its capacity has another one: not known", |facts| {
        let is_in_bytes =
            |first: &SaturationUse| matches!(first.resource.group(), ResourceGroup::Disk | ResourceGroup::Link);
        let max_excess =
            |first: &SaturationUse| if is_in_bytes(first) { MAX_BYTE_CAPACITY_EXCESS } else { MAX_CAPACITY_EXCESS };
        let first = facts.fullest().filter(|first| first.fullness.value > max_excess(first))?;
        Some(LoadVerdict::Unknown { reason: UnknownLimit::BeyondCapacity { resource: resource_id(first.resource) } })
    }),
    rule("where a tenth of the requests fail, what turns them away limits", unwatched_limit::refusals),
    rule(
        "where files come from the disk only from a number of users on, more users bring nothing then and nothing else is near its \
         capacity, the memory for files limits",
        unwatched_limit::memory,
    ),
    rule(
        "where nothing is near its capacity by its own work, other work has the CPUs of an end, and requests wait for a CPU most of the time, that work \
         limits",
        |facts| {
            // CPUs that count as full for what the server's threads wait are those that other work has.
            let is_raised = facts.fullest().is_some_and(|first| first.resource.group() == ResourceGroup::ServerCpu)
                && facts.saturated.is_some_and(SaturatedSweep::is_without_cpu);
            (is_idle(facts) || is_raised).then(|| unwatched_limit::other_work(facts)).flatten()
        },
    ),
    rule(
        "where throughput grows to the end, nothing is full and each request takes as long with any number of users, most of it \
         without any work, or waits for the disk most of the time, that limits, or losses on its way",
        |facts| {
            let max_load = facts.sweep.loads.last()?;
            still_growing(facts)?;
            let loads = std::slice::from_ref(max_load);
            unwatched_limit::blocked(facts, loads)
                .or_else(|| unwatched_limit::per_request_delay(facts))
                .or_else(|| unwatched_limit::losses(facts.sweep, loads))
        },
    ),
    rule("where throughput grows to the end and nothing is full, nothing was reached: not known", still_growing),
    rule(
        "where nothing is near its capacity and nobody is answered for a tenth of the time or more, again and again, these stalls limit",
        |facts| {
            // Workers have their connections in a stall as well.
            let hardware = facts.devices.iter().find(|usage| usage.resource != Resource::Workers);
            let is_idle = hardware.is_none_or(|first| first.fullness.value < MIN_NEAR_USE);
            is_idle.then(|| unwatched_limit::stalls(facts)).flatten()
        },
    ),
    rule("where nothing is near its capacity and requests wait for the disk most of the time, it limits", |facts| {
        facts
            .saturated
            .filter(|_| is_idle(facts))
            .and_then(|saturated| unwatched_limit::blocked(facts, saturated.loads()))
    }),
    rule(
        "where nothing is near its capacity, and a single user's requests wait most of the time for what at saturation serves as many \
         as would be there then if each waited as long, it limits, or losses on the way of requests",
        limited_concurrency,
    ),
    rule("workers that all have a connection and do not work wait for something else: not known", |facts| {
        let Some(WorkerEvidence::Waiting { refuted }) = facts.workers else { return None };
        let is_idle = facts.fullest().is_none_or(|first| first.fullness.value < MIN_NEAR_USE);
        is_idle.then_some(LoadVerdict::Unknown { reason: UnknownLimit::WorkersWait { refuted } })
    }),
    rule("where nothing is above 60 %, not known", |facts| {
        let is_idle = facts.fullest().is_some_and(|first| first.fullness.value <= MIN_RELEVANT_USE);
        is_idle.then_some(LoadVerdict::Unknown { reason: UnknownLimit::NoneBusy })
    }),
    rule("where nothing is near its capacity, not known", |facts| {
        let first = facts.fullest().filter(|first| first.fullness.value < MIN_NEAR_USE)?;
        Some(LoadVerdict::Unknown { reason: UnknownLimit::NoneSaturated { busiest: resource_id(first.resource) } })
    }),
    rule("the client alone is full, or alone near its capacity: nothing follows about the server", |facts| {
        let first = facts.fullest().filter(|first| first.resource.group() == ResourceGroup::Client)?;
        let is_alone = facts.near_fullest(false).is_empty() || facts.is_alone_full();
        is_alone.then(|| LoadVerdict::Client { resource: resource_id(first.resource) })
    }),
    rule("others within 10 % of the fullest limit as much", |facts| {
        let (first, near) = (facts.fullest()?, facts.near_fullest(true));
        let is_certain = !near.is_empty() && near.len() == facts.near_fullest(false).len();
        is_certain.then(|| LoadVerdict::Both { resources: resource_ids(first, &near) })
    }),
    rule("others that may be within 10 % of the fullest may limit as much", |facts| {
        let (first, near) = (facts.fullest()?, facts.near_fullest(false));
        (!near.is_empty()).then(|| LoadVerdict::OneOf { resources: resource_ids(first, &near) })
    }),
    rule("the fullest resource limits", |facts| {
        facts.fullest().map(|first| LoadVerdict::Resource { resource: resource_id(first.resource) })
    }),
];

impl<'s> VerdictFacts<'s> {
    pub(crate) fn new(sweep: &'s Sweep, saturated: Option<&'s SaturatedSweep<'s>>) -> Self {
        let mut devices = saturated.map(SaturatedSweep::fullest_by_group).unwrap_or_default();
        let is_workers = |usage: &SaturationUse| usage.resource == Resource::Workers;
        let may_limit = devices.iter().any(is_workers) && is_worker_bound(sweep);
        let workers = saturated.filter(|_| may_limit).map(WorkerEvidence::from_sweep);
        if matches!(workers, Some(WorkerEvidence::Waiting { .. })) {
            devices.retain(|usage| !is_workers(usage));
        }
        let is_steady = super::stability::throughput_stability(sweep).and_then(|stability| stability.stated.holds);
        Self { sweep, saturated, devices, workers, is_steady }
    }

    /// The verdict of the first rule that applies, and that rule.
    pub(crate) fn verdict(&self) -> (LoadVerdict, &'static VerdictRule) {
        let decision = VERDICT_RULES.iter().find_map(|rule| Some(((rule.decide)(self)?, rule)));
        // The first rule applies where there is nothing to look at, the last one to anything else.
        decision.unwrap_or((LoadVerdict::Unknown { reason: UnknownLimit::TooFewSamples }, &VERDICT_RULES[0]))
    }

    /// Whether throughput had ceased to grow with the most users, or something was full: else saturation has no figure.
    pub(crate) fn is_reached(&self) -> bool {
        match self.verdict().0 {
            LoadVerdict::Unknown { reason: UnknownLimit::StillGrowing { .. } }
            | LoadVerdict::NotSampled { limit: UnsampledLimit::PerRequest { .. }, .. } => false,
            LoadVerdict::NotSampled { limit: UnsampledLimit::Refusals { .. }, .. } => true,
            LoadVerdict::NotSampled { .. } => still_growing(self).is_none(),
            _ => true,
        }
    }

    /// Whether the fullest resource is certainly full.
    pub(crate) fn is_full(&self) -> bool {
        self.saturated.zip(self.fullest()).is_some_and(|(saturated, first)| saturated.is_full(first))
    }

    /// Whether the fullest resource is certainly full, and each other one certainly not.
    fn is_alone_full(&self) -> bool {
        self.is_full() && self.devices[1..].iter().all(|usage| usage.fullness.high < FULL_USE)
    }

    fn fullest(&self) -> Option<&SaturationUse> {
        self.devices.first()
    }

    /// Whether a resource is hardware, or workers that are known to limit.
    fn is_hardware(&self, usage: &SaturationUse) -> bool {
        usage.resource != Resource::Workers || self.workers == Some(WorkerEvidence::Tested)
    }

    /// The resources after the fullest that are certainly, or may be, within 10 % of it.
    fn near_fullest(&self, is_certain: bool) -> Vec<Resource> {
        let Some((saturated, first)) = self.saturated.zip(self.fullest()) else { return Vec::new() };
        let is_near = |usage: &&SaturationUse| {
            saturated.use_ratio(usage, first).is_some_and(|ratio| {
                if is_certain { ratio.low >= BOTH_FULL_RATIO } else { ratio.high >= BOTH_FULL_RATIO }
            })
        };
        self.devices[1..].iter().filter(is_near).map(|usage| usage.resource).collect()
    }
}

fn still_growing(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let users = facts.sweep.max_users();
    let is_late = facts.saturated.is_some_and(|saturated| 2 * saturated.saturation.knee.users > users);
    // All workers have a connection wherever there are as many users: that ends no growth.
    let hardware = facts.fullest().filter(|first| facts.is_hardware(first));
    let is_full = hardware.is_some_and(|first| first.fullness.low >= BOTH_FULL_RATIO);
    (is_late && !is_full).then_some(LoadVerdict::Unknown { reason: UnknownLimit::StillGrowing { users } })
}

/// Whether no hardware is near its capacity; workers that all have a connection may wait.
fn is_idle(facts: &VerdictFacts<'_>) -> bool {
    let hardware = facts.devices.iter().find(|usage| facts.is_hardware(usage));
    hardware.is_none_or(|first| first.fullness.value < MIN_NEAR_USE)
}

fn limited_concurrency(facts: &VerdictFacts<'_>) -> Option<LoadVerdict> {
    let is_idle = facts.fullest().is_none_or(|first| first.fullness.value < MIN_NEAR_USE);
    // As many as there are workers may be served because there are no more of them.
    let may_be_workers = |concurrency: u64| {
        let workers = facts.sweep.servers(Resource::Workers);
        facts.workers == Some(WorkerEvidence::Waiting { refuted: false })
            && workers.is_none_or(|workers| concurrency as f64 >= workers)
    };
    let is_of_workers = |verdict: &LoadVerdict| match verdict {
        LoadVerdict::NotSampled { limit: UnsampledLimit::LimitedConcurrency { concurrency, .. }, .. } => {
            may_be_workers(*concurrency)
        }
        _ => false,
    };
    let saturated = facts.saturated.filter(|_| is_idle)?;
    let concurrency_limit = unwatched_limit::limited_concurrency(facts).filter(|verdict| !is_of_workers(verdict));
    concurrency_limit.or_else(|| unwatched_limit::losses(facts.sweep, saturated.loads()))
}

fn resource_ids(first: &SaturationUse, resources: &[Resource]) -> Vec<Name> {
    std::iter::once(first.resource).chain(resources.iter().copied()).map(resource_id).collect()
}

/// Why a verdict on these facts is not certain: the laws that fail among the reasons.
pub(crate) fn doubts(facts: &VerdictFacts<'_>, verdict: &LoadVerdict, violated: &[LoadLaw]) -> Vec<LoadDoubt> {
    let Some(saturated) = facts.saturated else { return Vec::new() };
    let is_watched = |usage: &&SaturationUse| matches!(usage.resource, Resource::ClientCpu | Resource::Generator);
    let is_explained =
        facts.is_full() || saturated.explained_throughput().is_some_and(|share| share >= MIN_EXPLAINED_SHARE);
    let share = |ratio: &dyn Fn(&LoadStep) -> Option<f64>| mean(&saturated.values(ratio));
    let think = facts.sweep.think_seconds() * 1e9;
    let lateness = share(&|visit| Some(visit.get(&LATENESS)? / (visit.get(&RESPONSE_P99)? + think)));
    // A client that is the limit sends late for that very reason.
    let is_client = matches!(verdict, LoadVerdict::Client { .. });
    let failure_ratio = share(&|visit| Some(visit.get(&ERRORS)? / visit.throughput));
    let is_unwatched = matches!(verdict, LoadVerdict::NotSampled { .. });
    let unsampled_doubt = match verdict {
        LoadVerdict::NotSampled { limit: UnsampledLimit::OtherWork { .. }, .. } => Some(LoadDoubt::OtherWork),
        LoadVerdict::NotSampled { limit: UnsampledLimit::Memory { .. }, .. } => Some(LoadDoubt::OutOfMemory),
        LoadVerdict::NotSampled { .. } => Some(LoadDoubt::NotSampled),
        _ => None,
    };
    let is_naming_workers = verdict.resources().contains(&resource_id(Resource::Workers));
    // The limit may have been another in some visits. One that is full whenever it was visited is the limit at any throughput.
    let is_unsteady = facts.fullest().is_some_and(|first| !is_unwatched && saturated.is_unsteady(first))
        || facts.is_steady == Some(false) && !facts.is_full();
    let reasons = [
        unsampled_doubt,
        (!is_explained && !is_unwatched).then_some(LoadDoubt::Unexplained),
        saturated.uses.iter().find(is_watched).is_none().then_some(LoadDoubt::ClientNotSampled),
        (lateness > MIN_LATENESS_SHARE && !is_client).then_some(LoadDoubt::LateGenerator),
        (failure_ratio > MIN_FAILURE_RATIO).then_some(LoadDoubt::Errors),
        (is_naming_workers && facts.workers != Some(WorkerEvidence::Tested)).then_some(LoadDoubt::Untested),
        is_unsteady.then_some(LoadDoubt::Unsteady),
    ];
    let hindrance_doubts =
        ObservedHindrance::at_saturation(saturated).into_iter().filter_map(|hindrance| hindrance.doubt(facts, verdict));
    // What was not watched leaves requests where no count has them, and the fullest of what was is not what limits.
    let is_relevant = |law: &&LoadLaw| !is_unwatched || **law == LoadLaw::FlowBalance;
    let law_doubts = violated.iter().filter(is_relevant).map(|&law| LoadDoubt::Law(law));
    reasons.into_iter().flatten().chain(law_doubts).chain(hindrance_doubts).collect()
}

/// A doubt, after "not certain, as".
pub(super) fn doubt_text(doubt: &LoadDoubt) -> &'static str {
    match doubt {
        LoadDoubt::Unexplained => "what was watched would allow more than 5 % more",
        LoadDoubt::Law(LoadLaw::Little) => "Little's law does not hold",
        LoadDoubt::Law(LoadLaw::FlowBalance) => "the bytes sent and received differ",
        LoadDoubt::Law(LoadLaw::Utilisation) => "its work for a request changes with the number of users",
        LoadDoubt::ClientNotSampled => "the client was not watched",
        LoadDoubt::LateGenerator => "requests were sent late",
        LoadDoubt::Errors => "more than one request in a hundred failed",
        LoadDoubt::NotSampled => "it was not watched itself, and a trace of what requests wait for would decide it",
        LoadDoubt::OtherWork => "no visit was made without that work, which would decide it",
        LoadDoubt::OutOfMemory => "no visit was made with more memory, which would decide it",
        LoadDoubt::Untested => "no visit with more workers has tested it, which would decide it",
        LoadDoubt::Unsteady => "it was not the same throughout the study",
        LoadDoubt::Disturbed { disturbance, of_server } => hindrance::doubt_text(*disturbance, *of_server),
    }
}
