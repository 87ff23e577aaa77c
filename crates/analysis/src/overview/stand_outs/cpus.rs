//! What stands out between CPUs: the cost of waking one, how far the farthest are, and whether their distance changes.

use kelvin_core::SharedLevel;
use kelvin_core::catalogue::mem::{BANDWIDTH_CORE_TO_CORE, CORE_TO_CORE, FROM_CPU, TO_CPU};
use kelvin_core::catalogue::os::{HandoffMechanism, HandoffTask, SWITCH_COST, SWITCH_CROSS_CPU};

use super::*;

/// Times a switch from which on it stands out: a wake-up that only sends an interrupt and switches there costs a few.
const MIN_WAKE_UP_RATIO: f64 = 3.0;

/// What waking an idle CPU costs compared with a switch on one.
pub(super) fn wake_up(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [switch, wake] =
        [&SWITCH_COST, &SWITCH_CROSS_CPU].map(|metric| select(metric).with_word(HandoffMechanism::Pipe.point()));
    let ratio = context.figure_ratio(&switch.with_word(HandoffTask::Process.point()), &wake);
    let ratio = ratio.filter(|candidate| candidate.is_above(MIN_WAKE_UP_RATIO))?;
    let (time, times) = (time_text(ratio.other), times_text(ratio.ratio.value));
    let text = format!(
        "Waking an idle CPU takes {time}, {times} times a context switch: work that moves between CPUs pays it each time."
    );
    Some(ratio.into_answer(Consequence::OfThisMachine, StandOutQuestion::WakeUp, text))
}

/// Times the latency within the nearest part of the machine from which on that between the farthest stands out.
const MIN_DISTANCE_RATIO: f64 = 1.5;

/// How much longer a cache line takes between the farthest cores than between the nearest ones: of the pairs at each distance, the one in
/// the middle.
pub(super) fn core_distance(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let topology = &context.evidence.run.header.machine.topology;
    let selector = select(&CORE_TO_CORE);
    let pairs = selector.find_all(&context.analysis.results).filter_map(|result| {
        let cpu = |axis: Axis| axis.number_in(&result.case)?.try_into().ok();
        let level = topology.shared_level(cpu(FROM_CPU)?, cpu(TO_CPU)?).filter(|&level| level > SharedLevel::Core);
        Some((level?, context.result_rounds(result)?))
    });
    let mut medians = middle_of_each(pairs);
    let ((near_level, near), (far_level, far)) = (medians.next()?, medians.next_back()?);
    let ratio = FigureRatio::from_rounds(near, far).filter(|ratio| ratio.is_above(MIN_DISTANCE_RATIO))?;
    let between = |level| match level {
        SharedLevel::Core => "threads of one core".to_owned(),
        SharedLevel::Cache(level) => format!("cores of one L{level} cache"),
        SharedLevel::Die => "cores that share only a die".to_owned(),
        SharedLevel::Node => "cores that share only a node".to_owned(),
        SharedLevel::Socket => "cores that share only a socket".to_owned(),
        SharedLevel::Machine => "sockets".to_owned(),
    };
    let text = format!(
        "A cache line takes {} between {}, {} times as long as between {}.",
        time_text(ratio.other),
        between(far_level),
        times_text(ratio.ratio.value),
        between(near_level)
    );
    Some(ratio.into_answer(Consequence::Avoidable, StandOutQuestion::CoreDistance, text))
}

/// Whether the distance between the machine's CPUs changes.
pub(super) fn cpu_distance(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let moved_cpus = context.analysis.findings.iter().find_map(|finding| match &finding.data {
        FindingData::CpusMoved(moved_cpus) => Some(moved_cpus),
        _ => None,
    })?;
    let result =
        context.analysis.result_at(&MetricCase { metric: BANDWIDTH_CORE_TO_CORE.id, case: moved_cpus.case.clone() })?;
    let [first, second] = result.outcome.summary()?.states() else { return None };
    let (near_latency, far_latency) = (first.center.min(second.center), first.center.max(second.center));
    let [from, to] = [near_latency, far_latency].map(|time| value_text(time, Unit::Nanoseconds));
    let from = match (from.split_once(' '), to.split_once(' ')) {
        (Some((value, unit)), Some((_, other_unit))) if unit == other_unit => value,
        _ => &from,
    };
    let text = format!("Core-to-core latency alternates between {from} and {to}: what two CPUs share varies with it.");
    let sides = vec![context.result_rounds(result)?.metric_value()];
    Some(
        StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::CpuDistance, sides, text)
            .with_factor(far_latency / near_latency),
    )
}
