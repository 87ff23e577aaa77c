//! A connection apart from how its bytes move: it is fed what arrives, and says what is to be sent.

use std::sync::Arc;

use rustix::io::{Errno, pread};

use crate::body::{Body, Part, Parts};
use crate::files::Opened;
use crate::registered::Registered;
use crate::request::{Received, read, to_known_version};
use crate::sending::chosen::Answer;
use crate::site::Site;
use crate::status::Status;

/// Bytes that answers to pipelined requests may come to before they are sent: so a client that does not read costs no more.
const ENOUGH: usize = 16 << 10;

/// A connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// What has arrived, and how much of it was taken.
    input: Vec<u8>,
    taken: usize,
    /// Bytes received before which it makes no sense to look for a request again.
    retry_at: usize,
    /// What is to be sent, and how much of it was.
    output: Vec<u8>,
    sent: usize,
    /// How many of the last of these were read from the part that follows, which begins behind them.
    read: usize,
    /// Whether somebody else has what is to be sent.
    is_parted: bool,
    /// The part of a file that follows.
    part: Option<Part>,
    /// The parts that follow it.
    more: Option<Box<Parts>>,
    /// Whether it ends when all that is sent.
    is_last: bool,
    /// Requests that were answered, and bytes that were sent.
    answered: u64,
    given: u64,
    /// Who is told what it does, if anybody is.
    watched: Option<Registered>,
    /// Whether its client is on this host.
    is_local: bool,
    /// By which calls the last answer goes or went, if that was chosen for it.
    answer: Option<Answer>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// That bytes are sent: see [`Connection::to_send`].
    Send,
    /// That what it has is looked at: see [`Connection::advance`].
    Advance,
    /// That bytes are received: see [`Connection::buffer`].
    Receive,
    /// Its end.
    End,
}

