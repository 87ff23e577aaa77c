//! Both ends against hostile ones and each other: scripted, fuzzed, cut off; over connections that are none of the network's.

mod acls;
mod changed_files;
mod channel;
mod choice;
mod compression;
mod deletion;
mod entered_directory;
mod fuzz;
mod hard_links;
mod hostile_receiver;
mod hostile_sender;
mod lazy_collection;
mod parts;
mod per_file;
mod slow;
mod source_open;
mod stream_tuning;
mod streams;
mod trees;
mod unfinished;
mod wakeups;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::directory_tree::part_name;
use crate::message::{
    Blake3Digest, EntryKind, EntryNumber, FileEntry, FilePiece, Mtime, ReceiverMessage, SenderMessage, SessionSettings,
    WholeFile,
};
use crate::offer_policy::{Destination, OfferPolicy, SenderLeave};
use crate::open_directory::{OpenDirectory, PART_PREFIX};
use crate::secure_channel::{SecureChannel, TransferStream};
use crate::send::SenderOptions;
use crate::session::{ReceiveSession, SessionEvent};
use crate::summary::TransferSummary;
use crate::wire::cipher::{MAX_CONTENT_BYTES, Opener, Sealer, TAG_BYTES};
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::handshake::Handshake;
use crate::wire::secret::Secret;
use crate::{Error, PROTOCOL, Result};

const LONG_TIMEOUT: Duration = Duration::from_secs(30);
/// What holds where a test sets nothing else.
const DEFAULT_SETTINGS: SessionSettings = SessionSettings::DEFAULT;

/// Those of a sender without limits, which leaves the rest to kelvin.
fn sender_options(settings: SessionSettings) -> SenderOptions {
    SenderOptions {
        settings,
        acknowledge: false,
        limit: None,
        max_delete: None,
        lists_moved: false,
        compression: None,
        method: None,
        stream_tuning: None,
    }
}

type Halves = (Sealer, Opener);

/// One end of a local connection, which is cut when this many bytes were written.
struct LocalStream {
    stream: UnixStream,
    cut_after: usize,
}

impl LocalStream {
    fn new(stream: UnixStream) -> Self {
        Self { stream, cut_after: usize::MAX }
    }

    fn pair() -> (Self, Self) {
        let (first, second) = UnixStream::pair().unwrap();
        (Self::new(first), Self::new(second))
    }
}

impl Read for LocalStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for LocalStream {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        if self.cut_after == 0 {
            self.stream.shutdown(std::net::Shutdown::Both)?;
            return Err(ErrorKind::BrokenPipe.into());
        }
        let written = self.stream.write(&buffer[..buffer.len().min(self.cut_after)])?;
        self.cut_after -= written;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl TimedStream for LocalStream {
    fn set_io_timeout(&mut self, time: Duration) -> std::io::Result<()> {
        self.stream.set_read_timeout(Some(time))?;
        self.stream.set_write_timeout(Some(time))
    }
}

impl TransferStream for LocalStream {
    fn is_readable(&self, timeout: Duration) -> std::io::Result<bool> {
        kelvin_sys::poll::wait_readable(self.stream.as_fd(), timeout)
    }

    /// Its reads return with what is there.
    fn set_low_water(&mut self, _: usize) -> std::io::Result<()> {
        Ok(())
    }

    fn receive_window(&self) -> std::io::Result<usize> {
        Ok(usize::MAX)
    }
}

/// The halves of a sender's end and of a receiver's.
fn connected_halves() -> (Halves, Halves) {
    let (mut caller_stream, mut listener_stream) = LocalStream::pair();
    let secret = Secret::none();
    let handshake = Handshake { protocol: &PROTOCOL, secret: &secret, deadline: Deadline::within(LONG_TIMEOUT) };
    std::thread::scope(|scope| {
        let called = scope.spawn(move || handshake.connect(&mut caller_stream).unwrap());
        let (listened, ()) = handshake.accept(&mut listener_stream, || Some(())).unwrap();
        (called.join().unwrap(), listened)
    })
}

/// What a scripted end sends, frame by frame.
struct ScriptedFrame {
    frame: Vec<u8>,
    /// Whether it is sent only to an end that waits for it.
    is_late: bool,
}

/// A connection to a scripted end, which hangs up when it has sent all; and what that end was sent.
#[derive(Clone, Default)]
struct ScriptedStream {
    script: Rc<RefCell<VecDeque<ScriptedFrame>>>,
    /// Frames that were received so far.
    frames_read: Rc<Cell<u64>>,
    received: Rc<RefCell<Vec<u8>>>,
    /// With how many bytes a read returns, the most of any, and whether one had to wait for more than were to come.
    low_water: Rc<Cell<usize>>,
    max_low_water: Rc<Cell<usize>>,
    /// Whether few bytes may come before any is read.
    is_narrow: Rc<Cell<bool>>,
    waited_in_vain: Rc<Cell<bool>>,
}

impl Read for ScriptedStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut script = self.script.borrow_mut();
        let to_come: usize = script.iter().map(|scripted_frame| scripted_frame.frame.len()).sum();
        self.max_low_water.set(self.max_low_water.get().max(self.low_water.get()));
        self.waited_in_vain.set(self.waited_in_vain.get() || to_come < self.low_water.get());
        let Some(scripted_frame) = script.front_mut() else { return Ok(0) };
        let count = buffer.len().min(scripted_frame.frame.len());
        buffer[..count].copy_from_slice(&scripted_frame.frame[..count]);
        scripted_frame.frame.drain(..count);
        if scripted_frame.frame.is_empty() {
            script.pop_front();
            self.frames_read.set(self.frames_read.get() + 1);
        }
        Ok(count)
    }
}

