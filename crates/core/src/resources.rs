//! What a host, and a server or client on it, have used until now.
//!
//! A look holds counters that only grow, and a few figures of the moment. The difference of two looks at one host and process is
//! what was used between them. What the kernel or the user's rights do not give is `None`, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text::is_visible;

/// Most bytes of a look as JSON: one of 1,024 threads has 50 KB.
pub const MAX_SNAPSHOT_BYTES: usize = 1 << 20;
/// Most entries of a list or map in it.
const MAX_ENTRIES: usize = 4096;
/// Most bytes of a name: the kernel's names of disks have at most 31, of interfaces 15.
const MAX_DEVICE_NAME_BYTES: usize = 64;
/// No figure is larger: 2^63 nanoseconds are 292 years, and 2^63 bytes more than a disk moves in them.
const MAX_FIGURE: f64 = 9.3e18;

/// A host and a process on it, as they were found at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceSnapshot {
    /// When, in nanoseconds of that host's monotonic clock.
    pub at: f64,
    /// The server or client, with its threads and the processes that it has started.
    pub process: ProcessStats,
    /// The host's CPUs, and what the process may use of them.
    pub cpu: CpuStats,
    /// The host's disks that have done anything since it started. One that is missing in the earlier of two looks had done nothing.
    pub disks: Vec<DiskStats>,
    /// The network interfaces that the process sees.
    pub links: Vec<LinkStats>,
    /// TCP of the network namespace of the process.
    pub tcp: TcpStats,
    /// The host's memory.
    pub memory: MemoryStats,
    /// For how long tasks of the host have waited for something that they needed to go on.
    pub pressure: PressureStall,
    /// What a server knows of itself; `None` of a client and of another's server.
    pub server: Option<ServerStats>,
}

/// A process, with its threads and all processes that it has started and they in turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStats {
    /// Nanoseconds of CPU time in user mode, those of ended processes included that were waited for (proc_pid_stat(5), in clock ticks:
    /// 10 ms).
    pub user: f64,
    /// Like `user`, in the kernel.
    pub system: f64,
    /// Nanoseconds of CPU time of each thread by its number, at most 1,024 of them; empty where the kernel does not count them
    /// (/proc/PID/task/TID/schedstat). The one that grew most is the busiest.
    pub thread_cpu: BTreeMap<u32, f64>,
    /// Nanoseconds that its threads were runnable without a CPU, added up; a quota that is spent counts as well (schedstat).
    pub without_cpu: Option<f64>,
    /// How often its threads were given a CPU: as many context switches as there were to them (schedstat).
    pub switches: Option<u64>,
    /// Bytes of memory that hold no file's contents, now: RssAnon and RssShmem of proc_pid_status(5). What processes share is
    /// counted for each of them.
    pub memory: u64,
    /// Threads, now.
    pub threads: u32,
    /// Processes, now.
    pub processes: u32,
    /// Bytes that it had read from devices (`read_bytes` of proc_pid_io(5), which another user may not read).
    pub read_bytes: Option<u64>,
    /// Bytes that it made dirty in the page cache, or wrote past it (`write_bytes`).
    pub written_bytes: Option<u64>,
}

/// The CPUs of a host, added up, and what the process may use of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuStats {
    /// Nanoseconds in user mode (proc_stat(5), in clock ticks: 10 ms).
    pub user: f64,
    /// Nanoseconds in the kernel, interrupts included.
    pub system: f64,
    /// Nanoseconds in which a CPU was wanted and the hypervisor gave it to others.
    pub steal: f64,
    /// Nanoseconds idle, or waiting for a disk.
    pub idle: f64,
    /// CPUs of the host.
    pub cpus: u32,
    /// CPUs that the process may use: those that it may run on, or its quota if that is less.
    pub allowed: f64,
    /// Nanoseconds for which the CPUs that it may run on did anything, for whomever, and for which they were idle; `None` where the kernel does not
    /// tell.
    pub allowed_busy: Option<f64>,
    /// See there.
    pub allowed_idle: Option<f64>,
    /// Its quota in CPUs: the tightest of its control group and those above.
    pub quota: Option<f64>,
    /// Whether its control group can be seen, so that none is no quota.
    pub is_quota_known: bool,
    /// Nanoseconds for which quotas kept the process's control group and those above from running (cpu.stat).
    pub throttling: Option<f64>,
    /// Periods of these quotas in which that happened.
    pub throttled_periods: Option<u64>,
    /// Periods of these quotas in which the groups ran at all.
    pub periods: Option<u64>,
    /// Tasks of the host that are running or runnable, now (`procs_running`).
    pub running: u32,
}

