//! What the disk can do.

use kelvin_core::catalogue::file::{DEVICE_READ, DEVICE_REQUESTS};

use super::super::ladder::DISK_BLOCK;
use super::{Consequence, MeasuredAmount, MetricSelector, StandOutAnswer, StandOutContext, StandOutFacts};
use crate::evidence::RoundHeadlines;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let rounds = |spot: &MetricSelector| seen.rounds(spot);
    // The time of one block is that of the ladder: two figures of one thing would contradict each other.
    let all = [
        rounds(&MetricSelector::new(&DEVICE_READ))?,
        rounds(&MetricSelector::new(&DEVICE_REQUESTS))?,
        rounds(&DISK_BLOCK)?,
    ];
    let [read, requests, latency] = all.each_ref().map(MeasuredAmount::from_rounds);
    let (sides, says) =
        (all.iter().map(RoundHeadlines::metric_value).collect(), StandOutFacts::Disk { read, requests, latency });
    Some(StandOutAnswer { weight: Consequence::Ability, factor: 1.0, sides, ratio: None, facts: says })
}