impl Write for ScriptedStream {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.received.borrow_mut().write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl TimedStream for ScriptedStream {
    fn set_io_timeout(&mut self, _: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

impl TransferStream for ScriptedStream {
    fn is_readable(&self, timeout: Duration) -> std::io::Result<bool> {
        // One that waits receives what is late too.
        Ok(!timeout.is_zero() || self.script.borrow().front().is_some_and(|scripted_frame| !scripted_frame.is_late))
    }

    fn set_low_water(&mut self, bytes: usize) -> std::io::Result<()> {
        self.low_water.set(bytes);
        Ok(())
    }

    fn receive_window(&self) -> std::io::Result<usize> {
        Ok(if self.is_narrow.get() { 64 << 10 } else { usize::MAX })
    }
}

/// An end that sends anything, and the channel of the honest one that listens to it.
struct HostileEnd {
    sealer: Sealer,
    opener: Opener,
    channel: SecureChannel<ScriptedStream>,
    /// The connection below, which all clones of it share.
    stream: ScriptedStream,
    /// Whether it waits with all that it sends next until it is waited for.
    is_late: bool,
}

impl HostileEnd {
    fn new() -> Self {
        let ((sealer, opener), honest) = connected_halves();
        let stream = ScriptedStream::default();
        let channel = SecureChannel::new(stream.clone(), honest).unwrap();
        Self { sealer, opener, channel, stream, is_late: false }
    }

    /// Bytes as they are.
    fn raw(&mut self, frame: &[u8]) -> &mut Self {
        let scripted_frame = ScriptedFrame { frame: frame.to_vec(), is_late: self.is_late };
        if !frame.is_empty() {
            self.stream.script.borrow_mut().push_back(scripted_frame);
        }
        self
    }

    /// An encrypted frame.
    fn frame(&mut self, content: &[u8]) -> &mut Self {
        let mut frame = ((content.len() + TAG_BYTES) as u32).to_le_bytes().to_vec();
        self.sealer.seal(content, &mut frame).unwrap();
        self.raw(&frame)
    }

    fn send(&mut self, message: &impl Serialize) -> &mut Self {
        self.frame(&postcard::to_stdvec(message).unwrap())
    }

    fn late(&mut self) -> &mut Self {
        self.is_late = true;
        self
    }

    /// Encrypted bytes of files.
    fn data(&mut self, content: &[u8]) -> &mut Self {
        content.chunks(MAX_CONTENT_BYTES).fold(self, Self::frame)
    }

    fn begin(&mut self) -> &mut Self {
        self.send(&SenderMessage::Begin(DEFAULT_SETTINGS))
    }

    fn offer(&mut self, entries: &[FileEntry]) -> &mut Self {
        self.send(&SenderMessage::Offer(entries.to_vec()))
    }

    /// Small files and their content.
    fn batch(&mut self, files: &[(EntryNumber, &[u8])]) -> &mut Self {
        let content: Vec<u8> = files.iter().flat_map(|(_, content)| content.iter().copied()).collect();
        let whole_file =
            |(file, content): &(EntryNumber, &[u8])| WholeFile { file: *file, bytes: content.len() as u32 };
        let (files, digest) = (files.iter().map(whole_file).collect(), Some(digest(&content)));
        self.send(&SenderMessage::Batch { files, digest }).data(&content)
    }

    /// A piece of a file, and its digest.
    fn block(&mut self, piece: FilePiece, content: &[u8]) -> &mut Self {
        self.send(&SenderMessage::Block(piece)).data(content).send(&SenderMessage::Digests(vec![digest(content)]))
    }

    /// Runs a session that receives from it; `hook` gets each event when it happens.
    fn run_session_with(
        &mut self,
        destination: &Destination,
        overwrite: bool,
        hook: &dyn Fn(&SessionEvent),
    ) -> SessionOutcome {
        let events = RefCell::new(Vec::new());
        let on_event = |event| {
            hook(&event);
            events.borrow_mut().push(event);
        };
        let leave = SenderLeave { overwrite, delete: true, acls: true };
        let policy = OfferPolicy::new(destination, leave).unwrap();
        let first = self.channel.receive();
        let result = ReceiveSession::new(&mut self.channel, policy, &on_event).serve(first);
        SessionOutcome { result, events: events.into_inner(), answers: self.answers() }
    }

    /// Runs a session that receives from it and keeps what arrives in a directory.
    fn run_session(&mut self, directory: &Path) -> SessionOutcome {
        self.run_session_with(&directory_destination(directory), false, &|_| {})
    }

    /// What the honest end has answered since.
    fn answers<T: DeserializeOwned>(&mut self) -> Vec<T> {
        let frames = open_frames(&mut self.opener, &self.stream.received.take());
        frames.iter().map(|text| postcard::from_bytes(text).unwrap()).collect()
    }
}

/// The content of frames.
fn open_frames(opener: &mut Opener, mut frames: &[u8]) -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    while let Some((head, rest)) = frames.split_first_chunk() {
        let (frame, rest) = rest.split_at(u32::from_le_bytes(*head) as usize);
        let mut text = vec![0; frame.len()];
        let length = opener.open(frame, &mut text).unwrap();
        text.truncate(length);
        texts.push(text);
        frames = rest;
    }
    texts
}

/// What came of a session.
struct SessionOutcome {
    result: Result<TransferSummary>,
    events: Vec<SessionEvent>,
    answers: Vec<ReceiverMessage>,
}

impl SessionOutcome {
    /// Errors of the session and of its files, in words.
    fn errors(&self) -> String {
        let file_errors = self.events.iter().filter_map(|event| match event {
            SessionEvent::FileFailed(_, why) => Some(why.to_string()),
            _ => None,
        });
        file_errors.chain(self.result.as_ref().err().map(Error::to_string)).collect::<Vec<_>>().join("\n")
    }

