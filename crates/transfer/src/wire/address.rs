//! Host addresses, as written and shown: a link-local IPv6 address has its zone, `%eth0`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use kelvin_sys::net::interface;

use crate::wire::PORT;

/// The accepted form where a host may be a name.
const ADDRESS_FORM: &str = "give HOST or HOST:PORT";

/// The addresses of `HOST[:PORT]`: a name, an IPv4 address, or an IPv6 address (in brackets, if a port follows).
///
/// # Errors
/// What is wrong with it, in words.
pub fn resolve(peer: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = split_host_port(peer).ok_or(ADDRESS_FORM)?;
    let port = port.unwrap_or(PORT);
    if let Some(address) = parse_literal((host, port), parse_zone)? {
        return Ok(vec![address]);
    }
    let addresses = (host, port).to_socket_addrs().map_err(|error| format!("{error}: {ADDRESS_FORM}"))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    if addresses.is_empty() { Err("this name has no address".into()) } else { Ok(addresses) }
}

/// Like `resolve`, of an address alone.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    parse_with_default_port(text, PORT)
}

/// Like `parse_address`, with another port where none is given.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_with_default_port(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    let expected = "give an IP address, such as 0.0.0.0, 192.0.2.7:5000, [::1]:5000 or fe80::1%eth0";
    let (host, port) = split_host_port(text).ok_or(expected)?;
    parse_literal((host, port.unwrap_or(default_port)), parse_zone)?.ok_or_else(|| expected.into())
}

/// The address that the host of a URL is, without its brackets; `None` for a name. Its zone is written `%25eth0` (RFC 6874), and is
/// taken as in an address if it is none by that rule.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_url_host(host: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    parse_literal((host, port), |zone| decode_url_zone(zone).or_else(|| parse_interface_number(zone)))
}

/// The host, and the port if there is one.
fn split_host_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        // More than one colon is an IPv6 address without a port.
        None if text.matches(':').count() > 1 => (text, ""),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?.parse().ok()?) };
    (!host.is_empty()).then_some((host, port))
}

/// An address written as numbers, whose zone is found so; `None` for a name.
fn parse_literal((host, port): (&str, u16), number: fn(&str) -> Option<u32>) -> Result<Option<SocketAddr>, String> {
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    match (address.parse(), zone) {
        (Ok(IpAddr::V6(address)), zone) if address.is_unicast_link_local() => {
            let zone = zone.ok_or_else(|| format!("it is link-local: write {address}%INTERFACE"))?;
            let number = number(zone).ok_or_else(|| format!("there is no interface {zone}"))?;
            Ok(Some(SocketAddrV6::new(address, port, 0, number).into()))
        }
        (_, Some(_)) => Err("only an address that begins with fe80: has a %INTERFACE".into()),
        (address, None) => Ok(address.ok().map(|address: IpAddr| (address, port).into())),
    }
}

/// The interface number of a zone, by name or number; as in a URL, if it is none as it stands.
fn parse_zone(zone: &str) -> Option<u32> {
    parse_interface_number(zone).or_else(|| decode_url_zone(zone))
}

/// The interface number of a zone as a URL has it: `25` and the rest of the encoded percent sign, then the encoded name.
fn decode_url_zone(zone: &str) -> Option<u32> {
    let mut name = Vec::new();
    let mut rest = zone.strip_prefix("25")?.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        name.push(if byte == b'%' { (digit()? << 4 | digit()?) as u8 } else { byte });
    }
    parse_interface_number(str::from_utf8(&name).ok()?)
}

fn parse_interface_number(zone: &str) -> Option<u32> {
    let parse_number = || zone.parse().ok().filter(|&number| interface::name(number).is_ok());
    interface::number(zone).ok().or_else(parse_number)
}

/// An address with its zone by name, as it is written on the host where it was found.
#[derive(Clone, Copy, Debug)]
pub struct DisplayAddr(pub SocketAddr);

impl fmt::Display for DisplayAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (interface::zone(self.0), interface::name(interface::zone(self.0))) {
            (1.., Ok(name)) => write!(out, "[{}%{name}]:{}", self.0.ip(), self.0.port()),
            // The standard library shows the number of an interface that is gone.
            _ => self.0.fmt(out),
        }
    }
}

/// Like `DisplayAddr`, as the host and port of a URL (RFC 6874).
#[derive(Clone, Copy, Debug)]
pub struct UrlAddr(pub SocketAddr);

impl fmt::Display for UrlAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&DisplayAddr(self.0).to_string().replace('%', "%25"))
    }
}

/// An address as the Host header of a request has it: the zone means nothing to another host (RFC 6874, section 4).
#[derive(Clone, Copy, Debug)]
pub struct HostHeaderAddr(pub SocketAddr);

impl fmt::Display for HostHeaderAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.0.ip(), self.0.port()).fmt(out)
    }
}

/// Whether only this host can reach an address.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// The same host at another port.
pub(crate) fn with_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// Whether two addresses are of one host: the zone is a part of it.
pub(crate) fn is_same_host(first: SocketAddr, second: SocketAddr) -> bool {
    (first.ip(), interface::zone(first)) == (second.ip(), interface::zone(second))
}

