//! The first screen in words: figures, why there is none, and what stands out in sentences of at most 25 words.

use kelvin_core::Unit;
use kelvin_core::units::{brief_value as to_interval, bytes, percent, scale_for, seconds, trimmed_decimal, value_text};

use super::findings::cause_share;
use crate::overview::{MeasuredAmount, SlownessReason, StandOutFacts};
use crate::result::{GapCauses, Outcome};

/// A value with as many digits as its interval supports, three at most.
pub(crate) fn brief_text(value: f64, half_width: f64, unit: Unit) -> String {
    to_interval(value, Some(half_width), unit)
}

/// How many times as much: `3.9`, `40`, `130`.
fn times_text(ratio: f64) -> String {
    match ratio {
        small if small < 9.95 => format!("{small:.1}"),
        large => {
            let step = 10f64.powi(large.log10().floor() as i32 - 1);
            format!("{:.0}", (large / step).round() * step)
        }
    }
}

/// Why a figure is missing: in a word or two, and in full.
pub(crate) fn missing_figure(outcome: &Outcome) -> (String, Option<String>) {
    let (word, reason) = match outcome {
        Outcome::Measured(_) => ("not finite", None),
        Outcome::NotKnown(summary) => {
            let share = percent(summary.kept_share);
            ("not known", Some(format!("only {share} of the samples were undisturbed, too few")))
        }
        Outcome::Invalid(ceiling) => ("invalid", Some(ceiling.likely_cause.clone())),
        Outcome::Skipped(reason) => ("skipped", Some(reason.0.clone())),
        Outcome::Failed(reason) => ("failed", Some(reason.clone())),
        Outcome::NotReached => ("not reached", Some("the run ended before it".into())),
    };
    (word.into(), reason)
}

/// A level of the memory hierarchy that the curve of latency does not show apart from the next one.
pub(crate) fn indistinct_level(next: Option<&str>) -> String {
    match next {
        Some(next) => format!("not distinguishable from {next}"),
        None => "not distinguishable".into(),
    }
}

/// The sentence about what stands out.
pub(crate) fn stand_out_sentence(says: &StandOutFacts) -> String {
    let time = |amount: &MeasuredAmount| brief_text(amount.value, amount.half_width, Unit::Nanoseconds);
    let rate = |amount: &MeasuredAmount| brief_text(amount.value, amount.half_width, Unit::BytesPerSecond);
    match says {
        StandOutFacts::WakeUp { wake, times: more } => format!(
            "Waking an idle CPU takes {}, {} times a context switch: work that moves between CPUs pays it each time.",
            time(wake),
            times_text(*more)
        ),
        StandOutFacts::CacheSize { ends, reported, name, beyond } => format!(
            "Only {} of the reported {} of {name} are effective: loads of larger working sets take {}.",
            size_range(*ends),
            bytes(*reported),
            time(beyond)
        ),
        StandOutFacts::Distance { modes: [near, far] } => format!(
            "Core-to-core latency alternates between {}: what two CPUs share varies with it.",
            two_times(*near, *far)
        ),
        StandOutFacts::StreamsAcross { apart, together } => format!(
            "Two local TCP streams reach {} with both ends of each on one CPU, but {} with the ends on two CPUs.",
            rate(apart),
            rate(together)
        ),
        StandOutFacts::CongestionControl { name, systems, other } => format!(
            "A local TCP stream reaches {} with {name}, the default congestion control of this system, but {} with another.",
            rate(systems),
            rate(other)
        ),
        StandOutFacts::WorstTime { named, figure, predicted, within } => {
            let why = match within {
                Some(SlownessReason::WakeUps(wake)) => format!("it includes two wake-ups of {}", time(wake)),
                Some(SlownessReason::Cache { name, ends }) => {
                    format!("only {} of {name} are effective", size_range(*ends))
                }
                Some(SlownessReason::Causes(causes)) => largest_cause(causes),
                None => "no cause of it was tried".into(),
            };
            format!("Furthest from its prediction: {named}, {figure} instead of {predicted}; {why}.")
        }
        StandOutFacts::FreshMemory { page, touch, again, in_huge } => {
            fresh_memory_sentence(*page, touch, again.as_ref(), *in_huge)
        }
        StandOutFacts::IdleCache { left, seconds: idle } => {
            let many = (left * 100.0).round();
            let (of, gone) = if many < 100.0 { ("Of every 100", format!(", {many}")) } else { ("All", String::new()) };
            format!(
                "{of} file pages unused for {}{gone} were evicted from the page cache: the next read goes to the disk.",
                seconds(*idle)
            )
        }
        StandOutFacts::MemoryShared { one, all, cpus } => {
            let together = if *cpus == 2 { "both".to_owned() } else { format!("all {cpus}") };
            format!("One CPU reads {} from memory, {together} together {}.", rate(one), rate(all))
        }
        StandOutFacts::DiskUncached { hardly } => format!(
            "The disk is {} faster on later passes over a file: nothing below the kernel caches it.",
            if *hardly { "hardly" } else { "no" }
        ),
        StandOutFacts::DiskCached { times: more } => format!(
            "Later passes over a file are {} times as fast as the first: something below the kernel caches the disk.",
            times_text(*more)
        ),
        StandOutFacts::Disk { read, requests, latency } => format!(
            "The disk reads {} sequentially, and {} random blocks of 4 KiB a second; a single one takes {}.",
            rate(read),
            large_count(requests),
            time(latency)
        ),
    }
}

