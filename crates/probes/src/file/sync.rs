//! The cost of a durable write: 4 KiB written and flushed, by each of the calls that do it.
//!
//! It is the floor under every transaction on this file system. It must not be used as the device's write latency: the file
//! system adds its own writes and flushes, and those of other files wait in the same journal.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use kelvin_core::catalogue::file::{
    BLOCKSIZE_WRITE, DEVICE_ACCEPT_LATENCY, DEVICE_WRITE_LATENCY, FlushMethod, SYNC_WRITE, SyncPolicy, WritePosition,
};
use kelvin_core::units;
use kelvin_file::random_data::RandomData;
use kelvin_sys::fs::kind;

use super::prelude::*;
use super::test_files::check_free_space;

pub(crate) static PROBE: Probe = Probe {
    summary: "A write of 4 KiB made durable by fsync, fdatasync or O_DSYNC, and one that is not",
    method: include_str!("sync.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&SYNC_WRITE])
};

/// Bytes of a write: a page, and a block of most file systems and databases.
const WRITE_BYTES: usize = 4096;
/// Bytes of the file that is written over: enough blocks that none is written twice soon, and little to write.
const FILE_BYTES: u64 = 1 << 20;
/// Flushed writes in the trial that shows how many fit into the slice.
const TRIAL_WRITES: u64 = 3;
/// Bytes to reserve, as a multiple of the trial's estimate: later writes may be faster.
const RESERVE_FACTOR: f64 = 4.0;
/// More writes than the bench makes of operations as short as a write into memory.
const MAX_WRITES: f64 = 20_000.0;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use FlushMethod::{Dsync, Fdatasync, Fsync, Nothing};
    use WritePosition::{Append, InPlace};
    let combinations = [
        (Nothing, InPlace),
        (Fdatasync, InPlace),
        (Fsync, InPlace),
        (Dsync, InPlace),
        (Fsync, Append),
        (Nothing, Append),
        (Fdatasync, Append),
        (Dsync, Append),
    ];
    let case_of =
        |&(method, position): &(FlushMethod, WritePosition)| Case::new().with_word(method).with_word(position);
    combinations[..by_effort(effort, [2, 5, combinations.len()])].iter().map(case_of).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let method = required(FlushMethod::of(case), case)?;
    let is_append = required(WritePosition::of(case), case)? == WritePosition::Append;
    let system = kind(bench.scratch())?;
    let reason = format!(
        "needs a scratch directory on a disk: {} lives in memory, where a flush does nothing; choose another by \
             --dir",
        system.name()
    );
    skip_if(system.is_in_memory() && method != FlushMethod::Nothing, reason)?;
    let mut writes = FlushedWrites::new(bench, method, is_append)?;
    let trial = run_trial(bench, &mut writes)?;
    bench.note(format!("{}: trial: {trial}", system.name()));
    let (before, blocks_before) = (DeviceCounters::now(&writes.target), writes.written_blocks);
    bench.time_each([&SYNC_WRITE], |clock| Ok([writes.write_next(clock)?]))?;
    writes.prove(writes.written_blocks - blocks_before, &before).map(drop)
}

/// Makes a few writes, reserves as many as they predict, and reports where they went.
fn run_trial(bench: &Bench<'_>, writes: &mut FlushedWrites) -> ProbeResult<String> {
    let before = DeviceCounters::now(&writes.target);
    let mut ticks = 0;
    for _ in 0..TRIAL_WRITES {
        ticks += writes.write_next(bench.clock())?;
    }
    let write_time = bench.nanoseconds(ticks) / TRIAL_WRITES as f64;
    let expected = (RESERVE_FACTOR * bench.slice() / write_time.max(1.0)).min(MAX_WRITES) * WRITE_BYTES as f64;
    // What is written in place, in memory, reaches the device once.
    let bytes = if writes.method == FlushMethod::Nothing && !writes.is_append { FILE_BYTES } else { expected as u64 };
    check_free_space(bench, bytes)?;
    bench.reserve_write(bytes)?;
    writes.prove(TRIAL_WRITES, &before)
}

/// The file, and what was written to it. One that was appended to is removed when dropped.
struct FlushedWrites {
    target: Target,
    file: File,
    method: FlushMethod,
    is_append: bool,
    /// Where blocks are written over.
    requests: BlockRequests,
    block: Vec<u8>,
    seed: u64,
    /// Blocks written.
    written_blocks: u64,
}

