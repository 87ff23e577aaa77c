//! When the next request is due. Pure: it knows no clock, no socket and no server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kelvin_stats::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::load_share::LoadShare;

/// Nanoseconds between the first requests of two users: connections that are all opened at once overflow the queue of a
/// listening socket.
pub(crate) const USER_START_SPACING: u64 = 50_000;

/// Nanoseconds of a second.
const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueRequest {
    /// When, in nanoseconds.
    pub time: u64,
    /// The user who asks; none in an open loop.
    pub user: Option<u32>,
}

/// When requests are due: in a closed loop after answers, in an open loop whether answers come or not.
pub trait RequestSchedule {
    /// When the next request is due; `None` while all users wait for their answers.
    fn next_due(&self) -> Option<u64>;

    /// Takes the next request.
    fn take_due(&mut self) -> Option<DueRequest>;

    /// A user of a closed loop has got an answer, or has given up, at this time.
    fn on_answer(&mut self, _user: u32, _time: u64) {}
}

impl<S: RequestSchedule + ?Sized> RequestSchedule for Box<S> {
    fn next_due(&self) -> Option<u64> {
        (**self).next_due()
    }

    fn take_due(&mut self) -> Option<DueRequest> {
        (**self).take_due()
    }

    fn on_answer(&mut self, user: u32, time: u64) {
        (**self).on_answer(user, time);
    }
}

/// How times are drawn around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimeDistribution {
    /// All alike.
    #[default]
    Constant,
    /// Exponentially distributed: between the arrivals of a Poisson process, and the thought of users in queueing theory.
    Exponential,
}

impl TimeDistribution {
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
pub struct ThinkTime {
    /// Nanoseconds on average.
    pub mean: f64,
    /// How they spread.
    pub distribution: TimeDistribution,
}

/// Users who each wait for an answer, think, and ask again. They begin in the steady state: at each moment as many as ask in any
/// other.
///
/// A user asks again after a cycle of response and thought. At a random time he is anywhere in a cycle, in a long one more
/// likely. The time until he asks next has the distribution of the residual life of renewal theory (D. R. Cox, "Renewal Theory",
/// 1962, section 5.2). Users who all began with thought alone would ask too much at first: of those in a steady state, some wait for
/// answers.
#[derive(Debug)]
pub struct ClosedLoop {
    due_requests: BinaryHeap<Reverse<(u64, u32)>>,
    think: ThinkTime,
    random: Random,
    start: u64,
    /// Nanoseconds between the first requests of two users, beyond what their shares say.
    spacing: u64,
    /// For each user who has not asked yet, which share of all residual times is shorter than his; the next one is the last.
    shares: Vec<f64>,
    /// The share of the first user of all threads.
    first: f64,
    /// When each user asked last, as long as some have not.
    last_requests: Vec<u64>,
    /// Response times as long as some have not asked, of how many answers.
    responses: f64,
    answers: u64,
}

impl ClosedLoop {
    /// This many users from `start` on, who behave from the beginning as they go on.
    pub fn new(users: u32, think: ThinkTime, start: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut share = |user: u32| match think.distribution {
            // Constant thought keeps the distances between users for ever: they are left to chance.
            TimeDistribution::Constant => random.uniform(),
            // These are forgotten within a few cycles; until then as many ask in each time as in any other, with less chance in it.
            TimeDistribution::Exponential => (f64::from(user) + random.uniform()) / f64::from(users),
        };
        let mut shares: Vec<f64> = (0..users).map(&mut share).collect();
        shares.sort_by(|first, second| second.total_cmp(first));
        let (due_requests, last_requests) = (BinaryHeap::new(), vec![start; users as usize]);
        let (spacing, first) = (USER_START_SPACING, shares.last().copied().unwrap_or(0.0));
        Self { due_requests, think, random, start, spacing, shares, first, last_requests, responses: 0.0, answers: 0 }
    }

    /// The users of one part: those of all parts together begin as the users of one, and think at random for themselves.
    pub fn for_share(mut self, share: LoadShare) -> Self {
        self.shares = share.select(self.shares.into_iter().rev()).collect();
        self.shares.reverse();
        self.last_requests.truncate(self.shares.len());
        self.start += u64::from(share.number()) * self.spacing;
        self.spacing *= u64::from(share.parts());
        if share.number() > 0 {
            self.random = Random::new(self.random.next_u64().wrapping_add(u64::from(share.number())));
        }
        self
    }

