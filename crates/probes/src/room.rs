//! Whether the scratch directory has room for what a probe writes there.

use std::path::Path;

use kelvin_core::units;
use kelvin_sys::fs::space;

use crate::reasons::{ProbeResult, skip_if};

/// That a directory for test files has room for this many bytes.
pub(crate) fn has_room(scratch: &Path, bytes: u64) -> ProbeResult {
    let available = space(scratch)?.available_bytes;
    let [needed, free] = [bytes, available].map(units::bytes);
    let reason = format!("needs {needed} free in the scratch directory, which has {free}; choose another by --dir");
    skip_if(available < bytes, reason)
}

#[cfg(test)]
mod tests {
    use kelvin_harness::ProbeError;

    use super::*;

    #[test]
    fn missing_room_is_skipped_with_readable_sizes() {
        let scratch = std::env::temp_dir();
        assert!(has_room(&scratch, 1).is_ok());
        let Err(ProbeError::Skip(reason)) = has_room(&scratch, 1 << 60) else { panic!("no disk has an EiB") };
        assert!(reason.0.starts_with("needs 1048576 TiB free in the scratch directory, which has "), "{reason:?}");
        assert!(!reason.0.contains(" bytes"), "{reason:?}");
    }
}
