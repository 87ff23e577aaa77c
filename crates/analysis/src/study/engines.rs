//! Conclusions on the ways of reading a file: from which size of a request on one beats another, and which is fastest.

use std::cmp::Ordering;

use kelvin_model::units::{bytes, number, plain};
use kelvin_model::{Conclusion, Name, Run, StudyResult, Unit};
use kelvin_stats::median;

use super::crossing::{Crossing, Line, Standing, crossings, lines, standing, standings};
use crate::headlines::Desk;

const METRIC: &str = "file.engines";
/// The axis along which ways cross.
const AXIS: &str = "block";
/// The way that every other is set against.
const BASE: &str = "read";
/// Fewest sizes at which two ways can be said to cross.
const LEAST_SIZES: usize = 2;
/// Fewest ways of which it makes sense to say which is fastest.
const LEAST_WAYS: usize = 3;

/// Conclusions on the ways of reading, from the metric `file.engines`; `None` if the run has not measured read and
/// another way at two sizes of a request.
pub fn engines(run: &Run) -> Option<StudyResult> {
    run.metric(METRIC)?;
    let lines = lines(run, &Desk::of(run), METRIC, AXIS);
    let base = lines.iter().find(|line| line.name == BASE)?;
    let others: Vec<&Line> = lines.iter().filter(|line| line.name != BASE).collect();
    let mut conclusions: Vec<Conclusion> = others.iter().filter_map(|other| against(base, other)).collect();
    for (index, first) in others.iter().enumerate() {
        // Of all other pairs only those are told that surely cross.
        let crossing = others[index + 1..].iter().filter_map(|second| {
            let standings = standings(first, second);
            let crossings = crossings(&standings);
            (!crossings.is_empty()).then(|| crossed(first, second, &standings, &crossings))
        });
        conclusions.extend(crossing);
    }
    conclusions.extend(fastest(&lines));
    let design = format!(
        "A cached file was read in order by {} ways, by requests of {} to {}; the time of a request by each way was \
         measured in several rounds.",
        lines.len(),
        bytes(base.points.first()?.at),
        bytes(base.points.last()?.at),
    );
    (!conclusions.is_empty()).then_some(StudyResult { id: Name::new(METRIC), design, conclusions })
}

/// What a way comes to against the base; `None` where too few sizes were measured by both.
fn against(base: &Line, other: &Line) -> Option<Conclusion> {
    let standings = standings(base, other);
    if standings.len() < LEAST_SIZES {
        return None;
    }
    let crossings = crossings(&standings);
    if !crossings.is_empty() {
        return Some(crossed(base, other, &standings, &crossings));
    }
    let (first, second) = (&base.name, &other.name);
    let on = |side: Ordering| standings.iter().filter(|standing| standing.side() == side).collect::<Vec<&Standing>>();
    let (below, above) = (on(Ordering::Less), on(Ordering::Greater));
    let all = standings.len();
    let (text, holds) = match (below.len(), above.len()) {
        (0, 0) => {
            (format!("{second} and {first} differ at some size of a request: at none of {all} is that certain"), None)
        }
        (0, n) if n == all => {
            (format!("{second} beats {first} at some size of a request: {first} wins at all {all}"), Some(false))
        }
        (0, _) => (
            format!(
                "{second} beats {first} at some size of a request: {first} wins at {}; elsewhere they may be equal",
                sizes(&above)
            ),
            None,
        ),
        (n, _) if n == all => (format!("{second} beats {first} at all {all} sizes of a request"), Some(true)),
        _ => (
            format!("{second} beats {first} at requests of {}; elsewhere they may be equal", sizes(&below)),
            Some(true),
        ),
    };
    Some(Conclusion { text, holds, test: test(&standings) })
}

/// The sizes of some standings: `1.00 B, 100 B`.
fn sizes(standings: &[&Standing]) -> String {
    standings.iter().map(|standing| bytes(standing.at)).collect::<Vec<String>>().join(", ")
}

/// Two ways that surely cross.
fn crossed(first: &Line, second: &Line, standings: &[Standing], crossings: &[Crossing]) -> Conclusion {
    let place = |crossing: &Crossing| {
        let (after, until) = crossing.between;
        let near = plain(crossing.near, Unit::Bytes);
        let words = if crossing.to == Ordering::Less { "from" } else { "up to" };
        format!("{words} requests of about {near} (between {} and {})", bytes(after), bytes(until))
    };
    let places: Vec<String> = crossings.iter().map(place).collect();
    let text = format!("{} beats {} {}", second.name, first.name, places.join(", and "));
    let text = if crossings.last().is_some_and(|last| last.to == Ordering::Less) { format!("{text} on") } else { text };
    Conclusion { text, holds: Some(true), test: test(standings) }
}

/// The test that carries a comparison of two ways, with its figures at both ends.
fn test(standings: &[Standing]) -> String {
    let figure = |standing: &Standing| {
        format!(
            "{} ({} to {}) at {}",
            number(standing.ratio),
            number(standing.low),
            number(standing.high),
            bytes(standing.at)
        )
    };
    let figures: Vec<String> = standings.iter().map(figure).collect();
    format!(
        "ratio of median times at each of {} sizes, its interval by Welch's test on logarithms of rounds such that all \
         hold together with 95 %: {}",
        standings.len(),
        figures.join(", ")
    )
}

/// Which way is fastest at each size that enough ways have.
fn fastest(lines: &[Line]) -> Vec<Conclusion> {
    let mut sizes: Vec<u64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.at)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.into_iter().filter_map(|at| fastest_at(lines, at)).collect()
}

fn fastest_at(lines: &[Line], at: u64) -> Option<Conclusion> {
    let mut here: Vec<(&str, &[f64])> =
        lines.iter().filter_map(|line| Some((line.name.as_str(), line.at(at)?))).collect();
    here.retain(|(_, rounds)| rounds.len() > 1 && rounds.iter().all(|&value| value > 0.0));
    here.sort_by(|left, right| median(left.1).total_cmp(&median(right.1)));
    let (&(best, fastest), others) = here.split_first()?;
    if here.len() < LEAST_WAYS {
        return None;
    }
    let all = others.len() as f64;
    let compared: Vec<(&str, Standing)> =
        others.iter().filter_map(|&(name, rounds)| Some((name, standing(at, fastest, rounds, all)?))).collect();
    let rivals: Vec<&str> =
        compared.iter().filter(|(_, standing)| standing.side() != Ordering::Greater).map(|&(name, _)| name).collect();
    let (runner_up, nearest) = compared.first()?;
    let (count, at) = (here.len(), bytes(at));
    let text = if rivals.is_empty() {
        format!("of {count} ways {best} is the fastest at requests of {at}")
    } else {
        format!("of {count} ways {best} is the fastest at requests of {at}; as fast may be {}", rivals.join(", "))
    };
    Some(Conclusion {
        text,
        holds: rivals.is_empty().then_some(true),
        test: format!(
            "{runner_up} takes {} times as long as {best} ({} to {}); Welch's test on logarithms of rounds against \
             each of {} other ways such that all hold together with 95 %",
            number(nearest.ratio),
            number(nearest.low),
            number(nearest.high),
            others.len()
        ),
    })
}
