//! What every rank but 0 does: it greets, connects its heartbeat, and then does what rank 0 asks.

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use kelvin_cluster::heartbeat::{self, JobEnd};
use kelvin_cluster::local_place;
use kelvin_cluster::network::{self, AddressRange};
use kelvin_cluster::protocol::{Answer, Command, Contact, PairFigures, PairTask, Transport};
use kelvin_cluster::tcp::TcpEnd;
use kelvin_sys::cpu;
use kelvin_sys::process::exit_now;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::usage::RunQueueWait;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};

use crate::channel::{Channel, tag};
use crate::{mpi_pair, notice};

/// A rank without a heartbeat ends when it has heard nothing from rank 0 for this long: nothing else would tell it that rank 0 is gone.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a wait for the next command lasts before it is begun anew.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
/// An implementation may wait in MPI_Finalize for a rank that no longer answers.
const FINALISE_TIMEOUT: Duration = Duration::from_secs(10);
/// Exit status of a job that failed.
const EXIT_FAILED: u8 = 1;

/// Serves rank 0 until the end of the job.
pub fn serve(world: &SimpleCommunicator, network: Option<&AddressRange>) -> ExitCode {
    let channel = Channel::new(world);
    match local_place::greeting() {
        Ok(greeting) => channel.send(0, tag::GREETING, &greeting),
        Err(error) => {
            notice(format_args!("rank {}: {error}", world.rank()));
            return ExitCode::from(EXIT_FAILED);
        }
    }
    let mut end = None;
    let start = Instant::now();
    loop {
        let Some((_, command)) = channel.receive::<Command>(tag::COMMAND, COMMAND_TIMEOUT) else {
            if end.is_none() && start.elapsed() > CONTACT_TIMEOUT {
                notice(format_args!("rank {}: nothing was heard from rank 0", world.rank()));
                exit_now(EXIT_FAILED);
            }
            continue;
        };
        let answer = match command {
            Ok(Command::Connect(contact)) => match connect(&contact, world.rank() as usize, network) {
                Ok(connected) => {
                    let address = connected.address();
                    end = Some(connected);
                    Answer::Connected(address)
                }
                Err(error) => Answer::Failed(error.to_string()),
            },
            Ok(Command::ReadClock(count)) => {
                answer_clock_readings(world, count);
                continue;
            }
            Ok(Command::MeasurePair(task)) => match &end {
                Some(end) => {
                    let (result, cpu_wait) = measure_pair(world, end, &task);
                    answer_pair(result, cpu_wait)
                }
                None => Answer::Failed("a task came before the connection".into()),
            },
            Ok(Command::AllToAll { bytes, count }) => Answer::AllToAll(all_to_all(world, bytes, count)),
            Ok(Command::End) => {
                channel.send(0, tag::ANSWER, &Answer::Done);
                prepare_to_finalise(world);
                return ExitCode::SUCCESS;
            }
            Err(error) => Answer::Failed(error),
        };
        channel.send(0, tag::ANSWER, &answer);
    }
}

/// Has all ranks come to their end together, and ends this process if MPI_Finalize does not: by then all results are written.
pub fn prepare_to_finalise(world: &SimpleCommunicator) {
    world.barrier();
    let rank = world.rank();
    let guard = ThreadBuilder::named("finalise").start(move || {
        std::thread::sleep(FINALISE_TIMEOUT);
        notice(format_args!(
            "rank {rank}: MPI_Finalize has not ended within {} s, so this rank does",
            FINALISE_TIMEOUT.as_secs()
        ));
        exit_now(0);
    });
    if let Err(error) = guard {
        notice(error);
    }
}

/// Connects the heartbeat, and opens where other ranks connect to measure: at the address by which rank 0 is reached, or one of the range
/// that the user gave.
fn connect(contact: &Contact, rank: usize, range: Option<&AddressRange>) -> io::Result<TcpEnd> {
    let stream = heartbeat::connect(contact, rank)?;
    let address = match range {
        None => stream.local_addr()?.ip().to_canonical(),
        Some(range) => {
            let in_range = network::local_addresses(Some(range))?.into_iter().next();
            in_range.ok_or_else(|| io::Error::other(format!("this host has no address in {range}")))?
        }
    };
    let end = TcpEnd::bind(address, contact.token)?;
    ThreadBuilder::named("heartbeat").start(move || end_with_job(rank, stream))?;
    Ok(end)
}

/// Ends this process when the job ends early: a call of MPI that waits for a dead rank does not return.
fn end_with_job(rank: usize, stream: TcpStream) {
    match heartbeat::beat(stream) {
        JobEnd::Over => {}
        JobEnd::Aborted => exit_now(EXIT_FAILED),
        JobEnd::Lost(loss) => {
            // One voice is enough.
            if rank == 1 {
                notice(format_args!("rank 0 {}", loss.describe()));
            }
            exit_now(EXIT_FAILED);
        }
    }
}

/// Measures a pair with its other rank, which does the same. The second value is [`PairFigures::cpu_wait`] of this end.
pub fn measure_pair(
    world: &SimpleCommunicator,
    end: &TcpEnd,
    task: &PairTask,
) -> (Result<Option<PairFigures>, String>, f64) {
    let mut wait = RunQueueWait::of_thread();
    let before = wait.nanoseconds();
    let start = Instant::now();
    let result = with_cpu(task.cpu, || match task.plan.transport {
        Transport::Tcp => end.measure(task),
        Transport::Mpi => mpi_pair::measure(world, task).map_err(|error| error.to_string()),
    });
    let waited = before.zip(wait.nanoseconds()).map_or(0, |(before, after)| after.saturating_sub(before));
    (result, waited as f64 / start.elapsed().as_nanos() as f64)
}

/// Does work on a CPU of its own, where one is given: both ends of a pair on one CPU would measure how the kernel switches between them.
fn with_cpu<T>(cpu: Option<u32>, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let Some(cpu) = cpu else { return work() };
    let pin = |cpus: &[u32]| cpu::pin(cpus).map_err(|error| format!("cannot use the CPUs {cpus:?}: {error}"));
    let allowed = cpu::affinity().map_err(|error| error.to_string())?;
    pin(&[cpu])?;
    let result = work();
    pin(&allowed)?;
    result
}

fn answer_pair(result: Result<Option<PairFigures>, String>, cpu_wait: f64) -> Answer {
    match result {
        Ok(Some(figures)) => Answer::Pair(PairFigures { cpu_wait, ..figures }),
        Ok(None) => Answer::PairDone { cpu_wait },
        Err(reason) => Answer::Failed(reason),
    }
}

/// Exchanges with all ranks at once; returns how long it took, in seconds.
pub fn all_to_all(world: &SimpleCommunicator, bytes: usize, count: usize) -> f64 {
    let sent = vec![1_u8; bytes * world.size() as usize];
    let mut received = vec![0_u8; sent.len()];
    world.barrier();
    let start = Instant::now();
    for _ in 0..count {
        world.all_to_all_into(&sent[..], &mut received[..]);
    }
    start.elapsed().as_secs_f64()
}

/// Answers each message of rank 0 with this host's time.
fn answer_clock_readings(world: &SimpleCommunicator, count: usize) {
    let peer = world.process_at_rank(0);
    for _ in 0..count {
        peer.receive_into_with_tag(&mut [0_u8][..], tag::CLOCK);
        peer.send_with_tag(&[seconds_since_1970()][..], tag::CLOCK);
    }
}

/// The clock of this host.
pub fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
