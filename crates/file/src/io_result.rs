//! The result of finished work on a file.

use std::collections::HashSet;

use kelvin_stats::Histogram;
use kelvin_sys::usage::{Usage, UsageScope, read_usage};

use crate::cache::Residency;
use crate::device::{Device, DeviceTraffic};
use crate::digest::Digest;
use crate::observer::IoTally;
use crate::reader_threads::ThreadResult;

/// What was read or written, and all figures about it.
#[derive(Clone, Debug)]
pub struct IoResult {
    /// Bytes and requests of all threads.
    pub total: IoTally,
    /// Nanoseconds from the start of the first thread to the end of the last, and of the work that follows it.
    pub nanoseconds: u64,
    /// Each thread's own bytes and requests, and its nanoseconds.
    pub threads: Vec<(IoTally, u64)>,
    /// Passes that every thread has completed.
    pub passes: u64,
    /// The digest, if it was wanted; over several passes, of each byte as often as it was read.
    pub digest: Option<Digest>,
    /// Latencies of single requests, if they were wanted.
    pub latencies: Option<Histogram>,
    /// Bytes of each second from the start; the last second may be a part of one.
    pub bytes_per_second: Vec<u64>,
    /// Resources of the process: time in user mode and in the kernel, switches, faults.
    pub cpu_usage: Usage,
    /// What was in memory before.
    pub before: Residency,
    /// What was in memory after.
    pub after: Residency,
    /// What the device counted meanwhile, for this job and for its other users.
    pub device: Result<(String, DeviceTraffic), String>,
    /// Mean queue depth, summed over threads, where the way has several requests in flight.
    pub achieved_depth: Option<f64>,
    /// What was done that the settings do not state.
    pub notes: Vec<String>,
}

impl IoResult {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.total.bytes as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }

    /// Requests a second.
    pub fn requests_per_second(&self) -> f64 {
        self.total.requests as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }

    /// How evenly the threads were served: see [`jain_fairness`].
    pub fn fairness(&self) -> f64 {
        let rates: Vec<f64> =
            self.threads.iter().map(|(tally, time)| tally.bytes as f64 / (*time).max(1) as f64).collect();
        jain_fairness(&rates)
    }

    /// Bytes and requests of all threads together.
    pub(crate) fn from_threads(
        threads: Vec<ThreadResult>,
        resources: ResourceDelta,
        (before, after): (Residency, Residency),
    ) -> Self {
        let start = threads.iter().map(|thread| thread.start).min().unwrap_or(0);
        let end = threads.iter().map(|thread| thread.end).max().unwrap_or(start);
        let mut result = Self {
            total: IoTally::default(),
            nanoseconds: end - start,
            threads: threads.iter().map(|thread| (thread.tally, thread.end - thread.start)).collect(),
            passes: threads.iter().map(|thread| thread.passes).min().unwrap_or(0),
            digest: None,
            latencies: None,
            bytes_per_second: Vec::new(),
            cpu_usage: resources.usage,
            before,
            after,
            device: resources.device,
            achieved_depth: None,
            notes: Vec::new(),
        };
        for thread in threads {
            result.total.bytes += thread.tally.bytes;
            result.total.requests += thread.tally.requests;
            if let Some(digest) = thread.digest {
                result.digest.get_or_insert_default().merge(digest);
            }
            if let Some(histogram) = &thread.latencies {
                result.latencies.get_or_insert_with(Histogram::new).merge(histogram);
            }
            result.bytes_per_second.resize(result.bytes_per_second.len().max(thread.series.len()), 0);
            result.bytes_per_second.iter_mut().zip(&thread.series).for_each(|(result, bytes)| *result += bytes);
            if let Some(depth) = thread.achieved_depth {
                *result.achieved_depth.get_or_insert(0.0) += depth;
            }
            result.notes.extend(thread.notes);
        }
        let mut unique_notes = HashSet::new();
        result.notes.retain(|note| unique_notes.insert(note.clone()));
        result
    }
}

/// The counters of this process and of a device, read before some work and after it.
pub(crate) struct UsageStart {
    usage: Usage,
    device: Result<(Device, DeviceTraffic), String>,
}

/// The difference of the counters between the two readings.
pub(crate) struct ResourceDelta {
    usage: Usage,
    pub(crate) device: Result<(String, DeviceTraffic), String>,
}

impl UsageStart {
    /// The first reading.
    pub(crate) fn now(device: Result<Device, String>) -> Self {
        let device = device.and_then(|device| match device.traffic() {
            Ok(moved) => Ok((device, moved)),
            Err(error) => Err(error.to_string()),
        });
        Self { usage: read_usage(UsageScope::Process), device }
    }

    /// The last reading.
    pub(crate) fn finish(self) -> ResourceDelta {
        let usage = read_usage(UsageScope::Process).since(self.usage);
        let device = self.device.and_then(|(device, before)| {
            let moved = device.traffic().map_err(|error| error.to_string())?.since(before);
            Ok((device.name, moved))
        });
        ResourceDelta { usage, device }
    }
}

/// Jain's fairness index of each one's share: 1 if all had the same, 1/n if one had all (Jain, Chiu, Hawe 1984).
pub fn jain_fairness(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    if squares == 0.0 { 1.0 } else { sum * sum / (rates.len() as f64 * squares) }
}
