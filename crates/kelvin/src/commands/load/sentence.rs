//! What a load is called, and a load in one sentence.

use std::fmt::Display;
use std::io::{self, Write};

use kelvin_core::Unit;
use kelvin_core::load::{LatencySummary, LoadFigures, OfferedLoad};
use kelvin_core::units::{self, plural};

use crate::output;

/// What was asked for, in two words.
pub fn load_name(offered: OfferedLoad) -> String {
    match offered {
        OfferedLoad::Users { users: 1, .. } => "1 user".into(),
        OfferedLoad::Users { users, .. } => format!("{} users", units::count(u64::from(users))),
        OfferedLoad::Rate { rate, .. } => format!("{} a second", units::number(rate)),
    }
}

/// A load as a point of a figure, in words.
pub fn load_sentence(load: &LoadFigures<'_>) -> String {
    let LatencySummary { count, p50, p99, .. } = load.response;
    if count == 0 {
        return format!("{}: no answer.", load_name(load.offered));
    }
    let rate = rate_text(load.rate);
    format!("{}: {rate}, median {}, p99 {}.", load_name(load.offered), time_text(p50), time_text(p99))
}

/// A rate in requests a second as text.
pub fn rate_text(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| units::value_text(rate, Unit::PerSecond))
}

/// A time in nanoseconds as text, with its unit.
pub fn time_text(nanoseconds: f64) -> String {
    units::value_text(nanoseconds, Unit::Nanoseconds)
}

/// What was asked for, in words.
pub fn offered_text(offered: &OfferedLoad) -> String {
    match offered {
        OfferedLoad::Users { users, think } => {
            let think = if *think > 0.0 { format!("think time {}", time_text(*think)) } else { "no think time".into() };
            format!("{}, {think}", plural(u64::from(*users), "user"))
        }
        OfferedLoad::Rate { rate: 1.0, .. } => "1 request a second".into(),
        OfferedLoad::Rate { rate, .. } => format!("{} requests a second", units::number(*rate)),
    }
}

/// Writes a paragraph, as wide as the terminal.
pub fn write_paragraph(out: &mut dyn Write, text: impl Display) -> io::Result<()> {
    output::write_hanging(out, "", &text.to_string())
}
