//! What reading from the server of a mounted directory is made of: a request and its answer, the attributes of a file, the
//! server's bytes per second, and how far the client reads ahead.
//!
//! The predictions of remote reads rest on these figures. They must not be used as those of the network alone: the server does
//! its own work, and the client may send more for one call than it must.

use std::fs::File;
use std::path::Path;

use kelvin_core::catalogue::file::{
    LookupDirectory, REMOTE_ATTRIBUTES, REMOTE_RATE, REMOTE_READ_AHEAD, REMOTE_ROUND_TRIP,
};
use kelvin_sys::fs::kind;

use super::super::prelude::*;
use super::super::read_ahead;
use super::directory_reader::{self, BLOCK};
use super::nfs_requests::NfsMount;
use kelvin_core::units::bytes;

pub(crate) static ROUND_TRIP_PROBE: Probe = Probe {
    summary: "A request to the server of a mounted directory and its answer, and asking for attributes (--remote DIR)",
    method: include_str!("server_round_trip.md"),
    cases: |_, _| words(LookupDirectory::ALL),
    run: time_lookups,
    predict: |_, _, _| Err(NoPrediction::new("the distance to a server is a fact of the network")),
    ..Probe::study(&[&REMOTE_ROUND_TRIP, &REMOTE_ATTRIBUTES])
};

pub(crate) static RATE_PROBE: Probe = Probe {
    summary: "Bytes per second that the server of a mounted directory delivers (--remote DIR)",
    method: include_str!("server_rate.md"),
    run: time_stream,
    predict: |_, _, _| Err(NoPrediction::new("the rate of a server is a fact of the network and of the server")),
    ..Probe::study(&[&REMOTE_RATE])
};

pub(crate) static READ_AHEAD_PROBE: Probe = Probe {
    summary: "The kernel's read-ahead windows in a mounted directory, observed in the page cache (--remote DIR)",
    method: include_str!("server_read_ahead.md"),
    run: record_windows,
    predict: |_, _, _| Err(NoPrediction::new("the limit of read-ahead is a setting, and this is its effect")),
    ..Probe::study(&[&REMOTE_READ_AHEAD])
};

/// Lookups over which the requests of one are counted.
const COUNTED_LOOKUPS: u64 = 16;
/// Bytes of the file that the server is measured by, and of the large request: seconds over a slow link, and on a fast one much
/// longer than a block.
const FILE_BYTES: u64 = 8 * MIB;
const LARGE_REQUEST: usize = 4 << 20;

fn time_lookups(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let directory = match required(LookupDirectory::of(case), case)? {
        LookupDirectory::Remote => bench.remote()?.to_owned(),
        LookupDirectory::Local => bench.scratch().to_owned(),
    };
    let mut lookups = FreshLookups::new(bench, &directory);
    let requests = lookups.requests_per_lookup()?;
    bench.note(format!("{}{}", kind(&directory)?.name(), requests.map_or_else(String::new, describe_lookup)));
    bench.time_each([&REMOTE_ROUND_TRIP], |clock| Ok([lookups.time_next(clock)? / requests.unwrap_or(1)]))?;
    // Open for reading, and for nothing else: of such a file an NFSv4 server may leave the attributes to its client.
    let path = directory.join(format!("kelvin-empty-{}", std::process::id()));
    let outcome = File::create(&path).and_then(|file| file.sync_all()).and_then(|()| File::open(&path));
    let file = outcome.or_file_failure("make", &path)?;
    bench.time(&REMOTE_ATTRIBUTES, |iterations| {
        for _ in 0..iterations {
            file.metadata()?;
        }
        Ok(())
    })
}

/// `, a lookup is 2 requests to the server`.
fn describe_lookup(requests: u64) -> String {
    format!(", a lookup is {requests} request{} to the server", if requests == 1 { "" } else { "s" })
}

/// Lookups of names that were never used before.
struct FreshLookups<'a> {
    directory: &'a Path,
    stem: String,
    count: u64,
}

impl<'a> FreshLookups<'a> {
    fn new(bench: &Bench<'_>, directory: &'a Path) -> Self {
        Self { directory, stem: format!("kelvin-none-{}-{:x}", std::process::id(), bench.seed()), count: 0 }
    }

