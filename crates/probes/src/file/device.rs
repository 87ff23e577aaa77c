//! The rate and the latency of the device below the scratch directory, past the page cache.
//!
//! They explain reading and writing of files. They must not be taken for those of the medium: a drive, a controller or a
//! hypervisor may answer from its own cache, below the kernel.

use std::ops::Range;

use kelvin_core::catalogue::file::{
    DEVICE, DEVICE_ACCEPT_LATENCY, DEVICE_LATENCY, DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_READ_HUGE,
    DEVICE_REPEAT_READ, DEVICE_REQUESTS, DEVICE_WRITE, DEVICE_WRITE_LATENCY, EXTENT,
};
use kelvin_file::Reader;
use kelvin_stats::STEADY_WINDOWS;
use kelvin_sys::fork_image::resident_around;
use kelvin_sys::memory::Arena;

use super::extent;
use super::overwrite::{Overwriter, stream_overwrite};
use super::prelude::*;
use super::request_rate::{QueuedRequests, random_reads};
use super::test_files::{FULL_QUEUE_DEPTH, QueuedReads};

pub(crate) static PROBE: Probe = Probe {
    id: DEVICE.as_str(),
    summary: "Reading from the device below the scratch directory, past the page cache: rate and latency",
    method: include_str!("device.md"),
    run: read,
    predict,
    ..Probe::measure(&[
        &DEVICE_READ,
        &DEVICE_READ_HUGE,
        &DEVICE_REPEAT_READ,
        &DEVICE_LATENCY,
        &DEVICE_MEAN_LATENCY,
        &DEVICE_REQUESTS,
    ])
};

pub(crate) static WRITE_PROBE: Probe = Probe {
    summary: "Writing to the device below the scratch directory, past the page cache: rate and latencies",
    method: include_str!("device_write.md"),
    run: write,
    predict,
    ..Probe::measure(&[&DEVICE_WRITE, &DEVICE_ACCEPT_LATENCY, &DEVICE_WRITE_LATENCY])
};

/// A block of a stream: the largest request of most devices, or several of them.
const STREAM_BLOCK: usize = MIB as usize;
/// A block of a random access: a page of memory, and of most file systems.
const RANDOM_BLOCK: usize = 4096;
/// Small requests in flight for the device's highest rate: as many as keep a fast drive busy.
const RANDOM_DEPTH: u32 = 64;
/// Of these for each in flight that a round has at least, as far as there is time: the rate of a slow drive is one of many rounds.
const MIN_REQUESTS_PER_SLOT: u64 = 1;
/// Bytes of a part: as many as are in flight.
const STREAM_PART_BYTES: u64 = FULL_QUEUE_DEPTH as u64 * MIB;
/// Nanoseconds that a part must take, for its beginning and its end not to count.
const MIN_PART_NANOSECONDS: u64 = 10_000_000;
/// How much faster than the first pass a later one may be before a cache must have answered it.
const MAX_REPEAT_SPEEDUP: f64 = 2.0;
/// Most writes of 4 KiB in a round: the bench takes 800 samples of each kind at most, and some before.
const MAX_WRITES: u64 = 2000;

fn read(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let target = extent::study_file(bench, case)?;
    test_files::check_direct_io(&target, RANDOM_BLOCK as u64)?;
    stream_rate(bench, &target)?;
    random_latency(bench, &target)?;
    random_rate(bench, &target)
}

/// Reads part after part, with many blocks in flight, into either kind of pages.
fn stream_rate(bench: &mut Bench<'_>, target: &Target) -> ProbeResult {
    let queue = test_files::queued_reads(target, FULL_QUEUE_DEPTH)?;
    let mean = stream_rate_into(bench, target, &queue, (PagePolicy::Base, &DEVICE_READ))?;
    if let Some(first_rate) = test_files::first_pass_rate(target)? {
        bench.note(compare_with_first_pass(first_rate, mean));
        bench.record(&DEVICE_REPEAT_READ, vec![mean / first_rate]);
    }
    // Where the kernel gives no huge pages, it would be the same figure again.
    let huge_buffer = Arena::populated(STREAM_BLOCK, PagePolicy::Huge)?;
    if resident_around(huge_buffer.address())?.huge > 0 {
        drop(huge_buffer);
        stream_rate_into(bench, target, &queue, (PagePolicy::Huge, &DEVICE_READ_HUGE))?;
    }
    Ok(())
}

