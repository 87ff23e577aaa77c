//! Conditions of a request, and whether a file meets them (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

use crate::request::Fields;
use crate::status::Status;

/// What tells one content of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// The strong entity tag, in its quotation marks.
    pub tag: String,
    /// The time of the last modification, in whole seconds.
    pub modified: SystemTime,
}

impl Validators {
    /// Those of a file of this size that was modified so many seconds and nanoseconds after 1970; one of before has that time. A time
    /// that is still to come is said to be now (RFC 9110, section 8.8.2.1).
    pub fn of(size: u64, (seconds, nanoseconds): (i64, u32), now: SystemTime) -> Self {
        let seconds = u64::try_from(seconds).unwrap_or(0).min(LATEST);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(since));
        Self { tag: format!("\"{seconds:x}.{nanoseconds:x}-{size:x}\""), modified }
    }

    /// Whether the file must not be sent as it is asked for, and what is answered instead (section 13.2.2).
    pub fn instead(&self, fields: &Fields<'_>) -> Option<Status> {
        let fails = match (fields.if_match, fields.if_unmodified_since.and_then(date)) {
            (Some(tags), _) => !self.is_among(tags, Comparison::Strong),
            (None, Some(since)) => self.modified > since,
            (None, None) => false,
        };
        if fails {
            return Some(Status::PreconditionFailed);
        }
        let is_known = match (fields.if_none_match, fields.if_modified_since.and_then(date)) {
            (Some(tags), _) => self.is_among(tags, Comparison::Weak),
            (None, Some(since)) => self.modified <= since,
            (None, None) => false,
        };
        is_known.then_some(Status::NotModified)
    }

    /// Whether a range is still one of the content that the client has a part of. A date tells only contents apart that are
    /// a second from each other, so it counts once the file is older than that (section 13.1.5, by 8.8.2.2).
    pub fn continues(&self, if_range: Option<&str>, now: SystemTime) -> bool {
        let Some(known) = if_range else { return true };
        if known.starts_with(['"', 'W']) {
            return known == self.tag;
        }
        let is_old = now.duration_since(self.modified).is_ok_and(|age| age > Duration::from_secs(1));
        is_old && date(known) == Some(self.modified)
    }

    fn is_among(&self, tags: &str, comparison: Comparison) -> bool {
        let is_same = |tag: &str| match (tag.strip_prefix("W/"), comparison) {
            (Some(weak), Comparison::Weak) => weak == self.tag,
            (Some(_), Comparison::Strong) => false,
            (None, _) => tag == self.tag,
        };
        // No tag of ours has a comma, so one that does can be torn apart without becoming one of ours.
        tags.trim() == "*" || tags.split(',').map(str::trim).any(is_same)
    }
}

/// How tags are compared (section 8.8.3.2).
#[derive(Clone, Copy)]
enum Comparison {
    Strong,
    Weak,
}

/// The last second of the year 9999: no later one can be written as a date.
const LATEST: u64 = 253_402_300_799;

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

    fn file() -> Validators {
        Validators::of(0x64, (784_111_777, 0xab), later())
    }

    fn later() -> SystemTime {
        date("Sun, 06 Nov 1994 09:00:00 GMT").unwrap()
    }

    #[test]
    fn a_time_that_is_still_to_come_is_said_to_be_now() {
        let to_come = Validators::of(1, (7_258_118_400, 0), later());
        assert_eq!((to_come.modified, &*to_come.tag), (later(), "\"1b09e1900.0-1\""));
        assert!(
            to_come
                .instead(&Fields { if_unmodified_since: Some("Sun, 06 Nov 1994 09:00:00 GMT"), ..Fields::default() })
                .is_none()
        );
    }

    fn instead(fields: Fields<'_>) -> Option<u16> {
        file().instead(&fields).map(|status| status as u16)
    }

    #[test]
    fn a_tag_changes_with_size_and_time_to_the_nanosecond() {
        assert_eq!(file().tag, "\"2ebc98a1.ab-64\"");
        assert_ne!(Validators::of(0x64, (784_111_777, 0xac), later()).tag, file().tag);
        assert_ne!(Validators::of(0x65, (784_111_777, 0xab), later()).tag, file().tag);
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        let tag = file().tag;
        let list = format!("\"a\", W/{tag}");
        for (tags, expected) in
            [(tag.as_str(), Some(304)), (&list, Some(304)), ("*", Some(304)), ("\"a\"", None), ("", None)]
        {
            assert_eq!(instead(Fields { if_none_match: Some(tags), ..Fields::default() }), expected, "{tags}");
        }
        for (since, expected) in [(DATE, Some(304)), (AFTER, Some(304)), (BEFORE, None), ("yesterday", None)] {
            assert_eq!(instead(Fields { if_modified_since: Some(since), ..Fields::default() }), expected, "{since}");
        }
        let both = Fields { if_none_match: Some("\"a\""), if_modified_since: Some(DATE), ..Fields::default() };
        assert_eq!(instead(both), None, "a tag overrules a date");
    }

    #[test]
    fn a_precondition_that_fails_is_said() {
        let weak = format!("W/{}", file().tag);
        for (tags, expected) in [(file().tag.as_str(), None), ("*", None), ("\"a\"", Some(412)), (&weak, Some(412))] {
            assert_eq!(instead(Fields { if_match: Some(tags), ..Fields::default() }), expected, "{tags}");
        }
        for (since, expected) in [(DATE, None), (BEFORE, Some(412)), ("tomorrow", None)] {
            assert_eq!(instead(Fields { if_unmodified_since: Some(since), ..Fields::default() }), expected, "{since}");
        }
    }

    #[test]
    fn a_range_is_continued_if_the_content_is_the_same_for_sure() {
        let at = |seconds| file().modified + Duration::from_secs(seconds);
        let weak = format!("W/{}", file().tag);
        for (known, now, expected) in [
            (None, 0, true),
            (Some(file().tag.as_str()), 0, true),
            (Some(weak.as_str()), 9, false),
            (Some("\"a\""), 9, false),
            (Some(DATE), 9, true),
            (Some(DATE), 1, false),
            (Some(AFTER), 9, false),
            (Some("nonsense"), 9, false),
        ] {
            assert_eq!(file().continues(known, at(now)), expected, "{known:?} {now}");
        }
    }

    #[test]
    fn a_time_that_no_date_can_have_is_one_that_can() {
        for seconds in [i64::MIN, -1, i64::MAX] {
            for now in [later(), SystemTime::UNIX_EPOCH - Duration::from_secs(1)] {
                httpdate::fmt_http_date(Validators::of(1, (seconds, 0), now).modified);
            }
        }
    }
}
