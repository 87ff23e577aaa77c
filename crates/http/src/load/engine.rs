//! The loop that sends requests when they are due and takes what comes back: one thread, epoll, any number of connections.

use std::sync::atomic::Ordering;

use kelvin_core::load::{GeneratorStats, LoadResult, OfferedLoad, SecondResult};
use kelvin_sys::clock::monotonic;

use crate::load::access_pattern::FileChooser;
use crate::load::connection_pool::{ConnectionPool, RequestEnd};
use crate::load::error::Result;
use crate::load::generator_usage::{self, ThreadUsage, WindowUsage};
use crate::load::poll::connection_number;
use crate::load::request_stats::{NANOSECONDS_PER_SECOND, RequestStats, RequestTimestamps, latency_summary};
use crate::load::schedule::{ClosedLoop, DueRequest, OpenLoop, RequestSchedule, TimeDistribution, arrival_times};
use crate::load::setup::{Demand, LoadSetup};
use crate::load::transport::ServerEndpoint;

/// Nanoseconds between looks for time-outs and for a signal to stop.
const TICK_NANOSECONDS: u64 = NANOSECONDS_PER_SECOND / 10;

/// Nanoseconds before a request is due from which on the loop looks at the clock instead of sleeping: a sleeping thread is woken up
/// to 50 us late, by a hypervisor later.
const SPIN_NANOSECONDS: u64 = 100_000;

/// Requests that are sent before answers are looked for again.
const MAX_SENDS_PER_TURN: usize = 512;

/// Nanoseconds that answers are waited for after the measured time of an open loop.
const DRAIN_NANOSECONDS: u64 = 2 * NANOSECONDS_PER_SECOND;

/// Nanoseconds between looks at whether users are to go on after the measured time.
const EXTENSION_POLL_NANOSECONDS: u64 = NANOSECONDS_PER_SECOND / 1000;

/// Nanoseconds that a user waits after a connection failed: without it, a server that is gone would be asked without end.
const RECONNECT_PAUSE: u64 = NANOSECONDS_PER_SECOND / 10;

/// What the two sequences of random numbers have apart from each other, from one seed.
const FILE_SEED_OFFSET: u64 = 0x9e37_79b9_7f4a_7c15;

/// Measures a load. `show` gets the seconds that are over, ten times a second. A signal that [`kelvin_sys::stop_signals`] watches
/// for ends it early.
///
/// # Errors
/// Failures of the generator's own calls; what fails of single requests is counted.
pub fn run_load(setup: &LoadSetup, peer: &ServerEndpoint, show: &mut dyn FnMut(&[SecondResult])) -> Result<LoadResult> {
    let seed = setup.seed;
    match &setup.demand {
        &Demand::Users { users, think } => {
            LoadEngine::new(setup, peer, |start| ClosedLoop::new(users, think, start, seed))?.run(show)
        }
        &Demand::Rate { rate, arrivals, .. } => {
            LoadEngine::new(setup, peer, |start| OpenLoop::new(arrival_times(rate, arrivals, seed), start))?.run(show)
        }
        Demand::Log { times, .. } => {
            LoadEngine::new(setup, peer, |start| OpenLoop::new(times.iter().copied(), start))?.run(show)
        }
    }
}

struct LoadEngine<'s, S> {
    setup: &'s LoadSetup,
    schedule: S,
    chooser: FileChooser,
    pool: ConnectionPool,
    /// Connections that can take a request, in an open loop. The one that was used last is used next.
    free_connections: Vec<u32>,
    /// Whether a request that was due found no connection free, and none has caught up since.
    is_starved: bool,
    delayed_count: u64,
    /// Nanoseconds that the loop looked at the clock.
    spin_nanoseconds: u64,
    /// How often it was woken up for nothing.
    futile_wakeups: u64,
}

impl<'s, S: RequestSchedule> LoadEngine<'s, S> {
    /// Prepares all that takes time, and then begins by the schedule of this moment.
    fn new(setup: &'s LoadSetup, peer: &ServerEndpoint, new_schedule: impl FnOnce(u64) -> S) -> Result<Self> {
        let demand = &setup.demand;
        let free_connections =
            if demand.is_open_loop() { (0..demand.max_connections()).rev().collect() } else { Vec::new() };
        let chooser = FileChooser::new(setup.pattern, setup.paths.len(), setup.seed ^ FILE_SEED_OFFSET);
        let mut pool = ConnectionPool::new(setup, peer.clone())?;
        let start = monotonic();
        let schedule = new_schedule(start);
        let window_start = start + setup.warm_up.as_nanos() as u64;
        pool.stats.window = window_start..window_start + setup.duration.as_nanos() as u64;
        let (is_starved, delayed_count, spin_nanoseconds, futile_wakeups) = (false, 0, 0, 0);
        Ok(Self {
            setup,
            schedule,
            chooser,
            pool,
            free_connections,
            is_starved,
            delayed_count,
            spin_nanoseconds,
            futile_wakeups,
        })
    }

