//! A server under load: what limits it and from how many users on, what would limit it next, and whether its figures obey the laws
//! that tie them.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::hosts::{self, LoadHost};
use kelvin_core::catalogue::load::*;

use self::hindrance::ObservedHindrance;
pub(crate) use self::knee::find_knee;
use self::labels::{resource, resource_id, resource_name, round_time, signed_percent, sweep_suffix, users_text};
use self::laws::{LawCheckResult, check_laws, law_summary};
use self::saturated_sweep::{SaturatedSweep, SaturationUse, clamp_to_zero, mean_estimate};
use self::sweep::{LoadStep, Sweep, UserLoad};
use self::verdict::{BOTH_FULL_RATIO, MIN_NEAR_USE, VerdictFacts};
use crate::prelude::*;

mod capacity_model;
mod generator;
mod hindrance;
mod host_tables;
mod knee;
mod labels;
mod laws;
mod limit;
mod memory_growth;
mod next_limit;
pub(super) mod published;
mod saturated_sweep;
mod stability;
pub(crate) mod sweep;
mod sweep_pairs;
pub(super) mod sweep_tables;
mod unwatched_limit;
mod users;
mod verdict;
mod workers;

/// The study.
pub(super) const LOAD_STUDY: Name = Name::new("load");

const DESIGN: &str = "Numbers of users, each of which sends a request, waits for the answer, thinks and sends the next, were visited \
     several times in random order. Saturation is the highest mean throughput of neighbouring numbers of users, \
     a third of all and at least three, the knee the least number with 95 % of it, the use of a resource the share of the \
     capacity that it was measured to have alone. CPUs count as full where a quota stopped the \
     process in more than 90 % of the quota's periods. Intervals are of 95 %: Student's of means and slopes, a parametric \
     bootstrap's of saturation and knee.";

/// A conclusion of the study, with its sentence in the answer of its sweep.
pub(crate) struct LoadConclusion {
    pub stated: StatedConclusion,
    line: Option<(AnswerLine, String)>,
}

/// The lines of an answer, in their order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerLine {
    NextLimit,
    Generator,
    Response,
    Trouble,
}

impl LoadConclusion {
    fn new(claim: LoadClaim, holds: Option<bool>, test: ClaimTest, text: String) -> Self {
        Self { stated: test.conclude(Claim::Load(claim), holds, text), line: None }
    }

    /// With a sentence for a line of the answer.
    fn with_line(self, line: AnswerLine, sentence: Option<String>) -> Self {
        Self { line: sentence.map(|sentence| (line, sentence)), ..self }
    }
}

fn visits_test(sweep: &Sweep) -> ClaimTest {
    load_steps_test(sweep.loads.len(), sweep.min_steps())
}

fn load_steps_test(loads: usize, visits: usize) -> ClaimTest {
    let text = format!("{loads} numbers of users, {visits} visits or more to each");
    ClaimTest::new(TestEvidence::LoadSteps { loads, steps: visits }, text, None)
}

fn saturated_test(visits: usize) -> ClaimTest {
    ClaimTest::new(TestEvidence::Saturated { steps: visits }, format!("{visits} visits"), None)
}

fn slope_test(visits: usize, span: f64) -> ClaimTest {
    let text = format!("{visits} visits in {}, compared at equal numbers of users", seconds(span));
    ClaimTest::new(TestEvidence::Slope { steps: visits, seconds: span }, text, None)
}

/// Conclusions from the metrics `load.*`; `None` where they were not measured.
pub(crate) fn load(evidence: &Evidence<'_>) -> Option<Study> {
    let sweeps = evidence.sweeps();
    let fixed: Vec<Case> = sweeps.iter().map(|sweep| sweep.fixed.clone()).collect();
    let (mut conclusions, mut answers) = (Vec::new(), Vec::new());
    for sweep in sweeps {
        let (sweep_results, answer) = sweep_conclusions(sweep, &fixed);
        conclusions.extend(sweep_results);
        answers.extend(answer);
    }
    for (pair_results, answer) in sweep_pairs::pair_conclusions(sweeps) {
        conclusions.extend(pair_results);
        answers.push(answer);
    }
    let study = Study::new(LOAD_STUDY, DESIGN, conclusions.into_iter().map(|conclusion| conclusion.stated).collect())?;
    let tables = sweeps.iter().flat_map(sweep_tables::sweep_tables).collect();
    Some(Study { answers, tables, in_tables: sweep_tables::undrawn_metrics(sweeps), ..study })
}

