//! Conclusions on reading by several threads: how many help, by which law they get in each other's way, and which threads
//! and blocks together are best.

use std::cmp::Ordering;

use kelvin_model::units::{bytes, number, percent, plain};
use kelvin_model::{Case, Conclusion, Name, Run, StudyResult, Unit};
use kelvin_stats::{
    CLOSE, FittedScalability, LEAST_LOADS, Repeated, Resampling, fitted_scalability, headline, median, median_ratio,
};

use super::beyond;
use super::crossing::{Standing, rounds, standing};
use crate::headlines::Desk;
use crate::result::{BestCell, Coefficient, FittedLaw};

const METRIC: Name = Name::new("file.threads");
/// The axis of the workers.
const WORKERS: Name = Name::new("threads");
/// The other axis of the grid.
const BLOCK: Name = Name::new("block");
/// The part of the best rate from which on more threads do not help.
const ENOUGH: f64 = 0.9;
/// A contention that is worth saying.
const VISIBLE: f64 = 0.01;

/// The law of each state of the page cache and block, from the metric `file.threads`, where it is determined.
pub(crate) fn laws(run: &Run) -> Vec<FittedLaw> {
    lines(run).iter().filter_map(|line| Some(line.law(&line.fitted()?))).collect()
}

/// The best threads and blocks of each state of the page cache, from the metric `file.threads`, where both were varied.
pub(crate) fn best_cells(run: &Run) -> Vec<BestCell> {
    let cells = rounds(run, &Desk::of(run), &METRIC);
    let mut states: Vec<Case> = cells.iter().map(|(case, _)| without(case, &[WORKERS, BLOCK])).collect();
    states.sort();
    states.dedup();
    states.into_iter().filter_map(|held| best_cell(held, &cells)).collect()
}

/// Conclusions on threads, from the metric `file.threads`; `None` if it was not measured with two numbers of them.
pub fn threads(run: &Run) -> Option<StudyResult> {
    let lines = lines(run);
    let mut conclusions: Vec<Conclusion> = lines.iter().flat_map(Line::conclusions).collect();
    conclusions.extend(best_cells(run).into_iter().map(|cell| cell.conclusion));
    let design = format!(
        "One file was read by several numbers of threads, each its part, in blocks of several sizes, in several rounds. More \
         threads help if they reach more than {} of the rate with fewer. The universal scalability law (Gunther 2007), \
         X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1)), is fitted to what was measured: no prediction. It \
         describes a line if it is off by no more than {} or by no more than that rate's interval with any number of threads.",
        percent(1.0 / ENOUGH),
        percent(CLOSE)
    );
    (!conclusions.is_empty()).then_some(StudyResult { id: METRIC, design, conclusions })
}

/// A case without some of its parameters.
fn without(case: &Case, axes: &[Name]) -> Case {
    case.iter().filter(|(name, _)| !axes.contains(name)).collect()
}

/// The rates of one block and state of the page cache by the number of threads, ascending.
struct Line {
    held: Case,
    points: Vec<Point>,
}

struct Point {
    threads: u64,
    rounds: Vec<f64>,
}

fn lines(run: &Run) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (case, rounds) in rounds(run, &Desk::of(run), &METRIC) {
        let Some(threads) = case.integer(&WORKERS) else { continue };
        let held = without(case, &[WORKERS]);
        let place = lines.iter().position(|line| line.held == held).unwrap_or_else(|| {
            lines.push(Line { held, points: Vec::new() });
            lines.len() - 1
        });
        lines[place].points.push(Point { threads, rounds });
    }
    lines.iter_mut().for_each(|line| line.points.sort_by_key(|point| point.threads));
    lines
}

/// `cached, in blocks of 64 KiB`.
fn described(held: &Case) -> String {
    let state = held.word("cache").unwrap_or("in a state without a name");
    held.integer(&BLOCK).map_or_else(|| state.into(), |block| format!("{state}, in blocks of {}", bytes(block)))
}

/// `16 threads`.
fn counted(threads: u64) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

/// A coefficient as a percentage of three digits: coherency is a small one.
fn share(coefficient: f64) -> String {
    format!("{} %", number(100.0 * coefficient))
}

impl Line {
    fn what(&self) -> String {
        described(&self.held)
    }

