use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Access;
use crate::workload::{BlockSizes, Flush, JobEngine, JobOrder, Mix, RateLimit};

fn error_of(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn common_job_file_means_what_it_means_to_fio() {
    let text = "; a comment\n[global]\nioengine=libaio # another\ndirect=1\nsize=1g\nbs=4k,8kb\nruntime=1m\nramp_time=500ms\n\n\
                [mixed]\nrw=randrw\nrwmixread=70\niodepth=16\nnumjobs=2\ntime_based\ngroup_reporting=1\ndirectory=/tmp/d\n\
                [log]\nstonewall\nrw=write\nioengine=psync\nfilename=log\nrate=,1m\nrate_iops=500\nfsync=8\nend_fsync=1\nloops=3\noffset=4k\n";
    let jobs = parse(text).unwrap();
    let [mixed, log] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert_eq!((mixed.name.as_str(), mixed.copies, mixed.is_grouped, mixed.waits), ("mixed", 2, true, false));
    assert_eq!(
        (mixed.job.mix, mixed.job.order, mixed.job.depth),
        (Mix::Both { read_percent: 70 }, JobOrder::RandomPermutation, 16)
    );
    assert_eq!((mixed.job.engine, mixed.job.access), (JobEngine::Ring, Access::Direct));
    assert_eq!((mixed.job.layout.size, mixed.job.end.loops), (Some(1 << 30), u64::MAX));
    assert_eq!((mixed.job.ramp, mixed.job.end.runtime), (Duration::from_millis(500), Some(Duration::from_secs(60))));
    assert_eq!(
        (&mixed.job.blocks.read, &mixed.job.blocks.write),
        (&BlockSizes::single(4096), &BlockSizes::single(8192))
    );
    assert!(mixed.notes.iter().any(|note| note.starts_with("libaio")), "{:?}", mixed.notes);
    let copies = mixed.jobs();
    assert_eq!(copies[1].file, Path::new("/tmp/d/mixed.1.0"));
    assert_ne!(copies[0].seed, copies[1].seed);
    assert_eq!(
        (log.waits, log.job.mix, log.job.engine, log.job.end.loops),
        (true, Mix::Writes, JobEngine::Positioned, 3)
    );
    // Reads alone or writes alone have one size.
    assert_eq!(log.job.blocks.read, BlockSizes::single(8192));
    assert_eq!(log.job.rate.write, RateLimit { bytes_per_second: Some(1 << 20), requests_per_second: Some(500) });
    assert_eq!(log.job.rate.read, RateLimit { bytes_per_second: None, requests_per_second: Some(500) });
    assert_eq!((log.job.flush_every, log.job.end_fsync, log.job.layout.offset), (Some((8, Flush::All)), true, 4096));
    assert_eq!(log.jobs()[0].file, Path::new("log"));
}

#[test]
fn less_usual_options_mean_what_they_mean_to_fio() {
    let jobs = parse("[a]\nrw=randwrite\nnorandommap\nfdatasync=4\nbuffered=0\nioengine=io_uring\nsqthread_poll=1\n[b]\ndirect=1\nbuffered=1\n").unwrap();
    let job = &jobs[0].job;
    assert_eq!((job.order, job.flush_every), (JobOrder::RandomIndependent, Some((4, Flush::Data))));
    assert_eq!((job.engine, job.access), (JobEngine::PolledRing, Access::Direct));
    assert_eq!((jobs[1].job.access, jobs[1].job.order), (Access::Buffered, JobOrder::Sequential));
    let jobs = parse("[a]\nrw=write\nnorandommap\nlat_percentiles=1\ngtod_reduce\n").unwrap();
    assert_eq!(jobs[0].job.order, JobOrder::Sequential);
    assert!(jobs[0].notes.iter().any(|note| note.starts_with("lat_percentiles, gtod_reduce: ")), "{:?}", jobs[0].notes);
}

#[test]
fn switches_alone_may_stand_without_a_value() {
    for name in OPTION_NAMES {
        let error = parse(&format!("[a]\nioengine=io_uring\nruntime=1\n{name}\n")).err().map(|error| error.to_string());
        let needs_value = format!("4: {name}: it needs a value, {name}=...");
        assert_eq!(error, (!SWITCHES.contains(&name)).then_some(needs_value), "{name}");
    }
}

#[test]
fn options_of_a_command_line_are_those_of_a_file() {
    let options = |text: &str| -> Vec<(String, String)> {
        let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.split(' ').map(|word| pair(word).unwrap()).collect()
    };
    let jobs = parse_options(&options("size=1m name=a rw=randread name=global bs=8k name=b size=2m")).unwrap();
    let described: Vec<_> =
        jobs.iter().map(|job| (job.name.as_str(), job.job.layout.size, job.job.largest_block())).collect();
    assert_eq!(described, [("a", Some(1 << 20), 4096), ("b", Some(2 << 20), 8192)]);
    let error_of = |text: &str| parse_options(&options(text)).unwrap_err();
    assert_eq!(error_of("rw=read bs=4k").message, "there is no job: begin one with --name=NAME");
    let error = error_of("name=a rw=trim");
    assert_eq!((error.line, error.message.starts_with("rw=trim: it is one of")), (2, true));
    assert!(error_of("name=a time_based=1").message.starts_with("job a: time_based needs"));
}

#[test]
fn global_options_hold_for_jobs_after_them() {
    let jobs = parse("[global]\nsize=1m\n[a]\n[global]\nbs=8k\nsize=2m\n[b]\nsize=3m\n").unwrap();
    let sizes: Vec<_> = jobs.iter().map(|planned| (planned.job.layout.size, planned.job.largest_block())).collect();
    assert_eq!(sizes, [(Some(1 << 20), 4096), (Some(3 << 20), 8192)]);
}

#[test]
fn block_split_shares_the_rest() {
    let jobs = parse("[a]\nrw=randrw\nbssplit=4k/50:8k/:16k,64k/100\n").unwrap();
    assert_eq!(jobs[0].job.blocks.read.shares(), [(4096, 0.5), (8192, 0.25), (16384, 0.25)]);
    assert_eq!(jobs[0].job.blocks.write, BlockSizes::single(65536));
}

#[test]
fn unknown_options_are_named_with_their_line() {
    let error = error_of("[a]\nrw=read\nzonemode=zbd\n");
    assert!(error.starts_with("3: kelvin file run does not know 'zonemode'; it knows: blocksize, bs, "), "{error}");
    assert!(error_of("[a]\nthinktime\n").contains("'thinktime'"));
}

#[test]
fn what_means_something_else_is_refused() {
    for (text, expected) in [
        ("", "1: there is no job"),
        ("rw=read\n", "1: an option before the first section"),
        ("[a\n", "1: a section is a name in brackets"),
        ("[]\n", "1: a section without a name"),
        ("[a]\nrw read\n", "2: this is neither a section"),
        ("[a]\nrw=trim\n", "2: rw=trim: it is one of: read, write"),
        ("[a]\nrw=read:8\n", "2: rw=read:8: "),
        ("[a]\nbs=4kib\n", "2: bs=4kib: fio reads 4kib as a power of 1000"),
        ("[a]\nbs=0\n", "2: bs=0: a block has 1 byte to 1 GiB"),
        ("[a]\nsize=50%\n", "2: size=50%: a share of a file"),
        ("[a]\nsize=99999999p\n", "2: size=99999999p: it is more than any file has"),
        ("[a]\nfilename=a:b\n", "2: filename=a:b: one path"),
        ("[a]\nfilename=${HOME}/a\n", "2: filename: variables of the environment"),
        ("[a]\nioengine=mmap\n", "2: ioengine=mmap: it is one of: sync, psync, io_uring, libaio"),
        ("[a]\nioengine=libaio\n", "1: job a: libaio waits"),
        ("[a]\ntime_based\n", "1: job a: time_based needs a runtime"),
        ("[a]\nverify=pattern\n", "2: verify=pattern: it is 0, or a checksum"),
        ("[a]\nverify=md5\nbssplit=4k/50:8k/50\n", "1: job a: verify needs one size"),
        ("[a]\nfsync=1\nfdatasync=1\n", "1: job a: fsync and fdatasync"),
        ("[a]\nsqthread_poll=1\n", "1: job a: sqthread_poll needs ioengine=io_uring"),
        ("[a]\nverify=md5\nbs=32\n", "1: job a: verify needs blocks of 64"),
        ("[a]\nbssplit=4k/50:8k/40\n", "2: bssplit=4k/50:8k/40: the shares add up to 90 %"),
        ("[a]\nrwmixread=101\n", "2: rwmixread=101: it must be a whole number from 0 to 100"),
        ("[a]\nnumjobs=300\n", "2: numjobs=300: it must be a whole number from 1 to 256"),
        ("[a]\nnumjobs=200\n[b]\nnumjobs=57\n", "3: the jobs up to here have 257 threads"),
        ("[a]\nioengine=io_uring\niodepth=4096\nbs=1m\n", "1: the buffers of jobs that run at once"),
        ("[a]\nkb_base=1000\n", "2: kb_base=1000: sizes are by powers of 1024"),
        ("[a]\nrw\n", "2: rw: it needs a value"),
        ("[a]\ndirect=2\n", "2: direct: it must be 0 or 1"),
        ("[../a]\nsize=1m\n", "1: job ../a: its name is no file name"),
    ] {
        let error = error_of(text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn buffers_of_stages_are_counted_apart() {
    let job = "ioengine=io_uring\niodepth=512\nbs=1m\n";
    assert!(parse(&format!("[a]\n{job}[b]\nstonewall\n{job}[c]\nstonewall\n{job}")).is_ok());
    assert!(error_of(&format!("[a]\n{job}[b]\n{job}[c]\n{job}")).starts_with("9: the buffers"));
}

/// Lines that are nearly right, and pieces that are not.
fn any_line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(OPTION_NAMES.to_vec());
    let value = prop_oneof![
        "[0-9]{0,25}[a-zA-Z%]{0,3}",
        "[a-z0-9_/:,%=.-]{0,20}",
        "\\PC{0,20}",
        Just("randrw".to_owned()),
        Just("io_uring".to_owned()),
    ];
    prop_oneof![
        4 => (name, value).prop_map(|(name, value)| format!("{name}={value}")),
        1 => "\\[[a-z]{0,8}\\]?",
        1 => "\\PC{0,40}",
    ]
}

proptest! {
    #[test]
    fn any_text_is_jobs_within_limits_or_an_error_with_its_line(lines in prop::collection::vec(any_line(), 0..30)) {
        let text = format!("[global]\n{}\n[job]\n", lines.join("\n"));
        match parse(&text) {
            Ok(jobs) => {
                prop_assert!(jobs.iter().map(|planned| planned.copies).sum::<u32>() <= MAX_THREADS);
                prop_assert!(jobs.iter().all(|planned| planned.buffer_bytes() <= MAX_BUFFER_BYTES));
                prop_assert!(jobs.iter().all(|planned| planned.jobs().len() == planned.copies as usize));
            }
            Err(error) => prop_assert!((1..=text.lines().count()).contains(&error.line), "{error}"),
        }
    }

    #[test]
    fn options_keep_their_values(kilobytes in 1u64..1 << 19, depth in 1u32..64, percent in 0u8..=100, seconds in 1u64..1_000_000) {
        let text = format!(
            "[a]\nrw=rw\nioengine=io_uring\nbs=4k\nsize={kilobytes}k\niodepth={depth}\nrwmixwrite={percent}\nruntime={seconds}s\n"
        );
        let job = parse(&text).unwrap().remove(0).job;
        prop_assert_eq!(job.layout.size, Some(kilobytes * 1024));
        prop_assert_eq!((job.depth, job.mix), (depth, Mix::Both { read_percent: 100 - percent }));
        prop_assert_eq!(job.end.runtime, Some(Duration::from_secs(seconds)));
    }
}
