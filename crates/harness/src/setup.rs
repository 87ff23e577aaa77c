//! The setup of a run: checked once, before the first round, and passed to the process of every round.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use kelvin_core::{ClockInfo, units};
use serde::{Deserialize, Serialize};

use crate::probe_error::ProbeError;

/// What a probe needs besides its case. The machine is not part of it: cases are chosen, and predictions made, outside
/// the probe's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The clock, calibrated.
    pub clock: ClockInfo,
    /// CPUs.
    pub placement: Placement,
    /// Whether canaries are read between batches.
    pub canaries: bool,
    /// Whether to run under SCHED_FIFO.
    pub realtime: bool,
    /// cpu.stat of the cgroup, where throttling is counted.
    pub throttle_file: Option<String>,
    /// Directory for the files of probes.
    pub scratch: OsString,
    /// A second such directory on a network file system, if one was named.
    pub remote_directory: Option<OsString>,
    /// Maximum bytes that all rounds together may write to files.
    pub write_limit: u64,
    /// The agent of another host, if one was named.
    pub agent: Option<AgentEndpoint>,
    /// Socket options of TCP streams.
    pub sockets: TcpOptions,
    /// Nanoseconds that the timing thread spins before each operation that is timed by itself: for so long the other end of a pair
    /// has been idle.
    pub idle_before_operation: u64,
    /// The directories of control groups that the process of a round enters, where not those of its parent: in version 1 one for each
    /// hierarchy.
    pub cgroups: Vec<OsString>,
    /// Whether the process of a round allows speculative store bypass, where not as its parent does.
    pub allow_store_bypass: bool,
    /// Environment variables of the process of a round, besides those of its parent.
    pub environment: Vec<(String, String)>,
}

/// The CPUs that a run uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Where single-CPU probes run.
    pub cpu: u32,
    /// Where the partner of a pair runs, if there is a second CPU.
    pub partner: Option<u32>,
    /// CPUs of multi-CPU probes.
    pub allowed: Vec<u32>,
}

/// An agent on a peer that probes measure against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEndpoint {
    /// Its address and port.
    pub address: std::net::SocketAddr,
    /// The file with its secret. The secret itself is in no request and no run.
    pub token_file: Option<OsString>,
}

/// Socket options of TCP streams, where not the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpOptions {
    /// Congestion control, by name.
    pub congestion_control: Option<String>,
    /// Bytes in each of a socket's two buffers.
    pub buffers: Option<u32>,
    /// Whether they hold also for a stream that otherwise takes all from the system: in an experiment on such a stream.
    pub override_system: bool,
}

/// The name of the file in the scratch directory that counts the bytes that rounds have written.
const QUOTA_FILE: &str = "written";

impl Setup {
    /// Reserves this many bytes to write to files: all rounds of a run, and what is written before the first, write no more than the limit.
    ///
    /// # Errors
    /// A reason to skip, if it would exceed the limit.
    pub fn reserve_write(&self, bytes: u64) -> Result<(), ProbeError> {
        let path = Path::new(&self.scratch).join(QUOTA_FILE);
        let counter_error = |error: std::io::Error| {
            ProbeError::fail(format!("cannot update the write counter {}: {error}", path.display()))
        };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(counter_error)?;
        // Other rounds may be writing: the lock ends with the file.
        file.lock().map_err(counter_error)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(counter_error)?;
        let written_bytes: u64 = if text.is_empty() {
            0
        } else {
            text.trim().parse().map_err(|_| ProbeError::fail("the write counter is corrupt"))?
        };
        let total = written_bytes.saturating_add(bytes);
        if total > self.write_limit {
            let [requested, written, limit] = [bytes, written_bytes, self.write_limit].map(units::bytes);
            return Err(ProbeError::skip(format!(
                "needs to write {requested} more, but {written} of the {limit} that this run may write are used up; raise \
                 --write-limit"
            )));
        }
        file.rewind().map_err(counter_error)?;
        // The number never gets shorter, so no digits of an older one remain.
        write!(file, "{total}").map_err(counter_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Setup {
        /// A setup of a test, timed by a script of one tick a nanosecond.
        pub(crate) fn scripted(cpu: u32) -> Self {
            let clock = ClockInfo {
                kind: kelvin_core::ClockKind::Scripted,
                hertz: 1e9,
                relative_error: 0.0,
                pair_nanoseconds: 0.0,
                multiply_cycles: kelvin_core::Fact::known(3, "a test"),
                note: None,
                source_before: None,
                source_after: None,
            };
            Self {
                clock,
                placement: Placement { cpu, partner: None, allowed: vec![cpu] },
                canaries: true,
                realtime: false,
                throttle_file: None,
                scratch: OsString::new(),
                remote_directory: None,
                write_limit: 0,
                agent: None,
                sockets: TcpOptions::default(),
                idle_before_operation: 0,
                cgroups: Vec::new(),
                allow_store_bypass: false,
                environment: Vec::new(),
            }
        }
    }

    #[test]
    fn reservations_stop_at_limit() {
        let directory = std::env::temp_dir().join(format!("kelvin-ledger-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let setup = Setup { scratch: directory.clone().into(), write_limit: 1000, ..Setup::scripted(0) };
        assert_eq!(setup.reserve_write(9), Ok(()));
        assert_eq!(setup.reserve_write(900), Ok(()));
        assert!(
            matches!(setup.reserve_write(92), Err(ProbeError::Skip(reason)) if reason.0.contains("909 B of the 1000 B"))
        );
        assert_eq!(setup.reserve_write(91), Ok(()));
        assert_eq!(std::fs::read_to_string(directory.join(QUOTA_FILE)).unwrap(), "1000");
        std::fs::remove_dir_all(directory).unwrap();
        let setup = Setup { scratch: "/no such directory".into(), ..setup };
        assert!(matches!(setup.reserve_write(1), Err(ProbeError::Fail(_))));
    }
}
