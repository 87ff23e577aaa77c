//! The ends of a transfer: each with a socket of its own process, or with one in the kernel.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use kelvin_harness::ProbeError;
use kelvin_transfer::raw_protocol::{self, KernelListener, RawReceiveOptions, RawSendOptions, RawTotals, ReceivedFile};
use kelvin_transfer::{Error, Result};

use crate::net::link::prefer_congestion_control;

/// How the sender sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum SenderEnd {
    Process(RawSendOptions),
    /// And whether the device has O_ASYNC.
    Kernel(RawSendOptions, bool),
}

impl SenderEnd {
    pub(super) fn send(&self, files: &[PathBuf], to: SocketAddr) -> Result<RawTotals> {
        match self {
            Self::Process(how) => raw_protocol::send(files, to, how, prefer_congestion_control),
            Self::Kernel(how, is_asynchronous) => raw_protocol::send_through_kernel(files, to, how, *is_asynchronous),
        }
    }
}

/// How the receiver receives.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReceiverEnd {
    Process(RawReceiveOptions),
    /// And whether the device has O_ASYNC.
    Kernel(RawReceiveOptions, bool),
}

impl ReceiverEnd {
    /// Listens on loopback.
    pub(super) fn listen(self) -> std::result::Result<ListeningEnd, ProbeError> {
        let failed = |error: std::io::Error| ProbeError::fail(format!("cannot start the receiving process: {error}"));
        match self {
            Self::Process(how) => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
                // An accepted socket inherits it.
                prefer_congestion_control(listener.as_fd()).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Ok(ListeningEnd::Process { listener, address, how })
            }
            Self::Kernel(how, is_asynchronous) => match KernelListener::new() {
                Ok(listener) => Ok(ListeningEnd::Kernel { listener, how, is_asynchronous }),
                Err(Error::Device(error)) => Err(ProbeError::skip(format!("needs the kernel module: {error}"))),
                Err(error) => Err(ProbeError::fail(format!("cannot start the receiving process: {error}"))),
            },
        }
    }
}

/// A receiver that listens.
pub(super) enum ListeningEnd {
    Process { listener: TcpListener, address: SocketAddr, how: RawReceiveOptions },
    Kernel { listener: KernelListener, how: RawReceiveOptions, is_asynchronous: bool },
}

impl ListeningEnd {
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Process { address, .. } => *address,
            Self::Kernel { listener, .. } => listener.address(),
        }
    }

    /// Receives the files of one sender.
    pub(super) fn receive(&mut self, directory: &Path, each: &mut dyn FnMut(&ReceivedFile<'_>)) -> Result<RawTotals> {
        match self {
            Self::Process { listener, how, .. } => raw_protocol::receive(listener, directory, how, each),
            Self::Kernel { listener, how, is_asynchronous } => {
                listener.receive(directory, (how, *is_asynchronous), each)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::transfer::{TransferFiles, best_cell};
    use kelvin_sys::net::congestion_control;

    use super::*;
    use crate::transfer::cells::Cell;

    #[test]
    fn accepted_connection_is_not_paced() {
        let cell = Cell::from_case(&best_cell().with_word(TransferFiles::Small)).unwrap();
        let ListeningEnd::Process { listener, .. } = cell.receiving.listen().unwrap() else {
            panic!("an end in the kernel")
        };
        assert!(["cubic", "reno"].contains(&congestion_control(&listener).unwrap().as_str()));
    }
}
