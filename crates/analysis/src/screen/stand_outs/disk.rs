//! What the disk can do.

use kelvin_catalogue::file::{DEVICE_LATENCY, DEVICE_READ, DEVICE_REQUESTS};

use super::{Amount, Answer, Says, Seen, Spot, Weight};
use crate::evidence::Rounds;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let rounds = |metric| seen.rounds(&Spot::new(metric));
    let all = [rounds(&DEVICE_READ)?, rounds(&DEVICE_REQUESTS)?, rounds(&DEVICE_LATENCY)?];
    let [read, requests, latency] = all.each_ref().map(Amount::of);
    let (sides, says) = (all.iter().map(Rounds::side).collect(), Says::Disk { read, requests, latency });
    Some(Answer { weight: Weight::Ability, factor: 1.0, sides, ratio: None, says })
}
