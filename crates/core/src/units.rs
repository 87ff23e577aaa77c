//! Quantities for people: the right unit, and no more digits than the interval supports. Every number that kelvin shows is
//! formatted here.

use std::fmt;

use crate::{AxisScale, Case, Interval, IntervalKind, Metric, Unit, Value};

/// Significant digits of a value whose error is not known.
const DEFAULT_DIGITS: i32 = 3;

/// Maximum significant digits: more are finer than a clock's calibration.
const MAX_DIGITS: i32 = 5;

/// A quantity ready to be read: `61.2`, `± 0.4`, `ns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// The value, scaled and rounded.
    pub value: String,
    /// Its uncertainty, in the same scale: `± 0.4`, or `[60.8 to 61.9]` for a range.
    pub spread: Option<String>,
    /// Unit symbol; empty for pure numbers.
    pub unit: &'static str,
}

impl Quantity {
    /// The value with its unit, without the spread: `61.2 ns`.
    pub fn value_and_unit(&self) -> String {
        join(&[&self.value, self.unit])
    }
}

impl fmt::Display for Quantity {
    /// `61.2 ± 0.4 ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&join(&[&self.value, self.spread.as_deref().unwrap_or(""), self.unit]))
    }
}

fn join(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// A scale for reading: values are divided by `factor` and carry `symbol`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// One of these in base units.
    pub factor: f64,
    /// Its symbol.
    pub symbol: &'static str,
}

const fn scale(factor: f64, symbol: &'static str) -> Scale {
    Scale { factor, symbol }
}

/// The scales of a unit, smallest first.
pub fn scales(unit: Unit) -> &'static [Scale] {
    const TIME: [Scale; 4] = [scale(1.0, "ns"), scale(1e3, "µs"), scale(1e6, "ms"), scale(1e9, "s")];
    const CYCLES: [Scale; 3] = [scale(1.0, "cycles"), scale(1e3, "kcycles"), scale(1e6, "Mcycles")];
    const FREQUENCY: [Scale; 4] = [scale(1.0, "Hz"), scale(1e3, "kHz"), scale(1e6, "MHz"), scale(1e9, "GHz")];
    const SIZE: [Scale; 5] = [
        scale(1.0, "B"),
        scale(1024.0, "KiB"),
        scale(1_048_576.0, "MiB"),
        scale(1_073_741_824.0, "GiB"),
        scale(1_099_511_627_776.0, "TiB"),
    ];
    const RATE: [Scale; 4] = [scale(1.0, "B/s"), scale(1e3, "kB/s"), scale(1e6, "MB/s"), scale(1e9, "GB/s")];
    const OPERATIONS: [Scale; 3] = [scale(1.0, "/s"), scale(1e3, "k/s"), scale(1e6, "M/s")];
    const NUMBER: [Scale; 1] = [scale(1.0, "")];
    match unit {
        Unit::Nanoseconds => &TIME,
        Unit::Cycles => &CYCLES,
        Unit::Hertz => &FREQUENCY,
        Unit::Bytes => &SIZE,
        Unit::BytesPerSecond => &RATE,
        Unit::PerSecond => &OPERATIONS,
        Unit::Ratio | Unit::Count => &NUMBER,
    }
}

/// Whether a word is the sign of a unit, or of a percentage; `us` is `µs` in ASCII.
pub fn is_unit_sign(word: &str) -> bool {
    const UNITS: [Unit; 6] =
        [Unit::Nanoseconds, Unit::Cycles, Unit::Hertz, Unit::Bytes, Unit::BytesPerSecond, Unit::PerSecond];
    let mut symbols = UNITS.iter().flat_map(|unit| scales(*unit)).map(|scale| scale.symbol);
    ["%", "us"].contains(&word) || symbols.any(|symbol| symbol == word)
}

