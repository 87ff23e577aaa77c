//! How a time depends on a quantity: whether it is equal at each point, or each further one adds as much. So for the arguments of a
//! function call, and the memory of a process that forks.
//!
//! A law is held against every point in the rounds of the same pass, of which only what differs between points is left. It holds where all
//! points are certainly within a margin of it (an intersection-union test; R. L. Berger, "Multiparameter Hypothesis Testing and
//! Acceptance Sampling", 1982), and does not where one certainly is not. A slope alone would miss a bump between the ends.

use kelvin_core::IndirectSort;
use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};
use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::catalogue::os::{PROCESS_FORK_RSS, RESIDENT};

use crate::prelude::*;
use crate::wording::interval_label;

/// Fewest points of a line: two lie on one.
const MIN_LINE_POINTS: usize = 3;

/// A time at several points along an axis.
pub(super) struct TimeDependence<'e, 'r> {
    question: DependenceQuestion,
    /// The positions, ascending.
    pub positions: Vec<u64>,
    points: Vec<&'e RoundHeadlines<'r>>,
}

impl<'e, 'r> TimeDependence<'e, 'r> {
    /// `None` with a single point, or where all are only inputs. A point of a single round shows nothing.
    pub fn from_points(
        question: DependenceQuestion,
        axis: Axis,
        points: impl Iterator<Item = &'e RoundHeadlines<'r>>,
    ) -> Option<Self> {
        let mut points: Vec<&RoundHeadlines<'r>> =
            points.filter(|point| axis.number_in(point.case).is_some() && point.values.len() > 1).collect();
        points.indirect_sort_by_key(|point| axis.number_in(point.case));
        let positions: Vec<u64> = points.iter().filter_map(|point| axis.number_in(point.case)).collect();
        let is_requested = points.iter().any(|point| !point.only_input);
        let is_positive = points.iter().all(|point| point.are_positive());
        (positions.len() > 1 && is_requested && is_positive).then_some(Self { question, positions, points })
    }

    /// Whether the time is the same at each point as at the first, by the passes that both have. `amount` is the quantity at a point in
    /// words.
    pub fn constant(&self, claim: &str, amount: impl Fn(u64) -> String) -> Option<StatedConclusion> {
        let first = self.points.first()?;
        let deviation = |place: usize| -> (usize, Vec<f64>) {
            let pairs = RoundHeadlines::common_passes([first, self.points[place]]);
            (place, pairs.iter().map(|[base, time]| (time / base).ln()).collect())
        };
        let deviations = (1..self.positions.len()).map(deviation).collect();
        self.conclude(DependenceLaw::Constant, deviations, None, |dependence| {
            format!("{claim}: {} with {}", ratio_text(&dependence.ratio_to_law, "as long"), amount(dependence.at))
        })
    }

    /// Whether each further one adds the same, by the passes that all have; `None` where a line gives no time for a point. `unit` is the
    /// amount of the quantity to which its slope refers.
    pub fn linear(&self, claim: &str, amount: impl Fn(u64) -> String, unit: f64) -> Option<StatedConclusion> {
        if self.positions.len() < MIN_LINE_POINTS {
            return None;
        }
        let weights: Vec<f64> = self.points.iter().map(|point| point.headline().powi(-2)).collect();
        let passes = RoundHeadlines::shared_passes(&self.points);
        let lines: Vec<LeastSquaresLine> =
            passes.iter().map(|pass| LeastSquaresLine::fit(&self.positions, pass, &weights)).collect::<Option<_>>()?;
        let slope = TestedFigure::median(&lines.iter().map(|line| line.slope).collect::<Vec<f64>>(), None)?;
        let deviation = |place: usize| -> Option<(usize, Vec<f64>)> {
            let pass_deviation = |(pass, line): (&Vec<f64>, &LeastSquaresLine)| {
                let law = line.level + line.slope * self.positions[place] as f64;
                (law > 0.0).then(|| (pass[place] / law).ln())
            };
            Some((place, passes.iter().zip(&lines).map(pass_deviation).collect::<Option<_>>()?))
        };
        let deviations = (0..self.positions.len()).map(deviation).collect::<Option<_>>()?;
        let slope = slope.estimate;
        self.conclude(DependenceLaw::Linear, deviations, Some(slope), |dependence| {
            let slope = slope.divided_by(1.0 / unit);
            let [value, low, high] = slope.parts().map(|time| value_text(time, Unit::Nanoseconds));
            let (label, times) = (interval_label(&slope), ratio_text(&dependence.ratio_to_law, "the line's"));
            format!("{claim}, {value} ({label}: {low} to {high}): with {} {times}", amount(dependence.at))
        })
    }

