//! The server that requests go to, as its URL names it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use http::Uri;
use kelvin_transfer::wire::address::{HostHeaderAddr, parse_url_host};

/// What a target looks like.
const URL_FORM: &str = "give a URL such as http://localhost:8080/index.html";

/// A server, and what of it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// As it was given.
    pub url: String,
    /// Whether by TLS.
    pub secure: bool,
    /// Name or address, without brackets and zone.
    pub host: String,
    /// The address, where the host is written as one: that of one link has its zone.
    address: Option<SocketAddr>,
    /// TCP port.
    pub port: u16,
    /// The value of the Host header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}: {URL_FORM}"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("it has neither http:// nor https://: {URL_FORM}")),
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or(URL_FORM)?;
        if authority.as_str().contains('@') {
            return Err("a user and password in a URL are not sent: give them as -H 'Authorization: ...'".into());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        // A port that is no number is taken for none by the library.
        let explicit_port =
            authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map(|(_, port)| port);
        let port = match explicit_port {
            Some(port) => port.parse().ok().filter(|&port| port > 0).ok_or("its port must be from 1 to 65535")?,
            None if secure => 443,
            None => 80,
        };
        let address = parse_url_host(&host, port)?;
        let (host, authority) = match address {
            // The zone is of this host only (RFC 6874, section 4).
            Some(address) if host.contains('%') => {
                let header_value = HostHeaderAddr(address).to_string();
                let header_host = header_value.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
                (address.ip().to_string(), if explicit_port.is_some() { header_value } else { header_host })
            }
            _ => (host, authority.as_str().to_owned()),
        };
        let path = match uri.path_and_query().map_or("", |path| path.as_str()) {
            // An empty path is asked for as / (RFC 9110, section 4.2.3; RFC 9112, section 3.2.1).
            query if !query.starts_with('/') => format!("/{query}"),
            path => path.to_owned(),
        };
        Ok(Self { url: text.to_owned(), secure, host, address, port, authority, path })
    }
}

impl ServerUrl {
    /// Its addresses, in the order in which the system would try them.
    ///
    /// # Errors
    /// What is wrong with its name, in words.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        if let Some(address) = self.address {
            return Ok(vec![address]);
        }
        let addresses = (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| error.to_string())?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        if addresses.is_empty() { Err("this name has no address".into()) } else { Ok(addresses) }
    }

    /// Whether another one is the same server by the same protocol.
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.address, self.port) == (other.secure, &other.host, other.address, other.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_gives_host_port_and_path() {
        let target: ServerUrl = "http://localhost:8080/a%20b?c=d#e".parse().unwrap();
        assert_eq!((target.secure, &*target.host, target.port), (false, "localhost", 8080));
        assert_eq!((&*target.authority, &*target.path), ("localhost:8080", "/a%20b?c=d"));
        let target: ServerUrl = "https://[::1]".parse().unwrap();
        assert_eq!((target.secure, &*target.host, target.port, &*target.path), (true, "::1", 443, "/"));
        assert_eq!("http://[::1]:81/".parse::<ServerUrl>().unwrap().port, 81);
        assert_eq!(target.addresses().unwrap(), ["[::1]:443".parse().unwrap()]);
    }

    #[test]
    fn url_without_path_means_root() {
        for (url, path) in
            [("http://a?x=1", "/?x=1"), ("http://a:81?", "/?"), ("http://a#b", "/"), ("http://a/?x", "/?x")]
        {
            assert_eq!(url.parse::<ServerUrl>().unwrap().path, path, "{url}");
        }
        let (_, paths) = crate::load::url_list::parse_url_list("\u{feff}http://a?x=1\r\n?y=2\n", None).unwrap();
        assert_eq!(paths, ["/?x=1", "/?y=2"]);
    }

    #[test]
    fn zone_is_kept_out_of_host_header() {
        for (url, authority) in [
            ("http://[fe80::b%25lo]:8085/f", "[fe80::b]:8085"),
            ("http://[fe80::b%lo]:8085/f", "[fe80::b]:8085"),
            ("http://[fe80::b%25lo]/f", "[fe80::b]"),
        ] {
            let target: ServerUrl = url.parse().unwrap();
            assert_eq!((&*target.authority, &*target.host, &*target.path), (authority, "fe80::b", "/f"));
            let [SocketAddr::V6(address)] = target.addresses().unwrap()[..] else { panic!("{url}") };
            assert_eq!(address.scope_id(), kelvin_sys::net::interface::number("lo").unwrap());
        }
        let parse_error = |url: &str| url.parse::<ServerUrl>().unwrap_err();
        assert_eq!(parse_error("http://[fe80::b%25nosuchif0]/"), "there is no interface 25nosuchif0");
        assert_eq!(parse_error("http://[fe80::b]/"), "it is link-local: write fe80::b%INTERFACE");
    }

    #[test]
    fn invalid_url_is_refused() {
        for url in ["", "localhost", "localhost:8080/x", "ftp://a/b", "http://", "http:///x", "http://a b/", "/x"] {
            let error = url.parse::<ServerUrl>().unwrap_err();
            assert!(error.contains("give a URL"), "{url}: {error}");
        }
        for url in ["http://a:0/", "http://a:70000/", "http://a:x/"] {
            assert!(url.parse::<ServerUrl>().is_err(), "{url}");
        }
        assert!("http://me:secret@a/".parse::<ServerUrl>().unwrap_err().contains("Authorization"));
    }
}
