//! Facts of a network interface by the ethtool ioctl: driver, advertised link speed, active offloads.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::net::interface::{new_request, socket};
use crate::{Result, check};

/// Command numbers of `linux/ethtool.h` that read one boolean, and the names that ethtool(8) gives them.
const OFFLOAD_QUERIES: [(u32, &str); 6] = [
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

/// `ETHTOOL_GDRVINFO` and `ETHTOOL_GSET`; the latter is old, and every driver with its successor answers it too.
const GET_DRIVER: u32 = 0x3;
const GET_SETTINGS: u32 = 0x1;

/// Words of `struct ethtool_value`, `struct ethtool_drvinfo` and `struct ethtool_cmd` of `linux/ethtool.h`; the first of each is the
/// command.
const VALUE_WORDS: usize = 2;
const DRIVER_WORDS: usize = 49;
const SETTINGS_WORDS: usize = 11;
/// Where the driver's name is, in bytes, and where the two halves of the speed are.
const NAME_BYTES: std::ops::Range<usize> = 4..36;
const SPEED_OFFSET: usize = 12;
const SPEED_HIGH_OFFSET: usize = 28;

/// The offloads that are on for a network interface, by the names of ethtool(8).
///
/// # Errors
/// `InvalidInput` for a name that no interface can have, otherwise those of socket(2) and of the ioctl: `Unsupported`
/// where the driver answers none of the questions, `NotFound`-like `ENODEV` without such an interface.
pub fn offloads(interface: &str) -> Result<Vec<&'static str>> {
    let socket = socket()?;
    let mut enabled = Vec::new();
    let mut is_answered = false;
    for (command, name) in OFFLOAD_QUERIES {
        match run_command::<VALUE_WORDS>(&socket, interface, command) {
            Ok([_, data]) => {
                is_answered = true;
                if data != 0 {
                    enabled.push(name);
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    match run_command::<VALUE_WORDS>(&socket, interface, GET_FLAGS) {
        Ok([_, flags]) if flags & FLAG_LRO != 0 => enabled.push("lro"),
        Ok(_) => {}
        Err(_) if is_answered => {}
        Err(error) => return Err(error),
    }
    Ok(enabled)
}

/// The name of a network interface's driver: `virtio_net`, `veth`.
///
/// # Errors
/// As for [`offloads`].
pub fn driver(interface: &str) -> Result<String> {
    let bytes = run_command::<DRIVER_WORDS>(&socket()?, interface, GET_DRIVER)?.map(u32::to_ne_bytes);
    let name = &bytes.as_flattened()[NAME_BYTES];
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// A network interface's advertised link speed in bits per second; `None` where its driver states none. That of a
/// virtual one is arbitrary.
///
/// # Errors
/// As for [`offloads`].
pub fn advertised_rate(interface: &str) -> Result<Option<f64>> {
    let bytes = run_command::<SETTINGS_WORDS>(&socket()?, interface, GET_SETTINGS)?.map(u32::to_ne_bytes);
    let half =
        |index: usize| u32::from(u16::from_ne_bytes([bytes.as_flattened()[index], bytes.as_flattened()[index + 1]]));
    let megabits = half(SPEED_OFFSET) | half(SPEED_HIGH_OFFSET) << 16;
    // All ones in either half, or zero, mean unknown.
    Ok((megabits != 0 && megabits != u32::MAX && megabits != 0xffff).then(|| f64::from(megabits) * 1e6))
}

/// Has the driver fill in the structure of a command, which has this many words.
fn run_command<const WORDS: usize>(socket: &OwnedFd, interface: &str, command: u32) -> Result<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[0] = command;
    let mut request = new_request(interface)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request names its interface with a terminated string, and its data pointer leads to as many words as the command's
    // structure has, which is what it reads and writes.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) })?;
    Ok(words)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn loopback_advertises_no_speed() {
        // Drivers need not answer; loopback names no driver of its own.
        assert!(!matches!(advertised_rate("lo"), Ok(Some(_))));
        assert!(driver("nosuchif0").is_err());
    }

    #[test]
    fn loopback_answers() {
        // Loopback never computes checksums and always has scatter-gather (drivers/net/loopback.c).
        match offloads("lo") {
            Ok(enabled) => assert!(enabled.contains(&"scatter-gather"), "{enabled:?}"),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }

    #[test]
    fn unknown_interface_is_an_error() {
        assert_eq!(offloads("").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(offloads("a name that is far too long").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(offloads("nosuchif0").is_err());
    }
}