    fn run(mut self, show: &mut dyn FnMut(&[SecondResult])) -> Result<LoadResult> {
        let mut window_usage = WindowUsage::new();
        let mut tick = 0;
        loop {
            let now = monotonic();
            if window_usage.sample(&self.pool.stats.window, now, self.spin_nanoseconds) {
                let RequestStats { read_delay, queue_delay, departure_delay, .. } = &mut self.pool.stats;
                (*read_delay, *queue_delay, *departure_delay) = Default::default();
            }
            if now >= tick {
                tick = now + TICK_NANOSECONDS;
                self.tick(now, show);
            }
            if self.is_over(now) {
                break;
            }
            self.pool.has_progress = false;
            self.send_due(now);
            let until = self.wait_deadline(now, tick)?;
            self.handle_answers(now, until)?;
        }
        let now = monotonic();
        let thread_usage = window_usage.finish(now, self.spin_nanoseconds);
        Ok(self.into_result(thread_usage, now))
    }

    /// Gives up requests whose time is over, and reports how far the measurement is.
    fn tick(&mut self, now: u64, show: &mut dyn FnMut(&[SecondResult])) {
        let limit = self.setup.timeout.as_nanos() as u64;
        for number in 0..self.pool.connections.len() as u32 {
            if let Some(end) = self.pool.time_out(number, now, limit) {
                self.on_request_end(number, end, now);
            }
        }
        let stats = &mut self.pool.stats;
        stats.end_seconds(now.min(stats.window.end));
        show(&self.pool.stats.series);
    }

    fn is_open_loop(&self) -> bool {
        self.setup.demand.is_open_loop()
    }

    fn is_over(&self, now: u64) -> bool {
        let end = self.pool.stats.window.end;
        if kelvin_sys::stop_signals::stop_signal().is_some() {
            return true;
        }
        let is_answered = self.free_connections.len() == self.pool.connections.len() && self.next_due().is_none();
        let is_done =
            if self.is_open_loop() { is_answered || now >= end + DRAIN_NANOSECONDS } else { !self.is_extended() };
        now >= end && is_done
    }

    /// Whether users go on when the measured time is over.
    fn is_extended(&self) -> bool {
        !self.is_open_loop() && self.setup.extension.as_ref().is_some_and(|extension| extension.load(Ordering::Acquire))
    }

    /// When the next request of the run is due.
    fn next_due(&self) -> Option<u64> {
        self.schedule.next_due().filter(|&time| time < self.pool.stats.window.end || self.is_extended())
    }

    /// Sends what is due, of many requests some: answers, time-outs and signals are looked for in between.
    fn send_due(&mut self, mut now: u64) {
        for _ in 0..MAX_SENDS_PER_TURN {
            if self.next_due().is_none_or(|time| time > now) {
                self.is_starved = false;
                return;
            }
            if self.is_open_loop() && self.free_connections.is_empty() {
                self.is_starved = true;
                return;
            }
            let Some(request) = self.schedule.take_due() else { return };
            let Some(number) = request.user.or_else(|| self.free_connections.pop()) else { return };
            self.send(number, request, now);
            // The one after it is sent no earlier: what sending takes is no time in which a server had it.
            now = monotonic();
        }
    }

    fn send(&mut self, number: u32, request: DueRequest, now: u64) {
        let mut earliest_send = request.time;
        if self.is_starved {
            self.delayed_count += u64::from(self.pool.stats.window.contains(&request.time));
            earliest_send = earliest_send.max(self.pool.connections[number as usize].free_since);
        }
        let times =
            RequestTimestamps { due: request.time, sent: now, end: now, generator_delay: now - earliest_send.min(now) };
        self.pool.stats.add_sent(times);
        if let Some(end) = self.pool.send_request(number, self.chooser.choose(), times) {
            self.on_request_end(number, end, now);
        }
    }

    /// A connection has no request any more.
    fn on_request_end(&mut self, number: u32, end: RequestEnd, now: u64) {
        if self.is_open_loop() {
            self.pool.connections[number as usize].free_since = now;
            self.free_connections.push(number);
        } else {
            self.schedule.on_answer(number, if end == RequestEnd::Disconnected { now + RECONNECT_PAUSE } else { now });
        }
    }

    /// Until when answers can be waited for; has that wait ended before the next request is due.
    fn wait_deadline(&mut self, now: u64, tick: u64) -> Result<u64> {
        let window = &self.pool.stats.window;
        let edge = [window.start, window.end].into_iter().find(|&edge| edge > now);
        let poll_deadline = if self.is_extended() { now + EXTENSION_POLL_NANOSECONDS } else { tick };
        let until = edge.unwrap_or(poll_deadline).min(tick);
        let can_send = !self.is_open_loop() || !self.free_connections.is_empty();
        let margin = if self.setup.spin { SPIN_NANOSECONDS } else { 0 };
        match self.next_due().filter(|_| can_send).map(|time| time.saturating_sub(margin)) {
            Some(wake) if wake <= now => return Ok(now),
            Some(wake) if wake < until => self.pool.poller.set_wake_time(wake)?,
            _ => {}
        }
        Ok(until)
    }

