//! The loop of one thread, which sends requests when they are due and takes what comes back: epoll, any number of connections.

use std::sync::atomic::Ordering;

use kelvin_core::load::GeneratorThread;
use kelvin_sys::clock::monotonic;

use crate::load::access_pattern::FileChooser;
use crate::load::connection_pool::ConnectionPool;
use crate::load::error::Result;
use crate::load::generator_usage::WindowUsage;
use crate::load::http2::Http2Pool;
use crate::load::load_run::LoadRun;
use crate::load::load_share::LoadShare;
use crate::load::request_pool::{EndedRequest, RequestEnd, RequestPool};
use crate::load::request_stats::{NANOSECONDS_PER_SECOND, RequestStats, RequestTimestamps};
use crate::load::schedule::{DueRequest, RequestSchedule};
use crate::load::series::SecondStats;
use crate::load::stages::stage_ends;

/// Nanoseconds between looks for time-outs and for a signal to stop.
pub(crate) const TICK_NANOSECONDS: u64 = NANOSECONDS_PER_SECOND / 10;

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

/// Takes the seconds that are over, ten times a second and at the end.
pub(crate) type SecondObserver<'o> = dyn FnMut(Vec<SecondStats>) + 'o;

/// What one thread counted, and what it used.
pub(crate) struct ThreadResult {
    pub(crate) stats: RequestStats,
    pub(crate) usage: GeneratorThread,
}

/// A thread's part of a load before it begins, with all that takes time to prepare.
pub(crate) struct PreparedThread<'s> {
    run: &'s LoadRun<'s>,
    pub(crate) share: LoadShare,
    chooser: FileChooser,
    pool: ProtocolPool<'s>,
}

/// The connections of a thread, by the protocol that they speak.
enum ProtocolPool<'s> {
    Http1(Box<ConnectionPool<'s>>),
    Http2(Box<Http2Pool<'s>>),
}

impl<'s> ProtocolPool<'s> {
    fn new(run: &'s LoadRun<'s>, share: LoadShare) -> Result<Self> {
        match run.setup.http2_streams {
            None => ConnectionPool::prepare(run, share).map(|pool| Self::Http1(Box::new(pool))),
            Some(_) => Http2Pool::prepare(run, share).map(Box::new).map(Self::Http2),
        }
    }
}

impl<'s> PreparedThread<'s> {
    /// # Errors
    /// Those of the calls that wait for sockets.
    pub(crate) fn new(run: &'s LoadRun<'s>, share: LoadShare) -> Result<Self> {
        let setup = run.setup;
        let chooser = setup.file_chooser(setup.seed ^ FILE_SEED_OFFSET);
        Ok(Self { run, share, chooser: chooser.for_share(share), pool: ProtocolPool::new(run, share)? })
    }

    /// Sends by this schedule, and takes what comes back, until the load is over. The time before the measured time begins at `start`,
    /// in nanoseconds of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// Failures of the generator's own calls, which stop the other threads too.
    pub(crate) fn send_and_measure(
        self,
        schedule: impl RequestSchedule,
        start: u64,
        observer: &mut SecondObserver<'_>,
    ) -> Result<ThreadResult> {
        let Self { run, chooser, pool, .. } = self;
        let result = match pool {
            ProtocolPool::Http1(pool) => LoadEngine::new(run, pool, chooser, schedule, start).run(observer),
            // A request of HTTP/2 takes so much more that one loop for all schedules costs nothing that can be seen.
            ProtocolPool::Http2(pool) => {
                let schedule: Box<dyn RequestSchedule + '_> = Box::new(schedule);
                LoadEngine::new(run, pool, chooser, schedule, start).run(observer)
            }
        };
        if result.is_err() {
            run.stop(monotonic());
        }
        result
    }
}

struct LoadEngine<'s, S, P> {
    run: &'s LoadRun<'s>,
    schedule: S,
    chooser: FileChooser,
    pool: P,
    /// Slots that can take a request, in an open loop. The one that was used last is used next.
    free_slots: Vec<u32>,
    /// Requests that were sent and are not over.
    in_flight: u32,
    /// Whether all requests of a limited number are over.
    is_finished: bool,
    /// Whether a request that was due found no connection free, and none has caught up since.
    is_starved: bool,
    /// Nanoseconds that the loop looked at the clock.
    spin_nanoseconds: u64,
}

