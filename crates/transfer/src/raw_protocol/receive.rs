//! The receiving end of the bare protocol.

use std::fs::File;
use std::io::IoSlice;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::wire::Hasher;
use kelvin_file::Error as FileError;
use kelvin_sys::mapping::page_bytes;
use tempfile::TempPath;

use super::{
    ConnectionLifetime, DIGEST_BYTES, HEADER_BYTES, REPLY_RECEIVED, RawHeader, RawTotals, check_is_local, digest_of,
};
use crate::datapath::{ByteObserver, PathMethod, ReceiveMethod, ReceivePath, ReceiveSetup};
use crate::file_name::FileName;
use crate::{Error, Result};

/// How files are received.
#[derive(Clone, Copy, Debug)]
pub struct RawReceiveOptions<Setup = ReceiveSetup> {
    /// How bytes get out of the socket.
    pub setup: Setup,
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

/// A file that has arrived.
#[derive(Debug)]
pub struct ReceivedFile<'a> {
    /// Its name.
    pub name: &'a FileName,
    /// Its bytes.
    pub bytes: u64,
}

/// Receives the files of one sender into new files of a directory. `each` is told of a file when its last byte is written and it
/// has its length, before its digest is looked at.
///
/// A file that does not arrive whole is removed. None is overwritten.
///
/// # Errors
/// A sender on another machine, one that breaks the protocol, is silent or sends more than the limits; a name that is taken; a
/// file that cannot be written; bytes that do not have the digest that was sent.
pub fn receive(
    listener: &TcpListener,
    directory: &Path,
    how: &RawReceiveOptions,
    each: &mut dyn FnMut(&ReceivedFile<'_>),
) -> Result<RawTotals> {
    let mut path = ReceivePath::new(accept(listener)?, how.setup).map_err(Error::Connection)?;
    let mut reaccept = |path: &mut ReceivePath| path.reconnect(accept(listener)?).map_err(Error::Connection);
    receive_all(&mut path, &mut reaccept, directory, how, each)
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (stream, from) = listener.accept().map_err(Error::Connection)?;
    check_is_local(from)?;
    stream.set_nodelay(true).map_err(Error::Connection)?;
    Ok(stream)
}

/// Waits for the connection of the next file.
pub(super) type Reaccept<'a> = dyn FnMut(&mut ReceivePath) -> Result<()> + 'a;

/// Receives them through a path that is connected.
pub(super) fn receive_all<Setup>(
    path: &mut ReceivePath,
    reaccept: &mut Reaccept<'_>,
    directory: &Path,
    how: &RawReceiveOptions<Setup>,
    each: &mut dyn FnMut(&ReceivedFile<'_>),
) -> Result<RawTotals> {
    let mut moved = RawTotals::default();
    loop {
        let mut bytes = [0; HEADER_BYTES];
        let mut begun = path.read(&mut bytes).map_err(Error::Connection)?;
        if begun == 0 && how.connection == ConnectionLifetime::PerFile && moved.files > 0 {
            reaccept(path)?;
            begun = path.read(&mut bytes).map_err(Error::Connection)?;
        }
        if begun == 0 {
            return Err(Error::ProtocolViolation("the connection ended before the end marker"));
        }
        path.fill(&mut bytes[begun..]).map_err(Error::Connection)?;
        let header = RawHeader::from_bytes(&bytes)?;
        let RawHeader::File { size, .. } = header else { break };
        if moved.files >= how.limits.files || size > how.limits.bytes.saturating_sub(moved.bytes) {
            return Err(Error::ProtocolViolation("more files or bytes than the receiver takes"));
        }
        receive_one(path, &header, directory, each)?;
        moved.files += 1;
        moved.bytes += size;
    }
    Ok(RawTotals { counts: path.counts(), ..moved })
}

fn receive_one(
    path: &mut ReceivePath,
    header: &RawHeader,
    directory: &Path,
    each: &mut dyn FnMut(&ReceivedFile<'_>),
) -> Result<()> {
    let &RawHeader::File { name, mode, size, digest, reply } = header else { return Ok(()) };
    let mut bytes = vec![0; usize::from(name)];
    path.fill(&mut bytes).map_err(Error::Connection)?;
    let name = FileName::try_from(bytes).map_err(Error::ProtocolViolation)?;
    let target = directory.join(name.as_os_str());
    let call_error = |doing, error| Error::File(FileError::call(doing, &target, error));
    // New, so that no link is followed.
    let file = File::options().read(true).write(true).create_new(true).mode(mode).open(&target);
    let file = file.map_err(|error| call_error("create", error))?;
    // Removed unless it has arrived.
    let partial = TempPath::try_from_path(&target).map_err(|error| call_error("create", error))?;
    // A file that is mapped is as long as whole pages meanwhile.
    let is_mapped = path.setup().method == ReceiveMethod::Mmap && size > 0;
    if is_mapped {
        let pages = size.checked_next_multiple_of(page_bytes() as u64).unwrap_or(size);
        file.set_len(pages).map_err(|error| call_error("set the length of", error))?;
    }
    let mut hasher = (digest && path.setup().method.shows_bytes()).then(Hasher::new);
    let mut observe = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    };
    let observer: ByteObserver<'_> = if digest { Some(&mut observe) } else { None };
    if path.receive(&file, 0..size, observer).map_err(Error::Connection)? < size {
        return Err(Error::ProtocolViolation("the connection ended within a file"));
    }
    if is_mapped {
        file.set_len(size).map_err(|error| call_error("set the length of", error))?;
    }
    each(&ReceivedFile { name: &name, bytes: size });
    if digest {
        let mut theirs = [0; DIGEST_BYTES];
        path.fill(&mut theirs).map_err(Error::Connection)?;
        if digest_of(hasher, &file, size)? != theirs {
            return Err(Error::DigestMismatch);
        }
    }
    partial.keep().map_err(|kept| call_error("keep", kept.error))?;
    if reply { path.write(&[IoSlice::new(&[REPLY_RECEIVED])]).map_err(Error::Connection) } else { Ok(()) }
}
