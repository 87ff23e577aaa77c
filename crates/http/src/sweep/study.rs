//! A study from its preparation to its last visit.

use std::time::{Duration, Instant};

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::hosts::CPU_USER;
use kelvin_core::catalogue::load::{
    CAPACITY, MORE_WORKERS, NetworkSetup, RequestPattern, Resource, THROUGHPUT, UTILISATION,
};
use kelvin_core::units::number;
use kelvin_core::{Case, Event, Name, Round, RoundOutcome, RunHeader, RunStatus, numbered_cpus};
use kelvin_harness::EventSink;

use crate::sweep::capacity::{Capacities, ExpectedKnee, expected_knee};
use crate::sweep::error::{Error, Result};
use crate::sweep::load_step::{StepResult, StepSpec};
use crate::sweep::readings::{self, ReportedMetrics, StudyConditions, host_readings};
use crate::sweep::server_under_test::{
    CAPACITY_ROUND_TIME, MAX_STEP_TIME, ServerUnderTest, access_pattern, max_stream_time, start_servers,
};
use crate::sweep::setup::{StudySetup, StudyTarget, SweepLoad};
use crate::sweep::topology::{LoadTopology, PinnedThread};
use crate::sweep::user_counts::{PlannedStep, WORKER_TEST_STEPS, least_missed, step_order, user_grid};

/// Requests that are to be answered in a visit, at least.
const MIN_STEP_REQUESTS: f64 = 25.0;
/// Shortest time of a visit that counts, and of its warm-up.
const MIN_STEP_TIME: Duration = Duration::from_millis(1000);
const MIN_WARM_UP: Duration = Duration::from_millis(200);
/// How the names of congestion controls begin that pace what is sent.
const PACING_PREFIX: &str = "bbr";
/// What that means where the client is on the same host.
const PACED_ON_ONE_HOST: &str = ", which paces them by timers: on one host the server then does more of the work of an answer, and the client \
     less, than with cubic (--server-options '--congestion-control cubic')";
/// The note on a link that is no resource of a study.
const NO_LINK_RATE: &str = "the rate of the link is not known, neither its device's nor that of a shaper at the server: processors \
     limit what it carries, and it is never named as the limit";
/// Visits in a row that may fail.
const MAX_CONSECUTIVE_FAILURES: u32 = 3;

/// A study that is ready to be conducted. Dropped, its server ends.
#[derive(Debug)]
pub struct LoadStudy {
    sweeps: Vec<LoadSweep>,
    /// The visits, in their order.
    steps: Vec<PlannedStep>,
    /// What is reported of either host.
    reported_metrics: ReportedMetrics,
    /// What the reader should know.
    notes: Vec<String>,
    seed: u64,
    /// The CPU of the first thread of the load generator.
    cpu: u32,
    /// They end before their place does.
    servers: Vec<ServerUnderTest>,
    topology: LoadTopology,
    _pinned: PinnedThread,
    /// How long its preparation took: files, and what each resource gives alone.
    pub preparation_time: Duration,
}

