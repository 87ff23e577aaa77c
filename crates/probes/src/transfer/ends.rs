//! The ends of a transfer: each with a socket of its own process, or with one in the kernel.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use kelvin_harness::Stop;
use kelvin_transfer::bare::{self, Arrived, KernelListener, KernelSetup, Moved, Receiving, Sending};
use kelvin_transfer::{Error, Result};

use crate::net::link::prefer_congestion_control;

/// How the sender sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sends {
    Process(Sending),
    Kernel(Sending<KernelSetup>),
}

impl Sends {
    pub(super) fn send(&self, files: &[PathBuf], to: SocketAddr) -> Result<Moved> {
        match self {
            Self::Process(how) => bare::send(files, to, how, prefer_congestion_control),
            Self::Kernel(how) => bare::send_through_kernel(files, to, how),
        }
    }
}

/// How the receiver receives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Receives {
    Process(Receiving),
    Kernel(Receiving<KernelSetup>),
}

impl Receives {
    /// Listens on loopback.
    pub(super) fn listen(self) -> std::result::Result<Listening, Stop> {
        let failed = |error: std::io::Error| Stop::fail(format!("cannot start the receiving process: {error}"));
        match self {
            Self::Process(how) => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
                // An accepted socket inherits it.
                prefer_congestion_control(listener.as_fd()).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Ok(Listening::Process { listener, address, how })
            }
            Self::Kernel(how) => {
                KernelListener::new().map(|listener| Listening::Kernel { listener, how }).map_err(|error| match error {
                    Error::Device(no_device) => Stop::skip(format!("needs the kernel module: {no_device}")),
                    other => Stop::fail(format!("cannot start the receiving process: {other}")),
                })
            }
        }
    }
}

/// A receiver that listens.
pub(super) enum Listening {
    Process { listener: TcpListener, address: SocketAddr, how: Receiving },
    Kernel { listener: KernelListener, how: Receiving<KernelSetup> },
}

impl Listening {
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Process { address, .. } => *address,
            Self::Kernel { listener, .. } => listener.address(),
        }
    }

    /// Receives the files of one sender.
    pub(super) fn receive(&mut self, directory: &Path, each: &mut dyn FnMut(&Arrived<'_>)) -> Result<Moved> {
        match self {
            Self::Process { listener, how, .. } => bare::receive(listener, directory, how, each),
            Self::Kernel { listener, how } => listener.receive(directory, how, each),
        }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::transfer::{Files, best};
    use kelvin_sys::net::congestion_control;

    use super::*;
    use crate::transfer::cells::Cell;

    #[test]
    fn what_a_receiver_accepts_does_not_pace_itself() {
        let cell = Cell::of(&best().at(Files::Small)).unwrap();
        let Listening::Process { listener, .. } = cell.receiving.listen().unwrap() else {
            panic!("an end in the kernel")
        };
        assert!(["cubic", "reno"].contains(&congestion_control(&listener).unwrap().as_str()));
    }
}