/// The scales of a unit with the size from which on a value is written in them, smallest first.
pub fn reading_scales(unit: Unit) -> impl Iterator<Item = (f64, Scale)> {
    // Cycles stay whole up to 99 999: people compare them digit by digit with instruction tables.
    let factor = if unit == Unit::Cycles { 100.0 } else { 1.0 };
    // Slightly below the boundary rounds up to it: 999.97 ns is 1.00 µs.
    scales(unit).iter().map(move |scale| (scale.factor * factor * 0.9995, *scale))
}

/// The scale in which a value reads best: the largest one that leaves at least one whole unit.
pub fn scale_for(value: f64, unit: Unit) -> Scale {
    reading_scales(unit).filter(|(size, _)| value.abs() >= *size).last().map_or(scales(unit)[0], |(_, scale)| scale)
}

/// The scale in which a value reads best once it is rounded to what its error supports: 997 ± 900 µs is 1.0 ± 0.9 ms.
fn scale_of_rounded(value: f64, half_width: Option<f64>, unit: Unit) -> Scale {
    let scale = scale_for(value, unit);
    let scaled = value / scale.factor;
    let step = 10f64.powi(decimal_place(scaled, half_width.map(|half| half / scale.factor)));
    scale_for((scaled / step).round() * step * scale.factor, unit)
}

/// Exponent of the first digit of a positive number: 0 for 1 to 9.99.
fn decimal_exponent(value: f64) -> i32 {
    value.abs().log10().floor() as i32
}

/// The decimal place to which value and error are rounded: two digits of an error that begins with 1, else one.
///
/// One digit of an error of 1.4 would change it by 30 %; two digits of 8.3 would claim what nobody knows.
fn error_place(half_width: f64) -> i32 {
    let place = decimal_exponent(half_width);
    let leading = half_width / 10f64.powi(place);
    if leading < 1.95 { place - 1 } else { place }
}

fn round_to_place(value: f64, place: i32) -> String {
    let step = 10f64.powi(place);
    let value = (value / step).round() * step;
    let value = if value == 0.0 { 0.0 } else { value };
    format!("{value:.decimals$}", decimals = usize::try_from(-place).unwrap_or(0))
}

/// The decimal place to which a scaled value is rounded.
fn decimal_place(value: f64, half_width: Option<f64>) -> i32 {
    let first = if value == 0.0 { 0 } else { decimal_exponent(value) };
    match half_width.filter(|half| half.is_finite() && *half > 0.0) {
        Some(half) if value == 0.0 => error_place(half),
        Some(half) => error_place(half).clamp(first + 1 - MAX_DIGITS, first),
        // A value that rounds up to the next power of ten has one digit more before the point.
        None => decimal_exponent(if value == 0.0 { 1.0 } else { value * 1.0005 }) + 1 - DEFAULT_DIGITS,
    }
}

/// A value with the half-width of its interval, if there is one.
pub fn quantity(value: f64, half_width: Option<f64>, unit: Unit) -> Quantity {
    if !value.is_finite() {
        return Quantity { value: value.to_string(), spread: None, unit: scales(unit)[0].symbol };
    }
    let scale = scale_of_rounded(value, half_width, unit);
    let (scaled, half) = (value / scale.factor, half_width.map(|half| half / scale.factor));
    let place = decimal_place(scaled, half);
    let spread = half.filter(|half| half.is_finite()).map(|half| format!("± {}", error_at_place(half, place)));
    Quantity { value: round_to_place(scaled, place), spread, unit: scale.symbol }
}

/// An error at its place; one that would round to nothing keeps its first digit.
fn error_at_place(half: f64, place: i32) -> String {
    if half > 0.0 && half < 0.5 * 10f64.powi(place) {
        format!("<{}", round_to_place(10f64.powi(place), place))
    } else {
        round_to_place(half, place)
    }
}

/// A value alone, to three significant digits.
pub fn value_text(value: f64, unit: Unit) -> String {
    quantity(value, None, unit).value_and_unit()
}

