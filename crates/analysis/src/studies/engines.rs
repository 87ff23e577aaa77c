//! The engines that read a file: the request size from which one beats another, and which is fastest.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use kelvin_core::catalogue::file::{BLOCK, ENGINES, ReadEngine};
use kelvin_core::units::bytes;
use kelvin_core::{BestQuestion, Claim, Conclusion, MetricValue, Name, TestEvidence};
use kelvin_stats::{headline, median};

use super::crossing::{LineRatio, MetricLine, best_p_value, crossings, line_ratio, line_ratios, lines, side_p_value};
use crate::evidence::{Evidence, outcome_of_p_value, p_value_of_all};
use crate::result::{Figure, Study, StudyColumn, StudyRow, StudyTable};
use crate::wording;

/// The engine that every other is compared with.
const BASE_ENGINE: ReadEngine = ReadEngine::Read;
/// Minimum sizes for a crossing of two engines.
const MIN_SIZES: usize = 2;
/// Minimum engines for a fastest one.
const MIN_ENGINES: usize = 3;

/// Conclusions from the metric `file.engines`; `None` unless the run measured read and another one at two sizes.
pub(crate) fn engines(evidence: &Evidence<'_>) -> Option<Study> {
    let lines = lines(evidence.all_cases(&ENGINES), BLOCK);
    let base = lines.iter().find(|line| BASE_ENGINE.point().is_in_case(&line.held))?;
    // Other pairs stand beside each other in the table of all engines.
    let others = lines.iter().filter(|line| line.held != base.held);
    let conclusions =
        others.filter_map(|other| engine_comparison(base, other)).chain(fastest_engines(&lines)).collect();
    let design = format!(
        "A cached file was read sequentially by {} engines, in requests of {} to {}; each request was timed, in several rounds.",
        lines.len(),
        bytes(base.points.first()?.position),
        bytes(base.points.last()?.position),
    );
    Some(Study { tables: vec![engine_table(&lines)], ..Study::new(ENGINES.id, design, conclusions)? })
}

/// Columns of the table of engines that fit on a terminal.
const MAX_MAIN_SIZES: usize = 7;

/// The time of a request of each engine at each size.
fn engine_table(lines: &[MetricLine]) -> StudyTable {
    let sizes = request_sizes(lines);
    let is_main = |index: usize| {
        let last = sizes.len() - 1;
        sizes.len() <= MAX_MAIN_SIZES || (0..MAX_MAIN_SIZES).any(|place| place * last / (MAX_MAIN_SIZES - 1) == index)
    };
    let column =
        |(index, &size): (usize, &u64)| StudyColumn { label: bytes(size), unit: ENGINES.unit, is_main: is_main(index) };
    let cell = |line: &MetricLine, size: u64| {
        let rounds = line.rounds_at(size)?;
        Some(Figure { value: headline(rounds), interval: None, n: rounds.len() as u64 })
    };
    let row = |line: &MetricLine| StudyRow {
        label: line.name(),
        cells: sizes.iter().map(|&size| cell(line, size)).collect(),
    };
    StudyTable {
        id: ENGINES.id.to_string(),
        title: "Time of a request by its size".into(),
        columns: sizes.iter().enumerate().map(column).collect(),
        rows: lines.iter().map(row).collect(),
        metrics: vec![ENGINES.id],
        bars: None,
    }
}

/// All sizes of requests, ascending.
fn request_sizes(lines: &[MetricLine]) -> Vec<u64> {
    let sizes: BTreeSet<u64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.position)).collect();
    sizes.into_iter().collect()
}

/// Gives the study its answer, once its conclusions are corrected for one another.
pub(super) fn add_answer(study: &mut Study) {
    if study.id == ENGINES.id {
        study.answers.extend(wording::engines::answer(&study.conclusions));
    }
}

/// One against another; `None` where too few sizes were measured with both.
fn engine_comparison(base: &MetricLine, other: &MetricLine) -> Option<Conclusion> {
    let standings = line_ratios(base, other);
    if standings.len() < MIN_SIZES {
        return None;
    }
    let on = |side: Ordering| {
        standings.iter().filter(|one| one.side() == side).map(|one| one.position).collect::<Vec<u64>>()
    };
    let (below, above, crossings) = (on(Ordering::Less), on(Ordering::Greater), crossings(&standings));
    let holds = match (below.is_empty(), above.len()) {
        (false, _) => Some(true),
        (true, count) => (count == standings.len()).then_some(false),
    };
    let [base, other] = [base, other].map(|line| Name::intern(&line.name()));
    let sizes = standings.len();
    let chance = match holds {
        Some(true) => side_p_value(&standings, Ordering::Less),
        _ => p_value_of_all(standings.iter().map(|one| one.p_value)),
    };
    Some(Conclusion {
        claim: Claim::Crossing { base, other, sizes, below, above, crossings },
        holds,
        evidence: joint_evidence(&standings),
        tested: outcome_of_p_value(chance),
    })
}

/// The test of a comparison at several sizes.
fn joint_evidence(standings: &[LineRatio]) -> TestEvidence {
    TestEvidence::Together { ratios: standings.iter().map(|one| (Some(one.position), one.ratio)).collect(), rounds: 0 }
}

/// Which one is fastest at each size that enough of them have.
fn fastest_engines(lines: &[MetricLine]) -> Vec<Conclusion> {
    request_sizes(lines).into_iter().filter_map(|at| fastest_at(lines, at)).collect()
}

fn fastest_at(lines: &[MetricLine], at: u64) -> Option<Conclusion> {
    let mut here: Vec<(&MetricLine, &[f64])> =
        lines.iter().filter_map(|line| Some((line, line.rounds_at(at)?))).collect();
    here.retain(|(_, rounds)| rounds.len() > 1 && rounds.iter().all(|&value| value > 0.0));
    here.sort_by(|left, right| median(left.1).total_cmp(&median(right.1)));
    let (&(best, rounds), others) = here.split_first()?;
    if here.len() < MIN_ENGINES {
        return None;
    }
    let all = others.len();
    let compared: Vec<(&MetricLine, LineRatio)> =
        others.iter().filter_map(|&(line, other)| Some((line, line_ratio(at, rounds, other, all)?))).collect();
    let rivals = compared.iter().filter(|(_, standing)| standing.side() != Ordering::Greater);
    let rivals: Vec<_> = rivals.map(|(line, _)| line.held.clone()).collect();
    let (next, nearest) = compared.first()?;
    let case = best.held.clone().with_number(BLOCK, at);
    let best =
        MetricValue { metric: ENGINES.id, case, value: headline(rounds), unit: ENGINES.unit, rounds: rounds.len() };
    Some(Conclusion {
        holds: rivals.is_empty().then_some(true),
        claim: Claim::Best {
            question: BestQuestion::EngineAtSize,
            best,
            rivals,
            next: next.held.clone(),
            others: others.len(),
        },
        evidence: TestEvidence::Together { ratios: vec![(None, nearest.ratio)], rounds: rounds.len() },
        tested: outcome_of_p_value(best_p_value(compared.iter().map(|(_, standing)| standing))),
    })
}
