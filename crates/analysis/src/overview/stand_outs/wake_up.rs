//! What waking an idle CPU costs compared with a switch on one.

use kelvin_core::catalogue::os::{HandoffMechanism, HandoffTask, SWITCH_COST, SWITCH_CROSS_CPU};

use super::*;

/// Times a switch from which on it stands out: a wake-up that only sends an interrupt and switches there costs a few.
const MIN_WAKE_UP_RATIO: f64 = 3.0;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [switch, wake] =
        [&SWITCH_COST, &SWITCH_CROSS_CPU].map(|metric| select(metric).with_word(HandoffMechanism::Pipe.point()));
    let compared = seen.figure_ratio(&switch.with_word(HandoffTask::Process.point()), &wake);
    let compared = compared.filter(|compared| compared.is_above(MIN_WAKE_UP_RATIO))?;
    let (time, times) = (time_text(compared.other), times_text(compared.ratio.value));
    let text = format!(
        "Waking an idle CPU takes {time}, {times} times a context switch: work that moves between CPUs pays it each time."
    );
    Some(compared.into_answer(Consequence::OfThisMachine, StandOutQuestion::WakeUp, text))
}