impl<'s, S: RequestSchedule, P: RequestPool<'s>> LoadEngine<'s, S, P> {
    #[expect(
        clippy::boxed_local,
        reason = "without HTTP/2 its pool has no value, which code that knows its type could not pass on"
    )]
    fn new(run: &'s LoadRun<'s>, pool: Box<P>, chooser: FileChooser, schedule: S, start: u64) -> Self {
        let mut pool = *pool;
        let free_slots =
            if run.setup.demand.is_open_loop() { (0..pool.slot_count()).rev().collect() } else { Vec::new() };
        let window_start = start + run.setup.warm_up.as_nanos() as u64;
        let durations = run.setup.demand.stages().into_iter().map(|(_, duration)| duration);
        pool.state_mut().stats.stage_ends = stage_ends(window_start, durations).collect();
        pool.state_mut().stats.window = window_start..window_start + run.setup.duration.as_nanos() as u64;
        Self {
            run,
            schedule,
            chooser,
            pool,
            free_slots,
            in_flight: 0,
            is_finished: false,
            is_starved: false,
            spin_nanoseconds: 0,
        }
    }

    fn run(mut self, observer: &mut SecondObserver<'_>) -> Result<ThreadResult> {
        let mut window_usage = WindowUsage::new();
        let mut tick = 0;
        loop {
            let now = monotonic();
            if window_usage.sample(&self.pool.state().stats.window, now, self.spin_nanoseconds) {
                let RequestStats { read_delay, queue_delay, departure_delay, .. } = &mut self.pool.state_mut().stats;
                (*read_delay, *queue_delay, *departure_delay) = Default::default();
            }
            if now >= tick {
                tick = now + TICK_NANOSECONDS;
                self.tick(now, observer);
            }
            if self.is_over(now) {
                break;
            }
            self.pool.state_mut().has_progress = false;
            self.send_due(now);
            self.pool.flush();
            self.take_ends(None);
            let until = self.wait_deadline(now, tick)?;
            self.handle_answers(now, until)?;
        }
        let usage = window_usage.finish(monotonic(), self.spin_nanoseconds);
        let mut stats = self.finish();
        observer(stats.take_seconds());
        Ok(ThreadResult { stats, usage })
    }

    /// Gives up requests whose time is over, and reports how far the measurement is.
    fn tick(&mut self, now: u64, observer: &mut SecondObserver<'_>) {
        let limit = self.run.setup.timeout.as_nanos() as u64;
        for slot in 0..self.pool.slot_count() {
            if let Some(end) = self.pool.time_out(slot, now, limit) {
                self.on_request_end(EndedRequest { slot, end, time: now });
            }
        }
        let stats = &mut self.pool.state_mut().stats;
        stats.end_seconds(now.min(stats.window.end));
        observer(stats.take_seconds());
    }

    fn is_open_loop(&self) -> bool {
        self.run.setup.demand.is_open_loop()
    }

    fn is_over(&mut self, now: u64) -> bool {
        if self.run.is_stopped() || self.run.finish_time().is_some() {
            return true;
        }
        let end = self.pool.state().stats.window.end;
        let is_limited = self.run.setup.requests.is_some();
        let is_done = if self.is_open_loop() {
            let is_answered = self.in_flight == 0 && self.next_due().is_none();
            // Of a limited number every answer is waited for, as long as a time-out allows.
            is_answered || !is_limited && now >= end + DRAIN_NANOSECONDS
        } else {
            let is_answered = is_limited && self.in_flight == 0 && self.schedule.next_due().is_none();
            if is_answered && !self.is_finished {
                self.is_finished = true;
                return self.run.finish_thread(now);
            }
            !self.is_extended()
        };
        now >= end && is_done
    }

    /// Whether users go on when the measured time is over.
    fn is_extended(&self) -> bool {
        !self.is_open_loop()
            && self.run.setup.extension.as_ref().is_some_and(|extension| extension.load(Ordering::Acquire))
    }

    /// When the next request of the run is due.
    fn next_due(&self) -> Option<u64> {
        self.schedule.next_due().filter(|&time| time < self.pool.state().stats.window.end || self.is_extended())
    }

    /// Sends what is due, of many requests some: answers, time-outs and signals are looked for in between.
    fn send_due(&mut self, mut now: u64) {
        for _ in 0..MAX_SENDS_PER_TURN {
            if self.next_due().is_none_or(|time| time > now) {
                self.is_starved = false;
                return;
            }
            if self.is_open_loop() && self.free_slots.is_empty() {
                self.is_starved = true;
                return;
            }
            let Some(request) = self.schedule.take_due() else { return };
            let Some(slot) = request.user.or_else(|| self.free_slots.pop()) else { return };
            self.send(slot, request, now);
            // The one after it is sent no earlier: what sending takes is no time in which a server had it.
            now = monotonic();
        }
    }

    fn send(&mut self, slot: u32, request: DueRequest, now: u64) {
        let mut earliest_send = request.time;
        if self.is_starved {
            let stats = &mut self.pool.state_mut().stats;
            stats.delayed += u64::from(stats.window.contains(&request.time));
            earliest_send = earliest_send.max(*self.pool.free_since(slot));
        }
        let request_number = self.chooser.choose();
        let times = RequestTimestamps {
            due: request.time,
            sent: now,
            end: now,
            generator_delay: now - earliest_send.min(now),
            kind: self.run.requests.get(request_number).kind,
        };
        self.pool.state_mut().stats.add_sent(times);
        self.in_flight += 1;
        if let Some(end) = self.pool.send_request(slot, request_number, times) {
            self.on_request_end(EndedRequest { slot, end, time: now });
        }
    }

    /// Takes this request that is over, and what else is.
    fn take_ends(&mut self, first: Option<EndedRequest>) {
        let mut next = first.or_else(|| self.pool.next_end());
        while let Some(ended) = next {
            self.on_request_end(ended);
            next = self.pool.next_end();
        }
    }

    /// A slot has no request any more.
    fn on_request_end(&mut self, ended: EndedRequest) {
        let EndedRequest { slot, end, time } = ended;
        self.in_flight -= 1;
        if self.is_open_loop() {
            *self.pool.free_since(slot) = time;
            self.free_slots.push(slot);
        } else {
            self.schedule.on_answer(slot, if end == RequestEnd::Disconnected { time + RECONNECT_PAUSE } else { time });
        }
    }

    /// Until when answers can be waited for; has that wait ended before the next request is due.
    fn wait_deadline(&mut self, now: u64, tick: u64) -> Result<u64> {
        let window = &self.pool.state().stats.window;
        let edge = [window.start, window.end].into_iter().find(|&edge| edge > now);
        let poll_deadline = if self.is_extended() { now + EXTENSION_POLL_NANOSECONDS } else { tick };
        // Other threads may be the last to finish at any time.
        let poll_deadline =
            if self.is_finished { now + EXTENSION_POLL_NANOSECONDS } else { edge.unwrap_or(poll_deadline) };
        let until = poll_deadline.min(tick);
        let can_send = !self.is_open_loop() || !self.free_slots.is_empty();
        let margin = if self.run.setup.spin { SPIN_NANOSECONDS } else { 0 };
        match self.next_due().filter(|_| can_send).map(|time| time.saturating_sub(margin)) {
            Some(wake) if wake <= now => return Ok(now),
            Some(wake) if wake < until => self.pool.state_mut().poller.set_wake_time(wake)?,
            _ => {}
        }
        Ok(until)
    }

    /// Waits for answers and takes them. What is due then is sent by the caller: several requests at once wake a server once, and
    /// no answer waits for them.
    fn handle_answers(&mut self, now: u64, until: u64) -> Result<()> {
        let ready = self.pool.state_mut().poller.wait(until.saturating_sub(now))?;
        let wake_time = monotonic();
        let is_spin = ready == 0 && until == now;
        if is_spin {
            self.spin_nanoseconds += wake_time - now;
        }
        let mut sockets = 0;
        for index in 0..ready {
            let Some((token, flags)) = self.pool.state_mut().poller.ready(index) else { continue };
            sockets += 1;
            let ended = self.pool.handle_ready(token, flags, wake_time);
            self.take_ends(ended);
        }
        let is_futile = sockets > 0 || is_spin && !self.run.setup.spin;
        let is_futile = is_futile && !self.pool.state_mut().has_progress;
        self.pool.state_mut().stats.futile_wakeups += u64::from(is_futile);
        Ok(())
    }

    /// What was counted, up to now or until another thread stopped.
    fn finish(mut self) -> RequestStats {
        let now = monotonic();
        let end = if self.run.is_stopped() { self.run.stop(now) } else { self.run.finish_time().unwrap_or(now) };
        self.pool.state_mut().stats.close(end);
        while let Some(due) = self.next_due().filter(|&due| due <= now && self.is_open_loop()) {
            self.schedule.take_due();
            self.pool.state_mut().stats.add_unsent(due, now);
        }
        self.pool.add_unfinished(now);
        self.pool.into_state().stats
    }
}
