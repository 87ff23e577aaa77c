//! One end of a connection, and the method by which it moves ranges of files.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;
use std::ops::Range;

use kelvin_sys::kmod::KernelSocket;

use super::method::{PathMethod, PathSetup, ReceiveMethod, SendMethod};
use super::methods::{DeviceWindow, TransferMethod, implementer};
use super::range_cursor::{ByteObserver, RangeCursor};
use super::socket_io::SocketIo;

/// One connected socket, and what it takes to move files through it. It belongs to the thread that made it.
pub struct DataPath<M: PathMethod> {
    /// How it was set up.
    pub setup: PathSetup<M>,
    method: Box<dyn TransferMethod>,
    /// By which framing goes, in the same mode.
    pub socket: SocketIo,
    /// Bytes of the last range that have gone through the socket, also if it failed.
    pub moved: u64,
}

/// The sending end: ranges of files into a socket.
pub type SendPath = DataPath<SendMethod>;
/// The receiving end: a socket into ranges of files.
pub type ReceivePath = DataPath<ReceiveMethod>;

impl<M: PathMethod> DataPath<M> {
    /// Takes a connected socket, sets its options for the mode, and makes what the method needs.
    ///
    /// # Errors
    /// `InvalidInput`, with the reason, for a setup that makes no sense; those of the calls, such as `Unsupported` where the kernel
    /// has no such ring.
    pub fn new(stream: TcpStream, setup: PathSetup<M>) -> Result<Self> {
        setup.check().map_err(|reason| Error::new(ErrorKind::InvalidInput, reason))?;
        let mut socket = SocketIo::new(stream, &setup)?;
        let method = implementer(&setup, &mut socket)?;
        Ok(Self { setup, method, socket, moved: 0 })
    }

    /// Takes a device of kelvin's module, whose socket is in the kernel and whose calls block without a limit. By the method `mmap`
    /// files are copied to or from the window of the device, which is kept from one path to the next.
    ///
    /// # Errors
    /// Those of making a window.
    pub fn over_device(device: KernelSocket, setup: PathSetup<M>) -> Result<Self> {
        let mut socket = SocketIo::over_device(device, &setup);
        let method = match socket.device() {
            Some(device) if setup.method.as_sending() == SendMethod::Mmap => {
                Box::new(DeviceWindow::new(device, setup.window, M::ACCESS)?)
            }
            _ => implementer(&setup, &mut socket)?,
        };
        Ok(Self { setup, method, socket, moved: 0 })
    }

    /// Takes another connected socket in the place of the present one, which is closed: as [`Self::new`], but what the method needs
    /// is already there.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn reconnect(&mut self, stream: TcpStream) -> Result<()> {
        self.socket.reconnect(stream)?;
        self.method.reconnect(&mut self.socket)
    }

    /// Moves these bytes of a file, and returns how many have gone through the socket. They are fewer only if the file that is sent, or the stream
    /// that is received, ends before. The observer gets them if the method shows them ([`PathMethod::shows_bytes`]).
    ///
    /// A range that is sent is one message: what does not fill a segment waits for the rest of it, 200 ms at most. Where the file
    /// ends before, what is written next sends it. A file that is received and is to be mapped is long enough for the range.
    ///
    /// # Errors
    /// Those of the calls; `TimedOut` for a peer that moved nothing for as long as the timeout; `Interrupted` if a signal asked to
    /// stop; a mapped file that became shorter while its bytes were looked at. Of a mapped file that is received and is too short, or
    /// whose pages cannot be made, `UnexpectedEof` and `StorageFull`.
    pub fn transfer(&mut self, file: &File, range: Range<u64>, observer: ByteObserver<'_>) -> Result<u64> {
        let mut cursor = RangeCursor::new(file, M::ACCESS, range, observer);
        let moved = self.method.transfer(&mut self.socket, &mut cursor);
        self.moved = cursor.moved;
        // Also after an error: a window keeps its file in use.
        self.method.unmap().and(moved).map(|()| cursor.moved)
    }

    /// Waits until the kernel no longer uses any buffer that is sent without a copy, and so until the peer has acknowledged it. That
    /// takes up to 40 ms if the peer has nothing to send (delayed acknowledgements): a reply comes first, where there is one.
    ///
    /// # Errors
    /// As [`Self::transfer`].
    pub fn finish(&mut self) -> Result<()> {
        self.method.finish(&mut self.socket)
    }
}
