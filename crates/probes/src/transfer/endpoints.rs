//! The ends of a transfer: each with a socket of its own process, or with one in the kernel.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use kelvin_harness::ProbeError;
use kelvin_transfer::raw_protocol::{self, KernelListener, RawReceiveOptions, RawSendOptions, RawTotals};
use kelvin_transfer::{Error, Result};

use crate::net::link::prefer_congestion_control;
use crate::reasons::{OrReason, ProbeResult};

/// An end of a transfer, with how it sends or receives.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<T> {
    Process(T),
    /// And whether the device has O_ASYNC.
    Kernel(T, bool),
}

pub(super) type SenderEnd = End<RawSendOptions>;
pub(super) type ReceiverEnd = End<RawReceiveOptions>;

impl SenderEnd {
    pub(super) fn send(&self, files: &[PathBuf], to: SocketAddr) -> Result<RawTotals> {
        match self {
            Self::Process(options) => raw_protocol::send(files, to, options, prefer_congestion_control),
            Self::Kernel(options, is_asynchronous) => {
                raw_protocol::send_through_kernel(files, to, options, *is_asynchronous)
            }
        }
    }
}

/// What fails where the receiving process does not start.
pub(super) const STARTING: &str = "cannot start the receiving process";

/// Receives the files of one sender into a directory, and calls back for each.
pub(super) type FileReceiver = Box<dyn FnMut(&Path, &mut dyn FnMut(&Path)) -> Result<RawTotals> + Send>;

/// A listener on loopback whose connections are not paced.
fn loopback_listener() -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // An accepted socket inherits it.
    prefer_congestion_control(listener.as_fd())?;
    Ok(listener)
}

impl ReceiverEnd {
    /// Listens on loopback: where, and what receives.
    pub(super) fn listen(self) -> ProbeResult<(SocketAddr, FileReceiver)> {
        match self {
            Self::Process(options) => {
                let listener = loopback_listener().or_fail(STARTING)?;
                let address = listener.local_addr().or_fail(STARTING)?;
                let receive = move |directory: &Path, on_file: &mut dyn FnMut(&Path)| {
                    raw_protocol::receive(&listener, directory, &options, on_file)
                };
                Ok((address, Box::new(receive)))
            }
            Self::Kernel(options, is_asynchronous) => {
                let mut listener = KernelListener::new().map_err(|error| match error {
                    Error::Device(no_device) => ProbeError::skip(format!("needs the kernel module: {no_device}")),
                    error => ProbeError::fail(format!("{STARTING}: {error}")),
                })?;
                let address = listener.address;
                let receive = move |directory: &Path, on_file: &mut dyn FnMut(&Path)| {
                    listener.receive(directory, (&options, is_asynchronous), on_file)
                };
                Ok((address, Box::new(receive)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use kelvin_sys::net::congestion_control;

    use super::*;

    #[test]
    fn accepted_connection_is_not_paced() {
        let listener = loopback_listener().unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(["cubic", "reno"].contains(&congestion_control(&accepted).unwrap().as_str()));
    }
}
