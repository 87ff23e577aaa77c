//! The first screen on a terminal: 60 lines of 80 columns at most, with and without Unicode and colours.

mod synthetic;

use kelvin_analysis::testing::guest;
use kelvin_analysis::{Analysis, analyse};
use kelvin_core::{
    MissingFigures, MissingReason, Name, Overview, PredictionVerdict, Remedy, Run, RunStatus, UsualRange,
};
use kelvin_report::{FirstScreen, Render, Report, Terminal};

/// The commands and files that the command line lists below the screen.
fn further_outputs() -> [(String, String); 2] {
    [("kelvin report last --full", "all tables and conclusions"), ("report.html", "the same, drawn")]
        .map(|(command, description)| (command.to_owned(), description.to_owned()))
}

fn render_screen(run: &Run, analysis: &Analysis, change: impl Fn(FirstScreen<'_>) -> FirstScreen<'_>) -> String {
    let references = kelvin_analysis::references();
    let report = Report { run, analysis, references: &references[..2], probes: &[] };
    let outputs = further_outputs();
    let screen = FirstScreen { terminal: Terminal::default(), unicode: true, tables: false, further_outputs: &outputs };
    let mut out = Vec::new();
    change(screen).render(&report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn render_plain(run: &Run) -> String {
    render_screen(run, &analyse(run), |screen| screen)
}

fn assert_fits(text: &str) {
    assert!(text.lines().count() <= 60, "{} lines:\n{text}", text.lines().count());
    text.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
}

#[test]
fn first_screen_of_a_guest() {
    let text = render_plain(&guest::guest_run());
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn first_screen_in_ascii() {
    let run = guest::guest_run();
    let text = render_screen(&run, &analyse(&run), |screen| FirstScreen { unicode: false, ..screen });
    assert_fits(&text);
    assert!(text.is_ascii() && !text.contains('?'), "{text}");
    insta::assert_snapshot!(text);
}

/// Predicted from the same run, and usual of the class: two ranges, drawn apart.
#[test]
fn class_range_is_drawn_with_predicted_range() {
    let run = guest::guest_run();
    let mut analysis = analyse(&run);
    assert!(!render_plain(&run).contains('┄'), "its class is not known");
    let rungs = &mut analysis.overview.as_mut().unwrap().rungs;
    let call = rungs.iter_mut().find(|rung| rung.label == "system call").unwrap();
    call.figure.class_range = Some(UsualRange { low: 2e-8, high: 2e-6, machines: 8 });
    let text = render_screen(&run, &analysis, |screen| screen);
    let line = text.lines().find(|line| line.contains("system call")).unwrap();
    assert!(line.contains('┄') && line.contains('━') && line.contains('●'), "{line}");
    assert!(text.contains("┄ its class") && text.lines().filter(|line| line.contains('┄')).count() == 2, "{text}");
    assert_fits(&text);
}

#[test]
fn always_disturbed_figure_has_own_mark() {
    let run = guest::disturbed_run();
    let text = render_plain(&run);
    assert_fits(&text);
    insta::assert_snapshot!(text);
    let ascii = render_screen(&run, &analyse(&run), |screen| FirstScreen { unicode: false, ..screen });
    assert!(ascii.is_ascii() && !ascii.contains('?'), "{ascii}");
    assert!(ascii.contains("131 ns ~") && ascii.contains("~ disturbed"), "{ascii}");
}

#[test]
fn colors_change_only_escapes() {
    let run = guest::guest_run();
    let analysis = analyse(&run);
    let colored = render_screen(&run, &analysis, |screen| FirstScreen {
        terminal: Terminal { width: 80, color: true },
        ..screen
    });
    assert!(colored.contains("\u{1b}["));
    let mut parts = colored.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let uncolored = parts.fold(first, |text, part| text + part.split_once('m').expect("a colour ends in m").1);
    let trimmed = |text: &str| text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>();
    assert_eq!(trimmed(&uncolored), render_screen(&run, &analysis, |screen| screen));
}

/// As much of everything as there can be.
fn crowded_run() -> (Run, Analysis) {
    let mut run = guest::guest_run();
    run.status = RunStatus::Partial("interrupted by Ctrl-C ".repeat(9));
    let long_text = "a text of a machine that does not end ".repeat(20);
    run.header.machine.cpu.model_name = kelvin_core::Fact::known(long_text.clone(), "a test");
    let mut analysis = analyse(&run);
    let screen = analysis.overview.as_mut().unwrap();
    let rung = screen.rungs.last().unwrap().clone();
    screen.rungs.resize(24, rung);
    let line = screen.rates[0].clone();
    screen.rates.resize(7, line);
    screen.cautions = vec![long_text.clone(); 9];
    let remedy =
        Remedy { command: long_text.clone(), is_command: true, hazards: Vec::new(), problems: vec![long_text; 3] };
    screen.remedies = vec![remedy; 9];
    let metrics: Vec<Name> = run.header.metrics.iter().map(|metric| metric.id).cycle().take(300).collect();
    screen.missing = vec![MissingFigures { reason: MissingReason::Failed, figures: 900, metrics }];
    (run, analysis)
}

#[test]
fn every_run_fits_one_screen() {
    let (run, analysis) = crowded_run();
    let text = render_screen(&run, &analysis, |screen| screen);
    assert_fits(&text);
    for excerpt in [
        "Waking an idle CPU",
        "No figure    900 failed: cpu.frequency",
        "Do first",
        "partial",
        "! a text of",
        "! 7 more among the findings",
    ] {
        assert!(text.contains(excerpt), "{excerpt} is missing:\n{text}");
    }
}

#[test]
fn ladder_shrinks_for_sentences() {
    let run = guest::guest_run();
    let mut analysis = analyse(&run);
    let screen = analysis.overview.as_mut().unwrap();
    screen.cautions =
        vec!["Something that changes how to read the run, in a sentence that is longer than a line of it.".into(); 2];
    screen.remedies = vec![screen.remedies[0].clone(); 3];
    let sentences = screen.stand_outs.len();
    let rungs: Vec<(String, bool)> = screen.rungs.iter().map(|rung| (rung.label.clone(), rung.is_spare)).collect();
    assert!(sentences >= 7 && rungs.iter().filter(|(_, is_spare)| *is_spare).count() == 5);
    let text = render_screen(&run, &analysis, |screen| screen);
    assert_fits(&text);
    for number in 1..=sentences {
        assert!(text.contains(&format!("\n  {number} ")), "sentence {number} is missing:\n{text}");
    }
    let has_line = |prefix: &str| text.lines().any(|line| line.trim_start().starts_with(prefix));
    assert!(rungs.iter().filter(|(_, is_spare)| !is_spare).all(|(label, _)| has_line(label)), "{text}");
    assert!(!has_line("pipe round trip") && render_plain(&run).contains("pipe round trip"), "{text}");
}

#[test]
fn last_sentences_are_cut_first() {
    let run = guest::guest_run();
    let mut analysis = analyse(&run);
    let screen = analysis.overview.as_mut().unwrap();
    screen.cautions =
        vec!["Something that changes how to read the run, in a sentence longer than a line of it.".into(); 2];
    screen.remedies = vec![screen.remedies[0].clone(); 3];
    screen.rungs.iter_mut().for_each(|rung| rung.is_spare = false);
    let long_sentence = "A sentence of three lines takes more room than one of a single line, and so it does not fit where that would: \
                the number after it is then not the one that follows the number before it.";
    screen.stand_outs.iter_mut().skip(1).step_by(2).for_each(|stand_out| stand_out.text = long_sentence.into());
    screen.stand_outs.iter_mut().step_by(2).for_each(|stand_out| stand_out.text = "One line.".into());
    let sentences = screen.stand_outs.len();
    let text = render_screen(&run, &analysis, |screen| screen);
    let numbers: Vec<usize> = (1..=sentences).filter(|number| text.contains(&format!("\n  {number} "))).collect();
    assert!(!numbers.is_empty() && numbers.len() < sentences, "{text}");
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "{text}");
}

#[test]
fn slow_times_and_rates_share_one_word() {
    let run = guest::guest_run();
    let mut analysis = analyse(&run);
    let screen = analysis.overview.as_mut().unwrap();
    let rates = screen.rates.iter_mut().flat_map(|line| &mut line.rates);
    rates.for_each(|rate| rate.figure.verdict = PredictionVerdict::Slower);
    let text = render_screen(&run, &analysis, |screen| screen);
    assert_fits(&text);
    for excerpt in [
        "84.3 ns slower",
        "memory, one CPU   19 GB/s read (slower), 25 copy (slower)",
        "pipe              8.3 GB/s on one CPU (slower)",
    ] {
        assert!(text.contains(excerpt), "{excerpt} is missing:\n{text}");
    }
    assert!(!text.contains(['▲', '▼']), "an arrow means more of a rate:\n{text}");
}

#[test]
fn remedy_command_has_own_line() {
    let text = render_plain(&guest::guest_run());
    assert!(text.contains("Do first     $ sudo kelvin tune --apply\n"), "{text}");
    let advice = "             the load average of the last minute is 1.90 on 2 CPUs: find the\n";
    assert!(text.contains(advice) && !text.contains("$ find"), "{text}");
}

#[test]
fn indistinguishable_level_names_the_other() {
    let run = guest::guest_run();
    let mut analysis = analyse(&run);
    let rung = analysis.overview.as_mut().unwrap().rungs.iter_mut().find(|rung| rung.label == "L3 hit").unwrap();
    rung.figure.measured = None;
    rung.figure.predicted = None;
    rung.figure.text = "not distinguishable from DRAM".into();
    let text = render_screen(&run, &analysis, |screen| screen);
    assert_fits(&text);
    let line = text.lines().find(|line| line.contains("L3 hit")).unwrap();
    assert!(line.ends_with("not distinguishable from DRAM"), "{line}");
    let axis = |text: &str| text.lines().find(|line| line.contains("100 µs")).map(str::to_owned);
    assert_eq!(axis(&text), axis(&render_plain(&run)), "its words leave the axis as wide as it was");
}

#[test]
fn wide_terminal_lengthens_axis_only() {
    let run = guest::guest_run();
    let analysis = analyse(&run);
    let wide_screen = render_screen(&run, &analysis, |screen| FirstScreen {
        terminal: Terminal { width: 200, color: false },
        ..screen
    });
    assert!(wide_screen.lines().count() <= 60);
    assert!(wide_screen.lines().all(|line| line.chars().count() <= 100), "{wide_screen}");
    assert!(wide_screen.lines().any(|line| line.chars().count() > 80), "{wide_screen}");
}

#[test]
fn requested_tables_follow_the_screen() {
    let run = guest::guest_run();
    let analysis = analyse(&run);
    let with_tables = render_screen(&run, &analysis, |screen| FirstScreen { tables: true, ..screen });
    let without_tables = render_screen(&run, &analysis, |screen| screen);
    assert!(with_tables.starts_with(&without_tables));
    let tables = &with_tables[without_tables.len()..];
    assert!(tables.contains("Operating system services") && tables.contains("syscall.null call=getppid"), "{tables}");
    assert!(!tables.contains("Verdict") && !tables.contains("Study "), "{tables}");
}

#[test]
fn run_without_screen_is_shown_in_full() {
    let sample = synthetic::empty();
    let mut report_bytes = Vec::new();
    Terminal::default().render(&sample.report(), &mut report_bytes).unwrap();
    assert_eq!(render_screen(&sample.run, &sample.analysis, |screen| screen), String::from_utf8(report_bytes).unwrap());
}

/// A text of a stored run moves no cursor.
#[test]
fn hostile_texts_are_escaped_on_screen() {
    let (mut run, mut analysis) = crowded_run();
    run.header.machine.cpu.model_name = kelvin_core::Fact::known(synthetic::HOSTILE.into(), "a test");
    let hostile = || synthetic::HOSTILE.to_owned();
    let screen: &mut Overview = analysis.overview.as_mut().unwrap();
    screen.cautions = vec![hostile()];
    screen.remedies[0].command = hostile();
    screen.stand_outs[0].text = hostile();
    screen.rungs[0].label = hostile();
    screen.rungs[1].figure.text = hostile();
    screen.rates[0].label = hostile();
    screen.rates[0].rates[0].work = hostile();
    for unicode in [true, false] {
        let text = render_screen(&run, &analysis, |screen| FirstScreen { unicode, ..screen });
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
        assert!(text.lines().count() <= 60 && (unicode || text.is_ascii()));
    }
}

#[test]
fn missing_rates_have_one_line_reason() {
    let run = guest::guest_run();
    let mut analysis = analyse(&run);
    let line = &mut analysis.overview.as_mut().unwrap().rates[0];
    assert!(line.rates.len() > 1);
    for rate in &mut line.rates {
        (rate.figure.measured, rate.figure.as_found) = (None, None);
        (rate.figure.text, rate.figure.missing_reason) = ("skipped".into(), Some("needs two CPUs".into()));
    }
    let label = line.label.clone();
    let text = render_screen(&run, &analysis, |screen| screen);
    let line = text.lines().find(|line| line.trim_start().starts_with(&label)).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), format!("{label} skipped: needs two CPUs"));
    assert_eq!(text.matches("needs two CPUs").count(), 1, "{text}");
}
