//! The sending end of the bare protocol.

use std::fs::File;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kelvin_file::Error as FileError;
use kelvin_wire::Hasher;

use super::ends::{OwnSend, Prepare, SendEnd};
use super::header::LONGEST;
use super::{Connection, DIGEST, HAVE, Header, Moved, connection, digest};
use crate::moving::SendSetup;
use crate::name::Name;
use crate::{Error, Result};

/// How files are sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending<Setup = SendSetup> {
    /// How bytes get into the socket.
    pub setup: Setup,
    /// How long a connection lasts.
    pub connection: Connection,
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
pub fn send(files: &[PathBuf], to: SocketAddr, how: &Sending, prepare: Prepare) -> Result<Moved> {
    all(&mut OwnSend::connect(to, how.setup, prepare)?, files, to, how)
}

/// Sends them through a connection that there is.
pub(super) fn all<Setup>(
    end: &mut dyn SendEnd,
    files: &[PathBuf],
    to: SocketAddr,
    how: &Sending<Setup>,
) -> Result<Moved> {
    let mut moved = Moved::default();
    for (number, file) in files.iter().enumerate() {
        if number > 0 && how.connection == Connection::PerFile {
            end.finish().map_err(connection)?;
            end.reconnect(to)?;
        }
        moved.bytes += one(end, file, how)?;
        moved.files += 1;
    }
    end.write(&[IoSlice::new(&Header::End.to_bytes())]).map_err(connection)?;
    end.finish().map_err(connection)?;
    Ok(Moved { counts: end.counts(), ..moved })
}

fn one<Setup>(end: &mut dyn SendEnd, from: &Path, how: &Sending<Setup>) -> Result<u64> {
    let failed = |doing| move |error| Error::File(FileError::call(doing, from, error));
    let refused = |why| Error::Refused(format!("{}: {why}", from.display()));
    let name = Name::of(from).map_err(refused)?;
    if name.as_os_str().len() > LONGEST.into() {
        return Err(refused("a name of more than 255 bytes"));
    }
    let file = File::open(from).map_err(failed("open"))?;
    let known = file.metadata().map_err(failed("stat"))?;
    let (name, size) = (Vec::from(name), known.len());
    let header = Header::File {
        name: name.len() as u16,
        mode: known.permissions().mode() & 0o777,
        size,
        digest: how.digest,
        reply: how.reply,
    };
    let bytes = header.to_bytes();
    let framing = [IoSlice::new(&bytes), IoSlice::new(&name)];
    if size > 0 { end.write_ahead(&framing) } else { end.write(&framing) }.map_err(connection)?;
    content(end, (&file, size), how)?;
    if how.reply { replied(end) } else { Ok(()) }?;
    Ok(size)
}

/// The bytes of a file, and their digest if it is asked for.
fn content<Setup>(end: &mut dyn SendEnd, (file, size): (&File, u64), how: &Sending<Setup>) -> Result<()> {
    let mut hasher = (how.digest && end.shows_bytes()).then(Hasher::new);
    let mut see = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    };
    if end.send(file, size, if how.digest { Some(&mut see) } else { None }).map_err(connection)? < size {
        return Err(Error::Refused("the file became shorter while it was sent".into()));
    }
    if how.digest {
        let own = hasher.map_or_else(|| digest(file, size), |hasher| Ok(hasher.finalize())).map_err(connection)?;
        let own: &[u8; DIGEST] = own.as_bytes();
        end.write(&[IoSlice::new(own)]).map_err(connection)?;
    }
    Ok(())
}

fn replied(end: &mut dyn SendEnd) -> Result<()> {
    let mut reply = [0];
    end.fill(&mut reply).map_err(connection)?;
    if reply == [HAVE] { Ok(()) } else { Err(Error::Nonsense("a reply that is none")) }
}
