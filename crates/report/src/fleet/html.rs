//! A report of a fleet as one page of its own, without any script: hosts that are out, and a heat map of hosts and metrics.

use std::io;

use kelvin_core::{IndirectSort, Unit};
use kelvin_fleet::{Deviations, FleetGroup, FleetReport};

use super::{SERIES_COLUMNS, association_text, counted, differing_text, group_text, series_cells, title, verdict};
use crate::deviation_steps::{legend, step_labels, step_of};
use crate::escape::{Markup, html};
use crate::figures::{AxisKind, CellRank, Drawing, Figure, Heat, HeatCell};
use crate::html::page_shell::PageShell;
use crate::html::{DataTable, folded_data, list, table_row};
use crate::svg;

const STYLE: &str = include_str!("../../assets/fleet.css");
/// Hosts that are out of a heat map, and others beside them: all that a reader takes in, and a page of a thousand hosts stays small.
const MAX_OUTLIERS: usize = 60;
const MAX_OTHERS: usize = 20;
/// Metrics that the description names.
const MAX_NAMED_METRICS: usize = 12;

/// Writes a report of a fleet as a page that opens offline, prints, and fits a phone; light and dark.
///
/// # Errors
/// Those of the writer.
pub fn write_page(report: &FleetReport, out: &mut dyn io::Write) -> io::Result<()> {
    let groups: Markup = report.groups.iter().enumerate().map(|(index, group)| section(group, index, report)).collect();
    let not_compared = report.not_compared.iter().map(|group| {
        let hosts = group.hosts.join(", ");
        html!("<li>{}, not compared, {}: {}</li>", group.name, group.reason, hosts)
    });
    let remarks: Markup = not_compared.chain(report.notes.iter().map(|note| html!("<li>{}</li>", note))).collect();
    let remarks = (!remarks.is_empty()).then(|| html!("<ul>{}</ul>", remarks));
    let head = html!("<h1>Fleet</h1><p class=\"lead\">{}</p><p><b>{}</b></p>", title(report), verdict(report));
    let body = html!("{}{}{}", head, groups, remarks);
    let title = counted(report.hosts, "host");
    PageShell { subject: "fleet", title: &title, style: STYLE, body }.write(out)
}

fn section(group: &FleetGroup, index: usize, report: &FleetReport) -> Markup {
    let lines: Vec<String> = match report.like {
        Some(_) => group
            .acceptance
            .iter()
            .map(|host| {
                let word = if host.is_accepted { "pass" } else { "FAIL" };
                format!("{word} {}: {}", host.label, host.reasons.join("; "))
            })
            .collect(),
        None => group.outliers.iter().map(|outlier| outlier.line.clone()).collect(),
    };
    let facts = group.associations.iter().map(association_text);
    let facts: Vec<String> = facts
        .chain(group.differing_facts.iter().map(|fact| format!("hosts differ in {}", differing_text(fact))))
        .collect();
    let rows = group.series.iter().map(|series| {
        let [name, cells @ ..] = series_cells(series);
        table_row(name, cells)
    });
    let table = DataTable::of_figures("All figures", &SERIES_COLUMNS, rows.collect()).markup();
    let all = folded_data(&format!("All figures ({})", group.series.len()), table);
    let hosts = (!lines.is_empty()).then(|| list("hosts", &lines));
    let facts = (!facts.is_empty()).then(|| list("facts", &facts));
    let map = heat_figure(&group.deviations, index).map(|figure| {
        let legend = legend("Worse or better by");
        html!(
            "<div class=\"map\">{}</div>{}<p class=\"lead\">{}</p>",
            svg::still(&figure),
            legend,
            figure.description.join(" ")
        )
    });
    html!("<section><h2>{}</h2>{}{}{}<p>{}</p>{}</section>", group_text(group), hosts, map, facts, group.power, all)
}

/// The hosts that are shown: those that are out, and of the others as many as give an idea of them, evenly spread over their order.
fn shown_hosts(deviations: &Deviations) -> Vec<usize> {
    let outliers = deviations.outliers.min(MAX_OUTLIERS);
    let others = deviations.hosts.len() - deviations.outliers;
    let shown = others.min(MAX_OTHERS);
    let sample = (0..shown).map(|index| deviations.outliers + index * others / shown);
    (0..outliers).chain(sample).collect()
}

/// The heat map of a group; `None` where it has no figure.
fn heat_figure(deviations: &Deviations, index: usize) -> Option<Figure> {
    let hosts = shown_hosts(deviations);
    let worst = |metric: usize| {
        let shares = hosts.iter().map(|&host| deviations.worse_by[host][metric]).filter(|share| share.is_finite());
        shares.fold(0.0, |worst: f32, share| worst.max(share.abs()))
    };
    let mut metrics: Vec<usize> = (0..deviations.metrics.len()).collect();
    metrics.indirect_sort_by(|&a, &b| worst(b).total_cmp(&worst(a)));
    let (mut cells, mut unmeasured) = (Vec::new(), Vec::new());
    for (row, &host) in hosts.iter().enumerate() {
        for (column, &metric) in metrics.iter().enumerate() {
            let share = deviations.worse_by[host][metric];
            if !share.is_finite() {
                unmeasured.push((row, column));
                continue;
            }
            let step = step_of(f64::from(share.abs()));
            let value = 100.0 * f64::from(share);
            cells.push(HeatCell {
                row,
                column,
                step,
                value,
                low: value,
                high: value,
                predicted: None,
                standing: CellRank::Other,
            });
        }
    }
    if cells.is_empty() {
        return None;
    }
    let omitted = deviations.hosts.len() - hosts.len();
    let sample = if omitted > 0 {
        format!(", then a sample of the others ({omitted} are not shown)")
    } else {
        ", then the others".into()
    };
    let heat = Heat {
        row_label: "host".into(),
        column_label: "metric".into(),
        axes: ["host".into(), "metric".into()],
        called: "cell",
        rows: hosts.iter().map(|&host| deviations.hosts[host].clone()).collect(),
        columns: metrics.iter().map(|&metric| deviations.metrics[metric].to_string()).collect(),
        unit: AxisKind::from(Unit::Ratio),
        factor: 1.0,
        symbol: "% worse than the median of its peers".into(),
        steps: step_labels(),
        cells,
        unmeasured,
    };
    let first: Vec<&str> =
        metrics.iter().take(MAX_NAMED_METRICS).map(|&metric| deviations.metrics[metric].as_str()).collect();
    let first = first.join(", ");
    let order = format!("Hosts that are out come first{sample}. Metrics that differ most come first: {first}.");
    let meaning = "A cell is the median over the cases of a metric of how much worse, or if negative better, it is than the peers' median, in per cent.";
    Some(Figure {
        id: format!("fleet-{index}"),
        title: "How far hosts are from their peers".into(),
        description: vec![order, meaning.into()],
        shows: Vec::new(),
        drawing: Drawing::Heat(heat),
    })
}
