//! One sender's session at the receiver: what it offers is decided on, and what it sends arrives.

mod deletion;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelvin_file::Error as FileError;
use kelvin_machine::memory::{MEMINFO, kibibytes};

use crate::blocks::BlockLayout;
use crate::compression::{Decompressor, check_frame};
use crate::datapath::{PathMethod, ReceiveMethod, ReceivePath, ReceiveSetup};
use crate::directory_tree::MAX_DIRECTORIES;
use crate::incoming_file::{IncomingFile, block_digests};
use crate::message::{
    ArrivedBytes, Blake3Digest, ConnectionLifetime, EntryDecision, EntryKind, EntryNumber, FileEntry, FilePiece,
    JoinInvitation, ReceiverMessage, ReceiverReport, RefusalReason, SenderMessage, SessionSettings, StreamChoice,
    Verdict, WholeFile,
};
use crate::method_chooser::{self, MethodChooser};
use crate::offer_policy::OfferPolicy;
use crate::rate_prediction::{self, StageCosts};
use crate::secure_channel::{PART_BYTES, SETUP_STEP, SecureChannel, SessionChannels, TransferStream};
use crate::session_streams::{MAX_STREAMS, OpenSession, SessionRegistry};
use crate::stage_times::{LoadMeter, StorageKind, add_elapsed, hash_timed};
use crate::summary::{ByteCounts, MovedFiles, TransferSummary};
use crate::wire::Hasher;
use crate::wire::cipher::TAG_BYTES;
use crate::{Error, Result, blocks, stage_costs};

/// Most files that are wanted and did not arrive yet; and most digests in a message.
pub const MAX_WANTED_FILES: usize = 2048;
const MAX_DIGESTS: usize = 1024;
/// How long the digests of what is there may take until some are sent.
const DIGEST_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is reported how much has arrived.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Most files of a batch.
pub const MAX_BATCH_FILES: usize = 128;
/// Most bytes of a batch.
pub const MAX_BATCH_BYTES: u64 = 256 << 10;
/// Most parts of files that are held open until their turn comes: each is a descriptor, and bits of its blocks. Others begin
/// anew.
const MAX_OPEN_PARTS: usize = 8;
/// Decisions and verdicts in one message: each may carry a reason.
const MAX_PER_MESSAGE: usize = 128;
/// This many verdicts are sent although more has come: before it has them, the sender has no more than [`MAX_WANTED_FILES`] files in flight.
const VERDICT_FLUSH_COUNT: usize = MAX_WANTED_FILES / 8;
/// Most large files that have not ended at one time: of all but the last one, digests alone are missing.
pub const MAX_OPEN_FILES: usize = 8;
/// Most digests in a message, and most pieces whose digests are missing.
pub const MAX_PENDING_CHECKS: usize = 1024;

/// What happens in a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// A sender was authenticated.
    Authenticated,
    /// More has arrived: reported now and then.
    Progress {
        /// Bytes so far, over the first connection.
        bytes: u64,
        /// Of this many, if all of them are to come.
        total: Option<u64>,
        /// How long it took.
        elapsed: Duration,
    },
    /// In a dry run: a file would come.
    Planned(PathBuf),
    /// A file is in its place.
    FileStored(PathBuf),
    /// Something that was not offered was deleted, or in a dry run would be.
    Deleted(PathBuf),
    /// A file was refused, or did not arrive whole: nothing of it is kept.
    FileFailed(PathBuf, Error),
    /// The connection ended while a large file arrived; what arrived of it is left, to be gone on with.
    PartKept(PathBuf),
    /// A sender has finished.
    Finished(Box<TransferSummary>),
    /// A fault ended a sender's connection.
    Fault(Error),
    /// An unauthenticated connection was refused, or ended.
    Rejected(Error),
}

/// A file that is wanted.
struct WantedEntry {
    entry: FileEntry,
    /// It, if a part of it was there, which is so of few.
    part: Option<Box<IncomingFile>>,
    /// Whether an older state is there, of whose blocks the sender has not asked yet.
    is_changed: bool,
    /// How many blocks of the part were reported to the sender, which has not answered which are right.
    announced_blocks: u64,
}

/// A file that arrives in blocks.
struct ArrivingFile {
    entry: FileEntry,
    file: IncomingFile,
    /// How many of its pieces were not compared yet.
    pending_checks: usize,
}

/// A sender that is being served.
pub(crate) struct ReceiveSession<'a, S> {
    channels: SessionChannels<'a, S>,
    policy: OfferPolicy,
    on_event: &'a dyn Fn(SessionEvent),
    /// Where other connections find it, if they may; and that they may, after it has begun.
    sessions: Option<&'a SessionRegistry<S>>,
    open_session: Option<OpenSession<'a, S>>,
    settings: SessionSettings,
    /// Whether there was room for all before it was known how much that is.
    has_space: bool,
    /// By what the bytes of large files come: what was asked for, and then all that there is.
    method: Option<ReceiveSetup>,
    methods: MethodChooser<ReceiveMethod>,
    /// How many entries were offered.
    offered_count: EntryNumber,
    /// In a dry run: paths of the directories that were offered.
    planned_directories: Vec<PathBuf>,
    /// Those that are wanted.
    wanted_files: BTreeMap<EntryNumber, WantedEntry>,
    arriving_files: BTreeMap<EntryNumber, ArrivingFile>,
    /// Files that failed and of which more may come.
    failed_files: VecDeque<EntryNumber>,
    /// The pieces that have arrived and were not compared, in their order.
    pending_digests: VecDeque<(EntryNumber, Blake3Digest)>,
    buffer: Vec<u8>,
    /// Once something has come compressed.
    decompressor: Option<Decompressor>,
    verdicts: Vec<Verdict>,
    moved: MovedFiles,
    start: Instant,
    last_write: Instant,
    last_progress_event: Instant,
    /// Bytes that have come in blocks over the first connection, and were written.
    bytes_written: u64,
    meter: LoadMeter,
}

