//! Connections that are passed from the process that accepts them to the one that watches them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::serve::error::{Error, Result};
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::server::SHUTDOWN_POLL_INTERVAL;

/// Where the process that accepts says who has come and gone.
#[derive(Debug)]
pub struct FdSender(OwnedFd);

/// Where the process that watches is receiver.
#[derive(Debug)]
pub struct FdReceiver(OwnedFd);

/// Both ends.
///
/// # Errors
/// Those of socketpair.
pub fn fd_channel() -> Result<(FdSender, FdReceiver)> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (near, far) = pair.map_err(Error::call("tell of connections"))?;
    Ok((FdSender(near), FdReceiver(far)))
}

impl FdSender {
    /// Tells of a connection that has come, and has this slot.
    ///
    /// # Errors
    /// Those of sendmsg: the other one has gone.
    pub fn send_open(&self, slot: usize, socket: &OwnedFd) -> rustix::io::Result<()> {
        let sockets = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        let has_room = passed.push(SendAncillaryMessage::ScmRights(&sockets));
        debug_assert!(has_room, "there is room for one descriptor");
        self.send(slot, &mut passed)
    }

    /// Tells that the one that has this slot is gone.
    ///
    /// # Errors
    /// As above.
    pub fn send_close(&self, slot: usize) -> rustix::io::Result<()> {
        self.send(slot, &mut SendAncillaryBuffer::default())
    }

    fn send(&self, slot: usize, passed: &mut SendAncillaryBuffer<'_, '_, '_>) -> rustix::io::Result<()> {
        sendmsg(&self.0, &[IoSlice::new(&slot.to_ne_bytes())], passed, SendFlags::NOSIGNAL).map(drop)
    }
}

impl FdReceiver {
    /// Has those watched of whom it is told, until it is over or the other end is closed.
    pub fn run(&self, watch: &InFlightSampler, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            match kelvin_sys::poll::wait_readable(self.0.as_fd(), SHUTDOWN_POLL_INTERVAL) {
                Ok(false) => {}
                Ok(true) => match self.next_message() {
                    Ok(Some((slot, Some(socket)))) => watch.track(slot, Arc::new(socket)),
                    Ok(Some((slot, None))) => watch.untrack(slot),
                    Err(Errno::INTR) => {}
                    Ok(None) | Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }

    /// The next of whom it is told, with the socket of one who has come; nobody at the end. Without a descriptor for it there is no
    /// socket: that one is not watched.
    fn next_message(&self) -> rustix::io::Result<Option<(usize, Option<OwnedFd>)>> {
        let mut slot = [0; size_of::<usize>()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut slot)], &mut passed, RecvFlags::CMSG_CLOEXEC)?;
        let sockets = passed.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let socket = sockets.flatten().next();
        Ok((received.bytes == slot.len()).then_some((usize::from_ne_bytes(slot), socket)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn passed_connection_is_tracked_until_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let watch = InFlightSampler::new(&listener, 3).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::io::Write::write_all(&mut client, b"GET").unwrap();
        let server: OwnedFd = listener.accept().unwrap().0.into();
        rustix::net::recv(&server, &mut [0], RecvFlags::PEEK).unwrap();
        let (sender, receiver) = fd_channel().unwrap();
        let slot = watch.take_slot().unwrap().number();
        sender.send_open(slot, &server).unwrap();
        drop(sender);
        receiver.run(&watch, &AtomicBool::new(false));
        assert_eq!(watch.snapshot(&listener).in_flight_now, 1, "its request waits to be read");
        let (sender, receiver) = fd_channel().unwrap();
        sender.send_close(slot).unwrap();
        drop(sender);
        receiver.run(&watch, &AtomicBool::new(false));
        assert_eq!(watch.snapshot(&listener).in_flight_now, 0);
    }
}
