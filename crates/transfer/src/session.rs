//! One sender's session at the receiver: what it offers is decided on, and what it sends arrives.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use kelvin_file::Error as FileError;
use kelvin_wire::{Hash, Hasher};

use crate::blocks::BLOCK;
use crate::channel::{Channel, PART, Stream};
use crate::decide::Desk;
use crate::deposit::{Deposit, digests};
use crate::message::{
    Decision, Digest, Entry, EntryKind, Finished, FromReceiver, FromSender, Measured, Number, Piece, Reason, Settings,
    Verdict, Whole,
};
use crate::summary::{Amount, Summary, Times, timed};
use crate::{Error, Result};

/// Most files that are wanted and did not arrive yet; and most digests in a message.
pub const WINDOW: usize = 2048;
const DIGESTS: usize = 1024;
/// Most files of a batch.
pub const BATCH: usize = 256;
/// Most bytes of a file in a batch.
pub const SMALL: u64 = 64 << 10;
/// Most bytes of a batch.
pub const BATCH_BYTES: u64 = 1 << 20;
/// Decisions and verdicts in one message: each may carry a reason.
const IN_MESSAGE: usize = 128;

/// What happens in a session.
#[derive(Debug)]
pub enum Event {
    /// A sender was authenticated.
    Came,
    /// A file is in its place.
    Kept(PathBuf),
    /// A file was refused, or did not arrive whole: nothing of it is kept.
    Unkept(PathBuf, Error),
    /// The connection ended while a large file arrived; what arrived of it is left, to be gone on with.
    Left(PathBuf),
    /// A sender has finished.
    Done(Summary),
    /// A fault ended a sender's connection.
    Fault(Error),
    /// An unauthenticated connection was refused, or ended.
    TurnedAway(Error),
}

/// A file that is wanted.
struct Wanted {
    entry: Entry,
    /// It, if a part of it was there.
    resumed: Option<Deposit>,
}

/// The file that arrives in blocks.
struct Arriving {
    number: Number,
    entry: Entry,
    deposit: Deposit,
}

/// A sender that is being served.
pub(crate) struct Session<'a, S> {
    channel: &'a mut Channel<S>,
    desk: Desk,
    tell: &'a dyn Fn(Event),
    settings: Settings,
    /// How many entries were offered.
    offered: Number,
    wanted: HashMap<Number, Wanted>,
    arriving: Option<Arriving>,
    /// Files that failed and of which more may come: at most as many as are wanted at one time.
    failed: Vec<Number>,
    verdicts: Vec<Verdict>,
    /// Files in their place, and their bytes.
    moved: (u64, Amount),
    last_write: Instant,
}

impl<'a, S: Stream> Session<'a, S> {
    pub(crate) fn new(channel: &'a mut Channel<S>, desk: Desk, tell: &'a dyn Fn(Event)) -> Self {
        let settings = Settings { plain: false, verify: true, sync: false, update: false, dry_run: false, bytes: None };
        let (offered, wanted, arriving) = (0, HashMap::new(), None);
        let (failed, verdicts, last_write) = (Vec::new(), Vec::new(), Instant::now());
        Self {
            channel,
            desk,
            tell,
            settings,
            offered,
            wanted,
            arriving,
            failed,
            verdicts,
            moved: (0, Amount::default()),
            last_write,
        }
    }

    /// Has all its files arrive.
    pub(crate) fn serve(mut self) -> Result<Summary> {
        let served = self.run();
        let arriving = self.arriving.take();
        if served.is_err()
            && let Some(Arriving { deposit, .. }) = arriving
        {
            let path = deposit.path().to_owned();
            if deposit.leave() {
                (self.tell)(Event::Left(path));
            }
        }
        served
    }