/// Reads part after part into buffers of these pages; the mean rate of the round.
fn stream_rate_into(
    bench: &mut Bench<'_>,
    target: &Target,
    queue: &QueuedReads,
    (pages, metric): (PagePolicy, &'static Metric),
) -> ProbeResult<f64> {
    let mut parts = PartReader::open(target, queue, pages)?;
    let max_part = STREAM_PART_BYTES.min(target.bytes());
    let trial = parts.read(0..max_part)?;
    let bytes = if trial < MIN_PART_NANOSECONDS { target.bytes().min(SHARED_BYTES) } else { max_part };
    bench.note(format!("{}, buffers in {} pages", queue.description, pages.name()));
    let counters = DeviceCounters::now(target);
    let count = target.bytes() / bytes;
    // Of a large file another part begins each round, so that no round reads what the one before has left in a cache of the device.
    let first = if target.bytes() > SHARED_BYTES { bench.seed() % count } else { 1 };
    let mut starts = (0..count).map(|part| part * bytes).cycle().skip(first as usize);
    let mut times = Vec::new();
    let ticks = bench.ticks(1_000_000) as f64 / 1e6;
    bench.time_each_work([metric], bytes as f64, |_| {
        let start = starts.next().unwrap_or(0);
        let nanoseconds = parts.read(start..start + bytes)? as f64;
        times.push(nanoseconds);
        Ok([(nanoseconds * ticks) as u64])
    })?;
    bench.note_last_reading(counters.prove_read(bytes * times.len() as u64)?);
    Ok((bytes as usize * times.len()) as f64 * 1e9 / times.iter().sum::<f64>())
}

/// Reads parts of a file in order, with many blocks in flight.
enum PartReader<'q> {
    /// Each part is a job, which also looks before and after at which pages of the file are in memory.
    Jobs { target: &'q Target, queue: &'q QueuedReads, pages: PagePolicy },
    /// One reader for all parts: of a large file that look would take far longer than the part.
    Open(Box<Reader>),
}

impl<'q> PartReader<'q> {
    fn open(target: &'q Target, queue: &'q QueuedReads, pages: PagePolicy) -> ProbeResult<Self> {
        if target.bytes() <= SHARED_BYTES || queue.threads > 1 {
            return Ok(Self::Jobs { target, queue, pages });
        }
        set_cache_state(target, PageCacheState::Direct)?;
        let order = BlockOrder::Sequential;
        let options = ReadOptions { access: Access::Direct, block: STREAM_BLOCK, order, pages };
        Ok(Self::Open(Box::new(queue.engine.open(target, options).map_err(probe_error)?)))
    }

    /// Nanoseconds of reading a range.
    fn read(&mut self, range: Range<u64>) -> ProbeResult<u64> {
        match self {
            Self::Jobs { target, queue, pages } => {
                let job = ReadJob { pages: *pages, ..queue.job(target, STREAM_BLOCK, range) };
                Ok(test_files::run_job(&job)?.nanoseconds)
            }
            Self::Open(reader) => {
                let mut requests = BlockRequests::new(range, STREAM_BLOCK, BlockOrder::Sequential);
                let start = monotonic();
                reader.read(&mut requests, &mut IoTally::default()).map_err(probe_error)?;
                Ok(monotonic() - start)
            }
        }
    }
}

/// The rate of a round compared with that of the first pass, and what follows, in words.
fn compare_with_first_pass(first_rate: f64, rate: f64) -> String {
    let comparison = format!(
        "the first pass over the file after it was written ran at {:.0} MB/s, those of this round at {:.0} MB/s",
        first_rate / 1e6,
        rate / 1e6
    );
    if rate > MAX_REPEAT_SPEEDUP * first_rate {
        format!("{comparison}: a cache below the kernel, a hypervisor's or a drive's, answers repeated reads")
    } else {
        format!("{comparison}: no sign of a cache below the kernel")
    }
}

/// Reads small blocks in random order, one by one.
fn random_latency(bench: &mut Bench<'_>, target: &Target) -> ProbeResult {
    let order = BlockOrder::Random { seed: bench.seed() };
    let options = ReadOptions { access: Access::Direct, block: RANDOM_BLOCK, order, pages: PagePolicy::Base };
    let mut blocks = BlockReader::open(target, Engine::Pread, options)?;
    let (counters, mut total_ticks) = (DeviceCounters::now(target), 0);
    bench.time_each([&DEVICE_LATENCY], |clock| {
        blocks.requests.extend_limit(1);
        let (ticks, outcome) = clock.time(|| blocks.read());
        total_ticks += ticks;
        outcome.map(|()| [ticks])
    })?;
    bench.note_last_reading(counters.prove_read(blocks.tally.bytes)?);
    bench.record(&DEVICE_MEAN_LATENCY, vec![bench.nanoseconds(total_ticks) / blocks.tally.requests.max(1) as f64]);
    Ok(())
}

