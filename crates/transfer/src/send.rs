//! The sending end: what a user named is offered, and what the receiver wants of it is sent.

mod joining;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_file::Error as FileError;
use kelvin_sys::interrupt;
use kelvin_wire::address::is_loopback;
use kelvin_wire::deadline::Deadline;
use kelvin_wire::noise::Handshake;
use kelvin_wire::secret::Secret;
use kelvin_wire::{Error as WireError, Hasher};

use crate::bare::Connection;
use crate::blocks::{self, BLOCK, bit, set_bit};
use crate::by_method::{self, Way, Ways};
use crate::channel::{Apart, Channel, PART, Stream};
use crate::deposit::digest;
use crate::expected::{self, Costs, Expected, Work};
use crate::load::{Storage, Watch, timed};
use crate::message::{
    Decision, Digest, Entry, EntryKind, FromReceiver, FromSender, Measured, Number, Piece, Reason, Settings, Verdict,
    Whole,
};
use crate::moving::{SendMethod, SendPath, SendSetup};
use crate::pace::Pace;
use crate::session::{BATCH, BATCH_BYTES, SMALL, WINDOW, is_small};
use crate::source::{Collection, LeftOut, Opener, Source};
use crate::summary::{Amount, Moved, Summary};
use crate::{Error, HANDSHAKE, PROTOCOL, Result};
use joining::{Another, Joined};

/// Time to connect.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// Most entries of an offer, and most bytes of their names and attributes, so that it fits into a frame.
const OFFERED: usize = 256;
const OFFERED_BYTES: usize = 40 << 10;
/// Files that are ready to be sent, of which no more need be offered: so many are under way while the receiver decides on others.
const READY: usize = WINDOW / 4;
/// Zeros that are sent at once.
const ZEROS: usize = 4096;
/// Bytes of an entry beside its name and attributes, at most.
const ENTRY: usize = 64;

/// A file that was not moved, and why.
#[derive(Debug)]
pub struct Unsent {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
}

/// How to send.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// What both ends know.
    pub settings: Settings,
    /// Whether the next file waits until the receiver has this one in its place.
    pub acknowledge: bool,
    /// Bytes a second at most.
    pub limit: Option<u64>,
    /// By what the bytes of large files go that are not encrypted; what is fastest, where nothing is asked for.
    pub moving: Option<SendSetup>,
}

/// What became of all.
#[derive(Debug)]
pub struct Sent {
    /// What was moved, how fast, and what limited it.
    pub summary: Summary,
    /// What was not moved.
    pub unsent: Vec<Unsent>,
    /// Files that were there already, and unchanged.
    pub unchanged: u64,
    /// What was left out.
    pub left_out: LeftOut,
    /// In a dry run: what would be sent.
    pub planned: Vec<PathBuf>,
}

/// A connection to a receiver.
pub struct Sender<S = TcpStream> {
    channel: Channel<S>,
    /// More connections of its session.
    joined: Vec<Joined>,
    /// Makes the connections of files, if each has one of its own.
    another: Option<Another<S>>,
    manner: Manner,
    begun: Instant,
    watch: Watch,
}

impl Sender {
    /// Connects to the first of these addresses that answers, and shakes hands.
    ///
    /// # Errors
    /// No answer; another host without a secret; a receiver of another version or secret, or without a place.
    pub fn connect(addresses: &[SocketAddr], secret: &Secret, manner: Manner) -> Result<Self> {
        let begun = Instant::now();
        check_secret(addresses, secret)?;
        let stream = connect(addresses)?;
        let peer = stream.peer_addr().map_err(WireError::call("set up the connection"))?;
        let mut sender = Self::over(shake_hands(stream, secret)?, (manner, begun))?;
        let Settings { streams, connection, .. } = manner.settings;
        if connection == Connection::PerFile {
            sender.connect_for_each(peer, secret)?;
        } else if streams > 1 {
            sender.join(peer, secret)?;
        }
        Ok(sender)
    }
}

/// A channel over a new connection.
pub(crate) fn shake_hands<S: Stream>(mut stream: S, secret: &Secret) -> Result<Channel<S>> {
    let handshake = Handshake { protocol: &PROTOCOL, secret, deadline: Deadline::within(HANDSHAKE) };
    let halves = handshake.call(&mut stream)?;
    Channel::new(stream, halves)
}

