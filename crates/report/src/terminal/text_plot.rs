//! A plot in characters: lines of markers between two axes.

use crate::figures::{Plot, Point};
use crate::plot_layout::PlotLayout;
use crate::scale::AxisScaling;
use crate::text::{clean, display_width, pad_left, pad_right};

/// Lines of text between the axes.
const PLOT_ROWS: usize = 15;

/// Fewest columns between the axes.
const MIN_WIDTH: usize = 20;

/// Markers of the lines of a plot, and what leads from one to the next.
const MARKERS: [char; 6] = ['o', 'x', '+', '#', '@', '%'];
const CONNECTING_DOT: char = '·';

/// A plot in lines of this many columns.
pub fn plot_lines(plot: &Plot, width: usize) -> Vec<String> {
    let picture = PlotLayout::new(plot);
    let ticks = picture.y.scale().ticks();
    let margin = ticks.iter().map(|tick| display_width(&clean(&tick.label))).max().unwrap_or(0);
    let width = width.saturating_sub(margin + 2).max(MIN_WIDTH);
    let mut lines = vec![clean(picture.y.label)];
    for (number, row) in draw_lines(&picture, width).iter().enumerate() {
        let tick = ticks.iter().find(|tick| row_of(picture.y.scale().share(tick.position)) == number);
        let (label, edge) = tick.map_or((String::new(), '│'), |tick| (clean(&tick.label), '┤'));
        lines.push(
            format!("{} {edge}{}", pad_left(&label, margin), row.iter().collect::<String>()).trim_end().to_owned(),
        );
    }
    let indent = " ".repeat(margin + 1);
    let (edge, labels) = x_axis_lines(picture.x.scale(), width);
    lines.extend([format!("{indent}└{edge}"), format!("{indent} {labels}")]);
    lines.push(format!("{indent} {}", clean(picture.x.label)));
    let legend = picture.lines.iter().zip(MARKERS.iter().cycle());
    let legend: Vec<String> = legend.map(|(line, marker)| format!("{marker} {}", clean(line.label))).collect();
    lines.push(format!("{indent} {}", legend.join("   ")));
    lines
}

/// The axis below with its ticks, and their labels as far as there is room.
fn x_axis_lines(scale: &AxisScaling, width: usize) -> (String, String) {
    let mut edge = vec!['─'; width];
    let labels = scale.ticks().iter().map(|tick| (column_of(scale.share(tick.position), width), clean(&tick.label)));
    labels.clone().for_each(|(column, _)| edge[column] = '┬');
    (edge.into_iter().collect(), centred_labels(labels, usize::MAX))
}

/// Which row a place up an axis has, from the top.
fn row_of(share: f64) -> usize {
    ((1.0 - share) * (PLOT_ROWS - 1) as f64).round() as usize
}

/// The characters between the axes: dots from each point of a line to the next, and over them the markers of all lines.
fn draw_lines(picture: &PlotLayout<'_>, width: usize) -> Vec<Vec<char>> {
    let mut rows = vec![vec![' '; width]; PLOT_ROWS];
    let mut put =
        |x_share: f64, y_share: f64, character: char| rows[row_of(y_share)][column_of(x_share, width)] = character;
    let position =
        |point: &Point| (picture.x.scale().share_of_value(point.x), picture.y.scale().share_of_value(point.y));
    let steps = width * 2;
    for pair in picture.lines.iter().flat_map(|line| line.points.windows(2)) {
        let (from, to) = (position(&pair[0]), position(&pair[1]));
        for share in (0..=steps).map(|step| step as f64 / steps as f64) {
            put(from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1), CONNECTING_DOT);
        }
    }
    for (line, marker) in picture.lines.iter().zip(MARKERS.iter().cycle()) {
        for (x_share, y_share) in line.points.iter().map(position) {
            put(x_share, y_share, *marker);
        }
    }
    rows
}

/// Which of this many columns a share of the axis is.
pub(super) fn column_of(share: f64, width: usize) -> usize {
    (share.clamp(0.0, 1.0) * (width - 1) as f64).round() as usize
}

/// Labels in a line, each centred on its column and none beyond an end; one that would touch the label before it is left out.
pub(super) fn centred_labels(labels: impl Iterator<Item = (usize, String)>, end: usize) -> String {
    let mut line = String::new();
    for (column, label) in labels {
        let size = display_width(&label);
        let from = column.saturating_sub(size / 2).min(end.saturating_sub(size));
        if line.is_empty() || from > display_width(&line) {
            line = pad_right(&line, from) + &label;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{AxisKind, FigureAxis, Point, Series, SeriesRole};

    fn plot(points: &[(f64, f64)]) -> Plot {
        let axis = |label: &str| FigureAxis {
            label: label.into(),
            kind: AxisKind::Number,
            logarithmic: false,
            from_zero: true,
        };
        let points = points.iter().map(|&(x, y)| Point { x, y, low: y, high: y }).collect();
        let line = Series { label: "line".into(), role: SeriesRole::Measured, style: 0, points };
        Plot { x: axis("across"), y: axis("up"), guides: Vec::new(), marks: Vec::new(), series: vec![line] }
    }

    #[test]
    fn points_match_their_axes() {
        let lines = plot_lines(&plot(&[(0.0, 0.0), (10.0, 5.0)]), 40);
        assert!(lines.iter().all(|line| display_width(line) <= 40), "{lines:#?}");
        let marker_column = |line: &String| line.chars().position(|c| c == 'o');
        let rows: Vec<usize> = (1..=PLOT_ROWS).filter(|&row| marker_column(&lines[row]).is_some()).collect();
        assert_eq!(rows.len(), 2, "{lines:#?}");
        assert!(
            marker_column(&lines[rows[0]]) > marker_column(&lines[rows[1]]),
            "the upper one is to the right: {lines:#?}"
        );
        // Between them a dot in each row.
        assert!((rows[0] + 1..rows[1]).all(|row| lines[row].contains(CONNECTING_DOT)), "{lines:#?}");
        let axis = |text: &str| lines.iter().any(|line| line.split_whitespace().eq(text.split(' ')));
        assert!(axis("0 2 4 6 8 10") && axis("o line"), "{lines:#?}");
        assert!(lines[rows[1]].starts_with("0 ┤"), "{lines:#?}");
    }

    #[test]
    fn one_or_no_point_has_axes() {
        for points in [&[(3.0, 7.0)][..], &[]] {
            let lines = plot_lines(&plot(points), 10);
            assert_eq!(lines.len(), PLOT_ROWS + 5, "{lines:#?}");
        }
    }
}
