//! The receiving end of a transfer, in a process of its own on another CPU.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_harness::Stop;
use kelvin_sys::clock::Clock;
use kelvin_sys::partner::{Board, PartnerTask, Task};
use kelvin_sys::shared::Shared;
use kelvin_sys::token::{Channel, Means, Side};
use kelvin_sys::usage::{Usage, Who, usage};
use kelvin_sys::{Error, Result};
use kelvin_transfer::bare::{self, Moved};

use super::ends::{Listening, Receives};

/// What an end did for a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Nanoseconds of CPU time.
    pub cpu: u64,
    /// System calls that move bytes, map the file or wait.
    pub calls: u64,
    /// Page faults.
    pub faults: u64,
    /// Context switches.
    pub switches: u64,
}

impl Work {
    /// Between two readings of the counters of a process.
    pub(super) fn of(moved: &Moved, used: Usage) -> Self {
        Self {
            cpu: used.user + used.system,
            calls: moved.counts.system_calls,
            faults: used.minor_faults + used.major_faults,
            switches: used.voluntary_switches + used.involuntary_switches,
        }
    }
}

/// The figures of one transfer in memory that both processes share: those of [`Work`], in its order.
type Account = Shared<[AtomicU64; 4]>;

/// How the receiving process works.
pub(super) struct Setting {
    pub how: Receives,
    /// Where files arrive.
    pub directory: PathBuf,
    pub clock: Clock,
    /// Its CPU.
    pub cpu: u32,
}

/// The receiving process. Dropped, it is killed.
pub(super) struct Receiver {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whose turn it is before a transfer, and when one has ended.
    ready: Arc<Channel>,
    done: Arc<Channel>,
    board: Arc<Shared<Board>>,
    account: Arc<Account>,
    partner: PartnerTask,
}

impl Receiver {
    /// Starts it.
    pub(super) fn start(setting: Setting) -> std::result::Result<Self, Stop> {
        let starting = |error: Error| Stop::fail(format!("cannot start the receiving process: {error}"));
        let listening = setting.how.listen()?;
        let address = listening.address();
        let board = Board::new().map_err(starting)?;
        let channel = || Channel::new(Means::Futex, Task::Process.scope()).map_err(starting).map(Arc::new);
        let (ready, done) = (channel()?, channel()?);
        let account: Arc<Account> = Arc::new(Shared::new().map_err(starting)?);
        let (theirs, cpu) = (Arc::clone(&account), setting.cpu);
        let far = [Arc::clone(&ready), Arc::clone(&done)];
        let life = move |board: &Board| {
            receive_all(listening, &setting, ([&far[0], &far[1]], &theirs), board).inspect_err(|error| {
                board.fail(error);
                // The sender may be waiting for either: it must see the failure.
                let _ = far.iter().try_for_each(|channel| channel.pass(Side::Far));
            })
        };
        let partner = PartnerTask::start(Task::Process, cpu, &board, life).map_err(starting)?;
        Ok(Self { address, ready, done, board, account, partner })
    }

    /// Has it accept a sender; returns when it is about to.
    pub(super) fn accept(&self) -> std::result::Result<(), Stop> {
        self.done.pass(Side::Near)?;
        self.ready.pass(Side::Near)?;
        self.ready.take(Side::Near)?;
        self.check()
    }

    /// Returns when it has received all: the tick of its clock at which the last byte was written, and what it did.
    pub(super) fn finished(&self) -> std::result::Result<(u64, Work), Stop> {
        self.done.take(Side::Near)?;
        self.check()?;
        let [cpu, calls, faults, switches] = [0, 1, 2, 3].map(|at| self.account[at].load(Ordering::Acquire));
        Ok((self.board.reported(), Work { cpu, calls, faults, switches }))
    }

    /// Ends it.
    pub(super) fn end(self) -> std::result::Result<(), Stop> {
        self.board.stop();
        self.ready.pass(Side::Near)?;
        self.partner.join(&self.board).map_err(Stop::from)
    }

    /// Its failure, if it has failed.
    pub(super) fn check(&self) -> std::result::Result<(), Stop> {
        self.board.check().map_err(|error| Stop::fail(format!("the receiving process: {error}")))
    }
}

/// The life of the receiving process: one sender after another, each when it is told to.
fn receive_all(
    mut listening: Listening,
    setting: &Setting,
    ([ready, done], account): ([&Channel; 2], &Account),
    board: &Board,
) -> Result<()> {
    loop {
        ready.take(Side::Far)?;
        if board.stopping() {
            return Ok(());
        }
        ready.pass(Side::Far)?;
        let before = usage(Who::Process);
        let told = |_: &bare::Arrived<'_>| board.report(setting.clock.stop());
        let moved = listening.receive(&setting.directory, &mut { told });
        let work = Work::of(&moved.map_err(Error::other)?, usage(Who::Process).since(before));
        for (at, value) in [work.cpu, work.calls, work.faults, work.switches].into_iter().enumerate() {
            account[at].store(value, Ordering::Release);
        }
        done.pass(Side::Far)?;
    }
}
