//! The engines that read a file: the request size from which one beats another, and which is fastest.

use std::cmp::Ordering;

use kelvin_core::catalogue::file::{BLOCK, ENGINES, ReadEngine, TunedEngine};

use super::crossing::{BestOf, Contender, MetricLine, crossings, joint_test, line_ratios, lines, side_p_value};

use crate::prelude::*;

/// The engine that every other is compared with.
const BASE_ENGINE: ReadEngine = ReadEngine::Read;
/// Minimum sizes for a crossing of two engines.
const MIN_SIZES: usize = 2;
/// Minimum engines for a fastest one.
const MIN_ENGINES: usize = 3;

/// Conclusions from the metric `file.engines`; `None` unless the run measured read and another one at two sizes.
pub(crate) fn engines(evidence: &Evidence<'_>) -> Option<Study> {
    let lines = lines(evidence.all_cases(&ENGINES), BLOCK);
    let base = lines.iter().find(|line| BASE_ENGINE.point().is_in_case(&line.fixed))?;
    // Other pairs are compared in the table of all engines.
    let other_lines = lines.iter().filter(|line| line.fixed != base.fixed);
    let fastest = request_sizes(&lines).into_iter().filter_map(|size| fastest_at(&lines, size));
    let conclusions = other_lines.filter_map(|other| engine_comparison(base, other)).chain(fastest).collect();
    let design = format!(
        "A cached file was read sequentially by {} engines, in requests of {} to {}; each request was timed, in several rounds.",
        lines.len(),
        bytes(base.points.first()?.0),
        bytes(base.points.last()?.0),
    );
    Some(Study { tables: vec![engine_table(&lines)], ..Study::new(ENGINES.id, design, conclusions)? })
}

/// Columns of the table of engines that fit on a terminal.
const MAX_MAIN_SIZES: usize = 7;

/// The time of a request of each engine at each size.
fn engine_table(lines: &[MetricLine<'_, '_>]) -> StudyTable {
    let sizes = request_sizes(lines);
    let is_main = |index: usize| {
        let last = sizes.len() - 1;
        sizes.len() <= MAX_MAIN_SIZES || (0..MAX_MAIN_SIZES).any(|place| place * last / (MAX_MAIN_SIZES - 1) == index)
    };
    let columns = sizes.iter().enumerate();
    let columns = columns.map(|(index, &size)| StudyColumn::new(&bytes(size), ENGINES.unit, is_main(index))).collect();
    let cell = |line: &MetricLine<'_, '_>, size: u64| {
        let rounds = line.rounds_at(size)?;
        Some(Figure::without_interval(rounds.headline(), rounds.values.len() as u64))
    };
    let row = |line: &MetricLine<'_, '_>| StudyRow {
        label: line_name(line),
        cells: sizes.iter().map(|&size| cell(line, size)).collect(),
    };
    let rows = lines.iter().map(row).collect();
    let table = StudyTable::new(ENGINES.id.to_string(), "Time of a request by its size".into(), columns, rows);
    StudyTable { metrics: vec![ENGINES.id], ..table }
}

/// All sizes of requests, ascending.
fn request_sizes(lines: &[MetricLine<'_, '_>]) -> Vec<u64> {
    distinct(lines.iter().flat_map(|line| line.points.iter().map(|(position, _)| *position)))
}

/// The fixed parameters of a line as text: words alone, numbers with their names.
fn line_name(line: &MetricLine<'_, '_>) -> String {
    let words = line.fixed.iter().map(|(name, value)| match value {
        Value::Word(word) => word.to_string(),
        Value::Integer(number) => format!("{name}={number}"),
    });
    words.collect::<Vec<String>>().join(" ")
}

/// One against another; `None` where too few sizes were measured with both.
fn engine_comparison(base: &MetricLine<'_, '_>, other: &MetricLine<'_, '_>) -> Option<StatedConclusion> {
    let ratios = line_ratios(&base.line_points(), &other.line_points());
    if ratios.len() < MIN_SIZES {
        return None;
    }
    let positions_on =
        |side: Ordering| ratios.iter().filter(|ratio| ratio.side() == side).map(|ratio| ratio.position).collect();
    let (below, above): (Vec<u64>, Vec<u64>) = (positions_on(Ordering::Less), positions_on(Ordering::Greater));
    let (crossings, sizes) = (crossings(&ratios), ratios.len());
    let holds = if below.is_empty() { (above.len() == sizes).then_some(false) } else { Some(true) };
    let chance = match holds {
        Some(true) => side_p_value(&ratios, Ordering::Less),
        _ => p_value_of_all(ratios.iter().map(|ratio| ratio.p_value)),
    };
    let [base, other] = [base, other].map(|line| Name::intern(&line_name(line)));
    let text = if crossings.is_empty() {
        no_crossing_sentence([&base, &other], sizes, &below, &above)
    } else {
        let place = |change: &Crossover| {
            let side = if change.reversed { "above" } else { "below" };
            let near = value_text(change.near, Unit::Bytes);
            format!("{side} about {near} (between {} and {})", bytes(change.after), bytes(change.until))
        };
        let places: Vec<String> = crossings.iter().map(place).collect();
        format!("{other} beats {base} at requests {}", places.join(" and "))
    };
    let test = joint_test("ratio of median times", &ratios, 0, outcome_of_p_value(chance));
    Some(test.conclude(Claim::Crossing { base, other, sizes, below, above, crossings }, holds, text))
}

