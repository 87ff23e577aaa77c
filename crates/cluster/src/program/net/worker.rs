//! What a rank does to measure the network.

use std::io;
use std::time::Instant;

use kelvin_cluster::net::task::{NetOutcome, NetTask, PairFigures, PairTask};
use kelvin_cluster::net::tcp::TcpEnd;
use kelvin_core::cluster::Transport;
use kelvin_sys::cpu;
use kelvin_sys::usage::RunQueueWait;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};

use super::mpi_pair;
use crate::rank::{RankPlace, Worker};

/// A rank that can measure with any other.
pub struct NetWorker<'w> {
    world: &'w SimpleCommunicator,
    end: TcpEnd,
}

impl<'w> Worker<'w> for NetWorker<'w> {
    type Task = NetTask;
    type Outcome = NetOutcome;

    fn new(place: RankPlace<'w>) -> io::Result<Self> {
        Ok(Self { world: place.world, end: TcpEnd::bind(place.address, place.token)? })
    }

    fn perform(&mut self, task: &NetTask) -> Result<NetOutcome, String> {
        Ok(match task {
            NetTask::Listen => NetOutcome::Listening(self.end.address()),
            NetTask::MeasurePair(task) => {
                let (result, cpu_wait) = measure_pair(self.world, &self.end, task);
                match result? {
                    Some(figures) => NetOutcome::Pair(PairFigures { cpu_wait, ..figures }),
                    None => NetOutcome::PairDone { cpu_wait },
                }
            }
            NetTask::AllToAll { bytes, count } => NetOutcome::AllToAll(all_to_all(self.world, *bytes, *count)),
        })
    }
}

/// Measures a pair with its other rank, which does the same. The second value is [`PairFigures::cpu_wait`] of this end.
fn measure_pair(
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

/// Exchanges with all ranks at once; returns how long it took, in seconds.
fn all_to_all(world: &SimpleCommunicator, bytes: usize, count: usize) -> f64 {
    let sent = vec![1_u8; bytes * world.size() as usize];
    let mut received = vec![0_u8; sent.len()];
    world.barrier();
    let start = Instant::now();
    for _ in 0..count {
        world.all_to_all_into(&sent[..], &mut received[..]);
    }
    start.elapsed().as_secs_f64()
}
