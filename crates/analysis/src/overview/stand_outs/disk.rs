//! What stands out of the disk and the page cache before it.

use kelvin_core::catalogue::file::{DEVICE_READ, DEVICE_REPEAT_READ, DEVICE_REQUESTS, IDLE_RETAINED, IDLE_TIME};

use super::super::ladder::DISK_BLOCK;
use super::*;

/// Later passes over the first from which on a cache shows.
const MIN_CACHED_SPEED_UP: f64 = 1.25;
/// And up to which they are no faster; between the two they hardly are, which no cache explains.
const MAX_UNCACHED_SPEED_UP: f64 = 1.1;

/// Whether something below the kernel caches the disk.
pub(super) fn disk_cache(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let repeat = context.rounds(&select(&DEVICE_REPEAT_READ))?;
    let ratio = repeat.estimate()?;
    if ratio.is_range && repeat.values.len() < MIN_RANGE_ROUNDS {
        return None;
    }
    let (weight, factor, text) = if ratio.low > MIN_CACHED_SPEED_UP {
        let text = format!(
            "Later passes over a file are {} times as fast as the first: something below the kernel caches the disk.",
            times_text(ratio.value)
        );
        (Consequence::OfThisMachine, ratio.value, text)
    } else if ratio.high < MIN_CACHED_SPEED_UP {
        let degree = if ratio.high >= MAX_UNCACHED_SPEED_UP { "hardly" } else { "no" };
        let text =
            format!("The disk is {degree} faster on later passes over a file: nothing below the kernel caches it.");
        (Consequence::Ability, 1.0, text)
    } else {
        return None;
    };
    let mut answer = StandOutAnswer::new(weight, StandOutQuestion::DiskCache, vec![repeat.metric_value()], text);
    answer.stand_out.ratio = Some(ratio);
    Some(answer.with_factor(factor))
}

/// Share of the pages that must be gone: a page here and there is moved or was wanted.
const MIN_EVICTED_SHARE: f64 = 0.05;
/// The least that counts as still there, so that the factor of a file that is wholly gone is a number.
const MIN_RETAINED_SHARE: f64 = 0.01;

/// How much of files that nothing touches leaves the page cache.
pub(super) fn idle_cache(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let retained = context.rounds(&select(&IDLE_RETAINED))?;
    let idle_seconds = context.rounds(&select(&IDLE_TIME))?.headline() / NANOSECONDS_PER_SECOND;
    // The rounds count the same pages one after the other, and none comes back: all must find some gone.
    let is_gone = |&share: &f64| share < 1.0 - MIN_EVICTED_SHARE;
    if retained.values.len() < MIN_RANGE_ROUNDS || !retained.values.iter().all(is_gone) {
        return None;
    }
    let percent = ((1.0 - retained.headline()) * 100.0).round();
    let (subject, share_text) =
        if percent < 100.0 { ("Of every 100", format!(", {percent}")) } else { ("All", String::new()) };
    let text = format!(
        "{subject} file pages unused for {}{share_text} were evicted from the page cache: the next read goes to the disk.",
        seconds(idle_seconds)
    );
    let sides = vec![retained.metric_value()];
    let answer = StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::IdleCache, sides, text);
    Some(answer.with_factor(1.0 / retained.headline().max(MIN_RETAINED_SHARE)))
}

/// What the disk can do.
pub(super) fn speed(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    // The time of one block is that of the ladder: two figures of one thing would contradict each other.
    let figures = [
        context.rounds(&select(&DEVICE_READ))?,
        context.rounds(&select(&DEVICE_REQUESTS))?,
        context.rounds(&DISK_BLOCK)?,
    ];
    let [read, requests, latency] = figures.map(|rounds| rounds.measured_value());
    let (rate, requests, time) = (rate_text(read), requests_text(requests), time_text(latency));
    // They were read by one thread, and several may get more.
    let from_one = if scaling::device_requests(context).is_some() { " from one CPU" } else { "" };
    let text = format!(
        "The disk reads {rate} sequentially, and {requests} random blocks of 4 KiB a second{from_one}; a single one takes {time}."
    );
    let sides = figures.map(|rounds| rounds.metric_value()).into();
    Some(StandOutAnswer::new(Consequence::Ability, StandOutQuestion::Disk, sides, text))
}
