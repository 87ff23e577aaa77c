//! Both ends of a transfer through a remote shell, such as ssh, which starts one of them and carries what they say.
//!
//! The remote end begins by a line that names its version. What comes before is of the shell, whose start-up files may print: it is
//! handed on for people to read. Then both shake hands without a secret. The shell lets nobody else speak, and encrypts what goes over a
//! network, so the bytes of files are not encrypted once more.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use kelvin_file::Error as FileError;

use crate::message::{ReceiverMessage, RefusalReason, SenderMessage, SessionSettings};
use crate::offer_policy::{Destination, OfferPolicy};
use crate::open_directory::OpenDirectory;
use crate::pipe_stream::PipeStream;
use crate::receive::ReceiverOptions;
use crate::secure_channel::{STOP_POLL_INTERVAL, SecureChannel, TransferStream};
use crate::send::{self, Sender, SenderOptions};
use crate::session::{ReceiveSession, SessionEvent};
use crate::summary::TransferSummary;
use crate::wire::deadline::Deadline;
use crate::wire::handshake::Handshake;
use crate::wire::limits_serde::MAX_NAME_BYTES;
use crate::wire::secret::Secret;
use crate::{Error, HANDSHAKE, PROTOCOL, Result};

/// Begins the line of the remote end: no text that a shell prints has this byte.
const START_BYTE: u8 = 0;
/// What follows it, before the versions of the protocol and of the program.
const START_WORDS: &str = "kelvin transfer";
/// Most bytes of the line, and of what may come before it: more is no text of start-up files.
const MAX_START_BYTES: usize = 64 + MAX_NAME_BYTES;
const MAX_SHELL_OUTPUT: usize = 64 << 10;
/// What is done.
const START_STEP: &str = "start";

/// The remote end has started.
///
/// # Errors
/// A local end that is gone.
pub fn announce_start(stream: &mut PipeStream) -> Result<()> {
    let line = format!("\0{START_WORDS} {} {}\n", PROTOCOL.version, env!("CARGO_PKG_VERSION"));
    Deadline::within(HANDSHAKE).write_full(stream, line.as_bytes(), START_STEP)
}

/// Waits until the remote end has started, however long a login takes. Returns what the shell printed before.
///
/// # Errors
/// [`Error::Closed`] if it did not start; another version; a signal.
pub fn await_start<S: TransferStream>(stream: &mut S) -> Result<Vec<u8>> {
    let wrong_program = |why: &dyn Display| Error::violation("kelvin", why);
    let shell_output = read_until(stream, START_BYTE, MAX_SHELL_OUTPUT)?
        .ok_or_else(|| wrong_program(&"the remote shell prints without end"))?;
    let line = read_until(stream, b'\n', MAX_START_BYTES)?.unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let versions = line.strip_prefix(START_WORDS).and_then(|versions| versions.trim_start().split_once(' '));
    match versions.map(|(protocol, program)| (protocol.parse(), program)) {
        Some((Ok(theirs), _)) if theirs == PROTOCOL.version => Ok(shell_output),
        Some((Ok(theirs), program)) => {
            let program: String = program.chars().filter(|c| kelvin_core::text::is_visible(*c)).collect();
            Err(Error::VersionMismatch { theirs, program, ours: PROTOCOL.version })
        }
        _ => Err(wrong_program(&"it does not say its version")),
    }
}

/// Reads up to this byte, which is left out; nothing if it does not come among as many as are allowed. What follows is not read.
fn read_until<S: TransferStream>(stream: &mut S, end: u8, max_bytes: usize) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while bytes.len() < max_bytes {
        let mut byte = [0];
        Error::check_stop()?;
        if !stream.is_readable(STOP_POLL_INTERVAL).map_err(Error::call(START_STEP))? {
            continue;
        }
        match stream.read(&mut byte) {
            Ok(0) => return Err(Error::Closed),
            Ok(_) if byte == [end] => return Ok(Some(bytes)),
            Ok(_) => bytes.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::call(START_STEP)(error)),
        }
    }
    Ok(None)
}

fn handshake(secret: &Secret) -> Handshake<'_> {
    Handshake { protocol: &PROTOCOL, secret, deadline: Deadline::within(HANDSHAKE) }
}

/// A sender whose receiver is at the other end of these pipes.
///
/// # Errors
/// A receiver that breaks the protocol, or is gone.
pub fn connect_sender<S: TransferStream>(stream: S, options: SenderOptions) -> Result<Sender<S>> {
    let start = Instant::now();
    Sender::from_channel(send::shake_hands(stream, &Secret::none())?, (options, start))
}

