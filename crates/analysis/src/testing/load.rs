//! Simulated studies of a server under load, whose limit is known by construction: a closed network of first-come, first-served
//! stations, event by event, seen by measurements with errors.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU32;

use kelvin_core::catalogue::file::CacheState;
pub use kelvin_core::catalogue::load::RequestPattern;
use kelvin_core::catalogue::load::hosts::{
    CONTEXT_SWITCHES, CPU_STEAL, CPU_SYSTEM, CPU_THROTTLED, CPU_USER, DISK_READ_SIZE, DISK_READS, HOST_METRICS,
    LISTEN_OVERFLOWS, LoadHost, PRESSURE_IO, RETRANSMITTED_SEGMENTS, THREADS,
};
use kelvin_core::catalogue::load::{
    BLOCKED, CAPACITY, CAPACITY_BYTES, CAPACITY_METRICS, DISK_BYTE_RATE, ERRORS, FILE_BYTES, FILES, IN_FLIGHT,
    LATENESS, MORE_WORKERS, MORE_WORKERS_METRICS, NETWORK_IN_FLIGHT, NetworkSetup, RATE, RESOURCE_METRICS, RESPONSE,
    RESPONSE_P50, RESPONSE_P95, RESPONSE_P99, Resource, SENT_BYTE_RATE, SERVER_MEMORY, SERVERS, STALLED, STALLS,
    THINK_TIME, THROUGHPUT, USER_METRICS, USERS, UTILISATION, WRITTEN_BYTE_RATE,
};
use kelvin_core::{
    Case, Claim, LoadClaim, LoadLimit, LoadVerdict, Measurement, Metric, MetricReadings, Name, PlannedMeasurement,
    Readings, Run, UnknownLimit, UnsampledLimit,
};
use kelvin_stats::{ClosedNetwork, Random};

/// Bytes of a file.
const FILE_SIZE: f64 = 2e6;

/// A station of a simulated server.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedStation {
    /// As which resource it is watched; `None` if nobody watches it.
    pub resource: Option<Resource>,
    /// Mean seconds of service of a request.
    pub demand: f64,
    /// Servers.
    pub servers: usize,
}

