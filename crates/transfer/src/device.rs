//! Either end with its socket in the kernel, through a device of kelvin's module: the same bytes pass, so the other end need not know.
//!
//! A device has no time limits: its calls do not wait, and poll does. It has one connection at a time, so that a receiver serves one
//! sender after another. One that does not finish its handshake keeps the next waiting until its time is over.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_sys::kmod::{KernelSocket, KmodDevice, is_connecting};
use kelvin_sys::poll::{wait_readable, wait_writable};
use kelvin_sys::stop_signals;

use crate::file_name::FileName;
use crate::offer_policy::{Destination, OfferPolicy};
use crate::pipe_stream::retry_when_ready;
use crate::receive::{EventHandler, ReceiverOptions, SHUTDOWN_POLL_INTERVAL};
use crate::secure_channel::{SecureChannel, TransferStream};
use crate::send::{self, CONNECT_TIMEOUT, Sender, SenderOptions, check_secret};
use crate::session::{ReceiveSession, SessionEvent};
use crate::wire::connect::connect_first;
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::handshake::Handshake;
use crate::wire::listener;
use crate::wire::secret::Secret;
use crate::{Error, HANDSHAKE, PROTOCOL, Result};

/// The connection of a device, as a stream whose calls wait for this time.
#[derive(Debug)]
pub struct DeviceStream {
    socket: Arc<KernelSocket>,
    timeout: Duration,
}

impl DeviceStream {
    /// Of a device whose calls do not wait.
    fn new(socket: &Arc<KernelSocket>) -> Self {
        Self { socket: Arc::clone(socket), timeout: HANDSHAKE }
    }

    /// Makes a call, and again whenever the device is ready for it.
    fn retry_when_ready<T>(
        &self,
        is_ready: fn(BorrowedFd<'_>, Duration) -> io::Result<bool>,
        mut call: impl FnMut(&KernelSocket) -> io::Result<T>,
    ) -> io::Result<T> {
        retry_when_ready(self.timeout, |remaining| is_ready(self.socket.as_fd(), remaining), || call(&self.socket))
    }
}

impl Read for DeviceStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.retry_when_ready(wait_readable, |mut socket| socket.read(buffer))
    }
}

