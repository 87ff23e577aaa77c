//! Which figures a report has, and that they show the measurements.

mod synthetic;

use kelvin_analysis::MetricResult;
use kelvin_core::{Axis, AxisScale, Better, Case, Unit};
use kelvin_report::figures::{CellRank, Drawing, Figure, Heat, Plot, SeriesRole, figures};
use kelvin_report::sections::{SectionEntry, sections};
use kelvin_report::{Html, Render, Terminal, svg};
use synthetic::SyntheticReport;

fn figure(sample: &SyntheticReport, id: &str) -> Figure {
    figures(&sample.report()).into_iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no figure {id}"))
}

fn plot(sample: &SyntheticReport, id: &str) -> Plot {
    match figure(sample, id).drawing {
        Drawing::Plot(plot) => plot,
        Drawing::Heat(_) => panic!("{id} is a heat map"),
    }
}

fn heat(sample: &SyntheticReport, id: &str) -> Heat {
    match figure(sample, id).drawing {
        Drawing::Heat(heat) => heat,
        Drawing::Plot(_) => panic!("{id} is a plot"),
    }
}

fn result<'a>(sample: &'a SyntheticReport, metric: &str, case: &Case) -> &'a MetricResult {
    let matching_result =
        sample.analysis.results.iter().find(|result| result.metric.id == *metric && result.case == *case);
    matching_result.unwrap_or_else(|| panic!("no {metric} at {case}"))
}

fn value(result: &MetricResult) -> Option<f64> {
    Some(result.outcome.summary()?.headline)
}

#[test]
fn family_shares_figure_per_cpu_count() {
    let sample = synthetic::full();
    for cpus in ["one", "all"] {
        let plot = plot(&sample, &format!("mem.bandwidth-cpus={cpus}"));
        let labels: Vec<&str> = plot
            .series
            .iter()
            .filter(|series| series.role == SeriesRole::Measured)
            .map(|series| &*series.label)
            .collect();
        assert_eq!(labels, ["read", "write", "copy", "fill", "ntwrite", "triad"]);
        for series in plot.series.iter().filter(|series| series.role == SeriesRole::Measured) {
            for point in &series.points {
                let case = Case::new()
                    .with_number("bytes", point.x as u64)
                    .with_word(kelvin_core::AxisWord::from_names("cpus", cpus));
                assert_eq!(value(result(&sample, &format!("mem.bandwidth.{}", series.label), &case)), Some(point.y));
            }
            let predicted = format!("{}, predicted", series.label);
            for other in plot.series.iter().filter(|other| other.label == predicted) {
                assert_eq!(other.style, series.style, "a prediction looks like its measurement");
            }
        }
    }
}

#[test]
fn delay_is_plotted_against_rate() {
    let sample = synthetic::full();
    let plot = plot(&sample, "mem.loaded.latency-bandwidth");
    let measured = plot.series.iter().find(|series| series.role == SeriesRole::Measured).unwrap();
    let loads: Vec<Case> = (0..=10).map(|tenth| Case::new().with_number("injection", 10 * tenth)).collect();
    let expected: Vec<(f64, f64)> = loads
        .iter()
        .map(|case| {
            let value_of = |metric| value(result(&sample, metric, case)).unwrap();
            (value_of("mem.loaded.bandwidth"), value_of("mem.loaded.latency"))
        })
        .collect();
    assert_eq!(measured.points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>(), expected);
    let predicted = plot.series.iter().find(|series| series.role == SeriesRole::Predicted).unwrap();
    assert_eq!(predicted.points.len(), 11);
    assert!(figures(&sample.report()).iter().all(|figure| figure.id != "mem.loaded.latency"), "drawn once");
}

