//! The receiving end of a transfer, in a process of its own on another CPU.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_sys::clock::Clock;
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod, HandoffSide};
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::shared_memory::Shared;
use kelvin_sys::usage::{Usage, UsageScope, read_usage};
use kelvin_sys::{Error, Result};
use kelvin_transfer::raw_protocol::RawTotals;

use super::endpoints::{FileReceiver, ReceiverEnd, STARTING};
use crate::reasons::{OrReason, ProbeResult};

/// What an end did for a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverWork {
    /// Nanoseconds of CPU time.
    pub cpu: u64,
    /// System calls that move bytes, map the file or wait.
    pub calls: u64,
    /// Page faults.
    pub faults: u64,
    /// Context switches.
    pub switches: u64,
}

impl ReceiverWork {
    /// Between two readings of the counters of a process.
    pub(super) fn from_usage(totals: &RawTotals, usage: Usage) -> Self {
        Self {
            cpu: usage.cpu(),
            calls: totals.counts.system_calls,
            faults: usage.minor_faults + usage.major_faults,
            switches: usage.voluntary_switches + usage.involuntary_switches,
        }
    }
}

/// The figures of one transfer in memory that both processes share: those of [`ReceiverWork`], in its order.
type SharedCounters = Shared<[AtomicU64; 4]>;

/// How the receiving process works.
pub(super) struct ReceiverSpec {
    pub end: ReceiverEnd,
    /// Where files arrive.
    pub directory: PathBuf,
    pub clock: Clock,
    /// Its CPU.
    pub cpu: u32,
}

/// The receiving process. Dropped, it is killed.
pub(super) struct ReceiverProcess {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whose turn it is before a transfer, and when one has ended.
    ready: Arc<HandoffChannel>,
    completion: Arc<HandoffChannel>,
    account: Arc<SharedCounters>,
    partner: PartnerTask,
}

impl ReceiverProcess {
    /// Starts it.
    pub(super) fn start(spec: ReceiverSpec) -> ProbeResult<Self> {
        let (address, receive) = spec.end.listen()?;
        let channel =
            || HandoffChannel::new(HandoffMethod::Futex, PartnerKind::Process.scope()).or_fail(STARTING).map(Arc::new);
        let (ready, completion) = (channel()?, channel()?);
        let account: Arc<SharedCounters> = Arc::new(Shared::new().or_fail(STARTING)?);
        let (receiver_account, cpu) = (Arc::clone(&account), spec.cpu);
        let receiver_channels = [Arc::clone(&ready), Arc::clone(&completion)];
        let run = move |board: &PartnerStatus| {
            receive_all(receive, &spec, ([&receiver_channels[0], &receiver_channels[1]], &receiver_account), board)
                .inspect_err(|error| {
                    board.fail(error);
                    // The sender may be waiting for either: it must see the failure.
                    let _ = receiver_channels.iter().try_for_each(|channel| channel.hand_over(HandoffSide::Far));
                })
        };
        let partner = PartnerTask::start(PartnerKind::Process, cpu, run).or_fail(STARTING)?;
        Ok(Self { address, ready, completion, account, partner })
    }

    /// Has it accept a sender; returns when it is about to.
    pub(super) fn accept(&self) -> ProbeResult {
        self.completion.hand_over(HandoffSide::Near)?;
        self.ready.hand_over(HandoffSide::Near)?;
        self.ready.wait_for_turn(HandoffSide::Near)?;
        self.check_alive()
    }

    /// Returns when it has received all: the tick of its clock at which the last byte was written, and what it did.
    pub(super) fn take_result(&self) -> ProbeResult<(u64, ReceiverWork)> {
        self.completion.wait_for_turn(HandoffSide::Near)?;
        self.check_alive()?;
        let [cpu, calls, faults, switches] =
            [0, 1, 2, 3].map(|index: usize| self.account[index].load(Ordering::Acquire));
        Ok((self.partner.done_work(), ReceiverWork { cpu, calls, faults, switches }))
    }

    /// Ends it.
    pub(super) fn stop(mut self) -> ProbeResult {
        self.partner.stop();
        self.ready.hand_over(HandoffSide::Near)?;
        Ok(self.partner.join()?)
    }

    /// Its failure, if it has failed.
    pub(super) fn check_alive(&self) -> ProbeResult {
        self.partner.check().or_fail("the receiving process")
    }
}

/// The life of the receiving process: one sender after another, each on request.
fn receive_all(
    mut receive: FileReceiver,
    spec: &ReceiverSpec,
    ([ready, completion], account): ([&HandoffChannel; 2], &SharedCounters),
    board: &PartnerStatus,
) -> Result<()> {
    loop {
        ready.wait_for_turn(HandoffSide::Far)?;
        if board.is_stopping() {
            return Ok(());
        }
        ready.hand_over(HandoffSide::Far)?;
        let before = read_usage(UsageScope::Process);
        let totals = receive(&spec.directory, &mut |_| board.report_done(spec.clock.stop()));
        let work =
            ReceiverWork::from_usage(&totals.map_err(Error::other)?, read_usage(UsageScope::Process).since(before));
        for (counter, value) in account.iter().zip([work.cpu, work.calls, work.faults, work.switches]) {
            counter.store(value, Ordering::Release);
        }
        completion.hand_over(HandoffSide::Far)?;
    }
}
