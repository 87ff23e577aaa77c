//! A file of a directory that is read pass by pass, of which as much is in memory when a pass begins as is wanted.

use std::path::{Path, PathBuf};

use kelvin_file::cache::{self, State};
use kelvin_file::{Engine, How, Order, Pages, Reader, Requests, Tally, Target, noise};
use kelvin_harness::{Bench, Setup, Stop};
use kelvin_model::units::bytes as in_words;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::fs::{kind, room};

use super::super::data;
use super::requests::Counted;

/// Bytes of a block.
pub(super) const BLOCK: usize = 4096;
/// The name of a file, before its size.
const NAME: &str = "kelvin-remote-data";
/// Seed of the content.
const SEED: u64 = 1;
/// Free space that a directory must have, as a multiple of the file.
const ROOM: u64 = 2;
/// Bytes of the file by which is known how long a larger one takes to write, and the share of a round's time limit that it may
/// take.
const TRIAL: u64 = 8 << 20;
const WRITING: f64 = 0.6;

/// How a file is read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub bytes: u64,
    pub state: State,
    pub order: Order,
    /// Blocks timed together.
    pub together: u64,
}

pub(super) struct Place {
    target: Target,
    reading: Reading,
    reader: Reader,
    requests: Requests,
    /// Blocks left in this pass, and passes so far.
    left: u64,
    passes: u64,
    asked: Asked,
    /// Its file system, and what was in memory before the first pass.
    pub proof: String,
}

/// The requests to a server, counted over the blocks of passes and not over what prepares them.
struct Asked {
    counted: Option<Counted>,
    /// The count when the pass began.
    begun: u64,
    requests: u64,
    blocks: u64,
}

impl Place {
    pub fn open(bench: &Bench<'_>, directory: &Path, reading: Reading) -> Result<Self, Stop> {
        let target = file(bench, directory, reading.bytes)?;
        if reading.state == State::Direct {
            can_be_direct(&target, directory)?;
        }
        let found = cache::bring(&target, reading.state).map_err(data::stopped)?;
        let proof = format!("{}, {found} before a pass", kind(directory)?.name());
        let (reader, requests) = pass(&target, reading, 0)?;
        let (left, asked) = (requests.blocks(), Asked::of(directory)?);
        Ok(Self { target, reading, reader, requests, left, passes: 0, asked, proof })
    }

    /// The ticks of the next blocks that are timed together.
    pub fn read(&mut self, clock: Clock) -> Result<u64, Stop> {
        let blocks = self.reading.together;
        if self.left < blocks {
            self.begin_again()?;
        }
        let mut next = self.requests.clone().at_most(blocks);
        let mut tally = Tally::default();
        let begun = clock.start();
        let outcome = self.reader.read(&mut next, &mut tally);
        let ticks = clock.stop().wrapping_sub(begun);
        outcome.map_err(data::stopped)?;
        if tally != (Tally { bytes: blocks * BLOCK as u64, requests: blocks }) {
            return Err(Stop::fail(format!("{blocks} blocks of {BLOCK} bytes came to {tally:?}")));
        }
        self.requests = next;
        self.left -= blocks;
        self.asked.blocks += blocks;
        Ok(ticks)
    }

    fn begin_again(&mut self) -> Result<(), Stop> {
        self.asked.end()?;
        self.passes += 1;
        cache::bring(&self.target, self.reading.state).map_err(data::stopped)?;
        (self.reader, self.requests) = pass(&self.target, self.reading, self.passes)?;
        self.left = self.requests.blocks();
        self.asked.begin()
    }

    /// Requests to the server for each block so far, where its client counts them.
    pub fn requests_of_a_block(mut self) -> Result<Option<f64>, Stop> {
        self.asked.end()?;
        Ok(self.asked.counted.is_some().then(|| self.asked.requests as f64 / self.asked.blocks.max(1) as f64))
    }
}

impl Asked {
    fn of(directory: &Path) -> Result<Self, Stop> {
        let mut asked = Self { counted: Counted::of(directory), begun: 0, requests: 0, blocks: 0 };
        asked.begin()?;
        Ok(asked)
    }

    fn now(&self) -> Result<u64, Stop> {
        self.counted.as_ref().map_or(Ok(0), Counted::requests)
    }

    fn begin(&mut self) -> Result<(), Stop> {
        self.begun = self.now()?;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        self.requests += self.now()?.saturating_sub(self.begun);
        Ok(())
    }
}

