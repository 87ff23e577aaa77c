//! Either end with its socket in the kernel, through a device of kelvin's module: the same bytes pass, so the other end need not know.
//!
//! A device has no time limits: its calls do not wait, and poll does. It has one connection at a time, so that a receiver serves one
//! sender after another, and one that does not finish its handshake keeps the next waiting until its time is over.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_sys::interrupt;
use kelvin_sys::kernel_end::{Device, KernelEnd, goes_on};
use kelvin_sys::ready::{readable, writable};
use kelvin_wire::Error as WireError;
use kelvin_wire::deadline::{Connection, Deadline};
use kelvin_wire::noise::Handshake;
use kelvin_wire::sealed::{Opener, Sealer};
use kelvin_wire::secret::Secret;

use crate::channel::{Channel, Stream};
use crate::decide::{Desk, Destination};
use crate::receive::{LOOK, Manner, Tell, check_reach};
use crate::send::{self, CONNECT, Sender, check_secret};
use crate::session::{Event, Session};
use crate::summary::Summary;
use crate::{Error, HANDSHAKE, PROTOCOL, Result};

/// The connection of a device, as a stream whose calls wait for so long.
#[derive(Debug)]
pub struct DeviceStream {
    end: Arc<KernelEnd>,
    wait: Duration,
}

impl DeviceStream {
    /// Of a device whose calls do not wait.
    fn over(end: &Arc<KernelEnd>) -> Self {
        Self { end: Arc::clone(end), wait: HANDSHAKE }
    }

    /// Makes a call, and again whenever the device is ready for it.
    fn when<T>(
        &self,
        is_ready: fn(BorrowedFd<'_>, Duration) -> io::Result<bool>,
        mut call: impl FnMut(&KernelEnd) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut begun = None;
        loop {
            match call(&self.end) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            let left = self.wait.saturating_sub(begun.get_or_insert_with(Instant::now).elapsed());
            if interrupt::requested().is_some() {
                return Err(ErrorKind::Interrupted.into());
            }
            if left.is_zero() {
                return Err(ErrorKind::WouldBlock.into());
            }
            is_ready(self.end.as_fd(), left)?;
        }
    }
}

impl Read for DeviceStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.when(readable, |mut end| end.read(buffer))
    }
}

impl Write for DeviceStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when(writable, |mut end| end.write(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.when(writable, |mut end| end.write_vectored(pieces))
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for DeviceStream {
    fn wait_at_most(&mut self, time: Duration) -> io::Result<()> {
        self.wait = time;
        Ok(())
    }
}

impl Stream for DeviceStream {
    fn is_readable(&self, within: Duration) -> io::Result<bool> {
        readable(self.end.as_fd(), within)
    }

    /// A device has no such option: a read returns with what is there.
    fn wait_for_least(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }

    /// No read waits for more than one byte.
    fn window(&self) -> io::Result<usize> {
        Ok(usize::MAX)
    }
}

fn open(device: Device) -> Result<Arc<KernelEnd>> {
    let end = KernelEnd::open(device)?;
    end.set_nonblocking(true).map_err(WireError::call("set up the device"))?;
    Ok(Arc::new(end))
}

/// Connects the sender's device to the first of these addresses that answers, and shakes hands.
///
/// # Errors
/// As [`Sender::connect`]; no device.
pub fn connect(addresses: &[SocketAddr], secret: &Secret, manner: send::Manner) -> Result<Sender<DeviceStream>> {
    let begun = Instant::now();
    check_secret(addresses, secret)?;
    let end = open(Device::Sender)?;
    send::to_the_first(addresses, |address| connect_to(&end, address))?;
    Sender::over(send::shake_hands(DeviceStream::over(&end), secret)?, (manner, begun))
}

fn connect_to(end: &KernelEnd, address: SocketAddr) -> io::Result<()> {
    let begun = Instant::now();
    while let Err(error) = end.connect(address) {
        let left = CONNECT.saturating_sub(begun.elapsed());
        if !goes_on(&error) {
            return Err(error);
        }
        if left.is_zero() || interrupt::requested().is_some() {
            end.close()?;
            return Err(ErrorKind::TimedOut.into());
        }
        writable(end.as_fd(), left)?;
    }
    Ok(())
}

/// A listening receiver whose socket is in the kernel.
pub struct Receiver {
    end: Arc<KernelEnd>,
    address: SocketAddr,
    destination: Destination,
    secret: Secret,
    manner: Manner,
    tell: Box<Tell>,
}

impl Receiver {
    /// Listens.
    ///
    /// # Errors
    /// No device; an address that other hosts can reach, without a secret, or that is every one of this host; an unavailable address.
    pub fn listen(
        address: SocketAddr,
        destination: Destination,
        secret: Secret,
        manner: Manner,
        tell: Box<Tell>,
    ) -> Result<Self> {
        if address.ip().to_canonical().is_unspecified() {
            return Err(Error::Everywhere { address });
        }
        check_reach(address, &secret)?;
        let end = open(Device::Receiver)?;
        let address = end.listen(address).map_err(WireError::call("listen"))?;
        Ok(Self { end, address, destination, secret, manner, tell })
    }

    /// Where it listens: the port too, if the system chose it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves one sender after another until it is to stop, or the one sender was served.
    ///
    /// # Errors
    /// A broken listener.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let mut is_served = false;
        while !is_served && !is_over() {
            if !readable(self.end.as_fd(), LOOK).map_err(WireError::call("wait"))? {
                continue;
            }
            match self.end.accept() {
                Ok(from) => {
                    is_served = self.meet(from) && self.manner.once;
                    // One whose connection has failed may have none any more.
                    let _ = self.end.close();
                }
                Err(error) if is_of_one(&error) => {}
                Err(error) => return Err(WireError::call("accept a connection")(error).into()),
            }
        }
        Ok(())
    }

    /// Shakes hands with a new connection, and serves it if it knows the secret; says whether it did.
    fn meet(&self, from: SocketAddr) -> bool {
        let tell = |event| (self.tell)(from, event);
        let mut stream = DeviceStream::over(&self.end);
        let handshake = Handshake { protocol: &PROTOCOL, secret: &self.secret, deadline: Deadline::within(HANDSHAKE) };
        match handshake.listen(&mut stream, || Some(())) {
            Ok((halves, ())) => {
                tell(Event::Came);
                tell(self.serve_sender(stream, halves, &tell).into());
                true
            }
            Err(error) => {
                tell(Event::TurnedAway(error.into()));
                false
            }
        }
    }

    fn serve_sender(&self, stream: DeviceStream, halves: (Sealer, Opener), tell: &dyn Fn(Event)) -> Result<Summary> {
        let desk = Desk::new(&self.destination, self.manner.overwrite)?;
        let mut channel = Channel::new(stream, halves)?;
        channel.set_min_progress(self.manner.min_progress);
        Session::new(&mut channel, desk, tell).serve()
    }
}

/// Whether an error of accepting concerns one connection, and not the listener.
fn is_of_one(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_listens_neither_everywhere_nor_for_other_hosts_without_a_secret() {
        let listen = |address: &str| {
            let tell = Box::new(|_: SocketAddr, _: Event| {});
            let manner = Manner::default();
            let receiver =
                Receiver::listen(address.parse().unwrap(), Destination::Nothing, Secret::none(), manner, tell);
            receiver.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for address in ["0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1"] {
            assert!(listen(address).contains("is every address of this host"), "{}", listen(address));
        }
        assert!(listen("192.0.2.1:1").contains("can be reached from other hosts"));
    }
}
