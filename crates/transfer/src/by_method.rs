//! By which method the bytes of large files go that are neither encrypted nor small: the one that was asked for, or the one that a
//! first moment shows to be fastest.
//!
//! Two ways are tried in turn on the first blocks, in an order in which neither is always first, and what they took is compared as
//! the end sees it, waiting for the other one included. At the sender, verified, that is reading into a buffer against the file
//! mapped; not verified, against sendfile, which shows the sender no byte. At the receiver, verified, it is parts for which it looks
//! before it sleeps, against larger ones by calls that wait: what shows no byte must be read again, and pages of a file that are touched
//! one by one cost more than they save; not verified, it is receiving into a buffer against splice.

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use kelvin_sys::interrupt;
use kelvin_sys::mapping::has_no_mappings;
use kelvin_wire::Error as WireError;

use crate::channel::{PART, TICK, TO_SEND, TO_TAKE};
use crate::moving::{Mode, ReceiveMethod, ReceivePath, ReceiveSetup, Seen, SendMethod, SendPath, SendSetup};
use crate::progress::{MinProgress, ProgressMeter, Shortfall};
use crate::{Error, Result};

/// Pages of a window, and bytes of a call, of the ways that are tried.
const WINDOW: usize = 256;
const CALL: usize = 1 << 20;
/// Bytes of a call that receives what is hashed: several of them fit into a second-level cache, and they were seen to take a tenth less
/// than parts of 64 KiB.
const HASHED: usize = 256 << 10;
/// Only of pieces of at least so many bytes can be said how long they take.
const LEAST: u64 = 1 << 20;
/// How many pieces are moved until one way is chosen.
const TRIED: usize = 16;
/// How much faster another way must be, to be taken.
const FASTER: f64 = 1.05;

/// A method, set up over a socket.
pub(crate) trait Path: Sized {
    /// What it is set up by.
    type Setup: Copy;

    /// Which way is tried next. The orders of the two ends differ, so that each way of one meets each of the other equally often.
    const ORDER: [usize; 4];

    /// Over this socket.
    fn over(socket: TcpStream, setup: Self::Setup) -> std::io::Result<Self>;

    /// The socket.
    fn socket(&self) -> &TcpStream;
}

impl Path for SendPath {
    type Setup = SendSetup;

    const ORDER: [usize; 4] = [0, 1, 1, 0];

    fn over(socket: TcpStream, setup: SendSetup) -> std::io::Result<Self> {
        Self::new(socket, setup)
    }

    fn socket(&self) -> &TcpStream {
        self.stream()
    }
}

impl Path for ReceivePath {
    type Setup = ReceiveSetup;

    const ORDER: [usize; 4] = [0, 0, 1, 1];

    fn over(socket: TcpStream, setup: ReceiveSetup) -> std::io::Result<Self> {
        Self::new(socket, setup)
    }

    fn socket(&self) -> &TcpStream {
        self.stream()
    }
}

/// By what the next piece goes.
pub(crate) enum Way<P> {
    /// Parts by way of a buffer.
    Parts,
    /// Another method.
    Path(Box<P>),
}

/// A way, and what it took.
struct Tried<P: Path> {
    setup: Option<P::Setup>,
    path: Option<Box<P>>,
    bytes: u64,
    nanoseconds: f64,
}

impl<P: Path> Tried<P> {
    fn new(setup: Option<P::Setup>) -> Self {
        Self { setup, path: None, bytes: 0, nanoseconds: 0.0 }
    }

    fn a_byte(&self) -> f64 {
        self.nanoseconds / self.bytes.max(1) as f64
    }
}

/// The ways that there are.
pub(crate) struct Ways<P: Path> {
    all: Vec<Tried<P>>,
    pieces: usize,
}

impl Ways<SendPath> {
    /// Bytes that go plain: by this setup, or by whatever is fastest. Encrypted ones go by parts alone.
    pub(crate) fn of_sending(asked: Option<SendSetup>, is_plain: bool, is_verified: bool) -> Self {
        let other = if is_verified { SendMethod::Mmap } else { SendMethod::Sendfile };
        let patience = MinProgress::default().within;
        let setup = SendSetup { method: other, mode: Mode::Blocking, buffer: CALL, window: WINDOW, patience };
        Self::of((asked, Some(setup)), is_plain)
    }

    /// By what method most of it went: none if nothing went by any.
    pub(crate) fn method(&self) -> Option<SendMethod> {
        self.most().map(|setup| setup.map_or(SendMethod::ReadWrite, |setup| setup.method))
    }

    /// Waits until no buffer is in use by the kernel.
    ///
    /// # Errors
    /// A connection that broke.
    pub(crate) fn finish(&mut self) -> Result<()> {
        for path in self.all.iter_mut().filter_map(|tried| tried.path.as_mut()) {
            let patience = path.setup().patience;
            path.finish().map_err(|error| {
                broken(error, patience).unwrap_or_else(|error| WireError::call(TO_TAKE)(error).into())
            })?;
        }
        Ok(())
    }
}

