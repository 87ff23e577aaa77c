//! What the link to another host carries, from facts alone: the line rate of the interface by which packets leave, and the
//! share of it that is payload.
//!
//! It bounds what can arrive, and predicts it where neither host is the limit.

use super::super::prelude::*;
use kelvin_core::{Bound, Fact, Input, NetworkPath, Nic};
use kelvin_harness::HardwareFacts;

/// Bytes of an Ethernet frame besides its packet: preamble 8, header 14, check sequence 4, gap 12; and the smallest packet in
/// one.
const ETHERNET_OVERHEAD: f64 = 38.0;
const MIN_ETHERNET_PAYLOAD: f64 = 46.0;
/// Bytes of the headers of TCP and UDP, and of the time stamps of TCP, which are on by default.
const TCP_HEADER: f64 = 20.0;
const TCP_TIMESTAMPS: f64 = 12.0;
const UDP_HEADER: f64 = 8.0;
/// Fragments of a datagram larger than a packet begin at multiples of this many bytes.
const FRAGMENT_UNIT: f64 = 8.0;
/// The packets of an Ethernet where nothing is known of it.
const DEFAULT_MTU: u32 = 1500;
/// What clocks add to a bound. A line may be fast by 100 ppm (IEEE 802.3), the agent's clock be slewed by 500 ppm
/// (adjtimex(2)). A report of the agent may be late by some of 200 ms.
const CLOCK_TOLERANCE: f64 = 1.01;
/// The shares of the predicted rate between which a measurement is within the predicted range.
pub(super) const PREDICTED_SHARES: [f64; 2] = [0.75, 1.0];
pub(super) const SOURCES: &str = "IEEE 802.3: preamble 8, header 14, check sequence 4, gap 12 bytes; RFC 791, 8200, 768, 9293, 7323: IPv4 20, \
                       IPv6 40, UDP 8, TCP 20, time stamps 12 bytes";

/// The payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// A TCP stream.
    Stream {
        /// Whether each packet has time stamps.
        time_stamps: bool,
    },
    /// Datagrams of this many bytes.
    Datagrams(u64),
}

/// TCP by default, and with the largest payload a packet can have.
pub(super) const STREAM_PAYLOAD: Payload = Payload::Stream { time_stamps: true };
pub(super) const MAX_STREAM_PAYLOAD: Payload = Payload::Stream { time_stamps: false };

/// Packets of an Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketLayout {
    /// Version of the Internet Protocol.
    protocol: u8,
    /// Bytes of the largest one.
    mtu: u32,
}

impl PacketLayout {
    /// Those to the agent as far as they are known: no larger than the MTU of either interface.
    pub(super) fn to_agent(hardware: HardwareFacts<'_>) -> Self {
        let local_mtu = EgressInterface::to_agent(hardware).ok().and_then(|egress| egress.nic.mtu.get().copied());
        let agent_mtu = hardware.network_path.and_then(|path| path.agent_mtu.get().copied());
        let mtu = local_mtu.into_iter().chain(agent_mtu).min().unwrap_or(DEFAULT_MTU);
        Self { protocol: hardware.network_path.map_or(4, |path| path.protocol), mtu }
    }

    fn header(self) -> f64 {
        if self.protocol == 6 { 40.0 } else { 20.0 }
    }

    /// Bytes of payload, and their bytes on the wire.
    fn payload_and_wire_bytes(self, payload: Payload) -> (f64, f64) {
        let mtu = f64::from(self.mtu);
        match payload {
            Payload::Stream { time_stamps } => {
                let headers = self.header() + TCP_HEADER + if time_stamps { TCP_TIMESTAMPS } else { 0.0 };
                (mtu - headers, mtu + ETHERNET_OVERHEAD)
            }
            Payload::Datagrams(size) => (size as f64, self.wire_bytes(size as f64 + UDP_HEADER)),
        }
    }

