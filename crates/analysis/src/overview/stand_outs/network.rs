//! What stands out of TCP on this host.

use kelvin_core::catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_SYSTEM, MESSAGE, STREAMS};

use super::*;

/// Share of what the run's own choice carries below which the system's stands out.
const MAX_SYSTEM_SHARE: f64 = 0.8;

/// What a local TCP stream loses by the congestion control that programs here have by default.
pub(super) fn congestion_control(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let name = context.evidence.run.header.machine.kernel.congestion_control.get()?;
    let ratio = |placement: &PairPlacement| -> Option<FigureRatio> {
        let systems = select(&BANDWIDTH_TCP_SYSTEM).with_word(placement.point()).furthest(MESSAGE);
        let message = MESSAGE.number_in(&context.result(&systems)?.case)?;
        let own =
            select(&BANDWIDTH_TCP).with_word(placement.point()).with_number(MESSAGE, message).with_number(STREAMS, 1);
        context.figure_ratio(&own, &systems).filter(|candidate| candidate.is_below(MAX_SYSTEM_SHARE))
    };
    let worst = PairPlacement::ALL.iter().filter_map(ratio).min_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value))?;
    let [own_rate, system_rate] = [worst.base, worst.other].map(rate_text);
    let text = format!(
        "A local TCP stream reaches {system_rate} with {name}, the default congestion control of this system, but {own_rate} with another."
    );
    Some(worst.into_answer(Consequence::Avoidable, StandOutQuestion::CongestionControl, text))
}

/// Bytes of a message, of which moving them is most of the cost.
const MESSAGE_BYTES: u64 = 64 << 10;
/// Share of the better placement below which the other stands out.
const MAX_PLACEMENT_SHARE: f64 = 0.8;

/// Streams at a time, one for each CPU.
const TWO_STREAMS: MetricSelector = select(&BANDWIDTH_TCP).with_number(MESSAGE, MESSAGE_BYTES).with_number(STREAMS, 2);

/// What TCP streams carry between two CPUs compared with on one each.
pub(super) fn streams_between_cpus(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [same_cpu, two_cpus] =
        [PairPlacement::SameCpu, PairPlacement::TwoCpus].map(|placement| TWO_STREAMS.with_word(placement.point()));
    let ratio =
        context.figure_ratio(&same_cpu, &two_cpus).filter(|candidate| candidate.is_below(MAX_PLACEMENT_SHARE))?;
    let [same_cpu_rate, two_cpus_rate] = [ratio.base, ratio.other].map(rate_text);
    let text = format!(
        "Two local TCP streams reach {same_cpu_rate} with both ends of each on one CPU, but {two_cpus_rate} with the ends on two CPUs."
    );
    Some(ratio.into_answer(Consequence::Avoidable, StandOutQuestion::StreamsBetweenCpus, text))
}
