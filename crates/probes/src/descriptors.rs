//! Whether this process may have as many descriptors as tasks or streams on all CPUs need.

use kelvin_sys::process::raise_open_file_limit;

use crate::reasons::{ProbeResult, skip_if};

/// Descriptors that any process of a probe has.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Lets this process have this many descriptors more: shells and services start programs with 1024, which is too few for hundreds of CPUs.
pub(crate) fn allow_descriptors(count: u64) -> ProbeResult {
    let (needed, allowed) = (count + RESERVED_DESCRIPTORS, raise_open_file_limit()?);
    let reason = format!(
        "needs {needed} descriptors, and this process may have {allowed}: raise the limit by ulimit -Hn {needed}"
    );
    skip_if(needed > allowed, reason)
}

#[cfg(test)]
mod tests {
    use kelvin_harness::ProbeError;

    use super::*;

    #[test]
    fn missing_descriptors_are_skipped_with_the_limit() {
        let allowed = raise_open_file_limit().unwrap();
        assert_eq!(allow_descriptors(allowed - RESERVED_DESCRIPTORS), Ok(()));
        let Err(ProbeError::Skip(reason)) = allow_descriptors(allowed) else { panic!("more than may be had") };
        assert!(
            reason.0.starts_with(&format!("needs {} descriptors, and this process may have {allowed}", allowed + 64))
        );
    }
}