impl FlushedWrites {
    fn new(bench: &Bench<'_>, method: FlushMethod, is_append: bool) -> ProbeResult<Self> {
        // Rounds share the file that is overwritten: one for flushed writes, and one for the others, whose dirty pages a flush would write
        // too.
        let target = match method {
            _ if is_append => {
                let path = bench.scratch().join(format!("kelvin-sync-{}", std::process::id()));
                File::create_new(&path).or_file_failure("make", &path)?;
                Target::find(&path).map_err(probe_error)?
            }
            FlushMethod::Nothing => test_files::scratch_file(bench, "kelvin-sync-unflushed", FILE_BYTES, bench.seed())?,
            _ => test_files::scratch_file(bench, "kelvin-sync-flushed", FILE_BYTES, bench.seed())?,
        };
        let flags = if method == FlushMethod::Dsync { kelvin_sys::direct_io::O_DSYNC } else { 0 };
        let outcome = File::options().write(true).custom_flags(flags).open(target.path());
        let file = outcome.or_file_failure("open", target.path())?;
        let order = BlockOrder::Random { seed: bench.seed() };
        Ok(Self {
            target,
            file,
            method,
            is_append,
            requests: BlockRequests::new(0..FILE_BYTES, WRITE_BYTES, order).endless(),
            block: vec![0; WRITE_BYTES],
            seed: bench.seed(),
            written_blocks: 0,
        })
    }

    /// Writes the next block, and flushes it; the ticks of both.
    fn write_next(&mut self, clock: Clock) -> ProbeResult<u64> {
        // No block is like another, nor like the one it replaces.
        self.seed = self.seed.wrapping_add(1);
        RandomData::new(self.seed).fill(&mut self.block);
        let offset = if self.is_append {
            self.written_blocks * WRITE_BYTES as u64
        } else {
            self.requests.next().map_or(0, |request| request.offset)
        };
        let start = clock.start();
        let write_outcome = self.file.write_at(&self.block, offset);
        let flush_outcome = match self.method {
            FlushMethod::Nothing | FlushMethod::Dsync => Ok(()),
            FlushMethod::Fdatasync => self.file.sync_data(),
            FlushMethod::Fsync => self.file.sync_all(),
        };
        let ticks = clock.stop().wrapping_sub(start);
        let written_bytes = write_outcome.or_file_failure("write", self.target.path())?;
        fail_if(written_bytes != WRITE_BYTES, format!("a write wrote {written_bytes} of {WRITE_BYTES} bytes"))?;
        flush_outcome.or_file_failure("flush", self.target.path())?;
        self.written_blocks += 1;
        Ok(ticks)
    }

    /// What the device counts of this many writes since an earlier reading, in words.
    fn prove(&self, writes: u64, counters: &DeviceCounters) -> ProbeResult<String> {
        match counters.written() {
            Ok(written) => judge_device_bytes(self.method, writes * WRITE_BYTES as u64, written),
            Err(reason) => Ok(format!("no device counter shows where the blocks went: {reason}")),
        }
    }
}

/// What a device's count shows of this many bytes.
fn judge_device_bytes(method: FlushMethod, bytes: u64, written: u64) -> ProbeResult<String> {
    let [device, requested] = [written, bytes].map(units::bytes);
    if method == FlushMethod::Nothing {
        return Ok(format!("the device wrote {device} while {requested} were written into memory"));
    }
    let reason = format!(
        "needs a file system that flushes to its device, which counts {device} of {requested} flushed; choose \
             another directory by --dir"
    );
    skip_if(written < bytes, reason)?;
    let ratio = written as f64 / bytes.max(1) as f64;
    Ok(format!("the device wrote {ratio:.1} times the {requested} that were flushed, journal and others' included"))
}

impl Drop for FlushedWrites {
    fn drop(&mut self) {
        if self.is_append {
            let _ = std::fs::remove_file(self.target.path());
        }
    }
}

