//! Durations, sizes and rates as people type them: one way to read each, for all commands.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Units of a duration, in seconds; a bare number is in seconds.
const DURATION_UNITS: [(&str, f64); 9] = [
    ("µs", 1e-6),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
];
/// The shortest and the longest duration: a microsecond and a century.
const ALL_DURATIONS: [Duration; 2] = [Duration::from_micros(1), Duration::from_secs(36_525 * 86_400)];

/// A duration such as `500ms`, `1.5s`, `10m`, `2h`, `30d`; a bare number is in seconds. From a microsecond to a century.
///
/// # Errors
/// What is right.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let [low, high] = ALL_DURATIONS;
    parse_duration_within(text, low, high)
}

/// Like `parse_duration`, within bounds, which an error names.
///
/// # Errors
/// What is right.
pub fn parse_duration_within(text: &str, low: Duration, high: Duration) -> Result<Duration, String> {
    const SYNTAX: &str =
        "a time is a number and a unit, such as 500ms, 45s, 10m or 2h (us, ms, s, m, h, d, w; seconds without one)";
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "" => Some(1.0),
        unit => DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor),
    };
    let seconds = number.zip(factor).map(|(number, factor)| number * factor).ok_or(SYNTAX)?;
    if (low.as_secs_f64()..=high.as_secs_f64()).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(format!("it must be between {} and {}; {SYNTAX}", duration_text(low), duration_text(high)))
}

/// A bound of durations in the largest unit up to days that it is a whole number of.
fn duration_text(bound: Duration) -> String {
    let is_whole = |(_, factor): &&(&str, f64)| (bound.as_secs_f64() / factor).fract() == 0.0 && *factor <= 86_400.0;
    let (unit, factor) = DURATION_UNITS.iter().rev().find(is_whole).unwrap_or(&("s", 1.0));
    format!("{} {unit}", bound.as_secs_f64() / factor)
}

/// A number of bytes such as `4096`, `4k`, `4KiB` (1024 each), `4kB` (1000 each), `1.5G`.
///
/// # Errors
/// What is right.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    const SYNTAX: &str = "a size is a number of bytes, such as 4096, 4k or 4KiB (1024 each), 4kB (1000 each), 1M, 1G";
    let (number, unit) = split_unit(text);
    let number = number.ok_or(SYNTAX)?;
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.as_str() {
        "" | "b" => ("", 1.0f64),
        "kib" | "mib" | "gib" | "tib" => (&unit[..1], 1024.0),
        "kb" | "mb" | "gb" | "tb" => (&unit[..1], 1000.0),
        prefix => (prefix, 1024.0),
    };
    let power = ["", "k", "m", "g", "t"].iter().position(|symbol| *symbol == prefix).ok_or(SYNTAX)?;
    let value = number * base.powi(power as i32);
    if value.fract() != 0.0 || !(1.0..9e15).contains(&value) {
        return Err("it must be a whole number of bytes, at least one and less than 8 PiB".into());
    }
    Ok(value as u64)
}

/// Bits a second with decimal prefixes, as links have them: `100M`, `1.5G`.
///
/// # Errors
/// What is right.
pub fn parse_bits_per_second(text: &str) -> Result<f64, String> {
    const SYNTAX: &str = "bits a second are a number, such as 100M or 1.5G (k, M, G: 1000 each)";
    let (number, unit) = split_unit(text);
    let power = ["", "k", "M", "G"].iter().position(|symbol| *symbol == unit).ok_or(SYNTAX)?;
    Ok(number.ok_or(SYNTAX)? * 1000f64.powi(power as i32))
}

/// A percentage with or without its sign, above 0, as a share.
///
/// # Errors
/// What is right.
pub fn parse_percentage(text: &str) -> Result<f64, String> {
    const SYNTAX: &str = "expected a percentage above 0, such as 2 or 2%";
    match split_unit(text) {
        (Some(number), "" | "%") if number > 0.0 => Ok(number / 100.0),
        _ => Err(SYNTAX.into()),
    }
}

/// A number of ASCII digits with or without a decimal point, and the unit that follows it, after a space or not: `1 MiB` is how kelvin
/// itself writes.
fn split_unit(text: &str) -> (Option<f64>, &str) {
    const SPACES: [char; 3] = [' ', '\u{a0}', '\u{202f}'];
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let unit = rest.strip_prefix(SPACES).filter(|unit| !unit.is_empty()).unwrap_or(rest);
    (number.parse().ok(), unit)
}

