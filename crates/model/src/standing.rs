//! How far a case has come while its run goes on: what the planner of the run decides by.

/// How far a case has come, judged by all rounds of the run so far, as the report would judge them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Rounds that count for the headlines of all its metrics: of an undisturbed headline those with enough undisturbed samples.
    pub counting: u32,
    /// Half-width of its widest interval as a share of the value; `None` without an interval.
    pub half_width: Option<f64>,
    /// The same of what more rounds narrow: neither modes nor drift.
    pub narrowable: Option<f64>,
}
