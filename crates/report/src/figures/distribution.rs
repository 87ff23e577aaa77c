//! The distribution of the samples behind a headline.

use kelvin_analysis::{MetricResult, Outcome};

use super::{AxisKind, Drawing, Figure, FigureAxis, Plot, Point, Role, Series, file_name, spans_wide};
use crate::units;

/// The distribution of the samples behind a headline, as its quantile function: share of samples against value.
pub fn distribution_figure(result: &MetricResult) -> Option<Figure> {
    let (Outcome::Measured(summary) | Outcome::NotKnown(summary)) = &result.outcome else { return None };
    let d = &summary.distribution;
    let quantiles = [
        (0.0, d.min),
        (0.05, d.p5),
        (0.25, d.p25),
        (0.5, d.p50),
        (0.75, d.p75),
        (0.95, d.p95),
        (0.99, d.p99),
        (1.0, d.max),
    ];
    let points: Vec<Point> =
        quantiles.iter().map(|&(x, y)| Point { x, y, low: y, high: y }).filter(Point::is_finite).collect();
    let case = units::case(&result.metric, &result.case);
    let of = if d.of_batch_means { "batch means" } else { "single operations" };
    let series = vec![Series { label: of.into(), role: Role::Measured, style: 0, points }];
    Some(Figure {
        id: file_name(&format!("{} {case} distribution", result.metric.id)),
        title: format!("Distribution of {}{}{case}", result.metric.id, if case.is_empty() { "" } else { " at " }),
        description: vec![format!("Quantiles of {} {of}.", units::count(d.n))],
        shows: Vec::new(),
        drawing: Drawing::Plot(Plot {
            x: FigureAxis {
                label: "share of samples below".into(),
                kind: AxisKind::Share,
                logarithmic: false,
                from_zero: true,
            },
            y: FigureAxis {
                label: "value".into(),
                kind: result.metric.unit.into(),
                logarithmic: spans_wide(&series),
                from_zero: true,
            },
            guides: Vec::new(),
            marks: Vec::new(),
            series,
        }),
    })
}
