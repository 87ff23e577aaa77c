//! Which result of a run a line of the first screen shows.

use kelvin_model::{Axis, Metric, Point};

use crate::result::{MetricResult, Outcome};

/// Words, and numbers, at most of a spot.
const MOST: usize = 2;

/// A metric at some words and numbers of its axes; where several cases are there, the one furthest along an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub metric: &'static Metric,
    words: [Option<Point>; MOST],
    numbers: [Option<(Axis, u64)>; MOST],
    furthest: Option<Axis>,
}

impl Spot {
    pub const fn new(metric: &'static Metric) -> Self {
        Self { metric, words: [None; MOST], numbers: [None; MOST], furthest: None }
    }

    /// It at one more word.
    pub const fn at(mut self, word: Point) -> Self {
        let free = if self.words[0].is_none() { 0 } else { 1 };
        self.words[free] = Some(word);
        self
    }

    /// It at one more number.
    pub const fn with(mut self, axis: Axis, value: u64) -> Self {
        let free = if self.numbers[0].is_none() { 0 } else { 1 };
        self.numbers[free] = Some((axis, value));
        self
    }

    pub const fn furthest(self, axis: Axis) -> Self {
        Self { furthest: Some(axis), ..self }
    }

    /// The result, of a run that measured it for its own sake; a skipped one only where all were.
    pub fn find<'a>(&self, results: &'a [MetricResult]) -> Option<&'a MetricResult> {
        let was_tried = |result: &MetricResult| !matches!(result.outcome, Outcome::Skipped(_));
        let along = |result: &MetricResult| self.furthest.and_then(|axis| axis.of(&result.case));
        self.all(results).max_by_key(|result| (was_tried(result), along(result)))
    }

    /// All results at these words and numbers.
    pub fn all(self, results: &[MetricResult]) -> impl Iterator<Item = &MetricResult> {
        results
            .iter()
            .filter(move |result| result.metric.id == self.metric.id && !result.only_input && self.has(result))
    }

    fn has(&self, result: &MetricResult) -> bool {
        let case = &result.case;
        self.words.iter().flatten().all(|point| point.is_of(case))
            && self.numbers.iter().flatten().all(|(axis, value)| axis.of(case) == Some(*value))
    }

    /// Names of the axes that its metric must have.
    #[cfg(test)]
    pub fn axes(&self) -> impl Iterator<Item = kelvin_model::Name> {
        let words = self.words.iter().flatten().map(|point| point.axis());
        let numbers = self.numbers.iter().flatten().map(|(axis, _)| axis.name);
        words.chain(numbers).chain(self.furthest.map(|axis| axis.name))
    }
}