    /// The bytes on the wire of a datagram with its header, in as many packets as it needs.
    fn wire_bytes(self, datagram_bytes: f64) -> f64 {
        let packet_payload = f64::from(self.mtu) - self.header();
        if datagram_bytes <= packet_payload {
            return (datagram_bytes + self.header()).max(MIN_ETHERNET_PAYLOAD) + ETHERNET_OVERHEAD;
        }
        // IPv6 numbers fragments in a header of its own.
        let part_header = if self.protocol == 6 { 8.0 } else { 0.0 };
        let part = (((packet_payload - part_header) / FRAGMENT_UNIT).floor() * FRAGMENT_UNIT).max(FRAGMENT_UNIT);
        let parts = (datagram_bytes / part).ceil();
        datagram_bytes + parts * (self.header() + part_header + ETHERNET_OVERHEAD)
    }

    /// The share of the bytes on the wire that is payload.
    pub(super) fn payload_share(self, payload: Payload) -> f64 {
        let (bytes, wire) = self.payload_and_wire_bytes(payload);
        bytes / wire
    }

    /// Like `payload_share`, in figures: `1448 / 1538`.
    pub(super) fn describe_payload_share(self, payload: Payload) -> String {
        let (bytes, wire) = self.payload_and_wire_bytes(payload);
        format!("{bytes} / {wire}")
    }
}

/// The interface of this host by which packets to the agent leave.
struct EgressInterface<'a> {
    path: &'a NetworkPath,
    nic: &'a Nic,
}

impl<'a> EgressInterface<'a> {
    fn to_agent(hardware: HardwareFacts<'a>) -> Predicted<Self> {
        let no_route = || NoPrediction::new("the route to the agent was not read in this run");
        let path = hardware.network_path.ok_or_else(no_route)?;
        let name = require_fact(&path.interface, "the interface by which packets to the agent leave is unknown")?;
        let missing_interface =
            || format!("packets to the agent leave by {name}, which is not among this machine's interfaces");
        let nic = hardware.machine.nics.iter().find(|nic| nic.name == *name);
        Ok(Self { path, nic: nic.or_unpredicted(missing_interface())? })
    }

    /// Its line rate in bytes per second.
    fn line_rate(&self) -> Predicted<Input> {
        let (name, rate) = (&self.nic.name, &self.nic.line_rate);
        let bits = require_fact(rate, &format!("packets to the agent leave by {name}, whose line rate is not known"))?;
        Ok(rate_input(format!("line rate of {name}"), *bits, rate))
    }

    /// That rate, or the advertised one of the agent's interface if it is slower. That one bounds nothing: whether it is a real
    /// line rate is not known here.
    fn path_rate(&self) -> Predicted<Input> {
        let (line, advertised) = (self.line_rate()?, &self.path.agent_link_speed);
        let slower_bits = advertised.get().filter(|&&bits| bits > 0.0 && bits / 8.0 < line.value);
        let agent_input = |&bits| rate_input("advertised speed of the agent's interface".into(), bits, advertised);
        Ok(slower_bits.map_or(line, agent_input))
    }
}

/// A fact, or what is not known, and why.
fn require_fact<'a, T>(fact: &'a Fact<T>, description: &str) -> Predicted<&'a T> {
    fact.get().or_unpredicted(format!("{description}: {}", fact.source_or_reason()))
}

fn rate_input(name: String, bits: f64, fact: &Fact<f64>) -> Input {
    Input { name, value: bits / 8.0, unit: Unit::BytesPerSecond, source: fact.source_or_reason().to_owned() }
}

/// The most that can arrive at the agent in bytes per second; `None` where no line rate is known.
pub(super) fn payload_bound(hardware: HardwareFacts<'_>, payload: Payload) -> Option<Bound> {
    let egress = EgressInterface::to_agent(hardware).ok()?;
    let (rate, mtu, name) = (egress.line_rate().ok()?, &egress.nic.mtu, &egress.nic.name);
    let packets = PacketLayout { protocol: egress.path.protocol, mtu: *mtu.get()? };
    let limit = rate.value * packets.payload_share(payload) * CLOCK_TOLERANCE;
    let share = packets.describe_payload_share(payload);
    let (derivation, likely_cause) = (
        format!("{name} carries {:.1} MB/s x {share} of payload, and 1 % for the clocks", rate.value / 1e6),
        format!(
            "not all bytes went by {name}: they took another route or another link of several, or its line has become \
             faster since the run began"
        ),
    );
    let inputs = vec![rate, mtu_input(packets, mtu.source_or_reason())];
    // A packet with no room for payload bounds nothing.
    (limit > 0.0).then_some(Bound { limit, derivation, likely_cause, inputs })
}

