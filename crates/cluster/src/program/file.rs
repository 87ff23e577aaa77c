//! `kelvin-cluster file`: ranks write and read files that all of them see, more and more of them at once.

mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_cluster::file::analysis::analyse;
use kelvin_cluster::file::directory::JobDirectory;
use kelvin_cluster::file::event::{FileEvent, FilePlan, RankTime, Step};
use kelvin_cluster::file::layout::{Layout, Part};
use kelvin_cluster::file::report::write_text;
use kelvin_cluster::file::results::FileResults;
use kelvin_cluster::file::schedule::{participants, rank_counts, readers};
use kelvin_cluster::file::task::{
    Activity, DataAccess, DataOperation, FileOutcome, FileSet, FileTask, MetadataOperation, Sharing, Timing,
};
use kelvin_cluster::kelvin_program::KelvinProgram;
use kelvin_cluster::placement::PlacementError;
use kelvin_cluster::protocol::Greeting;
use kelvin_cluster::results::Results;
use kelvin_core::{Unit, units};
use kelvin_file::Target;

use self::worker::FileWorker;
use crate::cli::{FileArgs, JobArgs};
use crate::coordinator::{ClockOffset, Coordinator, Report, STEP_TIMEOUT, Subcommand};
use crate::monitor::StepLimit;
use crate::notice;

/// A rank without progress is late after this time, and the time that a flush of its data takes at this rate. A flush says nothing until
/// its end. Few disks are slower, and a server that is restarted comes back.
const PATIENCE: Duration = Duration::from_secs(60);
const MIN_FLUSH_BYTES_PER_SECOND: f64 = 1e6;

impl Subcommand for FileArgs {
    type Measured = FileResults;
    type Worker<'w> = FileWorker<'w>;
    const MIN_RANKS: usize = 1;

    fn job(&self) -> &JobArgs {
        &self.job
    }

    fn plan(&self, ranks: usize) -> Result<FilePlan, String> {
        let directory = &self.directory;
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        if !std::fs::metadata(directory).map_err(failed)?.is_dir() {
            return Err(format!("{} is no directory", directory.display()));
        }
        if !self.bytes.is_multiple_of(self.block as u64) {
            let (bytes, block) = (units::exact_bytes(self.bytes), units::exact_bytes(self.block as u64));
            return Err(format!("--bytes {bytes} is no multiple of --block {block}"));
        }
        check_space(directory, self, ranks)?;
        let kind = kelvin_sys::fs::kind(directory).map_err(failed)?;
        Ok(FilePlan {
            directory: std::path::absolute(directory).map_err(failed)?,
            file_system: kind.name(),
            is_in_memory: kind.is_in_memory(),
            part_bytes: self.bytes,
            block_bytes: self.block,
            is_direct: self.direct,
            layouts: self.layout.layouts().to_vec(),
            files: self.files,
            passes: self.passes as usize,
            tolerance: self.tolerance,
        })
    }

    fn check_placement(_: &[Greeting]) -> Result<(), PlacementError> {
        Ok(())
    }

    fn measure(&self, coordinator: &mut Coordinator<'_, Self>) {
        let plan = coordinator.results().measured.plan.clone();
        let directory = JobDirectory::create(&plan.directory).unwrap_or_else(|error| {
            let reason = format!("rank 0 cannot make a directory in {}: {error}", plan.directory.display());
            coordinator.job().abort(None, &reason)
        });
        let mut measurement = FileMeasurement { coordinator, directory, plan, offsets: Vec::new() };
        measurement.enter();
        measurement.measure_passes();
        let FileMeasurement { directory, .. } = measurement;
        if let Err(error) = directory.remove() {
            notice(error);
        }
    }

    fn report(results: &Results<FileResults>, _: &KelvinProgram) -> Result<Report, String> {
        let mut text = String::new();
        write_text(&mut text, results, &analyse(results)).expect("a string takes all that is written");
        Ok(Report { text, is_success: true })
    }
}

