//! What the disk can do.

use kelvin_catalogue::file::{DEVICE_READ, DEVICE_REQUESTS};

use super::super::ladder::FROM_DISK;
use super::{Amount, Answer, Says, Seen, Spot, Weight};
use crate::evidence::Rounds;

pub(super) fn answer(seen: &Seen<'_>) -> Option<Answer> {
    let rounds = |spot: &Spot| seen.rounds(spot);
    // The time of one block is that of the ladder: two figures of one thing would contradict each other.
    let all = [rounds(&Spot::new(&DEVICE_READ))?, rounds(&Spot::new(&DEVICE_REQUESTS))?, rounds(&FROM_DISK)?];
    let [read, requests, latency] = all.each_ref().map(Amount::of);
    let (sides, says) = (all.iter().map(Rounds::side).collect(), Says::Disk { read, requests, latency });
    Some(Answer { weight: Weight::Ability, factor: 1.0, sides, ratio: None, says })
}
