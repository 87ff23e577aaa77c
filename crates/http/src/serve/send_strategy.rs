//! How what a connection has to send gets into its socket: from memory, from a mapping of a part of a file, by reference to the page cache,
//! or by reference through a pipe.

pub mod bulk_method;

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::{Arc, Weak};

use bulk_method::{BulkChooser, BulkMethod, BulkStats, PeerLocality};
use kelvin_sys::clock::monotonic;
use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::socket_send::Splicer;
use kelvin_sys::net::transfer_call::{FileSlice, FileWindow, MoreFollows, PageAccess, TransferCall};
use rustix::fs::sendfile;
use rustix::io::{Errno, Result};
use rustix::net::{SendFlags, send};

use crate::serve::body::FileRange;
use crate::serve::connection::{Connection, NextIo, PendingOutput};
use crate::serve::keyword::parse_keyword;
use crate::serve::open_file_cache::OpenFile;

/// By which calls the bytes of files go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendStrategy {
    /// Small files as by [`Self::ReadWrite`], so that one call sends head and content; larger ones as by [`Self::Mmap`] or by
    /// [`Self::SendFile`], whichever clients of the same kind have answers of that size by the soonest: see [`bulk_method`].
    #[default]
    Auto,
    /// Read into memory and sent from there: two copies, by a buffer that stays in the cache.
    ReadWrite,
    /// Sent from a mapping of the file: one copy, and page faults. Files that cannot be mapped as by [`Self::SendFile`].
    Mmap,
    /// By reference to the page cache (sendfile).
    SendFile,
    /// By reference through a pipe (splice).
    Splice,
}

/// All of them, in their order, by the words for them.
pub(crate) const STRATEGY_NAMES: [(&str, SendStrategy); 5] = [
    ("auto", SendStrategy::Auto),
    ("rw", SendStrategy::ReadWrite),
    ("mmap", SendStrategy::Mmap),
    ("sendfile", SendStrategy::SendFile),
    ("splice", SendStrategy::Splice),
];

/// Bytes that are read at a time. They are sent as they are, with nothing held back for what follows (MSG_MORE): the client can
/// take one piece while the next one is read.
const READ_CHUNK: usize = 32 << 10;
/// Most bytes of one sendfile: others wait meanwhile for this thread, and a file that is not in memory is read in its time.
const MAX_SENDFILE_BYTES: u64 = 2 << 20;
/// Files up to this size are read behind their heads, so that one call sends both.
const INLINE_FILE_BYTES: u64 = 16 << 10;

impl SendStrategy {
    /// Size of the largest file that is read behind its head when it is answered with.
    pub fn inline_limit(self) -> u64 {
        if matches!(self, Self::Auto | Self::ReadWrite) { INLINE_FILE_BYTES } else { 0 }
    }

    /// Descriptors that each [`FileSender`] has.
    pub fn descriptor_count(self) -> u64 {
        if self == Self::Splice { SpliceSender::DESCRIPTORS } else { 0 }
    }
}

/// Sends by the calls that were chosen, with what they need; each thread has its own.
#[derive(Debug)]
pub struct FileSender {
    strategy: SendStrategy,
    mapped: MmapSender,
    spliced: SpliceSender,
    /// What chooses, under [`SendStrategy::Auto`], by where a client is.
    pub chooser: Option<Box<BulkChooser>>,
}

impl FileSender {
    /// By these calls.
    pub fn new(strategy: SendStrategy) -> Self {
        let chooser = (strategy == SendStrategy::Auto).then(Box::default);
        Self { strategy, mapped: MmapSender::default(), spliced: SpliceSender::default(), chooser }
    }