impl<'a, S: TransferStream> ReceiveSession<'a, S> {
    pub(crate) fn new(
        channel: &'a mut SecureChannel<S>,
        policy: OfferPolicy,
        on_event: &'a dyn Fn(SessionEvent),
    ) -> Self {
        let start = Instant::now();
        Self {
            channels: SessionChannels::new(channel),
            policy,
            on_event,
            sessions: None,
            open_session: None,
            settings: SessionSettings::DEFAULT,
            has_space: false,
            method: None,
            methods: MethodChooser::for_receiving(None, false, true),
            offered_count: 0,
            planned_directories: Vec::new(),
            wanted_files: BTreeMap::new(),
            arriving_files: BTreeMap::new(),
            failed_files: VecDeque::new(),
            pending_digests: VecDeque::new(),
            buffer: vec![0; MAX_BATCH_BYTES as usize + TAG_BYTES],
            decompressor: None,
            verdicts: Vec::new(),
            moved: MovedFiles::default(),
            start,
            last_write: start,
            last_progress_event: start,
            bytes_written: 0,
            meter: LoadMeter::start(),
        }
    }

    /// Has the bytes of large files come by this method, if one is given, and other connections find it there.
    pub(crate) fn joinable(mut self, method: Option<ReceiveSetup>, sessions: &'a SessionRegistry<S>) -> Self {
        let timeout = self.channels.first.incoming.required.interval;
        self.method = method.map(|setup| ReceiveSetup { timeout, ..setup });
        self.sessions = Some(sessions);
        self
    }

    /// Has all its files arrive, from this first message on.
    pub(crate) fn serve(mut self, first: Result<SenderMessage>) -> Result<TransferSummary> {
        let outcome = self.run(first);
        drop(self.channels.close());
        if let Err(why @ (Error::TimedOut { .. } | Error::TooSlow { .. })) = &outcome {
            self.channels.first.try_send_last(&ReceiverMessage::Refused(RefusalReason(why.wire_text())));
        }
        // Nobody writes a file any more when it is left.
        self.open_session = None;
        // Parts whose turn did not come stay what they were.
        for part in std::mem::take(&mut self.wanted_files).into_values().filter_map(|file| file.part) {
            part.keep_part();
        }
        if outcome.is_err() {
            for ArrivingFile { file, .. } in std::mem::take(&mut self.arriving_files).into_values() {
                let path = file.path.clone();
                if file.keep_part() {
                    (self.on_event)(SessionEvent::PartKept(path));
                }
            }
        }
        outcome
    }

    fn run(&mut self, first: Result<SenderMessage>) -> Result<TransferSummary> {
        let SenderMessage::Begin(settings) = first? else { return Err(Error::ProtocolViolation("it does not begin")) };
        self.settings = settings;
        self.channels.first.plain = settings.plain;
        let is_plain = settings.plain && settings.streams == 1 && !settings.compressed;
        self.methods = MethodChooser::for_receiving(self.method, is_plain, settings.verify);
        let check =
            self.method.filter(|_| !is_plain).map_or(Ok(()), |setup| Err(Error::UnsupportedMethod(setup.method)));
        let check = check.and_then(|()| self.policy.check_total_space(&settings));
        let check = check.and_then(|()| if settings.delete { self.policy.begin_deletion() } else { Ok(()) });
        self.send_refusal(check)?;
        if settings.streams > 1 || settings.connection == ConnectionLifetime::PerFile {
            self.open_for_join()?;
        }
        if let (None, Some(bytes)) = (settings.bytes, settings.at_most) {
            self.has_space = self.policy.check_total_space(&SessionSettings { bytes: Some(bytes), ..settings }).is_ok();
            self.channels.first.send(&ReceiverMessage::SpaceAvailable(self.has_space))?;
        }
        loop {
            self.flush_verdicts_if_due()?;
            match self.channels.first.receive()? {
                SenderMessage::Offer(entries) => self.decide_entries(entries)?,
                SenderMessage::QueryBlocks(file) => self.on_query_blocks(file)?,
                SenderMessage::ValidBlocks { file, blocks } => self.on_valid_blocks(file, &blocks)?,
                SenderMessage::Abandoned { file, why } => self.on_abandoned(file, why)?,
                SenderMessage::TotalFound(bytes) => self.on_total_found(bytes)?,
                SenderMessage::Split(file) => self.begin_split(file)?,
                SenderMessage::FileConnection(file) => self.receive_file_connection(file)?,
                SenderMessage::QueryJoin => self.send_invitation()?,
                SenderMessage::QueryArrived => self.send_arrived()?,
                SenderMessage::QueryExtraneous => self.serve_deletion()?,
                SenderMessage::End => return self.finish_session(),
                content => self.receive_content(content)?,
            }
        }
    }

    /// All is found: that there is room for it, unless there was before it was known how much it is.
    fn on_total_found(&mut self, bytes: u64) -> Result<()> {
        let is_awaited = self.settings.bytes.is_none() && self.settings.at_most.is_some();
        Error::ensure(is_awaited, "it says again how much there is")?;
        let remaining = SessionSettings { bytes: Some(bytes.saturating_sub(self.moved.amount.moved)), ..self.settings };
        if !self.has_space {
            self.send_refusal(self.policy.check_total_space(&remaining))?;
        }
        self.settings.bytes = Some(bytes);
        Ok(())
    }