    fn conclusions(&self) -> Vec<Conclusion> {
        if self.points.len() < 2 {
            return Vec::new();
        }
        let by_law = match self.fitted() {
            Some(fitted) => self.of_law(&fitted),
            None => vec![self.undetermined()],
        };
        self.enough().into_iter().chain(by_law).collect()
    }

    /// Whether more threads than the first number that is enough help.
    fn enough(&self) -> Option<Conclusion> {
        let rate = |point: &Point| headline(&point.rounds);
        let by_rate = |one: &usize, other: &usize| rate(&self.points[*one]).total_cmp(&rate(&self.points[*other]));
        let best = (0..self.points.len()).max_by(by_rate)?;
        let first = self.points.iter().position(|point| rate(point) >= ENOUGH * rate(&self.points[best]))?;
        // Where the first that is enough is the best, those after it are set beside it; where it is the last, it beside
        // the one before.
        let (few, many) = match (first, best) {
            (first, best) if first < best => (first, best),
            (first, _) if first + 1 < self.points.len() => (first, first + 1),
            (last, _) => (last.checked_sub(1)?, last),
        };
        let (few, many) = (&self.points[few], &self.points[many]);
        let (ratio, low, high) = median_ratio(&few.rounds, &many.rounds)?;
        Some(Conclusion {
            text: format!(
                "{}: more than {} help: {} read {} times as much ({} to {}), {}",
                self.what(),
                counted(few.threads),
                many.threads,
                number(ratio),
                number(low),
                number(high),
                plain(rate(many), Unit::BytesPerSecond)
            ),
            holds: beyond(low, high, 1.0 / ENOUGH),
            test: format!(
                "ratio of median rates with its 95 % interval by Welch's test on logarithms, {} against {} rounds; the \
                 numbers of threads were chosen among {} by the same rounds",
                few.rounds.len(),
                many.rounds.len(),
                self.points.len()
            ),
        })
    }

    fn fitted(&self) -> Option<FittedScalability> {
        let loads: Vec<Repeated<'_>> =
            self.points.iter().map(|point| (point.threads as f64, point.rounds.as_slice())).collect();
        fitted_scalability(&loads, Resampling::default())
    }

    fn most(&self) -> u64 {
        self.points.last().map_or(0, |point| point.threads)
    }

    fn law(&self, fitted: &FittedScalability) -> FittedLaw {
        let coefficient = |value, (lower, upper)| Coefficient { value, lower, upper };
        let finite = |value: f64| value.is_finite().then_some(value);
        FittedLaw {
            metric: METRIC,
            workers: WORKERS,
            held: self.held.clone(),
            most: self.most(),
            lambda: coefficient(fitted.law.lambda, fitted.lambda),
            sigma: coefficient(fitted.law.sigma, fitted.sigma),
            kappa: coefficient(fitted.law.kappa, fitted.kappa),
            peak: finite(fitted.law.peak()),
            peak_lower: finite(fitted.peak.0),
            peak_upper: finite(fitted.peak.1),
            describes: fitted.describes,
            furthest_at: fitted.furthest.n as u64,
            furthest_ratio: fitted.furthest.ratio,
        }
    }

    /// That too little was measured for the law.
    fn undetermined(&self) -> Conclusion {
        let rounds = self.points.iter().map(|point| point.rounds.len()).min().unwrap_or(0);
        let (count, what) = (self.points.len(), self.what());
        let rounds = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
        Conclusion {
            text: format!(
                "{what}: what was measured, {count} numbers of threads in {rounds} each, determines the universal \
                 scalability law; it needs {LEAST_LOADS} numbers of threads in two rounds (--thorough has more)"
            ),
            holds: Some(false),
            test: "three coefficients, and one number of threads more to check them by".into(),
        }
    }

    /// What the law says, or that it is none.
    fn of_law(&self, fitted: &FittedScalability) -> Vec<Conclusion> {
        let side = if fitted.furthest.ratio < 1.0 { "below" } else { "above" };
        let furthest = format!(
            "furthest from what was measured with {}: {} {side} it",
            counted(fitted.furthest.n as u64),
            percent((fitted.furthest.ratio - 1.0).abs())
        );
        let test = format!(
            "least squares on logarithms of the mean rates with {} numbers of threads; intervals by a parametric bootstrap \
             of the rounds; the law is {furthest}",
            self.points.len()
        );
        if !fitted.describes {
            let text = format!(
                "{}: the universal scalability law describes the rates: with {} it is {} {side} what was measured, and so \
                 its coefficients mean nothing here",
                self.what(),
                counted(fitted.furthest.n as u64),
                percent((fitted.furthest.ratio - 1.0).abs())
            );
            return vec![Conclusion { text, holds: Some(false), test }];
        }
        vec![self.contention(fitted, test.clone()), self.peak(fitted, test)]
    }

