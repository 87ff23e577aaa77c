//! A file whose blocks are sent over several streams.
//!
//! All streams take blocks of it from one place, the first one too, and the last block is left to the first one: when it goes,
//! the receiver has said of all others that it has them. Between two pieces of its own the first one has others begin and stop.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Teller, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::choosing::{Act, Choosing, Progress};
use super::joining::Joined;
use super::{Sending, Wanted};
use crate::Result;
use crate::blocks::{self, BLOCK, bit};
use crate::channel::Stream;
use crate::message::{FromSender, Number, Piece};
use crate::pace::Pace;
use crate::source::Source;
use kelvin_sys::spawn::Thread;

/// How often the first stream says something while it waits for the others, so that the receiver does not take it for gone, and
/// looks whether it is to stop.
const TICK: Duration = Duration::from_millis(100);
/// What the first stream sends at once while its number is chosen, at least; and where several methods are tried, which are told apart
/// by pieces of this length.
const LEAST: u64 = 64 << 10;
const LEAST_OF_METHODS: u64 = 1 << 20;

/// A file whose blocks are sent over several streams, and which of them are next.
pub(super) struct Split<'a> {
    pub(super) source: &'a Source,
    pub(super) file: &'a File,
    number: Number,
    kept: &'a [u8],
    next: Mutex<Next>,
    /// The last block, which is not among them.
    last: u64,
    pub(super) pace: &'a Pace,
    pub(super) verify: bool,
}

/// The first block that may be next, and how many there are.
struct Next {
    block: u64,
    left: u64,
}

impl Split<'_> {
    fn held(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next block.
    pub(super) fn next(&self) -> Option<Piece> {
        let mut next = self.held();
        let block = (next.block..self.last).find(|block| !bit(self.kept, *block))?;
        *next = Next { block: block + 1, left: next.left.saturating_sub(1) };
        Some(Piece { file: self.number, offset: block * BLOCK, bytes: BLOCK as u32, is_last: false })
    }

    /// Bytes that are left to be taken.
    fn left(&self) -> u64 {
        self.held().left * BLOCK
    }

    /// No more of it is to be sent.
    pub(super) fn give_up(&self) {
        *self.held() = Next { block: self.last, left: 0 };
    }
}

/// What a stream that carries blocks is told, and what it tells.
pub(super) struct Leg {
    is_to_stop: Arc<AtomicBool>,
    /// Nobody hears of it any more when it ends.
    told: Teller<u64>,
}

impl Leg {
    /// Whether it is to send one more block.
    pub(super) fn may_go_on(&self) -> bool {
        !self.is_to_stop.load(Ordering::Relaxed)
    }

    /// A block of so many bytes has gone.
    pub(super) fn sent(&self, bytes: u32) {
        // Whoever would hear of it may have given up.
        let _ = self.told.send(bytes.into());
    }
}

/// A stream that carries blocks.
struct Running<'scope> {
    is_to_stop: Arc<AtomicBool>,
    thread: ScopedJoinHandle<'scope, (Joined, Result<()>)>,
}

impl Running<'_> {
    fn end(self) -> (Joined, Result<()>) {
        self.thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
    }
}

/// The streams that carry blocks of a file beside the first one.
struct Team<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    split: &'env Split<'env>,
    told: Option<Teller<u64>>,
    running: Vec<Running<'scope>>,
    /// Those that were told to stop.
    stopping: Vec<Running<'scope>>,
    ended: Vec<Result<()>>,
    /// Since when these are at work, and no others but those that are stopping.
    since: Instant,
    /// Whether the receiver knows that others carry blocks of it.
    is_said: bool,
}

impl<'scope, 'env> Team<'scope, 'env> {
    fn new(scope: &'scope Scope<'scope, 'env>, split: &'env Split<'env>, told: Teller<u64>) -> Self {
        let (running, stopping, ended) = (Vec::new(), Vec::new(), Vec::new());
        Self { scope, split, told: Some(told), running, stopping, ended, since: Instant::now(), is_said: false }
    }

    fn in_use(&self) -> u32 {
        1 + self.running.len() as u32
    }

    /// For how long those that are in use have been at work, and no others.
    fn settled(&self) -> Duration {
        if self.stopping.is_empty() { self.since.elapsed() } else { Duration::ZERO }
    }

