//! By a mapping of the file, a window of it at a time: sent from or received into, or copied to or from the window of a device.

use std::io::{Error, ErrorKind, Result};

use kelvin_sys::kmod::KernelSocket;
use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::transfer_call::{FileWindow, PageAccess, TransferCall};
use kelvin_sys::sigbus::SigbusGuard;

use super::super::range_cursor::RangeCursor;
use super::super::socket_io::SocketIo;
use super::TransferMethod;

/// The window of addresses.
pub struct Mmap {
    window: FileWindow,
    call_bytes: usize,
}

impl Mmap {
    pub fn new(pages: usize, call_bytes: usize, access: PageAccess) -> Result<Self> {
        Ok(Self { window: reserve_window(pages, access)?, call_bytes })
    }
}

impl TransferMethod for Mmap {
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        // Only who looks at the bytes here needs it: a system call reports what is missing.
        let guard = || SigbusGuard::over(self.window.address(), self.window.bytes());
        let guard = range.is_observed().then(guard).transpose()?;
        while range.remaining() > 0 {
            socket.counts.system_calls += 1 + self.window.map_calls();
            let end = range.file.metadata()?.len().min(range.end);
            match range.access {
                PageAccess::Read if range.offset >= end => break,
                // What arrives behind the end of a file, but within its last page, would be lost without an error.
                PageAccess::Write if end < range.end => return Err(too_short()),
                _ => {}
            }
            let page_offset = range.offset % page_bytes() as u64;
            let mapped =
                self.window.map_part(range.file, range.offset - page_offset, end - range.offset + page_offset)?;
            let mut position = page_offset as usize;
            while position < mapped {
                let part = position..mapped.min(position.saturating_add(self.call_bytes));
                let bytes = part.len();
                let moved = socket.call(match range.access {
                    PageAccess::Read => TransferCall::SendWindow(&self.window, part, range.more_follows(bytes)),
                    PageAccess::Write => TransferCall::ReceiveWindow(&mut self.window, part),
                });
                let moved = match moved {
                    // The end of the stream.
                    Ok(0) => return Ok(()),
                    Err(error) if is_fault(&error) => {
                        match (range.access, range.file.metadata()?.len() >= range.offset + bytes as u64) {
                            (PageAccess::Read, true) => return Err(Error::other("its pages could not be read")),
                            // That the file has become shorter is seen when the next part of it is mapped.
                            (PageAccess::Read, false) => break,
                            (PageAccess::Write, true) => {
                                let reason = "no space is left for a page of the file, or its device failed";
                                return Err(Error::new(ErrorKind::StorageFull, reason));
                            }
                            (PageAccess::Write, false) => return Err(too_short()),
                        }
                    }
                    moved => moved?,
                };
                range.mark_moved(moved);
                range.observe(self.window.slice(position..position + moved));
                position += moved;
            }
            if guard.as_ref().is_some_and(SigbusGuard::has_faulted) {
                return Err(match range.access {
                    PageAccess::Read => Error::other("the file was truncated while its bytes were read"),
                    PageAccess::Write => too_short(),
                });
            }
        }
        Ok(())
    }

    fn unmap(&mut self) -> Result<()> {
        self.window.unmap()
    }
}

/// The window of addresses at which a file is mapped to be copied to the window of a device of kelvin's module, which the module sends
/// from, or from the one that it receives into.
pub struct DeviceWindow(FileWindow);

impl DeviceWindow {
    /// As large as the device's, which is made unless there is one.
    pub fn new(device: &mut KernelSocket, pages: usize, access: PageAccess) -> Result<Self> {
        let window = reserve_window(pages, access)?;
        if device.window().is_empty() {
            device.set_window(window.bytes())?;
        }
        Ok(Self(window))
    }

    fn send_mapped(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let guard = SigbusGuard::over(self.0.address(), self.0.bytes())?;
        while range.remaining() > 0 {
            socket.counts.system_calls += 1;
            let mapped = self.0.map_part(range.file, range.offset, range.remaining())?;
            if let Some(device) = socket.device() {
                device.window_mut()[..mapped].copy_from_slice(self.0.slice(0..mapped));
            }
            if guard.has_faulted() {
                break;
            }
            let mut position = 0;
            while position < mapped {
                position += socket.call_device(|device| device.send(position..mapped))?;
            }
            range.mark_moved(mapped);
        }
        Ok(())
    }

    fn receive_mapped(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let guard = SigbusGuard::over(self.0.address(), self.0.bytes())?;
        while range.remaining() > 0 {
            let (max_bytes, mut filled) = (range.remaining_up_to(self.0.bytes()), 0);
            while filled < max_bytes {
                match socket.call_device(|device| device.receive(filled..max_bytes))? {
                    0 => break,
                    received => filled += received,
                }
            }
            socket.counts.system_calls += self.0.map_calls();
            let mapped = self.0.map_part(range.file, range.offset, filled as u64)?;
            if let Some(device) = socket.device() {
                self.0.copy_in(0, &device.window()[..mapped]);
            }
            if guard.has_faulted() {
                return Err(Error::new(ErrorKind::StorageFull, "a page of the file could not be made"));
            }
            range.mark_moved(mapped);
            if filled < max_bytes {
                break;
            }
        }
        Ok(())
    }
}

impl TransferMethod for DeviceWindow {
    fn transfer(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        match range.access {
            PageAccess::Read => self.send_mapped(socket, range),
            PageAccess::Write => self.receive_mapped(socket, range),
        }
    }

    fn unmap(&mut self) -> Result<()> {
        self.0.unmap()
    }
}

fn reserve_window(pages: usize, access: PageAccess) -> Result<FileWindow> {
    let window = FileWindow::reserve(pages, access)?;
    Ok(if access == PageAccess::Write { window.without_readahead() } else { window })
}

fn too_short() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the file is shorter than what is received into it: it was truncated")
}

/// EFAULT of errno(3) on Linux: what is mapped there is not to be had.
fn is_fault(error: &Error) -> bool {
    const FAULT: i32 = 14;
    error.raw_os_error() == Some(FAULT)
}
