//! What TCP streams carry between two CPUs beside on one each.

use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{BANDWIDTH_TCP, MESSAGE, STREAMS};

use super::{Answer, Says, Seen, Spot, Weight};

/// Bytes of a message, of which moving them is most of the cost.
const BYTES: u64 = 64 << 10;
/// Share of the better placement below which the other stands out.
const LEAST: f64 = 0.8;

/// Streams at a time, one for each CPU.
const TWO: Spot = Spot::new(&BANDWIDTH_TCP).with(MESSAGE, BYTES).with(STREAMS, 2);

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let [apart, together] = [TWO.at(Placement::SameCpu.point()), TWO.at(Placement::TwoCpus.point())];
    let compared = seen.compare(&apart, &together)?;
    let says = Says::StreamsAcross { apart: compared.base, together: compared.other };
    compared.is_below(LEAST).then(|| compared.answer(Weight::Avoidable, says))
}
