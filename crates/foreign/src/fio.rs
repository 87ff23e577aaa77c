//! fio 3: the JSON of `--output-format=json`, one job at a time.
//!
//! A job counts only if each of its options is known not to change what is measured: what an unknown option does is unknown too.

use std::collections::BTreeMap;

use kelvin_catalogue::file::{
    DEPTH_LATENCY, DEPTH_RATE, DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_REQUESTS, DEVICE_WRITE, QUEUE_DEPTH,
};
use kelvin_model::Case;
use serde::Deserialize;

use crate::table::{Found, Row, version};

const SAME_READ: &str =
    "a read of 4 KiB past the page cache at a random place, as many in flight as asked for, by one thread";
static RATE: Row = Row::same("randread, bs=4k, direct=1, iodepth=N: iops", &DEPTH_RATE, SAME_READ);
static LATENCY: Row = Row::same("randread, bs=4k, direct=1, iodepth=N: mean of lat_ns", &DEPTH_LATENCY, SAME_READ);
static ALONE: Row = Row::same(
    "randread, bs=4k, direct=1, iodepth=1: mean of lat_ns",
    &DEVICE_MEAN_LATENCY,
    "the same at queue depth 1 is a metric of its own too",
);
static REQUESTS: Row = Row::same(
    "randread, bs=4k, direct=1, iodepth=64: iops",
    &DEVICE_REQUESTS,
    "the same at queue depth 64 is a metric of its own too",
);
static READ: Row = Row::same(
    "read, bs=1m, direct=1, iodepth=16: bw_bytes",
    &DEVICE_READ,
    "in order past the page cache, with 16 requests of 1 MiB in flight, in both",
);
static WRITE: Row = Row::same(
    "write, bs=1m, direct=1, iodepth=16: bw_bytes",
    &DEVICE_WRITE,
    "in order past the page cache, with 16 requests of 1 MiB in flight, not flushed, in both",
);
static FAILED: Row = Row::other("a job that failed", "it measured nothing");
static CACHED: Row = Row::other("a job through the page cache", "what of the file was in memory is not in the results");
static TOGETHER: Row = Row::other("jobs at the same time", "each is disturbed by the others; give each stonewall");
static SEVERAL: Row = Row::other("numjobs above 1", "the queues of several processes; kelvin's is that of one thread");
static ENGINE: Row = Row::other(
    "an engine other than libaio, io_uring, psync, sync, pvsync, pvsync2",
    "whether it keeps requests in flight is not known",
);
static NO_QUEUE: Row =
    Row::other("a synchronous engine with iodepth above 1", "it has one request in flight, whatever is asked for");
static NOT_REACHED: Row =
    Row::other("a queue that was not as deep as asked for", "requested and achieved depth are two figures");
static OPTIONS: Row = Row::other(
    "a job with options beyond those of order, block, queue, size and time",
    "what they change is not known",
);
static WORK: Row = Row::other(
    "another order, block or queue depth",
    "kelvin's are: random reads of 4 KiB at any depth, reads and writes in order of 1 MiB at depth 16",
);

/// All of it.
pub(crate) static TABLE: &[Row] = &[
    RATE,
    LATENCY,
    ALONE,
    REQUESTS,
    READ,
    WRITE,
    FAILED,
    CACHED,
    TOGETHER,
    SEVERAL,
    ENGINE,
    NO_QUEUE,
    NOT_REACHED,
    OPTIONS,
    WORK,
];

/// Options that do not change what is measured, or that are looked at.
const KNOWN: [&str; 26] = [
    "name",
    "filename",
    "directory",
    "size",
    "filesize",
    "io_size",
    "runtime",
    "time_based",
    "ramp_time",
    "rw",
    "readwrite",
    "bs",
    "blocksize",
    "ioengine",
    "iodepth",
    "direct",
    "numjobs",
    "stonewall",
    "group_reporting",
    "thread",
    "invalidate",
    "randrepeat",
    "norandommap",
    "refill_buffers",
    "description",
    "unlink",
];

