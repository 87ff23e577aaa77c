//! One end of a TCP connection whose socket lives in the kernel: an open file of a device of kelvin's module (`kmod/`).
//!
//! Calls wait as those of a socket without a time limit do; with [`KernelSocket::set_nonblocking`] none waits. A call that a signal ends
//! is `Interrupted`; a peer that is gone is `BrokenPipe` or `ConnectionReset`, and never a SIGPIPE.

pub(crate) mod layout;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The version of the module that this program speaks with.
pub use layout::VERSION;
use layout::{About, KernelAddress, PageQuery, WindowSpan};
use rustix::fs::OFlags;

use crate::fs::{ASYNC_FLAG, set_status_flag};
use crate::region::Region;
use crate::{Error, Result, check};

/// A device. Both do the same, except that a window is sent from on the one, and received into on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KmodDevice {
    /// Sends from its window.
    Sender,
    /// Receives into its window.
    Receiver,
}

impl KmodDevice {
    /// Where it is.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Sender => "/dev/kelvin_sender",
            Self::Receiver => "/dev/kelvin_receiver",
        }
    }
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KmodError {
    /// The module is not loaded.
    #[error("{} is not there: load the module (make -C kmod; insmod kmod/kelvin.ko)", .0.path())]
    Absent(KmodDevice),
    /// This user may not open it.
    #[error("{}: no right to open it: be root, or a member of the group to which kmod/60-kelvin.rules gives it", .0.path())]
    Forbidden(KmodDevice),
    /// As many files are open as the module allows.
    #[error("{}: too many files are open (insmod kmod/kelvin.ko opens_most=N allows more)", .0.path())]
    Full(KmodDevice),
    /// The module is of another version.
    #[error(
        "the module that is loaded has version {theirs}, and this kelvin needs {}: load the one that came with it",
        layout::VERSION
    )]
    Version {
        /// That of the module.
        theirs: u32,
    },
    /// A call failed.
    #[error("{}: {}", .0.path(), .1)]
    Call(KmodDevice, Error),
}

impl KmodError {
    fn from_open_error(device: KmodDevice, error: Error) -> Self {
        match error.raw_os_error() {
            // ENXIO of a node that has outlived the module.
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Self::Absent(device),
            Some(libc::EACCES | libc::EPERM) => Self::Forbidden(device),
            Some(libc::EMFILE) => Self::Full(device),
            _ => Self::Call(device, error),
        }
    }
}

/// The page-table entry of an address of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageEntry {
    /// As the processor reads it, and 0 where a table above it is absent. Without CAP_SYS_ADMIN there is no frame number in it.
    pub entry: u64,
    /// Of the table that it is in: 1 is the last, with the smallest pages.
    pub level: u32,
    /// It covers `1 << shift` bytes.
    pub shift: u32,
    /// Whether the address lies in a mapping.
    pub is_mapped: bool,
    /// Whether the entry maps memory now.
    pub is_present: bool,
    /// Whether its frame number is shown.
    pub has_frame: bool,
}

impl From<PageQuery> for PageEntry {
    fn from(page: PageQuery) -> Self {
        let has_flag = |flag| page.found & flag != 0;
        let [is_mapped, is_present, has_frame] = [layout::MAPPED, layout::PRESENT, layout::FRAME].map(has_flag);
        Self { entry: page.entry, level: page.level, shift: page.shift, is_mapped, is_present, has_frame }
    }
}

/// An open file of a device: a listener, a connection, a window, or several of them.
#[derive(Debug)]
pub struct KernelSocket {
    /// Pages of the device that this process and the module both see. Dropped before the file, though they would stay.
    window: Option<Region>,
    file: File,
}

impl KernelSocket {
    /// Opens a device, which nothing was done with yet.
    ///
    /// # Errors
    /// [`KmodError`].
    pub fn open(device: KmodDevice) -> std::result::Result<Self, KmodError> {
        let result = File::options().read(true).write(true).open(device.path());
        let file = result.map_err(|error| KmodError::from_open_error(device, error))?;
        let (end, mut about) = (Self { window: None, file }, About::default());
        // SAFETY: the argument is laid out as the call has it, and valid to write.
        unsafe { end.call(layout::ABOUT, &raw mut about) }.map_err(|error| KmodError::Call(device, error))?;
        if about.version == layout::VERSION { Ok(end) } else { Err(KmodError::Version { theirs: about.version }) }
    }

    /// Makes a call of the device.
    ///
    /// # Safety
    /// The argument must be what the call takes, and valid to be read or written as it does.
    unsafe fn call<T>(&self, number: u64, argument: *mut T) -> Result<usize> {
        // SAFETY: the caller vouches for the argument.
        let result = check(unsafe { libc::ioctl(self.file.as_raw_fd(), number as _, argument) })?;
        Ok(result as usize)
    }

    fn call_with_address(&self, number: u64, address: SocketAddr) -> Result<()> {
        let mut address = KernelAddress::from(address);
        // SAFETY: an address in as many bytes as any has, which outlives the call.
        unsafe { self.call(number, &raw mut address) }.map(drop)
    }

    fn call_for_address(&self, number: u64) -> Result<SocketAddr> {
        let mut address = KernelAddress::default();
        // SAFETY: room for an address of any size, which outlives the call.
        unsafe { self.call(number, &raw mut address) }?;
        address.read()
    }

