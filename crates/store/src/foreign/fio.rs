//! fio 3: the JSON of `--output-format=json`, one job at a time.
//!
//! A job counts only if each of its options is known not to change what is measured: what an unknown option does is unknown too.

use std::collections::BTreeMap;

use kelvin_core::Case;
use kelvin_core::catalogue::file::QUEUE_DEPTH;
use serde::Deserialize;

use crate::foreign::Tool;
use crate::foreign::json::{deserializes_to, is_only_object, only_object};
use crate::foreign::mapping::{MIN_FILE_BYTES, ParsedResults};

/// What fio's results omit, of a command line and of a job file alike.
const UNLISTED_OPTIONS_NOTE: &str =
    "fio names no option without a value in its results, such as zero_buffers: what one changes cannot be seen";

/// The shortest time for which a job counts, in milliseconds.
const MIN_MILLISECONDS: f64 = 500.0;

/// Options that do not change what is measured, or that are looked at.
const KNOWN_OPTIONS: &str = "name filename directory size filesize io_size runtime time_based ramp_time rw readwrite bs blocksize ioengine \
    iodepth direct numjobs stonewall group_reporting thread invalidate randrepeat norandommap refill_buffers description unlink";

#[derive(Deserialize)]
struct FioOutput {
    #[serde(rename = "fio version")]
    version: String,
    timestamp: Option<i64>,
    timestamp_ms: Option<i64>,
    #[serde(rename = "global options", default)]
    global: BTreeMap<String, String>,
    jobs: Option<Vec<Job>>,
}

#[derive(Deserialize)]
struct Job {
    groupid: u64,
    error: i64,
    #[serde(rename = "job options", default)]
    options: BTreeMap<String, String>,
    read: Option<DirectionStats>,
    write: Option<DirectionStats>,
    mixed: Option<serde::de::IgnoredAny>,
    /// Milliseconds of all jobs of the result together; fio before 3.8 does not report it.
    job_runtime: Option<f64>,
    #[serde(default)]
    iodepth_level: BTreeMap<String, f64>,
}

#[derive(Default, Deserialize)]
struct DirectionStats {
    iops: f64,
    /// A second; fio before 3.2 has only the KiB of `bw`.
    bw_bytes: Option<f64>,
    bw: Option<f64>,
    /// In milliseconds.
    runtime: Option<f64>,
    lat_ns: Latency,
}

impl DirectionStats {
    fn bytes_a_second(&self) -> Option<f64> {
        self.bw_bytes.or_else(|| Some(self.bw? * 1024.0))
    }

    /// Requests in flight on average (Little's law).
    fn in_flight(&self) -> f64 {
        self.iops * self.lat_ns.mean / 1e9
    }
}

#[derive(Default, Deserialize)]
struct Latency {
    mean: f64,
}

/// Whether it is an object with the version that fio writes first.
pub(crate) fn is_signed(text: &str) -> bool {
    is_only_object(text, is_signed_object)
}

#[derive(Deserialize)]
struct Signature {
    #[serde(rename = "fio version")]
    version: String,
}

fn is_signed_object(text: &str) -> bool {
    deserializes_to(text, |signature: &Signature| signature.version.starts_with("fio-"))
}

/// Whether it was written by a fio whose times had other names and units.
fn is_before_3(object: &str) -> bool {
    deserializes_to(object, |signature: &Signature| {
        ["fio-1.", "fio-2."].iter().any(|prefix| signature.version.starts_with(prefix))
    })
}

