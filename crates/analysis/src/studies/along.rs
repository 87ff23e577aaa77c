//! How a time depends on a quantity: whether it is the same at each point, or each further one adds the same.
//!
//! A law is held against every point in the rounds of the same pass, of which only what differs between points is left. It holds where all
//! points are certainly within a margin of it (an intersection-union test; R. L. Berger, "Multiparameter Hypothesis Testing and
//! Acceptance Sampling", 1982), and does not where one certainly is not. A slope alone would miss a bump between the ends.

use kelvin_model::{AlongClaim, AlongLaw, AlongQuestion, Axis, Claim, Conclusion, Test};
use kelvin_stats::FALSE_SHARE;

use crate::evidence::{Rounds, SAME, Weighed, chance_of_all, chance_of_any, decided_by};

/// Fewest points of a line: two lie on one.
const LEAST_POINTS_OF_A_LINE: usize = 3;

/// A time at several points along an axis.
pub(super) struct Along<'r> {
    question: AlongQuestion,
    /// The positions, ascending.
    at: Vec<u64>,
    points: Vec<Rounds<'r>>,
}

impl<'r> Along<'r> {
    /// `None` with a single point, or where all are only inputs. A point of a single round tells nothing.
    pub fn of(question: AlongQuestion, axis: Axis, mut points: Vec<Rounds<'r>>) -> Option<Self> {
        points.retain(|point| axis.of(point.case).is_some() && point.values.len() > 1);
        points.sort_by_key(|point| axis.of(point.case));
        let at: Vec<u64> = points.iter().filter_map(|point| axis.of(point.case)).collect();
        let is_asked = points.iter().any(|point| !point.only_input);
        let is_positive = points.iter().all(Rounds::are_positive);
        (at.len() > 1 && is_asked && is_positive).then_some(Self { question, at, points })
    }

    /// Whether the time is the same at each point as at the first, by the passes that both have.
    pub fn constant(&self) -> Option<Conclusion> {
        let first = self.points.first()?;
        let off = |point: &Rounds<'_>| -> Vec<f64> {
            Rounds::in_common([first, point]).iter().map(|[base, time]| (time / base).ln()).collect()
        };
        self.judge(
            AlongLaw::Constant,
            (1..self.at.len()).map(|place| (place, off(&self.points[place]))).collect(),
            None,
        )
    }

    /// Whether each further one adds the same, by the passes that all have; `None` where a line gives no time for a point.
    pub fn linear(&self) -> Option<Conclusion> {
        if self.at.len() < LEAST_POINTS_OF_A_LINE {
            return None;
        }
        let weights: Vec<f64> = self.points.iter().map(|point| point.headline().powi(-2)).collect();
        let passes = Rounds::in_passes(&self.points);
        let lines: Vec<Line> = passes.iter().map(|pass| Line::of(&self.at, pass, &weights)).collect::<Option<_>>()?;
        let each = Weighed::median(&lines.iter().map(|line| line.slope).collect::<Vec<f64>>(), None)?;
        let off = |place: usize| -> Option<Vec<f64>> {
            let of_pass = |(pass, line): (&Vec<f64>, &Line)| {
                let law = line.at(self.at[place]);
                (law > 0.0).then(|| (pass[place] / law).ln())
            };
            passes.iter().zip(&lines).map(of_pass).collect()
        };
        let off = (0..self.at.len()).map(|place| Some((place, off(place)?))).collect::<Option<_>>()?;
        self.judge(AlongLaw::Linear, off, Some(each))
    }

    /// Whether it is the same at each point, and, where that is not so, whether each further one adds the same.
    pub fn laws(&self) -> Vec<Conclusion> {
        let constant = self.constant();
        let is_constant = constant.as_ref().is_some_and(|one| one.holds == Some(true));
        let linear = (!is_constant).then(|| self.linear()).flatten();
        constant.into_iter().chain(linear).collect()
    }

    /// A law by how far points are off it, as logarithms of each pass.
    fn judge(&self, law: AlongLaw, off: Vec<(usize, Vec<f64>)>, each: Option<Weighed>) -> Option<Conclusion> {
        let rounds = off.iter().map(|(_, passes)| passes.len()).min()?;
        let point =
            |(place, passes): &(usize, Vec<f64>)| Some(Point { at: self.at[*place], off: Weighed::multiple(passes)? });
        let points: Vec<Point> = off.iter().map(point).collect::<Option<_>>()?;
        let slope = each.map(|each| each.estimate);
        let is_known = slope.is_none_or(|slope| slope.is_above(0.0).is_some());
        let judged = Judged::of(&points)?;
        let claim = AlongClaim {
            question: self.question,
            law,
            base: self.points.first()?.side(),
            span: [*self.at.first()?, *self.at.last()?],
            at: judged.point.at,
            off: judged.point.off.estimate,
            within: SAME,
            each: slope,
        };
        Some(Conclusion {
            claim: Claim::Along(claim),
            holds: judged.holds.filter(|&holds| is_known || !holds),
            evidence: Test::AtEachPoint { points: self.at.len(), rounds },
            tested: decided_by(judged.chance),
        })
    }
}