    /// Makes one call to the socket for what is to be sent next, and returns how many bytes it moved.
    ///
    /// # Errors
    /// Those of the call: `AGAIN` of a socket that takes no more. A file that has become shorter than was stated is an error, too.
    #[inline]
    pub fn send_some(&mut self, connection: &mut Connection, socket: impl AsFd) -> Result<usize> {
        let method = self.method(connection);
        match method {
            SendStrategy::ReadWrite => connection.read_file_range(READ_CHUNK)?,
            SendStrategy::Mmap => read_tail(connection)?,
            _ => {}
        }
        let sent = match connection.pending_output() {
            Some(PendingOutput::Bytes(bytes, is_followed)) => {
                // Only a head is held back, for the part of a file that follows it by another call.
                let is_held = is_followed && method != SendStrategy::ReadWrite;
                let flags = if is_held { SendFlags::MORE } else { SendFlags::empty() };
                send(socket, bytes, SendFlags::NOSIGNAL | flags)?
            }
            Some(PendingOutput::FileRange(file_range)) => {
                let sent = match method {
                    // Not every file system has files that can be mapped.
                    SendStrategy::Mmap if self.mapped.try_map(file_range) => self.mapped.send(file_range, &socket),
                    SendStrategy::Splice => self.spliced.send(file_range, &socket),
                    _ => {
                        let (mut offset, bytes) =
                            (file_range.range.start, file_range.range.end - file_range.range.start);
                        let bytes = bytes.min(MAX_SENDFILE_BYTES) as usize;
                        match sendfile(socket, &file_range.open_file.file, Some(&mut offset), bytes)? {
                            0 => return Err(Errno::IO),
                            sent => Ok(sent),
                        }
                    }
                };
                sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?
            }
            None => 0,
        };
        connection.mark_sent(sent);
        Ok(sent)
    }

    /// The calls by which the answer goes that is to be sent; they are chosen where it begins with a part of a file.
    #[inline]
    fn method(&mut self, connection: &mut Connection) -> SendStrategy {
        let Some(chooser) = &mut self.chooser else { return self.strategy };
        if connection.bulk_response.is_none()
            && let Some(file_range) = &connection.file_range
        {
            let peer = if connection.is_local { PeerLocality::Local } else { PeerLocality::Remote };
            let mut answer = chooser.begin(peer, file_range.range.end - file_range.range.start, monotonic);
            if answer.method == BulkMethod::Mmap && !self.mapped.try_map(file_range) {
                answer = answer.with_sendfile();
            }
            connection.bulk_response = Some(answer);
        }
        match connection.bulk_response {
            Some(answer) if answer.method == BulkMethod::Mmap => SendStrategy::Mmap,
            _ => SendStrategy::SendFile,
        }
    }

    /// More has been received on a connection, or its end: its client has taken the answer before.
    #[inline]
    pub fn on_received(&mut self, connection: &mut Connection) {
        if connection.next_io() != NextIo::Send
            && let Some(answer) = connection.bulk_response.take()
            && let Some(chooser) = &mut self.chooser
        {
            chooser.record(answer, monotonic);
        }
    }

    /// What was chosen since it was asked last, if it chooses.
    pub fn take_bulk_stats(&mut self) -> BulkStats {
        self.chooser.as_mut().map(|chooser| std::mem::take(&mut chooser.stats)).unwrap_or_default()
    }
}

impl FromStr for SendStrategy {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        parse_keyword(&STRATEGY_NAMES, word)
    }
}

impl fmt::Display for SendStrategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(STRATEGY_NAMES[*self as usize].0)
    }
}

/// Bytes that are mapped at a time, and most of one call, as by sendfile. A multiple of every page size.
const WINDOW_BYTES: u64 = 2 << 20;
/// The end of a part that is read instead, since behind its end a mapped file has zeros up to the end of a page: a part whose last
/// bytes could be read was there while those before them were sent.
const TAIL_BYTES: u64 = 4096;

/// A window on one file at a time.
#[derive(Debug, Default)]
struct MmapSender {
    window: Option<FileWindow>,
    /// What it shows: the file, unless that was closed meanwhile, and its bytes from which offset on.
    mapped: (Weak<OpenFile>, u64),
}

