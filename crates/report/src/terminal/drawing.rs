//! A plot in characters: lines of markers between two axes.

use crate::figures::Plot;
use crate::picture::{Line, Picture};
use crate::scale::Scale;
use crate::text::{clean, columns, right};

/// Lines of text between the axes.
const ROWS: usize = 15;

/// Fewest columns between the axes.
const LEAST: usize = 20;

/// Markers of the lines of a plot, and what leads from one to the next.
const MARKERS: [char; 6] = ['o', 'x', '+', '#', '@', '%'];
const BETWEEN: char = '·';

/// A plot in lines of so many columns.
pub fn drawn(plot: &Plot, width: usize) -> Vec<String> {
    let picture = Picture::of(plot);
    let ticks = picture.y.scale().ticks();
    let beside = ticks.iter().map(|tick| columns(&clean(&tick.label))).max().unwrap_or(0);
    let mut ground = Ground::new(width.saturating_sub(beside + 2).max(LEAST));
    picture.lines.iter().for_each(|line| ground.connect(&picture, line));
    picture.lines.iter().zip(MARKERS.iter().cycle()).for_each(|(line, marker)| ground.mark(&picture, line, *marker));
    let mut lines = vec![clean(picture.y.label)];
    for (number, row) in ground.0.iter().enumerate() {
        let at = ticks.iter().find(|tick| row_of(picture.y.scale().share(tick.place)) == number);
        let (label, edge) = at.map_or((String::new(), '│'), |tick| (clean(&tick.label), '┤'));
        lines.push(format!("{} {edge}{}", right(&label, beside), row.iter().collect::<String>()).trim_end().to_owned());
    }
    let indent = " ".repeat(beside + 1);
    let (edge, labels) = below(picture.x.scale(), ground.width());
    lines.extend([format!("{indent}└{edge}"), format!("{indent} {labels}")]);
    lines.push(format!("{indent} {}", clean(picture.x.label)));
    let legend = picture.lines.iter().zip(MARKERS.iter().cycle());
    let legend: Vec<String> = legend.map(|(line, marker)| format!("{marker} {}", clean(line.label))).collect();
    lines.push(format!("{indent} {}", legend.join("   ")));
    lines
}

/// The axis below with its ticks, and their labels as far as there is room.
fn below(scale: &Scale, width: usize) -> (String, String) {
    let (mut edge, mut labels) = (vec!['─'; width], String::new());
    for tick in scale.ticks() {
        let column = column_of(scale.share(tick.place), width);
        edge[column] = '┬';
        let label = clean(&tick.label);
        let from = column.saturating_sub(columns(&label) / 2);
        if labels.is_empty() || from > columns(&labels) {
            labels.push_str(&" ".repeat(from - columns(&labels)));
            labels.push_str(&label);
        }
    }
    (edge.into_iter().collect(), labels)
}

/// Which column of so many a place along an axis has.
fn column_of(share: f64, width: usize) -> usize {
    (share * (width - 1) as f64).round() as usize
}

/// Which row a place up an axis has, from the top.
fn row_of(share: f64) -> usize {
    ((1.0 - share) * (ROWS - 1) as f64).round() as usize
}

/// The characters between the axes.
struct Ground(Vec<Vec<char>>);

impl Ground {
    fn new(width: usize) -> Self {
        Self(vec![vec![' '; width]; ROWS])
    }

    fn width(&self) -> usize {
        self.0[0].len()
    }

    /// Shares of both axes at which the points of a line are.
    fn places(picture: &Picture<'_>, line: &Line<'_>) -> Vec<(f64, f64)> {
        line.points.iter().map(|point| (picture.x.scale().at(point.x), picture.y.scale().at(point.y))).collect()
    }

    fn put(&mut self, (across, up): (f64, f64), character: char) {
        let column = column_of(across, self.width());
        self.0[row_of(up)][column] = character;
    }

    fn mark(&mut self, picture: &Picture<'_>, line: &Line<'_>, marker: char) {
        Self::places(picture, line).into_iter().for_each(|place| self.put(place, marker));
    }

    /// Dots from each point to the next.
    fn connect(&mut self, picture: &Picture<'_>, line: &Line<'_>) {
        let steps = self.width() * 2;
        for pair in Self::places(picture, line).windows(2) {
            let [from, to] = [pair[0], pair[1]];
            for step in 0..=steps {
                let share = step as f64 / steps as f64;
                self.put((from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1)), BETWEEN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{AxisKind, FigureAxis, Point, Role, Series};

    fn plot(points: &[(f64, f64)]) -> Plot {
        let axis = |label: &str| FigureAxis {
            label: label.into(),
            kind: AxisKind::Number,
            logarithmic: false,
            from_zero: true,
        };
        let points = points.iter().map(|&(x, y)| Point { x, y, low: y, high: y }).collect();
        let line = Series { label: "line".into(), role: Role::Measured, style: 0, points };
        Plot { x: axis("across"), y: axis("up"), guides: Vec::new(), marks: Vec::new(), series: vec![line] }
    }

    #[test]
    fn points_lie_where_their_axes_say() {
        let lines = drawn(&plot(&[(0.0, 0.0), (10.0, 5.0)]), 40);
        assert!(lines.iter().all(|line| columns(line) <= 40), "{lines:#?}");
        let marked = |line: &String| line.chars().position(|c| c == 'o');
        let rows: Vec<usize> = (1..=ROWS).filter(|&row| marked(&lines[row]).is_some()).collect();
        assert_eq!(rows.len(), 2, "{lines:#?}");
        assert!(marked(&lines[rows[0]]) > marked(&lines[rows[1]]), "the upper one is to the right: {lines:#?}");
        // Between them a dot in each row.
        assert!((rows[0] + 1..rows[1]).all(|row| lines[row].contains(BETWEEN)), "{lines:#?}");
        let axis = |text: &str| lines.iter().any(|line| line.split_whitespace().eq(text.split(' ')));
        assert!(axis("0 2 4 6 8 10") && axis("o line"), "{lines:#?}");
        assert!(lines[rows[1]].starts_with("0 ┤"), "{lines:#?}");
    }

    #[test]
    fn one_point_and_none_have_axes() {
        for points in [&[(3.0, 7.0)][..], &[]] {
            let lines = drawn(&plot(points), 10);
            assert_eq!(lines.len(), ROWS + 5, "{lines:#?}");
        }
    }
}
