//! By sendfile, where the socket refers to the pages of the page cache. And by splice, from the file into a pipe and from there to the
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
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        while range.remaining() > 0 {
            match socket.call(TransferCall::SendFile(range.next_part(self.call_bytes)))? {
                0 => break,
                sent => range.mark_moved(sent),
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
}

impl TransferMethod for Splice {
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        // It may hold bytes of a file or of a connection that failed.
        if self.in_pipe > 0 {
            (self.pipe, self.in_pipe) = (Splicer::new(self.pipe_bytes)?, 0);
        }
        while range.remaining() > 0 {
            self.in_pipe = socket.call(match range.access {
                PageAccess::Read => TransferCall::FileToPipe(range.next_part(self.call_bytes), &self.pipe),
                PageAccess::Write => TransferCall::SocketToPipe(&self.pipe, range.remaining_up_to(self.call_bytes)),
            })?;
            if self.in_pipe == 0 {
                break;
            }
            range.mark_filled(self.in_pipe);
            while self.in_pipe > 0 {
                let drained = nonzero(socket.call(match range.access {
                    PageAccess::Read => {
                        TransferCall::PipeToSocket(&self.pipe, self.in_pipe, range.more_follows(self.in_pipe))
                    }
                    PageAccess::Write => TransferCall::PipeToFile(&self.pipe, range.next_part(self.in_pipe)),
                })?)?;
                range.mark_drained(drained);
                self.in_pipe -= drained;
            }
        }
        Ok(())
    }
}
