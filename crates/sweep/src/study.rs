//! A study from its preparation to its last visit.

use std::time::{Duration, Instant};

use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::load::hosts::{CPU_USER, Host};
use kelvin_catalogue::load::{Between, CAPACITY, MORE_WORKERS, Pattern, Resource, THROUGHPUT, UTILISATION};
use kelvin_harness::Sink;
use kelvin_model::units::number;
use kelvin_model::{Attempt, Case, Event, Name, Outline, Reading, Round, RunStatus};

use crate::capacity::{Capacities, Measured};
use crate::error::{Error, Result};
use crate::figures::{self, Common};
use crate::hosts::{Told, of_hosts};
use crate::network::{Expected, expected};
use crate::pinned::Pinned;
use crate::place::Place;
use crate::setup::{Load, Setup, Target};
use crate::site::{LONGEST, ROUND, Site, Streams, longest_stream, order_of, start};
use crate::users::{Stop, TESTS, grid, least_missed, order};
use crate::visit::{Visited, Wish};

/// Requests that are to be answered in a visit, at least.
const REQUESTS: f64 = 25.0;
/// Shortest time of a visit that counts, and of its warm-up.
const SHORTEST: Duration = Duration::from_millis(1000);
const SHORTEST_WARM_UP: Duration = Duration::from_millis(200);
/// How the names of congestion controls begin that pace what is sent.
const PACING: &str = "bbr";
/// What is said of a link that is no resource of a study.
const NO_RATE: &str = "the link has no rate of its own that is known, neither its device's nor that of a shaper at the server: what it \
     carries is what processors give, and it is never named as the limit";
/// Visits in a row that may fail.
const PATIENCE: u32 = 3;

/// A study that is ready to be conducted. Dropped, its server ends.
#[derive(Debug)]
pub struct Study {
    plan: Plan,
    /// They end before their place does.
    sites: Vec<Site>,
    place: Place,
    _pinned: Pinned,
    /// How long its preparation took.
    prepared: Duration,
}

/// What is visited, and when.
#[derive(Debug)]
struct Plan {
    sweeps: Vec<Sweep>,
    order: Vec<Stop>,
    /// What is told of either host.
    told: Told,
    /// What the reader should know.
    notes: Vec<String>,
    seed: u64,
    /// The CPU of the load generator.
    cpu: u32,
}

/// One way of asking one server, by growing numbers of users.
#[derive(Debug)]
struct Sweep {
    /// Which server.
    site: usize,
    common: Common,
    load: Load,
    users: Vec<u64>,
    /// Time of a visit to each of them.
    times: Vec<Times>,
    /// What a visit took beside that before the study: connections are made, both ends looked at, and the last answers awaited.
    beside: Duration,
    /// What was measured in each round.
    rounds: Vec<Capacities>,
    /// The medians of these rounds, by which utilisation is told.
    capacities: Capacities,
    /// The resources whose use is known.
    watched: Vec<Resource>,
    expected: Option<Expected>,
    /// Numbers of users that are left out for want of time.
    left_out: Vec<u64>,
    /// Workers of the server, where they are bound and it can be started with more.
    workers: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    warm_up: Duration,
    duration: Duration,
}

/// A case of a study, with the metric that names its probe.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCase {
    /// Id of the probe.
    pub probe: Name,
    /// The case.
    pub case: Case,
}

impl Study {
    /// Starts what is to be studied and measures what each resource gives alone. Before it makes files, which it does only where the
    /// server runs, it calls `before_files`.
    ///
    /// # Errors
    /// Whatever keeps a server from being started or a capacity from being measured.
    pub fn prepare(setup: &Setup, before_files: &dyn Fn()) -> Result<Self> {
        let begun = Instant::now();
        let _pinned = Pinned::to(&setup.cpus)?;
        let (mut sites, place) = match &setup.target {
            Target::Own(own) => start(own, before_files)?,
            Target::Running(running) => (vec![Site::join(running)?], Place::here()),
        };
        let longest = longest_stream(setup.most);
        let streaming = Instant::now();
        let streams = sites.iter_mut().map(|site| site.streams(&setup.loads, setup.seed, longest));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let most = setup.most.map(|most| most.saturating_sub(begun.elapsed()));
        // What was asked for is the time of all that is measured; files are made before.
        let kept = if setup.is_kept { setup.budget.saturating_sub(streaming.elapsed()) } else { setup.budget };
        let budget = kept.max(setup.budget / 2);
        let plan = Plan::of(&sites, &streams, (&Setup { budget, ..setup.clone() }, most))?;
        Ok(Self { plan, sites, place, _pinned, prepared: begun.elapsed() })
    }

