//! A partner thread on another CPU: it does its share of every batch, and sleeps between batches.

use std::sync::Arc;

use kelvin_harness::Stop;
use kelvin_sys::partner::{Board, PartnerTask, Task};
use kelvin_sys::shared::{Scope, Shared};
use kelvin_sys::token::{Channel, Means, Side};

/// Round trips, or increments, before a batch: until both CPUs are awake and the line bounces.
pub(super) const SETTLE: u64 = 128;

/// A thread on another CPU that does its part of every batch and sleeps between batches.
pub(super) struct Partner {
    channel: Arc<Channel>,
    board: Arc<Shared<Board>>,
    partner: Option<PartnerTask>,
}

impl Partner {
    /// Starts it; `work` is given the amount of each batch.
    pub(super) fn start(cpu: u32, work: impl Fn(u64) + Send + 'static) -> Result<Self, Stop> {
        let starting = |error| Stop::fail(format!("cannot start a thread on CPU {cpu}: {error}"));
        let channel = Arc::new(Channel::new(Means::Futex, Scope::Threads).map_err(starting)?);
        let board = Board::new().map_err(starting)?;
        let far = Arc::clone(&channel);
        let partner = PartnerTask::start(Task::Thread, cpu, &board, move |board| {
            loop {
                far.take(Side::Far)?;
                if board.stopping() {
                    return Ok(());
                }
                work(board.ordered());
                far.pass(Side::Far)?;
            }
        })
        .map_err(starting)?;
        Ok(Self { channel, board, partner: Some(partner) })
    }

    /// Wakes it to do an amount of work.
    pub(super) fn begin(&self, amount: u64) -> Result<(), Stop> {
        self.board.check()?;
        self.board.order(amount);
        Ok(self.channel.pass(Side::Near)?)
    }

    /// Waits until it has done so.
    pub(super) fn end(&self) -> Result<(), Stop> {
        Ok(self.channel.take(Side::Near)?)
    }

    /// Ends it.
    pub(super) fn dismiss(mut self) -> Result<(), Stop> {
        self.board.stop();
        self.channel.pass(Side::Near)?;
        match self.partner.take() {
            Some(partner) => Ok(partner.join(&self.board)?),
            None => Ok(()),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        if self.partner.is_some() {
            // It ends when it has the token and sees the stop flag; then it is joined.
            self.board.stop();
            let _ = self.channel.pass(Side::Near);
        }
    }
}
