//! A partner thread on another CPU: it does its share of every batch, and sleeps between batches.

use std::sync::Arc;

use kelvin_harness::ProbeError;
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod, HandoffSide};
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::shared_memory::{FutexScope, Shared};

/// Round trips, or increments, before a batch: until both CPUs are awake and the line bounces.
pub(super) const SETTLE_ROUND_TRIPS: u64 = 128;

/// A thread on another CPU that does its part of every batch and sleeps between batches.
pub(super) struct BatchPartner {
    channel: Arc<HandoffChannel>,
    board: Arc<Shared<PartnerStatus>>,
    partner: Option<PartnerTask>,
}

impl BatchPartner {
    /// Starts it; `work` is given the amount of each batch.
    pub(super) fn start(cpu: u32, work: impl Fn(u64) + Send + 'static) -> Result<Self, ProbeError> {
        let starting = |error| ProbeError::fail(format!("cannot start a thread on CPU {cpu}: {error}"));
        let channel = Arc::new(HandoffChannel::new(HandoffMethod::Futex, FutexScope::Threads).map_err(starting)?);
        let board = PartnerStatus::new().map_err(starting)?;
        let far = Arc::clone(&channel);
        let partner = PartnerTask::start(PartnerKind::Thread, cpu, &board, move |board| {
            loop {
                far.wait_for_turn(HandoffSide::Far)?;
                if board.is_stopping() {
                    return Ok(());
                }
                work(board.work());
                far.hand_over(HandoffSide::Far)?;
            }
        })
        .map_err(starting)?;
        Ok(Self { channel, board, partner: Some(partner) })
    }

    /// Wakes it to do an amount of work.
    pub(super) fn start_batch(&self, amount: u64) -> Result<(), ProbeError> {
        self.board.check()?;
        self.board.set_work(amount);
        Ok(self.channel.hand_over(HandoffSide::Near)?)
    }

    /// Waits until it has done so.
    pub(super) fn finish_batch(&self) -> Result<(), ProbeError> {
        Ok(self.channel.wait_for_turn(HandoffSide::Near)?)
    }

    /// Ends it.
    pub(super) fn stop(mut self) -> Result<(), ProbeError> {
        self.board.stop();
        self.channel.hand_over(HandoffSide::Near)?;
        match self.partner.take() {
            Some(partner) => Ok(partner.join(&self.board)?),
            None => Ok(()),
        }
    }
}

impl Drop for BatchPartner {
    fn drop(&mut self) {
        if self.partner.is_some() {
            // It ends when it has the token and sees the stop flag; then it is joined.
            self.board.stop();
            let _ = self.channel.hand_over(HandoffSide::Near);
        }
    }
}
