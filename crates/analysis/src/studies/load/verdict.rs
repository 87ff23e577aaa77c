//! What limits a server: the rules by which it is decided, in their order.

use kelvin_catalogue::load::{Device, ERRORS, LATENESS, RESPONSE_P99, Resource};
use kelvin_model::{LoadDoubt, LoadLaw, LoadVerdict, Name, UnknownLimit, Unwatched};
use kelvin_stats::mean;

use super::hindrance::Seen;
use super::sweep::{Sweep, Visit};
use super::unwatched;
use super::used::{BUSY, FULL, Saturated, Use};
use super::workers::{Workers, are_bound};

/// Utilisation below which a resource is not near its capacity, whatever the errors of both.
pub(super) const NEAR: f64 = 0.85;
/// Two resources are both the limit if the use of one is at least this share of the other's.
pub(super) const AS_FULL: f64 = 0.9;
/// A resource that gives more than its capacity times this has another capacity: CPU time, of which quotas let more pass at times; and
/// bytes, whose capacity is told to as much as it may be full by.
const BEYOND: f64 = 1.1;
const BEYOND_IN_BYTES: f64 = 1.0 / FULL;
/// Throughput as a share of what the resources that were watched allow, from which they explain it.
const EXPLAINED: f64 = 0.95;
/// Lateness as a share of the time of a user from one request to the next, of which 99th percentiles are taken and the mean time to
/// think, from which the generator's own delays matter to how many requests there are.
const LATE: f64 = 0.1;
/// Failed requests for each that was answered, from which they matter.
const FAILING: f64 = 0.01;

/// What the rules look at.
pub(crate) struct Facts<'s> {
    pub sweep: &'s Sweep,
    /// `None` where too little was measured to tell.
    pub saturated: Option<&'s Saturated<'s>>,
    /// The fullest part of each device, the fullest first, without workers that wait.
    pub devices: Vec<Use>,
    /// What is known of workers that all have a connection.
    pub workers: Option<Workers>,
    /// Whether throughput is at the end what it was at the start, as far as is certain.
    pub is_steady: Option<bool>,
}

/// A rule: what it says, and its verdict where it applies.
pub(crate) struct Rule {
    pub says: &'static str,
    decides: fn(&Facts<'_>) -> Option<LoadVerdict>,
}

/// The rules; the first that applies decides.
pub(crate) static RULES: [Rule; 17] = [
    Rule {
        says: "two visits to each of three numbers of users, and a resource that was watched, are needed",
        decides: too_little,
    },
    Rule { says: "a resource that gives more than its capacity has another one: not known", decides: beyond_capacity },
    Rule { says: "where a tenth of the requests fail, what turns them away limits", decides: unwatched::refusals },
    Rule {
        says: "where files come from the disk only from a number of users on, more users bring nothing then and nothing else is near its \
               capacity, the memory for files limits",
        decides: unwatched::memory,
    },
    Rule {
        says: "where nothing is near its capacity by its own work, other work has the CPUs of an end, and requests wait for a CPU most of the time, that work \
               limits",
        decides: other_work,
    },
    Rule {
        says: "where throughput grows to the end, nothing is full and each request takes as long with any number of users, most of it \
               without any work, or waits for the disk most of the time, that limits, or losses on its way",
        decides: each_waits,
    },
    Rule {
        says: "where throughput grows to the end and nothing is full, nothing was reached: not known",
        decides: still_growing,
    },
    Rule {
        says: "where nothing is near its capacity and nobody is answered for a tenth of the time or more, again and again, these stalls limit",
        decides: stalls,
    },
    Rule {
        says: "where nothing is near its capacity and requests wait for the disk most of the time, it limits",
        decides: blocked,
    },
    Rule {
        says: "where nothing is near its capacity, and a single user's requests wait most of the time for what at saturation serves as many \
               as would be there then if each waited as long, it limits, or losses on the way of requests",
        decides: in_turn,
    },
    Rule {
        says: "workers that all have a connection and do not work wait for something else: not known",
        decides: workers_wait,
    },
    Rule { says: "where nothing is above 60 %, not known", decides: nothing_busy },
    Rule { says: "where nothing is near its capacity, not known", decides: nothing_full },
    Rule { says: "the client alone is full: nothing follows about the server", decides: client },
    Rule { says: "others within 10 % of the fullest limit as much", decides: both },
    Rule { says: "others that may be within 10 % of the fullest may limit as much", decides: one_of },
    Rule { says: "the fullest resource limits", decides: fullest },
];

impl<'s> Facts<'s> {
    pub(crate) fn of(sweep: &'s Sweep, saturated: Option<&'s Saturated<'s>>) -> Self {
        let mut devices = saturated.map(Saturated::devices).unwrap_or_default();
        let is_workers = |one: &Use| one.resource == Resource::Workers;
        let may_limit = devices.iter().any(is_workers) && are_bound(sweep);
        let workers = saturated.filter(|_| may_limit).map(Workers::of);
        if matches!(workers, Some(Workers::Wait { .. })) {
            devices.retain(|one| !is_workers(one));
        }
        let is_steady = super::time::steady(sweep).and_then(|steady| steady.holds);
        Self { sweep, saturated, devices, workers, is_steady }
    }

