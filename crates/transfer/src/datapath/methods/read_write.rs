//! By way of a buffer: pread and send, or recv and pwrite.

use std::io::Result;

use kelvin_sys::net::transfer_call::TransferCall;

use super::super::range_cursor::{RangeCursor, nonzero};
use super::super::socket_io::SocketIo;
use super::TransferMethod;

/// The buffer.
pub struct ReadWrite(pub Vec<u8>);

impl TransferMethod for ReadWrite {
    fn send(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let buffer = &mut self.0;
        while range.remaining() > 0 {
            let wanted = range.remaining_up_to(buffer.len());
            let read = socket.call(TransferCall::Read(range.file, range.offset, &mut buffer[..wanted]))?;
            if read == 0 {
                break;
            }
            let mut sent = 0;
            while sent < read {
                let rest = &buffer[sent..read];
                let more = socket.call(TransferCall::Send(rest, range.more_follows(rest.len())))?;
                range.mark_sent(more);
                sent += more;
            }
            range.observe(&buffer[..read]);
        }
        Ok(())
    }

    fn receive(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let buffer = &mut self.0;
        while range.remaining() > 0 {
            let wanted = range.remaining_up_to(buffer.len());
            let read = socket.call(TransferCall::Receive(&mut buffer[..wanted]))?;
            if read == 0 {
                break;
            }
            range.mark_received(read);
            let mut rest = &buffer[..read];
            while !rest.is_empty() {
                let written = nonzero(socket.call(TransferCall::Write(range.file, range.offset, rest))?)?;
                range.mark_written(written);
                rest = &rest[written..];
            }
            range.observe(&buffer[..read]);
        }
        Ok(())
    }
}