#[test]
fn heat_map_has_cell_per_measured_pair() {
    let sample = synthetic::full();
    let heat = heat(&sample, "mem.core_to_core");
    assert_eq!(heat.rows, ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(heat.columns, heat.rows);
    assert_eq!(heat.cells.len(), 28, "15 pairs, one of them skipped, in both directions");
    assert!(heat.cell(1, 4).is_none() && heat.cell(0, 0).is_none());
    assert_eq!(heat.unmeasured, [(1, 4), (4, 1)], "a CPU and itself is no pair");
    for cell in &heat.cells {
        let (from, to) = (cell.row.min(cell.column), cell.row.max(cell.column));
        let case = Case::new().with_number("from", from as u64).with_number("to", to as u64);
        let result = result(&sample, "mem.core_to_core", &case);
        assert_eq!(value(result), Some(cell.value));
        assert_eq!(result.prediction.as_ref().map(|prediction| prediction.value), cell.predicted);
    }
    let mut by_value = heat.cells.clone();
    by_value.sort_by(|a, b| a.value.total_cmp(&b.value));
    assert!(by_value.is_sorted_by_key(|cell| cell.step), "a higher value never has a lower colour");
    assert_eq!((by_value[0].step, by_value[27].step), (0, heat.steps.len() - 1));
    let drawing = svg::standalone(&figure(&sample, "mem.core_to_core"));
    assert_eq!(drawing.matches("<rect class=\"h").count(), heat.cells.len() + heat.steps.len(), "cells and legend");
    assert_eq!(drawing.matches("<rect class=\"unmeasured\"").count(), 2 + 1, "cells and legend");
    assert!(drawing.contains(">not measured</text>"));
    assert!(figure(&sample, "mem.core_to_core").description.concat().contains("No value for 1 pair: 1 to 4."));
}

#[test]
fn grid_marks_best_and_equal_cells() {
    let sample = synthetic::full();
    let id = "file.threads-grid-cache=cached";
    let heat = heat(&sample, id);
    assert_eq!(heat.rows, ["1", "2", "4", "8", "16"]);
    assert_eq!(heat.columns, ["4 KiB", "64 KiB", "1 MiB"]);
    assert_eq!((heat.axes.map(|axis| axis.to_string()), heat.cells.len()), (["threads".into(), "block".into()], 15));
    for cell in &heat.cells {
        let case = Case::new()
            .with_number("threads", 1 << cell.row)
            .with_number("block", [4 << 10, 64 << 10, 1 << 20][cell.column])
            .with_word(kelvin_core::AxisWord::from_names("cache", "cached"));
        assert_eq!(value(result(&sample, "file.threads", &case)), Some(cell.value));
        let standing = match (cell.row, cell.column) {
            (4, 1) => CellRank::Best,
            (4, 2) => CellRank::AsGood,
            _ => CellRank::Other,
        };
        assert_eq!(cell.standing, standing);
    }
    let figure = figure(&sample, id);
    let words = figure.description.concat();
    assert!(words.contains("no different from") && words.contains("1.01 times the rate"), "{words}");
    let drawing = svg::standalone(&figure);
    // Each once in the grid, and once in the legend.
    assert_eq!(drawing.matches("<rect class=\"best").count(), 2);
    assert_eq!(drawing.matches("<rect class=\"as-good").count(), 2);
    // Pairs have no best: nobody looked for it.
    let pairs = svg::standalone(&self::figure(&sample, "mem.core_to_core"));
    assert!(!pairs.contains("<rect class=\"best") && !pairs.contains("<rect class=\"as-good"));
}

#[test]
fn two_numeric_axes_give_a_surface() {
    let sample = synthetic::full();
    let surface = heat(&sample, "os.switch.ring-grid");
    assert!(surface.rows.len() >= 4 && surface.columns.len() >= 4, "{surface:?}");
    let ring: Vec<&MetricResult> =
        sample.analysis.results.iter().filter(|result| result.metric.id == *"os.switch.ring").collect();
    assert_eq!(surface.cells.len(), ring.iter().filter(|result| value(result).is_some()).count());
    for result in ring {
        let axis_text =
            |axis: &Axis| kelvin_report::units::axis_value(result.case.get(&axis.name).unwrap(), axis.scale);
        let [row, column] = [0, 1].map(|index| axis_text(&result.metric.axes[index].unwrap()));
        let (row, column) = (
            surface.rows.iter().position(|name| *name == row),
            surface.columns.iter().position(|name| *name == column),
        );
        let cell = surface.cell(row.unwrap(), column.unwrap());
        assert_eq!(cell.map(|cell| cell.value), value(result));
        assert!(cell.is_none_or(|cell| cell.standing == CellRank::Other), "nobody looked for a best");
    }
    assert!(!plot(&sample, "os.switch.ring").series.is_empty());
    // A parameter with few values has a line for each.
    assert!(figures(&sample.report()).iter().all(|figure| figure.id != "cpu.call.args-grid"));
}

#[test]
fn published_series_has_color_of_its_line() {
    let mut sample = synthetic::full();
    let call = |via| Case::new().with_number("arguments", 1).with_word(kelvin_core::AxisWord::from_names("via", via));
    let published = sample.references[0].values.iter_mut().find(|value| value.metric == *"cpu.call.args").unwrap();
    published.case = call("indirect");
    let drawing = plot(&sample, "cpu.call.args");
    let series_with_label =
        |label: &str| drawing.series.iter().filter(|series| series.label == label).collect::<Vec<_>>();
    let title = &sample.references[0].title;
    let [line] = series_with_label("via=indirect")[..] else { panic!("{drawing:?}") };
    let [reference_line] = series_with_label(&format!("{title}, via=indirect"))[..] else { panic!("{drawing:?}") };
    assert_eq!(
        (reference_line.role, reference_line.style, reference_line.points.len()),
        (SeriesRole::Reference, line.style, 1)
    );
    let published = sample.references[0].values.iter_mut().find(|value| value.metric == *"cpu.call.args").unwrap();
    published.case = call("telepathy");
    assert!(plot(&sample, "cpu.call.args").series.iter().all(|series| !series.label.contains("telepathy")));
}

#[test]
fn fitted_law_is_drawn_on_its_line() {
    let sample = synthetic::full();
    let plot = plot(&sample, "file.threads");
    let fitted: Vec<_> = plot.series.iter().filter(|series| series.role == SeriesRole::Fitted).collect();
    let [law] = fitted[..] else { panic!("{fitted:?}") };
    let line =
        plot.series.iter().find(|series| series.role == SeriesRole::Measured && series.style == law.style).unwrap();
    assert_eq!(law.label, format!("{}, fitted law", line.label));
    for point in &line.points {
        // The synthetic rates follow the law exactly.
        let law_point = law.points.iter().find(|candidate| candidate.x == point.x).unwrap();
        assert!((law_point.y / point.y - 1.0).abs() < 1e-9);
    }
    assert_eq!(law.points.last().unwrap().x, 16.0, "no further than was measured");
    let figure = figure(&sample, "file.threads");
    assert_eq!(svg::standalone(&figure).matches("class=\"line fitted").count(), 2, "the line and its legend");
    assert!(
        figure.description.concat().contains("law, no prediction: contention 5.00 % (4.50 to 5.50), coherency 0.400 %"),
        "{figure:?}"
    );
    let mut sample_without_law = synthetic::full();
    sample_without_law.analysis.laws[0].describes = false;
    assert!(
        self::plot(&sample_without_law, "file.threads").series.iter().all(|series| series.role != SeriesRole::Fitted)
    );
}

#[test]
fn memory_level_ends_are_marked() {
    let sample = synthetic::full();
    let marks = plot(&sample, "mem.latency").marks;
    let labels: Vec<&str> = marks.iter().map(|mark| &*mark.label).collect();
    assert_eq!(labels, ["end of L1", "end of L2", "end of L3"], "the last level has no end");
    assert!(marks.iter().all(|mark| mark.low < mark.at && mark.at < mark.high));
    assert_eq!((marks[0].low, marks[0].high), (46_341.0, 65_536.0));
    for figure in figures(&sample.report()) {
        let lines = svg::standalone(&figure).matches("<path class=\"mark-line\"").count();
        assert_eq!(lines, if figure.id == "mem.latency" { 3 } else { 0 }, "{}", figure.id);
    }
    let mut sample_without_levels = synthetic::full();
    sample_without_levels.analysis.levels = None;
    assert!(plot(&sample_without_levels, "mem.latency").marks.is_empty());
}

/// A figure of a single point shows nothing that the table does not; a quick run would have many.
#[test]
fn single_point_line_has_no_figure() {
    let mut sample = synthetic::full();
    let curve =
        |sample: &SyntheticReport| figures(&sample.report()).into_iter().any(|figure| figure.id == "mem.latency");
    assert!(curve(&sample));
    let points = sample.analysis.results.iter_mut().filter(|result| result.metric.id == *"mem.latency");
    let mut page_sizes = std::collections::BTreeSet::new();
    for result in points {
        if !page_sizes.insert(result.case.get("pages")) {
            result.outcome = kelvin_analysis::Outcome::NotReached;
        }
    }
    assert!(!curve(&sample), "predicted points alone are no line that was measured");
}

/// A long gap of a history was not observed: its band would be a claim.
#[test]
fn history_band_stops_at_gaps() {
    let mut sample = synthetic::full();
    let bands = |sample: &SyntheticReport| {
        let drawing = svg::standalone(&figure(sample, "canaries"));
        let paths =
            drawing.split("<path class=\"band history s0\" d=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        paths.matches('z').count()
    };
    let band_count = bands(&sample);
    let history = &mut sample.analysis.canaries[0];
    let end = history.points.iter().map(|point| point.seconds).fold(0.0, f64::max);
    history.points.retain(|point| !(0.4 * end..0.6 * end).contains(&point.seconds));
    assert_eq!(bands(&sample), band_count + 1);
}

/// The first numeric parameter may have one value only, as where a stride is swept over one working set.
#[test]
fn curve_axis_is_parameter_with_values() {
    let mut sample = synthetic::full();
    let curve: Vec<MetricResult> = sample
        .analysis
        .results
        .iter()
        .filter(|result| kelvin_core::AxisWord::from_names("pages", "base").is_in_case(&result.case))
        .cloned()
        .collect();
    let axis = |name, scale| Some(Axis::new(name, name, scale));
    sample.analysis.results = curve
        .into_iter()
        .map(|mut result| {
            let bytes =
                kelvin_core::Axis::new("bytes", "working set", AxisScale::Bytes).number_in(&result.case).unwrap();
            result.metric.axes[..2]
                .copy_from_slice(&[axis("bytes", AxisScale::Bytes), axis("stride", AxisScale::Bytes)]);
            result.case = Case::new().with_number("bytes", 1 << 30).with_number("stride", bytes);
            result
        })
        .collect();
    let report = sample.report();
    let sections = sections(&report);
    let [SectionEntry::Curve(curve)] = &sections[0].entries[..] else { panic!("{:?}", sections[0].entries) };
    assert_eq!(curve.axis.name, *"stride");
    assert_eq!(curve.series.len(), 1);
}

/// The best sample is on the page next to the median, for readers who compare with other tools.
#[test]
fn rate_shows_best_and_median() {
    let sample = synthetic::full();
    let mut terminal = Vec::new();
    Terminal { width: 100, color: false }.render(&sample.report(), &mut terminal).unwrap();
    let terminal = String::from_utf8(terminal).unwrap();
    let mut html = Vec::new();
    Html.render(&sample.report(), &mut html).unwrap();
    let html = String::from_utf8(html).unwrap();
    for format in [&terminal, &html] {
        assert!(format.contains("best 4.62 GB/s"), "a single figure");
        assert!(format.contains("best 21.1 to 263 GB/s"), "a curve");
    }
    let rates = sample.analysis.results.iter().filter(|result| result.metric.unit == Unit::BytesPerSecond);
    let rates: Vec<&MetricResult> = rates.filter(|result| result.metric.better == Better::Higher).collect();
    assert!(rates.len() > 50);
    for result in rates {
        let Some(summary) = result.outcome.summary() else { continue };
        let best = kelvin_report::units::value_text(summary.distribution.best, Unit::BytesPerSecond);
        assert!(summary.distribution.best > summary.headline);
        let detail = format!("<td>{best}<");
        assert!(result.case.is_empty() || html.contains(&detail), "{} {}: {best}", result.metric.id, result.case);
    }
    assert!(!terminal.contains("loaded.bandwidth over share of the load, percent\n  best"));
}