    /// The verdict of the first rule that applies, and that rule.
    pub(crate) fn verdict(&self) -> (LoadVerdict, &'static Rule) {
        let decided = RULES.iter().find_map(|rule| Some(((rule.decides)(self)?, rule)));
        // The first rule applies where there is nothing to look at, the last one to anything else.
        decided.unwrap_or((LoadVerdict::Unknown { because: UnknownLimit::TooLittle }, &RULES[0]))
    }

    /// Whether throughput had ceased to grow with the most users, or something was full: else saturation has no figure.
    pub(crate) fn is_reached(&self) -> bool {
        match self.verdict().0 {
            LoadVerdict::Unknown { because: UnknownLimit::StillGrowing { .. } }
            | LoadVerdict::Unwatched { how: Unwatched::Each { .. }, .. } => false,
            LoadVerdict::Unwatched { how: Unwatched::Refusals { .. }, .. } => true,
            LoadVerdict::Unwatched { .. } => still_growing(self).is_none(),
            _ => true,
        }
    }

    /// Whether the fullest resource is certainly full.
    pub(crate) fn is_full(&self) -> bool {
        self.saturated.zip(self.first()).is_some_and(|(saturated, first)| saturated.is_full(first))
    }

    fn first(&self) -> Option<&Use> {
        self.devices.first()
    }

