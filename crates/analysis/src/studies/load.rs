//! A server under load: what limits it and from how many users on, what would limit it next, and whether its figures obey the laws
//! that tie them.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{
    CLIENT_MEMORY, DISK_BYTE_RATE, LATENESS, RATE, RESPONSE, RESPONSE_P99, Resource, ResourceGroup, SERVER_MEMORY,
    THROUGHPUT,
};
use kelvin_core::{
    Case, Claim, Conclusion, Estimate, LawDeviation, LimitProjection, LoadClaim, LoadDoubt, LoadLimit, LoadVerdict,
    Metric, Name, NextLimitClaim, ResourceUse, Run, TestEvidence,
};
use kelvin_stats::{
    CONFIDENCE_LEVEL, RepeatedLoad, ScalabilityFit, UncertainValue, fit_scalability_with_intervals, mean, median,
};

use self::hindrance::ObservedHindrance;
pub(crate) use self::hindrance::hindrance_threshold;
pub(crate) use self::knee::knee_index;
use self::knee::saturation;
use self::laws::{LawCheckResult, check_laws, growth, unanswered_in_flight, violated_laws};
use self::saturated_sweep::{SaturatedSweep, SaturationUse, clamp_to_zero, interval_estimate, mean_estimate};
use self::sweep::{Sweep, sweeps};
use self::verdict::{VerdictFacts, doubts, resource_id};
use crate::evidence::Evidence;
use crate::result::{KneeMark, ModelLine, Study, Timeline};
use crate::wording;

mod capacity_model;
mod hindrance;
mod host_tables;
mod knee;
mod laws;
pub(super) mod published;
mod saturated_sweep;
mod stability;
mod sweep;
mod sweep_pairs;
pub(super) mod sweep_tables;
mod unwatched_limit;
mod verdict;
mod workers;

/// The study.
pub(super) const LOAD_STUDY: Name = Name::new("load");

/// Bytes that a device moves for each byte served from which it does more than was asked for.
pub(crate) const MIN_AMPLIFICATION: f64 = 1.1;
/// Growth of memory that matters, in bytes a request: below it the allocator's pages cannot be told from a leak.
pub(crate) const MIN_LEAK_PER_REQUEST: f64 = 64.0;
/// Growth over a study that matters, in bytes: below it the allocator's arenas fill up, and the client keeps what it measures.
pub(crate) const MIN_LEAK_BYTES: f64 = (1 << 20) as f64;
/// Bytes of an answer over those of its file, at most: parts of answers that the ends of a visit cut off count as well.
const MAX_ANSWER_TO_FILE: f64 = 2.0;
/// Bytes of the header of an answer, at most.
const MAX_HEADER_BYTES: f64 = (64 << 10) as f64;
/// Requests that wait for all of a visit from which on it is no chance of the visit's ends.
const MIN_WAITING_REQUESTS: f64 = 0.5;
/// Use of the generator's CPU below which it cannot have been the limit.
const MAX_EASY_GENERATOR_USE: f64 = 0.85;
/// Lateness as a share of a user's time from one request to the next that cannot matter.
const MAX_HARMLESS_LATENESS: f64 = 0.1;

/// Conclusions from the metrics `load.*`; `None` where they were not measured.
pub(crate) fn load(evidence: &Evidence<'_>) -> Option<Study> {
    let sweeps = sweeps(evidence.run);
    let each: Vec<Vec<Conclusion>> = sweeps.iter().map(conclusions).collect();
    let held: Vec<Case> = sweeps.iter().map(|sweep| sweep.held.clone()).collect();
    let across = sweep_pairs::pair_conclusions(&sweeps);
    let answers =
        each.iter().filter_map(|its| wording::load::answer(its, &held)).chain(wording::load::pair_answers(&across));
    let answers = answers.collect();
    let study = Study::new(LOAD_STUDY, DESIGN, [each.concat(), across].concat())?;
    let tables = sweeps.iter().flat_map(sweep_tables::sweep_tables).collect();
    Some(Study { answers, tables, in_tables: sweep_tables::undrawn_metrics(&sweeps), ..study })
}

