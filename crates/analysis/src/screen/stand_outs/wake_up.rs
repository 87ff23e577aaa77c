//! What waking an idle CPU costs beside a switch on one.

use kelvin_catalogue::os::{SWITCH_CROSS_CPU, SWITCH_PROCESS_PIPE, TokenMeans};

use super::{Answer, Says, Seen, Spot, Weight};

/// Times a switch from which on it stands out: a wake-up that only sends an interrupt and switches there costs a few.
const LEAST: f64 = 3.0;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let wake = Spot::new(&SWITCH_CROSS_CPU).at(TokenMeans::Pipe.point());
    let compared = seen.compare(&Spot::new(&SWITCH_PROCESS_PIPE), &wake)?;
    let says = Says::WakeUp { wake: compared.other, times: compared.ratio.value };
    compared.is_above(LEAST).then(|| compared.answer(Weight::OfThisMachine, says))
}
