//! Conditions of a request, and whether a file meets them (RFC 9110, section 13).

use std::time::{Duration, SystemTime};

use http::StatusCode;

use crate::serve::request::RequestFields;

/// What distinguishes one content of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// The strong entity tag, in its quotation marks.
    pub tag: String,
    /// The time of the last modification, in whole seconds.
    pub modified: SystemTime,
}

impl Validators {
    /// Those of a file of this size that was modified this many seconds and nanoseconds after 1970; one of before has that time. A time
    /// that is still to come is replaced by now (RFC 9110, section 8.8.2.1).
    pub fn from_metadata(size: u64, (seconds, nanoseconds): (i64, u32), now: SystemTime) -> Self {
        let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST_HTTP_DATE);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(since));
        Self { tag: format!("\"{seconds:x}.{nanoseconds:x}-{size:x}\""), modified }
    }

    /// Those of a representation that has this content coding: its tag is no other one's.
    pub(crate) fn of_coding(mut self, coding: &str) -> Self {
        self.tag.insert_str(self.tag.len() - 1, &format!("-{coding}"));
        self
    }

    /// Whether the file must not be sent as it is asked for, and what is answered instead (section 13.2.2).
    pub fn evaluate_preconditions(&self, fields: &RequestFields<'_>) -> Option<StatusCode> {
        let fails = match (fields.if_match, fields.if_unmodified_since.and_then(parse_http_date)) {
            (Some(tags), _) => !self.matches_etag_list(tags, false),
            (None, Some(since)) => self.modified > since,
            (None, None) => false,
        };
        if fails {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let is_unmodified = match (fields.if_none_match, fields.if_modified_since.and_then(parse_http_date)) {
            (Some(tags), _) => self.matches_etag_list(tags, true),
            (None, Some(since)) => self.modified <= since,
            (None, None) => false,
        };
        is_unmodified.then_some(StatusCode::NOT_MODIFIED)
    }

    /// Whether a range is still one of the content that the client has a part of. A date distinguishes only contents that are
    /// a second from each other, so it counts once the file is older than that (section 13.1.5, by 8.8.2.2).
    pub fn matches_if_range(&self, if_range: Option<&str>, now: SystemTime) -> bool {
        let Some(validator) = if_range else { return true };
        if validator.starts_with(['"', 'W']) {
            return validator == self.tag;
        }
        let is_old = now.duration_since(self.modified).is_ok_and(|age| age > Duration::from_secs(1));
        is_old && parse_http_date(validator) == Some(self.modified)
    }

    /// Whether a list has the tag; weak tags count where only the meaning must be equal (section 8.8.3.2).
    fn matches_etag_list(&self, tags: &str, is_weak: bool) -> bool {
        let matches_tag = |tag: &str| tag == self.tag || (is_weak && tag.strip_prefix("W/") == Some(&self.tag));
        // No tag of ours has a comma, so one that does can be torn apart without becoming one of ours.
        tags.trim() == "*" || tags.split(',').map(str::trim).any(matches_tag)
    }
}

/// The last second of the year 9999: no later one can be written as a date.
const LAST_HTTP_DATE: u64 = 253_402_300_799;

fn parse_http_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

    fn file() -> Validators {
        Validators::from_metadata(0x64, (784_111_777, 0xab), later_date())
    }

    fn later_date() -> SystemTime {
        parse_http_date("Sun, 06 Nov 1994 09:00:00 GMT").unwrap()
    }

    #[test]
    fn future_mtime_is_reported_as_now() {
        let validators = Validators::from_metadata(1, (7_258_118_400, 0), later_date());
        assert_eq!((validators.modified, &*validators.tag), (later_date(), "\"1b09e1900.0-1\""));
        assert!(
            validators
                .evaluate_preconditions(&RequestFields {
                    if_unmodified_since: Some("Sun, 06 Nov 1994 09:00:00 GMT"),
                    ..RequestFields::default()
                })
                .is_none()
        );
    }

    fn evaluate(fields: RequestFields<'_>) -> Option<u16> {
        file().evaluate_preconditions(&fields).map(|status| status.as_u16())
    }

    #[test]
    fn etag_depends_on_size_and_nanoseconds() {
        assert_eq!(file().tag, "\"2ebc98a1.ab-64\"");
        assert_ne!(Validators::from_metadata(0x64, (784_111_777, 0xac), later_date()).tag, file().tag);
        assert_ne!(Validators::from_metadata(0x65, (784_111_777, 0xab), later_date()).tag, file().tag);
    }

    #[test]
    fn matching_validator_is_304() {
        let tag = file().tag;
        let list = format!("\"a\", W/{tag}");
        for (tags, expected) in
            [(tag.as_str(), Some(304)), (&list, Some(304)), ("*", Some(304)), ("\"a\"", None), ("", None)]
        {
            assert_eq!(
                evaluate(RequestFields { if_none_match: Some(tags), ..RequestFields::default() }),
                expected,
                "{tags}"
            );
        }
        for (since, expected) in [(DATE, Some(304)), (AFTER, Some(304)), (BEFORE, None), ("yesterday", None)] {
            assert_eq!(
                evaluate(RequestFields { if_modified_since: Some(since), ..RequestFields::default() }),
                expected,
                "{since}"
            );
        }
        let fields =
            RequestFields { if_none_match: Some("\"a\""), if_modified_since: Some(DATE), ..RequestFields::default() };
        assert_eq!(evaluate(fields), None, "a tag overrules a date");
    }

    #[test]
    fn failed_precondition_is_412() {
        let weak_etag = format!("W/{}", file().tag);
        for (tags, expected) in
            [(file().tag.as_str(), None), ("*", None), ("\"a\"", Some(412)), (&weak_etag, Some(412))]
        {
            assert_eq!(
                evaluate(RequestFields { if_match: Some(tags), ..RequestFields::default() }),
                expected,
                "{tags}"
            );
        }
        for (since, expected) in [(DATE, None), (BEFORE, Some(412)), ("tomorrow", None)] {
            assert_eq!(
                evaluate(RequestFields { if_unmodified_since: Some(since), ..RequestFields::default() }),
                expected,
                "{since}"
            );
        }
    }

    #[test]
    fn if_range_needs_strong_validator() {
        let time_after = |seconds| file().modified + Duration::from_secs(seconds);
        let weak_etag = format!("W/{}", file().tag);
        for (if_range, now, expected) in [
            (None, 0, true),
            (Some(file().tag.as_str()), 0, true),
            (Some(weak_etag.as_str()), 9, false),
            (Some("\"a\""), 9, false),
            (Some(DATE), 9, true),
            (Some(DATE), 1, false),
            (Some(AFTER), 9, false),
            (Some("nonsense"), 9, false),
        ] {
            assert_eq!(file().matches_if_range(if_range, time_after(now)), expected, "{if_range:?} {now}");
        }
    }

    #[test]
    fn unrepresentable_mtime_is_clamped() {
        for seconds in [i64::MIN, -1, i64::MAX] {
            for now in [later_date(), SystemTime::UNIX_EPOCH - Duration::from_secs(1)] {
                httpdate::fmt_http_date(Validators::from_metadata(1, (seconds, 0), now).modified);
            }
        }
    }
}