pub(crate) fn read(text: &str) -> Result<ParsedResults, String> {
    let object = only_object(text, is_signed_object)?;
    let file: FioOutput = kelvin_core::json::from_str(object).map_err(|error| match is_before_3(object) {
        true => format!("{error} (fio 3 or newer is needed)"),
        false => error.to_string(),
    })?;
    let jobs = file.jobs.ok_or("\"jobs\" is missing: results of --client are not read")?;
    let mut results = ParsedResults::new(Tool::Fio, file.version.trim_start_matches("fio-"));
    results.measured_at_ms = file.timestamp_ms.or_else(|| file.timestamp?.checked_mul(1000));
    let is_new_group = |options: &BTreeMap<String, String>| options.contains_key("new_group");
    let groups_are_apart = !is_new_group(&file.global) && !jobs.iter().any(|job| is_new_group(&job.options));
    for (index, job) in jobs.iter().enumerate() {
        let mut other_jobs = jobs.iter().enumerate().filter(|(number, _)| *number != index);
        let is_alone = groups_are_apart && other_jobs.all(|(_, number)| number.groupid != job.groupid);
        // Its own options count before the global ones.
        let mut options = file.global.clone();
        options.extend(job.options.clone());
        add_job(job, &options, is_alone, &mut results);
    }
    Ok(results)
}

fn add_job(job: &Job, options: &BTreeMap<String, String>, is_alone: bool, results: &mut ParsedResults) {
    let (key, depth) = match classify_job(job, options, is_alone) {
        Err(NotImported::Result(key)) => return results.add_not_imported(key),
        Err(NotImported::Option(name)) => return results.add_unknown_option("unknown_options", &name),
        Ok(job_type) => job_type,
    };
    let side = if key == "sequential_write" { &job.write } else { &job.read };
    let Some(stats) = side else { return results.add_not_imported("mixed_io") };
    if is_of_several(job, stats, depth) {
        return results.add_not_imported("grouped_jobs");
    }
    if stats.runtime.is_some_and(|runtime| runtime < MIN_MILLISECONDS) {
        return results.add_not_imported("too_short");
    }
    results.add_note(UNLISTED_OPTIONS_NOTE);
    if key != "rate" {
        return results.add_value(key, Case::new(), stats.bytes_a_second());
    }
    let case = || Case::new().with_number(QUEUE_DEPTH, depth);
    results.add_value("rate", case(), stats.iops);
    results.add_value("latency", case(), stats.lat_ns.mean);
    match depth {
        1 => results.add_value("depth_1_latency", Case::new(), stats.lat_ns.mean),
        64 => results.add_value("depth_64_rate", Case::new(), stats.iops),
        _ => {}
    }
}

/// Whether jobs were added up: they took longer together than the result states, or, where fio reports no time, had more in flight
/// than one may have.
fn is_of_several(job: &Job, stats: &DirectionStats, depth: u64) -> bool {
    match (job.job_runtime, stats.runtime) {
        (Some(total_runtime), Some(runtime)) => total_runtime > 1.2 * runtime + MIN_MILLISECONDS,
        _ => stats.in_flight() > 1.2 * depth as f64,
    }
}