/// What the capacities allow at each number of users, and where the knee was found, for the curves of a run.
pub(crate) fn model_lines(run: &Run) -> (Vec<ModelLine>, Vec<KneeMark>) {
    let sweeps = sweeps(run);
    (
        sweeps.iter().flat_map(capacity_model::capacity_lines).collect(),
        sweeps.iter().flat_map(capacity_model::knee_marks).collect(),
    )
}

/// The visits of each sweep over the time of the study.
pub(crate) fn timelines(run: &Run) -> Vec<Timeline> {
    let sweeps = sweeps(run);
    let held: Vec<Case> = sweeps.iter().map(|sweep| sweep.held.clone()).collect();
    sweeps
        .iter()
        .filter_map(|sweep| stability::timeline(sweep, &wording::load::sweep_label(&sweep.held, &held)))
        .collect()
}

const DESIGN: &str = "Numbers of users, each of which sends a request, waits for the answer, thinks and sends the next, were visited \
     several times in random order. Saturation is the highest mean throughput of neighbouring numbers of users, \
     a third of all and at least three, the knee the least number with 95 % of it, the use of a resource the share of the \
     capacity that it was measured to have alone. CPUs count as full where a quota stopped the \
     process in more than 90 % of the quota's periods. Intervals are of 95 %: Student's of means and slopes, a parametric \
     bootstrap's of saturation and knee.";

/// The conclusions of a sweep, the limit first.
pub(crate) fn conclusions(sweep: &Sweep) -> Vec<Conclusion> {
    let saturated = saturation(sweep).map(|at| SaturatedSweep::new(sweep, at));
    let facts = VerdictFacts::new(sweep, saturated.as_ref());
    let laws = check_laws(sweep, saturated.as_ref().filter(|_| facts.is_reached()));
    let of_saturation: Vec<Conclusion> = match &saturated {
        Some(saturated) => saturated.conclusions(&facts, &laws),
        None => too_little_measured(sweep, &facts).into_iter().collect(),
    };
    let checked = laws.iter().map(LawCheckResult::conclusion);
    let grown = [(true, &SERVER_MEMORY), (false, &CLIENT_MEMORY)];
    let grown = grown.into_iter().filter_map(|(of_server, metric)| memory_leak(sweep, of_server, metric));
    of_saturation
        .into_iter()
        .chain(checked)
        .chain(workers::conclusion(sweep))
        .chain(stability::throughput_stability(sweep))
        .chain(waiting_users(sweep))
        .chain(response_growth(sweep))
        .chain(scalability_of_users(sweep))
        .chain(grown)
        .collect()
}

