//! The sending end: what a user named is offered, and what the receiver wants of it is sent.

mod closing;
mod deletion;
mod extra_streams;
mod files;
mod offering;
mod parallel_file;
mod stream_tuner;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_sys::net::socket_queues;

use crate::blocks::BlockLayout;
use crate::compression::{CompressionLevel, PieceCompressor, SharedTotals};
use crate::datapath::{SendMethod, SendSetup};
use crate::file_name::FileName;
use crate::message::{
    ConnectionLifetime, EntryNumber, ReceiverMessage, RefusalReason, SenderMessage, SessionSettings, Verdict,
};
use crate::method_chooser::MethodChooser;
use crate::rate_limiter::RateLimiter;
use crate::secure_channel::{SecureChannel, SessionChannels, TransferStream};
use crate::session::MAX_BATCH_BYTES;
use crate::source::{SkippedEntries, SourceEntry, SourceList, SourceOpener};
use crate::stage_times::LoadMeter;
use crate::summary::{ByteCounts, MovedFiles, TransferSummary};
use crate::wire::address::is_loopback;
use crate::wire::connect::connect_first;
use crate::wire::deadline::Deadline;
use crate::wire::handshake::Handshake;
use crate::wire::secret::Secret;
use crate::{Error, HANDSHAKE, PROTOCOL, Result};
pub use deletion::DeletionResult;
use extra_streams::{ConnectForFile, ExtraStreams};
use offering::{ResumeInfo, SpaceCheck};
use stream_tuner::StreamTuner;
pub use stream_tuner::TuningWindow;

/// Time to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What is done then.
pub(crate) const CONNECT_STEP: &str = "connect to the receiver";

/// A file that was not moved, and why.
#[derive(Debug)]
pub struct UnsentFile {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
}

impl UnsentFile {
    fn new(source: &SourceEntry, why: Error) -> Self {
        Self { path: source.display_path().to_owned(), why }
    }
}

/// How to send.
#[derive(Clone, Copy, Debug)]
pub struct SenderOptions {
    /// What both ends know.
    pub settings: SessionSettings,
    /// Whether the next file waits until the receiver has this one in place.
    pub acknowledge: bool,
    /// Bytes a second at most.
    pub limit: Option<u64>,
    /// Files and directories that are deleted at most: if there are more, none is.
    pub max_delete: Option<u64>,
    /// Whether the paths of all that was moved are kept.
    pub lists_moved: bool,
    /// How the bytes of files are compressed, if they are.
    pub compression: Option<CompressionLevel>,
    /// By what the bytes of large files go that are not encrypted; what is fastest, where nothing is asked for.
    pub method: Option<SendSetup>,
    /// Whether large files begin with one stream and go on with as many as are found to be fastest, and by what moments.
    pub stream_tuning: Option<TuningWindow>,
}

/// What became of all.
#[derive(Debug)]
pub struct SendResult {
    /// What was moved, how fast, and what limited it.
    pub summary: TransferSummary,
    /// What was moved, hard links included, if that was asked for.
    pub moved_paths: Vec<PathBuf>,
    /// What was not moved.
    pub unsent: Vec<UnsentFile>,
    /// Files that were there already, and unchanged.
    pub unchanged: u64,
    /// What was left out.
    pub omitted: SkippedEntries,
    /// Files that state no bytes and have some: they were read until their end.
    pub sizeless_files: u64,
    /// In a dry run: what would be sent.
    pub planned: Vec<PathBuf>,
    /// What was deleted.
    pub deletion: DeletionResult,
}

/// A connection to a receiver.
pub struct Sender<S = TcpStream> {
    channel: SecureChannel<S>,
    /// More connections of its session.
    extra_streams: ExtraStreams,
    /// Makes the connections of files, if each has one of its own.
    connect_for_file: Option<ConnectForFile<S>>,
    options: SenderOptions,
    started_at: Instant,
    meter: LoadMeter,
}

impl Sender {
    /// As `connect_into`, for files that go into the receiver's directory itself.
    ///
    /// # Errors
    /// As there.
    pub fn connect(addresses: &[SocketAddr], secret: &Secret, options: SenderOptions) -> Result<Self> {
        Self::connect_into(addresses, secret, (options, &[]))
    }

