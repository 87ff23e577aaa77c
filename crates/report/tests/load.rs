//! How a study of a server under load is shown, from a simulated one.

use kelvin_analysis::testing::load::{Simulated, grid};
use kelvin_analysis::{Analysis, analyse};
use kelvin_model::Run;
use kelvin_report::figures::{Drawing, Plot, Role, figures};
use kelvin_report::{Html, Markdown, Render, Report, Terminal};

/// A server whose link is the limit from three users on.
fn sample() -> (Run, Analysis) {
    let run = Simulated { visits: 3, requests: 400, ..Simulated::published() }.run();
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
fn throughput_is_drawn_with_prediction_bound_and_knee() {
    for (id, bound) in [("load.throughput", "at most"), ("load.response", "at least")] {
        let plot = plot(id);
        let with = |role| plot.series.iter().filter(move |series| series.role == role);
        assert_eq!(with(Role::Measured).map(|series| series.points.len()).sum::<usize>(), grid(20).len());
        let predicted = with(Role::Predicted).next().unwrap();
        assert_eq!(predicted.points.len() as u64, *grid(20).last().unwrap());
        assert!(with(Role::Fitted).any(|series| series.label.ends_with(bound)), "{id}");
        let [knee] = plot.marks.as_slice() else { panic!("{:?}", plot.marks) };
        assert_eq!((knee.label.as_str(), knee.at), ("knee", 3.0));
    }
}

#[test]
fn visits_are_drawn_over_time_with_the_return() {
    let plot = plot("load.throughput.time");
    assert!(plot.series.iter().all(|series| series.role == Role::Visits));
    assert_eq!(plot.series.iter().map(|series| series.points.len()).sum::<usize>(), 3 * grid(20).len() + 1);
    let [back] = plot.marks.as_slice() else { panic!("{:?}", plot.marks) };
    assert_eq!(back.label, "back to 1 user");
}

#[test]
fn use_is_drawn_for_each_resource() {
    let plot = plot("load.utilisation");
    assert_eq!(plot.series.len(), 4, "disk, CPU, link, generator");
    assert!(plot.series.iter().all(|series| series.points.len() == grid(20).len()));
}

#[test]
fn the_terminal_shows_sentences_and_tables() {
    insta::assert_snapshot!(text(&Terminal { width: 80, color: false }));
}

#[test]
fn every_format_has_the_limit() {
    for text in [text(&Markdown), text(&Html)] {
        assert!(text.contains("The network is the limit from 3 users on"), "the answer");
        assert!(text.contains("the network is") && text.contains("the next limit is the disk"), "its proof");
    }
}

#[test]
fn the_published_study_is_shown_alone() {
    let mut out = Vec::new();
    Terminal { width: 100, color: false }.write_study(&kelvin_analysis::published_load(), &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}
