//! One sender's session at the receiver: what it offers is decided on, and what it sends arrives.

mod by_number;
mod costs;
mod others;

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelvin_file::Error as FileError;
use kelvin_wire::sealed::TAG;
use kelvin_wire::{Error as WireError, Hasher};

use crate::bare::Connection;
use crate::blocks::{self, BLOCK};
use crate::by_method::{self, Received, Way, Ways};
use crate::channel::{Apart, Channel, Stream};
use crate::decide::Desk;
use crate::deposit::{Deposit, digests};
use crate::expected;
use crate::joined::{Joinable, Sessions};
use crate::load::{Storage, Watch, timed};
use crate::message::{
    Decision, Digest, Entry, EntryKind, Finished, FromReceiver, FromSender, Measured, Number, Piece, Reason, Settings,
    Verdict, Whole,
};
use crate::moving::{ReceiveMethod, ReceivePath, ReceiveSetup, Seen};
use crate::progress::ProgressMeter;
use crate::summary::{Amount, Moved, Summary};
use crate::{Error, Result};
use by_number::ByNumber;
use costs::unwritten;

/// Most files that are wanted and did not arrive yet; and most digests in a message.
pub const WINDOW: usize = 2048;
const DIGESTS: usize = 1024;
/// How long the digests of what is there may take until some are said.
const SAID: Duration = Duration::from_secs(10);
/// How often is told how much has arrived.
const TOLD: Duration = Duration::from_millis(200);
/// Most files of a batch.
pub const BATCH: usize = 128;
/// Most bytes of a file in a batch.
pub const SMALL: u64 = 64 << 10;
/// Most bytes of a batch.
pub const BATCH_BYTES: u64 = 256 << 10;
/// Most parts of files that are held open until their turn comes: each is a descriptor, and bits of its blocks. Others begin
/// anew.
const PARTS: usize = 8;
/// Decisions and verdicts in one message: each may carry a reason.
const IN_MESSAGE: usize = 128;
/// So many verdicts are said although more has come: before it has them, the sender has no more than [`WINDOW`] files in flight.
const MANY_VERDICTS: usize = WINDOW / 8;
/// Most large files that have not ended at one time: of all but the last one, digests alone are missing.
pub const UNENDED: usize = 8;
/// Most digests in a message, and most pieces whose digests are missing.
pub const CHECKS: usize = 1024;

/// What happens in a session.
#[derive(Debug)]
pub enum Event {
    /// A sender was authenticated.
    Came,
    /// More has arrived: told now and then.
    Moving {
        /// Bytes so far, over the first connection.
        bytes: u64,
        /// Of so many, if all of them are to come.
        of: Option<u64>,
        /// How long it took.
        elapsed: Duration,
    },
    /// A file is in its place.
    Kept(PathBuf),
    /// A file was refused, or did not arrive whole: nothing of it is kept.
    Unkept(PathBuf, Error),
    /// The connection ended while a large file arrived; what arrived of it is left, to be gone on with.
    Left(PathBuf),
    /// A sender has finished.
    Done(Box<Summary>),
    /// A fault ended a sender's connection.
    Fault(Error),
    /// An unauthenticated connection was refused, or ended.
    TurnedAway(Error),
}

impl From<Result<Summary>> for Event {
    /// How a sender's session has ended.
    fn from(ended: Result<Summary>) -> Self {
        ended.map_or_else(Self::Fault, |summary| Self::Done(Box::new(summary)))
    }
}

/// A file that is wanted.
struct Wanted {
    entry: Entry,
    /// It, if a part of it was there, which is so of few.
    resumed: Option<Box<Deposit>>,
    /// How many blocks of the part the sender was told of, and has not said which are right.
    said: u64,
}

/// A file that arrives in blocks.
struct Arriving {
    number: Number,
    entry: Entry,
    deposit: Deposit,
    /// How many of its pieces were not compared yet.
    unchecked: usize,
}