impl<S: Stream> Sender<S> {
    /// Over a channel that was opened for it, with the time of the first action.
    pub(crate) fn over(mut channel: Channel<S>, (manner, begun): (Manner, Instant)) -> Result<Self> {
        channel.set_plain(manner.settings.plain);
        channel.queue(&FromSender::Begin(manner.settings))?;
        Ok(Self { channel, joined: Vec::new(), another: None, manner, begun, watch: Watch::begin() })
    }

    /// Sends all, and finishes. `progress` sees the bytes sent so far, and of how many, once that is known.
    ///
    /// # Errors
    /// A broken connection, a receiver that refuses all, or a signal. What concerns one file alone is returned.
    pub fn send(mut self, collection: Collection, progress: &dyn Fn(u64, Option<u64>)) -> Result<Sent> {
        let mut sending = Sending::new(&mut self.channel, self.manner, collection, progress);
        sending.joined = std::mem::take(&mut self.joined);
        sending.another = self.another.take();
        sending.run()?;
        sending.ways.finish()?;
        let method = sending.ways.method();
        let Sending { collection, unsent: failed, unchanged, without_attributes, planned, moved, .. } = sending;
        let Collection { sources, unread, mut left_out, .. } = collection;
        left_out.attributes += without_attributes;
        let unread = unread.into_iter().map(|(path, why)| Unsent { path, why });
        let unsent: Vec<Unsent> = unread.chain(failed).collect();
        let summary = self.finish(&sources, (moved, method), unsent.len() as u64)?;
        Ok(Sent { summary, unsent, unchanged, left_out, planned })
    }

    /// Has the receiver finish, and exchanges what was measured.
    fn finish(
        mut self,
        sources: &[Arc<Source>],
        (moved, method): (Moved, Option<SendMethod>),
        failed: u64,
    ) -> Result<Summary> {
        self.channel.send(&FromSender::End)?;
        let finished = loop {
            match self.channel.receive()? {
                FromReceiver::Finished(finished) => break finished,
                // Of files that were abandoned.
                FromReceiver::Verdicts(_) => {}
                FromReceiver::Refused(Reason(why)) => return Err(Error::RefusedAll(why)),
                _ => return Err(Error::Nonsense("it does not say what it measured")),
            }
        };
        let nanoseconds = (self.begun.elapsed().as_nanos() as u64).saturating_sub(finished.since);
        let load = self.watch.load(self.channel.times, storage(sources));
        let expected = finished.costs.and_then(|receiver| self.expected(sources, receiver, &moved));
        self.channel.send(&FromSender::Finish(Measured { nanoseconds, failed, load, expected, method }))?;
        let Settings { plain, verify, sync, streams, connection, .. } = self.manner.settings;
        Ok(Summary {
            moved,
            failed,
            nanoseconds,
            verified: verify,
            encrypted: !plain,
            flushed: sync.then_some(finished.since),
            streams,
            connection,
            sender: load,
            receiver: finished.load,
            received_by: finished.method,
            expected,
            unwritten: finished.unwritten,
            method,
        })
    }

    /// The rate that was to be expected of two ends of which one has these costs; nothing where that cannot be found out.
    fn expected(&self, sources: &[Arc<Source>], receiver: Costs, moved: &Moved) -> Option<Expected> {
        let Settings { streams, connection, .. } = self.manner.settings;
        if streams > 1 || connection == Connection::PerFile {
            // What its threads take from each other is not known, nor what connecting takes.
            return None;
        }
        let [sender, _] = expected::stages(&self.manner.settings).ok()?;
        let (file, each) = (reading(sources).ok()?, opening(sources).ok()?);
        let sender = Costs { file, each, ..sender };
        let work = Work { bytes: moved.amount.moved, small: moved.small, limit: self.manner.limit };
        Expected::of([sender, receiver], work)
    }
}

/// What lies under what is sent.
fn storage(sources: &[Arc<Source>]) -> Storage {
    match sources.iter().find(|source| source.is_file()) {
        Some(source) if source.entry.kind == EntryKind::Stream => Storage::Pipe,
        source => source.map_or(Storage::Nothing, |source| Storage::of(&source.path)),
    }
}

/// What reading the first large file again costs, in picoseconds a byte; nothing if there is none.
fn reading(sources: &[Arc<Source>]) -> Result<u64> {
    let Some(source) = sources.iter().find(|source| source.bytes() > SMALL) else { return Ok(0) };
    let read = expected::reading(&source.open()?, source.bytes());
    Ok(read.map_err(|error| FileError::call("read", &source.path, error))?)
}

