//! The socket that listens: at an IP address, at a path of this host, or as another program has passed it.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Connections that may wait to be accepted; the kernel cuts it to net.core.somaxconn.
const LISTEN_BACKLOG: i32 = 4096;

/// A socket that listens, and does not wait.
#[derive(Debug)]
pub(crate) struct Listener {
    /// What accepts: a stream of another family is used by the same calls.
    pub socket: TcpListener,
    /// Its file, if it has a path.
    pub file: Option<SocketFile>,
    /// Whether another program holds it as well, and goes on doing so.
    pub is_shared: bool,
}

impl Listener {
    /// At an address.
    ///
    /// # Errors
    /// An address that cannot be had.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        // What is accepted has what listens has: answers are whole when they are sent, and nothing is to be waited for.
        set_tcp_nodelay(&socket, true).and_then(|()| listen(&socket, LISTEN_BACKLOG))?;
        Ok(Self { socket, file: None, is_shared: false })
    }

    /// One that listens already, with the queue that whoever made it has chosen.
    ///
    /// # Errors
    /// Those of fcntl and setsockopt.
    pub fn adopt(socket: OwnedFd) -> Result<Self> {
        let socket = TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        if path_of(&socket).is_none() {
            set_tcp_nodelay(&socket, true)?;
        }
        Ok(Self { socket, file: None, is_shared: true })
    }
}

/// The path at which a socket listens, empty if it has a name of another kind; none if that is an address.
pub(crate) fn path_of(socket: &TcpListener) -> Option<PathBuf> {
    let address = UnixListener::from(socket.as_fd().try_clone_to_owned().ok()?).local_addr().ok()?;
    Some(address.as_pathname().unwrap_or(Path::new("")).to_owned())
}

/// A path at which to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// The path.
    pub path: PathBuf,
    /// The permissions of the file: who may write may connect.
    pub mode: u32,
}

impl UnixSocket {
    /// Listens there. A socket at which nobody listens any more is replaced.
    ///
    /// # Errors
    /// A path at which somebody listens, or at which there is something else.
    pub(crate) fn bind(&self) -> Result<Listener> {
        let address = SocketAddrUnix::new(&self.path)?;
        // Who starts at the same moment could take a socket that does not listen yet for one that nobody needs.
        let _lock = lock_directory(&self.path)?;
        remove_stale(&self.path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&socket, &address)?;
        let file = SocketFile::at(&self.path)?;
        // Nobody can connect before it listens.
        fs::set_permissions(&self.path, fs::Permissions::from_mode(self.mode))?;
        listen(&socket, LISTEN_BACKLOG)?;
        Ok(Listener { socket: socket.into(), file: Some(file), is_shared: false })
    }
}

/// Has other servers that start in the directory of this path fail until it is dropped.
fn lock_directory(path: &Path) -> Result<fs::File> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = fs::File::open(directory)?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| Error::new(ErrorKind::WouldBlock, "another server starts in this directory"))?;
    Ok(directory)
}

/// Removes the socket of a server that has ended.
fn remove_stale(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(facts) if !facts.file_type().is_socket() => {
            return Err(Error::new(ErrorKind::AlreadyExists, "there is something else than a socket"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another program listens there")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// The file of a socket, which is removed when this is dropped, unless another one has taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> Result<Self> {
        // The directory may be another one's by the end, as far as it is named relatively.
        let path = std::path::absolute(path)?;
        let device_and_inode = device_and_inode(&path)?;
        Ok(Self { path, device_and_inode })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if device_and_inode(&self.path).is_ok_and(|current| current == self.device_and_inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn device_and_inode(path: &Path) -> Result<(u64, u64)> {
    let facts = fs::symlink_metadata(path)?;
    Ok((facts.dev(), facts.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_socket_is_replaced_and_own_one_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = UnixSocket { path: path.clone(), mode: 0o620 };
        let listener = socket.bind().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o620);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(socket.bind().unwrap_err().to_string(), "another program listens there");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn what_belongs_to_others_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        fs::write(&path, "file").unwrap();
        let socket = UnixSocket { path: path.clone(), mode: 0o600 };
        assert_eq!(socket.bind().unwrap_err().to_string(), "there is something else than a socket");
        assert_eq!(fs::read_to_string(&path).unwrap(), "file");
        fs::remove_file(&path).unwrap();
        let listener = socket.bind().unwrap();
        fs::rename(&path, directory.path().join("before")).unwrap();
        fs::write(&path, "of another program").unwrap();
        drop(listener);
        assert!(path.exists());
        let long = UnixSocket { path: directory.path().join("x".repeat(108)), mode: 0o600 };
        assert!(long.bind().is_err());
    }
}
