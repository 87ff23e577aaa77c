//! What a rank does to measure a file system.

use std::cell::Cell;
use std::io;

use kelvin_cluster::file::task::{DataOperation, FileOutcome, FileTask, Timing};
use kelvin_cluster::file::{data, directory, metadata};
use kelvin_cluster::heartbeat::Progress;
use kelvin_machine::memory::{MEMINFO, kibibytes};
use mpi::topology::SimpleCommunicator;
use mpi::traits::CommunicatorCollectives;

use crate::rank::{RankPlace, Worker};

/// A rank that writes and reads in the directory of the job.
pub struct FileWorker<'w> {
    world: &'w SimpleCommunicator,
    progress: Progress,
}

impl<'w> Worker<'w> for FileWorker<'w> {
    type Task = FileTask;
    type Outcome = FileOutcome;

    fn new(place: RankPlace<'w>) -> io::Result<Self> {
        // A limit of the size of files is an error of the write, which names the file.
        kelvin_sys::stop_signals::ignore_sigxfsz()?;
        Ok(Self { world: place.world, progress: place.progress })
    }

    fn perform(&mut self, task: &FileTask) -> Result<FileOutcome, String> {
        match task {
            FileTask::Enter { directory, probe } => {
                directory::check_probe(directory, probe)?;
                let meminfo = std::fs::read_to_string(MEMINFO).map_err(|error| format!("{MEMINFO}: {error}"))?;
                let memory_bytes =
                    kibibytes(&meminfo, "MemTotal").ok_or_else(|| format!("{MEMINFO} has no MemTotal"))?;
                Ok(FileOutcome::Entered { memory_bytes })
            }
            FileTask::Data { operation, part, access } => {
                let work = match operation {
                    DataOperation::Write => data::write,
                    DataOperation::Read => data::read,
                };
                self.started_together(part.as_ref(), |part, start| work(part, access, &self.progress, start))
            }
            FileTask::Verify { part, access } => {
                let (seconds, wrong) = data::verify(part, access, &self.progress)?;
                Ok(FileOutcome::Verified { seconds, wrong })
            }
            FileTask::Metadata { operation, files } => self.started_together(files.as_ref(), |files, start| {
                metadata::run(*operation, files, &self.progress, start)
            }),
        }
    }
}

impl FileWorker<'_> {
    /// Does work that starts when all ranks have come so far. A rank without work, or whose work fails before, comes so far too: the
    /// others wait for it.
    fn started_together<T>(
        &self,
        part: Option<&T>,
        work: impl FnOnce(&T, &dyn Fn()) -> Result<Timing, String>,
    ) -> Result<FileOutcome, String> {
        let has_started = Cell::new(false);
        let start = || {
            self.world.barrier();
            has_started.set(true);
        };
        let outcome = match part {
            Some(part) => work(part, &start).map(FileOutcome::Timed),
            None => Ok(FileOutcome::Idle),
        };
        if !has_started.get() {
            start();
        }
        outcome
    }
}
