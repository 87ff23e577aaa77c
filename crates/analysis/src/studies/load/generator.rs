//! Whether the load generator kept up.

use super::*;

/// Use of a CPU by the generator's busiest thread below which it cannot have been the limit.
const MAX_EASY_GENERATOR_USE: f64 = 0.85;
/// Lateness as a share of a user's time from one request to the next that cannot matter.
const MAX_HARMLESS_LATENESS: f64 = 0.1;

pub(super) fn conclusion(saturated: &SaturatedSweep<'_>, limit: &LoadLimit) -> Option<LoadConclusion> {
    let utilisation =
        saturated.uses.iter().find(|usage| usage.resource == Resource::Generator).map(|usage| usage.utilisation);
    // A user who asks late asks so much less often, of his time from one request to the next.
    let think = saturated.sweep.think_seconds() * 1e9;
    let load_lateness = |load: &UserLoad| {
        let (delays, response) = (load.figure_values(&LATENESS), load.figure_values(&RESPONSE_P99));
        (!delays.is_empty() && !response.is_empty()).then(|| (mean(&delays), mean(&response) + think))
    };
    let lateness: Vec<(f64, f64)> = saturated.sweep.loads.iter().filter_map(load_lateness).collect();
    let max_delay = lateness.iter().map(|(delay, _)| *delay).max_by(f64::total_cmp);
    if utilisation.is_none() && max_delay.is_none() {
        return None;
    }
    let is_in_time = lateness.iter().all(|(delay, cycle)| *delay <= MAX_HARMLESS_LATENESS * cycle);
    let is_at_ease = utilisation.is_none_or(|utilisation| utilisation.high < MAX_EASY_GENERATOR_USE);
    let holds = is_ruled_out(limit, is_at_ease, is_in_time);
    let cpu = utilisation.map(|utilisation| format!("its busiest thread {} busy", percent(utilisation.value)));
    let lateness_text = max_delay.map(|delay| format!("at most {} late", value_text(delay, Unit::Nanoseconds)));
    let join = |parts: [&Option<String>; 2]| parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    let negation = if holds == Some(false) { ", which is not so" } else { "" };
    let text = format!("the load generator was not the limit{negation}: {}", join([&cpu, &lateness_text]));
    let line = match (holds, &limit.verdict) {
        (Some(true), _) => format!("The load generator was not the limit: {}.", join([&cpu, &lateness_text])),
        (_, LoadVerdict::Client { resource: name }) if resource(*name) == Some(Resource::Generator) => {
            format!("The load generator was the limit: {}.", join([&cpu, &lateness_text]))
        }
        // Of a generator that is at ease, its lateness is the reason.
        _ => format!("The load generator may have been the limit: {}.", join([&lateness_text, &cpu])),
    };
    let test = saturated.test();
    let claim = LoadClaim::Generator { cpu: utilisation, late: max_delay };
    Some(LoadConclusion::new(claim, holds, test, text).with_line(AnswerLine::Generator, Some(line)))
}

/// Whether the load generator was not the limit, by the verdict: one that it names was, and one that names others, and not with the client's
/// parts among them, has found that it was not. Where that is not certain, or not known, it decides whether the generator had time left.
fn is_ruled_out(limit: &LoadLimit, is_at_ease: bool, is_in_time: bool) -> Option<bool> {
    let is_of_client = |word: &Name| resource(*word).is_some_and(|part| part.group() == ResourceGroup::Client);
    let may_be_client = limit.verdict.resources().iter().any(is_of_client);
    match &limit.verdict {
        LoadVerdict::Client { resource: name } => (resource(*name) == Some(Resource::Generator)).then_some(false),
        LoadVerdict::Both { .. } | LoadVerdict::OneOf { .. } if may_be_client => None,
        LoadVerdict::Resource { .. } | LoadVerdict::Both { .. } | LoadVerdict::OneOf { .. }
            if !limit.doubts.contains(&LoadDoubt::LateGenerator) =>
        {
            (limit.doubts.is_empty() || is_at_ease).then_some(true)
        }
        _ => (is_at_ease && is_in_time).then_some(true),
    }
}
