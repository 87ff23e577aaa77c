//! Reading by several threads: how many help, the law of their contention, and the best combination of threads and block.

use std::cmp::Ordering;

use kelvin_core::catalogue::file::{BLOCK, THREAD_COUNT, THREADS};
use kelvin_core::units::percent;
use kelvin_core::{
    BestQuestion, Case, Claim, Conclusion, Estimate, LawDeviation, RatioQuestion, Run, ScalabilityClaim, TestEvidence,
};
use kelvin_stats::{MAX_MISFIT, MIN_LOADS, RepeatedLoad, ScalabilityFit, fit_scalability_with_intervals, median};

use super::crossing::{LineRatio, best_p_value, line_ratio, without_axes};
use super::find_conclusion;
use crate::evidence::{Evidence, RatioTest, RoundHeadlines, outcome_of_p_value};
use crate::result::Study;
use crate::result::{BestCell, Coefficient, FittedLaw};

/// Share of the best rate from which more threads do not help.
const SUFFICIENT_RATE_SHARE: f64 = 0.9;
/// Contention that matters.
const MIN_CONTENTION: f64 = 0.01;

/// The law of each page cache state and block, from the metric `file.threads`, where it is determined.
pub(crate) fn fitted_laws(run: &Run) -> Vec<FittedLaw> {
    thread_lines(&Evidence::from_run(run)).iter().filter_map(|line| Some(line.to_fitted_law(&line.fit()?))).collect()
}

/// The best threads and blocks of each state of the page cache, from the metric `file.threads`, where both were varied.
pub(crate) fn best_cells(run: &Run, studies: &[Study]) -> Vec<BestCell> {
    let among_all = |cell: BestCell| {
        let conclusion = find_conclusion(studies, &cell.conclusion.claim).unwrap_or(&cell.conclusion).clone();
        BestCell { conclusion, ..cell }
    };
    best_cells_of(&Evidence::from_run(run)).into_iter().map(among_all).collect()
}

fn best_cells_of(evidence: &Evidence<'_>) -> Vec<BestCell> {
    let cells = evidence.all_cases(&THREADS);
    let mut states: Vec<Case> = cells.iter().map(|cell| without_axes(cell.case, &[THREAD_COUNT, BLOCK])).collect();
    states.sort();
    states.dedup();
    states.into_iter().filter_map(|held| best_cell(held, &cells)).collect()
}

/// Conclusions from the metric `file.threads`; `None` if it was not measured with two numbers of them.
pub(crate) fn threads(evidence: &Evidence<'_>) -> Option<Study> {
    let mut conclusions: Vec<Conclusion> = thread_lines(evidence).iter().flat_map(ThreadLine::conclusions).collect();
    conclusions.extend(best_cells_of(evidence).into_iter().map(|cell| cell.conclusion.conclusion));
    let design = format!(
        "One file was read by several numbers of threads, each its part, at several block sizes, in several rounds. More \
         threads help if they reach more than {} of the rate with fewer. The universal scalability law (Gunther 2007), \
         X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1)), is fitted to the measurements: no prediction. It describes \
         a line if at every thread count it is off by at most {} or that rate's interval.",
        percent(1.0 / SUFFICIENT_RATE_SHARE),
        percent(MAX_MISFIT)
    );
    Study::new(THREADS.id, design, conclusions)
}

/// The rates of one block and state of the page cache by the number of threads, ascending.
struct ThreadLine<'r> {
    held: Case,
    points: Vec<RoundHeadlines<'r>>,
}

