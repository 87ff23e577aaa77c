//! A history as Markdown.

use std::io;

use kelvin_analysis::wording::history::{change_counts, history_title, remarks, series_name, share_text};
use kelvin_core::units::brief_value;
use kelvin_core::{History, SeriesHistory};

use super::sparkline::sparkline;
use super::{UNCHANGED, newest_changes, sections, series_texts};
use crate::escape::{MarkdownText, md};

/// Columns of the small picture.
const SPARKLINE_WIDTH: usize = 24;

/// Writes a history as Markdown (GitHub's flavour: tables, and what folds).
///
/// # Errors
/// Those of the writer.
pub fn write_markdown(history: &History, out: &mut dyn io::Write) -> io::Result<()> {
    let texts = [history_title(history), change_counts(history)].into_iter().chain(remarks(history));
    let texts: MarkdownText = texts.map(|text| md!("{}\n\n", text)).collect();
    let tables = sections(history).into_iter().map(|(title, series)| series_table(title, &series, history));
    let page = md!("### kelvin history\n\n{}{}", texts, tables.collect::<MarkdownText>());
    out.write_all(page.as_str().as_bytes())
}

fn series_table(title: &str, series: &[&SeriesHistory], history: &History) -> MarkdownText {
    let rows: MarkdownText = series.iter().map(|series| row(series)).collect();
    let changes: MarkdownText = series.iter().map(|series| changes(series, history)).collect();
    let head = md!("| series | runs | latest | of first | last change |\n|:--|:--|--:|--:|--:|\n");
    let body = md!("{}{}\n{}", head, rows, changes);
    match title == UNCHANGED {
        true => MarkdownText::folded(&format!("{title} ({})", series.len()), body),
        false => md!("#### {}\n\n{}\n", title, body),
    }
}

fn row(series: &SeriesHistory) -> MarkdownText {
    let (name, picture) = (MarkdownText::code(&series_name(series)), sparkline(series, SPARKLINE_WIDTH, true));
    let (latest, first) = (brief_value(series.latest(), None, series.metric.unit), share_text(series.since_first()));
    let last = series.last_change().map_or_else(|| "-".into(), |change| share_text(change.ratio()));
    md!("| {} | {} | {} | {} | {} |\n", name, picture, latest, first, last)
}

fn changes(series: &SeriesHistory, history: &History) -> MarkdownText {
    let is_ranked = series.last_change().is_some();
    let texts = series_texts(series, history, newest_changes(series), usize::MAX, is_ranked);
    texts.iter().map(|text| md!("- {}: {}\n", MarkdownText::code(&series_name(series)), text)).collect()
}