/// A value alone, to three significant digits, or fewer if its interval supports no more: `61.2 ns`, `60 ns`.
pub fn brief_value(value: f64, half_width: Option<f64>, unit: Unit) -> String {
    if !value.is_finite() {
        return value_text(value, unit);
    }
    let scale = scale_of_rounded(value, half_width, unit);
    let (scaled, half) = (value / scale.factor, half_width.map(|half| half / scale.factor));
    join(&[&round_to_place(scaled, decimal_place(scaled, half).max(decimal_place(scaled, None))), scale.symbol])
}

/// A value with an interval: `61.2 ± 0.4 ns`, or `61.2 [60.8 to 61.9] ns` if there are only rounds enough for a range, or if half of it
/// is as large as the value: what is never below 0 is not 200 ± 600.
pub fn with_interval(value: f64, interval: Option<Interval>, unit: Unit) -> Quantity {
    let Some(interval) = interval else { return quantity(value, None, unit) };
    let mut text = quantity(value, Some(interval.half_width()), unit);
    let is_wide =
        interval.half_width().is_finite() && interval.half_width() >= value.abs() && interval.half_width() > 0.0;
    if (interval.kind == IntervalKind::Range || is_wide) && value.is_finite() {
        let scale = scale_of_rounded(value, Some(interval.half_width()), unit);
        let place = decimal_place(value / scale.factor, Some(interval.half_width() / scale.factor));
        let end = |bound: f64| round_to_place(bound / scale.factor, place);
        text.spread = Some(format!("[{} to {}]", end(interval.lower), end(interval.upper)));
    }
    text
}

/// A text about cycles without the word: `358 kcycles` is `358k`.
pub fn without_cycles(text: &str) -> String {
    text.replace(" kcycles", "k").replace(" Mcycles", "M").replace(" cycles", "")
}

/// A range in one unit, chosen by its upper end: `80.1 to 310 µs`, or with both units if they are far apart.
pub fn span(low: f64, high: f64, unit: Unit) -> String {
    let (from, to) = (quantity(low, None, unit), quantity(high, None, unit));
    if from == to {
        return from.value_and_unit();
    }
    if from.unit == to.unit {
        return join(&[&format!("{} to {}", from.value, to.value), to.unit]);
    }
    format!("{} to {}", from.value_and_unit(), to.value_and_unit())
}

/// A pure number, to three significant digits at most: `1.06`, `0.42`, `12.3`, `1234`.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => value.to_string(),
        0.0 => "0".into(),
        size if size >= 99.5 => format!("{value:.0}"),
        size if size >= 9.95 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        size => round_to_place(value, decimal_exponent(size.max(f64::MIN_POSITIVE)) - 1),
    }
}

/// A share of a whole: `64 %`; never 0 or 100 % unless it is exactly that.
pub fn percent(value: f64) -> String {
    let hundredths = value * 100.0;
    match hundredths.abs() {
        size if size > 0.0 && size < 0.1 => format!("{}<0.1 %", if hundredths < 0.0 { "-" } else { "" }),
        size if size < 9.95 && size > 0.0 => format!("{hundredths:.1} %"),
        size if (99.5..100.0).contains(&size) => ">99 %".into(),
        _ => format!("{hundredths:.0} %"),
    }
}

/// A p value that is never printed as zero.
pub fn p_value(p: f64) -> String {
    if p < 0.001 { "p < 0.001".into() } else { format!("p = {p:.3}") }
}

/// A time span of a run: `12.3 s`, `2 min 30 s`, `1 h 5 min`.
pub fn seconds(value: f64) -> String {
    let rounded = value.round() as u64;
    match rounded {
        0..60 => value_text(value * 1e9, Unit::Nanoseconds),
        60..3600 => format!("{} min {} s", rounded / 60, rounded % 60),
        _ => format!("{} h {} min", rounded / 3600, rounded % 3600 / 60),
    }
}

/// Bytes from which a size that is no whole number of a unit is rounded.
const MIN_ROUNDED_BYTES: u64 = 4 << 10;

