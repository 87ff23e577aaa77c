//! The bare protocol: files over a path of [`crate::datapath`], with the least framing there can be, to measure moving itself.
//!
//! Each file is a [`RawHeader`] of fixed size, its name, its bytes as they are, and their BLAKE3 digest if the header asks for it. After
//! it, one byte of the receiver if the header asks for that. What follows the last file is an end marker, a header of its own kind.
//! A sender keeps one connection for all files, or makes one for each; which of the two, the receiver is given beforehand.
//!
//! The socket of either end belongs to its process, or is in the kernel behind a device of kelvin's module.
//!
//! Nothing is encrypted and nobody is authenticated: both ends refuse a peer that is not this machine. The first process of this machine
//! that connects is taken for the sender. TCP reports nothing of its user, and to ask the kernel (/proc/net/tcp) would be measured with it.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_file::Error as FileError;
use kelvin_sys::kmod::{KernelSocket, KmodDevice, is_connecting};
use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::connect_prepared;
use kelvin_sys::net::transfer_call::MoreFollows;
use kelvin_sys::stop_signals;
use tempfile::TempPath;

use crate::datapath::{
    DataPath, IoCounts, Mode, PathMethod, PathSetup, ReceiveMethod, ReceivePath, ReceiveSetup, SendMethod, SendPath,
    SendSetup,
};
use crate::file_name::FileName;
use crate::message::{ConnectionLifetime, PERMISSION_BITS};
use crate::wire::address::is_loopback;
use crate::wire::{Hash, Hasher};
use crate::{Error, Result};

/// What was moved, at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawTotals {
    /// Files.
    pub files: u64,
    /// Their bytes, without framing.
    pub bytes: u64,
    /// What that took.
    pub counts: IoCounts,
}

/// What the receiver replies to a file that it has.
const REPLY_RECEIVED: u8 = 6;
/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// Moves the content of a file, and returns how many bytes have gone. Also what hashes them, if a digest is wanted and the method shows them.
fn transfer_content<M: PathMethod>(
    path: &mut DataPath<M>,
    file: &File,
    bytes: u64,
    digest: bool,
) -> Result<(u64, Option<Hasher>)> {
    let (is_observed, mut hasher) = (digest && path.setup.method.shows_bytes(), Hasher::new());
    let mut observe = |bytes: &[u8]| {
        hasher.update(bytes);
    };
    let observer = is_observed.then_some(&mut observe as &mut dyn FnMut(&[u8]));
    let moved = path.transfer(file, 0..bytes, observer).map_err(Error::Connection)?;
    Ok((moved, is_observed.then_some(hasher)))
}

/// The digest of the first bytes of a file: by what was observed, or read again where a method has moved them without showing them.
fn file_digest(observed: Option<Hasher>, file: &File, bytes: u64) -> Result<Hash> {
    if let Some(hasher) = observed {
        return Ok(hasher.finalize());
    }
    let read = || {
        let (mut hasher, mut reader) = (Hasher::new(), file.try_clone()?);
        io::Seek::rewind(&mut reader)?;
        io::copy(&mut reader.take(bytes), &mut hasher)?;
        Ok(hasher.finalize())
    };
    read().map_err(Error::Connection)
}

/// An error unless the other end is on this machine.
fn check_is_local(address: SocketAddr) -> Result<()> {
    if is_loopback(address) { Ok(()) } else { Err(Error::NotLocal(address)) }
}

/// Bytes of a header: magic (4), flags (2), length of the name (2), permissions (4), four zero bytes, size (8).
pub const HEADER_BYTES: usize = 24;

const FILE_MAGIC: [u8; 4] = *b"kfil";
const END_MAGIC: [u8; 4] = *b"kend";
const DIGEST_FLAG: u16 = 1;
const REPLY_FLAG: u16 = 2;
/// Most bytes of a name (NAME_MAX of limits.h).
const MAX_NAME_BYTES: u16 = 255;