    /// All cases, in the order of reports.
    pub fn cases(&self) -> Vec<PlannedCase> {
        self.plan.cases()
    }

    /// How long all visits take.
    pub fn time(&self) -> Duration {
        self.plan.time()
    }

    /// How long its preparation took: files, and what each resource gives alone.
    pub fn prepared(&self) -> Duration {
        self.prepared
    }

    /// Visits to be made.
    pub fn visits(&self) -> usize {
        self.plan.order.len()
    }

    /// What is expected of each sweep, from capacities alone, in words.
    pub fn expectations(&self) -> Vec<String> {
        self.plan.sweeps.iter().map(Sweep::in_words).collect()
    }

    /// The numbers of users of each sweep that are left out for want of time, in words.
    pub fn left_out(&self) -> Vec<String> {
        self.plan.sweeps.iter().filter_map(Sweep::left_out_in_words).collect()
    }

    /// Tells what the capacities are, makes all visits, and tells what each brought.
    pub fn conduct(&mut self, outline: &Outline, sink: &mut dyn Sink) -> RunStatus {
        let Self { plan, sites, place, .. } = self;
        let planned = outline.plan.iter().map(|planned| plan.told.plan(planned.clone())).collect();
        sink.event(&Event::Started(Box::new(Outline { plan: planned, ..outline.clone() })));
        plan.tell_capacities(sink);
        let begun = Instant::now();
        let status = plan.visit_all((sites, place), begun, sink);
        let (seconds, notes) = (begun.elapsed().as_secs_f64(), plan.notes.clone());
        sink.event(&Event::Finished { status: status.clone(), seconds, notes });
        status
    }
}

impl Plan {
    fn of(sites: &[Site], streams: &[Streams], (setup, most): (&Setup, Option<Duration>)) -> Result<Self> {
        let of = |(site, load): (usize, &Load)| {
            let alike = streams[site].of(sites[site].streamed(load.pattern));
            Sweep::plan((site, &sites[site]), *load, alike, setup)
        };
        let all = (0..sites.len()).flat_map(|site| setup.loads.iter().map(move |load| (site, load)));
        let mut sweeps: Vec<Sweep> = all.map(of).collect();
        if let Some(most) = most {
            fit(&mut sweeps, (setup, most))?;
        }
        let users: Vec<Vec<u64>> = sweeps.iter().map(|sweep| sweep.users.clone()).collect();
        let told = Told::of(streams[0].first(), sites[0].common.between);
        let tested: Vec<bool> = sweeps.iter().map(Sweep::tests_workers).collect();
        let order = order(&users, &tested, setup.visits, setup.seed);
        let congestion_control = streams.iter().find_map(|streams| streams.first().server.congestion_control());
        let notes = notes(&sweeps, congestion_control);
        let cpu = setup.cpus.first().copied().unwrap_or_default();
        Ok(Self { sweeps, order, told, notes, seed: setup.seed, cpu })
    }

    /// All cases, in the order of reports.
    fn cases(&self) -> Vec<PlannedCase> {
        let of = |probe: Name| move |case: Case| PlannedCase { probe, case };
        let capacities = self.capacity_cases().into_iter().map(of(CAPACITY.id));
        let users = self.sweeps.iter().flat_map(|sweep| {
            sweep.users.iter().map(|&users| sweep.common.of_users(sweep.load, users)).collect::<Vec<_>>()
        });
        let resources = self.sweeps.iter().flat_map(|sweep| {
            let at = |&users: &u64| sweep.watched.iter().map(move |&resource| (users, resource));
            let all = sweep.users.iter().flat_map(at);
            all.map(|(users, resource)| sweep.common.of_resource(sweep.load, users, resource)).collect::<Vec<_>>()
        });
        let hosts = self.sweeps.iter().flat_map(|sweep| {
            let at = |host: Host| sweep.users.iter().map(move |&users| sweep.common.of_host(sweep.load, users, host));
            self.told.hosts().flat_map(at).collect::<Vec<_>>()
        });
        users
            .map(of(THROUGHPUT.id))
            .chain(resources.map(of(UTILISATION.id)))
            .chain(hosts.map(of(CPU_USER.id)))
            .chain(self.sweeps.iter().filter_map(Sweep::more_workers).map(of(MORE_WORKERS.id)))
            .chain(capacities)
            .collect()
    }