/// Reads small blocks in random order, with many in flight.
fn random_rate(bench: &mut Bench<'_>, target: &Target) -> ProbeResult {
    let queue = test_files::queued_reads(target, RANDOM_DEPTH)?;
    let cpus = vec![bench.cpu(); queue.threads as usize];
    let spec = random_reads(bench, target, queue.engine, (RANDOM_BLOCK, cpus))?;
    let counters = DeviceCounters::now(target);
    let reads = QueuedRequests::read(&spec, MIN_REQUESTS_PER_SLOT)?;
    fail_if(reads.result.completions() == 0, "no request completed in the window")?;
    bench.note(queue.description);
    reads.describe_pacing().into_iter().for_each(|note| bench.note(note));
    bench.note(counters.prove_read(reads.requests * RANDOM_BLOCK as u64)?);
    bench.record(&DEVICE_REQUESTS, vec![reads.per_second()]);
    Ok(())
}

fn write(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    if let Some(bytes) = EXTENT.number_in(case) {
        return write_extent(bench, case, bytes);
    }
    let target = test_files::overwrite_file(bench, SHARED_BYTES)?;
    test_files::check_direct_io(&target, RANDOM_BLOCK as u64)?;
    bench.reserve_write(2 * STREAM_PART_BYTES + STREAM_PART_BYTES + MAX_WRITES * RANDOM_BLOCK as u64)?;
    let counters = DeviceCounters::now(&target);
    let stream = stream_overwrite(&target, bench.seed())?;
    bench.note(stream.description.clone());
    bench.note(format!("with the flush that followed it was {:.0} MB/s", stream.flushed_rate / 1e6));
    bench.note(counters.prove_written(stream.bytes)?);
    bench.record(&DEVICE_WRITE, vec![stream.rate]);
    write_flushed(bench, &target)
}

/// Over the file of `--extent`, which was overwritten before the first round until the rate was steady: each of the last windows is the
/// figure of one round, for a stream of a round would end in a cache of the device.
fn write_extent(bench: &mut Bench<'_>, case: &Case, bytes: u64) -> ProbeResult {
    let target = extent::study_file(bench, case)?;
    let rates = extent::window_rates(bench, bytes)?;
    bench.note(extent::describe(&rates, bytes));
    let last = rates.iter().skip(rates.len().saturating_sub(STEADY_WINDOWS));
    bench.record(&DEVICE_WRITE, last.skip(bench.round() as usize).take(1).copied().collect());
    bench.reserve_write(MAX_WRITES * RANDOM_BLOCK as u64)?;
    write_flushed(bench, &target)
}

/// Writes small blocks in random order, one by one: first until each is accepted, then with a flush each. A flush slows the
/// write after it, and so the two are not timed together.
fn write_flushed(bench: &mut Bench<'_>, target: &Target) -> ProbeResult {
    let order = BlockOrder::Random { seed: bench.seed() };
    let mut writer = Overwriter::open(target, Access::Direct, RANDOM_BLOCK, bench.seed())?;
    let mut requests = BlockRequests::new(0..target.bytes(), RANDOM_BLOCK, order).endless();
    for (metric, has_flush) in [(&DEVICE_ACCEPT_LATENCY, false), (&DEVICE_WRITE_LATENCY, true)] {
        let (mut bytes_written, counters) = (0, DeviceCounters::now(target));
        bench.time_each([metric], |clock| {
            let request = requests.next().or_fail("the file has no blocks")?;
            writer.renew();
            let (ticks, outcome) = clock.time(|| {
                writer.write(request)?;
                if has_flush { writer.flush() } else { Ok(()) }
            });
            bytes_written += request.bytes as u64;
            outcome.map(|()| [ticks])
        })?;
        bench.note_last_reading(counters.prove_written(bytes_written)?);
    }
    Ok(())
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    Err(NoPrediction::new(format!(
        "{} is a property of the device, from which other predictions start; no device states it",
        metric.id
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_faster_repeat_pass_indicates_cache() {
        let text = |rate| compare_with_first_pass(200e6, rate);
        assert!(text(850e6).contains("at 200 MB/s, those of this round at 850 MB/s: a cache below the kernel"));
        assert!(text(380e6).ends_with("no sign of a cache below the kernel"));
    }
}
