//! The figures that reading and writing a file share: amounts, times, rates, latencies, threads.

use kelvin_core::Unit;
use kelvin_file::read_job::IoResult as Moved;
use kelvin_file::write_job::SyncMode;
use kelvin_report::{text, units};
use kelvin_stats::min_max;
use serde::Serialize;

use super::LatencyTimer;
use crate::answer::AnswerOutlet;
use crate::cli_error::CliError;
use crate::output;

/// What is printed for people: labels and texts.
pub(super) type Lines = Vec<(&'static str, String)>;

/// Columns of a label.
const LABEL_WIDTH: usize = 10;

/// The direction of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferKind {
    Read,
    Written,
    Copied,
}

/// A file and how it is accessed, for JSON.
#[derive(Serialize)]
pub(super) struct FileAccess {
    pub file: String,
    pub file_bytes: u64,
    pub file_system: String,
    pub engine: &'static str,
    pub block_bytes: usize,
    pub depth: u32,
    pub threads: u32,
}

impl FileAccess {
    /// The lines of the file and of the method: in this order of blocks, with buffers in these pages.
    pub(super) fn lines(&self, order: &str, pages: &str, figures: &TransferFigures) -> Lines {
        let Self { file, file_bytes, file_system, engine, block_bytes, depth, threads } = self;
        let block = units::exact_bytes(*block_bytes as u64);
        let concurrency = figures.concurrency(*depth, *threads);
        vec![
            ("file", format!("{}, {}, {file_system}", text::clean(file), units::bytes(*file_bytes))),
            ("way", format!("{engine}, blocks of {block}{order}{concurrency}, buffers in {pages} pages")),
        ]
    }
}

/// The figures of both, for JSON.
#[derive(Serialize)]
pub(super) struct TransferFigures {
    #[serde(skip)]
    direction: TransferKind,
    pub bytes: u64,
    pub requests: u64,
    pub passes: u64,
    pub seconds: f64,
    pub bytes_per_second: f64,
    pub requests_per_second: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub device: DeviceBytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<RequestLatency>,
    pub bytes_in_each_second: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub achieved_depth: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_thread: Vec<ThreadShare>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What the device under the file transferred meanwhile.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeviceBytes {
    Known {
        name: String,
        /// Bytes that it read and wrote, for whomever.
        read: u64,
        written: u64,
        /// Those that it read for this process.
        read_by_process: u64,
    },
    Unknown {
        reason: String,
    },
}

impl DeviceBytes {
    /// From what a device counted, if it is known, and the bytes that this process read from any.
    pub(super) fn new(
        device: &Result<(String, kelvin_file::device::DeviceTraffic), String>,
        read_by_process: u64,
    ) -> Self {
        match device {
            Ok((name, traffic)) => Self::Known {
                name: name.clone(),
                read: traffic.read,
                written: traffic.written,
                read_by_process: read_by_process.min(traffic.read),
            },
            Err(reason) => Self::Unknown { reason: reason.clone() },
        }
    }

    /// Compared with this many bytes of a file. A kernel counts what it reads for a process, and what a device reads and writes for all.
    pub(super) fn line(&self, kind: TransferKind, bytes: u64) -> String {
        let share = |byte_count: u64| units::share(byte_count as f64 / bytes.max(1) as f64);
        match self {
            Self::Known { name, read, read_by_process, .. } if kind == TransferKind::Read => {
                let (own_text, qualifier) = match read_by_process {
                    0 => (format!("{name} read nothing for this process"), ""),
                    &own_bytes => (
                        format!("{name} read {}, {} of what was read", units::bytes(own_bytes), share(own_bytes)),
                        "more ",
                    ),
                };
                match read - read_by_process {
                    0 => own_text,
                    other_bytes => format!("{own_text}; {} {qualifier}for others", units::bytes(other_bytes)),
                }
            }
            Self::Known { name, written, .. } => {
                format!("{name} wrote {} in all, {} of what was written here", units::bytes(*written), share(*written))
            }
            Self::Unknown { reason } => format!("not known: {reason}"),
        }
    }
}

#[derive(Serialize)]
pub(super) struct ThreadShare {
    bytes: u64,
    seconds: f64,
}

/// Times of single requests, in nanoseconds.
#[derive(Serialize)]
pub(super) struct RequestLatency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
    recording_cost: f64,
}

