//! The state of machine and run: clock, end, hazards, neighbours on the core, frequency, quietness.

use super::*;
use kelvin_core::IndirectSort;

pub(super) fn changed_clock(run: &Run) -> Option<Finding> {
    let clock = &run.header.clock;
    let (before, after) = (clock.source_before.clone(), clock.source_after.clone());
    let name = |source: &Option<String>| source.clone().unwrap_or_else(|| "unknown".into());
    let reason = format!("clock source {} before, {} after", name(&before), name(&after));
    let text = "The kernel's clock source changed during the run: its times cannot be trusted".into();
    let data = FindingData::ClockChanged { before, after };
    run.has_clock_changed().then(|| Finding::new(Importance::Major, data, text, reason))
}

pub(super) fn partial_run(run: &Run) -> Option<Finding> {
    let RunStatus::Partial(reason) = &run.status else { return None };
    let seconds = run.seconds;
    let text = format!("The run is partial ({reason}): the rest was not measured");
    let source = format!("it ended after {} s", number(seconds));
    let data = FindingData::Partial { reason: reason.clone(), seconds };
    Some(Finding::new(Importance::Notable, data, text, source))
}

pub(super) fn only_headlines(run: &Run) -> Option<Finding> {
    let text = "Only the headlines of this run were kept: it has no curves over time, no conclusions of studies, and cannot be compared";
    let reason = "it was made with --keep headlines";
    run.is_kept_by_headlines()
        .then(|| Finding::new(Importance::Notable, FindingData::OnlyHeadlines, text.into(), reason.into()))
}

/// Hazards that all mean that other work kept the machine busy, the plainest first.
const BUSY_HAZARDS: [&str; 4] = ["other_work", "load", "pressure_cpu", "pressure_cpu_during"];

/// The serious hazards of a run: those of a busy machine, by their place among them, or all others.
fn hazards(run: &Run, is_busy: bool) -> Vec<&Hazard> {
    let place = |hazard: &&Hazard| BUSY_HAZARDS.iter().position(|busy| hazard.id == **busy);
    let serious_hazards = run.header.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious);
    let mut hazards: Vec<&Hazard> = serious_hazards.filter(|hazard| place(hazard).is_some() == is_busy).collect();
    hazards.indirect_sort_by_key(place);
    hazards
}

pub(super) fn serious_hazards(run: &Run, analysis: &Analysis) -> Vec<Finding> {
    let finding = |hazard: &Hazard| {
        let text = format!("{}: {}", hazard.summary, hazard.effect);
        let data = FindingData::Hazard { id: hazard.id };
        Finding::new(Importance::Major, data, text, hazard.source.clone())
            .with_metrics(metrics_of_results(analysis, |result| hazard.is_affecting(&result.metric.id)))
    };
    hazards(run, false).into_iter().map(finding).collect()
}

/// One finding for all signs of a busy machine.
pub(super) fn busy_machine(run: &Run) -> Option<Finding> {
    let hazards = hazards(run, true);
    let text = format!("Other work kept this machine busy: {}", hazards.first()?.summary);
    let sources = hazards.iter().map(|hazard| format!("{} ({})", hazard.summary, hazard.source));
    let reason = sources.collect::<Vec<_>>().join("; ");
    let data = FindingData::Busy { hazards: hazards.iter().map(|hazard| hazard.id).collect() };
    Some(Finding::new(Importance::Major, data, text, reason))
}

/// The core was shared throughout, judging by earlier runs of the machine.
pub(super) fn shared_core(analysis: &Analysis) -> Option<Finding> {
    analysis.core_sharing_ratio.zip(analysis.block_over_chain).map(|(slower, block_over_chain)| {
        let (ratio, excess) = (number(block_over_chain), percent(slower - 1.0));
        let reason = format!(
            "the block canary took {ratio} times the chain canary at its best, {excess} more than in earlier runs"
        );
        let text = "Another thread shared this core during the whole run, judging by earlier runs: measure again later";
        Finding::new(Importance::Major, FindingData::CoreShared { slower, block_over_chain }, text.into(), reason)
    })
}

/// A frequency that moved by more than this makes figures of two runs differ more than most changes do.
const MIN_FREQUENCY_DEVIATION: f64 = 0.02;

/// Another run may meet another frequency.
pub(super) fn moved_frequency(analysis: &Analysis) -> Option<Finding> {
    analysis.frequency_moved.map(|deviation| {
        let importance = if deviation > MIN_FREQUENCY_DEVIATION { Importance::Major } else { Importance::Notable };
        let text = format!(
            "The core's frequency kept moving, by {} of its usual one: the times of another run may differ from these by as much",
            percent(deviation)
        );
        let reason =
            "by the chain canary, where the block shows no neighbour: intervals of what follows the frequency are as wide";
        Finding::new(importance, FindingData::FrequencyMoved { deviation }, text, reason.into())
    })
}

/// Below this share of undisturbed samples a machine is noisy, and below half of it very noisy.
const MIN_QUIET_SHARE: f64 = 0.7;

pub(super) fn quietness(analysis: &Analysis) -> Option<Finding> {
    let share = analysis.undisturbed_share?;
    let (importance, summary) = match share {
        share if share < MIN_QUIET_SHARE / 2.0 => (Importance::Major, "The machine was rarely quiet"),
        share if share < MIN_QUIET_SHARE => (Importance::Notable, "The machine was quiet only part of the time"),
        _ => (Importance::Detail, "The machine was quiet"),
    };
    let canary_text =
        |history: &CanaryHistory| format!("{} steady {}", history.canary.name(), percent(history.steady_share));
    let canary_texts = analysis.canaries.iter().map(canary_text).collect::<Vec<String>>().join(", ");
    let slowdown_text = analysis.slowdown.filter(|_| share < MIN_QUIET_SHARE).map(|slowdown| {
        format!("; on average work took {} longer than undisturbed, in another run more or less", percent(slowdown))
    });
    let text = format!("{summary}: {} of the guarded samples were undisturbed", percent(share));
    let reason = format!("canaries next to each sample: {canary_texts}{}", slowdown_text.unwrap_or_default());
    Some(Finding::new(importance, FindingData::Undisturbed { share }, text, reason))
}
