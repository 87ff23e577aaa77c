//! The engines that read a file: the request size from which one beats another, and which is fastest.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use kelvin_catalogue::file::{BLOCK, ENGINES, ReadEngine};
use kelvin_model::units::bytes;
use kelvin_model::{BestQuestion, Claim, Conclusion, Name, Side, Test};
use kelvin_stats::{headline, median};

use super::crossing::{Line, Standing, chance_of_best, chance_of_side, crossings, lines, standing, standings};
use crate::evidence::{Evidence, chance_of_all, decided_by};
use crate::result::{Figure, Study, StudyColumn, StudyRow, StudyTable};
use crate::words;

/// The engine that every other is compared with.
const BASE: ReadEngine = ReadEngine::Read;
/// Minimum sizes for a crossing of two engines.
const LEAST_SIZES: usize = 2;
/// Minimum engines for a fastest one.
const LEAST_ENGINES: usize = 3;

/// Conclusions from the metric `file.engines`; `None` unless the run measured read and another one at two sizes.
pub(crate) fn engines(evidence: &Evidence<'_>) -> Option<Study> {
    let lines = lines(evidence.all(&ENGINES), BLOCK);
    let base = lines.iter().find(|line| BASE.point().is_of(&line.held))?;
    // Other pairs stand beside each other in the table of all engines.
    let others = lines.iter().filter(|line| line.held != base.held);
    let conclusions = others.filter_map(|other| compared(base, other)).chain(fastest(&lines)).collect();
    let design = format!(
        "A cached file was read sequentially by {} engines, in requests of {} to {}; each request was timed, in several rounds.",
        lines.len(),
        bytes(base.points.first()?.at),
        bytes(base.points.last()?.at),
    );
    Some(Study { tables: vec![table(&lines)], ..Study::new(ENGINES.id, design, conclusions)? })
}

/// Columns of the table of engines that fit on a terminal.
const MAIN_SIZES: usize = 7;

/// The time of a request of each engine at each size.
fn table(lines: &[Line]) -> StudyTable {
    let sizes = sizes(lines);
    let is_main = |index: usize| {
        let last = sizes.len() - 1;
        sizes.len() <= MAIN_SIZES || (0..MAIN_SIZES).any(|place| place * last / (MAIN_SIZES - 1) == index)
    };
    let column =
        |(index, &size): (usize, &u64)| StudyColumn { label: bytes(size), unit: ENGINES.unit, is_main: is_main(index) };
    let cell = |line: &Line, size: u64| {
        let rounds = line.at(size)?;
        Some(Figure { value: headline(rounds), interval: None, n: rounds.len() as u64 })
    };
    let row =
        |line: &Line| StudyRow { label: line.name(), cells: sizes.iter().map(|&size| cell(line, size)).collect() };
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
fn sizes(lines: &[Line]) -> Vec<u64> {
    let sizes: BTreeSet<u64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.at)).collect();
    sizes.into_iter().collect()
}

/// Gives the study its answer, once its conclusions are corrected for one another.
pub(super) fn answer(study: &mut Study) {
    if study.id == ENGINES.id {
        study.answers.extend(words::engines::answer(&study.conclusions));
    }
}

/// One against another; `None` where too few sizes were measured with both.
fn compared(base: &Line, other: &Line) -> Option<Conclusion> {
    let standings = standings(base, other);
    if standings.len() < LEAST_SIZES {
        return None;
    }
    let on = |side: Ordering| standings.iter().filter(|one| one.side() == side).map(|one| one.at).collect::<Vec<u64>>();
    let (below, above, crossings) = (on(Ordering::Less), on(Ordering::Greater), crossings(&standings));
    let holds = match (below.is_empty(), above.len()) {
        (false, _) => Some(true),
        (true, count) => (count == standings.len()).then_some(false),
    };
    let [base, other] = [base, other].map(|line| Name::intern(&line.name()));
    let sizes = standings.len();
    let chance = match holds {
        Some(true) => chance_of_side(&standings, Ordering::Less),
        _ => chance_of_all(standings.iter().map(|one| one.chance)),
    };
    Some(Conclusion {
        claim: Claim::Crossing { base, other, sizes, below, above, crossings },
        holds,
        evidence: together(&standings),
        tested: decided_by(chance),
    })
}

/// The test of a comparison at several sizes.
fn together(standings: &[Standing]) -> Test {
    Test::Together { ratios: standings.iter().map(|one| (Some(one.at), one.ratio)).collect(), rounds: 0 }
}

/// Which one is fastest at each size that enough of them have.
fn fastest(lines: &[Line]) -> Vec<Conclusion> {
    sizes(lines).into_iter().filter_map(|at| fastest_at(lines, at)).collect()
}

fn fastest_at(lines: &[Line], at: u64) -> Option<Conclusion> {
    let mut here: Vec<(&Line, &[f64])> = lines.iter().filter_map(|line| Some((line, line.at(at)?))).collect();
    here.retain(|(_, rounds)| rounds.len() > 1 && rounds.iter().all(|&value| value > 0.0));
    here.sort_by(|left, right| median(left.1).total_cmp(&median(right.1)));
    let (&(best, rounds), others) = here.split_first()?;
    if here.len() < LEAST_ENGINES {
        return None;
    }
    let all = others.len();
    let compared: Vec<(&Line, Standing)> =
        others.iter().filter_map(|&(line, other)| Some((line, standing(at, rounds, other, all)?))).collect();
    let rivals = compared.iter().filter(|(_, standing)| standing.side() != Ordering::Greater);
    let rivals: Vec<_> = rivals.map(|(line, _)| line.held.clone()).collect();
    let (next, nearest) = compared.first()?;
    let case = best.held.clone().with(BLOCK, at);
    let best = Side { metric: ENGINES.id, case, value: headline(rounds), unit: ENGINES.unit, rounds: rounds.len() };
    Some(Conclusion {
        holds: rivals.is_empty().then_some(true),
        claim: Claim::Best {
            question: BestQuestion::EngineAtSize,
            best,
            rivals,
            next: next.held.clone(),
            others: others.len(),
        },
        evidence: Test::Together { ratios: vec![(None, nearest.ratio)], rounds: rounds.len() },
        tested: decided_by(chance_of_best(compared.iter().map(|(_, standing)| standing))),
    })
}
