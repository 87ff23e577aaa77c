//! A file whose blocks are sent over several streams.
//!
//! All streams take blocks of it from one place, the first one too, and the last block is left to the first one. When it goes,
//! the receiver has confirmed all others. Between two pieces of its own the first one has others begin and stop.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as ChannelSender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use kelvin_sys::lock;
use kelvin_sys::thread_spawn::ThreadBuilder;

use super::SendSession;
use super::files::{OutgoingFile, read_or_zero, shortened_error};
use super::stream_tuner::{StreamTuner, TunerAction, TunerInput};
use crate::blocks::{self, BLOCK_BYTES, BlockLayout, is_bit_set};
use crate::compression::{CompressionLevel, PieceCompressor, SharedTotals};
use crate::message::{
    EntryNumber, FilePiece, JoinRequest, ReceiverMessage, RefusalReason, SenderMessage, SessionId, SessionSettings,
};
use crate::rate_limiter::RateLimiter;
use crate::secure_channel::{PART_BYTES, SecureChannel, TransferStream};
use crate::wire::Hasher;
use crate::{Error, Result};

/// How often the first stream sends something while it waits for the others, so that the receiver does not take it for gone, and
/// looks whether it is to stop.
const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(100);
/// What the first stream sends at once while its number is chosen, at least; and where several methods are tried, which are distinguished
/// by pieces of this length.
const MIN_FIRST_STREAM_BYTES: u64 = 64 << 10;
const MIN_TIMED_PIECE_BYTES: u64 = 1 << 20;

/// A file whose blocks are sent over several streams, and which of them are next.
struct BlockQueue<'a> {
    outgoing: OutgoingFile<'a>,
    next: Mutex<NextBlock>,
    /// The last block, which is not among them.
    last: u64,
    limiter: &'a RateLimiter,
    verify: bool,
    /// How it is compressed, if it is.
    compression: Option<(CompressionLevel, SharedTotals)>,
}

/// The first block that may be next, and how many there are.
struct NextBlock {
    block: u64,
    remaining_blocks: u64,
}

impl BlockQueue<'_> {
    /// The next block.
    fn next_block(&self) -> Option<FilePiece> {
        let mut next = lock(&self.next);
        let block = (next.block..self.last).find(|block| !is_bit_set(self.outgoing.valid_blocks, *block))?;
        *next = NextBlock { block: block + 1, remaining_blocks: next.remaining_blocks.saturating_sub(1) };
        let (file, offset) = (self.outgoing.number, block * BLOCK_BYTES);
        Some(FilePiece { file, offset, bytes: BLOCK_BYTES as u32, is_last: false })
    }

    /// Bytes that are left to be taken.
    fn remaining_bytes(&self) -> u64 {
        lock(&self.next).remaining_blocks * BLOCK_BYTES
    }

    /// No more of it is to be sent.
    fn clear(&self) {
        *lock(&self.next) = NextBlock { block: self.last, remaining_blocks: 0 };
    }
}

/// A stream that carries blocks.
struct RunningStream<'scope> {
    is_to_stop: Arc<AtomicBool>,
    thread: ScopedJoinHandle<'scope, (JoinedSendStream, Result<()>)>,
}

/// The streams that carry blocks of a file in addition to the first one.
struct ParallelStreams<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    queue: &'env BlockQueue<'env>,
    progress: Option<ChannelSender<u64>>,
    running: Vec<RunningStream<'scope>>,
    /// Those that were asked to stop.
    stopping: Vec<RunningStream<'scope>>,
    results: Vec<Result<()>>,
    /// Since when these are at work, and no others but those that are stopping.
    since: Instant,
    /// Whether the receiver knows that others carry blocks of it.
    is_announced: bool,
}

impl<'scope, 'env> ParallelStreams<'scope, 'env> {
    fn active_streams(&self) -> u32 {
        1 + self.running.len() as u32
    }

