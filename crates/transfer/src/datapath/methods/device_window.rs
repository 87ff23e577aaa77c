//! By the window of a device of kelvin's module, which the module sends from or receives into: the file is mapped a window at a
//! time, and copied from one mapping to the other.

use std::io::{Error, ErrorKind, Result};

use kelvin_sys::kmod::KernelSocket;
use kelvin_sys::net::transfer_call::{FileWindow, PageAccess};
use kelvin_sys::sigbus::SigbusGuard;

use super::super::range_cursor::RangeCursor;
use super::super::socket_io::SocketIo;
use super::TransferMethod;

/// The window of addresses at which the file is mapped.
pub struct DeviceWindow(FileWindow);

impl DeviceWindow {
    /// As large as the device's, which is made unless there is one.
    pub fn new(device: &mut KernelSocket, pages: usize, access: PageAccess) -> Result<Self> {
        let window = FileWindow::reserve(pages, access)?;
        if device.window().is_empty() {
            device.set_window(window.bytes())?;
        }
        Ok(Self(if access == PageAccess::Write { window.without_readahead() } else { window }))
    }

    fn send_mapped(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let guard = SigbusGuard::over(self.0.address(), self.0.bytes())?;
        while range.remaining() > 0 {
            socket.counts.system_calls += 1;
            let mapped = self.0.map_part(range.file, range.offset, range.remaining())?;
            if let Some(device) = socket.device() {
                device.window_mut()[..mapped].copy_from_slice(self.0.part(0..mapped));
            }
            if guard.has_faulted() {
                break;
            }
            let mut at = 0;
            while at < mapped {
                at += socket.call_device(|device| device.send(at..mapped))?;
            }
            range.mark_sent(mapped);
        }
        Ok(())
    }

    fn receive_mapped(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let guard = SigbusGuard::over(self.0.address(), self.0.bytes())?;
        while range.remaining() > 0 {
            let (wanted, mut filled) = (range.remaining_up_to(self.0.bytes()), 0);
            while filled < wanted {
                match socket.call_device(|device| device.receive(filled..wanted))? {
                    0 => break,
                    more => filled += more,
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
            range.mark_received(mapped);
            range.mark_written(mapped);
            if filled < wanted {
                break;
            }
        }
        Ok(())
    }
}

impl TransferMethod for DeviceWindow {
    fn send(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let sent = self.send_mapped(socket, range);
        self.0.unmap().and(sent)
    }

    fn receive(&mut self, socket: &mut SocketIo, range: &mut RangeCursor<'_, '_>) -> Result<()> {
        let received = self.receive_mapped(socket, range);
        self.0.unmap().and(received)
    }
}
