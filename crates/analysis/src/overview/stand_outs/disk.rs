//! What the disk can do.

use kelvin_core::catalogue::file::{DEVICE_READ, DEVICE_REQUESTS};

use super::super::ladder::DISK_BLOCK;
use super::*;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    // The time of one block is that of the ladder: two figures of one thing would contradict each other.
    let figures =
        [seen.rounds(&select(&DEVICE_READ))?, seen.rounds(&select(&DEVICE_REQUESTS))?, seen.rounds(&DISK_BLOCK)?];
    let [read, requests, latency] = figures.map(|rounds| rounds.measured_value());
    // `81 thousand`, `950`, `1.2 million`.
    let requests = brief_value(requests.value, Some(requests.half_width), Unit::PerSecond)
        .replace("k/s", "thousand")
        .replace("M/s", "million")
        .replace(" /s", "");
    let (rate, time) = (rate_text(read), time_text(latency));
    let text = format!(
        "The disk reads {rate} sequentially, and {requests} random blocks of 4 KiB a second; a single one takes {time}."
    );
    let sides = figures.map(|rounds| rounds.metric_value()).into();
    Some(StandOutAnswer::new(Consequence::Ability, StandOutQuestion::Disk, sides, text))
}