impl MmapSender {
    /// Sends some of a part, whose end was left to [`read_tail`].
    fn send(&mut self, file_range: &FileRange, socket: &impl AsFd) -> std::io::Result<usize> {
        let offset = file_range.range.start / WINDOW_BYTES * WINDOW_BYTES;
        let end = tail_start(file_range.range.end).min(offset + WINDOW_BYTES);
        let window_range = (file_range.range.start - offset) as usize..(end - offset) as usize;
        let window = self.map_window(&file_range.open_file, offset)?;
        TransferCall::SendWindow(window, window_range, MoreFollows::Yes).execute(socket)
    }

    /// Whether the file of a part can be mapped, which it is then.
    fn try_map(&mut self, file_range: &FileRange) -> bool {
        self.map_window(&file_range.open_file, file_range.range.start / WINDOW_BYTES * WINDOW_BYTES).is_ok()
    }

    /// Shows the file from this offset on, unless it does already: then its pages need not be mapped again.
    fn map_window(&mut self, open_file: &Arc<OpenFile>, offset: u64) -> std::io::Result<&FileWindow> {
        let window = match self.window.take() {
            Some(window) if self.mapped.1 == offset && self.mapped.0.as_ptr() == Arc::as_ptr(open_file) => window,
            window => {
                let pages = WINDOW_BYTES as usize / page_bytes();
                let mut window = window.map_or_else(|| FileWindow::reserve(pages, PageAccess::Read), Ok)?;
                window.map_part(&open_file.file, offset, open_file.identity.size - offset)?;
                window
            }
        };
        self.mapped = (Arc::downgrade(open_file), offset);
        Ok(self.window.insert(window))
    }
}

/// Reads the end of the part that is to be sent next, if nothing else of it is left.
fn read_tail(connection: &mut Connection) -> rustix::io::Result<()> {
    match &connection.file_range {
        Some(file_range) if file_range.range.start >= tail_start(file_range.range.end) => {
            connection.read_file_range(TAIL_BYTES as usize)
        }
        _ => Ok(()),
    }
}

fn tail_start(end: u64) -> u64 {
    (end - 1) / TAIL_BYTES * TAIL_BYTES
}

/// Bytes that the pipe holds, as far as they are granted: a quarter of what a user without privileges may ask for, and 256 such
/// pipes are what he may have in all (fs.pipe-max-size, fs.pipe-user-pages-soft).
const PIPE_BYTES: usize = 256 << 10;

/// A pipe that is empty between two calls: what a socket does not take is dropped, and moved again when its turn comes. Next to it is
/// /dev/null, which takes what is dropped.
#[derive(Debug, Default)]
struct SpliceSender(Option<(Splicer, File)>);

impl SpliceSender {
    /// Descriptors that it has.
    const DESCRIPTORS: u64 = 3;