/// A disk: a whole one, never a partition (/proc/diskstats).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskStats {
    /// Its name: `vda`, `nvme0n1`, `loop0`.
    pub name: String,
    /// Reads that were completed.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes that were completed.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Nanoseconds with a request in flight: near 100 % long before a disk is full that serves several at once.
    pub busy: f64,
    /// Nanoseconds of all requests in flight added up: over the time between two looks, their mean number.
    pub queued: f64,
    /// Whether the directory that is served lies on it.
    pub holds_root: bool,
    /// Reads that the control group of the process asked it for, where that group is not everybody's.
    pub reads_of_group: Option<u64>,
}

/// A network interface (proc_pid_net(5), `dev`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStats {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets dropped, in either direction.
    pub dropped: u64,
    /// The speed that its driver advertises, in bits a second; none of an interface without a device.
    pub speed: Option<u64>,
    /// Bits a second to which queueing disciplines hold all that it sends.
    pub shaped: Option<u64>,
    /// Whether it leads to the same host.
    pub is_loopback: bool,
}

/// TCP (/proc/net/snmp and netstat).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpStats {
    /// Segments sent, retransmitted ones left out.
    pub sent_segments: u64,
    /// Segments retransmitted.
    pub retransmitted_segments: u64,
    /// Connections refused a place because the queue of a listening socket was full.
    pub listen_overflows: u64,
    /// Connection requests dropped by listening sockets for that or another reason.
    pub listen_drops: u64,
    /// Sockets in use, now (/proc/net/sockstat); `None` where the kernel does not tell.
    pub sockets: Option<u64>,
}

/// Memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Bytes available without swapping, now (proc_meminfo(5)).
    pub available: u64,
    /// Bytes of files in memory, now.
    pub file_cache: u64,
    /// Bytes read from all block devices, for the page cache or past it (`pgpgin` of /proc/vmstat).
    pub paged_in: u64,
    /// Page faults that waited for a device (`pgmajfault`).
    pub major_faults: u64,
    /// Pages of files that were read again soon after their memory was given up (`workingset_refault_file`); `None` where the kernel does
    /// not count them.
    pub refaults: Option<u64>,
}

/// Nanoseconds in which at least one task of the host waited (/proc/pressure, `some`), or all that had work did (`full`, which has no
/// meaning for the CPUs of a host).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureStall {
    /// For a CPU.
    pub cpu: Option<f64>,
    /// For a disk.
    pub io: Option<f64>,
    /// All of them for a disk.
    pub io_full: Option<f64>,
    /// For memory.
    pub memory: Option<f64>,
    /// All of them for memory.
    pub memory_full: Option<f64>,
}

/// What a server knows of its requests. Requests for looks, and their connections, are not among them.
///
/// The integrals are added up at each change, except for answers that are on their way: these are sampled at random moments, about 100
/// times a second. Of a figure that is as often one as the other of 0 and 1, the mean over `n` samples has a standard error of
/// 0.5 / sqrt(n).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// When, in nanoseconds of that host's monotonic clock: later than the rest of a look where the server had to wait for a CPU.
    pub at: f64,
    /// Requests whose answers were handed to the kernel to the last byte.
    pub requests: u64,
    /// Bytes of bodies that were handed to the kernel.
    pub bytes: u64,
    /// Bytes of those that the clients' kernels have not acknowledged, now, with heads.
    pub unacknowledged: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused: u64,
    /// Request-nanoseconds: the integral over time of connections with a request in flight, from when its first bytes have arrived
    /// until the last byte of the answer has arrived, as far as the server can know it by acknowledgements.
    pub in_flight: f64,
    /// Connections with a request in flight, now.
    pub in_flight_now: u32,
    /// The integral over time of connections with a request in service: from when it is whole until the last byte of its answer was
    /// handed to the kernel.
    pub service_integral: f64,
    /// Connections that it serves at one time, where the model bounds them; others wait.
    pub workers: Option<u32>,
    /// The integral over time of connections that a worker serves, with a request or between two.
    pub held_integral: f64,
    /// Nanoseconds, added up over connections, that TCP had something to send or not acknowledged.
    pub sending: f64,
    /// Of these, when the client's receive window was full.
    pub window_limited: f64,
    /// Of these, when TCP could have sent more and the send buffer had no more for it.
    pub send_buffer_limited: f64,
    /// Connections that wait to be accepted.
    pub accept_queue: ListenQueue,
    /// Samples so far.
    pub samples: u64,
    /// Thread-nanoseconds: the integral over time of the server's own threads in uninterruptible sleep, at most 256 of them, by samples.
    pub blocked: f64,
    /// Nanoseconds for which the thread that takes the samples was runnable without a CPU: no request waited for that. `None` where
    /// the kernel does not count it.
    pub sampling_without_cpu: Option<f64>,
    /// The congestion control of its connections, by which it sends. `None` where the kernel does not tell.
    pub congestion_control: Option<String>,
}

/// A queue of a listening socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenQueue {
    /// Connections in it, now.
    pub now: u32,
    /// Most connections in it.
    pub max: u32,
}

