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

use crate::wire::Error as WireError;
use kelvin_sys::mapping::is_unmappable;
use kelvin_sys::stop_signals;

use crate::datapath::{ByteObserver, Mode, ReceiveMethod, ReceivePath, ReceiveSetup, SendMethod, SendPath, SendSetup};
use crate::progress::{MinProgress, ProgressMeter, Shortfall};
use crate::secure_channel::{PART_BYTES, SEND_STEP, STOP_POLL_INTERVAL, TAKE_STEP};
use crate::{Error, Result};

/// Pages of a window, and bytes of a call, of the ways that are tried.
const WINDOW_PAGES: usize = 256;
const CALL_BYTES: usize = 1 << 20;
/// Bytes of a call that receives what is hashed: several of them fit into a second-level cache, and they were seen to take a tenth less
/// than parts of 64 KiB.
const HASHED_CALL_BYTES: usize = 256 << 10;
/// Only of pieces of at least so many bytes can be said how long they take.
const MIN_TIMED_PIECE: u64 = 1 << 20;
/// How many pieces are moved until one way is chosen.
const TRIAL_PIECES: usize = 16;
/// How much faster another way must be, to be taken.
const MIN_SPEEDUP: f64 = 1.05;

/// A method, set up over a socket.
pub(crate) trait MethodPath: Sized {
    /// What it is set up by.
    type Setup: Copy;

    /// Which way is tried next. The orders of the two ends differ, so that each way of one meets each of the other equally often.
    const TRIAL_ORDER: [usize; 4];

    /// Over this socket.
    fn from_socket(socket: TcpStream, setup: Self::Setup) -> std::io::Result<Self>;

    /// The socket.
    fn socket(&self) -> &TcpStream;
}

impl MethodPath for SendPath {
    type Setup = SendSetup;

    const TRIAL_ORDER: [usize; 4] = [0, 1, 1, 0];

    fn from_socket(socket: TcpStream, setup: SendSetup) -> std::io::Result<Self> {
        Self::new(socket, setup)
    }

    fn socket(&self) -> &TcpStream {
        self.stream()
    }
}

impl MethodPath for ReceivePath {
    type Setup = ReceiveSetup;

    const TRIAL_ORDER: [usize; 4] = [0, 0, 1, 1];

    fn from_socket(socket: TcpStream, setup: ReceiveSetup) -> std::io::Result<Self> {
        Self::new(socket, setup)
    }

    fn socket(&self) -> &TcpStream {
        self.stream()
    }
}

/// By what the next piece goes.
pub(crate) enum PieceMethod<P> {
    /// Parts by way of a buffer.
    Buffered,
    /// Another method.
    Direct(Box<P>),
}

/// A way, and what it took.
struct PathTrial<P: MethodPath> {
    setup: Option<P::Setup>,
    path: Option<Box<P>>,
    bytes: u64,
    nanoseconds: f64,
}

impl<P: MethodPath> PathTrial<P> {
    fn new(setup: Option<P::Setup>) -> Self {
        Self { setup, path: None, bytes: 0, nanoseconds: 0.0 }
    }

    fn nanoseconds_per_byte(&self) -> f64 {
        self.nanoseconds / self.bytes.max(1) as f64
    }
}

/// The ways that there are.
pub(crate) struct MethodChooser<P: MethodPath> {
    trials: Vec<PathTrial<P>>,
    pieces: usize,
}

impl MethodChooser<SendPath> {
    /// Bytes that go plain: by this setup, or by whatever is fastest. Encrypted ones go by parts alone.
    pub(crate) fn for_sending(asked: Option<SendSetup>, is_plain: bool, is_verified: bool) -> Self {
        let other = if is_verified { SendMethod::Mmap } else { SendMethod::Sendfile };
        let patience = MinProgress::default().within;
        let setup = SendSetup {
            method: other,
            mode: Mode::Blocking,
            buffer: CALL_BYTES,
            window: WINDOW_PAGES,
            timeout: patience,
        };
        Self::new((asked, Some(setup)), is_plain)
    }

    /// By what method most of it went: none if nothing went by any.
    pub(crate) fn method(&self) -> Option<SendMethod> {
        self.dominant().map(|setup| setup.map_or(SendMethod::ReadWrite, |setup| setup.method))
    }

    /// Waits until no buffer is in use by the kernel.
    ///
    /// # Errors
    /// A connection that broke.
    pub(crate) fn finish(&mut self) -> Result<()> {
        for path in self.trials.iter_mut().filter_map(|tried| tried.path.as_mut()) {
            let patience = path.setup().timeout;
            path.finish().map_err(|error| {
                connection_error(error, patience).unwrap_or_else(|error| WireError::call(TAKE_STEP)(error).into())
            })?;
        }
        Ok(())
    }
}

impl MethodChooser<ReceivePath> {
    /// The same of bytes that come.
    pub(crate) fn for_receiving(asked: Option<ReceiveSetup>, is_plain: bool, is_verified: bool) -> Self {
        let (method, buffer) = if is_verified {
            (ReceiveMethod::ReadWrite, HASHED_CALL_BYTES)
        } else {
            (ReceiveMethod::Splice, CALL_BYTES)
        };
        let (mode, patience) = (Mode::Blocking, MinProgress::default().within);
        let setup = ReceiveSetup { method, mode, buffer, window: WINDOW_PAGES, timeout: patience };
        Self::new((asked, Some(setup)), is_plain)
    }

