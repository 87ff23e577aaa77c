use std::collections::HashMap;
use std::path::Path;

use super::request_mix::{MixedRequest, RequestMix};
use super::*;

const BLOCK: usize = 4096;

fn job(file: &Path) -> Job {
    Job {
        file: file.to_owned(),
        layout: Layout { offset: 0, size: Some(64 * BLOCK as u64) },
        mix: Mix::Both { read_percent: 50 },
        order: JobOrder::RandomPermutation,
        blocks: ByDirection::both(BlockSizes::single(BLOCK)),
        engine: JobEngine::Positioned,
        depth: 1,
        access: Access::Buffered,
        end: EndOfJob { loops: 1, runtime: None },
        ramp: Duration::ZERO,
        rate: ByDirection::default(),
        flush_every: None,
        end_fsync: false,
        verify: false,
        seed: 1,
        invalidate: true,
    }
}

/// The jobs run on their files; `None`, with the reason printed, where it needs something unavailable.
fn run_if_supported(jobs: &[Job]) -> Option<Vec<JobResult>> {
    let files = JobFiles::prepare(jobs, &Permissions::default()).unwrap();
    match run_stage(jobs, &files) {
        Ok(results) => Some(results),
        Err(error) if error.is_unsupported() => {
            kelvin_testing::MissingRequirement::from_message(error).report_skip("jobs on files");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn engines() -> [(JobEngine, u32); 4] {
    [(JobEngine::Seeking, 1), (JobEngine::Positioned, 1), (JobEngine::Ring, 7), (JobEngine::PolledRing, 7)]
}

#[test]
fn random_requests_touch_each_block_once_a_pass() {
    let job = Job { end: EndOfJob { loops: 2, runtime: None }, ..job(Path::new("file")) };
    let requests: Vec<MixedRequest> = RequestMix::new(&job, 4096..4096 + 64 * 4096).collect();
    for pass in requests.chunks(64) {
        let mut offsets: Vec<u64> = pass.iter().map(|request| request.block.offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (1..65).map(|number| number * 4096).collect::<Vec<u64>>());
    }
    let first: Vec<u64> = requests.iter().map(|request| request.block.offset).take(64).collect();
    assert!(requests[64..].iter().map(|request| request.block.offset).ne(first));
}

#[test]
fn independent_requests_are_spread_evenly_with_replacement() {
    let end = EndOfJob { loops: 100, runtime: None };
    let job = Job { order: JobOrder::RandomIndependent, end, ..job(Path::new("file")) };
    let mut counts = [0u32; 64];
    for request in RequestMix::new(&job, 4096..4096 + 64 * 4096) {
        counts[(request.block.offset / 4096 - 1) as usize] += 1;
    }
    // Counts of a multinomial distribution: chi-squared with 63 degrees of freedom is 32 to 104 but for one seed in a thousand.
    let statistic: f64 = counts.iter().map(|&count| (f64::from(count) - 100.0).powi(2) / 100.0).sum();
    assert_eq!(counts.iter().sum::<u32>(), 6400);
    assert!((32.0..104.0).contains(&statistic), "{statistic}: {counts:?}");
}

#[test]
fn mix_keeps_its_share_of_reads() {
    let layout = Layout { offset: 0, size: Some(20_000 * BLOCK as u64) };
    let job = Job { mix: Mix::Both { read_percent: 70 }, layout, ..job(Path::new("file")) };
    let reads =
        RequestMix::new(&job, 0..20_000 * 4096).filter(|request| request.direction == IoDirection::Read).count();
    // Of 20,000 requests 14,000 with a deviation of 65.
    assert!((13_650..14_350).contains(&reads), "{reads}");
}

#[test]
fn sequential_reads_and_writes_have_their_own_places() {
    let job = Job { order: JobOrder::Sequential, end: EndOfJob { loops: 3, runtime: None }, ..job(Path::new("file")) };
    let mut next = HashMap::from([("Read", 0), ("Write", 0)]);
    for request in RequestMix::new(&job, 0..64 * 4096) {
        let place = next.get_mut(format!("{:?}", request.direction).as_str()).unwrap();
        assert_eq!(request.block.offset, *place);
        *place = (*place + 4096) % (64 * 4096);
    }
}

#[test]
fn split_blocks_stay_inside_and_have_their_shares() {
    let sizes = BlockSizes::new(vec![(4096, 60.0), (16384, 40.0)]).unwrap();
    let blocks = ByDirection::both(sizes);
    let job = Job { blocks, end: EndOfJob { loops: 40, runtime: None }, ..job(Path::new("file")) };
    let requests: Vec<MixedRequest> = RequestMix::new(&job, 0..256 * 4096).collect();
    assert!(requests.iter().all(|request| request.block.offset + request.block.bytes as u64 <= 256 * 4096));
    assert_eq!(requests.iter().map(|request| request.block.bytes as u64).sum::<u64>(), 40 * 256 * 4096);
    let large = requests.iter().filter(|request| request.block.bytes == 16384).count() as f64;
    let share = large / requests.len() as f64;
    assert!((share - 0.4).abs() < 0.04, "{share}");
}

#[test]
fn every_engine_moves_all_bytes_and_leaves_no_file() {
    let directory = tempfile::tempdir_in(".").unwrap();
    for (engine, depth) in engines() {
        for (mix, order, flush) in [
            (Mix::Reads, JobOrder::Sequential, Flush::All),
            (Mix::Writes, JobOrder::RandomPermutation, Flush::Data),
            (Mix::Both { read_percent: 50 }, JobOrder::RandomIndependent, Flush::All),
        ] {
            let flush_every = Some((9, flush));
            let job = Job { engine, depth, mix, order, flush_every, ..job(&directory.path().join("file")) };
            let Some(results) = run_if_supported(std::slice::from_ref(&job)) else { continue };
            let result = &results[0];
            assert_eq!(result.total(), crate::IoTally { bytes: 64 * 4096, requests: 64 }, "{job:?}");
            let writes = result.directions.write.tally.requests;
            assert_eq!(writes > 0, mix.writes());
            assert_eq!(result.flushes.count(), writes / 9, "{engine:?} {mix:?} {writes}");
            assert!(result.achieved_depth <= f64::from(depth) && result.achieved_depth > 0.0);
        }
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn flush_after_the_last_write_is_part_of_the_time() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let layout = Layout { offset: 0, size: Some(4096) };
    let job =
        Job { layout, mix: Mix::Writes, flush_every: Some((1, Flush::All)), ..job(&directory.path().join("file")) };
    let result = &run_if_supported(&[job]).unwrap()[0];
    assert_eq!((result.directions.write.tally.requests, result.flushes.count()), (1, 1));
    assert!(result.seconds() * 1e9 >= result.flushes.mean().unwrap() * 0.99, "{result:?}");
}

#[test]
fn mistakes_of_later_jobs_are_found_before_anything_is_done() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let short = directory.path().join("short");
    std::fs::write(&short, [0; 4096]).unwrap();
    let good = Job { mix: Mix::Writes, ..job(&directory.path().join("file")) };
    let unwritten = Job { mix: Mix::Reads, verify: true, ..job(&directory.path().join("absent")) };
    for (bad, why) in [(Job { mix: Mix::Reads, ..job(&short) }, "4096 bytes"), (unwritten, "nobody wrote")] {
        let error = JobFiles::prepare(&[good.clone(), bad], &Permissions::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn written_blocks_are_verified() {
    let directory = tempfile::tempdir_in(".").unwrap();
    for (engine, depth) in engines() {
        for order in [JobOrder::Sequential, JobOrder::RandomPermutation, JobOrder::RandomIndependent] {
            let end = EndOfJob { loops: 3, runtime: None };
            let job = Job {
                engine,
                depth,
                order,
                end,
                verify: true,
                mix: Mix::Writes,
                ..job(&directory.path().join("file"))
            };
            let Some(results) = run_if_supported(&[job]) else { continue };
            let verification = results[0].verification.clone().unwrap();
            // Three passes over independent places leave out one in twenty on average.
            let blocks = if order == JobOrder::RandomIndependent { 48..65 } else { 64..65 };
            assert!(
                blocks.contains(&verification.blocks) && verification.mismatches == 0,
                "{order:?} {verification:?}"
            );
        }
    }
}

#[test]
fn damaged_block_is_named_by_its_offset() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    let write = Job { verify: true, mix: Mix::Writes, ..job(&path) };
    let files = JobFiles::prepare(std::slice::from_ref(&write), &Permissions::default()).unwrap();
    run_stage(&[write], &files).unwrap();
    files.keep().unwrap();
    let mut content = std::fs::read(&path).unwrap();
    content[5 * 4096 + 100] ^= 1;
    content.copy_within(7 * 4096..8 * 4096, 9 * 4096);
    std::fs::write(&path, content).unwrap();
    let read = Job { verify: true, mix: Mix::Reads, order: JobOrder::Sequential, ..job(&path) };
    let found = run_if_supported(&[read]).unwrap().remove(0).verification.unwrap();
    assert_eq!((found.blocks, found.mismatches), (64, 2));
    assert!(found.first[0].starts_with("offset 20480: the digest is"), "{found:?}");
    assert!(
        found.first[1].starts_with("offset 36864: the block of 4096 bytes that belongs at offset 28672"),
        "{found:?}"
    );
}

#[test]
fn existing_files_are_written_only_if_named() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; 64 * 4096]).unwrap();
    let jobs = [job(&path)];
    let error = JobFiles::prepare(&jobs, &Permissions::default()).unwrap_err().to_string();
    assert!(error.contains("is written only with --overwrite"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 64 * 4096]);
    let other = Permissions { overwrite: vec![directory.path().join("other")], ..Permissions::default() };
    assert!(JobFiles::prepare(&jobs, &other).unwrap_err().to_string().contains("no job writes"));
    // By another name of the same directory.
    let named = directory.path().join(".").join("file");
    let files = JobFiles::prepare(&jobs, &Permissions { overwrite: vec![named], ..Permissions::default() }).unwrap();
    run_stage(&jobs, &files).unwrap();
    drop(files);
    let content = std::fs::read(&path).unwrap();
    assert!(content.len() == 64 * 4096 && content != vec![7; 64 * 4096]);
}

#[test]
fn missing_or_short_files_are_refused() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let error = |job: Job| {
        let jobs = [job];
        JobFiles::prepare(&jobs, &Permissions::default())
            .and_then(|files| run_stage(&jobs, &files))
            .unwrap_err()
            .to_string()
    };
    let path = directory.path().join("file");
    let layout = |offset, size| Layout { offset, size };
    assert!(error(Job { layout: layout(0, None), ..job(&path) }).contains("does not exist: a size is needed"));
    assert!(error(job(&directory.path().join("none/file"))).contains("there is no directory"));
    assert!(error(Job { layout: layout(1 << 62, Some(1 << 62)), ..job(&path) }).contains("more than any file has"));
    assert!(error(Job { layout: layout(0, Some(1 << 60)), ..job(&path) }).contains("cannot have"));
    assert!(error(Job { layout: layout(0, Some(100)), ..job(&path) }).contains("has no block of 4096 bytes"));
    std::fs::write(&path, vec![7; 8192]).unwrap();
    let reads = Job { mix: Mix::Reads, ..job(&path) };
    assert!(error(reads.clone()).contains("has 8192 bytes, and the job needs 262144"));
    let verifying = Job { mix: Mix::Writes, verify: true, ..job(&directory.path().join("two")) };
    let two = [verifying.clone(), verifying];
    let files = JobFiles::prepare(&two, &Permissions::default()).unwrap();
    assert!(run_stage(&two, &files).unwrap_err().to_string().contains("another job writes the same part"));
    drop(files);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn rate_is_kept_and_responses_count_from_when_due() {
    let directory = tempfile::tempdir_in(".").unwrap();
    for (engine, depth) in engines() {
        let limit = RateLimit { bytes_per_second: None, requests_per_second: Some(400) };
        let job = Job {
            engine,
            depth,
            rate: ByDirection::both(limit),
            mix: Mix::Reads,
            ..job(&directory.path().join("file"))
        };
        let Some(results) = run_if_supported(&[job]) else { continue };
        // The last of 64 requests is due 157.5 ms after the first, however slow the machine is.
        assert!(results[0].seconds() >= 0.1574, "{}", results[0].seconds());
        let read = &results[0].directions.read;
        let responses = read.responses.as_ref().unwrap();
        assert_eq!(responses.count(), 64);
        assert!(responses.max() >= read.latencies.max() && responses.mean() >= read.latencies.mean());
        // Between two requests there may be none in flight: the depth is that of Little's law.
        let by_littles_law = 64.0 * read.latencies.mean().unwrap() / (results[0].seconds() * 1e9);
        assert!((results[0].achieved_depth / by_littles_law - 1.0).abs() < 0.02, "{:?}", results[0].achieved_depth);
    }
}

#[test]
fn ramp_does_not_count_and_time_ends_the_job() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let end = EndOfJob { loops: u64::MAX, runtime: Some(Duration::from_millis(60)) };
    let job = Job { end, ramp: Duration::from_millis(30), mix: Mix::Reads, ..job(&directory.path().join("file")) };
    let result =
        run_if_supported(&[job.clone(), Job { seed: 2, ..job }]).unwrap().into_iter().reduce(|mut all, other| {
            all.merge(other);
            all
        });
    let result = result.unwrap();
    assert_eq!(result.threads, 2);
    // Both windows are of 60 ms, and begin with the stage.
    assert!((0.06 - 1e-9..0.0600001).contains(&result.seconds()), "{}", result.seconds());
    let rate = result.requests_per_second(IoDirection::Read);
    assert_eq!(rate.value, result.total().requests as f64 / result.seconds());
}
