//! How busy a host is with a test: its threads, and the CPUs.
//!
//! A thread that never waits is a limit, and so is a CPU saturated by arriving packets; neither shows in the other.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kelvin_sys::busy::{Cpus, Spent, ThreadClock};
use serde::{Deserialize, Serialize};

use crate::bounded;

/// The share from which on something is saturated: idle time is counted in hundredths of a second.
pub const FULL: f64 = 0.95;

/// How busy a host was over a time, as shares of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// The busiest thread of the test.
    #[serde(deserialize_with = "bounded::share")]
    pub busiest: f64,
    /// All of them together: 2 if two did nothing else.
    #[serde(deserialize_with = "bounded::share")]
    pub threads: f64,
    /// The least idle CPU, whatever it did; none where the system does not say.
    pub cpu: Option<BusyCpu>,
}

/// How busy a CPU was over a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusyCpu {
    /// Its number.
    pub number: u32,
    /// The share of the time in which it was not idle.
    #[serde(deserialize_with = "bounded::share")]
    pub share: f64,
    /// The share of interrupts, and of the packets that they brought.
    #[serde(deserialize_with = "bounded::share")]
    pub interrupts: f64,
}

impl Busy {
    /// The most saturated of the test's possible limits: a thread of it, or a CPU as far as the test may fill it. A CPU's load
    /// beyond all threads of the test and the arriving packets is of other programs.
    pub fn fullest(&self) -> f64 {
        let of_test = |cpu: BusyCpu| cpu.share.min(self.threads + cpu.interrupts);
        self.cpu.map_or(self.busiest, |cpu| of_test(cpu).max(self.busiest))
    }

    /// Whether the test is CPU-bound.
    pub fn is_limit(&self) -> bool {
        self.fullest() >= FULL
    }

    /// The median of several, by their most saturated part.
    pub fn middle(all: &[Self]) -> Option<Self> {
        let mut sorted = all.to_vec();
        sorted.sort_by(|one, other| one.fullest().total_cmp(&other.fullest()));
        sorted.get(sorted.len() / 2).copied()
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "its busiest thread took {:.0} % of a CPU", 100.0 * self.busiest)?;
        match self.cpu {
            Some(cpu) => write!(out, " and CPU {} was {:.0} % busy", cpu.number, 100.0 * cpu.share),
            None => Ok(()),
        }
    }
}

/// The threads of a test.
#[derive(Debug, Default)]
pub struct Threads(Mutex<Vec<ThreadClock>>);

impl Threads {
    /// Adds the calling thread. One whose clock is unavailable is not seen.
    pub fn enter(&self) {
        if let Ok(clock) = ThreadClock::own() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(clock);
        }
    }

    /// CPU time of each; none for one that has ended.
    fn used(&self) -> Vec<Option<Duration>> {
        let clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.iter().map(|clock| clock.used().ok()).collect()
    }
}

/// Measures from time to time how busy threads and CPUs were.
#[derive(Debug)]
pub struct Watch<'a> {
    threads: &'a Threads,
    cpus: Option<Cpus>,
    last: Look,
}

/// The counters at a moment.
#[derive(Debug)]
struct Look {
    at: Instant,
    threads: Vec<Option<Duration>>,
    cpus: Vec<Spent>,
}

impl<'a> Watch<'a> {
    /// Begins now.
    pub fn begin(threads: &'a Threads) -> Self {
        let mut cpus = Cpus::open().ok();
        let last = Look::take(threads, cpus.as_mut());
        Self { threads, cpus, last }
    }

    /// How busy they were since it began, or since the last call.
    pub fn look(&mut self) -> Busy {
        let now = Look::take(self.threads, self.cpus.as_mut());
        let busy = now.since(&self.last);
        self.last = now;
        busy
    }
}

impl Look {
    fn take(threads: &Threads, cpus: Option<&mut Cpus>) -> Self {
        let cpus = cpus.and_then(|cpus| cpus.spent().ok()).unwrap_or_default();
        Self { at: Instant::now(), threads: threads.used(), cpus }
    }