    /// A sweep of each server and pattern: the capacities of others with these are the same.
    fn of_patterns(&self) -> impl Iterator<Item = &Sweep> {
        let is_first = |at: usize| {
            let of = |sweep: &Sweep| (sweep.site, sweep.load.pattern);
            let known = |sweep: &Sweep| of(sweep) == of(&self.sweeps[at]);
            !self.sweeps[..at].iter().any(known)
        };
        self.sweeps.iter().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, sweep)| sweep)
    }

    fn capacity_cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for sweep in self.of_patterns() {
            for (resource, _) in sweep.rounds.iter().flat_map(|round| &round.all) {
                let case = sweep.common.of_capacity(sweep.load.pattern, *resource);
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
        cases
    }

    /// How long all visits take.
    fn time(&self) -> Duration {
        self.order.iter().map(|stop| self.sweeps[stop.sweep].time_of(stop.users)).sum()
    }

    fn tell_capacities(&self, sink: &mut dyn Sink) {
        for sweep in self.of_patterns() {
            for (index, round) in sweep.rounds.iter().enumerate() {
                for (resource, capacity) in &round.all {
                    let case = sweep.common.of_capacity(sweep.load.pattern, *resource);
                    let at = At { index: index as u32, seconds: 0.0, took: ROUND.as_secs_f64() };
                    tell(sink, (CAPACITY.id, case), self.round(at, figures::of_capacity(capacity)));
                }
            }
        }
    }

    fn visit_all(&self, (sites, place): (&mut [Site], &Place), begun: Instant, sink: &mut dyn Sink) -> RunStatus {
        let (mut failures, mut left) = (0, self.time());
        let mut promise = Promise { whole: left, is_corrected: false };
        for (done, stop) in self.order.iter().enumerate() {
            let sweep = &self.sweeps[stop.sweep];
            let case = sweep.common.of_users(sweep.load, stop.users);
            let (planned, seconds_left) = (self.order.len(), left.as_secs_f64());
            sink.event(&Event::RoundStarted { probe: probe_of(*stop), case, done, planned, seconds_left });
            let from = begun.elapsed().as_secs_f64();
            let (site, wish) = (&mut sites[sweep.site], self.wish(*stop, done as u64));
            let workers = sweep.workers.filter(|_| stop.more_workers).map(|workers| 2 * workers);
            let visited = match workers {
                Some(workers) => site.visit_with_workers(workers, place, wish),
                None => site.visit(wish),
            };
            let at = At { index: stop.visit, seconds: from, took: begun.elapsed().as_secs_f64() - from };
            left = left.saturating_sub(sweep.time_of(stop.users));
            if let Some(whole) = promise.corrected(begun.elapsed(), left) {
                sink.event(&Event::Lengthened { seconds: whole.as_secs_f64() });
            }
            match visited {
                Err(Error::Interrupted(signal)) => return RunStatus::Partial(format!("interrupted by {signal}")),
                Err(ended @ (Error::ServerEnded(_) | Error::ServerShort)) => {
                    return RunStatus::Partial(ended.to_string());
                }
                Err(error) => {
                    // A server that cannot have more workers says nothing of the one that is studied.
                    failures += u32::from(!stop.more_workers);
                    self.tell_failure(sweep, *stop, (at, &error), sink);
                    if failures >= PATIENCE {
                        return RunStatus::Partial(format!("{PATIENCE} visits in a row failed: {error}"));
                    }
                }
                Ok(visited) => {
                    failures = 0;
                    self.tell_visit(sweep, *stop, (at, &visited), sink);
                }
            }
        }
        RunStatus::Complete
    }

    fn wish(&self, stop: Stop, number: u64) -> Wish {
        let sweep = &self.sweeps[stop.sweep];
        let Times { warm_up, duration } = sweep.times_of(stop.users);
        let Load { pattern, think } = sweep.load;
        let (pattern, seed) = (order_of(pattern), self.seed.wrapping_add(number));
        Wish { users: stop.users, think, pattern, warm_up, duration, seed }
    }

    fn tell_visit(&self, sweep: &Sweep, stop: Stop, (at, visited): (At, &Visited), sink: &mut dyn Sink) {
        let users = sweep.common.of_users(sweep.load, stop.users);
        if stop.more_workers {
            return tell(sink, (MORE_WORKERS.id, users), self.round(at, figures::of_more_workers(visited)));
        }
        tell(sink, (THROUGHPUT.id, users), self.round(at, figures::of_users(visited)));
        for (resource, readings) in figures::of_resources(visited, &sweep.capacities) {
            let case = sweep.common.of_resource(sweep.load, stop.users, resource);
            tell(sink, (UTILISATION.id, case), self.round(at, readings));
        }
        for (host, readings) in of_hosts(visited, sweep.common.between) {
            let case = sweep.common.of_host(sweep.load, stop.users, host);
            tell(sink, (CPU_USER.id, case), self.round(at, readings));
        }
    }

    fn tell_failure(&self, sweep: &Sweep, stop: Stop, (at, error): (At, &Error), sink: &mut dyn Sink) {
        let round = Round { attempt: Attempt::Failed(error.to_string()), ..self.round(at, Vec::new()) };
        tell(sink, (probe_of(stop), sweep.common.of_users(sweep.load, stop.users)), round);
    }

    fn round(&self, at: At, readings: Vec<Reading>) -> Round {
        Round {
            index: at.index,
            at: at.seconds,
            seconds: at.took,
            timing: None,
            cpu: self.cpu,
            attempt: Attempt::Measured(readings),
        }
    }
}

