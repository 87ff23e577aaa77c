//! What TCP streams carry between two CPUs beside on one each.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP, MESSAGE, STREAMS};

use super::{Consequence, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts};

/// Bytes of a message, of which moving them is most of the cost.
const MESSAGE_BYTES: u64 = 64 << 10;
/// Share of the better placement below which the other stands out.
const MAX_PLACEMENT_SHARE: f64 = 0.8;

/// Streams at a time, one for each CPU.
const TWO_STREAMS: MetricSelector =
    MetricSelector::new(&BANDWIDTH_TCP).with_number(MESSAGE, MESSAGE_BYTES).with_number(STREAMS, 2);

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [apart, together] =
        [TWO_STREAMS.with_word(PairPlacement::SameCpu.point()), TWO_STREAMS.with_word(PairPlacement::TwoCpus.point())];
    let compared = seen.figure_ratio(&apart, &together)?;
    let says = StandOutFacts::StreamsAcross { apart: compared.base, together: compared.other };
    compared.is_below(MAX_PLACEMENT_SHARE).then(|| compared.into_answer(Consequence::Avoidable, says))
}