    /// Connects. After `Interrupted` or EINPROGRESS the attempt goes on, and the same call returns how far it is.
    ///
    /// # Errors
    /// Those of connect(2); EISCONN if it is connected.
    pub fn connect(&self, address: SocketAddr) -> Result<()> {
        self.call_with_address(layout::CONNECT, address)
    }

    /// Listens at an address of this host, and returns it with the port that was chosen for port 0.
    ///
    /// # Errors
    /// Those of bind(2); EBUSY if it listens.
    pub fn listen(&self, address: SocketAddr) -> Result<SocketAddr> {
        self.call_with_address(layout::LISTEN, address)?;
        self.call_for_address(layout::GETNAME)
    }

    /// Waits for a connection, and returns its peer. There is one at a time.
    ///
    /// # Errors
    /// Those of accept(2); EINVAL if it does not listen, EISCONN if it is connected.
    pub fn accept(&self) -> Result<SocketAddr> {
        self.call_for_address(layout::ACCEPT)
    }

    /// Ends the connection: what was sent is still delivered. The window and the listener stay.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn close(&self) -> Result<()> {
        // SAFETY: the call takes no argument.
        unsafe { self.call(layout::CLOSE, std::ptr::null_mut::<u8>()) }.map(drop)
    }

    /// From now on a call that would wait is `WouldBlock`, or waits again.
    ///
    /// # Errors
    /// Those of fcntl.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> Result<()> {
        set_status_flag(&self.file, OFlags::NONBLOCK, is_nonblocking)
    }

    /// Sets O_ASYNC, or takes it back: the published "asynchronous" socket, whose calls wait as before. No owner is set, so that
    /// nobody is sent a signal.
    ///
    /// # Errors
    /// Those of fcntl.
    pub fn set_asynchronous(&self, is_asynchronous: bool) -> Result<()> {
        set_status_flag(&self.file, ASYNC_FLAG, is_asynchronous)
    }

    /// Gives it a window of this many bytes, whole pages, in the place of a former one.
    ///
    /// # Errors
    /// EINVAL for another size or one beyond the module's largest; those of mmap.
    pub fn set_window(&mut self, bytes: usize) -> Result<()> {
        self.window = None;
        let mut argument = bytes as u64;
        // SAFETY: a number of 64 bits, which outlives the call; no mapping of a former window is left.
        unsafe { self.call(layout::SET_WINDOW, &raw mut argument) }?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        self.window = Some(Region::map(bytes, protection, libc::MAP_SHARED, self.file.as_raw_fd())?);
        Ok(())
    }

    /// The window's bytes; none without a window.
    pub fn window(&self) -> &[u8] {
        // SAFETY: initialised by the module, which writes only in a call for which the window is borrowed exclusively.
        self.window.as_ref().map_or(&[], |window| unsafe { window.as_slice() })
    }

    /// The window's bytes, to be changed.
    pub fn window_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        self.window.as_mut().map_or(&mut [], |window| unsafe { window.as_mut_slice() })
    }

    /// Sends a part of the window, and returns how many bytes: fewer only if it was interrupted, or does not wait.
    ///
    /// # Errors
    /// Those of send(2); ENOBUFS without a window, EINVAL of a part outside it; ENOTTY of the receiver's device.
    pub fn send(&self, range: Range<usize>) -> Result<usize> {
        let mut span = self.span(&range, 0)?;
        // SAFETY: laid out as the call has it; the module reads the window, which nobody changes while it is borrowed.
        unsafe { self.call(layout::SEND, &raw mut span) }
    }

    /// Receives into a part of the window until it is full, and returns how many bytes came: fewer only at the end of the stream, or
    /// if it was interrupted.
    ///
    /// # Errors
    /// Those of recv(2); as [`Self::send`], of the sender's device.
    pub fn receive(&mut self, range: Range<usize>) -> Result<usize> {
        let mut span = self.span(&range, layout::ALL)?;
        // SAFETY: laid out as the call has it; the module writes the window, which is borrowed exclusively.
        unsafe { self.call(layout::RECEIVE, &raw mut span) }
    }

    /// A part of the window, for a call.
    fn span(&self, range: &Range<usize>, flags: u32) -> Result<WindowSpan> {
        let window = self.window.as_ref().ok_or_else(|| Error::from_raw_os_error(libc::ENOBUFS))?;
        if range.start > range.end || range.end > window.bytes() {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(WindowSpan { offset: range.start as u64, length: range.len() as u64, flags, reserved: 0 })
    }

    /// The page-table entry of an address of this process, which need not be mapped.
    ///
    /// # Errors
    /// EINVAL of an address of the kernel's.
    pub fn page_entry(&self, address: usize) -> Result<PageEntry> {
        let mut page = PageQuery { address: address as u64, ..PageQuery::default() };
        // SAFETY: laid out as the call has it, and outlives it; the module reads tables, and not what they map.
        unsafe { self.call(layout::PTE, &raw mut page) }?;
        Ok(page.into())
    }
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Read for &KernelSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }
}

impl Write for &KernelSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(pieces)
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a connection attempt goes on, after [`KernelSocket::connect`].
pub fn is_connecting(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EALREADY)) || error.kind() == ErrorKind::Interrupted
}