/// One way of asking one server, by growing numbers of users.
#[derive(Debug)]
struct LoadSweep {
    /// Which server.
    server_index: usize,
    conditions: StudyConditions,
    load: SweepLoad,
    users: Vec<u64>,
    /// Time of a visit to each of them.
    times: Vec<StepTimes>,
    /// What a visit took more than that before the study: connections are made, both ends looked at, and the last answers awaited.
    step_overhead: Duration,
    /// What was measured in each round.
    rounds: Vec<Capacities>,
    /// The medians of these rounds, of which utilisation is a share.
    capacities: Capacities,
    /// The resources whose use is known.
    measured_resources: Vec<Resource>,
    expected: Option<ExpectedKnee>,
    /// Numbers of users that are left out for want of time.
    omitted_users: Vec<u64>,
    /// Workers of the server, where they are bound and it can be started with more.
    workers: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct StepTimes {
    warm_up: Duration,
    duration: Duration,
}

impl LoadStudy {
    /// Starts what is to be studied and measures what each resource gives alone. Before it makes files, which it does only where the
    /// server runs, it calls `before_files`.
    ///
    /// # Errors
    /// Errors of starting a server, or of measuring a capacity.
    pub fn prepare(setup: &StudySetup, before_files: &dyn Fn()) -> Result<Self> {
        let start = Instant::now();
        let _pinned = PinnedThread::pin(&setup.cpus)?;
        let (mut servers, topology) = match &setup.target {
            StudyTarget::Own(own) => start_servers(own, &setup.cpus, before_files)?,
            StudyTarget::Running(running) => (vec![ServerUnderTest::connect(running, &setup.cpus)?], None),
        };
        let max_time = max_stream_time(setup.max_duration);
        let stream_start = Instant::now();
        let streams = servers.iter_mut().map(|server| server.run_streams(&setup.loads, setup.seed, max_time));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let remaining_time = setup.max_duration.map(|limit| limit.saturating_sub(start.elapsed()));
        // What was asked for is the time of all that is measured; files are made before.
        let budget =
            if setup.budget_is_total { setup.budget.saturating_sub(stream_start.elapsed()) } else { setup.budget };
        let setup = StudySetup { budget: budget.max(setup.budget / 2), ..setup.clone() };
        let mut sweeps = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            for &load in &setup.loads {
                let pattern = server.stream_pattern(load.pattern);
                let streamed = streams[index].iter().find(|(streamed, _)| *streamed == pattern);
                let rounds = streamed.map_or(&[][..], |(_, rounds)| rounds);
                sweeps.push(LoadSweep::new((index, server), load, rounds, &setup));
            }
        }
        if let Some(remaining_time) = remaining_time {
            fit_sweeps(&mut sweeps, (&setup, remaining_time))?;
        }
        let users: Vec<Vec<u64>> = sweeps.iter().map(|sweep| sweep.users.clone()).collect();
        let tested: Vec<bool> = sweeps.iter().map(LoadSweep::tests_workers).collect();
        // The first round of the first pattern at each server.
        let first_rounds: Vec<&StepResult> = streams.iter().map(|streams| &streams[0].1[0]).collect();
        let mut server_stats = first_rounds.iter().filter_map(|round| round.server.end.server.as_ref());
        let congestion_control = server_stats.find_map(|server| server.congestion_control.as_deref());
        Ok(Self {
            steps: step_order(&users, &tested, setup.visits, setup.seed),
            reported_metrics: ReportedMetrics::from_step(first_rounds[0], servers[0].conditions.network),
            notes: [vec![cpu_note(&setup)], notes(&sweeps, congestion_control)].concat(),
            sweeps,
            seed: setup.seed,
            cpu: setup.cpus.first().copied().unwrap_or_default(),
            servers,
            topology,
            _pinned,
            preparation_time: start.elapsed(),
        })
    }

