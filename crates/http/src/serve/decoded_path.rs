//! Paths of targets, decoded: what a client may name below the root, and nothing else.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// A path below the root, decoded: names joined by single slashes, none of which is `.` or `..`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedPath {
    /// The names; empty for the root itself.
    path: Vec<u8>,
    /// Whether the client meant a directory: the path ended with a slash.
    pub is_directory: bool,
}

impl DecodedPath {
    /// Decodes a path that begins with a slash. Each name is decoded once, after the path was taken apart at its slashes, so that
    /// an encoded slash, dot or percent sign never means anything but a byte of a name.
    ///
    /// `None` is a path that names nothing: a wrong encoding; a name that no file has, with a slash or a zero byte; or an attempt to
    /// leave the root, by `.` or `..`.
    pub fn decode(path: &str) -> Option<Self> {
        let mut target = Self { path: Vec::with_capacity(path.len()), is_directory: path.ends_with('/') };
        for segment in path.split('/').filter(|part| !part.is_empty()) {
            if !target.path.is_empty() {
                target.path.push(b'/');
            }
            let begin = target.path.len();
            target.path.extend(is_percent_encoded(segment).then(|| percent_encoding::percent_decode_str(segment))?);
            let name = &target.path[begin..];
            if name == b"." || name == b".." || name.iter().any(|&byte| byte == 0 || byte == b'/') {
                return None;
            }
        }
        Some(target)
    }

    /// Relative to the root; `.` for the root itself.
    pub fn path(&self) -> &Path {
        let path: &[u8] = if self.path.is_empty() { b"." } else { &self.path };
        Path::new(OsStr::from_bytes(path))
    }

    /// The last name.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// What is beside it, by a name that has this ending as well.
    pub(crate) fn with_ending(&self, ending: &str) -> Self {
        Self { path: [&self.path, ending.as_bytes()].concat(), is_directory: self.is_directory }
    }

    /// Whether its first name is this one.
    pub fn begins_with(&self, name: &[u8]) -> bool {
        self.path.split(|&byte| byte == b'/').next() == Some(name)
    }

    /// As the path of a directory in a header field: encoded, with one slash at either end, so that it leads to this server
    /// with any names in it.
    pub fn location(&self) -> String {
        let mut location = String::from("/");
        for name in self.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            percent_encode(name, &mut location);
            location.push('/');
        }
        location
    }
}

/// Whether two hexadecimal digits follow each percent sign (RFC 3986, section 2.1).
pub fn is_percent_encoded(text: &str) -> bool {
    let begins_with_digits =
        |sequence: &[u8]| sequence.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    text.as_bytes().split(|&byte| byte == b'%').skip(1).all(begins_with_digits)
}

/// All but the unreserved characters (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Appends a name with all but unreserved characters encoded.
pub fn percent_encode(name: &[u8], out: &mut String) {
    out.extend(percent_encoding::percent_encode(name, RESERVED));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_text(path: &str) -> Option<String> {
        DecodedPath::decode(path).map(|target| target.path().to_string_lossy().into_owned())
    }

    #[test]
    fn path_is_decoded_once_and_merged() {
        for (path, expected) in [
            ("/", "."),
            ("///", "."),
            ("/a", "a"),
            ("//a//b/", "a/b"),
            ("/a%20b", "a b"),
            ("/%252e%252e", "%2e%2e"),
            ("/a+b", "a+b"),
            ("/...", "..."),
            ("/..a", "..a"),
            ("/%c3%a9", "é"),
            (r"/a\..\b", r"a\..\b"),
        ] {
            assert_eq!(decode_text(path).as_deref(), Some(expected), "{path}");
        }
        assert!(DecodedPath::decode("/a/").unwrap().is_directory && !DecodedPath::decode("/a").unwrap().is_directory);
    }

    #[test]
    fn unservable_path_is_invalid() {
        for path in [
            "/..",
            "/../",
            "/a/../b",
            "/.",
            "/./a",
            "/%2e%2e/a",
            "/.%2E/a",
            "/%2e",
            "/a%2fb",
            "/..%2fa",
            "/a%00",
            "/%",
            "/%4",
            "/%zz",
            "/%+1",
            "/a/%2E%2e",
        ] {
            assert_eq!(decode_text(path), None, "{path}");
        }
    }

    #[test]
    fn location_stays_on_server() {
        let location = |path| DecodedPath::decode(path).unwrap().location();
        assert_eq!(location("/"), "/");
        assert_eq!(location("//evil.example/a b"), "/evil.example/a%20b/");
        assert_eq!(location("/a%0d%0ab"), "/a%0D%0Ab/");
        assert_eq!(location(r"/\evil.example"), "/%5Cevil.example/");
    }

    proptest! {
        #[test]
        fn decoded_path_stays_below_root(path in "(/|\\.|%2e|%2f|%5c|%00|%25|a|%)*") {
            if let Some(target) = DecodedPath::decode(&format!("/{path}")) {
                let mut names = target.path().components();
                prop_assert!(names.all(|name| matches!(name, std::path::Component::Normal(_) | std::path::Component::CurDir)));
                prop_assert!(!target.path().to_string_lossy().contains('\0'));
            }
        }

        #[test]
        fn percent_encoding_round_trips(name in "[^/\0]+") {
            prop_assume!(name != "." && name != "..");
            let mut path = String::from("/");
            percent_encode(name.as_bytes(), &mut path);
            prop_assert_eq!(decode_text(&path), Some(name));
        }
    }
}
