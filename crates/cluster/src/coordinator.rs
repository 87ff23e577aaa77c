//! What rank 0 does: it gathers the ranks, has them measure step by step, and records each result as it comes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_cluster::analysis::analyse;
use kelvin_cluster::event::{Event, FORMAT, RankFacts};
use kelvin_cluster::heartbeat::{self, CONNECT_TIMEOUT, Heartbeats};
use kelvin_cluster::matrix::Subject;
use kelvin_cluster::network;
use kelvin_cluster::placement::{PlacementError, check_networks, check_versions, kernels, labels};
use kelvin_cluster::protocol::{
    Answer, Command, Contact, Greeting, PROGRAM, PairFigures, PairPlan, PairTask, TOKEN_BYTES, Transport,
};
use kelvin_cluster::results::{Results, ResultsFile};
use kelvin_cluster::schedule::{Kernels, Pair, bisection, tournament};
use kelvin_cluster::tcp::TcpEnd;
use kelvin_sys::process::exit_now;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};
use serde::Deserialize;

use crate::channel::{Channel, tag};
use crate::cli::NetArgs;
use crate::monitor::Job;
use crate::rank::{all_to_all, measure_pair, prepare_to_finalise, seconds_since_1970};
use crate::{EXIT_MISTAKE, mistake, notice, print_report};

/// Ranks greet as soon as MPI is initialised, which has all of them.
const GREETING_TIMEOUT: Duration = Duration::from_secs(8);
/// Beyond the time that a step is planned to take, for links so slow that a few messages take longer.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a pair is measured again if other programs took its CPUs.
const MAX_REPEATS: usize = 2;
/// Readings of a clock: the fastest of so many is nearly free of disturbances.
const CLOCK_READINGS: usize = 20;
/// The part of a pair's time for round trips. The rest is for both directions.
const ROUND_TRIP_SHARE: f64 = 0.2;
/// Bytes of each rank for each other in an exchange of all with all.
const ALL_TO_ALL_BYTES: usize = 64 << 10;
/// Exchanges that show how long one takes.
const FIRST_EXCHANGES: usize = 2;
/// Of what a sender sent over MPI at least this part must have left by a network interface, if both ends are on one kernel: without it the
/// implementation used shared memory.
const MIN_INTERFACE_SHARE: f64 = 0.5;

/// The first field of a greeting of any version.
#[derive(Deserialize)]
struct AnyGreeting {
    program: String,
}

/// Measures the network, and prints what was measured.
pub fn run_net(world: &SimpleCommunicator, args: &NetArgs) -> ExitCode {
    if world.size() < 2 {
        return mistake(PlacementError::OneRank(mpi_library()));
    }
    let path = args
        .json
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("kelvin-cluster-net-{}.jsonl", seconds_since_1970().round())));
    let file = match ResultsFile::create(&path) {
        Ok(file) => file,
        Err(error) => give_up(format_args!("--json {}: {error}", path.display())),
    };
    if let Err(error) = kelvin_sys::stop_signals::install_handlers() {
        give_up(error);
    }
    let mut coordinator = match Coordinator::gather(world, args, file) {
        Ok(coordinator) => coordinator,
        Err(error) => give_up(error),
    };
    coordinator.measure_clocks(args);
    coordinator.measure_passes(args);
    coordinator.measure_together(args);
    let results = coordinator.finish();
    notice(format_args!("the results are in {}", path.display()));
    print_report(&results)
}

/// Ends the job before it has begun. MPI_Finalize would wait for the other ranks, which wait for this one.
fn give_up(reason: impl Display) -> ! {
    notice(reason);
    exit_now(EXIT_MISTAKE)
}

/// What MPI says that it is, in one line.
fn mpi_library() -> String {
    let text = mpi::environment::library_version().unwrap_or_default();
    text.lines().next().unwrap_or_default().split(',').next().unwrap_or_default().trim_end_matches('\0').to_owned()
}

struct Coordinator<'w> {
    world: &'w SimpleCommunicator,
    channel: Channel<'w>,
    job: Job,
    results: Results,
    greetings: Vec<Greeting>,
    kernels: Kernels,
    /// Where each rank accepts connections for measuring.
    addresses: Vec<SocketAddr>,
    end: TcpEnd,
    monitor: std::thread::JoinHandle<()>,
}