/// How long all visits were said to take.
#[derive(Debug)]
struct Promise {
    whole: Duration,
    is_corrected: bool,
}

/// A study that takes so many times as long as was said says so, once.
const LATE: f64 = 1.05;
/// Share of the time that was said after which it is known whether visits take longer.
const TELLING: f64 = 0.1;

impl Promise {
    /// How long they take instead, with so much time spent and so much still needed as was said, where that is to be told: the first time.
    fn corrected(&mut self, spent: Duration, left: Duration) -> Option<Duration> {
        let said = self.whole.saturating_sub(left);
        let is_known = said.as_secs_f64() >= TELLING * self.whole.as_secs_f64() && !said.is_zero();
        let slowness = spent.as_secs_f64() / said.as_secs_f64();
        if self.is_corrected || !is_known || slowness <= LATE {
            return None;
        }
        self.is_corrected = true;
        Some(spent + left.mul_f64(slowness))
    }
}

/// When a round was made: its number, and seconds from the start of the run on.
#[derive(Clone, Copy, Debug)]
struct At {
    index: u32,
    seconds: f64,
    took: f64,
}

fn probe_of(stop: Stop) -> Name {
    if stop.more_workers { MORE_WORKERS.id } else { THROUGHPUT.id }
}

fn tell(sink: &mut dyn Sink, (probe, case): (Name, Case), round: Round) {
    sink.event(&Event::RoundFinished { probe, case, round: Box::new(round) });
}

impl Times {
    fn whole(self) -> Duration {
        self.warm_up + self.duration
    }
}

