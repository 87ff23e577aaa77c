//! The loop that sends requests when they are due and takes what comes back: one thread, epoll, any number of connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kelvin_model::load::{Generator, Load, Offered, Second};
use kelvin_sys::clock::monotonic;

use crate::error::Result;
use crate::own::{self, Measured, Used, Waits};
use crate::pattern::Chooser;
use crate::poll::Poll;
use crate::request::Requests;
use crate::schedule::{Closed, Due, Logged, Open, Schedule, Spread};
use crate::setup::{Demand, Setup};
use crate::tally::{Belongs, SECOND, Tally, Times, latency};
use crate::traffic::{Over, Traffic};
use crate::wire::Peer;

/// Nanoseconds between looks for time-outs and for a signal to stop.
const TICK: u64 = SECOND / 10;

/// Nanoseconds before a request is due from which on the loop looks at the clock instead of sleeping: a sleeping thread is woken up
/// to 50 us late, by a hypervisor later.
const SPIN: u64 = 100_000;

/// Requests that are sent before answers are looked for again.
const SENDS: usize = 512;

/// Nanoseconds that answers are waited for after the measured time of an open loop.
const DRAIN: u64 = 2 * SECOND;

/// Nanoseconds between looks at whether users are to go on after the measured time.
const BEYOND: u64 = SECOND / 1000;

/// Nanoseconds that a user waits after a connection failed: without it, a server that is gone would be asked without end.
const PAUSE: u64 = SECOND / 10;

/// What the two sequences of random numbers have apart from each other, from one seed.
const OF_FILES: u64 = 0x9e37_79b9_7f4a_7c15;

/// Measures a load. `watch` is told the seconds that are over, ten times a second. A signal that [`kelvin_sys::interrupt`] watches
/// for ends it early.
///
/// # Errors
/// Failures of the generator's own calls; what fails of single requests is counted.
pub fn load(setup: &Setup, peer: &Peer, watch: &mut dyn FnMut(&[Second])) -> Result<Load> {
    let seed = setup.seed;
    match &setup.demand {
        &Demand::Users { users, think } => {
            Engine::new(setup, peer, |start| Closed::new(users, think, start, seed))?.run(watch)
        }
        &Demand::Rate { rate, spread, .. } => {
            Engine::new(setup, peer, |start| Open::new(rate, spread, start, seed))?.run(watch)
        }
        Demand::Log { times, .. } => {
            Engine::new(setup, peer, |start| Logged::new(Arc::clone(times), start))?.run(watch)
        }
    }
}

struct Engine<'s, S> {
    setup: &'s Setup,
    schedule: S,
    chooser: Chooser,
    traffic: Traffic,
    /// Connections that can take a request, in an open loop. The one that was used last is used next.
    free: Vec<u32>,
    /// Whether a request that was due found no connection free, and none has caught up since.
    starved: bool,
    waited: u64,
    /// Nanoseconds that the loop looked at the clock.
    spun: u64,
    /// How often it was woken up for nothing.
    futile: u64,
}

impl<'s, S: Schedule> Engine<'s, S> {
    /// Prepares all that takes time, and then begins by the schedule of this moment.
    fn new(setup: &'s Setup, peer: &Peer, schedule: impl FnOnce(u64) -> S) -> Result<Self> {
        let (belongs, free) = match setup.demand {
            Demand::Users { .. } => (Belongs::WhenOver, Vec::new()),
            Demand::Rate { connections, .. } | Demand::Log { connections, .. } => {
                (Belongs::WhenDue, (0..connections).rev().collect())
            }
        };
        let requests = Requests::new(&setup.target, &setup.form, &setup.paths);
        let chooser = Chooser::new(setup.pattern, requests.count(), setup.seed ^ OF_FILES);
        let tally = Tally::new(0..0, belongs);
        let mut traffic = Traffic::new(setup, peer.clone(), requests, tally, Poll::new()?);
        let start = monotonic();
        let from = start + setup.warm_up.as_nanos() as u64;
        traffic.tally.window = from..from + setup.duration.as_nanos() as u64;
        Ok(Self {
            setup,
            schedule: schedule(start),
            chooser,
            traffic,
            free,
            starved: false,
            waited: 0,
            spun: 0,
            futile: 0,
        })
    }

