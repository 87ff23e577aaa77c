//! When a load begins: at once, or at a time of day that all hosts have been given.

use std::thread::sleep;
use std::time::Duration;

use kelvin_sys::clock::{monotonic, realtime};

/// Nanoseconds before its time from which on a load waits in its threads, as for any request that is due.
const LEAD_NANOSECONDS: u64 = 20_000_000;

/// Nanoseconds between looks for a signal and at the clock, which may be set while a load waits.
const MAX_SLEEP_NANOSECONDS: u64 = 100_000_000;

/// When a load is to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartTime {
    /// As soon as all is prepared.
    #[default]
    Now,
    /// At these nanoseconds of CLOCK_REALTIME; as soon as possible where they have passed.
    At(u64),
}

/// The moment at which a load begins, on two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadStart {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub(crate) monotonic: u64,
    /// Nanoseconds of CLOCK_REALTIME.
    pub(crate) realtime: u64,
}

impl StartTime {
    /// Waits until shortly before this time, or until a signal asks to stop; returns the moment at which the load begins, which is at
    /// least so many nanoseconds ahead.
    pub(crate) fn wait(self, min_lead: u64) -> LoadStart {
        let Self::At(start) = self else { return LoadStart::after(min_lead) };
        loop {
            let ahead = start.saturating_sub(realtime());
            if ahead <= LEAD_NANOSECONDS || kelvin_sys::stop_signals::stop_signal().is_some() {
                break;
            }
            sleep(Duration::from_nanos((ahead - LEAD_NANOSECONDS).min(MAX_SLEEP_NANOSECONDS)));
        }
        LoadStart::after(start.saturating_sub(realtime()).max(min_lead))
    }
}

impl LoadStart {
    /// So many nanoseconds from now.
    fn after(ahead: u64) -> Self {
        Self { monotonic: monotonic() + ahead, realtime: realtime() + ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_at_its_time_and_never_before() {
        let at = realtime() + 50_000_000;
        let start = StartTime::At(at).wait(0);
        // Between two readings of the clock the thread may have to wait.
        assert!(
            start.realtime >= at && start.monotonic >= monotonic().saturating_sub(start.realtime - at + 50_000_000)
        );
        let passed = StartTime::At(at - 40_000_000_000).wait(7);
        assert!(passed.realtime > at - 40_000_000_000);
        let now = monotonic();
        assert!(StartTime::Now.wait(1_000_000_000).monotonic >= now + 1_000_000_000);
    }
}