    fn start(&mut self, mut joined: Joined) -> std::io::Result<()> {
        let Some(told) = self.told.clone() else { return Ok(()) };
        let (is_to_stop, split) = (Arc::new(AtomicBool::new(false)), self.split);
        let leg = Leg { is_to_stop: Arc::clone(&is_to_stop), told };
        let work = move || {
            let sent = joined.send(split, &leg);
            (joined, sent)
        };
        let thread = Thread::named("stream").start_in(self.scope, work)?;
        self.running.push(Running { is_to_stop, thread });
        self.since = Instant::now();
        Ok(())
    }

    /// Has all but so many stop after their blocks.
    fn keep(&mut self, most: usize) {
        let rest = self.running.split_off(most.min(self.running.len()));
        rest.iter().for_each(|one| one.is_to_stop.store(true, Ordering::Relaxed));
        self.stopping.extend(rest);
    }

    /// Those of them that have stopped.
    fn stopped(&mut self) -> Vec<Joined> {
        let all = std::mem::take(&mut self.stopping).into_iter();
        let (ended, stopping): (Vec<_>, Vec<_>) = all.partition(|one| one.thread.is_finished());
        self.stopping = stopping;
        if !ended.is_empty() {
            self.since = Instant::now();
        }
        self.collect(ended)
    }

    /// All of them, when they have ended.
    fn end(mut self) -> (Vec<Joined>, Vec<Result<()>>) {
        let all: Vec<_> = self.running.drain(..).chain(self.stopping.drain(..)).collect();
        let joined = self.collect(all);
        (joined, self.ended)
    }

    fn collect(&mut self, ended: Vec<Running<'_>>) -> Vec<Joined> {
        let (joined, ended): (Vec<_>, Vec<_>) = ended.into_iter().map(Running::end).unzip();
        self.ended.extend(ended);
        joined
    }
}

