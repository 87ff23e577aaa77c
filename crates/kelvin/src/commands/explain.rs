//! `kelvin explain`: the texts of a probe, of which the book's pages are made too.

use std::io::{self, Write};
use std::path::Path;

use kelvin_core::{Axis, AxisWord, Metric, Name, is_dotted_prefix};
use kelvin_harness::{Method, Probe, ProbeKind, UnknownName, input_probes};
use kelvin_report::ProbeDocs;
use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::ExplainArgs;
use crate::cli_error::CliError;
use crate::commands::causes_page;
use crate::output::{self, write_wrapped};

/// The texts of all probes, for reports.
pub fn probe_texts() -> Vec<ProbeDocs> {
    let docs = |probe: &Probe| {
        let Method { how, prediction, not_for, pitfalls, sources } = Method::parse(probe.method);
        let (id, summary, must_not_be_used_for) = (Name::new(probe.id), probe.summary.into(), Some(not_for));
        ProbeDocs { id, summary, method: how, prediction, pitfalls, sources, must_not_be_used_for }
    };
    kelvin_probes::all().into_iter().map(docs).collect()
}

/// A probe as JSON.
#[derive(Serialize)]
struct ProbeExplanation<'a> {
    #[serde(flatten)]
    probe: &'a Probe,
    #[serde(flatten)]
    method: Method,
    inputs: Vec<&'a str>,
}

/// `kelvin explain`.
pub fn explain(args: &ExplainArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let probes = kelvin_probes::all();
    let name = args.name.as_str();
    let is_exact = |probe: &&&Probe| probe.id == name || probe.metrics.iter().any(|metric| metric.id == *name);
    let mut selection: Vec<_> = probes.iter().filter(is_exact).collect();
    if selection.is_empty() {
        selection = probes.iter().filter(|probe| is_dotted_prefix(name, probe.id)).collect();
    }
    if selection.is_empty() {
        return Err(CliError::msg(UnknownName::new(name, &probes)));
    }
    if outlet.is_json {
        // Which inputs the predictions ask for depends on the machine.
        let machine = kelvin_machine::read(Path::new("/"));
        let explain = |&&probe: &&&'static Probe| {
            let (method, inputs) = (Method::parse(probe.method), input_probes(probe, &probes, &machine));
            ProbeExplanation { probe, method, inputs }
        };
        return outlet.write_json(&selection.iter().map(explain).collect::<Vec<_>>());
    }
    let width = output::width().min(100);
    outlet.write_lines(|out| {
        selection.iter().enumerate().try_for_each(|(index, probe)| {
            write!(out, "{}", if index > 0 { "\n" } else { "" })?;
            write_terminal(out, probe, width)
        })
    })
}

fn write_terminal(out: &mut dyn Write, probe: &Probe, width: usize) -> io::Result<()> {
    let method = Method::parse(probe.method);
    writeln!(out, "{}", probe.id)?;
    write_wrapped(out, width, "  ", probe.summary)?;
    for (title, text) in
        [("How", &method.how), ("Prediction", &method.prediction), ("Must not be used for", &method.not_for)]
    {
        writeln!(out, "\n{title}")?;
        write_wrapped(out, width, "  ", text)?;
    }
    writeln!(out, "\nMetrics")?;
    for metric in probe.metrics {
        let axes = axis_texts(metric);
        let axes_text = if axes.is_empty() { String::new() } else { format!(", over {}", axes.join(" and ")) };
        let text = format!("{} - {}{axes_text} (method version {})", metric.id, metric.summary, metric.version);
        write_wrapped(out, width, "  - ", &text)?;
    }
    for (title, lines) in [("Pitfalls", &method.pitfalls), ("Sources", &method.sources)] {
        if !lines.is_empty() {
            writeln!(out, "\n{title}")?;
        }
        lines.iter().try_for_each(|line| write_wrapped(out, width, "  - ", line))?;
    }
    Ok(())
}

/// The book's page of the probes of one area, in Markdown.
pub fn book_page(area: &str) -> Result<(), CliError> {
    if area == causes_page::CAUSES_PAGE {
        return output::print(causes_page::write_causes_page);
    }
    let probes = kelvin_probes::all();
    let selection: Vec<_> = probes
        .iter()
        .filter(|probe| probe.kind != ProbeKind::Truth && probe.id.split('.').next() == Some(area))
        .collect();
    if selection.is_empty() {
        bail!("no area is called '{area}'");
    }
    output::print(|out| {
        writeln!(out, "<!-- Made by `make docs` from the texts of the probes; edit those. -->\n")?;
        selection.iter().try_for_each(|probe| write_markdown(out, probe))
    })
}

/// The axes of a metric, in words; with the one word at which alone it is measured, or not measured, if there is one.
fn axis_texts(metric: &Metric) -> Vec<String> {
    let word = |word: Option<AxisWord>, axis: &Axis| word.filter(|word| word.axis() == axis.name).map(AxisWord::word);
    let parameter = |axis: &Axis| match (word(metric.restricted_to, axis), word(metric.except, axis)) {
        (Some(word), _) => format!("{} ({word} alone)", axis.label),
        (None, Some(word)) => format!("{} (not {word})", axis.label),
        (None, None) => axis.label.to_string(),
    };
    metric.axes().map(parameter).collect()
}

fn write_markdown(out: &mut dyn Write, probe: &Probe) -> io::Result<()> {
    let method = Method::parse(probe.method);
    writeln!(out, "## `{}`\n\n{}\n", probe.id, probe.summary)?;
    writeln!(out, "{}\n", method.how)?;
    writeln!(out, "**Prediction.** {}\n", method.prediction)?;
    writeln!(out, "**Must not be used for:** {}\n", method.not_for)?;
    writeln!(out, "| metric | what | parameters | version |\n|---|---|---|---|")?;
    for metric in probe.metrics {
        let axes = axis_texts(metric);
        let baseline = if metric.baseline { " (published baseline)" } else { "" };
        writeln!(out, "| `{}`{baseline} | {} | {} | {} |", metric.id, metric.summary, axes.join("; "), metric.version)?;
    }
    for (title, lines) in [("Pitfalls", &method.pitfalls), ("Sources", &method.sources)] {
        if !lines.is_empty() {
            writeln!(out, "\n**{title}**\n")?;
        }
        lines.iter().try_for_each(|line| writeln!(out, "- {line}"))?;
    }
    writeln!(out)
}
