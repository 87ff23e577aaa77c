//! The methods of moving bytes between a file and a socket: each is one file and one implementer of [`TransferMethod`].

mod mmap;
mod read_write;
mod splice;
mod uring;

use std::io::Result;

use super::method::{Mode, PathMethod, PathSetup, SendMethod};
use super::range_cursor::RangeCursor;
use super::socket_io::SocketIo;
pub use mmap::DeviceWindow;
use mmap::Mmap;
use read_write::{ReadWrite, ZeroCopy};
use splice::{Sendfile, Splice};
use uring::Uring;

/// The method of a setup, with what it needs.
pub fn implementer<M: PathMethod>(setup: &PathSetup<M>, socket: &mut SocketIo) -> Result<Box<dyn TransferMethod>> {
    Ok(match setup.method.as_sending() {
        SendMethod::ReadWrite => Box::new(ReadWrite(vec![0; setup.buffer])),
        SendMethod::Mmap => Box::new(Mmap::new(setup.window, setup.buffer, M::ACCESS)?),
        SendMethod::Sendfile => Box::new(Sendfile { call_bytes: setup.buffer }),
        SendMethod::Splice => Box::new(Splice::new(setup.buffer, M::ACCESS)?),
        SendMethod::ZeroCopy if setup.mode != Mode::Uring => {
            Box::new(ZeroCopy::new(setup.slots(), setup.buffer, socket)?)
        }
        SendMethod::ZeroCopy => Box::new(Uring { zero_copy: true }),
        SendMethod::Uring => Box::new(Uring { zero_copy: false }),
    })
}

/// A method, with what it needs.
pub trait TransferMethod {
    /// Moves the bytes of a range: fewer only if the file that is sent, or the stream that is received, ends before.
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()>;

    /// Maps no file any more: what is mapped stays in use.
    fn unmap(&mut self) -> Result<()> {
        Ok(())
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
