//! The network interface of an address and its properties, in the network namespace of the calling thread.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use crate::{Error, Result, check};

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
        // As the C library says it.
        Errno::NODEV => Errno::NXIO.into(),
        error => error.into(),
    })
}

/// The name of the interface that has an address of this host; `None` if none has.
///
/// # Errors
/// What the system call says.
pub fn with_address(wanted: SocketAddr) -> Result<Option<String>> {
    if zone(wanted) != 0 {
        return name(zone(wanted)).map(Some);
    }
    let wanted = wanted.ip().to_canonical();
    let mut first = std::ptr::null_mut();
    // SAFETY: the pointer is valid to be written; on success it is a list that is freed once, below.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut found = None;
    let mut next = first;
    // SAFETY: each entry of the list is live until the list is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        if found.is_none() && address(entry.ifa_addr) == Some(wanted) {
            // SAFETY: the name of an entry is terminated, and lives as long as the list.
            found = Some(unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned());
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list is that of getifaddrs, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The address that an entry of getifaddrs leads to, if it is one of IP.
fn address(pointer: *const libc::sockaddr) -> Option<IpAddr> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: what is no null pointer leads to an address that is as large as its family says, which is read first; an
    // unaligned read asks nothing of its place.
    unsafe {
        match libc::c_int::from((*pointer).sa_family) {
            libc::AF_INET => {
                let whole = pointer.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(whole.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let whole = pointer.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(whole.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
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
        let why = format!("{interface:?} is not a possible interface name");
        return Err(Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    // SAFETY: all-zero bytes are a valid `ifreq`: integers, characters and null pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_address_and_mtu() {
        let with = |address: &str| with_address(address.parse().unwrap()).unwrap();
        assert_eq!(with("127.0.0.1:1").as_deref(), Some("lo"));
        assert_eq!(with("[::ffff:127.0.0.1]:1").as_deref(), Some("lo"));
        assert_eq!(with("192.0.2.1:1"), None);
        let lo = number("lo").unwrap();
        assert_eq!((name(lo).unwrap().as_str(), with(&format!("[fe80::1%{lo}]:1")).as_deref()), ("lo", Some("lo")));
        assert!(number("nosuchif0").is_err() && number("").is_err() && name(u32::MAX).is_err());
        let said = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(mtu("lo").unwrap().to_string(), said.trim());
        assert!(mtu("nosuchif0").is_err() && mtu("").is_err());
    }
}
