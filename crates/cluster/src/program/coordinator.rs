//! What rank 0 does in each sub-command: it gathers the ranks, has them do tasks step by step, and records each result as it comes.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_cluster::clock::seconds_since_1970;
use kelvin_cluster::event::{Event, RankFacts, Start};
use kelvin_cluster::heartbeat::{self, CONNECT_TIMEOUT, Heartbeats};
use kelvin_cluster::kelvin_program::KelvinProgram;
use kelvin_cluster::network;
use kelvin_cluster::placement::{Kernels, PlacementError, check_versions, kernels, labels};
use kelvin_cluster::protocol::{Answer, Command, Contact, Greeting, PROGRAM, TOKEN_BYTES};
use kelvin_cluster::results::{Measured, Results, ResultsFile};
use kelvin_core::cluster::RESULTS_FORMAT;
use kelvin_sys::process::exit_now;
use kelvin_sys::thread_spawn::ThreadBuilder;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::channel::{Channel, tag};
use crate::cli::JobArgs;
use crate::monitor::{Job, StepLimit};
use crate::rank::{RankPlace, Worker, guard_finalisation};
use crate::{EXIT_MISTAKE, mistake, notice, print};

/// Ranks greet as soon as MPI is initialised, which has all of them.
const GREETING_TIMEOUT: Duration = Duration::from_secs(8);
/// Beyond the time that a step is planned to take, for links so slow that a few messages take longer.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often rank 0 looks whether its own task is done, while it waits for others.
const POLL_TIME: Duration = Duration::from_millis(100);
/// Readings of a clock: the fastest of so many is nearly free of disturbances.
const CLOCK_READINGS: usize = 20;

/// The first field of a greeting of any version.
#[derive(Deserialize)]
struct AnyGreeting {
    program: String,
}

/// A sub-command whose ranks measure together.
pub trait Subcommand: Sized {
    /// What it measures.
    type Measured: Measured;
    /// What each rank does.
    type Worker<'w>: Worker<'w>;
    /// It needs at least so many ranks.
    const MIN_RANKS: usize;

    /// The arguments that all sub-commands have.
    fn job(&self) -> &JobArgs;

    /// What so many ranks are going to measure.
    ///
    /// # Errors
    /// A mistake on the command line, as a sentence that names the argument.
    fn plan(&self, ranks: usize) -> Result<<Self::Measured as Measured>::Plan, String>;

    /// Checks where the ranks run.
    ///
    /// # Errors
    /// Why they cannot be measured like this.
    fn check_placement(greetings: &[Greeting]) -> Result<(), PlacementError>;

    /// Has the ranks measure.
    fn measure(&self, coordinator: &mut Coordinator<'_, Self>);

    /// The `kelvin` that this rank starts, for a report.
    fn kelvin(&self) -> KelvinProgram {
        KelvinProgram::find(None)
    }

    /// The report of what was measured.
    ///
    /// # Errors
    /// What `kelvin` says, where it is needed for the report.
    fn report(results: &Results<Self::Measured>, kelvin: &KelvinProgram) -> Result<Report, String>;
}

/// What was measured, for people.
pub struct Report {
    /// As a terminal shows it.
    pub text: String,
    /// Whether all was measured that was asked for, and was as it should be.
    pub is_success: bool,
}

/// A task of a sub-command.
pub type Task<'w, S> = <<S as Subcommand>::Worker<'w> as Worker<'w>>::Task;
/// What came of it.
pub type Outcome<'w, S> = <<S as Subcommand>::Worker<'w> as Worker<'w>>::Outcome;

/// Runs rank 0's part of a sub-command, and prints what was measured.
pub fn run<S: Subcommand>(world: &SimpleCommunicator, subcommand: &S) -> ExitCode {
    if (world.size() as usize) < S::MIN_RANKS {
        return mistake(PlacementError::OneRank(mpi_library()));
    }
    let plan = subcommand.plan(world.size() as usize).unwrap_or_else(|error| give_up(error));
    let path = subcommand.job().json.clone().unwrap_or_else(|| {
        PathBuf::from(format!("kelvin-cluster-{}-{}.jsonl", S::Measured::COMMAND, seconds_since_1970().round()))
    });
    let file =
        ResultsFile::create(&path).unwrap_or_else(|error| give_up(format_args!("--json {}: {error}", path.display())));
    if let Err(error) = kelvin_sys::stop_signals::install_handlers() {
        give_up(error);
    }
    let mut coordinator =
        Coordinator::<S>::begin(world, subcommand.job(), plan, file).unwrap_or_else(|error| give_up(error));
    subcommand.measure(&mut coordinator);
    let report = coordinator.finish(&subcommand.kelvin());
    notice(format_args!("the results are in {}", path.display()));
    let status = match report {
        Ok(report) => print(&report),
        Err(reason) => {
            notice(reason);
            EXIT_MISTAKE
        }
    };
    guard_finalisation(0, status);
    ExitCode::from(status)
}

/// Ends the job before it has begun. MPI_Finalize would wait for the other ranks, which wait for this one.
fn give_up(reason: impl Display) -> ! {
    notice(reason);
    exit_now(EXIT_MISTAKE)
}

/// What MPI says that it is, in one line.
pub fn mpi_library() -> String {
    let text = mpi::environment::library_version().unwrap_or_default();
    text.lines().next().unwrap_or_default().split(',').next().unwrap_or_default().trim_end_matches('\0').to_owned()
}

/// Rank 0 with the others at hand.
pub struct Coordinator<'w, S: Subcommand> {
    world: &'w SimpleCommunicator,
    channel: Channel<'w>,
    job: Job,
    results: Results<S::Measured>,
    greetings: Vec<Greeting>,
    kernels: Kernels,
    /// That of rank 0 itself.
    worker: S::Worker<'w>,
    monitor: JoinHandle<()>,
}

