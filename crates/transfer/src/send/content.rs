//! The bytes of a piece of a file, by the method that is due.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use kelvin_wire::{Error as WireError, Hasher};

use super::Sending;
use crate::Result;
use crate::by_method::{self, Way};
use crate::channel::{PART, Stream};
use crate::load::timed;
use crate::message::FromSender;
use crate::moving::SendPath;
use crate::session::BATCH;

/// Zeros that are sent at once.
const ZEROS: usize = 4096;

impl<S: Stream> Sending<'_, S> {
    /// Sends as many bytes as were announced, by the way that is due.
    pub(super) fn send_range(&mut self, file: &File, range: (u64, u64)) -> Result<bool> {
        if !self.may_not_listen() {
            return self.send_parts(file, range);
        }
        let failed = WireError::call("set up the connection");
        let channel = self.apart.or(self.channel);
        let (number, mut way) = self.ways.next(|| channel.socket()).map_err(failed)?;
        let begun = Instant::now();
        let sent = match &mut way {
            Way::Parts => self.send_parts(file, range).map(Some),
            Way::Path(path) => self.send_path(path, file, range),
        };
        let Ok(None) = sent else {
            self.ways.took((number, way), range.1, begun);
            return sent.map(|is_whole| is_whole.unwrap_or_default());
        };
        self.ways.took((number, way), 0, begun);
        let (begun, is_whole) = (Instant::now(), self.send_parts(file, range));
        self.ways.took((0, Way::Parts), range.1, begun);
        is_whole
    }

    /// Whether so little can come from the receiver that it finds room in the socket while nobody listens: no digests of parts, no
    /// decisions, and few verdicts.
    pub(super) fn may_not_listen(&self) -> bool {
        self.resumed.is_empty() && self.decided == self.offered && self.unjudged.len() <= BATCH
    }

    /// Sends as many bytes as were announced by a method of its own, with zeros for those that are not there any more; says whether
    /// all were, or nothing of a file that cannot be mapped, of which none has gone.
    fn send_path(&mut self, path: &mut SendPath, file: &File, (offset, bytes): (u64, u64)) -> Result<Option<bool>> {
        let (verify, shows) = (self.manner.settings.verify, path.setup().method.shows_bytes());
        let mut hasher = Hasher::new();
        let mut done = 0;
        self.apart.or(self.channel).flush()?;
        while done < bytes {
            let part = self.pace.most(bytes - done);
            let range = offset + done..offset + done + part;
            let (begun, mut hashing) = (Instant::now(), 0);
            let mut see = |shown: &[u8]| {
                timed(&mut hashing, || {
                    hasher.update(shown);
                });
            };
            let sent = by_method::send(path, file, range.clone(), (verify && shows).then_some(&mut see))?;
            let sent = match sent {
                None if done == 0 => return Ok(None),
                sent => sent.unwrap_or_default(),
            };
            self.channel.times.verify += hashing;
            self.channel.times.connection += (begun.elapsed().as_nanos() as u64).saturating_sub(hashing);
            if verify && !shows {
                self.hash_again(file, (range.start, sent), &mut hasher)?;
            }
            self.keep_pace(sent);
            self.pass(sent);
            done += sent;
            if sent < part {
                self.send_zeros(bytes - done)?;
                self.say_digest(&hasher)?;
                return Ok(Some(false));
            }
        }
        self.say_digest(&hasher)?;
        Ok(Some(true))
    }

    /// Hashes bytes that went from the file into the socket without being seen.
    fn hash_again(&mut self, file: &File, (offset, bytes): (u64, u64), hasher: &mut Hasher) -> Result<()> {
        let mut buffer = self.take_buffer();
        let mut done = 0;
        while done < bytes {
            let room = (bytes - done).min(PART as u64) as usize;
            let count = match self.channel.times.file(|| read_at(file, &mut buffer[..room], offset + done)) {
                Ok(count @ 1..) => count,
                // The digest will not be right, and the file not kept.
                _ => break,
            };
            timed(&mut self.channel.times.verify, || {
                hasher.update(&buffer[..count]);
            });
            done += count as u64;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Sends zeros in the place of announced bytes.
    fn send_zeros(&mut self, mut bytes: u64) -> Result<()> {
        let zeros = [0; ZEROS];
        while bytes > 0 {
            let some = bytes.min(ZEROS as u64);
            self.send_bytes(&zeros[..some as usize])?;
            bytes -= some;
        }
        Ok(())
    }

    /// Sends as many bytes as were announced, with zeros for those that are not there any more; says whether all were.
    fn send_parts(&mut self, file: &File, (offset, bytes): (u64, u64)) -> Result<bool> {
        let most = self.pace.most(PART as u64);
        let (mut done, mut is_whole, mut hasher) = (0, true, Hasher::new());
        let mut buffer = self.take_buffer();
        while done < bytes {
            let room = most.min(bytes - done) as usize;
            let read = self.channel.times.file(|| read_at(file, &mut buffer[..room], offset + done));
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
        self.say_digest(&hasher)?;
        Ok(is_whole)
    }

    /// Sends a part of a piece.
    pub(super) fn send_part(&mut self, part: &[u8], hasher: &mut Hasher) -> Result<()> {
        if self.manner.settings.verify {
            timed(&mut self.channel.times.verify, || hasher.update(part));
        }
        self.send_bytes(part)?;
        self.pass(part.len() as u64);
        Ok(())
    }

    /// Says the digest of a piece that was sent.
    pub(super) fn say_digest(&mut self, hasher: &Hasher) -> Result<()> {
        if !self.manner.settings.verify {
            return Ok(());
        }
        self.apart.or(self.channel).queue(&FromSender::Digests(vec![*hasher.finalize().as_bytes()]))
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.apart.or(self.channel).send_data(bytes)?;
        self.keep_pace(bytes.len() as u64);
        Ok(())
    }

    /// Waits until more may be sent after so many bytes.
    fn keep_pace(&mut self, bytes: u64) {
        timed(&mut self.channel.times.limit, || self.pace.wait(bytes));
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
