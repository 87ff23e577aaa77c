//! A history as Markdown.

use std::io;

use kelvin_analysis::words::history::{besides, breaks, by, change, counts, name, of, remarks, standing};
use kelvin_model::units::brief;
use kelvin_model::{History, SeriesHistory};

use super::spark::spark;
use super::{SECTIONS, of_section};
use crate::safe::{Marked, md};

/// Columns of the small picture.
const SPARK: usize = 24;
/// The section of what did not change, which folds.
const FOLDED: usize = 3;

/// A history as Markdown (GitHub's flavour: tables, and what folds).
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted;

impl Noted {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(self, history: &History, out: &mut dyn io::Write) -> io::Result<()> {
        let said: Marked =
            std::iter::once(counts(history)).chain(remarks(history)).map(|one| md!("{}\n\n", one)).collect();
        let sections = SECTIONS.iter().enumerate().map(|(index, section)| {
            let series = of_section(history, section);
            of_series(section.0, index == FOLDED, &series, history)
        });
        let page = md!("### kelvin history\n\n{}\n\n{}{}", of(history), said, sections.collect::<Marked>());
        out.write_all(page.as_str().as_bytes())
    }
}

fn of_series(title: &str, is_folded: bool, series: &[&SeriesHistory], history: &History) -> Marked {
    if series.is_empty() {
        return Marked::new();
    }
    let table = md!(
        "| series | runs | latest | of first | last change |\n|:--|:--|--:|--:|--:|\n{}\n{}",
        series.iter().map(|one| row(one)).collect::<Marked>(),
        series.iter().map(|one| changes(one, history)).collect::<Marked>()
    );
    if is_folded {
        return md!("<details><summary>{} ({})</summary>\n\n{}\n</details>\n\n", title, series.len(), table);
    }
    md!("#### {}\n\n{}\n", title, table)
}

fn row(series: &SeriesHistory) -> Marked {
    md!(
        "| {} | {} | {} | {} | {} |\n",
        Marked::code(&name(series)),
        spark(series, SPARK, true),
        brief(series.latest(), None, series.metric.unit),
        by(series.since_first()),
        series.last_change().map_or_else(|| "-".into(), |change| by(change.ratio()))
    )
}

fn changes(series: &SeriesHistory, history: &History) -> Marked {
    let better = series.metric.better;
    let changes = series.versions.iter().rev().flat_map(|version| version.changes.iter().rev());
    let mut said: Vec<String> =
        changes.map(|one| format!("{}; {}", change(one, better, history), besides(one, usize::MAX))).collect();
    said.extend(breaks(series, history));
    said.extend(series.among.filter(|_| series.last_change().is_some()).map(|among| standing(among, better)));
    said.iter().map(|one| md!("- {}: {}\n", Marked::code(&name(series)), one)).collect()
}
