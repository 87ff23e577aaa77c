//! The first screen of the page: the ladder, the rates, what stands out, and what to do first.

use kelvin_core::{Name, Overview, OverviewFigure, PredictionVerdict, Rate, RateRow, Remedy, Rung, StandOut};

use super::{DataTable, anchor, definition_list, folded_data, list, remark_span, table_row};
use crate::escape::{Markup, html};
use crate::ladder::{compared_reference, full_labels, published_seconds};
use crate::sections::Section;
use crate::svg::ladder::Ladder;
use crate::{Report, labels};

/// What the screen is drawn from.
pub(super) struct OverviewSection<'a> {
    pub report: &'a Report<'a>,
    pub screen: &'a Overview,
    /// The sections of the page, to which figures lead.
    pub sections: &'a [Section<'a>],
}

impl OverviewSection<'_> {
    /// The screen, below the title of the page.
    pub(super) fn markup(&self) -> Markup {
        let cautions = self.screen.cautions.iter().map(|caution| html!("<p class=\"notice\">{}</p>", caution));
        let left = html!("<div>{}{}</div>", self.ladder(), self.rates());
        let right = [self.stand_outs(), self.remedies(), self.precision_and_missing()];
        let right = html!("<div>{}</div>", right.into_iter().collect::<Markup>());
        html!("{}<div class=\"first\">{}{}</div>", cautions.collect::<Markup>(), left, right)
    }

    /// How precise the run is, and what has no figure.
    fn precision_and_missing(&self) -> Markup {
        let precision = labels::precision(self.report.analysis).map(|text| html!("<p>Precision: {}.</p>", text));
        let missing: Vec<String> = self.screen.missing.iter().map(labels::missing_figure).collect();
        let missing = (!missing.is_empty()).then(|| html!("<p>No figure: {}.</p>", missing.join("; ")));
        html!("<div class=\"sure\">{}{}</div>", precision, missing)
    }

    /// The section of an area, if the page has it.
    fn section(&self, metric: &str) -> Option<&Section<'_>> {
        self.sections.iter().find(|section| metric.split('.').next() == Some(section.area))
    }

    /// The element to which a figure leads.
    fn target(&self, figure: &OverviewFigure) -> Option<String> {
        Some(anchor("area", self.section(figure.source.as_ref()?.metric.as_str())?.area))
    }

    fn ladder(&self) -> Markup {
        let drawing = Ladder::for_report(self.report).map(|ladder| ladder.inline(|rung| self.target(&rung.figure)));
        let table = folded_data("The ladder as a table", self.table());
        html!("<h2>How long it takes</h2><div class=\"static ladder\">{}</div>{}", drawing, table)
    }

    /// The ladder as a table, for readers who do not see the drawing.
    fn table(&self) -> Markup {
        let (screen, published) = (self.screen, compared_reference(self.report));
        let labels = full_labels(screen.rungs.iter().map(|rung| (rung.label.as_str(), rung.continues)));
        let row = |(rung, label): (&Rung, String)| {
            let link = match self.target(&rung.figure) {
                Some(target) => html!("<a href=\"#{}\">{}</a>", target, label),
                None => label.into(),
            };
            let mut cells = vec![
                labels::figure(&rung.figure),
                rung.figure.predicted.as_ref().map(labels::predicted_time_text).unwrap_or_default(),
                labels::prediction_word(rung.figure.verdict).to_owned(),
            ];
            let published = published.map(|(machine, _)| published_seconds(rung, machine).map(labels::time_text));
            cells.extend(published.map(Option::unwrap_or_default));
            table_row(link, cells)
        };
        let mut columns = vec!["What", "Measured", "Predicted", "Verdict"];
        columns.extend(published.map(|(_, title)| title));
        DataTable::of_figures("The ladder", &columns, screen.rungs.iter().zip(labels).map(row).collect()).markup()
    }

    fn rates(&self) -> Markup {
        let screen = self.screen;
        let line = |line: &RateRow| match labels::missing_rates(line) {
            Some(reason) => reason.into(),
            None => {
                let rates = Markup::joined(line.rates.iter().map(|rate| self.rate(rate)), ", ");
                html!("{}{}", rates, line.doubt.as_ref().map(|doubt| html!(" {}", remark_span(doubt))))
            }
        };
        let lines = screen.rates.iter().map(|row| (row.label.as_str(), line(row)));
        let list = || html!("<h2>Rates</h2>{}", definition_list(lines));
        if screen.rates.is_empty() { Markup::new() } else { list() }
    }

    /// A rate that leads to its section, with its prediction for a pointer that rests on it.
    fn rate(&self, rate: &Rate) -> Markup {
        let figure = &rate.figure;
        let class = match figure.verdict {
            PredictionVerdict::Slower => "odd",
            PredictionVerdict::Faster => "good",
            PredictionVerdict::AsPredicted | PredictionVerdict::NotCompared => "",
        };
        let as_found = figure.as_found.as_ref().map(|as_found| format!("{} as measured", as_found.text));
        let text = as_found.unwrap_or_else(|| figure.text.clone());
        let verdict = labels::prediction_word(figure.verdict);
        let verdict = (!class.is_empty()).then(|| format!(" ({verdict} than predicted)"));
        let derivation = figure.predicted.as_ref().map(|range| &range.derivation);
        let title = figure.missing_reason.as_ref().or(derivation);
        let span = html!("<span class=\"figure-link {}\">{}</span>", class, text);
        let link = match self.target(figure) {
            Some(target) => html!("<a href=\"#{}\" title=\"{}\">{}</a>", target, title, span),
            None => span,
        };
        html!("{} {}{}", link, rate.work, verdict)
    }

    fn stand_outs(&self) -> Markup {
        let sentence = |stand_out: &StandOut| {
            let mut sections: Vec<&Section<'_>> =
                stand_out.sides.iter().filter_map(|side| self.section(side.metric.as_str())).collect();
            sections.dedup_by_key(|section| section.area);
            let link =
                |section: &Section<'_>| html!("<a href=\"#{}\">{}</a>", anchor("area", section.area), section.title);
            let links = sections.into_iter().map(link);
            html!("<li>{} {}</li>", stand_out.text, remark_span(Markup::joined(links, ", ")))
        };
        let sentences: Markup = self.screen.stand_outs.iter().map(sentence).collect();
        let list = || html!("<h2>What stands out</h2><ol class=\"stand-outs\">{}</ol>", sentences);
        if sentences.is_empty() { Markup::new() } else { list() }
    }

    fn remedies(&self) -> Markup {
        let is_known = |id: &Name| self.report.run.header.hazards.iter().any(|hazard| hazard.id == *id);
        let problem = |(summary, id): (&String, &Name)| match is_known(id) {
            true => html!("<a href=\"#{}\">{}</a>", anchor("hazard", id), summary),
            false => summary.into(),
        };
        let remedy = |remedy: &Remedy| {
            let problems = Markup::joined(remedy.problems.iter().zip(&remedy.hazards).map(problem), "; ");
            match remedy.is_command {
                true => html!("{}: <code>{}</code>", problems, remedy.command),
                false => html!("{}: {}", problems, remedy.command),
            }
        };
        let remedies = list("do-first", self.screen.remedies.iter().map(remedy));
        if remedies.is_empty() { remedies } else { html!("<h2>Do first</h2>{}", remedies) }
    }
}
