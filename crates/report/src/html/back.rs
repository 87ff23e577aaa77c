//! The back of the page: studies, published machines, how it was measured, and the words.

use super::{detail, esc, heading, list, scrolling, terms};
use crate::figures::Figure;
use crate::{Report, peers, units, words};

/// Studies with their conclusions and the test that carries each.
pub(super) fn studies(report: &Report<'_>, figures: &[Figure]) -> String {
    let mut page = heading("studies", "Studies");
    for study in &report.analysis.studies {
        page.push_str(&format!("<h3><code>{}</code></h3><p class=\"lead\">{}</p>", esc(&study.id), esc(&study.design)));
        let conclusions = study.conclusions.iter().map(|conclusion| {
            let (class, word) = match conclusion.holds {
                Some(true) => ("good", "holds"),
                Some(false) => ("odd", "refuted"),
                None => ("quiet", "open"),
            };
            format!(
                "<span class=\"pill {class}\">{word}</span> {} <span class=\"why\">{}</span>",
                esc(&conclusion.text),
                esc(&conclusion.test)
            )
        });
        page.push_str(&list("findings", conclusions));
        page.push_str(&figures_of(&study.id, figures));
    }
    page
}

/// Links to the figures of a study: those of the metrics whose ids begin with its own.
fn figures_of(study: &str, figures: &[Figure]) -> String {
    let belongs =
        |figure: &&Figure| figure.id.strip_prefix(study).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let link = |figure: &Figure| format!("<a href=\"#figure-{0}\">{0}</a>", esc(&figure.id));
    let links: Vec<String> = figures.iter().filter(belongs).map(link).collect();
    if links.is_empty() { String::new() } else { format!("<p>Figures: {}.</p>", links.join(", ")) }
}

/// Other programs beside kelvin, with how each side was timed and proven.
pub(super) fn peers(report: &Report<'_>) -> String {
    let rows = peers::rows(report);
    let columns: String = ["Reading", "Beside", "kelvin", "Its figure", "Ratio", "Expected", "Verdict", "Proof"]
        .iter()
        .map(|name| format!("<th>{name}</th>"))
        .collect();
    let cells = |row: &peers::Row<'_>| match &row.sides {
        Ok(sides) => {
            let pill = if sides.is_gap { "odd" } else { "good" };
            let verdict = match sides.verdict {
                "" => String::new(),
                word => format!("<span class=\"pill {pill}\">{word}</span>"),
            };
            let proof = list("notes", sides.notes.iter().map(|note| esc(note)));
            format!(
                "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{verdict}</td><td class=\"text\">\
                 <details><summary>how it was timed</summary>{proof}</details></td>",
                esc(&sides.kelvin),
                esc(&sides.other),
                esc(&sides.ratio),
                esc(&sides.expected)
            )
        }
        Err((word, reason)) => {
            format!("<td class=\"text\" colspan=\"6\"><span class=\"pill quiet\">{word}</span> {}</td>", esc(reason))
        }
    };
    let body: String = rows
        .iter()
        .map(|row| {
            let (what, program) = (esc(&row.what), esc(row.program));
            format!("<tr><th>{what}</th><td class=\"text\">{program}</td>{}</tr>", cells(row))
        })
        .collect();
    let table = format!(
        "<table class=\"plain numbers\"><caption class=\"unseen\">{}</caption><thead><tr>{columns}</tr></thead>\
         <tbody>{body}</tbody></table>",
        esc(peers::TITLE)
    );
    format!(
        "{}<p class=\"lead\">{}</p>{}",
        heading("peers", peers::TITLE),
        esc(peers::LEAD),
        scrolling(peers::TITLE, &table)
    )
}

/// The published machines that stand beside this one, and what their authors found.
pub(super) fn references(report: &Report<'_>) -> String {
    let mut page = heading("published", "Published machines");
    page.push_str(
        "<p class=\"lead\">Means, deviations and counts as published; no samples are known. Values stand beside the \
                   metrics above.</p>",
    );
    for reference in report.references {
        let facts = reference.machine.iter().map(|(label, text)| format!("{}: {}", esc(label), esc(text)));
        let findings = reference.findings.iter().map(|finding| esc(finding));
        page.push_str(&format!("<h3>{}</h3>{}", esc(&reference.title), list("notes", facts.chain(findings))));
    }
    page
}