impl Sweep {
    fn plan((number, site): (usize, &Site), load: Load, streams: &[Visited], setup: &Setup) -> Self {
        let common @ Common { cache, between, bytes, .. } = site.common;
        let is_from_disk = cache == CacheState::Uncached && load.pattern != Pattern::Fixed;
        let of_round = |(round, stream): (usize, &Visited)| {
            let disk = site.disk.get(round).copied().filter(|_| is_from_disk);
            Capacities::of(&Measured { stream, disk, bytes_of_a_file: bytes as f64, between })
        };
        let rounds: Vec<Capacities> = streams.iter().enumerate().map(of_round).collect();
        let capacities = Capacities::median(&rounds);
        let expected = expected(&capacities, load.think.as_secs_f64());
        let beside: Vec<f64> = streams.iter().map(|stream| stream.beside.as_secs_f64()).collect();
        let beside = Duration::from_secs_f64(kelvin_stats::median(&beside));
        let round = setup.budget / setup.visits.max(1) / setup.sweeps().max(1) as u32;
        let time_for = (round.as_secs_f64() / (SHORTEST_WARM_UP + SHORTEST + beside).as_secs_f64()) as usize;
        let knee = expected.map_or(1, |expected| expected.knee);
        let users = setup.users.clone().unwrap_or_else(|| grid(knee, time_for));
        let watched = figures::of_resources(&streams[0], &capacities).into_iter().map(|(one, _)| one).collect();
        let (times, left_out) = (Vec::new(), Vec::new());
        let bound = capacities.get(Resource::Workers).map(|one| one.servers.round() as u64);
        let workers = bound.filter(|&bound| site.may_have_workers(2 * bound));
        let mut sweep = Self {
            site: number,
            common,
            load,
            users,
            times,
            beside,
            rounds,
            capacities,
            watched,
            expected,
            left_out,
            workers,
        };
        sweep.plan_times(setup);
        sweep
    }

    /// Shares the time among its numbers of users.
    fn plan_times(&mut self, setup: &Setup) {
        let tests = if self.tests_workers() { TESTS as usize } else { 0 };
        let visits = setup.sweeps() * (self.users.len() * setup.visits as usize + tests) + 1;
        let share = setup.budget / visits as u32;
        let share = setup.duration.unwrap_or(if setup.is_kept { share.saturating_sub(self.beside) } else { share });
        let of = |&users: &u64| {
            let times = times(self.load, self.expected, users, share);
            Times { duration: setup.duration.unwrap_or(times.duration), ..times }
        };
        self.times = self.users.iter().map(of).collect();
    }

    /// How long all visits take.
    fn time(&self, visits: u32) -> Duration {
        let whole = |times: &Times| times.whole() + self.beside;
        let pass: Duration = self.times.iter().map(whole).sum();
        let again = self.times.first().map_or(Duration::ZERO, whole);
        let most = self.times.last().map_or(Duration::ZERO, whole);
        let tests = if self.tests_workers() { TESTS * most } else { Duration::ZERO };
        visits * pass + again + tests
    }

    /// Whether a server with twice the workers is to show whether their number limits: there are users for them.
    fn tests_workers(&self) -> bool {
        self.workers.is_some_and(|workers| self.users.last().is_some_and(|&users| users > workers))
    }

    /// The case of that.
    fn more_workers(&self) -> Option<Case> {
        let users = self.users.last().filter(|_| self.tests_workers())?;
        Some(self.common.of_users(self.load, *users))
    }

    /// Leaves out the number of users that it misses least; returns whether there was one.
    fn leave_out_one(&mut self) -> bool {
        let knee = self.expected.map_or(1, |expected| expected.knee);
        let Some(at) = least_missed(&self.users, knee) else { return false };
        self.times.remove(at);
        self.left_out.push(self.users.remove(at));
        self.left_out.sort_unstable();
        true
    }

    fn times_of(&self, users: u64) -> Times {
        let at = self.users.iter().position(|&known| known == users).unwrap_or_default();
        self.times[at]
    }

    /// How long a visit to so many users takes.
    fn time_of(&self, users: u64) -> Duration {
        self.times_of(users).whole() + self.beside
    }

    fn left_out_in_words(&self) -> Option<String> {
        let numbers: Vec<String> = self.left_out.iter().map(u64::to_string).collect();
        (!numbers.is_empty()).then(|| format!("{}: {} users", self.who(), numbers.join(", ")))
    }

    fn who(&self) -> String {
        let Load { pattern, think } = self.load;
        format!("{} files, {}, think time {} ms", pattern.name(), self.common.cache.name(), think.as_millis())
    }

