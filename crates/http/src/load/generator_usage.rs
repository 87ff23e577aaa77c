//! The generator itself: its CPU time, how long it waited for a CPU, and whether it was the limit.

use std::ops::Range;

use kelvin_core::load::{GeneratorLimit, GeneratorStats, LatencySummary};
use kelvin_sys::usage::{RunQueueWait, UsageScope, read_usage};

/// Share of the time that the thread worked or waited for a CPU from which on answers may have waited for it: at 90 % a queue of
/// random arrivals is ten times as long as its service (M/M/1).
const BUSY_SHARE: f64 = 0.9;

/// The generator's own delays, as a share of the response times, from which on these are no longer the server's: mean of mean,
/// and 99 % quantile of 99 % quantile. The time that few requests were late by is lost in a mean, and is all of a tail. The same as a
/// share of the time that the schedule gives, from which on there are fewer requests than it asks for.
const LATE_SHARE: f64 = 0.05;

/// What the thread has used, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ThreadUsage {
    wall: u64,
    cpu: u64,
    without_cpu: Option<u64>,
    spun: u64,
}

/// What the calling thread uses within the measured time.
#[derive(Debug)]
pub(crate) struct WindowUsage {
    run_queue_wait: RunQueueWait,
    from: Option<ThreadUsage>,
    to: Option<ThreadUsage>,
}

impl WindowUsage {
    pub(crate) fn new() -> Self {
        Self { run_queue_wait: RunQueueWait::of_thread(), from: None, to: None }
    }

    fn read(&mut self, wall: u64, spun: u64) -> ThreadUsage {
        let cpu = read_usage(UsageScope::Thread).cpu();
        ThreadUsage { wall, cpu, without_cpu: self.run_queue_wait.nanoseconds(), spun }
    }

    /// Looks at the thread when the measured time begins and when it ends; returns whether it has just begun.
    pub(crate) fn sample(&mut self, window: &Range<u64>, now: u64, spun: u64) -> bool {
        let begins = self.from.is_none() && now >= window.start;
        if begins {
            self.from = Some(self.read(now, spun));
        }
        if self.to.is_none() && now >= window.end {
            self.to = Some(self.read(now, spun));
        }
        begins
    }

    /// What was used; up to now, if the measured time was ended early.
    pub(crate) fn finish(mut self, now: u64, spun: u64) -> ThreadUsage {
        let to = self.to.unwrap_or_else(|| self.read(now, spun));
        let from = self.from.unwrap_or(to);
        ThreadUsage {
            wall: to.wall - from.wall,
            cpu: to.cpu.saturating_sub(from.cpu),
            without_cpu: from.without_cpu.zip(to.without_cpu).map(|(from, to)| to.saturating_sub(from)),
            spun: to.spun - from.spun,
        }
    }
}

/// What the generator did, and whether it was the limit: by what its thread used, by its delays and those that answers met, by the response
/// times, and by which share of the requests that the schedule asked for its delays left out.
pub(crate) fn report(used: ThreadUsage, delays: GeneratorStats, response: LatencySummary, lost: f64) -> GeneratorStats {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let spin_seconds = seconds(used.spun);
    // A thread that asks for anything takes CPU time: none that was seen is less than the kernel counts in so short a time.
    let is_seen = used.wall > 0 && used.cpu > 0;
    let cpu = is_seen.then(|| (seconds(used.cpu) - spin_seconds).max(0.0));
    let off_cpu = used.without_cpu.map(seconds);
    let busy = cpu.map(|cpu| (cpu + off_cpu.unwrap_or(0.0)) / seconds(used.wall));
    let limit = match busy.unwrap_or(0.0) {
        busy @ BUSY_SHARE.. => Some(GeneratorLimit::Busy { share: busy.min(1.0) }),
        _ => (lost >= LATE_SHARE).then_some(GeneratorLimit::Late { share: lost }),
    };
    let slow = |own: f64, response: f64| Some(delay_share(own, response)).filter(|&share| share >= LATE_SHARE);
    let own = delays.own_delay;
    let (slow_mean, slow_tail) = (slow(own.mean, response.mean), slow(own.p99, response.p99));
    let cpus = kelvin_sys::cpu::allowed().unwrap_or_default();
    GeneratorStats { cpu, spin_seconds, off_cpu, busy, limit, slow_mean, slow_tail, cpus, ..delays }
}

