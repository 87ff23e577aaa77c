//! What a network interface says through the ethtool ioctl: which offloads are on.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{Error, Result, check};

/// Command numbers of `linux/ethtool.h` that read one boolean, and the names that ethtool(8) gives them.
const BOOLEANS: [(u32, &str); 6] = [
    (0x14, "rx-checksum"),
    (0x16, "tx-checksum"),
    (0x18, "scatter-gather"),
    (0x1e, "tso"),
    (0x23, "gso"),
    (0x2b, "gro"),
];
/// `ETHTOOL_GFLAGS`, and the bit of large receive offload in its answer.
const GET_FLAGS: u32 = 0x25;
const FLAG_LRO: u32 = 1 << 15;
/// `SIOCETHTOOL` of `linux/sockios.h`.
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// The offloads that are on for a network interface, by the names of ethtool(8).
///
/// # Errors
/// `InvalidInput` for a name that no interface can have, otherwise those of socket(2) and of the ioctl: `Unsupported`
/// where the driver answers none of the questions, `NotFound`-like `ENODEV` without such an interface.
pub fn offloads(interface: &str) -> Result<Vec<&'static str>> {
    // SAFETY: socket(2) takes no pointers.
    let descriptor = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just made and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut on = Vec::new();
    let mut answered = false;
    for (command, name) in BOOLEANS {
        match ask(&socket, interface, command) {
            Ok(data) => {
                answered = true;
                if data != 0 {
                    on.push(name);
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    match ask(&socket, interface, GET_FLAGS) {
        Ok(flags) if flags & FLAG_LRO != 0 => on.push("lro"),
        Ok(_) => {}
        Err(_) if answered => {}
        Err(error) => return Err(error),
    }
    Ok(on)
}

/// One question to the driver.
fn ask(socket: &OwnedFd, interface: &str, command: u32) -> Result<u32> {
    let bytes = interface.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("no interface can be named {interface:?}")));
    }
    let mut value = Value { command, data: 0 };
    // SAFETY: all-zero bytes are a valid `ifreq`: integers, characters and null pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names its interface with a terminated string (the length was checked above), and its data
    // pointer leads to a live ethtool_value, which is what these commands read and write.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) })?;
    Ok(value.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers() {
        // Loopback always computes no checksums and always has scatter-gather (drivers/net/loopback.c).
        match offloads("lo") {
            Ok(on) => assert!(on.contains(&"scatter-gather"), "{on:?}"),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }

    #[test]
    fn names_that_no_interface_has_are_errors() {
        assert_eq!(offloads("").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(offloads("a name that is far too long").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(offloads("nosuchif0").is_err());
    }
}
