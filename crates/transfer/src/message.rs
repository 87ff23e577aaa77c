//! The messages of the two ends: JSON, so that every field has a name and a bound where it is read, and the bytes of files never
//! pass through it.
//!
//! For each file the sender announces it and waits for [`FromReceiver::Go`]; then so many bytes go over in data frames, of which
//! an empty one says that the rest will not come; then the sender says how it ended, and the receiver answers once: at the end,
//! or, where it cannot go on, as soon as that is known.

use std::time::{Duration, SystemTime};

use kelvin_wire::bounded::{self, REASON};
use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::summary::Times;

/// What the sender says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromSender {
    /// The beginning.
    Begin(Settings),
    /// A file will follow.
    File(Header),
    /// All its bytes were sent; their digest, unless nothing is verified.
    Whole {
        /// BLAKE3 of what was read.
        digest: Option<[u8; 32]>,
    },
    /// The file could not be sent whole.
    Abandoned {
        /// Why.
        #[serde(deserialize_with = "bounded::text::<REASON, _>")]
        why: String,
    },
    /// All files were sent, with what the sender measured.
    Finish {
        /// Nanoseconds from the sender's first action until the receiver had the last byte.
        nanoseconds: u64,
        /// Files that were not moved.
        failed: u64,
        /// The sender's stages.
        times: Times,
    },
}

/// What holds for all files of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether the bytes of files go unencrypted.
    pub plain: bool,
    /// Whether their digests are compared.
    pub verify: bool,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Its name.
    pub name: Name,
    /// Its size.
    pub bytes: u64,
    /// Its permissions; others than for reading, writing and executing are ignored.
    pub mode: u32,
    /// When it was last written.
    pub modified: Modified,
}

/// A time of modification, as stat(2) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modified {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds of the next second.
    pub nanoseconds: u32,
}

impl Modified {
    /// The same for the standard library; none where it is out of its range.
    pub fn time(self) -> Option<SystemTime> {
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let second = match self.seconds {
            0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
            _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
        };
        let rest = (self.nanoseconds < 1_000_000_000).then(|| Duration::from_nanos(self.nanoseconds.into()));
        second?.checked_add(rest?)
    }
}

/// What the receiver answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromReceiver {
    /// The file may come.
    Go,
    /// The file is in its place.
    Kept {
        /// Nanoseconds since its last byte arrived.
        after: u64,
    },
    /// The file will not be kept.
    Failed {
        /// Why.
        #[serde(deserialize_with = "bounded::text::<REASON, _>")]
        why: String,
    },
    /// The receiver's stages, at the end.
    Times(Times),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_1970_and_one_out_of_range() {
        let time = |seconds, nanoseconds| Modified { seconds, nanoseconds }.time();
        let from = |time: Option<SystemTime>| SystemTime::UNIX_EPOCH.duration_since(time.unwrap()).unwrap_err();
        assert_eq!(from(time(1, 5)).duration(), Duration::new(1, 5));
        assert_eq!(
            SystemTime::UNIX_EPOCH.duration_since(time(-2, 250_000_000).unwrap()).unwrap(),
            Duration::from_millis(1750)
        );
        assert_eq!(time(0, 1_000_000_000), None);
        assert_eq!((time(i64::MAX, 999_999_999).is_some(), time(i64::MIN, 0).is_some()), (true, true));
    }

    #[test]
    fn what_the_other_side_says_is_bounded() {
        let read = |text: String| serde_json::from_str::<FromReceiver>(&text);
        let failed = |why: &str| read(serde_json::json!({"failed": {"why": why}}).to_string());
        assert!(
            failed("disk full").is_ok() && failed(&"x".repeat(REASON + 1)).is_err() && failed("\u{1b}[2J").is_err()
        );
        let header = serde_json::json!({"file": {"name": b"../x", "bytes": 1, "mode": 0, "modified": {"seconds": 0, "nanoseconds": 0}}});
        let error = serde_json::from_value::<FromSender>(header).unwrap_err();
        assert!(error.to_string().contains("a name with a slash"), "{error}");
    }
}
