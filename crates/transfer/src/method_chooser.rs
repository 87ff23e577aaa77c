//! By which method the bytes of large files go that are neither encrypted nor small: the one that was asked for, or the one that a
//! first moment shows to be fastest.
//!
//! Two methods are tried by turns on the first blocks, in an order in which neither is always first. What they took is compared as
//! the end sees it, waiting for the other one included. At the sender, verified, that is reading into a buffer against the file
//! mapped; not verified, against sendfile, which shows the sender no byte. At the receiver, verified, it is parts for which it looks
//! before it sleeps, against larger ones by calls that wait. What shows no byte must be read again, and pages of a file that are touched
//! one by one cost more than they save. Not verified, it is receiving into a buffer against splice.

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use kelvin_sys::mapping::is_unmappable;

use crate::datapath::{
    ByteObserver, DataPath, Mode, PathMethod, PathSetup, ReceiveMethod, ReceivePath, ReceiveSetup, SendMethod,
    SendPath, SendSetup,
};
use crate::progress::{MinProgress, ProgressMeter, Shortfall};
use crate::secure_channel::{PART_BYTES, SEND_STEP, SETUP_STEP, STOP_POLL_INTERVAL, TAKE_STEP};
use crate::{Error, Result};

/// Pages of a window, and bytes of a call, of the methods that are tried.
const WINDOW_PAGES: usize = 256;
const CALL_BYTES: usize = 1 << 20;
/// Bytes of a call that receives what is hashed. Several of them fit into a second-level cache, and they were seen to take a tenth less
/// than parts of 64 KiB.
const HASHED_CALL_BYTES: usize = 256 << 10;
/// Only pieces of at least this many bytes take a time that can be measured.
const MIN_TIMED_PIECE: u64 = 1 << 20;
/// How many pieces are moved until one method is chosen.
const TRIAL_PIECES: usize = 16;
/// How much faster another method must be, to be taken.
const MIN_SPEEDUP: f64 = 1.05;

const _: () = assert!(MIN_TIMED_PIECE as usize > PART_BYTES, "parts are timed by more than one call");

/// A method, and what it took.
struct MethodTrial<M: PathMethod> {
    /// None for parts by way of the channel's buffer.
    setup: Option<PathSetup<M>>,
    path: Option<Box<DataPath<M>>>,
    bytes: u64,
    nanoseconds: f64,
}

impl<M: PathMethod> MethodTrial<M> {
    fn new(setup: Option<PathSetup<M>>) -> Self {
        Self { setup, path: None, bytes: 0, nanoseconds: 0.0 }
    }

    fn nanoseconds_per_byte(&self) -> f64 {
        self.nanoseconds / self.bytes.max(1) as f64
    }
}

/// By what the next piece goes: parts by way of the channel's buffer, unless it has a path of its own.
pub(crate) struct PieceMethod<M: PathMethod> {
    trial: usize,
    pub(crate) path: Option<Box<DataPath<M>>>,
}

impl<M: PathMethod> PieceMethod<M> {
    pub(crate) const BUFFERED: Self = Self { trial: 0, path: None };
}

/// The methods that there are.
pub(crate) struct MethodChooser<M: PathMethod> {
    trials: Vec<MethodTrial<M>>,
    pieces: usize,
}

impl MethodChooser<SendMethod> {
    /// Bytes that go plain: by this setup, or by what is fastest. Encrypted ones go by parts alone.
    pub(crate) fn for_sending(requested: Option<SendSetup>, is_plain: bool, is_verified: bool) -> Self {
        let method = if is_verified { SendMethod::Mmap } else { SendMethod::Sendfile };
        Self::new(requested, is_plain, method, CALL_BYTES)
    }
}

impl MethodChooser<ReceiveMethod> {
    /// Bytes that come plain: by this setup, or by what is fastest. Encrypted ones come by parts alone.
    pub(crate) fn for_receiving(requested: Option<ReceiveSetup>, is_plain: bool, is_verified: bool) -> Self {
        let hashed = (ReceiveMethod::ReadWrite, HASHED_CALL_BYTES);
        let (method, buffer) = if is_verified { hashed } else { (ReceiveMethod::Splice, CALL_BYTES) };
        Self::new(requested, is_plain, method, buffer)
    }
}

impl<M: PathMethod> MethodChooser<M> {
    fn new(requested: Option<PathSetup<M>>, is_plain: bool, method: M, buffer: usize) -> Self {
        let timeout = MinProgress::default().interval;
        let rival = PathSetup { method, mode: Mode::Blocking, buffer, window: WINDOW_PAGES, timeout };
        let setups = match requested {
            _ if !is_plain => vec![None],
            Some(setup) => vec![Some(setup)],
            None => vec![None, Some(rival)],
        };
        Self { trials: setups.into_iter().map(MethodTrial::new).collect(), pieces: 0 }
    }