    fn since(&self, earlier: &Self) -> Busy {
        let passed = (self.at - earlier.at).as_secs_f64().max(1e-9);
        let used = self.threads.iter().enumerate().filter_map(|(number, now)| {
            // One that was not there before has used all of it since.
            let before = earlier.threads.get(number).copied().flatten().unwrap_or_default();
            Some(now.as_ref()?.saturating_sub(before).as_secs_f64() / passed)
        });
        let used: Vec<f64> = used.collect();
        let cpus = self.cpus.iter().filter_map(|now| {
            let before = earlier.cpus.iter().find(|before| before.cpu == now.cpu)?;
            let share = |now: u64, before: u64| (now.saturating_sub(before) as f64 / 1e9 / passed).min(1.0);
            let (share, interrupts) = (1.0 - share(now.idle, before.idle), share(now.interrupts, before.interrupts));
            Some(BusyCpu { number: now.cpu, share, interrupts })
        });
        // Of several saturated ones, the one that receives the packets.
        let rank = |cpu: &BusyCpu| (cpu.share.min(FULL), cpu.interrupts);
        let cpu = cpus.max_by(|one, other| rank(one).partial_cmp(&rank(other)).unwrap_or(std::cmp::Ordering::Equal));
        Busy { busiest: used.iter().copied().fold(0.0, f64::max), threads: used.iter().sum(), cpu }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(busiest: f64, threads: f64, share: f64, interrupts: f64) -> Busy {
        Busy { busiest, threads, cpu: Some(BusyCpu { number: 3, share, interrupts }) }
    }

    #[test]
    fn a_thread_or_a_cpu_that_is_full_of_the_test_is_a_limit() {
        assert!(busy(0.97, 0.97, 0.5, 0.0).is_limit(), "a thread that migrates from CPU to CPU");
        assert!(busy(0.3, 0.3, 1.0, 0.7).is_limit(), "a CPU that receives packets");
        assert!(busy(0.5, 1.0, 0.98, 0.0).is_limit(), "two threads on one CPU");
        assert!(!busy(0.3, 0.3, 1.0, 0.1).is_limit(), "a CPU that another program saturates");
        assert!(!busy(0.9, 0.9, 0.9, 0.5).is_limit());
        assert!(!Busy { busiest: 0.5, threads: 2.0, cpu: None }.is_limit());
        assert_eq!((busy(0.9, 0.9, 0.4, 0.0).fullest(), busy(0.1, 0.2, 0.4, 0.1).fullest()), (0.9, 0.2 + 0.1));
        let all = [busy(0.1, 0.1, 0.9, 0.0), busy(0.2, 0.2, 0.3, 0.0), busy(0.3, 0.3, 0.5, 0.0)];
        assert_eq!((Busy::middle(&all), Busy::middle(&[])), (Some(all[1]), None));
        assert_eq!(all[0].to_string(), "its busiest thread took 10 % of a CPU and CPU 3 was 90 % busy");
    }

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let at = Instant::now();
        let second = Duration::from_secs(1);
        let spent =
            |cpu, idle: u64, interrupts: u64| Spent { cpu, idle: idle * 1_000_000, interrupts: interrupts * 1_000_000 };
        let before = Look { at, threads: vec![Some(second), None], cpus: vec![spent(0, 0, 0), spent(1, 500, 0)] };
        let threads = vec![Some(second * 3), None, Some(second)];
        let after =
            Look { at: at + second * 4, threads, cpus: vec![spent(0, 3000, 40), spent(1, 600, 2000), spent(2, 0, 0)] };
        let busy = after.since(&before);
        assert_eq!((busy.busiest, busy.threads), (0.5, 0.75));
        assert_eq!(busy.cpu, Some(BusyCpu { number: 1, share: 0.975, interrupts: 0.5 }));
    }

    #[test]
    fn a_thread_that_spins_is_seen_and_one_that_sleeps_is_not() {
        let threads = Threads::default();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                threads.enter();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let mut watch = Watch::begin(&threads);
            // Others may have the CPU for a while.
            let looks = std::iter::repeat_with(|| (std::thread::sleep(Duration::from_millis(50)), watch.look()).1);
            let busy = looks.take(100).find(|busy| busy.busiest > 0.0);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(busy.as_ref().is_some_and(|busy| busy.busiest == busy.threads), "{busy:?}");
        });
    }
}
