//! Whether the memory of a process grows with the requests that it has served.

use super::laws::common_slope;
use super::*;

/// Growth of memory that matters, in bytes a request: below it the allocator's pages cannot be distinguished from a leak.
const MIN_LEAK_PER_REQUEST: f64 = 64.0;
/// Growth over a study that matters, in bytes: below it the allocator's arenas fill up, and the client keeps what it measures.
const MIN_LEAK_BYTES: f64 = (1 << 20) as f64;

pub(super) fn conclusion(sweep: &Sweep, of_server: bool) -> Option<LoadConclusion> {
    let metric = if of_server { &SERVER_MEMORY } else { &CLIENT_MEMORY };
    let points =
        |load: &UserLoad| load.steps.iter().filter_map(|visit| Some((visit.start, visit.get(metric)?))).collect();
    let growth = common_slope(sweep.loads.iter().map(points).collect())?;
    let visits: Vec<f64> = sweep.loads.iter().flat_map(|load| load.figure_values(&THROUGHPUT)).collect();
    let throughput = Some(mean(&visits)).filter(|&throughput| throughput > 0.0)?;
    let bytes_per_request = growth.per_second.divided_by(throughput);
    let total_growth = growth.per_second.divided_by(1.0 / growth.seconds);
    let holds = match (bytes_per_request.is_above(MIN_LEAK_PER_REQUEST), total_growth.is_above(MIN_LEAK_BYTES)) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    let process = if of_server { "server" } else { "load generator" };
    let (min_request, min_study) = (bytes_text(MIN_LEAK_PER_REQUEST), value_text(MIN_LEAK_BYTES, Unit::Bytes));
    let [per_request, total] = [&bytes_per_request, &total_growth].map(|growth| span_text(growth, bytes_text));
    let text = format!(
        "the memory of the {process} grows by more than {min_request} a request and {min_study} in the study: by {per_request} a request, {total} in the study"
    );
    let line = (holds == Some(true))
        .then(|| format!("The memory of the {process} grows by {} a request.", bytes_text(bytes_per_request.value)));
    let claim = LoadClaim::Growth {
        of_server,
        bytes_per_second: growth.per_second,
        bytes_per_request,
        bytes_in_study: total_growth,
    };
    let conclusion = LoadConclusion::new(claim, holds, slope_test(growth.visits, growth.seconds), text);
    Some(conclusion.with_line(AnswerLine::Trouble, line))
}

/// Bytes of which a fraction is no more than noise.
fn bytes_text(value: f64) -> String {
    if value.abs() < 10.0 {
        format!("{:.1} B", (value * 10.0).round() / 10.0 + 0.0)
    } else {
        value_text(value, Unit::Bytes)
    }
}
