//! Either end with its socket in the kernel, behind a device of kelvin's module: calls that block, as the published study made them.
//!
//! There is no time limit: an end waits for its peer until a signal asks it to stop.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind, IoSlice, Read, Result as IoResult, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kelvin_sys::bus::Guard;
use kelvin_sys::interrupt;
use kelvin_sys::kernel_end::{Device, KernelEnd, goes_on};
use kelvin_sys::net::moving::{Access, Window};

use super::ends::{ReceiveEnd, SendEnd, check_is_here};
use super::{Arrived, Moved, Receiving, Sending, connection, receive, send};
use crate::Result;
use crate::moving::{Counts, Seen};

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
enum Means {
    Buffer(Vec<u8>),
    Window(Window),
}

impl Means {
    fn new(setup: &KernelSetup, access: Access) -> IoResult<Self> {
        Ok(match setup.method {
            KernelMethod::ReadWrite => Self::Buffer(vec![0; setup.buffer.max(1)]),
            KernelMethod::Mmap => {
                let window = Window::reserve(setup.window, access)?;
                Self::Window(if access == Access::Write { window.without_reading_ahead() } else { window })
            }
        })
    }
}

/// A device, what its method needs, and what was done with it.
struct Connected<'a> {
    end: &'a mut KernelEnd,
    means: Means,
    counts: Counts,
}

impl<'a> Connected<'a> {
    /// With a device that is not connected yet, and keeps its window from one transfer to the next.
    fn new(end: &'a mut KernelEnd, setup: &KernelSetup, access: Access) -> IoResult<Self> {
        let means = Means::new(setup, access)?;
        if let (Means::Window(window), true) = (&means, end.window().is_empty()) {
            end.set_window(window.bytes())?;
        }
        Ok(Self { end, means, counts: Counts::default() })
    }