    /// For how long those that are in use have been at work, and no others.
    fn stable_time(&self) -> Duration {
        if self.stopping.is_empty() { self.since.elapsed() } else { Duration::ZERO }
    }

    fn start(&mut self, mut stream: JoinedSendStream) -> std::io::Result<()> {
        let Some(progress) = self.progress.clone() else { return Ok(()) };
        let (is_to_stop, queue) = (Arc::new(AtomicBool::new(false)), self.queue);
        let stop = Arc::clone(&is_to_stop);
        let work = move || {
            let outcome = stream.send(queue, &stop, &progress);
            if outcome.is_err() {
                queue.clear();
            }
            (stream, outcome)
        };
        let thread = ThreadBuilder::named("stream").start_in(self.scope, work)?;
        self.running.push(RunningStream { is_to_stop, thread });
        self.since = Instant::now();
        Ok(())
    }

    /// Has all but this many stop after their blocks.
    fn reduce_to(&mut self, count: usize) {
        let rest = self.running.split_off(count.min(self.running.len()));
        rest.iter().for_each(|stream| stream.is_to_stop.store(true, Ordering::Relaxed));
        self.stopping.extend(rest);
    }

    /// Those of them that have stopped.
    fn take_stopped(&mut self) -> Vec<JoinedSendStream> {
        let stopped_streams: Vec<_> = self.stopping.extract_if(.., |stream| stream.thread.is_finished()).collect();
        if !stopped_streams.is_empty() {
            self.since = Instant::now();
        }
        self.join(stopped_streams)
    }

    /// All of them, when they have ended.
    fn join_all(mut self) -> (Vec<JoinedSendStream>, Vec<Result<()>>) {
        let streams = self.running.drain(..).chain(self.stopping.drain(..)).collect();
        (self.join(streams), self.results)
    }

    fn join(&mut self, streams: Vec<RunningStream<'_>>) -> Vec<JoinedSendStream> {
        let join =
            |stream: RunningStream<'_>| stream.thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
        let (joined_streams, results): (Vec<_>, Vec<_>) = streams.into_iter().map(join).unzip();
        self.results.extend(results);
        joined_streams
    }
}

/// A connection that has joined the session.
pub(super) struct JoinedSendStream {
    channel: SecureChannel<TcpStream>,
    buffer: Vec<u8>,
    /// Once something was to be compressed.
    compressor: Option<PieceCompressor>,
}

impl JoinedSendStream {
    pub(super) fn join(mut channel: SecureChannel<TcpStream>, session: SessionId) -> Result<Self> {
        channel.send(&SenderMessage::Join(JoinRequest { session, file: None }))?;
        match channel.receive()? {
            ReceiverMessage::BlockWritten(None) => Ok(Self { channel, buffer: vec![0; PART_BYTES], compressor: None }),
            _ => Err(Error::ProtocolViolation("it does not say that a stream has joined")),
        }
    }

    /// Sends blocks of a file while there are any, it has not failed and this stream is not to stop.
    fn send(&mut self, queue: &BlockQueue<'_>, is_to_stop: &AtomicBool, progress: &ChannelSender<u64>) -> Result<()> {
        let mut answers = BlockAnswers::default();
        while !is_to_stop.load(Ordering::Relaxed)
            && let Some(piece) = queue.next_block()
        {
            answers.outstanding += 1;
            let is_whole = match &queue.compression {
                None => self.send_block(queue, &piece)?,
                Some((level, totals)) => {
                    let compressor = self.compressor.take();
                    let mut compressor = compressor.map_or_else(|| PieceCompressor::new(*level, totals), Ok)?;
                    let is_whole = self.send_compressible_block(queue, &piece, &mut compressor)?;
                    self.compressor = Some(compressor);
                    is_whole
                }
            };
            // The one that waits for it may have given up.
            let _ = progress.send(piece.bytes.into());
            while let Some(answer) = self.channel.try_receive()? {
                answers.on_answer(answer)?;
            }
            if !is_whole {
                answers.failure.get_or_insert(shortened_error(queue.outgoing.source, queue.outgoing.file));
            }
            if answers.failure.is_some() {
                queue.clear();
            }
        }
        // What comes later is of the next file.
        while answers.outstanding > 0 {
            answers.on_answer(self.channel.receive()?)?;
        }
        answers.failure.map_or(Ok(()), Err)
    }