/// A study to simulate.
#[derive(Clone, Debug)]
pub struct SimulatedStudy {
    /// The stations, in the order in which a request passes them.
    pub stations: Vec<SimulatedStation>,
    /// Requests that the server works on at once, if it bounds them.
    pub workers: Option<usize>,
    /// Whether the same server with twice the workers was visited as well.
    pub tries_more_workers: bool,
    /// Mean milliseconds of think time.
    pub think: u64,
    /// Which file a user asks for next.
    pub pattern: RequestPattern,
    /// Whether the files are in memory: if not, the disk reads 2.4 bytes for each byte served, of a fixed file none.
    pub cache: CacheState,
    /// Numbers of users.
    pub users: Vec<u64>,
    /// Visits to each.
    pub visits: usize,
    /// Requests of each visit that count.
    pub requests: usize,
    /// Error of each figure of a visit, and of each capacity of the study, as a share.
    pub error: f64,
    /// Bytes that the server's memory grows by a request.
    pub leak: f64,
    /// What the requests in flight are counted too many by, as a factor.
    pub in_flight_factor: f64,
    /// Share by which all services take longer at the end of the study than at its start.
    pub slowdown: f64,
    /// Requests that fail for each that is answered.
    pub failures_per_answer: f64,
    /// Share of the time of requests in flight in which answers are up to the network.
    pub network_share: f64,
    /// Bytes that the server writes with each request.
    pub written_bytes: f64,
    /// Threads in uninterruptible sleep, as a share of the requests in flight; none is reported where it is negative.
    pub blocked_share: f64,
    /// Share of the time in stalls, and how many there are a second.
    pub stalled_share: f64,
    pub stalls: f64,
    /// What each visit counts on a host.
    pub hosts: Vec<(LoadHost, &'static Metric, f64)>,
    /// Seed.
    pub seed: u64,
}

/// A host on which nothing hinders.
const IDLE_HOST: [(LoadHost, &Metric, f64); 12] = [
    (LoadHost::Server, &CPU_USER, 0.03),
    (LoadHost::Server, &CPU_SYSTEM, 0.12),
    (LoadHost::Server, &CPU_STEAL, 0.001),
    (LoadHost::Server, &CPU_THROTTLED, 0.0),
    (LoadHost::Server, &PRESSURE_IO, 0.21),
    (LoadHost::Server, &DISK_READS, 53.0),
    (LoadHost::Server, &DISK_READ_SIZE, 524_288.0),
    (LoadHost::Server, &RETRANSMITTED_SEGMENTS, 2e-4),
    (LoadHost::Server, &LISTEN_OVERFLOWS, 0.0),
    (LoadHost::Server, &THREADS, 4.0),
    (LoadHost::Client, &CONTEXT_SWITCHES, 1250.0),
    (LoadHost::Client, &THREADS, 3.0),
];

/// The numbers of users of a sweep up to this many.
pub fn user_grid(max_users: u64) -> Vec<u64> {
    let mut users = vec![1, 2, 3, 4, 6, 8, 10];
    while users[users.len() - 1] < max_users {
        let last = users[users.len() - 1];
        users.push(last + (last / 5).max(2));
    }
    users
}

/// A visit, without errors.
struct SimulatedStep {
    seconds: f64,
    throughput: f64,
    responses: Vec<f64>,
    in_flight: f64,
    busy: Vec<f64>,
    workers_busy: f64,
}

/// Time as an integer, in picoseconds, so that events have an order.
type Picoseconds = u64;
const PICOSECONDS_PER_SECOND: f64 = 1e12;

/// A closed network in the course of its simulation.
struct NetworkSimulation<'s> {
    study: &'s SimulatedStudy,
    random: Random,
    now: Picoseconds,
    /// Ends of think times (stage 0) and of services (stage 1 and up), by time.
    events: BinaryHeap<Reverse<(Picoseconds, usize, usize)>>,
    queues: Vec<VecDeque<usize>>,
    serving: Vec<usize>,
    waiting: VecDeque<usize>,
    busy_workers: usize,
    sent_times: Vec<Picoseconds>,
    tally: TimeIntegrals,
}

/// Integrals over time since counting began.
#[derive(Default)]
struct TimeIntegrals {
    busy: Vec<f64>,
    workers: f64,
    in_flight: f64,
    responses: Vec<f64>,
}

impl<'s> NetworkSimulation<'s> {
    fn new(study: &'s SimulatedStudy, users: usize, seed: u64) -> Self {
        let stations = study.stations.len();
        let mut network = Self {
            study,
            random: Random::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            queues: vec![VecDeque::new(); stations],
            serving: vec![0; stations],
            waiting: VecDeque::new(),
            busy_workers: 0,
            sent_times: vec![0; users],
            tally: TimeIntegrals { busy: vec![0.0; stations], ..TimeIntegrals::default() },
        };
        (0..users).for_each(|user| network.think(user));
        network
    }

    fn exponential_delay(&mut self, mean: f64) -> Picoseconds {
        self.now + (-(1.0 - self.random.uniform()).ln() * mean * PICOSECONDS_PER_SECOND) as Picoseconds
    }

    fn think(&mut self, user: usize) {
        let until = self.exponential_delay(self.study.think as f64 / 1e3);
        self.events.push(Reverse((until, user, 0)));
    }

    /// The next event, after which time has passed for all.
    fn step(&mut self) {
        let Some(Reverse((time, user, stage))) = self.events.pop() else { return };
        let elapsed = (time - self.now) as f64 / PICOSECONDS_PER_SECOND;
        for (busy, &serving) in self.tally.busy.iter_mut().zip(&self.serving) {
            *busy += elapsed * serving as f64;
        }
        let at_stations = self.serving.iter().sum::<usize>() + self.queues.iter().map(VecDeque::len).sum::<usize>();
        self.tally.in_flight += elapsed * (at_stations + self.waiting.len()) as f64;
        self.tally.workers += elapsed * self.busy_workers as f64;
        self.now = time;
        match stage {
            0 => self.request(user),
            stage => self.finish_service(user, stage - 1),
        }
    }

    fn request(&mut self, user: usize) {
        self.sent_times[user] = self.now;
        self.waiting.push_back(user);
        self.admit();
    }

