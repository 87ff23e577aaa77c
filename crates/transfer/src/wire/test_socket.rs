//! The sockets of a test's streams: the options that are requested, those that are obtained, and the interface below.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use kelvin_sys::{ethtool, net};
use serde::{Deserialize, Serialize};

use crate::wire::admission::AgentLimits;
use crate::wire::limits_serde::{self, MAX_NAME_BYTES};
use crate::wire::{Error, Result};

/// Longest name of a congestion control in Linux, in bytes.
const MAX_CONGESTION_NAME: usize = 15;
/// Largest payloads of a segment that can be asked for, in bytes: those that Linux allows.
pub const SEGMENTS: std::ops::RangeInclusive<u32> = 88..=32_767;

/// Options for the sockets of streams on both sides, beyond the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSocketOptions {
    /// Congestion control, by name.
    #[serde(default, deserialize_with = "limits_serde::bounded::<{ MAX_CONGESTION_NAME as u64 }, _, _>")]
    pub congestion_control: Option<String>,
    /// Bytes in each of a socket's two buffers.
    pub buffers: Option<u32>,
    /// Largest payload of a segment, in bytes.
    #[serde(default)]
    pub segment: Option<u32>,
}

impl TestSocketOptions {
    /// Whether an agent may grant it. A congestion control must be loaded already: requesting another one could make the kernel
    /// load a module, which nobody may do remotely.
    pub(crate) fn check(&self, limits: &AgentLimits) -> Result<()> {
        if self.buffers.is_some_and(|bytes| bytes > limits.max_buffer_bytes) {
            let kibibytes = limits.max_buffer_bytes >> 10;
            return Err(Error::RefusedByAgent(format!("a socket's buffer may have at most {kibibytes} KiB")));
        }
        if let Some(bytes) = self.segment.filter(|bytes| !SEGMENTS.contains(bytes)) {
            let (low, high) = (SEGMENTS.start(), SEGMENTS.end());
            return Err(Error::RefusedByAgent(format!("a segment has from {low} to {high} bytes, not {bytes}")));
        }
        let Some(name) = &self.congestion_control else { return Ok(()) };
        let controls = net::congestion_controls().map_err(Error::call("read the congestion controls"))?;
        if !controls.contains(name) {
            return Err(Error::RefusedByAgent(format!(
                "the kernel of the agent's host has no congestion control {name}; it has {}",
                controls.join(", ")
            )));
        }
        Ok(())
    }

    /// Sets it on a socket. A listening one passes it on to what it accepts.
    pub(crate) fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        self.buffers.map_or(Ok(()), |bytes| net::set_buffers(socket, bytes))?;
        self.segment.map_or(Ok(()), |bytes| net::set_max_segment(socket, bytes))?;
        self.congestion_control.as_deref().map_or(Ok(()), |name| net::set_congestion_control(socket, name))
    }
}

impl fmt::Display for TestSocketOptions {
    /// Nothing for an option left out.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.congestion_control {
            write!(out, " with congestion control {name}")?;
        }
        if let Some(bytes) = self.segment {
            write!(out, " with segments of {bytes} bytes")?;
        }
        self.buffers.map_or(Ok(()), |bytes| write!(out, " with socket buffers of {} KiB", bytes >> 10))
    }
}

/// The kernel's report on one side of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpEndInfo {
    /// Smoothed round trip as this side saw it, in nanoseconds.
    pub round_trip: u64,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Segments that it may have in flight.
    pub congestion_window: u32,
    /// Largest payload of a segment that it sends, in bytes.
    pub mss: u32,
    /// Largest packet of the path, in bytes.
    pub path_mtu: u32,
    /// By name.
    #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_CONGESTION_NAME as u64 }, _, _>")]
    pub congestion_control: String,
    /// Bytes that its buffers may hold, as the kernel counts them: to send, and to receive.
    pub buffers: [u32; 2],
}

impl TcpEndInfo {
    /// That of this socket.
    ///
    /// # Errors
    /// A failed system call.
    pub fn of_socket(socket: &impl AsFd) -> io::Result<Self> {
        let (info, buffers) = (net::tcp_info(socket)?, net::buffers(socket)?);
        Ok(Self {
            round_trip: info.round_trip,
            retransmits: info.retransmits,
            congestion_window: info.congestion_window,
            mss: info.segment,
            path_mtu: info.path_mtu,
            congestion_control: net::congestion_control(socket)?,
            buffers: [buffers.send, buffers.receive],
        })
    }
}

impl fmt::Display for TcpEndInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [send, receive] = self.buffers.map(|bytes| bytes >> 10);
        write!(
            out,
            "TCP_INFO: round trip {} us, {} retransmits, congestion window {} segments of {} bytes, path MTU {}; congestion \
             control {}; socket buffers of {send} KiB to send, {receive} KiB to receive",
            self.round_trip / 1000,
            self.retransmits,
            self.congestion_window,
            self.mss,
            self.path_mtu,
            self.congestion_control
        )
    }
}

