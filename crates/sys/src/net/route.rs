//! The outgoing network interface to an address (rtnetlink).
//!
//! It need not be the interface with the source address: traffic to this machine goes over loopback, and with several
//! interfaces routing decides.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

use super::interface;
use super::netlink::{self, NetlinkRequest, find_attribute, u32_at};
use crate::{Error, Result};

/// `RTM_NEWROUTE`, `RTM_GETROUTE` of `linux/rtnetlink.h`.
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// Bytes of `struct rtmsg`.
const RTMSG_BYTES: usize = 12;
/// `RTA_DST`, `RTA_SRC`, `RTA_OIF`.
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
/// The name of the outgoing interface of packets from one address to the other, in the network namespace of the calling
/// thread. Ports are ignored.
///
/// # Errors
/// Those of the kernel: `NetworkUnreachable` without a route; `InvalidInput` for addresses of different IP versions.
pub fn route_interface(destination: SocketAddr, source: SocketAddr) -> Result<String> {
    let (family, [to, from], zone) = match (destination.ip().to_canonical(), source.ip().to_canonical()) {
        (IpAddr::V4(to), IpAddr::V4(from)) => (libc::AF_INET, [to, from].map(|address| address.octets().to_vec()), 0),
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            (libc::AF_INET6, [to, from].map(|address| address.octets().to_vec()), interface::zone(destination))
        }
        _ => return Err(Error::new(std::io::ErrorKind::InvalidInput, "the addresses have different IP versions")),
    };
    let bits = (8 * to.len()) as u8;
    let mut header = [0; RTMSG_BYTES];
    header[..3].copy_from_slice(&[family as u8, bits, bits]);
    let mut body = [&header[..], &attribute_bytes(RTA_DST, &to), &attribute_bytes(RTA_SRC, &from)].concat();
    if zone != 0 {
        body.extend(attribute_bytes(RTA_OIF, &zone.to_ne_bytes()));
    }
    let mut interface_index = None;
    netlink::query(&netlink::open()?, NetlinkRequest { kind: RTM_GETROUTE, flags: 0, body: &body }, |kind, body| {
        if kind != RTM_NEWROUTE {
            return ControlFlow::Continue(());
        }
        interface_index = outgoing_interface(body);
        ControlFlow::Break(())
    })?;
    let message = "the kernel names no interface for that route";
    interface::name(interface_index.ok_or_else(|| Error::new(std::io::ErrorKind::NotFound, message))?)
}

/// An attribute. Addresses are multiples of four bytes, so there is no padding.
fn attribute_bytes(kind: u16, content: &[u8]) -> Vec<u8> {
    [&((4 + content.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat()
}

/// The number of the interface in the body of a message about a route.
fn outgoing_interface(body: &[u8]) -> Option<u32> {
    u32_at(find_attribute(body.get(RTMSG_BYTES..)?, RTA_OIF)?, 0)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use kelvin_testing::MissingRequirement;

    use super::*;

    #[test]
    fn local_address_routes_over_loopback() {
        let address_of = |ip: IpAddr| SocketAddr::new(ip, 1);
        let local = address_of(Ipv4Addr::LOCALHOST.into());
        let interface = match route_interface(local, local) {
            Ok(name) => name,
            Err(error) => {
                return MissingRequirement::machine(format!("no rtnetlink: {error}"))
                    .report_skip("a route by loopback");
            }
        };
        assert_eq!(interface, "lo");
        assert_eq!(route_interface(address_of(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()), local).unwrap(), "lo");
        let mixed = route_interface(address_of(Ipv6Addr::LOCALHOST.into()), local).unwrap_err();
        assert_eq!(mixed.kind(), std::io::ErrorKind::InvalidInput);
        // An address that this machine does not have cannot be a source.
        assert!(route_interface(local, address_of(Ipv4Addr::new(192, 0, 2, 1).into())).is_err());
    }

    #[test]
    fn own_addresses_route_over_loopback() {
        let description = "the route to an address of this machine";
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let Ok(local_address) = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) else {
            return MissingRequirement::machine("this machine has no route to other hosts").report_skip(description);
        };
        if local_address.ip().is_loopback() {
            return MissingRequirement::machine("this machine has only loopback addresses").report_skip(description);
        }
        assert_eq!(route_interface(local_address, local_address).unwrap(), "lo");
        let out = route_interface("192.0.2.1:9".parse().unwrap(), local_address).unwrap();
        assert_eq!(Some(out), interface::with_address(local_address).unwrap());
    }

    #[test]
    fn interface_parses_from_attributes() {
        let attributes = [attribute_bytes(RTA_DST, &[192, 0, 2, 1]), attribute_bytes(RTA_OIF, &7_u32.to_ne_bytes())];
        let message = [vec![0; RTMSG_BYTES], attributes.concat()].concat();
        assert_eq!(outgoing_interface(&message), Some(7));
        assert!((0..message.len()).all(|length| outgoing_interface(&message[..length]).is_none()));
    }
}
