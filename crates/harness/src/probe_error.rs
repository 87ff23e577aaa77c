//! Why a probe has no readings.

use kelvin_core::SkipReason;

/// Why a probe stopped without readings. Both are results, shown with their reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// It cannot be measured here: what is missing or needed.
    Skip(SkipReason),
    /// It went wrong.
    Fail(String),
}

impl ProbeError {
    /// It cannot be measured here, for this reason.
    pub fn skip(reason: impl Into<String>) -> Self {
        Self::Skip(SkipReason::new(reason))
    }

    /// It went wrong: what was being done, and the error.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self::Fail(reason.into())
    }
}

impl From<std::io::Error> for ProbeError {
    fn from(error: std::io::Error) -> Self {
        Self::Fail(error.to_string())
    }
}
