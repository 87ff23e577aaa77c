//! Where server and client are: on one host, joined by its loopback interface or by a link between two network namespaces.

use std::net::{IpAddr, Ipv4Addr};

use kelvin_sys::net::iproute::{Unconfigured, configure, limit};
use kelvin_sys::net::namespace::Namespace;

use crate::error::{Error, Result};

/// The addresses of either end of the link: of the block for private networks, seldom used.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 83, 78, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 83, 78, 2);
/// Names of its interfaces.
const AT_SERVER: &str = "server";
const AT_CLIENT: &str = "client";
/// Where either end is. The calling thread is at the client's until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    apart: Option<Apart>,
}

/// Two namespaces joined by a link. They end with the last thread or descriptor in them.
#[derive(Debug)]
struct Apart {
    home: Namespace,
    server: Namespace,
    client: Namespace,
}

impl Place {
    /// This host.
    pub fn here() -> Self {
        Self { apart: None }
    }

    /// Two new namespaces, joined by a link of so many bits a second, or as fast as it is. The calling thread is in the client's.
    ///
    /// # Errors
    /// Without the right to make namespaces, or without `ip` and `tc`.
    pub fn apart(link: Option<u64>) -> Result<Self> {
        let forbidden = |error| Error::Namespaces(format!("it needs root: {error}"));
        let home = Namespace::current().map_err(forbidden)?;
        let server = Namespace::enter_new().map_err(forbidden)?;
        let client = Namespace::enter_new().and_then(|client| server.enter().map(|()| client));
        let client = client.inspect_err(|_| drop(home.enter())).map_err(forbidden)?;
        let place = Self { apart: Some(Apart { home, server, client }) };
        place.join(link)?;
        Ok(place)
    }

    /// Joins the two namespaces. The calling thread is in the server's, and goes to the client's.
    fn join(&self, link: Option<u64>) -> Result<()> {
        let Some(Apart { client, .. }) = &self.apart else { return Ok(()) };
        let peer = ["peer", "name", AT_CLIENT, "netns", &client.path()];
        configure("ip", &[&["link", "add", AT_SERVER, "type", "veth"][..], &peer].concat())?;
        up(AT_SERVER, SERVER)?;
        if let Some(rate) = link {
            limit(AT_SERVER, rate)?;
        }
        client.enter()?;
        up(AT_CLIENT, CLIENT)
    }

    /// The address at which the server is to listen.
    pub fn address(&self) -> IpAddr {
        if self.apart.is_some() { SERVER.into() } else { Ipv4Addr::LOCALHOST.into() }
    }

    /// Does something at the server's place.
    ///
    /// # Errors
    /// If the calling thread cannot go there or come back.
    pub fn at_server<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let Some(Apart { server, client, .. }) = &self.apart else { return Ok(work()) };
        server.enter()?;
        let done = work();
        client.enter()?;
        Ok(done)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(Apart { home, .. }) = &self.apart {
            // A thread that cannot go home can do nothing else either: the caller's next connection fails.
            let _ = home.enter();
        }
    }
}

fn up(interface: &str, address: Ipv4Addr) -> Result<()> {
    configure("ip", &["link", "set", "lo", "up"])?;
    configure("ip", &["address", "add", &format!("{address}/30"), "dev", interface])?;
    Ok(configure("ip", &["link", "set", interface, "up"])?)
}

impl From<Unconfigured> for Error {
    fn from(error: Unconfigured) -> Self {
        Self::Namespaces(match error {
            Unconfigured::Program { name, error } => format!("it needs {name} (Debian: iproute2): {error}"),
            Unconfigured::Refused { command, said } => format!("{command}: {said}"),
        })
    }
}