impl<'w> Coordinator<'w> {
    /// Gathers all ranks: of one version, on networks of their own, and with a heartbeat.
    fn gather(world: &'w SimpleCommunicator, args: &NetArgs, file: ResultsFile) -> io::Result<Self> {
        let channel = Channel::new(world);
        let ranks = world.size() as usize;
        let job = Job::new(file, (0..ranks).map(|_| "on an unknown host".to_owned()).collect());
        let greetings = receive_greetings(&channel, &job, ranks)?;
        let hostnames: Vec<String> = greetings.iter().map(|greeting| greeting.place.hostname.clone()).collect();
        job.set_labels(&hostnames);
        if let Err(error) = check_networks(&greetings) {
            job.abort(None, &error.to_string());
        }
        let mut token = [0; TOKEN_BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut token)?;
        let listener = heartbeat::listen()?;
        let addresses = network::local_addresses(args.network.as_ref())?;
        let contact = Contact { addresses, port: listener.local_addr()?.port(), token };
        (1..ranks).for_each(|rank| channel.send(rank, tag::COMMAND, &Command::Connect(contact.clone())));
        let heartbeats = Heartbeats::accept(&listener, token, ranks, CONNECT_TIMEOUT)?;
        let connected = heartbeats.connected();
        let monitor = job.watch(heartbeats)?;
        let addresses = receive_addresses(&channel, &job, &connected, &contact);
        let own_address = own_address(&connected);
        let end = TcpEnd::bind(own_address, token)?;
        let addresses = std::iter::once(end.address()).chain(addresses).collect();
        let kernels = kernels(&greetings);
        Ok(Self { world, channel, job, results: Results::default(), greetings, kernels, addresses, end, monitor })
    }

    fn ranks(&self) -> usize {
        self.addresses.len()
    }

    /// Writes an event, and adds it to the results.
    fn record(&mut self, event: &Event) {
        self.job.record(event);
        self.results.add(event);
    }

    /// Measures the clocks of all ranks, and records what is known of the job before its first pair.
    fn measure_clocks(&mut self, args: &NetArgs) {
        let ips: Vec<IpAddr> = self.addresses.iter().map(SocketAddr::ip).collect();
        let labels = labels(&self.greetings, &ips);
        self.job.set_labels(&labels);
        let offsets: Vec<ClockOffset> = (0..self.ranks()).map(|rank| self.clock_offset(rank)).collect();
        let facts = |rank: usize| RankFacts {
            rank,
            label: labels[rank].clone(),
            host: self.greetings[rank].place.host.clone(),
            kernel: self.kernels.of_rank[rank],
            cpus: self.greetings[rank].place.cpus.len(),
            address: ips[rank],
            clock_offset_s: offsets[rank].seconds,
            clock_error_s: offsets[rank].error_seconds,
        };
        let pair_seconds = args.pair_time.as_secs_f64();
        let plan = |&transport: &Transport| PairPlan {
            transport,
            round_trip_seconds: ROUND_TRIP_SHARE * pair_seconds,
            rate_seconds: (1.0 - ROUND_TRIP_SHARE) / 2.0 * pair_seconds,
            message_bytes: args.message_size,
        };
        let start = Event::Start {
            format: FORMAT.into(),
            program: PROGRAM.into(),
            mpi: mpi_library(),
            time_s: seconds_since_1970(),
            ranks: (0..self.ranks()).map(facts).collect(),
            plans: args.transport.transports().iter().map(plan).collect(),
            tolerance: args.tolerance,
        };
        self.record(&start);
    }

    /// The clock of a rank against that of this one (Cristian, "Probabilistic clock synchronization", 1989): the rank read its clock between
    /// two readings of this one. That of the shortest round trip has the least error, half of that round trip.
    fn clock_offset(&self, rank: usize) -> ClockOffset {
        if rank == 0 {
            return ClockOffset { seconds: 0.0, error_seconds: 0.0 };
        }
        self.job.begin_step([rank], STEP_TIMEOUT);
        self.channel.send(rank, tag::COMMAND, &Command::ReadClock(CLOCK_READINGS));
        let peer = self.world.process_at_rank(rank as i32);
        let readings = (0..CLOCK_READINGS).map(|_| {
            let before = seconds_since_1970();
            peer.send_with_tag(&[0_u8][..], tag::CLOCK);
            let mut remote = [0.0_f64];
            peer.receive_into_with_tag(&mut remote[..], tag::CLOCK);
            let after = seconds_since_1970();
            ClockOffset { seconds: remote[0] - f64::midpoint(before, after), error_seconds: (after - before) / 2.0 }
        });
        let best = readings.min_by(|first, second| first.error_seconds.total_cmp(&second.error_seconds));
        self.job.finish_rank(rank);
        best.expect("there is at least one reading")
    }

