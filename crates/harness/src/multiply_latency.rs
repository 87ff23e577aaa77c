//! The latency in cycles of the frequency canary's multiply, by measurement.
//!
//! The frequency is read from chains of dependent multiplies, whose latency is a whole number of cycles that differs
//! between cores. Adds take one cycle on every core, so the ratio of a multiply to an add is its latency in cycles.
//! Adds would be the worse reference: an SMT sibling, which may belong to another virtual machine, takes an execution
//! port from a chain of adds in two to four cycles of a hundred, and hardly ever from a chain of multiplies.

use kelvin_stats::median;
use kelvin_sys::clock::Clock;
use kelvin_sys::kernels;

/// Ratios taken, and pairs of chains in each, of which the fastest of either kind count.
const RATIO_SAMPLES: usize = 41;
const CHAIN_PAIRS: usize = 8;
/// How far below and above a whole number the median ratio may lie, as shares of it. Below, because an SMT sibling
/// slows adds more than multiplies, by up to this much where observed; above only by clock error and chance.
const MAX_BELOW_INTEGER: f64 = 0.08;
const MAX_ABOVE_INTEGER: f64 = 0.02;
/// Attempts, in case the frequency changes meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// Core cycles of a 64-bit multiply on the CPU that the calling thread is pinned to. Takes some 4 milliseconds.
///
/// # Errors
/// A ratio of multiply to add that is not a whole number, in words.
pub fn multiply_cycles(clock: Clock) -> Result<u32, String> {
    let mut ratio = f64::NAN;
    for _ in 0..MAX_ATTEMPTS {
        let ratios: Vec<f64> = (0..RATIO_SAMPLES).map(|_| ratio_of_fastest(clock)).collect();
        ratio = median(&ratios);
        if let Some(whole) = nearest_integer(ratio) {
            return Ok(whole);
        }
    }
    Err(format!(
        "needs a core on which an add takes one cycle and a multiply a whole number of them, and that other work does not \
         share meanwhile: here a multiply takes as long as {ratio:.3} adds"
    ))
}

/// The time of a multiply over that of an add, each the fastest of a few alternating chains.
fn ratio_of_fastest(clock: Clock) -> f64 {
    const ADDS: u64 = 300;
    const MULTIPLIES: u64 = 100;
    let (mut add, mut multiply) = (u64::MAX, u64::MAX);
    for _ in 0..CHAIN_PAIRS {
        add = add.min(elapsed_ticks(clock, || kernels::chain_add(ADDS)));
        multiply = multiply.min(elapsed_ticks(clock, || kernels::chain_multiply(MULTIPLIES)));
    }
    (multiply as f64 / MULTIPLIES as f64) / (add.max(1) as f64 / ADDS as f64)
}

fn elapsed_ticks(clock: Clock, work: impl FnOnce()) -> u64 {
    let begun = clock.start();
    work();
    clock.stop().wrapping_sub(begun)
}

/// The whole number that a ratio is close to, if any.
fn nearest_integer(ratio: f64) -> Option<u32> {
    let whole = ratio.round().max(1.0);
    (whole * (1.0 - MAX_BELOW_INTEGER)..=whole * (1.0 + MAX_ABOVE_INTEGER)).contains(&ratio).then_some(whole as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowed_adds_round_to_whole_cycles() {
        assert_eq!(nearest_integer(3.0), Some(3));
        assert_eq!(nearest_integer(2.88), Some(3));
        assert_eq!(nearest_integer(3.05), Some(3));
        assert_eq!(nearest_integer(4.7), Some(5));
        assert_eq!(nearest_integer(3.4), None);
        assert_eq!(nearest_integer(2.7), None);
        assert_eq!(nearest_integer(0.4), None);
        assert_eq!(nearest_integer(f64::NAN), None);
    }
}
