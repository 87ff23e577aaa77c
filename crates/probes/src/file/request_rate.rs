//! The rate of random reads past the page cache with full queues, also where a limit lets them through in bunches.
//!
//! The kernel's limit on a device (blk-throttle.c) lets the requests of a tenth of a second through at once, and then none until that time is
//! over. A shorter window may hold a bunch alone, and reads several times the rate.

use kelvin_file::jobs::{self, JobSpec, JobsResult};
use kelvin_stats::{PacedRate, ProgressPoint, paced_rate};

use super::prelude::*;

/// Nanoseconds of a window at least: a period of the kernel's limit.
const MIN_WINDOW_NANOSECONDS: f64 = 100e6;
/// Requests a second below which a device is slow: it does fewer than a hundred in the shortest measure.
const SLOW_DEVICE_IOPS: f64 = 5000.0;
/// Share of a window without a completion from which on there is a pause between bunches: a device does not take so long for a request.
const MIN_PAUSE_SHARE: f64 = 0.25;
/// Nanoseconds for which a slow device, or one with such pauses, is watched at least: six periods of the kernel's limit.
const MIN_WATCHED_NANOSECONDS: f64 = 650e6;

/// Requests that a window has for each in flight, as far as there is time: of fewer, a few more or less are a large share.
pub(super) const REQUESTS_PER_SLOT: u64 = 8;
/// Nanoseconds of a window that waits for them, at most.
const MAX_WINDOW_NANOSECONDS: f64 = 2e9;

/// Reads of blocks of this size in random order past the page cache, by a job on each of these CPUs, in the window of a round. None of the file
/// is in memory.
pub(super) fn random_reads(
    bench: &Bench<'_>,
    target: &Target,
    engine: Engine,
    (block, cpus): (usize, Vec<u32>),
) -> ProbeResult<JobSpec> {
    set_cache_state(target, PageCacheState::Direct)?;
    Ok(JobSpec {
        target: target.clone(),
        engine,
        block,
        seed: bench.seed(),
        cpus,
        clock: (bench.clock(), bench.hertz()),
        ramp: 0,
        window: window_nanoseconds(bench.slice()),
    })
}

/// The window of a round of this time.
fn window_nanoseconds(slice: f64) -> u64 {
    slice.max(MIN_WINDOW_NANOSECONDS) as u64
}

/// What jobs read with full queues.
pub(super) struct QueuedRequests {
    /// What they did in the window that counts.
    pub result: JobsResult,
    /// How requests came, where the device was watched for longer.
    pub pacing: Option<PacedRate>,
    /// All requests that were made, also outside of that window.
    pub requests: u64,
}

impl QueuedRequests {
    /// Lets jobs read in a window; in a second, longer one where the first holds too few requests to tell how they come. That one has
    /// `per_slot` requests for each in flight as well, as far as there is time.
    pub fn read(spec: &JobSpec, per_slot: u64) -> ProbeResult<Self> {
        let result = jobs::run(spec).map_err(probe_error)?;
        let is_watched = result.requests_per_second() < SLOW_DEVICE_IOPS || has_pause(&result, spec.clock.1);
        let watched_window = is_watched.then_some(MIN_WATCHED_NANOSECONDS);
        let needed = per_slot * spec.in_flight();
        let extended_window = extended_window(spec.window as f64, result.completions(), needed);
        let Some(window) = watched_window.into_iter().chain(extended_window).reduce(f64::max) else {
            let requests = result.requests();
            return Ok(Self { result, pacing: None, requests });
        };
        let longer = jobs::run(&JobSpec { window: window as u64, ..spec.clone() }).map_err(probe_error)?;
        let pacing = is_watched.then(|| pacing(&longer.times(), spec.clock.1)).flatten();
        Ok(Self { requests: result.requests() + longer.requests(), result: longer, pacing })
    }

    /// Requests per second: of those that come in bunches from one pause to another.
    pub fn per_second(&self) -> f64 {
        self.pacing.map_or(self.result.requests_per_second(), |pacing| pacing.rate)
    }

    /// How requests come, in words, where the device was watched for longer.
    pub fn describe_pacing(&self) -> Option<String> {
        Some(describe_pacing(&self.pacing?, self.result.window))
    }
}

/// How long a window is that has as many requests as needed, as far as there is time for it; `None` if there were enough.
fn extended_window(nanoseconds: f64, requests: u64, needed: u64) -> Option<f64> {
    let ratio = needed as f64 / requests.max(1) as f64;
    (ratio > 1.0).then(|| (nanoseconds * ratio).min(MAX_WINDOW_NANOSECONDS))
}

