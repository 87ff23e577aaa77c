//! Bars with intervals: one for each row of a study's table, with a mark for the figure that it is compared with.

use kelvin_analysis::{Figure, StudyTable};

use super::{anchored_text, labelled, path, text_at, text_width};
use crate::escape::{Markup, html};
use crate::units;

const WIDTH: f64 = 720.0;
/// Most room for the labels.
const MAX_LABEL_WIDTH: f64 = 400.0;
/// Between a label and its bar, and from the end of the longest bar to the figures behind the bars.
const LABEL_GAP: f64 = 8.0;
const FIGURE_GAP: f64 = 16.0;
/// Height of a row, of its bar, and of the line that is its interval.
const ROW_HEIGHT: f64 = 20.0;
const BAR_HEIGHT: f64 = 11.0;
const WHISKER_HEIGHT: f64 = 7.0;
/// Below the rows: the legend.
const LEGEND_HEIGHT: f64 = 26.0;
/// Half of the mark of a compared figure.
const HALF_MARK_SIZE: f64 = 7.0;

/// The bars of a table; nothing without figures. A mark that would make all bars short lies at the edge, as a triangle.
pub(crate) fn inline(table: &StudyTable) -> Markup {
    let Some([column, mark]) = table.bars else { return Markup::new() };
    let figures: Vec<Option<Figure>> = table.rows.iter().map(|row| row.cells[column]).collect();
    let upper_end = |figure: &Figure| figure.interval.map_or(figure.value, |interval| interval.upper);
    let longest = figures.iter().flatten().map(upper_end).fold(0.0, f64::max);
    if longest <= 0.0 {
        return Markup::new();
    }
    let labels = table.rows.iter().map(|row| text_width(&row.label)).fold(0.0, f64::max);
    let unit = table.columns[column].unit;
    let figures = figures.iter().flatten().map(|figure| text_width(&units::figure_text(figure, unit).to_string()));
    let figures = FIGURE_GAP + figures.fold(0.0, f64::max);
    let scale = BarScale { max: longest, labels: (labels + LABEL_GAP).min(MAX_LABEL_WIDTH), figures };
    let rows: Markup = (0..table.rows.len()).map(|row| scale.row(table, row, [column, mark])).collect();
    let height = ROW_HEIGHT * table.rows.len() as f64;
    let label = format!("{}: {}", table.title, table.columns[column].label);
    let content = html!("{}{}", rows, legend(table, [column, mark], (height, scale.labels)));
    html!("<div class=\"static bars\">{}</div>", labelled([WIDTH, height + LEGEND_HEIGHT], &label, content))
}

struct BarScale {
    max: f64,
    /// Room for the labels, and for the figures behind the bars.
    labels: f64,
    figures: f64,
}

impl BarScale {
    fn x_of(&self, value: f64) -> f64 {
        self.labels + (value / self.max).clamp(0.0, 1.0) * (WIDTH - self.labels - self.figures)
    }

    fn row(&self, table: &StudyTable, index: usize, [column, mark]: [usize; 2]) -> Markup {
        let (row, middle) = (&table.rows[index], ROW_HEIGHT * (index as f64 + 0.5));
        let Some(figure) = row.cells[column] else { return Markup::new() };
        let bar =
            path::rectangle(self.labels, middle - BAR_HEIGHT / 2.0, self.x_of(figure.value) - self.labels, BAR_HEIGHT);
        let whisker = figure.interval.map(|interval| {
            let ends = [interval.lower, interval.upper].map(|end| self.x_of(end));
            path::element("whisker", path::whisker(ends, middle, WHISKER_HEIGHT))
        });
        let mark = row.cells[mark].map(|figure| self.mark(figure.value, middle));
        let text = units::figure_text(&figure, table.columns[column].unit).to_string();
        let label = anchored_text([self.labels - LABEL_GAP, middle + 4.0], "end", &row.label);
        let text = text_at(WIDTH - self.figures + FIGURE_GAP, middle + 4.0, text);
        html!("{}{}{}{}{}", label, path::element("bar s0", bar), whisker, mark, text)
    }