    fn current(&self) -> usize {
        match &self.trials[..] {
            [_, _] if self.pieces < TRIAL_PIECES => M::TRIAL_ORDER[self.pieces % M::TRIAL_ORDER.len()],
            [parts, rival] if rival.nanoseconds_per_byte() * MIN_SPEEDUP < parts.nanoseconds_per_byte() => 1,
            _ => 0,
        }
    }

    /// The method of the next piece; `socket` makes a second descriptor of the connection.
    ///
    /// # Errors
    /// Those of making it.
    pub(crate) fn next_method(
        &mut self,
        socket: impl FnOnce() -> std::io::Result<Option<TcpStream>>,
    ) -> std::io::Result<PieceMethod<M>> {
        let number = self.current();
        let trial = &mut self.trials[number];
        let path = match (trial.path.take(), trial.setup) {
            (None, Some(setup)) => {
                let Some(socket) = socket()? else {
                    // No other way than parts is left: the connection has no socket of its own.
                    self.trials = vec![MethodTrial::new(None)];
                    return Ok(PieceMethod::BUFFERED);
                };
                let path = DataPath::new(socket, setup)?;
                wait_in_calls(&path)?;
                Some(Box::new(path))
            }
            (path, _) => path,
        };
        Ok(PieceMethod { trial: number, path })
    }

    /// The next piece goes over another socket; what was learnt of the methods holds for it too.
    pub(crate) fn reset_socket(&mut self) {
        self.trials.iter_mut().for_each(|trial| trial.path = None);
    }

    /// What a piece took that went by this method.
    pub(crate) fn record(&mut self, method: PieceMethod<M>, bytes: u64, start: Instant) {
        let Some(trial) = self.trials.get_mut(method.trial) else { return };
        trial.path = method.path.or(trial.path.take());
        if bytes >= MIN_TIMED_PIECE {
            self.pieces += 1;
            trial.bytes += bytes;
            trial.nanoseconds += start.elapsed().as_nanos() as f64;
        }
    }

    /// The method by which most of it went; none if nothing went by any.
    fn dominant(&self) -> Option<&MethodTrial<M>> {
        self.trials.iter().max_by_key(|trial| trial.bytes).filter(|trial| trial.bytes > 0)
    }

    /// How it is set up; none if it is by parts.
    pub(crate) fn setup(&self) -> Option<PathSetup<M>> {
        self.dominant()?.setup
    }

    /// Its name.
    pub(crate) fn method(&self) -> Option<M> {
        self.dominant().map(|trial| trial.setup.map_or(M::READ_WRITE, |setup| setup.method))
    }

    /// Waits until no buffer is in use by the kernel.
    ///
    /// # Errors
    /// A connection that broke.
    pub(crate) fn finish(&mut self) -> Result<()> {
        for path in self.trials.iter_mut().filter_map(|trial| trial.path.as_mut()) {
            let timeout = path.setup.timeout;
            if let Err(error) = path.finish() {
                return Err(Error::call(TAKE_STEP)(check_connection(error, TAKE_STEP, timeout)?));
            }
        }
        Ok(())
    }
}

/// Makes calls wait in the call, for a short time: as those of a channel that uses the same socket expect.
fn wait_in_calls<M: PathMethod>(path: &DataPath<M>) -> std::io::Result<()> {
    path.socket.set_waiting(Mode::Blocking, STOP_POLL_INTERVAL)
}

/// Moves a range of a file with calls that wait as the mode has them, for this time; then they wait in the call again.
///
/// # Errors
/// Those of setting how they wait; inside them those of [`DataPath::transfer`].
fn transfer_in_mode<M: PathMethod>(
    path: &mut DataPath<M>,
    timeout: Duration,
    file: &File,
    range: Range<u64>,
    observer: ByteObserver<'_>,
) -> std::io::Result<std::io::Result<u64>> {
    path.socket.set_waiting(path.setup.mode, timeout)?;
    let moved = path.transfer(file, range, observer);
    wait_in_calls(path)?;
    Ok(moved)
}

