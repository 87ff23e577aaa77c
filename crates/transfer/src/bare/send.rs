//! The sending end of the bare protocol.

use std::fs::File;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kelvin_file::Error as FileError;
use kelvin_wire::Hasher;
use kelvin_wire::address::is_loopback;

use super::{Connection, DIGEST, HAVE, Header, Moved, check_is_here, connection, digest};
use crate::moving::{SendPath, SendSetup};
use crate::name::Name;
use crate::{Error, Result};

/// How files are sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// How bytes get into the socket.
    pub setup: SendSetup,
    /// How long a connection lasts.
    pub connection: Connection,
    /// Whether the next file waits for the receiver's reply.
    pub reply: bool,
    /// Whether a digest follows each file.
    pub digest: bool,
}

/// Connects and sends these files, each by the last component of its path.
///
/// # Errors
/// An address of another machine, a file that cannot be read or that becomes shorter, a failed connection, a receiver that does
/// not reply.
pub fn send(files: &[PathBuf], to: SocketAddr, how: &Sending) -> Result<Moved> {
    let mut path = SendPath::new(connect(to)?, how.setup).map_err(connection)?;
    let mut moved = Moved::default();
    for (number, file) in files.iter().enumerate() {
        if number > 0 && how.connection == Connection::PerFile {
            path.finish().map_err(connection)?;
            path.reconnect(connect(to)?).map_err(connection)?;
        }
        moved.bytes += one(&mut path, file, how)?;
        moved.files += 1;
    }
    path.write(&[IoSlice::new(&Header::End.to_bytes())]).map_err(connection)?;
    path.finish().map_err(connection)?;
    Ok(Moved { counts: path.counts(), ..moved })
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    if !is_loopback(to) {
        return Err(Error::NotHere { address: to });
    }
    let stream = TcpStream::connect(to).map_err(connection)?;
    check_is_here(&stream)?;
    // Framing that nothing follows must not wait for an acknowledgement.
    stream.set_nodelay(true).map_err(connection)?;
    Ok(stream)
}

fn one(path: &mut SendPath, from: &Path, how: &Sending) -> Result<u64> {
    let failed = |doing| move |error| Error::File(FileError::call(doing, from, error));
    let name = Name::of(from).map_err(|why| Error::Refused(format!("{}: {why}", from.display())))?;
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
    if size > 0 { path.write_ahead(&framing) } else { path.write(&framing) }.map_err(connection)?;
    content(path, (&file, size), how)?;
    if how.reply { replied(path) } else { Ok(()) }?;
    Ok(size)
}

/// The bytes of a file, and their digest if it is asked for.
fn content(path: &mut SendPath, (file, size): (&File, u64), how: &Sending) -> Result<()> {
    let mut hasher = (how.digest && how.setup.method.shows_bytes()).then(Hasher::new);
    let mut see = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    };
    if path.send(file, 0..size, how.digest.then_some(&mut see)).map_err(connection)? < size {
        return Err(Error::Refused("the file became shorter while it was sent".into()));
    }
    if how.digest {
        let own = hasher.map_or_else(|| digest(file, size), |hasher| Ok(hasher.finalize())).map_err(connection)?;
        let own: &[u8; DIGEST] = own.as_bytes();
        path.write(&[IoSlice::new(own)]).map_err(connection)?;
    }
    Ok(())
}

fn replied(path: &mut SendPath) -> Result<()> {
    let mut reply = [0];
    path.fill(&mut reply).map_err(connection)?;
    if reply == [HAVE] { Ok(()) } else { Err(Error::Nonsense("a reply that is none")) }
}