    /// Sends the reason why nothing is taken, if that is so.
    fn send_refusal(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(why) = &outcome {
            self.channels.first.send(&ReceiverMessage::Refused(RefusalReason(why.wire_text())))?;
        }
        outcome
    }

    /// Has content arrive.
    fn receive_content(&mut self, message: SenderMessage) -> Result<()> {
        match message {
            SenderMessage::Batch { files, digest } => self.receive_batch(&files, digest, None)?,
            SenderMessage::CompressedBatch { files, digest, frame_bytes } => {
                self.receive_batch(&files, digest, Some(frame_bytes))?;
            }
            SenderMessage::Block(piece) => self.receive_block(&piece, None)?,
            SenderMessage::CompressedBlock { piece, frame_bytes } => self.receive_block(&piece, Some(frame_bytes))?,
            SenderMessage::Hole(piece) => return self.receive_hole(&piece),
            SenderMessage::Digests(digests) => return self.compare_digests(digests),
            _ => return Err(Error::ProtocolViolation("it neither offers nor sends anything, nor ends")),
        }
        self.report_progress();
        Ok(())
    }

    /// Has the content of a file come over a connection of its own.
    fn receive_file_connection(&mut self, file: EntryNumber) -> Result<()> {
        let streams = self.open_session.as_ref().filter(|_| self.settings.connection == ConnectionLifetime::PerFile);
        let streams = streams.ok_or(Error::ProtocolViolation("it has one connection for all files"))?;
        self.channels.open(streams.take_file_channel(file)?);
        loop {
            match self.channels.current().receive()? {
                SenderMessage::End => break,
                content => self.receive_content(content)?,
            }
        }
        drop(self.channels.close());
        self.methods.reset_socket();
        if let Some(streams) = &self.open_session {
            streams.end_file_channel(file);
        }
        // A sender is few connections ahead.
        self.flush_verdicts()
    }

    /// Reports how much has arrived, now and then.
    fn report_progress(&mut self) {
        if self.last_write.saturating_duration_since(self.last_progress_event) < PROGRESS_INTERVAL {
            return;
        }
        self.last_progress_event = self.last_write;
        let arriving: u64 = self.arriving_files.values().map(|arriving| arriving.file.amount.moved).sum();
        let (bytes, elapsed) = (self.moved.amount.moved + arriving, self.last_write.duration_since(self.start));
        // Of what is there already, less comes.
        let total = self.settings.bytes.filter(|_| !self.settings.update && self.moved.amount.resumed == 0);
        (self.on_event)(SessionEvent::Progress { bytes, total, elapsed });
    }

    /// Decides on entries, and answers.
    fn decide_entries(&mut self, entries: Vec<FileEntry>) -> Result<()> {
        let is_allowed = self.wanted_files.len() + entries.len() <= MAX_WANTED_FILES;
        Error::ensure(is_allowed, "it offers more files than it may before it sends them")?;
        let (mut decisions, mut resumed_files) = (Vec::new(), Vec::new());
        let mut parts = self.wanted_files.values().filter(|file| file.part.is_some()).count();
        self.policy.refresh_space();
        for mut entry in entries {
            let number = self.offered_count;
            self.offered_count = number.checked_add(1).ok_or(Error::TooManyEntries)?;
            let (decision, part) = match self.policy.decide(&entry, &self.settings, parts < MAX_OPEN_PARTS) {
                Err(error) if error.is_per_file() => {
                    let reason = RefusalReason(error.wire_text());
                    (self.on_event)(SessionEvent::FileFailed(self.policy.path(&entry), error));
                    (EntryDecision::Refused(reason), None)
                }
                outcome => outcome?,
            };
            let is_present = match decision {
                EntryDecision::Made => !self.settings.dry_run,
                EntryDecision::Unchanged => true,
                _ => false,
            };
            self.policy.record_offered(&entry, is_present)?;
            if part.is_some() {
                parts += 1;
                resumed_files.push(number);
                // Its room was checked with what is there, and none is promised.
                if let EntryKind::File { stored, .. } = &mut entry.kind {
                    *stored = 0;
                }
            }
            let is_changed = decision == EntryDecision::Changed;
            let is_wanted = is_changed || matches!(decision, EntryDecision::Wanted | EntryDecision::Resumed);
            if self.settings.dry_run {
                self.report_planned(&entry, is_wanted);
            } else if is_wanted {
                let wanted_file = WantedEntry { entry, part: part.map(Box::new), is_changed, announced_blocks: 0 };
                self.wanted_files.insert(number, wanted_file);
            }
            decisions.push(decision);
        }
        for chunk in decisions.chunks(MAX_PER_MESSAGE) {
            self.channels.first.queue(&ReceiverMessage::Decisions(chunk.to_vec()))?;
        }
        self.channels.first.flush()?;
        resumed_files.into_iter().try_for_each(|number| self.send_present_blocks(number))
    }

    /// Reports a file that would come. Its directories need not be there.
    fn report_planned(&mut self, entry: &FileEntry, is_wanted: bool) {
        let parent = self.planned_directories.get((entry.parent as usize).wrapping_sub(1));
        let path = parent.map_or_else(PathBuf::new, PathBuf::clone).join(entry.name.as_os_str());
        if is_wanted {
            (self.on_event)(SessionEvent::Planned(path));
        } else if entry.kind == EntryKind::Directory && self.planned_directories.len() < MAX_DIRECTORIES {
            self.planned_directories.push(path);
        }
    }