    /// What was kept, in this order.
    fn stored(&self) -> Vec<&Path> {
        let paths = self.events.iter().filter_map(|event| match event {
            SessionEvent::FileStored(path) => Some(path.as_path()),
            _ => None,
        });
        paths.collect()
    }
}

/// What senders may do where they may replace files.
const MAY_OVERWRITE: SenderLeave = SenderLeave { overwrite: true, delete: false, acls: false };

fn directory_destination(directory: &Path) -> Destination {
    Destination::Directory(OpenDirectory::open_root(directory).unwrap())
}

fn digest(content: &[u8]) -> Blake3Digest {
    *crate::wire::hash(content).as_bytes()
}

fn entry(parent: u32, name: &str, kind: EntryKind) -> FileEntry {
    let modified = Mtime { seconds: 1_000_000_000, nanoseconds: 5 };
    let name = name.as_bytes().to_vec().try_into().unwrap();
    FileEntry::new((parent, name), kind, (0o104_755, modified))
}

fn file(name: &str, bytes: u64) -> FileEntry {
    entry(0, name, EntryKind::File { bytes, stored: 0 })
}

fn directory(parent: u32, name: &str) -> FileEntry {
    entry(parent, name, EntryKind::Directory)
}

fn piece(file: EntryNumber, offset: u64, bytes: u32) -> FilePiece {
    FilePiece { file, offset, bytes, is_last: false }
}

/// A directory for what arrives, in another one that must stay as it is.
fn target_directory() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("in");
    fs::create_dir(&inner).unwrap();
    (outer, inner)
}

fn names(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = fs::read_dir(directory).unwrap().map(name).collect();
    names.sort();
    names
}

/// Bytes that differ from place to place, and by their seed.
fn content(bytes: usize, seed: u32) -> Vec<u8> {
    (seed..seed.wrapping_add(bytes as u32)).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 11) as u8).collect()
}

/// Leaves the beginning of a file's content as a part of it, as a killed receiver would.
fn leave_part(directory: &Path, entry: &FileEntry, content: &[u8]) -> PathBuf {
    let EntryKind::File { bytes, .. } = entry.kind else { panic!("no file") };
    let path = directory.join(part_name(entry, bytes));
    fs::write(&path, content).unwrap();
    path
}

/// Names of files in a directory but those of parts; and how many parts there are.
fn final_names(directory: &Path) -> (Vec<String>, usize) {
    let (parts, finals): (Vec<_>, Vec<_>) =
        names(directory).into_iter().partition(|name| name.starts_with(PART_PREFIX));
    (finals, parts.len())
}
