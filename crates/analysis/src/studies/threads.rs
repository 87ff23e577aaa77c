//! Reading by several threads: how many help, the law of their contention, and the best combination of threads and block.

use std::cmp::Ordering;

use kelvin_catalogue::file::{BLOCK, THREAD_COUNT, THREADS};
use kelvin_model::units::percent;
use kelvin_model::{BestQuestion, Case, Claim, Conclusion, Estimate, Furthest, LawClaim, RatioQuestion, Run, Test};
use kelvin_stats::{CLOSE, FittedScalability, LEAST_LOADS, Repeated, fitted_scalability, median};

use super::concluded;
use super::crossing::{Standing, chance_of_best, standing, without};
use crate::evidence::{Ask, Evidence, Rounds, decided_by};
use crate::result::Study;
use crate::result::{BestCell, Coefficient, FittedLaw};

/// Share of the best rate from which more threads do not help.
const ENOUGH: f64 = 0.9;
/// Contention that matters.
const VISIBLE: f64 = 0.01;

/// The law of each page cache state and block, from the metric `file.threads`, where it is determined.
pub(crate) fn laws(run: &Run) -> Vec<FittedLaw> {
    lines(&Evidence::of(run)).iter().filter_map(|line| Some(line.law(&line.fitted()?))).collect()
}

/// The best threads and blocks of each state of the page cache, from the metric `file.threads`, where both were varied.
pub(crate) fn best_cells(run: &Run, studies: &[Study]) -> Vec<BestCell> {
    let among_all = |cell: BestCell| {
        let conclusion = concluded(studies, &cell.conclusion.claim).unwrap_or(&cell.conclusion).clone();
        BestCell { conclusion, ..cell }
    };
    best_of(&Evidence::of(run)).into_iter().map(among_all).collect()
}

fn best_of(evidence: &Evidence<'_>) -> Vec<BestCell> {
    let cells = evidence.all(&THREADS);
    let mut states: Vec<Case> = cells.iter().map(|cell| without(cell.case, &[THREAD_COUNT, BLOCK])).collect();
    states.sort();
    states.dedup();
    states.into_iter().filter_map(|held| best_cell(held, &cells)).collect()
}

/// Conclusions from the metric `file.threads`; `None` if it was not measured with two numbers of them.
pub(crate) fn threads(evidence: &Evidence<'_>) -> Option<Study> {
    let mut conclusions: Vec<Conclusion> = lines(evidence).iter().flat_map(Line::conclusions).collect();
    conclusions.extend(best_of(evidence).into_iter().map(|cell| cell.conclusion.conclusion));
    let design = format!(
        "One file was read by several numbers of threads, each its part, at several block sizes, in several rounds. More \
         threads help if they reach more than {} of the rate with fewer. The universal scalability law (Gunther 2007), \
         X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1)), is fitted to the measurements: no prediction. It describes \
         a line if at every thread count it is off by at most {} or that rate's interval.",
        percent(1.0 / ENOUGH),
        percent(CLOSE)
    );
    Study::new(THREADS.id, design, conclusions)
}

/// The rates of one block and state of the page cache by the number of threads, ascending.
struct Line<'r> {
    held: Case,
    points: Vec<Rounds<'r>>,
}

fn lines<'r>(evidence: &Evidence<'r>) -> Vec<Line<'r>> {
    let mut lines: Vec<Line<'r>> = Vec::new();
    for point in evidence.all(&THREADS).into_iter().filter(|point| THREAD_COUNT.of(point.case).is_some()) {
        let held = without(point.case, &[THREAD_COUNT]);
        match lines.iter_mut().find(|line| line.held == held) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { held, points: vec![point] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by_key(threads_of));
    lines
}

fn threads_of(point: &Rounds<'_>) -> u64 {
    THREAD_COUNT.of(point.case).unwrap_or(0)
}