/// What opening and reading a small file again costs, in nanoseconds of CPU time; nothing if there is none.
fn opening(sources: &[Arc<Source>]) -> Result<u64> {
    let small: Vec<&Arc<Source>> =
        sources.iter().filter(|source| is_small(&source.entry)).take(expected::FILES).collect();
    let (mut content, mut opener) = (vec![0; SMALL as usize], Opener::default());
    let mut one =
        |source: &&Arc<Source>| read_whole(source, opener.open(source)?, &mut content[..source.bytes() as usize]);
    let mut failed = Ok(());
    let spent = expected::cpu_time(|| {
        failed = small.iter().try_for_each(&mut one);
        Ok(())
    });
    let unknown = |error| FileError::call("time", std::path::Path::new("."), error);
    failed.and(Ok(spent.map_err(unknown)? / small.len().max(1) as u64))
}

/// Reads the content of a small file, if it is what was offered.
fn read_whole(source: &Source, mut file: File, content: &mut [u8]) -> Result<()> {
    let read = file.read_exact(content);
    // A file that became shorter says so itself.
    source.check(&file)?;
    Ok(read.map_err(|error| FileError::call("read", &source.path, error))?)
}

/// An error where one of these is another host, and there is no secret.
pub(crate) fn check_secret(addresses: &[SocketAddr], secret: &Secret) -> Result<()> {
    match addresses.iter().find(|address| !secret.is_some() && !is_loopback(**address)) {
        Some(&address) => Err(Error::Open { address }),
        None => Ok(()),
    }
}

fn connect(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let stream = to_the_first(addresses, |address| TcpStream::connect_timeout(&address, CONNECT))?;
    stream.set_nodelay(true).map_err(WireError::call("set up the connection"))?;
    Ok(stream)
}

/// Connects to the first of these addresses that answers.
pub(crate) fn to_the_first<T>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> std::io::Result<T>,
) -> Result<T> {
    let mut last = ErrorKind::AddrNotAvailable.into();
    for &address in addresses {
        match connect(address) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(WireError::Call { doing: "connect to the receiver", source: last }.into())
}

/// A file that is wanted, and its blocks that need not come.
struct Wanted {
    number: usize,
    kept: Vec<u8>,
}

/// What the receiver said of the blocks of a file.
struct Told {
    /// Those that are right.
    kept: Vec<u8>,
    /// The next one of which it is to speak.
    next: u32,
}

/// For what the receiver has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It was asked, and has not answered.
    Asked,
    /// For as much as there is at most.
    OfMost,
    /// Not for so much, or there is more: how much it is must be known before more is sent.
    Short,
    /// For all, however much it is: it was told, and would have refused it.
    OfAll,
}

/// All that is sent over one connection.
struct Sending<'a, S> {
    channel: &'a mut Channel<S>,
    joined: Vec<Joined>,
    another: Option<Another<S>>,
    apart: Apart<S>,
    /// The last files that had connections of their own, and these, until the receiver has closed them.
    ending: VecDeque<(usize, Channel<S>)>,
    manner: Manner,
    collection: Collection,
    room: Room,
    progress: &'a dyn Fn(u64, Option<u64>),
    /// Bytes of all, once that is known.
    all: Option<u64>,
    pace: Arc<Pace>,
    ways: Ways<SendPath>,
    /// How many were offered, and of how many the receiver's decision is known.
    offered: usize,
    decided: usize,
    /// What is wanted and was not sent.
    ready: VecDeque<Wanted>,
    /// Files of which the receiver says what it has.
    resumed: HashMap<usize, Told>,
    /// Which files were sent and have no verdict, with their bytes.
    unjudged: BTreeMap<usize, Amount>,
    /// The file that was refused last.
    refused: Option<usize>,
    /// Bytes that need not be sent any more.
    passed: u64,
    moved: Moved,
    unsent: Vec<Unsent>,
    unchanged: u64,
    opener: Opener,
    /// Whether files with extended attributes are counted, and how many were.
    counts_attributes: bool,
    without_attributes: u64,
    planned: Vec<PathBuf>,
    buffer: Vec<u8>,
}