    /// Waits for answers and takes them. What is due then is sent by the caller: several requests at once wake a server once, and
    /// no answer waits for them.
    fn handle_answers(&mut self, now: u64, until: u64) -> Result<()> {
        let ready = self.pool.poller.wait(until.saturating_sub(now))?;
        let wake_time = monotonic();
        let is_spin = ready == 0 && until == now;
        if is_spin {
            self.spin_nanoseconds += wake_time - now;
        }
        let mut sockets = 0;
        for index in 0..ready {
            let Some((token, flags)) = self.pool.poller.ready(index) else { continue };
            sockets += 1;
            if let Some((end, now)) = self.pool.handle_ready(token, flags, wake_time) {
                self.on_request_end(connection_number(token), end, now);
            }
        }
        let is_futile = sockets > 0 || is_spin && !self.setup.spin;
        self.futile_wakeups += u64::from(is_futile && !self.pool.has_progress);
        Ok(())
    }

    fn into_result(mut self, thread_usage: ThreadUsage, now: u64) -> LoadResult {
        self.pool.stats.close(now);
        let unsent_count = self.count_unsent(now);
        let offered_load = self.offered(unsent_count);
        let unanswered = self.pool.count_in_flight(now) + unsent_count;
        let figures = self.pool.stats.summary();
        let stats = &self.pool.stats;
        // The mean time of a user from one request to the next; an open loop hides nothing.
        let mean_cycle = match self.setup.demand {
            Demand::Users { users, .. } if stats.requests > 0 => {
                let user_time = f64::from(users) * stats.seconds() * NANOSECONDS_PER_SECOND as f64;
                Some((user_time / stats.requests as f64) as u64)
            }
            _ => None,
        };
        let delays = GeneratorStats {
            late: latency_summary(&stats.lateness),
            read_delay: stats.read_delay.mean(),
            send_delay: stats.departure_delay.mean(),
            own_delay: latency_summary(&stats.generator_delay),
            spurious_wakeups: self.futile_wakeups,
            ..GeneratorStats::default()
        };
        let lost_share = self.lost_share(delays.late.mean, figures.response.mean);
        LoadResult {
            target: self.setup.target.url.clone(),
            offered: offered_load,
            interrupted: kelvin_sys::stop_signals::stop_signal().map(str::to_owned),
            corrected: mean_cycle.map(|cycle| latency_summary(&stats.response.corrected_for_omission(cycle))),
            unanswered,
            answer_seconds: figures.answer_seconds + self.scheduled_seconds(unsent_count) - self.pool.stats.seconds(),
            generator: generator_usage::report(thread_usage, delays, figures.response, lost_share),
            ..figures
        }
    }

    /// Which share of the requests that were asked for its delays left out. Users ask again the later for them, and of answers that wait
    /// to be read: so much longer is a cycle of response and thought. In an open loop a generator that keeps up is as late in the end
    /// as at the beginning, and one that falls behind twice as late in the end as on average: so much longer it takes for the same requests.
    fn lost_share(&self, mean_lateness: f64, response: f64) -> f64 {
        let (delay, time) = match self.setup.demand {
            Demand::Users { think, .. } => {
                (mean_lateness + self.pool.stats.queue_delay.mean().unwrap_or(0.0), response + think.mean)
            }
            _ => (2.0 * mean_lateness, self.pool.stats.seconds() * NANOSECONDS_PER_SECOND as f64 + 2.0 * mean_lateness),
        };
        generator_usage::delay_share(delay, time).min(1.0)
    }

    /// What was asked for, and at what rate requests became due, this many of which were not sent.
    fn offered(&self, unsent_count: u64) -> OfferedLoad {
        if let Demand::Users { users, think } = self.setup.demand {
            return OfferedLoad::Users { users, think: think.mean };
        }
        let due_rate =
            (self.pool.stats.due + unsent_count) as f64 / self.scheduled_seconds(unsent_count).max(f64::MIN_POSITIVE);
        let rate = if let Demand::Rate { rate, .. } = self.setup.demand { rate } else { due_rate };
        OfferedLoad::Rate { rate, due: due_rate, delayed: self.delayed_count }
    }

    /// Seconds that the schedule has for the requests that became due in the measured time, this many of which were not sent. Of an even rate
    /// that is a whole number of the times between two: the measured time may end within one, and has its request all the same.
    fn scheduled_seconds(&self, unsent_count: u64) -> f64 {
        let seconds = self.pool.stats.seconds();
        let due_count = self.pool.stats.due + unsent_count;
        match self.setup.demand {
            Demand::Rate { rate, arrivals: TimeDistribution::Constant, .. } if due_count > 0 => due_count as f64 / rate,
            _ => seconds,
        }
    }

    fn count_unsent(&mut self, now: u64) -> u64 {
        let mut unsent_count = 0;
        while let Some(due) = self.next_due().filter(|&due| due <= now && self.is_open_loop()) {
            self.schedule.take_due();
            if self.pool.stats.window.contains(&due) {
                unsent_count += 1;
                self.pool.stats.add_wait(RequestTimestamps { due, sent: now, end: now, generator_delay: 0 });
            }
        }
        unsent_count
    }
}