/// What arrives at the agent of TCP streams where the link is the limit.
pub(super) fn stream_rate(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    let rate = payload_rate(facts.hardware(), STREAM_PAYLOAD)?;
    let mtu = mtu_input(PacketLayout::to_agent(facts.hardware()), "the smaller one of both hosts' interfaces");
    Ok(rate.with_input(&mtu.into()).source(SOURCES))
}

/// The rate of the link to the agent, by the slower of its interfaces.
pub(super) fn payload_rate(hardware: HardwareFacts<'_>, payload: Payload) -> Predicted<Expr> {
    let egress = EgressInterface::to_agent(hardware)?;
    let rate = egress.path_rate()?;
    require_fact(&egress.nic.mtu, &format!("the MTU of {} is not known", egress.nic.name))?;
    let packets = PacketLayout::to_agent(hardware);
    let share = quantity(packets.describe_payload_share(payload), packets.payload_share(payload), Unit::Ratio);
    Ok(Expr::from(rate) * share)
}

fn mtu_input(packets: PacketLayout, source: &str) -> Input {
    Input { name: "MTU".into(), value: f64::from(packets.mtu), unit: Unit::Bytes, source: source.into() }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Case, Machine};

    use super::*;
    use crate::testing::{machine, nic};

    fn packets(protocol: u8, mtu: u32) -> PacketLayout {
        PacketLayout { protocol, mtu }
    }

    /// A machine whose packets leave by this interface.
    fn machine_with_link(line_rate: Fact<f64>, mtu: u32) -> Machine {
        let mut machine = machine();
        // Another one that is faster, and not on the route.
        machine.nics = vec![nic("eth1", Fact::known(1e11, "a test")), nic("eth0", line_rate)];
        machine.nics.iter_mut().for_each(|nic| nic.mtu = Fact::known(mtu, "a test"));
        machine
    }

    fn network_path() -> NetworkPath {
        NetworkPath {
            protocol: 4,
            interface: Fact::known("eth0".into(), "a test"),
            agent_link_speed: Fact::unknown("a test"),
            agent_mtu: Fact::known(1500, "a test"),
            agent_cpus: Fact::unknown("a test"),
        }
    }

    #[test]
    fn ethernet_payload_shares_match_known_values() {
        let assert_close =
            |share: f64, expected: f64| assert!((share - expected).abs() < 1e-5, "{share} is not {expected}");
        // 941.48 Mbit/s of a gigabit link over IPv4, 928.48 over IPv6, as iperf3 shows on every one.
        assert_close(packets(4, 1500).payload_share(STREAM_PAYLOAD), 0.941_482);
        assert_close(packets(6, 1500).payload_share(STREAM_PAYLOAD), 0.928_479);
        assert_close(packets(4, 9000).payload_share(STREAM_PAYLOAD), 0.990_04);
        assert_close(packets(4, 1500).payload_share(MAX_STREAM_PAYLOAD), 1460.0 / 1538.0);
        assert_close(packets(4, 1500).payload_share(Payload::Datagrams(1472)), 0.957_087);
        assert_close(packets(6, 1500).payload_share(Payload::Datagrams(1452)), 1452.0 / 1538.0);
        // A byte is 29 of a packet, which an Ethernet fills up to 46.
        assert_close(packets(4, 1500).payload_share(Payload::Datagrams(1)), 1.0 / 84.0);
        // 1472 bytes and 8 in parts of 1448 at most; 8972 and 8 in parts of 1480.
        assert_close(packets(6, 1500).payload_share(Payload::Datagrams(1472)), 1472.0 / (1480.0 + 2.0 * 86.0));
        assert_close(packets(4, 1500).payload_share(Payload::Datagrams(8972)), 8972.0 / (8980.0 + 7.0 * 58.0));
        assert_eq!(packets(4, 1500).describe_payload_share(STREAM_PAYLOAD), "1448 / 1538");
    }

    #[test]
    fn egress_interface_bounds_arrival() {
        let machine = machine_with_link(Fact::known(1e9, "ethtool"), 1500);
        let path = network_path();
        let hardware = HardwareFacts { machine: &machine, network_path: Some(&path) };
        let bound = payload_bound(hardware, MAX_STREAM_PAYLOAD).unwrap();
        assert!((bound.limit / (125e6 * 1460.0 / 1538.0 * 1.01) - 1.0).abs() < 1e-12, "{bound:?}");
        assert_eq!(bound.derivation, "eth0 carries 125.0 MB/s x 1460 / 1538 of payload, and 1 % for the clocks");
        assert!(bound.likely_cause.contains("not all bytes went by eth0"), "{bound:?}");
        assert_eq!(bound.inputs[0].source, "ethtool");
        // The agent's advertised speed is for a prediction, not for a bound.
        let slow_path = NetworkPath { agent_link_speed: Fact::known(1e8, "the agent"), ..path.clone() };
        let slow_hardware = HardwareFacts { network_path: Some(&slow_path), ..hardware };
        assert_eq!(payload_bound(slow_hardware, MAX_STREAM_PAYLOAD), Some(bound));
        assert_eq!(EgressInterface::to_agent(slow_hardware).unwrap().path_rate().unwrap().value, 12.5e6);
        let fast_path = NetworkPath { agent_link_speed: Fact::known(1e11, "the agent"), ..path.clone() };
        assert_eq!(
            EgressInterface::to_agent(HardwareFacts { network_path: Some(&fast_path), ..hardware })
                .unwrap()
                .path_rate()
                .unwrap()
                .value,
            125e6
        );
    }

    #[test]
    fn prediction_uses_smaller_mtu() {
        let machine = machine_with_link(Fact::known(1e9, "ethtool"), 9000);
        let path = network_path();
        let hardware = HardwareFacts { machine: &machine, network_path: Some(&path) };
        assert!(payload_bound(hardware, STREAM_PAYLOAD).unwrap().derivation.contains("8948 / 9038"));
        let facts = PredictionInputs::new(&machine, &|_: &str, _: &Case| None).with_path(Some(&path));
        let prediction = stream_rate(&facts).unwrap().derived("a test");
        assert_eq!(prediction.formula, "line rate of eth0 x 1448 / 1538");
        assert_eq!(prediction.derivation, "125 MB/s x 0.941 = 118 MB/s");
    }

    #[test]
    fn missing_line_rate_has_no_bound() {
        let machine = machine_with_link(Fact::unknown("eth0 has no device behind it"), 1500);
        let reason_for = |hardware: HardwareFacts<'_>| {
            assert_eq!(payload_bound(hardware, STREAM_PAYLOAD), None);
            payload_rate(hardware, STREAM_PAYLOAD).err().unwrap().0
        };
        let path = network_path();
        let reason = reason_for(HardwareFacts { machine: &machine, network_path: Some(&path) });
        assert_eq!(
            reason,
            "packets to the agent leave by eth0, whose line rate is not known: eth0 has no device behind it"
        );
        assert!(reason_for(HardwareFacts { machine: &machine, network_path: None }).contains("was not read"));
        let other_path = NetworkPath { interface: Fact::known("eth7".into(), "a test"), ..path.clone() };
        assert!(
            reason_for(HardwareFacts { machine: &machine, network_path: Some(&other_path) }).contains("is not among")
        );
        let unknown_path = NetworkPath { interface: Fact::unknown("no rtnetlink"), ..path };
        assert!(
            reason_for(HardwareFacts { machine: &machine, network_path: Some(&unknown_path) })
                .ends_with("is unknown: no rtnetlink")
        );
    }
}
