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
/// What the kernel says: `NetworkUnreachable` without a route; `InvalidInput` for addresses of different IP versions.
pub fn interface_to(destination: SocketAddr, source: SocketAddr) -> Result<String> {
    let (family, [to, from], by) = match (destination.ip().to_canonical(), source.ip().to_canonical()) {
        (IpAddr::V4(to), IpAddr::V4(from)) => (libc::AF_INET, [to, from].map(|address| address.octets().to_vec()), 0),
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            (libc::AF_INET6, [to, from].map(|address| address.octets().to_vec()), interface::zone(destination))
        }
        _ => return Err(Error::new(std::io::ErrorKind::InvalidInput, "the addresses have different IP versions")),
    };
    let bits = (8 * to.len()) as u8;
    let mut about = [0; RTMSG_BYTES];
    about[..3].copy_from_slice(&[family as u8, bits, bits]);
    let mut body = [&about[..], &attribute_bytes(RTA_DST, &to), &attribute_bytes(RTA_SRC, &from)].concat();
    if by != 0 {
        body.extend(attribute_bytes(RTA_OIF, &by.to_ne_bytes()));
    }
    let mut interface_index = None;
    netlink::query(&netlink::open()?, NetlinkRequest { kind: RTM_GETROUTE, flags: 0, body: &body }, |kind, body| {
        if kind != RTM_NEWROUTE {
            return ControlFlow::Continue(());
        }
        interface_index = outgoing_interface(body);
        ControlFlow::Break(())
    })?;
    let missing = "the kernel names no interface for that route";
    interface::name(interface_index.ok_or_else(|| Error::new(std::io::ErrorKind::NotFound, missing))?)
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
        let at = |ip: IpAddr| SocketAddr::new(ip, 1);
        let here = at(Ipv4Addr::LOCALHOST.into());
        let found = match interface_to(here, here) {
            Ok(found) => found,
            Err(error) => {
                return MissingRequirement::machine(format!("no rtnetlink: {error}"))
                    .report_skip("a route by loopback");
            }
        };
        assert_eq!(found, "lo");
        assert_eq!(interface_to(at(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()), here).unwrap(), "lo");
        let mixed = interface_to(at(Ipv6Addr::LOCALHOST.into()), here).unwrap_err();
        assert_eq!(mixed.kind(), std::io::ErrorKind::InvalidInput);
        // An address that this machine does not have cannot be a source.
        assert!(interface_to(here, at(Ipv4Addr::new(192, 0, 2, 1).into())).is_err());
    }

    #[test]
    fn own_addresses_route_over_loopback() {
        let what = "the route to an address of this machine";
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let Ok(own) = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()) else {
            return MissingRequirement::machine("this machine has no route to other hosts").report_skip(what);
        };
        if own.ip().is_loopback() {
            return MissingRequirement::machine("this machine has only loopback addresses").report_skip(what);
        }
        assert_eq!(interface_to(own, own).unwrap(), "lo");
        let out = interface_to("192.0.2.1:9".parse().unwrap(), own).unwrap();
        assert_eq!(Some(out), interface::with_address(own).unwrap());
    }

    #[test]
    fn interface_parses_from_attributes() {
        let attributes = [attribute_bytes(RTA_DST, &[192, 0, 2, 1]), attribute_bytes(RTA_OIF, &7_u32.to_ne_bytes())];
        let message = [vec![0; RTMSG_BYTES], attributes.concat()].concat();
        assert_eq!(outgoing_interface(&message), Some(7));
        assert!((0..message.len()).all(|length| outgoing_interface(&message[..length]).is_none()));
    }
}
