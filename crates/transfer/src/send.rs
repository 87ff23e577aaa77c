//! The sending end: regular files that the user named, read and sent one after the other over one connection.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelvin_file::{Access, Target};
use kelvin_sys::interrupt;
use kelvin_wire::address::is_loopback;
use kelvin_wire::secret::Secret;
use kelvin_wire::{Error as WireError, Hasher};

use crate::channel::{Channel, PART};
use crate::message::{FromReceiver, FromSender, Header, Modified, Settings};
use crate::name::Name;
use crate::summary::{Summary, timed};
use crate::{Error, Result, handshake};

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// A file to be sent, as it was when it was found.
#[derive(Clone, Debug)]
pub struct Outgoing {
    target: Target,
    name: Name,
}

impl Outgoing {
    /// Finds it. A symbolic link is followed, and sent by its own name.
    ///
    /// # Errors
    /// What is no regular file, or may not be read.
    pub fn find(path: &Path) -> Result<Self> {
        let target = Target::find(path)?;
        let name = Name::of(path).map_err(|why| {
            let source = std::io::Error::new(ErrorKind::InvalidInput, why);
            kelvin_file::Error::call("send", path, source)
        })?;
        Ok(Self { target, name })
    }

    /// Its size, in bytes.
    pub fn bytes(&self) -> u64 {
        self.target.bytes()
    }

    /// The name that it is sent by.
    pub fn name(&self) -> &Name {
        &self.name
    }

    fn header(&self, file: &File) -> Result<Header> {
        let failed = |error| kelvin_file::Error::call("look at", self.target.path(), error);
        let found = file.metadata().map_err(failed)?;
        let modified = Modified { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 };
        Ok(Header { name: self.name.clone(), bytes: self.bytes(), mode: found.mode() & 0o777, modified })
    }
}

/// A file that was not moved, and why.
#[derive(Debug)]
pub struct Unsent {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
}

/// A connection to a receiver.
pub struct Sender {
    channel: Channel,
    settings: Settings,
    begun: Instant,
    /// When the receiver had the last byte so far.
    arrived: Instant,
    /// Files moved, and their bytes.
    moved: (u64, u64),
}

impl Sender {
    /// Connects to the first of these addresses that answers, and shakes hands.
    ///
    /// # Errors
    /// No answer; another host without a secret; a receiver of another version or secret, or without a place.
    pub fn connect(addresses: &[SocketAddr], secret: &Secret, settings: Settings) -> Result<Self> {
        let begun = Instant::now();
        if let Some(&address) = addresses.iter().find(|address| !secret.is_some() && !is_loopback(**address)) {
            return Err(Error::Open { address });
        }
        let mut stream = connect(addresses)?;
        stream.set_nodelay(true).map_err(WireError::call("set up the connection"))?;
        let noise = handshake::sender(&mut stream, secret)?;
        let mut channel = Channel::new(stream, noise);
        channel.set_plain(settings.plain);
        Ok(Self { channel, settings, begun, arrived: begun, moved: (0, 0) })
    }

    /// Sends files, and finishes. `progress` sees the bytes sent so far.
    ///
    /// # Errors
    /// A broken connection, or a signal. What concerns one file alone is returned beside the summary.
    pub fn send(mut self, files: &[Outgoing], progress: &dyn Fn(u64)) -> Result<(Summary, Vec<Unsent>)> {
        self.channel.send(&FromSender::Begin(self.settings))?;
        let (mut unsent, mut before) = (Vec::new(), 0);
        for outgoing in files {
            match self.file(outgoing, &|sent| progress(before + sent)) {
                Ok(()) => self.moved = (self.moved.0 + 1, self.moved.1 + outgoing.bytes()),
                Err(why) if why.is_of_one_file() => {
                    unsent.push(Unsent { path: outgoing.target.path().to_owned(), why });
                }
                Err(error) => return Err(error.during(outgoing.name())),
            }
            before += outgoing.bytes();
        }
        let summary = self.finish(unsent.len() as u64)?;
        Ok((summary, unsent))
    }

