//! What a thread needs to serve any client, and how it speaks to one that it does not serve.

use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::connection::Buffers;
use crate::sending::Sending;
use crate::server::Served;
use crate::site::Site;
use crate::status::Status;

/// Room for what is received at a time: a request of a browser has less than 1 KiB.
pub const ROOM: usize = 16 << 10;

/// What a thread needs to serve any client.
#[derive(Debug)]
pub struct Hall {
    /// What answers.
    pub site: Site,
    /// By which calls the bytes of files go.
    pub sending: Sending,
    /// What clients use by turns.
    pub buffers: Buffers,
    /// What was done so far.
    pub served: Served,
}

impl Hall {
    /// One in which nobody was served yet.
    pub fn new(site: Site, sending: Sending) -> Self {
        Self { site, sending, buffers: Buffers::default(), served: Served::default() }
    }

    /// Says to a connection that there are too many, without waiting for anything.
    pub fn turn_away(&mut self, socket: impl AsFd) {
        self.served.refused += 1;
        let mut answer = Vec::new();
        self.site.refuse(Status::ServiceUnavailable, &mut answer);
        let _ = send(&socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let _ = shutdown(&socket, Shutdown::Write);
        // What has arrived is taken, so that the end is no reset, which would drop the answer.
        let _ = recv(&socket, &mut [0; 4096], RecvFlags::DONTWAIT);
    }
}