impl<'w, S: Subcommand> Coordinator<'w, S> {
    /// Gathers all ranks: of one version, where they can be measured, and with a heartbeat. Records what is known of them.
    fn begin(
        world: &'w SimpleCommunicator,
        args: &JobArgs,
        plan: <S::Measured as Measured>::Plan,
        file: ResultsFile,
    ) -> io::Result<Self> {
        let channel = Channel::new(world);
        let ranks = world.size() as usize;
        let job = Job::new(file, (0..ranks).map(|_| "on an unknown host".to_owned()).collect());
        let greetings = receive_greetings(&channel, &job, ranks)?;
        let hostnames: Vec<String> = greetings.iter().map(|greeting| greeting.place.hostname.clone()).collect();
        job.set_labels(&hostnames);
        if let Err(error) = S::check_placement(&greetings) {
            job.abort(None, &error.to_string());
        }
        let mut token = [0; TOKEN_BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut token)?;
        let listener = heartbeat::listen()?;
        let addresses = network::local_addresses(args.network.as_ref())?;
        let contact = Contact { addresses, port: listener.local_addr()?.port(), token };
        let connect = Command::<Task<'w, S>>::Connect(contact.clone());
        (1..ranks).for_each(|rank| channel.send(rank, tag::COMMAND, &connect));
        let heartbeats = Heartbeats::accept(&listener, token, ranks, CONNECT_TIMEOUT)?;
        let connected = heartbeats.connected();
        let monitor = job.watch(heartbeats)?;
        let others = receive_addresses::<Outcome<'w, S>>(&channel, &job, &connected, &contact);
        let address = own_address(&connected);
        let worker = S::Worker::new(RankPlace { world, address, token, progress: job.progress().clone() })?;
        let addresses: Vec<IpAddr> = std::iter::once(address).chain(others).collect();
        let labels = labels(&greetings, &addresses);
        job.set_labels(&labels);
        let kernels = kernels(&greetings);
        let facts = |(rank, greeting): (usize, &Greeting)| {
            let offset = clock_offset::<Task<'w, S>>(&channel, &job, rank);
            RankFacts {
                rank,
                label: labels[rank].clone(),
                host: greeting.place.host.clone(),
                kernel: kernels.of_rank[rank],
                cpus: greeting.place.cpus.len(),
                online_cpus: greeting.place.online_cpus,
                address: addresses[rank],
                clock_offset_s: offset.seconds,
                clock_error_s: offset.error_seconds,
            }
        };
        let start = Start {
            format: RESULTS_FORMAT.into(),
            command: S::Measured::COMMAND.into(),
            program: PROGRAM.into(),
            mpi: mpi_library(),
            time_s: seconds_since_1970(),
            ranks: greetings.iter().enumerate().map(facts).collect(),
            plan,
        };
        job.record(&Event::<_, <S::Measured as Measured>::Event>::Start(start.clone()));
        Ok(Self { world, channel, job, results: Results::new(start), greetings, kernels, worker, monitor })
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.results.ranks.len()
    }

    /// What is known so far.
    pub fn results(&self) -> &Results<S::Measured> {
        &self.results
    }