/// An interface. What a driver does not report is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// `eth0`.
    #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_NAME_BYTES as u64 }, _, _>")]
    pub name: String,
    /// Its driver's own name.
    #[serde(default, deserialize_with = "limits_serde::bounded::<{ MAX_NAME_BYTES as u64 }, _, _>")]
    pub driver: Option<String>,
    /// Its advertised speed, in bits per second. Virtual ones advertise anything.
    #[serde(default, deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_RATE }, _, _>")]
    pub bits_per_second: Option<f64>,
    /// Bytes of the largest packet.
    pub largest_packet: Option<u32>,
    /// The offloads that are on, by the names of ethtool(8).
    #[serde(default, deserialize_with = "limits_serde::bounded::<{ MAX_NAME_BYTES as u64 }, _, _>")]
    pub offloads: Option<Vec<String>>,
}

impl Interface {
    /// The one with this address of this host; `None` if none has, or the system does not report it.
    pub fn with_address(address: SocketAddr) -> Option<Self> {
        let name = net::interface::with_address(address).ok()??;
        let offloads = ethtool::offloads(&name).ok();
        Some(Self {
            driver: ethtool::driver(&name).ok().map(|driver| limits_serde::truncate(&driver, MAX_NAME_BYTES)),
            bits_per_second: ethtool::advertised_rate(&name).ok().flatten(),
            largest_packet: net::interface::mtu(&name).ok(),
            offloads: offloads.map(|features| features.into_iter().map(str::to_owned).collect()),
            name: limits_serde::truncate(&name, MAX_NAME_BYTES),
        })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("unknown");
        let rate = self.bits_per_second.map(|bits| format!("{} Mbit/s", bits / 1e6));
        let mtu = self.largest_packet.map_or("unknown".into(), |bytes| bytes.to_string());
        let offloads = match self.offloads.as_deref() {
            Some([]) => "no offloads".into(),
            Some(features) => format!("offloads {}", features.join(" ")),
            None => "offloads unknown".into(),
        };
        let (name, rate) = (&self.name, rate.as_deref().unwrap_or("no rate"));
        write!(out, "{name} (driver {driver}, advertises {rate}, MTU {mtu}, {offloads})")
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn with_congestion_control(name: &str) -> TestSocketOptions {
        TestSocketOptions { congestion_control: Some(name.into()), ..TestSocketOptions::default() }
    }

    #[test]
    fn options_are_bounded_and_available() {
        let limits = AgentLimits { max_buffer_bytes: 1 << 20, ..AgentLimits::default() };
        let refused = |sockets: TestSocketOptions| sockets.check(&limits).unwrap_err().to_string();
        TestSocketOptions::default().check(&limits).unwrap();
        with_congestion_control("reno").check(&limits).unwrap();
        TestSocketOptions { buffers: Some(1 << 20), ..TestSocketOptions::default() }.check(&limits).unwrap();
        let large = TestSocketOptions { buffers: Some((1 << 20) + 1), ..TestSocketOptions::default() };
        assert!(refused(large).contains("may have at most 1024 KiB"));
        for name in ["nosuch", "", "../x", "re no"] {
            let why = refused(with_congestion_control(name));
            assert!(
                why.contains(&format!("has no congestion control {name}; it has ")) && why.contains("reno"),
                "{why}"
            );
        }
        let json = serde_json::to_string(&with_congestion_control(&"x".repeat(60_000))).unwrap();
        let why = serde_json::from_str::<TestSocketOptions>(&json).unwrap_err().to_string();
        assert!(why.starts_with("a text of 60000, where 15 is the most"), "{why}");
    }

    #[test]
    fn accepted_socket_inherits_options() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TestSocketOptions { congestion_control: Some("reno".into()), buffers: Some(48 << 10), segment: Some(1000) }
            .apply(&listener)
            .unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server_end = TcpEndInfo::of_socket(&listener.accept().unwrap().0).unwrap();
        assert_eq!((server_end.congestion_control.as_str(), server_end.buffers), ("reno", [96 << 10; 2]));
        assert!(server_end.mss <= 1000, "{server_end:?}");
        let words = server_end.to_string();
        assert!(words.contains("congestion control reno; socket buffers of 96 KiB to send, 96 KiB"), "{words}");
    }

    #[test]
    fn unknown_interface_facts_are_shown() {
        let lo = Interface::with_address("127.0.0.1:1".parse().unwrap()).unwrap();
        assert_eq!(lo.name, "lo");
        assert!(lo.largest_packet.is_some(), "{lo}");
        assert_eq!(Interface::with_address("192.0.2.1:1".parse().unwrap()), None);
        let (name, offloads) = ("eth0".to_owned(), Some(vec!["tso".to_owned(), "gro".to_owned()]));
        let interface = Interface {
            name: name.clone(),
            driver: Some("ixgbe".into()),
            bits_per_second: Some(1e10),
            largest_packet: Some(9000),
            offloads,
        };
        assert_eq!(interface.to_string(), "eth0 (driver ixgbe, advertises 10000 Mbit/s, MTU 9000, offloads tso gro)");
        let unknown = Interface { name, driver: None, bits_per_second: None, largest_packet: None, offloads: None };
        assert_eq!(unknown.to_string(), "eth0 (driver unknown, advertises no rate, MTU unknown, offloads unknown)");
    }
}