fn no_crossing_sentence([base, other]: [&str; 2], count_all: usize, below: &[u64], above: &[u64]) -> String {
    let sizes = |sizes: &[u64]| sizes.iter().copied().map(bytes).collect::<Vec<String>>().join(", ");
    let size_range = |sizes: &[u64]| {
        let ends = [sizes.first(), sizes.last()].map(|end| end.copied().map(bytes).unwrap_or_default());
        format!("at all {count_all} request sizes, {}", ends.join(" to "))
    };
    let claim = format!("{other} beats {base} at some request size");
    match (below.len(), above.len()) {
        (0, 0) => format!("{other} and {base} differ at some request size: not certain at any of {count_all}"),
        (0, count) if count == count_all => format!("{claim}: {base} wins {}", size_range(above)),
        (0, _) => format!("{claim}: {base} wins at {}; elsewhere they may be equal", sizes(above)),
        (count, _) if count == count_all => format!("{other} beats {base} {}", size_range(below)),
        (_, 1..) => format!(
            "{other} beats {base} at requests of {}, and {base} wins at {}: too few sizes on one side to say where they cross",
            sizes(below),
            sizes(above)
        ),
        _ => format!("{other} beats {base} at requests of {}; elsewhere they may be equal", sizes(below)),
    }
}

/// An engine by the word of a case.
pub(super) fn engine(case: &Case) -> &'static str {
    TunedEngine::AXIS.word_in(case).or(ReadEngine::AXIS.word_in(case)).unwrap_or("unnamed engine")
}

/// Which one is fastest at a size, where enough of them have it.
fn fastest_at(lines: &[MetricLine<'_, '_>], size: u64) -> Option<StatedConclusion> {
    let contenders = lines.iter().filter_map(|line| {
        let rounds = line.rounds_at(size).filter(|rounds| rounds.values.len() > 1)?;
        Some(Contender::from_rounds(rounds, line.fixed.clone(), engine(&line.fixed).to_owned()))
    });
    let first = BestOf::find(BestQuestion::EngineAtSize, contenders.collect(), true)?;
    let (count, name, rivals) = (first.others + 1, engine(&first.best.case), first.rivals_text("possibly as fast:"));
    let text = format!("of {count} engines {name} is fastest at requests of {}{rivals}", bytes(size));
    (count >= MIN_ENGINES).then(|| first.conclude(text))
}

/// Lines below the answer, at most: with it eight sentences.
const MAX_LINES: usize = 7;

/// Gives the study its answer, once its conclusions are corrected for one another: which engine is the fastest at which sizes, and where
/// each overtakes read.
pub(super) fn add_answer(study: &mut Study) {
    if study.id != ENGINES.id {
        return;
    }
    let best = study.conclusions.iter().filter_map(|conclusion| match &conclusion.claim {
        Claim::Best { question: BestQuestion::EngineAtSize, best, .. } => {
            Some((engine(&best.case), BLOCK.number_in(&best.case)?, conclusion.holds.is_some()))
        }
        _ => None,
    });
    let best: Vec<(&str, u64, bool)> = best.collect();
    let groups = best.chunk_by(|a, b| (a.0, a.2) == (b.0, b.2)).map(|group| {
        let (name, from, is_sure) = group[0];
        let to = group[group.len() - 1].1;
        // Of two sizes nothing follows for those between.
        let sizes = match group.len() {
            1 => bytes(from),
            2 => format!("{} and {}", bytes(from), bytes(to)),
            _ => format!("{} to {}", bytes(from), bytes(to)),
        };
        format!("{name} at {sizes}{}", if is_sure { "" } else { " (others may be as fast)" })
    });
    let texts: Vec<String> = groups.collect();
    if texts.is_empty() {
        return;
    }
    let is_sure = |conclusion: &&StatedConclusion| {
        matches!(conclusion.claim, Claim::Crossing { .. }) && conclusion.holds == Some(true)
    };
    let reasons = study.conclusions.iter().filter(is_sure).map(|conclusion| format!("{}.", conclusion.text));
    let reasons = reasons.take(MAX_LINES).collect();
    study.answers.push(StudyAnswer { text: format!("The fastest engine is {}.", texts.join(", ")), reasons });
}