    /// Sends which blocks of a file are there, as it reads them.
    fn send_present_blocks(&mut self, file: EntryNumber) -> Result<()> {
        let Some(wanted_file) = self.wanted_files.get_mut(&file) else { return Ok(()) };
        let Some(part) = wanted_file.part.as_ref().and_then(|incoming| incoming.resumed_part()) else {
            return Ok(());
        };
        let mut report = BlockReport::new(file);
        for digest in block_digests(part) {
            // A block that cannot be read is one that is not there, as are those behind it.
            let Ok(digest) = digest else { break };
            report.add(digest, self.channels.first)?;
        }
        wanted_file.announced_blocks = report.finish(self.channels.first)?;
        Ok(())
    }

    /// Begins a file as a copy of its older state, and sends which blocks that has.
    fn on_query_blocks(&mut self, file: EntryNumber) -> Result<()> {
        let parts = self.wanted_files.values().filter(|file| file.part.is_some()).count();
        // One more than those that go on with what was kept: it is sent as soon as the blocks are known.
        Error::ensure(
            parts <= MAX_OPEN_PARTS,
            "it asks for the blocks of more files than it may before it sends them",
        )?;
        let wanted_file = self.wanted_files.get_mut(&file).filter(|file| file.is_changed).ok_or(UNWANTED_FILE)?;
        wanted_file.is_changed = false;
        let entry = wanted_file.entry.clone();
        match self.copy_present_blocks(file, &entry) {
            Ok((part, announced_blocks)) => {
                if let Some(wanted_file) = self.wanted_files.get_mut(&file) {
                    (wanted_file.part, wanted_file.announced_blocks) = (Some(Box::new(part)), announced_blocks);
                }
                Ok(())
            }
            Err(why) if why.is_per_file() => {
                self.wanted_files.remove(&file);
                self.report_failure(file, &entry, why)
            }
            Err(why) => Err(why),
        }
    }

    /// Copies a file that is there block by block; returns the copy, and how many blocks it has. Each digest is that of what was
    /// written, so that nobody needs to read it again.
    fn copy_present_blocks(&mut self, file: EntryNumber, entry: &FileEntry) -> Result<(IncomingFile, u64)> {
        let EntryKind::File { bytes, .. } = entry.kind else { return Err(UNWANTED_FILE) };
        let (mut copy, source) = self.policy.create_copy(entry, bytes)?;
        let (mut report, mut buffer) = (BlockReport::new(file), Vec::new());
        let present_bytes = source.as_ref().and_then(|source| source.metadata().ok()).map_or(0, |source| source.len());
        let layout = BlockLayout::of_changed_file(bytes).truncated(present_bytes);
        for range in (0..layout.count()).map(|block| layout.range(block)) {
            buffer.resize((range.end - range.start) as usize, 0);
            let channel = &mut self.channels.first;
            let read = source.as_ref().is_some_and(|source| {
                channel.times.time_file(|| source.read_exact_at(&mut buffer, range.start)).is_ok()
            });
            // As of a part.
            if !read {
                break;
            }
            channel.times.time_file(|| copy.copy_block(&buffer, range.start))?;
            let digest = add_elapsed(&mut channel.times.verify, || *crate::wire::hash(&buffer).as_bytes());
            report.add(digest, channel)?;
        }
        Ok((copy, report.finish(self.channels.first)?))
    }

    fn on_valid_blocks(&mut self, file: EntryNumber, bits: &[u8]) -> Result<()> {
        let wanted_file = self.wanted_files.get_mut(&file).ok_or(UNWANTED_FILE)?;
        let announced_blocks = std::mem::take(&mut wanted_file.announced_blocks);
        Error::ensure(blocks::last_block_end(bits) <= announced_blocks, "it keeps blocks that are not there")?;
        let part = wanted_file.part.as_mut().ok_or(UNWANTED_FILE)?;
        part.mark_blocks_present(bits);
        if !part.is_complete() {
            return Ok(());
        }
        // However many others are arriving: it has no turn.
        match self.wanted_files.remove(&file) {
            Some(WantedEntry { entry, part: Some(incoming), .. }) => self.finish_file(file, &entry, *incoming),
            _ => Err(UNWANTED_FILE),
        }
    }