/// What is to be sent next.
#[derive(Debug)]
pub enum ToSend<'a> {
    /// These bytes, and whether more follow at once by another call.
    Bytes(&'a [u8], bool),
    /// A part of a file.
    Part(&'a Part),
}

/// What is to be read of a file.
#[derive(Debug)]
pub struct Reading {
    /// The file.
    pub opened: Arc<Opened>,
    /// From which offset on.
    pub offset: u64,
    /// Where it goes in what is to be sent.
    pub begin: usize,
    /// How much.
    pub bytes: usize,
}

/// Large buffers that connections use by turns: one that waits has none.
#[derive(Debug, Default)]
pub struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    /// One that is served from now on, and watched if it was registered for that.
    pub fn watched(watched: Option<Registered>) -> Self {
        watched.iter().for_each(Registered::attend);
        Self { watched, ..Self::default() }
    }

    /// The same one, of a client on this host or elsewhere.
    pub fn local(self, is_local: bool) -> Self {
        Self { is_local, ..self }
    }

    /// Whether its client is on this host.
    #[inline]
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// By which calls the answer goes that is to be sent, if they were chosen for it.
    #[inline]
    pub fn answer(&self) -> Option<Answer> {
        self.answer
    }

    /// These calls were chosen for it.
    pub fn begin_answer(&mut self, answer: Answer) {
        self.answer = Some(answer);
    }

    /// The last answer, once all of it is sent, if calls were chosen for it.
    #[inline]
    pub fn take_answer(&mut self) -> Option<Answer> {
        if self.wants() == Wants::Send { None } else { self.answer.take() }
    }

    /// What it waits for.
    #[inline]
    pub fn wants(&self) -> Wants {
        if self.sent < self.output.len() || self.part.is_some() {
            Wants::Send
        } else if self.more.is_some() || (!self.is_last && self.input.len() - self.taken > self.retry_at) {
            Wants::Advance
        } else if self.is_last {
            Wants::End
        } else {
            Wants::Receive
        }
    }

    /// Takes large buffers for as long as it is worked on.
    pub fn lend(&mut self, buffers: &mut Buffers) {
        take(&mut self.input, &mut self.taken, &mut buffers.input);
        take(&mut self.output, &mut self.sent, &mut buffers.output);
    }

    /// Gives them back, and keeps what it must in memory of that size.
    pub fn give_back(&mut self, buffers: &mut Buffers) {
        give(&mut self.input, &mut self.taken, &mut buffers.input);
        if self.is_parted {
            buffers.output = std::mem::take(&mut self.output);
        } else {
            self.unread();
            give(&mut self.output, &mut self.sent, &mut buffers.output);
        }
    }

    /// Where bytes are received: behind what is there already, with room for at least so many.
    #[inline]
    pub fn buffer(&mut self, room: usize) -> &mut Vec<u8> {
        if self.taken > 0 {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        self.input.reserve(room);
        &mut self.input
    }

    /// Whether somebody is told what it does.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// So many bytes were received into the buffer, which had waited so many nanoseconds.
    pub fn received_late(&mut self, bytes: usize, waited: u64) {
        if self.input.len() - bytes == self.taken && bytes > 0 {
            self.watched.iter().for_each(|watched| watched.arrive(waited));
        }
        self.received(bytes);
    }

    /// So many bytes were received into the buffer.
    #[inline]
    pub fn received(&mut self, bytes: usize) {
        // A head cannot have become whole without the end of a line. What has no end is looked at each time that it doubles.
        if memchr::memchr(b'\n', &self.input[self.input.len() - bytes..]).is_some() {
            self.retry_at = 0;
        }
    }

    /// Answers requests that have arrived, until there is enough to be sent.
    pub fn advance(&mut self, site: &mut Site) {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        while self.part.is_none() && self.output.len() < ENOUGH {
            if let Some(parts) = &mut self.more {
                self.part = parts.next(&mut self.output);
                if self.part.is_none() {
                    self.more = None;
                }
            } else if self.is_last || !self.take_request(site) {
                return;
            }
        }
    }

    /// Answers the next request; `false` if there is none yet.
    fn take_request(&mut self, site: &mut Site) -> bool {
        let rest = &self.input[self.taken..];
        match read(rest, site.limits()) {
            Received::Part => {
                self.retry_at = (2 * rest.len()).min(site.limits().head - 1);
                return false;
            }
            Received::Refused(status) => {
                let is_later = status == Status::VersionNotSupported && to_known_version(&mut self.input[self.taken..]);
                // It is read again, as one that is known.
                if !is_later {
                    self.refuse(status, site);
                }
            }
            Received::Whole(request, length) => {
                self.watched.iter_mut().for_each(Registered::begin);
                // The one before was not waited for, and so nobody knows when it was taken.
                self.answer = None;
                let begin = self.output.len();
                match site.answer(&request, &mut self.output) {
                    None => {}
                    Some(Body::Part(part)) => self.part = Some(part),
                    Some(Body::Parts(parts)) => self.more = Some(parts),
                }
                self.watched.iter_mut().for_each(|watched| watched.answer(&self.output[begin..]));
                self.is_last = !site.keeps(&request);
                self.taken += length;
                self.retry_at = 0;
                self.answered += 1;
            }
        }
        true
    }

    /// Answers that nothing more is taken, and ends after that.
    pub fn refuse(&mut self, status: Status, site: &Site) {
        let begin = self.output.len();
        site.refuse(status, &mut self.output);
        self.watched.iter_mut().for_each(|watched| watched.answer(&self.output[begin..]));
        self.taken = self.input.len();
        self.is_last = true;
    }

    /// What is to be sent next, if anything is.
    #[inline]
    pub fn to_send(&self) -> Option<ToSend<'_>> {
        let (bytes, part) = (&self.output[self.sent..], self.part.as_ref());
        match part {
            _ if !bytes.is_empty() => Some(ToSend::Bytes(bytes, part.is_some_and(|part| !part.range.is_empty()))),
            part => part.map(ToSend::Part),
        }
    }

    /// The part of a file that is to be sent, next or behind the head before it.
    pub fn part(&self) -> Option<&Part> {
        self.part.as_ref()
    }

    /// Reads of the part that is to be sent, up to so many bytes, behind the head that is to be sent before it.
    ///
    /// # Errors
    /// Those of pread; `IO` of a file that has become shorter than was said.
    #[inline]
    pub fn read_part(&mut self, most: usize) -> rustix::io::Result<()> {
        let Some(reading) = self.begin_read(most) else { return Ok(()) };
        let read = pread(&reading.opened.file, &mut self.output[reading.begin..], reading.offset);
        self.end_read(reading.begin, read)
    }

    /// Whether something of the part that is to be sent must be read before anything is sent.
    #[inline]
    pub fn is_to_be_read(&self) -> bool {
        let is_read = self.read > 0 && self.sent < self.output.len();
        !is_read && self.part.as_ref().is_some_and(|part| !part.range.is_empty())
    }

    /// Makes room for what is to be read next of the part that is to be sent, up to so many bytes, if anything is.
    #[inline]
    pub fn begin_read(&mut self, most: usize) -> Option<Reading> {
        let part = self.part.as_ref()?;
        if self.sent == self.output.len() {
            self.output.clear();
            (self.sent, self.read) = (0, 0);
        }
        if self.read > 0 || part.range.is_empty() {
            return None;
        }
        let (begin, offset) = (self.output.len(), part.range.start);
        let bytes = (part.range.end - offset).min(most as u64) as usize;
        let opened = Arc::clone(&part.opened);
        self.output.resize(begin + bytes, 0);
        Some(Reading { opened, offset, begin, bytes })
    }

    /// That was read, into the room that begins there.
    ///
    /// # Errors
    /// The one of the read; `IO` of a file that has become shorter than was said.
    #[inline]
    pub fn end_read(&mut self, begin: usize, read: rustix::io::Result<usize>) -> rustix::io::Result<()> {
        self.read = *read.as_ref().unwrap_or(&0);
        self.output.truncate(begin + self.read);
        self.part.iter_mut().for_each(|part| part.range.start += self.read as u64);
        if read? == 0 { Err(Errno::IO) } else { Ok(()) }
    }

    /// Gives away what is to be sent, and how much of it was, for as long as somebody else sends it or reads into it. Until it is
    /// [back](Self::take_back), bytes are received at most.
    #[inline]
    pub fn part_with(&mut self, spare: Vec<u8>) -> (Vec<u8>, usize) {
        self.is_parted = true;
        (std::mem::replace(&mut self.output, spare), self.sent)
    }

    /// Has it back.
    #[inline]
    pub fn take_back(&mut self, output: Vec<u8>) {
        (self.output, self.is_parted) = (output, false);
    }

    /// The buffer of what was sent, if all of it was.
    #[inline]
    pub fn emptied(&mut self) -> Option<Vec<u8>> {
        if self.sent < self.output.len() {
            return None;
        }
        (self.sent, self.read) = (0, 0);
        Some(std::mem::take(&mut self.output))
    }

    /// The buffer of what is to be sent, of which a copy is kept as far as it cannot be read again.
    pub fn set_aside(&mut self) -> Vec<u8> {
        self.unread();
        let kept = self.output[self.sent..].to_vec();
        self.sent = 0;
        std::mem::replace(&mut self.output, kept)
    }

    /// Bytes that were received and not taken.
    pub fn waiting(&self) -> usize {
        self.input.len() - self.taken
    }

    /// Forgets what was read of a part and could not be sent: it costs less to read it again than to keep it for each that waits.
    fn unread(&mut self) {
        let unsent = std::mem::take(&mut self.read).min(self.output.len() - self.sent);
        if let Some(part) = &mut self.part {
            part.range.start -= unsent as u64;
            self.output.truncate(self.output.len() - unsent);
        }
    }

    /// So many bytes were sent of what was to be sent next.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.given += bytes as u64;
        if self.sent < self.output.len() {
            self.sent += bytes;
        } else if let Some(part) = &mut self.part {
            part.range.start += bytes as u64;
        }
        if self.sent == self.output.len() && self.part.as_ref().is_some_and(|part| part.range.is_empty()) {
            self.part = None;
        }
        if let Some(watched) = &mut self.watched {
            watched.sent(bytes, self.sent == self.output.len() && self.part.is_none() && self.more.is_none());
        }
    }

    /// Whether a request has begun to arrive and is not whole.
    pub fn has_begun(&self) -> bool {
        self.input.len() > self.taken
    }

    /// Bytes sent so far.
    #[inline]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Requests answered so far.
    pub fn answered(&self) -> u64 {
        self.answered
    }
}

/// Moves what is left of a small buffer into a large one, which takes its place.
fn take(own: &mut Vec<u8>, done: &mut usize, large: &mut Vec<u8>) {
    large.clear();
    large.extend_from_slice(&own[*done..]);
    *done = 0;
    std::mem::swap(own, large);
}

/// Gives a large buffer back, and keeps what is left of its content.
fn give(own: &mut Vec<u8>, done: &mut usize, large: &mut Vec<u8>) {
    // What was swapped is the small one of before.
    *large = std::mem::replace(own, own[*done..].to_vec());
    *done = 0;
}

#[cfg(test)]
mod tests;