    /// All cases, each with the id of its probe, in the order of reports.
    pub fn cases(&self) -> Vec<(Name, Case)> {
        let (mut users, mut resources, mut hosts, mut worker_tests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for sweep in &self.sweeps {
            let (conditions, load) = (sweep.conditions, sweep.load);
            for &count in &sweep.users {
                users.push((THROUGHPUT.id, conditions.user_case(load, count)));
                for &resource in &sweep.measured_resources {
                    resources.push((UTILISATION.id, conditions.user_case(load, count).with_word(resource)));
                }
            }
            for host in self.reported_metrics.hosts() {
                let host_case = |&count: &u64| (CPU_USER.id, conditions.user_case(load, count).with_word(host));
                hosts.extend(sweep.users.iter().map(host_case));
            }
            if sweep.tests_workers() {
                worker_tests
                    .extend(sweep.users.last().map(|&count| (MORE_WORKERS.id, conditions.user_case(load, count))));
            }
        }
        let mut capacities = Vec::new();
        for sweep in self.one_per_pattern() {
            for (resource, _) in sweep.rounds.iter().flat_map(|round| &round.by_resource) {
                let case = (CAPACITY.id, sweep.conditions.case(sweep.load.pattern).with_word(*resource));
                if !capacities.contains(&case) {
                    capacities.push(case);
                }
            }
        }
        [users, resources, hosts, worker_tests, capacities].concat()
    }

    /// How long all visits take.
    pub fn steps_time(&self) -> Duration {
        self.steps.iter().map(|step| self.sweeps[step.sweep].step_time(step.users)).sum()
    }

    /// Visits to be made.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// What is expected of each sweep, from capacities alone, in words.
    pub fn expectations(&self) -> Vec<String> {
        self.sweeps.iter().map(LoadSweep::description).collect()
    }

    /// The numbers of users of each sweep that are left out for want of time, in words.
    pub fn omissions(&self) -> Vec<String> {
        self.sweeps.iter().filter_map(LoadSweep::omission_text).collect()
    }

    /// Reports what the capacities are, makes all visits, and reports what each brought.
    pub fn run(&mut self, outline: &RunHeader, sink: &mut dyn EventSink) -> RunStatus {
        let plan = outline.plan.iter().map(|measurement| self.reported_metrics.restrict(measurement.clone())).collect();
        sink.event(&Event::Started(Box::new(RunHeader { plan, ..outline.clone() })));
        for sweep in self.one_per_pattern() {
            for (index, round) in (0..).zip(&sweep.rounds) {
                for (resource, capacity) in &round.by_resource {
                    let case = sweep.conditions.case(sweep.load.pattern).with_word(*resource);
                    let outcome = RoundOutcome::Measured(readings::capacity_readings(capacity));
                    let seconds = CAPACITY_ROUND_TIME.as_secs_f64();
                    let round = Round { index, start_seconds: 0.0, seconds, timing: None, cpu: self.cpu, outcome };
                    sink.event(&Event::RoundFinished { probe: CAPACITY.id, case, round: Box::new(round) });
                }
            }
        }
        let start = Instant::now();
        let status = self.run_steps(start, sink);
        let (seconds, notes) = (start.elapsed().as_secs_f64(), self.notes.clone());
        sink.event(&Event::Finished { status: status.clone(), seconds, notes });
        status
    }

    /// A sweep of each server and pattern: the capacities of others with these are the same.
    fn one_per_pattern(&self) -> impl Iterator<Item = &LoadSweep> {
        let server_and_pattern = |sweep: &LoadSweep| (sweep.server_index, sweep.load.pattern);
        let is_first = move |(index, sweep): &(usize, &LoadSweep)| {
            !self.sweeps[..*index].iter().any(|previous| server_and_pattern(previous) == server_and_pattern(sweep))
        };
        self.sweeps.iter().enumerate().filter(is_first).map(|(_, sweep)| sweep)
    }

    fn run_steps(&mut self, start: Instant, sink: &mut dyn EventSink) -> RunStatus {
        let (mut failures, mut remaining, planned) = (0, self.steps_time(), self.steps.len());
        let mut estimate = TimeEstimate { total: remaining, is_corrected: false };
        for done in 0..planned {
            let step = self.steps[done];
            let sweep = &self.sweeps[step.sweep];
            let case = sweep.conditions.user_case(sweep.load, step.users);
            let probe = if step.has_more_workers { MORE_WORKERS.id } else { THROUGHPUT.id };
            let seconds_left = remaining.as_secs_f64();
            sink.event(&Event::RoundStarted { probe, case: case.clone(), done, planned, seconds_left });
            let start_seconds = start.elapsed().as_secs_f64();
            let (users, seed) = (step.users, self.seed.wrapping_add(done as u64));
            let StepTimes { warm_up, duration } = sweep.step_times(users);
            let (pattern, think) = (access_pattern(sweep.load.pattern), sweep.load.think);
            let spec = StepSpec { users, think, pattern, warm_up, duration, seed };
            let server = &mut self.servers[sweep.server_index];
            let result = match sweep.workers.filter(|_| step.has_more_workers) {
                Some(workers) => server.run_with_workers(2 * workers, &self.topology, spec),
                None => server.run_step(spec),
            };
            let seconds = start.elapsed().as_secs_f64() - start_seconds;
            remaining = remaining.saturating_sub(sweep.step_time(step.users));
            if let Some(total) = estimate.corrected_total(start.elapsed(), remaining) {
                sink.event(&Event::Extended { seconds: total.as_secs_f64() });
            }
            let mut last_failure = None;
            let outcomes = match result {
                Err(Error::Interrupted(signal)) => return RunStatus::Partial(format!("interrupted by {signal}")),
                Err(Error::ServerEnded(reason)) => return RunStatus::Partial(reason),
                Err(error) => {
                    // A failure of a server with more workers means nothing for the one that is studied.
                    failures += u32::from(!step.has_more_workers);
                    let failure = last_failure.insert(error.to_string()).clone();
                    vec![(probe, case, RoundOutcome::Failed(failure))]
                }
                Ok(result) => {
                    failures = 0;
                    self.step_outcomes(step, &result)
                }
            };
            for (probe, case, outcome) in outcomes {
                let round =
                    Round { index: step.repetition, start_seconds, seconds, timing: None, cpu: self.cpu, outcome };
                sink.event(&Event::RoundFinished { probe, case, round: Box::new(round) });
            }
            if let Some(error) = last_failure.filter(|_| failures >= MAX_CONSECUTIVE_FAILURES) {
                return RunStatus::Partial(format!("{MAX_CONSECUTIVE_FAILURES} visits in a row failed: {error}"));
            }
        }
        RunStatus::Complete
    }

    /// What a visit brought: each with its probe, at its case.
    fn step_outcomes(&self, step: PlannedStep, result: &StepResult) -> Vec<(Name, Case, RoundOutcome)> {
        let LoadSweep { conditions, load, capacities, .. } = &self.sweeps[step.sweep];
        let users = conditions.user_case(*load, step.users);
        if step.has_more_workers {
            let throughput = readings::reading(&MORE_WORKERS, result.throughput());
            return vec![(MORE_WORKERS.id, users, RoundOutcome::Measured(vec![throughput]))];
        }
        let resources = readings::resource_readings(result, capacities).into_iter();
        let resources = resources.map(|(word, readings)| (UTILISATION.id, users.clone().with_word(word), readings));
        let hosts = host_readings(result, conditions.network).into_iter();
        let hosts = hosts.map(|(word, readings)| (CPU_USER.id, users.clone().with_word(word), readings));
        let throughput = (THROUGHPUT.id, users.clone(), readings::user_readings(result));
        let readings = std::iter::once(throughput).chain(resources).chain(hosts);
        readings.map(|(probe, case, readings)| (probe, case, RoundOutcome::Measured(readings))).collect()
    }
}

/// How long all visits are expected to take.
#[derive(Debug)]
struct TimeEstimate {
    total: Duration,
    is_corrected: bool,
}

/// A study that takes this many times as long as expected reports it, once.
const OVERRUN_FACTOR: f64 = 1.05;
/// Share of the expected time after which it is known whether visits take longer.
const MIN_SPENT_SHARE: f64 = 0.1;

impl TimeEstimate {
    /// How long they take instead, with this time spent and the rest as expected, where that is to be reported: the first time.
    fn corrected_total(&mut self, elapsed: Duration, remaining: Duration) -> Option<Duration> {
        let planned_time = self.total.saturating_sub(remaining);
        let is_reliable =
            planned_time.as_secs_f64() >= MIN_SPENT_SHARE * self.total.as_secs_f64() && !planned_time.is_zero();
        let slowness = elapsed.as_secs_f64() / planned_time.as_secs_f64();
        if self.is_corrected || !is_reliable || slowness <= OVERRUN_FACTOR {
            return None;
        }
        self.is_corrected = true;
        Some(elapsed + remaining.mul_f64(slowness))
    }
}

impl StepTimes {
    fn total(self) -> Duration {
        self.warm_up + self.duration
    }
}

impl LoadSweep {
    fn new(
        (number, server): (usize, &ServerUnderTest),
        load: SweepLoad,
        streams: &[StepResult],
        setup: &StudySetup,
    ) -> Self {
        let conditions @ StudyConditions { cache, network, bytes, .. } = server.conditions;
        let is_from_disk = cache == CacheState::Uncached && load.pattern != RequestPattern::Fixed;
        let capacities_of_round = |(round, stream): (usize, &StepResult)| {
            let disk = server.disk.get(round).copied().filter(|_| is_from_disk);
            Capacities::from_measured(stream, disk, bytes as f64, network)
        };
        let rounds: Vec<Capacities> = streams.iter().enumerate().map(capacities_of_round).collect();
        let capacities = Capacities::median(&rounds);
        let expected = expected_knee(&capacities, load.think.as_secs_f64());
        let overheads: Vec<f64> = streams.iter().map(|stream| stream.overhead.as_secs_f64()).collect();
        let step_overhead = Duration::from_secs_f64(kelvin_stats::median(&overheads));
        let round = setup.budget / setup.visits.max(1) / setup.sweeps().max(1) as u32;
        let max_steps = (round.as_secs_f64() / (MIN_WARM_UP + MIN_STEP_TIME + step_overhead).as_secs_f64()) as usize;
        let knee = expected.map_or(1, |expected| expected.knee);
        let users = setup.users.clone().unwrap_or_else(|| user_grid(knee, max_steps));
        let measurements = readings::resource_readings(&streams[0], &capacities);
        let bound = capacities.get(Resource::Workers).map(|capacity| capacity.servers.round() as u64);
        let mut sweep = Self {
            server_index: number,
            conditions,
            load,
            users,
            times: Vec::new(),
            step_overhead,
            rounds,
            capacities,
            measured_resources: measurements.into_iter().map(|(resource, _)| resource).collect(),
            expected,
            omitted_users: Vec::new(),
            workers: bound.filter(|&bound| server.can_have_workers(2 * bound)),
        };
        sweep.plan_times(setup);
        sweep
    }