/// That a file can be read past the page cache in blocks.
pub(super) fn can_be_direct(target: &Target, directory: &Path) -> Result<(), Stop> {
    let alignment = target.alignment().map_err(data::stopped)?;
    if (BLOCK as u64).is_multiple_of(alignment) {
        return Ok(());
    }
    Err(Stop::skip(format!(
        "needs direct I/O in blocks of {}, and {} requires multiples of {}",
        in_words(BLOCK as u64),
        directory.display(),
        in_words(alignment)
    )))
}

/// A fresh descriptor, so that the kernel remembers nothing of earlier passes, and the requests of a pass.
fn pass(target: &Target, reading: Reading, passes: u64) -> Result<(Reader, Requests), Stop> {
    let order = match reading.order {
        Order::Sequential => Order::Sequential,
        Order::Random { seed } => Order::Random { seed: seed.wrapping_add(passes) },
    };
    let how = How { access: reading.state.access(), block: BLOCK, order, pages: Pages::Base };
    let reader = Engine::Pread.open(target, how).map_err(data::stopped)?;
    Ok((reader, Requests::new(0..target.bytes(), BLOCK, order)))
}

/// The file of so many bytes in a directory, written by the first round that needs it.
pub(super) fn file(bench: &Bench<'_>, directory: &Path, bytes: u64) -> Result<Target, Stop> {
    let path = path_in(directory, bytes);
    if !path.exists() {
        if bytes > TRIAL {
            let each = file(bench, directory, TRIAL).and_then(|trial| took(trial.path()))?;
            let expected = each * (bytes / TRIAL) as f64;
            in_time(directory, bytes, Writing { expected, most: WRITING * bench.limit() })?;
        }
        has_room(directory, bytes)?;
        bench.may_write(bytes)?;
        write(&path, bytes)?;
    }
    Target::find(&path).map_err(data::stopped)
}

/// Writes the file of so many bytes in a directory before the first round, however long that takes.
pub(super) fn write_before(setup: &Setup, directory: &Path, bytes: u64) -> Result<(), Stop> {
    has_room(directory, bytes)?;
    setup.may_write(bytes)?;
    write(&path_in(directory, bytes), bytes)
}

/// Where the file of so many bytes is in a directory.
fn path_in(directory: &Path, bytes: u64) -> PathBuf {
    directory.join(format!("{NAME}-{bytes}"))
}

/// That a directory has room for a file of so many bytes, and as many again.
fn has_room(directory: &Path, bytes: u64) -> Result<(), Stop> {
    let (available, needed) = (room(directory)?.available_bytes, ROOM.saturating_mul(bytes));
    if available >= needed {
        return Ok(());
    }
    let [needed, has] = [needed, available].map(in_words);
    Err(Stop::skip(format!("needs {needed} free in {}, which has {has}", directory.display())))
}

/// Writes a file, and beside it how many nanoseconds that took.
fn write(path: &Path, bytes: u64) -> Result<(), Stop> {
    let begun = monotonic();
    noise::file(path, bytes, SEED).map_err(|error| data::cannot("write", path, &error))?;
    Ok(std::fs::write(beside(path), (monotonic() - begun).to_string())?)
}

/// Nanoseconds that writing a file should take, and may.
struct Writing {
    expected: f64,
    most: f64,
}

/// That a file of so many bytes is written in time.
fn in_time(directory: &Path, bytes: u64, Writing { expected, most }: Writing) -> Result<(), Stop> {
    if expected <= most {
        return Ok(());
    }
    Err(Stop::skip(format!(
        "needs a file of {} in {}, and writing it would take {:.0} s, more than {:.0} s; --remote-size writes one before the first round",
        in_words(bytes),
        directory.display(),
        expected / 1e9,
        most / 1e9
    )))
}

/// Nanoseconds that writing a file took.
fn took(path: &Path) -> Result<f64, Stop> {
    let text = std::fs::read_to_string(beside(path))?;
    text.parse().map_err(|_| Stop::fail(format!("{} does not hold a number: {text}", beside(path).display())))
}

/// Where that is kept.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("took")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_would_take_too_long_is_not_written() {
        let within = |expected: f64| in_time(Path::new("/mnt"), 128 << 20, Writing { expected, most: 6e9 });
        assert!(within(5.9e9).is_ok());
        let Err(Stop::Skip(reason)) = within(11.2e9) else { panic!("11 s are too long") };
        let expected = "needs a file of 128 MiB in /mnt, and writing it would take 11 s, more than 6 s; --remote-size writes one before the first round";
        assert_eq!(reason.0, expected);
    }
}
