//! The cost of a durable write: 4 KiB written and flushed, by each of the calls that do it.
//!
//! It is the floor under every transaction on this file system. It must not be used as the device's write latency: the file
//! system adds its own writes and flushes, and those of other files wait in the same journal.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kelvin_catalogue::file::{
    BLOCK, BLOCKSIZE_WRITE, DEVICE_ACCEPT, DEVICE_WRITE, DEVICE_WRITE_LATENCY, FlushedBy, SYNC, SyncPolicy, WritePlace,
};
use kelvin_file::device::{Device, Moved};
use kelvin_file::noise::{self, Noise};
use kelvin_file::{Order, Requests, Target};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, units};
use kelvin_sys::clock::Clock;
use kelvin_sys::fs::kind;

use super::cases::{known, predictable};
use super::data::{cannot, has_room, stopped};
use super::expected::{self, Expected, nanoseconds_of, per_second, time};
use crate::predict::Predicting;

pub(crate) static PROBE: Probe = Probe {
    id: SYNC.id.as_str(),
    summary: "A write of 4 KiB made durable by fsync, fdatasync or O_DSYNC, and one that is not",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One pwrite of 4 KiB of fresh noise, and the call that flushes it, timed together and one by one, so that \
              the distribution has its tails. by=fdatasync and by=fsync call that after the write; by=dsync writes to \
              a file opened with O_DSYNC; by=none only writes, into memory, and is the base of the others. \
              place=in_place overwrites blocks of a file of 1 MiB in random order, each already on the device; \
              place=append makes a new file longer with each write, so that its size must be stored too. Each call is \
              checked. The device's own counter must show at least the bytes that were flushed, or the round is \
              skipped: a flush that goes nowhere is no flush. What it counts beyond them, such as journal blocks, is \
              noted. File systems in memory are skipped.",
        prediction: "by=none in place: the same write of 4 KiB over pages in memory, as file.blocksize.write times it in \
                     order (block=4096, sync=buffered). by=fdatasync and by=fsync in place: that write \
                     (file.sync, by=none) and one flushed write of the device (file.device.write_latency): the \
                     block, which is where it was. Both appending: the write, the block, which is on the device before \
                     the file is said to be longer (file.device.accept), and the commit of the new size, which is \
                     flushed (file.device.write_latency). Predicted range: a factor of two either way. by=dsync: \
                     O_DSYNC is defined as a write followed by fdatasync (open(2)), and the kernel implements it so \
                     (generic_write_sync), so as by=fdatasync in the same place; a factor of 1.5 either way, as both \
                     vary with the disk. by=none appending has no prediction: a file system's cost of new blocks is \
                     not published.",
        not_for: "The device's own write latency. Throughput of many writers, whose flushes a journal joins into one. \
                  Data safety: a device or a host that acknowledges a flush early cannot be detected from here.",
        pitfalls: &[
            "A flush in memory (tmpfs) costs next to nothing and keeps nothing.",
            "In place fdatasync need not write the inode, while fsync also stores the modification time, by a journal \
             commit: the two differ by more than their names.",
            "A virtual disk may answer when the host has it in memory.",
            "A flush waits for whatever else is in the journal: a busy file system makes it slow.",
        ],
        sources: &[
            "open(2): O_DSYNC; fsync(2)",
            "Linux include/linux/fs.h: generic_write_sync; fs/ext4/fsync.c: ext4_sync_file",
            "Linux Documentation/filesystems/ext4/journal.rst: data=ordered",
            "fio fsync=1, fdatasync=1, sync=dsync; pg_test_fsync of PostgreSQL",
        ],
    },
    metrics: &[&SYNC],
    inputs: &[BLOCKSIZE_WRITE.id.as_str(), DEVICE_WRITE.id.as_str()],
    cases,
    run,
    predict,
};

