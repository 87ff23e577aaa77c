//! What every rank but 0 does: it greets, connects its heartbeat, and then does what rank 0 asks.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kelvin_cluster::clock::seconds_since_1970;
use kelvin_cluster::heartbeat::{self, JobEnd, Progress};
use kelvin_cluster::local_place;
use kelvin_cluster::network::{self, AddressRange};
use kelvin_cluster::protocol::{Answer, Command, Contact, TOKEN_BYTES};
use kelvin_sys::process::exit_now;
use kelvin_sys::thread_spawn::ThreadBuilder;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::channel::{Channel, tag};
use crate::{EXIT_MISTAKE, notice};

/// A rank without a heartbeat ends when it has heard nothing from rank 0 for this long: nothing else would tell it that rank 0 is gone.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a wait for the next command lasts before it is begun anew.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
/// An implementation may wait in MPI_Finalize for a rank that no longer answers.
const FINALISE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first rank to end has the launcher end the others. So long they wait for the one that says why, on a busy host.
const VOICE_TIME: Duration = Duration::from_secs(2);
/// The rank that says that rank 0 is lost: one voice is enough.
const VOICE: usize = 1;
/// Exit status of a job that failed.
const EXIT_FAILED: u8 = 1;

/// What each rank of a sub-command, also rank 0, does when rank 0 asks for it.
pub trait Worker<'w>: Sized {
    /// What it is asked.
    type Task: Clone + Serialize + DeserializeOwned;
    /// What it answers.
    type Outcome: Debug + Serialize + DeserializeOwned;

    /// Gets ready.
    ///
    /// # Errors
    /// Why this rank cannot do its part of the job.
    fn new(place: RankPlace<'w>) -> io::Result<Self>;

    /// Does a task.
    ///
    /// # Errors
    /// Why it could not be done.
    fn perform(&mut self, task: &Self::Task) -> Result<Self::Outcome, String>;
}

/// Where a rank is among the others.
pub struct RankPlace<'w> {
    /// All ranks.
    pub world: &'w SimpleCommunicator,
    /// The address by which other ranks reach this one.
    pub address: IpAddr,
    /// The secret by which ranks know each other's connections.
    pub token: [u8; TOKEN_BYTES],
    /// What it counts in tasks whose limit is a time without progress.
    pub progress: Progress,
}

/// Serves rank 0 until the end of the job.
pub fn serve<'w, W: Worker<'w>>(world: &'w SimpleCommunicator, network: Option<&AddressRange>) -> ExitCode {
    let channel = Channel::new(world);
    match local_place::greeting() {
        Ok(greeting) => channel.send(0, tag::GREETING, &greeting),
        Err(error) => {
            notice(format_args!("rank {}: {error}", world.rank()));
            return ExitCode::from(EXIT_FAILED);
        }
    }
    let mut worker: Option<W> = None;
    let start = Instant::now();
    loop {
        let Some((_, command)) = channel.receive::<Command<W::Task>>(tag::COMMAND, COMMAND_TIMEOUT) else {
            if worker.is_none() && start.elapsed() > CONTACT_TIMEOUT {
                notice(format_args!("rank {}: nothing was heard from rank 0", world.rank()));
                exit_now(EXIT_FAILED);
            }
            continue;
        };
        let answer = match command {
            Ok(Command::Connect(contact)) => match connect::<W>(world, &contact, network) {
                Ok((connected, address)) => {
                    worker = Some(connected);
                    Answer::Connected(address)
                }
                Err(error) => Answer::Failed(error.to_string()),
            },
            Ok(Command::ReadClock(count)) => {
                answer_clock_readings(world, count);
                continue;
            }
            Ok(Command::Perform(task)) => match &mut worker {
                Some(worker) => worker.perform(&task).map_or_else(Answer::Failed, Answer::Performed),
                None => Answer::Failed("a task came before the connection".into()),
            },
            Ok(Command::End) => {
                channel.send(0, tag::ANSWER, &Answer::<W::Outcome>::Done);
                world.barrier();
                guard_finalisation(world.rank(), 0);
                return ExitCode::SUCCESS;
            }
            Err(error) => Answer::Failed(error),
        };
        channel.send(0, tag::ANSWER, &answer);
    }
}

/// Ends this process with this status if MPI_Finalize does not end: all ranks have come to their end together, and all results are written.
pub fn guard_finalisation(rank: i32, status: u8) {
    let guard = ThreadBuilder::named("finalise").start(move || {
        std::thread::sleep(FINALISE_TIMEOUT);
        notice(format_args!(
            "rank {rank}: MPI_Finalize has not ended within {} s, so this rank does",
            FINALISE_TIMEOUT.as_secs()
        ));
        exit_now(status);
    });
    if let Err(error) = guard {
        notice(error);
    }
}

/// Connects the heartbeat, and gets ready at the address by which rank 0 is reached, or one of the range that the user gave.
fn connect<'w, W: Worker<'w>>(
    world: &'w SimpleCommunicator,
    contact: &Contact,
    range: Option<&AddressRange>,
) -> io::Result<(W, IpAddr)> {
    let rank = world.rank() as usize;
    let stream = heartbeat::connect(contact, rank)?;
    let address = match range {
        None => stream.local_addr()?.ip().to_canonical(),
        Some(range) => {
            let in_range = network::local_addresses(Some(range))?.into_iter().next();
            in_range.ok_or_else(|| io::Error::other(format!("this host has no address in {range}")))?
        }
    };
    let progress = Progress::default();
    let place = RankPlace { world, address, token: contact.token, progress: progress.clone() };
    let worker = W::new(place)?;
    ThreadBuilder::named("heartbeat").start(move || end_with_job(rank, stream, &progress))?;
    Ok((worker, address))
}

/// Ends this process when the job ends early: a call of MPI that waits for a dead rank does not return.
fn end_with_job(rank: usize, stream: TcpStream, progress: &Progress) {
    match heartbeat::beat(stream, progress) {
        JobEnd::Over => return,
        JobEnd::Aborted => {}
        // The launcher ends with the status of the first rank that ends, and must end with that of rank 0.
        JobEnd::Refused => exit_now(EXIT_MISTAKE),
        JobEnd::Lost(loss) => {
            if rank == VOICE {
                notice(format_args!("rank 0 {}", loss.describe()));
            } else {
                std::thread::sleep(VOICE_TIME);
            }
        }
    }
    exit_now(EXIT_FAILED);
}

/// Answers each message of rank 0 with this host's time.
fn answer_clock_readings(world: &SimpleCommunicator, count: usize) {
    let peer = world.process_at_rank(0);
    for _ in 0..count {
        peer.receive_into_with_tag(&mut [0_u8][..], tag::CLOCK);
        peer.send_with_tag(&[seconds_since_1970()][..], tag::CLOCK);
    }
}
