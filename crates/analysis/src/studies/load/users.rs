//! What users see: who waits for all of a visit, how the response time grows, and the scalability law of throughput by users.

use super::laws::unanswered_in_flight;
use super::*;

/// Requests that wait for all of a visit from which on it is no chance of the visit's ends.
const MIN_WAITING_REQUESTS: f64 = 0.5;

/// Whether users wait for all of a visit while others are served again and again: with the fewest users at which some certainly do.
pub(super) fn waiting(sweep: &Sweep) -> Option<LoadConclusion> {
    let of_load = |load: &UserLoad| Some((load.users, mean_estimate(&load.values(unanswered_in_flight))?));
    let (users, waiting) =
        sweep.loads.iter().filter_map(of_load).find(|(_, waiting)| waiting.low > MIN_WAITING_REQUESTS)?;
    let [value, low, high] = waiting.parts().map(number);
    let what = "are not answered at all while others are served again and again";
    let text = format!(
        "with {users} users, {value} of them ({low} to {high}) {what}: they wait for a worker, or for their turn"
    );
    let line = format!("With {users} users, {value} of them {what}.");
    let claim = LoadClaim::Waiting { users, waiting };
    let stated = LoadConclusion::new(claim, Some(true), visits_test(sweep), text);
    Some(stated.with_line(AnswerLine::Trouble, Some(line)))
}

/// How the response time grows from the fewest users to the most.
pub(super) fn response_growth(sweep: &Sweep) -> Option<LoadConclusion> {
    let [first, last] = [sweep.loads.first()?, sweep.loads.last()?];
    let times = [first, last].map(|load| load.figure_values(&RESPONSE));
    if first.users >= last.users || times.iter().any(Vec::is_empty) {
        return None;
    }
    let [alone, crowded] = times.each_ref().map(|values| mean(values));
    let grown = UncertainValue::mean(&times[1]).zip(UncertainValue::mean(&times[0]));
    let holds =
        grown.and_then(|(crowded, alone)| interval_estimate(crowded.minus(alone), CONFIDENCE_LEVEL).is_above(0.0));
    let time = |value: f64| value_text(value, Unit::Nanoseconds);
    let spent =
        if crowded > alone { format!(", {} of it spent waiting", time(crowded - alone)) } else { String::new() };
    let few = format!("{} with {}", time(alone), users_text(first.users));
    let (longer, users) = (time(crowded), users_text(last.users));
    let text = format!("the response time grows with the number of users: {few}, {longer} with {users}{spent}");
    let line = format!("Response time {few}, {longer} with {}{spent}.", last.users);
    let claim = LoadClaim::Response { single_user: (first.users, alone), saturated: (last.users, crowded) };
    let stated = LoadConclusion::new(claim, holds, visits_test(sweep), text);
    Some(stated.with_line(AnswerLine::Response, Some(line)))
}

/// The universal scalability law of throughput by users.
pub(super) fn scalability(sweep: &Sweep) -> Option<LoadConclusion> {
    let max_users = sweep.loads.last()?.users;
    let throughputs: Vec<Vec<f64>> = sweep.loads.iter().map(UserLoad::throughputs).collect();
    let users = sweep.loads.iter().map(|load| load.users as f64);
    let repeated: Vec<RepeatedLoad<'_>> = users.zip(throughputs.iter().map(Vec::as_slice)).collect();
    let ScalabilityFit { law, sigma, kappa, worst_misfit: furthest, describes, .. } =
        fit_scalability_with_intervals(&repeated)?;
    let (contention, coherency) = (Estimate::new(law.sigma, sigma), Estimate::new(law.kappa, kappa));
    // Beyond the most users that were there the law says nothing.
    let peak = Some(law.peak_workers()).filter(|&peak| peak <= max_users as f64);
    let furthest = LawDeviation { workers: furthest.n as u64, ratio: furthest.ratio };
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