    /// A law by how far points are off it, as logarithms of each pass.
    fn conclude(
        &self,
        law: DependenceLaw,
        deviations: Vec<(usize, Vec<f64>)>,
        slope: Option<Estimate>,
        text: impl FnOnce(&DependenceClaim) -> String,
    ) -> Option<StatedConclusion> {
        let rounds = deviations.iter().map(|(_, passes)| passes.len()).min()?;
        let point = |(place, passes): &(usize, Vec<f64>)| {
            Some(DependencePoint {
                position: self.positions[*place],
                ratio_to_law: TestedFigure::from_logarithms(passes)?,
            })
        };
        let points: Vec<DependencePoint> = deviations.iter().map(point).collect::<Option<_>>()?;
        let is_known = slope.is_none_or(|slope| slope.is_above(0.0).is_some());
        let judgement = LawJudgement::from_points(&points)?;
        let claim = DependenceClaim {
            question: self.question,
            law,
            base: self.points.first()?.metric_value(),
            span: [*self.positions.first()?, *self.positions.last()?],
            at: judgement.point.position,
            ratio_to_law: judgement.point.ratio_to_law.estimate,
            margin: EQUIVALENCE_MARGIN,
            per_unit: slope,
        };
        let (points, margin) = (self.positions.len(), percent(EQUIVALENCE_MARGIN));
        let test = format!(
            "each of {points} points against what the claim gives, pass by pass in {rounds} passes or more: true if all are certainly \
             within {margin}, false if one certainly is not"
        );
        let evidence = TestEvidence::AtEachPoint { points, rounds };
        let test = ClaimTest::new(evidence, test, outcome_of_p_value(judgement.p_value));
        let (holds, text) = (judgement.holds.filter(|&holds| is_known || !holds), text(&claim));
        Some(test.conclude(Claim::Dependence(claim), holds, text))
    }
}

/// A point, and its time over that by the law.
#[derive(Clone, Copy)]
struct DependencePoint {
    position: u64,
    ratio_to_law: TestedFigure,
}

impl DependencePoint {
    /// How far off it is, on either side.
    fn distance(&self) -> f64 {
        self.ratio_to_law.estimate.value.ln().abs()
    }
}

/// What all points show about a law, and the decisive one.
struct LawJudgement {
    holds: Option<bool>,
    point: DependencePoint,
    p_value: Option<f64>,
}

impl LawJudgement {
    /// `None` without any point.
    fn from_points(points: &[DependencePoint]) -> Option<Self> {
        let max_deviation =
            |points: &[DependencePoint]| points.iter().copied().max_by(|a, b| a.distance().total_cmp(&b.distance()));
        // By chance a point within the margin is found that far outside of it, ...
        let inside_p_value = |point: &DependencePoint| match point.ratio_to_law.estimate.value {
            value if value > 1.0 + EQUIVALENCE_MARGIN => point.ratio_to_law.p_value(1.0 + EQUIVALENCE_MARGIN),
            value if value < 1.0 - EQUIVALENCE_MARGIN => point.ratio_to_law.p_value(1.0 - EQUIVALENCE_MARGIN),
            _ => Some(1.0),
        };
        // ... and one outside that far within.
        let outside_p_value = |point: &DependencePoint| {
            Some(point.ratio_to_law.test(1.0, Some(EQUIVALENCE_MARGIN))?.equivalence?.p_value.raw)
        };
        let is_within = |point: &DependencePoint| {
            let estimate = point.ratio_to_law.estimate;
            !estimate.is_range && estimate.low >= 1.0 - EQUIVALENCE_MARGIN && estimate.high <= 1.0 + EQUIVALENCE_MARGIN
        };
        let chance = |point: &DependencePoint| p_value_of_any([inside_p_value(point)], points.len());
        let is_outside = |point: &&DependencePoint| chance(point).is_some_and(|chance| chance <= FALSE_DISCOVERY_RATE);
        let points_outside: Vec<DependencePoint> = points.iter().filter(is_outside).copied().collect();
        if let Some(point) = max_deviation(&points_outside) {
            return Some(Self { holds: Some(false), point, p_value: chance(&point) });
        }
        let holds = points.iter().all(is_within).then_some(true);
        let chance = p_value_of_all(points.iter().map(outside_p_value));
        Some(Self { holds, point: max_deviation(points)?, p_value: chance })
    }
}