/// A sender that is being served.
pub(crate) struct Session<'a, S> {
    channel: &'a mut Channel<S>,
    apart: Apart<S>,
    desk: Desk,
    tell: &'a dyn Fn(Event),
    /// Where other connections find it, if they may; and that they may, after it has begun.
    sessions: Option<&'a Sessions<S>>,
    streams: Option<Joinable<'a, S>>,
    settings: Settings,
    /// Whether there was room for all before it was known how much that is.
    has_room: bool,
    /// By what the bytes of large files come: what was asked for, and then all that there is.
    receiving: Option<ReceiveSetup>,
    ways: Ways<ReceivePath>,
    /// How many entries were offered.
    offered: Number,
    /// Those that are wanted: most come in the order in which they were offered.
    wanted: ByNumber<Wanted>,
    arriving: VecDeque<Arriving>,
    /// Files that failed and of which more may come.
    failed: VecDeque<Number>,
    /// The pieces that have arrived and were not compared, in their order.
    hashed: VecDeque<(Number, Digest)>,
    buffer: Vec<u8>,
    verdicts: Vec<Verdict>,
    moved: Moved,
    begun: Instant,
    last_write: Instant,
    last_told: Instant,
    /// Bytes that have come in blocks over the first connection, and were written.
    arrived: u64,
    watch: Watch,
}

impl<'a, S: Stream> Session<'a, S> {
    pub(crate) fn new(channel: &'a mut Channel<S>, desk: Desk, tell: &'a dyn Fn(Event)) -> Self {
        let (offered, wanted, arriving, hashed) = (0, ByNumber::default(), VecDeque::new(), VecDeque::new());
        let (failed, verdicts, begun) = (VecDeque::new(), Vec::new(), Instant::now());
        let buffer = vec![0; BATCH_BYTES as usize + TAG];
        let (moved, watch) = (Moved::default(), Watch::begin());
        Self {
            channel,
            apart: Apart::none(),
            desk,
            tell,
            sessions: None,
            streams: None,
            settings: Settings::USUAL,
            has_room: false,
            receiving: None,
            ways: Ways::of_receiving(None, false, true),
            offered,
            wanted,
            arriving,
            failed,
            hashed,
            buffer,
            verdicts,
            moved,
            begun,
            last_write: begun,
            last_told: begun,
            arrived: 0,
            watch,
        }
    }

    /// Has the bytes of large files come so, if it is said how.
    pub(crate) fn by(self, receiving: Option<ReceiveSetup>) -> Self {
        let patience = self.channel.incoming().least().within;
        Self { receiving: receiving.map(|setup| ReceiveSetup { patience, ..setup }), ..self }
    }

    /// Has it be found there by other connections.
    pub(crate) fn among(self, sessions: &'a Sessions<S>) -> Self {
        Self { sessions: Some(sessions), ..self }
    }

    /// Has all its files arrive.
    pub(crate) fn serve(self) -> Result<Summary> {
        let first = self.channel.receive();
        self.serve_after(first)
    }

    /// The same, after the first message.
    pub(crate) fn serve_after(mut self, first: Result<FromSender>) -> Result<Summary> {
        let served = self.run(first);
        drop(self.apart.end(self.channel));
        if let Err(why @ Error::Wire(WireError::Late { .. } | WireError::Slow { .. })) = &served {
            self.channel.say_last(&FromReceiver::Refused(Reason(why.told())));
        }
        // Nobody writes a file any more when it is left.
        self.streams = None;
        // Parts whose turn did not come stay what they were.
        for waiting in std::mem::take(&mut self.wanted).into_values().filter_map(|wanted| wanted.resumed) {
            waiting.leave();
        }
        if served.is_err() {
            self.leave_parts();
        }
        served
    }

    fn leave_parts(&mut self) {
        for Arriving { deposit, .. } in std::mem::take(&mut self.arriving) {
            let path = deposit.path().to_owned();
            if deposit.leave() {
                (self.tell)(Event::Left(path));
            }
        }
    }

