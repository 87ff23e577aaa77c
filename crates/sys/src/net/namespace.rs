//! Network namespaces: a private network for the calling thread, and the way back.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::Result;

/// A network namespace. It goes away, with the interfaces in it, when nothing holds it any more.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// The one that the calling thread is in.
    pub fn current() -> Result<Self> {
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// A new one with only a loopback device, which is down; the calling thread is in it from now on.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN.
    pub fn enter_new() -> Result<Self> {
        // SAFETY: a network namespace has nothing that memory safety depends on.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        Self::current()
    }

    /// Moves the calling thread into it. Sockets stay in the namespace they were created in.
    pub fn enter(&self) -> Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// A path by which other programs find it, as long as this process has it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn new_namespace_is_isolated() {
        // A separate thread: the others stay where they are.
        let thread = std::thread::spawn(|| {
            let original = Namespace::current().unwrap();
            let before = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Err(error) = Namespace::enter_new() {
                return kelvin_testing::MissingRequirement::privilege(error).report_skip("a network namespace");
            }
            let result =
                UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(&[1], before.local_addr().unwrap()));
            assert!(result.is_err(), "its loopback device is down");
            before.send_to(&[1], before.local_addr().unwrap()).unwrap();
            original.enter().unwrap();
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1], before.local_addr().unwrap()).unwrap();
        });
        thread.join().unwrap();
    }
}
