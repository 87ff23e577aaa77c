//! How busy a host is with a test: its threads, and the CPUs.
//!
//! A thread that never waits is a limit, and so is a CPU saturated by arriving packets; neither shows in the other.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kelvin_sys::cpu_usage::{CpuStatReader, ThreadClock};
use kelvin_sys::procfs::CpuStat;
use kelvin_sys::usage::ticks_to_nanoseconds;
use serde::{Deserialize, Serialize};

use crate::wire::limits_serde;
use kelvin_sys::lock;

/// The share from which on something is saturated: idle time is counted in hundredths of a second.
pub const SATURATED_SHARE: f64 = 0.95;

/// How busy a host was over a time, as shares of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// The busiest thread of the test.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_SHARE }, _, _>")]
    pub busiest_thread: f64,
    /// All of them together: 2 if two did nothing else.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_SHARE }, _, _>")]
    pub threads: f64,
    /// The least idle CPU, in any kind of work; none where the system does not report it.
    pub cpu: Option<BusiestCpu>,
}

/// How busy a CPU was over a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusiestCpu {
    /// Its number.
    pub number: u32,
    /// The share of the time in which it was not idle.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_SHARE }, _, _>")]
    pub share: f64,
    /// The share of interrupts, and of the packets that they brought.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_SHARE }, _, _>")]
    pub interrupts: f64,
}

impl CpuUsage {
    /// The most saturated of the test's possible limits: a thread of it, or a CPU as far as the test may fill it. A CPU's load
    /// beyond all threads of the test and the arriving packets is of other programs.
    pub fn max_share(&self) -> f64 {
        let test_share = |cpu: BusiestCpu| cpu.share.min(self.threads + cpu.interrupts);
        self.cpu.map_or(self.busiest_thread, |cpu| test_share(cpu).max(self.busiest_thread))
    }

    /// Whether the test is CPU-bound.
    pub fn is_cpu_bound(&self) -> bool {
        self.max_share() >= SATURATED_SHARE
    }

    /// The median of several, by their most saturated part.
    pub fn median(usages: &[Self]) -> Option<Self> {
        let mut sorted = usages.to_vec();
        sorted.sort_by(|first, second| first.max_share().total_cmp(&second.max_share()));
        sorted.get(sorted.len() / 2).copied()
    }
}

impl fmt::Display for CpuUsage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "its busiest thread took {:.0} % of a CPU", 100.0 * self.busiest_thread)?;
        if self.threads > self.busiest_thread {
            write!(out, ", all of them {:.0} %", 100.0 * self.threads)?;
        }
        match self.cpu {
            Some(cpu) => write!(out, " and CPU {} was {:.0} % busy", cpu.number, 100.0 * cpu.share),
            None => Ok(()),
        }
    }
}

/// The threads of a test.
#[derive(Debug, Default)]
pub struct ThreadClocks(Mutex<Vec<ThreadClock>>);

impl ThreadClocks {
    /// Adds the calling thread. One whose clock is unavailable is not seen.
    pub fn register(&self) {
        if let Ok(clock) = ThreadClock::current() {
            lock(&self.0).push(clock);
        }
    }

    /// CPU time of each; none for one that has ended.
    fn cpu_times(&self) -> Vec<Option<Duration>> {
        let clocks = lock(&self.0);
        clocks.iter().map(|clock| clock.cpu_time().ok()).collect()
    }
}

/// Measures from time to time how busy threads and CPUs were.
#[derive(Debug)]
pub struct CpuUsageMeter<'a> {
    threads: &'a ThreadClocks,
    cpus: Option<CpuStatReader>,
    last: CpuSample,
}

/// The counters at a moment.
#[derive(Debug)]
struct CpuSample {
    time: Instant,
    threads: Vec<Option<Duration>>,
    cpus: CpuStat,
}

impl<'a> CpuUsageMeter<'a> {
    /// Begins now.
    pub fn start(threads: &'a ThreadClocks) -> Self {
        let mut cpus = CpuStatReader::open().ok();
        let last = CpuSample::now(threads, cpus.as_mut());
        Self { threads, cpus, last }
    }

    /// How busy they were since it began, or since the last call.
    pub fn sample(&mut self) -> CpuUsage {
        let now = CpuSample::now(self.threads, self.cpus.as_mut());
        let usage = now.since(&self.last);
        self.last = now;
        usage
    }
}

impl CpuSample {
    fn now(threads: &ThreadClocks, cpus: Option<&mut CpuStatReader>) -> Self {
        let cpus = cpus.and_then(CpuStatReader::read).unwrap_or_default();
        Self { time: Instant::now(), threads: threads.cpu_times(), cpus }
    }

