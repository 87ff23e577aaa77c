//! Unauthenticated connections of an agent: how many, from where, and for how long.
//!
//! Each network has its own places, and a newcomer when all of them are taken evicts the oldest of that network. When all
//! places of the agent are taken, a newcomer gets the oldest one's, but only if that one has had time for a handshake, and else
//! none. So a network that floods the agent takes nothing from others; and where many networks flood it, a client that retries
//! has the same chance as each of them, and keeps the place that it gets.

use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::House;
use crate::address::Network;
use crate::deadline::Deadline;
use crate::frame::Partial;
use crate::limits::Limits;
use crate::secret::Nonce;
use crate::{Error, Result, handshake};

/// An unauthenticated connection.
pub(super) struct Newcomer {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    /// The nonce sent to it.
    pub(super) nonce: Nonce,
    /// What it has sent so far.
    said: Partial,
    pub(super) deadline: Deadline,
    place: Place,
    /// Whether it has sent something since, or closed.
    is_ready: bool,
}

impl Newcomer {
    /// Greets it, without waiting for anything.
    fn greeted(mut stream: TcpStream, from: SocketAddr, place: Place, house: &House) -> Result<Self> {
        let deadline = Deadline::within(house.limits.handshake);
        let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        set_up.map_err(Error::call("set up the connection"))?;
        let nonce = handshake::greet(&mut stream, &house.secret, deadline)?;
        Ok(Self { stream, from, nonce, said: Partial::new(handshake::LONGEST), deadline, place, is_ready: false })
    }

    /// Its frame, once it is complete.
    fn hear(&mut self) -> Result<Option<Vec<u8>>> {
        let said = if self.is_ready { self.said.take(&mut self.stream)? } else { None };
        self.deadline.left(handshake::DOING)?;
        Ok(said)
    }
}

/// All of them, in the order in which they came.
pub(super) struct Crowd {
    house: Arc<House>,
    all: Vec<Newcomer>,
}

impl Crowd {
    pub(super) fn new(house: Arc<House>) -> Self {
        Self { house, all: Vec::new() }
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
        for mut newcomer in std::mem::take(&mut self.all) {
            match newcomer.hear() {
                Ok(None) => self.all.push(newcomer),
                Ok(Some(said)) => self.house.meet(newcomer, &said),
                Err(error) => self.house.turn_away(newcomer.from, error),
            }
        }
    }

    /// Takes a connection in, if there is a place.
    pub(super) fn admit(&mut self, stream: TcpStream, from: SocketAddr) {
        let place = Place { network: Network::of(from), since: Instant::now() };
        let places: Vec<Place> = self.all.iter().map(|newcomer| newcomer.place).collect();
        match room(&places, place, &self.house.limits) {
            Room::Free => {}
            Room::InPlaceOf(other) => self.house.turn_away(self.all.remove(other).from, Error::Crowded),
            Room::None => return self.house.turn_away(from, Error::Crowded),
        }
        match Newcomer::greeted(stream, from, place, &self.house) {
            Ok(newcomer) => self.all.push(newcomer),
            Err(error) => self.house.turn_away(from, error),
        }
    }
}

/// The holder of a place, and since when.
#[derive(Clone, Copy, Debug)]
struct Place {
    network: Network,
    since: Instant,
}

/// Whether there is a place for one more.
#[derive(Debug, PartialEq)]
enum Room {
    Free,
    /// If this one is evicted.
    InPlaceOf(usize),
    None,
}

/// The place of this one among those there, in the order in which they came.
fn room(here: &[Place], newcomer: Place, limits: &Limits) -> Room {
    let is_neighbour = |place: &&Place| place.network == newcomer.network;
    if here.iter().filter(is_neighbour).count() >= limits.of_one_network {
        return here.iter().position(|place| is_neighbour(&place)).map_or(Room::None, Room::InPlaceOf);
    }
    match here.first() {
        Some(oldest) if here.len() >= limits.unauthenticated => {
            let has_had_time = newcomer.since.saturating_duration_since(oldest.since) >= limits.undisturbed;
            if has_had_time { Room::InPlaceOf(0) } else { Room::None }
        }
        _ => Room::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn() -> Limits =
        || Limits { unauthenticated: 6, of_one_network: 2, undisturbed: Duration::from_secs(1), ..Limits::default() };

    /// Connections from these addresses, a hundredth of a second apart, and one more so long after the last.
    fn after(addresses: &[&str], milliseconds: u64, newcomer: &str) -> Room {
        let begun = Instant::now();
        let at = |address: &str, milliseconds| Place {
            network: Network::of(format!("{address}:1").parse().unwrap()),
            since: begun + Duration::from_millis(milliseconds),
        };
        let here: Vec<Place> = addresses.iter().zip((0..).step_by(10)).map(|(one, since)| at(one, since)).collect();
        room(&here, at(newcomer, 10 * addresses.len() as u64 + milliseconds), &LIMITS())
    }

    #[test]
    fn each_network_drives_out_its_own_alone() {
        assert_eq!(after(&[], 0, "10.0.0.1"), Room::Free);
        assert_eq!(after(&["10.0.0.1", "10.0.0.2", "10.0.0.2"], 0, "10.0.0.1"), Room::Free);
        assert_eq!(after(&["10.0.0.1", "10.0.0.2", "10.0.0.2"], 0, "10.0.0.2"), Room::InPlaceOf(1));
        assert_eq!(after(&["10.0.0.1", "[2001:db8::1]", "[2001:db8::2]"], 0, "[2001:db8::3]"), Room::InPlaceOf(1));
        assert_eq!(after(&["10.0.0.1", "[2001:db8::1]", "[2001:db8::2]"], 0, "[2001:db8:1::3]"), Room::Free);
    }

    #[test]
    fn where_all_places_are_taken_nobody_loses_one_before_the_time_of_a_handshake() {
        let full = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.4", "10.0.0.6"];
        assert_eq!(after(&full, 0, "10.0.0.7"), Room::None);
        assert_eq!(after(&full, 939, "10.0.0.7"), Room::None);
        assert_eq!(after(&full, 940, "10.0.0.7"), Room::InPlaceOf(0));
        assert_eq!(after(&full, 0, "10.0.0.4"), Room::InPlaceOf(3));
        assert_eq!(after(&full[..5], 0, "10.0.0.7"), Room::Free);
    }

    /// When many networks connect so often that all places are always taken, each that retries gets in as often as the others,
    /// and has its second.
    #[test]
    fn among_many_networks_who_tries_again_gets_in_and_stays_for_a_handshake() {
        let (limits, begun) = (Limits { of_one_network: 64, unauthenticated: 512, ..LIMITS() }, Instant::now());
        let mut here: Vec<Place> = Vec::new();
        let (mut tries, mut is_in) = (0, false);
        // 1,000 a second, each from another address; every hundredth is the same one.
        for number in 0..20_000_u32 {
            let network = if number % 100 == 99 { 1 } else { 1000 + number };
            let address = SocketAddr::from((std::net::Ipv4Addr::from_bits(network), 1));
            let newcomer = Place { network: Network::of(address), since: begun + Duration::from_millis(number.into()) };
            let room = room(&here, newcomer, &limits);
            if let Room::InPlaceOf(other) = room {
                let gone = here.remove(other);
                assert!(newcomer.since - gone.since >= limits.undisturbed);
            }
            if room != Room::None {
                here.push(newcomer);
            }
            if number > 2000 && number % 100 == 99 && !is_in {
                tries += 1;
                is_in = room != Room::None;
            }
        }
        assert!(is_in && tries <= 20, "{tries}");
    }
}