/// Bytes that must move in any time of this length: what a modem of 300 bits a second carries of them in it, so that no link that
/// files go over is too slow. A disk that flushes may take long, and a host that is gone must not hold a place for ever.
const DEFAULT_PROGRESS_BYTES: u64 = 4096;
const DEFAULT_PROGRESS_WINDOW: Duration = Duration::from_secs(120);
/// The longest and the shortest time that makes sense: a day, and what several round trips of the longest links take.
const MAX_PROGRESS_WINDOW: Duration = Duration::from_secs(86_400);
const MIN_PROGRESS_WINDOW: Duration = Duration::from_secs(1);

/// The least progress of a connection: this many bytes in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinProgress {
    /// Bytes, one at least.
    pub bytes: u64,
    /// The time in which they must move.
    pub interval: Duration,
}

impl Default for MinProgress {
    fn default() -> Self {
        Self { bytes: DEFAULT_PROGRESS_BYTES, interval: DEFAULT_PROGRESS_WINDOW }
    }
}

impl FromStr for MinProgress {
    type Err = String;

    /// As `4KiB/2min`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (amount, interval) = text.split_once('/').ok_or("give BYTES/TIME, such as 4KiB/2min")?;
        Ok(Self {
            bytes: parse_bytes(amount)?,
            interval: parse_duration_within(interval, MIN_PROGRESS_WINDOW, MAX_PROGRESS_WINDOW)?,
        })
    }
}

impl fmt::Display for MinProgress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}B/{}s", self.bytes, self.interval.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_from_microseconds_to_weeks() {
        for (text, seconds) in [
            ("500ms", 0.5),
            ("0.5s", 0.5),
            ("250us", 250e-6),
            ("250µs", 250e-6),
            ("90", 90.0),
            ("45s", 45.0),
            ("10m", 600.0),
            ("1.5h", 5400.0),
            ("30d", 2_592_000.0),
            ("2w", 1_209_600.0),
            ("1.5 s", 1.5),
            ("2\u{202f}min", 120.0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for invalid in [
            "", "m", "-5s", "0s", "0", "1e9", "nan", "inf", "5x", "µ", "1  s", "1 ", " 1s", "5S", "36526d", "0.1us",
            "٤s", "1.2.3s",
        ] {
            assert!(parse_duration(invalid).is_err(), "{invalid}");
        }
        let (min, max) = (Duration::from_millis(10), Duration::from_secs(60));
        assert!(parse_duration_within("10ms", min, max).is_ok());
        for invalid in ["9ms", "61", "0", "1e9", "200w", "99999999999999999999w"] {
            let error = parse_duration_within(invalid, min, max).unwrap_err();
            assert_eq!(
                error.starts_with("it must be between 10 ms and 1 min; "),
                invalid != "1e9",
                "{invalid}: {error}"
            );
        }
        assert!(parse_duration("0").unwrap_err().starts_with("it must be between 1 us and 36525 d; "));
        let error = parse_duration_within("2w", min, Duration::from_secs(604_800)).unwrap_err();
        assert!(error.starts_with("it must be between 10 ms and 7 d; "), "{error}");
    }

    #[test]
    fn sizes_have_binary_and_decimal_prefixes() {
        for (text, expected) in [
            ("1", 1),
            ("512b", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("1.5M", 1_572_864),
            ("2MB", 2_000_000),
            ("1G", 1 << 30),
            ("1t", 1 << 40),
            ("1 MiB", 1 << 20),
            ("4\u{a0}kB", 4000),
        ] {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        for invalid in [
            "", "k", "-4k", "0", "4x", "4kk", "1e3", "0.3", "nan", "9999999T", "4  k", "4 ", " 4k", "1 000", "٤k",
            "4ib", "4iB",
        ] {
            assert!(parse_bytes(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn rates_have_decimal_prefixes_and_percentages_a_sign() {
        assert_eq!((parse_bits_per_second("100M"), parse_bits_per_second("1.5G")), (Ok(100e6), Ok(1.5e9)));
        assert_eq!((parse_percentage("2"), parse_percentage("2.5%")), (Ok(0.02), Ok(0.025)));
        for invalid in ["", "M", "100Mbit", "-1M", "NaN", "inf", "100m"] {
            assert!(parse_bits_per_second(invalid).is_err(), "{invalid}");
        }
        for invalid in ["", "0", "%", "-1", "x", "5%%"] {
            assert!(parse_percentage(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn min_progress_round_trips_as_text() {
        assert_eq!("4KiB/2min".parse(), Ok(MinProgress::default()));
        assert_eq!(MinProgress::default().to_string().parse(), Ok(MinProgress::default()));
        for invalid in ["4KiB", "0/2min", "4KiB/0s", "4KiB/2d", "/", "4KiB/"] {
            assert!(invalid.parse::<MinProgress>().is_err(), "{invalid}");
        }
    }
}