    fn run(&mut self) -> Result<Summary> {
        let FromSender::Begin(settings) = self.channel.receive()? else {
            return Err(Error::Nonsense("it does not begin"));
        };
        self.settings = settings;
        self.channel.set_plain(settings.plain);
        if let Err(why) = self.desk.begin(&settings) {
            self.channel.send(&FromReceiver::Refused(Reason(why.told())))?;
            return Err(why);
        }
        loop {
            match self.channel.receive()? {
                FromSender::Offer(entries) => self.decide(entries)?,
                FromSender::Keep { file, blocks } => self.keep_blocks(file, &blocks)?,
                FromSender::Batch(files) => self.batch(files)?,
                FromSender::Block(piece) => self.block(&piece)?,
                FromSender::Hole(piece) => self.hole(&piece)?,
                FromSender::Abandoned { file, why } => self.abandoned(file, why)?,
                FromSender::End => return self.end(),
                _ => return Err(Error::Nonsense("it neither offers nor sends anything, nor ends")),
            }
        }
    }

    /// Decides on entries, and answers.
    fn decide(&mut self, entries: Vec<Entry>) -> Result<()> {
        if self.wanted.len() + entries.len() > WINDOW {
            return Err(Error::Nonsense("it offers more files than it may before it sends them"));
        }
        let (mut decisions, mut resumed) = (Vec::new(), Vec::new());
        for entry in entries {
            let number = self.offered;
            self.offered = number.checked_add(1).ok_or(Error::TooMany)?;
            let (decision, deposit) = match self.desk.decide(&entry, &self.settings) {
                Ok(decided) => decided,
                Err(error) if error.is_of_one_file() => {
                    let told = Decision::Refused(Reason(error.told()));
                    (self.tell)(Event::Unkept(self.desk.path(&entry), error));
                    (told, None)
                }
                Err(error) => return Err(error),
            };
            if deposit.is_some() {
                resumed.push(number);
            }
            if matches!(decision, Decision::Wanted | Decision::Resumed) && !self.settings.dry_run {
                self.wanted.insert(number, Wanted { entry, resumed: deposit });
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
        let deposit = self.wanted.get(&file).and_then(|wanted| wanted.resumed.as_ref());
        let Some(part) = deposit.and_then(Deposit::resumed) else { return Ok(()) };
        let (mut first, mut some) = (0, Vec::new());
        let mut send = |first: &mut u32, some: &mut Vec<Digest>, is_all| {
            let message = FromReceiver::Have { file, first: *first, digests: std::mem::take(some), is_all };
            *first += DIGESTS as u32;
            self.channel.send(&message)
        };
        for digest in digests(part) {
            // A block that cannot be read is one that is not there, as are those behind it.
            let Ok(digest) = digest else { break };
            some.push(digest);
            if some.len() == DIGESTS {
                send(&mut first, &mut some, false)?;
            }
        }
        send(&mut first, &mut some, true)
    }

    fn keep_blocks(&mut self, file: Number, bits: &[u8]) -> Result<()> {
        let deposit = self.wanted.get_mut(&file).and_then(|wanted| wanted.resumed.as_mut());
        deposit.ok_or(Error::Nonsense(UNKNOWN))?.keep_blocks(bits);
        let is_whole = self.wanted[&file].resumed.as_ref().is_some_and(Deposit::is_whole);
        if !is_whole {
            return Ok(());
        }
        self.begin(file)?;
        self.finish_whole()
    }

    /// Has the whole content of small files arrive.
    fn batch(&mut self, files: Vec<Whole>) -> Result<()> {
        let bytes: u64 = files.iter().map(|file| u64::from(file.bytes)).sum();
        if files.len() > BATCH || bytes > BATCH_BYTES {
            return Err(Error::Nonsense("it sends too many files at once"));
        }
        let mut content = Vec::new();
        for file in files {
            self.channel.data_whole(file.bytes as usize, &mut content)?;
            let wanted = self.wanted.remove(&file.file).ok_or(Error::Nonsense(UNKNOWN))?;
            let written = self.small(&wanted.entry, &file, &content);
            self.judge((file.file, &wanted.entry), written)?;
        }
        self.say_verdicts()
    }

    fn small(&mut self, entry: &Entry, file: &Whole, content: &[u8]) -> Result<Amount> {
        if let EntryKind::File { bytes, .. } = entry.kind
            && bytes != u64::from(file.bytes)
        {
            return Err(Error::Nonsense("it sent another number of bytes than it had offered"));
        }
        let times = &mut self.channel.times;
        timed(&mut times.verify, || check(self.settings.verify, file.digest, || kelvin_wire::hash(content)))?;
        let begun = Instant::now();
        self.desk.put(entry, content, self.settings.sync)?;
        self.last_write = Instant::now();
        self.channel.times.file += begun.elapsed().as_nanos() as u64;
        Ok(Amount::sent(content.len() as u64))
    }

    /// The file of a piece, if it has not failed.
    fn arriving(&mut self, piece: &Piece) -> Result<Option<&mut Arriving>> {
        if self.failed.contains(&piece.file) {
            return Ok(None);
        }
        if self.arriving.as_ref().is_none_or(|arriving| arriving.number != piece.file) {
            if self.arriving.is_some() {
                return Err(Error::Nonsense("it begins a file before it has ended another"));
            }
            self.begin(piece.file)?;
        }
        let Some(arriving) = &mut self.arriving else { return Ok(None) };
        arriving.deposit.take(piece)?;
        Ok(Some(arriving))
    }

    /// Begins a wanted file; one that cannot be begun has failed.
    fn begin(&mut self, number: Number) -> Result<()> {
        let Wanted { entry, resumed } = self.wanted.remove(&number).ok_or(Error::Nonsense(UNKNOWN))?;
        let made = match resumed {
            Some(resumed) => Ok(resumed),
            None => self.desk.deposit(&entry),
        };
        match made {
            Ok(deposit) => self.arriving = Some(Arriving { number, entry, deposit }),
            Err(why) => {
                self.judge((number, &entry), Err(why))?;
                self.failed.push(number);
                self.say_verdicts()?;
            }
        }
        Ok(())
    }

    fn block(&mut self, piece: &Piece) -> Result<()> {
        if u64::from(piece.bytes) > BLOCK {
            return Err(Error::Nonsense("a part of a block that is longer than a block"));
        }
        let is_there = self.arriving(piece)?.is_some();
        let (digest, written) = self.content(piece, is_there)?;
        let ended = match self.channel.receive()? {
            FromSender::Sent { digest: sent } => check(self.settings.verify, sent, || digest),
            FromSender::Abandoned { file, why } if file == piece.file => Err(Error::Refused(why)),
            _ => return Err(Error::Nonsense("it does not say how a block ended")),
        };
        if !is_there {
            return Ok(());
        }
        self.end_piece(written.and(ended))
    }

    /// Receives the bytes of a piece and writes them, unless its file has failed.
    fn content(&mut self, piece: &Piece, is_there: bool) -> Result<(Hash, Result<()>)> {
        let (mut hasher, mut done, mut written) = (Hasher::new(), 0, Ok(()));
        let mut times = Times::default();
        let mut deposit = self.arriving.as_mut().filter(|_| is_there).map(|arriving| &mut arriving.deposit);
        while done < piece.bytes {
            let part = self.channel.data(PART.min((piece.bytes - done) as usize))?;
            if self.settings.verify {
                timed(&mut times.verify, || hasher.update(part));
            }
            if let (Some(deposit), Ok(())) = (&mut deposit, &written) {
                written = timed(&mut times.file, || deposit.write(part, piece.offset + u64::from(done)));
            }
            done += part.len() as u32;
        }
        self.last_write = Instant::now();
        if let (Some(deposit), Ok(()), true) = (&mut deposit, &written, self.settings.sync) {
            written = timed(&mut times.sync, || deposit.flush_some());
        }
        self.channel.times.add(&times);
        Ok((hasher.finalize(), written))
    }

    fn hole(&mut self, piece: &Piece) -> Result<()> {
        let Some(arriving) = self.arriving(piece)? else { return Ok(()) };
        let made = arriving.deposit.hole(piece);
        self.end_piece(made)
    }

    /// Goes on after a piece: with the next one, or the end of a file.
    fn end_piece(&mut self, written: Result<()>) -> Result<()> {
        match written {
            Ok(()) => self.finish_whole(),
            Err(why) => self.fail(why),
        }
    }

    /// Keeps the file that arrives, if it is whole.
    fn finish_whole(&mut self) -> Result<()> {
        let Some(Arriving { number, entry, deposit }) = self.arriving.take_if(|one| one.deposit.is_whole()) else {
            return Ok(());
        };
        let begun = Instant::now();
        let cut = match entry.kind {
            EntryKind::File { bytes, .. } => deposit.cut(bytes),
            _ => Ok(()),
        };
        let amount = deposit.amount;
        let kept = cut.and_then(|()| deposit.keep(&entry, self.settings.sync)).map(|()| amount);
        self.channel.times.file += begun.elapsed().as_nanos() as u64;
        self.judge((number, &entry), kept)?;
        self.say_verdicts()
    }

    /// The file that arrives has failed; the sender learns it at once.
    fn fail(&mut self, why: Error) -> Result<()> {
        let Some(Arriving { number, entry, deposit }) = self.arriving.take() else { return Ok(()) };
        drop(deposit);
        self.failed.push(number);
        self.judge((number, &entry), Err(why))?;
        self.say_verdicts()
    }

    fn abandoned(&mut self, file: Number, why: String) -> Result<()> {
        if self.arriving.as_ref().is_some_and(|arriving| arriving.number == file) {
            let Some(Arriving { entry, .. }) = self.arriving.take() else { return Ok(()) };
            (self.tell)(Event::Unkept(self.desk.path(&entry), Error::Refused(why)));
        } else if let Some(wanted) = self.wanted.remove(&file) {
            (self.tell)(Event::Unkept(self.desk.path(&wanted.entry), Error::Refused(why)));
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
                self.moved.0 += 1;
                self.moved.1.add(&amount);
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

    fn say_verdicts(&mut self) -> Result<()> {
        for some in std::mem::take(&mut self.verdicts).chunks(IN_MESSAGE) {
            self.channel.queue(&FromReceiver::Verdicts(some.to_vec()))?;
        }
        self.channel.flush()
    }

    fn end(&mut self) -> Result<Summary> {
        if self.arriving.is_some() {
            return Err(Error::Nonsense("it ends before a file has ended"));
        }
        let begun = Instant::now();
        self.desk.finish(&self.settings)?;
        self.channel.times.sync += if self.settings.sync { begun.elapsed().as_nanos() as u64 } else { 0 };
        let (times, unwritten) = (self.channel.times, None);
        let since = self.last_write.elapsed().as_nanos() as u64;
        self.channel.send(&FromReceiver::Finished(Finished { since, times, unwritten }))?;
        let FromSender::Finish(Measured { nanoseconds, failed, times: sender }) = self.channel.receive()? else {
            return Err(Error::Nonsense("it does not say what it measured"));
        };
        let (files, amount) = self.moved;
        let Settings { plain, verify, sync, .. } = self.settings;
        let (verified, encrypted) = (verify, !plain);
        Ok(Summary { files, amount, failed, nanoseconds, verified, encrypted, synced: sync, sender, receiver: times })
    }
}

/// What a sender did wrong.
const UNKNOWN: &str = "it sends a file that is not wanted";

/// That the digest of what arrived is the one that was sent, if any is compared.
fn check(verify: bool, sent: Option<Digest>, arrived: impl FnOnce() -> Hash) -> Result<()> {
    match sent {
        _ if !verify => Ok(()),
        Some(sent) if arrived() == Hash::from_bytes(sent) => Ok(()),
        _ => Err(Error::Digest),
    }
}

/// Standard output as a file, for what arrives there.
///
/// # Errors
/// Those of duplicating a descriptor.
pub fn standard_output() -> Result<File> {
    use std::os::fd::AsFd;
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    Ok(output.map_err(|error| FileError::call("open", std::path::Path::new("-"), error))?.into())
}