/// The network that places are counted by: an IPv4 address, or the /64 of an IPv6 address, of which a single host can have any;
/// with its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceNetwork(IpAddr, u32);

impl SourceNetwork {
    pub(crate) fn from_addr(host: SocketAddr) -> Self {
        match host.ip().to_canonical() {
            IpAddr::V4(address) => Self(address.into(), 0),
            IpAddr::V6(address) => {
                Self(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(), interface::zone(host))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_address(peer: &str) -> String {
        DisplayAddr(resolve(peer).unwrap()[0]).to_string()
    }

    #[test]
    fn peer_parses_with_or_without_port() {
        assert_eq!(first_address("192.0.2.7"), format!("192.0.2.7:{PORT}"));
        assert_eq!(first_address("192.0.2.7:99"), "192.0.2.7:99");
        assert_eq!(first_address("2001:db8::1"), format!("[2001:db8::1]:{PORT}"));
        assert_eq!(first_address("[2001:db8::1]"), format!("[2001:db8::1]:{PORT}"));
        assert_eq!(first_address("[2001:db8::1]:99"), "[2001:db8::1]:99");
        assert!(resolve("localhost").unwrap().iter().all(|address| address.port() == PORT));
        assert!(resolve("localhost:7").unwrap().iter().all(|address| address.port() == 7));
        for peer in ["192.0.2.7:port", "192.0.2.7:99999", "", ":5", "[::1", "[::1]5", "[]:5", "no such host"] {
            let why = resolve(peer).unwrap_err();
            assert!(why.contains(ADDRESS_FORM), "{peer:?}: {why}");
        }
    }

    #[test]
    fn link_local_zone_is_name_or_number() {
        let lo = interface::number("lo").unwrap();
        for (written, port) in [("fe80::1%lo", PORT), ("[fe80::1%lo]", PORT), ("[fe80::1%lo]:99", 99)] {
            let numbered = written.replace("lo", &lo.to_string());
            for written in [written, &numbered] {
                let expected = format!("[fe80::1%lo]:{port}");
                assert_eq!(
                    (first_address(written), DisplayAddr(parse_address(written).unwrap()).to_string()),
                    (expected.clone(), expected)
                );
                assert_eq!(interface::zone(resolve(written).unwrap()[0]), lo);
            }
        }
        for (written, port) in [("fe80::1%25lo", PORT), ("[fe80::1%25lo]:99", 99), ("[fe80::1%25%6co]:99", 99)] {
            assert_eq!(first_address(written), format!("[fe80::1%lo]:{port}"), "{written}");
        }
        let why = |text: &str| (resolve(text).unwrap_err(), parse_address(text).unwrap_err());
        let pair = |why: String| (why.clone(), why);
        assert_eq!(why("fe80::1"), pair("it is link-local: write fe80::1%INTERFACE".into()));
        assert_eq!(why("fe80::1%nosuchif0"), pair("there is no interface nosuchif0".into()));
        assert_eq!(why("fe80::1%4000000000"), pair("there is no interface 4000000000".into()));
        for peer in ["2001:db8::1%lo", "192.0.2.7%lo", "host%lo", "fe80::1%lo%lo"] {
            assert!(resolve(peer).is_err(), "{peer}");
        }
        let url =
            |host: &str| parse_url_host(host, 80).map(|address| address.map(|address| UrlAddr(address).to_string()));
        for written in ["fe80::1%25lo", "fe80::1%lo", "fe80::1%25%6C%6f", &format!("fe80::1%25{lo}")] {
            assert_eq!(url(written), Ok(Some("[fe80::1%25lo]:80".into())), "{written}");
        }
        assert_eq!((url("::1"), url("host")), (Ok(Some("[::1]:80".into())), Ok(None)));
        for host in ["fe80::1", "fe80::1%25", "fe80::1%25nosuchif0", "fe80::1%25l%6", "2001:db8::1%25lo"] {
            assert!(url(host).is_err(), "{host}");
        }
        assert_eq!(HostHeaderAddr(parse_address("[fe80::1%lo]:99").unwrap()).to_string(), "[fe80::1]:99");
        let stale_address = SocketAddrV6::new("fe80::1".parse().unwrap(), 99, 0, 4_000_000_000);
        assert_eq!(DisplayAddr(stale_address.into()).to_string(), "[fe80::1%4000000000]:99");
    }

    #[test]
    fn network_is_ipv4_or_ipv6_64() {
        let network = |address: &str| SourceNetwork::from_addr(address.parse().unwrap());
        assert_eq!(network("192.0.2.7:1"), network("[::ffff:192.0.2.7]:2"));
        assert_ne!(network("192.0.2.7:1"), network("192.0.2.8:1"));
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::ffff:0:0:1]:1"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:0:1::1]:1"));
        assert_ne!(network("[fe80::1%1]:1"), network("[fe80::1%2]:1"));
    }

    #[test]
    fn same_host_ignores_port_but_not_zone() {
        let host = |address: &str| address.parse().unwrap();
        assert!(is_same_host(host("[fe80::1%1]:1"), host("[fe80::1%1]:2")));
        assert!(!is_same_host(host("[fe80::1%1]:1"), host("[fe80::1%2]:1")));
    }
}
