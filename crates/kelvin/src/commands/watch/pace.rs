//! How long the turns of a watch may take, and when the next one may begin, so that their CPU time stays within its share.
//!
//! Pure: times are passed in, so that tests need no real time.

use std::time::Duration;

/// Share of its CPU time that a turn is planned for: one that takes a little more then delays none.
const PLANNED_SHARE: f64 = 0.8;

/// What a watch may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchPace {
    /// From the beginning of one turn to that of the next.
    pub interval: Duration,
    /// CPU time, as a share of the time of one CPU.
    pub share: f64,
}

impl WatchPace {
    /// CPU time of a turn.
    pub fn allowance(self) -> Duration {
        self.interval.mul_f64(self.share)
    }

    /// How long a turn is planned to measure, where each second of it takes this many of CPU time.
    pub fn planned_time(self, load: f64) -> Duration {
        self.allowance().mul_f64(PLANNED_SHARE / load)
    }

    /// Whether a turn that measures for so long fits.
    pub fn can_fit(self, time: Duration, load: f64) -> bool {
        time.mul_f64(load) <= self.allowance()
    }

    /// The shortest interval that such turns fit into, in whole minutes, or seconds where it is below two of these.
    pub fn min_interval(self, time: Duration, load: f64) -> Duration {
        const MINUTE: f64 = 60.0;
        let min_seconds = time.as_secs_f64() * load / self.share;
        let unit = if min_seconds < 2.0 * MINUTE { 1.0 } else { MINUTE };
        Duration::from_secs_f64((min_seconds / unit).ceil() * unit)
    }

    /// How long after its beginning the CPU time of a turn is paid for.
    pub fn recovery_time(self, cpu: Duration) -> Duration {
        cpu.div_f64(self.share)
    }

    /// How long after its beginning the next turn begins.
    pub fn next_interval(self, cpu: Duration) -> Duration {
        self.interval.max(self.recovery_time(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOURLY: WatchPace = WatchPace { interval: Duration::from_secs(3600), share: 0.01 };

    #[test]
    fn cycle_is_planned_below_its_share() {
        assert_eq!(HOURLY.allowance(), Duration::from_secs(36));
        assert_eq!(HOURLY.planned_time(1.0), Duration::from_millis(28_800));
        assert_eq!(HOURLY.planned_time(2.0), Duration::from_millis(14_400), "on two CPUs at once");
    }

    #[test]
    fn min_interval_fits() {
        assert!(HOURLY.can_fit(Duration::from_secs(36), 1.0) && !HOURLY.can_fit(Duration::from_secs(37), 1.0));
        assert!(!HOURLY.can_fit(Duration::from_secs(36), 1.1));
        let seconds = |time, load| HOURLY.min_interval(Duration::from_secs(time), load).as_secs();
        assert_eq!([seconds(36, 1.0), seconds(37, 1.0), seconds(18, 2.0)], [3600, 3720, 3600]);
        assert_eq!(seconds(1, 0.995), 100, "of 99.5 s");
        for (time, load) in [(1, 0.3), (7, 1.7), (40, 0.9), (3000, 4.0)] {
            let time = Duration::from_secs(time);
            assert!(WatchPace { interval: HOURLY.min_interval(time, load), ..HOURLY }.can_fit(time, load), "{time:?}");
        }
    }

    #[test]
    fn excess_cpu_time_delays_next_cycle() {
        let next_start = |cpu| HOURLY.next_interval(Duration::from_secs(cpu)).as_secs();
        assert_eq!([next_start(0), next_start(20), next_start(36), next_start(50)], [3600, 3600, 3600, 5000]);
        assert_eq!(HOURLY.recovery_time(Duration::from_secs(20)), Duration::from_secs(2000));
    }

    /// Turns that take now more, now less: none of them uses up what is left to the others.
    #[test]
    fn varying_cycles_keep_their_share() {
        let mut clock = Duration::ZERO;
        let mut used = Duration::ZERO;
        for turn in 0..500_u64 {
            assert!(used <= clock.mul_f64(HOURLY.share * 1.000_001), "turn {turn}");
            let cpu = Duration::from_millis(1000 + turn * turn * 7919 % 90_000);
            used += cpu;
            clock += HOURLY.next_interval(cpu);
        }
        assert!(used > clock.mul_f64(0.5 * HOURLY.share), "and not much less is used");
    }
}
