//! Ranges of bytes that a request asks for (RFC 9110, section 14).

use std::ops::Range;

/// Most ranges of a request: a client that wants more gets the whole file, since many small ones cost more than they save.
const MOST: usize = 16;

/// What is to be sent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: no range was asked for, or none that is understood.
    Whole,
    /// These parts, of which there is at least one.
    Parts(Vec<Range<u64>>),
    /// Nothing: none of the ranges lies in the file.
    Unsatisfiable,
}

/// What a `Range` field asks for of a file of this size.
///
/// Ranges that together are more than the file are refused by sending it whole, so that a small request never costs more than
/// the file does.
pub fn wanted(field: &str, size: u64) -> Wanted {
    let Some((unit, list)) = field.split_once('=') else { return Wanted::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let (mut parts, mut total, mut count) = (Vec::new(), 0u64, 0);
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let Some(range) = one(text, size) else { return Wanted::Whole };
        count += 1;
        if !range.is_empty() {
            total = total.saturating_add(range.end - range.start);
            parts.push(range);
        }
    }
    match (count, parts.is_empty()) {
        (0, _) => Wanted::Whole,
        (_, true) => Wanted::Unsatisfiable,
        _ if count > MOST || total > size => Wanted::Whole,
        _ => Wanted::Parts(parts),
    }
}

/// One range; empty if none of it lies in the file, `None` if it is none.
fn one(text: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    match (first, last) {
        ("", suffix) => Some(size.saturating_sub(number(suffix)?)..size),
        (first, "") => Some(number(first)?.min(size)..size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first.min(size)..last.saturating_add(1).min(size))
        }
    }
}

/// A number of digits alone; one that is too large for any file is larger than each.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(ranges: &[Range<u64>]) -> Wanted {
        Wanted::Parts(ranges.to_vec())
    }

    fn part(range: Range<u64>) -> Wanted {
        Wanted::Parts(vec![range])
    }

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (field, expected) in [
            ("bytes=0-0", part(0..1)),
            ("bytes=0-", part(0..100)),
            ("bytes=90-200", part(90..100)),
            ("bytes=-5", part(95..100)),
            ("bytes=-500", part(0..100)),
            ("Bytes = 1-2 , 4-5", parts(&[1..3, 4..6])),
            ("bytes=0-0,-1", parts(&[0..1, 99..100])),
            ("bytes=200-,5-6", part(5..7)),
            ("bytes=0-99999999999999999999999999", part(0..100)),
            ("bytes=100-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=200-300,400-", Wanted::Unsatisfiable),
            ("bytes=99999999999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=", Wanted::Whole),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=--1", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("bytes=1 -2", Wanted::Whole),
            ("bytes=0x1-2", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
            ("1-2", Wanted::Whole),
        ] {
            assert_eq!(wanted(field, 100), expected, "{field}");
        }
    }

    #[test]
    fn an_empty_file_has_no_range() {
        assert_eq!(wanted("bytes=0-", 0), Wanted::Unsatisfiable);
        assert_eq!(wanted("bytes=-1", 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn many_ranges_cost_no_more_than_the_file() {
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert!(matches!(wanted(&many(MOST), 100), Wanted::Parts(_)));
        assert_eq!(wanted(&many(MOST + 1), 100), Wanted::Whole);
        assert_eq!(wanted("bytes=0-,0-", 100), Wanted::Whole);
        assert_eq!(wanted("bytes=0-60,40-", 100), Wanted::Whole, "overlapping");
    }
}
