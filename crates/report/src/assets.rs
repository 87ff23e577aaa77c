//! Every figure of a report as files: the ladder as SVG, the others as one SVG and one CSV each.

use std::io;

use crate::figures::figures;
use crate::svg::ladder::Ladder;
use crate::{Report, csv, svg};

/// The file of the ladder.
const LADDER_FILE: &str = "ladder.svg";

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Its name: letters, digits and `.-_=` only.
    pub name: String,
    /// What goes into it.
    pub contents: String,
}

/// The ladder, then the SVG and the CSV of each figure, in the order of the report.
///
/// # Errors
/// None that a caller could cause; writing to memory is checked all the same.
pub fn report_assets(report: &Report<'_>) -> io::Result<Vec<Asset>> {
    let ladder =
        Ladder::for_report(report).map(|ladder| Asset { name: LADDER_FILE.into(), contents: ladder.standalone() });
    let mut assets: Vec<Asset> = ladder.into_iter().collect();
    for figure in figures(report) {
        let mut points = Vec::new();
        csv::write_figure(&figure, &mut points)?;
        let points = String::from_utf8(points).map_err(io::Error::other)?;
        assets.push(Asset { name: format!("{}.svg", figure.id), contents: svg::standalone(&figure) });
        assets.push(Asset { name: format!("{}.csv", figure.id), contents: points });
    }
    Ok(assets)
}