/// Bytes of a write: a page, and a block of most file systems and databases.
const BYTES: usize = 4096;
/// Bytes of the file that is written over: enough blocks that none is written twice soon, and little to write.
const FILE_BYTES: u64 = 1 << 20;
/// Flushed writes in the trial that shows how many fit into the slice.
const TRIAL: u64 = 3;
/// Bytes to reserve, as a multiple of the trial's estimate: later writes may be faster.
const MARGIN: f64 = 4.0;
/// More writes than the bench makes of operations as short as a write into memory.
const MOST_WRITES: f64 = 20_000.0;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use FlushedBy::{Dsync, Fdatasync, Fsync, Nothing};
    use WritePlace::{Append, InPlace};
    let all = [
        (Nothing, InPlace),
        (Fdatasync, InPlace),
        (Fsync, InPlace),
        (Dsync, InPlace),
        (Fsync, Append),
        (Nothing, Append),
        (Fdatasync, Append),
        (Dsync, Append),
    ];
    let wanted = match effort {
        Effort::Quick => 2,
        Effort::Default => 5,
        Effort::Thorough => all.len(),
    };
    all[..wanted].iter().map(|&(by, place)| Case::new().at(by).at(place)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let by = known(FlushedBy::of(case), case)?;
    let append = known(WritePlace::of(case), case)? == WritePlace::Append;
    let system = kind(bench.scratch())?;
    if system.lives_in_memory() && by != FlushedBy::Nothing {
        return Err(Stop::skip(format!(
            "needs a scratch directory on a disk: {} lives in memory, where a flush does nothing; choose another by \
             --dir",
            system.name()
        )));
    }
    let mut writes = Writes::new(bench, by, append)?;
    let trial = try_out(bench, &mut writes)?;
    bench.note(format!("{}: trial: {trial}", system.name()));
    let (before, done) = (writes.counted(), writes.done);
    bench.time_each([&SYNC], |clock| Ok([writes.one(clock)?]))?;
    writes.prove(writes.done - done, before).map(drop)
}

/// Makes a few writes, reserves as many as they predict, and says where they went.
fn try_out(bench: &Bench<'_>, writes: &mut Writes) -> Result<String, Stop> {
    let before = writes.counted();
    let mut ticks = 0;
    for _ in 0..TRIAL {
        ticks += writes.one(bench.clock())?;
    }
    let each = bench.nanoseconds(ticks) / TRIAL as f64;
    let expected = (MARGIN * bench.slice() / each.max(1.0)).min(MOST_WRITES) * BYTES as f64;
    // What is written in place, in memory, reaches the device once.
    let bytes = if writes.by == FlushedBy::Nothing && !writes.append { FILE_BYTES } else { expected as u64 };
    has_room(bench, bytes)?;
    bench.may_write(bytes)?;
    writes.prove(TRIAL, before)
}

/// The file, and what was written to it. One that was appended to is removed when dropped.
struct Writes {
    path: PathBuf,
    file: File,
    by: FlushedBy,
    append: bool,
    /// Where blocks are written over.
    places: Requests,
    /// Where the next block is appended.
    end: u64,
    block: Vec<u8>,
    seed: u64,
    /// Blocks written.
    done: u64,
    device: Result<Device, String>,
}

impl Writes {
    fn new(bench: &Bench<'_>, by: FlushedBy, append: bool) -> Result<Self, Stop> {
        let path = if append { new_file(bench.scratch())? } else { shared_file(bench, by)? };
        let flags = if by == FlushedBy::Dsync { kelvin_sys::direct::DSYNC } else { 0 };
        let opened = File::options().write(true).custom_flags(flags).open(&path);
        let file = opened.map_err(|error| cannot("open", &path, &error))?;
        let device = Device::below(&Target::find(&path).map_err(stopped)?);
        let order = Order::Random { seed: bench.seed() };
        Ok(Self {
            path,
            file,
            by,
            append,
            places: Requests::new(0..FILE_BYTES, BYTES, order).endless(),
            end: 0,
            block: vec![0; BYTES],
            seed: bench.seed(),
            done: 0,
            device,
        })
    }

    /// Writes the next block, and flushes it; the ticks of both.
    fn one(&mut self, clock: Clock) -> Result<u64, Stop> {
        // No block is like another, nor like the one it replaces.
        self.seed = self.seed.wrapping_add(1);
        Noise::new(self.seed).fill(&mut self.block);
        let offset = if self.append { self.end } else { self.places.next().map_or(0, |request| request.offset) };
        let begun = clock.start();
        let written = self.file.write_at(&self.block, offset);
        let flushed = match self.by {
            FlushedBy::Nothing | FlushedBy::Dsync => Ok(()),
            FlushedBy::Fdatasync => self.file.sync_data(),
            FlushedBy::Fsync => self.file.sync_all(),
        };
        let ticks = clock.stop().wrapping_sub(begun);
        match written {
            Ok(BYTES) => {}
            Ok(part) => return Err(Stop::fail(format!("a write wrote {part} of {BYTES} bytes"))),
            Err(error) => return Err(cannot("write", &self.path, &error)),
        }
        flushed.map_err(|error| cannot("flush", &self.path, &error))?;
        self.end += u64::from(self.append) * BYTES as u64;
        self.done += 1;
        Ok(ticks)
    }