    /// The ticks of the next one.
    fn time_next(&mut self, clock: Clock) -> ProbeResult<u64> {
        self.count += 1;
        let path = self.directory.join(format!("{}-{}", self.stem, self.count));
        let (ticks, outcome) = clock.time(|| path.symlink_metadata());
        match outcome {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ticks),
            Err(error) => Err(ProbeError::fail(format!("cannot look for {}: {error}", path.display()))),
            Ok(_) => Err(ProbeError::fail(format!("{} exists, and kelvin did not make it", path.display()))),
        }
    }

    /// Requests for one of them, where a client counts them.
    fn requests_per_lookup(&mut self) -> ProbeResult<Option<u64>> {
        let Some(mount) = NfsMount::find(self.directory) else { return Ok(None) };
        let before = mount.completed_requests()?;
        (0..COUNTED_LOOKUPS).try_for_each(|_| self.time_next(Clock::MonotonicRaw).map(drop))?;
        let requests = mount.completed_requests()?.saturating_sub(before);
        Ok(Some(rounded_ratio(requests, COUNTED_LOOKUPS)))
    }
}

/// The nearest whole number of requests for one of this many, at least 1.
fn rounded_ratio(requests: u64, count: u64) -> u64 {
    ((requests + count / 2) / count).max(1)
}

fn time_stream(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let directory = bench.remote()?.to_owned();
    let target = directory_reader::remote_file(bench, &directory, FILE_BYTES)?;
    test_files::check_direct_io(&target, BLOCK as u64)?;
    let [mut large_request, mut small_request] =
        [FirstRequest::new(&target, LARGE_REQUEST)?, FirstRequest::new(&target, BLOCK)?];
    bench.note(format!(
        "{}, requests of {} and {}",
        kind(&directory)?.name(),
        bytes(LARGE_REQUEST as u64),
        bytes(BLOCK as u64)
    ));
    bench.time_each_work([&REMOTE_RATE], (LARGE_REQUEST - BLOCK) as f64, |clock| {
        let (total, first) = (large_request.read(clock)?, small_request.read(clock)?);
        Ok([beyond_first_block(total, first)])
    })
}

/// The ticks of a whole beyond its first block; all of them, where a disturbance made the first block as long as that.
fn beyond_first_block(total: u64, first: u64) -> u64 {
    if total > first { total - first } else { total }
}

/// The first request of a pass, again and again.
struct FirstRequest {
    blocks: BlockReader,
    first: BlockRequests,
}

impl FirstRequest {
    fn new(target: &Target, block: usize) -> ProbeResult<Self> {
        let (order, pages) = (BlockOrder::Sequential, PagePolicy::for_buffer(block));
        let options = ReadOptions { access: Access::Direct, block, order, pages };
        let blocks = BlockReader::open(target, Engine::Pread, options)?;
        Ok(Self { first: blocks.requests.clone(), blocks })
    }

    /// Its ticks.
    fn read(&mut self, clock: Clock) -> ProbeResult<u64> {
        self.blocks.requests = self.first.clone();
        self.blocks.time_next(clock, 1)
    }
}

fn record_windows(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let directory = bench.remote()?.to_owned();
    let target = directory_reader::remote_file(bench, &directory, FILE_BYTES)?;
    let steps = read_ahead::missed_page_steps(&target)?;
    bench.note(read_ahead::describe_steps(&steps));
    bench.record(&REMOTE_READ_AHEAD, most_frequent(&steps).map(|step| step as f64).into_iter().collect());
    Ok(())
}

/// The most frequent step, the largest of several: two windows are seen as one where this process was kept waiting.
fn most_frequent(steps: &[u64]) -> Option<u64> {
    let count = |step: u64| steps.iter().filter(|&&other| other == step).count();
    steps.iter().copied().max_by_key(|&step| (count(step), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_per_lookup_are_rounded() {
        // Attributes of the directory that expired in between are one request more, once.
        for (requests, expected) in [(0, 1), (16, 1), (17, 1), (32, 2), (63, 4), (65, 4)] {
            assert_eq!(rounded_ratio(requests, 16), expected, "{requests} of 16");
        }
        assert_eq!(describe_lookup(1), ", a lookup is 1 request to the server");
        assert_eq!(describe_lookup(4), ", a lookup is 4 requests to the server");
    }

    #[test]
    fn merged_windows_are_ignored() {
        // As seen over a link of 20 ms, by a process that was kept waiting.
        assert_eq!(most_frequent(&[16, 32, 64, 128, 256, 256, 512, 256, 512, 256, 16]), Some(256));
        assert_eq!(most_frequent(&[16, 32, 16, 32]), Some(32));
        assert_eq!(most_frequent(&[]), None);
    }

    #[test]
    fn disturbed_first_block_is_not_subtracted() {
        assert_eq!(
            [beyond_first_block(100, 30), beyond_first_block(100, 100), beyond_first_block(100, 130)],
            [70, 100, 100]
        );
    }
}
