//! One sender's session at the receiver: what it offers is decided on, and what it sends arrives.

mod content;
mod deletion;
mod present_blocks;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelvin_machine::memory::{MEMINFO, kibibytes};

use crate::compression::Decompressor;
use crate::datapath::{ReceiveMethod, ReceiveSetup};
use crate::directory_tree::MAX_DIRECTORIES;
use crate::incoming_file::IncomingFile;
use crate::message::{
    ArrivedBytes, Blake3Digest, ConnectionLifetime, EntryDecision, EntryKind, EntryNumber, FileEntry, JoinInvitation,
    ReceiverMessage, ReceiverReport, RefusalReason, SenderMessage, SessionSettings, StreamChoice, Verdict,
};
use crate::method_chooser::MethodChooser;
use crate::offer_policy::OfferPolicy;
use crate::rate_prediction::{self, StageCosts};
use crate::secure_channel::{PART_BYTES, SecureChannel, SessionChannels, TransferStream};
use crate::session_streams::{MAX_STREAMS, OpenSession, SessionRegistry};
use crate::stage_times::{LoadMeter, StorageKind, add_elapsed};
use crate::summary::{ByteCounts, MovedFiles, TransferSummary};
use crate::wire::cipher::TAG_BYTES;
use crate::{Error, Result, stage_costs};

/// Most files that are wanted and did not arrive yet.
pub const MAX_WANTED_FILES: usize = 2048;
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
        let (directory, first) = match first? {
            SenderMessage::Enter(names) => (names, self.channels.first.receive()?),
            first => (Vec::new(), first),
        };
        let SenderMessage::Begin(settings) = first else { return Err(Error::ProtocolViolation("it does not begin")) };
        self.settings = settings;
        self.channels.first.plain = settings.plain;
        let is_plain = settings.plain && settings.streams == 1 && !settings.compressed;
        self.methods = MethodChooser::for_receiving(self.method, is_plain, settings.verify);
        let check =
            self.method.filter(|_| !is_plain).map_or(Ok(()), |setup| Err(Error::UnsupportedMethod(setup.method)));
        let check = check.and_then(|()| self.policy.enter(&directory, &settings));
        let check = check.and_then(|()| self.policy.check_total_space(&settings));
        let check = check.and_then(|()| self.policy.check_leave(&settings));
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
            let first = if let EntryKind::HardLink { first } = entry.kind { Some(first) } else { None };
            Error::ensure(self.settings.acls || entry.acls.is_empty(), "it sends access control lists without a word")?;
            Error::ensure(first.is_none_or(|first| first < number), "it links to a file that it did not offer")?;
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
            // What is there whatever it is gets no further names.
            if decision == EntryDecision::Unchanged && !self.settings.ignore_existing {
                self.policy.record_present(number, &entry)?;
            }
            if first.is_some() && is_present && decision == EntryDecision::Made {
                self.moved.hard_links += 1;
                (self.on_event)(SessionEvent::FileStored(self.policy.path(&entry)));
            }
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
                let is_planned = is_wanted || first.is_some() && decision == EntryDecision::Made;
                self.report_planned(&entry, is_planned);
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
                self.policy.record_present(file, entry)?;
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
