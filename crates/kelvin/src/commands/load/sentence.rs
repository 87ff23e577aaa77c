//! What a load is called, and a load in one sentence.

use kelvin_core::Unit;
use kelvin_core::load::{LatencySummary, LoadResult, OfferedLoad};
use kelvin_core::units;

/// What was asked for, in two words.
pub fn load_name(load: &LoadResult) -> String {
    match load.offered {
        OfferedLoad::Users { users: 1, .. } => "1 user".into(),
        OfferedLoad::Users { users, .. } => format!("{} users", units::count(u64::from(users))),
        OfferedLoad::Rate { rate, .. } => format!("{} a second", units::number(rate)),
    }
}

/// A load as a point of a figure, in words.
pub fn load_sentence(load: &LoadResult) -> String {
    let LatencySummary { count, p50, p99, .. } = load.response;
    if count == 0 {
        return format!("{}: no answer.", load_name(load));
    }
    let rate = units::value_text(load.rate(), Unit::PerSecond);
    format!("{}: {rate}, median {}, p99 {}.", load_name(load), time_text(p50), time_text(p99))
}

/// A time in nanoseconds as text, with its unit.
pub fn time_text(nanoseconds: f64) -> String {
    units::value_text(nanoseconds, Unit::Nanoseconds)
}
