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
const RATIOS: usize = 41;
const PAIRS: usize = 8;
/// How far below and above a whole number the median ratio may lie, as shares of it. Below, because an SMT sibling
/// slows adds more than multiplies, by up to this much where observed; above only by clock error and chance.
const BELOW: f64 = 0.08;
const ABOVE: f64 = 0.02;
/// Attempts, in case the frequency changes meanwhile.
const TRIES: usize = 5;

/// Core cycles of a 64-bit multiply on the CPU that the calling thread is pinned to. Takes some 4 milliseconds.
///
/// # Errors
/// A ratio of multiply to add that is not a whole number, in words.
pub fn multiply_cycles(clock: Clock) -> Result<u32, String> {
    let mut ratio = f64::NAN;
    for _ in 0..TRIES {
        let ratios: Vec<f64> = (0..RATIOS).map(|_| ratio_of_fastest(clock)).collect();
        ratio = median(&ratios);
        if let Some(whole) = whole(ratio) {
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
    for _ in 0..PAIRS {
        add = add.min(ticks(clock, || kernels::chain_add(ADDS)));
        multiply = multiply.min(ticks(clock, || kernels::chain_multiply(MULTIPLIES)));
    }
    (multiply as f64 / MULTIPLIES as f64) / (add.max(1) as f64 / ADDS as f64)
}

fn ticks(clock: Clock, work: impl FnOnce()) -> u64 {
    let begun = clock.start();
    work();
    clock.stop().wrapping_sub(begun)
}

/// The whole number that a ratio is close to, if any.
fn whole(ratio: f64) -> Option<u32> {
    let whole = ratio.round().max(1.0);
    (whole * (1.0 - BELOW)..=whole * (1.0 + ABOVE)).contains(&ratio).then_some(whole as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowed_adds_still_show_the_whole_number() {
        assert_eq!(whole(3.0), Some(3));
        assert_eq!(whole(2.88), Some(3));
        assert_eq!(whole(3.05), Some(3));
        assert_eq!(whole(4.7), Some(5));
        assert_eq!(whole(3.4), None);
        assert_eq!(whole(2.7), None);
        assert_eq!(whole(0.4), None);
        assert_eq!(whole(f64::NAN), None);
    }
}