    fn run(mut self, watch: &mut dyn FnMut(&[Second])) -> Result<Load> {
        let mut measured = Measured::new();
        let mut tick = 0;
        loop {
            let now = monotonic();
            if measured.look(&self.traffic.tally.window, now, self.spun) {
                self.traffic.unread.clear();
                self.traffic.queued.clear();
                self.traffic.leaving.clear();
            }
            if now >= tick {
                tick = now + TICK;
                self.tick(now, watch);
            }
            if self.is_over(now) {
                break;
            }
            self.traffic.has_acted = false;
            self.send_due(now);
            let until = self.until(now, tick)?;
            self.take_answers(now, until)?;
        }
        let now = monotonic();
        let used = measured.used(now, self.spun);
        Ok(self.conclude(used, now))
    }

    /// Gives up requests whose time is over, and tells how far the measurement is.
    fn tick(&mut self, now: u64, watch: &mut dyn FnMut(&[Second])) {
        let limit = self.setup.timeout.as_nanos() as u64;
        for number in 0..self.traffic.connections.len() as u32 {
            if let Some(over) = self.traffic.time_out(number, now, limit) {
                self.over(number, over, now);
            }
        }
        self.traffic.tally.pass(now);
        watch(&self.traffic.tally.series);
    }

    fn is_open(&self) -> bool {
        !matches!(self.setup.demand, Demand::Users { .. })
    }

    fn is_over(&self, now: u64) -> bool {
        let end = self.traffic.tally.window.end;
        if kelvin_sys::interrupt::requested().is_some() {
            return true;
        }
        let is_answered = self.free.len() == self.traffic.connections.len() && self.next().is_none();
        let is_done = if self.is_open() { is_answered || now >= end + DRAIN } else { !self.goes_on() };
        now >= end && is_done
    }

    /// Whether users go on when the measured time is over.
    fn goes_on(&self) -> bool {
        !self.is_open() && self.setup.goes_on.as_ref().is_some_and(|goes_on| goes_on.load(Ordering::Acquire))
    }

    /// When the next request of the run is due.
    fn next(&self) -> Option<u64> {
        self.schedule.next().filter(|&at| at < self.traffic.tally.window.end || self.goes_on())
    }

    /// Sends what is due, of many requests some: answers, time-outs and signals are looked for in between.
    fn send_due(&mut self, mut now: u64) {
        for _ in 0..SENDS {
            if self.next().is_none_or(|at| at > now) {
                self.starved = false;
                return;
            }
            if self.is_open() && self.free.is_empty() {
                self.starved = true;
                return;
            }
            let Some(due) = self.schedule.take() else { return };
            let Some(number) = due.user.or_else(|| self.free.pop()) else { return };
            self.send(number, due, now);
            // The one after it is sent no earlier: what sending takes is no time in which a server had it.
            now = monotonic();
        }
    }

    fn send(&mut self, number: u32, due: Due, now: u64) {
        let mut possible = due.at;
        if self.starved {
            self.waited += u64::from(self.traffic.tally.window.contains(&due.at));
            possible = possible.max(self.traffic.connections[number as usize].freed);
        }
        let times = Times { due: due.at, sent: now, over: now, own: now - possible.min(now) };
        self.traffic.tally.sent(times);
        if let Some(over) = self.traffic.send(number, self.chooser.choose(), times) {
            self.over(number, over, now);
        }
    }

    /// A connection has no request any more.
    fn over(&mut self, number: u32, over: Over, now: u64) {
        if self.is_open() {
            self.traffic.connections[number as usize].freed = now;
            self.free.push(number);
        } else {
            self.schedule.answered(number, if over == Over::Disconnected { now + PAUSE } else { now });
        }
    }

    /// Until when answers can be waited for; has that wait ended before the next request is due.
    fn until(&mut self, now: u64, tick: u64) -> Result<u64> {
        let window = &self.traffic.tally.window;
        let edge = [window.start, window.end].into_iter().find(|&edge| edge > now);
        let beyond = if self.goes_on() { now + BEYOND } else { tick };
        let until = edge.unwrap_or(beyond).min(tick);
        let can_send = !self.is_open() || !self.free.is_empty();
        let margin = if self.setup.spin { SPIN } else { 0 };
        match self.next().filter(|_| can_send).map(|at| at.saturating_sub(margin)) {
            Some(wake) if wake <= now => return Ok(now),
            Some(wake) if wake < until => self.traffic.poll.wake_at(wake)?,
            _ => {}
        }
        Ok(until)
    }

