//! The link of known rate and the relay of known delay, for real: they can be set up, and neither exceeds its setting.
//! Whether figures are right to the percent is for `kelvin selfcheck`, on an idle machine.

mod common;

use common::{measure_if_possible, median, reading_of};
use kelvin_core::Case;

/// Milliseconds of the timed part, which these probes do not use.
const SLICE: u64 = 40;

#[test]
fn shaped_link_stays_within_rate() {
    let rate = 100_000_000u64;
    let case = Case::new().with_number("rate", rate);
    let Some(readings) = measure_if_possible("truth.link", &case, SLICE) else { return };
    // Counted over three seconds; a busy machine reads two counters, or a counter and the clock, some moments apart.
    let share = median(reading_of(&readings, "truth.link")) * 8.0 / rate as f64;
    assert!(share > 0.0 && share < 1.5, "{share} of the shaper's rate: {readings:?}");
    let ratio = median(reading_of(&readings, "truth.link.counted"));
    assert!((0.5..1.5).contains(&ratio), "{ratio} of the shaper's count: {readings:?}");
    // The namespaces are gone with the process.
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!interfaces.contains("near:") && !interfaces.contains("far:"), "{interfaces}");
}

#[test]
fn relay_delay_is_at_least_requested() {
    let delay = 1_000_000u64;
    let case = Case::new().with_number("delay", delay);
    let Some(readings) = measure_if_possible("truth.delay", &case, SLICE) else { return };
    // "44.0 us without and 2110.2 us with the relay's delay; ..."
    let note = reading_of(&readings, "truth.delay").notes.join("; ");
    let delayed = note.split_once(" without and ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(delayed.is_some_and(|delayed| delayed >= 2.0 * delay as f64 / 1e3), "{note}");
}
