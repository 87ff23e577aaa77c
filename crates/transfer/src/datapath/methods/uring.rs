//! By a ring: many requests in flight, with buffers of the ring's own.

mod receive;
mod send;

use std::io::{ErrorKind, Result};

use super::super::range_cursor::RangeCursor;
use super::super::socket_io::{RingIo, SocketIo};
use super::TransferMethod;

/// What it needs is in the ring of the socket.
pub struct Uring {
    /// Whether bytes are sent without a copy.
    pub zero_copy: bool,
}

impl TransferMethod for Uring {
    fn send(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        send::send(socket.ring().ok_or(ErrorKind::Unsupported)?, range, self.zero_copy)
    }

    fn receive(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        receive::receive(socket.ring().ok_or(ErrorKind::Unsupported)?, range)
    }

    fn finish(&mut self, socket: &mut SocketIo) -> Result<()> {
        let Some(RingIo { requests, counts, timeout, .. }) = socket.ring() else { return Ok(()) };
        while (0..requests.slots()).any(|slot| requests.is_in_use(slot)) {
            counts.system_calls += 1;
            counts.waits += 1;
            if !requests.wait(Some(timeout))? {
                return Err(ErrorKind::TimedOut.into());
            }
            while let Some(done) = requests.next_completion() {
                counts.count_release(&done);
            }
        }
        Ok(())
    }
}
