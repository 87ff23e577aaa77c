//! When the next request is due. Pure: it knows no clock, no socket and no server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use kelvin_stats::Random;

/// Nanoseconds between the first requests of two users: connections that are all opened at once overflow the queue of a
/// listening socket.
const APART: u64 = 50_000;

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// When, in nanoseconds.
    pub at: u64,
    /// Who asks; nobody of whom it must be, in an open loop.
    pub user: Option<u32>,
}

/// When requests are due: in a closed loop after answers, in an open loop whether answers come or not.
pub trait Schedule {
    /// When the next request is due; `None` while all users wait for their answers.
    fn next(&self) -> Option<u64>;

    /// Takes the next request.
    fn take(&mut self) -> Option<Due>;

    /// A user has got an answer, or has given up, at this time.
    fn answered(&mut self, user: u32, at: u64);
}

/// How times are drawn around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All alike.
    #[default]
    Constant,
    /// Exponentially distributed: between the arrivals of a Poisson process, and the thought of users in queueing theory.
    Exponential,
}

impl Spread {
    /// A time with this mean, in nanoseconds.
    fn draw(self, mean: f64, random: &mut Random) -> f64 {
        match self {
            Self::Constant => mean,
            // 1 - u is above 0, and its logarithm finite.
            Self::Exponential => -mean * (1.0 - random.uniform()).ln(),
        }
    }
}

/// How long users think after each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Think {
    /// Nanoseconds on average.
    pub mean: f64,
    /// How they spread.
    pub spread: Spread,
}

/// Users of whom each waits for its answer, thinks, and asks again.
#[derive(Debug)]
pub struct Closed {
    due: BinaryHeap<Reverse<(u64, u32)>>,
    think: Think,
    random: Random,
}

impl Closed {
    /// So many users who begin from `start` on: one after the other, or spread over their time of thought.
    pub fn new(users: u32, think: Think, start: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut first = |user: u32| {
            let thought = random.uniform() * think.mean;
            Reverse((start + u64::from(user) * APART + thought as u64, user))
        };
        let due = (0..users).map(&mut first).collect();
        Self { due, think, random }
    }
}

impl Schedule for Closed {
    fn next(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    fn take(&mut self) -> Option<Due> {
        self.due.pop().map(|Reverse((at, user))| Due { at, user: Some(user) })
    }

    fn answered(&mut self, user: u32, at: u64) {
        let thought =
            if self.think.mean > 0.0 { self.think.spread.draw(self.think.mean, &mut self.random) } else { 0.0 };
        self.due.push(Reverse((at + thought as u64, user)));
    }
}

/// Requests at a rate, due whether answers come or not.
#[derive(Debug)]
pub struct Open {
    start: u64,
    rate: f64,
    spread: Spread,
    random: Random,
    /// How many were taken.
    taken: u64,
    /// When the next one is due, in nanoseconds after the start.
    next: f64,
}

impl Open {
    /// So many requests a second from `start` on: constant, the first of them at once, so that each time has as many as the rate
    /// says; or a Poisson process.
    pub fn new(rate: f64, spread: Spread, start: u64, seed: u64) -> Self {
        let mut open = Self { start, rate, spread, random: Random::new(seed), taken: 0, next: 0.0 };
        if spread == Spread::Exponential {
            open.advance();
        }
        open
    }

    /// Times count from the start on: rounded to a nanosecond one by one, or summed, the rate would drift.
    fn advance(&mut self) {
        self.next = match self.spread {
            Spread::Constant => (self.taken as f64 * SECOND / self.rate).round(),
            Spread::Exponential => self.next + self.spread.draw(SECOND / self.rate, &mut self.random),
        };
    }
}

impl Schedule for Open {
    fn next(&self) -> Option<u64> {
        Some(self.start + self.next as u64)
    }

    fn take(&mut self) -> Option<Due> {
        let at = self.start + self.next as u64;
        self.taken += 1;
        self.advance();
        Some(Due { at, user: None })
    }

    fn answered(&mut self, _: u32, _: u64) {}
}

/// Requests at the times of a log.
#[derive(Debug)]
pub struct Logged {
    times: Arc<[u64]>,
    position: usize,
    start: u64,
}

impl Logged {
    /// At these times after `start`, in order.
    pub fn new(times: Arc<[u64]>, start: u64) -> Self {
        Self { times, position: 0, start }
    }
}

impl Schedule for Logged {
    fn next(&self) -> Option<u64> {
        self.times.get(self.position).map(|time| self.start + time)
    }

