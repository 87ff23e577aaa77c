//! What users see: who waits for all of a visit, how the response time grows, and the scalability law of throughput by users.

use super::laws::unanswered_in_flight;
use super::*;

/// Requests that wait for all of a visit from which on it is no chance of the visit's ends.
const MIN_WAITING_REQUESTS: f64 = 0.5;

/// Whether users wait for all of a visit while others are served again and again: with the fewest users at which some certainly do.
pub(super) fn waiting(sweep: &Sweep) -> Option<LoadConclusion> {
    let load_waiting = |load: &UserLoad| Some((load.users, mean_estimate(&load.values(unanswered_in_flight))?));
    let (users, waiting) =
        sweep.loads.iter().filter_map(load_waiting).find(|(_, waiting)| waiting.low > MIN_WAITING_REQUESTS)?;
    let [value, low, high] = waiting.parts().map(number);
    let clause = "get no answer while others are served repeatedly";
    let text = format!(
        "with {users} users, {value} of them ({low} to {high}) {clause}: they wait for a worker, or for their turn"
    );
    let line = format!("With {users} users, {value} of them {clause}.");
    let claim = LoadClaim::Waiting { users, waiting };
    let conclusion = LoadConclusion::new(claim, Some(true), visits_test(sweep), text);
    Some(conclusion.with_line(AnswerLine::Trouble, Some(line)))
}

/// How the response time grows from the fewest users to the most.
pub(super) fn response_growth(sweep: &Sweep) -> Option<LoadConclusion> {
    let [first, last] = [sweep.loads.first()?, sweep.loads.last()?];
    let times = [first, last].map(|load| load.figure_values(&RESPONSE));
    if first.users >= last.users || times.iter().any(Vec::is_empty) {
        return None;
    }
    let [single_time, loaded_time] = times.each_ref().map(|values| mean(values));
    let means = UncertainValue::mean(&times[1]).zip(UncertainValue::mean(&times[0]));
    let holds =
        means.and_then(|(loaded, single)| interval_estimate(loaded.minus(single), CONFIDENCE_LEVEL).is_above(0.0));
    let time = |value: f64| value_text(value, Unit::Nanoseconds);
    let waiting_text = if loaded_time > single_time {
        format!(", {} of it spent waiting", time(loaded_time - single_time))
    } else {
        String::new()
    };
    let single_text = format!("{} with {}", time(single_time), users_text(first.users));
    let (loaded_text, users) = (time(loaded_time), users_text(last.users));
    let text = format!(
        "the response time grows with the number of users: {single_text}, {loaded_text} with {users}{waiting_text}"
    );
    let line = format!("Response time {single_text}, {loaded_text} with {}{waiting_text}.", last.users);
    let claim = LoadClaim::Response { single_user: (first.users, single_time), saturated: (last.users, loaded_time) };
    let conclusion = LoadConclusion::new(claim, holds, visits_test(sweep), text);
    Some(conclusion.with_line(AnswerLine::Response, Some(line)))
}

/// The universal scalability law of throughput by users.
pub(super) fn scalability(sweep: &Sweep) -> Option<LoadConclusion> {
    let max_users = sweep.loads.last()?.users;
    let throughputs: Vec<Vec<f64>> = sweep.loads.iter().map(UserLoad::throughputs).collect();
    let users = sweep.loads.iter().map(|load| load.users as f64);
    let repeated_loads: Vec<RepeatedLoad<'_>> = users.zip(throughputs.iter().map(Vec::as_slice)).collect();
    let ScalabilityFit { law, sigma, kappa, worst_misfit: misfit, describes, .. } =
        fit_scalability_with_intervals(&repeated_loads)?;
    let (contention, coherency) = (Estimate::new(law.sigma, sigma), Estimate::new(law.kappa, kappa));
    // The law does not hold beyond the largest number of users that was measured.
    let peak = Some(law.peak_workers()).filter(|&peak| peak <= max_users as f64);
    let furthest = LawDeviation { workers: misfit.n as u64, ratio: misfit.ratio };
    let peak_text = peak.map_or_else(
        || "it does not fall within the measured range".to_owned(),
        |peak| format!("highest with {}", users_text(peak as u64)),
    );
    let [contention_text, coherency_text] = [&contention, &coherency].map(|share| span_text(share, percent));
    let (users, times) = (furthest.workers, number(furthest.ratio));
    let text = format!(
        "the universal scalability law describes throughput by users: contention {contention_text}, coherency {coherency_text}, {peak_text}; \
         at {users} users it is {times} times what was measured"
    );
    let claim = LoadClaim::Scalability { fixed: sweep.fixed.clone(), contention, coherency, peak, furthest };
    Some(LoadConclusion::new(claim, Some(describes), visits_test(sweep), text))
}
