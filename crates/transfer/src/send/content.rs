//! The bytes of a piece of a file, by the method that is due.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use crate::wire::{Error as WireError, Hasher};

use super::SendSession;
use crate::Result;
use crate::datapath::{PathMethod, SendPath};
use crate::message::SenderMessage;
use crate::method_chooser::{self, PieceMethod};
use crate::secure_channel::{PART_BYTES, SETUP_STEP, TransferStream};
use crate::session::MAX_BATCH_FILES;
use crate::stage_times::add_elapsed;

/// Zeros that are sent at once.
const ZERO_BUFFER_BYTES: usize = 4096;

impl<S: TransferStream> SendSession<'_, S> {
    /// Sends as many bytes as were announced, by the way that is due.
    pub(super) fn send_range(&mut self, file: &File, range: (u64, u64)) -> Result<bool> {
        if !self.can_bypass_channel() {
            return self.send_buffered(file, range);
        }
        let channel = self.file_connection.channel_or(self.channel);
        let mut method = self.methods.next_method(|| channel.socket()).map_err(WireError::call(SETUP_STEP))?;
        let begun = Instant::now();
        let sent = match &mut method.path {
            None => self.send_buffered(file, range).map(Some),
            Some(path) => self.send_direct(path, file, range),
        };
        let Ok(None) = sent else {
            self.methods.record(method, range.1, begun);
            return sent.map(|is_whole| is_whole.unwrap_or_default());
        };
        self.methods.record(method, 0, begun);
        let (begun, is_whole) = (Instant::now(), self.send_buffered(file, range));
        self.methods.record(PieceMethod::BUFFERED, range.1, begun);
        is_whole
    }

    /// Whether so little can come from the receiver that it finds room in the socket while nobody listens: no digests of parts, no
    /// decisions, and few verdicts.
    pub(super) fn can_bypass_channel(&self) -> bool {
        self.resumed.is_empty() && self.decided == self.offered && self.unacked.len() <= MAX_BATCH_FILES
    }

    /// Sends as many bytes as were announced by a method of its own, with zeros for those that are not there any more; says whether
    /// all were, or nothing of a file that cannot be mapped, of which none has gone.
    fn send_direct(&mut self, path: &mut SendPath, file: &File, (offset, bytes): (u64, u64)) -> Result<Option<bool>> {
        let (verify, shows) = (self.options.settings.verify, path.setup().method.shows_bytes());
        let mut hasher = Hasher::new();
        let mut done = 0;
        self.file_connection.channel_or(self.channel).flush()?;
        while done < bytes {
            let part = self.limiter.max_burst(bytes - done);
            let range = offset + done..offset + done + part;
            let (begun, mut hashing) = (Instant::now(), 0);
            let mut see = |shown: &[u8]| {
                add_elapsed(&mut hashing, || {
                    hasher.update(shown);
                });
            };
            let sent = method_chooser::send_range(path, file, range.clone(), (verify && shows).then_some(&mut see))?;
            let sent = match sent {
                None if done == 0 => return Ok(None),
                sent => sent.unwrap_or_default(),
            };
            self.channel.times.verify += hashing;
            self.channel.times.connection += (begun.elapsed().as_nanos() as u64).saturating_sub(hashing);
            if verify && !shows {
                self.hash_from_file(file, (range.start, sent), &mut hasher)?;
            }
            self.limit_rate(sent);
            self.advance(sent);
            done += sent;
            if sent < part {
                self.send_zeros(bytes - done)?;
                self.send_digest(&hasher)?;
                return Ok(Some(false));
            }
        }
        self.send_digest(&hasher)?;
        Ok(Some(true))
    }

    /// Hashes bytes that went from the file into the socket without being seen.
    fn hash_from_file(&mut self, file: &File, (offset, bytes): (u64, u64), hasher: &mut Hasher) -> Result<()> {
        let mut buffer = self.take_buffer();
        let mut done = 0;
        while done < bytes {
            let room = (bytes - done).min(PART_BYTES as u64) as usize;
            let count = match self.channel.times.time_file(|| read_at(file, &mut buffer[..room], offset + done)) {
                Ok(count @ 1..) => count,
                // The digest will not be right, and the file not kept.
                _ => break,
            };
            add_elapsed(&mut self.channel.times.verify, || {
                hasher.update(&buffer[..count]);
            });
            done += count as u64;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Sends zeros in the place of announced bytes.
    fn send_zeros(&mut self, mut bytes: u64) -> Result<()> {
        let zeros = [0; ZERO_BUFFER_BYTES];
        while bytes > 0 {
            let some = bytes.min(ZERO_BUFFER_BYTES as u64);
            self.send_bytes(&zeros[..some as usize])?;
            bytes -= some;
        }
        Ok(())
    }

    /// Sends as many bytes as were announced, with zeros for those that are not there any more; says whether all were.
    fn send_buffered(&mut self, file: &File, (offset, bytes): (u64, u64)) -> Result<bool> {
        let most = self.limiter.max_burst(PART_BYTES as u64);
        let (mut done, mut is_whole, mut hasher) = (0, true, Hasher::new());
        let mut buffer = self.take_buffer();
        while done < bytes {
            let room = most.min(bytes - done) as usize;
            let read = self.channel.times.time_file(|| read_at(file, &mut buffer[..room], offset + done));
            let count = match read {
                Ok(count @ 1..) => count,
                _ => {
                    is_whole = false;
                    buffer[..room].fill(0);
                    room
                }
            };
            self.send_part(&buffer[..count], &mut hasher)?;
            done += count as u64;
        }
        self.buffer = buffer;
        self.send_digest(&hasher)?;
        Ok(is_whole)
    }

    /// Sends a part of a piece.
    pub(super) fn send_part(&mut self, part: &[u8], hasher: &mut Hasher) -> Result<()> {
        if self.options.settings.verify {
            add_elapsed(&mut self.channel.times.verify, || hasher.update(part));
        }
        self.send_bytes(part)?;
        self.advance(part.len() as u64);
        Ok(())
    }

    /// Says the digest of a piece that was sent.
    pub(super) fn send_digest(&mut self, hasher: &Hasher) -> Result<()> {
        if !self.options.settings.verify {
            return Ok(());
        }
        self.file_connection
            .channel_or(self.channel)
            .queue(&SenderMessage::Digests(vec![*hasher.finalize().as_bytes()]))
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.file_connection.channel_or(self.channel).send_data(bytes)?;
        self.limit_rate(bytes.len() as u64);
        Ok(())
    }

    /// Waits until more may be sent after so many bytes.
    fn limit_rate(&mut self, bytes: u64) {
        add_elapsed(&mut self.channel.times.limit, || self.limiter.wait_after(bytes));
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
