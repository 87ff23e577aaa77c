//! Unauthenticated connections of an agent: each is greeted, heard when it has sent something, and dropped when its time is over.

use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::House;
use crate::deadline::Deadline;
use crate::noise::{DOING, Greeted, Greeting};
use crate::places::Places;
use crate::{Error, Result};

/// An unauthenticated connection.
pub(super) struct Newcomer {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    /// What was sent to it.
    pub(super) greeted: Greeted,
    /// What it has sent so far.
    pub(super) greeting: Greeting,
    pub(super) deadline: Deadline,
    /// Whether it has sent something since, or closed.
    is_ready: bool,
}

impl Newcomer {
    /// Greets it, without waiting for anything.
    fn greeted(mut stream: TcpStream, from: SocketAddr, house: &House) -> Result<Self> {
        let deadline = Deadline::within(house.limits.handshake);
        let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        set_up.map_err(Error::call("set up the connection"))?;
        let greeted = house.handshake(deadline).greet(&mut stream)?;
        Ok(Self { stream, from, greeted, greeting: Greeting::default(), deadline, is_ready: false })
    }

    /// Whether its greeting is complete.
    fn hear(&mut self, house: &House) -> Result<bool> {
        let handshake = house.handshake(self.deadline);
        let is_complete = self.is_ready && self.greeting.take(&mut self.stream, &handshake)?;
        self.deadline.left(DOING)?;
        Ok(is_complete)
    }
}

/// All of them.
pub(super) struct Crowd {
    house: Arc<House>,
    all: Places<Newcomer>,
}

impl Crowd {
    pub(super) fn new(house: Arc<House>) -> Self {
        let all = Places::new(house.limits.unauthenticated);
        Self { house, all }
    }

    /// Waits for a new connection, which is returned, or for one of these to send something.
    pub(super) fn wait(&mut self, listener: BorrowedFd<'_>, within: Duration) -> Result<bool> {
        let here = self.all.iter().map(|newcomer| newcomer.stream.as_fd());
        let all: Vec<BorrowedFd<'_>> = iter::once(listener).chain(here).collect();
        let ready = kelvin_sys::ready::readable_of(&all, within).map_err(Error::call("wait"))?;
        for (newcomer, is_ready) in self.all.iter_mut().zip(&ready[1..]) {
            newcomer.is_ready = *is_ready;
        }
        Ok(ready[0])
    }

    /// Reads from those that have sent something, and drops those whose time is over.
    pub(super) fn hear(&mut self) {
        let house = &self.house;
        self.all.sift(|mut newcomer| {
            match newcomer.hear(house) {
                Ok(false) => return Some(newcomer),
                Ok(true) => house.meet(newcomer),
                Err(error) => house.turn_away(newcomer.from, error),
            }
            None
        });
    }

    /// Takes a connection in, if there is a place.
    pub(super) fn admit(&mut self, stream: TcpStream, from: SocketAddr) {
        let Some((place, evicted)) = self.all.vacate(from) else {
            return self.house.turn_away(from, Error::Crowded);
        };
        if let Some(other) = evicted {
            self.house.turn_away(other.from, Error::Crowded);
        }
        match Newcomer::greeted(stream, from, &self.house) {
            Ok(newcomer) => self.all.give(place, newcomer),
            Err(error) => self.house.turn_away(from, error),
        }
    }
}
