//! The link of known rate, for real: what arrives is what the shaper lets through, within two percent.

mod common;

use kelvin_catalogue::truth::{DELAY, LINK, LINK_RATE, RELAY_DELAY};
use kelvin_model::{Attempt, Case};

/// What the shaper lets through that is payload: 1448 bytes of each packet, of which it counts 1514.
const EXPECTED: f64 = 1448.0 / 1514.0;
/// Bytes that the shaper may save up while its sender waits for a processor, and seconds over which is counted.
const SAVED: f64 = 131_072.0;
const SECONDS: f64 = 3.0;
/// Rounds of each rate at most.
const ROUNDS: usize = 8;

/// Whether what arrived is right, of the rate and of what the shaper says that it let through. At the fastest rate a machine that
/// is busy with other tests may be what limits it, and only the second is known.
fn is_right(rate: u64, (share, counted): (f64, f64)) -> bool {
    (counted - 1.0).abs() < 0.02 && (rate > 100_000_000 || (share / EXPECTED - 1.0).abs() < 0.02)
}

#[test]
#[allow(clippy::print_stderr)]
fn a_shaped_link_carries_its_rate_and_what_its_shaper_counts_within_two_percent() {
    for rate in [10_000_000u64, 100_000_000, 1_000_000_000] {
        let mut found = Vec::new();
        // A busy machine gives the shaper its turns late, and its receiver too: one round of a few must be right.
        while found.len() < ROUNDS && !found.iter().any(|&one| is_right(rate, one)) {
            let case = Case::new().with(LINK_RATE, rate);
            let readings = match common::run_probe(&LINK.id, &case, 40) {
                Attempt::Measured(readings) => readings,
                Attempt::Skipped(reason) => return eprintln!("{} skipped: {reason}", LINK.id),
                other => panic!("{other:?}"),
            };
            let share = common::median(&readings[0]) * 8.0 / rate as f64;
            let most = EXPECTED * 1.02 + SAVED * 8.0 / (rate as f64 * SECONDS);
            assert!(share < most, "{rate} bit/s: {share} of it arrive, and {most} may at most");
            found.push((share, common::median(&readings[1])));
        }
        let is_any = found.iter().any(|&one| is_right(rate, one));
        assert!(is_any, "{rate} bit/s: {found:?} of it and of what the shaper let through, not {EXPECTED} and 1");
    }
    // The namespaces are gone with the process.
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!interfaces.contains("near:") && !interfaces.contains("far:"), "{interfaces}");
}

#[test]
#[allow(clippy::print_stderr)]
fn a_relay_s_delay_is_measured_within_a_fifth_of_a_millisecond() {
    for delay in [1_000_000u64, 5_000_000] {
        let mut errors = Vec::new();
        // A busy machine wakes the relay late where nothing is noted; a round without that must be right.
        while errors.len() < ROUNDS && !errors.iter().any(|error: &f64| error.abs() < 200_000.0) {
            let case = Case::new().with(RELAY_DELAY, delay);
            let readings = match common::run_probe(&DELAY.id, &case, 40) {
                Attempt::Measured(readings) => readings,
                Attempt::Skipped(reason) => return eprintln!("{} skipped: {reason}", DELAY.id),
                other => panic!("{other:?}"),
            };
            let (added, over_logged) = (common::median(&readings[0]), common::median(&readings[1]));
            assert!(added > 1.5 * delay as f64, "{added} ns were added by {delay} ns each way");
            errors.push(added - added / over_logged);
        }
        assert!(errors.iter().any(|error| error.abs() < 200_000.0), "{delay} ns each way: off by {errors:?} ns");
    }
}