impl SaturatedSweep<'_> {
    fn conclusions(&self, facts: &VerdictFacts<'_>, laws: &[LawCheckResult]) -> Vec<Conclusion> {
        let limit = self.limit(facts, laws);
        let generator = self.generator(&limit);
        let what_if = self.what_if(&facts.devices, &limit.verdict);
        let hindrances =
            ObservedHindrance::at_saturation(self).into_iter().map(|seen| seen.conclusion(self, &limit.verdict));
        let hindrances: Vec<Conclusion> = hindrances.collect();
        let is_certain = limit.doubts.is_empty() && !matches!(limit.verdict, LoadVerdict::Unknown { .. });
        let visits = self.steps().count();
        let evidence = TestEvidence::Visits { loads: self.sweep.loads.len(), visits: self.sweep.min_steps() };
        let at_saturation = |claim, holds| new_conclusion(claim, holds, TestEvidence::Saturated { visits });
        let first = new_conclusion(LoadClaim::Limit(Box::new(limit)), is_certain.then_some(true), evidence);
        // No visit has tested it: a request may take more of a resource when there are more of them.
        let next = what_if.map(|claim| at_saturation(LoadClaim::WhatIf(claim), None));
        let others = [next, self.amplification(visits), generator.map(|(claim, holds)| at_saturation(claim, holds))];
        std::iter::once(first).chain(others.into_iter().flatten()).chain(hindrances).collect()
    }

    fn limit(&self, facts: &VerdictFacts<'_>, laws: &[LawCheckResult]) -> LoadLimit {
        let (verdict, rule) = facts.verdict();
        let doubts = match verdict {
            LoadVerdict::Unknown { .. } => Vec::new(),
            _ => doubts(facts, &verdict, &violated_laws(laws)),
        };
        // What was not reached has no figure: what is known is the throughput with the most users.
        let is_growing = !facts.is_reached();
        let furthest =
            self.sweep.loads.last().filter(|_| is_growing).and_then(|load| mean_estimate(&load.throughputs()));
        LoadLimit {
            held: self.sweep.held.clone(),
            verdict,
            rule: rule.text.into(),
            doubts,
            knee: Some(self.saturation.knee).filter(|_| furthest.is_none()),
            saturation: furthest.unwrap_or(self.saturation.throughput),
            request_bytes: self.request_bytes(),
            used: self.uses.iter().map(|one| self.resource(one)).collect(),
        }
    }

    /// Bytes of an answer, by the visit in the middle: those of the file where they were not counted, and none where more than a file and
    /// its header came, which is no answer.
    fn request_bytes(&self) -> Option<f64> {
        let of_visit = |visit: &sweep::LoadStep| Some(visit.get(&RATE)? / visit.throughput);
        let counted: Vec<f64> = self.steps().filter_map(of_visit).collect();
        let file = self.sweep.file_bytes();
        if counted.is_empty() {
            return file;
        }
        let is_answer = |bytes: &f64| file.is_none_or(|file| *bytes <= MAX_ANSWER_TO_FILE * file + MAX_HEADER_BYTES);
        Some(median(&counted)).filter(is_answer)
    }

    fn resource(&self, one: &SaturationUse) -> ResourceUse {
        let capacity_bytes = self.sweep.capacities.get(&one.resource).and_then(|capacity| capacity.bytes);
        ResourceUse { resource: resource_id(one.resource), utilisation: one.utilisation, capacity_bytes }
    }

    /// How far the limit would have to move to meet the next resource; `None` where the limit is not known, or not one.
    fn what_if(&self, devices: &[SaturationUse], verdict: &LoadVerdict) -> Option<NextLimitClaim> {
        // More workers work on more requests, which says nothing of how many times as many the next limit would bear.
        let LoadVerdict::Resource { by } = verdict else { return None };
        if *by == resource_id(Resource::Workers) {
            return None;
        }
        let is_next =
            |one: &&SaturationUse| one.resource.group() != ResourceGroup::Client && resource_id(one.resource) != *by;
        let (first, next) = (devices.first()?, devices.iter().find(is_next)?);
        let to = |times: f64, throughput: f64| LimitProjection { times, throughput };
        let share = next.fullness.value;
        let capacity =
            |one: &SaturationUse| self.sweep.capacities.get(&one.resource).and_then(|capacity| capacity.requests);
        let alone = capacity(first).zip(capacity(next)).map(|(limit, next)| to(next / limit, next));
        (share > 0.0).then(|| NextLimitClaim {
            held: self.sweep.held.clone(),
            limit: *by,
            next: resource_id(next.resource),
            as_measured: to(first.fullness.value / share, self.saturation.throughput.value / share),
            from_capacity: alone.filter(|alone| alone.times > 1.0),
        })
    }

    /// What the disk reads for each byte that is served, where files come from it.
    fn amplification(&self, visits: usize) -> Option<Conclusion> {
        let is_from_disk = CacheState::of(&self.sweep.held) == Some(CacheState::Uncached);
        // Of a visit that was served nothing there is no such ratio.
        let ratio = |visit: &sweep::LoadStep| {
            Some(visit.get(&DISK_BYTE_RATE)? / visit.get(&RATE).filter(|&served| served > 0.0)?)
        };
        let times = self.steps().filter_map(ratio).filter(|_| is_from_disk).collect::<Vec<f64>>();
        let times = mean_estimate(&times).map(clamp_to_zero)?;
        let resource = resource_id(Resource::Disk);
        let claim = LoadClaim::Amplification { held: self.sweep.held.clone(), resource, times };
        Some(new_conclusion(claim, times.is_above(MIN_AMPLIFICATION), TestEvidence::Saturated { visits }))
    }

    /// Whether the generator kept up.
    fn generator(&self, limit: &LoadLimit) -> Option<(LoadClaim, Option<bool>)> {
        let cpu = self.uses.iter().find(|one| one.resource == Resource::Generator).map(|one| one.utilisation);
        // A user who asks late asks so much less often, of his time from one request to the next.
        let think = self.sweep.think_seconds() * 1e9;
        let of_load = |load: &sweep::UserLoad| {
            let (late, response) = (load.figure_values(&LATENESS), load.figure_values(&RESPONSE_P99));
            (!late.is_empty() && !response.is_empty()).then(|| (mean(&late), mean(&response) + think))
        };
        let lateness: Vec<(f64, f64)> = self.sweep.loads.iter().filter_map(of_load).collect();
        let latest = lateness.iter().map(|(late, _)| *late).max_by(f64::total_cmp);
        let is_in_time = lateness.iter().all(|(late, cycle)| *late <= MAX_HARMLESS_LATENESS * cycle);
        let is_at_ease = cpu.is_none_or(|cpu| cpu.high < MAX_EASY_GENERATOR_USE);
        (cpu.is_some() || latest.is_some()).then(|| {
            let claim = LoadClaim::Generator { cpu, late: latest };
            (claim, is_generator_ruled_out(limit, (is_at_ease, is_in_time)))
        })
    }
}