    fn run(&mut self, first: Result<FromSender>) -> Result<Summary> {
        let FromSender::Begin(settings) = first? else {
            return Err(Error::Nonsense("it does not begin"));
        };
        self.settings = settings;
        self.channel.set_plain(settings.plain);
        let is_plain = settings.plain && settings.streams == 1;
        self.ways = Ways::of_receiving(self.receiving, is_plain, settings.verify);
        let fits = self.receiving.filter(|_| !is_plain).map_or(Ok(()), |setup| Err(Error::Method(setup.method)));
        if let Err(why) = fits.and_then(|()| self.desk.begin(&settings)) {
            self.channel.send(&FromReceiver::Refused(Reason(why.told())))?;
            return Err(why);
        }
        if settings.streams > 1 || settings.connection == Connection::PerFile {
            self.expect_others()?;
        }
        if let (None, Some(bytes)) = (settings.bytes, settings.at_most) {
            self.has_room = self.desk.begin(&Settings { bytes: Some(bytes), ..settings }).is_ok();
            self.channel.send(&FromReceiver::Room { is_enough: self.has_room })?;
        }
        loop {
            self.say_verdicts_in_time()?;
            match self.channel.receive()? {
                FromSender::Offer(entries) => self.decide(entries)?,
                FromSender::Keep { file, blocks } => self.keep_blocks(file, &blocks)?,
                FromSender::Abandoned { file, why } => self.abandoned(file, why)?,
                FromSender::Found { bytes } => self.found_all(bytes)?,
                FromSender::Split { file } => self.split(file)?,
                FromSender::Apart { file } => self.come_apart(file)?,
                FromSender::MayOthersJoin => self.invite()?,
                FromSender::HowMuch => self.say_how_much()?,
                FromSender::End => return self.end(),
                content => self.content_of_files(content)?,
            }
        }
    }

    /// All is found: that there is room for it, unless there was before it was known how much it is.
    fn found_all(&mut self, bytes: u64) -> Result<()> {
        if self.settings.bytes.is_some() || self.settings.at_most.is_none() {
            return Err(Error::Nonsense("it says again how much there is"));
        }
        let left = Settings { bytes: Some(bytes.saturating_sub(self.moved.amount.moved)), ..self.settings };
        if !self.has_room
            && let Err(why) = self.desk.begin(&left)
        {
            self.channel.send(&FromReceiver::Refused(Reason(why.told())))?;
            return Err(why);
        }
        self.settings.bytes = Some(bytes);
        Ok(())
    }

    /// Has content arrive.
    fn content_of_files(&mut self, message: FromSender) -> Result<()> {
        match message {
            FromSender::Batch { files, digest } => self.batch(&files, digest)?,
            FromSender::Block(piece) => self.block(&piece)?,
            FromSender::Hole(piece) => return self.hole(&piece),
            FromSender::Digests(digests) => return self.compare(digests),
            _ => return Err(Error::Nonsense("it neither offers nor sends anything, nor ends")),
        }
        self.say_how_far();
        Ok(())
    }

    /// Has the content of a file come over a connection of its own.
    fn come_apart(&mut self, file: Number) -> Result<()> {
        let streams = self.streams.as_ref().filter(|_| self.settings.connection == Connection::PerFile);
        let own = streams.ok_or(Error::Nonsense("it has one connection for all files"))?.of_file(file)?;
        self.apart.begin(own, self.channel);
        loop {
            match self.apart.or(self.channel).receive()? {
                FromSender::End => break,
                content => self.content_of_files(content)?,
            }
        }
        drop(self.apart.end(self.channel));
        self.ways.leave_socket();
        if let Some(streams) = &self.streams {
            streams.end_file(file);
        }
        // A sender is few connections ahead.
        self.say_verdicts()
    }

    /// Tells how much has arrived, now and then.
    fn say_how_far(&mut self) {
        if self.last_write.saturating_duration_since(self.last_told) < TOLD {
            return;
        }
        self.last_told = self.last_write;
        let arriving: u64 = self.arriving.iter().map(|arriving| arriving.deposit.amount.moved).sum();
        let (bytes, elapsed) = (self.moved.amount.moved + arriving, self.last_write.duration_since(self.begun));
        // Of what is there already, less comes.
        let of = self.settings.bytes.filter(|_| !self.settings.update && self.moved.amount.resumed == 0);
        (self.tell)(Event::Moving { bytes, of, elapsed });
    }

