//! The name of a file that arrives: one component of a path, any bytes but those that would lead elsewhere.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Most bytes of a name: a path of this system has no longer one (PATH_MAX of limits.h, with its NUL). Most file systems take 255 bytes.
/// ExFAT, NTFS and CIFS take 255 units of UTF-16, which are up to 765 bytes here, and some of FUSE more.
const MAX_NAME_BYTES: usize = 4095;

/// A name. It is sent as bytes, as file systems have it: not every name is UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct FileName(OsString);

impl FileName {
    /// The name that a file is sent by: the last component of its path.
    ///
    /// # Errors
    /// A path that ends in `..` or `/`.
    pub fn from_path(path: &Path) -> Result<Self, &'static str> {
        path.file_name().ok_or("it is the path of a directory")?.as_bytes().to_owned().try_into()
    }

    /// As the system has it.
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for FileName {
    type Error = &'static str;

    fn try_from(bytes: Vec<u8>) -> Result<Self, &'static str> {
        match &bytes[..] {
            [] => Err("an empty name"),
            b"." | b".." => Err("a name that stands for a directory"),
            name if name.len() > MAX_NAME_BYTES => Err("a name of more than 4095 bytes"),
            path if path.contains(&b'/') => Err("a name with a slash"),
            text if text.contains(&0) => Err("a name with a NUL byte"),
            _ => Ok(Self(OsString::from_vec(bytes))),
        }
    }
}

impl From<FileName> for Vec<u8> {
    fn from(name: FileName) -> Self {
        name.0.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_one_component_of_any_bytes() {
        for bytes in
            [&b"a"[..], b"a b", b".hidden", b"...", b"\xff\xfe", b"new\nline", b"-", &[b'x'; 255], &[b'x'; 4095]]
        {
            let name = FileName::try_from(bytes.to_vec()).unwrap();
            let sent = postcard::to_stdvec(&name).unwrap();
            assert_eq!(sent, postcard::to_stdvec(bytes).unwrap(), "a length, and the bytes as they are");
            assert_eq!(postcard::from_bytes::<FileName>(&sent).unwrap().as_os_str().as_bytes(), bytes);
        }
        for bytes in [&b""[..], b".", b"..", b"/", b"/etc/x", b"../x", b"a/b", b"a/", b"a\0b", &[b'x'; 4096]] {
            assert!(FileName::try_from(bytes.to_vec()).is_err(), "{bytes:?}");
            assert!(postcard::from_bytes::<FileName>(&postcard::to_stdvec(bytes).unwrap()).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn file_name_is_last_path_component() {
        let name = |path: &str| FileName::from_path(Path::new(path)).map(|name| name.as_os_str().to_owned());
        assert_eq!(name("/srv/data/a b"), Ok("a b".into()));
        assert_eq!(name("data"), Ok("data".into()));
        assert!(name("..").is_err() && name("/").is_err() && name("").is_err());
    }
}