    /// Has a user whose request was taken ask at this time instead.
    pub(crate) fn ask_at(&mut self, user: u32, time: u64) {
        self.due_requests.push(Reverse((time, user)));
    }

    /// How many have asked.
    fn started_count(&self) -> u32 {
        (self.last_requests.len() - self.shares.len()) as u32
    }

    /// When the next one asks who has not yet.
    fn next_start(&self) -> Option<u64> {
        let after = self.start_offset(*self.shares.last()?);
        Some(self.start + u64::from(self.started_count()) * self.spacing + after as u64)
    }

    /// When the next one asks who has an answer.
    fn next_return(&self) -> Option<u64> {
        self.due_requests.peek().map(|Reverse((time, _))| *time)
    }

    /// Nanoseconds after the start before which this share of users ask for the first time.
    fn start_offset(&self, share: f64) -> f64 {
        let think = self.think.mean;
        if think <= 0.0 {
            return 0.0;
        }
        if self.answers > 0 {
            return self.residual(share, self.responses / self.answers as f64);
        }
        // Nothing is known of responses until one was asked for. From then on each takes longer than has passed since: of the two
        // equations, passed = response - first and residual(share, response) = passed, this is the solution for either spread.
        self.residual(self.first, 0.0) + think * (share - self.first) / (1.0 - share)
    }

    /// Nanoseconds before which this share of users ask who have a cycle of such a response and a thought.
    fn residual(&self, share: f64, response: f64) -> f64 {
        let think = self.think.mean;
        let after = share * (response + think);
        match self.think.distribution {
            TimeDistribution::Exponential if after > response => {
                response - think * (1.0 - (after - response) / think).ln()
            }
            // No cycle is shorter than a response, so that all times up to it are alike; of constant thought up to the cycle.
            _ => after,
        }
    }
}

impl RequestSchedule for ClosedLoop {
    fn next_due(&self) -> Option<u64> {
        self.next_start().into_iter().chain(self.next_return()).min()
    }

    fn take_due(&mut self) -> Option<DueRequest> {
        let start =
            self.next_start().filter(|start| self.next_return().is_none_or(|return_time| *start <= return_time));
        let (time, user) = match start {
            Some(time) => {
                let user = self.started_count();
                self.shares.pop();
                (time, user)
            }
            None => self.due_requests.pop()?.0,
        };
        if !self.shares.is_empty() {
            self.last_requests[user as usize] = time;
        }
        Some(DueRequest { time, user: Some(user) })
    }

    fn on_answer(&mut self, user: u32, time: u64) {
        if !self.shares.is_empty() {
            self.responses += time.saturating_sub(self.last_requests[user as usize]) as f64;
            self.answers += 1;
        }
        let think_time =
            if self.think.mean > 0.0 { self.think.distribution.draw(self.think.mean, &mut self.random) } else { 0.0 };
        self.due_requests.push(Reverse((time + think_time as u64, user)));
    }
}

/// Requests that are due whether answers come or not.
#[derive(Debug)]
pub struct OpenLoop<I> {
    start: u64,
    /// When the next one is due, in nanoseconds after the start.
    next: Option<u64>,
    times: I,
}

impl<I: Iterator<Item = u64>> OpenLoop<I> {
    /// At these times after `start`, in order.
    pub fn new(mut times: I, start: u64) -> Self {
        Self { start, next: times.next(), times }
    }
}

/// When requests arrive of which there are this many a second: constant, the first of them at once, so that each time has as many as the
/// rate states; or a Poisson process. Times count from the start on: rounded to a nanosecond one by one, or summed, the rate would drift.
pub fn arrival_times(rate: f64, arrivals: TimeDistribution, seed: u64) -> impl Iterator<Item = u64> {
    let (mut random, mut last) = (Random::new(seed), 0.0);
    (0_u64..).map(move |number| match arrivals {
        TimeDistribution::Constant => (number as f64 * NANOSECONDS_PER_SECOND / rate).round() as u64,
        TimeDistribution::Exponential => {
            last += arrivals.draw(NANOSECONDS_PER_SECOND / rate, &mut random);
            last as u64
        }
    })
}

impl<I: Iterator<Item = u64>> RequestSchedule for OpenLoop<I> {
    fn next_due(&self) -> Option<u64> {
        self.next.map(|time| self.start + time)
    }