    /// The first message of each rank, in order.
    pub fn greetings(&self) -> &[Greeting] {
        &self.greetings
    }

    /// The kernels that the ranks run on.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The job, to end it early.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The clocks of all ranks now, in order. All ranks of a kernel have one clock.
    pub fn measure_clocks(&self) -> Vec<ClockOffset> {
        let offset = |rank: usize| match self.kernels.of_rank[rank] == self.kernels.of_rank[0] {
            true => ClockOffset { seconds: 0.0, error_seconds: 0.0 },
            false => clock_offset::<Task<'w, S>>(&self.channel, &self.job, rank),
        };
        (0..self.ranks()).map(offset).collect()
    }

    /// Writes an event, and adds it to the results.
    pub fn record(&mut self, event: <S::Measured as Measured>::Event) {
        let event = Event::Measured(event);
        self.job.record(&event);
        self.results.add(event);
    }

    /// Has ranks do their tasks at the same time, and waits for all of them. Returns what came of each.
    pub fn run_step(
        &mut self,
        tasks: &BTreeMap<usize, Task<'w, S>>,
        limit: StepLimit,
    ) -> BTreeMap<usize, Result<Outcome<'w, S>, String>> {
        self.job.begin_step(tasks.keys().copied(), limit);
        for (&rank, task) in tasks.iter().filter(|(rank, _)| **rank != 0) {
            self.channel.send(rank, tag::COMMAND, &Command::Perform(task.clone()));
        }
        let mut outcomes = BTreeMap::new();
        let mut is_done = tasks.is_empty();
        if let Some(task) = tasks.get(&0) {
            outcomes.insert(0, self.worker.perform(task));
            is_done = self.job.finish_rank(0);
        }
        while !is_done {
            let (rank, outcome) = self.receive_outcome();
            if !tasks.contains_key(&rank) || outcomes.contains_key(&rank) {
                self.job.abort(Some(rank), &format!("gave an answer to no task: {outcome:?}"));
            }
            outcomes.insert(rank, outcome);
            is_done = self.job.finish_rank(rank);
        }
        outcomes
    }

    /// Has ranks do their tasks at the same time, without MPI: rank 0 does its own in a thread, so that it hears of the others meanwhile. What
    /// comes of each is handed on as it comes.
    pub fn run_apart(
        &mut self,
        mut tasks: BTreeMap<usize, Task<'w, S>>,
        limit: StepLimit,
        mut finish: impl FnMut(&mut Self, usize, Result<Outcome<'w, S>, String>),
    ) where
        S::Worker<'w>: Clone + Send + 'static,
        Task<'w, S>: Send + 'static,
        Outcome<'w, S>: Send + 'static,
    {
        self.job.begin_step(tasks.keys().copied(), limit);
        let mut is_done = tasks.is_empty();
        let own = tasks.remove(&0).map(|task| self.perform_in_thread(task));
        for (&rank, task) in &tasks {
            self.channel.send(rank, tag::COMMAND, &Command::Perform(task.clone()));
        }
        while !is_done {
            if let Some(outcome) = own.as_ref().and_then(|own| own.try_recv().ok()) {
                finish(self, 0, outcome);
                is_done = self.job.finish_rank(0);
            } else if let Some((rank, outcome)) = self.poll_outcome(POLL_TIME) {
                if tasks.remove(&rank).is_none() {
                    self.job.abort(Some(rank), "gave an answer to no task");
                }
                finish(self, rank, outcome);
                is_done = self.job.finish_rank(rank);
            }
        }
    }

    /// Has rank 0 do a task in a thread, which lives until the outcome is there.
    fn perform_in_thread(&self, task: Task<'w, S>) -> Receiver<Result<Outcome<'w, S>, String>>
    where
        S::Worker<'w>: Clone + Send + 'static,
        Task<'w, S>: Send + 'static,
        Outcome<'w, S>: Send + 'static,
    {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut worker = self.worker.clone();
        let thread = ThreadBuilder::named("task").start(move || {
            // Nobody waits for it where the job has ended.
            let _ = sender.send(worker.perform(&task));
        });
        if let Err(error) = thread {
            self.job.abort(Some(0), &error.to_string());
        }
        receiver
    }

    /// Has all ranks do one task, which all must be able to do. Returns what came of it, in order.
    pub fn run_on_all(&mut self, task: &Task<'w, S>, limit: StepLimit) -> Vec<Outcome<'w, S>> {
        let tasks = (0..self.ranks()).map(|rank| (rank, task.clone())).collect();
        let outcomes = self.run_step(&tasks, limit);
        let outcome = |(rank, outcome): (usize, Result<_, String>)| {
            outcome.unwrap_or_else(|reason| self.job.abort(Some(rank), &format!("failed: {reason}")))
        };
        outcomes.into_iter().map(outcome).collect()
    }

    /// What came of the task of any rank. The heartbeat ends the wait for one that is dead.
    fn receive_outcome(&self) -> (usize, Result<Outcome<'w, S>, String>) {
        loop {
            if let Some(outcome) = self.poll_outcome(STEP_TIMEOUT) {
                return outcome;
            }
        }
    }

    /// What came of the task of any rank within this time.
    fn poll_outcome(&self, timeout: Duration) -> Option<(usize, Result<Outcome<'w, S>, String>)> {
        match self.channel.receive::<Answer<Outcome<'w, S>>>(tag::ANSWER, timeout)? {
            (rank, Ok(Answer::Performed(outcome))) => Some((rank, Ok(outcome))),
            (rank, Ok(Answer::Failed(reason))) => Some((rank, Err(reason))),
            (rank, answer) => self.job.abort(Some(rank), &format!("gave an answer to no task: {answer:?}")),
        }
    }

    /// Records the end, makes the report, and ends all ranks: they would not wait in MPI_Finalize for a long report.
    fn finish(mut self, kelvin: &KelvinProgram) -> Result<Report, String> {
        self.job.record(&Event::<<S::Measured as Measured>::Plan, <S::Measured as Measured>::Event>::End);
        self.results.add(Event::End);
        let report = S::report(&self.results, kelvin);
        let ranks = self.ranks();
        self.job.begin_step(1..ranks, StepLimit::Total(STEP_TIMEOUT));
        self.job.end();
        // It has told all ranks that the end of their connections is no failure.
        let _ = self.monitor.join();
        (1..ranks).for_each(|rank| self.channel.send(rank, tag::COMMAND, &Command::<Task<'w, S>>::End));
        let mut is_done = ranks == 1;
        while !is_done {
            // A rank that is lost now has already done its work.
            is_done = match self.channel.receive::<Answer<Outcome<'w, S>>>(tag::ANSWER, STEP_TIMEOUT) {
                Some((rank, _)) => self.job.finish_rank(rank),
                None => true,
            };
        }
        self.world.barrier();
        report
    }
}

/// The clock of a rank less that of rank 0.
#[derive(Clone, Copy, Debug)]
pub struct ClockOffset {
    /// In seconds.
    pub seconds: f64,
    /// It is wrong by at most this, in seconds.
    pub error_seconds: f64,
}

/// The clock of a rank against that of this one (Cristian, "Probabilistic clock synchronization", 1989): the rank read its clock between two
/// readings of this one. That of the shortest round trip has the least error, half of that round trip. `T` is a task of the sub-command.
fn clock_offset<T: Serialize>(channel: &Channel<'_>, job: &Job, rank: usize) -> ClockOffset {
    if rank == 0 {
        return ClockOffset { seconds: 0.0, error_seconds: 0.0 };
    }
    job.begin_step([rank], StepLimit::Total(STEP_TIMEOUT));
    channel.send(rank, tag::COMMAND, &Command::<T>::ReadClock(CLOCK_READINGS));
    let peer = channel.process(rank);
    let readings = (0..CLOCK_READINGS).map(|_| {
        let before = seconds_since_1970();
        peer.send_with_tag(&[0_u8][..], tag::CLOCK);
        let mut remote = [0.0_f64];
        peer.receive_into_with_tag(&mut remote[..], tag::CLOCK);
        let after = seconds_since_1970();
        ClockOffset { seconds: remote[0] - f64::midpoint(before, after), error_seconds: (after - before) / 2.0 }
    });
    let best = readings.min_by(|first, second| first.error_seconds.total_cmp(&second.error_seconds));
    job.finish_rank(rank);
    best.expect("there is at least one reading")
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

/// The address of each rank but 0, in order.
fn receive_addresses<T: Debug + DeserializeOwned>(
    channel: &Channel<'_>,
    job: &Job,
    connected: &[(usize, IpAddr)],
    contact: &Contact,
) -> Vec<IpAddr> {
    let ranks = channel.ranks();
    let mut addresses = BTreeMap::new();
    while addresses.len() + 1 < ranks {
        match channel.receive::<Answer<T>>(tag::ANSWER, CONNECT_TIMEOUT) {
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