    fn take(&mut self) -> Option<Due> {
        let at = self.next()?;
        self.position += 1;
        Some(Due { at, user: None })
    }

    fn answered(&mut self, _: u32, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(schedule: &mut impl Schedule, count: usize) -> Vec<u64> {
        (0..count).map(|_| schedule.take().unwrap().at).collect()
    }

    #[test]
    fn a_user_asks_again_after_answer_and_thought_and_never_before() {
        let think = Think { mean: 1000.0, spread: Spread::Constant };
        let mut closed = Closed::new(2, think, 0, 1);
        let (one, other) = (closed.take().unwrap(), closed.take().unwrap());
        assert!(one.user != other.user && one.at <= other.at);
        assert_eq!((closed.next(), closed.take()), (None, None));
        closed.answered(other.user.unwrap(), 90_000);
        closed.answered(one.user.unwrap(), 95_000);
        assert_eq!(closed.take(), Some(Due { at: 91_000, user: other.user }));
        assert_eq!(closed.next(), Some(96_000));
    }

    #[test]
    fn exponential_thought_has_its_mean_and_its_spread() {
        let think = Think { mean: 1e6, spread: Spread::Exponential };
        let mut closed = Closed::new(1, think, 0, 7);
        closed.take();
        let drawn: Vec<f64> = (0..100_000)
            .map(|_| {
                closed.answered(0, 0);
                closed.take().unwrap().at as f64
            })
            .collect();
        let mean = kelvin_stats::mean(&drawn);
        let deviation = kelvin_stats::variance(&drawn).sqrt();
        // Three standard errors of the mean of 100,000; the deviation of an exponential is its mean.
        assert!((mean / 1e6 - 1.0).abs() < 0.01 && (deviation / 1e6 - 1.0).abs() < 0.02, "{mean} {deviation}");
    }

    #[test]
    fn a_constant_rate_is_exact_and_does_not_drift() {
        // 3 a second is no whole number of nanoseconds.
        let mut open = Open::new(3.0, Spread::Constant, 500, 1);
        let times = taken(&mut open, 3_000_001);
        assert_eq!((times[0], times[3], times[3_000_000]), (500, 1_000_000_500, 1_000_000_000_000_500));
    }

    #[test]
    fn a_constant_rate_has_as_many_requests_as_it_says_in_any_time() {
        for rate in [0.5, 1.0, 3.0, 5.0, 7.0, 1000.0, 123_456.0] {
            let times = taken(&mut Open::new(rate, Spread::Constant, 0, 1), 5 * 123_456);
            for warm_up in [0, 1, 2] {
                let window = warm_up * 1_000_000_000..(warm_up + 2) * 1_000_000_000;
                let due = times.iter().filter(|at| window.contains(*at)).count();
                assert_eq!(due as f64, rate * 2.0, "{rate} {window:?}");
            }
        }
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_are_independent() {
        let mut open = Open::new(1000.0, Spread::Exponential, 0, 3);
        let times = taken(&mut open, 1_000_000);
        assert!((times[999_999] as f64 / 1e12 - 1.0).abs() < 0.003);
        // Of a Poisson process the count of a window has a variance equal to its mean.
        let mut counts = vec![0.0; 9_900];
        for at in times {
            if let Some(count) = counts.get_mut((at / 100_000_000) as usize) {
                *count += 1.0;
            }
        }
        let dispersion = kelvin_stats::variance(&counts) / kelvin_stats::mean(&counts);
        assert!((dispersion - 1.0).abs() < 0.05, "{dispersion}");
    }

    #[test]
    fn a_log_is_asked_for_once_at_its_times() {
        let mut logged = Logged::new([0, 5, 5].into(), 100);
        assert_eq!(taken(&mut logged, 3), [100, 105, 105]);
        assert_eq!((logged.next(), logged.take()), (None, None));
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let times = |seed| taken(&mut Open::new(10.0, Spread::Exponential, 0, seed), 100);
        assert_eq!(times(5), times(5));
        assert_ne!(times(5), times(6));
    }
}