    /// Waits for answers and takes them. What is due then is sent by the caller: several requests at once wake a server once, and
    /// no answer waits for them.
    fn take_answers(&mut self, now: u64, until: u64) -> Result<()> {
        let ready = self.traffic.poll.wait(until.saturating_sub(now))?;
        let woken = monotonic();
        let looked = ready == 0 && until == now;
        if looked {
            self.spun += woken - now;
        }
        let mut sockets = 0;
        for one in 0..ready {
            let Some(ready) = self.traffic.poll.ready(one) else { continue };
            sockets += 1;
            if let Some((over, now)) = self.traffic.take(ready, woken) {
                self.over(ready.token.connection, over, now);
            }
        }
        let is_futile = sockets > 0 || looked && !self.setup.spin;
        self.futile += u64::from(is_futile && !self.traffic.has_acted);
        Ok(())
    }

    fn conclude(mut self, used: Used, now: u64) -> Load {
        self.traffic.tally.end(now);
        let unsent = self.count_unsent(now);
        let offered = self.offered(unsent);
        let unanswered = self.traffic.in_flight_at(now) + unsent;
        let figures = self.traffic.figures();
        let tally = &self.traffic.tally;
        let waits = Waits {
            late: latency(&tally.late),
            unread: self.traffic.unread.mean(),
            leaving: self.traffic.leaving.mean(),
            own: latency(&tally.own),
            response: figures.response,
            lost: self.lost(latency(&tally.late).mean, figures.response.mean),
        };
        Load {
            target: self.setup.target.url.clone(),
            offered,
            interrupted: kelvin_sys::interrupt::requested().map(str::to_owned),
            corrected: self.cycle().map(|cycle| latency(&tally.response.corrected(cycle))),
            unanswered,
            answering: figures.answering + self.scheduled(unsent) - self.traffic.tally.seconds(),
            generator: Generator { futile: self.futile, ..own::generator(used, waits) },
            ..figures
        }
    }

    /// Which share of the requests that were asked for its delays left out. Users ask again the later for them, and of answers that wait
    /// to be read: so much longer is a cycle of response and thought. In an open loop a generator that keeps up is as late in the end
    /// as at the beginning, and one that falls behind twice as late in the end as on average: so much longer it takes for the same requests.
    fn lost(&self, late: f64, response: f64) -> f64 {
        match self.setup.demand {
            Demand::Users { think, .. } => {
                own::share(late + self.traffic.queued.mean().unwrap_or(0.0), response + think.mean).min(1.0)
            }
            _ => own::share(2.0 * late, self.traffic.tally.seconds() * SECOND as f64 + 2.0 * late),
        }
    }

    /// What was asked for, and at what rate requests became due, so many of which were not sent.
    fn offered(&self, unsent: u64) -> Offered {
        if let Demand::Users { users, think } = self.setup.demand {
            return Offered::Users { users, think: think.mean };
        }
        let due = (self.traffic.tally.due + unsent) as f64 / self.scheduled(unsent).max(f64::MIN_POSITIVE);
        let rate = if let Demand::Rate { rate, .. } = self.setup.demand { rate } else { due };
        Offered::Rate { rate, due, waited: self.waited }
    }

    /// Seconds that the schedule has for the requests that became due in the measured time, so many of which were not sent. Of an even rate
    /// that is a whole number of the times between two: the measured time may end within one, and has its request all the same.
    fn scheduled(&self, unsent: u64) -> f64 {
        let seconds = self.traffic.tally.seconds();
        let due = self.traffic.tally.due + unsent;
        match self.setup.demand {
            Demand::Rate { rate, spread: Spread::Constant, .. } if due > 0 => due as f64 / rate,
            _ => seconds,
        }
    }

    fn count_unsent(&mut self, now: u64) -> u64 {
        let mut unsent = 0;
        if !self.is_open() {
            return unsent;
        }
        while let Some(at) = self.next().filter(|&at| at <= now) {
            self.schedule.take();
            if self.traffic.tally.window.contains(&at) {
                unsent += 1;
                self.traffic.tally.waited(Times { due: at, sent: now, over: now, own: 0 });
            }
        }
        unsent
    }

    /// The mean time of a user from one request to the next, in nanoseconds; `None` in an open loop, which hides nothing.
    fn cycle(&self) -> Option<u64> {
        let Demand::Users { users, .. } = self.setup.demand else { return None };
        let tally = &self.traffic.tally;
        let cycle = f64::from(users) * tally.seconds() * SECOND as f64 / tally.requests as f64;
        (tally.requests > 0).then_some(cycle as u64)
    }
}
