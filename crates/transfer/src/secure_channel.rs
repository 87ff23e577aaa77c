//! The encrypted channel after the handshake: messages, and the bytes of files that they announce.
//!
//! A message is a length of four bytes, the least significant first, and this many encrypted bytes. The bytes of files have no
//! frame of their own. Plain, they follow as they are, as many as a message announced; encrypted, in frames like those of
//! messages. Noise numbers what it encrypts, so a frame that is changed, dropped, repeated or reordered is noticed. Plain bytes
//! are noticed by their digest, which goes encrypted.

mod spin_policy;

use std::io::{ErrorKind, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use kelvin_sys::net::socket_queues::{self, SendCounters};
use rustix::net::{RecvFlags, recv};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::blocks::parts;
use crate::compression::Decompressor;
use crate::link_usage::{LinkMeter, LinkUsage};
use crate::message::{Blake3Digest, FilePiece};
use crate::progress::{MinProgress, ProgressMeter, Shortfall};
use crate::stage_times::{StageTimes, add_elapsed, hash_timed};
use crate::wire::Hasher;
use crate::wire::cipher::{MAX_SEALED_BYTES, Opener, Sealer, TAG_BYTES};
use crate::wire::deadline::TimedStream;
use crate::{Error, Result};
use spin_policy::SpinPolicy;

/// Most bytes of a file that are read or written at once. Fewer calls than by pages, and several of them fit into a core's own
/// cache.
pub const PART_BYTES: usize = 64 << 10;
/// Bytes of a file in an encrypted frame: a number by which a part consists of whole ones.
pub(crate) const FRAME_CONTENT_BYTES: usize = 32 << 10;
/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
/// What was received and not looked at.
const INPUT_BYTES: usize = 256 << 10;
/// Bytes of files that come with a message are copied once more where they are plain. So with one come hardly more than it may have.
const READ_AHEAD_BYTES: usize = 4 << 10;
/// A read of bytes of a file waits for at most this many of them, and for no more than one if there are fewer than these.
const MAX_LOW_WATER: usize = 64 << 10;
const MIN_LOW_WATER: usize = 32 << 10;
/// Bytes of a window in which waiting for this many does not have the sender wait.
const WIDE_WINDOW: usize = 4 * MAX_LOW_WATER;
/// How long an end looks for the next bytes before it sleeps. It is about what it costs the other end to wake it, where that means
/// interrupting another processor.
const SPIN_TIME: Duration = Duration::from_micros(60);
/// How often an end that waits checks whether it is to stop.
pub(crate) const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// What is done, and what is waited for.
const POLL_STEP: &str = "poll for an answer";
pub(crate) const TAKE_STEP: &str = "take what was sent";
pub(crate) const SEND_STEP: &str = "send anything";
pub(crate) const SETUP_STEP: &str = "set up the connection";

/// A connection of which can be seen whether something has come.
pub trait TransferStream: TimedStream {
    /// Whether as many bytes as are waited for have come, or the stream has ended, within this time.
    ///
    /// # Errors
    /// A failed call.
    fn is_readable(&self, timeout: Duration) -> std::io::Result<bool>;

    /// From now on this many bytes are waited for; a read that waits is sure to return with them only if it is one. Where there is no such
    /// option, it returns with what is there.
    ///
    /// # Errors
    /// A failed call.
    fn set_low_water(&mut self, _bytes: usize) -> std::io::Result<()> {
        Ok(())
    }

    /// Most bytes that may come before any is read; any number where no read waits for more than one byte.
    ///
    /// # Errors
    /// A failed call.
    fn receive_window(&self) -> std::io::Result<usize> {
        Ok(usize::MAX)
    }

    /// Its socket, if it is one. It can be read without waiting, files can be sent by it, and the kernel reports what it has carried.
    fn socket(&self) -> Option<&TcpStream> {
        None
    }
}

impl TransferStream for TcpStream {
    fn is_readable(&self, timeout: Duration) -> std::io::Result<bool> {
        kelvin_sys::poll::wait_input(self.as_fd(), timeout)
    }

    fn set_low_water(&mut self, bytes: usize) -> std::io::Result<()> {
        kelvin_sys::net::set_receive_low_water(self, bytes as u32)
    }

    fn receive_window(&self) -> std::io::Result<usize> {
        Ok(kelvin_sys::net::tcp_info(self)?.receive_window as usize)
    }

    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

/// Reads what comes next, which may be waited for, or what has come.
fn read_next(stream: &mut impl TransferStream, buffer: &mut [u8], may_wait: bool) -> std::io::Result<usize> {
    match stream.socket() {
        Some(socket) if !may_wait => Ok(recv(socket, buffer, RecvFlags::DONTWAIT)?.0),
        _ => stream.read(buffer),
    }
}

/// What a stream has carried, as the kernel reports it.
fn send_counters(stream: &impl TransferStream) -> Option<SendCounters> {
    socket_queues::send_counters(stream.socket()?).ok()
}

/// One end.
pub struct SecureChannel<S = TcpStream> {
    stream: S,
    sealer: Sealer,
    opener: Opener,
    /// Whether the bytes of files go plain from now on.
    pub plain: bool,
    /// Frames that are to be sent.
    output: Vec<u8>,
    /// What came and was not looked at.
    input: InputBuffer,
    /// Decrypted bytes that were not looked at.
    content: InputBuffer,
    /// How many bytes are waited for.
    low_water: usize,
    /// Whether the window was found to be wide.
    has_wide_window: bool,
    spin_policy: SpinPolicy,
    /// What has come, which other calls for the same connection go on measuring, and what was taken, while this end waited for that.
    pub(crate) incoming: ProgressMeter,
    outgoing: ProgressMeter,
    /// Whether each wait for a message or for bytes of a file has its own time.
    resets_wait: bool,
    /// How long this end was at its stages.
    pub times: StageTimes,
    /// Waits that a tick ended although all that was waited for had come. The kernel had not woken this end, since a reader sleeps
    /// in addition to what it reads.
    pub missed_wakeups: u32,
    link_meter: LinkMeter,
    /// How often a message was waited for, and for how many nanoseconds.
    responses_awaited: u64,
    response_wait: u64,
}

impl<S: TransferStream> SecureChannel<S> {
    /// Over a connection, after the handshake.
    ///
    /// # Errors
    /// Those of setting a time to wait.
    pub fn new(mut stream: S, (sealer, opener): (Sealer, Opener)) -> Result<Self> {
        stream.set_io_timeout(STOP_POLL_INTERVAL).map_err(Error::call("set the time to wait"))?;
        Ok(Self {
            stream,
            sealer,
            opener,
            plain: false,
            output: Vec::new(),
            input: InputBuffer::new(INPUT_BYTES),
            content: InputBuffer::new(MAX_SEALED_BYTES),
            low_water: 1,
            has_wide_window: false,
            spin_policy: SpinPolicy::new(),
            incoming: ProgressMeter::default(),
            outgoing: ProgressMeter::default(),
            resets_wait: true,
            times: StageTimes::default(),
            missed_wakeups: 0,
            link_meter: LinkMeter::default(),
            responses_awaited: 0,
            response_wait: 0,
        })
    }

    /// From now on the other side must move this much whenever this end waits for it, and not only within a message or the bytes of a
    /// piece. Those may be one byte each.
    pub(crate) fn set_min_progress(&mut self, required: MinProgress) {
        (self.incoming, self.outgoing) = (ProgressMeter::new(required), ProgressMeter::new(required));
        self.resets_wait = false;
    }

    /// Goes on from there with the progress of another connection in the place of its own.
    fn take_progress(&mut self, source: &mut Self) {
        (self.incoming, self.outgoing) = (std::mem::take(&mut source.incoming), std::mem::take(&mut source.outgoing));
        self.resets_wait = source.resets_wait;
    }

    /// Looks at what the connection carries, where some is being sent, now and then. It is alone, or along with other streams, which take a share of
    /// what the link can.
    pub(crate) fn sample_link(&mut self, is_alone: bool) {
        if !is_alone {
            return self.link_meter.reset();
        }
        let now = Instant::now();
        if self.link_meter.is_due(now)
            && let Some(counters) = send_counters(&self.stream)
        {
            self.link_meter.sample(now, counters);
        }
    }

    /// What the connection has carried from this end, where the kernel reports it.
    pub(crate) fn link_usage(&self) -> Option<LinkUsage> {
        let counters = send_counters(&self.stream)?;
        let LinkMeter { window, buffer, .. } = self.link_meter;
        Some(LinkUsage {
            bytes: counters.bytes,
            busy: counters.busy,
            window_limited: counters.limited.by_window.max(window.nanoseconds),
            buffer_limited: counters.limited.by_buffer.max(buffer.nanoseconds),
            window: window.bytes,
            buffer: buffer.bytes,
            link_rate: self.link_meter.link_rate(),
            round_trip: counters.min_round_trip,
            link_round_trip: self.link_meter.round_trip(),
            segments: counters.segments.into(),
            retransmitted: counters.retransmitted.into(),
            answers: self.responses_awaited,
            response_wait: self.response_wait,
        })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn send(&mut self, message: &impl Serialize) -> Result<()> {
        self.queue(message)?;
        self.flush()
    }

    /// Adds a message to what is sent next.
    ///
    /// # Errors
    /// A message that is too long, which is a mistake of this program.
    pub fn queue(&mut self, message: &impl Serialize) -> Result<()> {
        let text = postcard::to_stdvec(message);
        self.seal(&text.map_err(|_| Error::ProtocolViolation("a message that cannot be written"))?)
    }

    /// Sends the other side why the connection ends, as far as it takes that at once.
    pub(crate) fn try_send_last(&mut self, message: &impl Serialize) {
        if self.queue(message).is_ok() {
            // It may be gone, or have taken nothing for long.
            let _ = self.stream.write(&self.output);
            self.output.clear();
        }
    }

    /// Sends what was queued.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn flush(&mut self) -> Result<()> {
        self.write_queued_with(&[])
    }

    /// Another descriptor of its socket, if it is one by which files can be sent.
    ///
    /// # Errors
    /// Those of making one.
    pub fn socket(&self) -> std::io::Result<Option<TcpStream>> {
        self.stream.socket().map(TcpStream::try_clone).transpose()
    }

    /// Sends what was queued, and bytes of files.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn send_data(&mut self, bytes: &[u8]) -> Result<()> {
        if self.plain {
            return self.write_queued_with(bytes);
        }
        let start = Instant::now();
        bytes.chunks(FRAME_CONTENT_BYTES).try_for_each(|chunk| self.seal(chunk))?;
        self.times.cipher += start.elapsed().as_nanos() as u64;
        self.flush()
    }

    /// Sends what was queued and more bytes; what comes meanwhile is kept, so that no two ends wait for each other to read.
    fn write_queued_with(&mut self, data: &[u8]) -> Result<()> {
        let output = std::mem::take(&mut self.output);
        let start = Instant::now();
        let written = self.write_all(&output, data);
        self.times.connection += start.elapsed().as_nanos() as u64;
        self.output = output;
        self.output.clear();
        written
    }

    fn write_all(&mut self, mut head: &[u8], mut data: &[u8]) -> Result<()> {
        if self.resets_wait {
            self.outgoing.restart();
        }
        let mut start = Instant::now();
        while !head.is_empty() || !data.is_empty() {
            let written = self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(data)]);
            let now = Instant::now();
            let waited = now - std::mem::replace(&mut start, now);
            let to_error = |shortfall: Shortfall| shortfall.to_error(TAKE_STEP);
            self.outgoing.record(waited, *written.as_ref().unwrap_or(&0)).map_err(to_error)?;
            match written {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => {
                    let head_bytes = count.min(head.len());
                    (head, data) = (&head[head_bytes..], &data[count - head_bytes..]);
                }
                Err(error) => {
                    pass_interrupted(error, TAKE_STEP)?;
                    self.fill_input()?;
                }
            }
        }
        Ok(())
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// Another side that is gone, silent, or breaks the protocol.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let time_before = self.times.connection;
        self.set_expected(1)?;
        self.begin_wait();
        let length = self.receive_frame()?;
        let waited = self.times.connection - time_before;
        self.responses_awaited += u64::from(waited > 0);
        self.response_wait += waited;
        self.parse_message(length)
    }

    /// A message, if one has come.
    ///
    /// # Errors
    /// Another side that is gone, or breaks the protocol.
    pub fn try_receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.fill_input()?;
        match self.next_frame_length()? {
            Some(length) if self.input.len() >= LENGTH_BYTES + length => self.parse_message(length).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether some of what comes next has come already.
    ///
    /// # Errors
    /// A failed call.
    pub(crate) fn is_input_available(&self) -> Result<bool> {
        Ok(self.input.len() > 0 || self.is_readable()?)
    }

    /// Whether something has come that was not read.
    fn is_readable(&self) -> Result<bool> {
        self.stream.is_readable(Duration::ZERO).map_err(Error::call(POLL_STEP))
    }

    /// Fills the first bytes of a buffer with those of files, which a message announced. Encrypted ones come without a copy where
    /// there is room for a tag behind them.
    ///
    /// # Errors
    /// Another side that is gone, silent, or breaks the protocol.
    pub fn receive_data(&mut self, buffer: &mut [u8], bytes: usize) -> Result<()> {
        let mut filled = 0;
        self.begin_wait();
        while filled < bytes {
            // What has come need not come again, encrypted or not.
            self.set_expected((bytes - filled).saturating_sub(self.input.len() + self.content.len()))?;
            filled += match self.plain {
                true => match self.input.copy_to(&mut buffer[filled..bytes]) {
                    0 => self.wait_and_read(|channel, may_wait| {
                        read_next(&mut channel.stream, &mut buffer[filled..bytes], may_wait)
                    })?,
                    copied => copied,
                },
                false => self.receive_sealed(&mut buffer[filled..], bytes - filled)?,
            };
        }
        Ok(())
    }

    /// Receives the bytes of a piece part by part, and writes them until that fails; returns their digest, and whether all were written.
    ///
    /// # Errors
    /// As [`SecureChannel::receive_data`].
    pub fn receive_content(
        &mut self,
        (piece, verify): (&FilePiece, bool),
        buffer: &mut [u8],
        mut write: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<(Blake3Digest, Result<()>)> {
        let (mut written, mut hasher) = (Ok(()), Hasher::new());
        for (offset, bytes) in parts(piece.range(), PART_BYTES as u64) {
            self.receive_data(buffer, bytes)?;
            let part = &buffer[..bytes];
            if verify {
                hash_timed(&mut hasher, part, &mut self.times.verify);
            }
            if written.is_ok() {
                written = self.times.time_file(|| write(part, offset));
            }
        }
        Ok((*hasher.finalize().as_bytes(), written))
    }

    /// Like `receive_content`, of bytes that come as a frame of this many bytes. What is no such frame is passed over.
    ///
    /// # Errors
    /// As [`SecureChannel::receive_data`].
    pub(crate) fn receive_compressed(
        &mut self,
        (piece, frame_bytes, verify): (&FilePiece, u32, bool),
        decompressor: &mut Decompressor,
        mut write: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<(Blake3Digest, Result<()>)> {
        let (mut written, mut hasher, mut offset) = (Ok(()), Hasher::new(), piece.offset);
        let mut frame = std::mem::take(&mut decompressor.frame);
        decompressor.begin(piece.bytes.into());
        for (_, bytes) in parts(0..frame_bytes.into(), PART_BYTES as u64) {
            self.receive_data(&mut frame, bytes)?;
            let mut frame_part = &frame[..bytes];
            while written.is_ok() {
                match add_elapsed(&mut self.times.compress, || decompressor.next(&mut frame_part)) {
                    Ok(None) => break,
                    Ok(Some(content)) => {
                        if verify {
                            hash_timed(&mut hasher, content, &mut self.times.verify);
                        }
                        written = self.times.time_file(|| write(content, offset));
                        offset += content.len() as u64;
                    }
                    Err(why) => written = Err(why),
                }
            }
        }
        decompressor.frame = frame;
        Ok((*hasher.finalize().as_bytes(), written.and_then(|()| decompressor.finish())))
    }

    /// Has this end wait for all of this many bytes, if they are many. To be woken for each segment costs the sender more than to send
    /// it, where that means waking another processor.
    ///
    /// A read that waits for many first takes what has come, and is then woken only when as many come again. At the end of what is
    /// sent, that is never. So it is polled for many, and then read without waiting.
    ///
    /// Not before the window is wide. A reader that waits for a whole window has the sender wait for it as well. The kernel, which
    /// widens a window that is read in less than a round trip, lets it be for ever.
    fn set_expected(&mut self, bytes: usize) -> Result<()> {
        let is_many = bytes >= MIN_LOW_WATER;
        if is_many && !self.has_wide_window {
            self.has_wide_window = self.stream.receive_window().map_err(Error::call(SETUP_STEP))? >= WIDE_WINDOW;
        }
        let low_water = if is_many && self.has_wide_window { bytes.min(MAX_LOW_WATER) } else { 1 };
        if std::mem::replace(&mut self.low_water, low_water) != low_water {
            self.stream.set_low_water(low_water).map_err(Error::call(SETUP_STEP))?;
        }
        Ok(())
    }

    /// Waits until something can be done with the bytes that come next; as many as it returns.
    fn wait_and_read(&mut self, mut read: impl FnMut(&mut Self, bool) -> std::io::Result<usize>) -> Result<usize> {
        let mut start = Instant::now();
        loop {
            let (may_wait, is_late) = self.wait()?;
            let outcome = read(self, may_wait);
            let now = Instant::now();
            let waited = now - std::mem::replace(&mut start, now);
            self.times.connection += waited.as_nanos() as u64;
            let to_error = |shortfall: Shortfall| shortfall.to_error(SEND_STEP);
            self.incoming.record(waited, *outcome.as_ref().unwrap_or(&0)).map_err(to_error)?;
            match outcome {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => {
                    self.missed_wakeups += u32::from(is_late && count >= self.low_water);
                    return Ok(count);
                }
                Err(error) => pass_interrupted(error, SEND_STEP)?,
            }
        }
    }

    /// This end begins to wait for a message, or for bytes of a file.
    fn begin_wait(&mut self) {
        if self.resets_wait {
            self.incoming.restart();
        }
    }

    /// Waits until as many bytes have come as are expected, a tick at most, if they are more than a read can wait for. Returns whether the read
    /// is to wait for them then, and whether the tick was over first.
    fn wait(&mut self) -> Result<(bool, bool)> {
        let has_come = self.spin()?;
        if self.low_water == 1 {
            return Ok((true, false));
        }
        let has_come = has_come || self.stream.is_readable(STOP_POLL_INTERVAL).map_err(Error::call(POLL_STEP))?;
        Ok((false, !has_come))
    }

    /// What has come of the next plain bytes; those behind them may be received past this channel.
    ///
    /// # Errors
    /// Those of setting up the connection.
    pub(crate) fn available(&mut self, max_bytes: usize) -> Result<&[u8]> {
        self.set_expected(1)?;
        Ok(self.input.take(max_bytes))
    }

    /// Drops bytes of files, which a message announced and nobody looks at: plain ones without a copy, where a connection can.
    ///
    /// # Errors
    /// As [`SecureChannel::receive_data`].
    pub(crate) fn skip_data(&mut self, mut bytes: usize, buffer: &mut [u8]) -> Result<()> {
        self.begin_wait();
        while bytes > 0 {
            if !self.plain {
                let part = bytes.min(PART_BYTES);
                self.receive_data(buffer, part)?;
                bytes -= part;
                continue;
            }
            self.set_expected(bytes.saturating_sub(self.input.len()))?;
            let chunk_bytes = bytes.min(buffer.len());
            bytes -= match self.input.take(bytes).len() {
                0 => self.wait_and_read(|channel, may_wait| match channel.stream.socket() {
                    Some(socket) if !may_wait => kelvin_sys::net::drop_received(socket, bytes),
                    _ => channel.stream.read(&mut buffer[..chunk_bytes]),
                })?,
                count => count,
            };
        }
        Ok(())
    }

    fn receive_sealed(&mut self, buffer: &mut [u8], max_bytes: usize) -> Result<usize> {
        if self.content.len() == 0 {
            let length = self.receive_frame()?;
            if length <= buffer.len() && length.saturating_sub(TAG_BYTES) <= max_bytes {
                let sealed = &self.input.take(LENGTH_BYTES + length)[LENGTH_BYTES..];
                let opener = &mut self.opener;
                let opened = add_elapsed(&mut self.times.cipher, || opener.open(sealed, buffer))?;
                return if opened == 0 { Err(NO_BYTES) } else { Ok(opened) };
            }
            self.decrypt(length)?;
        }
        match self.content.copy_to(&mut buffer[..max_bytes]) {
            0 => Err(NO_BYTES),
            copied => Ok(copied),
        }
    }

    /// Waits for a whole frame, and returns the length of its content.
    fn receive_frame(&mut self) -> Result<usize> {
        Error::ensure(self.content.len() == 0, "it sent more bytes of a file than it had announced")?;
        self.wait_for(LENGTH_BYTES)?;
        let length = self.next_frame_length()?.unwrap_or_default();
        self.wait_for(LENGTH_BYTES + length)?;
        Ok(length)
    }

    /// The length of the next frame, if it has come.
    fn next_frame_length(&self) -> Result<Option<usize>> {
        let Some(head) = self.input.bytes().first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        match u32::from_le_bytes(*head) as usize {
            claimed if claimed > MAX_SEALED_BYTES => Err(Error::FrameTooLong { claimed, limit: MAX_SEALED_BYTES }),
            length => Ok(Some(length)),
        }
    }

    fn parse_message<T: DeserializeOwned>(&mut self, length: usize) -> Result<T> {
        self.decrypt(length)?;
        let (message, rest) =
            postcard::take_from_bytes(self.content.take(MAX_SEALED_BYTES)).map_err(Error::malformed)?;
        Error::ensure(rest.is_empty(), "a message that is too long").map(|()| message)
    }

    /// Decrypts the next frame, which is there.
    fn decrypt(&mut self, length: usize) -> Result<()> {
        let sealed = &self.input.take(LENGTH_BYTES + length)[LENGTH_BYTES..];
        let (opener, content) = (&mut self.opener, &mut self.content);
        let open = || content.fill(|buffer| opener.open(sealed, buffer));
        add_elapsed(&mut self.times.cipher, open).map(drop)
    }

    /// Waits until this many bytes are there that were not looked at.
    fn wait_for(&mut self, bytes: usize) -> Result<()> {
        while self.input.len() < bytes {
            self.wait_and_read(|channel, may_wait| channel.read_some(bytes, may_wait))?;
        }
        Ok(())
    }

    /// Reads what has come, if anything has, and if there is room for it.
    fn fill_input(&mut self) -> Result<()> {
        if self.input.len() < INPUT_BYTES / 2 && self.is_readable()? {
            match self.read_some(INPUT_BYTES, false) {
                Ok(0) => return Err(Error::Closed),
                Ok(_) => {}
                Err(error) => pass_interrupted(error, SEND_STEP)?,
            }
        }
        Ok(())
    }

    /// Looks for a moment whether what is waited for has come, where that is likely, before a call that would sleep.
    fn spin(&mut self) -> Result<bool> {
        if !self.spin_policy.is_due() {
            return Ok(false);
        }
        let start = Instant::now();
        loop {
            if self.is_readable()? {
                self.spin_policy.on_success();
                return Ok(true);
            }
            if start.elapsed() > SPIN_TIME {
                self.spin_policy.on_failure();
                return Ok(false);
            }
            // Whoever else wants this processor has it, the other end maybe.
            std::thread::yield_now();
        }
    }

    /// Reads what has come: of plain bytes not many more than are waited for.
    fn read_some(&mut self, expected: usize, may_wait: bool) -> std::io::Result<usize> {
        let max_bytes =
            if self.plain { expected.saturating_sub(self.input.len()).max(READ_AHEAD_BYTES) } else { INPUT_BYTES };
        let stream = &mut self.stream;
        self.input.fill(|buffer| {
            let max_bytes = max_bytes.min(buffer.len());
            read_next(stream, &mut buffer[..max_bytes], may_wait)
        })
    }

    /// Adds an encrypted frame to those to be sent.
    fn seal(&mut self, content: &[u8]) -> Result<()> {
        self.output.extend_from_slice(&((content.len() + TAG_BYTES) as u32).to_le_bytes());
        self.sealer.seal(content, &mut self.output)
    }
}

/// The first connection of a session, and the one of the file that is being moved, if it has one of its own.
pub(crate) struct SessionChannels<'a, S> {
    pub(crate) first: &'a mut SecureChannel<S>,
    file_channel: Option<SecureChannel<S>>,
    /// What those that have ended carried.
    carried: LinkUsage,
}

impl<'a, S: TransferStream> SessionChannels<'a, S> {
    pub(crate) fn new(first: &'a mut SecureChannel<S>) -> Self {
        Self { first, file_channel: None, carried: LinkUsage::default() }
    }

    /// What all connections carried; nothing where the kernel does not report it.
    pub(crate) fn link_usage(&self) -> Option<LinkUsage> {
        let mut usage = self.first.link_usage()?;
        usage.add(&self.carried);
        Some(usage)
    }

    /// That over which the file goes: its own, else the first one of the session.
    pub(crate) fn current(&mut self) -> &mut SecureChannel<S> {
        self.file_channel.as_mut().unwrap_or(self.first)
    }

    /// From now on files go over this one.
    pub(crate) fn open(&mut self, mut channel: SecureChannel<S>) {
        channel.take_progress(self.first);
        self.file_channel = Some(channel);
    }

    /// They go over the first one again, which takes over what was measured.
    pub(crate) fn close(&mut self) -> Option<SecureChannel<S>> {
        let mut channel = self.file_channel.take()?;
        self.first.take_progress(&mut channel);
        self.first.times.add(&channel.times);
        self.carried.add(&channel.link_usage().unwrap_or_default());
        Some(channel)
    }
}

/// An encrypted frame without content where bytes of a file were announced.
const NO_BYTES: Error = Error::ProtocolViolation("it sent fewer bytes of a file than it had announced");

/// A buffer whose bytes come at its end and are taken at its beginning.
struct InputBuffer {
    buffer: Box<[u8]>,
    first: usize,
    end: usize,
}

impl InputBuffer {
    fn new(bytes: usize) -> Self {
        Self { buffer: vec![0; bytes].into(), first: 0, end: 0 }
    }

    /// Bytes that were not taken.
    fn len(&self) -> usize {
        self.end - self.first
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.first..self.end]
    }

    /// Takes at most this many bytes.
    fn take(&mut self, max_bytes: usize) -> &[u8] {
        let first = self.first;
        self.first += self.len().min(max_bytes);
        &self.buffer[first..self.first]
    }

    /// Takes as many bytes as there is room for, and returns how many.
    fn copy_to(&mut self, buffer: &mut [u8]) -> usize {
        let bytes = self.take(buffer.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }

    /// Adds what `read` writes into the room that there is.
    fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<usize, E> {
        self.buffer.copy_within(self.first..self.end, 0);
        (self.first, self.end) = (0, self.len());
        let count = read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }
}

/// Passes over a call that was interrupted or had to wait, unless this process is asked to stop.
fn pass_interrupted(error: std::io::Error, doing: &'static str) -> Result<()> {
    Error::check_stop()?;
    match error.kind() {
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(()),
        _ => Err(Error::call(doing)(error)),
    }
}
