//! What limited a job: its own rate, the CPU, or waiting for requests, and how that follows from its figures.

use kelvin_core::Unit;
use kelvin_file::copy::MIN_BOTTLENECK_SHARE;
use kelvin_file::workload::{Job, JobResult};
use kelvin_report::units;
use kelvin_sys::uring::IoDirection;
use serde::Serialize;

/// The share of the rate that was asked for from which on it was reached: the first and the last request take a part of the time.
const MIN_REACHED_SHARE: f64 = 0.98;

/// The rates that jobs were asked for, all together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateDemand {
    bytes: [Option<u64>; 2],
    requests: [Option<u64>; 2],
}

const DIRECTIONS: [IoDirection; 2] = [IoDirection::Read, IoDirection::Write];

impl RateDemand {
    /// Of jobs that all have one.
    pub(super) fn of(jobs: &[&Job]) -> Self {
        let sum = |limit: &dyn Fn(&Job) -> Option<u64>| {
            jobs.iter().try_fold(0u64, |sum, job| Some(sum.saturating_add(limit(job)?)))
        };
        let of = |direction| {
            let bytes = sum(&|job| job.rate.of(direction).bytes_per_second);
            (bytes, sum(&|job| job.rate.of(direction).requests_per_second))
        };
        let [read, write] = DIRECTIONS.map(of);
        Self { bytes: [read.0, write.0], requests: [read.1, write.1] }
    }

    fn is_any(self) -> bool {
        self.bytes.iter().chain(&self.requests).any(Option::is_some)
    }

    /// Whether some direction has its rate: then the others wait for its turn.
    fn is_reached(self, result: &JobResult) -> bool {
        let reaches =
            |rate: f64, limit: Option<u64>| limit.is_some_and(|limit| rate >= MIN_REACHED_SHARE * limit as f64);
        DIRECTIONS.into_iter().enumerate().any(|(number, direction)| {
            reaches(result.bytes_per_second(direction).value, self.bytes[number])
                || reaches(result.requests_per_second(direction).value, self.requests[number])
        })
    }
}

/// What limited a job, for JSON.
#[derive(Serialize)]
pub(super) struct JobLimit {
    name: &'static str,
    /// Of the threads' time.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    pub(super) text: String,
}

impl JobLimit {
    /// From what the threads' time was spent on.
    pub(super) fn find(result: &JobResult, demand: RateDemand) -> Self {
        if result.total().requests == 0 {
            let text = "nothing counted: the job ended before its ramp did, or it was too short".to_owned();
            return Self { name: "none", share: None, text };
        }
        if demand.is_any() && demand.is_reached(result) {
            return Self { name: "rate", share: None, text: "the rate that was asked for".to_owned() };
        }
        let below = if demand.is_any() { "below the rate that was asked for: " } else { "" };
        let limit = Self::by_time(result);
        Self { text: format!("{below}{}", limit.text), ..limit }
    }

    /// What took most of the threads' time.
    fn by_time(result: &JobResult) -> Self {
        let total = result.thread_time.max(1) as f64;
        let share = |nanoseconds: f64| (nanoseconds / total).clamp(0.0, 1.0);
        let (cpu, queue) = (share(result.cpu_time as f64), share(result.run_queue.unwrap_or(0) as f64));
        let periodic = result.flushes.mean().unwrap_or(0.0) * result.flushes.count() as f64;
        let flush = share(periodic + result.end_flush.unwrap_or(0) as f64);
        let waiting = (1.0 - cpu - queue - flush).max(0.0);
        let parts = [("cpu", cpu), ("other_work", queue), ("flush", flush), ("waiting", waiting)];
        let (name, top) = parts.into_iter().fold(parts[0], |top, part| if part.1 > top.1 { part } else { top });
        let text = format!("{}, {} of the threads' time", part_text(name, result), units::share(top));
        let text = if top < MIN_BOTTLENECK_SHARE { format!("no part alone; most is {text}") } else { text };
        Self { name, share: Some(top), text }
    }
}

/// A part of the time, and what follows from it.
fn part_text(name: &str, result: &JobResult) -> String {
    let requests = result.total().requests.max(1);
    match name {
        "cpu" => {
            let each = units::value_text(result.cpu_time as f64 / requests as f64, Unit::Nanoseconds);
            format!("the CPU: a request takes {each} of it")
        }
        "other_work" => "other work, which had the CPU".to_owned(),
        "flush" => "flushing".to_owned(),
        _ => {
            let latency = result.mean_latency().unwrap_or(0.0);
            let possible = units::value_text(result.achieved_depth * 1e9 / latency.max(1.0), Unit::PerSecond);
            format!(
                "waiting for requests: with {:.1} in flight, of {} each on average, {possible} are possible (Little's law)",
                result.achieved_depth,
                units::value_text(latency, Unit::Nanoseconds),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_file::job_file;

    #[test]
    fn rates_of_all_jobs_are_added_without_overflow() {
        let demand = |text: &str| {
            let planned = job_file::parse(text).unwrap();
            RateDemand::of(&planned.iter().map(|planned| &planned.job).collect::<Vec<_>>())
        };
        let both = demand("[global]\nrate=1k,\nrate_iops=5\n[a]\n[b]\n");
        assert_eq!((both.bytes, both.requests), ([Some(2048), None], [Some(10), Some(10)]));
        assert!(!demand("[a]\nrate=1k\n[b]\n").is_any(), "one of them has no rate");
        let large = demand("[global]\nrate=8191p\n[a]\n[b]\n[c]\n");
        assert_eq!(large.bytes[0], Some(u64::MAX));
    }
}
