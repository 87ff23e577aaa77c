//! Either end with its socket in the kernel, behind a device of kelvin's module: calls that block, as the published study made them.
//!
//! There is no time limit: an end waits for its peer until a signal asks it to stop.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind, IoSlice, Read, Result as IoResult, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kelvin_sys::kmod::{KernelSocket, KmodDevice, is_connecting};
use kelvin_sys::net::transfer_call::{FileWindow, PageAccess};
use kelvin_sys::sigbus::SigbusGuard;
use kelvin_sys::stop_signals;

use super::ends::{ReceiveEnd, SendEnd, check_is_local};
use super::{RawReceiveOptions, RawSendOptions, RawTotals, ReceivedFile, connection_error, receive, send};
use crate::Result;
use crate::datapath::{ByteObserver, IoCounts};

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

/// What a method needs beside the device.
enum MethodState {
    Buffer(Vec<u8>),
    Window(FileWindow),
}

impl MethodState {
    fn new(setup: &KernelSetup, access: PageAccess) -> IoResult<Self> {
        Ok(match setup.method {
            KernelMethod::ReadWrite => Self::Buffer(vec![0; setup.buffer.max(1)]),
            KernelMethod::Mmap => {
                let window = FileWindow::reserve(setup.window, access)?;
                Self::Window(if access == PageAccess::Write { window.without_readahead() } else { window })
            }
        })
    }
}

/// A device, what its method needs, and what was done with it.
struct DeviceEnd<'a> {
    end: &'a mut KernelSocket,
    state: MethodState,
    counts: IoCounts,
}

impl<'a> DeviceEnd<'a> {
    /// With a device that is not connected yet, and keeps its window from one transfer to the next.
    fn new(end: &'a mut KernelSocket, setup: &KernelSetup, access: PageAccess) -> IoResult<Self> {
        let means = MethodState::new(setup, access)?;
        if let (MethodState::Window(window), true) = (&means, end.window().is_empty()) {
            end.set_window(window.bytes())?;
        }
        Ok(Self { end, state: means, counts: IoCounts::default() })
    }

    fn connect(&mut self, to: SocketAddr) -> Result<()> {
        let Self { end, counts, .. } = self;
        while let Err(error) = count_call(counts, || end.connect(to)) {
            if !is_connecting(&error) || stop_signals::stop_signal().is_some() {
                return Err(connection_error(error));
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        let Self { end, counts, .. } = self;
        check_is_local(count_call(counts, || end.accept()).map_err(connection_error)?)
    }

    /// Sends framing by one call.
    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        write(self.end, &mut self.counts, &bytes)
    }

    /// Some bytes; none at the end of the stream.
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        read(self.end, &mut self.counts, buffer)
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> IoResult<()> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => buffer = &mut buffer[read..],
            }
        }
        Ok(())
    }
}

