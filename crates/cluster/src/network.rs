//! The addresses of this host, and how much its network interfaces have sent.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses, as in 10.0.0.0/8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    prefix_bits: u8,
}

impl AddressRange {
    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, true),
            IpAddr::V6(address) => (address.to_bits(), false),
        };
        let ((own, own_family), (other, other_family)) = (bits(self.address), bits(address));
        own_family == other_family && (own ^ other).checked_shr(128 - u32::from(self.prefix_bits)).unwrap_or(0) == 0
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let usage = || format!("{text:?} is not a range of addresses such as 10.0.0.0/8");
        let (address, prefix_bits) = text.split_once('/').ok_or_else(usage)?;
        let address: IpAddr = address.parse().map_err(|_| usage())?;
        let prefix_bits: u8 = prefix_bits.parse().map_err(|_| usage())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if prefix_bits > most { Err(usage()) } else { Ok(Self { address, prefix_bits }) }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix_bits)
    }
}

/// The addresses of this host that others can have a route to; those of a range alone where one is given.
///
/// # Errors
/// Those of the system call.
pub fn local_addresses(range: Option<&AddressRange>) -> std::io::Result<Vec<IpAddr>> {
    let mut addresses = kelvin_sys::net::interface::global_addresses()?;
    addresses.retain(|&address| range.is_none_or(|range| range.contains(address)));
    Ok(addresses)
}

/// Bytes that all network interfaces of this network namespace have sent since they came up, without loopback.
///
/// # Errors
/// Those of reading `/proc/net/dev`.
pub fn sent_bytes() -> std::io::Result<u64> {
    std::fs::read_to_string("/proc/self/net/dev").map(|text| sent_bytes_of(&text))
}

/// The 9th column of each interface, by proc(5).
fn sent_bytes_of(text: &str) -> u64 {
    let interfaces = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    interfaces.filter_map(|(_, columns)| columns.split_whitespace().nth(8)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_by_prefix() {
        let contains =
            |range: &str, address: &str| range.parse::<AddressRange>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.1.0.0/16", "10.1.255.3") && !contains("10.1.0.0/16", "10.2.0.1"));
        assert!(contains("0.0.0.0/0", "192.0.2.1") && !contains("0.0.0.0/0", "fd00::1"));
        assert!(contains("192.0.2.1/32", "192.0.2.1") && !contains("192.0.2.1/32", "192.0.2.2"));
        assert!(contains("fd00::/8", "fd12::1") && !contains("fd00::/8", "fe80::1"));
        for text in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "n1/8", "10.0.0.0/x", ""] {
            let error = text.parse::<AddressRange>().unwrap_err();
            assert!(error.contains("such as 10.0.0.0/8"), "{error}");
        }
        assert_eq!("10.0.0.0/8".parse::<AddressRange>().unwrap().to_string(), "10.0.0.0/8");
    }

    #[test]
    fn sent_bytes_leave_loopback_out() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n    \
                    lo: 500 5 0 0 0 0 0 0 500 5 0 0 0 0 0 0\n  eth0: 1 2 3 4 5 6 7 8 1000 9 0 0 0 0 0 0\neth1:1 2 3 4 5 6 7 8 24 9 0 0 0 0 0 0\n";
        assert_eq!(sent_bytes_of(text), 1024);
        assert_eq!(sent_bytes_of(""), 0);
    }
}
