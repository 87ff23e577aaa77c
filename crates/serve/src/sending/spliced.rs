//! Files sent through a pipe by reference: from the file into the pipe, from there into the socket.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::fd::AsFd;

use kelvin_sys::net::moving::{self, Call, Follows};
use kelvin_sys::net::sending::Splicer;

use crate::body::Part;

/// Bytes that the pipe holds, as far as they are granted: a quarter of what a user without privileges may ask for, and 256 such
/// pipes are what he may have in all (fs.pipe-max-size, fs.pipe-user-pages-soft).
const PIPE: usize = 256 << 10;

/// A pipe that is empty between two calls: what a socket does not take is dropped, and moved again when its turn comes.
#[derive(Debug, Default)]
pub struct Spliced {
    /// The pipe, and /dev/null, which takes what is dropped.
    pipe: Option<(Splicer, File)>,
}

impl Spliced {
    /// Descriptors that it has.
    pub const DESCRIPTORS: u64 = 3;

    /// Sends some of a part.
    pub fn send(&mut self, part: &Part, socket: &impl AsFd) -> Result<usize> {
        let (pipe, nowhere) = self.pipe.take().map_or_else(new, Ok)?;
        let left = part.range.end - part.range.start;
        let bytes = left.min(PIPE as u64) as usize;
        let from = moving::Part { file: &part.opened.file, offset: part.range.start, bytes };
        let held = Call::FileToPipe(from, &pipe).make(socket)?;
        if held == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let follows = if (held as u64) < left { Follows::More } else { Follows::Nothing };
        let sent = Call::PipeToSocket(&pipe, held, follows).make(socket);
        let unsent = held - *sent.as_ref().unwrap_or(&0);
        if unsent == 0 || drop_held(&pipe, &nowhere, unsent) {
            self.pipe = Some((pipe, nowhere));
        }
        sent
    }
}

fn new() -> Result<(Splicer, File)> {
    Ok((Splicer::new(PIPE)?, File::options().write(true).open("/dev/null")?))
}

/// Empties a pipe of what it holds: whether that is all gone.
fn drop_held(pipe: &Splicer, nowhere: &File, bytes: usize) -> bool {
    let to = moving::Part { file: nowhere, offset: 0, bytes };
    Call::PipeToFile(pipe, to).make(nowhere).is_ok_and(|dropped| dropped == bytes)
}
