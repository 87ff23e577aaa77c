//! The generator itself: the CPU time of its threads, how long they waited for a CPU, and whether it was the limit.

use std::ops::Range;

use kelvin_core::load::{GeneratorLimit, GeneratorStats, GeneratorThread, LatencySummary};
use kelvin_sys::usage::{RunQueueWait, UsageScope, read_usage};

/// Share of the time that a thread worked or waited for a CPU from which on answers may have waited for it: at 90 % a queue of
/// random arrivals is ten times as long as its service (M/M/1).
const BUSY_SHARE: f64 = 0.9;

/// The generator's own delays, as a share of the response times, from which on these are no longer the server's: mean of mean,
/// and 99 % quantile of 99 % quantile. The time that few requests were late by is lost in a mean, and is all of a tail. The same as a
/// share of the time that the schedule gives, from which on there are fewer requests than it asks for.
const LATE_SHARE: f64 = 0.05;

/// What a thread has used, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ThreadUsage {
    wall: u64,
    cpu: u64,
    run_queue_wait: Option<u64>,
    spin: u64,
}

/// What the calling thread uses within the measured time.
#[derive(Debug)]
pub(crate) struct WindowUsage {
    run_queue_wait: RunQueueWait,
    start: Option<ThreadUsage>,
    end: Option<ThreadUsage>,
}

impl WindowUsage {
    pub(crate) fn new() -> Self {
        Self { run_queue_wait: RunQueueWait::of_thread(), start: None, end: None }
    }

    fn read(&mut self, wall: u64, spin: u64) -> ThreadUsage {
        let cpu = read_usage(UsageScope::Thread).cpu();
        ThreadUsage { wall, cpu, run_queue_wait: self.run_queue_wait.nanoseconds(), spin }
    }

    /// Looks at the thread when the measured time begins and when it ends; returns whether it has just begun.
    pub(crate) fn sample(&mut self, window: &Range<u64>, now: u64, spin: u64) -> bool {
        let is_start = self.start.is_none() && now >= window.start;
        if is_start {
            self.start = Some(self.read(now, spin));
        }
        if self.end.is_none() && now >= window.end {
            self.end = Some(self.read(now, spin));
        }
        is_start
    }

    /// What was used; up to now, if the measured time was ended early.
    pub(crate) fn finish(mut self, now: u64, spin: u64) -> GeneratorThread {
        let end = self.end.unwrap_or_else(|| self.read(now, spin));
        let start = self.start.unwrap_or(end);
        let usage = ThreadUsage {
            wall: end.wall - start.wall,
            cpu: end.cpu.saturating_sub(start.cpu),
            run_queue_wait: start.run_queue_wait.zip(end.run_queue_wait).map(|(start, end)| end.saturating_sub(start)),
            spin: end.spin - start.spin,
        };
        GeneratorThread { cpus: kelvin_sys::cpu::affinity().unwrap_or_default(), ..usage.summary() }
    }
}

impl ThreadUsage {
    fn summary(self) -> GeneratorThread {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let spin_seconds = seconds(self.spin);
        // A thread that asks for anything takes CPU time: none that was seen is less than the kernel counts in so short a time.
        let is_measured = self.wall > 0 && self.cpu > 0;
        let cpu = is_measured.then(|| (seconds(self.cpu) - spin_seconds).max(0.0));
        let off_cpu = self.run_queue_wait.map(seconds);
        let busy = cpu.map(|cpu| (cpu + off_cpu.unwrap_or(0.0)) / seconds(self.wall));
        GeneratorThread { cpu, spin_seconds, off_cpu, busy, cpus: Vec::new() }
    }
}