/// Makes a call, and again if a signal interrupts it that does not ask to stop.
fn count_call<T>(counts: &mut IoCounts, mut call: impl FnMut() -> IoResult<T>) -> IoResult<T> {
    loop {
        if let Some(signal) = stop_signals::stop_signal() {
            return Err(IoError::new(ErrorKind::Interrupted, format!("interrupted by {signal}")));
        }
        counts.system_calls += 1;
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

fn write(mut end: &KernelSocket, counts: &mut IoCounts, mut bytes: &[u8]) -> IoResult<()> {
    while !bytes.is_empty() {
        bytes = &bytes[count_call(counts, || end.write(bytes))?..];
    }
    Ok(())
}

fn read(mut end: &KernelSocket, counts: &mut IoCounts, buffer: &mut [u8]) -> IoResult<usize> {
    count_call(counts, || end.read(buffer))
}

/// How many bytes of so many that are left fit into so many.
fn min_length(left: u64, room: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(room)
}

fn send_buffers(
    (end, counts): (&KernelSocket, &mut IoCounts),
    (file, bytes): (&File, u64),
    buffer: &mut [u8],
) -> IoResult<u64> {
    let mut sent = 0;
    while sent < bytes {
        let wanted = min_length(bytes - sent, buffer.len());
        let read = count_call(counts, || file.read_at(&mut buffer[..wanted], sent))?;
        if read == 0 {
            break;
        }
        write(end, counts, &buffer[..read])?;
        sent += read as u64;
    }
    Ok(sent)
}

/// The bytes are copied from one mapping to the other, and so from the file to what the module sends.
fn send_windows(
    (end, counts): (&mut KernelSocket, &mut IoCounts),
    (file, bytes): (&File, u64),
    window: &mut FileWindow,
) -> IoResult<u64> {
    let guard = SigbusGuard::over(window.address(), window.bytes())?;
    let mut sent = 0;
    while sent < bytes {
        counts.system_calls += 1;
        let shown = window.map_part(file, sent, bytes - sent)?;
        end.window_mut()[..shown].copy_from_slice(window.part(0..shown));
        if guard.has_faulted() {
            break;
        }
        let mut at = 0;
        while at < shown {
            at += count_call(counts, || end.send(at..shown))?;
        }
        sent += shown as u64;
    }
    window.unmap()?;
    Ok(sent)
}

fn receive_buffers(
    (end, counts): (&KernelSocket, &mut IoCounts),
    (file, bytes): (&File, u64),
    buffer: &mut [u8],
) -> IoResult<u64> {
    let mut received = 0;
    while received < bytes {
        let wanted = min_length(bytes - received, buffer.len());
        let read = read(end, counts, &mut buffer[..wanted])?;
        if read == 0 {
            break;
        }
        let mut written = 0;
        while written < read {
            written += count_call(counts, || file.write_at(&buffer[written..read], received + written as u64))?;
        }
        received += read as u64;
    }
    Ok(received)
}

/// The other way round: from what the module has received into a file that is long enough.
fn receive_windows(
    (end, counts): (&mut KernelSocket, &mut IoCounts),
    (file, bytes): (&File, u64),
    window: &mut FileWindow,
) -> IoResult<u64> {
    let guard = SigbusGuard::over(window.address(), window.bytes())?;
    let mut received = 0;
    while received < bytes {
        let wanted = min_length(bytes - received, window.bytes());
        let filled = fill_window(end, counts, wanted)?;
        counts.system_calls += window.map_calls();
        let shown = window.map_part(file, received, filled as u64)?;
        window.copy_in(0, &end.window()[..shown]);
        if guard.has_faulted() {
            return Err(IoError::new(ErrorKind::StorageFull, "a page of the file could not be made"));
        }
        received += shown as u64;
        if filled < wanted {
            break;
        }
    }
    window.unmap()?;
    Ok(received)
}

/// Receives so many bytes into a device's window; fewer only at the end of the stream.
fn fill_window(end: &mut KernelSocket, counts: &mut IoCounts, wanted: usize) -> IoResult<usize> {
    let mut filled = 0;
    while filled < wanted {
        match count_call(counts, || end.receive(filled..wanted))? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

impl SendEnd for DeviceEnd<'_> {
    fn reconnect(&mut self, to: SocketAddr) -> Result<()> {
        self.end.close().map_err(connection_error)?;
        self.connect(to)
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        DeviceEnd::write(self, parts)
    }

    /// A device has no such flag as MSG_MORE.
    fn write_ahead(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        DeviceEnd::write(self, parts)
    }

    fn send(&mut self, file: &File, bytes: u64, _: ByteObserver<'_>) -> IoResult<u64> {
        let Self { end, state: means, counts } = self;
        match means {
            MethodState::Buffer(buffer) => send_buffers((end, counts), (file, bytes), buffer),
            MethodState::Window(window) => send_windows((end, counts), (file, bytes), window),
        }
    }

    fn shows_bytes(&self) -> bool {
        false
    }

    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()> {
        DeviceEnd::fill(self, buffer)
    }

    fn finish(&mut self) -> IoResult<()> {
        Ok(())
    }

    fn counts(&self) -> IoCounts {
        self.counts
    }
}

impl ReceiveEnd for DeviceEnd<'_> {
    fn accept(&mut self) -> Result<()> {
        self.end.close().map_err(connection_error)?;
        DeviceEnd::accept(self)
    }

    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        DeviceEnd::read(self, buffer)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()> {
        DeviceEnd::fill(self, buffer)
    }

    fn receive(&mut self, file: &File, bytes: u64, _: ByteObserver<'_>) -> IoResult<u64> {
        let Self { end, state: means, counts } = self;
        match means {
            MethodState::Buffer(buffer) => receive_buffers((end, counts), (file, bytes), buffer),
            MethodState::Window(window) => receive_windows((end, counts), (file, bytes), window),
        }
    }

    fn shows_bytes(&self) -> bool {
        false
    }

    fn pads_to_pages(&self) -> bool {
        matches!(self.state, MethodState::Window(_))
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        DeviceEnd::write(self, parts)
    }

    fn counts(&self) -> IoCounts {
        self.counts
    }
}

/// As [`super::send()`], through the sender's device.
///
/// # Errors
/// As there; no device.
pub fn send_through_kernel(files: &[PathBuf], to: SocketAddr, how: &RawSendOptions<KernelSetup>) -> Result<RawTotals> {
    check_is_local(to)?;
    let mut end = KernelSocket::open(KmodDevice::Sender)?;
    end.set_asynchronous(how.setup.is_asynchronous).map_err(connection_error)?;
    let mut connected = DeviceEnd::new(&mut end, &how.setup, PageAccess::Read).map_err(connection_error)?;
    connected.connect(to)?;
    send::send_all(&mut connected, files, to, how)
}

/// The receiver's device, listening on loopback.
#[derive(Debug)]
pub struct KernelListener {
    end: KernelSocket,
    address: SocketAddr,
}

impl KernelListener {
    /// Opens the device and listens at any free port.
    ///
    /// # Errors
    /// No device; an address that is not to be had.
    pub fn new() -> Result<Self> {
        let end = KernelSocket::open(KmodDevice::Receiver)?;
        let address = end.listen((Ipv4Addr::LOCALHOST, 0).into()).map_err(connection_error)?;
        Ok(Self { end, address })
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
        self.end.set_asynchronous(how.setup.is_asynchronous).map_err(connection_error)?;
        let received = self.receive_from_one(directory, how, each);
        // Of a connection that has failed there may be none any more.
        let closed = self.end.close().map_err(connection_error);
        received.and_then(|moved| closed.map(|()| moved))
    }

    fn receive_from_one(
        &mut self,
        directory: &Path,
        how: &RawReceiveOptions<KernelSetup>,
        each: &mut dyn FnMut(&ReceivedFile<'_>),
    ) -> Result<RawTotals> {
        let mut connected = DeviceEnd::new(&mut self.end, &how.setup, PageAccess::Write).map_err(connection_error)?;
        connected.accept()?;
        receive::receive_all(&mut connected, directory, how, each)
    }
}
