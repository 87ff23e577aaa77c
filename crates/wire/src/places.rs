//! Places for unauthenticated connections: how many, and how many of one network.
//!
//! Each network has its own places, and a newcomer when all of them are taken gets that of the oldest of its network. When all
//! places are taken, a newcomer gets the oldest one's, but only if that one has had time for a handshake, and else none. So a
//! network that floods a listener takes nothing from others; and where many networks flood it, a client that retries has the
//! same chance as each of them, and keeps the place that it gets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::address::Network;

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// For all.
    pub all: usize,
    /// For those from one network: an IPv4 address, or the /64 of an IPv6 address.
    pub of_one_network: usize,
    /// The time for which a connection keeps its place, whatever comes from other networks.
    pub undisturbed: Duration,
}

impl Default for Room {
    fn default() -> Self {
        // Longer than any round trip.
        Self { all: 512, of_one_network: 64, undisturbed: Duration::from_secs(1) }
    }
}

/// The places, and who has them.
#[derive(Debug)]
pub struct Places<T> {
    room: Room,
    /// In the order in which they came.
    taken: Vec<(Place, T)>,
}

impl<T> Places<T> {
    /// All of them free.
    pub fn new(room: Room) -> Self {
        Self { room, taken: Vec::new() }
    }

    /// A place for a connection from this address, if there is one, and who has to leave for it.
    pub fn vacate(&mut self, from: SocketAddr) -> Option<(Place, Option<T>)> {
        self.vacate_at(Place { network: Network::of(from), since: Instant::now() })
    }

    fn vacate_at(&mut self, place: Place) -> Option<(Place, Option<T>)> {
        match self.choice(place) {
            Choice::Free => Some((place, None)),
            Choice::InPlaceOf(other) => Some((place, Some(self.taken.remove(other).1))),
            Choice::None => None,
        }
    }

    /// Gives it to the connection.
    pub fn give(&mut self, place: Place, holder: T) {
        self.taken.push((place, holder));
    }

    /// Who has a place, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.taken.iter().map(|(_, holder)| holder)
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.taken.iter_mut().map(|(_, holder)| holder)
    }

    /// Takes each out, and gives its place back to whoever is returned.
    pub fn sift(&mut self, mut keep: impl FnMut(T) -> Option<T>) {
        let taken = std::mem::take(&mut self.taken).into_iter();
        self.taken = taken.filter_map(|(place, holder)| Some((place, keep(holder)?))).collect();
    }

    /// Where there is a place for one more.
    fn choice(&self, newcomer: Place) -> Choice {
        let is_neighbour = |(place, _): &&(Place, T)| place.network == newcomer.network;
        if self.taken.iter().filter(is_neighbour).count() >= self.room.of_one_network {
            return self.taken.iter().position(|taken| is_neighbour(&taken)).map_or(Choice::None, Choice::InPlaceOf);
        }
        match self.taken.first() {
            Some((oldest, _)) if self.taken.len() >= self.room.all => {
                let has_had_time = newcomer.since.saturating_duration_since(oldest.since) >= self.room.undisturbed;
                if has_had_time { Choice::InPlaceOf(0) } else { Choice::None }
            }
            _ => Choice::Free,
        }
    }
}

/// A place: of which network, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    network: Network,
    since: Instant,
}

/// Where there is a place for one more.
#[derive(Debug, PartialEq)]
enum Choice {
    Free,
    /// If this one is evicted.
    InPlaceOf(usize),
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { all: 6, of_one_network: 2, undisturbed: Duration::from_secs(1) };

    /// Connections from these addresses, a hundredth of a second apart, and one more so long after the last.
    fn after(addresses: &[&str], milliseconds: u64, newcomer: &str) -> Choice {
        let begun = Instant::now();
        let at = |address: &str, milliseconds| Place {
            network: Network::of(format!("{address}:1").parse().unwrap()),
            since: begun + Duration::from_millis(milliseconds),
        };
        let mut places = Places::new(ROOM);
        for (address, since) in addresses.iter().zip((0..).step_by(10)) {
            places.give(at(address, since), ());
        }
        places.choice(at(newcomer, 10 * addresses.len() as u64 + milliseconds))
    }