    /// The device's count so far.
    fn counted(&self) -> Result<Moved, String> {
        self.device.clone().and_then(|device| device.moved().map_err(|error| error.to_string()))
    }

    /// What the device counts of so many writes since an earlier reading, in words.
    fn prove(&self, writes: u64, before: Result<Moved, String>) -> Result<String, Stop> {
        let bytes = writes * BYTES as u64;
        let written = match before.and_then(|before| Ok(self.counted()?.since(before).written)) {
            Ok(written) => written,
            Err(reason) => return Ok(format!("no device counter shows where the blocks went: {reason}")),
        };
        judge(self.by, bytes, written)
    }
}

/// The file that is overwritten, shared by all rounds of the run: one for flushed writes, and one for the others, whose dirty
/// pages a flush would write too.
fn shared_file(bench: &Bench<'_>, by: FlushedBy) -> Result<PathBuf, Stop> {
    let name = if by == FlushedBy::Nothing { "kelvin-sync-unflushed" } else { "kelvin-sync-flushed" };
    let path = bench.scratch().join(name);
    if !path.exists() {
        has_room(bench, FILE_BYTES)?;
        bench.may_write(FILE_BYTES)?;
        noise::file(&path, FILE_BYTES, bench.seed()).map_err(|error| cannot("write", &path, &error))?;
    }
    Ok(path)
}

/// An empty file of this round's own.
fn new_file(scratch: &Path) -> Result<PathBuf, Stop> {
    let path = scratch.join(format!("kelvin-sync-{}", std::process::id()));
    File::create_new(&path).map_err(|error| cannot("make", &path, &error))?;
    Ok(path)
}

/// What a device's count says of so many bytes.
fn judge(by: FlushedBy, bytes: u64, written: u64) -> Result<String, Stop> {
    let [device, asked] = [written, bytes].map(units::bytes);
    if by == FlushedBy::Nothing {
        return Ok(format!("the device wrote {device} while {asked} were written into memory"));
    }
    if written < bytes {
        return Err(Stop::skip(format!(
            "needs a file system that flushes to its device, which counts {device} of {asked} flushed; choose \
             another directory by --dir"
        )));
    }
    let times = written as f64 / bytes.max(1) as f64;
    Ok(format!("the device wrote {times:.1} times the {asked} that were flushed, journal and others' included"))
}