    /// Shares the time among its numbers of users.
    fn plan_times(&mut self, setup: &StudySetup) {
        let tests = if self.tests_workers() { WORKER_TEST_STEPS as usize } else { 0 };
        let visits = setup.sweeps() * (self.users.len() * setup.visits as usize + tests) + 1;
        let share = setup.budget / visits as u32;
        let overhead = if setup.budget_is_total { self.step_overhead } else { Duration::ZERO };
        let share = setup.duration.unwrap_or(share.saturating_sub(overhead));
        let times_of_users = |&users: &u64| {
            let times = step_times(self.load, self.expected, users, share);
            StepTimes { duration: setup.duration.unwrap_or(times.duration), ..times }
        };
        self.times = self.users.iter().map(times_of_users).collect();
    }

    /// How long all visits take.
    fn steps_time(&self, visits: u32) -> Duration {
        let step_time = |times: &StepTimes| times.total() + self.step_overhead;
        let pass: Duration = self.times.iter().map(step_time).sum();
        let shortest = self.times.first().map_or(Duration::ZERO, step_time);
        let longest = self.times.last().map_or(Duration::ZERO, step_time);
        let tests = if self.tests_workers() { WORKER_TEST_STEPS * longest } else { Duration::ZERO };
        visits * pass + shortest + tests
    }

