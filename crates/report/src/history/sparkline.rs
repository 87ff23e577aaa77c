//! A series in one line of characters: a bar for each value, or for the median of neighbours.

use kelvin_core::{HistoryPoint, SeriesHistory};
use kelvin_stats::median;
use kelvin_stats::min_max;

/// Bars from low to high, with Unicode and without.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_BARS: [char; 8] = ['_', '.', ',', '-', '~', '=', '*', '#'];
/// The bar without Unicode that is as high as one with it.
pub(crate) fn ascii_bar(bar: char) -> Option<char> {
    BARS.iter().position(|height| *height == bar).map(|height| ASCII_BARS[height])
}

/// Between values of two versions of the method.
const VERSION_BREAK: char = '|';
/// Least range of a picture as a share of the median: what is steady looks so.
pub(super) const MIN_RELATIVE_RANGE: f64 = 0.1;

/// The picture of a series in at most this many characters, at least twice as many as it has versions; values of each version have a
/// scale of their own.
pub(super) fn sparkline(series: &SeriesHistory, columns: usize, unicode: bool) -> String {
    // The newest versions are shown, as many as there is room for.
    let versions = &series.versions[series.versions.len().saturating_sub(columns / 2)..];
    let total: usize = versions.iter().map(|version| version.points.len()).sum();
    let bar_columns = columns + 1 - versions.len();
    let share = |points: usize| if total <= bar_columns { points } else { (points * bar_columns / total).max(1) };
    let mut shares: Vec<usize> = versions.iter().map(|version| share(version.points.len())).collect();
    // What rounding leaves, or takes too much of, is of the version with most values.
    let assigned_columns: usize = shares.iter().sum();
    if let Some(largest) = shares.iter_mut().max() {
        *largest = (*largest + bar_columns.min(total)).saturating_sub(assigned_columns).max(1);
    }
    let bars = if unicode { BARS } else { ASCII_BARS };
    let parts: Vec<String> =
        versions.iter().zip(shares).map(|(version, columns)| bars_of_points(&version.points, columns, &bars)).collect();
    parts.join(&VERSION_BREAK.to_string())
}

fn bars_of_points(points: &[HistoryPoint], columns: usize, bars: &[char; 8]) -> String {
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let columns = columns.min(values.len());
    let end = |column: usize| column * values.len() / columns;
    let medians: Vec<f64> = (0..columns).map(|column| median(&values[end(column)..end(column + 1)])).collect();
    let (low, high) = min_max(medians.iter().copied()).unwrap_or_default();
    let middle = f64::midpoint(low, high);
    let range = (high - low).max(MIN_RELATIVE_RANGE * median(&medians).abs());
    let bar = |value: &f64| {
        let share = if range > 0.0 { 0.5 + (value - middle) / range } else { 0.5 };
        bars[((share * bars.len() as f64) as usize).min(bars.len() - 1)]
    };
    medians.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Case, Metric, VersionHistory};

    use super::*;

    fn series_of_versions(versions: &[&[f64]]) -> SeriesHistory {
        let point = |(run, &value): (usize, &f64)| HistoryPoint { run, value };
        let version = |(index, values): (usize, &&[f64])| VersionHistory {
            version: index as u32 + 1,
            points: values.iter().enumerate().map(point).collect(),
            changes: Vec::new(),
        };
        let versions = versions.iter().enumerate().map(version).collect();
        SeriesHistory {
            metric: Metric::duration("test.metric", "of a test"),
            case: Case::new(),
            versions,
            ranking: None,
        }
    }

    #[test]
    fn bars_follow_values() {
        assert_eq!(sparkline(&series_of_versions(&[&[1.0, 2.0, 3.0]]), 16, true), "▁▅█");
        assert_eq!(sparkline(&series_of_versions(&[&[100.0, 100.4, 99.9]]), 16, true), "▄▅▄");
        assert_eq!(sparkline(&series_of_versions(&[&[0.0, 0.0]]), 16, false), "~~");
        assert_eq!(sparkline(&series_of_versions(&[&[5.0]]), 16, false), "~");
    }

    #[test]
    fn versions_never_share_a_bar() {
        let rising: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(sparkline(&series_of_versions(&[&rising]), 8, true), "▁▂▃▄▅▆▇█");
        let line = sparkline(&series_of_versions(&[&rising, &[1.0, 1.0]]), 16, true);
        assert_eq!((line.chars().count(), line.matches('|').count()), (16, 1), "{line}");
        let versions: Vec<&[f64]> = vec![&[1.0]; 40];
        assert!(sparkline(&series_of_versions(&versions), 16, false).chars().count() <= 16);
    }
}