    /// By what method most of it came: none if nothing came by any.
    pub(crate) fn method(&self) -> Option<ReceiveMethod> {
        self.dominant().map(|setup| setup.map_or(ReceiveMethod::ReadWrite, |setup| setup.method))
    }
}

impl<P: MethodPath> MethodChooser<P> {
    fn new((asked, other): (Option<P::Setup>, Option<P::Setup>), is_plain: bool) -> Self {
        let all = match (asked, other) {
            _ if !is_plain => vec![None],
            (Some(asked), _) => vec![Some(asked)],
            (None, Some(other)) => vec![None, Some(other)],
            (None, None) => vec![None],
        };
        Self { trials: all.into_iter().map(PathTrial::new).collect(), pieces: 0 }
    }

    /// No other way than parts is left: the connection has no socket of its own.
    fn fall_back(&mut self) {
        self.trials = vec![PathTrial::new(None)];
    }

    fn current(&self) -> usize {
        match &self.trials[..] {
            [_, _] if self.pieces < TRIAL_PIECES => P::TRIAL_ORDER[self.pieces % P::TRIAL_ORDER.len()],
            [parts, other] if other.nanoseconds_per_byte() * MIN_SPEEDUP < parts.nanoseconds_per_byte() => 1,
            _ => 0,
        }
    }

    /// The way of the next piece, and its number; `socket` makes a second descriptor of the connection.
    ///
    /// # Errors
    /// Those of making it.
    pub(crate) fn next_method(
        &mut self,
        socket: impl FnOnce() -> std::io::Result<Option<TcpStream>>,
    ) -> std::io::Result<(usize, PieceMethod<P>)> {
        let number = self.current();
        let tried = &mut self.trials[number];
        let Some(setup) = tried.setup else { return Ok((number, PieceMethod::Buffered)) };
        if let Some(path) = tried.path.take() {
            return Ok((number, PieceMethod::Direct(path)));
        }
        let Some(socket) = socket()? else {
            self.fall_back();
            return Ok((0, PieceMethod::Buffered));
        };
        let path = P::from_socket(socket, setup)?;
        restore_timeouts(path.socket())?;
        Ok((number, PieceMethod::Direct(Box::new(path))))
    }

    /// The next piece goes over another socket; what was learnt of the ways holds for it too.
    pub(crate) fn reset_socket(&mut self) {
        self.trials.iter_mut().for_each(|tried| tried.path = None);
    }

    /// What a piece took that went this way.
    pub(crate) fn record(&mut self, (number, way): (usize, PieceMethod<P>), bytes: u64, begun: Instant) {
        let Some(tried) = self.trials.get_mut(number) else { return };
        if let PieceMethod::Direct(path) = way {
            tried.path = Some(path);
        }
        if bytes >= MIN_TIMED_PIECE {
            self.pieces += 1;
            tried.bytes += bytes;
            tried.nanoseconds += begun.elapsed().as_nanos() as f64;
        }
    }

    /// How the way is set up that most of it went; nothing if that was by parts.
    pub(crate) fn setup(&self) -> Option<P::Setup> {
        self.dominant().flatten()
    }

    /// The setup of the way that most of it went; nothing if nothing went any way.
    fn dominant(&self) -> Option<Option<P::Setup>> {
        let most = self.trials.iter().max_by_key(|tried| tried.bytes).filter(|tried| tried.bytes > 0)?;
        Some(most.setup)
    }
}

/// Sends a range of a file, and says how many bytes have gone: fewer if the file became shorter, or could not be read. None at all
/// of a file that would be mapped and cannot be.
///
/// # Errors
/// A connection that broke.
pub(crate) fn send_range(
    path: &mut SendPath,
    file: &File,
    range: Range<u64>,
    seen: ByteObserver<'_>,
) -> Result<Option<u64>> {
    let SendSetup { mode, method, timeout: patience, .. } = path.setup();
    set_mode_timeouts(path.stream(), (mode, patience)).map_err(WireError::call(SETUP_STEP))?;
    let sent = path.send(file, range, seen);
    restore_timeouts(path.stream()).map_err(WireError::call(SETUP_STEP))?;
    match sent.map_err(|error| connection_error(error, patience)) {
        Ok(sent) => Ok(Some(sent)),
        Err(Err(error)) if method == SendMethod::Mmap && path.moved() == 0 && is_unmappable(&error) => Ok(None),
        // What these have sent is known, whatever failed.
        Err(Err(_)) if matches!(method, SendMethod::ReadWrite | SendMethod::Mmap | SendMethod::Sendfile) => {
            Ok(Some(path.moved()))
        }
        Err(Err(error)) => Err(WireError::call(TAKE_STEP)(error).into()),
        Err(Ok(error)) => Err(error),
    }
}