    /// Has the whole content of small files arrive; in a frame of this many bytes, where it is compressed.
    fn receive_batch(
        &mut self,
        files: &[WholeFile],
        digest: Option<Blake3Digest>,
        frame_bytes: Option<u32>,
    ) -> Result<()> {
        let bytes: usize = files.iter().map(|file| file.bytes as usize).sum();
        let is_allowed = files.len() <= MAX_BATCH_FILES && bytes as u64 <= MAX_BATCH_BYTES;
        Error::ensure(is_allowed, "it sends too many files at once")?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let decompressed = match frame_bytes {
            Some(frame_bytes) => self.decompress_batch(&mut buffer[..bytes], frame_bytes)?,
            None => self.channels.current().receive_data(&mut buffer, bytes).map(Ok)?,
        };
        let verify = self.settings.verify;
        let is_intact = add_elapsed(&mut self.channels.first.times.verify, || {
            !verify || digest == Some(*crate::wire::hash(&buffer[..bytes]).as_bytes())
        });
        let mut content = &buffer[..bytes];
        for file in files {
            let file_content;
            (file_content, content) = content.split_at(file.bytes as usize);
            let wanted_file = self.wanted_files.remove(&file.file).ok_or(UNWANTED_FILE)?;
            let written = match decompressed {
                Ok(()) if is_intact => self.write_small(&wanted_file.entry, file_content),
                Err(Error::Decompression(why)) => Err(Error::Decompression(why)),
                _ => Err(Error::DigestMismatch),
            };
            self.queue_verdict((file.file, &wanted_file.entry), written)?;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Receives the content of small files as a frame; whether that could be decompressed.
    fn decompress_batch(&mut self, content: &mut [u8], frame_bytes: u32) -> Result<Result<()>> {
        let piece = FilePiece { file: 0, offset: 0, bytes: content.len() as u32, is_last: true };
        let write = |part: &[u8], offset| {
            content[offset as usize..][..part.len()].copy_from_slice(part);
            Ok(())
        };
        // All files together have one digest.
        Ok(self.decompress_piece((&piece, frame_bytes, false), write)?.1)
    }

    /// Receives a piece that comes as a frame of this many bytes, and writes it; its digest, and whether it was written.
    fn decompress_piece(
        &mut self,
        (piece, frame_bytes, verify): (&FilePiece, u32, bool),
        write: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<(Blake3Digest, Result<()>)> {
        check_frame(&self.settings, piece.bytes.into(), frame_bytes)?;
        let mut decompressor = self.decompressor.take().map_or_else(Decompressor::new, Ok)?;
        let channel = self.channels.current();
        let received = channel.receive_compressed((piece, frame_bytes, verify), &mut decompressor, write)?;
        self.decompressor = Some(decompressor);
        Ok(received)
    }

    fn write_small(&mut self, entry: &FileEntry, content: &[u8]) -> Result<ByteCounts> {
        let is_whole = matches!(entry.kind, EntryKind::File { bytes, .. } if bytes == content.len() as u64);
        Error::ensure(is_whole, "it sent another number of bytes than it had offered")?;
        let start = Instant::now();
        let written = self.policy.write_small(entry, content, self.settings.sync);
        let end = self.channels.first.times.add_file_time(start);
        written?;
        self.last_write = end;
        Ok(ByteCounts::from_sent(content.len() as u64))
    }

    /// Begins the file of a piece that has come, unless it arrives already; whether it has not failed.
    fn begin_piece(&mut self, piece: &FilePiece) -> Result<bool> {
        blocks::check_piece_length(piece)?;
        if self.failed_files.contains(&piece.file) {
            return Ok(false);
        }
        if !self.arriving_files.contains_key(&piece.file) {
            self.begin_file(piece.file)?;
        }
        let Some(arriving) = self.arriving_files.get_mut(&piece.file) else { return Ok(false) };
        arriving.file.record_piece(piece).map(|()| true)
    }

    /// Begins a wanted file; one that cannot be begun has failed.
    fn begin_file(&mut self, number: EntryNumber) -> Result<()> {
        let WantedEntry { entry, part, .. } = self.wanted_files.remove(&number).ok_or(UNWANTED_FILE)?;
        let is_allowed = self.arriving_files.len() < MAX_OPEN_FILES;
        Error::ensure(is_allowed, "it begins more files than it may before it has ended others")?;
        match part.map_or_else(|| self.policy.create_incoming(&entry), |part| Ok(*part)) {
            Ok(file) => {
                self.arriving_files.insert(number, ArrivingFile { entry, file, pending_checks: 0 });
                Ok(())
            }
            Err(why) => self.report_failure(number, &entry, why),
        }
    }

    /// A file has failed, which the sender learns at once; what still comes of it is passed over. The sender knows of its failure before
    /// it begins this many others.
    fn report_failure(&mut self, number: EntryNumber, entry: &FileEntry, why: Error) -> Result<()> {
        self.failed_files.push_back(number);
        if self.failed_files.len() > MAX_WANTED_FILES {
            self.failed_files.pop_front();
        }
        self.queue_verdict((number, entry), Err(why))?;
        self.flush_verdicts()
    }

    /// Has a part of a block arrive; in a frame of this many bytes, where it is compressed.
    fn receive_block(&mut self, piece: &FilePiece, frame_bytes: Option<u32>) -> Result<()> {
        let is_arriving = self.begin_piece(piece)?;
        let (digest, written) = match is_arriving {
            true => self.receive_piece(piece, frame_bytes)?,
            false => self.receive_buffered(piece, frame_bytes)?,
        };
        self.bytes_written += if written.is_ok() { u64::from(piece.bytes) } else { 0 };
        if self.settings.verify {
            let is_allowed = self.pending_digests.len() < MAX_PENDING_CHECKS;
            Error::ensure(is_allowed, "it sends more than it may before it sends digests")?;
            self.pending_digests.push_back((piece.file, digest));
            if let Some(arriving) = self.arriving_files.get_mut(&piece.file) {
                arriving.pending_checks += 1;
            }
        }
        self.on_written(piece.file, written)
    }

    /// Some of a file that arrives was written, or not: it is finished if it is whole, and has failed if it was not.
    fn on_written(&mut self, number: EntryNumber, written: Result<()>) -> Result<()> {
        let is_whole = |arriving: &ArrivingFile| arriving.pending_checks == 0 && arriving.file.is_complete();
        if written.is_ok() && !self.arriving_files.get(&number).is_some_and(is_whole) {
            return Ok(());
        }
        let Some(ArrivingFile { entry, file, .. }) = self.arriving_files.remove(&number) else { return Ok(()) };
        match written {
            Ok(()) => self.finish_file(number, &entry, file),
            Err(why) => {
                self.end_split(number);
                file.discard();
                self.report_failure(number, &entry, why)
            }
        }
    }

    /// Receives the bytes of a piece of a file that arrives and writes them; their digest, and whether they were written.
    fn receive_piece(&mut self, piece: &FilePiece, frame_bytes: Option<u32>) -> Result<(Blake3Digest, Result<()>)> {
        let incoming = self.arriving_files.get_mut(&piece.file).map(|arriving| &mut arriving.file);
        let is_skipped = |file: &&mut IncomingFile| file.is_discarded() && !self.settings.verify;
        let skipped = incoming.filter(is_skipped).filter(|_| frame_bytes.is_none());
        let channel = self.channels.current();
        let (digest, mut written) = if let Some(incoming) = skipped {
            channel.skip_data(piece.bytes as usize, &mut self.buffer)?;
            incoming.add_arrived(piece.bytes.into());
            (Blake3Digest::default(), Ok(()))
        } else {
            let mut method = self.methods.next_method(|| channel.socket()).map_err(Error::call(SETUP_STEP))?;
            let start = Instant::now();
            let received = match &mut method.path {
                None => self.receive_buffered(piece, frame_bytes),
                Some(path) => self.receive_direct(path, piece),
            };
            self.methods.record(method, piece.bytes.into(), start);
            received?
        };
        self.last_write = Instant::now();
        if written.is_ok()
            && self.settings.sync
            && let Some(arriving) = self.arriving_files.get_mut(&piece.file)
        {
            written = add_elapsed(&mut self.channels.first.times.sync, || arriving.file.flush_if_due());
        }
        Ok((digest, written))
    }

    /// By way of a buffer; those of a file that has failed are dropped.
    fn receive_buffered(&mut self, piece: &FilePiece, frame_bytes: Option<u32>) -> Result<(Blake3Digest, Result<()>)> {
        let verify = self.settings.verify;
        let Some(frame_bytes) = frame_bytes else {
            let mut arriving = self.arriving_files.get_mut(&piece.file);
            let write =
                |part: &[u8], offset| arriving.as_mut().map_or(Ok(()), |arriving| arriving.file.write(part, offset));
            return self.channels.current().receive_content((piece, verify), &mut self.buffer, write);
        };
        let mut arriving = self.arriving_files.remove(&piece.file);
        let write =
            |part: &[u8], offset| arriving.as_mut().map_or(Ok(()), |arriving| arriving.file.write(part, offset));
        let received = self.decompress_piece((piece, frame_bytes, verify), write);
        self.arriving_files.extend(arriving.map(|arriving| (piece.file, arriving)));
        received
    }

    /// By a method of its own, past the channel.
    fn receive_direct(&mut self, path: &mut ReceivePath, piece: &FilePiece) -> Result<(Blake3Digest, Result<()>)> {
        let method = path.setup.method;
        let is_hashed = self.settings.verify && method.shows_bytes();
        let arriving = self.arriving_files.get_mut(&piece.file).ok_or(UNWANTED_FILE)?;
        let incoming = &mut arriving.file;
        let (mut hasher, mut hash_time) = (Hasher::new(), 0);
        // What came with messages is in no socket any more.
        let head = self.channels.current().available(piece.bytes as usize)?;
        if is_hashed {
            hasher.update(head);
        }
        let (mut rest, mut written) = (piece.bytes as usize - head.len(), incoming.write(head, piece.offset));
        let start = Instant::now();
        let file = written.and_then(|()| incoming.file_for_piece(piece, method == ReceiveMethod::Mmap));
        written = match file {
            Err(why) => Err(why),
            Ok(None) => return Err(Error::ProtocolViolation("bytes for no file")),
            Ok(Some(file)) => {
                let mut hash = |part: &[u8]| hash_timed(&mut hasher, part, &mut hash_time);
                let observer = is_hashed.then_some(&mut hash as &mut dyn FnMut(&[u8]));
                let end = piece.offset + u64::from(piece.bytes);
                let meter = &mut self.channels.current().incoming;
                let (received, outcome) =
                    method_chooser::receive_range(path, meter, file, end - rest as u64..end, observer)?;
                if outcome.is_ok() && received < rest as u64 {
                    return Err(Error::Closed);
                }
                let outcome = outcome.map_err(|why| FileError::call("write", &incoming.path, why).into());
                incoming.add_arrived(received);
                rest -= received as usize;
                outcome
            }
        };
        let times = &mut self.channels.first.times;
        times.verify += hash_time;
        times.connection += (start.elapsed().as_nanos() as u64).saturating_sub(hash_time);
        self.channels.current().skip_data(rest, &mut self.buffer)?;
        if is_hashed || !self.settings.verify || written.is_err() {
            return Ok((*hasher.finalize().as_bytes(), written));
        }
        let read =
            add_elapsed(&mut self.channels.first.times.verify, || incoming.digest_from_disk(piece, &mut self.buffer));
        Ok(read.map_or_else(|why| (Blake3Digest::default(), Err(why)), |digest| (digest, Ok(()))))
    }

    fn receive_hole(&mut self, piece: &FilePiece) -> Result<()> {
        if !self.begin_piece(piece)? {
            return Ok(());
        }
        let arriving = self.arriving_files.get_mut(&piece.file);
        let written = arriving.map_or(Ok(()), |arriving| arriving.file.hole(piece));
        self.on_written(piece.file, written)
    }

    /// Compares the digests of the next pieces with those of what has arrived.
    fn compare_digests(&mut self, digests: Vec<Blake3Digest>) -> Result<()> {
        for sent_digest in digests {
            let (file, local_digest) =
                self.pending_digests.pop_front().ok_or(Error::ProtocolViolation("it sends the digest of nothing"))?;
            let Some(arriving) = self.arriving_files.get_mut(&file) else { continue };
            arriving.pending_checks -= 1;
            self.on_written(file, if local_digest == sent_digest { Ok(()) } else { Err(Error::DigestMismatch) })?;
        }
        Ok(())
    }

    fn finish_file(&mut self, number: EntryNumber, entry: &FileEntry, mut file: IncomingFile) -> Result<()> {
        self.end_split(number);
        let times = &mut self.channels.first.times;
        let outcome = times.time_file(|| {
            if let EntryKind::File { bytes, .. } = entry.kind {
                file.set_length(bytes)?;
            }
            file.set_metadata(entry)
        });
        // A file that is replaced goes, and must not be all that a crash would have left.
        let flushed = match self.settings.sync || file.replaces_existing() {
            true => outcome.and_then(|()| add_elapsed(&mut times.sync, || file.flush())),
            false => outcome,
        };
        let amount = file.amount;
        let committed = flushed.and_then(|()| times.time_file(|| file.commit(entry)));
        self.queue_verdict((number, entry), committed.map(|()| amount))?;
        self.flush_verdicts()
    }

    fn on_abandoned(&mut self, file: EntryNumber, why: String) -> Result<()> {
        self.end_split(file);
        let arriving = self.arriving_files.remove(&file);
        let failure = arriving.as_ref().and_then(|arriving| arriving.file.failure());
        let abandoned = match arriving {
            Some(ArrivingFile { entry, file, .. }) => Some((entry, Some(file))),
            None => self.wanted_files.remove(&file).map(|wanted| (wanted.entry, wanted.part.map(|part| *part))),
        };
        if let Some((entry, incoming)) = abandoned {
            if let Some(incoming) = incoming {
                incoming.discard();
            }
            self.policy.release(&entry);
            (self.on_event)(SessionEvent::FileFailed(self.policy.path(&entry), failure.unwrap_or(Error::Refused(why))));
        } else if !self.failed_files.contains(&file) {
            return Err(UNWANTED_FILE);
        }
        self.failed_files.retain(|number| *number != file);
        Ok(())
    }

    /// How a file ended.
    fn queue_verdict(&mut self, (file, entry): (EntryNumber, &FileEntry), outcome: Result<ByteCounts>) -> Result<()> {
        let why = match outcome {
            Ok(amount) => {
                self.moved.add(entry, &amount);
                self.policy.record_offered(entry, true)?;
                (self.on_event)(SessionEvent::FileStored(self.policy.path(entry)));
                None
            }
            Err(why) if why.is_per_file() => {
                let reason = RefusalReason(why.wire_text());
                (self.on_event)(SessionEvent::FileFailed(self.policy.path(entry), why));
                Some(reason)
            }
            Err(why) => return Err(why.during(entry.name.as_os_str())),
        };
        self.policy.release(entry);
        self.verdicts.push(Verdict { file, why });
        Ok(())
    }

    /// Reports how files ended once these are many, or before it waits for more: each message wakes the sender. Files that are flushed take
    /// such a time that it is reported at once.
    fn flush_verdicts_if_due(&mut self) -> Result<()> {
        let may_wait = self.verdicts.len() < VERDICT_FLUSH_COUNT && !self.settings.sync;
        if self.verdicts.is_empty() || may_wait && self.channels.first.is_input_available()? {
            Ok(())
        } else {
            self.flush_verdicts()
        }
    }

    fn flush_verdicts(&mut self) -> Result<()> {
        for chunk in std::mem::take(&mut self.verdicts).chunks(MAX_PER_MESSAGE) {
            self.channels.first.queue(&ReceiverMessage::Verdicts(chunk.to_vec()))?;
        }
        self.channels.first.flush()
    }

    /// What the receiver's stages cost apart; nothing where that cannot be found out.
    fn measure_costs(&self) -> Option<StageCosts> {
        let setup = self.methods.setup();
        let call_bytes = setup.map_or(PART_BYTES, |setup| setup.buffer.min(PART_BYTES));
        let [_, receiver] = stage_costs::stage_costs(&self.settings, call_bytes).ok()?;
        let receive_method = setup.map(|setup| (setup, self.settings.verify));
        let (file, per_file) = self.policy.write_costs(self.moved.small_files, receive_method).ok()?;
        // A method that receives into a file has done both.
        let connection = if receive_method.is_some() && file > 0 { 0 } else { receiver.connection };
        Some(StageCosts { file, per_file, connection, ..receiver })
    }

    fn finish_session(&mut self) -> Result<TransferSummary> {
        self.flush_verdicts()?;
        let has_ended = self.arriving_files.is_empty() && self.pending_digests.is_empty();
        Error::ensure(has_ended, "it ends before a file has ended")?;
        let start = Instant::now();
        let finished = self.policy.finish(&self.settings);
        self.send_refusal(finished)?;
        self.channels.first.times.sync += if self.settings.sync { start.elapsed().as_nanos() as u64 } else { 0 };
        let storage = self.policy.storage();
        let load = self.meter.finish(self.channels.first.times, storage);
        let unwritten_bytes = match (storage, self.settings.sync) {
            (StorageKind::Disk | StorageKind::Served, false) => unwritten_bytes(self.moved.amount.moved),
            _ => None,
        };
        let is_predicted = self.moved.amount.moved > 0
            && self.start.elapsed() >= rate_prediction::MIN_DURATION
            && !self.settings.remote_shell
            && !self.settings.compressed;
        let costs = if is_predicted { self.measure_costs() } else { None };
        let since = self.last_write.elapsed().as_nanos() as u64;
        let received = ReceiverReport { since, load, costs, unwritten_bytes, method: self.methods.method() };
        self.channels.first.send(&ReceiverMessage::Finished(received))?;
        let SenderMessage::Finish(mut sent) = self.channels.first.receive()? else {
            return Err(Error::ProtocolViolation("it does not report what it measured"));
        };
        sent.chosen = sent.chosen.filter(|_| self.settings.streams == 1);
        let streams = self.streams_used(sent.chosen);
        Ok(TransferSummary { moved: self.moved, settings: self.settings, streams, sent: *sent, received })
    }

    /// Sends the means by which more connections can join.
    fn open_for_join(&mut self) -> Result<()> {
        let is_per_file = self.settings.connection == ConnectionLifetime::PerFile;
        let Some(sessions) = self.sessions.filter(|_| is_per_file || self.policy.accepts_any_order()) else {
            let why = if is_per_file { Error::SingleConnectionOnly } else { Error::SingleStreamOnly };
            return self.send_refusal(Err(why));
        };
        let streams = sessions.register(self.settings)?;
        self.channels.first.send(&ReceiverMessage::Session(streams.id))?;
        self.open_session = Some(streams);
        Ok(())
    }

    /// Begins a file of which blocks may come over all streams.
    fn begin_split(&mut self, file: EntryNumber) -> Result<()> {
        let can_split = self.open_session.is_some() && self.settings.connection == ConnectionLifetime::Persistent;
        Error::ensure(can_split, "it splits a file, and has one stream")?;
        if !self.arriving_files.contains_key(&file) && !self.failed_files.contains(&file) {
            self.begin_file(file)?;
        }
        let split = self.arriving_files.get(&file).map(|arriving| arriving.file.shared()).transpose()?;
        if let Some(streams) = &self.open_session {
            streams.begin_split(file, split);
        }
        Ok(())
    }

    /// No more of a file that was split is to come.
    fn end_split(&self, file: EntryNumber) {
        if let Some(streams) = &self.open_session {
            streams.end_split(file);
        }
    }

    /// Sends the means by which connections can join that the sender has not announced, if they can.
    fn send_invitation(&mut self) -> Result<()> {
        Error::ensure(self.open_session.is_none(), "it asks again by what its session is joined")?;
        let takes_others = self.method.is_none() && self.policy.accepts_any_order();
        let settings = SessionSettings { streams: MAX_STREAMS, ..self.settings };
        let sessions = self.sessions.filter(|_| takes_others);
        self.open_session = sessions.map(|sessions| sessions.register(settings)).transpose()?;
        let session = self.open_session.as_ref().map(|streams| streams.id);
        let invitation = session.map(|session| JoinInvitation { session, max_streams: MAX_STREAMS });
        self.channels.first.send(&ReceiverMessage::JoinInvitation(invitation))
    }

    /// Reports how much has arrived, over all streams.
    fn send_arrived(&mut self) -> Result<()> {
        let joined_bytes = self.open_session.as_ref().map_or(0, OpenSession::arrived_bytes);
        let (bytes, nanoseconds) = (self.bytes_written + joined_bytes, self.start.elapsed().as_nanos() as u64);
        self.channels.first.send(&ReceiverMessage::Arrived(ArrivedBytes { bytes, nanoseconds }))
    }

    /// Over how many streams all has come: over as many as were chosen, if they were not announced.
    fn streams_used(&self, choice: Option<StreamChoice>) -> u32 {
        match (self.settings.streams, &self.open_session) {
            (2.., Some(streams)) => streams.streams(),
            _ => choice.map_or(1, |choice| choice.streams),
        }
    }
}

/// Which blocks of a file are there, sent as they are found.
struct BlockReport {
    file: EntryNumber,
    first: u32,
    digests: Vec<Blake3Digest>,
    last_sent: Instant,
}

impl BlockReport {
    fn new(file: EntryNumber) -> Self {
        Self { file, first: 0, digests: Vec::new(), last_sent: Instant::now() }
    }

    /// The next block is there.
    fn add<S: TransferStream>(&mut self, digest: Blake3Digest, channel: &mut SecureChannel<S>) -> Result<()> {
        self.digests.push(digest);
        // A slow disk needs minutes for this many, and the sender, who waits for them, has its own blocks to read.
        if self.digests.len() == MAX_DIGESTS || self.last_sent.elapsed() >= DIGEST_REPORT_INTERVAL {
            Error::check_stop()?;
            self.send(false, channel)?;
            self.last_sent = Instant::now();
        }
        Ok(())
    }

    fn send<S: TransferStream>(&mut self, is_all: bool, channel: &mut SecureChannel<S>) -> Result<()> {
        let digests = std::mem::take(&mut self.digests);
        let next = self.first + digests.len() as u32;
        let first = std::mem::replace(&mut self.first, next);
        channel.send(&ReceiverMessage::PresentBlocks { file: self.file, first, digests, is_all })
    }

    /// No more are there; how many there are.
    fn finish<S: TransferStream>(mut self, channel: &mut SecureChannel<S>) -> Result<u64> {
        self.send(true, channel)?;
        Ok(self.first.into())
    }
}

/// At most this many of these bytes are not on their device yet: no more than the system has of such bytes.
fn unwritten_bytes(moved: u64) -> Option<u64> {
    let meminfo = std::fs::read_to_string(MEMINFO).ok()?;
    Some(moved.min(kibibytes(&meminfo, "Dirty")? + kibibytes(&meminfo, "Writeback")?))
}

/// What a sender did wrong.
const UNWANTED_FILE: Error = Error::ProtocolViolation("it sends a file that is not wanted");

/// Standard output as a file, for what arrives there.
///
/// # Errors
/// That it is closed, and those of duplicating a descriptor.
pub fn standard_output() -> std::io::Result<File> {
    use std::os::fd::AsFd;
    kelvin_sys::standard_streams::check_output()?;
    Ok(std::io::stdout().as_fd().try_clone_to_owned()?.into())
}
