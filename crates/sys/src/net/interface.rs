//! The network interface of an address and its properties, in the network namespace of the calling thread.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use super::netlink::{self, NLM_F_DUMP, NetlinkRequest, find_attribute, u32_at};
use crate::{Error, Result, check};

/// `RTM_NEWADDR`, `RTM_GETADDR` of `linux/rtnetlink.h`.
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// Bytes of `struct ifaddrmsg` of `linux/if_addr.h`, and where in it the scope and the number of the interface are.
const IFADDRMSG_BYTES: usize = 8;
const SCOPE_OFFSET: usize = 3;
const INDEX_OFFSET: usize = 4;
/// `IFA_ADDRESS`, `IFA_LOCAL`.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `RT_SCOPE_UNIVERSE` of `linux/rtnetlink.h`: an address that is valid everywhere.
const RT_SCOPE_UNIVERSE: u8 = 0;

/// The interface number (zone, RFC 4007) of a link-local address; else 0.
pub fn zone(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// The number of the interface with this name.
///
/// # Errors
/// `ENODEV` without such an interface.
pub fn number(name: &str) -> Result<u32> {
    Ok(netdevice::name_to_index(socket()?, name)?)
}

/// The name of the interface with this number.
///
/// # Errors
/// `ENXIO` without such an interface.
pub fn name(number: u32) -> Result<String> {
    netdevice::index_to_name(socket()?, number).map_err(|error| match error {
        // As the C library reports it.
        Errno::NODEV => Errno::NXIO.into(),
        error => error.into(),
    })
}

/// The name of the interface that has an address of this host; `None` if none has.
///
/// # Errors
/// Those of the system call.
pub fn with_address(target: SocketAddr) -> Result<Option<String>> {
    if zone(target) != 0 {
        return name(zone(target)).map(Some);
    }
    let target = target.ip().to_canonical();
    let interface = all_addresses()?.into_iter().find(|assigned| assigned.address == target);
    interface.map(|assigned| name(assigned.interface)).transpose()
}

/// The addresses of this host that other hosts can have a route to, in the order of its interfaces: neither loopback nor link-local ones.
///
/// # Errors
/// Those of the system call.
pub fn global_addresses() -> Result<Vec<IpAddr>> {
    let global = all_addresses()?.into_iter().filter(|assigned| assigned.scope == RT_SCOPE_UNIVERSE);
    Ok(global.map(|assigned| assigned.address).collect())
}

/// An address that an interface has.
struct AssignedAddress {
    interface: u32,
    scope: u8,
    address: IpAddr,
}

fn all_addresses() -> Result<Vec<AssignedAddress>> {
    let mut addresses = Vec::new();
    let request = NetlinkRequest { kind: RTM_GETADDR, flags: NLM_F_DUMP, body: &[0; IFADDRMSG_BYTES] };
    netlink::query(&netlink::open()?, request, |kind, body| {
        let attributes = body.get(IFADDRMSG_BYTES..).filter(|_| kind == RTM_NEWADDR).unwrap_or_default();
        // The address of a point-to-point link is that of the other end, and the local one is a separate attribute.
        let local = find_attribute(attributes, IFA_LOCAL).or_else(|| find_attribute(attributes, IFA_ADDRESS));
        let address = local.and_then(|bytes| match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        });
        if let (Some(address), Some(interface), Some(&scope)) =
            (address, u32_at(body, INDEX_OFFSET), body.get(SCOPE_OFFSET))
        {
            addresses.push(AssignedAddress { interface, scope, address });
        }
        ControlFlow::Continue(())
    })?;
    Ok(addresses)
}

/// The MTU of an interface, in bytes.
///
/// # Errors
/// `ENODEV` without such an interface.
pub fn mtu(interface: &str) -> Result<u32> {
    let socket = socket()?;
    let mut request = new_request(interface)?;
    // SAFETY: the request names its interface with a terminated string, and this command writes an integer into it.
    let bytes = unsafe {
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request))?;
        request.ifr_ifru.ifru_mtu
    };
    u32::try_from(bytes).map_err(|_| Error::from_raw_os_error(libc::ERANGE))
}

/// A socket to query interfaces.
pub(crate) fn socket() -> Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// A query of an interface: its name in an otherwise empty request.
pub(crate) fn new_request(interface: &str) -> Result<libc::ifreq> {
    let bytes = interface.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
        let message = format!("{interface:?} is not a possible interface name");
        return Err(Error::new(std::io::ErrorKind::InvalidInput, message));
    }
    // SAFETY: all-zero bytes are a valid `ifreq`: integers, characters and null pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (character, byte) in request.ifr_name.iter_mut().zip(bytes) {
        *character = *byte as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_address_and_mtu() {
        let interface_of = |address: &str| with_address(address.parse().unwrap()).unwrap();
        assert_eq!(interface_of("127.0.0.1:1").as_deref(), Some("lo"));
        assert_eq!(interface_of("[::ffff:127.0.0.1]:1").as_deref(), Some("lo"));
        assert_eq!(interface_of("192.0.2.1:1"), None);
        let lo = number("lo").unwrap();
        assert_eq!(
            (name(lo).unwrap().as_str(), interface_of(&format!("[fe80::1%{lo}]:1")).as_deref()),
            ("lo", Some("lo"))
        );
        assert!(global_addresses().unwrap().iter().all(|address| !address.is_loopback()));
        assert!(number("nosuchif0").is_err() && number("").is_err() && name(u32::MAX).is_err());
        let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(mtu("lo").unwrap().to_string(), text.trim());
        assert!(mtu("nosuchif0").is_err() && mtu("").is_err());
    }
}
