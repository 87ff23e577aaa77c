//! Where `kelvin send` sends without a remote shell: a host that runs `kelvin receive`, and a directory below the receiver's.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, PathBuf};

use kelvin_transfer::file_name::FileName;

/// `HOST[:PORT][:DIRECTORY]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverTarget {
    /// `HOST[:PORT]`.
    pub host: String,
    /// The names of the directories on the way from the receiver's; none for that one itself.
    pub directory: Vec<FileName>,
}

impl ReceiverTarget {
    /// Digits behind the first colon are a port: a directory of such a name is `./2026`. More than one colon without brackets may be an
    /// IPv6 address, which has no directory then.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(operand: &OsStr) -> Result<Self, &'static str> {
        const FORM: &str = "give HOST, HOST:PORT or HOST:DIRECTORY";
        let bytes = operand.as_bytes();
        let host_end = match (bytes.first(), operand.to_str()) {
            (Some(b'['), _) => bytes.iter().position(|byte| *byte == b']').ok_or(FORM)? + 1,
            (_, Some(text)) if is_address(text) => bytes.len(),
            _ => bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len()),
        };
        let (host, rest) = bytes.split_at(host_end);
        if rest.starts_with(b"::") {
            return Err("give HOST:DIRECTORY, with one colon: a receiver has one directory, and no modules");
        }
        if host.contains(&b'@') {
            return Err("a user is for a remote shell: give -e ssh with it");
        }
        let rest = match rest {
            [] => rest,
            [b':', rest @ ..] => rest,
            _ => return Err(FORM),
        };
        let port_end = rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len());
        let has_port = port_end > 0 && rest[..port_end].iter().all(u8::is_ascii_digit);
        let (port, directory) = if has_port { rest.split_at(port_end) } else { (&[][..], rest) };
        let directory = if has_port { directory.strip_prefix(b":").unwrap_or_default() } else { directory };
        let host = [host, if has_port { b":" } else { b"" }, port].concat();
        let host = String::from_utf8(host).ok().filter(|host| !host.is_empty()).ok_or(FORM)?;
        Ok(Self { host, directory: directory_names(directory)? })
    }
}

/// Whether all of it is an IPv6 address, which may have a zone.
fn is_address(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse().is_ok_and(|address: IpAddr| address.is_ipv6())
}

/// The names of a path that leads down.
fn directory_names(path: &[u8]) -> Result<Vec<FileName>, &'static str> {
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    let names = path.components().filter(|component| *component != Component::CurDir);
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => FileName::try_from(name.as_bytes().to_vec()),
        _ => Err("a directory is below the receiver's: give a path that does not begin with / and has no .."),
    };
    names.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_directory_are_told_apart() {
        for (operand, host, directory) in [
            ("far", "far", ""),
            ("far:", "far", ""),
            ("far:.", "far", ""),
            ("far:5000", "far:5000", ""),
            ("far:store", "far", "store"),
            ("far:store/photos/", "far", "store/photos"),
            ("far:./2026", "far", "2026"),
            ("far:2026/may", "far", "2026/may"),
            ("far:5000:store", "far:5000", "store"),
            ("far:5000:2026", "far:5000", "2026"),
            ("far:a:b", "far", "a:b"),
            ("192.0.2.7:store", "192.0.2.7", "store"),
            ("::1", "::1", ""),
            ("fe80::1%eth0", "fe80::1%eth0", ""),
            ("[::1]", "[::1]", ""),
            ("[::1]:5000", "[::1]:5000", ""),
            ("[::1]:store", "[::1]", "store"),
            ("[::1]:5000:a/b", "[::1]:5000", "a/b"),
        ] {
            let parsed = ReceiverTarget::parse(OsStr::new(operand)).unwrap();
            let names: PathBuf = parsed.directory.iter().map(FileName::as_os_str).collect();
            assert_eq!((&parsed.host[..], names), (host, PathBuf::from(directory)), "{operand}");
        }
        let directory = ReceiverTarget::parse(OsStr::from_bytes(b"far:\xff")).unwrap().directory;
        assert_eq!(directory[0].as_os_str().as_bytes(), b"\xff");
    }

    #[test]
    fn other_targets_are_refused() {
        for (operand, words) in [
            (":", "give HOST"),
            (":store", "give HOST"),
            ("[::1", "give HOST"),
            ("[::1]store", "give HOST"),
            ("far:/srv", "below the receiver's"),
            ("far:..", "below the receiver's"),
            ("far:store/../..", "below the receiver's"),
            ("rsync://far/store", "below the receiver's"),
            ("far::store", "one colon"),
            ("me@far:store", "-e ssh"),
        ] {
            let why = ReceiverTarget::parse(OsStr::new(operand)).unwrap_err();
            assert!(why.contains(words), "{operand}: {why}");
        }
        assert!(ReceiverTarget::parse(OsStr::from_bytes(b"\xff:store")).is_err());
    }
}