    fn admit(&mut self) {
        while self.study.workers.is_none_or(|workers| self.busy_workers < workers) {
            let Some(user) = self.waiting.pop_front() else { return };
            self.busy_workers += 1;
            self.arrive(user, 0);
        }
    }

    fn arrive(&mut self, user: usize, station: usize) {
        self.queues[station].push_back(user);
        self.serve(station);
    }

    fn serve(&mut self, station: usize) {
        if self.serving[station] == self.study.stations[station].servers {
            return;
        }
        let Some(user) = self.queues[station].pop_front() else { return };
        self.serving[station] += 1;
        let until = self.exponential_delay(self.study.stations[station].demand);
        self.events.push(Reverse((until, user, station + 1)));
    }

    fn finish_service(&mut self, user: usize, station: usize) {
        self.serving[station] -= 1;
        self.serve(station);
        if station + 1 < self.study.stations.len() {
            return self.arrive(user, station + 1);
        }
        self.busy_workers -= 1;
        self.tally.responses.push((self.now - self.sent_times[user]) as f64 / PICOSECONDS_PER_SECOND);
        self.admit();
        self.think(user);
    }

    fn run(&mut self, requests: usize) {
        while self.tally.responses.len() < requests {
            self.step();
        }
    }

    fn observe(mut self) -> SimulatedStep {
        // As many requests again are left out: queues have filled by then.
        self.run(self.study.requests / 2);
        let start = self.now;
        self.tally = TimeIntegrals { busy: vec![0.0; self.study.stations.len()], ..TimeIntegrals::default() };
        self.run(self.study.requests);
        let seconds = (self.now - start) as f64 / PICOSECONDS_PER_SECOND;
        let servers = self.study.stations.iter().map(|station| station.servers as f64);
        SimulatedStep {
            seconds,
            throughput: self.tally.responses.len() as f64 / seconds,
            in_flight: self.tally.in_flight / seconds,
            busy: self.tally.busy.iter().zip(servers).map(|(busy, servers)| busy / seconds / servers).collect(),
            workers_busy: self.tally.workers / seconds / self.study.workers.unwrap_or(1) as f64,
            responses: self.tally.responses,
        }
    }
}

impl SimulatedStudy {
    /// A server whose disk, CPU, link and generator take these milliseconds for a request, each a single one.
    pub fn with_demands(milliseconds: [f64; 4]) -> Self {
        let station = |(&resource, milliseconds): (&Resource, f64)| SimulatedStation {
            resource: Some(resource),
            demand: milliseconds / 1e3,
            servers: 1,
        };
        Self {
            stations: WATCHED_RESOURCES.iter().zip(milliseconds).map(station).collect(),
            workers: None,
            tries_more_workers: false,
            think: 0,
            pattern: RequestPattern::Random,
            cache: CacheState::Uncached,
            users: user_grid(20),
            visits: 4,
            requests: 1000,
            error: 0.005,
            leak: 0.0,
            in_flight_factor: 1.0,
            slowdown: 0.0,
            failures_per_answer: 0.0,
            network_share: 0.0,
            written_bytes: 0.0,
            blocked_share: -1.0,
            stalled_share: 0.0,
            stalls: 0.0,
            hosts: IDLE_HOST.to_vec(),
            seed: 7,
        }
    }

    /// It with a figure of the server's host as planted.
    pub fn with_host_figure(mut self, metric: &'static Metric, value: f64) -> Self {
        self.hosts.retain(|(host, planted, _)| *host != LoadHost::Server || planted.id != metric.id);
        self.hosts.push((LoadHost::Server, metric, value));
        self
    }

    /// It with a quota that stops the server in this share of its periods, and the client in none, on hosts from which a hypervisor
    /// takes some time of the server's.
    pub fn with_quota(self, share: f64) -> Self {
        let mut quota = self.with_host_figure(&CPU_THROTTLED, share).with_host_figure(&CPU_STEAL, 0.1);
        quota.hosts.extend([&CPU_THROTTLED, &CPU_STEAL].map(|metric| (LoadHost::Client, metric, 0.0)));
        quota
    }