/// Checks that the file system has room: it is shared with others, who would find it full.
fn check_space(directory: &Path, args: &FileArgs, ranks: usize) -> Result<(), String> {
    let space = kelvin_sys::fs::space(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let needed = args.bytes.saturating_mul(ranks as u64);
    if needed > space.available_bytes {
        return Err(format!(
            "{} has {} free, and {ranks} ranks write {} each, {} in all: name fewer --bytes, or another directory",
            directory.display(),
            units::bytes(space.available_bytes),
            units::bytes(args.bytes),
            units::bytes(needed),
        ));
    }
    let files = args.files.saturating_mul(ranks as u64);
    if space.total_files > 0 && files > space.free_files {
        return Err(format!(
            "{} has room for {} files, and {ranks} ranks make {} each, {files} in all: name fewer --files",
            directory.display(),
            space.free_files,
            args.files,
        ));
    }
    Ok(())
}

/// Rank 0 as it has ranks write and read.
struct FileMeasurement<'c, 'w> {
    coordinator: &'c mut Coordinator<'w, FileArgs>,
    directory: JobDirectory,
    plan: FilePlan,
    /// The clocks of all ranks at the beginning of the pass.
    offsets: Vec<ClockOffset>,
}

impl FileMeasurement<'_, '_> {
    fn abort(&self, rank: Option<usize>, reason: &str) -> ! {
        self.coordinator.job().abort(rank, reason)
    }

    /// Checks that all ranks see the directory, and that it can be written as the user wishes.
    fn enter(&mut self) {
        let named = self.plan.directory.display().to_string();
        if self.plan.is_direct {
            let target = Target::find(&self.directory.probe_path());
            match target.and_then(|target| target.alignment()) {
                Ok(alignment) if (self.plan.block_bytes as u64).is_multiple_of(alignment) => {}
                Ok(alignment) => {
                    self.abort(None, &format!("--direct needs a --block of whole {alignment} bytes in {named}"))
                }
                Err(error) => self.abort(None, &format!("--direct: {error}")),
            }
        }
        let task =
            FileTask::Enter { directory: self.directory.path().to_owned(), probe: self.directory.probe().to_owned() };
        let tasks = (0..self.coordinator.ranks()).map(|rank| (rank, task.clone())).collect();
        let mut memory_bytes = Vec::new();
        for (rank, outcome) in self.coordinator.run_step(&tasks, StepLimit::Total(STEP_TIMEOUT)) {
            match outcome {
                Ok(FileOutcome::Entered { memory_bytes: bytes }) => memory_bytes.push(bytes),
                Ok(other) => self.abort(Some(rank), &format!("gave another answer: {other:?}")),
                Err(reason) => self.abort(
                    Some(rank),
                    &format!(
                        "does not see what rank 0 wrote in {named} ({reason}). Name a directory on a file system that all hosts \
                         mount there, such as NFS or Lustre"
                    ),
                ),
            }
        }
        self.coordinator.record(FileEvent::Memory { bytes: memory_bytes });
    }

    fn measure_passes(&mut self) {
        let ranks = self.coordinator.ranks();
        let counts = rank_counts(ranks);
        let written = self.plan.part_bytes * counts.iter().sum::<usize>() as u64 * self.plan.layouts.len() as u64;
        notice(format_args!(
            "each of {} passes writes {}, and reads it twice",
            self.plan.passes,
            units::bytes(written)
        ));
        for pass in 1..=self.plan.passes {
            // Clocks drift apart by up to some ms a minute.
            self.offsets = self.coordinator.measure_clocks();
            let mut counts = counts.clone();
            if pass % 2 == 0 {
                // What drifts in one direction does not look like a law of the number of ranks.
                counts.reverse();
            }
            for count in counts {
                let working = participants(count, ranks, pass - 1);
                for layout in self.plan.layouts.clone() {
                    self.measure_data(pass, layout, &working);
                }
                if self.plan.files > 0 {
                    self.measure_metadata(pass, Sharing::Own, &working);
                    self.measure_metadata(pass, Sharing::Shared, &working);
                }
            }
        }
    }

    /// Ranks write, and each reads what another one wrote.
    fn measure_data(&mut self, pass: usize, layout: Layout, working: &[usize]) {
        let directory = self.create_part("data");
        let access = DataAccess { directory: directory.clone(), is_direct: self.plan.is_direct, seed: pass as u64 };
        let blocks = self.plan.part_bytes / self.plan.block_bytes as u64;
        let part = |(position, &writer): (usize, &usize)| {
            let part =
                Part { layout, writer, position, parts: working.len(), blocks, block_bytes: self.plan.block_bytes };
            (writer, part)
        };
        let parts: BTreeMap<usize, Part> = working.iter().enumerate().map(part).collect();
        let own = working.iter().map(|&rank| (rank, rank)).collect();
        let readers = readers(working, &self.coordinator.kernels().of_rank);
        let task = |operation: DataOperation, writer: Option<&usize>| FileTask::Data {
            operation,
            part: writer.map(|writer| parts[writer]),
            access: access.clone(),
        };
        for (operation, writers) in [(DataOperation::Write, &own), (DataOperation::Read, &readers)] {
            let activity = Activity::Data { operation, layout };
            self.run_timed((activity, pass, self.plan.part_bytes), writers, |writer| task(operation, writer));
        }
        let tasks = readers
            .iter()
            .map(|(&reader, writer)| (reader, FileTask::Verify { part: parts[writer], access: access.clone() }))
            .collect();
        self.verify(pass, layout, &tasks);
        self.remove_part(&directory);
    }

    /// Ranks make files, find those of another one, and remove their own.
    fn measure_metadata(&mut self, pass: usize, sharing: Sharing, working: &[usize]) {
        let directory = self.create_part("files");
        let directory_of = |maker: usize| match sharing {
            Sharing::Own => directory.join(maker.to_string()),
            Sharing::Shared => directory.clone(),
        };
        if sharing == Sharing::Own {
            for &maker in working {
                self.create_directory(&directory_of(maker));
            }
        }
        let own = working.iter().map(|&rank| (rank, rank)).collect();
        let others = readers(working, &self.coordinator.kernels().of_rank);
        for (operation, makers) in
            [(MetadataOperation::Create, &own), (MetadataOperation::Stat, &others), (MetadataOperation::Unlink, &own)]
        {
            let count = self.plan.files;
            let files = |maker: &usize| FileSet { directory: directory_of(*maker), maker: *maker, count };
            let activity = Activity::Metadata { operation, sharing };
            self.run_timed((activity, pass, count), makers, |maker| FileTask::Metadata {
                operation,
                files: maker.map(files),
            });
        }
        self.remove_part(&directory);
    }

    /// Has ranks do the same with the parts of these writers, and records when each did it. The other ranks only start with them.
    fn run_timed(
        &mut self,
        (activity, pass, amount): (Activity, usize, u64),
        writers: &BTreeMap<usize, usize>,
        task: impl Fn(Option<&usize>) -> FileTask,
    ) {
        let tasks = (0..self.coordinator.ranks()).map(|rank| (rank, task(writers.get(&rank)))).collect();
        let mut timings: Vec<(usize, Timing)> = Vec::new();
        for (rank, outcome) in self.coordinator.run_step(&tasks, self.limit()) {
            match outcome {
                Ok(FileOutcome::Timed(timing)) => timings.push((rank, timing)),
                Ok(FileOutcome::Idle) => {}
                Ok(other) => self.abort(Some(rank), &format!("gave another answer: {other:?}")),
                Err(reason) => self.abort(Some(rank), &reason),
            }
        }
        let on_common_clock = |&(rank, timing): &(usize, Timing)| timing.start_s - self.offsets[rank].seconds;
        let first = timings.iter().map(on_common_clock).fold(f64::INFINITY, f64::min);
        let part = |timed: &(usize, Timing)| {
            let (rank, timing) = timed;
            let start_s = on_common_clock(timed) - first;
            RankTime {
                rank: *rank,
                writer: writers[rank],
                start_s,
                end_s: start_s + (timing.end_s - timing.start_s),
                flush_s: timing.flush_s,
                cached_share: timing.cached_share,
            }
        };
        let parts: Vec<RankTime> = timings.iter().map(part).collect();
        let clock_error_s = timings.iter().map(|(rank, _)| self.offsets[*rank].error_seconds).fold(0.0, f64::max);
        let step = Step { activity, pass, amount, parts, clock_error_s };
        let (operation, place) = activity.label();
        let unit = if activity.is_data() { Unit::BytesPerSecond } else { Unit::PerSecond };
        notice(format_args!(
            "pass {pass} of {}, {} of {} ranks: {operation}, {place}: {}",
            self.plan.passes,
            step.parts.len(),
            self.coordinator.ranks(),
            units::value_text(step.rate(), unit),
        ));
        self.coordinator.record(FileEvent::Step(step));
    }

    fn verify(&mut self, pass: usize, layout: Layout, tasks: &BTreeMap<usize, FileTask>) {
        let mut slowest = 0.0_f64;
        for (reader, outcome) in self.coordinator.run_step(tasks, self.limit()) {
            match outcome {
                Ok(FileOutcome::Verified { seconds, wrong: None }) => slowest = slowest.max(seconds),
                Ok(FileOutcome::Verified { wrong: Some(wrong), .. }) => {
                    let reason = format!(
                        "read a wrong block: {} at byte {}, written by rank {}, from byte {} of the block on",
                        wrong.path.display(),
                        wrong.offset,
                        wrong.writer,
                        wrong.first_byte
                    );
                    self.coordinator.record(FileEvent::WrongBlock { reader, wrong });
                    self.abort(Some(reader), &reason);
                }
                Ok(other) => self.abort(Some(reader), &format!("gave another answer: {other:?}")),
                Err(reason) => self.abort(Some(reader), &reason),
            }
        }
        self.coordinator.record(FileEvent::Verified { layout, pass, ranks: tasks.len(), seconds: slowest });
    }

    fn limit(&self) -> StepLimit {
        let flush = Duration::from_secs_f64(self.plan.part_bytes as f64 / MIN_FLUSH_BYTES_PER_SECOND);
        StepLimit::WithoutProgress(PATIENCE + flush)
    }

    fn create_part(&mut self, name: &str) -> PathBuf {
        self.directory.create_part(name).unwrap_or_else(|error| {
            let directory = self.directory.path().display();
            self.abort(None, &format!("rank 0 cannot make a directory in {directory}: {error}"))
        })
    }

    fn create_directory(&self, path: &Path) {
        if let Err(error) = std::fs::create_dir(path) {
            self.abort(None, &format!("rank 0 cannot make {}: {error}", path.display()));
        }
    }

    fn remove_part(&self, path: &Path) {
        if let Err(error) = std::fs::remove_dir_all(path) {
            self.abort(None, &format!("rank 0 cannot remove {}: {error}", path.display()));
        }
    }
}
