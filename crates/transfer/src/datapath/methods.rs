//! The methods of moving bytes between a file and a socket: each is one file and one implementer of [`TransferMethod`].

mod device_window;
mod mmap;
mod read_write;
mod sendfile;
mod splice;
mod uring;
mod zero_copy;

use std::io::{ErrorKind, Result};

use kelvin_sys::net::transfer_call::PageAccess;

use super::method::{Mode, ReceiveMethod, SendMethod};
use super::range_cursor::RangeCursor;
use super::setup::{ReceiveSetup, SendSetup};
use super::socket_io::SocketIo;
pub use device_window::DeviceWindow;
use mmap::Mmap;
use read_write::ReadWrite;
use sendfile::Sendfile;
use splice::Splice;
use uring::Uring;
pub use zero_copy::PendingSends;
use zero_copy::ZeroCopy;

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

/// The method of a sender.
pub fn sending_method(setup: &SendSetup, socket: &mut SocketIo) -> Result<Box<dyn TransferMethod>> {
    Ok(match setup.method {
        SendMethod::ReadWrite => Box::new(ReadWrite::new(setup.buffer)),
        SendMethod::Mmap => Box::new(Mmap::new(setup.window, setup.buffer, PageAccess::Read)?),
        SendMethod::Sendfile => Box::new(Sendfile { call_bytes: setup.buffer }),
        SendMethod::Splice => Box::new(Splice::for_sending(setup.buffer)?),
        SendMethod::ZeroCopy if setup.mode != Mode::Uring => {
            Box::new(ZeroCopy::new(setup.slots(), setup.buffer, socket)?)
        }
        SendMethod::ZeroCopy => Box::new(Uring { zero_copy: true }),
        SendMethod::Uring => Box::new(Uring { zero_copy: false }),
    })
}

/// The method of a receiver.
pub fn receiving_method(setup: &ReceiveSetup) -> Result<Box<dyn TransferMethod>> {
    Ok(match setup.method {
        ReceiveMethod::ReadWrite => Box::new(ReadWrite::new(setup.buffer)),
        ReceiveMethod::Mmap => Box::new(Mmap::new(setup.window, setup.buffer, PageAccess::Write)?),
        ReceiveMethod::Splice => Box::new(Splice::for_receiving(setup.buffer)?),
        ReceiveMethod::Uring => Box::new(Uring { zero_copy: false }),
    })
}