impl TransferFigures {
    pub(super) fn new(kind: TransferKind, transfer: &Moved, timer: Option<&LatencyTimer>) -> Self {
        let latency = transfer.latencies.as_ref().zip(timer).and_then(|(histogram, timer)| {
            Some(RequestLatency {
                mean: histogram.mean()?,
                p50: histogram.quantile(0.5)?,
                p90: histogram.quantile(0.9)?,
                p99: histogram.quantile(0.99)?,
                p999: histogram.quantile(0.999)?,
                max: histogram.max()?,
                recording_cost: timer.cost,
            })
        });
        let share = |&(tally, time): &(kelvin_file::IoTally, u64)| ThreadShare {
            bytes: tally.bytes,
            seconds: time as f64 / 1e9,
        };
        let is_multithreaded = transfer.threads.len() > 1;
        Self {
            direction: kind,
            bytes: transfer.total.bytes,
            requests: transfer.total.requests,
            passes: transfer.passes,
            seconds: transfer.nanoseconds as f64 / 1e9,
            bytes_per_second: transfer.rate(),
            requests_per_second: transfer.requests_per_second(),
            user_seconds: transfer.cpu_usage.user as f64 / 1e9,
            system_seconds: transfer.cpu_usage.system as f64 / 1e9,
            digest: transfer.digest.map(|digest| digest.to_string()),
            device: DeviceBytes::new(&transfer.device, transfer.cpu_usage.read_from_device),
            latency,
            bytes_in_each_second: transfer.bytes_per_second.clone(),
            achieved_depth: transfer.achieved_depth,
            by_thread: if is_multithreaded { transfer.threads.iter().map(share).collect() } else { Vec::new() },
            fairness: is_multithreaded.then(|| transfer.fairness()),
            notes: transfer.notes.clone(),
        }
    }

    /// `, depth 32 (31.4 achieved), 2 threads`.
    fn concurrency(&self, depth: u32, threads: u32) -> String {
        let depth = match self.achieved_depth {
            Some(achieved) if depth > 1 => format!(", depth {depth} ({achieved:.1} achieved)"),
            _ => String::new(),
        };
        let threads = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        format!("{depth}, {threads}")
    }

    /// What the device transferred for this file, how that compares with it, and what it did for others.
    pub(super) fn device_line(&self) -> String {
        self.device.line(self.direction, self.bytes)
    }

    /// The labelled lines for people that reading and writing share.
    pub(super) fn lines(&self) -> Lines {
        let mut lines = Lines::new();
        if let Some(digest) = &self.digest {
            let passes = if self.passes > 1 { " over all passes" } else { "" };
            lines.push(("digest", format!("{digest}{passes}")));
        }
        let cpu_seconds = self.user_seconds + self.system_seconds;
        let time = format!(
            "{}; {} of a CPU, {} of that in the kernel",
            units::seconds(self.seconds),
            units::share(cpu_seconds / self.seconds),
            units::share(if cpu_seconds > 0.0 { self.system_seconds / cpu_seconds } else { 0.0 }),
        );
        let amount = format!("{} in {}", units::bytes(self.bytes), units::plural(self.requests, "request"));
        let rate = units::value_text(self.bytes_per_second, Unit::BytesPerSecond);
        let request_rate = units::value_text(self.requests_per_second, Unit::PerSecond).replace("/s", " requests/s");
        let verb = match self.direction {
            TransferKind::Read => "read",
            TransferKind::Written => "written",
            TransferKind::Copied => "copied",
        };
        lines.extend([(verb, amount), ("time", time), ("rate", format!("{rate}, {request_rate}"))]);
        if let Some(latency) = &self.latency {
            lines.extend(["latency", ""].into_iter().zip(latency.lines(self.requests)));
        }
        if let Some(fairness) = self.fairness {
            let rates = self.by_thread.iter().map(|thread| thread.bytes as f64 / thread.seconds);
            let (low, high) = min_max(rates).unwrap_or_default();
            let range = units::span(low, high, Unit::BytesPerSecond);
            lines.push(("threads", format!("{range} each; Jain's fairness {fairness:.3}")));
        }
        lines.extend(self.notes.iter().map(|note| ("note", note.clone())));
        lines
    }
}

