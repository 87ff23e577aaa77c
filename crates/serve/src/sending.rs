//! How what a connection has to send gets into its socket.

pub mod chosen;
mod mapped;
mod spliced;

use std::fmt;
use std::str::FromStr;

use chosen::{Answer, Choices, Chooser, Path, Peer};
use kelvin_sys::clock::monotonic;
use mapped::Mapped;
use rustix::fd::AsFd;
use rustix::fs::sendfile;
use rustix::io::{Errno, Result};
use rustix::net::{SendFlags, send};
use spliced::Spliced;

use crate::body::Part;
use crate::connection::{Connection, ToSend};
use crate::words;

/// By which calls the bytes of files go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    /// Small files as by [`Self::ReadWrite`], so that one call sends head and content; larger ones as by [`Self::Mmap`] or by
    /// [`Self::SendFile`], whichever clients of the same kind have answers of that size by the soonest: see [`chosen`].
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

/// All of them, by the words for them.
const WORDS: [(&str, Sending); 5] = [
    ("auto", Sending::Auto),
    ("rw", Sending::ReadWrite),
    ("mmap", Sending::Mmap),
    ("sendfile", Sending::SendFile),
    ("splice", Sending::Splice),
];

/// Bytes that are read at a time. They are sent as they are, with nothing held back for what follows (MSG_MORE): the client can
/// take one piece while the next one is read.
const PIECE: usize = 32 << 10;
/// Most bytes of one sendfile: others wait meanwhile for this thread, and a file that is not in memory is read in its time.
const CALL: u64 = 2 << 20;
/// Files up to this size are read behind their heads, so that one call sends both.
const INLINE: u64 = 16 << 10;

impl Sending {
    /// Size of the largest file that is read behind its head when it is answered with.
    pub fn inline(self) -> u64 {
        match self {
            Self::Auto | Self::ReadWrite => INLINE,
            Self::Mmap | Self::SendFile | Self::Splice => 0,
        }
    }

    /// Descriptors that each [`Sender`] has.
    pub fn descriptors(self) -> u64 {
        if self == Self::Splice { Spliced::DESCRIPTORS } else { 0 }
    }
}

/// Sends by the calls that were chosen, with what they need; each thread has its own.
#[derive(Debug)]
pub struct Sender(Calls);

#[derive(Debug)]
enum Calls {
    Auto(Mapped, Box<Chooser>),
    ReadWrite,
    Mmap(Mapped),
    SendFile,
    Splice(Spliced),
}

impl Sender {
    /// By these calls.
    pub fn new(sending: Sending) -> Self {
        Self(match sending {
            Sending::ReadWrite => Calls::ReadWrite,
            Sending::Mmap => Calls::Mmap(Mapped::default()),
            Sending::Auto => Calls::Auto(Mapped::default(), Box::default()),
            Sending::SendFile => Calls::SendFile,
            Sending::Splice => Calls::Splice(Spliced::default()),
        })
    }

    /// Makes one call to the socket for what is to be sent next, and says how many bytes it moved.
    ///
    /// # Errors
    /// What the call says: `AGAIN` of a socket that takes no more. A file that has become shorter than was said is an error, too.
    #[inline]
    pub fn send_some(&mut self, connection: &mut Connection, socket: impl AsFd) -> Result<usize> {
        match &mut self.0 {
            Calls::ReadWrite => connection.read_part(PIECE)?,
            Calls::Mmap(_) => mapped::read_last(connection)?,
            Calls::Auto(mapped, chooser) => {
                choose(mapped, chooser, connection);
                if connection.answer().is_some_and(|answer| answer.path == Path::Mmap) {
                    mapped::read_last(connection)?;
                }
            }
            Calls::SendFile | Calls::Splice(_) => {}
        }
        let sent = match connection.to_send() {
            Some(ToSend::Bytes(bytes, follows)) => {
                // Only a head is held back, for the part of a file that follows it by another call.
                let is_held = follows && !matches!(self.0, Calls::ReadWrite);
                let more = if is_held { SendFlags::MORE } else { SendFlags::empty() };
                send(socket, bytes, SendFlags::NOSIGNAL | more)?
            }
            Some(ToSend::Part(part)) => self.send_part(part, connection.answer(), socket)?,
            None => 0,
        };
        connection.sent(sent);
        Ok(sent)
    }

    /// Whether it chooses the calls by where a client is.
    pub fn asks_where_clients_are(&self) -> bool {
        matches!(self.0, Calls::Auto(..))
    }

    /// More has been received on a connection, or its end: whoever has the answer before has taken it.
    #[inline]
    pub fn received(&mut self, connection: &mut Connection) {
        if let Some(answer) = connection.take_answer()
            && let Calls::Auto(_, chooser) = &mut self.0
        {
            chooser.taken(answer, monotonic);
        }
    }

    /// What was chosen since it was asked last, if it chooses.
    pub fn take_choices(&mut self) -> Choices {
        match &mut self.0 {
            Calls::Auto(_, chooser) => std::mem::take(&mut chooser.choices),
            Calls::ReadWrite | Calls::Mmap(_) | Calls::SendFile | Calls::Splice(_) => Choices::default(),
        }
    }