    /// All pairs, pass by pass; then those again that seem slow, so that a disturbance is no slow link.
    fn measure_passes(&mut self, args: &NetArgs) {
        let passes = args.passes as usize;
        for pass in 1..=passes {
            for plan in self.results.plans.clone() {
                let rounds = tournament(self.ranks());
                notice(format_args!("pass {pass} of {passes}, {}: {} rounds", plan.transport.label(), rounds.len()));
                rounds.iter().for_each(|round| self.measure_round(round, &plan, pass));
            }
        }
        let suspects = self.suspects();
        for plan in self.results.plans.clone() {
            let pairs: Vec<Pair> =
                suspects.iter().filter(|(transport, _)| *transport == plan.transport).map(|&(_, pair)| pair).collect();
            if !pairs.is_empty() {
                notice(format_args!(
                    "{}: {} pairs that seem slow are measured again",
                    plan.transport.label(),
                    pairs.len()
                ));
            }
            for _ in 0..passes {
                // One after the other: no two of them share a host then.
                pairs.iter().for_each(|&pair| self.measure_round(&[pair], &plan, 0));
            }
        }
    }

    /// The pairs that would be named now.
    fn suspects(&self) -> Vec<(Transport, Pair)> {
        let findings = analyse(&self.results).findings;
        let links = findings.iter().filter_map(|finding| match finding.subject {
            Subject::Link { from, to } => Some((finding.transport, [from.min(to), from.max(to)])),
            _ => None,
        });
        let mut suspects: Vec<_> = links.collect();
        suspects.sort_unstable();
        suspects.dedup();
        suspects
    }

    /// Measures a round. Pairs that were disturbed are measured again.
    fn measure_round(&mut self, round: &[Pair], plan: &PairPlan, pass: usize) {
        let mut pairs = round.to_vec();
        for attempt in 0..=MAX_REPEATS {
            let mut disturbed = Vec::new();
            for part in self.kernels.divide(&pairs) {
                for (pair, result) in self.run_pairs(&part, plan) {
                    let event = match result {
                        Ok(figures) => {
                            self.refuse_shared_memory(plan.transport, pair, &figures);
                            if figures.is_disturbed() {
                                disturbed.push(pair);
                            }
                            // One of disturbed attempts is enough, and says that there is no better one.
                            if figures.is_disturbed() && attempt < MAX_REPEATS {
                                continue;
                            }
                            Event::Pair { transport: plan.transport, pass, pair, figures }
                        }
                        Err(reason) => Event::PairFailed { transport: plan.transport, pair, reason },
                    };
                    self.record(&event);
                }
            }
            pairs = disturbed;
        }
    }

    /// Has these pairs, which are disjoint, measure at the same time.
    fn run_pairs(&self, pairs: &[Pair], plan: &PairPlan) -> BTreeMap<Pair, Result<PairFigures, String>> {
        let planned = Duration::from_secs_f64(2.0 * (plan.round_trip_seconds + 2.0 * plan.rate_seconds));
        self.job.begin_step(pairs.iter().flatten().copied(), planned + STEP_TIMEOUT);
        let cpus = self.kernels.assign_cpus(pairs);
        let task = |pair: Pair, side: usize| PairTask {
            peer: pair[1 - side],
            peer_address: self.addresses[pair[1 - side]],
            is_initiator: side == 0,
            cpu: cpus.get(&pair[side]).copied(),
            plan: *plan,
        };
        let mut pair_of: BTreeMap<usize, Pair> = BTreeMap::new();
        for &pair in pairs {
            for (side, &rank) in pair.iter().enumerate() {
                pair_of.insert(rank, pair);
                if rank != 0 {
                    self.channel.send(rank, tag::COMMAND, &Command::MeasurePair(task(pair, side)));
                }
            }
        }
        let mut results: BTreeMap<Pair, Result<PairFigures, String>> = BTreeMap::new();
        let mut cpu_waits: BTreeMap<Pair, f64> = BTreeMap::new();
        let mut is_done = false;
        if let Some(&pair) = pair_of.get(&0) {
            let (result, cpu_wait) = measure_pair(self.world, &self.end, &task(pair, 0));
            results.insert(pair, result.and_then(|figures| figures.ok_or_else(|| "no figures".to_owned())));
            cpu_waits.insert(pair, cpu_wait);
            is_done = self.job.finish_rank(0);
        }
        while !is_done {
            let (rank, answer) = self.receive_answer();
            let longest = |wait: &mut f64, other: f64| *wait = wait.max(other);
            match (answer, pair_of.get(&rank)) {
                (Answer::Pair(figures), Some(&pair)) => {
                    longest(cpu_waits.entry(pair).or_default(), figures.cpu_wait);
                    results.entry(pair).or_insert(Ok(figures));
                }
                (Answer::PairDone { cpu_wait }, Some(&pair)) => longest(cpu_waits.entry(pair).or_default(), cpu_wait),
                // Either end may know why there are no figures: both are told.
                (Answer::Failed(reason), Some(&pair)) => {
                    let reason = match results.remove(&pair) {
                        Some(Err(other)) => format!("{other}; {reason}"),
                        _ => reason,
                    };
                    results.insert(pair, Err(reason));
                }
                (answer, _) => self.job.abort(Some(rank), &format!("gave an answer to no task: {answer:?}")),
            }
            is_done = self.job.finish_rank(rank);
        }
        for (pair, result) in &mut results {
            if let Ok(figures) = result {
                figures.cpu_wait = cpu_waits.get(pair).copied().unwrap_or_default();
            }
        }
        results
    }

