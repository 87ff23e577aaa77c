//! The methods of moving bytes between a file and a socket: each is one file and one implementer of [`TransferMethod`].

mod device_window;
mod mmap;
mod read_write;
mod sendfile;
mod splice;
mod uring;
mod zero_copy;

use std::io::{ErrorKind, Result};

use super::range_cursor::RangeCursor;
use super::socket_io::SocketIo;
pub use device_window::DeviceWindow;
pub use mmap::Mmap;
pub use read_write::ReadWrite;
pub use sendfile::Sendfile;
pub use splice::Splice;
pub use uring::Uring;
pub use zero_copy::PendingSends;
pub use zero_copy::ZeroCopy;

/// A method, with what it needs.
pub trait TransferMethod {
    /// Sends the bytes of a range: fewer only if the file ends before.
    fn send(&mut self, _: &mut SocketIo, _: &mut RangeCursor<'_, '_>) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Receives the bytes of a range: fewer only at the end of the stream.
    fn receive(&mut self, _: &mut SocketIo, _: &mut RangeCursor<'_, '_>) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Another socket has taken the place of the one before.
    fn reconnect(&mut self, _: &mut SocketIo) -> Result<()> {
        Ok(())
    }

    /// Waits until the kernel uses no buffer any more.
    fn finish(&mut self, _: &mut SocketIo) -> Result<()> {
        Ok(())
    }
}
