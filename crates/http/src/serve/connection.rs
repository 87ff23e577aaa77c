//! A connection without its transport: it is fed what arrives, and returns what is to be sent.

use std::sync::Arc;

use http::StatusCode;
use rustix::io::{Errno, pread};

use crate::serve::access_log::ConnectionLog;
use crate::serve::body::{Body, FileRange, MultipartRanges};
use crate::serve::open_file_cache::OpenFile;
use crate::serve::request::{downgrade_to_1_1, parse_request};
use crate::serve::request_tracker::RequestTracker;
use crate::serve::send_strategy::bulk_method::BulkResponse;
use crate::serve::site::Site;

/// Bytes that answers to pipelined requests may come to before they are sent: so a client that does not read costs no more.
const PIPELINE_OUTPUT_LIMIT: usize = 16 << 10;

/// A connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// What has arrived, and how much of it was taken.
    input: Vec<u8>,
    consumed: usize,
    /// Bytes received before which it makes no sense to look for a request again.
    reparse_length: usize,
    /// What is to be sent, and how much of it was.
    output: Vec<u8>,
    sent: usize,
    /// How many of the last of these were read from the part that follows, which begins behind them.
    read_ahead: usize,
    /// Whether somebody else has what is to be sent.
    output_detached: bool,
    /// The part of a file that is to be sent, next or behind the head before it.
    pub(crate) file_range: Option<FileRange>,
    /// The parts that follow it.
    more_ranges: Option<Box<MultipartRanges>>,
    /// Whether it ends when all that is sent.
    close_when_sent: bool,
    /// Bytes that were sent.
    pub(crate) bytes_sent: u64,
    /// What counts its requests, if it is tracked.
    pub(crate) tracker: Option<RequestTracker>,
    /// What logs its requests, if that is asked for.
    pub(crate) log: Option<Box<ConnectionLog>>,
    /// Whether its client is on this host.
    pub(crate) is_local: bool,
    /// By which calls the last answer goes or went, if that was chosen for it.
    pub(crate) bulk_response: Option<BulkResponse>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextIo {
    /// That bytes are sent: see [`Connection::pending_output`].
    Send,
    /// That what it has is looked at: see [`Connection::advance`].
    Advance,
    /// That bytes are received: see [`Connection::input_buffer`].
    Receive,
    /// Its end.
    End,
}

