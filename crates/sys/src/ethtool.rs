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

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ethtool_drvinfo` of `linux/ethtool.h`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    name: [u8; 32],
    /// Versions, bus address, and counts for further queries.
    more: [u8; 160],
}

/// `struct ethtool_cmd` of `linux/ethtool.h`.
#[repr(C)]
#[derive(Default)]
struct EthtoolSettings {
    command: u32,
    modes: [u32; 2],
    speed: u16,
    wiring: [u8; 6],
    packets: [u32; 2],
    speed_high: u16,
    more: [u16; 7],
}

/// The offloads that are on for a network interface, by the names of ethtool(8).
///
/// # Errors
/// `InvalidInput` for a name that no interface can have, otherwise those of socket(2) and of the ioctl: `Unsupported`
/// where the driver answers none of the questions, `NotFound`-like `ENODEV` without such an interface.
pub fn offloads(interface: &str) -> Result<Vec<&'static str>> {
    let socket = socket()?;
    let mut on = Vec::new();
    let mut answered = false;
    for (command, name) in OFFLOAD_QUERIES {
        match query_value(&socket, interface, command) {
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
    match query_value(&socket, interface, GET_FLAGS) {
        Ok(flags) if flags & FLAG_LRO != 0 => on.push("lro"),
        Ok(_) => {}
        Err(_) if answered => {}
        Err(error) => return Err(error),
    }
    Ok(on)
}

/// The name of a network interface's driver: `virtio_net`, `veth`.
///
/// # Errors
/// As for [`offloads`].
pub fn driver(interface: &str) -> Result<String> {
    let mut about = DriverInfo { command: GET_DRIVER, name: [0; 32], more: [0; 160] };
    run_command(&socket()?, interface, &mut about)?;
    let end = about.name.iter().position(|&byte| byte == 0).unwrap_or(about.name.len());
    Ok(String::from_utf8_lossy(&about.name[..end]).into_owned())
}

/// A network interface's advertised link speed in bits per second; `None` where its driver states none. That of a
/// virtual one is arbitrary.
///
/// # Errors
/// As for [`offloads`].
pub fn advertised_rate(interface: &str) -> Result<Option<f64>> {
    let mut settings = EthtoolSettings { command: GET_SETTINGS, ..EthtoolSettings::default() };
    run_command(&socket()?, interface, &mut settings)?;
    let megabits = u32::from(settings.speed) | u32::from(settings.speed_high) << 16;
    // All ones in either half, or zero, mean unknown.
    Ok((megabits != 0 && megabits != u32::MAX && megabits != 0xffff).then(|| f64::from(megabits) * 1e6))
}

/// A query of the driver.
fn query_value(socket: &OwnedFd, interface: &str, command: u32) -> Result<u32> {
    let mut value = EthtoolValue { command, data: 0 };
    run_command(socket, interface, &mut value)?;
    Ok(value.data)
}

/// What the ethtool ioctl reads and writes: a command and its data.
///
/// # Safety
/// The structure must be the one that its command fills, and every pattern of bytes must be a value of it.
unsafe trait EthtoolCommand {}
// SAFETY: integers; `struct ethtool_value`.
unsafe impl EthtoolCommand for EthtoolValue {}
// SAFETY: integers and bytes; `struct ethtool_drvinfo`.
unsafe impl EthtoolCommand for DriverInfo {}
// SAFETY: integers; `struct ethtool_cmd`.
unsafe impl EthtoolCommand for EthtoolSettings {}

/// Has the driver fill in the answer.
fn run_command<Q: EthtoolCommand>(socket: &OwnedFd, interface: &str, question: &mut Q) -> Result<()> {
    let mut request = new_request(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut *question).cast();
    // SAFETY: the request names its interface with a terminated string, and its data pointer leads to a live structure, which
    // is what its command reads and writes, as `Question` promises.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn struct_sizes_match_kernel() {
        assert_eq!((size_of::<EthtoolValue>(), size_of::<DriverInfo>(), size_of::<EthtoolSettings>()), (8, 196, 44));
        assert_eq!(std::mem::offset_of!(EthtoolSettings, speed_high), 28);
    }

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
            Ok(on) => assert!(on.contains(&"scatter-gather"), "{on:?}"),
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
