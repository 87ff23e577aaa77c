//! What TCP streams carry between two CPUs compared with on one each.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP, MESSAGE, STREAMS};

use super::*;

/// Bytes of a message, of which moving them is most of the cost.
const MESSAGE_BYTES: u64 = 64 << 10;
/// Share of the better placement below which the other stands out.
const MAX_PLACEMENT_SHARE: f64 = 0.8;

/// Streams at a time, one for each CPU.
const TWO_STREAMS: MetricSelector = select(&BANDWIDTH_TCP).with_number(MESSAGE, MESSAGE_BYTES).with_number(STREAMS, 2);

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [apart, together] =
        [PairPlacement::SameCpu, PairPlacement::TwoCpus].map(|placement| TWO_STREAMS.with_word(placement.point()));
    let compared = seen.figure_ratio(&apart, &together).filter(|compared| compared.is_below(MAX_PLACEMENT_SHARE))?;
    let [one, two] = [compared.base, compared.other].map(rate_text);
    let text = format!(
        "Two local TCP streams reach {one} with both ends of each on one CPU, but {two} with the ends on two CPUs."
    );
    Some(compared.into_answer(Consequence::Avoidable, StandOutQuestion::StreamsBetweenCpus, text))
}