/// Whether the load generator was not the limit, by the verdict: one that it names was, and one that names others, and not with the client's
/// parts among them, has found that it was not. Where that is not certain, or not known, it decides whether the generator had time left.
fn is_generator_ruled_out(limit: &LoadLimit, (is_at_ease, is_in_time): (bool, bool)) -> Option<bool> {
    let is_of_client = |by: &Name| {
        Resource::ALL.iter().any(|resource| *by == *resource.name() && resource.group() == ResourceGroup::Client)
    };
    match &limit.verdict {
        LoadVerdict::Client { by } => (*by == resource_id(Resource::Generator)).then_some(false),
        LoadVerdict::Both { by } | LoadVerdict::OneOf { by } if by.iter().any(is_of_client) => None,
        LoadVerdict::Resource { .. } | LoadVerdict::Both { .. } | LoadVerdict::OneOf { .. }
            if !limit.doubts.contains(&LoadDoubt::LateGenerator) =>
        {
            (limit.doubts.is_empty() || is_at_ease).then_some(true)
        }
        _ => (is_at_ease && is_in_time).then_some(true),
    }
}

/// The claim that too little was measured.
fn too_little_measured(sweep: &Sweep, facts: &VerdictFacts<'_>) -> Option<Conclusion> {
    let means = sweep.loads.iter().map(|load| mean(&load.throughputs()));
    let most = means.max_by(f64::total_cmp)?;
    let (verdict, rule) = facts.verdict();
    let limit = LoadLimit {
        held: sweep.held.clone(),
        verdict,
        rule: rule.text.into(),
        doubts: Vec::new(),
        knee: None,
        saturation: Estimate { value: most, low: most, high: most, is_range: false },
        request_bytes: sweep.file_bytes(),
        used: Vec::new(),
    };
    let evidence = TestEvidence::Visits { loads: sweep.loads.len(), visits: sweep.min_steps() };
    Some(new_conclusion(LoadClaim::Limit(Box::new(limit)), None, evidence))
}

/// A sweep at saturation; `None` of one that did not reach it, of which no figure of saturation is known.
fn saturated_sweep(sweep: &Sweep) -> Option<SaturatedSweep<'_>> {
    let saturated = SaturatedSweep::new(sweep, saturation(sweep)?);
    let is_reached = VerdictFacts::new(sweep, Some(&saturated)).is_reached();
    is_reached.then_some(saturated)
}

fn new_conclusion(claim: LoadClaim, holds: Option<bool>, evidence: TestEvidence) -> Conclusion {
    Conclusion { claim: Claim::Load(claim), holds, evidence, tested: None }
}

impl LawCheckResult {
    fn conclusion(&self) -> Conclusion {
        new_conclusion(LoadClaim::Law(self.check.clone()), self.holds, TestEvidence::Saturated { visits: self.visits })
    }
}