    fn since(&self, earlier: &Self) -> CpuUsage {
        let elapsed = (self.time - earlier.time).as_secs_f64().max(1e-9);
        let thread_shares = self.threads.iter().enumerate().filter_map(|(number, now)| {
            // One that was not there before has used all of it since.
            let before = earlier.threads.get(number).copied().flatten().unwrap_or_default();
            Some(now.as_ref()?.saturating_sub(before).as_secs_f64() / elapsed)
        });
        let thread_shares: Vec<f64> = thread_shares.collect();
        let share = |ticks: u64| (ticks_to_nanoseconds(ticks) / 1e9 / elapsed).min(1.0);
        let cpus = self.cpus.cpus.iter().filter_map(|(cpu, now)| {
            let ticks = now.since(*earlier.cpus.cpus.get(cpu)?);
            Some(BusiestCpu { number: *cpu, share: 1.0 - share(ticks.idle), interrupts: share(ticks.interrupts) })
        });
        // Of several saturated ones, the one that receives the packets.
        let rank = |cpu: &BusiestCpu| (cpu.share.min(SATURATED_SHARE), cpu.interrupts);
        let cpu = cpus.max_by(|first, second| rank(first).partial_cmp(&rank(second)).unwrap_or(Ordering::Equal));
        CpuUsage {
            busiest_thread: thread_shares.iter().copied().fold(0.0, f64::max),
            threads: thread_shares.iter().sum(),
            cpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_sys::procfs::CpuTicks;

    use super::*;

    fn usage(busiest_thread: f64, threads: f64, share: f64, interrupts: f64) -> CpuUsage {
        CpuUsage { busiest_thread, threads, cpu: Some(BusiestCpu { number: 3, share, interrupts }) }
    }

    #[test]
    fn saturated_thread_or_cpu_is_limit() {
        assert!(usage(0.97, 0.97, 0.5, 0.0).is_cpu_bound(), "a thread that migrates from CPU to CPU");
        assert!(usage(0.3, 0.3, 1.0, 0.7).is_cpu_bound(), "a CPU that receives packets");
        assert!(usage(0.5, 1.0, 0.98, 0.0).is_cpu_bound(), "two threads on one CPU");
        assert!(!usage(0.3, 0.3, 1.0, 0.1).is_cpu_bound(), "a CPU that another program saturates");
        assert!(!usage(0.9, 0.9, 0.9, 0.5).is_cpu_bound());
        assert!(!CpuUsage { busiest_thread: 0.5, threads: 2.0, cpu: None }.is_cpu_bound());
        assert_eq!((usage(0.9, 0.9, 0.4, 0.0).max_share(), usage(0.1, 0.2, 0.4, 0.1).max_share()), (0.9, 0.2 + 0.1));
        let usages = [usage(0.1, 0.1, 0.9, 0.0), usage(0.2, 0.2, 0.3, 0.0), usage(0.3, 0.3, 0.5, 0.0)];
        assert_eq!((CpuUsage::median(&usages), CpuUsage::median(&[])), (Some(usages[1]), None));
        assert_eq!(usages[0].to_string(), "its busiest thread took 10 % of a CPU and CPU 3 was 90 % busy");
        assert!(usage(0.9, 5.3, 1.0, 0.0).to_string().contains("90 % of a CPU, all of them 530 % and CPU 3"));
    }

    #[test]
    fn shares_cover_time_between_samples() {
        let time = Instant::now();
        let second = Duration::from_secs(1);
        // Ticks are of 10 ms.
        let stat = |cpus: &[(u32, u64, u64)]| {
            let ticks = |&(cpu, idle, interrupts)| (cpu, CpuTicks { idle, interrupts, ..CpuTicks::default() });
            CpuStat { cpus: cpus.iter().map(ticks).collect(), ..CpuStat::default() }
        };
        let before = CpuSample { time, threads: vec![Some(second), None], cpus: stat(&[(0, 0, 0), (1, 50, 0)]) };
        let threads = vec![Some(second * 3), None, Some(second)];
        let after = CpuSample { time: time + second * 4, threads, cpus: stat(&[(0, 300, 4), (1, 60, 200), (2, 0, 0)]) };
        let cpu_usage = after.since(&before);
        assert_eq!((cpu_usage.busiest_thread, cpu_usage.threads), (0.5, 0.75));
        assert_eq!(cpu_usage.cpu, Some(BusiestCpu { number: 1, share: 0.975, interrupts: 0.5 }));
    }

    #[test]
    fn spinning_thread_is_busy_and_sleeping_is_not() {
        let threads = ThreadClocks::default();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                threads.register();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let mut meter = CpuUsageMeter::start(&threads);
            // Others may have the CPU for a while.
            let samples = std::iter::repeat_with(|| (std::thread::sleep(Duration::from_millis(50)), meter.sample()).1);
            let cpu_usage = samples.take(100).find(|sample| sample.busiest_thread > 0.0);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(cpu_usage.as_ref().is_some_and(|sample| sample.busiest_thread == sample.threads), "{cpu_usage:?}");
        });
    }
}