/// Why a job is no metric of kelvin.
#[derive(Debug)]
enum NotImported {
    /// By the key of its result.
    Result(&'static str),
    /// An option that is not known.
    Option(String),
}

/// The key of what a job did and how many requests it had in flight, or why that is no metric of kelvin.
fn classify_job(
    job: &Job,
    options: &BTreeMap<String, String>,
    is_alone: bool,
) -> Result<(&'static str, u64), NotImported> {
    let option = |names: &[&str], default_value: &str| -> String {
        let value = names.iter().find_map(|name| options.get(*name));
        value.map_or(default_value, String::as_str).to_ascii_lowercase()
    };
    let require = |holds: bool, key: &'static str| if holds { Ok(()) } else { Err(NotImported::Result(key)) };
    require(job.error == 0, "failed_job")?;
    require(is_alone, "concurrent_jobs")?;
    require(job.mixed.is_none(), "mixed_io")?;
    if let Some(unknown_option) = options.keys().find(|option| !KNOWN_OPTIONS.split(' ').any(|name| name == *option)) {
        return Err(NotImported::Option(unknown_option.clone()));
    }
    // Without a backslash a colon parts names.
    let has_several = |names: &String| names.replace("\\:", "").contains(':');
    require(
        !["filename", "directory"].iter().any(|name| options.get(*name).is_some_and(has_several)),
        "several_files",
    )?;
    require(option(&["numjobs"], "1") == "1", "several_processes")?;
    require(["1", "true"].contains(&option(&["direct"], "0").as_str()), "cached_io")?;
    for name in ["size", "filesize"] {
        let Some(size) = options.get(name) else { continue };
        match min_size(&size.to_ascii_lowercase()) {
            Some(size) => require(size >= MIN_FILE_BYTES, "too_small")?,
            None => return Err(NotImported::Option(name.into())),
        }
    }
    let depth: u64 = option(&["iodepth"], "1").parse().map_err(|_| NotImported::Result("other_work"))?;
    match option(&["ioengine"], "psync").as_str() {
        "libaio" | "io_uring" => require(has_reached_depth(job, depth), "depth_not_reached")?,
        "psync" | "sync" | "pvsync" | "pvsync2" => require(depth == 1, "sync_engine_with_depth")?,
        _ => return Err(NotImported::Result("unknown_engine")),
    }
    match (option(&["rw", "readwrite"], "read").as_str(), parse_size(&option(&["bs", "blocksize"], "4k")), depth) {
        ("randread", Some(4096), 1..) => Ok(("rate", depth)),
        ("read", Some(1_048_576), 16) => Ok(("sequential_read", depth)),
        ("write", Some(1_048_576), 16) => Ok(("sequential_write", depth)),
        _ => Err(NotImported::Result("other_work")),
    }
}

/// Share of the time, in percent, for which the queue must have been as deep as asked for.
const MIN_DEPTH_PERCENT: f64 = 90.0;

/// Whether the queue was as deep as asked for, by fio's own count: it counts depths from a power of two to below the next together, and
/// all from 64 on.
fn has_reached_depth(job: &Job, depth: u64) -> bool {
    let Some(power) = depth.checked_ilog2() else { return false };
    let level = if power >= 6 { ">=64".to_owned() } else { (1_u64 << power).to_string() };
    job.iodepth_level.get(&level).is_some_and(|share| *share >= MIN_DEPTH_PERCENT)
}

/// The least bytes that a size leaves a job: of a range the lower end; a share of the device in percent is taken for enough.
fn min_size(size: &str) -> Option<u64> {
    let share = size.strip_suffix('%').map(|percent| percent.parse::<f64>());
    match share {
        Some(percent) => percent.ok().map(|_| MIN_FILE_BYTES),
        None => parse_size(size.split('-').next().unwrap_or(size)),
    }
}

/// A size as fio reads it with its usual `kb_base` of 1024, which turns both kinds of prefixes about: k, kb and ki are binary, kib is
/// decimal (`__get_mult_bytes` in fio's parse.c).
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let power = match unit.chars().next() {
        None | Some('b') => 0,
        Some(prefix) => "kmgtp".find(prefix)? as u32 + 1,
    };
    let base: u64 = match unit.get(usize::from(power > 0)..)? {
        "" | "b" if power == 0 && unit.len() < 2 => 1,
        "" | "b" | "i" if power > 0 => 1024,
        "ib" if power > 0 => 1000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(base.pow(power))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::mapping::MetricMapping;

    fn not_imported(key: &str) -> String {
        MetricMapping::find(Tool::Fio, key).not_imported_text()
    }

    #[test]
    fn sizes_have_binary_prefixes() {
        for (text, size) in [
            ("4k", 4096),
            ("4kb", 4096),
            ("4ki", 4096),
            ("4096", 4096),
            ("4096b", 4096),
            ("1m", 1 << 20),
            ("1p", 1 << 50),
            // Tried with fio 3.33: it read blocks of 4000 bytes.
            ("4kib", 4000),
            ("1mib", 1_000_000),
        ] {
            assert_eq!(parse_size(text), Some(size), "{text}");
        }
        for text in
            ["", "k", "4k,8k", "4k-8k", "99999999999999999999", "4q", "4bb", "4kk", "4ib", "1z", "0.5m", "99999p"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    /// One job, with other options and another queue than the usual ones.
    fn job(options: &str, level: &str) -> Result<ParsedResults, String> {
        let side = r#"{"iops":1000.0,"bw_bytes":4096000,"lat_ns":{"mean":8000.0}}"#;
        let job = format!(
            r#"{{"groupid":0,"error":0,"job options":{{{options}}},"read":{side},"write":{side},"iodepth_level":{{"{level}":99.0}}}}"#
        );
        read(&format!(r#"{{"fio version":"fio-3.33","timestamp":1795614400,"jobs":[{job}]}}"#))
    }

    const QUEUED: &str = r#""rw":"randread","bs":"4k","ioengine":"io_uring","direct":"1""#;

    #[test]
    fn queue_depth_must_be_reached() {
        let depths =
            |results: ParsedResults| results.values.iter().map(|value| value.case.to_string()).collect::<Vec<_>>();
        let queued = |depth: &str, level: &str| job(&format!(r#"{QUEUED},"iodepth":"{depth}""#), level).unwrap();
        assert_eq!(depths(queued("12", "8")), ["depth=12", "depth=12"]);
        assert_eq!(depths(queued("64", ">=64")), ["depth=64", "depth=64", ""]);
        assert_eq!(queued("12", "8").not_imported, [UNLISTED_OPTIONS_NOTE], "flags without a value are in no result");
        assert_eq!(queued("12", "4").not_imported, [not_imported("depth_not_reached")]);
        assert_eq!(queued("0", "1").not_imported, [not_imported("depth_not_reached")]);
    }

    #[test]
    fn other_work_is_omitted_with_reason() {
        for size in ["16m", "1G", "10%", "1TiB", "16Mi", "1g-2g"] {
            assert_eq!(job(&format!(r#"{QUEUED},"size":"{size}""#), "1").unwrap().values.len(), 3, "{size}");
        }
        for (options, key) in [
            (format!(r#"{QUEUED},"numjobs":"2""#), "several_processes"),
            (r#""rw":"randread","bs":"4k""#.into(), "cached_io"),
            (r#""rw":"randread","direct":"1","ioengine":"psync","iodepth":"8""#.into(), "sync_engine_with_depth"),
            (r#""rw":"randread","direct":"1","ioengine":"mmap""#.into(), "unknown_engine"),
            (r#""rw":"randwrite","direct":"1""#.into(), "other_work"),
            (r#""rw":"randread:8","direct":"1""#.into(), "other_work"),
            (r#""rw":"randrw","direct":"1""#.into(), "other_work"),
            (r#""rw":"randread","direct":"1","bs":"4k,8k""#.into(), "other_work"),
            (r#""rw":"randread","direct":"1","filename":"a:b""#.into(), "several_files"),
            (r#""rw":"read","bs":"1m","direct":"1""#.into(), "other_work"),
            (format!(r#"{QUEUED},"size":"4k""#), "too_small"),
            (format!(r#"{QUEUED},"size":"1G","filesize":"8M""#), "too_small"),
            (format!(r#"{QUEUED},"size":"1000000""#), "too_small"),
            (format!(r#"{QUEUED},"filesize":"1m-64m""#), "too_small"),
            (format!(r#"{QUEUED},"size":"8Mi""#), "too_small"),
            (format!(r#"{QUEUED},"size":"16MiB""#), "too_small"),
            (r#""rw":"randread","bs":"4KiB","direct":"1""#.into(), "other_work"),
        ] {
            let results = job(&options, "1").unwrap();
            assert!(results.values.is_empty(), "{options}");
            assert_eq!(results.not_imported, [not_imported(key)], "{options}");
        }
        let unknown_option_note =
            |option: &str| job(&format!(r#"{QUEUED},"{option}":"100""#), "1").unwrap().not_imported.remove(0);
        let foreign_name = MetricMapping::find(Tool::Fio, "unknown_options").foreign_name;
        for option in
            ["rate_iops", "rwmixread", "bsrange", "fsync", "verify", "zonemode", "buffered", "percentage_random"]
        {
            assert!(
                unknown_option_note(option).starts_with(&format!("not imported: {foreign_name} ({option}): ")),
                "{option}"
            );
        }
        for size in ["2z", "0.5m", "1m,2m", "x%"] {
            let note = job(&format!(r#"{QUEUED},"size":"{size}""#), "1").unwrap().not_imported.remove(0);
            assert!(note.contains("(size)"), "{size}: {note}");
        }
        assert!(unknown_option_note("a b").contains("size and time: "), "only a name is shown");
    }

    #[test]
    fn bandwidth_falls_back_to_kib() {
        let rate = |rate: &str| {
            let side = format!(r#"{{"iops":100.0,{rate}"runtime":1001,"lat_ns":{{"mean":160000000.0}}}}"#);
            let text = format!(
                r#"{{"fio version":"fio-3.1","jobs":[{{"groupid":0,"error":0,"iodepth_level":{{"16":100.0}},
                    "job options":{{"rw":"read","bs":"1m","direct":"1","ioengine":"libaio","iodepth":"16"}},
                    "read":{side},"write":{side}}}]}}"#
            );
            read(&text).unwrap()
        };
        for (bandwidth_field, bytes) in
            [(r#""bw":102400,"#, 104_857_600.0), (r#""bw":102400,"bw_bytes":104857601,"#, 104_857_601.0)]
        {
            assert_eq!(rate(bandwidth_field).values[0].value, bytes, "{bandwidth_field}");
        }
        assert!(rate("").values.is_empty());
    }

    #[test]
    fn grouped_or_short_results_are_omitted() {
        let text = |runtime: u32, job_runtime: u32| {
            let side =
                format!(r#"{{"iops":1000.0,"bw_bytes":4096000,"runtime":{runtime},"lat_ns":{{"mean":8000.0}}}}"#);
            format!(
                r#"{{"fio version":"fio-3.33","jobs":[{{"groupid":0,"error":0,"job_runtime":{job_runtime},
                    "job options":{{"rw":"randread","bs":"4k","direct":"1"}},"read":{side},"write":{side}}}]}}"#
            )
        };
        assert_eq!(read(&text(1001, 1000)).unwrap().values.len(), 3);
        assert_eq!(read(&text(1004, 2003)).unwrap().not_imported, [not_imported("grouped_jobs")]);
        assert_eq!(read(&text(20, 20)).unwrap().not_imported, [not_imported("too_short")]);
        // A fio before 3.8 has no time of all together: of Ubuntu 18.04 and CentOS 8.
        let fio_3_1 = |jobs: f64| {
            let side =
                format!(r#"{{"iops":{},"bw":32000,"runtime":1001,"lat_ns":{{"mean":125000.0}}}}"#, 8000.0 * jobs);
            let text = format!(
                r#"{{"fio version":"fio-3.1","jobs":[{{"groupid":0,"error":0,
                    "job options":{{"rw":"randread","bs":"4k","direct":"1"}},"read":{side},"write":{side}}}]}}"#
            );
            read(&text).unwrap()
        };
        assert_eq!(fio_3_1(1.0).values.len(), 3);
        assert_eq!(fio_3_1(2.0).not_imported, [not_imported("grouped_jobs")], "two jobs by one thread each");
        let read_error =
            |version: &str| read(&format!(r#"{{"fio version":"{version}","jobs":[{{"error":0}}]}}"#)).unwrap_err();
        assert!(read_error("fio-2.2.10").contains("fio 3 or newer is needed"));
        assert!(
            read_error("fio-3.36").starts_with("missing field `groupid`") && !read_error("fio-3.36").contains("newer")
        );
        let error = read(r#"{"fio version":"fio-3.33","client_stats":[]}"#).unwrap_err();
        assert!(error.contains("--client"), "{error}");
    }
}