    /// The published server: the link takes nearly four times as long as the disk.
    pub fn published_server() -> Self {
        Self::with_demands([46.0, 10.0, 173.0, 5.0])
    }

    /// Bytes that the disk reads for each byte served.
    fn amplification(&self) -> f64 {
        let is_from_disk = self.pattern != RequestPattern::Fixed && self.cache == CacheState::Uncached;
        if is_from_disk { 2.4 } else { 0.0 }
    }

    /// A study of these stations, as a run has it.
    pub fn run(&self) -> Run {
        let metrics = [USER_METRICS, MORE_WORKERS_METRICS, RESOURCE_METRICS, HOST_METRICS, CAPACITY_METRICS].concat();
        let mut run = super::empty_run(&metrics.into_iter().copied().collect::<Vec<Metric>>());
        let mut random = Random::new(self.seed);
        // A capacity that was measured too high makes each use of it too low. It is measured longer than a visit.
        let capacity_errors: Vec<f64> =
            self.stations.iter().map(|_| 1.0 + 0.5 * self.error * random.normal()).collect();
        self.add_capacities(&mut run, &capacity_errors);
        let mut order: Vec<(u32, u64)> =
            (0..self.visits as u32).flat_map(|visit| self.users.iter().map(move |&users| (visit, users))).collect();
        random.shuffle(&mut order);
        if let (Some(workers), true) = (self.workers, self.tries_more_workers) {
            let doubled = Self { workers: Some(2 * workers), ..self.clone() };
            let users = self.users[self.users.len() - 1];
            for visit in 0..2 {
                let step = NetworkSimulation::new(&doubled, users as usize, random.next_u64()).observe();
                add_round(
                    &mut run,
                    self.fixed_case().with_number(USERS, users),
                    (visit, 0.0),
                    vec![(&MORE_WORKERS, step.throughput)],
                );
            }
        }
        // A return to the fewest users, as a study makes it.
        order.extend(self.users.first().map(|&fewest| (self.visits as u32, fewest)));
        let (mut elapsed, mut served_requests) = (0.0, 0.0);
        let visits = order.len() as f64;
        for (place, (visit, users)) in order.into_iter().enumerate() {
            let slowed = self.slowed_down(place as f64 / visits);
            let step = NetworkSimulation::new(&slowed, users as usize, random.next_u64()).observe();
            served_requests += step.responses.len() as f64;
            let mut figures = StepFigures {
                study: self,
                step: &step,
                served_requests,
                capacity_errors: &capacity_errors,
                random: &mut random,
            };
            figures.add(&mut run, users, (visit, elapsed));
            elapsed += step.seconds;
        }
        run
    }

    /// It after this share of its visits.
    fn slowed_down(&self, share: f64) -> Self {
        let mut study = self.clone();
        study.stations.iter_mut().for_each(|station| station.demand *= 1.0 + self.slowdown * share);
        study
    }

    fn fixed_case(&self) -> Case {
        let case = Case::new().with_word(self.pattern).with_word(self.cache).with_word(NetworkSetup::Namespaces);
        case.with_number(THINK_TIME, self.think).with_number(FILES, 10_000).with_number(FILE_BYTES, FILE_SIZE as u64)
    }

    fn add_capacities(&self, run: &mut Run, capacity_errors: &[f64]) {
        let fixed = self.fixed_case().iter().filter(|(name, _)| *name != THINK_TIME.name).collect::<Case>();
        for (station, error) in self.stations.iter().zip(capacity_errors) {
            let Some(resource) = station.resource else { continue };
            let capacity = station.servers as f64 / station.demand * error;
            let bytes = matches!(resource, Resource::Disk | Resource::Link).then_some(capacity * FILE_SIZE);
            let figures =
                [(&CAPACITY, Some(capacity)), (&CAPACITY_BYTES, bytes), (&SERVERS, Some(station.servers as f64))];
            let figures = figures.into_iter().filter_map(|(metric, value)| Some((metric, value?)));
            add_round(run, fixed.clone().with_word(resource), (0, 0.0), figures.collect());
        }
        if let Some(workers) = self.workers {
            add_round(run, fixed.with_word(Resource::Workers), (0, 0.0), vec![(&SERVERS, workers as f64)]);
        }
    }
}