impl Ways<ReceivePath> {
    /// The same of bytes that come.
    pub(crate) fn of_receiving(asked: Option<ReceiveSetup>, is_plain: bool, is_verified: bool) -> Self {
        let (method, buffer) =
            if is_verified { (ReceiveMethod::ReadWrite, HASHED) } else { (ReceiveMethod::Splice, CALL) };
        let (mode, patience) = (Mode::Blocking, MinProgress::default().within);
        let setup = ReceiveSetup { method, mode, buffer, window: WINDOW, patience };
        Self::of((asked, Some(setup)), is_plain)
    }

    /// By what method most of it came: none if nothing came by any.
    pub(crate) fn method(&self) -> Option<ReceiveMethod> {
        self.most().map(|setup| setup.map_or(ReceiveMethod::ReadWrite, |setup| setup.method))
    }
}

impl<P: Path> Ways<P> {
    fn of((asked, other): (Option<P::Setup>, Option<P::Setup>), is_plain: bool) -> Self {
        let all = match (asked, other) {
            _ if !is_plain => vec![None],
            (Some(asked), _) => vec![Some(asked)],
            (None, Some(other)) => vec![None, Some(other)],
            (None, None) => vec![None],
        };
        Self { all: all.into_iter().map(Tried::new).collect(), pieces: 0 }
    }

    /// No other way than parts is left: the connection has no socket of its own.
    fn give_up(&mut self) {
        self.all = vec![Tried::new(None)];
    }

    fn number(&self) -> usize {
        match &self.all[..] {
            [_, _] if self.pieces < TRIED => P::ORDER[self.pieces % P::ORDER.len()],
            [parts, other] if other.a_byte() * FASTER < parts.a_byte() => 1,
            _ => 0,
        }
    }

    /// The way of the next piece, and its number; `socket` makes a second descriptor of the connection.
    ///
    /// # Errors
    /// Those of making it.
    pub(crate) fn next(
        &mut self,
        socket: impl FnOnce() -> std::io::Result<Option<TcpStream>>,
    ) -> std::io::Result<(usize, Way<P>)> {
        let number = self.number();
        let tried = &mut self.all[number];
        let Some(setup) = tried.setup else { return Ok((number, Way::Parts)) };
        if let Some(path) = tried.path.take() {
            return Ok((number, Way::Path(path)));
        }
        let Some(socket) = socket()? else {
            self.give_up();
            return Ok((0, Way::Parts));
        };
        let path = P::over(socket, setup)?;
        wait_as_before(path.socket())?;
        Ok((number, Way::Path(Box::new(path))))
    }

    /// The next piece goes over another socket; what was learnt of the ways holds for it too.
    pub(crate) fn leave_socket(&mut self) {
        self.all.iter_mut().for_each(|tried| tried.path = None);
    }

    /// What a piece took that went this way.
    pub(crate) fn took(&mut self, (number, way): (usize, Way<P>), bytes: u64, begun: Instant) {
        let Some(tried) = self.all.get_mut(number) else { return };
        if let Way::Path(path) = way {
            tried.path = Some(path);
        }
        if bytes >= LEAST {
            self.pieces += 1;
            tried.bytes += bytes;
            tried.nanoseconds += begun.elapsed().as_nanos() as f64;
        }
    }

    /// How the way is set up that most of it went; nothing if that was by parts.
    pub(crate) fn setup(&self) -> Option<P::Setup> {
        self.most().flatten()
    }

    /// The setup of the way that most of it went; nothing if nothing went any way.
    fn most(&self) -> Option<Option<P::Setup>> {
        let most = self.all.iter().max_by_key(|tried| tried.bytes).filter(|tried| tried.bytes > 0)?;
        Some(most.setup)
    }
}

/// Sends a range of a file, and says how many bytes have gone: fewer if the file became shorter, or could not be read. None at all
/// of a file that would be mapped and cannot be.
///
/// # Errors
/// A connection that broke.
pub(crate) fn send(path: &mut SendPath, file: &File, range: Range<u64>, seen: Seen<'_>) -> Result<Option<u64>> {
    let SendSetup { mode, method, patience, .. } = path.setup();
    wait_in(path.stream(), (mode, patience)).map_err(WireError::call(SET_UP))?;
    let sent = path.send(file, range, seen);
    wait_as_before(path.stream()).map_err(WireError::call(SET_UP))?;
    match sent.map_err(|error| broken(error, patience)) {
        Ok(sent) => Ok(Some(sent)),
        Err(Err(error)) if method == SendMethod::Mmap && path.moved() == 0 && has_no_mappings(&error) => Ok(None),
        // What these have sent is known, whatever failed.
        Err(Err(_)) if matches!(method, SendMethod::ReadWrite | SendMethod::Mmap | SendMethod::Sendfile) => {
            Ok(Some(path.moved()))
        }
        Err(Err(error)) => Err(WireError::call(TO_TAKE)(error).into()),
        Err(Ok(error)) => Err(error),
    }
}