    /// Decides on entries, and answers.
    fn decide(&mut self, entries: Vec<Entry>) -> Result<()> {
        if self.wanted.len() + entries.len() > WINDOW {
            return Err(Error::Nonsense("it offers more files than it may before it sends them"));
        }
        let (mut decisions, mut resumed) = (Vec::new(), Vec::new());
        let mut parts = self.wanted.values().filter(|wanted| wanted.resumed.is_some()).count();
        self.desk.look_again();
        for mut entry in entries {
            let number = self.offered;
            self.offered = number.checked_add(1).ok_or(Error::TooMany)?;
            let (decision, deposit) = match self.desk.decide(&entry, &self.settings, parts < PARTS) {
                Ok(decided) => decided,
                Err(error) if error.is_of_one_file() => {
                    let told = Decision::Refused(Reason(error.told()));
                    (self.tell)(Event::Unkept(self.desk.path(&entry), error));
                    (told, None)
                }
                Err(error) => return Err(error),
            };
            if deposit.is_some() {
                parts += 1;
                resumed.push(number);
                // Its room was checked with what is there, and none is promised.
                without_room(&mut entry);
            }
            if matches!(decision, Decision::Wanted | Decision::Resumed) && !self.settings.dry_run {
                self.wanted.push(number, Wanted { entry, resumed: deposit.map(Box::new), said: 0 });
            }
            decisions.push(decision);
        }
        for some in decisions.chunks(IN_MESSAGE) {
            self.channel.queue(&FromReceiver::Decisions(some.to_vec()))?;
        }
        self.channel.flush()?;
        resumed.into_iter().try_for_each(|number| self.say_what_is_there(number))
    }

    /// Says which blocks of a file are there, as it reads them.
    fn say_what_is_there(&mut self, file: Number) -> Result<()> {
        let Some(wanted) = self.wanted.get_mut(file) else { return Ok(()) };
        let Some(part) = wanted.resumed.as_ref().and_then(|deposit| deposit.resumed()) else { return Ok(()) };
        let (mut first, mut some, mut last) = (0, Vec::new(), Instant::now());
        let mut send = |first: &mut u32, some: &mut Vec<Digest>, is_all| {
            let digests = std::mem::take(some);
            let more = digests.len() as u32;
            self.channel.send(&FromReceiver::Have { file, first: *first, digests, is_all })?;
            *first += more;
            Ok::<(), Error>(())
        };
        for digest in digests(part) {
            // A block that cannot be read is one that is not there, as are those behind it.
            let Ok(digest) = digest else { break };
            some.push(digest);
            wanted.said += 1;
            // A slow disk needs minutes for so many, and the sender, who waits for them, has its own blocks to read.
            if some.len() == DIGESTS || last.elapsed() >= SAID {
                send(&mut first, &mut some, false)?;
                last = Instant::now();
            }
        }
        send(&mut first, &mut some, true)
    }

    fn keep_blocks(&mut self, file: Number, bits: &[u8]) -> Result<()> {
        let wanted = self.wanted.get_mut(file).ok_or(Error::Nonsense(UNKNOWN))?;
        if blocks::end(bits) > std::mem::take(&mut wanted.said) {
            return Err(Error::Nonsense("it keeps blocks that are not there"));
        }
        let deposit = wanted.resumed.as_mut().ok_or(Error::Nonsense(UNKNOWN))?;
        deposit.keep_blocks(bits);
        if !deposit.is_whole() {
            return Ok(());
        }
        // However many others are arriving: it has no turn.
        match self.wanted.remove(file) {
            Some(Wanted { entry, resumed: Some(deposit), .. }) => {
                self.finish(Arriving { number: file, entry, deposit: *deposit, unchecked: 0 })
            }
            _ => Err(Error::Nonsense(UNKNOWN)),
        }
    }