impl<'a, S: Stream> Sending<'a, S> {
    fn new(
        channel: &'a mut Channel<S>,
        manner: Manner,
        collection: Collection,
        progress: &'a dyn Fn(u64, Option<u64>),
    ) -> Self {
        let all = collection.is_whole().then(|| collection.bytes());
        let room = if all.is_some() { Room::OfAll } else { Room::Asked };
        let counts_attributes = collection.counts_attributes;
        let (ready, resumed, unjudged) = (VecDeque::new(), HashMap::new(), BTreeMap::new());
        let (unsent, planned, buffer) = (Vec::new(), Vec::new(), Vec::new());
        let pace = Arc::new(Pace::new(manner.limit));
        let Settings { plain, verify, streams, .. } = manner.settings;
        // Streams that have joined read and send, and so does the first one of several.
        let ways = Ways::of_sending(manner.moving, plain && streams == 1, verify);
        let (offered, decided, refused, passed, moved, unchanged) = (0, 0, None, 0, Moved::default(), 0);
        Self {
            channel,
            joined: Vec::new(),
            another: None,
            apart: Apart::none(),
            ending: VecDeque::new(),
            manner,
            collection,
            room,
            progress,
            all,
            pace,
            ways,
            offered,
            decided,
            ready,
            resumed,
            unjudged,
            refused,
            passed,
            moved,
            unsent,
            unchanged,
            opener: Opener::default(),
            counts_attributes,
            without_attributes: 0,
            planned,
            buffer,
        }
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let has_offered = self.offer()?;
            while let Some(message) = self.channel.received()? {
                self.hear(message)?;
            }
            if self.room == Room::Short {
                self.find_all()?;
            } else if let Some(wanted) = self.ready.pop_front_if(|_| self.room != Room::Asked) {
                self.send_next(wanted)?;
            } else if has_offered {
                // Something may have been decided on meanwhile.
            } else if self.in_flight() > 0 {
                let message = self.channel.receive()?;
                self.hear(message)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Entries that were offered and have not ended.
    fn in_flight(&self) -> usize {
        (self.offered - self.decided) + self.ready.len() + self.resumed.len() + self.unjudged.len()
    }

    /// Offers some entries, where few are ready to be sent and the receiver takes more before it has the content of others; says
    /// whether it did.
    fn offer(&mut self) -> Result<bool> {
        let is_due = self.ready.len() < READY && self.in_flight() + OFFERED <= WINDOW;
        let has_more = is_due && self.has_more_to_offer()?;
        if has_more {
            let mut bytes = 0;
            let fits = |source: &&Arc<Source>| {
                bytes += size(&source.entry);
                bytes <= OFFERED_BYTES
            };
            let some = self.collection.sources[self.offered..].iter().take(OFFERED).take_while(fits);
            let entries: Vec<Entry> = some.map(|source| source.entry.clone()).collect();
            self.offered += entries.len();
            self.channel.queue(&FromSender::Offer(entries))?;
        }
        self.channel.flush()?;
        Ok(has_more)
    }

    /// Whether something was found that was not offered.
    fn has_more_to_offer(&mut self) -> Result<bool> {
        if self.offered == self.collection.sources.len() && !self.collection.is_whole() {
            self.collection.find(OFFERED)?;
            self.say_how_much()?;
        }
        Ok(self.offered < self.collection.sources.len())
    }

    /// Finds all, where the receiver has no room for as much as it may be, before more is sent.
    fn find_all(&mut self) -> Result<()> {
        self.collection.find_all()?;
        self.say_how_much()
    }

    /// Says how much there is once all is found; more than there was said to be at most is no more known to find room.
    fn say_how_much(&mut self) -> Result<()> {
        let bytes = self.collection.stored().unwrap_or_default();
        if self.collection.is_whole() && self.room != Room::OfAll {
            self.room = Room::OfAll;
            self.all = Some(self.collection.bytes());
            return self.channel.queue(&FromSender::Found { bytes });
        }
        if self.manner.settings.at_most.is_none_or(|most| bytes > most) {
            self.room = Room::Short;
        }
        Ok(())
    }

    fn hear(&mut self, message: FromReceiver) -> Result<()> {
        match message {
            FromReceiver::Decisions(decisions) => decisions.into_iter().try_for_each(|one| self.decided(one)),
            FromReceiver::Have { file, first, digests, is_all } => self.compare((file, first), &digests, is_all),
            FromReceiver::Verdicts(verdicts) => verdicts.into_iter().try_for_each(|verdict| self.judged(verdict)),
            FromReceiver::Refused(Reason(why)) => Err(Error::RefusedAll(why)),
            FromReceiver::Finished(_) => Err(Error::Nonsense("it has finished before all was sent")),
            FromReceiver::Session(_) | FromReceiver::Took(_) => Err(Error::Nonsense("it speaks of streams")),
            FromReceiver::Room { is_enough } => self.told_of_room(is_enough),
        }
    }

    /// Whether there is room for as much as there is at most. By now all may be found, and said.
    fn told_of_room(&mut self, is_enough: bool) -> Result<()> {
        if self.manner.settings.at_most.is_none() {
            return Err(Error::Nonsense("it speaks of room that was not asked for"));
        }
        if self.room == Room::Asked {
            self.room = if is_enough { Room::OfMost } else { Room::Short };
        }
        Ok(())
    }

    fn decided(&mut self, decision: Decision) -> Result<()> {
        let number = self.decided;
        let source = self.collection.sources[..self.offered].get(number).ok_or(Error::Nonsense(UNKNOWN))?;
        let source = Arc::clone(source);
        self.decided += 1;
        let is_dry = self.manner.settings.dry_run;
        match decision {
            Decision::Wanted | Decision::Resumed if !source.is_file() => return Err(Error::Nonsense(UNKNOWN)),
            Decision::Made if source.is_file() => return Err(Error::Nonsense(UNKNOWN)),
            Decision::Wanted | Decision::Resumed if is_dry => self.planned.push(source.path.clone()),
            Decision::Wanted => self.ready.push_back(Wanted { number, kept: Vec::new() }),
            Decision::Resumed => {
                let blocks = blocks::count(source.bytes());
                self.resumed.insert(number, Told { kept: vec![0; blocks.div_ceil(8) as usize], next: 0 });
            }
            Decision::Unchanged => {
                self.unchanged += 1;
                self.pass(source.bytes());
            }
            Decision::Made => {}
            Decision::Refused(Reason(why)) => {
                self.pass(source.bytes());
                self.unsent.push(Unsent { path: source.path.clone(), why: Error::Refused(why) });
            }
        }
        Ok(())
    }

    /// Compares blocks that the receiver has with those of the file.
    fn compare(&mut self, (file, first): (Number, u32), digests: &[Digest], is_all: bool) -> Result<()> {
        let number = file as usize;
        let source = Arc::clone(self.collection.sources.get(number).ok_or(Error::Nonsense(UNKNOWN))?);
        let told = self.resumed.get_mut(&number).ok_or(Error::Nonsense(UNKNOWN))?;
        // Each block is read once, however often the receiver would speak of it.
        let next = first.checked_add(digests.len() as u32).ok_or(Error::Nonsense(UNKNOWN))?;
        if first != std::mem::replace(&mut told.next, next) || u64::from(next) > blocks::count(source.bytes()) {
            return Err(Error::Nonsense("it speaks of blocks that it cannot have"));
        }
        // A file that cannot be read says so when it is sent.
        if let Ok(file) = source.open() {
            for (block, theirs) in (u64::from(first)..blocks::count(source.bytes())).zip(digests) {
                let range = (block * BLOCK, (source.bytes() - block * BLOCK).min(BLOCK));
                if digest(&file, range, &mut self.buffer).is_ok_and(|own| own == *theirs) {
                    set_bit(&mut told.kept, block);
                }
            }
        }
        if is_all && let Some(Told { kept, .. }) = self.resumed.remove(&number) {
            let blocks = (0..blocks::count(source.bytes())).filter(|block| bit(&kept, *block));
            let resumed = blocks.map(|block| (source.bytes() - block * BLOCK).min(BLOCK)).sum();
            // Its verdict comes at once if nothing of it is missing.
            self.unjudged.insert(number, Amount { resumed, ..Amount::default() });
            self.pass(resumed);
            self.channel.send(&FromSender::Keep { file, blocks: kept.clone() })?;
            self.ready.push_back(Wanted { number, kept });
        }
        Ok(())
    }

    fn judged(&mut self, Verdict { file, why }: Verdict) -> Result<()> {
        let number = file as usize;
        let source = self.collection.sources[..self.decided].get(number).ok_or(Error::Nonsense(UNKNOWN))?;
        // It may have failed on both sides at once.
        let Some(amount) = self.unjudged.remove(&number) else { return Ok(()) };
        match why {
            None => {
                self.moved.add(&source.entry, &amount);
            }
            Some(Reason(why)) => {
                self.refused = Some(number);
                self.unsent.push(Unsent { path: source.path.clone(), why: Error::Refused(why) });
            }
        }
        Ok(())
    }

    /// Counts bytes of a file that has no verdict.
    fn count(&mut self, number: usize, count: impl FnOnce(&mut Amount)) {
        self.unjudged.get_mut(&number).map(count);
    }

    fn pass(&mut self, bytes: u64) {
        self.passed += bytes;
        (self.progress)(self.passed, self.all);
    }

    /// Sends the next file, or as many small ones as go together.
    fn send_next(&mut self, wanted: Wanted) -> Result<()> {
        let source = Arc::clone(&self.collection.sources[wanted.number]);
        let number = wanted.number;
        self.begin_apart(number)?;
        if is_small(&source.entry) {
            self.send_small(wanted)?;
        } else {
            self.send_large(&source, &wanted)?;
        }
        self.end_apart(number)?;
        while self.manner.acknowledge && self.unjudged.contains_key(&number) {
            let message = self.channel.receive()?;
            self.hear(message)?;
        }
        Ok(())
    }

    /// Sends the whole content of this file and those that follow it.
    fn send_small(&mut self, wanted: Wanted) -> Result<()> {
        self.stop_if_asked()?;
        let (mut files, mut content, mut filled) = (Vec::new(), std::mem::take(&mut self.buffer), 0);
        // Zeros are written where there was nothing, not once more for each file.
        content.resize(content.len().max(BATCH_BYTES as usize), 0);
        let most = self.pace.most(BATCH_BYTES);
        let mut next = Some(wanted);
        while let Some(Wanted { number, .. }) = next {
            let source = Arc::clone(&self.collection.sources[number]);
            let end = filled + source.bytes() as usize;
            match self.read_small(&source, &mut content[filled..end]) {
                Ok(()) => {
                    self.unjudged.insert(number, Amount::sent(source.bytes()));
                    files.push(Whole { file: number as Number, bytes: source.bytes() as u32 });
                    filled = end;
                }
                Err(why) if why.is_of_one_file() => self.abandon(number, why)?,
                Err(why) => return Err(why),
            }
            let room = most.saturating_sub(filled as u64);
            let is_full = self.manner.acknowledge || self.another.is_some() || files.len() == BATCH;
            let fits = |wanted: &mut Wanted| {
                let source = &self.collection.sources[wanted.number];
                is_small(&source.entry) && source.bytes() <= room
            };
            next = if is_full { None } else { self.ready.pop_front_if(fits) };
        }
        if !files.is_empty() {
            let verify = self.manner.settings.verify;
            let hash = || verify.then(|| *kelvin_wire::hash(&content[..filled]).as_bytes());
            let digest = timed(&mut self.channel.times.verify, hash);
            self.apart.or(self.channel).queue(&FromSender::Batch { files, digest })?;
            self.send_bytes(&content[..filled])?;
        }
        self.buffer = content;
        self.pass(filled as u64);
        Ok(())
    }

    /// Reads the content of a small file, if it is what was offered.
    fn read_small(&mut self, source: &Source, content: &mut [u8]) -> Result<()> {
        let (opener, without) = (&mut self.opener, self.counts_attributes.then_some(&mut self.without_attributes));
        self.channel.times.file(|| {
            let file = opener.open(source)?;
            if let Some(without) = without {
                *without += u64::from(source.has_attributes(&file));
            }
            read_whole(source, file, content)
        })
    }

    /// Tells the receiver that a file will not come.
    fn abandon(&mut self, number: usize, why: Error) -> Result<()> {
        let source = Arc::clone(&self.collection.sources[number]);
        self.channel.queue(&FromSender::Abandoned { file: number as Number, why: why.told() })?;
        self.unjudged.remove(&number);
        self.pass(source.bytes());
        self.unsent.push(Unsent { path: source.path.clone(), why });
        Ok(())
    }

    /// Sends the blocks of a file that the receiver does not have.
    fn send_large(&mut self, source: &Source, wanted: &Wanted) -> Result<()> {
        let number = wanted.number;
        let passed = self.passed;
        if wanted.kept.is_empty() {
            self.unjudged.insert(number, Amount::default());
        } else if !self.unjudged.contains_key(&number) {
            return Ok(());
        }
        let sent = match source.open() {
            Ok(file) if source.entry.kind == EntryKind::Stream => self.send_stream(number, &file),
            Ok(file) => {
                self.without_attributes += u64::from(self.counts_attributes && source.has_attributes(&file));
                source.check(&file).and_then(|()| self.send_blocks(source, wanted, &file))
            }
            Err(error) => Err(error),
        };
        match sent {
            Err(why) if why.is_of_one_file() => {
                self.passed = passed;
                self.abandon(number, why)
            }
            Err(why) => Err(why.during(source.entry.name.as_os_str())),
            Ok(()) => self.apart.or(self.channel).flush(),
        }
    }

    fn send_blocks(&mut self, source: &Source, wanted: &Wanted, file: &File) -> Result<()> {
        let all = blocks::count(source.bytes()).max(1);
        let Some(first) = self.send_over_all(source, wanted, file)? else { return Ok(()) };
        let mut missing = (first..all).filter(|block| !bit(&wanted.kept, *block)).peekable();
        while let Some(block) = missing.next() {
            let first = block * BLOCK;
            let end = (first + BLOCK).min(source.bytes());
            let mut pieces = pieces(source, file, first..end).into_iter().peekable();
            while let Some(((start, end), is_hole)) = pieces.next() {
                let (file_number, bytes) = (wanted.number as Number, (end - start) as u32);
                let is_last = missing.peek().is_none() && pieces.peek().is_none();
                let piece = Piece { file: file_number, offset: start, bytes, is_last };
                match (is_hole, is_last) {
                    (true, _) => self.send_hole(source, file, piece)?,
                    (false, true) => self.send_last_piece(source, file, piece)?,
                    (false, false) => self.send_piece(source, file, piece)?,
                }
                if !self.is_still_wanted(wanted.number)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether the receiver has not refused a file that is being sent; else says that the rest will not come.
    fn is_still_wanted(&mut self, number: usize) -> Result<bool> {
        self.stop_if_asked()?;
        while let Some(message) = self.channel.received()? {
            self.hear(message)?;
        }
        let is_refused = self.refused == Some(number);
        if is_refused {
            let why = "the receiver wants no more of it".to_owned();
            self.channel.send(&FromSender::Abandoned { file: number as Number, why })?;
        }
        Ok(!is_refused)
    }

    fn send_hole(&mut self, source: &Source, file: &File, piece: Piece) -> Result<()> {
        if piece.is_last {
            source.check(file)?;
        }
        self.apart.or(self.channel).queue(&FromSender::Hole(piece))?;
        self.count(piece.file as usize, |amount| amount.holes += u64::from(piece.bytes));
        self.pass(piece.bytes.into());
        Ok(())
    }

    /// Sends the piece with which the receiver has the whole file: its end only when all is read, and is still what was offered.
    fn send_last_piece(&mut self, source: &Source, file: &File, piece: Piece) -> Result<()> {
        let bytes = self.pace.most(PART as u64).min(piece.bytes.into()) as u32;
        let before = piece.bytes - bytes;
        if before > 0 {
            self.send_piece(source, file, Piece { bytes: before, is_last: false, ..piece })?;
        }
        let end = Piece { offset: piece.offset + u64::from(before), bytes, ..piece };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(bytes as usize, 0);
        let read = self.channel.times.file(|| file.read_exact_at(&mut buffer, end.offset));
        let is_right = read.map_err(|_| shortened(source, file)).and_then(|()| source.check(file));
        let sent = is_right.and_then(|()| self.send_end(end, &buffer));
        self.buffer = buffer;
        sent
    }

    fn send_end(&mut self, end: Piece, content: &[u8]) -> Result<()> {
        self.apart.or(self.channel).queue(&FromSender::Block(end))?;
        self.count(end.file as usize, |amount| amount.moved += u64::from(end.bytes));
        let mut hasher = Hasher::new();
        self.send_part(content, &mut hasher)?;
        self.say_digest(&hasher)
    }

    /// Sends a piece of a file.
    fn send_piece(&mut self, source: &Source, file: &File, piece: Piece) -> Result<()> {
        self.apart.or(self.channel).queue(&FromSender::Block(piece))?;
        self.count(piece.file as usize, |amount| amount.moved += u64::from(piece.bytes));
        let range = (piece.offset, u64::from(piece.bytes));
        let is_whole = self.send_range(file, range)?;
        if is_whole { Ok(()) } else { Err(shortened(source, file)) }
    }

    /// Sends as many bytes as were announced, by the way that is due.
    fn send_range(&mut self, file: &File, range: (u64, u64)) -> Result<bool> {
        if !self.may_not_listen() {
            return self.send_parts(file, range);
        }
        let failed = WireError::call("set up the connection");
        let channel = self.apart.or(self.channel);
        let (number, mut way) = self.ways.next(|| channel.socket()).map_err(failed)?;
        let begun = Instant::now();
        let is_whole = match &mut way {
            Way::Parts => self.send_parts(file, range),
            Way::Path(path) => self.send_path(path, file, range),
        };
        self.ways.took((number, way), range.1, begun);
        is_whole
    }

    /// Whether so little can come from the receiver that it finds room in the socket while nobody listens: no digests of parts, no
    /// decisions, and few verdicts.
    fn may_not_listen(&self) -> bool {
        self.resumed.is_empty() && self.decided == self.offered && self.unjudged.len() <= BATCH
    }

    /// Sends as many bytes as were announced by a method of its own, with zeros for those that are not there any more; says whether
    /// all were.
    fn send_path(&mut self, path: &mut SendPath, file: &File, (offset, bytes): (u64, u64)) -> Result<bool> {
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
                return Ok(false);
            }
        }
        self.say_digest(&hasher)?;
        Ok(true)
    }

    /// Hashes bytes that went from the file into the socket without being seen.
    fn hash_again(&mut self, file: &File, (offset, bytes): (u64, u64), hasher: &mut Hasher) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PART, 0);
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
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PART, 0);
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
    fn send_part(&mut self, part: &[u8], hasher: &mut Hasher) -> Result<()> {
        if self.manner.settings.verify {
            timed(&mut self.channel.times.verify, || hasher.update(part));
        }
        self.send_bytes(part)?;
        self.pass(part.len() as u64);
        Ok(())
    }

    /// Says the digest of a piece that was sent.
    fn say_digest(&mut self, hasher: &Hasher) -> Result<()> {
        if !self.manner.settings.verify {
            return Ok(());
        }
        self.apart.or(self.channel).queue(&FromSender::Digests(vec![*hasher.finalize().as_bytes()]))
    }

    /// Sends what is read from a pipe until its end.
    fn send_stream(&mut self, number: usize, input: &File) -> Result<()> {
        let mut offset = 0;
        let mut buffer = vec![0; self.pace.most(PART as u64) as usize];
        loop {
            let read = self.channel.times.file(|| read(input, &mut buffer));
            let count = read.map_err(|error| FileError::call("read", std::path::Path::new("-"), error))?;
            self.stop_if_asked()?;
            let piece = Piece { file: number as Number, offset, bytes: count as u32, is_last: count == 0 };
            self.apart.or(self.channel).queue(&FromSender::Block(piece))?;
            let mut hasher = Hasher::new();
            self.send_part(&buffer[..count], &mut hasher)?;
            self.say_digest(&hasher)?;
            self.apart.or(self.channel).flush()?;
            offset += count as u64;
            self.unjudged.insert(number, Amount::sent(offset));
            if count == 0 || !self.is_still_wanted(number)? {
                return Ok(());
            }
        }
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.apart.or(self.channel).send_data(bytes)?;
        self.keep_pace(bytes.len() as u64);
        Ok(())
    }

    /// Waits until more may be sent after so many bytes.
    fn keep_pace(&mut self, bytes: u64) {
        timed(&mut self.channel.times.limit, || self.pace.wait(bytes));
    }

    fn stop_if_asked(&self) -> Result<()> {
        interrupt::requested().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))
    }
}