    #[test]
    fn each_network_drives_out_its_own_alone() {
        assert_eq!(after(&[], 0, "10.0.0.1"), Choice::Free);
        assert_eq!(after(&["10.0.0.1", "10.0.0.2", "10.0.0.2"], 0, "10.0.0.1"), Choice::Free);
        assert_eq!(after(&["10.0.0.1", "10.0.0.2", "10.0.0.2"], 0, "10.0.0.2"), Choice::InPlaceOf(1));
        assert_eq!(after(&["10.0.0.1", "[2001:db8::1]", "[2001:db8::2]"], 0, "[2001:db8::3]"), Choice::InPlaceOf(1));
        assert_eq!(after(&["10.0.0.1", "[2001:db8::1]", "[2001:db8::2]"], 0, "[2001:db8:1::3]"), Choice::Free);
    }

    #[test]
    fn where_all_places_are_taken_nobody_loses_one_before_the_time_of_a_handshake() {
        let full = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.4", "10.0.0.6"];
        assert_eq!(after(&full, 0, "10.0.0.7"), Choice::None);
        assert_eq!(after(&full, 939, "10.0.0.7"), Choice::None);
        assert_eq!(after(&full, 940, "10.0.0.7"), Choice::InPlaceOf(0));
        assert_eq!(after(&full, 0, "10.0.0.4"), Choice::InPlaceOf(3));
        assert_eq!(after(&full[..5], 0, "10.0.0.7"), Choice::Free);
    }

    #[test]
    fn who_loses_a_place_is_returned_and_a_place_can_be_left() {
        let mut places = Places::new(Room { all: 3, ..ROOM });
        let admit = |places: &mut Places<char>, address: &str, holder| {
            let (place, evicted) = places.vacate(format!("{address}:1").parse().unwrap())?;
            places.give(place, holder);
            Some(evicted)
        };
        assert_eq!(admit(&mut places, "10.0.0.1", 'a'), Some(None));
        assert_eq!(admit(&mut places, "10.0.0.1", 'b'), Some(None));
        assert_eq!(admit(&mut places, "10.0.0.1", 'c'), Some(Some('a')));
        assert_eq!(admit(&mut places, "10.0.0.2", 'd'), Some(None));
        assert_eq!(admit(&mut places, "10.0.0.3", 'e'), None);
        places.sift(|holder| (holder != 'b').then_some(holder));
        assert_eq!(admit(&mut places, "10.0.0.3", 'e'), Some(None));
        assert_eq!(places.iter().collect::<String>(), "cde");
    }

    /// When many networks connect so often that all places are always taken, each that retries gets in as often as the others,
    /// and has its second.
    #[test]
    fn among_many_networks_who_tries_again_gets_in_and_stays_for_a_handshake() {
        let begun = Instant::now();
        let mut places = Places::new(Room { of_one_network: 64, all: 512, ..ROOM });
        let (mut tries, mut is_in) = (0, false);
        // 1,000 a second, each from another address; every hundredth is the same one.
        for number in 0..20_000_u32 {
            let network = if number % 100 == 99 { 1 } else { 1000 + number };
            let address = SocketAddr::from((std::net::Ipv4Addr::from_bits(network), 1));
            let newcomer = Place { network: Network::of(address), since: begun + Duration::from_millis(number.into()) };
            let vacated = places.vacate_at(newcomer);
            if let Some((place, evicted)) = vacated {
                assert!(evicted.is_none_or(|since| newcomer.since - since >= ROOM.undisturbed));
                places.give(place, newcomer.since);
            }
            if number > 2000 && number % 100 == 99 && !is_in {
                tries += 1;
                is_in = vacated.is_some();
            }
        }
        assert!(is_in && tries <= 20, "{tries}");
    }
}
