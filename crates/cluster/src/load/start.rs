//! When a load begins: at one moment for all ranks, by the clock of each.

use std::time::Duration;

/// Until then each rank has started its generator, which has looked up the server and connected to it.
const LEAD: Duration = Duration::from_secs(3);
/// Rank 0 sends the task to one rank after the other.
const LEAD_PER_RANK: Duration = Duration::from_millis(1);
/// Clocks whose offsets are known worse than this cannot begin together: from this difference on `kelvin load merge` names a generator that
/// began at another time than the others.
pub const MAX_CLOCK_ERROR_SECONDS: f64 = 0.1;

/// The moment at which a load of so many ranks begins that is prepared now, in seconds since 1970 by the clock of rank 0. A whole second is
/// the same text for all ranks whose clocks agree.
pub fn start_seconds(now: f64, ranks: usize) -> f64 {
    (now + (LEAD + LEAD_PER_RANK * ranks as u32).as_secs_f64()).ceil()
}

/// The time of `--start-at` of a rank whose clock is ahead of that of rank 0 by so many seconds. Microseconds are finer than any offset is
/// known.
pub fn start_at(start_seconds: f64, clock_offset_s: f64) -> String {
    format!("@{:.6}", start_seconds + clock_offset_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_a_whole_second_after_the_lead() {
        assert_eq!(start_seconds(1_796_025_600.0, 2), 1_796_025_604.0);
        assert_eq!(start_seconds(1_796_025_600.25, 750), 1_796_025_604.0);
        assert_eq!(start_seconds(1_796_025_600.25, 1000), 1_796_025_605.0);
    }

    #[test]
    fn rank_starts_by_its_own_clock() {
        assert_eq!(start_at(1_796_025_604.0, 0.0), "@1796025604.000000");
        assert_eq!(start_at(1_796_025_604.0, 2.000_125), "@1796025606.000125");
        assert_eq!(start_at(1_796_025_604.0, -0.5), "@1796025603.500000");
    }
}