/// The conclusions of a sweep, the limit first, and its answer, where it has a limit.
fn sweep_conclusions(sweep: &Sweep, cases: &[Case]) -> (Vec<LoadConclusion>, Option<StudyAnswer>) {
    let saturated = sweep.saturation.map(|saturation| SaturatedSweep::new(sweep, saturation));
    let facts = VerdictFacts::new(sweep, saturated.as_ref());
    let laws = check_laws(sweep, saturated.as_ref().filter(|_| facts.is_reached()));
    let limit = limit::limit(sweep, saturated.as_ref(), &facts, &laws);
    let mut conclusions: Vec<LoadConclusion> = limit.iter().map(|limit| limit::conclusion(sweep, limit)).collect();
    if let (Some(saturated), Some(limit)) = (&saturated, &limit) {
        conclusions.extend(next_limit::next_limit(saturated, &facts.devices, &limit.verdict));
        conclusions.extend(next_limit::disk_amplification(saturated));
        conclusions.extend(generator::conclusion(saturated, limit));
        let hindrances = ObservedHindrance::at_saturation(saturated);
        conclusions.extend(hindrances.into_iter().map(|hindrance| hindrance.conclusion(saturated, &limit.verdict)));
    }
    conclusions.extend(laws.iter().map(LawCheckResult::conclusion));
    let other_conclusions = [
        workers::conclusion(sweep),
        stability::throughput_stability(sweep),
        users::waiting(sweep),
        users::response_growth(sweep),
        users::scalability(sweep),
        memory_growth::conclusion(sweep, true),
        memory_growth::conclusion(sweep, false),
    ];
    conclusions.extend(other_conclusions.into_iter().flatten());
    let line = |kind: AnswerLine| {
        let parts =
            conclusions.iter().filter_map(|conclusion| conclusion.line.as_ref()).filter(|(line, _)| *line == kind);
        parts.map(|(_, sentence)| sentence.as_str()).collect::<Vec<_>>().join(" ")
    };
    let answer = limit.map(|limit| {
        let lines = [
            line(AnswerLine::NextLimit),
            law_summary(&laws),
            line(AnswerLine::Generator),
            line(AnswerLine::Response),
            line(AnswerLine::Trouble),
        ];
        limit::answer(&limit, lines.into_iter(), cases)
    });
    (conclusions, answer)
}

/// What the capacities allow at each number of users, and where the knee was found, for the curves of a run.
pub(crate) fn model_lines(sweeps: &[Sweep]) -> (Vec<ModelLine>, Vec<KneeMark>) {
    (
        sweeps.iter().flat_map(capacity_model::capacity_lines).collect(),
        sweeps.iter().flat_map(capacity_model::knee_marks).collect(),
    )
}

/// The visits of each sweep over the time of the study.
pub(crate) fn timelines(sweeps: &[Sweep]) -> Vec<Timeline> {
    let fixed: Vec<Case> = sweeps.iter().map(|sweep| sweep.fixed.clone()).collect();
    let timeline = |sweep| stability::timeline(sweep, &labels::sweep_label(&sweep.fixed, &fixed));
    sweeps.iter().filter_map(timeline).collect()
}

/// A sweep at saturation; `None` of one that did not reach it, of which no figure of saturation is known.
fn saturated_sweep(sweep: &Sweep) -> Option<SaturatedSweep<'_>> {
    let saturated = SaturatedSweep::new(sweep, sweep.saturation?);
    let is_reached = VerdictFacts::new(sweep, Some(&saturated)).is_reached();
    is_reached.then_some(saturated)
}
