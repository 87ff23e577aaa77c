//! The trials of a round: a set of files sent from this process to another, each time timed, compared and removed.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;

use kelvin_catalogue::transfer::Files;
use kelvin_file::cache::State;
use kelvin_harness::{Bench, Stop};
use kelvin_model::Case;
use kelvin_sys::usage::{Who, usage};

use super::cells::Cell;
use super::files::{Set, split};
use super::receiver::{self, Setting, Work};
use crate::file::tree::OwnPlace;

/// Trials in a round: rounds differ by more than the trials of one, so more rounds of fewer tell more. A large transfer takes as long
/// as all else of a round.
const TRIALS: u32 = 5;

/// Trials of a round of a set.
const fn count(set: Files) -> u32 {
    match set {
        Files::Small | Files::One => TRIALS,
        Files::Large => 1,
    }
}

/// Bytes that one round of a case of a study moves through files; none for cases of other probes.
pub fn bytes_of_a_round(case: &Case) -> u64 {
    let (_, warm) = Files::Small.amount();
    Files::of(case).map_or(0, |set| warm + set.amount().1 * u64::from(count(set)))
}

/// One transfer as it was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// Nanoseconds.
    pub time: f64,
    pub sender: Work,
    pub receiver: Work,
    /// Bytes that the sender's process read from devices.
    pub fetched: u64,
    /// Bytes of the targets that had been written to their device before they were removed.
    pub written: u64,
}

/// The trials of a round of a case, with the files of the sender in a state; and the bytes of each.
pub(super) fn trials(bench: &mut Bench<'_>, case: &Case, state: State) -> Result<(Vec<Trial>, u64), Stop> {
    let cell = Cell::of(case)?;
    let partner = bench.partner_cpu()?;
    let set = Set::ready(bench, cell.set)?;
    let small = Set::ready(bench, Files::Small)?;
    small.bring(State::Cached)?;
    let target = OwnPlace::make(bench, "arrives")?;
    let (directory, clock) = (target.path().to_path_buf(), bench.clock());
    let receiver = receiver::Receiver::start(Setting { how: cell.receiving, directory, clock, cpu: partner })?;
    let ends = Ends { bench, cell: &cell, receiver: &receiver, target: target.path() };
    ends.trial(&small)?;
    let one = |_| {
        if state == State::Uncached {
            free_sent().map_err(|error| Stop::fail(format!("cannot connect to this process itself: {error}")))?;
        }
        set.bring(state)?;
        ends.trial(&set)
    };
    let trials = (0..count(cell.set)).map(one).collect::<Result<Vec<Trial>, Stop>>()?;
    receiver.end()?;
    bench.note(format!("{} files of {} bytes", set.paths.len(), lengths(cell.set)));
    Ok((trials, set.bytes))
}

/// Has this CPU free what it has sent: the other CPU, which has read it, puts it on a list of this one, which looks at it when a
/// packet arrives (skb_defer_free_flush of Linux net/core/dev.c). Until then pages that sendfile or splice sent stay in memory.
fn free_sent() -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    listener.accept().map(|_| drop(near))
}

/// The lengths of a set's files in words.
fn lengths(set: Files) -> String {
    let mut lengths = split(set);
    lengths.dedup();
    lengths.iter().map(u64::to_string).collect::<Vec<_>>().join(" and ")
}

/// Both ends of the transfers of a round.
struct Ends<'a, 'b> {
    bench: &'a Bench<'b>,
    cell: &'a Cell,
    receiver: &'a receiver::Receiver,
    target: &'a Path,
}

impl Ends<'_, '_> {
    /// One transfer of a set, compared and removed.
    fn trial(&self, set: &Set) -> Result<Trial, Stop> {
        let trial = self.transfer(set)?;
        let written = set.written_back(self.target)?;
        set.compare(self.target)?;
        self.bench.may_write(written)?;
        Ok(Trial { written, ..trial })
    }

    fn transfer(&self, set: &Set) -> Result<Trial, Stop> {
        self.receiver.accept()?;
        // Of the process, since a ring has threads of the kernel, which are counted as its own.
        let before = usage(Who::Process);
        let start = self.bench.clock().start();
        let sent = self.cell.sending.send(&set.paths, self.receiver.address);
        let used = usage(Who::Process).since(before);
        let moved = match sent {
            Ok(moved) => moved,
            Err(error) => return self.receiver.check().and(Err(Stop::fail(format!("the sender: {error}")))),
        };
        let (end, receiver) = self.receiver.finished()?;
        if end <= start {
            return Err(Stop::fail("the clocks of the two CPUs differ by more than a transfer takes"));
        }
        let (time, fetched) = (self.bench.nanoseconds(end - start), used.read_from_device);
        Ok(Trial { time, sender: Work::of(&moved, used), receiver, fetched, written: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_moves_its_trials_and_the_small_set_once_more() {
        let of = |set: Files| bytes_of_a_round(&Case::new().at(set));
        assert_eq!([of(Files::Small), of(Files::Large)], [6 * 24_114, 364_344_508 + 24_114]);
        assert_eq!(bytes_of_a_round(&Case::new()), 0);
    }
}
