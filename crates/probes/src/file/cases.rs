//! What the parameters of a case mean to measures of files.

use kelvin_harness::Stop;
use kelvin_model::Case;

/// A parameter without which nothing can be measured.
pub(super) fn known<T>(parameter: Option<T>, case: &Case) -> Result<T, Stop> {
    parameter.ok_or_else(|| Stop::fail(format!("there is nothing to measure for the case {case}")))
}