/// The figures of a visit, as they are measured.
struct StepFigures<'f> {
    study: &'f SimulatedStudy,
    step: &'f SimulatedStep,
    served_requests: f64,
    capacity_errors: &'f [f64],
    random: &'f mut Random,
}

impl StepFigures<'_> {
    fn add(&mut self, run: &mut Run, users: u64, round: (u32, f64)) {
        let case = self.study.fixed_case().with_number(USERS, users);
        let mut responses = self.step.responses.clone();
        responses.sort_by(f64::total_cmp);
        let quantile = |share: f64| responses[((responses.len() - 1) as f64 * share) as usize] * 1e9;
        let throughput = self.step.throughput;
        let blocked =
            Some((&BLOCKED, self.study.blocked_share * self.step.in_flight)).filter(|(_, blocked)| *blocked >= 0.0);
        let figures = vec![
            (&THROUGHPUT, throughput),
            (&RATE, throughput * FILE_SIZE),
            (&SENT_BYTE_RATE, self.with_error(throughput * FILE_SIZE)),
            (&DISK_BYTE_RATE, self.with_error(self.study.amplification() * throughput * FILE_SIZE)),
            (&RESPONSE, responses.iter().sum::<f64>() / responses.len() as f64 * 1e9),
            (&RESPONSE_P50, quantile(0.5)),
            (&RESPONSE_P95, quantile(0.95)),
            (&RESPONSE_P99, quantile(0.99)),
            (&IN_FLIGHT, self.with_error(self.step.in_flight * self.study.in_flight_factor)),
            (&NETWORK_IN_FLIGHT, self.study.network_share),
            (&WRITTEN_BYTE_RATE, self.study.written_bytes * throughput),
            (&STALLED, self.study.stalled_share),
            (&STALLS, self.study.stalls),
            (&LATENESS, 1e5),
            (&ERRORS, self.study.failures_per_answer * throughput),
            (&SERVER_MEMORY, self.with_error(64e6 / 100.0) * 0.01 + 64e6 + self.study.leak * self.served_requests),
        ];
        add_round(run, case.clone(), round, figures.into_iter().chain(blocked).collect());
        let workers = self.study.workers.map(|_| (Resource::Workers, self.step.workers_busy));
        let watched_stations = self.study.stations.iter().zip(&self.step.busy).zip(self.capacity_errors);
        let uses = watched_stations.filter_map(|((station, busy), error)| Some((station.resource?, busy / error)));
        for (resource, share) in uses.chain(workers).collect::<Vec<_>>() {
            let share = self.with_error(share);
            add_round(run, case.clone().with_word(resource), round, vec![(&UTILISATION, share)]);
        }
        for &host in LoadHost::ALL {
            let host_figures = self.study.hosts.iter().filter(|(owner, ..)| *owner == host);
            let figures: Vec<_> = host_figures.map(|(_, metric, value)| (*metric, *value)).collect();
            if !figures.is_empty() {
                add_round(run, case.clone().with_word(host), round, figures);
            }
        }
    }

    /// A figure with its error.
    fn with_error(&mut self, value: f64) -> f64 {
        value * (1.0 + self.study.error * self.random.normal())
    }
}

/// Several studies as one run has them: what they measured alike, as capacities, once.
pub fn combined_run(studies: &[SimulatedStudy]) -> Run {
    let mut runs = studies.iter().map(SimulatedStudy::run);
    let Some(mut run) = runs.next() else { panic!("no study is given") };
    for measurement in runs.flat_map(|other_run| other_run.measurements) {
        if run.measurements.iter().all(|existing| existing.planned.case != measurement.planned.case) {
            run.header.plan.push(measurement.planned.clone());
            run.measurements.push(measurement);
        }
    }
    run
}