impl Line<'_> {
    fn conclusions(&self) -> Vec<Conclusion> {
        if self.points.len() < 2 {
            return Vec::new();
        }
        let by_law = match self.fitted() {
            Some(fitted) => self.of_law(&fitted),
            None => self.undetermined().into_iter().collect(),
        };
        self.enough().into_iter().chain(by_law).collect()
    }

    /// Whether more threads than the first number that is enough help.
    fn enough(&self) -> Option<Conclusion> {
        let rate = |index: &usize| self.points[*index].headline();
        let best = (0..self.points.len()).max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
        let first = (0..self.points.len()).find(|index| rate(index) >= ENOUGH * rate(&best))?;
        // If the first that is enough is the best, those after it are compared with it; if it is the last, it with
        // the one before.
        let (few, many) = match (first, best) {
            (first, best) if first < best => (first, best),
            (first, _) if first + 1 < self.points.len() => (first, first + 1),
            (last, _) => (last.checked_sub(1)?, last),
        };
        let help = Ask::above(RatioQuestion::MoreThreads, 1.0 / ENOUGH);
        help.chosen_among(&self.points[few], &self.points[many], Some(self.points.len()))
    }

    fn fitted(&self) -> Option<FittedScalability> {
        let load = |point| (threads_of(point) as f64, point.values.as_slice());
        let loads: Vec<Repeated<'_>> = self.points.iter().map(load).collect();
        fitted_scalability(&loads)
    }

    fn most(&self) -> u64 {
        self.points.last().map_or(0, threads_of)
    }

    fn law(&self, fitted: &FittedScalability) -> FittedLaw {
        let coefficient = |value, (lower, upper)| Coefficient { value, lower, upper };
        FittedLaw {
            metric: THREADS.id,
            workers: THREAD_COUNT.name,
            held: self.held.clone(),
            most: self.most(),
            lambda: coefficient(fitted.law.lambda, fitted.lambda),
            sigma: coefficient(fitted.law.sigma, fitted.sigma),
            kappa: coefficient(fitted.law.kappa, fitted.kappa),
            peak: self.within(fitted.law.peak()),
            peak_lower: self.within(fitted.peak.0),
            peak_upper: self.within(fitted.peak.1),
            describes: fitted.describes,
            furthest_at: fitted.furthest.n as u64,
            furthest_ratio: fitted.furthest.ratio,
        }
    }

    /// A number of workers of the law, where it is among those measured: beyond them the law says nothing.
    fn within(&self, workers: f64) -> Option<f64> {
        (workers <= self.most() as f64).then_some(workers)
    }

    /// That too little was measured for the law, which refutes nothing; `None` if there is another reason why none was found.
    fn undetermined(&self) -> Option<Conclusion> {
        let rounds = self.points.iter().map(|point| point.values.len()).min().unwrap_or(0);
        let (held, points) = (self.held.clone(), self.points.len());
        let law = LawClaim::Determined { held, points, rounds, needed: LEAST_LOADS };
        let is_too_little = points < LEAST_LOADS || rounds < 2;
        let open = Conclusion { claim: Claim::Law(law), holds: None, evidence: Test::TooFewPoints, tested: None };
        is_too_little.then_some(open)
    }

    /// What the law says, or that it does not hold.
    fn of_law(&self, fitted: &FittedScalability) -> Vec<Conclusion> {
        let furthest = Furthest { workers: fitted.furthest.n as u64, ratio: fitted.furthest.ratio };
        let evidence = Test::LeastSquares { points: self.points.len(), furthest };
        let claims = match fitted.describes {
            false => vec![(LawClaim::Describes { held: self.held.clone(), furthest }, Some(false))],
            true => vec![self.contention(fitted), self.peak(fitted)],
        };
        let conclusion =
            |(law, holds)| Conclusion { claim: Claim::Law(law), holds, evidence: evidence.clone(), tested: None };
        claims.into_iter().map(conclusion).collect()
    }

    fn contention(&self, fitted: &FittedScalability) -> (LawClaim, Option<bool>) {
        let estimate = |value, (low, high)| Estimate { value, low, high, is_range: false };
        let sigma = estimate(fitted.law.sigma, fitted.sigma);
        let kappa = estimate(fitted.law.kappa, fitted.kappa);
        (LawClaim::Contention { held: self.held.clone(), sigma, kappa, limit: VISIBLE }, sigma.is_above(VISIBLE))
    }

    /// Whether the rate peaks within the measured range.
    fn peak(&self, fitted: &FittedScalability) -> (LawClaim, Option<bool>) {
        let (most, peak, (low, high)) = (self.most(), fitted.law.peak(), fitted.peak);
        let at = [peak, low, high].map(|workers| self.within(workers));
        let law = LawClaim::Peak { held: self.held.clone(), most, at, rate: at[0].map(|peak| fitted.law.at(peak)) };
        (law, Estimate { value: peak, low, high, is_range: false }.is_below(most as f64))
    }
}

/// The best cell in one page cache state; `None` unless threads and blocks were both varied.
fn best_cell(held: Case, cells: &[Rounds<'_>]) -> Option<BestCell> {
    let is_here = |cell: &&Rounds<'_>| without(cell.case, &[THREAD_COUNT, BLOCK]) == held && cell.are_positive();
    let mut here: Vec<&Rounds<'_>> = cells.iter().filter(is_here).collect();
    let varied = |axis: kelvin_model::Axis| here.iter().any(|cell| axis.of(cell.case) != axis.of(here[0].case));
    if !varied(THREAD_COUNT) || !varied(BLOCK) {
        return None;
    }
    here.sort_by(|left, right| median(&right.values).total_cmp(&median(&left.values)));
    let (best, others) = here.split_first()?;
    let all = others.len();
    let compared: Vec<(&Case, Standing)> =
        others.iter().filter_map(|other| Some((other.case, standing(0, &other.values, &best.values, all)?))).collect();
    let as_good = compared.iter().filter(|(_, standing)| standing.side() != Ordering::Greater);
    let as_good: Vec<Case> = as_good.map(|&(case, _)| case.clone()).collect();
    let &(next, nearest) = compared.first()?;
    let claim = Claim::Best {
        question: BestQuestion::ThreadsAndBlocks,
        best: best.side(),
        rivals: as_good.clone(),
        next: next.clone(),
        others: compared.len(),
    };
    let evidence = Test::Together { ratios: vec![(None, nearest.ratio)], rounds: best.values.len() };
    let chance = chance_of_best(compared.iter().map(|(_, standing)| standing));
    let tested = decided_by(chance);
    let conclusion = Conclusion { claim, holds: as_good.is_empty().then_some(true), evidence, tested }.into();
    Some(BestCell { metric: THREADS.id, held, best: best.case.clone(), as_good, conclusion })
}
