//! The cases of a probe, from the values of its axes, and the values of a case.

use kelvin_core::{Axis, AxisWord, Case, NoPrediction};
use kelvin_harness::{Effort, ProbeError};

/// A case without the value that a probe needs, or with one that it does not have.
#[derive(Debug)]
pub(crate) struct IncompleteCase {
    case: Case,
    /// The words of which it needs one.
    words: Option<String>,
}

/// A value of a case without which it can be neither measured nor predicted.
pub(crate) fn required<T>(value: Option<T>, case: &Case) -> Result<T, IncompleteCase> {
    value.ok_or_else(|| IncompleteCase { case: case.clone(), words: None })
}

/// A word of a case, which must be one of these.
pub(crate) fn required_word<W>(word: Option<W>, words: &[W], case: &Case) -> Result<W, IncompleteCase>
where
    W: Copy + PartialEq + Into<AxisWord>,
{
    word.filter(|word| words.contains(word)).ok_or_else(|| {
        let words = words.iter().map(|&word| word.into()).map(|word| format!("{}={}", word.axis(), word.word()));
        let words = words.reduce(|list, word| format!("{list}, {word}"));
        let list = words.map(|list| match list.rsplit_once(", ") {
            Some((first, last)) => format!("{first} or {last}"),
            None => list,
        });
        IncompleteCase { case: case.clone(), words: list }
    })
}

/// A number of a case without which it can be neither measured nor predicted.
pub(crate) fn required_number(axis: Axis, case: &Case) -> Result<u64, IncompleteCase> {
    required(axis.number_in(case), case)
}

/// A small number of a case, such as that of a CPU.
pub(crate) fn required_u32(axis: Axis, case: &Case) -> Result<u32, IncompleteCase> {
    required(axis.number_in(case).and_then(|number| number.try_into().ok()), case)
}

impl From<IncompleteCase> for ProbeError {
    fn from(IncompleteCase { case, words }: IncompleteCase) -> Self {
        Self::fail(match words {
            Some(words) => format!("the case needs {words}, not {case}"),
            None => format!("there is nothing to measure for the case {case}"),
        })
    }
}

impl From<IncompleteCase> for NoPrediction {
    fn from(IncompleteCase { case, .. }: IncompleteCase) -> Self {
        Self::new(format!("there is no formula for the case {case}"))
    }
}

/// One of three: of a quick run, of a default one, of a thorough one.
pub(crate) fn by_effort<T>(effort: Effort, [quick, default, thorough]: [T; 3]) -> T {
    match effort {
        Effort::Quick => quick,
        Effort::Default => default,
        Effort::Thorough => thorough,
    }
}

/// A case for each of these numbers on an axis.
pub(crate) fn numbers(axis: Axis, values: &[u64]) -> Vec<Case> {
    vec![Case::new()].numbers(axis, values)
}

/// A case for each of these words of an axis.
pub(crate) fn words<W: Copy + Into<AxisWord>>(values: &[W]) -> Vec<Case> {
    vec![Case::new()].words(values)
}

/// Cases with one more axis.
pub(crate) trait AtEach {
    /// Each of them at each of these numbers.
    fn numbers(self, axis: Axis, values: &[u64]) -> Vec<Case>;
    /// Each of them at each of these words.
    fn words<W: Copy + Into<AxisWord>>(self, values: &[W]) -> Vec<Case>;
}

impl AtEach for Vec<Case> {
    fn numbers(self, axis: Axis, values: &[u64]) -> Vec<Case> {
        self.iter().flat_map(|case| values.iter().map(|&value| case.clone().with_number(axis, value))).collect()
    }

    fn words<W: Copy + Into<AxisWord>>(self, values: &[W]) -> Vec<Case> {
        self.iter().flat_map(|case| values.iter().map(|&word| case.clone().with_word(word))).collect()
    }
}