/// Which share of a time a delay is.
pub(crate) fn delay_share(delay: f64, response: f64) -> f64 {
    if response > 0.0 { delay / response } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays, response times, and the share of requests that was lost.
    type Delays = (GeneratorStats, LatencySummary, f64);

    fn after_ten_seconds(cpu: f64, without_cpu: f64, spun: f64, (delays, response, lost): Delays) -> GeneratorStats {
        let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
        let from = ThreadUsage { wall: 5, cpu: 7, without_cpu: Some(9), spun: 3 };
        let to = ThreadUsage {
            wall: from.wall + nanoseconds(10.0),
            cpu: from.cpu + nanoseconds(cpu),
            without_cpu: Some(9 + nanoseconds(without_cpu)),
            spun: from.spun + nanoseconds(spun),
        };
        let window = WindowUsage { from: Some(from), to: Some(to), ..WindowUsage::new() };
        report(window.finish(0, 0), delays, response, lost)
    }

    #[test]
    fn busy_thread_is_the_limit() {
        let limit = |cpu, without_cpu| after_ten_seconds(cpu, without_cpu, 0.0, Delays::default()).limit;
        assert!(matches!(limit(9.5, 0.0), Some(GeneratorLimit::Busy { .. })));
        assert!(matches!(limit(5.0, 4.5), Some(GeneratorLimit::Busy { .. })));
        assert_eq!(limit(5.0, 3.0), None);
    }

    #[test]
    fn spinning_is_not_work() {
        let generator = after_ten_seconds(9.9, 0.0, 9.0, Delays::default());
        assert_eq!(generator.limit, None);
        let [cpu, busy] = [generator.cpu, generator.busy].map(Option::unwrap);
        assert!((cpu - 0.9).abs() < 1e-6 && (busy - 0.09).abs() < 1e-6);
    }

    /// A generator that sleeps and is late by as much as an answer takes limits nothing while its schedule gives it the time; its
    /// response times are its own all the same.
    #[test]
    fn lateness_limits_if_requests_are_lost() {
        let of = |lost: f64| {
            let own = LatencySummary { mean: 0.5e6, ..LatencySummary::default() };
            let response = LatencySummary { mean: 1e6, ..LatencySummary::default() };
            let delays = GeneratorStats { late: own, own_delay: own, ..GeneratorStats::default() };
            after_ten_seconds(0.1, 0.0, 0.0, (delays, response, lost))
        };
        assert_eq!((of(0.01).limit, of(0.01).slow_mean), (None, Some(0.5)));
        assert_eq!(of(0.1).limit, Some(GeneratorLimit::Late { share: 0.1 }));
    }

    #[test]
    fn generator_tail_is_reported_apart() {
        let p99 = |p99: f64| LatencySummary { mean: 1e4, p99, ..LatencySummary::default() };
        let with = |own: LatencySummary| {
            let response = LatencySummary { mean: 1e6, p99: 50e6, ..LatencySummary::default() };
            let delays = GeneratorStats { late: own, own_delay: own, ..GeneratorStats::default() };
            report(ThreadUsage { wall: 10, ..ThreadUsage::default() }, delays, response, 0.0)
        };
        let late = with(p99(40e6));
        assert_eq!((late.limit, late.slow_tail), (None, Some(0.8)));
        assert_eq!(with(p99(2.4e6)).slow_tail, None);
        let late = GeneratorStats { late: p99(1e6), ..GeneratorStats::default() };
        let none = report(ThreadUsage::default(), late, LatencySummary::default(), 0.0);
        assert_eq!(none.slow_tail, None, "without an answer");
    }

    #[test]
    fn the_thread_tells_of_its_cpu_time_or_its_waits() {
        let used = WindowUsage::new().read(0, 0);
        assert!(used.cpu > 0 || used.without_cpu.is_some());
    }
}
