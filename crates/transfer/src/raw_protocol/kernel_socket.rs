//! Either end with its socket in the kernel, behind a device of kelvin's module: calls that block, as the published study made them.
//!
//! There is no time limit: an end waits for its peer until a signal asks it to stop.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_sys::kmod::{KernelSocket, KmodDevice, is_connecting};
use kelvin_sys::stop_signals;

use super::{RawReceiveOptions, RawSendOptions, RawTotals, ReceivedFile, check_is_local, receive, send};
use crate::datapath::{Mode, PathMethod, PathSetup, ReceivePath, SendPath};
use crate::{Error, Result};

/// How bytes get between a file and a socket in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMethod {
    /// pread into a buffer and write() to the device; or read() from it and pwrite.
    ReadWrite,
    /// The file is mapped a window at a time, and copied to or from the window of the device, which the module sends from or
    /// receives into.
    Mmap,
}

/// How an end in the kernel moves files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSetup {
    /// The method.
    pub method: KernelMethod,
    /// Whether O_ASYNC is set. Its calls wait all the same.
    pub is_asynchronous: bool,
    /// Bytes of a call of [`KernelMethod::ReadWrite`].
    pub buffer: usize,
    /// Pages of a window of [`KernelMethod::Mmap`].
    pub window: usize,
}

impl KernelSetup {
    /// That of a path: its calls block without a limit.
    fn path_setup<M: PathMethod>(&self) -> PathSetup<M> {
        let method = if self.method == KernelMethod::Mmap { M::MMAP } else { M::READ_WRITE };
        let Self { buffer, window, .. } = *self;
        PathSetup { method, mode: Mode::Blocking, buffer: buffer.max(1), window, timeout: Duration::MAX }
    }
}

/// As [`super::send()`], through the sender's device.
///
/// # Errors
/// As there; no device.
pub fn send_through_kernel(files: &[PathBuf], to: SocketAddr, how: &RawSendOptions<KernelSetup>) -> Result<RawTotals> {
    check_is_local(to)?;
    let device = KernelSocket::open(KmodDevice::Sender)?;
    device.set_asynchronous(how.setup.is_asynchronous).map_err(Error::Connection)?;
    let mut path = SendPath::over_device(device, how.setup.path_setup()).map_err(Error::Connection)?;
    connect(&mut path, to)?;
    let mut reconnect = |path: &mut SendPath| {
        path.close_device().map_err(Error::Connection)?;
        connect(path, to)
    };
    send::send_all(&mut path, &mut reconnect, files, how)
}

fn connect(path: &mut SendPath, to: SocketAddr) -> Result<()> {
    while let Err(error) = path.call_device(|device| device.connect(to)) {
        if !is_connecting(&error) || stop_signals::stop_signal().is_some() {
            return Err(Error::Connection(error));
        }
    }
    Ok(())
}

fn accept(path: &mut ReceivePath) -> Result<()> {
    check_is_local(path.call_device(|device| device.accept()).map_err(Error::Connection)?)
}

/// The receiver's device, listening on loopback.
#[derive(Debug)]
pub struct KernelListener {
    /// None after a failure of making what a method needs.
    device: Option<KernelSocket>,
    address: SocketAddr,
}

impl KernelListener {
    /// Opens the device and listens at any free port.
    ///
    /// # Errors
    /// No device; an address that is not to be had.
    pub fn new() -> Result<Self> {
        let device = KernelSocket::open(KmodDevice::Receiver)?;
        let address = device.listen((Ipv4Addr::LOCALHOST, 0).into()).map_err(Error::Connection)?;
        Ok(Self { device: Some(device), address })
    }

    /// Where.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As [`super::receive()`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(
        &mut self,
        directory: &Path,
        how: &RawReceiveOptions<KernelSetup>,
        each: &mut dyn FnMut(&ReceivedFile<'_>),
    ) -> Result<RawTotals> {
        let device = self.device.take().ok_or(Error::Connection(ErrorKind::NotConnected.into()))?;
        device.set_asynchronous(how.setup.is_asynchronous).map_err(Error::Connection)?;
        let mut path = ReceivePath::over_device(device, how.setup.path_setup()).map_err(Error::Connection)?;
        let mut reaccept = |path: &mut ReceivePath| {
            path.close_device().map_err(Error::Connection)?;
            accept(path)
        };
        let received =
            accept(&mut path).and_then(|()| receive::receive_all(&mut path, &mut reaccept, directory, how, each));
        // Of a connection that has failed there may be none any more.
        let closed = path.close_device().map_err(Error::Connection);
        self.device = path.into_device();
        received.and_then(|moved| closed.map(|()| moved))
    }
}
