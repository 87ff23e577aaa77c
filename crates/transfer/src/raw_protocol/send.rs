//! The sending end of the bare protocol.

use std::fs::File;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::wire::Hasher;
use kelvin_file::Error as FileError;

use super::ends::{PrepareSocket, SendEnd, SocketSender};
use super::header::MAX_NAME_BYTES;
use super::{ConnectionLifetime, DIGEST_BYTES, REPLY_RECEIVED, RawHeader, RawTotals, connection_error, file_digest};
use crate::datapath::SendSetup;
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

/// Connects by a socket that is prepared, and sends these files, each by the last component of its path.
///
/// # Errors
/// An address of another machine, a file that cannot be read or that becomes shorter, a failed connection, a receiver that does
/// not reply.
pub fn send(files: &[PathBuf], to: SocketAddr, how: &RawSendOptions, prepare: PrepareSocket) -> Result<RawTotals> {
    send_all(&mut SocketSender::connect(to, how.setup, prepare)?, files, to, how)
}

/// Sends them through a connection that there is.
pub(super) fn send_all<Setup>(
    end: &mut dyn SendEnd,
    files: &[PathBuf],
    to: SocketAddr,
    how: &RawSendOptions<Setup>,
) -> Result<RawTotals> {
    let mut moved = RawTotals::default();
    for (number, file) in files.iter().enumerate() {
        if number > 0 && how.connection == ConnectionLifetime::PerFile {
            end.finish().map_err(connection_error)?;
            end.reconnect(to)?;
        }
        moved.bytes += send_one(end, file, how)?;
        moved.files += 1;
    }
    end.write(&[IoSlice::new(&RawHeader::End.to_bytes())]).map_err(connection_error)?;
    end.finish().map_err(connection_error)?;
    Ok(RawTotals { counts: end.counts(), ..moved })
}

fn send_one<Setup>(end: &mut dyn SendEnd, from: &Path, how: &RawSendOptions<Setup>) -> Result<u64> {
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
    if size > 0 { end.write_ahead(&framing) } else { end.write(&framing) }.map_err(connection_error)?;
    send_content(end, (&file, size), how)?;
    if how.reply { wait_for_reply(end) } else { Ok(()) }?;
    Ok(size)
}

/// The bytes of a file, and their digest if it is asked for.
fn send_content<Setup>(end: &mut dyn SendEnd, (file, size): (&File, u64), how: &RawSendOptions<Setup>) -> Result<()> {
    let mut hasher = (how.digest && end.shows_bytes()).then(Hasher::new);
    let mut see = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    };
    if end.send(file, size, if how.digest { Some(&mut see) } else { None }).map_err(connection_error)? < size {
        return Err(Error::Refused("the file became shorter while it was sent".into()));
    }
    if how.digest {
        let own =
            hasher.map_or_else(|| file_digest(file, size), |hasher| Ok(hasher.finalize())).map_err(connection_error)?;
        let own: &[u8; DIGEST_BYTES] = own.as_bytes();
        end.write(&[IoSlice::new(own)]).map_err(connection_error)?;
    }
    Ok(())
}

fn wait_for_reply(end: &mut dyn SendEnd) -> Result<()> {
    let mut reply = [0];
    end.fill(&mut reply).map_err(connection_error)?;
    if reply == [REPLY_RECEIVED] { Ok(()) } else { Err(Error::ProtocolViolation("a reply that is none")) }
}