    /// The next answer of any rank. The heartbeat ends the wait for one that is dead.
    fn receive_answer(&self) -> (usize, Answer) {
        loop {
            match self.channel.receive::<Answer>(tag::ANSWER, STEP_TIMEOUT) {
                Some((rank, Ok(answer))) => return (rank, answer),
                Some((rank, Err(error))) => self.job.abort(Some(rank), &format!("gave no answer: {error}")),
                None => {}
            }
        }
    }

    fn refuse_shared_memory(&self, transport: Transport, pair: Pair, figures: &PairFigures) {
        let [first, second] = pair;
        let share_kernel = self.kernels.of_rank[first] == self.kernels.of_rank[second];
        let needed = MIN_INTERFACE_SHARE * figures.sent_bytes as f64;
        if transport == Transport::Mpi && share_kernel && (figures.interface_bytes as f64) < needed {
            self.job.abort(
                None,
                &format!(
                    "MPI moved {} bytes between ranks {first} and {second}, which share a kernel, and no network interface sent them: \
                     it used shared memory. Have it use TCP: `--mca pml ob1 --mca btl tcp,self` (Open MPI), or measure with \
                     --transport tcp",
                    figures.sent_bytes
                ),
            );
        }
    }

    /// All pairs across the middle at once, and all ranks with all.
    fn measure_together(&mut self, args: &NetArgs) {
        if args.together_time.is_zero() {
            return;
        }
        if self.kernels.is_overloaded() {
            notice(
                "all at once: more ranks of one kernel send than it has CPUs, so that these rates are those of its CPUs",
            );
        }
        for plan in self.results.plans.clone() {
            let plan = PairPlan { round_trip_seconds: 0.0, rate_seconds: args.together_time.as_secs_f64(), ..plan };
            notice(format_args!("{}: all pairs across the middle at once", plan.transport.label()));
            for (pair, result) in self.run_pairs(&bisection(self.ranks()), &plan) {
                let event = match result {
                    Ok(figures) => Event::Bisection { transport: plan.transport, pair, figures },
                    Err(reason) => Event::PairFailed { transport: plan.transport, pair, reason },
                };
                self.record(&event);
            }
            if plan.transport == Transport::Mpi {
                notice("MPI: all with all at once");
                self.measure_all_to_all(args.together_time.as_secs_f64());
            }
        }
    }

    fn measure_all_to_all(&mut self, seconds: f64) {
        let first = self.run_all_to_all(FIRST_EXCHANGES, seconds);
        let count = (seconds / first * FIRST_EXCHANGES as f64).ceil().clamp(1.0, 1e6) as usize;
        let seconds = self.run_all_to_all(count, seconds);
        self.record(&Event::AllToAll { bytes: ALL_TO_ALL_BYTES, count, seconds });
    }

    /// The time of the slowest rank, in seconds.
    fn run_all_to_all(&self, count: usize, seconds: f64) -> f64 {
        let limit = Duration::from_secs_f64(4.0 * seconds) + 3 * STEP_TIMEOUT;
        self.job.begin_step(0..self.ranks(), limit);
        let command = Command::AllToAll { bytes: ALL_TO_ALL_BYTES, count };
        (1..self.ranks()).for_each(|rank| self.channel.send(rank, tag::COMMAND, &command));
        let mut slowest = all_to_all(self.world, ALL_TO_ALL_BYTES, count);
        let mut is_done = self.job.finish_rank(0);
        while !is_done {
            let (rank, answer) = self.receive_answer();
            match answer {
                Answer::AllToAll(seconds) => slowest = slowest.max(seconds),
                answer => self.job.abort(Some(rank), &format!("gave an answer to no task: {answer:?}")),
            }
            is_done = self.job.finish_rank(rank);
        }
        slowest
    }

