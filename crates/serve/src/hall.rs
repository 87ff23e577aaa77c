//! What a thread needs to serve any client, and how it speaks to one that it does not serve.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::connection::{Buffers, Connection};
use crate::house::is_local;
use crate::registered::Registered;
use crate::sending::{Sender, Sending};
use crate::server::Served;
use crate::site::Site;
use crate::status::Status;
use crate::watch::Watch;

/// Room for what is received at a time: a request of a browser has less than 1 KiB.
pub const ROOM: usize = 16 << 10;
/// How long an ended connection is read from or held, so that its last answer is not lost with what it still sends (RFC 9112, 9.6).
pub const LINGER: Duration = Duration::from_secs(2);
/// Most connections that are held so long after they were turned away: of a crowd, the oldest are let go.
const TURNED_AWAY: usize = 16;

/// What a thread needs to serve any client.
#[derive(Debug)]
pub struct Hall {
    /// What answers.
    pub site: Site,
    /// By which calls the bytes of files go.
    pub sending: Sender,
    /// What clients use by turns.
    pub buffers: Buffers,
    /// What was done so far.
    pub served: Served,
    /// Where connections are registered, if they are watched.
    pub watch: Option<Arc<Watch>>,
    /// Who was turned away, and when: one whose request is still to come must not be reset before it has read why.
    turned_away: VecDeque<(Instant, OwnedFd)>,
}

impl Hall {
    /// One in which nobody was served yet.
    pub fn new(site: Site, sending: Sending) -> Self {
        Self {
            site,
            sending: Sender::new(sending),
            buffers: Buffers::default(),
            served: Served::default(),
            watch: None,
            turned_away: VecDeque::new(),
        }
    }

    /// What was done since it was asked last.
    pub fn take_served(&mut self) -> Served {
        Served { choices: self.sending.take_choices(), ..std::mem::take(&mut self.served) }
    }

    /// Registers a connection, if they are watched.
    pub fn register(&self, socket: impl AsFd) -> Option<Registered> {
        self.watch.as_ref()?.register(socket)
    }

    /// A connection over this socket, that is served from now on.
    pub fn connection(&self, socket: impl AsFd, registered: Option<Registered>) -> Connection {
        let is_local = self.sending.asks_where_clients_are() && is_local(&socket).unwrap_or(false);
        Connection::watched(registered).local(is_local)
    }

    /// Says to a connection that there are too many, without waiting for anything.
    pub fn turn_away(&mut self, socket: OwnedFd, now: Instant) {
        self.served.refused += 1;
        self.watch.iter().for_each(|watch| watch.refuse());
        let mut answer = Vec::new();
        self.site.refuse(Status::ServiceUnavailable, &mut answer);
        let _ = send(&socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let _ = shutdown(&socket, Shutdown::Write);
        if self.turned_away.len() >= TURNED_AWAY {
            self.turned_away.pop_front().into_iter().for_each(let_go);
        }
        self.turned_away.push_back((now, socket));
    }

    /// Lets go whoever was turned away long enough ago.
    pub fn let_go(&mut self, now: Instant) {
        while self.turned_away.front().is_some_and(|(when, _)| now.saturating_duration_since(*when) >= LINGER) {
            self.turned_away.pop_front().into_iter().for_each(let_go);
        }
    }

    /// Lets go all of them, because descriptors are lacking.
    pub fn let_all_go(&mut self) {
        self.turned_away.drain(..).for_each(let_go);
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        self.let_all_go();
    }
}

fn let_go((_, socket): (Instant, OwnedFd)) {
    // What has arrived is taken, so that the end is no reset, which would drop an answer that is not read yet.
    let _ = recv(&socket, &mut [0; 4096], RecvFlags::DONTWAIT);
}