/// What takes most of a figure, if anything is shown to.
fn largest_cause(causes: &GapCauses) -> String {
    match (causes.shown.first(), causes.ruled_out.first()) {
        (Some(cause), _) => cause_share(cause),
        (None, Some(tried)) => format!("not explained; ruled out: {tried}"),
        (None, None) => "not explained".into(),
    }
}

/// `42 and 159 ns`: two times in one unit, where that suits both.
fn two_times(low: f64, high: f64) -> String {
    let [from, to] = [low, high].map(|time| value_text(time, Unit::Nanoseconds));
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((value, unit)), Some((_, same))) if unit == same => format!("{value} and {to}"),
        _ => format!("{from} and {to}"),
    }
}

fn fresh_memory_sentence(
    page: u64,
    touch: &MeasuredAmount,
    again: Option<&MeasuredAmount>,
    in_huge: Option<f64>,
) -> String {
    let time = |amount: &MeasuredAmount| brief_text(amount.value, amount.half_width, Unit::Nanoseconds);
    let first = format!("Fresh memory costs {} a page of {} at first touch", time(touch), bytes(page));
    match (again.map(time), in_huge.map(times_text)) {
        (Some(again), Some(huge)) => {
            format!("{first}, memory just freed {again}; huge pages are {huge} times cheaper.")
        }
        (Some(again), None) => format!("{first}, memory just freed only {again}."),
        (None, Some(huge)) => format!("{first}, {huge} times as much as in huge pages."),
        (None, None) => format!("{first}."),
    }
}

/// `4 to 6 MiB`, or `768 KiB to 1.5 MiB`.
fn size_range([low, high]: [u64; 2]) -> String {
    let [from, to] = [low, high].map(|size| scale_for(size as f64, Unit::Bytes));
    if from == to {
        return format!(
            "{} to {} {}",
            trimmed_decimal(low as f64 / from.factor, 1),
            trimmed_decimal(high as f64 / to.factor, 1),
            to.symbol
        );
    }
    format!("{} to {}", short_bytes(low), short_bytes(high))
}

fn short_bytes(size: u64) -> String {
    let scale = scale_for(size as f64, Unit::Bytes);
    format!("{} {}", trimmed_decimal(size as f64 / scale.factor, 1), scale.symbol)
}

/// A number of things: `81 thousand`, `950`, `1.2 million`.
fn large_count(amount: &MeasuredAmount) -> String {
    let text = brief_text(amount.value, amount.half_width, Unit::PerSecond);
    let words = [("k/s", "thousand"), ("M/s", "million"), (" /s", "")];
    words.iter().fold(text, |text, (symbol, word)| text.replace(symbol, word))
}