/// Adds a round of these figures at a case.
fn add_round(run: &mut Run, case: Case, (index, start): (u32, f64), figures: Vec<(&'static Metric, f64)>) {
    let readings: Vec<MetricReadings> =
        figures.iter().map(|(metric, value)| super::reading(metric, Readings::Scalars(vec![*value]))).collect();
    let mut round = super::round(index as usize, readings);
    round.start_seconds = start;
    let first = figures[0].0.id;
    let is_same = |measurement: &Measurement| measurement.planned.case == case && measurement.planned.probe == first;
    let position = run.measurements.iter().position(is_same);
    let place = position.unwrap_or_else(|| {
        let metrics: Vec<Name> = figures.iter().map(|(metric, _)| metric.id).collect();
        let planned = PlannedMeasurement { probe: metrics[0], metrics, case, only_input: false };
        run.header.plan.push(planned.clone());
        run.measurements.push(Measurement { planned, rounds: Vec::new(), skipped: None });
        run.measurements.len() - 1
    });
    run.measurements[place].rounds.push(round);
}

/// A simulated study with what was planted in it.
#[derive(Clone, Debug)]
pub struct PlantedStudy {
    /// The study.
    pub study: SimulatedStudy,
    /// What kind of server it is.
    pub kind: PlantedLimit,
}

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedLimit {
    /// One resource is far fuller than all others.
    SingleResource,
    /// Any demands, those near balance among them.
    AnyDemands,
    /// The two largest demands are within 5 % of each other.
    Balanced,
    /// A limit that nobody watches, as a lock.
    Unwatched,
    /// The client.
    Client,
    /// One worker, or two.
    Workers,
}

impl PlantedLimit {
    /// Seconds that each watched station takes of a request, the generator least.
    fn demands(self, random: &mut Random) -> [f64; 4] {
        let mut demands = [1.0, 1.0, 1.0, 0.3].map(|scale| scale * (0.001 + 0.099 * random.uniform()));
        let limit = random.index_below(3);
        match self {
            Self::SingleResource => demands[limit] = 0.15 + 0.1 * random.uniform(),
            Self::Balanced => {
                demands[limit] = 0.15;
                demands[(limit + 1) % 3] = 0.15 * (0.95 + 0.1 * random.uniform());
            }
            Self::Client => demands[3] = 0.15 + 0.1 * random.uniform(),
            Self::AnyDemands | Self::Unwatched | Self::Workers => {}
        }
        demands
    }

    /// Stations with those demands, of CPUs one to four, and what nobody watches among them.
    fn stations(self, random: &mut Random) -> Vec<SimulatedStation> {
        let demands = self.demands(random);
        let cpus = 1 + random.index_below(4);
        let watched_stations = WATCHED_RESOURCES.iter().zip(demands).map(|(&resource, demand)| {
            let servers = if resource == Resource::ServerCpu { cpus } else { 1 };
            SimulatedStation { resource: Some(resource), demand: demand * servers as f64, servers }
        });
        let mut stations: Vec<SimulatedStation> = watched_stations.collect();
        if self == Self::Unwatched {
            let unwatched = SimulatedStation { resource: None, demand: 0.11 + 0.2 * random.uniform(), servers: 1 };
            stations.insert(random.index_below(3), unwatched);
        }
        stations
    }
}

/// A study judged against what was planted.
#[derive(Clone, Debug)]
pub struct VerdictJudgement {
    /// What was planted.
    pub planted: PlantedLimit,
    /// The verdict.
    pub verdict: LoadVerdict,
    /// Whether it is given without a doubt.
    pub is_certain: bool,
    /// Whether it is wrong: it names what is not within 12 % of the limit, or misses the only one.
    pub is_false: bool,
    /// Steps of the grid from the exact knee to that found.
    pub steps: Option<i64>,
    /// Capacity by the fullest resource's use over the true one.
    pub capacity: Option<f64>,
}

impl VerdictJudgement {
    /// Whether it must not happen: a false verdict without a doubt, or with a capacity more than 5 % off.
    pub fn is_wrong(&self) -> bool {
        let is_off = self.capacity.is_some_and(|ratio| (ratio - 1.0).abs() > 0.05);
        self.is_certain && (self.is_false || is_off)
    }

    /// Whether the knee is more than a step of the grid away.
    pub fn is_knee_far(&self) -> bool {
        self.is_certain && self.steps.is_some_and(|steps| steps.abs() > 1)
    }

    /// In a word each: the planted limit and the verdict.
    pub fn label(&self) -> String {
        let verdict = match &self.verdict {
            LoadVerdict::Resource { .. } => "one",
            LoadVerdict::Both { .. } => "both",
            LoadVerdict::OneOf { .. } => "one of several",
            LoadVerdict::Client { .. } => "client",
            LoadVerdict::NotSampled { limit: UnsampledLimit::LimitedConcurrency { .. }, .. } => "unwatched, in turn",
            LoadVerdict::NotSampled { limit: UnsampledLimit::PerRequest { .. }, .. } => "unwatched, each by itself",
            LoadVerdict::NotSampled { limit: UnsampledLimit::Losses { .. }, .. } => "losses",
            LoadVerdict::NotSampled { limit: UnsampledLimit::Stalls { .. }, .. } => "stalls",
            LoadVerdict::NotSampled { limit: UnsampledLimit::OtherWork { .. }, .. } => "other work",
            LoadVerdict::NotSampled { limit: UnsampledLimit::Memory { .. }, .. } => "memory",
            LoadVerdict::NotSampled { limit: UnsampledLimit::Refusals { .. }, .. } => "refusals",
            LoadVerdict::Unknown { reason: UnknownLimit::TooFewSamples } => "unknown: too little",
            LoadVerdict::Unknown { reason: UnknownLimit::StillGrowing { .. } } => "unknown: still growing",
            LoadVerdict::Unknown { reason: UnknownLimit::NoneBusy } => "unknown: nothing busy",
            LoadVerdict::Unknown { reason: UnknownLimit::NoneSaturated { .. } } => "unknown: nothing full",
            LoadVerdict::Unknown { reason: UnknownLimit::WorkersWait { .. } } => "unknown: workers wait",
            LoadVerdict::Unknown { reason: UnknownLimit::BeyondCapacity { .. } } => "unknown: beyond capacity",
        };
        let doubt_suffix = if self.is_certain { "" } else { ", in doubt" };
        let error_suffix = if self.is_wrong() {
            " WRONG"
        } else if self.is_false {
            " (false)"
        } else {
            ""
        };
        format!("{:?}: {verdict}{doubt_suffix}{error_suffix}", self.planted)
    }
}

const WATCHED_RESOURCES: [Resource; 4] = [Resource::Disk, Resource::ServerCpu, Resource::Link, Resource::Generator];

impl PlantedStudy {
    /// A server of this seed.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let kinds = [
            PlantedLimit::SingleResource,
            PlantedLimit::AnyDemands,
            PlantedLimit::Balanced,
            PlantedLimit::Unwatched,
            PlantedLimit::Client,
            PlantedLimit::Workers,
        ];
        let kind = kinds[random.index_below(kinds.len())];
        let stations = kind.stations(&mut random);
        let workers = (kind == PlantedLimit::Workers).then(|| 1 + random.index_below(2));
        let think = [0, 0, 100, 1000][random.index_below(4)];
        let knee = 3.0 * (stations.iter().map(|station| station.demand).sum::<f64>() + think as f64 / 1e3)
            / stations.iter().map(SimulatedStation::spacing).fold(0.0, f64::max);
        let study = SimulatedStudy {
            stations,
            workers,
            think,
            users: user_grid((knee as u64).max(20)),
            visits: 3 + random.index_below(4),
            requests: 1500,
            error: 0.02 * random.uniform(),
            seed: seed + 1_000_000,
            ..SimulatedStudy::published_server()
        };
        Self { study, kind }
    }

    /// The least seconds between answers that each resource allows, by its word; what nobody watches has none.
    fn spacings(&self) -> Vec<(Option<Resource>, f64)> {
        let total_demand: f64 = self.study.stations.iter().map(|station| station.demand).sum();
        let workers = self.study.workers.map(|workers| (Some(Resource::Workers), total_demand / workers as f64));
        let stations = self.study.stations.iter().map(|station| (station.resource, station.spacing()));
        stations.chain(workers).collect()
    }

    /// Throughput with each number of users, exactly; `None` where workers are bounded, which has no product form.
    fn exact_throughput(&self) -> Option<Vec<f64>> {
        let max_users = *self.study.users.last()? as usize;
        let stations = self.study.stations.iter().map(|station| {
            kelvin_stats::Station::servers(
                station.demand,
                NonZeroU32::new(station.servers as u32).unwrap_or(NonZeroU32::MIN),
            )
        });
        let network = ClosedNetwork::new(stations.collect(), self.study.think as f64 / 1e3).ok()?;
        let steps = network.solve(max_users);
        let throughput_at = |&users: &u64| steps[users as usize - 1].throughput;
        self.study.workers.is_none().then(|| self.study.users.iter().map(throughput_at).collect())
    }

    /// The judgement of what was concluded.
    pub fn judge(&self, studies: &[crate::Study]) -> VerdictJudgement {
        let conclusions = studies.iter().flat_map(|study| &study.conclusions);
        let mut limit = conclusions.filter_map(|conclusion| match &conclusion.conclusion.claim {
            Claim::Load(LoadClaim::Limit(limit)) => Some((limit, conclusion.conclusion.holds)),
            _ => None,
        });
        let Some((limit, holds)) = limit.next() else { panic!("no limit is concluded of {self:?}") };
        let is_certain = holds == Some(true);
        VerdictJudgement {
            planted: self.kind,
            is_false: self.is_false(&limit.verdict),
            is_certain,
            steps: self.steps(limit.knee.map(|knee| knee.users)),
            capacity: self.capacity(limit),
            verdict: limit.verdict.clone(),
        }
    }

    /// The capacity by the fullest named resource: saturation over its use.
    fn capacity(&self, limit: &LoadLimit) -> Option<f64> {
        let resources: &[Name] = match &limit.verdict {
            LoadVerdict::Resource { resource } | LoadVerdict::Client { resource } => std::slice::from_ref(resource),
            LoadVerdict::Both { resources } | LoadVerdict::OneOf { resources } => resources,
            LoadVerdict::NotSampled { .. } | LoadVerdict::Unknown { .. } => return None,
        };
        let usage = limit.utilisations.iter().find(|candidate| resources.contains(&candidate.resource))?;
        let max_spacing = self.spacings().iter().map(|(_, spacing)| *spacing).fold(0.0, f64::max);
        let is_named = |&(resource, _): &(Option<Resource>, f64)| {
            resource.is_some_and(|resource| usage.resource == *resource.name())
        };
        let spacing = self.spacings().into_iter().find(is_named)?.1.max(max_spacing);
        // Of workers, which wait for each other in queues, the spacing is only a bound.
        (self.study.workers.is_none()).then(|| limit.saturation.value / usage.utilisation.value * spacing)
    }

    fn steps(&self, knee: Option<u64>) -> Option<i64> {
        let exact = self.exact_throughput()?;
        let (knee, exact) = (knee?, crate::studies::load::find_knee(&exact).knee);
        let place = self.study.users.iter().position(|&users| users == knee)?;
        Some(place as i64 - exact as i64)
    }

    /// Whether a verdict names what is not near the limit, or only one where there is another.
    fn is_false(&self, verdict: &LoadVerdict) -> bool {
        let spacings = self.spacings();
        let max_spacing = spacings.iter().map(|(_, spacing)| *spacing).fold(0.0, f64::max);
        let share = |name: &Name| {
            let is_named = |resource: &Option<Resource>| resource.is_some_and(|resource| *name == *resource.name());
            spacings.iter().find(|(resource, _)| is_named(resource)).map_or(0.0, |(_, spacing)| spacing / max_spacing)
        };
        let near_count = spacings.iter().filter(|(_, spacing)| *spacing >= 0.94 * max_spacing).count();
        match verdict {
            LoadVerdict::Resource { resource } | LoadVerdict::Client { resource } => {
                share(resource) < 0.88 || near_count > 1 && share(resource) < 0.94
            }
            LoadVerdict::Both { resources } => resources.iter().any(|resource| share(resource) < 0.86),
            LoadVerdict::OneOf { resources } => resources.iter().all(|resource| share(resource) < 0.88),
            LoadVerdict::NotSampled { .. } => self.kind != PlantedLimit::Unwatched,
            LoadVerdict::Unknown { .. } => false,
        }
    }
}

impl SimulatedStation {
    /// The least seconds between answers that it allows.
    fn spacing(&self) -> f64 {
        self.demand / self.servers as f64
    }
}