impl Write for DeviceStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry_when_ready(wait_writable, |mut socket| socket.write(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.retry_when_ready(wait_writable, |mut socket| socket.write_vectored(pieces))
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TimedStream for DeviceStream {
    fn set_io_timeout(&mut self, time: Duration) -> io::Result<()> {
        self.timeout = time;
        Ok(())
    }
}

impl TransferStream for DeviceStream {
    fn is_readable(&self, timeout: Duration) -> io::Result<bool> {
        wait_readable(self.socket.as_fd(), timeout)
    }
}

fn open(device: KmodDevice) -> Result<Arc<KernelSocket>> {
    let socket = KernelSocket::open(device)?;
    socket.set_nonblocking(true).map_err(Error::call("set up the device"))?;
    Ok(Arc::new(socket))
}

/// Connects the sender's device to the first of these addresses that answers, and shakes hands.
///
/// # Errors
/// As [`Sender::connect_into`]; no device.
pub fn connect(
    addresses: &[SocketAddr],
    secret: &Secret,
    (options, directory): (SenderOptions, &[FileName]),
) -> Result<Sender<DeviceStream>> {
    let start = Instant::now();
    check_secret(addresses, secret)?;
    let socket = open(KmodDevice::Sender)?;
    connect_first(addresses, send::CONNECT_STEP, |address| connect_to(&socket, address))?;
    let mut channel = send::shake_hands(DeviceStream::new(&socket), secret)?;
    send::enter(&mut channel, directory)?;
    Sender::from_channel(channel, (options, start))
}

fn connect_to(socket: &KernelSocket, address: SocketAddr) -> io::Result<()> {
    let start = Instant::now();
    while let Err(error) = socket.connect(address) {
        let remaining = CONNECT_TIMEOUT.saturating_sub(start.elapsed());
        if !is_connecting(&error) {
            return Err(error);
        }
        if remaining.is_zero() || stop_signals::stop_signal().is_some() {
            socket.close()?;
            return Err(ErrorKind::TimedOut.into());
        }
        wait_writable(socket.as_fd(), remaining)?;
    }
    Ok(())
}

/// A listening receiver whose socket is in the kernel.
pub struct DeviceReceiver {
    socket: Arc<KernelSocket>,
    /// Where it listens: the port too, if the system chose it.
    pub address: SocketAddr,
    destination: Destination,
    secret: Secret,
    options: ReceiverOptions,
    on_event: Box<EventHandler>,
}

impl DeviceReceiver {
    /// Listens.
    ///
    /// # Errors
    /// No device; an address that other hosts can reach, without a secret, or that is every one of this host; an unavailable address.
    pub fn listen(
        address: SocketAddr,
        destination: Destination,
        secret: Secret,
        options: ReceiverOptions,
        on_event: Box<EventHandler>,
    ) -> Result<Self> {
        if address.ip().to_canonical().is_unspecified() {
            return Err(Error::WildcardAddress(address));
        }
        listener::check_is_protected(address, &secret)?;
        let socket = open(KmodDevice::Receiver)?;
        let address = socket.listen(address).map_err(Error::call("listen"))?;
        Ok(Self { socket, address, destination, secret, options, on_event })
    }

    /// Serves one sender after another until it is to stop, or the one sender was served.
    ///
    /// # Errors
    /// A broken listener.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let mut is_served = false;
        while !is_served && !is_over() {
            if !wait_readable(self.socket.as_fd(), SHUTDOWN_POLL_INTERVAL).map_err(Error::call("wait"))? {
                continue;
            }
            match self.socket.accept() {
                Ok(peer) => {
                    is_served = self.handshake_and_serve(peer) && self.options.once;
                    // One whose connection has failed may have none any more.
                    let _ = self.socket.close();
                }
                // One that is gone again, and not the listener.
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => return Err(Error::call("accept a connection")(error)),
                },
            }
        }
        Ok(())
    }

    /// Shakes hands with a new connection, and serves it if it knows the secret; returns whether it did.
    fn handshake_and_serve(&self, peer: SocketAddr) -> bool {
        let report = |event| (self.on_event)(peer, event);
        let mut stream = DeviceStream::new(&self.socket);
        let handshake = Handshake { protocol: &PROTOCOL, secret: &self.secret, deadline: Deadline::within(HANDSHAKE) };
        let halves = match handshake.accept(&mut stream, || Some(())) {
            Ok((halves, ())) => halves,
            Err(error) => {
                report(SessionEvent::Rejected(error));
                return false;
            }
        };
        report(SessionEvent::Authenticated);
        let outcome = OfferPolicy::new(&self.destination, self.options.leave).and_then(|policy| {
            let mut channel = SecureChannel::new(stream, halves)?;
            channel.set_min_progress(self.options.min_progress);
            let first = channel.receive();
            ReceiveSession::new(&mut channel, policy, &report).serve(first)
        });
        report(outcome.map_or_else(SessionEvent::Fault, |summary| SessionEvent::Finished(Box::new(summary))));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_refuses_wildcard_and_unprotected_address() {
        let listen = |address: &str| {
            let on_event = Box::new(|_: SocketAddr, _: SessionEvent| {});
            let options = ReceiverOptions::default();
            let receiver = DeviceReceiver::listen(
                address.parse().unwrap(),
                Destination::Nothing,
                Secret::none(),
                options,
                on_event,
            );
            receiver.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for address in ["0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1"] {
            assert!(listen(address).contains("is every address of this host"), "{}", listen(address));
        }
        assert!(listen("192.0.2.1:1").contains("can be reached from other hosts"));
    }
}