    /// Whether a server with twice the workers is to show whether their number limits: there are users for them.
    fn tests_workers(&self) -> bool {
        self.workers.is_some_and(|workers| self.users.last().is_some_and(|&users| users > workers))
    }

    /// Leaves out the number of users that it misses least; returns whether there was one.
    fn omit_least_missed(&mut self) -> bool {
        let knee = self.expected.map_or(1, |expected| expected.knee);
        let Some(index) = least_missed(&self.users, knee) else { return false };
        self.times.remove(index);
        self.omitted_users.push(self.users.remove(index));
        self.omitted_users.sort_unstable();
        true
    }

    fn step_times(&self, users: u64) -> StepTimes {
        let index = self.users.iter().position(|&count| count == users).unwrap_or_default();
        self.times[index]
    }

    /// How long a visit to this many users takes.
    fn step_time(&self, users: u64) -> Duration {
        self.step_times(users).total() + self.step_overhead
    }

    fn omission_text(&self) -> Option<String> {
        let numbers: Vec<String> = self.omitted_users.iter().map(u64::to_string).collect();
        (!numbers.is_empty()).then(|| format!("{}: {} users", self.label(), numbers.join(", ")))
    }

    fn label(&self) -> String {
        let SweepLoad { pattern, think } = self.load;
        format!("{} files, {}, think time {} ms", pattern.name(), self.conditions.cache.name(), think.as_millis())
    }

