//! Figures in words, for sentences.

use kelvin_model::{AxisScale, Case, Metric, Unit, Value};

/// A value with its unit, three significant digits: `95.3 ns`, `1.25 ms`, `11.8 GB/s`.
pub(crate) fn amount(value: f64, unit: Unit) -> String {
    let (scaled, suffix) = match unit {
        Unit::Nanoseconds => scale(value, 1e3, &["ns", "us", "ms"]).unwrap_or((value / 1e9, "s")),
        Unit::Hertz => scale(value, 1e3, &["Hz", "kHz", "MHz"]).unwrap_or((value / 1e9, "GHz")),
        Unit::BytesPerSecond => scale(value, 1e3, &["B/s", "kB/s", "MB/s"]).unwrap_or((value / 1e9, "GB/s")),
        Unit::Bytes => scale(value, 1024.0, &["B", "KiB", "MiB"]).unwrap_or((value / 1024f64.powi(3), "GiB")),
        Unit::PerSecond => (value, "/s"),
        Unit::Cycles => (value, "cycles"),
        Unit::Ratio | Unit::Count => return digits(value),
    };
    format!("{} {suffix}", digits(scaled))
}

/// A whole number of bytes, exactly: `512 bytes`, `64 KiB`, `2 MiB`, `1 GiB`.
pub(crate) fn whole_bytes(bytes: u64) -> String {
    match bytes {
        0 => "0 bytes".into(),
        huge if huge % (1 << 30) == 0 => format!("{} GiB", huge >> 30),
        large if large % (1 << 20) == 0 => format!("{} MiB", large >> 20),
        middle if middle % (1 << 10) == 0 => format!("{} KiB", middle >> 10),
        small => format!("{small} bytes"),
    }
}

fn scale(value: f64, step: f64, suffixes: &[&'static str]) -> Option<(f64, &'static str)> {
    let mut scaled = value;
    for suffix in suffixes {
        if scaled.abs() < step * 0.9995 {
            return Some((scaled, suffix));
        }
        scaled /= step;
    }
    None
}

/// Three significant digits, whole numbers from a hundred on.
pub(crate) fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor();
    // 9.996 has one digit before the point and rounds to a number with two.
    let magnitude = if value.abs() >= 10f64.powf(magnitude + 1.0) * 0.9995 { magnitude + 1.0 } else { magnitude };
    let places = (2.0 - magnitude).clamp(0.0, 12.0) as usize;
    format!("{value:.places$}")
}

/// A share as a percentage: `12 %`, `1.5 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent != 0.0 && percent.abs() < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// A p value that is never printed as zero.
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.001 { "p < 0.001".into() } else { format!("p = {p:.3}") }
}

/// A metric at a case, as tables name it: `mem.latency (pages=base bytes=16 MiB)`.
pub(crate) fn metric_at(metric: &Metric, case: &Case) -> String {
    let text = |scale: AxisScale, value: Value| match value {
        Value::Integer(bytes) if scale == AxisScale::Bytes => whole_bytes(bytes),
        other => other.to_string(),
    };
    let known = metric.axes().filter_map(|axis| Some((axis.name, text(axis.scale, case.get(&axis.name)?))));
    let other = case.iter().filter(|(name, _)| metric.axes().all(|axis| axis.name != *name));
    let pairs: Vec<String> = known
        .chain(other.map(|(name, value)| (name, text(AxisScale::Linear, value))))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if pairs.is_empty() { metric.id.to_string() } else { format!("{} ({})", metric.id, pairs.join(" ")) }
}

#[cfg(test)]
mod tests {
    use kelvin_model::Axis;

    use super::*;

    #[test]
    fn a_case_is_named_as_in_a_table() {
        const METRIC: Metric = Metric::duration("test.load", "A load").over([
            Axis::new("pages", "pages", AxisScale::Category),
            Axis::new("bytes", "working set", AxisScale::Bytes),
        ]);
        let case = Case::new().with("bytes", 16 << 20).with("more", 4096).with_word("pages", "base");
        assert_eq!(metric_at(&METRIC, &case), "test.load (pages=base bytes=16 MiB more=4096)");
        assert_eq!(metric_at(&METRIC, &Case::new()), "test.load");
    }

    #[test]
    fn amounts_have_three_digits_and_a_fitting_unit() {
        let amounts = [
            (95.26, Unit::Nanoseconds, "95.3 ns"),
            (999.6, Unit::Nanoseconds, "1.00 us"),
            (1_250_000.0, Unit::Nanoseconds, "1.25 ms"),
            (2.5e9, Unit::Nanoseconds, "2.50 s"),
            (11.8e9, Unit::BytesPerSecond, "11.8 GB/s"),
            (4.2e9, Unit::Hertz, "4.20 GHz"),
            (3.0 * 1024.0 * 1024.0, Unit::Bytes, "3.00 MiB"),
            (0.0123, Unit::Ratio, "0.0123"),
            (9.996, Unit::Cycles, "10.0 cycles"),
            (-5.0, Unit::Nanoseconds, "-5.00 ns"),
            (0.0, Unit::Count, "0"),
        ];
        for (value, unit, text) in amounts {
            assert_eq!(amount(value, unit), text);
        }
        assert_eq!((percent(0.123), percent(0.015), percent(0.0)), ("12 %".into(), "1.5 %".into(), "0 %".into()));
        assert_eq!((p_value(1e-9), p_value(0.0123)), ("p < 0.001".into(), "p = 0.012".into()));
    }
}