/// Settings, clock, rounds and command: what another reader needs to repeat the run.
pub(super) fn method(report: &Report<'_>) -> String {
    let outline = &report.run.outline;
    let (settings, clock) = (&outline.settings, &outline.clock);
    let rounds: usize = report.run.measurements.iter().map(|measurement| measurement.rounds.len()).sum();
    let failed: usize = report.run.measurements.iter().map(|measurement| measurement.failures().count()).sum();
    let peer = settings.peer_cpu.map(|cpu| format!(", pairs with CPU {cpu}")).unwrap_or_default();
    let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
    let command = outline.command.join(" ");
    let source = match (&clock.source_before, &clock.source_after) {
        (Some(before), Some(after)) if report.run.clock_changed() => {
            format!("<span class=\"pill bad\">changed</span> from {} to {}", esc(before), esc(after))
        }
        (Some(before), _) => esc(before),
        _ => "not known".into(),
    };
    let mut page = heading("method", "How it was measured");
    page.push_str(&terms([
        ("Command", format!("<code>{}</code>", esc(&command))),
        ("Started", esc(&outline.started)),
        (
            "Took",
            esc(&format!("{} of {}", units::seconds(report.run.seconds), units::seconds(settings.budget_seconds))),
        ),
        ("Mode", esc(&settings.mode)),
        (
            "Rounds",
            format!("{rounds}, {failed} failed; at least {} of each case, each in a fresh process", settings.rounds),
        ),
        ("Target", format!("half-width of the 95 % interval at most {} of the value", units::share(settings.target))),
        ("CPU", format!("{}{peer}", settings.cpu)),
        ("Canaries", yes(settings.canaries)),
        ("Real-time scheduling", yes(settings.realtime)),
        ("Seed", settings.seed.to_string()),
        (
            "Clock",
            format!(
                "{}, {}, known to {:.1e}; an empty pair costs {}",
                words::clock(clock.kind),
                units::plain(clock.hertz, kelvin_model::Unit::Hertz),
                clock.relative_error,
                units::plain(clock.pair_nanoseconds, kelvin_model::Unit::Nanoseconds)
            ),
        ),
        ("Kernel's clock source", source),
    ]));
    page.push_str(&list("notes", clock.note.iter().chain(&report.run.notes).map(|note| esc(note))));
    page.push_str(
        "<p>Raw readings: <code>kelvin report --format json</code> has every sample, <code>csv</code> a row for each.</p>",
    );
    page
}

/// How each probe measures, what is known to go wrong, and where that is from.
pub(super) fn methods(report: &Report<'_>) -> String {
    format!(
        "{}<p class=\"lead\">Of every probe of this run: what it does, how such numbers are got wrong and what is done about \
         it, and the sources; the same texts as <code>kelvin explain</code>.</p>{}",
        heading("methods", "Methods of the probes"),
        detail::methods(report)
    )
}

/// The terms of this page, a line each.
pub(super) fn glossary() -> String {
    let words = [
        ("metric", "one quantity with a name, a unit and a better direction"),
        (
            "batch",
            "operations timed together, so that the clock's own cost vanishes; a sample is the mean of one batch",
        ),
        ("round", "one fresh process that measures one metric once"),
        (
            "± interval",
            "95 % of repeats of the whole run give a value inside it; a range of rounds where there are too few",
        ),
        (
            "undisturbed",
            "samples whose neighbouring canaries were at their reference: what the machine does when left alone",
        ),
        ("as found", "all samples but the warm-up: what a user of this machine gets"),
        ("canary", "a short fixed piece of work timed between batches, which shows disturbance that no counter shows"),
        (
            "prediction",
            "what the value should be, from hardware facts and lower metrics of the same run; never adjusted afterwards",
        ),
        ("ratio", "measured over predicted; the shaded part of its bar is the range in which it is unremarkable"),
        ("cycles", "core clock cycles at the measured frequency of the core, not ticks of the time-stamp counter"),
        ("hazard", "something about the machine or its state that can spoil a number"),
        ("invalid", "beyond what is physically possible, so never a headline"),
    ];
    format!("{}{}", heading("glossary", "Words"), terms(words.map(|(term, text)| (term, esc(text)))))
}