    fn connect(&mut self, to: SocketAddr) -> Result<()> {
        let Self { end, counts, .. } = self;
        while let Err(error) = counted(counts, || end.connect(to)) {
            if !goes_on(&error) || interrupt::requested().is_some() {
                return Err(connection(error));
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        let Self { end, counts, .. } = self;
        check_is_here(counted(counts, || end.accept()).map_err(connection)?)
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
fn counted<T>(counts: &mut Counts, mut call: impl FnMut() -> IoResult<T>) -> IoResult<T> {
    loop {
        if let Some(signal) = interrupt::requested() {
            return Err(IoError::new(ErrorKind::Interrupted, format!("interrupted by {signal}")));
        }
        counts.system_calls += 1;
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

fn write(mut end: &KernelEnd, counts: &mut Counts, mut bytes: &[u8]) -> IoResult<()> {
    while !bytes.is_empty() {
        bytes = &bytes[counted(counts, || end.write(bytes))?..];
    }
    Ok(())
}

fn read(mut end: &KernelEnd, counts: &mut Counts, buffer: &mut [u8]) -> IoResult<usize> {
    counted(counts, || end.read(buffer))
}

/// How many bytes of so many that are left fit into so many.
fn at_most(left: u64, room: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(room)
}

fn send_buffers(
    (end, counts): (&KernelEnd, &mut Counts),
    (file, bytes): (&File, u64),
    buffer: &mut [u8],
) -> IoResult<u64> {
    let mut sent = 0;
    while sent < bytes {
        let wanted = at_most(bytes - sent, buffer.len());
        let read = counted(counts, || file.read_at(&mut buffer[..wanted], sent))?;
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
    (end, counts): (&mut KernelEnd, &mut Counts),
    (file, bytes): (&File, u64),
    window: &mut Window,
) -> IoResult<u64> {
    let guard = Guard::over(window.address(), window.bytes())?;
    let mut sent = 0;
    while sent < bytes {
        counts.system_calls += 1;
        let shown = window.show(file, sent, bytes - sent)?;
        end.window_mut()[..shown].copy_from_slice(window.part(0..shown));
        if guard.tripped() {
            break;
        }
        let mut at = 0;
        while at < shown {
            at += counted(counts, || end.send(at..shown))?;
        }
        sent += shown as u64;
    }
    window.clear()?;
    Ok(sent)
}

fn receive_buffers(
    (end, counts): (&KernelEnd, &mut Counts),
    (file, bytes): (&File, u64),
    buffer: &mut [u8],
) -> IoResult<u64> {
    let mut received = 0;
    while received < bytes {
        let wanted = at_most(bytes - received, buffer.len());
        let read = read(end, counts, &mut buffer[..wanted])?;
        if read == 0 {
            break;
        }
        let mut written = 0;
        while written < read {
            written += counted(counts, || file.write_at(&buffer[written..read], received + written as u64))?;
        }
        received += read as u64;
    }
    Ok(received)
}

/// The other way round: from what the module has received into a file that is long enough.
fn receive_windows(
    (end, counts): (&mut KernelEnd, &mut Counts),
    (file, bytes): (&File, u64),
    window: &mut Window,
) -> IoResult<u64> {
    let guard = Guard::over(window.address(), window.bytes())?;
    let mut received = 0;
    while received < bytes {
        let wanted = at_most(bytes - received, window.bytes());
        let filled = fill_window(end, counts, wanted)?;
        counts.system_calls += window.calls();
        let shown = window.show(file, received, filled as u64)?;
        window.put(0, &end.window()[..shown]);
        if guard.tripped() {
            return Err(IoError::new(ErrorKind::StorageFull, "a page of the file could not be made"));
        }
        received += shown as u64;
        if filled < wanted {
            break;
        }
    }
    window.clear()?;
    Ok(received)
}

/// Receives so many bytes into a device's window; fewer only at the end of the stream.
fn fill_window(end: &mut KernelEnd, counts: &mut Counts, wanted: usize) -> IoResult<usize> {
    let mut filled = 0;
    while filled < wanted {
        match counted(counts, || end.receive(filled..wanted))? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

impl SendEnd for Connected<'_> {
    fn reconnect(&mut self, to: SocketAddr) -> Result<()> {
        self.end.close().map_err(connection)?;
        self.connect(to)
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        Connected::write(self, parts)
    }

    /// A device has no such flag as MSG_MORE.
    fn write_ahead(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        Connected::write(self, parts)
    }

    fn send(&mut self, file: &File, bytes: u64, _: Seen<'_>) -> IoResult<u64> {
        let Self { end, means, counts } = self;
        match means {
            Means::Buffer(buffer) => send_buffers((end, counts), (file, bytes), buffer),
            Means::Window(window) => send_windows((end, counts), (file, bytes), window),
        }
    }

    fn shows_bytes(&self) -> bool {
        false
    }

    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()> {
        Connected::fill(self, buffer)
    }

    fn finish(&mut self) -> IoResult<()> {
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

impl ReceiveEnd for Connected<'_> {
    fn accept(&mut self) -> Result<()> {
        self.end.close().map_err(connection)?;
        Connected::accept(self)
    }

    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        Connected::read(self, buffer)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> IoResult<()> {
        Connected::fill(self, buffer)
    }

    fn receive(&mut self, file: &File, bytes: u64, _: Seen<'_>) -> IoResult<u64> {
        let Self { end, means, counts } = self;
        match means {
            Means::Buffer(buffer) => receive_buffers((end, counts), (file, bytes), buffer),
            Means::Window(window) => receive_windows((end, counts), (file, bytes), window),
        }
    }

    fn shows_bytes(&self) -> bool {
        false
    }

    fn maps(&self) -> bool {
        matches!(self.means, Means::Window(_))
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> IoResult<()> {
        Connected::write(self, parts)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

/// As [`super::send`], through the sender's device.
///
/// # Errors
/// As there; no device.
pub fn send_through_kernel(files: &[PathBuf], to: SocketAddr, how: &Sending<KernelSetup>) -> Result<Moved> {
    check_is_here(to)?;
    let mut end = KernelEnd::open(Device::Sender)?;
    end.set_asynchronous(how.setup.is_asynchronous).map_err(connection)?;
    let mut connected = Connected::new(&mut end, &how.setup, Access::Read).map_err(connection)?;
    connected.connect(to)?;
    send::all(&mut connected, files, to, how)
}

/// The receiver's device, listening on loopback.
#[derive(Debug)]
pub struct KernelListener {
    end: KernelEnd,
    address: SocketAddr,
}

impl KernelListener {
    /// Opens the device and listens at any free port.
    ///
    /// # Errors
    /// No device; an address that is not to be had.
    pub fn new() -> Result<Self> {
        let end = KernelEnd::open(Device::Receiver)?;
        let address = end.listen((Ipv4Addr::LOCALHOST, 0).into()).map_err(connection)?;
        Ok(Self { end, address })
    }

    /// Where.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As [`super::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(
        &mut self,
        directory: &Path,
        how: &Receiving<KernelSetup>,
        each: &mut dyn FnMut(&Arrived<'_>),
    ) -> Result<Moved> {
        self.end.set_asynchronous(how.setup.is_asynchronous).map_err(connection)?;
        let received = self.receive_from_one(directory, how, each);
        // Of a connection that has failed there may be none any more.
        let closed = self.end.close().map_err(connection);
        received.and_then(|moved| closed.map(|()| moved))
    }

    fn receive_from_one(
        &mut self,
        directory: &Path,
        how: &Receiving<KernelSetup>,
        each: &mut dyn FnMut(&Arrived<'_>),
    ) -> Result<Moved> {
        let mut connected = Connected::new(&mut self.end, &how.setup, Access::Write).map_err(connection)?;
        connected.accept()?;
        receive::all(&mut connected, directory, how, each)
    }
}
