//! By sendfile, where the socket refers to the pages of the page cache; and by splice, from the file into a pipe and from there to the
//! socket, or the other way round.

use std::io::Result;

use kelvin_sys::net::socket_send::Splicer;
use kelvin_sys::net::transfer_call::{PageAccess, TransferCall};

use super::super::range_cursor::{RangeCursor, nonzero};
use super::super::socket_io::SocketIo;
use super::TransferMethod;

pub struct Sendfile {
    pub call_bytes: usize,
}

impl TransferMethod for Sendfile {
    fn send(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        while range.remaining() > 0 {
            match socket.call(TransferCall::SendFile(range.next_part(self.call_bytes)))? {
                0 => break,
                sent => range.mark_sent(sent),
            }
        }
        Ok(())
    }
}

/// A pipe, and how many bytes it holds.
pub struct Splice {
    pipe: Splicer,
    pipe_bytes: usize,
    call_bytes: usize,
    in_pipe: usize,
}

impl Splice {
    pub fn new(buffer: usize, access: PageAccess) -> Result<Self> {
        let pipe = Splicer::new(buffer)?;
        // A call that receives more than the pipe holds would wait for a reader.
        let call_bytes = if access == PageAccess::Write { buffer.min(pipe.capacity()?) } else { buffer };
        Ok(Self { pipe, pipe_bytes: buffer, call_bytes, in_pipe: 0 })
    }

    /// Takes another pipe if this one holds bytes of a file or of a connection that failed.
    fn replace_unless_empty(&mut self) -> Result<()> {
        if self.in_pipe > 0 {
            (self.pipe, self.in_pipe) = (Splicer::new(self.pipe_bytes)?, 0);
        }
        Ok(())
    }
}

impl TransferMethod for Splice {
    fn send(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        self.replace_unless_empty()?;
        while range.remaining() > 0 {
            self.in_pipe = socket.call(TransferCall::FileToPipe(range.next_part(self.call_bytes), &self.pipe))?;
            if self.in_pipe == 0 {
                break;
            }
            while self.in_pipe > 0 {
                let follows = range.more_follows(self.in_pipe);
                let sent = nonzero(socket.call(TransferCall::PipeToSocket(&self.pipe, self.in_pipe, follows))?)?;
                range.mark_sent(sent);
                self.in_pipe -= sent;
            }
        }
        Ok(())
    }

    fn receive(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        self.replace_unless_empty()?;
        while range.remaining() > 0 {
            let length = range.remaining_up_to(self.call_bytes);
            self.in_pipe = socket.call(TransferCall::SocketToPipe(&self.pipe, length))?;
            if self.in_pipe == 0 {
                break;
            }
            range.mark_received(self.in_pipe);
            while self.in_pipe > 0 {
                let written =
                    nonzero(socket.call(TransferCall::PipeToFile(&self.pipe, range.next_part(self.in_pipe)))?)?;
                range.mark_written(written);
                self.in_pipe -= written;
            }
        }
        Ok(())
    }
}
