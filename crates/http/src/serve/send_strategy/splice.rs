//! Files sent through a pipe by reference: from the file into the pipe, from there into the socket.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::fd::AsFd;

use kelvin_sys::net::socket_send::Splicer;
use kelvin_sys::net::transfer_call::{self, MoreFollows, TransferCall};

use crate::serve::body::FileRange;

/// Bytes that the pipe holds, as far as they are granted: a quarter of what a user without privileges may ask for, and 256 such
/// pipes are what he may have in all (fs.pipe-max-size, fs.pipe-user-pages-soft).
const PIPE_BYTES: usize = 256 << 10;

/// A pipe that is empty between two calls: what a socket does not take is dropped, and moved again when its turn comes.
#[derive(Debug, Default)]
pub struct SpliceSender {
    /// The pipe, and /dev/null, which takes what is dropped.
    pipe: Option<(Splicer, File)>,
}

impl SpliceSender {
    /// Descriptors that it has.
    pub const DESCRIPTORS: u64 = 3;

    /// Sends some of a part.
    pub fn send(&mut self, part: &FileRange, socket: &impl AsFd) -> Result<usize> {
        let (pipe, nowhere) = match self.pipe.take() {
            Some(open) => open,
            None => (Splicer::new(PIPE_BYTES)?, File::options().write(true).open("/dev/null")?),
        };
        let left = part.range.end - part.range.start;
        let bytes = left.min(PIPE_BYTES as u64) as usize;
        let from = transfer_call::FileSlice { file: &part.opened.file, offset: part.range.start, bytes };
        let held = TransferCall::FileToPipe(from, &pipe).execute(socket)?;
        if held == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let follows = if (held as u64) < left { MoreFollows::Yes } else { MoreFollows::No };
        let sent = TransferCall::PipeToSocket(&pipe, held, follows).execute(socket);
        let unsent = held - *sent.as_ref().unwrap_or(&0);
        let to = transfer_call::FileSlice { file: &nowhere, offset: 0, bytes: unsent };
        // It goes on being used if it is empty.
        let drain = || TransferCall::PipeToFile(&pipe, to).execute(&nowhere);
        if unsent == 0 || drain().is_ok_and(|dropped| dropped == unsent) {
            self.pipe = Some((pipe, nowhere));
        }
        sent
    }
}