    fn take_due(&mut self) -> Option<DueRequest> {
        let time = self.next_due()?;
        self.next = self.times.next();
        Some(DueRequest { time, user: None })
    }
}

/// A schedule that ends after a number of requests.
#[derive(Debug)]
pub struct LimitedSchedule<S> {
    schedule: S,
    remaining: u64,
}

impl<S> LimitedSchedule<S> {
    /// The first `requests` of this schedule; all of it if there is no such number.
    pub fn new(schedule: S, requests: Option<u32>) -> Self {
        Self { schedule, remaining: requests.map_or(u64::MAX, u64::from) }
    }
}

impl<S: RequestSchedule> RequestSchedule for LimitedSchedule<S> {
    fn next_due(&self) -> Option<u64> {
        if self.remaining > 0 { self.schedule.next_due() } else { None }
    }

    fn take_due(&mut self) -> Option<DueRequest> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.schedule.take_due()
    }

    fn on_answer(&mut self, user: u32, time: u64) {
        self.schedule.on_answer(user, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_times(schedule: &mut impl RequestSchedule, count: usize) -> Vec<u64> {
        (0..count).map(|_| schedule.take_due().unwrap().time).collect()
    }

    #[test]
    fn user_waits_for_answer_and_think_time() {
        let think = ThinkTime { mean: 1000.0, distribution: TimeDistribution::Constant };
        let mut closed = ClosedLoop::new(2, think, 0, 1);
        let (first, second) = (closed.take_due().unwrap(), closed.take_due().unwrap());
        assert!(first.user != second.user && first.time <= second.time);
        assert_eq!((closed.next_due(), closed.take_due()), (None, None));
        closed.on_answer(second.user.unwrap(), 90_000);
        closed.on_answer(first.user.unwrap(), 95_000);
        assert_eq!(closed.take_due(), Some(DueRequest { time: 91_000, user: second.user }));
        assert_eq!(closed.next_due(), Some(96_000));
    }

    #[test]
    fn limited_users_stop_after_their_last_request() {
        let think = ThinkTime { mean: 1000.0, distribution: TimeDistribution::Constant };
        let mut limited = LimitedSchedule::new(ClosedLoop::new(2, think, 0, 1), Some(3));
        let users = [(); 2].map(|()| limited.take_due().unwrap().user.unwrap());
        users.into_iter().for_each(|user| limited.on_answer(user, 90_000));
        assert_eq!((limited.next_due(), limited.take_due().map(|request| request.time)), (Some(91_000), Some(91_000)));
        assert_eq!((limited.next_due(), limited.take_due()), (None, None));
    }

    /// When answers come that take so long each, by scripted time, up to an end.
    fn answers(users: u32, think: ThinkTime, response: u64, end: u64, seed: u64) -> Vec<u64> {
        let mut closed = ClosedLoop::new(users, think, 0, seed);
        let mut in_flight: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        let mut answers = Vec::new();
        loop {
            let answer = in_flight.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
            match closed.next_due().filter(|&due| due <= answer) {
                Some(due) if due >= end => return answers,
                Some(due) => {
                    let user = closed.take_due().unwrap().user.unwrap();
                    in_flight.push(Reverse((due + response, user)));
                }
                None if answer >= end => return answers,
                None => {
                    let Reverse((time, user)) = in_flight.pop().unwrap();
                    answers.push(time);
                    closed.on_answer(user, time);
                }
            }
        }
    }

    /// N = X (R + Z) is exact for users in a steady state (the response time law): at no time do they ask more, nor less.
    #[test]
    fn closed_loop_starts_in_steady_state() {
        const USERS: u32 = 2000;
        const THINK: f64 = 1e12;
        for spread in [TimeDistribution::Constant, TimeDistribution::Exponential] {
            for (response, windows) in [
                (1.0, vec![(0.0, 0.3), (0.0, 1.0), (0.2, 1.0), (0.7, 0.2), (1.0, 3.0)]),
                (1e10, vec![(0.01, 0.3), (0.1, 1.0), (0.3, 2.5), (2.0, 0.5)]),
                // Here the users who ask before the first answer has come are known only when it has.
                (5e11, vec![(0.5, 1.5), (1.5, 1.5), (1.5, 3.0)]),
                // And of responses that take longer than thought, the first cycle is not steady.
                (2e12, vec![(3.0, 6.0), (6.0, 3.0)]),
            ] {
                let think = ThinkTime { mean: THINK, distribution: spread };
                let times = answers(USERS, think, response as u64, 10 * THINK as u64, 5);
                for (warm_up, duration) in windows {
                    let window = (warm_up * THINK) as u64..((warm_up + duration) * THINK) as u64;
                    let count = times.iter().filter(|time| window.contains(time)).count() as f64;
                    let expected = f64::from(USERS) * duration * THINK / (response + THINK);
                    // Of a user the count varies by at most that of a Poisson process.
                    let error = 4.0 * expected.sqrt();
                    let spacing_error = f64::from(USERS) * 2.0 * USER_START_SPACING as f64 / THINK * expected;
                    let deviation = (count - expected).abs();
                    assert!(
                        deviation <= error + spacing_error,
                        "{spread:?} {response} {window:?}: {count} of {expected} +- {error}"
                    );
                }
            }
        }
    }

    #[test]
    fn users_start_without_any_answers() {
        let think = ThinkTime { mean: 1e9, distribution: TimeDistribution::Exponential };
        let mut closed = ClosedLoop::new(100, think, 0, 3);
        let first = take_times(&mut closed, 50);
        assert!(first.is_sorted() && first[49] > 500_000_000 && first[49] < 2_000_000_000, "{first:?}");
        // Half of them ask in a response that takes as long as the thought.
        assert_eq!(closed.started_count(), 50);
    }

    /// Nothing has been asked, so no response can be long: a user alone begins within one thought.
    #[test]
    fn single_user_asks_once_per_think_time() {
        let constant = ThinkTime { mean: 1e9, distribution: TimeDistribution::Constant };
        for seed in 0..50 {
            let times = answers(1, constant, 1_000, 20_000_000_000, seed);
            assert!(times.iter().filter(|time| **time < 4_000_001_000).count() == 4, "seed {seed}: {times:?}");
        }
        // Of exponential thought some are long, as in any other time.
        let exponential = ThinkTime { distribution: TimeDistribution::Exponential, ..constant };
        let firsts: Vec<f64> =
            (0..400).map(|seed| answers(1, exponential, 1_000, 20_000_000_000, seed)[0] as f64).collect();
        let mean = kelvin_stats::mean(&firsts);
        assert!((mean / 1e9 - 1.0).abs() < 0.2, "{mean}");
    }

    #[test]
    fn zero_think_users_start_immediately() {
        let mut closed = ClosedLoop::new(3, ThinkTime::default(), 1000, 1);
        assert_eq!(take_times(&mut closed, 3), [1000, 1000 + USER_START_SPACING, 1000 + 2 * USER_START_SPACING]);
        assert_eq!((closed.next_due(), closed.take_due()), (None, None));
    }

    #[test]
    fn exponential_think_time_has_mean_and_spread() {
        let think = ThinkTime { mean: 1e6, distribution: TimeDistribution::Exponential };
        let mut closed = ClosedLoop::new(1, think, 0, 7);
        closed.take_due();
        let think_times: Vec<f64> = (0..100_000)
            .map(|_| {
                closed.on_answer(0, 0);
                closed.take_due().unwrap().time as f64
            })
            .collect();
        let mean = kelvin_stats::mean(&think_times);
        let deviation = kelvin_stats::variance(&think_times).sqrt();
        // Three standard errors of the mean of 100,000; the deviation of an exponential is its mean.
        assert!((mean / 1e6 - 1.0).abs() < 0.01 && (deviation / 1e6 - 1.0).abs() < 0.02, "{mean} {deviation}");
    }

    #[test]
    fn constant_rate_does_not_drift() {
        // 3 a second is no whole number of nanoseconds.
        let mut open = OpenLoop::new(arrival_times(3.0, TimeDistribution::Constant, 1), 500);
        let times = take_times(&mut open, 3_000_001);
        assert_eq!((times[0], times[3], times[3_000_000]), (500, 1_000_000_500, 1_000_000_000_000_500));
    }

    #[test]
    fn constant_rate_fills_any_interval() {
        for rate in [0.5, 1.0, 3.0, 5.0, 7.0, 1000.0, 123_456.0] {
            let times =
                take_times(&mut OpenLoop::new(arrival_times(rate, TimeDistribution::Constant, 1), 0), 5 * 123_456);
            for warm_up in [0, 1, 2] {
                let window = warm_up * 1_000_000_000..(warm_up + 2) * 1_000_000_000;
                let count = times.iter().filter(|time| window.contains(*time)).count();
                assert_eq!(count as f64, rate * 2.0, "{rate} {window:?}");
            }
        }
    }

    #[test]
    fn poisson_arrivals_have_rate_and_independence() {
        let mut open = OpenLoop::new(arrival_times(1000.0, TimeDistribution::Exponential, 3), 0);
        let times = take_times(&mut open, 1_000_000);
        assert!((times[999_999] as f64 / 1e12 - 1.0).abs() < 0.003);
        // Of a Poisson process the count of a window has a variance equal to its mean.
        let mut counts = vec![0.0; 9_900];
        for time in times {
            if let Some(count) = counts.get_mut((time / 100_000_000) as usize) {
                *count += 1.0;
            }
        }
        let dispersion = kelvin_stats::variance(&counts) / kelvin_stats::mean(&counts);
        assert!((dispersion - 1.0).abs() < 0.05, "{dispersion}");
    }

    /// All requests of all threads in the order in which they are due, up to a number.
    fn union_of_threads<S: RequestSchedule>(threads: u32, count: usize, part: impl Fn(LoadShare) -> S) -> Vec<u64> {
        let mut parts: Vec<S> = LoadShare::WHOLE.divide(threads).map(part).collect();
        let next_due = |parts: &mut Vec<S>| {
            let next = parts.iter_mut().filter(|part| part.next_due().is_some()).min_by_key(|part| part.next_due())?;
            Some(next.take_due()?.time)
        };
        std::iter::from_fn(|| next_due(&mut parts)).take(count).collect()
    }

    /// Whatever the number of threads, requests are due at the times of one.
    #[test]
    fn departures_of_threads_are_the_single_schedule() {
        const START: u64 = 77;
        for arrivals in [TimeDistribution::Constant, TimeDistribution::Exponential] {
            let times = || arrival_times(123_456.7, arrivals, 9);
            let single = take_times(&mut OpenLoop::new(times(), START), 10_000);
            for threads in [1, 2, 3, 7, 64] {
                let part = |share: LoadShare| OpenLoop::new(share.select(times()), START);
                assert_eq!(union_of_threads(threads, 10_000, part), single, "{arrivals:?} {threads}");
            }
        }
        let log = [0, 5, 5, 5, 9, 20];
        for threads in 1..=7 {
            let part = |share: LoadShare| OpenLoop::new(share.select(log.into_iter()), START);
            assert_eq!(union_of_threads(threads, 100, part), log.map(|time| START + time), "{threads}");
        }
    }

    /// The next request of a thread is its next one of the schedule, however long the one before took.
    #[test]
    fn late_thread_keeps_the_schedule() {
        let [first, second] = [0, 1].map(|number| LoadShare::WHOLE.divide(2).nth(number).unwrap());
        let part = |share: LoadShare| OpenLoop::new(share.select(arrival_times(1e9, TimeDistribution::Constant, 1)), 0);
        let (mut punctual, mut late) = (part(first), part(second));
        assert_eq!(take_times(&mut punctual, 3), [0, 2, 4]);
        assert_eq!((late.next_due(), take_times(&mut late, 3)), (Some(1), vec![1, 3, 5]));
    }

    #[test]
    fn users_of_threads_begin_as_those_of_one() {
        for distribution in [TimeDistribution::Constant, TimeDistribution::Exponential] {
            for mean in [0.0, 1e9] {
                let users = || ClosedLoop::new(11, ThinkTime { mean, distribution }, 1000, 5);
                let single = take_times(&mut users(), 11);
                for threads in 1..=11 {
                    let starts = union_of_threads(threads, 100, |share| users().for_share(share));
                    assert_eq!(starts, single, "{distribution:?} {mean} {threads}");
                }
            }
        }
        // What one thread draws is not what another draws.
        let think = ThinkTime { mean: 1e9, distribution: TimeDistribution::Exponential };
        let returns = LoadShare::WHOLE.divide(3).map(|share| {
            let mut part = ClosedLoop::new(3, think, 0, 5).for_share(share);
            part.take_due();
            part.on_answer(0, 0);
            part.next_due()
        });
        let returns: std::collections::BTreeSet<_> = returns.collect();
        assert_eq!(returns.len(), 3);
    }

    #[test]
    fn log_is_replayed_once_at_its_times() {
        let mut logged = OpenLoop::new([0, 5, 5].into_iter(), 100);
        assert_eq!(take_times(&mut logged, 3), [100, 105, 105]);
        assert_eq!((logged.next_due(), logged.take_due()), (None, None));
    }

    #[test]
    fn same_seed_gives_same_times() {
        let times =
            |seed| take_times(&mut OpenLoop::new(arrival_times(10.0, TimeDistribution::Exponential, seed), 0), 100);
        assert_eq!(times(5), times(5));
        assert_ne!(times(5), times(6));
    }
}