    fn file(&mut self, outgoing: &Outgoing, progress: &dyn Fn(u64)) -> Result<()> {
        let mut file = outgoing.target.open(Access::Buffered)?;
        self.channel.send(&FromSender::File(outgoing.header(&file)?))?;
        match self.channel.receive()? {
            FromReceiver::Go => {}
            FromReceiver::Failed { why } => return Err(Error::Refused(why)),
            _ => return Err(Error::Nonsense("it neither accepts nor refuses a file")),
        }
        let sent = match self.content(outgoing, &mut file, progress) {
            Err(error) if !error.is_of_one_file() => return Err(error),
            sent => sent,
        };
        self.channel.send(&match &sent {
            Ok(digest) => FromSender::Whole { digest: *digest },
            Err(why) => FromSender::Abandoned { why: why.told() },
        })?;
        match (self.channel.receive()?, sent) {
            (FromReceiver::Kept { after }, Ok(_)) => {
                self.arrived = Instant::now().checked_sub(Duration::from_nanos(after)).unwrap_or(self.begun);
                Ok(())
            }
            // What was said first is why it was abandoned.
            (FromReceiver::Failed { why }, Ok(_) | Err(Error::Refused(_))) => Err(Error::Refused(why)),
            (FromReceiver::Failed { .. }, Err(why)) => Err(why),
            _ => Err(Error::Nonsense("it neither keeps a file nor refuses it")),
        }
    }

    /// Sends the bytes of a file, and returns their digest. If they cannot all be sent, the receiver expects no more of them.
    fn content(&mut self, outgoing: &Outgoing, file: &mut File, progress: &dyn Fn(u64)) -> Result<Option<[u8; 32]>> {
        let mut left = outgoing.bytes();
        let mut hasher = self.settings.verify.then(Hasher::new);
        let mut part = vec![0; PART.min(left as usize)];
        let sent = loop {
            let room = part.len().min(left.try_into().unwrap_or(usize::MAX));
            if room == 0 {
                break outgoing.target.check_unchanged().map_err(Error::File);
            }
            match self.next(outgoing, file, &mut part[..room]) {
                Ok(read) => {
                    if let Some(hasher) = &mut hasher {
                        timed(&mut self.channel.times.verify, || hasher.update(&part[..read]));
                    }
                    self.channel.send_part(&part[..read])?;
                    left -= read as u64;
                    progress(outgoing.bytes() - left);
                }
                Err(error) => break Err(error),
            }
        };
        if left > 0 && sent.as_ref().is_err_and(Error::is_of_one_file) {
            self.channel.send_part(&[])?;
        }
        sent.map(|()| hasher.map(|hasher| *hasher.finalize().as_bytes()))
    }

    /// Reads the next part of a file, unless somebody wants no more of it.
    fn next(&mut self, outgoing: &Outgoing, file: &mut File, part: &mut [u8]) -> Result<usize> {
        if let Some(signal) = interrupt::requested() {
            return Err(Error::Interrupted(signal));
        }
        if self.channel.is_called()? {
            return Err(Error::Refused("the receiver wants no more of it".into()));
        }
        let path = outgoing.target.path();
        loop {
            match timed(&mut self.channel.times.file, || file.read(part)) {
                Ok(0) => {
                    outgoing.target.check_unchanged()?;
                    let what = "it ended before its size".to_owned();
                    return Err(kelvin_file::Error::Changed { path: path.to_owned(), what }.into());
                }
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == ErrorKind::Interrupted && interrupt::requested().is_none() => {}
                Err(error) => return Err(kelvin_file::Error::call("read", path, error).into()),
            }
        }
    }

    /// Tells the receiver what was measured here, and hears what was measured there.
    fn finish(mut self, failed: u64) -> Result<Summary> {
        let nanoseconds = self.arrived.duration_since(self.begun).as_nanos() as u64;
        let sender = self.channel.times;
        self.channel.send(&FromSender::Finish { nanoseconds, failed, times: sender })?;
        let FromReceiver::Times(receiver) = self.channel.receive()? else {
            return Err(Error::Nonsense("it does not say what it measured"));
        };
        let (files, bytes) = self.moved;
        let Settings { plain, verify } = self.settings;
        Ok(Summary { files, bytes, failed, nanoseconds, verified: verify, encrypted: !plain, sender, receiver })
    }
}

fn connect(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let mut last = ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(WireError::Call { doing: "connect to the receiver", source: last }.into())
}
