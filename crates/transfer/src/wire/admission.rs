//! Places for unauthenticated connections: how many, and how many of one network; and slots for those that are authenticated.
//!
//! Each network has its own places, and a newcomer when all of them are taken gets that of the oldest of its network. When all
//! places are taken, a newcomer gets the oldest one's, but only if that one has had time for a handshake, and else none. So a
//! network that floods a listener takes nothing from others. Where many networks flood it, a client that retries has the
//! same chance as each of them, and keeps the place that it gets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::wire::address::SourceNetwork;

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// For all.
    pub total: usize,
    /// For those from one network: an IPv4 address, or the /64 of an IPv6 address.
    pub per_network: usize,
    /// The time for which a connection keeps its place, no matter what comes from other networks.
    pub grace_period: Duration,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        // Longer than any round trip.
        Self { total: 512, per_network: 64, grace_period: Duration::from_secs(1) }
    }
}

/// Connections of one test at most, to an agent of any number of CPUs.
pub const MAX_TEST_STREAMS: u32 = 256;

/// The agent's limits.
#[derive(Clone, Copy, Debug)]
pub struct AgentLimits {
    /// Authenticated clients at one time.
    pub max_clients: u32,
    /// Unauthenticated connections at one time.
    pub unauthenticated: AdmissionLimits,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
    /// Time in which a client must request something, and in which a test must make progress.
    pub idle_timeout: Duration,
    /// Time of one test.
    pub test_timeout: Duration,
    /// Bytes of a message.
    pub max_message_bytes: u32,
    /// Connections of one test.
    pub max_streams: u32,
    /// Bytes that may be requested for each socket buffer.
    pub max_buffer_bytes: u32,
}

impl AgentLimits {
    /// With a connection for each of these CPUs in one test, up to [`MAX_TEST_STREAMS`], and no fewer than before.
    #[must_use]
    pub fn with_streams_on(self, cpus: usize) -> Self {
        Self { max_streams: self.max_streams.max((cpus as u32).min(MAX_TEST_STREAMS)), ..self }
    }
}

impl Default for AgentLimits {
    /// Enough for full runs by a few clients; each of their connections costs a thread of 256 KiB and the memory of a message.
    fn default() -> Self {
        Self {
            max_clients: 4,
            unauthenticated: AdmissionLimits::default(),
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            test_timeout: Duration::from_secs(120),
            max_message_bytes: 1 << 20,
            max_streams: 16,
            max_buffer_bytes: 64 << 20,
        }
    }
}

/// The places, and who has them.
#[derive(Debug)]
pub struct AdmissionTable<T> {
    limits: AdmissionLimits,
    /// The places, each with who has it, in the order in which they came. Whoever was taken out and stays is put back in the same order.
    pub entries: Vec<(AdmissionSlot, T)>,
}

impl<T> AdmissionTable<T> {
    /// All of them free.
    pub fn new(limits: AdmissionLimits) -> Self {
        Self { limits, entries: Vec::new() }
    }

    /// A place for a connection from this address, if there is one, and who has to leave for it. It is to be put among the others.
    pub fn reserve(&mut self, peer: SocketAddr) -> Option<(AdmissionSlot, Option<T>)> {
        self.reserve_at(AdmissionSlot { network: SourceNetwork::from_addr(peer), since: Instant::now() })
    }

    fn reserve_at(&mut self, place: AdmissionSlot) -> Option<(AdmissionSlot, Option<T>)> {
        match self.find_slot(place) {
            SlotChoice::Free => Some((place, None)),
            SlotChoice::Evict(index) => Some((place, Some(self.entries.remove(index).1))),
            SlotChoice::None => None,
        }
    }

    /// Where there is a place for one more.
    fn find_slot(&self, newcomer: AdmissionSlot) -> SlotChoice {
        let is_neighbour = |(place, _): &&(AdmissionSlot, T)| place.network == newcomer.network;
        if self.entries.iter().filter(is_neighbour).count() >= self.limits.per_network {
            let oldest = self.entries.iter().position(|entry| is_neighbour(&entry));
            return oldest.map_or(SlotChoice::None, SlotChoice::Evict);
        }
        match self.entries.first() {
            Some((oldest, _)) if self.entries.len() >= self.limits.total => {
                let has_had_time = newcomer.since.saturating_duration_since(oldest.since) >= self.limits.grace_period;
                if has_had_time { SlotChoice::Evict(0) } else { SlotChoice::None }
            }
            _ => SlotChoice::Free,
        }
    }
}

/// A place: of which network, and since when.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionSlot {
    network: SourceNetwork,
    since: Instant,
}

/// Where there is a place for one more.
#[derive(Debug, PartialEq)]
enum SlotChoice {
    Free,
    /// If this one is evicted.
    Evict(usize),
    None,
}

/// Slots of which each can be taken once.
#[derive(Clone, Debug)]
pub(crate) struct SlotPool {
    used_slots: Arc<AtomicUsize>,
    capacity: usize,
}

impl SlotPool {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { used_slots: Arc::default(), capacity }
    }

    /// One of them, if one is free; given back when dropped.
    pub(crate) fn acquire(&self) -> Option<PoolSlot> {
        let one_more = |count: usize| (count < self.capacity).then_some(count + 1);
        let update = self.used_slots.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        update.is_ok().then(|| PoolSlot(Arc::clone(&self.used_slots)))
    }
}

/// A taken slot.
#[derive(Debug)]
pub(crate) struct PoolSlot(Arc<AtomicUsize>);

