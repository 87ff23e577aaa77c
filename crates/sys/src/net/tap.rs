//! A network interface whose frames a program reads and writes: what is sent over it is read here, and what is written here
//! arrives over it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::interface::new_request;
use crate::{Result, check};

/// Where the kernel gives them out.
const TUN_DEVICE: &str = "/dev/net/tun";
/// `TUNSETIFF` of `linux/if_tun.h`: `_IOW('T', 202, int)`.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;

/// An interface of the network namespace that it was made in; it goes when this is dropped.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Creates one of this name in the calling thread's network namespace; it is down and without an address.
    ///
    /// # Errors
    /// `NotFound` without the kernel's driver, `PermissionDenied` without CAP_NET_ADMIN, `InvalidInput` for a name that is too
    /// long.
    pub fn new(name: &str) -> Result<Self> {
        let file = File::options().read(true).write(true).open(TUN_DEVICE)?;
        // SAFETY: an all-zero ifreq is valid.
        let mut request = new_request(name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request is an ifreq with a name that ends, as this call takes it.
        check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw const request) })?;
        Ok(Self(file))
    }

    /// Waits for a frame that was sent over the interface; its length.
    pub fn receive(&self, frame: &mut [u8]) -> Result<usize> {
        (&self.0).read(frame)
    }

    /// Injects a frame as received over the interface.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        (&self.0).write_all(frame)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