/// What the generator did, and whether it was the limit: by what its busiest thread used, by its delays and those that answers met, by the response
/// times, and by which share of the requests that the schedule asked for its delays left out.
pub(crate) fn report(
    threads: Vec<GeneratorThread>,
    delays: GeneratorStats,
    response: LatencySummary,
    lost_share: f64,
) -> GeneratorStats {
    let busy_shares = (1..).zip(&threads).filter_map(|(number, thread)| Some((number, thread.busy?)));
    let busiest = busy_shares.max_by(|(_, first), (_, second)| first.total_cmp(second));
    let limit = match busiest {
        Some((thread, share @ BUSY_SHARE..)) => Some(GeneratorLimit::Busy { share: share.min(1.0), thread }),
        _ => (lost_share >= LATE_SHARE).then_some(GeneratorLimit::Late { share: lost_share }),
    };
    let slow_share =
        |delay: f64, response: f64| Some(delay_share(delay, response)).filter(|&share| share >= LATE_SHARE);
    let own_delay = delays.own_delay;
    let (slow_mean, slow_tail) = (slow_share(own_delay.mean, response.mean), slow_share(own_delay.p99, response.p99));
    let sum = |seconds: fn(&GeneratorThread) -> Option<f64>| {
        let known = threads.iter().filter_map(seconds);
        known.reduce(|sum, seconds| sum + seconds)
    };
    let mut cpus: Vec<u32> = threads.iter().flat_map(|thread| thread.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    GeneratorStats {
        cpu: sum(|thread| thread.cpu),
        spin_seconds: sum(|thread| Some(thread.spin_seconds)).unwrap_or(0.0),
        off_cpu: sum(|thread| thread.off_cpu),
        busy: busiest.map(|(_, share)| share),
        limit,
        slow_mean,
        slow_tail,
        cpus,
        threads,
        ..delays
    }
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

    fn after_ten_seconds(
        cpu: f64,
        run_queue_wait: f64,
        spin: f64,
        (delays, response, lost_share): Delays,
    ) -> GeneratorStats {
        let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
        let start = ThreadUsage { wall: 5, cpu: 7, run_queue_wait: Some(9), spin: 3 };
        let end = ThreadUsage {
            wall: start.wall + nanoseconds(10.0),
            cpu: start.cpu + nanoseconds(cpu),
            run_queue_wait: Some(9 + nanoseconds(run_queue_wait)),
            spin: start.spin + nanoseconds(spin),
        };
        let window = WindowUsage { start: Some(start), end: Some(end), ..WindowUsage::new() };
        report(vec![window.finish(0, 0)], delays, response, lost_share)
    }

    #[test]
    fn busy_thread_is_the_limit() {
        let limit = |cpu, run_queue_wait| after_ten_seconds(cpu, run_queue_wait, 0.0, Delays::default()).limit;
        assert!(matches!(limit(9.5, 0.0), Some(GeneratorLimit::Busy { .. })));
        assert!(matches!(limit(5.0, 4.5), Some(GeneratorLimit::Busy { .. })));
        assert_eq!(limit(5.0, 3.0), None);
    }

    #[test]
    fn busiest_thread_is_the_limit() {
        // Of 64 seconds.
        let thread = |cpu: u64, run_queue_wait: u64, cpu_number: u32| {
            let [wall, cpu, run_queue_wait] = [64, cpu, run_queue_wait].map(|seconds| seconds * 1_000_000_000);
            let usage = ThreadUsage { wall, cpu, run_queue_wait: Some(run_queue_wait), spin: 0 };
            GeneratorThread { cpus: vec![cpu_number], ..usage.summary() }
        };
        let report = |threads: &[GeneratorThread]| {
            report(threads.to_vec(), GeneratorStats::default(), LatencySummary::default(), 0.0)
        };
        let threads = [thread(30, 6, 4), thread(40, 20, 2), thread(0, 0, 2), thread(18, 0, 3)];
        let stats = report(&threads);
        assert_eq!((stats.limit, stats.busy), (Some(GeneratorLimit::Busy { share: 0.9375, thread: 2 }), Some(0.9375)));
        assert_eq!((&stats.threads[..], &stats.cpus[..]), (&threads[..], &[2, 3, 4][..]));
        assert_eq!((stats.cpu, stats.off_cpu), (Some(88.0), Some(26.0)));
        assert_eq!(report(&[thread(57, 0, 0), thread(57, 0, 1)]).limit, None, "two CPUs are not one");
        assert_eq!(report(&[thread(0, 0, 0)]).busy, None, "less than the kernel counts");
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
        let stats_at_loss = |lost_share: f64| {
            let delay = LatencySummary { mean: 0.5e6, ..LatencySummary::default() };
            let response = LatencySummary { mean: 1e6, ..LatencySummary::default() };
            let delays = GeneratorStats { late: delay, own_delay: delay, ..GeneratorStats::default() };
            after_ten_seconds(0.1, 0.0, 0.0, (delays, response, lost_share))
        };
        assert_eq!((stats_at_loss(0.01).limit, stats_at_loss(0.01).slow_mean), (None, Some(0.5)));
        assert_eq!(stats_at_loss(0.1).limit, Some(GeneratorLimit::Late { share: 0.1 }));
    }

    #[test]
    fn generator_tail_is_reported_separately() {
        let p99 = |p99: f64| LatencySummary { mean: 1e4, p99, ..LatencySummary::default() };
        let stats_with_delay = |delay: LatencySummary| {
            let response = LatencySummary { mean: 1e6, p99: 50e6, ..LatencySummary::default() };
            let delays = GeneratorStats { late: delay, own_delay: delay, ..GeneratorStats::default() };
            report(vec![GeneratorThread::default()], delays, response, 0.0)
        };
        let stats = stats_with_delay(p99(40e6));
        assert_eq!((stats.limit, stats.slow_tail), (None, Some(0.8)));
        assert_eq!(stats_with_delay(p99(2.4e6)).slow_tail, None);
        let delays = GeneratorStats { late: p99(1e6), ..GeneratorStats::default() };
        let no_answer_stats = report(vec![GeneratorThread::default()], delays, LatencySummary::default(), 0.0);
        assert_eq!(no_answer_stats.slow_tail, None, "without an answer");
    }

    #[test]
    fn thread_usage_has_cpu_time_or_wait() {
        let usage = WindowUsage::new().read(0, 0);
        assert!(usage.cpu > 0 || usage.run_queue_wait.is_some());
    }
}