    fn contention(&self, fitted: &FittedScalability, test: String) -> Conclusion {
        let (low, high) = fitted.sigma;
        Conclusion {
            text: format!(
                "{}: contention takes more than {} of the work: by the universal scalability law sigma is {} ({} to {}), \
                 and kappa, the cost of keeping up with one another, {} ({} to {})",
                self.what(),
                percent(VISIBLE),
                share(fitted.law.sigma),
                percent(low),
                percent(high),
                share(fitted.law.kappa),
                share(fitted.kappa.0),
                share(fitted.kappa.1)
            ),
            holds: beyond(low, high, VISIBLE),
            test,
        }
    }

    /// Whether the rate has its peak within what was measured.
    fn peak(&self, fitted: &FittedScalability, test: String) -> Conclusion {
        let most = self.most();
        let (low, high) = fitted.peak;
        let at = |n: f64| if n.is_finite() { number(n) } else { "any number of".into() };
        let peak = fitted.law.peak();
        let rate = |n: f64| plain(fitted.law.at(n), Unit::BytesPerSecond);
        let limit = match (peak.is_finite(), low.is_finite()) {
            (true, _) => {
                format!("it is highest, {}, with {} ({} to {}) threads", rate(peak), at(peak), at(low), at(high))
            }
            (false, true) => format!("it never falls, though with {} threads it might", at(low)),
            (false, false) => "it never falls".into(),
        };
        Conclusion {
            text: format!(
                "{}: the rate falls before {most} threads: by the universal scalability law {limit}",
                self.what()
            ),
            holds: beyond(-high, -low, -(most as f64)),
            test,
        }
    }
}

/// The best of the cells in one state of the page cache; `None` unless threads and blocks both were varied.
fn best_cell(held: Case, cells: &[(&Case, Vec<f64>)]) -> Option<BestCell> {
    let mut here: Vec<&(&Case, Vec<f64>)> = cells
        .iter()
        .filter(|(case, rates)| without(case, &[WORKERS, BLOCK]) == held && rates.iter().all(|&rate| rate > 0.0))
        .collect();
    let varied = |axis: &Name| {
        let first = here.first().and_then(|(case, _)| case.get(axis));
        here.iter().any(|(case, _)| case.get(axis) != first)
    };
    if !varied(&WORKERS) || !varied(&BLOCK) {
        return None;
    }
    here.sort_by(|left, right| median(&right.1).total_cmp(&median(&left.1)));
    let ((best, rates), others) = here.split_first()?;
    let all = others.len() as f64;
    let compared: Vec<(&Case, Standing)> =
        others.iter().filter_map(|(case, other)| Some((*case, standing(0, other, rates, all)?))).collect();
    let as_good: Vec<Case> = compared
        .iter()
        .filter(|(_, standing)| standing.side() != Ordering::Greater)
        .map(|&(case, _)| case.clone())
        .collect();
    let (next, nearest) = compared.first()?;
    let cell = |case: &Case| {
        let block = case.integer(&BLOCK).map(bytes).unwrap_or_default();
        format!("{} in blocks of {block}", counted(case.integer(&WORKERS).unwrap_or_default()))
    };
    let claim =
        format!("{}: {} read fastest, {}", described(&held), cell(best), plain(headline(rates), Unit::BytesPerSecond));
    let rivals: Vec<String> = as_good.iter().map(cell).collect();
    let conclusion = Conclusion {
        text: if rivals.is_empty() { claim } else { format!("{claim}; not told apart from {}", rivals.join(", ")) },
        holds: as_good.is_empty().then_some(true),
        test: format!(
            "{} times the rate of {} ({} to {}), by Welch's test on logarithms of rounds against each of {} other cells such \
             that all hold together with 95 %",
            number(nearest.ratio),
            cell(next),
            number(nearest.low),
            number(nearest.high),
            compared.len()
        ),
    };
    Some(BestCell { metric: METRIC, held, best: (*best).clone(), as_good, conclusion })
}