    /// Sends a whole block, since that was announced; returns whether the file had all of it.
    fn send_block(&mut self, queue: &BlockQueue<'_>, piece: &FilePiece) -> Result<bool> {
        self.channel.queue(&SenderMessage::Block(*piece))?;
        let (mut is_whole, mut hasher) = (true, Hasher::new());
        for (start, part) in blocks::parts(piece.range(), queue.limiter.max_burst(PART_BYTES as u64)) {
            let part = &mut self.buffer[..part];
            is_whole &= read_or_zero(queue.outgoing.file, part, start);
            if queue.verify {
                hasher.update(part);
            }
            self.channel.send_data(part)?;
            queue.limiter.wait_after(part.len() as u64);
            Error::check_stop()?;
        }
        self.send_digest(queue, &hasher)?;
        Ok(is_whole)
    }

    /// Like `send_block`, as a frame where it gets smaller.
    fn send_compressible_block(
        &mut self,
        queue: &BlockQueue<'_>,
        piece: &FilePiece,
        compressor: &mut PieceCompressor,
    ) -> Result<bool> {
        let (mut content, mut hasher) = (std::mem::take(&mut compressor.content), Hasher::new());
        content.resize(piece.bytes as usize, 0);
        let is_whole = read_or_zero(queue.outgoing.file, &mut content, piece.offset);
        if queue.verify {
            hasher.update(&content);
        }
        let frame = compressor.compress(&content);
        self.channel.queue(&match frame {
            Some(frame) => SenderMessage::CompressedBlock { piece: *piece, frame_bytes: frame.len() as u32 },
            None => SenderMessage::Block(*piece),
        })?;
        let (times_before, mut limit_wait) = (self.channel.times.connection, Duration::ZERO);
        for part in frame.unwrap_or(&content).chunks(queue.limiter.max_burst(PART_BYTES as u64) as usize) {
            self.channel.send_data(part)?;
            let start = Instant::now();
            queue.limiter.wait_after(part.len() as u64);
            limit_wait += start.elapsed();
            Error::check_stop()?;
        }
        compressor.record_sent(Duration::from_nanos(self.channel.times.connection - times_before) + limit_wait);
        compressor.content = content;
        self.send_digest(queue, &hasher)?;
        Ok(is_whole)
    }

    fn send_digest(&mut self, queue: &BlockQueue<'_>, hasher: &Hasher) -> Result<()> {
        if queue.verify {
            self.channel.queue(&SenderMessage::Digests(vec![*hasher.finalize().as_bytes()]))?;
        }
        self.channel.flush()
    }
}

/// What the receiver reported of the blocks of a stream.
#[derive(Default)]
struct BlockAnswers {
    /// Of how many blocks it has reported nothing.
    outstanding: u64,
    /// Why the file will not be whole.
    failure: Option<Error>,
}

impl BlockAnswers {
    fn on_answer(&mut self, answer: ReceiverMessage) -> Result<()> {
        let violation = Error::ProtocolViolation("it reports something else than the result of a block");
        let ReceiverMessage::BlockWritten(why) = answer else { return Err(violation) };
        self.outstanding = self.outstanding.checked_sub(1).ok_or(violation)?;
        if let Some(RefusalReason(why)) = why {
            self.failure.get_or_insert(Error::Refused(why));
        }
        Ok(())
    }
}