/// Whether no request was completed for a large part of the window.
fn has_pause(result: &JobsResult, hertz: f64) -> bool {
    let longest = result.times().windows(2).map(|pair| pair[1] - pair[0]).max();
    longest.is_some_and(|ticks| ticks as f64 / hertz * 1e9 >= MIN_PAUSE_SHARE * result.window as f64)
}

/// How the completions of all jobs come, by the ticks of a clock of this frequency.
fn pacing(times: &[u64], hertz: f64) -> Option<PacedRate> {
    let first = *times.first()?;
    let seconds = |time: u64| (time - first) as f64 / hertz;
    let points =
        (1..).zip(times).map(|(done, &time)| ProgressPoint { seconds: seconds(time), amount: f64::from(done) });
    paced_rate(&points.collect::<Vec<_>>())
}

fn describe_pacing(pacing: &PacedRate, nanoseconds: u64) -> String {
    let description = format!(
        "fewer than {SLOW_DEVICE_IOPS:.0} requests a second were done, or none for a while: they were watched for {:.2} s",
        nanoseconds as f64 / 1e9
    );
    match pacing.batches {
        Some([amount, seconds]) => {
            let milliseconds = seconds * 1e3;
            format!(
                "{description}, and come in bunches of {amount:.0} every {milliseconds:.0} ms: a limit lets them through"
            )
        }
        None => format!("{description}, and come evenly"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_file::jobs::JobResult;

    /// Bunches of 40 every tenth of a second, by a clock of 1 GHz: the window may hold a part of the first and of the last.
    fn bunches() -> Vec<u64> {
        let bunch = |number: u64| (0..40).map(move |request| number * 100_000_000 + request * 10_000);
        (0..8).flat_map(bunch).skip(30).take(260).collect()
    }

    #[test]
    fn slow_device_has_the_rate_between_its_pauses() {
        let pacing = pacing(&bunches(), 1e9).unwrap();
        assert!((pacing.rate - 400.0).abs() < 1.0, "{pacing:?}");
        assert!(pacing.batches.is_some());
        assert_eq!(super::pacing(&[], 1e9), None);
    }

    #[test]
    fn pause_of_a_limit_is_seen_at_any_rate() {
        let result = |jobs: [Vec<u64>; 2], window| JobsResult {
            window,
            jobs: jobs.map(|times| JobResult { times, ..JobResult::default() }).into(),
        };
        // 600 in 3 ms, and no more in the tenth of a second: 6000 a second are no slow device.
        let bunch: Vec<u64> = (0..600).map(|request| request * 5000).chain([101_000_000]).collect();
        let (first, second) = bunch.split_at(200);
        let limited = result([first.to_vec(), second.to_vec()], 100_000_000);
        assert!(limited.requests_per_second() > SLOW_DEVICE_IOPS && has_pause(&limited, 1e9));
        // Two jobs whose completions take turns: each has gaps of 30 ms, and the device none.
        let turns =
            |begin: u64| (0..2).flat_map(move |turn| (0..500).map(move |i| begin + turn * 40_000_000 + i * 40_000));
        assert!(!has_pause(&result([turns(0).collect(), turns(20_000_000).collect()], 80_000_000), 1e9));
        assert!(!has_pause(&result([Vec::new(), vec![7]], 100_000_000), 1e9));
    }

    #[test]
    fn slow_device_extends_window() {
        // 32 of 128 requests at depth 16 in 20 ms; of a request in 20 ms there is no time for all.
        let extended = |requests| extended_window(20e6, requests, 128);
        assert_eq!([extended(32), extended(1)], [Some(80e6), Some(MAX_WINDOW_NANOSECONDS)]);
        assert_eq!([extended(128), extended(129)], [None, None]);
    }

    #[test]
    fn window_holds_a_period_of_the_limit() {
        assert_eq!((window_nanoseconds(8e6), window_nanoseconds(250e6)), (100_000_000, 250_000_000));
    }

    #[test]
    fn bursts_are_described_with_size() {
        let text = |batches| describe_pacing(&PacedRate { rate: 333.0, batches }, 650_000_000);
        assert!(text(Some([33.3, 0.1])).ends_with(
            "they were watched for 0.65 s, and come in bunches of 33 every 100 ms: a limit lets them through"
        ));
        assert!(text(None).ends_with("come evenly"));
    }
}
