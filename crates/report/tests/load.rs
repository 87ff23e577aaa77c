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
    let all = figures(&report(&sample));
    let ids: Vec<String> = all.iter().map(|figure| figure.id.clone()).collect();
    let found = all.into_iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no {id} among {ids:?}"));
    match found.drawing {
        Drawing::Plot(plot) => plot,
        Drawing::Heat(_) => panic!("{id} is a heat map"),
    }
}

#[test]
fn throughput_figure_has_prediction_bound_and_knee() {
    for (id, bound) in [("load.throughput", "at most"), ("load.response", "at least")] {
        let plot = plot(id);
        let with = |role| plot.series.iter().filter(move |series| series.role == role);
        assert_eq!(with(SeriesRole::Measured).map(|series| series.points.len()).sum::<usize>(), user_grid(20).len());
        let predicted = with(SeriesRole::Predicted).next().unwrap();
        assert_eq!(predicted.points.len() as u64, *user_grid(20).last().unwrap());
        assert!(with(SeriesRole::Fitted).any(|series| series.label.ends_with(bound)), "{id}");
        let [knee] = plot.marks.as_slice() else { panic!("{:?}", plot.marks) };
        assert_eq!((knee.label.as_str(), knee.at), ("knee", 3.0));
    }
}

/// The knees in the drawing of the throughput of one server that is asked by several patterns.
fn knees(patterns: &[RequestPattern]) -> Vec<Mark> {
    let of =
        |&pattern| SimulatedStudy { visits: 3, requests: 400, pattern, ..SimulatedStudy::published_server() }.run();
    let run = patterns.iter().map(of).reduce(|mut all, one| {
        all.measurements.extend(one.measurements);
        all.header.plan.extend(one.header.plan);
        all
    });
    let sample = run.map(|run| (run.clone(), analyse(&run))).unwrap();
    let of_throughput = figures(&report(&sample)).into_iter().find(|figure| figure.id == "load.throughput").unwrap();
    if let Drawing::Plot(plot) = of_throughput.drawing { plot.marks } else { Vec::new() }
}

#[test]
fn coinciding_knees_share_one_name() {
    let two = knees(&[RequestPattern::Random, RequestPattern::Sequence]);
    let [both] = two.as_slice() else { panic!("{two:?}") };
    assert_eq!((both.label.as_str(), both.at), ("pattern=random; pattern=sequence, knee", 3.0));
    let three = knees(&[RequestPattern::Random, RequestPattern::Sequence, RequestPattern::Zipf]);
    let [all] = three.as_slice() else { panic!("{three:?}") };
    assert_eq!((all.label.as_str(), all.at), ("knee of 3 lines", 3.0));
}

#[test]
fn load_steps_are_drawn_over_time() {
    let plot = plot("load.throughput.time");
    assert!(plot.series.iter().all(|series| series.role == SeriesRole::LoadSteps));
    assert_eq!(plot.series.iter().map(|series| series.points.len()).sum::<usize>(), 3 * user_grid(20).len() + 1);
    let [back] = plot.marks.as_slice() else { panic!("{:?}", plot.marks) };
    assert_eq!(back.label, "back to 1 user");
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
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    assert!(least > 0.0 && most > 30.0 * least && !plot.y.logarithmic, "{least} to {most}");
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
    let (main, all) = table.split_once("<summary>All 11 columns</summary>").unwrap();
    assert!(main.contains("<th>user<") && !main.contains("<th>steal<"), "nothing is stolen");
    assert!(all.contains("<th>steal<") && all.contains("<th>overflows<"));
}

#[test]
fn all_zero_figures_are_not_drawn() {
    let run = SimulatedStudy { visits: 2, requests: 100, ..SimulatedStudy::published_server() }.with_quota(0.5).run();
    let sample = (run.clone(), analyse(&run));
    let all = figures(&report(&sample));
    let of_cpus = all.iter().filter(|figure| figure.id.starts_with("load.host.cpu"));
    assert_eq!(of_cpus.map(|figure| figure.id.as_str()).collect::<Vec<_>>(), ["load.host.cpu-host=server"]);
}

/// The heights at which a drawing names places on an axis from 0 to 30.
fn mark_name_heights(places: &[f64]) -> Vec<String> {
    let mark = |&at: &f64| Mark { label: format!("think={at}, knee"), at, low: at, high: at };
    let axis = || FigureAxis { label: String::new(), kind: AxisKind::Number, logarithmic: false, from_zero: true };
    let points = [0.0, 30.0].map(|x| Point { x, y: 1.0, low: 1.0, high: 1.0 });
    let series = vec![Series { label: String::new(), role: SeriesRole::Measured, style: 0, points: points.to_vec() }];
    let (guides, marks) = (Vec::new(), places.iter().map(mark).collect());
    let drawing = Drawing::Plot(Plot { x: axis(), y: axis(), guides, marks, series });
    let text = || "knees".to_owned();
    let drawn = standalone(&Figure { id: text(), title: text(), description: Vec::new(), shows: Vec::new(), drawing });
    let height = |at: &f64| {
        let (before, _) = drawn.split_once(&format!(">think={at}, knee<")).unwrap();
        let (_, from) = before.rsplit_once(" y=\"").unwrap();
        from.split_once('"').unwrap().0.to_owned()
    };
    places.iter().map(height).collect()
}

#[test]
fn overlapping_mark_names_are_stacked() {
    let [apart, near, back] =
        [[5.0, 15.0, 25.0], [15.0, 5.0, 16.0], [5.0, 6.0, 12.0]].map(|places| mark_name_heights(&places));
    assert!(apart[0] == apart[1] && apart[1] == apart[2], "{apart:?}");
    assert!(near[0] == near[1] && near[1] != near[2], "{near:?}");
    assert!(back[0] != back[1] && back[0] == back[2], "{back:?}");
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