    /// The resources after the fullest that are certainly, or may be, within 10 % of it.
    fn beside(&self, is_certain: bool) -> Vec<Resource> {
        let Some((saturated, first)) = self.saturated.zip(self.first()) else { return Vec::new() };
        let is_beside = |one: &&Use| {
            saturated
                .ratio(one, first)
                .is_some_and(|ratio| if is_certain { ratio.low >= AS_FULL } else { ratio.high >= AS_FULL })
        };
        self.devices[1..].iter().filter(is_beside).map(|one| one.resource).collect()
    }
}

fn too_little(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let is_watched = facts.saturated.is_some_and(|saturated| !saturated.used.is_empty());
    (!is_watched).then_some(LoadVerdict::Unknown { because: UnknownLimit::TooLittle })
}

fn beyond_capacity(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let is_in_bytes = |first: &Use| matches!(first.resource.device(), Device::Disk | Device::Link);
    let most = |first: &Use| if is_in_bytes(first) { BEYOND_IN_BYTES } else { BEYOND };
    let first = facts.first().filter(|first| first.fullness.value > most(first))?;
    Some(LoadVerdict::Unknown { because: UnknownLimit::BeyondCapacity { resource: name(first.resource) } })
}

fn still_growing(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let users = facts.sweep.most_users();
    let is_late = facts.saturated.is_some_and(|saturated| 2 * saturated.at.knee.users > users);
    // All workers have a connection wherever there are as many users: that ends no growth.
    let is_hardware = |first: &&Use| first.resource != Resource::Workers || facts.workers == Some(Workers::Tested);
    let is_full = facts.first().filter(is_hardware).is_some_and(|first| first.fullness.low >= AS_FULL);
    (is_late && !is_full).then_some(LoadVerdict::Unknown { because: UnknownLimit::StillGrowing { users } })
}

fn each_waits(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let most = facts.sweep.loads.last()?;
    still_growing(facts)?;
    let most = std::slice::from_ref(most);
    unwatched::blocked(facts, most).or_else(|| unwatched::each(facts)).or_else(|| unwatched::losses(facts.sweep, most))
}

/// Whether no hardware is near its capacity; workers that all have a connection may wait.
fn is_idle(facts: &Facts<'_>) -> bool {
    let is_hardware = |one: &&Use| one.resource != Resource::Workers || facts.workers == Some(Workers::Tested);
    facts.devices.iter().find(is_hardware).is_none_or(|first| first.fullness.value < NEAR)
}

fn other_work(facts: &Facts<'_>) -> Option<LoadVerdict> {
    // CPUs that count as full for what the server's threads wait are those that other work has.
    let is_raised = facts.first().is_some_and(|first| first.resource.device() == Device::ServerCpu)
        && facts.saturated.is_some_and(Saturated::is_without_cpu);
    (is_idle(facts) || is_raised).then(|| unwatched::other_work(facts)).flatten()
}

fn stalls(facts: &Facts<'_>) -> Option<LoadVerdict> {
    // Workers have their connections in a stall as well.
    let hardware = facts.devices.iter().find(|one| one.resource != Resource::Workers);
    let is_idle = hardware.is_none_or(|first| first.fullness.value < NEAR);
    is_idle.then(|| unwatched::stalls(facts)).flatten()
}

fn blocked(facts: &Facts<'_>) -> Option<LoadVerdict> {
    facts.saturated.filter(|_| is_idle(facts)).and_then(|saturated| unwatched::blocked(facts, saturated.loads()))
}

fn in_turn(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let is_idle = facts.first().is_none_or(|first| first.fullness.value < NEAR);
    // As many as there are workers may be served because there are no more of them.
    let may_be_workers = |at_once: u64| {
        let workers = facts.sweep.capacities.get(&Resource::Workers).and_then(|one| one.servers);
        facts.workers == Some(Workers::Wait { refuted: false })
            && workers.is_none_or(|workers| at_once as f64 >= workers)
    };
    let is_of_workers = |verdict: &LoadVerdict| match verdict {
        LoadVerdict::Unwatched { how: Unwatched::InTurn { at_once, .. }, .. } => may_be_workers(*at_once),
        _ => false,
    };
    let saturated = facts.saturated.filter(|_| is_idle)?;
    let in_turn = unwatched::in_turn(facts).filter(|verdict| !is_of_workers(verdict));
    in_turn.or_else(|| unwatched::losses(facts.sweep, saturated.loads()))
}

fn workers_wait(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let Some(Workers::Wait { refuted }) = facts.workers else { return None };
    let is_idle = facts.first().is_none_or(|first| first.fullness.value < NEAR);
    is_idle.then_some(LoadVerdict::Unknown { because: UnknownLimit::WorkersWait { refuted } })
}

fn nothing_busy(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let is_idle = facts.first().is_some_and(|first| first.fullness.value <= BUSY);
    is_idle.then_some(LoadVerdict::Unknown { because: UnknownLimit::NothingBusy })
}

fn nothing_full(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let first = facts.first().filter(|first| first.fullness.value < NEAR)?;
    Some(LoadVerdict::Unknown { because: UnknownLimit::NothingFull { fullest: name(first.resource) } })
}

fn client(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let first = facts.first().filter(|first| first.resource.device() == Device::Client)?;
    facts.beside(false).is_empty().then(|| LoadVerdict::Client { by: name(first.resource) })
}

fn both(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let (first, beside) = (facts.first()?, facts.beside(true));
    let is_certain = !beside.is_empty() && beside.len() == facts.beside(false).len();
    is_certain.then(|| LoadVerdict::Both { by: names(first, &beside) })
}

fn one_of(facts: &Facts<'_>) -> Option<LoadVerdict> {
    let (first, beside) = (facts.first()?, facts.beside(false));
    (!beside.is_empty()).then(|| LoadVerdict::OneOf { by: names(first, &beside) })
}

fn fullest(facts: &Facts<'_>) -> Option<LoadVerdict> {
    facts.first().map(|first| LoadVerdict::Resource { by: name(first.resource) })
}

fn names_workers(verdict: &LoadVerdict) -> bool {
    match verdict {
        LoadVerdict::Resource { by } | LoadVerdict::Client { by } => *by == *Resource::Workers.name(),
        LoadVerdict::Both { by } | LoadVerdict::OneOf { by } => by.iter().any(|by| *by == *Resource::Workers.name()),
        LoadVerdict::Unwatched { .. } | LoadVerdict::Unknown { .. } => false,
    }
}

/// Whether the limit may have been another in some visits. One that is full whenever it was visited is the limit at whatever throughput.
fn is_unsteady(facts: &Facts<'_>, saturated: &Saturated<'_>, is_unwatched: bool) -> bool {
    facts.first().is_some_and(|first| !is_unwatched && saturated.is_unsteady(first))
        || facts.is_steady == Some(false) && !facts.is_full()
}

pub(super) fn name(resource: Resource) -> Name {
    Name::new(resource.name())
}

fn names(first: &Use, others: &[Resource]) -> Vec<Name> {
    std::iter::once(first.resource).chain(others.iter().copied()).map(name).collect()
}

/// Why a verdict on these facts is not certain: the laws that fail among the reasons.
pub(crate) fn doubts(facts: &Facts<'_>, verdict: &LoadVerdict, broken: &[LoadLaw]) -> Vec<LoadDoubt> {
    let Some(saturated) = facts.saturated else { return Vec::new() };
    let is_watched = |one: &&Use| matches!(one.resource, Resource::ClientCpu | Resource::Generator);
    let explains = facts.is_full() || saturated.explained().is_some_and(|share| share >= EXPLAINED);
    let share = |of: &dyn Fn(&Visit) -> Option<f64>| mean(&saturated.visits().filter_map(of).collect::<Vec<f64>>());
    let think = facts.sweep.think() * 1e9;
    let late = share(&|visit| Some(visit.get(&LATENESS)? / (visit.get(&RESPONSE_P99)? + think)));
    // A client that is the limit sends late for that very reason.
    let is_client = matches!(verdict, LoadVerdict::Client { .. });
    let failing = share(&|visit| Some(visit.get(&ERRORS)? / visit.throughput));
    let is_unwatched = matches!(verdict, LoadVerdict::Unwatched { .. });
    let would_decide = match verdict {
        LoadVerdict::Unwatched { how: Unwatched::OtherWork { .. }, .. } => Some(LoadDoubt::OthersWork),
        LoadVerdict::Unwatched { how: Unwatched::Memory { .. }, .. } => Some(LoadDoubt::NoMoreMemory),
        LoadVerdict::Unwatched { .. } => Some(LoadDoubt::NotWatched),
        _ => None,
    };
    let all = [
        would_decide,
        (!explains && !is_unwatched).then_some(LoadDoubt::Unexplained),
        saturated.used.iter().find(is_watched).is_none().then_some(LoadDoubt::ClientNotWatched),
        (late > LATE && !is_client).then_some(LoadDoubt::LateGenerator),
        (failing > FAILING).then_some(LoadDoubt::Errors),
        (names_workers(verdict) && facts.workers != Some(Workers::Tested)).then_some(LoadDoubt::Untested),
        is_unsteady(facts, saturated, is_unwatched).then_some(LoadDoubt::Unsteady),
    ];
    let hindered = Seen::all(saturated).into_iter().filter_map(|seen| seen.doubt(facts, verdict));
    // What was not watched leaves requests where no count has them, and the fullest of what was is not what limits.
    let of_verdict = |law: &&LoadLaw| !is_unwatched || **law == LoadLaw::FlowBalance;
    let broken = broken.iter().filter(of_verdict).map(|&law| LoadDoubt::Law(law));
    all.into_iter().flatten().chain(broken).chain(hindered).collect()
}
