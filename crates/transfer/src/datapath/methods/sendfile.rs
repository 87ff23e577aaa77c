//! By sendfile: the socket refers to the pages of the page cache.

use std::io::Result;

use kelvin_sys::net::transfer_call::TransferCall;

use super::super::range_cursor::RangeCursor;
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
