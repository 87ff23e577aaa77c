//! Reading by several threads: how many help, the law of their contention, and the best combination of threads and block.

use kelvin_core::catalogue::file::{BLOCK, THREAD_COUNT, THREADS};

use super::crossing::{BestOf, Contender, MetricLine, lines};
use super::files::cache_state;
use crate::prelude::*;

/// Share of the best rate from which more threads do not help.
const SUFFICIENT_RATE_SHARE: f64 = 0.9;
/// Contention that matters.
const MIN_CONTENTION: f64 = 0.01;

/// The law of each page cache state and block, from the metric `file.threads`, where it is determined.
pub(crate) fn fitted_laws(evidence: &Evidence<'_>) -> Vec<FittedLaw> {
    thread_lines(evidence).iter().filter_map(|line| Some(line.to_fitted_law(&line.fit()?))).collect()
}

/// The best threads and blocks of each state of the page cache, as studies conclude them.
pub(crate) fn best_cells(studies: &[Study]) -> Vec<BestCell> {
    let cell = |conclusion: &StatedConclusion| match &conclusion.claim {
        Claim::Best { question: BestQuestion::ThreadsAndBlocks, best, rivals, .. } => Some(BestCell {
            metric: THREADS.id,
            fixed: without_axes(&best.case, &[THREAD_COUNT, BLOCK]),
            best: best.case.clone(),
            equivalent: rivals.clone(),
            conclusion: conclusion.clone(),
        }),
        _ => None,
    };
    studies.iter().flat_map(|study| &study.conclusions).filter_map(cell).collect()
}

