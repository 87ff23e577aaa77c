//! The receiving end of the bare protocol.

use std::fs::{File, remove_file};
use std::io::IoSlice;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::wire::Hasher;
use kelvin_file::Error as FileError;
use kelvin_sys::mapping::page_bytes;

use super::ends::{ReceiveEnd, SocketReceiver};
use super::{
    ConnectionLifetime, DIGEST_BYTES, HEADER_BYTES, REPLY_RECEIVED, RawHeader, RawTotals, connection_error, file_digest,
};
use crate::datapath::ReceiveSetup;
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
    receive_all(&mut SocketReceiver::accept(listener, how.setup)?, directory, how, each)
}

/// Receives them through a connection that there is.
pub(super) fn receive_all<Setup>(
    end: &mut dyn ReceiveEnd,
    directory: &Path,
    how: &RawReceiveOptions<Setup>,
    each: &mut dyn FnMut(&ReceivedFile<'_>),
) -> Result<RawTotals> {
    let mut moved = RawTotals::default();
    while let Some(header) = next_header(end, how.connection, moved.files)? {
        let RawHeader::File { size, .. } = header else { break };
        if moved.files >= how.limits.files || size > how.limits.bytes.saturating_sub(moved.bytes) {
            return Err(Error::ProtocolViolation("more files or bytes than the receiver takes"));
        }
        receive_one(end, &header, directory, each)?;
        moved.files += 1;
        moved.bytes += size;
    }
    Ok(RawTotals { counts: end.counts(), ..moved })
}

/// The next header, from the next connection where each file has its own and the present one has ended.
fn next_header(end: &mut dyn ReceiveEnd, lasts: ConnectionLifetime, files: u64) -> Result<Option<RawHeader>> {
    let mut bytes = [0; HEADER_BYTES];
    let mut begun = end.read(&mut bytes).map_err(connection_error)?;
    if begun == 0 && lasts == ConnectionLifetime::PerFile && files > 0 {
        end.accept()?;
        begun = end.read(&mut bytes).map_err(connection_error)?;
    }
    if begun == 0 {
        return Err(Error::ProtocolViolation("the connection ended before the end marker"));
    }
    end.fill(&mut bytes[begun..]).map_err(connection_error)?;
    RawHeader::from_bytes(&bytes).map(Some)
}

/// A file that is removed unless it has arrived.
struct PartialFile {
    path: PathBuf,
    file: File,
    is_whole: bool,
}

impl PartialFile {
    fn create(directory: &Path, name: &FileName, mode: u32) -> Result<Self> {
        let path = directory.join(name.as_os_str());
        // New, so that no link is followed.
        let file = File::options().read(true).write(true).create_new(true).mode(mode).open(&path);
        let file = file.map_err(|error| Error::File(FileError::call("create", &path, error)))?;
        Ok(Self { path, file, is_whole: false })
    }

    fn set_length(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).map_err(|error| Error::File(FileError::call("set the length of", &self.path, error)))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = remove_file(&self.path);
        }
    }
}

fn receive_one(
    end: &mut dyn ReceiveEnd,
    header: &RawHeader,
    directory: &Path,
    each: &mut dyn FnMut(&ReceivedFile<'_>),
) -> Result<()> {
    let &RawHeader::File { name, mode, size, digest: is_sent, reply } = header else { return Ok(()) };
    let mut bytes = vec![0; usize::from(name)];
    end.fill(&mut bytes).map_err(connection_error)?;
    let name = FileName::try_from(bytes).map_err(Error::ProtocolViolation)?;
    let mut file = PartialFile::create(directory, &name, mode)?;
    let mut hasher = (is_sent && end.shows_bytes()).then(Hasher::new);
    receive_content(end, (&file, size), hasher.as_mut())?;
    each(&ReceivedFile { name: &name, bytes: size });
    if is_sent {
        let mut theirs = [0; DIGEST_BYTES];
        end.fill(&mut theirs).map_err(connection_error)?;
        let ours = hasher
            .map_or_else(|| file_digest(&file.file, size), |hasher| Ok(hasher.finalize()))
            .map_err(connection_error)?;
        if ours != theirs {
            return Err(Error::DigestMismatch);
        }
    }
    file.is_whole = true;
    if reply { end.write(&[IoSlice::new(&[REPLY_RECEIVED])]).map_err(connection_error) } else { Ok(()) }
}

/// The bytes of a file. A file that is mapped is as long as whole pages meanwhile.
fn receive_content(
    end: &mut dyn ReceiveEnd,
    (file, size): (&PartialFile, u64),
    mut hasher: Option<&mut Hasher>,
) -> Result<()> {
    let is_mapped = end.pads_to_pages() && size > 0;
    if is_mapped {
        file.set_length(size.checked_next_multiple_of(page_bytes() as u64).unwrap_or(size))?;
    }
    let is_seen = hasher.is_some();
    let mut see = |bytes: &[u8]| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
    };
    let arrived = end.receive(&file.file, size, if is_seen { Some(&mut see) } else { None });
    if arrived.map_err(connection_error)? < size {
        return Err(Error::ProtocolViolation("the connection ended within a file"));
    }
    if is_mapped { file.set_length(size) } else { Ok(()) }
}