/// What a receiver did wrong.
const UNKNOWN: &str = "it speaks of a file that was not offered";

/// Bytes of an entry in an offer, at most.
fn size(entry: &Entry) -> usize {
    let attributes: usize = entry.attributes.iter().map(|one| one.name.len() + one.value.len() + ENTRY).sum();
    let target = if let EntryKind::Link { target } = &entry.kind { target.len() } else { 0 };
    ENTRY + entry.name.as_os_str().len() + attributes + target
}

/// The parts of a range of a file, and whether they are holes.
fn pieces(source: &Source, file: &File, range: std::ops::Range<u64>) -> Vec<((u64, u64), bool)> {
    if !source.has_holes {
        return vec![((range.start, range.end), false)];
    }
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        // None behind it: the rest is a hole. A file system that does not know holes calls everything data.
        let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)).map_or(range.end, |data| data.min(range.end));
        if data > at {
            found.push(((at, data), true));
        }
        let hole =
            rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(data)).map_or(range.end, |hole| hole.min(range.end));
        if data < range.end && hole > data {
            found.push(((data, hole), false));
        }
        at = hole.max(data);
    }
    if found.is_empty() {
        found.push(((range.start, range.end), false));
    }
    found
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Reads what comes next; nothing if this process was asked to stop.
fn read(mut file: &File, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted && interrupt::requested().is_some() => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Why a file has not the bytes that were announced.
fn shortened(source: &Source, file: &File) -> Error {
    match source.check(file) {
        Err(changed) => changed,
        Ok(()) => source.changed("some of its bytes could not be read".into()),
    }
}