impl RequestLatency {
    /// Of this many requests.
    fn lines(&self, requests: u64) -> [String; 2] {
        let time = |value| units::value_text(value, Unit::Nanoseconds);
        let cost = format!("timing a request costs {} of it", time(self.recording_cost));
        if requests == 1 {
            return [format!("{}, of the only request", time(self.max)), cost];
        }
        let latencies = format!(
            "median {}, 90 % {}, 99 % {}, 99.9 % {}, longest {}",
            time(self.p50),
            time(self.p90),
            time(self.p99),
            time(self.p999),
            time(self.max),
        );
        [latencies, cost]
    }
}

/// The kind of the file system that holds a file, or why it is not known.
pub(super) fn file_system_name(path: &std::path::Path) -> String {
    kelvin_sys::fs::kind(path).map_or_else(|error| error.to_string(), |kind| kind.name())
}

/// What a sync mode promises when such a call returns, and how much of what was written is not on the device yet.
pub(super) fn sync_text(mode: SyncMode, call: &str, flush_seconds: Option<f64>, unwritten: Option<u64>) -> String {
    let promise = match (mode, flush_seconds) {
        (SyncMode::None, _) => "in memory only".to_owned(),
        (_, Some(flush)) => {
            format!("all flushed to the device at the end, in {}, included in the time", units::seconds(flush))
        }
        (SyncMode::Direct, None) => "past the page cache; the device's own cache is not flushed".to_owned(),
        _ => format!("each block was on the device when its {call} returned"),
    };
    let unwritten = match unwritten {
        Some(0) => "no dirty pages left".to_owned(),
        Some(bytes) => format!("{} still dirty when the time ended", units::bytes(bytes)),
        None => "dirty pages unknown: no cachestat".to_owned(),
    };
    format!("{}: {promise}; {unwritten}", mode.name())
}

/// Writes JSON, or labelled lines.
pub(super) fn write_result<T: Serialize>(
    outlet: AnswerOutlet,
    report: &T,
    lines: impl FnOnce() -> Lines,
) -> Result<(), CliError> {
    outlet.write(report, |out| {
        let write = |(label, text): &(_, String)| {
            output::write_wrapped(out, output::width(), &format!("{label:LABEL_WIDTH$}"), text)
        };
        lines().iter().try_for_each(write)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_for_others_are_not_of_this_file() {
        const MIB: u64 = 1 << 20;
        let line = |read, read_for_this| {
            let device = DeviceBytes::Known { name: "vda".into(), read, written: 0, read_by_process: read_for_this };
            device.line(TransferKind::Read, 200 * MIB)
        };
        assert_eq!(line(113 * MIB, 0), "vda read nothing for this process; 113 MiB for others");
        assert_eq!(line(213 * MIB, 200 * MIB), "vda read 200 MiB, 100 % of what was read; 13 MiB more for others");
        assert_eq!(line(100 * MIB, 100 * MIB), "vda read 100 MiB, 50 % of what was read");
        assert_eq!(line(0, 0), "vda read nothing for this process");
    }

    #[test]
    fn device_writes_are_of_all_processes() {
        let device = DeviceBytes::Known { name: "vda".into(), read: 9, written: 150, read_by_process: 0 };
        assert_eq!(device.line(TransferKind::Written, 100), "vda wrote 150 B in all, 150 % of what was written here");
        let unknown = DeviceBytes::Unknown { reason: "no block device".into() };
        assert_eq!(unknown.line(TransferKind::Read, 1), "not known: no block device");
    }
}