/// Why bytes are no look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSnapshot(String);

impl std::fmt::Display for InvalidSnapshot {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for InvalidSnapshot {}

impl ResourceSnapshot {
    /// The one that another host sent as JSON. Its sender is not trusted: figures are finite and not negative, names can be shown, and
    /// no list is longer than a host's could be.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, InvalidSnapshot> {
        if bytes.len() > MAX_SNAPSHOT_BYTES {
            return Err(InvalidSnapshot(format!(
                "it has {} bytes, and a snapshot at most {MAX_SNAPSHOT_BYTES}",
                bytes.len()
            )));
        }
        let value: Value = serde_json::from_slice(bytes).map_err(invalid_snapshot)?;
        check_value(&value)?;
        Self::deserialize(value).map_err(invalid_snapshot)
    }
}

/// The reason without what it quotes.
fn invalid_snapshot(error: serde_json::Error) -> InvalidSnapshot {
    InvalidSnapshot(crate::text::escape_invisible(&error.to_string()).chars().take(200).collect())
}

fn check_value(value: &Value) -> Result<(), InvalidSnapshot> {
    let refusal = |reason: &str| Err(InvalidSnapshot(reason.to_owned()));
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|number| (0.0..=MAX_FIGURE).contains(&number)) => Ok(()),
        Value::Number(_) => refusal("a figure is negative or absurdly large"),
        Value::String(text) if text.len() > MAX_DEVICE_NAME_BYTES || !text.chars().all(is_visible) => {
            refusal("a name is invalid")
        }
        Value::Array(list) if list.len() > MAX_ENTRIES => refusal("a list is too long"),
        Value::Object(map) if map.len() > MAX_ENTRIES => refusal("a list is too long"),
        Value::Array(list) => list.iter().try_for_each(check_value),
        Value::Object(map) => map.values().try_for_each(check_value),
        Value::String(_) | Value::Bool(_) | Value::Null => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn snapshot() -> ResourceSnapshot {
        let disk = DiskStats { name: "vda".into(), read_bytes: 1 << 40, holds_root: true, ..DiskStats::default() };
        let server =
            ServerStats { in_flight: 1.5e9, accept_queue: ListenQueue { now: 1, max: 128 }, ..ServerStats::default() };
        let thread_cpu = BTreeMap::from([(7, 5.0), (4_194_304, 0.125)]);
        ResourceSnapshot {
            at: 123_456_789_012.0,
            process: ProcessStats { thread_cpu, without_cpu: Some(3.0), ..ProcessStats::default() },
            disks: vec![disk],
            links: vec![LinkStats { name: "lo".into(), is_loopback: true, ..LinkStats::default() }],
            server: Some(server),
            ..ResourceSnapshot::default()
        }
    }

    #[test]
    fn snapshot_round_trips_json() {
        let json = crate::json::to_string(&snapshot()).unwrap();
        assert_eq!(ResourceSnapshot::from_json(json.as_bytes()), Ok(snapshot()));
    }

    #[test]
    fn impossible_figures_are_refused() {
        let json = crate::json::to_string(&snapshot()).unwrap();
        let error_after = |from: &str, to: &str| {
            assert!(json.contains(from), "{from}");
            ResourceSnapshot::from_json(json.replace(from, to).as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(error_after("123456789012.0", "-1.0"), "a figure is negative or absurdly large");
        assert_eq!(error_after("123456789012.0", "1e300"), "a figure is negative or absurdly large");
        assert!(error_after("123456789012.0", "1e999").contains("out of range"));
        assert!(error_after("123456789012.0", "null").contains("invalid type: null"));
        assert_eq!(error_after("\"vda\"", "\"v\\u001bda\""), "a name is invalid");
        assert_eq!(error_after("\"vda\"", &format!("\"{}\"", "a".repeat(65))), "a name is invalid");
        assert_eq!(error_after("\"disks\":[", &format!("\"disks\":[{}", "0,".repeat(5000))), "a list is too long");
        assert!(error_after("\"now\":1", "\"now\":4294967296").contains("4294967296"));
        assert!(error_after("\"process\":", "\"program\":").contains("missing field"));
        assert!(
            ResourceSnapshot::from_json(&[b' '; MAX_SNAPSHOT_BYTES + 1]).unwrap_err().to_string().contains("bytes")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_snapshot_or_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ResourceSnapshot::from_json(&bytes).is_err());
        }

        #[test]
        fn changed_byte_gives_valid_snapshot_or_error(index in 0_usize..700, byte in any::<u8>()) {
            let mut json = crate::json::to_string(&snapshot()).unwrap().into_bytes();
            let length = json.len();
            json[index % length] = byte;
            if let Ok(changed) = ResourceSnapshot::from_json(&json) {
                prop_assert!((0.0..=MAX_FIGURE).contains(&changed.at));
            }
        }
    }
}