    fn mark(&self, value: f64, middle: f64) -> Markup {
        let x = self.x_of(value);
        let outline = if value > self.max {
            format!("{}l{HALF_MARK_SIZE} {} -{HALF_MARK_SIZE} {}z", path::move_to(x + 2.0, middle - 5.0), 5, 5)
        } else {
            format!("{}v{}", path::move_to(x, middle - HALF_MARK_SIZE), 2.0 * HALF_MARK_SIZE)
        };
        path::element("beside s1", outline)
    }
}

fn legend(table: &StudyTable, [column, mark]: [usize; 2], (height, left): (f64, f64)) -> Markup {
    let baseline = height + 18.0;
    let bar = path::rectangle(left, baseline - 9.0, 18.0, 9.0);
    let has_marks = table.rows.iter().any(|row| row.cells[mark].is_some());
    let marks = has_marks.then(|| {
        let text = format!("{} (a triangle: beyond the edge)", table.columns[mark].label);
        let mark = path::move_to(left + 190.0, baseline - 10.0) + "v12";
        html!("{}{}", path::element("beside s1", mark), text_at(left + 200.0, baseline, text))
    });
    let text = format!("{}, with its interval", table.columns[column].label);
    html!("{}{}{}", path::element("bar s0", bar), text_at(left + 26.0, baseline, text), marks)
}

#[cfg(test)]
mod tests {
    use kelvin_analysis::{StudyColumn, StudyRow};
    use kelvin_core::Unit;

    use super::*;
    use crate::svg::CHARACTER_WIDTH;

    /// The bars of rows with labels of these lengths.
    fn bars_svg(lengths: [usize; 3]) -> String {
        bars_svg_with(lengths, Figure { value: 5.0, interval: None, n: 3 })
    }

    /// Like `bars_svg`, of one figure.
    fn bars_svg_with(lengths: [usize; 3], figure: Figure) -> String {
        let column = |label: &str| StudyColumn { label: label.into(), unit: Unit::Nanoseconds, is_main: true };
        let row = |length: usize| StudyRow { label: "m".repeat(length), cells: vec![Some(figure), None] };
        let table = StudyTable {
            id: "test".into(),
            title: "A test".into(),
            columns: vec![column("time"), column("beside")],
            rows: lengths.map(row).into(),
            metrics: Vec::new(),
            bars: Some([0, 1]),
        };
        inline(&table).as_str().to_owned()
    }

    /// The numbers that stand after this text.
    fn numbers<'d>(drawing: &'d str, prefix: &'d str) -> impl Iterator<Item = f64> + use<'d> {
        let number = |rest: &str| rest.split([',', ' ', '"', 'h', 'v', 'H', 'V']).next().unwrap().parse().unwrap();
        drawing.split(prefix).skip(1).map(number)
    }

    #[test]
    fn label_column_is_as_wide_as_needed() {
        for lengths in [[3, 9, 12], [12, 40, 56]] {
            let drawing = bars_svg(lengths);
            let ends: Vec<f64> = numbers(&drawing, "<text x=\"").step_by(2).take(3).collect();
            let starts: Vec<f64> = numbers(&drawing, "class=\"bar s0\" d=\"M").collect();
            assert_eq!(
                (ends.len(), starts.len()),
                (3, 4),
                "a label and a bar of each row, and that of the legend: {drawing}"
            );
            let longest = lengths[2] as f64 * CHARACTER_WIDTH;
            assert!(ends.iter().all(|end| *end >= longest && *end < longest + LABEL_GAP), "{ends:?}");
            assert!(starts.iter().all(|begin| *begin >= ends[0] && *begin <= ends[0] + 2.0 * LABEL_GAP), "{starts:?}");
        }
    }

    #[test]
    fn longest_figure_text_fits_drawing() {
        let interval = kelvin_core::Interval {
            kind: kelvin_core::IntervalKind::Range,
            level: 0.95,
            lower: 110_000.0,
            upper: 1_530_000.0,
        };
        let figure = Figure { value: 420_000.0, interval: Some(interval), n: 3 };
        let drawing = bars_svg_with([3, 9, 12], figure);
        let text = units::figure_text(&figure, Unit::Nanoseconds).to_string();
        assert!(drawing.contains(&text) && text.chars().count() >= 20, "{text}");
        let start = numbers(&drawing, "<text x=\"").nth(1).unwrap();
        assert!(start + text.chars().count() as f64 * CHARACTER_WIDTH <= WIDTH, "{start}: {text}");
    }
}
