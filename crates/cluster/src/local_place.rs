//! Where this process runs, for the first message of its rank.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::protocol::{Greeting, PROGRAM, Place};

/// The greeting of this process.
///
/// # Errors
/// Those of reading `/proc`, with the file.
pub fn greeting() -> io::Result<Greeting> {
    let hostname = kelvin_machine::host_name(Path::new("/"));
    let place = Place {
        host: kelvin_machine::host(Path::new("/")).get().cloned(),
        hostname: hostname.get().cloned().ok_or_else(|| io::Error::other(hostname.source_or_reason()))?,
        boot_id: read("/proc/sys/kernel/random/boot_id")?,
        network_namespace: with_path("/proc/self/ns/net", std::fs::metadata("/proc/self/ns/net"))?.ino(),
        cpus: kelvin_sys::cpu::affinity()?,
        online_cpus: kelvin_machine::online_cpus(Path::new("/")).get().map(Vec::len),
    };
    Ok(Greeting { program: PROGRAM.into(), place })
}

fn read(path: &str) -> io::Result<String> {
    with_path(path, std::fs::read_to_string(path)).map(|text| text.trim().to_owned())
}

fn with_path<T>(path: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_that_of_this_process() {
        let Greeting { program, place } = greeting().unwrap();
        assert_eq!(program, PROGRAM);
        assert_eq!(place.boot_id.len(), 36);
        assert!(!place.cpus.is_empty() && place.network_namespace > 0 && !place.hostname.is_empty());
    }
}