    fn in_words(&self) -> String {
        let who = self.who();
        match self.expected {
            Some(Expected { limit, capacity, knee }) => {
                let users = if knee == 1 { "one user".to_owned() } else { format!("{knee} users") };
                let (capacity, limit) = (number(capacity), limit.name());
                format!("{who}: by capacities alone at most {capacity} requests/s, limited by {limit}, knee at {users}")
            }
            None => format!("{who}: no capacity is known"),
        }
    }
}

/// The time of a visit: its share of the budget, and at least as much as the server needs for some requests.
fn times(load: Load, expected: Option<Expected>, users: u64, share: Duration) -> Times {
    let think = load.think.as_secs_f64();
    let (throughput, cycle) = match expected {
        // Users do not wait for each other, or the limit is reached.
        Some(expected) => {
            let throughput = expected.capacity.min(users as f64 * expected.capacity / expected.knee.max(1) as f64);
            (throughput, users as f64 / throughput)
        }
        None => (f64::INFINITY, think),
    };
    let clamped =
        |seconds: f64, least: Duration| Duration::from_secs_f64(seconds.min(LONGEST.as_secs_f64())).max(least);
    let warm_up = clamped(1.5 * cycle, SHORTEST_WARM_UP.max(share / 5));
    let duration = clamped((REQUESTS / throughput).max(2.0 * cycle), SHORTEST.max(share.saturating_sub(warm_up)));
    Times { warm_up, duration }
}

/// Leaves out numbers of users, those of the longest sweep first, until all visits fit into a time.
fn fit(sweeps: &mut [Sweep], (setup, most): (&Setup, Duration)) -> Result<()> {
    let time = |sweeps: &[Sweep]| -> Duration { sweeps.iter().map(|sweep| sweep.time(setup.visits)).sum() };
    while time(sweeps) > most {
        let mut longest: Vec<&mut Sweep> = sweeps.iter_mut().collect();
        longest.sort_by_key(|sweep| std::cmp::Reverse(sweep.time(setup.visits)));
        if !longest.into_iter().any(Sweep::leave_out_one) {
            let numbers = sweeps.iter().map(|sweep| sweep.users.len()).sum();
            return Err(Error::TooLong { numbers, visits: setup.visits, needed: time(sweeps), most });
        }
    }
    Ok(())
}

/// What the reader should know.
fn notes(sweeps: &[Sweep], congestion_control: Option<&str>) -> Vec<String> {
    let mut notes = Vec::new();
    let is_cached = |sweep: &Sweep| sweep.common.cache == CacheState::Cached;
    match (sweeps.iter().all(is_cached), sweeps.iter().any(is_cached)) {
        (true, _) => notes.push("the files are in the page cache: this study says nothing of the server's disk".into()),
        (_, true) => notes.push("where the files are in the page cache, nothing is said of the server's disk".into()),
        _ => {}
    }
    let is_between = |between| sweeps.iter().all(|sweep| sweep.common.between == between);
    if is_between(Between::Loopback) {
        notes.push("client and server are on one host: there is no link between them, only memory".into());
    }
    let left_out: Vec<String> = sweeps.iter().filter_map(Sweep::left_out_in_words).collect();
    if !left_out.is_empty() {
        notes.push(format!("left out for want of time: {}", left_out.join("; ")));
    }
    let has_link = |sweep: &Sweep| sweep.capacities.get(Resource::Link).is_some();
    if !is_between(Between::Loopback) && !sweeps.iter().all(has_link) {
        notes.push(NO_RATE.into());
    }
    notes.extend(congestion_control.map(|name| of_sending(name, !is_between(Between::Hosts))));
    notes
}

