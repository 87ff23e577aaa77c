//! The network interface of a test, as its host describes it.

use std::fmt;
use std::net::SocketAddr;

use kelvin_sys::{ethtool, net};
use serde::{Deserialize, Serialize};

use crate::wire::limits_serde::{self, MAX_NAME_BYTES};

/// An interface. What a driver does not report is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// `eth0`.
    #[serde(deserialize_with = "limits_serde::text::<MAX_NAME_BYTES, _>")]
    pub name: String,
    /// Its driver's own name.
    #[serde(default, deserialize_with = "limits_serde::optional_text::<MAX_NAME_BYTES, _>")]
    pub driver: Option<String>,
    /// Its advertised speed, in bits per second. Virtual ones advertise anything.
    #[serde(default, deserialize_with = "limits_serde::optional_rate")]
    pub bits_per_second: Option<f64>,
    /// Bytes of the largest packet.
    pub largest_packet: Option<u32>,
    /// The offloads that are on, by the names of ethtool(8).
    #[serde(default, deserialize_with = "limits_serde::text_list::<MAX_NAME_BYTES, _>")]
    pub offloads: Option<Vec<String>>,
}

impl Interface {
    /// The one with this address of this host; `None` if none has, or the system does not say.
    pub fn with_address(address: SocketAddr) -> Option<Self> {
        let name = net::interface::with_address(address).ok()??;
        let offloads = ethtool::offloads(&name).ok();
        Some(Self {
            driver: ethtool::driver(&name).ok().map(|driver| limits_serde::truncate(&driver, MAX_NAME_BYTES)),
            bits_per_second: ethtool::advertised_rate(&name).ok().flatten(),
            largest_packet: net::interface::mtu(&name).ok(),
            offloads: offloads.map(|on| on.into_iter().map(str::to_owned).collect()),
            name: limits_serde::truncate(&name, MAX_NAME_BYTES),
        })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, driver, bits_per_second, largest_packet, offloads } = self;
        write!(out, "{name} (driver {}, ", driver.as_deref().unwrap_or("unknown"))?;
        match bits_per_second {
            Some(bits) => write!(out, "advertises {} Mbit/s, ", bits / 1e6)?,
            None => write!(out, "advertises no rate, ")?,
        }
        match largest_packet {
            Some(bytes) => write!(out, "MTU {bytes}, ")?,
            None => write!(out, "MTU unknown, ")?,
        }
        match offloads {
            Some(on) if on.is_empty() => write!(out, "no offloads)"),
            Some(on) => write!(out, "offloads {})", on.join(" ")),
            None => write!(out, "offloads unknown)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_interface_facts_are_shown() {
        let lo = Interface::with_address("127.0.0.1:1".parse().unwrap()).unwrap();
        assert_eq!(lo.name, "lo");
        assert!(lo.largest_packet.is_some(), "{lo}");
        assert_eq!(Interface::with_address("192.0.2.1:1".parse().unwrap()), None);
        let (name, all) = ("eth0".to_owned(), Some(vec!["tso".to_owned(), "gro".to_owned()]));
        let known = Interface {
            name: name.clone(),
            driver: Some("ixgbe".into()),
            bits_per_second: Some(1e10),
            largest_packet: Some(9000),
            offloads: all,
        };
        assert_eq!(known.to_string(), "eth0 (driver ixgbe, advertises 10000 Mbit/s, MTU 9000, offloads tso gro)");
        let unknown = Interface { name, driver: None, bits_per_second: None, largest_packet: None, offloads: None };
        assert_eq!(unknown.to_string(), "eth0 (driver unknown, advertises no rate, MTU unknown, offloads unknown)");
    }
}