impl PoolSlot {
    /// How many are taken now, this one included.
    pub(crate) fn used_slots(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_test_grow_with_cpus() {
        let max_streams = |cpus| AgentLimits::default().with_streams_on(cpus).max_streams;
        assert_eq!([2, 16, 64, 256, 1024].map(max_streams), [16, 16, 64, 256, 256]);
    }

    #[test]
    fn slot_is_taken_once_and_released() {
        let slots = SlotPool::new(2);
        let (first, _two) = (slots.acquire().unwrap(), slots.acquire().unwrap());
        assert!(slots.acquire().is_none() && slots.clone().acquire().is_none() && first.used_slots() == 2);
        drop(first);
        assert!(slots.acquire().is_some());
    }

    const LIMITS: AdmissionLimits = AdmissionLimits { total: 6, per_network: 2, grace_period: Duration::from_secs(1) };

    /// Connections from these addresses, a hundredth of a second apart, and one more this time after the last.
    fn choice_after(addresses: &[&str], milliseconds: u64, newcomer: &str) -> SlotChoice {
        let start = Instant::now();
        let slot_since = |address: &str, milliseconds| AdmissionSlot {
            network: SourceNetwork::from_addr(format!("{address}:1").parse().unwrap()),
            since: start + Duration::from_millis(milliseconds),
        };
        let mut places = AdmissionTable::new(LIMITS);
        for (address, since) in addresses.iter().zip((0..).step_by(10)) {
            places.entries.push((slot_since(address, since), ()));
        }
        places.find_slot(slot_since(newcomer, 10 * addresses.len() as u64 + milliseconds))
    }

    #[test]
    fn network_evicts_only_its_own() {
        assert_eq!(choice_after(&[], 0, "10.0.0.1"), SlotChoice::Free);
        assert_eq!(choice_after(&["10.0.0.1", "10.0.0.2", "10.0.0.2"], 0, "10.0.0.1"), SlotChoice::Free);
        assert_eq!(choice_after(&["10.0.0.1", "10.0.0.2", "10.0.0.2"], 0, "10.0.0.2"), SlotChoice::Evict(1));
        assert_eq!(
            choice_after(&["10.0.0.1", "[2001:db8::1]", "[2001:db8::2]"], 0, "[2001:db8::3]"),
            SlotChoice::Evict(1)
        );
        assert_eq!(
            choice_after(&["10.0.0.1", "[2001:db8::1]", "[2001:db8::2]"], 0, "[2001:db8:1::3]"),
            SlotChoice::Free
        );
    }

    #[test]
    fn full_table_respects_grace_period() {
        let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.4", "10.0.0.6"];
        assert_eq!(choice_after(&addresses, 0, "10.0.0.7"), SlotChoice::None);
        assert_eq!(choice_after(&addresses, 939, "10.0.0.7"), SlotChoice::None);
        assert_eq!(choice_after(&addresses, 940, "10.0.0.7"), SlotChoice::Evict(0));
        assert_eq!(choice_after(&addresses, 0, "10.0.0.4"), SlotChoice::Evict(3));
        assert_eq!(choice_after(&addresses[..5], 0, "10.0.0.7"), SlotChoice::Free);
    }

    #[test]
    fn evicted_holder_is_returned() {
        let mut places = AdmissionTable::new(AdmissionLimits { total: 3, ..LIMITS });
        let admit = |places: &mut AdmissionTable<char>, address: &str, holder| {
            let (place, evicted) = places.reserve(format!("{address}:1").parse().unwrap())?;
            places.entries.push((place, holder));
            Some(evicted)
        };
        assert_eq!(admit(&mut places, "10.0.0.1", 'a'), Some(None));
        assert_eq!(admit(&mut places, "10.0.0.1", 'b'), Some(None));
        assert_eq!(admit(&mut places, "10.0.0.1", 'c'), Some(Some('a')));
        assert_eq!(admit(&mut places, "10.0.0.2", 'd'), Some(None));
        assert_eq!(admit(&mut places, "10.0.0.3", 'e'), None);
        places.entries.retain(|(_, holder)| *holder != 'b');
        assert_eq!(admit(&mut places, "10.0.0.3", 'e'), Some(None));
        assert_eq!(places.entries.iter().map(|(_, holder)| holder).collect::<String>(), "cde");
    }

    /// When many networks connect so often that all places are always taken, each that retries gets in as often as the others,
    /// and has its second.
    #[test]
    fn retrying_client_gets_in_among_many_networks() {
        let start = Instant::now();
        let mut places = AdmissionTable::new(AdmissionLimits { per_network: 64, total: 512, ..LIMITS });
        let (mut tries, mut is_admitted) = (0, false);
        // 1,000 a second, each from another address; every hundredth is the same one.
        for number in 0..20_000_u32 {
            let network = if number % 100 == 99 { 1 } else { 1000 + number };
            let address = SocketAddr::from((std::net::Ipv4Addr::from_bits(network), 1));
            let newcomer = AdmissionSlot {
                network: SourceNetwork::from_addr(address),
                since: start + Duration::from_millis(number.into()),
            };
            let vacated = places.reserve_at(newcomer);
            if let Some((place, evicted)) = vacated {
                assert!(evicted.is_none_or(|since| newcomer.since - since >= LIMITS.grace_period));
                places.entries.push((place, newcomer.since));
            }
            if number > 2000 && number % 100 == 99 && !is_admitted {
                tries += 1;
                is_admitted = vacated.is_some();
            }
        }
        assert!(is_admitted && tries <= 20, "{tries}");
    }
}