/// How far O_DSYNC and fdatasync may lie apart, as a factor: they do the same, on a disk that varies.
const DSYNC_RANGE_FACTOR: f64 = 1.5;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (method, position) = (required(FlushMethod::of(case), case)?, required(WritePosition::of(case), case)?);
    let device = |metric: &Metric| measured(facts, metric, &Case::new());
    let unflushed_case = Case::new().with_word(FlushMethod::Nothing).with_word(WritePosition::InPlace);
    let time = match (method, position) {
        // A write to a file with O_DSYNC is one with fdatasync after it.
        (FlushMethod::Dsync, _) => {
            let fdatasync = measured(facts, &SYNC_WRITE, &case.clone().with_word(FlushMethod::Fdatasync))?;
            let estimate = fdatasync.source("open(2): O_DSYNC; Linux include/linux/fs.h: generic_write_sync");
            let estimate = estimate.widen(DSYNC_RANGE_FACTOR);
            return Ok(estimate.explained(PredictionBasis::Derived, "as fdatasync", "as with fdatasync"));
        }
        // A write over pages in memory is one of those that follow each other there.
        (FlushMethod::Nothing, WritePosition::InPlace) => {
            let block = WRITE_BYTES as u64;
            let case = Case::new().with_number(BLOCK, block).with_word(SyncPolicy::Buffered);
            bytes_of("block", block) / measured(facts, &BLOCKSIZE_WRITE, &case)?
        }
        (FlushMethod::Nothing, WritePosition::Append) => {
            return Err(NoPrediction::new(
                "a file system's cost of a write of new blocks into memory is not published; os.syscall.write is its floor",
            ));
        }
        (FlushMethod::Fdatasync | FlushMethod::Fsync, WritePosition::InPlace) => {
            measured(facts, &SYNC_WRITE, &unflushed_case)? + device(&DEVICE_WRITE_LATENCY)?.variant("block flushed")
        }
        (FlushMethod::Fdatasync | FlushMethod::Fsync, WritePosition::Append) => {
            let data = measured(facts, &SYNC_WRITE, &unflushed_case)? + device(&DEVICE_ACCEPT_LATENCY)?;
            data + device(&DEVICE_WRITE_LATENCY)?.variant("new size flushed")
        }
    };
    Ok(derived_time::predict_from_parts(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{machine, with_facts};

    #[test]
    fn dsync_is_predicted_to_be_fdatasync() {
        let dsync = |position: WritePosition| Case::new().with_word(FlushMethod::Dsync).with_word(position);
        with_facts(&[(&SYNC_WRITE.id, Some(3e6))], |facts| {
            for &position in WritePosition::ALL {
                let prediction = predict(facts, &SYNC_WRITE, &dsync(position)).unwrap();
                assert_eq!((prediction.value, prediction.low, prediction.high), (3e6, 2e6, 4.5e6));
                let fdatasync = dsync(position).with_word(FlushMethod::Fdatasync);
                assert_eq!(prediction.inputs[0].name, format!("{} ({fdatasync})", SYNC_WRITE.id));
            }
        });
        with_facts(&[(&SYNC_WRITE.id, None)], |facts| {
            assert!(predict(facts, &SYNC_WRITE, &dsync(WritePosition::Append)).is_err())
        });
    }

    #[test]
    fn flushed_write_adds_device_time() {
        use WritePosition::{Append, InPlace};
        let values = [
            (SYNC_WRITE.id.as_str(), Some(1000.0)),
            (BLOCKSIZE_WRITE.id.as_str(), Some(4.096e9)),
            (DEVICE_ACCEPT_LATENCY.id.as_str(), Some(20_000.0)),
            (DEVICE_WRITE_LATENCY.id.as_str(), Some(50_000.0)),
        ];
        with_facts(&values, |facts| {
            let predicted = |method: FlushMethod, position: WritePosition| {
                predict(facts, &SYNC_WRITE, &Case::new().with_word(method).with_word(position))
            };
            let unflushed = predicted(FlushMethod::Nothing, InPlace).unwrap();
            assert_eq!((unflushed.value, unflushed.low, unflushed.high), (1000.0, 500.0, 2000.0));
            for method in [FlushMethod::Fsync, FlushMethod::Fdatasync] {
                assert_eq!(predicted(method, InPlace).unwrap().value, 51_000.0);
                let append = predicted(method, Append).unwrap();
                assert_eq!((append.value, append.inputs.len()), (71_000.0, 3));
            }
            assert!(predicted(FlushMethod::Nothing, Append).unwrap_err().0.contains("published"));
        });
    }

    #[test]
    fn dsync_cases_include_fdatasync() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&machine(), effort);
            let mut dsync = cases.iter().filter(|case| FlushMethod::of(case) == Some(FlushMethod::Dsync));
            assert!(dsync.all(|case| cases.contains(&case.clone().with_word(FlushMethod::Fdatasync))));
        }
    }

    #[test]
    fn flush_without_device_writes_fails() {
        assert!(judge_device_bytes(FlushMethod::Fsync, 8192, 20480).unwrap().contains("2.5 times the 8 KiB"));
        assert!(
            matches!(judge_device_bytes(FlushMethod::Dsync, 8192, 4096), Err(ProbeError::Skip(reason)) if reason.0.contains("4 KiB of 8 KiB"))
        );
        assert!(judge_device_bytes(FlushMethod::Nothing, 8192, 0).unwrap().contains("wrote 0 B"));
    }
}