/// A number of bytes, exact if small, a whole number of a binary unit, or one that somebody chose in decimal digits: `64 KiB`, `1 GiB`,
/// `1472 B`, `10000 B`, `1.43 MiB`.
pub fn bytes(value: u64) -> String {
    let is_whole = (value as f64 / scale_for(value as f64, Unit::Bytes).factor).fract() == 0.0;
    match value {
        0..MIN_ROUNDED_BYTES if !is_whole => format!("{value} B"),
        _ if is_whole || is_decimal(value) => exact_bytes(value),
        _ => value_text(value as f64, Unit::Bytes),
    }
}

/// Whether a number has at most two digits before its zeros: a user chose it, and it stands next to others such as 1000 B.
fn is_decimal(value: u64) -> bool {
    const MAX_DECIMAL: u64 = 10_000_000;
    let power = 10_u64.pow(value.max(1).ilog10().saturating_sub(1));
    value <= MAX_DECIMAL && value.is_multiple_of(power)
}

/// A size that was asked for, as it was: whole binary units, or bytes. Never rounded: `4 KiB`, `10 000 B`, `1 500 001 B`.
pub fn exact_bytes(value: u64) -> String {
    let scale = scale_for(value as f64, Unit::Bytes);
    let scaled = value as f64 / scale.factor;
    if scaled.fract() == 0.0 { format!("{scaled} {}", scale.symbol) } else { format!("{} B", count(value)) }
}

/// A number of bytes in the decimal units in which rates are: `2 MB`, `4.29 GB`.
pub fn decimal_bytes(value: f64) -> String {
    stated_value(value, Unit::BytesPerSecond, 2).trim_end_matches("/s").to_owned()
}

/// A number of files.
pub fn files(value: u64) -> String {
    if value == 1 { "1 file".to_owned() } else { format!("{} files", count(value)) }
}

/// A number with its noun: `1 round`, `3 rounds`.
pub fn plural(count: u64, singular: &str) -> String {
    format!("{} {singular}{}", self::count(count), if count == 1 { "" } else { "s" })
}

/// A whole number in groups of three, with narrow no-break spaces: `1 234 567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        // Four digits read well without a gap.
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// The value of an axis, for people.
pub fn axis_value(value: Value, scale: AxisScale) -> String {
    match value {
        Value::Integer(number) if scale == AxisScale::Bytes => bytes(number),
        Value::Integer(number) => count(number),
        Value::Word(word) => word.to_string(),
    }
}

/// The axes of a case with their values, in the order of the metric's axes, then any other.
pub fn case_pairs(metric: &Metric, case: &Case) -> Vec<(&'static str, String)> {
    let listed =
        metric.axes().filter_map(|axis| Some((axis.name.as_str(), axis_value(case.get(&axis.name)?, axis.scale))));
    let unlisted = case.iter().filter(|(name, _)| metric.axes().all(|axis| axis.name != *name));
    listed.chain(unlisted.map(|(name, value)| (name.as_str(), axis_value(value, AxisScale::Linear)))).collect()
}

/// A case in one line: `pages=huge bytes=64 KiB`; empty for the case without parameters.
pub fn case(metric: &Metric, case: &Case) -> String {
    let pairs: Vec<String> =
        case_pairs(metric, case).into_iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    pairs.join(" ")
}

/// A metric at a case, as tables name it: `mem.latency (pages=base bytes=16 MiB)`.
pub fn metric_at(metric: &Metric, point: &Case) -> String {
    if point.is_empty() { metric.id.to_string() } else { format!("{} ({})", metric.id, case(metric, point)) }
}

/// A figure stated by the machine, with no more decimals than it states: `2.596 GHz`, `48 KiB`, `23.5 GiB`.
pub fn stated_value(value: f64, unit: Unit, decimals: usize) -> String {
    let scale = scale_for(value, unit);
    join(&[&trimmed_decimal(value / scale.factor, decimals), scale.symbol])
}

/// A bit rate as a machine states it: `10 Gbit/s`, `100 Mbit/s`.
pub fn bit_rate(rate: f64) -> String {
    if rate >= 1e9 {
        format!("{} Gbit/s", trimmed_decimal(rate / 1e9, 2))
    } else {
        format!("{} Mbit/s", trimmed_decimal(rate / 1e6, 2))
    }
}