#[derive(Deserialize)]
struct File {
    #[serde(rename = "fio version")]
    version: String,
    timestamp: Option<i64>,
    timestamp_ms: Option<i64>,
    #[serde(rename = "global options", default)]
    global: BTreeMap<String, String>,
    #[serde(default)]
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    groupid: u64,
    error: i64,
    #[serde(rename = "job options", default)]
    options: BTreeMap<String, String>,
    read: Direction,
    write: Direction,
    #[serde(default)]
    iodepth_level: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    bw_bytes: f64,
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
}

/// Whether it is an object with the version that fio writes first.
pub(crate) fn is_signed(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Signature {
        #[serde(rename = "fio version")]
        version: String,
    }
    text.trim_start().starts_with('{')
        && serde_json::from_str::<Signature>(text).is_ok_and(|signature| signature.version.starts_with("fio-"))
}

pub(crate) fn read(text: &str) -> Result<Found, String> {
    if !is_signed(text) {
        return Err("it is no JSON object with \"fio version\" (--output-format=json --output=FILE)".into());
    }
    let file: File = serde_json::from_str(text).map_err(|error| format!("{error} (fio 3 or newer is needed)"))?;
    let mut found = Found { version: version(file.version.trim_start_matches("fio-")), ..Found::default() };
    found.made_at = file.timestamp_ms.or_else(|| file.timestamp?.checked_mul(1000));
    let is_new_group = |options: &BTreeMap<String, String>| options.contains_key("new_group");
    let groups_are_apart = !is_new_group(&file.global) && !file.jobs.iter().any(|job| is_new_group(&job.options));
    for (index, job) in file.jobs.iter().enumerate() {
        let mut others = file.jobs.iter().enumerate().filter(|(other, _)| *other != index);
        let is_alone = groups_are_apart && others.all(|(_, other)| other.groupid != job.groupid);
        // Its own options count before the global ones.
        let mut options = file.global.clone();
        options.extend(job.options.clone());
        of_job(job, &options, is_alone, &mut found);
    }
    Ok(found)
}

fn of_job(job: &Job, options: &BTreeMap<String, String>, is_alone: bool, found: &mut Found) {
    match asked(job, options, is_alone) {
        Err(row) => found.leave_out(row),
        Ok((Work::RandomRead, depth)) => {
            let at = || Case::new().with(QUEUE_DEPTH, depth);
            found.keep(&RATE, at(), job.read.iops);
            found.keep(&LATENCY, at(), job.read.lat_ns.mean);
            match depth {
                1 => found.keep(&ALONE, Case::new(), job.read.lat_ns.mean),
                64 => found.keep(&REQUESTS, Case::new(), job.read.iops),
                _ => {}
            }
        }
        Ok((Work::Read, _)) => found.keep(&READ, Case::new(), job.read.bw_bytes),
        Ok((Work::Write, _)) => found.keep(&WRITE, Case::new(), job.write.bw_bytes),
    }
}

/// Work that is a metric of kelvin.
#[derive(Clone, Copy)]
enum Work {
    RandomRead,
    Read,
    Write,
}

/// What a job did and how many requests it had in flight, or why that is no metric of kelvin.
fn asked(job: &Job, options: &BTreeMap<String, String>, is_alone: bool) -> Result<(Work, u64), &'static Row> {
    let of = |names: &[&str], usual: &str| -> String {
        let named = names.iter().find_map(|name| options.get(*name));
        named.map_or(usual, String::as_str).to_ascii_lowercase()
    };
    let require = |holds: bool, row: &'static Row| if holds { Ok(()) } else { Err(row) };
    require(job.error == 0, &FAILED)?;
    require(is_alone, &TOGETHER)?;
    require(options.keys().all(|option| KNOWN.contains(&option.as_str())), &OPTIONS)?;
    require(of(&["numjobs"], "1") == "1", &SEVERAL)?;
    require(["1", "true"].contains(&of(&["direct"], "0").as_str()), &CACHED)?;
    let depth: u64 = of(&["iodepth"], "1").parse().map_err(|_| &WORK)?;
    match of(&["ioengine"], "psync").as_str() {
        "libaio" | "io_uring" => require(reached(job, depth), &NOT_REACHED)?,
        "psync" | "sync" | "pvsync" | "pvsync2" => require(depth == 1, &NO_QUEUE)?,
        _ => return Err(&ENGINE),
    }
    match (of(&["rw", "readwrite"], "read").as_str(), bytes(&of(&["bs", "blocksize"], "4k")), depth) {
        ("randread", Some(4096), 1..) => Ok((Work::RandomRead, depth)),
        ("read", Some(1_048_576), 16) => Ok((Work::Read, depth)),
        ("write", Some(1_048_576), 16) => Ok((Work::Write, depth)),
        _ => Err(&WORK),
    }
}

