//! The names of studies, and what the help says of them.

use kelvin_core::catalogue::load::THROUGHPUT;
use kelvin_core::catalogue::transfer::TIME;
use kelvin_core::{Name, is_dotted_prefix};
use kelvin_harness::{Probe, ProbeKind};

use kelvin_report::text::wrap;

/// What it is called.
pub const PAGE_TABLE_STUDY: &str = "page";

/// The studies, in the order of reports: first those that a plain run does not measure, then those of reports of plain runs, which have more
/// points as a study.
pub fn study_names() -> [Vec<&'static str>; 2] {
    let probes = kelvin_probes::all();
    let studies: Vec<&Probe> = probes.iter().copied().filter(|probe| probe.kind == ProbeKind::Study).collect();
    let mut alone: Vec<&'static str> = Vec::new();
    for &study in &studies {
        let area = study.metrics[0].area();
        let group = study.id.match_indices('.').nth(1).map_or(study.id, |(end, _)| &study.id[..end]);
        let is_alone =
            studies.iter().filter(|other| is_dotted_prefix(group, other.id)).count() == 1 && group == study.id;
        let is_plain = probes.iter().any(|probe| probe.kind == ProbeKind::Measure && probe.is_selected_by(group));
        let name = match () {
            () if [TIME.area(), THROUGHPUT.area()].contains(&area) => area,
            () if (is_alone || is_plain) && short_name(study) != PAGE_TABLE_STUDY => short_name(study),
            () => group,
        };
        if !alone.contains(&name) {
            alone.push(name);
        }
    }
    alone.push(PAGE_TABLE_STUDY);
    let is_measured = |id: &str| {
        let names = kelvin_analysis::study_metrics(id);
        !studies.iter().any(|study| names.iter().any(|name| study.is_selected_by(name)))
    };
    let of_reports = kelvin_analysis::study_ids().map(Name::as_str);
    [alone, of_reports.into_iter().filter(|id| is_measured(id)).collect()]
}

/// What a study is called: the last part of its id, or its area where it has one to itself.
pub fn short_name(study: &Probe) -> &'static str {
    if [TIME.id, THROUGHPUT.id].iter().any(|id| id.as_str() == study.id) {
        study.metrics[0].area()
    } else {
        study.id.rsplit('.').next().unwrap_or(study.id)
    }
}

/// What `kelvin study --help` says of the names.
pub fn help_text() -> String {
    let indented = |names: Vec<&str>| {
        let lines = wrap(&names.join(", "), HELP_WIDTH).into_iter();
        lines.map(|line| format!("  {line}\n")).collect::<String>()
    };
    let [alone, measured] = study_names().map(indented);
    format!(
        "Studies:\n{alone}\nStudies with more points than a plain run:\n{measured}\n\
         An area, a probe, a metric or a leading part of an id, such as os.syscall, is a study of these probes alone; `kelvin list` has them.\n\n\
         Examples:\n  kelvin study tasks\n  kelvin study os.tasks --budget 2m\n  \
         kelvin study file.depth --dir /data\n  kelvin study transfer --quick"
    )
}

/// Columns of a help text.
const HELP_WIDTH: usize = 78;