fn thread_lines<'r>(evidence: &Evidence<'r>) -> Vec<ThreadLine<'r>> {
    let mut lines: Vec<ThreadLine<'r>> = Vec::new();
    for point in evidence.all_cases(&THREADS).into_iter().filter(|point| THREAD_COUNT.number_in(point.case).is_some()) {
        let held = without_axes(point.case, &[THREAD_COUNT]);
        match lines.iter_mut().find(|line| line.held == held) {
            Some(line) => line.points.push(point),
            None => lines.push(ThreadLine { held, points: vec![point] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by_key(threads_of));
    lines
}

fn threads_of(point: &RoundHeadlines<'_>) -> u64 {
    THREAD_COUNT.number_in(point.case).unwrap_or(0)
}

impl ThreadLine<'_> {
    fn conclusions(&self) -> Vec<Conclusion> {
        if self.points.len() < 2 {
            return Vec::new();
        }
        let by_law = match self.fit() {
            Some(fitted) => self.law_conclusions(&fitted),
            None => self.undetermined().into_iter().collect(),
        };
        self.sufficient_threads().into_iter().chain(by_law).collect()
    }

    /// Whether more threads than the first number that is enough help.
    fn sufficient_threads(&self) -> Option<Conclusion> {
        let rate = |index: &usize| self.points[*index].headline();
        let best = (0..self.points.len()).max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
        let first = (0..self.points.len()).find(|index| rate(index) >= SUFFICIENT_RATE_SHARE * rate(&best))?;
        // If the first that is enough is the best, those after it are compared with it; if it is the last, it with
        // the one before.
        let (few, many) = match (first, best) {
            (first, best) if first < best => (first, best),
            (first, _) if first + 1 < self.points.len() => (first, first + 1),
            (last, _) => (last.checked_sub(1)?, last),
        };
        let help = RatioTest::above(RatioQuestion::MoreThreads, 1.0 / SUFFICIENT_RATE_SHARE);
        help.test_chosen_among(&self.points[few], &self.points[many], Some(self.points.len()))
    }

    fn fit(&self) -> Option<ScalabilityFit> {
        let load = |point| (threads_of(point) as f64, point.values.as_slice());
        let loads: Vec<RepeatedLoad<'_>> = self.points.iter().map(load).collect();
        fit_scalability_with_intervals(&loads)
    }

    fn max_threads(&self) -> u64 {
        self.points.last().map_or(0, threads_of)
    }

    fn to_fitted_law(&self, fitted: &ScalabilityFit) -> FittedLaw {
        let coefficient = |value, (lower, upper)| Coefficient { value, lower, upper };
        FittedLaw {
            metric: THREADS.id,
            workers: THREAD_COUNT.name,
            held: self.held.clone(),
            most: self.max_threads(),
            lambda: coefficient(fitted.law.lambda, fitted.lambda),
            sigma: coefficient(fitted.law.sigma, fitted.sigma),
            kappa: coefficient(fitted.law.kappa, fitted.kappa),
            peak: self.measured_workers(fitted.law.peak_workers()),
            peak_lower: self.measured_workers(fitted.peak.0),
            peak_upper: self.measured_workers(fitted.peak.1),
            describes: fitted.describes,
            furthest_at: fitted.worst_misfit.n as u64,
            furthest_ratio: fitted.worst_misfit.ratio,
        }
    }

    /// A number of workers of the law, where it is among those measured: beyond them the law says nothing.
    fn measured_workers(&self, workers: f64) -> Option<f64> {
        (workers <= self.max_threads() as f64).then_some(workers)
    }

    /// That too little was measured for the law, which refutes nothing; `None` if there is another reason why none was found.
    fn undetermined(&self) -> Option<Conclusion> {
        let rounds = self.points.iter().map(|point| point.values.len()).min().unwrap_or(0);
        let (held, points) = (self.held.clone(), self.points.len());
        let law = ScalabilityClaim::Determined { held, points, rounds, needed: MIN_LOADS };
        let is_too_little = points < MIN_LOADS || rounds < 2;
        let open =
            Conclusion { claim: Claim::Law(law), holds: None, evidence: TestEvidence::TooFewPoints, tested: None };
        is_too_little.then_some(open)
    }

    /// What the law says, or that it does not hold.
    fn law_conclusions(&self, fitted: &ScalabilityFit) -> Vec<Conclusion> {
        let furthest = LawDeviation { workers: fitted.worst_misfit.n as u64, ratio: fitted.worst_misfit.ratio };
        let evidence = TestEvidence::LeastSquares { points: self.points.len(), furthest };
        let claims = match fitted.describes {
            false => vec![(ScalabilityClaim::Describes { held: self.held.clone(), furthest }, Some(false))],
            true => vec![self.contention(fitted), self.peak(fitted)],
        };
        let conclusion =
            |(law, holds)| Conclusion { claim: Claim::Law(law), holds, evidence: evidence.clone(), tested: None };
        claims.into_iter().map(conclusion).collect()
    }

    fn contention(&self, fitted: &ScalabilityFit) -> (ScalabilityClaim, Option<bool>) {
        let estimate = |value, (low, high)| Estimate { value, low, high, is_range: false };
        let sigma = estimate(fitted.law.sigma, fitted.sigma);
        let kappa = estimate(fitted.law.kappa, fitted.kappa);
        (
            ScalabilityClaim::Contention { held: self.held.clone(), sigma, kappa, limit: MIN_CONTENTION },
            sigma.is_above(MIN_CONTENTION),
        )
    }

    /// Whether the rate peaks within the measured range.
    fn peak(&self, fitted: &ScalabilityFit) -> (ScalabilityClaim, Option<bool>) {
        let (most, peak, (low, high)) = (self.max_threads(), fitted.law.peak_workers(), fitted.peak);
        let at = [peak, low, high].map(|workers| self.measured_workers(workers));
        let law = ScalabilityClaim::Peak {
            held: self.held.clone(),
            most,
            at,
            rate: at[0].map(|peak| fitted.law.throughput_at(peak)),
        };
        (law, Estimate { value: peak, low, high, is_range: false }.is_below(most as f64))
    }
}

/// The best cell in one page cache state; `None` unless threads and blocks were both varied.
fn best_cell(held: Case, cells: &[RoundHeadlines<'_>]) -> Option<BestCell> {
    let is_here =
        |cell: &&RoundHeadlines<'_>| without_axes(cell.case, &[THREAD_COUNT, BLOCK]) == held && cell.are_positive();
    let mut here: Vec<&RoundHeadlines<'_>> = cells.iter().filter(is_here).collect();
    let varied =
        |axis: kelvin_core::Axis| here.iter().any(|cell| axis.number_in(cell.case) != axis.number_in(here[0].case));
    if !varied(THREAD_COUNT) || !varied(BLOCK) {
        return None;
    }
    here.sort_by(|left, right| median(&right.values).total_cmp(&median(&left.values)));
    let (best, others) = here.split_first()?;
    let all = others.len();
    let compared: Vec<(&Case, LineRatio)> = others
        .iter()
        .filter_map(|other| Some((other.case, line_ratio(0, &other.values, &best.values, all)?)))
        .collect();
    let as_good = compared.iter().filter(|(_, standing)| standing.side() != Ordering::Greater);
    let as_good: Vec<Case> = as_good.map(|&(case, _)| case.clone()).collect();
    let &(next, nearest) = compared.first()?;
    let claim = Claim::Best {
        question: BestQuestion::ThreadsAndBlocks,
        best: best.metric_value(),
        rivals: as_good.clone(),
        next: next.clone(),
        others: compared.len(),
    };
    let evidence = TestEvidence::Together { ratios: vec![(None, nearest.ratio)], rounds: best.values.len() };
    let chance = best_p_value(compared.iter().map(|(_, standing)| standing));
    let tested = outcome_of_p_value(chance);
    let conclusion = Conclusion { claim, holds: as_good.is_empty().then_some(true), evidence, tested }.into();
    Some(BestCell { metric: THREADS.id, held, best: best.case.clone(), as_good, conclusion })
}