/// A point, and its time over that by the law.
#[derive(Clone, Copy)]
struct Point {
    at: u64,
    off: Weighed,
}

impl Point {
    /// How far off it is, on either side.
    fn distance(&self) -> f64 {
        self.off.estimate.value.ln().abs()
    }

    /// Whether it is certainly within the margin.
    fn is_within(&self) -> bool {
        let off = self.off.estimate;
        !off.is_range && off.low >= 1.0 - SAME && off.high <= 1.0 + SAME
    }

    fn chance_of_being_outside(&self) -> Option<f64> {
        Some(self.off.tested(1.0, Some(SAME))?.same?.chance.alone)
    }

    /// The chance that it is within the margin, of one that lies outside.
    fn chance_of_being_within(&self) -> Option<f64> {
        match self.off.estimate.value {
            value if value > 1.0 + SAME => self.off.chance(1.0 + SAME),
            value if value < 1.0 - SAME => self.off.chance(1.0 - SAME),
            _ => Some(1.0),
        }
    }
}

/// What all points say of a law, and the one that shows it.
struct Judged {
    holds: Option<bool>,
    point: Point,
    chance: Option<f64>,
}

impl Judged {
    /// `None` without any point.
    fn of(points: &[Point]) -> Option<Self> {
        let furthest =
            |points: &[Point]| points.iter().copied().max_by(|one, other| one.distance().total_cmp(&other.distance()));
        let chance = |point: &Point| chance_of_any([point.chance_of_being_within()], points.len());
        let is_outside = |point: &&Point| chance(point).is_some_and(|chance| chance <= FALSE_SHARE);
        let outside: Vec<Point> = points.iter().filter(is_outside).copied().collect();
        if let Some(point) = furthest(&outside) {
            return Some(Self { holds: Some(false), point, chance: chance(&point) });
        }
        let holds = points.iter().all(Point::is_within).then_some(true);
        let chance = chance_of_all(points.iter().map(Point::chance_of_being_outside));
        Some(Self { holds, point: furthest(points)?, chance })
    }
}

/// A straight line of least squares of the relative distances.
struct Line {
    level: f64,
    slope: f64,
}

impl Line {
    /// `None` where all points have one position.
    fn of(at: &[u64], times: &[f64], weights: &[f64]) -> Option<Self> {
        let mean = |values: &dyn Fn(usize) -> f64| {
            let sum: f64 = (0..at.len()).map(|place| weights[place] * values(place)).sum();
            sum / weights.iter().sum::<f64>()
        };
        let (x, y) = (mean(&|place| at[place] as f64), mean(&|place| times[place]));
        let across = mean(&|place| (at[place] as f64 - x) * (times[place] - y));
        let along = mean(&|place| (at[place] as f64 - x).powi(2));
        let slope = (along > 0.0).then(|| across / along).filter(|slope| slope.is_finite())?;
        Some(Self { level: y - slope * x, slope })
    }

    fn at(&self, at: u64) -> f64 {
        self.level + self.slope * at as f64
    }
}