/// This many CPUs, and of a small part of one two digits: `1.5 CPUs`, `0.001 CPUs`.
pub fn cpus(count: f64) -> String {
    let decimals = if count < 0.1 { (1.0 - count.max(1e-9).log10().floor()) as usize } else { 2 };
    format!("{} {}", trimmed_decimal(count, decimals), if count == 1.0 { "CPU" } else { "CPUs" })
}

/// A decimal number without trailing zeros.
pub fn trimmed_decimal(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use crate::Axis;

    use super::*;

    fn ns(value: f64, half: f64) -> String {
        quantity(value, Some(half), Unit::Nanoseconds).to_string()
    }

    #[test]
    fn small_cpu_share_keeps_digits() {
        let texts = [4.0, 1.5, 1.0, 0.5, 0.05, 0.001, 0.0].map(cpus);
        assert_eq!(texts, ["4 CPUs", "1.5 CPUs", "1 CPU", "0.5 CPUs", "0.05 CPUs", "0.001 CPUs", "0 CPUs"]);
    }

    #[test]
    fn digits_follow_the_interval() {
        assert_eq!(ns(61.234, 0.41), "61.2 ± 0.4 ns");
        assert_eq!(ns(61.234, 0.14), "61.23 ± 0.14 ns");
        assert_eq!(ns(61.234, 5.0), "61 ± 5 ns");
        assert_eq!(ns(61.234, 14.0), "61 ± 14 ns");
        assert_eq!(ns(1234.2, 14.0), "1.234 ± 0.014 µs");
        assert_eq!(ns(123_456.0, 3_000.0), "123 ± 3 µs");
        assert_eq!(ns(2_345_678.0, 400_000.0), "2.3 ± 0.4 ms");
    }

    #[test]
    fn value_rounded_up_by_error_gets_next_unit() {
        assert_eq!(ns(997_000.0, 900_000.0), "1.0 ± 0.9 ms");
        assert_eq!(ns(-997_000.0, 900_000.0), "-1.0 ± 0.9 ms");
        assert_eq!(ns(999_300.0, 400.0), "999.3 ± 0.4 µs");
        assert_eq!(brief_value(997_000.0, Some(900_000.0), Unit::Nanoseconds), "1.0 ms");
        let range = Interval { kind: IntervalKind::Range, level: 1.0, lower: 0.1e6, upper: 2.1e6 };
        assert_eq!(with_interval(997e3, Some(range), Unit::Nanoseconds).to_string(), "1.0 [0.1 to 2.1] ms");
    }

    #[test]
    fn brief_value_digits_follow_interval() {
        let brief = |value, half| brief_value(value, Some(half), Unit::Nanoseconds);
        assert_eq!([brief(84.353, 0.01), brief(29_166.0, 900.0)], ["84.4 ns", "29.2 µs"]);
        assert_eq!([brief(29_166.0, 4_000.0), brief(70.0, 90.0)], ["29 µs", "70 ns"]);
        assert_eq!(super::brief_value(412.4, None, Unit::Nanoseconds), "412 ns");
    }

    #[test]
    fn large_error_leaves_one_digit() {
        assert_eq!(ns(3.2, 41.0), "3 ± 41 ns");
        assert_eq!(ns(0.0, 0.2), "0.0 ± 0.2 ns");
    }

    #[test]
    fn error_below_last_digit_is_shown() {
        assert_eq!(ns(61.234_567, 1e-9), "61.235 ± <0.001 ns");
        assert_eq!(ns(61.0, 0.0), "61.0 ± 0.0 ns");
    }

    #[test]
    fn zero_ratio_is_zero() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(1.06), "1.06");
    }

    #[test]
    fn no_interval_gives_three_digits() {
        assert_eq!(value_text(61.234, Unit::Nanoseconds), "61.2 ns");
        assert_eq!(value_text(0.2765, Unit::Nanoseconds), "0.277 ns");
        assert_eq!(value_text(999.97, Unit::Nanoseconds), "1.00 µs");
        assert_eq!(value_text(3.62e9, Unit::Hertz), "3.62 GHz");
        assert_eq!(value_text(11.83e9, Unit::BytesPerSecond), "11.8 GB/s");
        assert_eq!(value_text(245.0, Unit::Cycles), "245 cycles");
        assert_eq!(value_text(61_234.0, Unit::Cycles), "61200 cycles");
        assert_eq!(value_text(0.0, Unit::Nanoseconds), "0.00 ns");
        assert_eq!(without_cycles(&span(358e3, 171e6, Unit::Cycles)), "358k to 171M");
    }

    #[test]
    fn range_is_shown_as_range() {
        let interval = Interval { kind: IntervalKind::Range, level: 1.0, lower: 60.8, upper: 61.9 };
        assert_eq!(with_interval(61.23, Some(interval), Unit::Nanoseconds).to_string(), "61.2 [60.8 to 61.9] ns");
    }

    #[test]
    fn sizes_are_binary_and_exact() {
        assert_eq!(bytes(65_536), "64 KiB");
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(100), "100 B");
        assert_eq!(bytes(1472), "1472 B");
        assert_eq!(bytes(1_536_000), "1.46 MiB");
        // Chosen in decimal digits, as 1000 B.
        assert_eq!([bytes(1_000), bytes(10_000), bytes(100_000)], ["1000 B", "10\u{202f}000 B", "100\u{202f}000 B"]);
        assert_eq!([bytes(1_500_000), bytes(10_123)], ["1\u{202f}500\u{202f}000 B", "9.89 KiB"]);
        assert_eq!(
            [exact_bytes(10_123), exact_bytes(4096), exact_bytes(1 << 30)],
            ["10\u{202f}123 B", "4 KiB", "1 GiB"]
        );
    }

    #[test]
    fn error_above_value_is_shown_as_range() {
        let text = |value, lower, upper| {
            let interval = Interval { kind: IntervalKind::Confidence, level: 0.95, lower, upper };
            with_interval(value, Some(interval), Unit::Nanoseconds).to_string()
        };
        assert_eq!(text(200e6, 20e6, 1220e6), "200 [0 to 1200] ms");
        assert_eq!(text(200e6, 190e6, 210e6), "200 ± 10 ms");
    }

    #[test]
    fn ratios_and_shares_keep_significant_digits() {
        assert_eq!(number(1.0649), "1.06");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(1234.0), "1234");
        assert_eq!(number(0.01234), "0.012");
        assert_eq!(percent(0.643), "64 %");
        assert_eq!(percent(0.9996), ">99 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.0001), "<0.1 %");
        assert_eq!(percent(0.0), "0 %");
    }

    #[test]
    fn spans_share_unit_if_close() {
        assert_eq!(span(80.1e3, 310e3, Unit::Nanoseconds), "80.1 to 310 µs");
        assert_eq!(span(80.1e3, 3.1e6, Unit::Nanoseconds), "80.1 µs to 3.10 ms");
        assert_eq!(span(5.0, 5.0, Unit::Count), "5.00");
    }

    #[test]
    fn run_times_use_minutes_and_hours() {
        assert_eq!(seconds(12.34), "12.3 s");
        assert_eq!(seconds(150.2), "2 min 30 s");
        assert_eq!(seconds(3900.0), "1 h 5 min");
    }

    #[test]
    fn case_text_follows_axis_order() {
        let bytes = Axis::new("bytes", "bytes", AxisScale::Bytes);
        let pages = Axis::new("pages", "pages", AxisScale::Category);
        let metric = Metric::duration("a.b", "x").with_axes([pages, bytes]);
        let point = Case::new()
            .with_number("bytes", 65_536)
            .with_word(crate::AxisWord::from_names("pages", "huge"))
            .with_number("zzz", 12_345);
        assert_eq!(case(&metric, &point), "pages=huge bytes=64 KiB zzz=12\u{202f}345");
    }
}