    /// Records the analysis, and ends all ranks.
    fn finish(mut self) -> Results {
        self.record(&Event::Analysis { analysis: analyse(&self.results) });
        self.record(&Event::End);
        self.job.begin_step(1..self.ranks(), STEP_TIMEOUT);
        self.job.end();
        // It has told all ranks that the end of their connections is no failure.
        let _ = self.monitor.join();
        (1..self.addresses.len()).for_each(|rank| self.channel.send(rank, tag::COMMAND, &Command::End));
        let mut is_done = false;
        while !is_done {
            // A rank that is lost now has already done its work.
            is_done = match self.channel.receive::<Answer>(tag::ANSWER, STEP_TIMEOUT) {
                Some((rank, _)) => self.job.finish_rank(rank),
                None => true,
            };
        }
        prepare_to_finalise(self.world);
        self.results
    }
}

#[derive(Clone, Copy, Debug)]
struct ClockOffset {
    seconds: f64,
    error_seconds: f64,
}

/// The first message of each rank, in order, with that of this one.
fn receive_greetings(channel: &Channel<'_>, job: &Job, ranks: usize) -> io::Result<Vec<Greeting>> {
    let own = kelvin_cluster::local_place::greeting()?;
    let mut messages: BTreeMap<usize, serde_json::Value> = BTreeMap::new();
    while messages.len() + 1 < ranks {
        match channel.receive(tag::GREETING, GREETING_TIMEOUT) {
            Some((rank, Ok(message))) => drop(messages.insert(rank, message)),
            Some((rank, Err(error))) => job.abort(Some(rank), &format!("sent no greeting: {error}")),
            None => {
                let silent = (1..ranks).find(|rank| !messages.contains_key(rank));
                job.abort(silent, &format!("has not greeted within {} s", GREETING_TIMEOUT.as_secs()));
            }
        }
    }
    let program = |message: &serde_json::Value| {
        let program = serde_json::from_value::<AnyGreeting>(message.clone())
            .map_or_else(|_| "unknown".to_owned(), |any| any.program);
        let hostname = message["place"]["hostname"].as_str().unwrap_or("unknown host").to_owned();
        (program, hostname)
    };
    let mut programs = vec![(own.program.clone(), own.place.hostname.clone())];
    programs.extend(messages.values().map(program));
    if let Err(error) = check_versions(&programs) {
        job.abort(None, &error.to_string());
    }
    let others = messages.into_iter().map(|(rank, message)| {
        serde_json::from_value(message)
            .unwrap_or_else(|error| job.abort(Some(rank), &format!("sent no greeting: {error}")))
    });
    Ok(std::iter::once(own).chain(others).collect())
}

/// Where each rank but 0 accepts connections, in order.
fn receive_addresses(
    channel: &Channel<'_>,
    job: &Job,
    connected: &[(usize, IpAddr)],
    contact: &Contact,
) -> Vec<SocketAddr> {
    let ranks = channel.ranks();
    let mut addresses = BTreeMap::new();
    while addresses.len() + 1 < ranks {
        match channel.receive::<Answer>(tag::ANSWER, CONNECT_TIMEOUT) {
            Some((rank, Ok(Answer::Connected(address)))) => drop(addresses.insert(rank, address)),
            Some((rank, Ok(Answer::Failed(reason)))) => {
                job.abort(Some(rank), &format!("cannot connect to rank 0: {reason}"))
            }
            Some((rank, answer)) => job.abort(Some(rank), &format!("gave an answer to no task: {answer:?}")),
            None => {
                let missing = (1..ranks).find(|rank| !connected.iter().any(|(connected, _)| connected == rank));
                let tried: Vec<String> = contact.addresses.iter().map(IpAddr::to_string).collect();
                let reason = format!("cannot reach port {} of rank 0 at {}", contact.port, tried.join(", "));
                job.abort(missing, &reason);
            }
        }
    }
    addresses.into_values().collect()
}

/// The address by which most ranks reached this one.
fn own_address(connected: &[(usize, IpAddr)]) -> IpAddr {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    connected.iter().for_each(|&(_, address)| *counts.entry(address).or_default() += 1);
    let most = counts.into_iter().max_by_key(|&(_, count)| count);
    most.map_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), |(address, _)| address)
}
