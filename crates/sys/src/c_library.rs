//! The C library whose functions this program calls.

/// Its name, with the version where it states one: `glibc 2.36`. musl states none, and is linked into the program.
#[cfg(target_env = "gnu")]
pub fn name() -> String {
    // SAFETY: no requirements; the text is a constant of the library.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// Its name, with the version where it states one: `glibc 2.36`. musl states none, and is linked into the program.
#[cfg(target_env = "musl")]
pub fn name() -> String {
    "musl".into()
}

/// How it came into the program.
pub const LINKAGE: &str = if cfg!(target_feature = "crt-static") { "linked statically" } else { "linked dynamically" };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_that_of_the_target() {
        let name = name();
        let (library, version) = name.split_once(' ').unwrap_or((&name, ""));
        match library {
            "glibc" => {
                assert!(version.split('.').count() >= 2, "{name}");
                assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{name}");
            }
            _ => assert_eq!(name, "musl"),
        }
    }
}