/// A straight line of least squares of the relative distances.
struct LeastSquaresLine {
    level: f64,
    slope: f64,
}

impl LeastSquaresLine {
    /// `None` where all points have one position.
    fn fit(positions: &[u64], times: &[f64], weights: &[f64]) -> Option<Self> {
        let mean = |values: &dyn Fn(usize) -> f64| {
            let sum: f64 = (0..positions.len()).map(|place| weights[place] * values(place)).sum();
            sum / weights.iter().sum::<f64>()
        };
        let (x, y) = (mean(&|place| positions[place] as f64), mean(&|place| times[place]));
        let covariance = mean(&|place| (positions[place] as f64 - x) * (times[place] - y));
        let spread = mean(&|place| (positions[place] as f64 - x).powi(2));
        let slope = (spread > 0.0).then(|| covariance / spread).filter(|slope| slope.is_finite())?;
        Some(Self { level: y - slope * x, slope })
    }
}

/// Conclusions from the metric `cpu.call.args`, by the kind of call.
pub(crate) fn arguments(evidence: &Evidence<'_>) -> Option<Study> {
    let amount = |count: u64| if count == 0 { "none".to_owned() } else { count.to_string() };
    let kind_conclusions = |&kind: &CallKind| {
        let points = evidence.all_cases(&CALL_ARGS).iter().filter(|rounds| CallKind::of(rounds.case) == Some(kind));
        let dependence = TimeDependence::from_points(DependenceQuestion::Arguments, ARGUMENTS, points)?;
        let call = match kind {
            CallKind::Indirect => "an indirect call",
            CallKind::Plt => "a call through a PLT",
            CallKind::Direct => "a direct call",
        };
        let last = *dependence.positions.last()?;
        let constancy = dependence.constant(&format!("up to {last} arguments are free in {call}"), amount)?;
        if constancy.holds == Some(true) {
            return Some(vec![constancy]);
        }
        let claim = format!("each argument costs the same in {call}");
        Some(std::iter::once(constancy).chain(dependence.linear(&claim, amount, 1.0)).collect())
    };
    let conclusions = CallKind::ALL.iter().filter_map(kind_conclusions).flatten().collect();
    let design = "Calls with different numbers of integer arguments were timed in several rounds. Arguments are free where each call takes \
                  as long as one without, and cost the same each where a straight line over their number gives every time.";
    Study::new(CALL_ARGS.id, design, conclusions)
}

/// Bytes of a MiB.
const MIB: f64 = (1 << 20) as f64;

/// Conclusions from the metric `os.process.fork_rss`, by the size of pages.
pub(crate) fn forks(evidence: &Evidence<'_>) -> Option<Study> {
    let pages_conclusion = |&pages: &PageSize| {
        let points =
            evidence.all_cases(&PROCESS_FORK_RSS).iter().filter(|rounds| PageSize::of(rounds.case) == Some(pages));
        let dependence = TimeDependence::from_points(DependenceQuestion::Resident, RESIDENT, points)?;
        let pages = if pages == PageSize::Huge { "huge" } else { "base" };
        dependence.linear(&format!("each MiB costs the same in a fork with {pages} pages"), bytes, MIB)
    };
    let conclusions = PageSize::ALL.iter().filter_map(pages_conclusion).collect();
    let design = "Processes that had touched different amounts of memory forked, timed until the fork returned, in several rounds. Memory \
                  costs the same per byte where a straight line over it gives every time.";
    Study::new(PROCESS_FORK_RSS.id, design, conclusions)
}