    fn description(&self) -> String {
        let label = self.label();
        match self.expected {
            Some(ExpectedKnee { limit, capacity, knee }) => {
                let users = if knee == 1 { "one user".to_owned() } else { format!("{knee} users") };
                let (capacity, limit) = (number(capacity), limit.name());
                format!(
                    "{label}: by capacities alone at most {capacity} requests/s, limited by {limit}, knee at {users}"
                )
            }
            None => format!("{label}: no capacity is known"),
        }
    }
}

/// The time of a visit: its share of the budget, and at least as much as the server needs for some requests.
fn step_times(load: SweepLoad, expected: Option<ExpectedKnee>, users: u64, share: Duration) -> StepTimes {
    let think = load.think.as_secs_f64();
    let (throughput, cycle) = match expected {
        // Users do not wait for each other, or the limit is reached.
        Some(expected) => {
            let throughput = expected.capacity.min(users as f64 * expected.capacity / expected.knee.max(1) as f64);
            (throughput, users as f64 / throughput)
        }
        None => (f64::INFINITY, think),
    };
    let clamped = |seconds: f64, min_time: Duration| {
        Duration::from_secs_f64(seconds.min(MAX_STEP_TIME.as_secs_f64())).max(min_time)
    };
    let warm_up = clamped(1.5 * cycle, MIN_WARM_UP.max(share / 5));
    let duration =
        clamped((MIN_STEP_REQUESTS / throughput).max(2.0 * cycle), MIN_STEP_TIME.max(share.saturating_sub(warm_up)));
    StepTimes { warm_up, duration }
}

/// Leaves out numbers of users, those of the longest sweep first, until all visits fit into a time.
fn fit_sweeps(sweeps: &mut [LoadSweep], (setup, available): (&StudySetup, Duration)) -> Result<()> {
    let time = |sweeps: &[LoadSweep]| -> Duration { sweeps.iter().map(|sweep| sweep.steps_time(setup.visits)).sum() };
    while time(sweeps) > available {
        let mut sweeps_by_time: Vec<&mut LoadSweep> = sweeps.iter_mut().collect();
        sweeps_by_time.sort_by_key(|sweep| std::cmp::Reverse(sweep.steps_time(setup.visits)));
        if !sweeps_by_time.into_iter().any(LoadSweep::omit_least_missed) {
            let numbers = sweeps.iter().map(|sweep| sweep.users.len()).sum();
            return Err(Error::TooLong { numbers, visits: setup.visits, needed: time(sweeps), available });
        }
    }
    Ok(())
}

/// Which CPUs load generator and server had.
fn cpu_note(setup: &StudySetup) -> String {
    let cpus = numbered_cpus(&setup.cpus);
    let generator = match setup.cpus.len() {
        1 => format!("one thread, on {cpus}"),
        threads => format!("a thread for each user, up to {threads}, on {cpus}"),
    };
    let server = match &setup.target {
        StudyTarget::Own(own) => format!("; the server had {}", numbered_cpus(&own.cpus)),
        StudyTarget::Running(_) => String::new(),
    };
    format!("the load generator had {generator}{server}")
}

/// What the reader should know.
fn notes(sweeps: &[LoadSweep], congestion_control: Option<&str>) -> Vec<String> {
    let mut notes = Vec::new();
    let is_cached = |sweep: &LoadSweep| sweep.conditions.cache == CacheState::Cached;
    match (sweeps.iter().all(is_cached), sweeps.iter().any(is_cached)) {
        (true, _) => {
            notes.push("the files are in the page cache: this study measures nothing of the server's disk".into())
        }
        (_, true) => {
            notes.push("where the files are in the page cache, nothing is measured of the server's disk".into())
        }
        _ => {}
    }
    let is_between = |network| sweeps.iter().all(|sweep| sweep.conditions.network == network);
    if is_between(NetworkSetup::Loopback) {
        notes.push("client and server are on one host: there is no link between them, only memory".into());
    }
    let omissions: Vec<String> = sweeps.iter().filter_map(LoadSweep::omission_text).collect();
    if !omissions.is_empty() {
        notes.push(format!("left out for lack of time: {}", omissions.join("; ")));
    }
    let has_link = |sweep: &LoadSweep| sweep.capacities.get(Resource::Link).is_some();
    if !is_between(NetworkSetup::Loopback) && !sweeps.iter().all(has_link) {
        notes.push(NO_LINK_RATE.into());
    }
    if let Some(name) = congestion_control {
        // On one host an acknowledgement has the kernel send on at once, in the client's time, unless a timer of the server decides when.
        let is_paced = !is_between(NetworkSetup::Hosts) && name.starts_with(PACING_PREFIX);
        notes.push(format!("the server's connections send by {name}{}", if is_paced { PACED_ON_ONE_HOST } else { "" }));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::PathBuf;

    use super::*;
    use crate::sweep::file_set::FileSetSpec;
    use crate::sweep::setup::{ExistingServer, OwnServer};

    /// A quick study by this many sweeps, of at most two minutes.
    fn quick(sweeps: usize) -> StudySetup {
        let load = SweepLoad { pattern: RequestPattern::Random, think: Duration::ZERO };
        let running = ExistingServer {
            url: String::new(),
            paths: Vec::new(),
            stats_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            token: String::new(),
            files: None,
        };
        StudySetup {
            target: StudyTarget::Running(running),
            loads: vec![load; sweeps],
            users: None,
            visits: 4,
            budget: Duration::from_secs(60),
            max_duration: Some(AVAILABLE_TIME),
            budget_is_total: true,
            duration: None,
            cpus: vec![0],
            seed: 1,
        }
    }

    /// A sweep of a server that answers this many requests a second.
    fn sweep(setup: &StudySetup, capacity: f64, (site, users): (usize, Vec<u64>)) -> LoadSweep {
        let mut sweep = LoadSweep {
            server_index: site,
            conditions: StudyConditions {
                cache: CacheState::Cached,
                network: NetworkSetup::Loopback,
                files: 1,
                bytes: 1,
            },
            load: setup.loads[0],
            users,
            times: Vec::new(),
            step_overhead: Duration::from_millis(50),
            rounds: Vec::new(),
            capacities: Capacities::default(),
            measured_resources: Vec::new(),
            expected: Some(ExpectedKnee { limit: Resource::Link, capacity, knee: 1 }),
            omitted_users: Vec::new(),
            workers: None,
        };
        sweep.plan_times(setup);
        sweep
    }

    /// What fits of a quick study.
    fn fit_quick_study(capacity: f64, sweeps: usize) -> (Result<()>, Vec<LoadSweep>) {
        let setup = quick(sweeps);
        let mut load_sweeps: Vec<LoadSweep> =
            (0..sweeps).map(|site| sweep(&setup, capacity, (site, user_grid(1, 12)))).collect();
        (fit_sweeps(&mut load_sweeps, (&setup, AVAILABLE_TIME)), load_sweeps)
    }

    #[test]
    fn notes_have_the_cpus_of_both_ends() {
        let of_cpus = |cpus: &[u32]| cpu_note(&StudySetup { cpus: cpus.to_vec(), ..quick(1) });
        assert_eq!(of_cpus(&[1]), "the load generator had one thread, on CPU 1");
        let expected = "the load generator had a thread for each user, up to 4, on CPUs 4-7";
        assert_eq!(of_cpus(&[7, 6, 5, 4]), expected);
        let own = OwnServer {
            program: String::new(),
            arguments: Vec::new(),
            directory: PathBuf::new(),
            files: FileSetSpec { count: 1, bytes: 1, limit: 1 },
            caches: vec![CacheState::Cached],
            memory: None,
            groups: Vec::new(),
            cpus: vec![0],
            network: NetworkSetup::Loopback,
            link: None,
        };
        let setup = StudySetup { target: StudyTarget::Own(own), cpus: vec![1], ..quick(1) };
        assert_eq!(cpu_note(&setup), "the load generator had one thread, on CPU 1; the server had CPU 0");
    }

    const AVAILABLE_TIME: Duration = Duration::from_secs(120);

    #[test]
    fn quick_study_drops_user_counts_to_fit() {
        let (result, fast_sweeps) = fit_quick_study(1000.0, 1);
        assert!(result.is_ok() && fast_sweeps[0].omitted_users.is_empty());
        let (result, slow_sweeps) = fit_quick_study(6.0, 1);
        let [sweep] = &slow_sweeps[..] else { panic!("{slow_sweeps:?}") };
        assert!(
            result.is_ok() && sweep.steps_time(4) <= AVAILABLE_TIME && sweep.steps_time(4) > AVAILABLE_TIME / 2,
            "{sweep:?}"
        );
        assert_eq!((sweep.users[0], sweep.omitted_users.last()), (1, Some(&20)), "{sweep:?}");
        assert!(sweep.users.len() >= 4 && sweep.users.len() == sweep.times.len(), "{sweep:?}");
        let text = sweep.omission_text().unwrap();
        assert!(text.starts_with("random files, cached, think time 0 ms: ") && text.ends_with(", 20 users"), "{text}");
        let (result, _) = fit_quick_study(1.0, 8);
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("4 visits to each of ") && error.contains("2 min 0 s are left"), "{error}");
    }

    #[test]
    fn study_time_includes_step_overhead() {
        let (setup, users) = (quick(1), vec![1, 2, 4, 8]);
        let load_sweep = sweep(&setup, 1000.0, (0, users.clone()));
        let loads: Duration = load_sweep.times.iter().map(|times| times.total()).sum();
        let total_time = load_sweep.steps_time(4);
        assert_eq!(total_time, 4 * loads + load_sweep.times[0].total() + 17 * load_sweep.step_overhead);
        assert!(total_time <= setup.budget && total_time > setup.budget.mul_f64(0.99), "{total_time:?}");
        // The visits of a published study are as long as those were, and its time includes their overhead.
        let published = sweep(&StudySetup { budget_is_total: false, ..setup.clone() }, 1000.0, (0, users));
        assert!(published.steps_time(4) > setup.budget + 16 * load_sweep.step_overhead, "{published:?}");
    }

    #[test]
    fn overrun_is_reported_once() {
        let seconds = Duration::from_secs;
        let mut estimate = TimeEstimate { total: seconds(60), is_corrected: false };
        assert_eq!(estimate.corrected_total(seconds(4), seconds(58)), None, "one visit says little");
        assert_eq!(estimate.corrected_total(seconds(10), seconds(50)), None);
        assert_eq!(estimate.corrected_total(seconds(30), seconds(40)), Some(seconds(90)));
        assert_eq!(estimate.corrected_total(seconds(45), seconds(30)), None, "once");
    }
}