/// Receives from a sender at the other end of these pipes. `open` finds where files go once it is known how they come.
///
/// # Errors
/// A sender that breaks the protocol, or is gone; a place that cannot be opened, which the sender learns.
pub fn receive<S: TransferStream>(
    mut stream: S,
    options: ReceiverOptions,
    open: impl FnOnce(&SessionSettings) -> Result<Destination>,
    on_event: &dyn Fn(SessionEvent),
) -> Result<TransferSummary> {
    let (halves, ()) = handshake(&Secret::none()).accept(&mut stream, || Some(()))?;
    let mut channel = SecureChannel::new(stream, halves)?;
    channel.set_min_progress(options.min_progress);
    let first: SenderMessage = channel.receive()?;
    let SenderMessage::Begin(settings) = &first else { return Err(Error::ProtocolViolation("it does not begin")) };
    let policy = open(settings).and_then(|destination| OfferPolicy::new(&destination, options.leave));
    if let Err(why) = &policy {
        channel.send(&ReceiverMessage::Refused(RefusalReason(why.wire_text())))?;
    }
    ReceiveSession::new(&mut channel, policy?, on_event).serve(Ok(first))
}

/// The directory in which files arrive through a remote shell: made if only it is missing. In a dry run nothing is made, and all that is
/// offered would come into it.
///
/// # Errors
/// Those of making and opening it.
pub fn open_directory(path: &Path, settings: &SessionSettings) -> Result<Destination> {
    if let Err(error) = std::fs::metadata(path)
        && error.kind() == ErrorKind::NotFound
    {
        if settings.dry_run {
            return Ok(Destination::Nothing);
        }
        std::fs::create_dir(path).map_err(|error| FileError::call("make the directory", path, error))?;
    }
    Ok(Destination::Directory(OpenDirectory::open_root(path)?))
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

    use super::*;

    /// A local end, and the pipes of the remote one.
    fn local_end() -> (PipeStream, PipeReader, PipeWriter) {
        let ((input, remote_output), (remote_input, output)) = (pipe().unwrap(), pipe().unwrap());
        (PipeStream::new(input.into(), output.into()).unwrap(), remote_input, remote_output)
    }

    fn start_after(printed: &[u8]) -> Result<Vec<u8>> {
        let (mut local, _remote_input, mut remote_output) = local_end();
        let printed = printed.to_vec();
        // More than a pipe holds, of which not all may be read.
        std::thread::spawn(move || remote_output.write_all(&printed));
        await_start(&mut local)
    }

    #[test]
    fn start_is_found_behind_shell_output() {
        let ((input, mut local_output), (mut local_input, output)) = (pipe().unwrap(), pipe().unwrap());
        local_output.write_all(b"next").unwrap();
        let mut remote = PipeStream::new(input.into(), output.into()).unwrap();
        announce_start(&mut remote).unwrap();
        drop(remote);
        let mut line = Vec::new();
        local_input.read_to_end(&mut line).unwrap();
        for shell_output in [&b""[..], b"Welcome\n", b"no end of line", &[b'x'; MAX_SHELL_OUTPUT - 1]] {
            assert!(start_after(&[shell_output, &line].concat()).unwrap() == shell_output);
        }
        // Nothing that follows is taken.
        let (mut local, _remote_input, mut remote_output) = local_end();
        remote_output.write_all(&[&line[..], b"hello"].concat()).unwrap();
        await_start(&mut local).unwrap();
        let mut next = [0; 9];
        assert_eq!(local.read(&mut next).unwrap(), 5);
    }

    #[test]
    fn other_starts_are_errors() {
        let words = |printed: &[u8]| start_after(printed).unwrap_err().to_string();
        assert_eq!(words(b"Permission denied"), "the other side closed the connection");
        assert_eq!(words(b"\0kelvin transfer 9"), "the other side closed the connection");
        let other = words(b"\0kelvin transfer 9 0.1.0\x1b\n");
        assert!(other.contains("version 9") && other.contains("0.1.0") && !other.contains('\x1b'), "{other}");
        for printed in [&b"\0rsync\n"[..], b"\0kelvin transfer\n", b"\0kelvin transfer x y\n", &[0; 300]] {
            assert!(words(printed).contains("the other side is no kelvin"), "{}", words(printed));
        }
        assert!(words(&[b'x'; MAX_SHELL_OUTPUT + 1]).contains("prints without end"));
    }
}
