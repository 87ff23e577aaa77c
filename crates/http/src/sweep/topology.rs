//! Where server and client are: on one host, joined by its loopback interface or by a link between two network namespaces, and on which
//! CPUs.

use std::net::{IpAddr, Ipv4Addr};

use kelvin_sys::net::iproute::{ConfigureError, configure, limit_rate};
use kelvin_sys::net::namespace::Namespace;

use crate::sweep::error::{Error, Result};

/// The addresses of either end of the link: of the block for private networks, seldom used.
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 83, 78, 1);
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 83, 78, 2);
/// Names of its interfaces.
const SERVER_INTERFACE: &str = "server";
const CLIENT_INTERFACE: &str = "client";

/// Where either end is: on this host, or in two namespaces.
pub(crate) type LoadTopology = Option<LinkedNamespaces>;

/// Two namespaces joined by a link. They end with the last thread or descriptor in them. The calling thread is at the client's until this
/// is dropped.
#[derive(Debug)]
pub(crate) struct LinkedNamespaces {
    home: Namespace,
    server: Namespace,
    client: Namespace,
}

impl LinkedNamespaces {
    /// Two new namespaces, joined by a link of this many bits a second, or as fast as it is. The calling thread is in the client's.
    ///
    /// # Errors
    /// Without the right to make namespaces, or without `ip` and `tc`.
    pub fn with_link(link: Option<u64>) -> Result<Self> {
        let forbidden = |error| Error::Namespaces(format!("it needs root: {error}"));
        let home = Namespace::current().map_err(forbidden)?;
        let server = Namespace::enter_new().map_err(forbidden)?;
        let client = Namespace::enter_new().and_then(|client| server.enter().map(|()| client));
        let client = client.inspect_err(|_| drop(home.enter())).map_err(forbidden)?;
        let client_path = client.path();
        let namespaces = Self { home, server, client };
        // The calling thread is in the server's namespace, and goes to the client's.
        let peer = ["peer", "name", CLIENT_INTERFACE, "netns", &client_path];
        configure("ip", &[&["link", "add", SERVER_INTERFACE, "type", "veth"][..], &peer].concat())?;
        bring_up(SERVER_INTERFACE, SERVER_ADDRESS)?;
        if let Some(rate) = link {
            limit_rate(SERVER_INTERFACE, rate)?;
        }
        namespaces.client.enter()?;
        bring_up(CLIENT_INTERFACE, CLIENT_ADDRESS)?;
        Ok(namespaces)
    }
}

/// The address at which the server is to listen.
pub(crate) fn server_address(topology: &LoadTopology) -> IpAddr {
    if topology.is_some() { SERVER_ADDRESS.into() } else { Ipv4Addr::LOCALHOST.into() }
}

/// Does something at the server's place.
///
/// # Errors
/// If the calling thread cannot go there or come back.
pub(crate) fn run_at_server<T>(topology: &LoadTopology, work: impl FnOnce() -> T) -> Result<T> {
    let Some(LinkedNamespaces { server, client, .. }) = topology else { return Ok(work()) };
    server.enter()?;
    let result = work();
    client.enter()?;
    Ok(result)
}

impl Drop for LinkedNamespaces {
    fn drop(&mut self) {
        // A thread that cannot go home can do nothing else either: the caller's next connection fails.
        let _ = self.home.enter();
    }
}

fn bring_up(interface: &str, address: Ipv4Addr) -> Result<()> {
    configure("ip", &["link", "set", "lo", "up"])?;
    configure("ip", &["address", "add", &format!("{address}/30"), "dev", interface])?;
    Ok(configure("ip", &["link", "set", interface, "up"])?)
}

impl From<ConfigureError> for Error {
    fn from(error: ConfigureError) -> Self {
        Self::Namespaces(match error {
            ConfigureError::Program { name, error } => format!("it needs {name} (Debian: iproute2): {error}"),
            ConfigureError::Refused { command, stderr } => format!("{command}: {stderr}"),
        })
    }
}

/// The calling thread, and what it starts, may run on some CPUs only until this is dropped.
#[derive(Debug)]
pub(crate) struct PinnedThread(Vec<u32>);

impl PinnedThread {
    /// Keeps it to these.
    ///
    /// # Errors
    /// Those of sched_setaffinity(2).
    pub fn pin(cpus: &[u32]) -> std::io::Result<Self> {
        let before = kelvin_sys::cpu::affinity()?;
        kelvin_sys::cpu::pin(cpus)?;
        Ok(Self(before))
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        // It could run there before; if that is not so any more, it stays where it is.
        let _ = kelvin_sys::cpu::pin(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_is_restored() {
        let before = kelvin_sys::cpu::affinity().unwrap();
        let pinned = PinnedThread::pin(&before[..1]).unwrap();
        assert_eq!(kelvin_sys::cpu::affinity().unwrap(), before[..1]);
        drop(pinned);
        assert_eq!(kelvin_sys::cpu::affinity().unwrap(), before);
    }
}