/// What is to be sent next.
#[derive(Debug)]
pub enum PendingOutput<'a> {
    /// These bytes, and whether more follow at once by another call.
    Bytes(&'a [u8], bool),
    /// A part of a file.
    FileRange(&'a FileRange),
}

/// What is to be read of a file.
#[derive(Debug)]
pub struct FileRead {
    /// The file.
    pub open_file: Arc<OpenFile>,
    /// From which offset on.
    pub offset: u64,
    /// Where it goes in what is to be sent.
    pub begin: usize,
    /// How much.
    pub bytes: usize,
}

/// Large buffers that connections use by turns: one that waits has none.
#[derive(Debug, Default)]
pub struct LargeBuffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    /// One that is served from now on, and watched if it was registered for that; of a client on this host or elsewhere.
    pub fn with_tracker(tracker: Option<RequestTracker>, is_local: bool) -> Self {
        tracker.iter().for_each(RequestTracker::attach_worker);
        Self { tracker, is_local, ..Self::default() }
    }

    /// What it waits for.
    #[inline]
    pub fn next_io(&self) -> NextIo {
        if self.sent < self.output.len() || self.file_range.is_some() {
            NextIo::Send
        } else if self.more_ranges.is_some()
            || (!self.close_when_sent && self.input.len() - self.consumed > self.reparse_length)
        {
            NextIo::Advance
        } else if self.close_when_sent {
            NextIo::End
        } else {
            NextIo::Receive
        }
    }

    /// Takes large buffers for as long as it is worked on.
    pub fn attach_buffers(&mut self, buffers: &mut LargeBuffers) {
        move_to_large(&mut self.input, &mut self.consumed, &mut buffers.input);
        move_to_large(&mut self.output, &mut self.sent, &mut buffers.output);
    }

    /// Gives them back, and keeps what it must in memory of that size.
    pub fn detach_buffers(&mut self, buffers: &mut LargeBuffers) {
        return_large(&mut self.input, &mut self.consumed, &mut buffers.input);
        if self.output_detached {
            buffers.output = std::mem::take(&mut self.output);
        } else {
            self.discard_read_ahead();
            return_large(&mut self.output, &mut self.sent, &mut buffers.output);
        }
    }

    /// Where bytes are received: behind what is there already, with room for at least this many.
    #[inline]
    pub fn input_buffer(&mut self, min_bytes: usize) -> &mut Vec<u8> {
        if self.consumed > 0 {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        self.input.reserve(min_bytes);
        &mut self.input
    }

    /// This many bytes were received into the buffer, which had waited this many nanoseconds.
    pub fn mark_received_delayed(&mut self, bytes: usize, delay: u64) {
        if self.input.len() - bytes == self.consumed && bytes > 0 {
            self.tracker.iter().for_each(|tracker| tracker.request_arrived(delay));
        }
        self.mark_received(bytes);
    }

    /// This many bytes were received into the buffer.
    #[inline]
    pub fn mark_received(&mut self, bytes: usize) {
        // A head cannot have become whole without the end of a line. What has no end is looked at each time that it doubles.
        if memchr::memchr(b'\n', &self.input[self.input.len() - bytes..]).is_some() {
            self.reparse_length = 0;
        }
    }

    /// Answers requests that have arrived, until there is enough to be sent.
    pub fn advance(&mut self, site: &mut Site) {
        self.clear_sent_output();
        while self.file_range.is_none() && self.output.len() < PIPELINE_OUTPUT_LIMIT {
            if let Some(parts) = &mut self.more_ranges {
                self.file_range = parts.next_part(&mut self.output);
                if self.file_range.is_none() {
                    self.more_ranges = None;
                }
            } else if self.close_when_sent || !self.try_answer_next(site) {
                return;
            }
        }
    }

    /// Answers the next request; `false` if there is none yet.
    fn try_answer_next(&mut self, site: &mut Site) -> bool {
        let rest = &self.input[self.consumed..];
        match parse_request(rest, &site.config.limits, site.config.scheme) {
            Ok(None) => {
                self.reparse_length = (2 * rest.len()).min(site.config.limits.head_bytes - 1);
                return false;
            }
            Err(status) => {
                // A later version is read again, as one that is known.
                if status != StatusCode::HTTP_VERSION_NOT_SUPPORTED
                    || !downgrade_to_1_1(&mut self.input[self.consumed..])
                {
                    self.refuse(status, site);
                }
            }
            Ok(Some((request, length))) => {
                self.tracker.iter_mut().for_each(RequestTracker::begin_answer);
                // The one before was not waited for, and so nobody knows when it was taken.
                self.bulk_response = None;
                let begin = self.output.len();
                let body = site.answer(&request, &mut self.output);
                if let Some(log) = &mut self.log {
                    log.add_answer(request.head, &self.output[begin..], body.as_ref().map_or(0, Body::length));
                }
                match body {
                    None => {}
                    Some(Body::FileRange(part)) => self.file_range = Some(part),
                    Some(Body::Multipart(parts)) => self.more_ranges = Some(parts),
                }
                self.tracker.iter_mut().for_each(|tracker| tracker.add_answer(&self.output[begin..]));
                self.close_when_sent = !site.keeps_alive(&request);
                self.consumed += length;
                self.reparse_length = 0;
                site.answered += 1;
            }
        }
        true
    }

    /// Answers that nothing more is taken, and ends after that.
    pub fn refuse(&mut self, status: StatusCode, site: &Site) {
        let begin = self.output.len();
        site.refuse(status, &mut self.output);
        self.tracker.iter_mut().for_each(|tracker| tracker.add_answer(&self.output[begin..]));
        let request = &self.input[self.consumed..];
        self.log.iter_mut().for_each(|log| log.add_answer(request, &self.output[begin..], 0));
        self.consumed = self.input.len();
        self.close_when_sent = true;
    }

    /// What is to be sent next, if anything is.
    #[inline]
    pub fn pending_output(&self) -> Option<PendingOutput<'_>> {
        let (bytes, file_range) = (&self.output[self.sent..], self.file_range.as_ref());
        if bytes.is_empty() {
            return file_range.map(PendingOutput::FileRange);
        }
        Some(PendingOutput::Bytes(bytes, file_range.is_some_and(|range| !range.range.is_empty())))
    }

    /// Reads of the part that is to be sent, up to this many bytes, behind the head that is to be sent before it.
    ///
    /// # Errors
    /// Those of pread; `IO` of a file that has become shorter than was stated.
    #[inline]
    pub fn read_file_range(&mut self, max_bytes: usize) -> rustix::io::Result<()> {
        let Some(reading) = self.begin_read(max_bytes) else { return Ok(()) };
        let read = pread(&reading.open_file.file, &mut self.output[reading.begin..], reading.offset);
        self.end_read(reading.begin, read)
    }

    /// Whether something of the part that is to be sent must be read before anything is sent.
    #[inline]
    pub fn needs_file_read(&self) -> bool {
        let is_read = self.read_ahead > 0 && self.sent < self.output.len();
        !is_read && self.file_range.as_ref().is_some_and(|range| !range.range.is_empty())
    }

    /// Makes room for what is to be read next of the part that is to be sent, up to this many bytes, if anything is.
    #[inline]
    pub fn begin_read(&mut self, max_bytes: usize) -> Option<FileRead> {
        self.clear_sent_output();
        let file_range = self.file_range.as_ref()?;
        if self.read_ahead > 0 || file_range.range.is_empty() {
            return None;
        }
        let (begin, offset) = (self.output.len(), file_range.range.start);
        let bytes = (file_range.range.end - offset).min(max_bytes as u64) as usize;
        let open_file = Arc::clone(&file_range.open_file);
        self.output.resize(begin + bytes, 0);
        Some(FileRead { open_file, offset, begin, bytes })
    }

    /// That was read, into the room that begins there.
    ///
    /// # Errors
    /// The one of the read; `IO` of a file that has become shorter than was stated.
    #[inline]
    pub fn end_read(&mut self, begin: usize, read: rustix::io::Result<usize>) -> rustix::io::Result<()> {
        self.read_ahead = *read.as_ref().unwrap_or(&0);
        self.output.truncate(begin + self.read_ahead);
        self.file_range.iter_mut().for_each(|range| range.range.start += self.read_ahead as u64);
        if read? == 0 { Err(Errno::IO) } else { Ok(()) }
    }

    /// Gives away what is to be sent, and how much of it was, for as long as somebody else sends it or reads into it. Until it is
    /// [back](Self::reattach_output), bytes are received at most.
    #[inline]
    pub fn detach_output(&mut self, replacement: Vec<u8>) -> (Vec<u8>, usize) {
        self.output_detached = true;
        (std::mem::replace(&mut self.output, replacement), self.sent)
    }

    /// Has it back.
    #[inline]
    pub fn reattach_output(&mut self, output: Vec<u8>) {
        (self.output, self.output_detached) = (output, false);
    }

    /// The buffer of what was sent, if all of it was.
    #[inline]
    pub fn take_empty_output(&mut self) -> Option<Vec<u8>> {
        if self.sent < self.output.len() {
            return None;
        }
        (self.sent, self.read_ahead) = (0, 0);
        Some(std::mem::take(&mut self.output))
    }

    /// The buffer of what is to be sent, of which a copy is kept as far as it cannot be read again.
    pub fn copy_unsent(&mut self) -> Vec<u8> {
        self.discard_read_ahead();
        let unsent = self.output[self.sent..].to_vec();
        self.sent = 0;
        std::mem::replace(&mut self.output, unsent)
    }

    /// Bytes that were received and not taken.
    pub fn unparsed_bytes(&self) -> usize {
        self.input.len() - self.consumed
    }

    /// Empties the output once all of it is sent. What was read ahead is sent with it, and is no part of the response that follows.
    fn clear_sent_output(&mut self) {
        if self.sent == self.output.len() {
            self.output.clear();
            (self.sent, self.read_ahead) = (0, 0);
        }
    }

    /// Forgets what was read of a part and could not be sent: it costs less to read it again than to keep it for each that waits.
    fn discard_read_ahead(&mut self) {
        let unsent = std::mem::take(&mut self.read_ahead).min(self.output.len() - self.sent);
        if let Some(range) = &mut self.file_range {
            range.range.start -= unsent as u64;
            self.output.truncate(self.output.len() - unsent);
        }
    }

    /// This many bytes were sent of what was to be sent next.
    #[inline]
    pub fn mark_sent(&mut self, bytes: usize) {
        self.bytes_sent += bytes as u64;
        self.log.iter_mut().for_each(|log| log.mark_sent(bytes as u64));
        if self.sent < self.output.len() {
            self.sent += bytes;
        } else if let Some(range) = &mut self.file_range {
            range.range.start += bytes as u64;
        }
        if self.sent == self.output.len() && self.file_range.as_ref().is_some_and(|range| range.range.is_empty()) {
            self.file_range = None;
        }
        if let Some(tracker) = &mut self.tracker {
            let is_all = self.sent == self.output.len() && self.file_range.is_none() && self.more_ranges.is_none();
            tracker.mark_sent(bytes, is_all);
        }
    }

    /// Whether a request has begun to arrive and is not whole.
    pub fn has_partial_request(&self) -> bool {
        self.input.len() > self.consumed
    }
}

/// Moves what is left of a small buffer into a large one, which takes its place.
fn move_to_large(buffer: &mut Vec<u8>, sent: &mut usize, large: &mut Vec<u8>) {
    large.clear();
    large.extend_from_slice(&buffer[*sent..]);
    *sent = 0;
    std::mem::swap(buffer, large);
}

/// Gives a large buffer back, and keeps what is left of its content.
fn return_large(buffer: &mut Vec<u8>, sent: &mut usize, large: &mut Vec<u8>) {
    // What was swapped is the small one of before.
    *large = std::mem::replace(buffer, buffer[*sent..].to_vec());
    *sent = 0;
}

#[cfg(test)]
mod tests;
