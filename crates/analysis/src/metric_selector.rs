//! A metric at some points of its axes, and the results and cases that it selects.

use crate::prelude::*;

/// Maximum words, and numbers, of a selector.
const MAX_COORDINATES: usize = 2;

/// A metric at some words and numbers of its axes; where there are several cases, the one furthest along an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricSelector {
    pub metric: &'static Metric,
    words: [Option<AxisWord>; MAX_COORDINATES],
    numbers: [Option<(Axis, u64)>; MAX_COORDINATES],
    furthest: Option<Axis>,
}

/// A metric at any case.
pub(crate) const fn select(metric: &'static Metric) -> MetricSelector {
    MetricSelector { metric, words: [None; MAX_COORDINATES], numbers: [None; MAX_COORDINATES], furthest: None }
}

impl MetricSelector {
    /// Adds a word.
    pub const fn with_word(mut self, word: AxisWord) -> Self {
        let slot = if self.words[0].is_none() { 0 } else { 1 };
        self.words[slot] = Some(word);
        self
    }

    /// Adds a number.
    pub const fn with_number(mut self, axis: Axis, value: u64) -> Self {
        let slot = if self.numbers[0].is_none() { 0 } else { 1 };
        self.numbers[slot] = Some((axis, value));
        self
    }

    pub const fn furthest(self, axis: Axis) -> Self {
        Self { furthest: Some(axis), ..self }
    }

    /// The result, of a run that measured it for its own sake; a skipped one only where all were.
    pub fn find<'a>(&self, results: &'a [MetricResult]) -> Option<&'a MetricResult> {
        let was_tried = |result: &MetricResult| !matches!(result.outcome, Outcome::Skipped(_));
        let position = |result: &MetricResult| self.furthest.and_then(|axis| axis.number_in(&result.case));
        self.find_all(results).max_by_key(|result| (was_tried(result), position(result)))
    }

    /// All results at these words and numbers.
    pub fn find_all(self, results: &[MetricResult]) -> impl Iterator<Item = &MetricResult> {
        let is_match = move |result: &&MetricResult| {
            result.metric.id == self.metric.id && !result.only_input && self.is_selecting(&result.case)
        };
        results.iter().filter(is_match)
    }

    /// Whether a case has these words and numbers.
    pub fn is_selecting(&self, case: &Case) -> bool {
        self.words.iter().flatten().all(|word| word.is_in_case(case))
            && self.numbers.iter().flatten().all(|(axis, value)| axis.number_in(case) == Some(*value))
    }

    /// A case with these words and numbers in place of its own.
    pub fn apply_to(&self, case: &Case) -> Case {
        let case = self.words.iter().flatten().fold(case.clone(), |case, &word| case.with_word(word));
        self.numbers.iter().flatten().fold(case, |case, &(axis, value)| case.with_number(axis, value))
    }

    /// Names of the axes that its metric must have.
    #[cfg(test)]
    pub fn axes(&self) -> impl Iterator<Item = kelvin_core::Name> {
        let words = self.words.iter().flatten().map(|word| word.axis());
        let numbers = self.numbers.iter().flatten().map(|(axis, _)| axis.name);
        words.chain(numbers).chain(self.furthest.map(|axis| axis.name))
    }
}