/// By which congestion control the server sends, and what that means where the client is on the same host: there an acknowledgement has
/// the kernel send on at once, in the client's time, unless a timer of the server is to say when.
fn of_sending(name: &str, is_one_host: bool) -> String {
    let said = format!("the server's connections send by {name}");
    if !(is_one_host && name.starts_with(PACING)) {
        return said;
    }
    format!(
        "{said}, which paces them by timers: on one host more of the work of an answer is the server's then, and less the client's, than \
         by cubic (--server-options '--congestion-control cubic')"
    )
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::setup::Running;

    /// A quick study by this many sweeps, of at most two minutes.
    fn quick(sweeps: usize) -> Setup {
        let load = Load { pattern: Pattern::Random, think: Duration::ZERO };
        let running = Running {
            url: String::new(),
            paths: Vec::new(),
            resources: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            token: String::new(),
            files: None,
        };
        Setup {
            target: Target::Running(running),
            loads: vec![load; sweeps],
            users: None,
            visits: 4,
            budget: Duration::from_secs(60),
            most: Some(MOST),
            is_kept: true,
            duration: None,
            cpus: vec![0],
            seed: 1,
        }
    }

    /// A sweep of a server that answers so many requests a second.
    fn sweep(setup: &Setup, capacity: f64, (site, users): (usize, Vec<u64>)) -> Sweep {
        let mut sweep = Sweep {
            site,
            common: Common { cache: CacheState::Cached, between: Between::Loopback, files: 1, bytes: 1 },
            load: setup.loads[0],
            users,
            times: Vec::new(),
            beside: Duration::from_millis(50),
            rounds: Vec::new(),
            capacities: Capacities::default(),
            watched: Vec::new(),
            expected: Some(Expected { limit: Resource::Link, capacity, knee: 1 }),
            left_out: Vec::new(),
            workers: None,
        };
        sweep.plan_times(setup);
        sweep
    }

    /// What fits of a quick study.
    fn fitted(capacity: f64, sweeps: usize) -> (Result<()>, Vec<Sweep>) {
        let setup = quick(sweeps);
        let mut all: Vec<Sweep> = (0..sweeps).map(|site| sweep(&setup, capacity, (site, grid(1, 12)))).collect();
        (fit(&mut all, (&setup, MOST)), all)
    }

    const MOST: Duration = Duration::from_secs(120);

    #[test]
    fn a_quick_study_leaves_out_numbers_of_users_until_it_fits_or_is_refused() {
        let (fits, fast) = fitted(1000.0, 1);
        assert!(fits.is_ok() && fast[0].left_out.is_empty());
        let (fits, slow) = fitted(6.0, 1);
        let [sweep] = &slow[..] else { panic!("{slow:?}") };
        assert!(fits.is_ok() && sweep.time(4) <= MOST && sweep.time(4) > MOST / 2, "{sweep:?}");
        assert_eq!((sweep.users[0], sweep.left_out.last()), (1, Some(&20)), "{sweep:?}");
        assert!(sweep.users.len() >= 4 && sweep.users.len() == sweep.times.len(), "{sweep:?}");
        let said = sweep.left_out_in_words().unwrap();
        assert!(said.starts_with("random files, cached, think time 0 ms: ") && said.ends_with(", 20 users"), "{said}");
        let (fits, _) = fitted(1.0, 8);
        let said = fits.unwrap_err().to_string();
        assert!(said.starts_with("4 visits to each of ") && said.contains("2 min 0 s are left"), "{said}");
    }

    #[test]
    fn the_time_of_a_study_has_what_visits_take_beside_their_load_and_is_kept() {
        let (kept, users) = (quick(1), vec![1, 2, 4, 8]);
        let one = sweep(&kept, 1000.0, (0, users.clone()));
        let loads: Duration = one.times.iter().map(|times| times.whole()).sum();
        let whole = one.time(4);
        assert_eq!(whole, 4 * loads + one.times[0].whole() + 17 * one.beside);
        assert!(whole <= kept.budget && whole > kept.budget.mul_f64(0.99), "{whole:?}");
        // The visits of a published study are as long as those were, and its time is told with what they take beside.
        let as_published = sweep(&Setup { is_kept: false, ..kept.clone() }, 1000.0, (0, users));
        assert!(as_published.time(4) > kept.budget + 16 * one.beside, "{as_published:?}");
    }

    #[test]
    fn a_study_that_takes_longer_says_so_once() {
        let seconds = Duration::from_secs;
        let mut promise = Promise { whole: seconds(60), is_corrected: false };
        assert_eq!(promise.corrected(seconds(4), seconds(58)), None, "one visit says little");
        assert_eq!(promise.corrected(seconds(10), seconds(50)), None);
        assert_eq!(promise.corrected(seconds(30), seconds(40)), Some(seconds(90)));
        assert_eq!(promise.corrected(seconds(45), seconds(30)), None, "once");
    }
}
