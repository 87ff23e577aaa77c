//! The files that a receiver wants, sent one after the other: small ones together, large ones block by block.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use kelvin_file::{Error as FileError, may_overstate};
use kelvin_sys::interrupt;
use kelvin_sys::mapping::{FileMapping, has_no_mappings};
use kelvin_wire::Hasher;

use super::{Sending, Unsent, Wanted};
use crate::blocks::{self, BLOCK, bit};
use crate::channel::{PART, Stream};
use crate::load::timed;
use crate::message::{EntryKind, FromSender, Number, Piece, Whole};
use crate::moving::SendMethod;
use crate::session::{BATCH, BATCH_BYTES, is_small};
use crate::source::Source;
use crate::summary::Amount;
use crate::{Error, Result};

impl<S: Stream> Sending<'_, S> {
    /// Sends the next file, or as many small ones as go together.
    pub(super) fn send_next(&mut self, wanted: Wanted) -> Result<()> {
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
        let (mut files, mut content, mut filled) = (Vec::new(), self.take_buffer(), 0);
        let most = self.pace.most(BATCH_BYTES);
        let mut next = Some(wanted);
        while let Some(Wanted { number, .. }) = next {
            let source = Arc::clone(&self.collection.sources[number]);
            let end = filled + source.bytes() as usize;
            match self.read_small(&source, &mut content[filled..=end]) {
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

    /// Reads the content of a small file, as [`read_whole`] does.
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
        self.unsent.push(Unsent { path: source.shown().to_owned(), why });
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
            Ok(file) if source.entry.kind == EntryKind::Stream => self.send_stream((source, number), &file),
            Ok(file) => {
                self.without_attributes += u64::from(self.counts_attributes && source.has_attributes(&file));
                let is_right = source.check(&file).and_then(|()| self.check_mapping(source, &file));
                is_right.and_then(|()| self.send_blocks(source, wanted, &file))
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

    /// That a file can be mapped, where it is to be sent so whatever else there is.
    fn check_mapping(&self, source: &Source, file: &File) -> Result<()> {
        let is_mapped = self.manner.moving.is_some_and(|setup| setup.method == SendMethod::Mmap);
        if is_mapped && FileMapping::whole(file, 1).is_err_and(|error| has_no_mappings(&error)) {
            return Err(FileError::NoMapping { path: source.path.clone() }.into());
        }
        Ok(())
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
    pub(super) fn is_still_wanted(&mut self, number: usize) -> Result<bool> {
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
            source.check_end(file)?;
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
        let mut buffer = self.take_buffer();
        let content = &mut buffer[..bytes as usize];
        let read = self.channel.times.file(|| file.read_exact_at(content, end.offset));
        let is_right = read.map_err(|_| shortened(source, file)).and_then(|()| source.check_end(file));
        let sent = is_right.and_then(|()| self.send_end(end, content));
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
    pub(super) fn send_piece(&mut self, source: &Source, file: &File, piece: Piece) -> Result<()> {
        self.apart.or(self.channel).queue(&FromSender::Block(piece))?;
        self.count(piece.file as usize, |amount| amount.moved += u64::from(piece.bytes));
        let range = (piece.offset, u64::from(piece.bytes));
        let is_whole = self.send_range(file, range)?;
        if is_whole { Ok(()) } else { Err(shortened(source, file)) }
    }

    /// Sends what is read from a pipe, or a file that states no size, until its end.
    fn send_stream(&mut self, (source, number): (&Source, usize), input: &File) -> Result<()> {
        let mut offset = 0;
        let mut buffer = vec![0; self.pace.most(PART as u64) as usize];
        loop {
            let read = self.channel.times.file(|| read(input, &mut buffer));
            let count = read.map_err(|error| FileError::call("read", source.shown(), error))?;
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
}

/// Reads the content of a small file, if it is what was offered, into room for a byte more: that there is none shows its end without
/// another call.
pub(super) fn read_whole(source: &Source, mut file: File, content: &mut [u8]) -> Result<()> {
    let (bytes, mut done) = (source.bytes() as usize, 0);
    let read = loop {
        match file.read(&mut content[done..]) {
            Ok(0) => break Ok(()),
            Ok(read) => done += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
        if done >= bytes {
            break Ok(());
        }
    };
    // A file that was written says so itself.
    source.check(&file)?;
    read.map_err(|error| FileError::call("read", &source.path, error))?;
    match done.cmp(&bytes) {
        Ordering::Less => Err(source.changed(format!("it ended after {done} of {bytes} bytes"))),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(source.longer()),
    }
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
pub(super) fn shortened(source: &Source, file: &File) -> Error {
    // Its time of modification is that of the first look at it.
    if may_overstate(source.shown()) {
        return FileError::Overstated { path: source.shown().to_owned(), bytes: source.bytes() }.into();
    }
    match source.check(file) {
        Err(changed) => changed,
        Ok(()) => source.changed("some of its bytes could not be read".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::source::{Collection, Keep};

    /// A file of /sys states a page, and may have another time of modification at each look.
    #[test]
    fn a_file_of_the_kernel_that_has_fewer_bytes_than_it_states_was_not_changed() {
        let path = PathBuf::from("/sys/devices/system/cpu/online");
        let found = Collection::of(&[path], Keep::default()).unwrap();
        let mut source = Source::clone(&found.sources[0]);
        source.entry.modified.seconds -= 1;
        let why = shortened(&source, &source.open().unwrap()).to_string();
        assert!(why.ends_with("states 4096 bytes and has fewer, as files of the kernel do (/sys, /proc)"), "{why}");
    }
}
