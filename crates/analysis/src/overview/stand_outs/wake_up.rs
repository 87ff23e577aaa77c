//! What waking an idle CPU costs beside a switch on one.

use kelvin_core::catalogue::os::{SWITCH_CROSS_CPU, SWITCH_PROCESS_PIPE, TokenChannel};

use super::{Consequence, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts};

/// Times a switch from which on it stands out: a wake-up that only sends an interrupt and switches there costs a few.
const MIN_WAKE_UP_RATIO: f64 = 3.0;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let wake = MetricSelector::new(&SWITCH_CROSS_CPU).with_word(TokenChannel::Pipe.point());
    let compared = seen.figure_ratio(&MetricSelector::new(&SWITCH_PROCESS_PIPE), &wake)?;
    let says = StandOutFacts::WakeUp { wake: compared.other, times: compared.ratio.value };
    compared.is_above(MIN_WAKE_UP_RATIO).then(|| compared.into_answer(Consequence::OfThisMachine, says))
}