/// Share of the time, in percent, for which the queue must have been as deep as asked for.
const MOSTLY: f64 = 90.0;

/// Whether the queue was as deep as asked for, by fio's own count: it counts depths from a power of two to below the next together, and
/// all from 64 on.
fn reached(job: &Job, depth: u64) -> bool {
    let Some(power) = depth.checked_ilog2() else { return false };
    let level = if power >= 6 { ">=64".to_owned() } else { (1_u64 << power).to_string() };
    job.iodepth_level.get(&level).is_some_and(|share| *share >= MOSTLY)
}

/// A size as fio reads it: bytes, or with k or m, which are binary.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(["4k", "4096", "1m", "1024kib"].map(bytes), [Some(4096), Some(4096), Some(1 << 20), Some(1 << 20)]);
        assert_eq!(["", "k", "4k,8k", "4k-8k", "99999999999999999999", "4q"].map(bytes), [None; 6]);
    }

    /// One job, with other options and another queue than the usual ones.
    fn job(options: &str, level: &str) -> Result<Found, String> {
        let side = r#"{"iops":1000.0,"bw_bytes":4096000,"lat_ns":{"mean":8000.0}}"#;
        let job = format!(
            r#"{{"groupid":0,"error":0,"job options":{{{options}}},"read":{side},"write":{side},"iodepth_level":{{"{level}":99.0}}}}"#
        );
        read(&format!(r#"{{"fio version":"fio-3.33","timestamp":1795614400,"jobs":[{job}]}}"#))
    }

    const QUEUED: &str = r#""rw":"randread","bs":"4k","ioengine":"io_uring","direct":"1""#;

    #[test]
    fn a_queue_counts_where_it_was_reached() {
        let depths = |found: Found| found.values.iter().map(|value| value.case.to_string()).collect::<Vec<_>>();
        let queued = |depth: &str, level: &str| job(&format!(r#"{QUEUED},"iodepth":"{depth}""#), level).unwrap();
        assert_eq!(depths(queued("12", "8")), ["depth=12", "depth=12"]);
        assert_eq!(depths(queued("64", ">=64")), ["depth=64", "depth=64", ""]);
        assert_eq!(queued("12", "4").left_out, [NOT_REACHED.left_out()]);
        assert_eq!(queued("0", "1").left_out, [NOT_REACHED.left_out()]);
    }

    #[test]
    fn what_is_something_else_is_left_out_with_its_reason() {
        for (options, row) in [
            (format!(r#"{QUEUED},"rate_iops":"100""#), &OPTIONS),
            (format!(r#"{QUEUED},"numjobs":"2""#), &SEVERAL),
            (r#""rw":"randread","bs":"4k""#.into(), &CACHED),
            (r#""rw":"randread","direct":"1","ioengine":"psync","iodepth":"8""#.into(), &NO_QUEUE),
            (r#""rw":"randread","direct":"1","ioengine":"mmap""#.into(), &ENGINE),
            (r#""rw":"randwrite","direct":"1""#.into(), &WORK),
            (r#""rw":"read","bs":"1m","direct":"1""#.into(), &WORK),
        ] {
            let found = job(&options, "1").unwrap();
            assert!(found.values.is_empty(), "{options}");
            assert_eq!(found.left_out, [row.left_out()], "{options}");
        }
    }
}
