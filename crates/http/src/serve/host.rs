//! By which names a server may be asked for its files.
//!
//! The owner of a name can have it lead to 127.0.0.1 for a moment (DNS rebinding). A page that a browser got under that name may then
//! read the answers of a server there, which are meant for this host alone. The browser still states for which name it asks. So a
//! server on loopback answers where it is asked for by an address, or by a name that leads nowhere else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use crate::serve::decoded_path::is_percent_encoded;

/// The host of a value of `Host`, or of the authority of a URL, without its port; `None` if it is not one that may stand there (RFC
/// 9110, section 7.2, and RFC 3986, section 3.2). It may be empty.
pub fn parse_host(value: &str) -> Option<&str> {
    let end = match value.strip_prefix('[') {
        Some(literal) => literal.find(']')? + 2,
        None => value.find(':').unwrap_or(value.len()),
    };
    let (host, port) = value.split_at(end);
    let is_port = port.is_empty() || port.strip_prefix(':')?.bytes().all(|byte| byte.is_ascii_digit());
    // A registered name, or an address of IPv4.
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte))
        && is_percent_encoded(host);
    (is_port && (is_name || ipv6_literal(host).is_some())).then_some(host)
}

/// The address of IPv6 in brackets.
fn ipv6_literal(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// A name that a server answers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_only_name = parse_host(text) == Some(text) && !strip_trailing_dot(text).is_empty();
        let name = || Self(strip_trailing_dot(text).to_ascii_lowercase());
        is_only_name.then(name).ok_or_else(|| "give a host name without a port, such as files.example".into())
    }
}

/// The names that a server answers to: these, besides addresses and names of this host alone, or all.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Option<Arc<[HostName]>>);

impl AllowedHosts {
    /// Those of a server that listens at this address: any where others reach it, unless some are named.
    pub fn for_address(address: IpAddr, names: Vec<HostName>) -> Self {
        let is_for_all = names.is_empty() && !address.to_canonical().is_loopback();
        Self((!is_for_all).then(|| names.into()))
    }

    /// Those of a server that no page of a browser reaches: any, unless some are named.
    pub fn named(names: Vec<HostName>) -> Self {
        Self((!names.is_empty()).then(|| names.into()))
    }

    /// Whether a request for this host is answered. One that names none, as version 1.0 allows, comes from no browser.
    #[inline]
    pub fn allows(&self, host: Option<&str>) -> bool {
        let Some((names, host)) = self.0.as_deref().zip(host) else { return true };
        let host_name = strip_trailing_dot(host);
        is_address_or_localhost(host) || names.iter().any(|HostName(name)| host_name.eq_ignore_ascii_case(name))
    }
}

/// Whether it is an address, or a name that leads to the host that asks (RFC 6761, section 6.3).
fn is_address_or_localhost(host: &str) -> bool {
    if host.parse::<Ipv4Addr>().is_ok() || ipv6_literal(host).is_some() {
        return true;
    }
    let last = strip_trailing_dot(host).rsplit('.').next();
    last.is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

/// A name with the dot at its end is the same.
fn strip_trailing_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed_hosts(address: &str, names: &[&str]) -> AllowedHosts {
        AllowedHosts::for_address(address.parse().unwrap(), names.iter().map(|name| name.parse().unwrap()).collect())
    }

    #[test]
    fn host_parses_with_or_without_port() {
        for (value, host) in [
            ("", Some("")),
            ("a", Some("a")),
            ("a:", Some("a")),
            ("a.example:80", Some("a.example")),
            ("A_b~c!$&'()*+,;=", Some("A_b~c!$&'()*+,;=")),
            ("%41%5a", Some("%41%5a")),
            ("127.0.0.1:8080", Some("127.0.0.1")),
            ("[::1]", Some("[::1]")),
            ("[::ffff:127.0.0.1]:80", Some("[::ffff:127.0.0.1]")),
            ("a:b", None),
            ("a:80:80", None),
            ("a:+1", None),
            ("::1", None),
            ("[::1", None),
            ("[::1]a", None),
            ("[a]", None),
            ("[]", None),
            ("a]", None),
            ("a@b", None),
            ("a/b", None),
            ("a?b", None),
            ("a#b", None),
            ("a\\b", None),
            ("a b", None),
            ("a\tb", None),
            ("<a>", None),
            ("a%", None),
            ("a%4", None),
            ("a%4g", None),
            ("a%é1", None),
            ("é", None),
        ] {
            assert_eq!(parse_host(value), host, "{value}");
        }
    }

    #[test]
    fn loopback_server_allows_only_local_names() {
        for address in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            let names = allowed_hosts(address, &[]);
            for host in ["127.0.0.1", "192.0.2.1", "[::1]", "localhost", "LocalHost.", "a.b.localhost"] {
                assert!(names.allows(Some(host)), "{address} {host}");
            }
            for host in [
                "evil.example",
                "localhost.evil.example",
                "evillocalhost",
                "localhost..",
                "127.0.0.1.evil.example",
                "127.0.0.1.",
                "127.1",
                "2130706433",
                "0x7f.0.0.1",
                "0177.0.0.1",
                "%6cocalhost",
                "",
                ".",
            ] {
                assert!(!names.allows(Some(host)), "{address} {host}");
            }
            assert!(names.allows(None));
        }
    }

    #[test]
    fn public_server_allows_any_by_default() {
        for address in ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"] {
            assert!(allowed_hosts(address, &[]).allows(Some("any.example")), "{address}");
            let hosts = allowed_hosts(address, &["files.example"]);
            assert!(hosts.allows(Some("files.example")) && hosts.allows(Some("192.0.2.1")), "{address}");
            assert!(!hosts.allows(Some("any.example")), "{address}");
        }
    }

    #[test]
    fn named_host_matches_in_any_spelling() {
        let names = allowed_hosts("127.0.0.1", &["Files.example.", "b"]);
        for host in ["files.example", "FILES.EXAMPLE", "files.example.", "b", "B."] {
            assert!(names.allows(Some(host)), "{host}");
        }
        for host in ["a.files.example", "files", "example", "xfiles.example"] {
            assert!(!names.allows(Some(host)), "{host}");
        }
        for name in ["", ".", "a:80", "a b", "http://a", "a/b", "*.a@", "[::1]:1"] {
            assert!(name.parse::<HostName>().unwrap_err().contains("files.example"), "{name}");
        }
    }
}
