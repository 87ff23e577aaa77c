//! How a study of a server under load is shown, from a simulated one.

use kelvin_analysis::testing::load::{RequestPattern, SimulatedStudy, user_grid};
use kelvin_analysis::{Analysis, analyse};
use kelvin_core::Run;
use kelvin_report::figures::{AxisKind, Drawing, Figure, FigureAxis, Mark, Plot, Point, Series, SeriesRole, figures};
use kelvin_report::svg::standalone;
use kelvin_report::{Html, Markdown, Render, Report, Terminal};

/// A server whose link is the limit from three users on.
fn sample() -> (Run, Analysis) {
    let run = SimulatedStudy { visits: 3, requests: 400, ..SimulatedStudy::published_server() }.run();
    let analysis = analyse(&run);
    (run, analysis)
}

fn report<'a>((run, analysis): &'a (Run, Analysis)) -> Report<'a> {
    Report { run, analysis, references: &[], probes: &[] }
}

fn text(render: &impl Render) -> String {
    let sample = sample();
    let mut out = Vec::new();
    render.render(&report(&sample), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn plot(id: &str) -> Plot {
    let sample = sample();
    let all_figures = figures(&report(&sample));
    let ids: Vec<String> = all_figures.iter().map(|figure| figure.id.clone()).collect();
    let figure =
        all_figures.into_iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no {id} among {ids:?}"));
    match figure.drawing {
        Drawing::Plot(plot) => plot,
        Drawing::Heat(_) => panic!("{id} is a heat map"),
    }
}

#[test]
fn throughput_figure_has_prediction_bound_and_knee() {
    for (id, bound) in [("load.throughput", "at most"), ("load.response", "at least")] {
        let plot = plot(id);
        let series_with_role = |role| plot.series.iter().filter(move |series| series.role == role);
        assert_eq!(
            series_with_role(SeriesRole::Measured).map(|series| series.points.len()).sum::<usize>(),
            user_grid(20).len()
        );
        let predicted = series_with_role(SeriesRole::Predicted).next().unwrap();
        assert_eq!(predicted.points.len() as u64, *user_grid(20).last().unwrap());
        assert!(series_with_role(SeriesRole::Fitted).any(|series| series.label.ends_with(bound)), "{id}");
        let [knee] = plot.marks.as_slice() else { panic!("{:?}", plot.marks) };
        assert_eq!((knee.label.as_str(), knee.at), ("knee", 3.0));
    }
}

/// The knees in the drawing of the throughput of one server that is asked by several patterns.
fn knees(patterns: &[RequestPattern]) -> Vec<Mark> {
    let study_run =
        |&pattern| SimulatedStudy { visits: 3, requests: 400, pattern, ..SimulatedStudy::published_server() }.run();
    let run = patterns.iter().map(study_run).reduce(|mut merged, other| {
        merged.measurements.extend(other.measurements);
        merged.header.plan.extend(other.header.plan);
        merged
    });
    let sample = run.map(|run| (run.clone(), analyse(&run))).unwrap();
    let throughput = figures(&report(&sample)).into_iter().find(|figure| figure.id == "load.throughput").unwrap();
    if let Drawing::Plot(plot) = throughput.drawing { plot.marks } else { Vec::new() }
}

#[test]
fn coinciding_knees_share_one_name() {
    let two_pattern_knees = knees(&[RequestPattern::Random, RequestPattern::Sequence]);
    let [pair_knee] = two_pattern_knees.as_slice() else { panic!("{two_pattern_knees:?}") };
    assert_eq!((pair_knee.label.as_str(), pair_knee.at), ("pattern=random; pattern=sequence, knee", 3.0));
    let three_pattern_knees = knees(&[RequestPattern::Random, RequestPattern::Sequence, RequestPattern::Zipf]);
    let [triple_knee] = three_pattern_knees.as_slice() else { panic!("{three_pattern_knees:?}") };
    assert_eq!((triple_knee.label.as_str(), triple_knee.at), ("knee of 3 lines", 3.0));
}

#[test]
fn load_steps_are_drawn_over_time() {
    let plot = plot("load.throughput.time");
    assert!(plot.series.iter().all(|series| series.role == SeriesRole::LoadSteps));
    assert_eq!(plot.series.iter().map(|series| series.points.len()).sum::<usize>(), 3 * user_grid(20).len() + 1);
    let [mark] = plot.marks.as_slice() else { panic!("{:?}", plot.marks) };
    assert_eq!(mark.label, "back to 1 user");
}

#[test]
fn utilization_is_drawn_per_resource() {
    let plot = plot("load.utilisation");
    assert_eq!(plot.series.len(), 4, "disk, CPU, link, generator");
    assert!(plot.series.iter().all(|series| series.points.len() == user_grid(20).len()));
}

#[test]
fn shares_have_a_linear_axis() {
    let plot = plot("load.utilisation");
    let values = || plot.series.iter().flat_map(|series| series.points.iter().map(|point| point.y));
    let (min_share, max_share) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    assert!(min_share > 0.0 && max_share > 30.0 * min_share && !plot.y.logarithmic, "{min_share} to {max_share}");
}

#[test]
fn minor_tables_are_folded_without_figure() {
    let sample = sample();
    let ids: Vec<String> = figures(&report(&sample)).into_iter().map(|figure| figure.id).collect();
    assert_eq!(
        ids,
        [
            "load.throughput",
            "load.response",
            "load.response-p50-p95-p99",
            "load.utilisation",
            "load.host.cpu-user-system",
            "load.host.pressure.io",
            "load.host.disk_requests.read",
            "load.host.disk_size.read",
            "load.throughput.time",
        ]
    );
    let page = text(&Html);
    assert!(page.contains("more lines <span class=\"why\">also in the tables of the study</span></summary>"));
    let (_, table) = page.split_once(">The server and its host by users</h4>").unwrap();
    let (main_table, full_table) = table.split_once("<summary>All 11 columns</summary>").unwrap();
    assert!(main_table.contains("<th>user<") && !main_table.contains("<th>steal<"), "nothing is stolen");
    assert!(full_table.contains("<th>steal<") && full_table.contains("<th>overflows<"));
}

#[test]
fn all_zero_figures_are_not_drawn() {
    let run = SimulatedStudy { visits: 2, requests: 100, ..SimulatedStudy::published_server() }.with_quota(0.5).run();
    let sample = (run.clone(), analyse(&run));
    let all_figures = figures(&report(&sample));
    let cpu_figures = all_figures.iter().filter(|figure| figure.id.starts_with("load.host.cpu"));
    assert_eq!(cpu_figures.map(|figure| figure.id.as_str()).collect::<Vec<_>>(), ["load.host.cpu-host=server"]);
}

/// The heights at which a drawing names places on an axis from 0 to 30.
fn mark_name_heights(places: &[f64]) -> Vec<String> {
    let mark = |&position: &f64| Mark {
        label: format!("think={position}, knee"),
        at: position,
        low: position,
        high: position,
    };
    let axis = || FigureAxis { label: String::new(), kind: AxisKind::Number, logarithmic: false, from_zero: true };
    let points = [0.0, 30.0].map(|x| Point { x, y: 1.0, low: 1.0, high: 1.0 });
    let series = vec![Series { label: String::new(), role: SeriesRole::Measured, style: 0, points: points.to_vec() }];
    let (guides, marks) = (Vec::new(), places.iter().map(mark).collect());
    let drawing = Drawing::Plot(Plot { x: axis(), y: axis(), guides, marks, series });
    let text = || "knees".to_owned();
    let svg = standalone(&Figure { id: text(), title: text(), description: Vec::new(), shows: Vec::new(), drawing });
    let height = |position: &f64| {
        let (before, _) = svg.split_once(&format!(">think={position}, knee<")).unwrap();
        let (_, tail) = before.rsplit_once(" y=\"").unwrap();
        tail.split_once('"').unwrap().0.to_owned()
    };
    places.iter().map(height).collect()
}

#[test]
fn overlapping_mark_names_are_stacked() {
    let [separate, overlapping, partial] =
        [[5.0, 15.0, 25.0], [15.0, 5.0, 16.0], [5.0, 6.0, 12.0]].map(|places| mark_name_heights(&places));
    assert!(separate[0] == separate[1] && separate[1] == separate[2], "{separate:?}");
    assert!(overlapping[0] == overlapping[1] && overlapping[1] != overlapping[2], "{overlapping:?}");
    assert!(partial[0] != partial[1] && partial[0] == partial[2], "{partial:?}");
}

#[test]
fn terminal_shows_sentences_and_tables() {
    insta::assert_snapshot!(text(&Terminal { width: 80, color: false }));
}

#[test]
fn every_format_names_the_limit() {
    for text in [text(&Markdown), text(&Html)] {
        assert!(text.contains("The network is the limit from 3 users on"), "the answer");
        assert!(text.contains("the network is") && text.contains("the next limit is the disk"), "its proof");
    }
}

#[test]
fn published_study_is_shown_alone() {
    let mut out = Vec::new();
    Terminal { width: 100, color: false }.write_study(&kelvin_analysis::published_load(), &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}