/// Whether users wait for all of a visit while others are served again and again: with the fewest users of whom some certainly do.
fn waiting_users(sweep: &Sweep) -> Option<Conclusion> {
    let of_load = |load: &sweep::UserLoad| {
        let waiting: Vec<f64> = load.steps.iter().filter_map(unanswered_in_flight).collect();
        Some((load.users, mean_estimate(&waiting)?))
    };
    let (users, waiting) =
        sweep.loads.iter().filter_map(of_load).find(|(_, waiting)| waiting.low > MIN_WAITING_REQUESTS)?;
    let evidence = TestEvidence::Visits { loads: sweep.loads.len(), visits: sweep.min_steps() };
    Some(new_conclusion(LoadClaim::Waiting { users, waiting }, Some(true), evidence))
}

/// How the response time grows from the fewest users to the most.
fn response_growth(sweep: &Sweep) -> Option<Conclusion> {
    let (first, last) = (sweep.loads.first()?, sweep.loads.last()?);
    let [all_alone, all_crowded] = [first, last].map(|load| load.figure_values(&RESPONSE));
    let of_load = |load: &sweep::UserLoad, all: &[f64]| (!all.is_empty()).then(|| (load.users, mean(all)));
    let (alone, crowded) = (of_load(first, &all_alone)?, of_load(last, &all_crowded)?);
    let evidence = TestEvidence::Visits { loads: sweep.loads.len(), visits: sweep.min_steps() };
    let grown = UncertainValue::mean(&all_crowded).zip(UncertainValue::mean(&all_alone));
    let holds =
        grown.and_then(|(crowded, alone)| interval_estimate(crowded.minus(alone), CONFIDENCE_LEVEL).is_above(0.0));
    (alone.0 < crowded.0).then(|| new_conclusion(LoadClaim::Response { alone, crowded }, holds, evidence))
}

/// The universal scalability law of throughput by users.
fn scalability_of_users(sweep: &Sweep) -> Option<Conclusion> {
    let most = sweep.loads.last()?.users;
    let throughputs: Vec<Vec<f64>> = sweep.loads.iter().map(sweep::UserLoad::throughputs).collect();
    let users = sweep.loads.iter().map(|load| load.users as f64);
    let repeated: Vec<RepeatedLoad<'_>> = users.zip(throughputs.iter().map(Vec::as_slice)).collect();
    let ScalabilityFit { law, sigma, kappa, worst_misfit: furthest, describes, .. } =
        fit_scalability_with_intervals(&repeated)?;
    let coefficient = |value, (low, high)| Estimate { value, low, high, is_range: false };
    let claim = LoadClaim::Scalability {
        held: sweep.held.clone(),
        contention: coefficient(law.sigma, sigma),
        coherency: coefficient(law.kappa, kappa),
        // Beyond the most users that were there the law says nothing.
        peak: Some(law.peak_workers()).filter(|&peak| peak <= most as f64),
        furthest: LawDeviation { workers: furthest.n as u64, ratio: furthest.ratio },
    };
    let evidence = TestEvidence::Visits { loads: sweep.loads.len(), visits: sweep.min_steps() };
    Some(new_conclusion(claim, Some(describes), evidence))
}

/// Whether the memory of a process grows with the requests that it has served.
fn memory_leak(sweep: &Sweep, of_server: bool, metric: &Metric) -> Option<Conclusion> {
    let growth = growth(sweep, metric)?;
    let visits: Vec<f64> = sweep.loads.iter().flat_map(|load| load.figure_values(&THROUGHPUT)).collect();
    let throughput = Some(mean(&visits)).filter(|&throughput| throughput > 0.0)?;
    let bytes_a_request = growth.per_second.divided_by(throughput);
    let in_study = growth.per_second.divided_by(1.0 / growth.seconds);
    let claim = LoadClaim::Growth {
        of_server,
        bytes_a_second: growth.per_second,
        bytes_a_request,
        bytes_in_study: Some(in_study),
    };
    let evidence = TestEvidence::Slope { visits: growth.visits, seconds: growth.seconds };
    let leaks = match (bytes_a_request.is_above(MIN_LEAK_PER_REQUEST), in_study.is_above(MIN_LEAK_BYTES)) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    Some(new_conclusion(claim, leaks, evidence))
}
