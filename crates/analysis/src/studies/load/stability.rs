//! A sweep over time: whether the server is at its end what it was at its start.

use super::laws::common_slope;
use super::*;
use kelvin_core::IndirectSort;

/// Change of throughput over a study that counts as none, as a share: the knee is known to within as much.
const MAX_THROUGHPUT_DRIFT: f64 = 0.05;
/// Fewest earlier visits that show what a further one would be like.
const MIN_EARLIER_STEPS: usize = 2;

/// Throughput of the visits to a number of users over their mean, at their times.
fn relative_throughput(load: &UserLoad) -> Vec<(f64, f64)> {
    let mean_throughput = mean(&load.throughputs());
    let mut points: Vec<(f64, f64)> =
        load.steps.iter().map(|visit| (visit.start, visit.throughput / mean_throughput)).collect();
    points.indirect_sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Whether throughput at equal numbers of users stays the same over the study.
pub(super) fn throughput_stability(sweep: &Sweep) -> Option<LoadConclusion> {
    let growth = common_slope(sweep.loads.iter().map(relative_throughput).collect())?;
    // Times the seconds of the study, as a share of its mean.
    let drift = growth.per_second.divided_by(1.0 / growth.seconds);
    let (return_step, tolerance) = (return_step(sweep), MAX_THROUGHPUT_DRIFT);
    let is_restored = return_step.as_ref().map(|(_, deviation)| deviation.is_within(tolerance));
    let holds = match (drift.is_within(tolerance), is_restored) {
        (Some(false), _) | (_, Some(Some(false))) => Some(false),
        (is_steady, _) => is_steady,
    };
    let last_text = return_step.as_ref().map_or_else(String::new, |(users, deviation)| {
        let (users, deviation_text) = (users_text(*users), span_text(deviation, signed_percent));
        format!("; the last visit, to {users} again, differs from those before by {deviation_text}")
    });
    let text = format!(
        "the server performs at the end as at the start, within {}: over the study throughput changes by {} at equal numbers of users\
         {last_text}",
        percent(tolerance),
        span_text(&drift, signed_percent)
    );
    let line = (holds == Some(false)).then(|| {
        format!(
            "The server changed during the study: throughput changes by {} over the study, at equal numbers of users.",
            signed_percent(drift.value)
        )
    });
    let claim = LoadClaim::Steady { fixed: sweep.fixed.clone(), drift, return_step, tolerance };
    let conclusion = LoadConclusion::new(claim, holds, slope_test(growth.visits, growth.seconds), text);
    Some(conclusion.with_line(AnswerLine::Trouble, line))
}

/// The last visit of the sweep, where it is one to the fewest users, against those before: the interval is that of a further visit.
fn return_step(sweep: &Sweep) -> Option<(u64, Estimate)> {
    let first_load = sweep.loads.first()?;
    let start = return_time(sweep)?;
    let (last, earlier): (Vec<_>, Vec<_>) = first_load.steps.iter().partition(|visit| visit.start >= start);
    let earlier_throughputs: Vec<f64> = earlier.iter().map(|visit| visit.throughput).collect();
    let next = UncertainValue::mean(&earlier_throughputs)?.next_value(earlier_throughputs.len());
    let (low, high) = next.interval(CONFIDENCE_LEVEL);
    let half_width = (high - low) / 2.0 / next.value;
    let value = last.first()?.throughput / next.value - 1.0;
    Some((first_load.users, Estimate::new(value, (value - half_width, value + half_width))))
}

/// When the fewest users were visited again, after all other visits.
fn return_time(sweep: &Sweep) -> Option<f64> {
    let first_load = sweep.loads.first().filter(|load| load.steps.len() > MIN_EARLIER_STEPS)?;
    let last_start = |load: &UserLoad| load.steps.iter().map(|visit| visit.start).fold(f64::NEG_INFINITY, f64::max);
    let start = last_start(first_load);
    sweep.loads[1..].iter().all(|load| last_start(load) < start).then_some(start)
}

/// The visits of a sweep over time: to the fewest users, to fewer than the knee, and from it on.
pub(super) fn timeline(sweep: &Sweep, label: &str) -> Option<Timeline> {
    let knee = saturated_sweep(sweep).map_or(u64::MAX, |saturated| saturated.saturation.knee.users);
    let min_users = sweep.loads.first()?.users;
    let group = |label: String, is_included: &dyn Fn(u64) -> bool| {
        let loads = sweep.loads.iter().filter(|load| load.steps.len() > 1 && is_included(load.users));
        let mut points: Vec<(f64, f64)> = loads.flat_map(relative_throughput).collect();
        points.indirect_sort_by(|a, b| a.0.total_cmp(&b.0));
        TimelineGroup { label, points }
    };
    let below_label =
        if knee == u64::MAX { "more users".to_owned() } else { format!("more, below the knee at {knee}") };
    let groups = [
        group(counted_text(min_users, "user"), &|users| users == min_users),
        group(below_label, &|users| users > min_users && users < knee),
        group(format!("{knee} users or more"), &|users| users > min_users && users >= knee),
    ];
    let groups: Vec<TimelineGroup> = groups.into_iter().filter(|group| !group.points.is_empty()).collect();
    let return_mark = return_time(sweep).map(|start| (format!("back to {}", counted_text(min_users, "user")), start));
    let title = if label.is_empty() { String::new() } else { format!(", {label}") };
    (!groups.is_empty()).then(|| Timeline {
        metric: THROUGHPUT.id,
        title: format!("Throughput of each visit over the mean of its number of users{title}"),
        groups,
        tolerance: MAX_THROUGHPUT_DRIFT,
        marked_time: return_mark,
    })
}