/// What goes before a file, or after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawHeader {
    /// A file follows.
    File {
        /// Bytes of the name, which follows at once: 1 to 255.
        name: u16,
        /// Permissions, at most 0o777.
        mode: u32,
        /// Bytes of the content, which follow the name.
        size: u64,
        /// Whether a digest follows the content.
        digest: bool,
        /// Whether the receiver replies.
        reply: bool,
    },
    /// No file follows.
    End,
}

impl RawHeader {
    /// As it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let Self::File { name, mode, size, digest, reply } = self else {
            bytes[..4].copy_from_slice(&END_MAGIC);
            return bytes;
        };
        let flags = (if digest { DIGEST_FLAG } else { 0 }) | (if reply { REPLY_FLAG } else { 0 });
        bytes[..4].copy_from_slice(&FILE_MAGIC);
        bytes[4..6].copy_from_slice(&flags.to_le_bytes());
        bytes[6..8].copy_from_slice(&name.to_le_bytes());
        bytes[8..12].copy_from_slice(&mode.to_le_bytes());
        bytes[16..].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    /// As it arrived.
    ///
    /// # Errors
    /// Bytes that no header has.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        let read_u16 = |offset: usize| u16::from_le_bytes([bytes[offset], bytes[offset + 1]]);
        let read_u32 = |offset: usize| u32::from(read_u16(offset)) | u32::from(read_u16(offset + 2)) << 16;
        let (flags, name, mode) = (read_u16(4), read_u16(6), read_u32(8));
        let size = u64::from(read_u32(16)) | u64::from(read_u32(20)) << 32;
        if bytes[..4] == END_MAGIC {
            Error::ensure(bytes[4..] == [0; HEADER_BYTES - 4], "an end marker with more in it")?;
            return Ok(Self::End);
        }
        Error::ensure(bytes[..4] == FILE_MAGIC, "no header where one should be")?;
        let are_valid = flags & !(DIGEST_FLAG | REPLY_FLAG) == 0 && read_u32(12) == 0;
        Error::ensure(are_valid, "unknown flags in a header")?;
        Error::ensure((1..=MAX_NAME_BYTES).contains(&name), "a name of no or too many bytes")?;
        Error::ensure(mode & !PERMISSION_BITS == 0, "permissions that a file does not have")?;
        Ok(Self::File { name, mode, size, digest: flags & DIGEST_FLAG != 0, reply: flags & REPLY_FLAG != 0 })
    }
}

/// How files are sent.
#[derive(Clone, Copy, Debug)]
pub struct RawSendOptions {
    /// How bytes get into the socket.
    pub setup: SendSetup,
    /// How long a connection lasts.
    pub connection: ConnectionLifetime,
    /// Whether the next file waits for the receiver's reply.
    pub reply: bool,
    /// Whether a digest follows each file.
    pub digest: bool,
}