/// Conclusions from the metric `file.threads`; `None` if it was not measured with two numbers of them.
pub(crate) fn threads(evidence: &Evidence<'_>) -> Option<Study> {
    let mut conclusions: Vec<StatedConclusion> =
        thread_lines(evidence).iter().flat_map(ThreadLine::conclusions).collect();
    let cells = evidence.all_cases(&THREADS);
    let states = distinct(cells.iter().map(|cell| without_axes(cell.case, &[THREAD_COUNT, BLOCK])));
    conclusions.extend(states.iter().filter_map(|fixed| best_cell(fixed, cells)));
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

/// The rates of one block and state of the page cache by the number of threads.
struct ThreadLine<'e, 'r>(MetricLine<'e, 'r>);

fn thread_lines<'e, 'r>(evidence: &'e Evidence<'r>) -> Vec<ThreadLine<'e, 'r>> {
    lines(evidence.all_cases(&THREADS), THREAD_COUNT).into_iter().map(ThreadLine).collect()
}

impl ThreadLine<'_, '_> {
    fn conclusions(&self) -> Vec<StatedConclusion> {
        if self.0.points.len() < 2 {
            return Vec::new();
        }
        let from_law = match self.fit() {
            Some(fit) => self.law_conclusions(&fit),
            None => self.undetermined().into_iter().collect(),
        };
        self.sufficient_threads().into_iter().chain(from_law).collect()
    }

    /// Whether more threads than the first number that is enough help.
    fn sufficient_threads(&self) -> Option<StatedConclusion> {
        let rate = |index: &usize| self.0.points[*index].1.headline();
        let best = (0..self.0.points.len()).max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
        let first = (0..self.0.points.len()).find(|index| rate(index) >= SUFFICIENT_RATE_SHARE * rate(&best))?;
        // If the first that is enough is the best, those after it are compared with it; if it is the last, it with
        // the one before.
        let (few_index, many_index) = match (first, best) {
            (first, best) if first < best => (first, best),
            (first, _) if first + 1 < self.0.points.len() => (first, first + 1),
            (last, _) => (last.checked_sub(1)?, last),
        };
        let test = RatioTest::above(RatioQuestion::MoreThreads, 1.0 / SUFFICIENT_RATE_SHARE);
        let [(few_count, few_rounds), (many_count, many_rounds)] =
            [few_index, many_index].map(|index| self.0.points[index]);
        let answer = test.chosen_among(self.0.points.len()).test(few_rounds, many_rounds)?;
        let (name, gain) = (self.name(), percent(1.0 / SUFFICIENT_RATE_SHARE - 1.0));
        let (times, rate) = (ratio_text(&answer.ratio, "as much"), amount_text(&answer.other));
        let few_text = counted_text(few_count, "thread");
        Some(answer.conclude(format!(
            "{name}: more than {few_text} help by more than {gain}: {many_count} read {times}, {rate}"
        )))
    }

    fn fit(&self) -> Option<ScalabilityFit> {
        let loads: Vec<RepeatedLoad<'_>> =
            self.0.points.iter().map(|(threads, point)| (*threads as f64, point.values.as_slice())).collect();
        fit_scalability_with_intervals(&loads)
    }

    fn max_threads(&self) -> u64 {
        self.0.points.last().map_or(0, |(threads, _)| *threads)
    }

    fn to_fitted_law(&self, fit: &ScalabilityFit) -> FittedLaw {
        let coefficient = |value, (lower, upper)| Coefficient { value, lower, upper };
        FittedLaw {
            metric: THREADS.id,
            workers: THREAD_COUNT.name,
            fixed: self.0.fixed.clone(),
            max_workers: self.max_threads(),
            lambda: coefficient(fit.law.lambda, fit.lambda),
            sigma: coefficient(fit.law.sigma, fit.sigma),
            kappa: coefficient(fit.law.kappa, fit.kappa),
            peak: self.measured_workers(fit.law.peak_workers()),
            peak_lower: self.measured_workers(fit.peak.0),
            peak_upper: self.measured_workers(fit.peak.1),
            describes: fit.describes,
            furthest_at: fit.worst_misfit.n as u64,
            furthest_ratio: fit.worst_misfit.ratio,
        }
    }

    /// A number of workers of the law, where it is among those measured: beyond them the law is not known.
    fn measured_workers(&self, workers: f64) -> Option<f64> {
        (workers <= self.max_threads() as f64).then_some(workers)
    }

    /// `cached, in blocks of 64 KiB`.
    fn name(&self) -> String {
        let block = BLOCK.number_in(&self.0.fixed).map(|block| format!(", in blocks of {}", bytes(block)));
        format!("{}{}", cache_state(&self.0.fixed), block.unwrap_or_default())
    }

    /// That too little was measured for the law, which refutes nothing; `None` if there is another reason why none was found.
    fn undetermined(&self) -> Option<StatedConclusion> {
        let rounds = self.0.points.iter().map(|(_, point)| point.values.len()).min().unwrap_or(0);
        let (fixed, points) = (self.0.fixed.clone(), self.0.points.len());
        if points >= MIN_LOADS && rounds >= 2 {
            return None;
        }
        let counts = MIN_LOADS.checked_sub(points).filter(|missing| *missing > 0);
        let counts = counts.map(|missing| counted_text(missing as u64, "more thread count"));
        let missing_texts: Vec<String> =
            counts.into_iter().chain((rounds < 2).then(|| "a second round".into())).collect();
        let text = format!(
            "{}: contention by the universal scalability law: {} in {} each do not determine it; missing: {} (--thorough has more)",
            self.name(),
            counted_text(points as u64, "thread count"),
            counted_text(rounds as u64, "round"),
            missing_texts.join(", ")
        );
        let test = "three coefficients, and one more thread count to check them";
        let law = ScalabilityClaim::Determined { fixed, points, rounds, needed: MIN_LOADS };
        Some(ClaimTest::new(TestEvidence::TooFewPoints, test, None).conclude(Claim::Law(law), None, text))
    }

    /// The conclusions from the law, or that it does not hold.
    fn law_conclusions(&self, fit: &ScalabilityFit) -> Vec<StatedConclusion> {
        let furthest = LawDeviation { workers: fit.worst_misfit.n as u64, ratio: fit.worst_misfit.ratio };
        let side = if furthest.ratio < 1.0 { "below" } else { "above" };
        let deviation = format!("{} {side}", percent((furthest.ratio - 1.0).abs()));
        let workers = counted_text(furthest.workers, "thread");
        let points = self.0.points.len();
        let test = format!(
            "least squares on logarithms of the mean rates at {points} thread counts; intervals by a parametric bootstrap of the \
             rounds; the largest deviation is at {workers}: {deviation} the measured rate"
        );
        let conclude = |law: ScalabilityClaim, holds: Option<bool>, text: String| {
            let test = ClaimTest::new(TestEvidence::LeastSquares { points, furthest }, test.clone(), None);
            test.conclude(Claim::Law(law), holds, format!("{}: {text}", self.name()))
        };
        let fixed = || self.0.fixed.clone();
        if !fit.describes {
            let text = format!(
                "the universal scalability law describes the rates: at {workers} it is {deviation} the measured one, so its coefficients mean \
                 nothing here"
            );
            return vec![conclude(ScalabilityClaim::Describes { fixed: fixed(), furthest }, Some(false), text)];
        }
        let (sigma, kappa) = (Estimate::new(fit.law.sigma, fit.sigma), Estimate::new(fit.law.kappa, fit.kappa));
        // Three digits: coherency is small.
        let coefficient = |estimate: &Estimate| span_text(estimate, |value| format!("{} %", number(100.0 * value)));
        let contention = format!(
            "contention takes more than {} of the work: the universal scalability law gives sigma {} and kappa (coherency) {}",
            percent(MIN_CONTENTION),
            coefficient(&sigma),
            coefficient(&kappa)
        );
        let claim = ScalabilityClaim::Contention { fixed: fixed(), sigma, kappa, limit: MIN_CONTENTION };
        let contention = conclude(claim, sigma.is_above(MIN_CONTENTION), contention);
        let (max_workers, peak) = (self.max_threads(), Estimate::new(fit.law.peak_workers(), fit.peak));
        let peak_workers = peak.parts().map(|workers| self.measured_workers(workers));
        let rate = peak_workers[0].map(|peak| fit.law.throughput_at(peak));
        let limit = match (peak_workers, rate) {
            ([Some(peak), low, high], Some(rate)) => {
                let range = match (low, high) {
                    (Some(low), Some(high)) if low != high => format!(" ({low} to {high})"),
                    (Some(low), None) => format!(" ({low} to more than {max_workers})"),
                    _ => String::new(),
                };
                let threads = if peak == 1.0 { "thread" } else { "threads" };
                format!("it peaks at {} with {peak}{range} {threads}", value_text(rate, Unit::BytesPerSecond))
            }
            ([_, Some(low), _], _) => {
                format!("it does not fall up to there, or falls from {} up", counted_text(low as u64, "thread"))
            }
            _ => "it does not fall up to there".into(),
        };
        let text = format!("the rate falls before {max_workers} threads: by the universal scalability law {limit}");
        let claim = ScalabilityClaim::Peak { fixed: fixed(), max_workers, peak_workers, rate };
        vec![contention, conclude(claim, peak.is_below(max_workers as f64), text)]
    }
}

/// The best cell in one page cache state; `None` unless threads and blocks were both varied.
fn best_cell(fixed: &Case, cells: &[RoundHeadlines<'_>]) -> Option<StatedConclusion> {
    let is_in_state =
        |cell: &&RoundHeadlines<'_>| without_axes(cell.case, &[THREAD_COUNT, BLOCK]) == *fixed && cell.are_positive();
    let state_cells: Vec<&RoundHeadlines<'_>> = cells.iter().filter(is_in_state).collect();
    let is_varied =
        |axis: Axis| state_cells.iter().any(|cell| axis.number_in(cell.case) != axis.number_in(state_cells[0].case));
    if !is_varied(THREAD_COUNT) || !is_varied(BLOCK) {
        return None;
    }
    // `4 threads in blocks of 64 KiB`.
    let name = |case: &Case| {
        let block = BLOCK.number_in(case).map(bytes).unwrap_or_default();
        format!("{} in blocks of {block}", counted_text(THREAD_COUNT.number_in(case).unwrap_or(0), "thread"))
    };
    let contenders = state_cells.iter().map(|cell| Contender::from_rounds(cell, cell.case.clone(), name(cell.case)));
    let first = BestOf::find(BestQuestion::ThreadsAndBlocks, contenders.collect(), false)?;
    let (case, rate, rivals) = (&first.best.case, amount_text(&first.best), first.rivals_text("no different from"));
    let text = format!("{}: {} read fastest, {rate}{rivals}", cache_state(case), name(case));
    Some(first.conclude(text))
}