    /// Connects to the first of these addresses that answers, and shakes hands. Files go into a directory below the receiver's, to which
    /// these names lead.
    ///
    /// # Errors
    /// No answer; another host without a secret; a receiver of another version or secret, or without a place.
    pub fn connect_into(
        addresses: &[SocketAddr],
        secret: &Secret,
        (options, directory): (SenderOptions, &[FileName]),
    ) -> Result<Self> {
        let start = Instant::now();
        check_secret(addresses, secret)?;
        let stream = connect(addresses)?;
        let peer = stream.peer_addr().map_err(Error::call("set up the connection"))?;
        let mut channel = shake_hands(stream, secret)?;
        enter(&mut channel, directory)?;
        let stream_tuning = options.stream_tuning.map(|window| window.for_round_trip(round_trip(&channel)));
        let mut sender = Self::from_channel(channel, (SenderOptions { stream_tuning, ..options }, start))?;
        let SessionSettings { streams, connection, .. } = options.settings;
        if connection == ConnectionLifetime::PerFile || streams > 1 {
            sender.join(peer, secret)?;
        } else {
            sender.extra_streams.connector = options.stream_tuning.map(|_| sender.connector(peer, secret));
        }
        Ok(sender)
    }
}

/// Has files go into a directory below the receiver's, if these names lead to one.
pub(crate) fn enter<S: TransferStream>(channel: &mut SecureChannel<S>, directory: &[FileName]) -> Result<()> {
    if directory.is_empty() { Ok(()) } else { channel.queue(&SenderMessage::Enter(directory.to_vec())) }
}

/// A channel over a new connection.
pub(crate) fn shake_hands<S: TransferStream>(mut stream: S, secret: &Secret) -> Result<SecureChannel<S>> {
    let handshake = Handshake { protocol: &PROTOCOL, secret, deadline: Deadline::within(HANDSHAKE) };
    let halves = handshake.connect(&mut stream)?;
    SecureChannel::new(stream, halves)
}

impl<S: TransferStream> Sender<S> {
    /// Over a channel that was opened for it, with the time of the first action.
    pub(crate) fn from_channel(
        mut channel: SecureChannel<S>,
        (mut options, start): (SenderOptions, Instant),
    ) -> Result<Self> {
        options.settings.compressed = options.compression.is_some();
        channel.plain = options.settings.plain;
        channel.queue(&SenderMessage::Begin(options.settings))?;
        Ok(Self {
            channel,
            extra_streams: ExtraStreams::default(),
            connect_for_file: None,
            options,
            started_at: start,
            meter: LoadMeter::start(),
        })
    }

    /// Sends all, and finishes. `progress` sees the bytes sent so far, and of how many, once that is known.
    ///
    /// # Errors
    /// A broken connection, a receiver that refuses all, or a signal. What concerns one file alone is returned.
    pub fn send(mut self, collection: SourceList, progress: &dyn Fn(u64, Option<u64>)) -> Result<SendResult> {
        let mut session = SendSession::new(&mut self, collection, progress)?;
        session.run()?;
        session.finish()
    }
}

/// An error where one of these is another host, and there is no secret.
pub(crate) fn check_secret(addresses: &[SocketAddr], secret: &Secret) -> Result<()> {
    let remote_address = addresses.iter().find(|address| !secret.is_some() && !is_loopback(**address));
    remote_address.map_or(Ok(()), |&address| Err(Error::NoSecretForHost(address)))
}

fn connect(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let connect = |address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
    let stream = connect_first(addresses, CONNECT_STEP, connect)?;
    stream.set_nodelay(true).map_err(Error::call("set up the connection"))?;
    Ok(stream)
}

/// The shortest round trip of a connection so far, as the kernel has measured it; none where it does not report it.
fn round_trip(channel: &SecureChannel) -> Duration {
    let socket = channel.socket().ok().flatten();
    let counters = socket.and_then(|socket| socket_queues::in_transit(&socket).ok());
    counters.map_or(Duration::ZERO, |counters| Duration::from_nanos(counters.min_round_trip))
}

/// A file that is wanted, and its blocks that need not come.
struct WantedFile {
    number: usize,
    valid_blocks: Vec<u8>,
    /// Whether the receiver has an older state of it, of whose blocks it is asked first.
    is_changed: bool,
}

