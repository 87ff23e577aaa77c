//! What observers see of each request, and what they make of it.

use std::ops::ControlFlow;

use kelvin_stats::Histogram;
use kelvin_sys::clock::Clock;

use crate::block_requests::BlockRequest;

/// Observes each request; one type for each result that can be wanted, so that nothing is paid for unwanted ones.
pub trait Observer {
    /// What it keeps of a request in flight.
    type Stamp: Copy + Default;

    /// A request is about to be made.
    fn begin(&mut self) -> Self::Stamp;

    /// A request is done, and this is what was read or written. No further request is made after a `Break`.
    fn end(&mut self, stamp: Self::Stamp, request: BlockRequest, data: &[u8]) -> ControlFlow<()>;
}

/// Counts bytes and requests, and no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTally {
    /// Bytes moved.
    pub bytes: u64,
    /// Requests made.
    pub requests: u64,
}

impl Observer for IoTally {
    type Stamp = ();

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, (): (), request: BlockRequest, _: &[u8]) -> ControlFlow<()> {
        self.bytes += request.bytes as u64;
        self.requests += 1;
        ControlFlow::Continue(())
    }
}

/// Adds the latency of each request to another observer.
#[derive(Debug)]
pub struct LatencyObserver<O> {
    /// The other one.
    pub inner: O,
    /// Times from a request to its end, in nanoseconds.
    pub histogram: Histogram,
    clock: Clock,
    /// Nanoseconds of a tick, as a fixed-point number of 32 bits behind the point.
    scale: u64,
}

impl<O> LatencyObserver<O> {
    /// Latencies by a clock of this many ticks a second.
    pub fn new(inner: O, clock: Clock, hertz: f64) -> Self {
        Self { inner, histogram: Histogram::new(), clock, scale: (1e9 / hertz * 2f64.powi(32)) as u64 }
    }
}

impl<O: Observer> Observer for LatencyObserver<O> {
    type Stamp = (u64, O::Stamp);

    #[inline(always)]
    fn begin(&mut self) -> Self::Stamp {
        let inner = self.inner.begin();
        (self.clock.start(), inner)
    }

    #[inline(always)]
    fn end(&mut self, (begun, inner): Self::Stamp, request: BlockRequest, data: &[u8]) -> ControlFlow<()> {
        let ticks = self.clock.stop().wrapping_sub(begun);
        self.histogram.record(((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64);
        self.inner.end(inner, request, data)
    }
}

/// The cost of timing and counting one request, in nanoseconds: that much of each latency and of each request's time is not the
/// file's.
pub fn recording_cost(clock: Clock, hertz: f64) -> f64 {
    const REQUESTS: u64 = 1 << 14;
    const REPEATS: usize = 9;
    let request = BlockRequest { offset: 0, bytes: 1 };
    let costs: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let mut observer = LatencyObserver::new(IoTally::default(), clock, hertz);
            let begun = clock.start();
            for _ in 0..REQUESTS {
                let stamp = observer.begin();
                let _ = std::hint::black_box(observer.end(stamp, request, &[]));
            }
            clock.stop().wrapping_sub(begun) as f64 * 1e9 / hertz / REQUESTS as f64
        })
        .collect();
    kelvin_stats::median(&costs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_sys::clock::ScriptedClock;

    #[test]
    fn latencies_follow_scripted_clock() {
        let script = ScriptedClock::leak(0);
        // Two ticks a nanosecond.
        let mut observer = LatencyObserver::new(IoTally::default(), Clock::Scripted(script), 2e9);
        for time in [200, 400, 600] {
            let stamp = observer.begin();
            script.advance(time);
            assert!(observer.end(stamp, BlockRequest { offset: 0, bytes: 10 }, &[0; 10]).is_continue());
        }
        assert_eq!(observer.inner, IoTally { bytes: 30, requests: 3 });
        assert_eq!(observer.histogram.count(), 3);
        assert_eq!([0.3, 0.6, 0.9].map(|share| observer.histogram.quantile(share)), [100.0, 200.0, 300.0].map(Some));
    }
}
