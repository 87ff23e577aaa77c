//! What an end of a connection does for the bare protocol, whether its socket belongs to this process or to the kernel.

use std::fs::File;
use std::io::{IoSlice, Result as IoResult};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::wire::address::is_loopback;
use kelvin_sys::net::connect_prepared;

use super::connection_error;
use crate::datapath::{
    ByteObserver, IoCounts, ReceiveMethod, ReceivePath, ReceiveSetup, SendMethod, SendPath, SendSetup,
};
use crate::{Error, Result};

/// The sending end.
pub(super) trait SendEnd {
    /// Makes another connection in the place of the present one, which is ended.
    fn reconnect(&mut self, to: SocketAddr) -> Result<()>;
    /// Sends framing that nothing may follow.
    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()>;
    /// Sends framing that a file follows at once.
    fn write_ahead(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()>;
    /// Sends the first bytes of a file, and returns how many there were.
    fn send(&mut self, file: &File, bytes: u64, seen: ByteObserver<'_>) -> IoResult<u64>;
    /// Whether `seen` gets them.
    fn shows_bytes(&self) -> bool;
    /// Receives all of a reply.
    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()>;
    /// Waits until nothing of a connection is needed any more.
    fn finish(&mut self) -> IoResult<()>;
    /// What was done.
    fn counts(&self) -> IoCounts;
}

/// The receiving end.
pub(super) trait ReceiveEnd {
    /// Waits for another connection in the place of the present one.
    fn accept(&mut self) -> Result<()>;
    /// Receives some framing bytes; none at the end of the stream.
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize>;
    /// Receives so many framing bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()>;
    /// Receives the first bytes of a file, and returns how many came.
    fn receive(&mut self, file: &File, bytes: u64, seen: ByteObserver<'_>) -> IoResult<u64>;
    /// Whether `seen` gets them.
    fn shows_bytes(&self) -> bool;
    /// Whether the file must be as long as whole pages meanwhile.
    fn pads_to_pages(&self) -> bool;
    /// Sends a reply.
    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()>;
    /// What was done.
    fn counts(&self) -> IoCounts;
}

/// What is done to a socket before it connects.
pub type PrepareSocket = fn(BorrowedFd<'_>) -> IoResult<()>;

/// A sender whose socket is its own.
pub(super) struct SocketSender {
    path: SendPath,
    method: SendMethod,
    prepare: PrepareSocket,
}

impl SocketSender {
    pub fn connect(to: SocketAddr, setup: SendSetup, prepare: PrepareSocket) -> Result<Self> {
        let path = SendPath::new(connect(to, setup.timeout, prepare)?, setup).map_err(connection_error)?;
        Ok(Self { path, method: setup.method, prepare })
    }
}

impl SendEnd for SocketSender {
    fn reconnect(&mut self, to: SocketAddr) -> Result<()> {
        self.path.reconnect(connect(to, self.path.setup().timeout, self.prepare)?).map_err(connection_error)
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        self.path.write(parts)
    }

    fn write_ahead(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        self.path.write_ahead(parts)
    }

    fn send(&mut self, file: &File, bytes: u64, seen: ByteObserver<'_>) -> IoResult<u64> {
        self.path.send(file, 0..bytes, seen)
    }

    fn shows_bytes(&self) -> bool {
        self.method.shows_bytes()
    }

    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()> {
        self.path.fill(buffer)
    }

    fn finish(&mut self) -> IoResult<()> {
        self.path.finish()
    }

    fn counts(&self) -> IoCounts {
        self.path.counts()
    }
}

/// A receiver whose socket is its own.
pub(super) struct SocketReceiver<'a> {
    listener: &'a TcpListener,
    path: ReceivePath,
    method: ReceiveMethod,
}

impl<'a> SocketReceiver<'a> {
    /// Waits for the first connection.
    pub fn accept(listener: &'a TcpListener, setup: ReceiveSetup) -> Result<Self> {
        let path = ReceivePath::new(accept(listener)?, setup).map_err(connection_error)?;
        Ok(Self { listener, path, method: setup.method })
    }
}

impl ReceiveEnd for SocketReceiver<'_> {
    fn accept(&mut self) -> Result<()> {
        self.path.reconnect(accept(self.listener)?).map_err(connection_error)
    }

    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        self.path.read(buffer)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()> {
        self.path.fill(buffer)
    }

    fn receive(&mut self, file: &File, bytes: u64, seen: ByteObserver<'_>) -> IoResult<u64> {
        self.path.receive(file, 0..bytes, seen)
    }

    fn shows_bytes(&self) -> bool {
        self.method.shows_bytes()
    }

    fn pads_to_pages(&self) -> bool {
        self.method == ReceiveMethod::Mmap
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        self.path.write(parts)
    }

    fn counts(&self) -> IoCounts {
        self.path.counts()
    }
}

fn connect(to: SocketAddr, patience: Duration, prepare: PrepareSocket) -> Result<TcpStream> {
    check_is_local(to)?;
    let stream = connect_prepared(to, patience, |socket| prepare(socket.as_fd())).map_err(connection_error)?;
    check_is_local(stream.peer_addr().map_err(connection_error)?)?;
    // Framing that nothing follows must not wait for an acknowledgement.
    stream.set_nodelay(true).map_err(connection_error)?;
    Ok(stream)
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (stream, from) = listener.accept().map_err(connection_error)?;
    check_is_local(from)?;
    stream.set_nodelay(true).map_err(connection_error)?;
    Ok(stream)
}

/// An error unless the other end is on this machine.
pub(super) fn check_is_local(address: SocketAddr) -> Result<()> {
    if is_loopback(address) { Ok(()) } else { Err(Error::NotLocal { address }) }
}