/// Sends a range of a file, and returns how many bytes have gone: fewer if the file became shorter, or could not be read. None at all
/// of a file that would be mapped and cannot be.
///
/// # Errors
/// A connection that broke.
pub(crate) fn send_range(
    path: &mut SendPath,
    file: &File,
    range: Range<u64>,
    observer: ByteObserver<'_>,
) -> Result<Option<u64>> {
    let SendSetup { method, timeout, .. } = path.setup;
    let sent = transfer_in_mode(path, timeout, file, range, observer);
    let error = match sent.map_err(Error::call(SETUP_STEP))? {
        Ok(sent) => return Ok(Some(sent)),
        Err(error) => check_connection(error, TAKE_STEP, timeout)?,
    };
    match method {
        SendMethod::Mmap if path.moved == 0 && is_unmappable(&error) => Ok(None),
        // What these have sent is known, even if something failed.
        SendMethod::ReadWrite | SendMethod::Mmap | SendMethod::Sendfile => Ok(Some(path.moved)),
        _ => Err(Error::call(TAKE_STEP)(error)),
    }
}

/// Receives a range of a file, of which as much comes as the connection has measured so far: how many bytes have come, and whether they
/// could be written.
///
/// # Errors
/// A connection that broke, or is too slow.
pub(crate) fn receive_range(
    path: &mut ReceivePath,
    meter: &mut ProgressMeter,
    file: &File,
    range: Range<u64>,
    observer: ByteObserver<'_>,
) -> Result<(u64, std::io::Result<()>)> {
    let timeout = meter.required.interval;
    path.socket.incoming = Some(std::mem::take(meter));
    let received = transfer_in_mode(path, timeout, file, range, observer);
    *meter = path.socket.incoming.take().unwrap_or_default();
    match received.map_err(Error::call(SETUP_STEP))? {
        Ok(bytes) => Ok((bytes, Ok(()))),
        Err(error) => Ok((path.moved, Err(check_connection(error, SEND_STEP, timeout)?))),
    }
}

/// The error, if it is not the connection's.
///
/// # Errors
/// Why the connection broke.
fn check_connection(error: std::io::Error, doing: &'static str, timeout: Duration) -> Result<std::io::Error> {
    Error::check_stop()?;
    if let Some(shortfall) = error.get_ref().and_then(|why| why.downcast_ref::<Shortfall>()) {
        return Err(shortfall.to_error(doing));
    }
    match error.kind() {
        ErrorKind::TimedOut => Err(Error::TimedOut { doing, seconds: timeout.as_secs_f64() }),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => Err(Error::call(doing)(error)),
        _ => Ok(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pieces of which each way takes this many nanoseconds a byte, and returns the way of the one after them.
    fn chosen_method(byte_nanoseconds: [f64; 2]) -> usize {
        let mut chooser = MethodChooser::for_sending(None, true, false);
        for _ in 0..TRIAL_PIECES {
            let number = chooser.current();
            chooser.pieces += 1;
            chooser.trials[number].bytes += MIN_TIMED_PIECE;
            chooser.trials[number].nanoseconds += byte_nanoseconds[number] * MIN_TIMED_PIECE as f64;
        }
        chooser.current()
    }

    #[test]
    fn clearly_faster_method_wins() {
        assert_eq!([chosen_method([1.0, 0.5]), chosen_method([1.0, 0.99]), chosen_method([1.0, 1.5])], [1, 0, 0]);
    }

    #[test]
    fn trial_order_is_balanced() {
        let order_pairs =
            || SendMethod::TRIAL_ORDER.into_iter().zip(ReceiveMethod::TRIAL_ORDER).cycle().take(TRIAL_PIECES);
        for pair in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert_eq!(order_pairs().filter(|trial| *trial == pair).count(), TRIAL_PIECES / 4, "{pair:?}");
        }
        let first = SendMethod::TRIAL_ORDER.chunks(2).filter(|pair| pair[0] == 0).count();
        assert_eq!(first, 1);
    }

    #[test]
    fn encrypted_data_is_buffered_and_fixed_method_kept() {
        assert_eq!(MethodChooser::for_sending(None, false, true).trials.len(), 1);
        let setup = SendSetup {
            method: SendMethod::Splice,
            mode: Mode::Blocking,
            buffer: 512,
            window: 1,
            timeout: STOP_POLL_INTERVAL,
        };
        assert_eq!(MethodChooser::for_sending(Some(setup), true, true).trials[0].setup, Some(setup));
        assert!(MethodChooser::for_sending(Some(setup), false, true).trials[0].setup.is_none());
        assert_eq!(MethodChooser::for_sending(None, true, true).trials[1].setup.unwrap().method, SendMethod::Mmap);
        assert_eq!(MethodChooser::for_sending(None, true, true).method(), None);
    }
}
