//! What would limit a server next, and what its disk reads in excess.

use super::*;

/// Bytes that a device moves for each byte served, from which it moves more than was requested.
const MIN_AMPLIFICATION: f64 = 1.1;

/// How far the limit would have to move to meet the next resource; `None` where the limit is not known, or not one.
pub(super) fn next_limit(
    saturated: &SaturatedSweep<'_>,
    devices: &[SaturationUse],
    verdict: &LoadVerdict,
) -> Option<LoadConclusion> {
    // More workers work on more requests, which does not show how many times as many the next limit would bear.
    let LoadVerdict::Resource { resource: name } = verdict else { return None };
    if resource(*name) == Some(Resource::Workers) {
        return None;
    }
    let is_next = |usage: &&SaturationUse| {
        usage.resource.group() != ResourceGroup::Client && resource_id(usage.resource) != *name
    };
    let (first, next) = (devices.first()?, devices.iter().find(is_next)?);
    let projection = |times: f64, throughput: f64| LimitProjection { factor: times, throughput };
    let share = Some(next.fullness.value).filter(|&share| share > 0.0)?;
    let capacity =
        |usage: &SaturationUse| saturated.sweep.capacities.get(&usage.resource).and_then(|limits| limits.requests);
    let by_capacity = capacity(first).zip(capacity(next)).map(|(limit, next)| projection(next / limit, next));
    let claim = NextLimitClaim {
        fixed: saturated.sweep.fixed.clone(),
        limit: *name,
        next: resource_id(next.resource),
        as_measured: projection(first.fullness.value / share, saturated.saturation.throughput.value / share),
        from_capacity: by_capacity.filter(|candidate| candidate.factor > 1.0),
    };
    // No visit has tested it: a request may take more of a resource when there are more of them.
    Some(conclusion(claim, None, saturated.test()))
}

/// `of what was watched the next limit is the disk: if the network were 3.8 times as fast, at 21.8 requests/s, by its capacity alone; ...`.
pub(super) fn conclusion(claim: NextLimitClaim, holds: Option<bool>, test: ClaimTest) -> LoadConclusion {
    let (limit, next) = (resource_name(claim.limit), resource_name(claim.next));
    let degree = if resource(claim.limit) == Some(Resource::Workers) { "as high" } else { "as fast" };
    let [times, throughput] = [claim.as_measured.factor, claim.as_measured.throughput].map(number);
    // By capacities alone, where that is more than 10 % from what follows from the use under load.
    let by_capacity = claim
        .from_capacity
        .filter(|candidate| (candidate.factor / claim.as_measured.factor).ln().abs() > 0.1_f64.ln_1p());
    let capacity_texts = by_capacity.map(|projection| [projection.factor, projection.throughput].map(number));
    let measured = format!("{times} times {degree}, at {throughput} requests/s");
    let text = match &capacity_texts {
        Some([times, throughput]) => format!(
            "of what was watched the next limit is the {next}: if the {limit} were {times} times {degree}, at {throughput} requests/s, by its \
             capacity alone; {measured}, if each request keeps taking as much of it as under load"
        ),
        None => format!("of what was watched the next limit is the {next}: if the {limit} were {measured}"),
    };
    let verb = if holds == Some(true) { "is" } else { "may be" };
    let suffix =
        capacity_texts.map(|[times, throughput]| format!("; by its capacity alone at {throughput}, if {times} times"));
    let line = format!(
        "The next limit {verb} the {next}, at {throughput} requests/s, if the {limit} were {times} times {degree}{}; no visit has tested it.",
        suffix.unwrap_or_default()
    );
    LoadConclusion::new(LoadClaim::WhatIf(claim), holds, test, text).with_line(AnswerLine::NextLimit, Some(line))
}

/// What the disk reads for each byte that is served, where files come from it.
pub(super) fn disk_amplification(saturated: &SaturatedSweep<'_>) -> Option<LoadConclusion> {
    let is_from_disk = CacheState::of(&saturated.sweep.fixed) == Some(CacheState::Uncached);
    let times = disk_read_ratio(saturated).filter(|_| is_from_disk)?;
    Some(amplification(saturated.sweep.fixed.clone(), times, saturated.test()))
}

/// Bytes that the disk read for each byte that was served.
pub(super) fn disk_read_ratio(saturated: &SaturatedSweep<'_>) -> Option<Estimate> {
    // Of a visit that was served nothing there is no such ratio.
    let ratio = |visit: &LoadStep| Some(visit.get(&DISK_BYTE_RATE)? / visit.get(&RATE).filter(|&rate| rate > 0.0)?);
    mean_estimate(&saturated.values(ratio)).map(clamp_to_zero)
}

pub(super) fn amplification(fixed: Case, times: Estimate, test: ClaimTest) -> LoadConclusion {
    let [value, low, high] = times.parts().map(number);
    let interval = if times.low == times.high { String::new() } else { format!(" ({low} to {high})") };
    let threshold = number(MIN_AMPLIFICATION);
    let text = format!("the disk reads more than {threshold} bytes for each byte served: {value}{interval}");
    let holds = times.is_above(MIN_AMPLIFICATION);
    let line = (holds == Some(true)).then(|| format!("The disk reads {value} bytes for each byte served."));
    let claim = LoadClaim::Amplification { fixed, resource: resource_id(Resource::Disk), ratio: times };
    LoadConclusion::new(claim, holds, test, text).with_line(AnswerLine::NextLimit, line)
}