    /// Sends some of a part.
    fn send(&mut self, file_range: &FileRange, socket: &impl AsFd) -> std::io::Result<usize> {
        let (pipe, null_device) = match self.0.take() {
            Some(open) => open,
            None => (Splicer::new(PIPE_BYTES)?, File::options().write(true).open("/dev/null")?),
        };
        let remaining = file_range.range.end - file_range.range.start;
        let bytes = remaining.min(PIPE_BYTES as u64) as usize;
        let source = FileSlice { file: &file_range.open_file.file, offset: file_range.range.start, bytes };
        let piped_bytes = TransferCall::FileToPipe(source, &pipe).execute(socket)?;
        if piped_bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let more_follows = if (piped_bytes as u64) < remaining { MoreFollows::Yes } else { MoreFollows::No };
        let sent = TransferCall::PipeToSocket(&pipe, piped_bytes, more_follows).execute(socket);
        let unsent = piped_bytes - *sent.as_ref().unwrap_or(&0);
        let sink = FileSlice { file: &null_device, offset: 0, bytes: unsent };
        // It goes on being used if it is empty.
        let drain = || TransferCall::PipeToFile(&pipe, sink).execute(&null_device);
        if unsent == 0 || drain().is_ok_and(|drained| drained == unsent) {
            self.0 = Some((pipe, null_device));
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;
    use crate::serve::document_root::DocumentRoot;
    use crate::serve::open_file_cache::OpenFileCache;
    use crate::serve::site::{Site, SiteConfig};

    /// Three pages, and a part of one.
    const LENGTH: usize = 3 * 4096 + 100;

    /// What arrives of a file that is cut to this length after this many calls that sent something.
    fn send_truncated(sending: SendStrategy, calls: usize, length: u64) -> (Result<()>, Vec<u8>) {
        send_truncated_to_peer(sending, calls, length, false)
    }

    /// Like `send_truncated`, for a client on this host or elsewhere.
    fn send_truncated_to_peer(
        sending: SendStrategy,
        calls: usize,
        length: u64,
        is_local: bool,
    ) -> (Result<()>, Vec<u8>) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, [7; LENGTH]).unwrap();
        let mut site =
            Site::new(OpenFileCache::new(Arc::new(DocumentRoot::open(root.path()).unwrap()), 4), SiteConfig::default());
        let (mut connection, mut sender) = (Connection::default(), FileSender::new(sending));
        connection.is_local = is_local;
        let (server_socket, mut client_socket) = UnixStream::pair().unwrap();
        connection.input_buffer(1).extend_from_slice(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        connection.mark_received(28);
        connection.advance(&mut site);
        let mut sent = 0;
        let end = loop {
            if sent == calls {
                fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            }
            sent += 1;
            match sender.send_some(&mut connection, &server_socket) {
                Ok(_) if connection.next_io() == NextIo::Send => {}
                end => break end.map(drop),
            }
        };
        drop(server_socket);
        let mut response = Vec::new();
        client_socket.read_to_end(&mut response).unwrap();
        let head = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        (end, response.split_off(head))
    }

    #[test]
    fn truncated_file_never_completes() {
        for (_, sending) in STRATEGY_NAMES {
            let (end, content) = send_truncated(sending, usize::MAX, 0);
            assert!(end.is_ok() && content == [7; LENGTH], "{sending}");
            // The first call sends all that is read in one piece; of the others it sends the head.
            for length in
                [0, 1, 5000, 8192, LENGTH as u64 - 1].into_iter().filter(|_| sending != SendStrategy::ReadWrite)
            {
                let (end, content) = send_truncated(sending, 1, length);
                assert!(end.is_err() && content.len() < LENGTH, "{sending} {length}");
            }
        }
    }

    #[test]
    fn local_clients_get_mmap_and_remote_sendfile() {
        // After the head, all but the end goes in one call from a mapping; by sendfile all of it does.
        let sent_length = |is_local| send_truncated_to_peer(SendStrategy::Auto, 2, 3 * 4096 + 10, is_local).1.len();
        assert_eq!(
            [sent_length(true), send_truncated(SendStrategy::Mmap, 2, 3 * 4096 + 10).1.len()],
            [3 * 4096 + 10; 2]
        );
        assert_eq!([sent_length(false), send_truncated(SendStrategy::SendFile, 2, 3 * 4096 + 10).1.len()], [LENGTH; 2]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(crate::serve::worker_context::is_local(&client).unwrap());
    }

    #[test]
    fn truncated_mapping_sends_no_zero_padding() {
        // The head, then all but the end in one call, then the file is cut within the part that is left to be read.
        let (end, content) = send_truncated(SendStrategy::Mmap, 2, 3 * 4096 + 10);
        assert_eq!((end, content.len()), (Err(Errno::IO), 3 * 4096 + 10));
        assert!(content.iter().all(|&byte| byte == 7));
        let (end, content) = send_truncated(SendStrategy::Mmap, 2, 100);
        assert_eq!((end, content.len()), (Err(Errno::IO), 3 * 4096));
    }

    #[test]
    fn tail_of_each_range_is_read() {
        for (end, begin) in [(1, 0), (4095, 0), (4096, 0), (4097, 4096), (8192, 4096), (8193, 8192)] {
            assert_eq!(tail_start(end), begin);
        }
    }
}