/// What became of a range of a file.
pub(crate) enum ReceiveOutcome {
    /// So many bytes have come and are in it: fewer only at the end of the stream.
    Complete(u64),
    /// The file could not be written; so many bytes were taken of what has come.
    WriteFailed(std::io::Error, u64),
}

/// Receives a range of a file, of which as much comes as the connection has measured so far.
///
/// # Errors
/// A connection that broke, or is too slow.
pub(crate) fn receive_range(
    path: &mut ReceivePath,
    meter: &mut ProgressMeter,
    (file, range): (&File, Range<u64>),
    seen: ByteObserver<'_>,
) -> Result<ReceiveOutcome> {
    let patience = meter.required().within;
    set_mode_timeouts(path.stream(), (path.setup().mode, patience)).map_err(WireError::call(SETUP_STEP))?;
    let received = path.receive_measured(meter, (file, range), seen);
    restore_timeouts(path.stream()).map_err(WireError::call(SETUP_STEP))?;
    match received.map_err(|error| connection_error_during(error, (SEND_STEP, patience))) {
        Ok(bytes) => Ok(ReceiveOutcome::Complete(bytes)),
        Err(Err(error)) => Ok(ReceiveOutcome::WriteFailed(error, path.moved())),
        Err(Ok(error)) => Err(error),
    }
}

const SETUP_STEP: &str = "set up the connection";

/// Has calls wait as a mode has them.
fn set_mode_timeouts(socket: &TcpStream, (mode, patience): (Mode, Duration)) -> std::io::Result<()> {
    set_timeouts(socket, patience)?;
    socket.set_nonblocking(matches!(mode, Mode::Nonblocking | Mode::Signal))
}

/// The channel's own calls wait in the call, for a short time.
fn restore_timeouts(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    set_timeouts(socket, STOP_POLL_INTERVAL)
}

fn set_timeouts(socket: &TcpStream, time: Duration) -> std::io::Result<()> {
    socket.set_read_timeout(Some(time))?;
    socket.set_write_timeout(Some(time))
}

/// Why a connection broke; or the error, if it is of something else.
fn connection_error(error: std::io::Error, patience: Duration) -> std::result::Result<Error, std::io::Error> {
    connection_error_during(error, (TAKE_STEP, patience))
}

fn connection_error_during(
    error: std::io::Error,
    (doing, patience): (&'static str, Duration),
) -> std::result::Result<Error, std::io::Error> {
    if let Some(signal) = stop_signals::stop_signal() {
        return Ok(Error::Interrupted(signal));
    }
    if let Some(shortfall) = error.get_ref().and_then(|why| why.downcast_ref::<Shortfall>()) {
        return Ok(shortfall.to_error(doing));
    }
    match error.kind() {
        ErrorKind::TimedOut => Ok(WireError::TimedOut { doing, seconds: patience.as_secs_f64() }.into()),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => {
            Ok(WireError::call(doing)(error).into())
        }
        _ => Err(error),
    }
}

const _: () = assert!(MIN_TIMED_PIECE as usize > PART_BYTES, "parts are timed by more than one call");

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pieces of which each way takes so many nanoseconds a byte, and says the way of the one after them.
    fn chosen_method(a_byte: [f64; 2]) -> usize {
        let mut ways = MethodChooser::for_sending(None, true, false);
        for _ in 0..TRIAL_PIECES {
            let number = ways.current();
            ways.pieces += 1;
            ways.trials[number].bytes += MIN_TIMED_PIECE;
            ways.trials[number].nanoseconds += a_byte[number] * MIN_TIMED_PIECE as f64;
        }
        ways.current()
    }

    #[test]
    fn clearly_faster_method_wins() {
        assert_eq!([chosen_method([1.0, 0.5]), chosen_method([1.0, 0.99]), chosen_method([1.0, 1.5])], [1, 0, 0]);
    }

    #[test]
    fn trial_order_is_balanced() {
        let both = || SendPath::TRIAL_ORDER.into_iter().zip(ReceivePath::TRIAL_ORDER).cycle().take(TRIAL_PIECES);
        for way in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert_eq!(both().filter(|tried| *tried == way).count(), TRIAL_PIECES / 4, "{way:?}");
        }
        let first = SendPath::TRIAL_ORDER.chunks(2).filter(|pair| pair[0] == 0).count();
        assert_eq!(first, 1);
    }

    #[test]
    fn encrypted_data_is_buffered_and_fixed_method_kept() {
        assert_eq!(MethodChooser::for_sending(None, false, true).trials.len(), 1);
        let asked = SendSetup {
            method: SendMethod::Splice,
            mode: Mode::Blocking,
            buffer: 512,
            window: 1,
            timeout: STOP_POLL_INTERVAL,
        };
        assert_eq!(MethodChooser::for_sending(Some(asked), true, true).trials[0].setup, Some(asked));
        assert!(MethodChooser::for_sending(Some(asked), false, true).trials[0].setup.is_none());
        assert_eq!(MethodChooser::for_sending(None, true, true).trials[1].setup.unwrap().method, SendMethod::Mmap);
        assert_eq!(MethodChooser::for_sending(None, true, true).method(), None);
    }
}
