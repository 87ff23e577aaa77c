//! Failures and refusals, each with its reason.

use std::fmt::Display;
use std::path::Path;

use kelvin_core::{NoPrediction, Prediction, SkipReason};
use kelvin_harness::ProbeError;

/// What a formula gives, or why it gives nothing.
pub(crate) type Predicted<T = Prediction> = Result<T, NoPrediction>;

/// What a part of a round gives.
pub(crate) type ProbeResult<T = ()> = Result<T, ProbeError>;

/// A round that goes wrong where this holds. Not for timed code, where making the reason would be timed.
pub(crate) fn fail_if(is_wrong: bool, reason: impl Into<String>) -> ProbeResult {
    if is_wrong { Err(ProbeError::fail(reason)) } else { Ok(()) }
}

/// A round that cannot be made where this holds.
pub(crate) fn skip_if(is_impossible: bool, reason: impl Into<String>) -> ProbeResult {
    if is_impossible { Err(ProbeError::skip(reason)) } else { Ok(()) }
}

/// A formula that does not hold where this holds.
pub(crate) fn unpredicted_if(is_inapplicable: bool, reason: impl Into<String>) -> Predicted<()> {
    if is_inapplicable { Err(NoPrediction::new(reason)) } else { Ok(()) }
}

/// An intervention that cannot be made where this holds.
pub(crate) fn refuse_if(is_impossible: bool, reason: impl Into<String>) -> Result<(), SkipReason> {
    if is_impossible { Err(SkipReason::new(reason)) } else { Ok(()) }
}

/// An operation to be timed that cannot go wrong.
pub(crate) fn infallible(mut operation: impl FnMut(u64)) -> impl FnMut(u64) -> ProbeResult {
    move |iterations| {
        operation(iterations);
        Ok(())
    }
}

/// The outcome of a call on a file, as one of a probe.
pub(crate) trait OrFileFailure<T> {
    /// The round goes wrong where this cannot be done to the file of this path.
    fn or_file_failure(self, action: &str, path: &Path) -> ProbeResult<T>;
}

impl<T> OrFileFailure<T> for std::io::Result<T> {
    fn or_file_failure(self, action: &str, path: &Path) -> ProbeResult<T> {
        self.map_err(|error| ProbeError::fail(format!("cannot {action} {}: {error}", path.display())))
    }
}

/// A missing value, or an error, as one of a probe with its reason. An error follows the reason, after a colon.
pub(crate) trait OrReason<T>: Sized {
    /// The value, or the error that is made of the reason.
    fn or_reason<R: Into<String>, E>(self, reason: R, error: impl FnOnce(String) -> E) -> Result<T, E>;

    /// The round goes wrong without it.
    fn or_fail(self, reason: impl Into<String>) -> ProbeResult<T> {
        self.or_reason(reason, ProbeError::fail)
    }

    /// The round cannot be made without it.
    fn or_skip(self, reason: impl Into<String>) -> ProbeResult<T> {
        self.or_reason(reason, ProbeError::skip)
    }

    /// An intervention cannot be made without it.
    fn or_refuse(self, reason: impl Into<String>) -> Result<T, SkipReason> {
        self.or_reason(reason, SkipReason::new)
    }

    /// There is no prediction without it.
    fn or_unpredicted(self, reason: impl Into<String>) -> Predicted<T> {
        self.or_reason(reason, NoPrediction::new)
    }
}

impl<T> OrReason<T> for Option<T> {
    fn or_reason<R: Into<String>, E>(self, reason: R, error: impl FnOnce(String) -> E) -> Result<T, E> {
        self.ok_or_else(|| error(reason.into()))
    }
}

impl<T, C: Display> OrReason<T> for Result<T, C> {
    fn or_reason<R: Into<String>, E>(self, reason: R, error: impl FnOnce(String) -> E) -> Result<T, E> {
        self.map_err(|cause| error(format!("{}: {cause}", reason.into())))
    }
}
