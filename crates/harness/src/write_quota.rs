//! Bytes that the rounds of a run have written to files, to keep their total within the limit.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use kelvin_core::units;

use crate::probe_error::ProbeError;

/// The name of the ledger in the scratch directory.
const QUOTA_FILE: &str = "written";

/// Adds so many bytes, if the limit allows.
pub(crate) fn reserve(scratch: &Path, limit: u64, bytes: u64) -> Result<(), ProbeError> {
    let path = scratch.join(QUOTA_FILE);
    let failed = |error: std::io::Error| {
        ProbeError::fail(format!("cannot update the write counter {}: {error}", path.display()))
    };
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    // Other rounds may be writing: the lock ends with the file.
    file.lock().map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let written: u64 = if text.is_empty() {
        0
    } else {
        text.trim().parse().map_err(|_| ProbeError::fail("the write counter is corrupt"))?
    };
    let total = written.saturating_add(bytes);
    if total > limit {
        let [more, written, limit] = [bytes, written, limit].map(units::bytes);
        return Err(ProbeError::skip(format!(
            "needs to write {more} more, but {written} of the {limit} that this run may write are used up; raise \
             --write-limit"
        )));
    }
    file.rewind().map_err(failed)?;
    // The number never gets shorter, so no digits of an older one remain.
    write!(file, "{total}").map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_stop_at_limit() {
        let directory = std::env::temp_dir().join(format!("kelvin-ledger-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        assert_eq!(reserve(&directory, 1000, 9), Ok(()));
        assert_eq!(reserve(&directory, 1000, 900), Ok(()));
        assert!(
            matches!(reserve(&directory, 1000, 92), Err(ProbeError::Skip(reason)) if reason.0.contains("909 B of the 1000 B"))
        );
        assert_eq!(reserve(&directory, 1000, 91), Ok(()));
        assert_eq!(std::fs::read_to_string(directory.join(QUOTA_FILE)).unwrap(), "1000");
        std::fs::remove_dir_all(directory).unwrap();
        assert!(matches!(reserve(Path::new("/no such directory"), 1, 1), Err(ProbeError::Fail(_))));
    }
}