/// What is done to a socket before it connects.
pub type PrepareSocket = fn(BorrowedFd<'_>) -> std::io::Result<()>;

/// Makes the connection of the next file, or waits for it.
type Reconnect<'a, M> = dyn FnMut(&mut DataPath<M>) -> Result<()> + 'a;

/// Connects by a socket that is prepared, and sends these files, each by the last component of its path.
///
/// # Errors
/// An address of another machine, a file that cannot be read or that becomes shorter, a failed connection, a receiver that does
/// not reply.
pub fn send(
    files: &[PathBuf],
    address: SocketAddr,
    options: &RawSendOptions,
    prepare: PrepareSocket,
) -> Result<RawTotals> {
    let connect = || connect_local(address, options.setup.timeout, prepare);
    let mut path = SendPath::new(connect()?, options.setup).map_err(Error::Connection)?;
    let mut reconnect = |path: &mut SendPath| path.reconnect(connect()?).map_err(Error::Connection);
    send_all(&mut path, &mut reconnect, files, options)
}

fn connect_local(address: SocketAddr, timeout: Duration, prepare: PrepareSocket) -> Result<TcpStream> {
    check_is_local(address)?;
    let stream = connect_prepared(address, timeout, |socket| prepare(socket.as_fd())).map_err(Error::Connection)?;
    check_is_local(stream.peer_addr().map_err(Error::Connection)?)?;
    // Framing that nothing follows must not wait for an acknowledgement.
    stream.set_nodelay(true).map_err(Error::Connection)?;
    Ok(stream)
}

/// Sends them through a path that is connected.
fn send_all(
    path: &mut SendPath,
    reconnect: &mut Reconnect<'_, SendMethod>,
    files: &[PathBuf],
    options: &RawSendOptions,
) -> Result<RawTotals> {
    let mut totals = RawTotals::default();
    for (number, file) in files.iter().enumerate() {
        if number > 0 && options.connection == ConnectionLifetime::PerFile {
            path.finish().map_err(Error::Connection)?;
            reconnect(path)?;
        }
        totals.bytes += send_file(path, file, options)?;
        totals.files += 1;
    }
    path.socket.write(&[IoSlice::new(&RawHeader::End.to_bytes())], MoreFollows::No).map_err(Error::Connection)?;
    path.finish().map_err(Error::Connection)?;
    Ok(RawTotals { counts: path.socket.counts, ..totals })
}

fn send_file(path: &mut SendPath, source: &Path, options: &RawSendOptions) -> Result<u64> {
    let file_error = |doing| move |error| Error::File(FileError::call(doing, source, error));
    let refusal = |why| Error::Refused(format!("{}: {why}", source.display()));
    let name = FileName::from_path(source).map_err(refusal)?;
    if name.as_os_str().len() > MAX_NAME_BYTES.into() {
        return Err(refusal("a name of more than 255 bytes"));
    }
    let file = File::open(source).map_err(file_error("open"))?;
    let metadata = file.metadata().map_err(file_error("stat"))?;
    let (name, size) = (Vec::from(name), metadata.len());
    let (mode, digest, reply) = (metadata.permissions().mode() & PERMISSION_BITS, options.digest, options.reply);
    let bytes = RawHeader::File { name: name.len() as u16, mode, size, digest, reply }.to_bytes();
    let framing = [IoSlice::new(&bytes), IoSlice::new(&name)];
    let follows = if size > 0 { MoreFollows::Yes } else { MoreFollows::No };
    path.socket.write(&framing, follows).map_err(Error::Connection)?;
    let (sent, hasher) = transfer_content(path, &file, size, options.digest)?;
    if sent < size {
        return Err(Error::Refused("the file became shorter while it was sent".into()));
    }
    if options.digest {
        let digest = file_digest(hasher, &file, size)?;
        path.socket.write(&[IoSlice::new(digest.as_bytes())], MoreFollows::No).map_err(Error::Connection)?;
    }
    if options.reply {
        let mut reply = [0];
        path.socket.fill(&mut reply).map_err(Error::Connection)?;
        Error::ensure(reply == [REPLY_RECEIVED], "an invalid reply")?;
    }
    Ok(size)
}

/// How files are received.
#[derive(Clone, Copy, Debug)]
pub struct RawReceiveOptions {
    /// How bytes get out of the socket.
    pub setup: ReceiveSetup,
    /// How long a connection lasts.
    pub connection: ConnectionLifetime,
    /// What is refused.
    pub limits: RawReceiveLimits,
}

/// How much a sender may send.
#[derive(Clone, Copy, Debug)]
pub struct RawReceiveLimits {
    /// Files.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Receives the files of one sender into new files of a directory. `on_received` is called for a file when its last byte is written and
/// it has its length, before its digest is looked at.
///
/// A file that does not arrive whole is removed. None is overwritten.
///
/// # Errors
/// A sender on another machine, one that breaks the protocol, is silent or sends more than the limits; a name that is taken; a
/// file that cannot be written; bytes that do not have the digest that was sent.
pub fn receive(
    listener: &TcpListener,
    directory: &Path,
    options: &RawReceiveOptions,
    on_received: &mut dyn FnMut(&Path),
) -> Result<RawTotals> {
    let mut path = ReceivePath::new(accept_local(listener)?, options.setup).map_err(Error::Connection)?;
    let mut reaccept = |path: &mut ReceivePath| path.reconnect(accept_local(listener)?).map_err(Error::Connection);
    receive_all(&mut path, &mut reaccept, directory, options, on_received)
}

fn accept_local(listener: &TcpListener) -> Result<TcpStream> {
    let (stream, peer) = listener.accept().map_err(Error::Connection)?;
    check_is_local(peer)?;
    stream.set_nodelay(true).map_err(Error::Connection)?;
    Ok(stream)
}

/// Receives them through a path that is connected.
fn receive_all(
    path: &mut ReceivePath,
    reaccept: &mut Reconnect<'_, ReceiveMethod>,
    directory: &Path,
    options: &RawReceiveOptions,
    on_received: &mut dyn FnMut(&Path),
) -> Result<RawTotals> {
    let mut totals = RawTotals::default();
    loop {
        let mut bytes = [0; HEADER_BYTES];
        let mut filled = path.socket.read(&mut bytes).map_err(Error::Connection)?;
        if filled == 0 && options.connection == ConnectionLifetime::PerFile && totals.files > 0 {
            reaccept(path)?;
            filled = path.socket.read(&mut bytes).map_err(Error::Connection)?;
        }
        Error::ensure(filled > 0, "the connection ended before the end marker")?;
        path.socket.fill(&mut bytes[filled..]).map_err(Error::Connection)?;
        let header = RawHeader::from_bytes(&bytes)?;
        let RawHeader::File { size, .. } = header else { break };
        let is_allowed =
            totals.files < options.limits.files && size <= options.limits.bytes.saturating_sub(totals.bytes);
        Error::ensure(is_allowed, "more files or bytes than the receiver takes")?;
        receive_file(path, &header, directory, on_received)?;
        totals.files += 1;
        totals.bytes += size;
    }
    Ok(RawTotals { counts: path.socket.counts, ..totals })
}

fn receive_file(
    path: &mut ReceivePath,
    header: &RawHeader,
    directory: &Path,
    on_received: &mut dyn FnMut(&Path),
) -> Result<()> {
    let &RawHeader::File { name, mode, size, digest, reply } = header else { return Ok(()) };
    let mut bytes = vec![0; usize::from(name)];
    path.socket.fill(&mut bytes).map_err(Error::Connection)?;
    let name = FileName::try_from(bytes).map_err(Error::ProtocolViolation)?;
    let target = directory.join(name.as_os_str());
    let call_error = |doing, error| Error::File(FileError::call(doing, &target, error));
    // New, so that no link is followed.
    let file = File::options().read(true).write(true).create_new(true).mode(mode).open(&target);
    let file = file.map_err(|error| call_error("create", error))?;
    // Removed unless it has arrived.
    let partial = TempPath::try_from_path(&target).map_err(|error| call_error("create", error))?;
    // A file that is mapped is as long as whole pages meanwhile.
    let is_mapped = path.setup.method == ReceiveMethod::Mmap && size > 0;
    if is_mapped {
        let pages = size.checked_next_multiple_of(page_bytes() as u64).unwrap_or(size);
        file.set_len(pages).map_err(|error| call_error("set the length of", error))?;
    }
    let (received, hasher) = transfer_content(path, &file, size, digest)?;
    Error::ensure(received == size, "the connection ended within a file")?;
    if is_mapped {
        file.set_len(size).map_err(|error| call_error("set the length of", error))?;
    }
    on_received(&target);
    if digest {
        let mut peer_digest = [0; DIGEST_BYTES];
        path.socket.fill(&mut peer_digest).map_err(Error::Connection)?;
        if file_digest(hasher, &file, size)? != peer_digest {
            return Err(Error::DigestMismatch);
        }
    }
    partial.keep().map_err(|failure| call_error("keep", failure.error))?;
    if reply {
        path.socket.write(&[IoSlice::new(&[REPLY_RECEIVED])], MoreFollows::No).map_err(Error::Connection)
    } else {
        Ok(())
    }
}

/// How an end with its socket in the kernel moves files: by calls that block, as the published study made them, without a time limit. By
/// the method `mmap`, the file is copied to or from the window of the device, which the module sends from or receives into.
fn kernel_setup<M: PathMethod>(setup: PathSetup<M>) -> PathSetup<M> {
    PathSetup { mode: Mode::Blocking, timeout: Duration::MAX, ..setup }
}

/// As [`send()`], through the sender's device, by `rw` or `mmap`. With O_ASYNC its calls wait all the same.
///
/// # Errors
/// As there; no device.
pub fn send_through_kernel(
    files: &[PathBuf],
    address: SocketAddr,
    options: &RawSendOptions,
    is_asynchronous: bool,
) -> Result<RawTotals> {
    check_is_local(address)?;
    let device = KernelSocket::open(KmodDevice::Sender)?;
    device.set_asynchronous(is_asynchronous).map_err(Error::Connection)?;
    let mut path = SendPath::over_device(device, kernel_setup(options.setup)).map_err(Error::Connection)?;
    connect_device(&mut path, address)?;
    let mut reconnect = |path: &mut SendPath| {
        close_device(path)?;
        connect_device(path, address)
    };
    send_all(&mut path, &mut reconnect, files, options)
}

fn connect_device(path: &mut SendPath, address: SocketAddr) -> Result<()> {
    while let Err(error) = path.socket.call_device(|device| device.connect(address)) {
        if !is_connecting(&error) || stop_signals::stop_signal().is_some() {
            return Err(Error::Connection(error));
        }
    }
    Ok(())
}

fn accept_device(path: &mut ReceivePath) -> Result<()> {
    check_is_local(path.socket.call_device(|device| device.accept()).map_err(Error::Connection)?)
}

/// Ends the connection of the device: its window and its listener stay.
fn close_device<M: PathMethod>(path: &mut DataPath<M>) -> Result<()> {
    path.socket.device().map_or(Ok(()), |device| device.close()).map_err(Error::Connection)
}

/// The receiver's device, listening on loopback.
#[derive(Debug)]
pub struct KernelListener {
    /// None after a failure of making what a method needs.
    device: Option<KernelSocket>,
    /// Where.
    pub address: SocketAddr,
}

impl KernelListener {
    /// Opens the device and listens at any free port.
    ///
    /// # Errors
    /// No device; an address that is not to be had.
    pub fn new() -> Result<Self> {
        let device = KernelSocket::open(KmodDevice::Receiver)?;
        let address = device.listen((Ipv4Addr::LOCALHOST, 0).into()).map_err(Error::Connection)?;
        Ok(Self { device: Some(device), address })
    }

    /// As [`receive()`], by `rw` or `mmap`. With O_ASYNC the calls of the device wait all the same.
    ///
    /// # Errors
    /// As there.
    pub fn receive(
        &mut self,
        directory: &Path,
        (options, is_asynchronous): (&RawReceiveOptions, bool),
        on_received: &mut dyn FnMut(&Path),
    ) -> Result<RawTotals> {
        let device = self.device.take().ok_or(Error::Connection(ErrorKind::NotConnected.into()))?;
        device.set_asynchronous(is_asynchronous).map_err(Error::Connection)?;
        let mut path = ReceivePath::over_device(device, kernel_setup(options.setup)).map_err(Error::Connection)?;
        let mut reaccept = |path: &mut ReceivePath| {
            close_device(path)?;
            accept_device(path)
        };
        let received = accept_device(&mut path)
            .and_then(|()| receive_all(&mut path, &mut reaccept, directory, options, on_received));
        // Of a connection that has failed there may be none any more.
        let closed = close_device(&mut path);
        self.device = path.socket.into_device();
        received.and_then(|totals| closed.map(|()| totals))
    }
}