impl<S: Stream> Sending<'_, S> {
    /// Whether there is one stream, and will be.
    fn is_alone(&self) -> bool {
        self.others.joined.is_empty() && self.choosing.as_ref().is_none_or(|choosing| choosing.most() == 1)
    }

    /// Sends all blocks of a file but the last one over all streams, if there are several streams and blocks; returns the first
    /// block that was not sent, or nothing if the file is not wanted any more.
    pub(super) fn send_over_all(&mut self, source: &Source, wanted: &Wanted, file: &File) -> Result<Option<u64>> {
        let is_missing = |block: &u64| !bit(&wanted.kept, *block);
        let last = (0..blocks::count(source.bytes())).rfind(is_missing).unwrap_or_default();
        // Where the holes are is said in order.
        if self.is_alone() || source.has_holes || (0..last).find(is_missing).is_none() {
            return Ok(Some(0));
        }
        let (number, pace) = (wanted.number as Number, self.pace.clone());
        let (kept, verify) = (&wanted.kept, self.manner.settings.verify);
        let next = Mutex::new(Next { block: 0, left: (0..last).filter(is_missing).count() as u64 });
        let split = Split { source, file, number, kept, next, last, pace: &pace, verify };
        Ok(self.send_split(&split)?.then_some(last))
    }

    /// Sends the blocks of a split file; says whether it is still wanted.
    fn send_split(&mut self, split: &Split<'_>) -> Result<bool> {
        let (told, news) = channel();
        std::thread::scope(|scope| {
            let mut team = Team::new(scope, split, told);
            let own = self.send_own_share(&mut team, &news);
            split.give_up();
            let (joined, ended) = team.end();
            self.is_beside_others = false;
            self.others.joined.extend(joined);
            self.choosing.as_mut().map(Choosing::end_file);
            ended.into_iter().fold(own, worse)
        })
    }

    /// Sends blocks over the first stream while there are any, and waits until the others have none.
    fn send_own_share(&mut self, team: &mut Team<'_, '_>, news: &Receiver<u64>) -> Result<bool> {
        if self.choosing.is_none() {
            self.have_in_use(team, 1 + self.others.joined.len())?;
        }
        while let Some(block) = team.split.next() {
            if !self.send_own_block(team, block, news)? {
                return Ok(false);
            }
        }
        self.channel.flush()?;
        team.told = None;
        let split = team.split;
        loop {
            match news.recv_timeout(TICK) {
                Ok(bytes) => self.went(split, bytes),
                Err(RecvTimeoutError::Disconnected) => return Ok(true),
                Err(RecvTimeoutError::Timeout) if self.is_still_wanted(split.number as usize)? => {
                    self.channel.send(&FromSender::Digests(Vec::new()))?;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(false),
            }
        }
    }

    /// Sends a block, and looks after the others; says whether the file is still wanted.
    fn send_own_block(&mut self, team: &mut Team<'_, '_>, block: Piece, news: &Receiver<u64>) -> Result<bool> {
        let split = team.split;
        let mut done = 0;
        while done < block.bytes {
            self.steer(team)?;
            let bytes = self.bytes_at_once().min((block.bytes - done).into()) as u32;
            self.send_piece(
                split.source,
                split.file,
                Piece { offset: block.offset + u64::from(done), bytes, ..block },
            )?;
            done += bytes;
            news.try_iter().for_each(|bytes| self.went(split, bytes));
            if !self.is_still_wanted(split.number as usize)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How much the first stream sends before others may have to begin or stop.
    fn bytes_at_once(&self) -> u64 {
        let least = if self.manner.settings.plain { LEAST_OF_METHODS } else { LEAST };
        let most = self.choosing.as_ref().and_then(Choosing::bytes_at_once);
        most.map_or(BLOCK, |most| most.clamp(least, BLOCK))
    }

    /// Has as many streams at work as are to be now, where that is chosen.
    fn steer(&mut self, team: &mut Team<'_, '_>) -> Result<()> {
        self.others.joined.extend(team.stopped());
        self.is_beside_others = team.in_use() > 1 || !team.stopping.is_empty();
        let Some(choosing) = &mut self.choosing else { return Ok(()) };
        let (in_use, settled) = (team.in_use(), team.settled());
        let now = Progress { at: Instant::now(), in_use, settled, passed: self.passed, left: team.split.left() };
        match choosing.next(&now) {
            Act::AskForOthers => self.channel.send(&FromSender::MayOthersJoin),
            Act::AskHowMuch => self.channel.send(&FromSender::HowMuch),
            Act::Use(streams) => self.have_in_use(team, streams as usize),
            Act::Nothing if choosing.most() == in_use => {
                // They were no faster.
                self.others.joined.clear();
                Ok(())
            }
            Act::Nothing => Ok(()),
        }
    }

    /// Has so many streams at work, the first one included, as soon as there are so many.
    fn have_in_use(&mut self, team: &mut Team<'_, '_>, streams: usize) -> Result<()> {
        team.keep(streams - 1);
        let (has_failed, more) = (self.others.take_new(), streams - 1 - team.running.len());
        let missing = more.saturating_sub(self.others.joined.len());
        // Those that are stopping come back.
        if missing > 0 && team.stopping.is_empty() && (has_failed || !self.open_others(missing)) {
            self.choosing.as_mut().map(Choosing::give_up);
        }
        if more == 0 || more > self.others.joined.len() {
            return Ok(());
        }
        if !std::mem::replace(&mut team.is_said, true) {
            self.channel.send(&FromSender::Split { file: team.split.number })?;
        }
        self.is_beside_others = true;
        let started = self.others.joined.drain(..more).try_for_each(|joined| team.start(joined));
        match (started, &mut self.choosing) {
            // Those that could be started are enough where none were asked for.
            (Err(_), Some(choosing)) => choosing.give_up(),
            (Err(error), None) => return Err(kelvin_wire::Error::Thread(error).into()),
            (Ok(()), _) => {}
        }
        Ok(())
    }

    /// Has so many others join, unless some are on their way; says whether they may come.
    fn open_others(&mut self, missing: usize) -> bool {
        let invitation = self.choosing.as_ref().and_then(Choosing::invitation);
        invitation.is_some_and(|invitation| self.others.open(missing, invitation.session).is_ok())
    }

    /// So many bytes went over another stream.
    fn went(&mut self, split: &Split<'_>, bytes: u64) {
        self.count(split.number as usize, |amount| amount.moved += bytes);
        self.pass(bytes);
    }
}

/// How a file has gone over two streams: what ended the connection counts for more than what became of the file.
fn worse(one: Result<bool>, other: Result<()>) -> Result<bool> {
    match (one, other) {
        (one, Ok(())) => one,
        (Err(one), Err(_)) if !one.is_of_one_file() => Err(one),
        // It has failed at the receiver already.
        (Ok(false), Err(other)) if other.is_of_one_file() => Ok(false),
        (_, Err(other)) => Err(other),
    }
}
