//! What `kmod/kelvin.h` defines: the calls' numbers, and the layouts of what they are given.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::{Error, Result};

/// `KELVIN_VERSION`.
pub const VERSION: u32 = 1;
/// `KELVIN_MAGIC`.
const MAGIC: u64 = 0xE7;
/// `_IOC_WRITE` and `_IOC_READ` of `asm-generic/ioctl.h`, which x86-64 and aarch64 have: who is written to, seen from the caller.
const IOC_WRITE: u64 = 1;
const IOC_READ: u64 = 2;

/// The number of a call whose argument has this many bytes.
const fn ioctl_number(direction: u64, call: u64, bytes: usize) -> u64 {
    direction << 30 | (bytes as u64) << 16 | MAGIC << 8 | call
}

pub const ABOUT: u64 = ioctl_number(IOC_READ, 0, size_of::<About>());
pub const CONNECT: u64 = ioctl_number(IOC_WRITE, 1, size_of::<KernelAddress>());
pub const LISTEN: u64 = ioctl_number(IOC_WRITE, 2, size_of::<KernelAddress>());
pub const GETNAME: u64 = ioctl_number(IOC_READ, 3, size_of::<KernelAddress>());
pub const ACCEPT: u64 = ioctl_number(IOC_READ, 4, size_of::<KernelAddress>());
pub const CLOSE: u64 = ioctl_number(0, 5, 0);
pub const SET_WINDOW: u64 = ioctl_number(IOC_WRITE, 7, size_of::<u64>());
pub const SEND: u64 = ioctl_number(IOC_WRITE, 8, size_of::<WindowSpan>());
pub const RECEIVE: u64 = ioctl_number(IOC_WRITE, 9, size_of::<WindowSpan>());
pub const PTE: u64 = ioctl_number(IOC_WRITE | IOC_READ, 10, size_of::<PageQuery>());

/// `KELVIN_ALL`, of a span.
pub const ALL: u32 = 1;
/// `KELVIN_PAGE_MAPPED`, `KELVIN_PAGE_PRESENT` and `KELVIN_PAGE_FRAME`.
pub const MAPPED: u32 = 1;
pub const PRESENT: u32 = 2;
pub const FRAME: u32 = 4;

/// `struct kelvin_about`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    pub version: u32,
    pub page_bytes: u32,
    pub window_bytes: u64,
}

/// `struct kelvin_span`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowSpan {
    pub offset: u64,
    pub length: u64,
    pub flags: u32,
    pub reserved: u32,
}

/// `struct kelvin_page`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PageQuery {
    pub address: u64,
    pub entry: u64,
    pub level: u32,
    pub shift: u32,
    pub found: u32,
    pub reserved: u32,
}

/// `struct __kernel_sockaddr_storage`, whose first bytes are a `struct sockaddr_in` or `sockaddr_in6`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct KernelAddress([u8; 128]);

impl Default for KernelAddress {
    fn default() -> Self {
        Self([0; 128])
    }
}

impl From<SocketAddr> for KernelAddress {
    fn from(address: SocketAddr) -> Self {
        let (mut storage, family) = (Self::default(), if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 });
        storage.put(0, &(family as libc::sa_family_t).to_ne_bytes());
        storage.put(2, &address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => storage.put(4, &address.ip().octets()),
            SocketAddr::V6(address) => {
                storage.put(4, &address.flowinfo().to_ne_bytes());
                storage.put(8, &address.ip().octets());
                storage.put(24, &address.scope_id().to_ne_bytes());
            }
        }
        storage
    }
}

impl KernelAddress {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn bytes<const COUNT: usize>(&self, offset: usize) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        bytes.copy_from_slice(&self.0[offset..offset + COUNT]);
        bytes
    }

    /// As the standard library has it.
    ///
    /// # Errors
    /// Another family than those of IP.
    pub fn read(&self) -> Result<SocketAddr> {
        let port = u16::from_be_bytes(self.bytes(2));
        match libc::c_int::from(libc::sa_family_t::from_ne_bytes(self.bytes(0))) {
            libc::AF_INET => Ok((IpAddr::from(Ipv4Addr::from(self.bytes::<4>(4))), port).into()),
            libc::AF_INET6 => {
                let (flow, scope) = (u32::from_ne_bytes(self.bytes(4)), u32::from_ne_bytes(self.bytes(24)));
                Ok(SocketAddrV6::new(Ipv6Addr::from(self.bytes::<16>(8)), port, flow, scope).into())
            }
            _ => Err(Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
    }
}
