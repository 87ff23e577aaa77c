//! A sweep over time: whether the server is at its end what it was at its start.

use kelvin_catalogue::load::THROUGHPUT;
use kelvin_model::{Conclusion, Estimate, LoadClaim, Test};
use kelvin_stats::{LEVEL, Uncertain, mean};

use super::laws::slope;
use super::sweep::{Load, Sweep};
use super::{of, reached};
use crate::result::{Timeline, TimelineGroup};

/// Change of throughput over a study that counts as none, as a share: the knee is told to as much.
const SAME: f64 = 0.05;
/// Fewest earlier visits that tell what a further one would be like.
const LEAST_BEFORE: usize = 2;

/// Throughput of the visits to a number of users over their mean, at their times.
fn relative(load: &Load) -> Vec<(f64, f64)> {
    let all = mean(&load.throughputs());
    let mut points: Vec<(f64, f64)> = load.visits.iter().map(|visit| (visit.at, visit.throughput / all)).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

/// Whether throughput at equal numbers of users stays the same over the study.
pub(super) fn steady(sweep: &Sweep) -> Option<Conclusion> {
    let growth = slope(sweep.loads.iter().map(relative).collect())?;
    // Times the seconds of the study, as a share of its mean.
    let drift = growth.a_second.over(1.0 / growth.seconds);
    let back = back(sweep);
    let holds = match (within(&drift), back.as_ref().map(|(_, off)| within(off))) {
        (Some(false), _) | (_, Some(Some(false))) => Some(false),
        (drift, _) => drift,
    };
    let claim = LoadClaim::Steady { held: sweep.held.clone(), drift, back, tolerance: SAME };
    Some(of(claim, holds, Test::Slope { visits: growth.visits, seconds: growth.seconds }))
}

/// Whether a change is none that counts; `None` where that is not certain.
fn within(off: &Estimate) -> Option<bool> {
    match *off {
        Estimate { low, high, .. } if low >= -SAME && high <= SAME => Some(true),
        Estimate { low, high, .. } if low > SAME || high < -SAME => Some(false),
        _ => None,
    }
}

/// The last visit of the sweep, where it is one to the fewest users, against those before: the interval is that of a further visit.
fn back(sweep: &Sweep) -> Option<(u64, Estimate)> {
    let fewest = sweep.loads.first()?;
    let at = returned(sweep)?;
    let (last, before): (Vec<_>, Vec<_>) = fewest.visits.iter().partition(|visit| visit.at >= at);
    let before: Vec<f64> = before.iter().map(|visit| visit.throughput).collect();
    let further = Uncertain::mean(&before)?.of_one_more(before.len());
    let (low, high) = further.interval(LEVEL);
    let half = (high - low) / 2.0 / further.value;
    let value = last.first()?.throughput / further.value - 1.0;
    Some((fewest.users, Estimate { value, low: value - half, high: value + half, is_range: false }))
}

/// When the fewest users were visited again, after all other visits.
fn returned(sweep: &Sweep) -> Option<f64> {
    let fewest = sweep.loads.first().filter(|load| load.visits.len() > LEAST_BEFORE)?;
    let latest = |load: &Load| load.visits.iter().map(|visit| visit.at).fold(f64::NEG_INFINITY, f64::max);
    let at = latest(fewest);
    sweep.loads[1..].iter().all(|load| latest(load) < at).then_some(at)
}

/// The visits of a sweep over time: to the fewest users, to fewer than the knee, and from it on.
pub(super) fn timeline(sweep: &Sweep, label: &str) -> Option<Timeline> {
    let knee = reached(sweep).map_or(u64::MAX, |saturated| saturated.at.knee.users);
    let fewest = sweep.loads.first()?.users;
    let group = |label: String, is_of: &dyn Fn(u64) -> bool| {
        let loads = sweep.loads.iter().filter(|load| load.visits.len() > 1 && is_of(load.users));
        let mut points: Vec<(f64, f64)> = loads.flat_map(relative).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        TimelineGroup { label, points }
    };
    let below = if knee == u64::MAX { "more users".to_owned() } else { format!("more, below the knee at {knee}") };
    let groups = [
        group(users(fewest), &|users| users == fewest),
        group(below, &|users| users > fewest && users < knee),
        group(format!("{knee} users or more"), &|users| users > fewest && users >= knee),
    ];
    let groups: Vec<TimelineGroup> = groups.into_iter().filter(|group| !group.points.is_empty()).collect();
    let back = returned(sweep).map(|at| (format!("back to {}", users(fewest)), at));
    let title = if label.is_empty() { String::new() } else { format!(", {label}") };
    (!groups.is_empty()).then(|| Timeline {
        metric: THROUGHPUT.id,
        title: format!("Throughput of each visit over the mean of its number of users{title}"),
        groups,
        same: SAME,
        back,
    })
}

fn users(count: u64) -> String {
    if count == 1 { "1 user".into() } else { format!("{count} users") }
}
