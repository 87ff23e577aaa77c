//! Writes the tests' synthetic report: `sample PATH [full|partial|empty|hostile|large|load|server|hybrid]`; the extension of the path
//! chooses the format (html, md, json, csv, svg, txt). `sample PATH compare` writes the page of a comparison.

#[path = "../tests/synthetic/comparison.rs"]
mod comparison;
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use kelvin_analysis::testing::large_machine;
use kelvin_analysis::testing::load::{SimulatedStudy, combined_run, user_grid};
use kelvin_report::{CsvSummary, Html, Json, Markdown, Render, Terminal, compare, figures, svg};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || io::Error::other("usage: sample PATH [full|partial|empty|hostile|large|load|server|hybrid|compare]");
    let path = Path::new(arguments.first().ok_or_else(usage)?);
    if arguments.get(1).is_some_and(|argument| argument == "compare") {
        return compare::write_page(&comparison::gated_comparison(), &mut File::create(path)?);
    }
    let sample = match arguments.get(1).map_or("full", String::as_str) {
        "full" => synthetic::full(),
        "partial" => synthetic::partial(),
        "empty" => synthetic::empty(),
        "hostile" => synthetic::hostile(),
        "large" => synthetic::large(8),
        "load" => load(),
        "server" => synthetic::analysed(large_machine::server_run()),
        "hybrid" => synthetic::analysed(large_machine::hybrid_run()),
        _ => return Err(usage()),
    };
    let report = sample.report();
    let mut out = BufWriter::new(File::create(path)?);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html") => Html.render(&report, &mut out)?,
        Some("md") => Markdown.render(&report, &mut out)?,
        Some("json") => Json { pretty: true, samples: true }.render(&report, &mut out)?,
        Some("csv") => CsvSummary.render(&report, &mut out)?,
        Some("txt") => Terminal { width: 100, color: true }.render(&report, &mut out)?,
        Some("svg") => match figures::figures(&report).first() {
            Some(figure) => write!(out, "{}", svg::standalone(figure))?,
            None => return Err(io::Error::other("this report has no figure")),
        },
        _ => return Err(usage()),
    }
    out.flush()
}

/// A simulated study of a server under load, without think time and with a second of it.
fn load() -> synthetic::SyntheticReport {
    let thinking = SimulatedStudy { think: 1000, users: user_grid(30), ..SimulatedStudy::published_server() };
    synthetic::analysed(combined_run(&[SimulatedStudy::published_server(), thinking]))
}
