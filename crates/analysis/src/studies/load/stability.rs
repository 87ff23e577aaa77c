//! A sweep over time: whether the server is at its end what it was at its start.

use super::laws::common_slope;
use super::*;

/// Change of throughput over a study that counts as none, as a share: the knee is known to within as much.
const MAX_THROUGHPUT_DRIFT: f64 = 0.05;
/// Fewest earlier visits that show what a further one would be like.
const MIN_EARLIER_STEPS: usize = 2;

/// Throughput of the visits to a number of users over their mean, at their times.
fn relative_throughput(load: &UserLoad) -> Vec<(f64, f64)> {
    let usual = mean(&load.throughputs());
    let mut points: Vec<(f64, f64)> = load.steps.iter().map(|visit| (visit.start, visit.throughput / usual)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Whether throughput at equal numbers of users stays the same over the study.
pub(super) fn throughput_stability(sweep: &Sweep) -> Option<LoadConclusion> {
    let growth = common_slope(sweep.loads.iter().map(relative_throughput).collect())?;
    // Times the seconds of the study, as a share of its mean.
    let drift = growth.per_second.divided_by(1.0 / growth.seconds);
    let (back, tolerance) = (return_step(sweep), MAX_THROUGHPUT_DRIFT);
    let is_back = back.as_ref().map(|(_, off)| off.is_within(tolerance));
    let holds = match (drift.is_within(tolerance), is_back) {
        (Some(false), _) | (_, Some(Some(false))) => Some(false),
        (drift, _) => drift,
    };
    let last = back.as_ref().map_or_else(String::new, |(users, off)| {
        let (users, off) = (users_text(*users), span_text(off, signed_percent));
        format!("; the last visit, to {users} again, differs from those before by {off}")
    });
    let text = format!(
        "the server is at the end what it was at the start, within {}: over the study throughput changes by {} at equal numbers of users\
         {last}",
        percent(tolerance),
        span_text(&drift, signed_percent)
    );
    let line = (holds == Some(false)).then(|| {
        format!(
            "The server is not what it was at the start: throughput changes by {} over the study, at equal numbers of users.",
            signed_percent(drift.value)
        )
    });
    let claim = LoadClaim::Steady { fixed: sweep.fixed.clone(), drift, return_step: back, tolerance };
    let stated = LoadConclusion::new(claim, holds, slope_test(growth.visits, growth.seconds), text);
    Some(stated.with_line(AnswerLine::Trouble, line))
}

/// The last visit of the sweep, where it is one to the fewest users, against those before: the interval is that of a further visit.
fn return_step(sweep: &Sweep) -> Option<(u64, Estimate)> {
    let fewest = sweep.loads.first()?;
    let start = return_time(sweep)?;
    let (last, before): (Vec<_>, Vec<_>) = fewest.steps.iter().partition(|visit| visit.start >= start);
    let before: Vec<f64> = before.iter().map(|visit| visit.throughput).collect();
    let further = UncertainValue::mean(&before)?.next_value(before.len());
    let (low, high) = further.interval(CONFIDENCE_LEVEL);
    let half = (high - low) / 2.0 / further.value;
    let value = last.first()?.throughput / further.value - 1.0;
    Some((fewest.users, Estimate::new(value, (value - half, value + half))))
}

/// When the fewest users were visited again, after all other visits.
fn return_time(sweep: &Sweep) -> Option<f64> {
    let fewest = sweep.loads.first().filter(|load| load.steps.len() > MIN_EARLIER_STEPS)?;
    let latest = |load: &UserLoad| load.steps.iter().map(|visit| visit.start).fold(f64::NEG_INFINITY, f64::max);
    let start = latest(fewest);
    sweep.loads[1..].iter().all(|load| latest(load) < start).then_some(start)
}

/// The visits of a sweep over time: to the fewest users, to fewer than the knee, and from it on.
pub(super) fn timeline(sweep: &Sweep, label: &str) -> Option<Timeline> {
    let knee = saturated_sweep(sweep).map_or(u64::MAX, |saturated| saturated.saturation.knee.users);
    let fewest = sweep.loads.first()?.users;
    let group = |label: String, is_of: &dyn Fn(u64) -> bool| {
        let loads = sweep.loads.iter().filter(|load| load.steps.len() > 1 && is_of(load.users));
        let mut points: Vec<(f64, f64)> = loads.flat_map(relative_throughput).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        TimelineGroup { label, points }
    };
    let below = if knee == u64::MAX { "more users".to_owned() } else { format!("more, below the knee at {knee}") };
    let groups = [
        group(counted_text(fewest, "user"), &|users| users == fewest),
        group(below, &|users| users > fewest && users < knee),
        group(format!("{knee} users or more"), &|users| users > fewest && users >= knee),
    ];
    let groups: Vec<TimelineGroup> = groups.into_iter().filter(|group| !group.points.is_empty()).collect();
    let back = return_time(sweep).map(|start| (format!("back to {}", counted_text(fewest, "user")), start));
    let title = if label.is_empty() { String::new() } else { format!(", {label}") };
    (!groups.is_empty()).then(|| Timeline {
        metric: THROUGHPUT.id,
        title: format!("Throughput of each visit over the mean of its number of users{title}"),
        groups,
        tolerance: MAX_THROUGHPUT_DRIFT,
        marked_time: back,
    })
}