impl WantedFile {
    /// Into which blocks a file of this size is divided.
    fn layout(&self, bytes: u64) -> BlockLayout {
        if self.is_changed { BlockLayout::of_changed_file(bytes) } else { BlockLayout::of_file(bytes) }
    }
}

/// All that is sent over one connection.
struct SendSession<'a, S> {
    channels: SessionChannels<'a, S>,
    extra_streams: ExtraStreams,
    tuner: Option<StreamTuner>,
    connect_for_file: Option<ConnectForFile<S>>,
    /// The last files that had connections of their own, and these, until the receiver has closed them.
    closing: VecDeque<(usize, SecureChannel<S>)>,
    options: SenderOptions,
    collection: SourceList,
    space: SpaceCheck,
    progress: &'a dyn Fn(u64, Option<u64>),
    /// Bytes of all, once that is known.
    total_bytes: Option<u64>,
    limiter: Arc<RateLimiter>,
    methods: MethodChooser<SendMethod>,
    /// How many were offered, and of how many the receiver's decision is known.
    offered_count: usize,
    decided_count: usize,
    /// What is wanted and was not sent.
    ready_files: VecDeque<WantedFile>,
    /// Files of which the receiver reports what it has.
    resume_infos: HashMap<usize, ResumeInfo>,
    /// Which files were sent and have no verdict, with their bytes.
    unacked: BTreeMap<usize, ByteCounts>,
    /// The file that was refused last.
    refused_file: Option<usize>,
    /// Whether other streams carry blocks of the file that is being sent.
    has_parallel_streams: bool,
    /// What compresses, where that was asked for; and what all streams have compressed.
    compressor: Option<PieceCompressor>,
    compression_totals: SharedTotals,
    /// Bytes that need not be sent any more.
    settled_bytes: u64,
    moved: MovedFiles,
    moved_paths: Vec<PathBuf>,
    unsent: Vec<UnsentFile>,
    unchanged: u64,
    opener: SourceOpener,
    planned: Vec<PathBuf>,
    buffer: Vec<u8>,
    started_at: Instant,
    meter: LoadMeter,
}