    /// Has the whole content of small files arrive.
    fn batch(&mut self, files: &[Whole], digest: Option<Digest>) -> Result<()> {
        let bytes: usize = files.iter().map(|file| file.bytes as usize).sum();
        if files.len() > BATCH || bytes as u64 > BATCH_BYTES {
            return Err(Error::Nonsense("it sends too many files at once"));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        self.apart.or(self.channel).data_into(&mut buffer, bytes)?;
        let verify = self.settings.verify;
        let is_right = timed(&mut self.channel.times.verify, || {
            !verify || digest == Some(*kelvin_wire::hash(&buffer[..bytes]).as_bytes())
        });
        let mut content = &buffer[..bytes];
        for file in files {
            let own;
            (own, content) = content.split_at(file.bytes as usize);
            let wanted = self.wanted.remove(file.file).ok_or(Error::Nonsense(UNKNOWN))?;
            let written = if is_right { self.small(&wanted.entry, own) } else { Err(Error::Digest) };
            self.judge((file.file, &wanted.entry), written)?;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn small(&mut self, entry: &Entry, content: &[u8]) -> Result<Amount> {
        if !matches!(entry.kind, EntryKind::File { bytes, .. } if bytes == content.len() as u64) {
            return Err(Error::Nonsense("it sent another number of bytes than it had offered"));
        }
        let (desk, sync) = (&mut self.desk, self.settings.sync);
        let begun = Instant::now();
        let put = desk.put(entry, content, sync);
        let ended = self.channel.times.file_since(begun);
        put?;
        self.last_write = ended;
        Ok(Amount::sent(content.len() as u64))
    }

    /// Where the file of a piece is among those that arrive, if it has not failed.
    fn arriving(&mut self, piece: &Piece) -> Result<Option<usize>> {
        if u64::from(piece.bytes) > BLOCK {
            return Err(Error::Nonsense("a part of a block that is longer than a block"));
        }
        if self.failed.contains(&piece.file) {
            return Ok(None);
        }
        if self.place(piece.file).is_none() {
            self.begin(piece.file)?;
        }
        let Some(place) = self.place(piece.file) else { return Ok(None) };
        self.arriving[place].deposit.take(piece)?;
        Ok(Some(place))
    }

    fn place(&self, file: Number) -> Option<usize> {
        self.arriving.iter().position(|arriving| arriving.number == file)
    }

    /// Begins a wanted file; one that cannot be begun has failed.
    fn begin(&mut self, number: Number) -> Result<()> {
        let Wanted { entry, resumed, .. } = self.wanted.remove(number).ok_or(Error::Nonsense(UNKNOWN))?;
        if self.arriving.len() == UNENDED {
            return Err(Error::Nonsense("it begins more files than it may before it has ended others"));
        }
        let made = match resumed {
            Some(resumed) => Ok(*resumed),
            None => self.desk.deposit(&entry),
        };
        match made {
            Ok(deposit) => self.arriving.push_back(Arriving { number, entry, deposit, unchecked: 0 }),
            Err(why) => {
                self.has_failed(number);
                self.judge((number, &entry), Err(why))?;
                self.say_verdicts()?;
            }
        }
        Ok(())
    }

    /// What still comes of a file is passed over. The sender knows of its failure before it begins so many others.
    fn has_failed(&mut self, number: Number) {
        self.failed.push_back(number);
        if self.failed.len() > WINDOW {
            self.failed.pop_front();
        }
    }

    fn block(&mut self, piece: &Piece) -> Result<()> {
        let place = self.arriving(piece)?;
        let (digest, written) = self.content(piece, place)?;
        self.arrived += if written.is_ok() { u64::from(piece.bytes) } else { 0 };
        if self.settings.verify {
            if self.hashed.len() == CHECKS {
                return Err(Error::Nonsense("it sends more than it may before it says digests"));
            }
            self.hashed.push_back((piece.file, digest));
            if let Some(place) = place {
                self.arriving[place].unchecked += 1;
            }
        }
        match written {
            Ok(()) if place.is_some() => self.finish_whole(piece.file),
            Ok(()) => Ok(()),
            Err(why) => self.fail(piece.file, why),
        }
    }

    /// Receives the bytes of a piece and writes them, unless its file has failed; their digest, and whether they were written.
    fn content(&mut self, piece: &Piece, place: Option<usize>) -> Result<(Digest, Result<()>)> {
        let Some(place) = place else { return self.by_parts(piece, None) };
        let (digest, mut written) = if self.arriving[place].deposit.is_dropped() && !self.settings.verify {
            self.apart.or(self.channel).pass_over(piece.bytes as usize, &mut self.buffer)?;
            self.arriving[place].deposit.count(piece.bytes.into());
            (Digest::default(), Ok(()))
        } else {
            self.by_its_way(piece, place)?
        };
        self.last_write = Instant::now();
        if written.is_ok() && self.settings.sync {
            let deposit = &mut self.arriving[place].deposit;
            written = timed(&mut self.channel.times.sync, || deposit.flush_some());
        }
        Ok((digest, written))
    }

    /// By the way that is due.
    fn by_its_way(&mut self, piece: &Piece, place: usize) -> Result<(Digest, Result<()>)> {
        let channel = self.apart.or(self.channel);
        let next = self.ways.next(|| channel.socket());
        let (number, mut way) = next.map_err(WireError::call("set up the connection"))?;
        let begun = Instant::now();
        let received = match &mut way {
            Way::Parts => self.by_parts(piece, Some(place)),
            Way::Path(path) => self.by_path(path, piece, place),
        };
        self.ways.took((number, way), piece.bytes.into(), begun);
        received
    }

    /// By way of a buffer.
    fn by_parts(&mut self, piece: &Piece, place: Option<usize>) -> Result<(Digest, Result<()>)> {
        let mut deposit = place.map(|place| &mut self.arriving[place].deposit);
        let write = |part: &[u8], offset| deposit.as_mut().map_or(Ok(()), |deposit| deposit.write(part, offset));
        self.apart.or(self.channel).content((piece, self.settings.verify), &mut self.buffer, write)
    }

    /// By a method of its own, past the channel.
    fn by_path(&mut self, path: &mut ReceivePath, piece: &Piece, place: usize) -> Result<(Digest, Result<()>)> {
        let ReceiveSetup { method, .. } = path.setup();
        let is_seen = self.settings.verify && method.shows_bytes();
        let deposit = &mut self.arriving[place].deposit;
        let mut hasher = Hasher::new();
        // What came with messages is in no socket any more.
        let come = self.apart.or(self.channel).come(piece.bytes as usize)?;
        if is_seen {
            hasher.update(come);
        }
        let (mut rest, mut written) = (piece.bytes as usize - come.len(), deposit.write(come, piece.offset));
        let (begun, mut hashing) = (Instant::now(), 0);
        if written.is_ok() {
            let mut see = |part: &[u8]| {
                timed(&mut hashing, || {
                    hasher.update(part);
                });
            };
            let meter = self.apart.or(self.channel).incoming();
            (rest, written) = receive_rest((path, meter), (&mut *deposit, piece), rest, is_seen.then_some(&mut see))?;
        }
        self.channel.times.verify += hashing;
        self.channel.times.connection += (begun.elapsed().as_nanos() as u64).saturating_sub(hashing);
        self.apart.or(self.channel).pass_over(rest, &mut self.buffer)?;
        if is_seen || !self.settings.verify || written.is_err() {
            return Ok((*hasher.finalize().as_bytes(), written));
        }
        let read = timed(&mut self.channel.times.verify, || deposit.read_again(piece, &mut self.buffer));
        Ok(read.map_or_else(|why| (Digest::default(), Err(why)), |digest| (digest, Ok(()))))
    }

    fn hole(&mut self, piece: &Piece) -> Result<()> {
        let Some(place) = self.arriving(piece)? else { return Ok(()) };
        match self.arriving[place].deposit.hole(piece) {
            Ok(()) => self.finish_whole(piece.file),
            Err(why) => self.fail(piece.file, why),
        }
    }

    /// Compares the digests of the next pieces with those of what has arrived.
    fn compare(&mut self, digests: Vec<Digest>) -> Result<()> {
        for sent in digests {
            let (file, own) = self.hashed.pop_front().ok_or(Error::Nonsense("it says the digest of nothing"))?;
            let Some(place) = self.place(file) else { continue };
            self.arriving[place].unchecked -= 1;
            if own == sent {
                self.finish_whole(file)?;
            } else {
                self.fail(file, Error::Digest)?;
            }
        }
        Ok(())
    }

    /// Keeps a file that arrives, if it is whole.
    fn finish_whole(&mut self, file: Number) -> Result<()> {
        let Some(place) = self.place(file) else { return Ok(()) };
        let Arriving { deposit, unchecked, .. } = &self.arriving[place];
        if *unchecked > 0 || !deposit.is_whole() {
            return Ok(());
        }
        self.arriving.remove(place).map_or(Ok(()), |whole| self.finish(whole))
    }

    fn finish(&mut self, Arriving { number, entry, mut deposit, .. }: Arriving) -> Result<()> {
        self.unsplit(number);
        let sync = self.settings.sync;
        let times = &mut self.channel.times;
        let described = times.file(|| {
            if let EntryKind::File { bytes, .. } = entry.kind {
                deposit.cut(bytes)?;
            }
            deposit.describe(&entry)
        });
        // A file that is replaced goes, and must not be all that a crash would have left.
        let flushed = match sync || deposit.replaces() {
            true => described.and_then(|()| timed(&mut times.sync, || deposit.flush())),
            false => described,
        };
        let amount = deposit.amount;
        let kept = flushed.and_then(|()| times.file(|| deposit.keep(&entry)));
        self.judge((number, &entry), kept.map(|()| amount))?;
        self.say_verdicts()
    }

    /// A file that arrives has failed; the sender learns it at once.
    fn fail(&mut self, file: Number, why: Error) -> Result<()> {
        let Some(arriving) = self.place(file).and_then(|place| self.arriving.remove(place)) else { return Ok(()) };
        let Arriving { number, entry, deposit, .. } = arriving;
        drop(deposit);
        self.unsplit(number);
        self.has_failed(number);
        self.judge((number, &entry), Err(why))?;
        self.say_verdicts()
    }

    fn abandoned(&mut self, file: Number, why: String) -> Result<()> {
        self.unsplit(file);
        let arriving = self.place(file).and_then(|place| self.arriving.remove(place));
        let own = arriving.as_ref().and_then(|arriving| arriving.deposit.failure());
        let arriving = arriving.map(|arriving| arriving.entry);
        let entry = arriving.or_else(|| self.wanted.remove(file).map(|wanted| wanted.entry));
        if let Some(entry) = entry {
            self.desk.arrived(&entry);
            (self.tell)(Event::Unkept(self.desk.path(&entry), own.unwrap_or(Error::Refused(why))));
        } else if !self.failed.contains(&file) {
            return Err(Error::Nonsense(UNKNOWN));
        }
        self.failed.retain(|failed| *failed != file);
        Ok(())
    }

    /// How a file ended.
    fn judge(&mut self, (file, entry): (Number, &Entry), ended: Result<Amount>) -> Result<()> {
        let why = match ended {
            Ok(amount) => {
                self.moved.add(entry, &amount);
                (self.tell)(Event::Kept(self.desk.path(entry)));
                None
            }
            Err(why) if why.is_of_one_file() => {
                let told = why.told();
                (self.tell)(Event::Unkept(self.desk.path(entry), why));
                Some(Reason(told))
            }
            Err(why) => return Err(why.during(entry.name.as_os_str())),
        };
        self.desk.arrived(entry);
        self.verdicts.push(Verdict { file, why });
        Ok(())
    }

    /// Says how files ended once these are many, or before it waits for more: each message wakes the sender. Files that are flushed take
    /// so long that it is told at once.
    fn say_verdicts_in_time(&mut self) -> Result<()> {
        let may_wait = self.verdicts.len() < MANY_VERDICTS && !self.settings.sync;
        if self.verdicts.is_empty() || may_wait && self.channel.has_come()? { Ok(()) } else { self.say_verdicts() }
    }

    fn say_verdicts(&mut self) -> Result<()> {
        for some in std::mem::take(&mut self.verdicts).chunks(IN_MESSAGE) {
            self.channel.queue(&FromReceiver::Verdicts(some.to_vec()))?;
        }
        self.channel.flush()
    }

    fn end(&mut self) -> Result<Summary> {
        self.say_verdicts()?;
        if !self.arriving.is_empty() || !self.hashed.is_empty() {
            return Err(Error::Nonsense("it ends before a file has ended"));
        }
        let begun = Instant::now();
        if let Err(why) = self.desk.finish(&self.settings) {
            self.channel.send(&FromReceiver::Refused(Reason(why.told())))?;
            return Err(why);
        }
        self.channel.times.sync += if self.settings.sync { begun.elapsed().as_nanos() as u64 } else { 0 };
        let storage = self.desk.storage();
        let load = self.watch.load(self.channel.times, storage);
        let unwritten = match (storage, self.settings.sync) {
            (Storage::Disk | Storage::Served, false) => unwritten(self.moved.amount.moved),
            _ => None,
        };
        let is_predicted = self.moved.amount.moved > 0 && self.begun.elapsed() >= expected::LEAST;
        let costs = if is_predicted { self.costs() } else { None };
        let (since, received_by) = (self.last_write.elapsed().as_nanos() as u64, self.ways.method());
        self.channel.send(&FromReceiver::Finished(Finished { since, load, costs, unwritten, method: received_by }))?;
        let FromSender::Finish(measured) = self.channel.receive()? else {
            return Err(Error::Nonsense("it does not say what it measured"));
        };
        let Measured { nanoseconds, failed, load: sender, carried, expected, method, chosen } = *measured;
        let Settings { plain, verify, sync, connection, .. } = self.settings;
        let chosen = chosen.filter(|_| self.settings.streams == 1);
        Ok(Summary {
            moved: self.moved,
            failed,
            nanoseconds,
            verified: verify,
            encrypted: !plain,
            flushed: sync.then_some(since),
            streams: self.streams_used(chosen),
            chosen,
            connection,
            sender,
            receiver: load,
            carried,
            expected,
            unwritten,
            method,
            received_by,
        })
    }
}

/// Receives the last so many bytes of a piece into its file; how many of them are left to come, and whether the others were written.
fn receive_rest(
    (path, meter): (&mut ReceivePath, &mut ProgressMeter),
    (deposit, piece): (&mut Deposit, &Piece),
    rest: usize,
    seen: Seen<'_>,
) -> Result<(usize, Result<()>)> {
    let end = piece.offset + u64::from(piece.bytes);
    let is_mapped = path.setup().method == ReceiveMethod::Mmap;
    let file = match deposit.file_for(piece, is_mapped) {
        Ok(file) => file.ok_or(Error::Nonsense("bytes for a file that is none"))?,
        Err(why) => return Ok((rest, Err(why))),
    };
    let (taken, written) = match by_method::receive(path, meter, (file, end - rest as u64..end), seen)? {
        Received::All(bytes) if bytes < rest as u64 => return Err(WireError::Gone.into()),
        Received::All(bytes) => (bytes, Ok(())),
        Received::Unwritten(why, taken) => (taken, Err(FileError::call("write", deposit.path(), why).into())),
    };
    deposit.count(taken);
    Ok((rest - taken as usize, written))
}

/// What a sender did wrong.
const UNKNOWN: &str = "it sends a file that is not wanted";

/// Whether a file comes with others.
pub(crate) fn is_small(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File { bytes, stored } if bytes <= SMALL && stored >= bytes)
}

/// Takes from a file what it needs of the room.
fn without_room(entry: &mut Entry) {
    if let EntryKind::File { stored, .. } = &mut entry.kind {
        *stored = 0;
    }
}

/// Standard output as a file, for what arrives there.
///
/// # Errors
/// That it is closed, and those of duplicating a descriptor.
pub fn standard_output() -> std::io::Result<File> {
    use std::os::fd::AsFd;
    kelvin_sys::standard::output()?;
    Ok(std::io::stdout().as_fd().try_clone_to_owned()?.into())
}
