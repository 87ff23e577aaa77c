//! What a local TCP stream loses by the congestion control that programs here have by default.

use kelvin_catalogue::Placement;
use kelvin_catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_SYSTEM, MESSAGE, STREAMS};

use super::{Answer, Compared, Says, Seen, Spot, Weight};

/// Share of what the run's own choice carries below which the system's stands out.
const LEAST: f64 = 0.8;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let name = seen.run.outline.machine.kernel.congestion_control.get()?.clone();
    let at = |placement: &Placement| -> Option<Compared> {
        let systems = Spot::new(&BANDWIDTH_TCP_SYSTEM).at(placement.point()).furthest(MESSAGE);
        let message = MESSAGE.of(&seen.result(&systems)?.case)?;
        let chosen = Spot::new(&BANDWIDTH_TCP).at(placement.point()).with(MESSAGE, message).with(STREAMS, 1);
        seen.compare(&chosen, &systems).filter(|compared| compared.is_below(LEAST))
    };
    let worst = Placement::ALL.iter().filter_map(at).min_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value))?;
    let says = Says::CongestionControl { name, systems: worst.other, other: worst.base };
    Some(worst.answer(Weight::Avoidable, says))
}