impl<'a, S: TransferStream> SendSession<'a, S> {
    fn new(sender: &'a mut Sender<S>, collection: SourceList, progress: &'a dyn Fn(u64, Option<u64>)) -> Result<Self> {
        let options = sender.options;
        let SessionSettings { plain, compressed, verify, streams, .. } = options.settings;
        let compression_totals = SharedTotals::default();
        let new_compressor = |level| PieceCompressor::new(level, &compression_totals);
        let tuning = options.stream_tuning.filter(|_| sender.extra_streams.connector.is_some());
        let total_bytes = collection.is_complete().then(|| collection.bytes());
        Ok(Self {
            channels: SessionChannels::new(&mut sender.channel),
            extra_streams: std::mem::take(&mut sender.extra_streams),
            tuner: tuning.map(|window| StreamTuner::new(window, options.limit)),
            connect_for_file: sender.connect_for_file.take(),
            closing: VecDeque::new(),
            options,
            space: if total_bytes.is_some() { SpaceCheck::TotalFits } else { SpaceCheck::Pending },
            progress,
            total_bytes,
            limiter: Arc::new(RateLimiter::new(options.limit)),
            // Streams that have joined read and send, and so does the first one of several.
            methods: MethodChooser::for_sending(options.method, plain && streams == 1 && !compressed, verify),
            offered_count: 0,
            decided_count: 0,
            ready_files: VecDeque::new(),
            resume_infos: HashMap::new(),
            unacked: BTreeMap::new(),
            refused_file: None,
            has_parallel_streams: false,
            compressor: options.compression.map(new_compressor).transpose()?,
            compression_totals,
            settled_bytes: 0,
            moved: MovedFiles::default(),
            moved_paths: Vec::new(),
            unsent: Vec::new(),
            unchanged: 0,
            opener: SourceOpener::default(),
            planned: Vec::new(),
            buffer: Vec::new(),
            started_at: sender.started_at,
            meter: sender.meter,
            collection,
        })
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let has_offered = self.offer()?;
            self.receive_available()?;
            if self.space == SpaceCheck::Insufficient {
                // How much it is must be known before more is sent.
                self.collection.find_all()?;
                self.send_total()?;
            } else if self.space != SpaceCheck::Pending
                && let Some(next) = self.ready_files.pop_front()
            {
                self.send_next(next)?;
            } else if has_offered {
                // Something may have been decided on meanwhile.
            } else if self.in_flight() > 0 {
                self.receive_message()?;
            } else if !self.collection.append_hard_links() {
                return Ok(());
            }
        }
    }

    /// Entries that were offered and have not ended.
    fn in_flight(&self) -> usize {
        (self.offered_count - self.decided_count)
            + self.ready_files.len()
            + self.resume_infos.len()
            + self.unacked.len()
    }

    fn on_message(&mut self, message: ReceiverMessage) -> Result<()> {
        match message {
            ReceiverMessage::Decisions(decisions) => {
                decisions.into_iter().try_for_each(|decision| self.on_decision(decision))
            }
            ReceiverMessage::PresentBlocks { file, first, digests, is_all } => {
                self.compare_blocks((file, first), &digests, is_all)
            }
            ReceiverMessage::Verdicts(verdicts) => {
                verdicts.into_iter().try_for_each(|verdict| self.on_verdict(verdict))
            }
            ReceiverMessage::Refused(RefusalReason(why)) => Err(Error::RefusedAll(why)),
            ReceiverMessage::Finished(_) => Err(Error::ProtocolViolation("it has finished before all was sent")),
            ReceiverMessage::Session(_) | ReceiverMessage::BlockWritten(_) => Err(UNEXPECTED_STREAMS),
            ReceiverMessage::SpaceAvailable(is_enough) => self.on_space_answer(is_enough),
            ReceiverMessage::JoinInvitation(invitation) => self.tuner()?.on_invitation(invitation),
            ReceiverMessage::Arrived(arrived) => self.tuner()?.on_arrived(arrived, Instant::now()),
            ReceiverMessage::Extraneous { .. } | ReceiverMessage::Deleted { .. } => {
                Err(Error::ProtocolViolation("it lists or deletes what it was not asked for"))
            }
        }
    }

    fn tuner(&mut self) -> Result<&mut StreamTuner> {
        self.tuner.as_mut().ok_or(UNEXPECTED_STREAMS)
    }

    fn on_verdict(&mut self, Verdict { file, why }: Verdict) -> Result<()> {
        let number = file as usize;
        let source = self.collection.sources[..self.decided_count].get(number).ok_or(UNKNOWN_FILE)?;
        // It may have failed on both sides at once.
        let Some(amount) = self.unacked.remove(&number) else { return Ok(()) };
        match why {
            None => {
                self.moved.add(&source.entry, &amount);
                self.moved_paths.extend(self.options.lists_moved.then(|| source.display_path().to_owned()));
            }
            Some(RefusalReason(why)) => {
                self.refused_file = Some(number);
                self.resume_infos.remove(&number);
                self.unsent.push(UnsentFile::new(source, Error::Refused(why)));
            }
        }
        Ok(())
    }

    /// Waits for the next message of the receiver.
    fn receive_message(&mut self) -> Result<()> {
        self.compressor.iter_mut().for_each(PieceCompressor::pause);
        let message = self.channels.first.receive()?;
        self.on_message(message)
    }

    /// Takes the messages of the receiver that have come.
    fn receive_available(&mut self) -> Result<()> {
        while let Some(message) = self.channels.first.try_receive()? {
            self.on_message(message)?;
        }
        Ok(())
    }

    /// Counts bytes of a file that has no verdict.
    fn count_unacked(&mut self, number: EntryNumber, count: impl FnOnce(&mut ByteCounts)) {
        self.unacked.get_mut(&(number as usize)).map(count);
    }

    fn advance(&mut self, bytes: u64) {
        self.settled_bytes += bytes;
        self.channels.current().sample_link(!self.has_parallel_streams);
        (self.progress)(self.settled_bytes, self.total_bytes);
    }

    /// The buffer, of at least [`MAX_BATCH_BYTES`] and one more, to be put back after use; a new one where it was not.
    fn take_buffer(&mut self) -> Vec<u8> {
        const BUFFER: usize = MAX_BATCH_BYTES as usize + 1;
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < BUFFER { vec![0; BUFFER] } else { buffer }
    }
}

/// What a receiver did wrong.
const UNKNOWN_FILE: Error = Error::ProtocolViolation("it names a file that was not offered");
const UNEXPECTED_STREAMS: Error = Error::ProtocolViolation("it names streams");