/// What became of a range of a file.
pub(crate) enum Received {
    /// So many bytes have come and are in it: fewer only at the end of the stream.
    All(u64),
    /// The file could not be written; so many bytes were taken of what has come.
    Unwritten(std::io::Error, u64),
}

/// Receives a range of a file, of which as much comes as the connection has measured so far.
///
/// # Errors
/// A connection that broke, or is too slow.
pub(crate) fn receive(
    path: &mut ReceivePath,
    meter: &mut ProgressMeter,
    (file, range): (&File, Range<u64>),
    seen: Seen<'_>,
) -> Result<Received> {
    let patience = meter.least().within;
    wait_in(path.stream(), (path.setup().mode, patience)).map_err(WireError::call(SET_UP))?;
    let received = path.receive_measured(meter, (file, range), seen);
    wait_as_before(path.stream()).map_err(WireError::call(SET_UP))?;
    match received.map_err(|error| broken_while(error, (TO_SEND, patience))) {
        Ok(bytes) => Ok(Received::All(bytes)),
        Err(Err(error)) => Ok(Received::Unwritten(error, path.moved())),
        Err(Ok(error)) => Err(error),
    }
}

const SET_UP: &str = "set up the connection";

/// Has calls wait as a mode has them.
fn wait_in(socket: &TcpStream, (mode, patience): (Mode, Duration)) -> std::io::Result<()> {
    wait_for(socket, patience)?;
    socket.set_nonblocking(matches!(mode, Mode::Nonblocking | Mode::Signal))
}

/// The channel's own calls wait in the call, for a short time.
fn wait_as_before(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    wait_for(socket, TICK)
}

fn wait_for(socket: &TcpStream, time: Duration) -> std::io::Result<()> {
    socket.set_read_timeout(Some(time))?;
    socket.set_write_timeout(Some(time))
}

/// Why a connection broke; or the error, if it is of something else.
fn broken(error: std::io::Error, patience: Duration) -> std::result::Result<Error, std::io::Error> {
    broken_while(error, (TO_TAKE, patience))
}

fn broken_while(
    error: std::io::Error,
    (doing, patience): (&'static str, Duration),
) -> std::result::Result<Error, std::io::Error> {
    if let Some(signal) = interrupt::requested() {
        return Ok(Error::Interrupted(signal));
    }
    if let Some(shortfall) = error.get_ref().and_then(|why| why.downcast_ref::<Shortfall>()) {
        return Ok(shortfall.while_it_did_not(doing));
    }
    match error.kind() {
        ErrorKind::TimedOut => Ok(WireError::Late { doing, seconds: patience.as_secs_f64() }.into()),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => {
            Ok(WireError::call(doing)(error).into())
        }
        _ => Err(error),
    }
}

const _: () = assert!(LEAST as usize > PART, "parts are timed by more than one call");

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pieces of which each way takes so many nanoseconds a byte, and says the way of the one after them.
    fn chosen(a_byte: [f64; 2]) -> usize {
        let mut ways = Ways::of_sending(None, true, false);
        for _ in 0..TRIED {
            let number = ways.number();
            ways.pieces += 1;
            ways.all[number].bytes += LEAST;
            ways.all[number].nanoseconds += a_byte[number] * LEAST as f64;
        }
        ways.number()
    }

    #[test]
    fn the_faster_way_is_taken_and_no_other_for_a_little() {
        assert_eq!([chosen([1.0, 0.5]), chosen([1.0, 0.99]), chosen([1.0, 1.5])], [1, 0, 0]);
    }

    #[test]
    fn both_are_tried_equally_often_and_neither_always_first() {
        let both = || SendPath::ORDER.into_iter().zip(ReceivePath::ORDER).cycle().take(TRIED);
        for way in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert_eq!(both().filter(|tried| *tried == way).count(), TRIED / 4, "{way:?}");
        }
        let first = SendPath::ORDER.chunks(2).filter(|pair| pair[0] == 0).count();
        assert_eq!(first, 1);
    }

    #[test]
    fn what_is_encrypted_goes_by_parts_and_what_is_asked_for_is_not_compared() {
        assert_eq!(Ways::of_sending(None, false, true).all.len(), 1);
        let asked =
            SendSetup { method: SendMethod::Splice, mode: Mode::Blocking, buffer: 512, window: 1, patience: TICK };
        assert_eq!(Ways::of_sending(Some(asked), true, true).all[0].setup, Some(asked));
        assert!(Ways::of_sending(Some(asked), false, true).all[0].setup.is_none());
        assert_eq!(Ways::of_sending(None, true, true).all[1].setup.unwrap().method, SendMethod::Mmap);
        assert_eq!(Ways::of_sending(None, true, true).method(), None);
    }
}
