//! What a local TCP stream loses by the congestion control that programs here have by default.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_SYSTEM, MESSAGE, STREAMS};

use super::*;

/// Share of what the run's own choice carries below which the system's stands out.
const MAX_SYSTEM_SHARE: f64 = 0.8;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let name = seen.evidence.run.header.machine.kernel.congestion_control.get()?;
    let ratio = |placement: &PairPlacement| -> Option<FigureRatio> {
        let systems = select(&BANDWIDTH_TCP_SYSTEM).with_word(placement.point()).furthest(MESSAGE);
        let message = MESSAGE.number_in(&seen.result(&systems)?.case)?;
        let chosen =
            select(&BANDWIDTH_TCP).with_word(placement.point()).with_number(MESSAGE, message).with_number(STREAMS, 1);
        seen.figure_ratio(&chosen, &systems).filter(|compared| compared.is_below(MAX_SYSTEM_SHARE))
    };
    let worst = PairPlacement::ALL.iter().filter_map(ratio).min_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value))?;
    let [chosen, system] = [worst.base, worst.other].map(rate_text);
    let text = format!(
        "A local TCP stream reaches {system} with {name}, the default congestion control of this system, but {chosen} with another."
    );
    Some(worst.into_answer(Consequence::Avoidable, StandOutQuestion::CongestionControl, text))
}
