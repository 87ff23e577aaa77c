//! The trials of a round: a set of files sent from this process to another, each time timed, compared and removed.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use kelvin_core::Case;
use kelvin_core::catalogue::transfer::TransferFiles;
use kelvin_file::cache::PageCacheState;
use kelvin_harness::{Bench, ProbeError};
use kelvin_sys::net::connect_local_pair;
use kelvin_sys::usage::{UsageScope, read_usage};

use super::cells::Cell;
use super::file_sets::{ReadyFileSet, file_lengths};
use super::receiver::{self, ReceiverSpec, ReceiverWork};
use crate::file::tree::RoundDirectory;
use crate::reasons::{ProbeResult, fail_if};

/// Trials in a round: rounds differ by more than the trials of one, so more rounds of fewer show more. A large transfer takes as long
/// as all else of a round.
const TRIALS_PER_ROUND: u32 = 5;

/// Trials of a round of a set.
const fn trial_count(set: TransferFiles) -> u32 {
    match set {
        TransferFiles::Small | TransferFiles::One => TRIALS_PER_ROUND,
        TransferFiles::Large => 1,
    }
}

/// Bytes that one round of a case of a study moves through files; none for cases of other probes.
pub fn bytes_per_round(case: &Case) -> u64 {
    let (_, warm_up_bytes) = TransferFiles::Small.count_and_bytes();
    TransferFiles::of(case).map_or(0, |set| warm_up_bytes + set.count_and_bytes().1 * u64::from(trial_count(set)))
}

/// One transfer as it was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferTrial {
    /// Nanoseconds.
    pub time: f64,
    pub sender: ReceiverWork,
    pub receiver: ReceiverWork,
    /// Bytes that the sender's process read from devices.
    pub fetched: u64,
    /// Bytes of the targets that had been written to their device before they were removed.
    pub written: u64,
}

/// The trials of a round of a case, with the files of the sender in a state; and the bytes of each.
pub(super) fn run_trials(
    bench: &mut Bench<'_>,
    case: &Case,
    state: PageCacheState,
) -> ProbeResult<(Vec<TransferTrial>, u64)> {
    let cell = Cell::from_case(case)?;
    let partner = bench.partner_cpu()?;
    let set = ReadyFileSet::open(bench, cell.set)?;
    let warm_up_set = ReadyFileSet::open(bench, TransferFiles::Small)?;
    warm_up_set.set_cache_state(PageCacheState::Cached)?;
    let target = RoundDirectory::create(bench, "arrives")?;
    let (directory, clock) = (target.path().to_path_buf(), bench.clock());
    let receiver =
        receiver::ReceiverProcess::start(ReceiverSpec { end: cell.receiving, directory, clock, cpu: partner })?;
    let ends = TransferEnds { bench, cell: &cell, receiver: &receiver, target: target.path() };
    ends.run_trial(&warm_up_set)?;
    let trial = |_| {
        if state == PageCacheState::Uncached {
            // This CPU frees what it has sent. The other CPU, which has read it, puts it on a list of this one, which
            // is checked when a packet arrives (skb_defer_free_flush of Linux net/core/dev.c). Until then pages that
            // sendfile or splice sent stay in memory.
            drop(connect_local_pair(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, |_| Ok(()))?);
        }
        set.set_cache_state(state)?;
        ends.run_trial(&set)
    };
    let trials = (0..trial_count(cell.set)).map(trial).collect::<ProbeResult<Vec<TransferTrial>>>()?;
    receiver.stop()?;
    let mut lengths = file_lengths(cell.set);
    lengths.dedup();
    let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
    bench.note(format!("{} files of {} bytes", set.paths.len(), lengths.join(" and ")));
    Ok((trials, set.bytes))
}

/// Both ends of the transfers of a round.
struct TransferEnds<'a, 'b> {
    bench: &'a Bench<'b>,
    cell: &'a Cell,
    receiver: &'a receiver::ReceiverProcess,
    target: &'a Path,
}

impl TransferEnds<'_, '_> {
    /// One transfer of a set, compared and removed.
    fn run_trial(&self, set: &ReadyFileSet) -> ProbeResult<TransferTrial> {
        self.receiver.accept()?;
        // Of the process, since a ring has threads of the kernel, which are counted as its own.
        let before = read_usage(UsageScope::Process);
        let start = self.bench.clock().start();
        let outcome = self.cell.sending.send(&set.paths, self.receiver.address);
        let usage = read_usage(UsageScope::Process).since(before);
        let totals = match outcome {
            Ok(totals) => totals,
            Err(error) => {
                return self.receiver.check_alive().and(Err(ProbeError::fail(format!("the sender: {error}"))));
            }
        };
        let (end, receiver) = self.receiver.take_result()?;
        fail_if(end <= start, "the clocks of the two CPUs differ by more than a transfer takes")?;
        let (time, fetched) = (self.bench.nanoseconds(end - start), usage.read_from_device);
        let written = set.written_back_bytes(self.target)?;
        set.compare(self.target)?;
        self.bench.reserve_write(written)?;
        Ok(TransferTrial { time, sender: ReceiverWork::from_usage(&totals, usage), receiver, fetched, written })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_bytes_include_warm_up() {
        let bytes_of_set = |set: TransferFiles| bytes_per_round(&Case::new().with_word(set));
        assert_eq!(
            [bytes_of_set(TransferFiles::Small), bytes_of_set(TransferFiles::Large)],
            [6 * 24_114, 364_344_508 + 24_114]
        );
        assert_eq!(bytes_per_round(&Case::new()), 0);
    }
}