impl<S: TransferStream> SendSession<'_, S> {
    /// Sends all blocks of a file but the last one over all streams, if there are several streams and blocks. Returns the first
    /// block that was not sent, or nothing if the file is not wanted any more.
    pub(super) fn send_parallel(&mut self, outgoing: OutgoingFile<'_>) -> Result<Option<u64>> {
        let is_missing = |block: &u64| !is_bit_set(outgoing.valid_blocks, *block);
        let last = (0..outgoing.layout.count()).rfind(is_missing).unwrap_or_default();
        let is_alone =
            self.extra_streams.idle.is_empty() && self.tuner.as_ref().is_none_or(|tuner| tuner.max_useful() == 1);
        let is_whole = outgoing.layout == BlockLayout::of_file(outgoing.source.bytes());
        // Where the holes are is sent in order, as is what has changed.
        if is_alone || !is_whole || outgoing.source.has_holes || (0..last).find(is_missing).is_none() {
            return Ok(Some(0));
        }
        let (limiter, verify) = (self.limiter.clone(), self.options.settings.verify);
        let next = Mutex::new(NextBlock { block: 0, remaining_blocks: (0..last).filter(is_missing).count() as u64 });
        let compression = self.options.compression.map(|level| (level, self.compression_totals.clone()));
        let queue = BlockQueue { outgoing, next, last, limiter: &limiter, verify, compression };
        let (progress, sent_bytes) = channel();
        let is_wanted = std::thread::scope(|scope| {
            let mut team = ParallelStreams {
                scope,
                queue: &queue,
                progress: Some(progress),
                running: Vec::new(),
                stopping: Vec::new(),
                results: Vec::new(),
                since: Instant::now(),
                is_announced: false,
            };
            let first_result = self.send_own_share(&mut team, &sent_bytes);
            queue.clear();
            let (joined_streams, results) = team.join_all();
            self.has_parallel_streams = false;
            self.extra_streams.idle.extend(joined_streams);
            self.tuner.as_mut().map(StreamTuner::end_file);
            results.into_iter().fold(first_result, merge_results)
        });
        Ok(is_wanted?.then_some(last))
    }

    /// Sends blocks over the first stream while there are any, and waits until the others have none.
    fn send_own_share(&mut self, team: &mut ParallelStreams<'_, '_>, sent_bytes: &Receiver<u64>) -> Result<bool> {
        if self.tuner.is_none() {
            self.set_stream_count(team, 1 + self.extra_streams.idle.len())?;
        }
        while let Some(block) = team.queue.next_block() {
            if !self.send_own_block(team, block, sent_bytes)? {
                return Ok(false);
            }
        }
        self.channels.first.flush()?;
        team.progress = None;
        let number = team.queue.outgoing.number;
        loop {
            match sent_bytes.recv_timeout(KEEPALIVE_INTERVAL) {
                Ok(bytes) => self.count_sent(number, bytes),
                Err(RecvTimeoutError::Disconnected) => return Ok(true),
                Err(RecvTimeoutError::Timeout) if self.is_still_wanted(number)? => {
                    self.channels.first.send(&SenderMessage::Digests(Vec::new()))?;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(false),
            }
        }
    }

    /// Sends a block, and looks after the others; returns whether the file is still wanted.
    fn send_own_block(
        &mut self,
        team: &mut ParallelStreams<'_, '_>,
        block: FilePiece,
        sent_bytes: &Receiver<u64>,
    ) -> Result<bool> {
        let (mut offset, end) = (block.offset, block.range().end);
        while offset < end {
            self.apply_tuning(team)?;
            let bytes = self.max_piece_bytes().min(end - offset) as u32;
            self.send_piece(team.queue.outgoing, FilePiece { offset, bytes, ..block })?;
            offset += u64::from(bytes);
            sent_bytes.try_iter().for_each(|bytes| self.count_sent(block.file, bytes));
            if !self.is_still_wanted(block.file)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How much the first stream sends before others may have to begin or stop.
    fn max_piece_bytes(&self) -> u64 {
        let SessionSettings { plain, compressed, .. } = self.options.settings;
        let min_bytes = if plain || compressed { MIN_TIMED_PIECE_BYTES } else { MIN_FIRST_STREAM_BYTES };
        let max_bytes = self.tuner.as_ref().and_then(StreamTuner::max_piece_bytes);
        max_bytes.map_or(BLOCK_BYTES, |max_bytes| max_bytes.clamp(min_bytes, BLOCK_BYTES))
    }

    /// Has as many streams at work as are to be now, where that is chosen.
    fn apply_tuning(&mut self, team: &mut ParallelStreams<'_, '_>) -> Result<()> {
        self.extra_streams.idle.extend(team.take_stopped());
        self.has_parallel_streams = team.active_streams() > 1 || !team.stopping.is_empty();
        let Some(tuner) = &mut self.tuner else { return Ok(()) };
        let (active_streams, stable_time) = (team.active_streams(), team.stable_time());
        let input = TunerInput {
            time: Instant::now(),
            active_streams,
            stable_time,
            settled_bytes: self.settled_bytes,
            remaining_bytes: team.queue.remaining_bytes(),
        };
        match tuner.next_action(&input) {
            TunerAction::QueryJoin => self.channels.first.send(&SenderMessage::QueryJoin),
            TunerAction::QueryArrived => self.channels.first.send(&SenderMessage::QueryArrived),
            TunerAction::UseStreams(streams) => self.set_stream_count(team, streams as usize),
            TunerAction::Nothing => {
                if tuner.max_useful() == active_streams {
                    // They were no faster.
                    self.extra_streams.idle.clear();
                }
                Ok(())
            }
        }
    }

    /// Has this many streams at work, the first one included, as soon as there are this many.
    fn set_stream_count(&mut self, team: &mut ParallelStreams<'_, '_>, streams: usize) -> Result<()> {
        team.reduce_to(streams - 1);
        let (has_failed, new_streams) = (self.extra_streams.take_new(), streams - 1 - team.running.len());
        let missing_streams = new_streams.saturating_sub(self.extra_streams.idle.len());
        // Those that are stopping come back.
        if missing_streams > 0 && team.stopping.is_empty() {
            let invitation = self.tuner.as_ref().and_then(|tuner| tuner.invitation).filter(|_| !has_failed);
            let open_result = invitation.map(|invitation| self.extra_streams.open(missing_streams, invitation.session));
            if open_result.is_none_or(|outcome| outcome.is_err()) {
                self.tuner.as_mut().map(StreamTuner::stop);
            }
        }
        if new_streams == 0 || new_streams > self.extra_streams.idle.len() {
            return Ok(());
        }
        if !std::mem::replace(&mut team.is_announced, true) {
            self.channels.first.send(&SenderMessage::Split(team.queue.outgoing.number))?;
        }
        self.has_parallel_streams = true;
        let start_result = self.extra_streams.idle.drain(..new_streams).try_for_each(|stream| team.start(stream));
        match (start_result, &mut self.tuner) {
            // Those that could be started are enough where none were asked for.
            (Err(_), Some(tuner)) => tuner.stop(),
            (Err(error), None) => return Err(Error::Thread(error)),
            (Ok(()), _) => {}
        }
        Ok(())
    }

    /// This many bytes went over another stream.
    fn count_sent(&mut self, number: EntryNumber, bytes: u64) {
        self.count_unacked(number, |amount| amount.moved += bytes);
        self.advance(bytes);
    }
}

/// How a file has gone over two streams: what ended the connection counts for more than what became of the file.
fn merge_results(first: Result<bool>, second: Result<()>) -> Result<bool> {
    match (first, second) {
        (first, Ok(())) => first,
        (Err(first), Err(_)) if !first.is_per_file() => Err(first),
        // It has failed at the receiver already.
        (Ok(false), Err(second)) if second.is_per_file() => Ok(false),
        (_, Err(second)) => Err(second),
    }
}