    fn send_part(&mut self, part: &Part, answer: Option<Answer>, socket: impl AsFd) -> Result<usize> {
        let sent = match &mut self.0 {
            // Not every file system has files that can be mapped.
            Calls::Auto(mapped, _) => match answer.map(|answer| answer.path) {
                Some(Path::Mmap) if mapped.can_show(part) => mapped.send(part, &socket),
                Some(Path::Mmap | Path::SendFile) | None => return send_file(part, socket),
            },
            Calls::Mmap(mapped) => match mapped.can_show(part) {
                true => mapped.send(part, &socket),
                false => return send_file(part, socket),
            },
            Calls::ReadWrite | Calls::SendFile => return send_file(part, socket),
            Calls::Splice(spliced) => spliced.send(part, &socket),
        };
        sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// Chooses the calls of an answer that begins with a part of a file.
fn choose(mapped: &mut Mapped, chooser: &mut Chooser, connection: &mut Connection) {
    let Some(part) = connection.part() else { return };
    if connection.answer().is_some() {
        return;
    }
    let bytes = part.range.end - part.range.start;
    let peer = if connection.is_local() { Peer::Local } else { Peer::Remote };
    let mut answer = chooser.begin(peer, bytes, monotonic);
    // Not every file system has files that can be mapped.
    if answer.path == Path::Mmap && !mapped.can_show(part) {
        answer = answer.not_mapped();
    }
    connection.begin_answer(answer);
}

fn send_file(part: &Part, socket: impl AsFd) -> Result<usize> {
    let mut offset = part.range.start;
    let bytes = (part.range.end - part.range.start).min(CALL) as usize;
    match sendfile(socket, &part.opened.file, Some(&mut offset), bytes)? {
        0 => Err(Errno::IO),
        sent => Ok(sent),
    }
}

impl FromStr for Sending {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        words::find(&WORDS, word)
    }
}

impl fmt::Display for Sending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(words::of(&WORDS, self))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;
    use crate::connection::Wants;
    use crate::files::Files;
    use crate::root::Root;
    use crate::site::{Manner, Site};

    /// Three pages, and a part of one.
    const LENGTH: usize = 3 * 4096 + 100;

    /// What arrives of a file that is cut to this length after so many calls that sent something.
    fn cut(sending: Sending, calls: usize, length: u64) -> (Result<()>, Vec<u8>) {
        cut_for(sending, calls, length, false)
    }

    /// The same for a client on this host or elsewhere.
    fn cut_for(sending: Sending, calls: usize, length: u64, is_local: bool) -> (Result<()>, Vec<u8>) {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a");
        fs::write(&path, [7; LENGTH]).unwrap();
        let mut site = Site::new(Files::new(Arc::new(Root::open(top.path()).unwrap()), 4), Manner::default());
        let (mut connection, mut sender) = (Connection::default().local(is_local), Sender::new(sending));
        let (near, mut far) = UnixStream::pair().unwrap();
        connection.buffer(1).extend_from_slice(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        connection.received(28);
        connection.advance(&mut site);
        let mut sent = 0;
        let end = loop {
            if sent == calls {
                fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            }
            sent += 1;
            match sender.send_some(&mut connection, &near) {
                Ok(_) if connection.wants() == Wants::Send => {}
                end => break end.map(drop),
            }
        };
        drop(near);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        let head = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        (end, all.split_off(head))
    }

    #[test]
    fn no_answer_is_complete_of_a_file_that_was_cut_meanwhile() {
        for (_, sending) in WORDS {
            let (end, content) = cut(sending, usize::MAX, 0);
            assert!(end.is_ok() && content == [7; LENGTH], "{sending}");
            // The first call sends all that is read in one piece; of the others it sends the head.
            for length in [0, 1, 5000, 8192, LENGTH as u64 - 1].into_iter().filter(|_| sending != Sending::ReadWrite) {
                let (end, content) = cut(sending, 1, length);
                assert!(end.is_err() && content.len() < LENGTH, "{sending} {length}");
            }
        }
    }

    #[test]
    fn clients_on_this_host_get_mapped_files_and_others_what_sendfile_moves() {
        // After the head, all but the end goes in one call from a mapping; by sendfile all of it does.
        let half = |is_local| cut_for(Sending::Auto, 2, 3 * 4096 + 10, is_local).1.len();
        assert_eq!([half(true), cut(Sending::Mmap, 2, 3 * 4096 + 10).1.len()], [3 * 4096 + 10; 2]);
        assert_eq!([half(false), cut(Sending::SendFile, 2, 3 * 4096 + 10).1.len()], [LENGTH; 2]);
        let near = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(near.local_addr().unwrap()).unwrap();
        assert!(crate::house::is_local(&client).unwrap());
    }

    #[test]
    fn a_mapped_file_that_is_cut_within_a_page_is_not_sent_with_zeros_to_its_end() {
        // The head, then all but the end in one call, then the file is cut within the part that is left to be read.
        let (end, content) = cut(Sending::Mmap, 2, 3 * 4096 + 10);
        assert_eq!((end, content.len()), (Err(Errno::IO), 3 * 4096 + 10));
        assert!(content.iter().all(|&byte| byte == 7));
        let (end, content) = cut(Sending::Mmap, 2, 100);
        assert_eq!((end, content.len()), (Err(Errno::IO), 3 * 4096));
    }
}
