//! What a probe is: data and three functions.

use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction, Reason};

use crate::{Bench, Facts};

/// Code that measures one metric, one curve, or a few metrics that one operation yields together.
#[derive(Debug)]
pub struct Probe {
    /// Dotted id, usually that of its first metric.
    pub id: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Part of a plain run, or a long experiment of its own.
    pub kind: Kind,
    /// What `explain` says.
    pub method: Method,
    /// The metrics that it measures, the headline first.
    pub metrics: &'static [&'static Metric],
    /// Ids of the probes whose metrics its predictions rest on; measured first, briefly, when it is asked for alone.
    pub inputs: &'static [&'static str],
    /// The points that make sense on this machine with this effort, in the order of reports. What is left out with less
    /// effort is reported as left out.
    pub cases: fn(&Machine, Effort) -> Vec<Case>,
    /// Measures one case once, in a process of its own.
    pub run: fn(&mut Bench<'_>, &Case) -> Result<(), Stop>,
    /// Predicts one of its metrics at one case from facts and lower metrics; pure.
    pub predict: fn(&Facts<'_>, &Metric, &Case) -> Result<Prediction, NoPrediction>,
}

impl Probe {
    /// Whether a name on the command line selects it: its id, a leading part of it up to a dot, or those of one of its metrics.
    pub fn is_selected_by(&self, name: &str) -> bool {
        let leads = |id: &str| id == name || id.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        leads(self.id) || self.metrics.iter().any(|metric| leads(&metric.id))
    }
}

/// Whether a probe is part of a plain run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Part of a plain run.
    Measure,
    /// A long experiment, run by `kelvin study`.
    Study,
    /// Something whose answer is set by construction, run by `kelvin selfcheck` and the tests.
    Truth,
    /// Something that goes wrong on purpose, run by `kelvin selfcheck --faults` and the tests.
    Fault,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// As little as makes sense.
    Quick,
    /// The usual.
    Default,
    /// All there is.
    Thorough,
}

/// What `explain` says of a probe, and what the book's page is made from.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// How it is measured: what is inside the timed region, what is subtracted, how it is proven.
    pub how: &'static str,
    /// How the prediction is made, and from what.
    pub prediction: &'static str,
    /// What the number must not be used for.
    pub not_for: &'static str,
    /// Known ways to get it wrong, and what is done about them here.
    pub pitfalls: &'static [&'static str],
    /// Publications, manuals, public tools that measure the same.
    pub sources: &'static [&'static str],
}

/// Why a probe stopped without readings. Both are results, shown with their reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It cannot be measured here: what is missing, and what would be needed.
    Skip(Reason),
    /// It went wrong.
    Fail(String),
}

impl Stop {
    /// It cannot be measured here, for this reason.
    pub fn skip(reason: impl Into<String>) -> Self {
        Self::Skip(Reason::new(reason))
    }

    /// It went wrong: what was being done, and the error.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self::Fail(reason.into())
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Fail(error.to_string())
    }
}