impl Drop for Writes {
    fn drop(&mut self) {
        if self.append {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How far O_DSYNC and fdatasync may lie apart, as a factor: they do the same, on a disk that varies.
const APART: f64 = 1.5;

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    match (predictable(FlushedBy::of(case), case)?, predictable(WritePlace::of(case), case)?) {
        (FlushedBy::Dsync, _) => dsync(facts, case),
        (FlushedBy::Nothing, WritePlace::InPlace) => unflushed(facts),
        (FlushedBy::Nothing, WritePlace::Append) => Err(NoPrediction::because(
            "a file system's cost of a write of new blocks into memory is not published; os.syscall.write is its floor",
        )),
        (FlushedBy::Fdatasync | FlushedBy::Fsync, WritePlace::InPlace) => {
            let flushed = of_device(facts, &DEVICE_WRITE_LATENCY, " the block flushed to the device")?;
            Ok(expected::one_by_one(written(facts)?, flushed).into_time())
        }
        (FlushedBy::Fdatasync | FlushedBy::Fsync, WritePlace::Append) => {
            let data = of_device(facts, &DEVICE_ACCEPT, " the block")?;
            let commit = of_device(facts, &DEVICE_WRITE_LATENCY, " the new size flushed to the device")?;
            Ok(expected::one_by_one(expected::one_by_one(written(facts)?, data), commit).into_time())
        }
    }
}

/// A write over pages in memory is one of those that follow each other there.
fn unflushed(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let block = BYTES as u64;
    let rate = facts.measured(&BLOCKSIZE_WRITE, &Case::new().with(BLOCK, block).at(SyncPolicy::Buffered))?;
    let value = nanoseconds_of(block, rate.value);
    let derivation = format!("4 KiB at {} = {}", per_second(rate.value), time(value));
    Ok(Predicting::within_factor(Basis::Derived, value, expected::FACTOR)
        .formula("buffered block", format!("4 KiB / {}", rate.name))
        .input(rate)
        .derived_as(derivation))
}

/// The write that all flushed ones begin with, as measured alone.
fn written(facts: &Facts<'_>) -> Result<Expected, NoPrediction> {
    let alone = Case::new().at(FlushedBy::Nothing).at(WritePlace::InPlace);
    Ok(Expected::measured("write", facts.measured(&SYNC, &alone)?, " write into memory"))
}

fn of_device(facts: &Facts<'_>, metric: &Metric, what: &str) -> Result<Expected, NoPrediction> {
    Ok(Expected::measured(what.trim_start(), facts.measured(metric, &Case::new())?, what))
}

/// A write to a file with O_DSYNC is one with fdatasync after it.
fn dsync(facts: &Facts<'_>, case: &Case) -> Result<Prediction, NoPrediction> {
    let fdatasync = facts.measured(&SYNC, &case.clone().at(FlushedBy::Fdatasync))?;
    let value = fdatasync.value;
    Ok(Predicting::within_factor(Basis::Derived, value, APART)
        .formula("as fdatasync", "a write and fdatasync in the same place")
        .input(fdatasync)
        .source("open(2): O_DSYNC; Linux include/linux/fs.h: generic_write_sync")
        .derived_as(format!(
            "{:.1} us, as with fdatasync; predicted range: a factor of {APART} either way",
            value / 1000.0
        )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{facts_about, machine};

    #[test]
    fn dsync_is_predicted_to_be_fdatasync() {
        let dsync = |place: WritePlace| Case::new().at(FlushedBy::Dsync).at(place);
        facts_about(&[(&SYNC.id, Some(3e6))], |facts| {
            for &place in WritePlace::ALL {
                let prediction = predict(facts, &SYNC, &dsync(place)).unwrap();
                assert_eq!((prediction.value, prediction.low, prediction.high), (3e6, 2e6, 4.5e6));
                let fdatasync = dsync(place).at(FlushedBy::Fdatasync);
                assert_eq!(prediction.inputs[0].name, format!("{} ({fdatasync})", SYNC.id));
            }
        });
        facts_about(&[(&SYNC.id, None)], |facts| assert!(predict(facts, &SYNC, &dsync(WritePlace::Append)).is_err()));
    }

    #[test]
    fn a_flushed_write_is_a_write_and_those_of_the_device() {
        use WritePlace::{Append, InPlace};
        let known = [
            (SYNC.id.as_str(), Some(1000.0)),
            (BLOCKSIZE_WRITE.id.as_str(), Some(4.096e9)),
            (DEVICE_ACCEPT.id.as_str(), Some(20_000.0)),
            (DEVICE_WRITE_LATENCY.id.as_str(), Some(50_000.0)),
        ];
        facts_about(&known, |facts| {
            let of = |by: FlushedBy, place: WritePlace| predict(facts, &SYNC, &Case::new().at(by).at(place));
            let unflushed = of(FlushedBy::Nothing, InPlace).unwrap();
            assert_eq!((unflushed.value, unflushed.low, unflushed.high), (1000.0, 500.0, 2000.0));
            for by in [FlushedBy::Fsync, FlushedBy::Fdatasync] {
                assert_eq!(of(by, InPlace).unwrap().value, 51_000.0);
                let append = of(by, Append).unwrap();
                assert_eq!((append.value, append.inputs.len()), (71_000.0, 3));
            }
            assert!(of(FlushedBy::Nothing, Append).unwrap_err().0.contains("published"));
        });
    }

    #[test]
    fn what_dsync_is_compared_with_is_measured_with_it() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&machine(), effort);
            let mut dsync = cases.iter().filter(|case| FlushedBy::of(case) == Some(FlushedBy::Dsync));
            assert!(dsync.all(|case| cases.contains(&case.clone().at(FlushedBy::Fdatasync))));
        }
    }

    #[test]
    fn a_flush_that_the_device_does_not_see_is_none() {
        assert!(judge(FlushedBy::Fsync, 8192, 20480).unwrap().contains("2.5 times the 8 KiB"));
        assert!(
            matches!(judge(FlushedBy::Dsync, 8192, 4096), Err(Stop::Skip(reason)) if reason.0.contains("4 KiB of 8 KiB"))
        );
        assert!(judge(FlushedBy::Nothing, 8192, 0).unwrap().contains("wrote 0 B"));
    }
}
