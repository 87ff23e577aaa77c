//! The sending end of the bare protocol.

use std::fs::File;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::wire::Hasher;
use kelvin_file::Error as FileError;
use kelvin_sys::net::connect_prepared;

use super::header::MAX_NAME_BYTES;
use super::{ConnectionLifetime, REPLY_RECEIVED, RawHeader, RawTotals, check_is_local, digest_of};
use crate::datapath::{ByteObserver, PathMethod, SendPath, SendSetup};
use crate::file_name::FileName;
use crate::{Error, Result};

/// How files are sent.
#[derive(Clone, Copy, Debug)]
pub struct RawSendOptions<Setup = SendSetup> {
    /// How bytes get into the socket.
    pub setup: Setup,
    /// How long a connection lasts.
    pub connection: ConnectionLifetime,
    /// Whether the next file waits for the receiver's reply.
    pub reply: bool,
    /// Whether a digest follows each file.
    pub digest: bool,
}

/// What is done to a socket before it connects.
pub type PrepareSocket = fn(BorrowedFd<'_>) -> std::io::Result<()>;

/// Makes the connection of the next file.
pub(super) type Reconnect<'a> = dyn FnMut(&mut SendPath) -> Result<()> + 'a;

/// Connects by a socket that is prepared, and sends these files, each by the last component of its path.
///
/// # Errors
/// An address of another machine, a file that cannot be read or that becomes shorter, a failed connection, a receiver that does
/// not reply.
pub fn send(files: &[PathBuf], to: SocketAddr, how: &RawSendOptions, prepare: PrepareSocket) -> Result<RawTotals> {
    let mut path = SendPath::new(connect(to, how.setup.timeout, prepare)?, how.setup).map_err(Error::Connection)?;
    let mut reconnect =
        |path: &mut SendPath| path.reconnect(connect(to, how.setup.timeout, prepare)?).map_err(Error::Connection);
    send_all(&mut path, &mut reconnect, files, how)
}

fn connect(to: SocketAddr, timeout: Duration, prepare: PrepareSocket) -> Result<TcpStream> {
    check_is_local(to)?;
    let stream = connect_prepared(to, timeout, |socket| prepare(socket.as_fd())).map_err(Error::Connection)?;
    check_is_local(stream.peer_addr().map_err(Error::Connection)?)?;
    // Framing that nothing follows must not wait for an acknowledgement.
    stream.set_nodelay(true).map_err(Error::Connection)?;
    Ok(stream)
}

/// Sends them through a path that is connected.
pub(super) fn send_all<Setup>(
    path: &mut SendPath,
    reconnect: &mut Reconnect<'_>,
    files: &[PathBuf],
    how: &RawSendOptions<Setup>,
) -> Result<RawTotals> {
    let mut moved = RawTotals::default();
    for (number, file) in files.iter().enumerate() {
        if number > 0 && how.connection == ConnectionLifetime::PerFile {
            path.finish().map_err(Error::Connection)?;
            reconnect(path)?;
        }
        moved.bytes += send_one(path, file, how)?;
        moved.files += 1;
    }
    path.write(&[IoSlice::new(&RawHeader::End.to_bytes())]).map_err(Error::Connection)?;
    path.finish().map_err(Error::Connection)?;
    Ok(RawTotals { counts: path.counts(), ..moved })
}

fn send_one<Setup>(path: &mut SendPath, from: &Path, how: &RawSendOptions<Setup>) -> Result<u64> {
    let failed = |doing| move |error| Error::File(FileError::call(doing, from, error));
    let refused = |why| Error::Refused(format!("{}: {why}", from.display()));
    let name = FileName::from_path(from).map_err(refused)?;
    if name.as_os_str().len() > MAX_NAME_BYTES.into() {
        return Err(refused("a name of more than 255 bytes"));
    }
    let file = File::open(from).map_err(failed("open"))?;
    let known = file.metadata().map_err(failed("stat"))?;
    let (name, size) = (Vec::from(name), known.len());
    let header = RawHeader::File {
        name: name.len() as u16,
        mode: known.permissions().mode() & 0o777,
        size,
        digest: how.digest,
        reply: how.reply,
    };
    let bytes = header.to_bytes();
    let framing = [IoSlice::new(&bytes), IoSlice::new(&name)];
    if size > 0 { path.write_ahead(&framing) } else { path.write(&framing) }.map_err(Error::Connection)?;
    let mut hasher = (how.digest && path.setup().method.shows_bytes()).then(Hasher::new);
    let mut observe = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    };
    let observer: ByteObserver<'_> = if how.digest { Some(&mut observe) } else { None };
    if path.send(&file, 0..size, observer).map_err(Error::Connection)? < size {
        return Err(Error::Refused("the file became shorter while it was sent".into()));
    }
    if how.digest {
        let digest = digest_of(hasher, &file, size)?;
        path.write(&[IoSlice::new(digest.as_bytes())]).map_err(Error::Connection)?;
    }
    if how.reply {
        let mut reply = [0];
        path.fill(&mut reply).map_err(Error::Connection)?;
        if reply != [REPLY_RECEIVED] {
            return Err(Error::ProtocolViolation("a reply that is none"));
        }
    }
    Ok(size)
}
