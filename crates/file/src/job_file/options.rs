//! The options of a job: what each means, and what does not go together.

use std::path::PathBuf;
use std::time::Duration;

use kelvin_sys::random::kernel_random;

use super::sections::{OptionLine, Section};
use super::{JobFileError, values};
use crate::access::Access;
use crate::workload::{
    BlockSizes, ByDirection, EndOfJob, Flush, Job, JobEngine, JobOrder, Layout, MAX_THREADS, MIN_VERIFIED_BLOCK, Mix,
    PlannedJob, RateLimit,
};

/// The options of the work of a job. Others are refused, but for [`REPORT_OPTIONS`].
pub const OPTION_NAMES: [&str; 36] = [
    "blocksize",
    "bs",
    "bssplit",
    "buffered",
    "description",
    "direct",
    "directory",
    "end_fsync",
    "fdatasync",
    "filename",
    "fsync",
    "group_reporting",
    "invalidate",
    "iodepth",
    "ioengine",
    "kb_base",
    "loops",
    "name",
    "norandommap",
    "numjobs",
    "offset",
    "ramp_time",
    "randrepeat",
    "rate",
    "rate_iops",
    "readwrite",
    "runtime",
    "rw",
    "rwmixread",
    "rwmixwrite",
    "size",
    "sqthread_poll",
    "stonewall",
    "thread",
    "time_based",
    "verify",
];

/// Those that may stand without a value.
pub const SWITCHES: [&str; 11] = [
    "buffered",
    "direct",
    "end_fsync",
    "group_reporting",
    "invalidate",
    "norandommap",
    "randrepeat",
    "sqthread_poll",
    "stonewall",
    "thread",
    "time_based",
];

/// Options of what fio reports, which change nothing of the work. Here all of it is reported.
pub const REPORT_OPTIONS: [&str; 12] = [
    "clat_percentiles",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "eta",
    "eta-newline",
    "gtod_reduce",
    "lat_percentiles",
    "percentile_list",
    "slat_percentiles",
    "unified_rw_reporting",
];

/// Checksums of fio. All are one here: kelvin has a digest of its own.
const CHECKSUMS: [&str; 14] = [
    "crc16",
    "crc32",
    "crc32c",
    "crc32c-intel",
    "crc64",
    "crc7",
    "md5",
    "meta",
    "sha1",
    "sha256",
    "sha3-256",
    "sha512",
    "xxhash",
    "murmur3",
];

/// The seed of jobs that repeat their random numbers, which is the default.
const REPEATED_SEED: u64 = 0x6b65_6c76_696e;

/// What the options of a section say.
#[derive(Clone, Debug)]
pub(super) struct JobOptions {
    name: Option<String>,
    directory: PathBuf,
    file: Option<PathBuf>,
    size: Option<u64>,
    offset: u64,
    mix: Mix,
    is_random: bool,
    read_percent: u8,
    engine: JobEngine,
    is_libaio: bool,
    is_polled: bool,
    depth: u32,
    is_direct: bool,
    copies: u32,
    blocks: ByDirection<BlockSizes>,
    runtime: Option<Duration>,
    is_time_based: bool,
    ramp: Duration,
    bytes_per_second: ByDirection<Option<u64>>,
    requests_per_second: ByDirection<Option<u64>>,
    fsync_every: Option<u64>,
    fdatasync_every: Option<u64>,
    end_fsync: bool,
    verify: bool,
    is_grouped: bool,
    waits: bool,
    repeats_random: bool,
    repeats_places: bool,
    loops: u64,
    invalidate: bool,
    /// Options of what fio reports.
    report_options: Vec<String>,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            name: None,
            directory: PathBuf::new(),
            file: None,
            size: None,
            offset: 0,
            mix: Mix::Reads,
            is_random: false,
            read_percent: 50,
            engine: JobEngine::Positioned,
            is_libaio: false,
            is_polled: false,
            depth: 1,
            is_direct: false,
            copies: 1,
            blocks: ByDirection::both(BlockSizes::single(4096)),
            runtime: None,
            is_time_based: false,
            ramp: Duration::ZERO,
            bytes_per_second: ByDirection::both(None),
            requests_per_second: ByDirection::both(None),
            fsync_every: None,
            fdatasync_every: None,
            end_fsync: false,
            verify: false,
            is_grouped: false,
            waits: false,
            repeats_random: true,
            repeats_places: false,
            loops: 1,
            invalidate: true,
            report_options: Vec::new(),
        }
    }
}

impl JobOptions {
    /// Takes these options, each in place of an earlier one.
    pub(super) fn apply(&mut self, options: &[OptionLine]) -> Result<(), JobFileError> {
        options.iter().try_for_each(|option| {
            if REPORT_OPTIONS.contains(&option.name.as_str()) {
                self.report_options.push(option.name.clone());
                return Ok(());
            }
            let applied = match option.value.as_deref() {
                None | Some("") => self.apply_switch(&option.name, None),
                Some(value) => self.apply_value(&option.name, value),
            };
            applied.map_err(|message| JobFileError::new(option.line, message))
        })
    }

    /// An option that may stand alone.
    fn apply_switch(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let field = match name {
            "direct" => &mut self.is_direct,
            "end_fsync" => &mut self.end_fsync,
            "group_reporting" => &mut self.is_grouped,
            "invalidate" => &mut self.invalidate,
            "norandommap" => &mut self.repeats_places,
            "randrepeat" => &mut self.repeats_random,
            "sqthread_poll" => &mut self.is_polled,
            "stonewall" => &mut self.waits,
            "time_based" => &mut self.is_time_based,
            "buffered" => {
                self.is_direct = !values::switch(value).map_err(|why| format!("buffered: {why}"))?;
                return Ok(());
            }
            // Jobs are always threads.
            "thread" => return values::switch(value).map(drop).map_err(|why| format!("thread: {why}")),
            _ if OPTION_NAMES.contains(&name) => return Err(format!("{name}: it needs a value, {name}=...")),
            _ => return Err(unknown_option(name)),
        };
        *field = values::switch(value).map_err(|why| format!("{name}: {why}"))?;
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<(), String> {
        let named = |why: String| format!("{name}={value}: {why}");
        match name {
            "description" => {}
            "name" => self.name = Some(value.to_owned()),
            "directory" => self.directory = single_path(value).map_err(named)?,
            "filename" => self.file = Some(single_path(value).map_err(named)?),
            "size" => self.size = Some(values::size(value).map_err(named)?).filter(|&bytes| bytes > 0),
            "offset" => self.offset = values::size(value).map_err(named)?,
            "rw" | "readwrite" => (self.mix, self.is_random) = direction(value).map_err(named)?,
            "rwmixread" => self.read_percent = values::number(value, 0, 100).map_err(named)? as u8,
            "rwmixwrite" => self.read_percent = 100 - values::number(value, 0, 100).map_err(named)? as u8,
            "ioengine" => (self.engine, self.is_libaio) = engine(value).map_err(named)?,
            "iodepth" => self.depth = values::number(value, 1, 4096).map_err(named)? as u32,
            "numjobs" => self.copies = values::number(value, 1, u64::from(MAX_THREADS)).map_err(named)? as u32,
            "bs" | "blocksize" => self
                .set_blocks(value, |text| values::block_bytes(text).map(|bytes| BlockSizes::single(bytes as usize)))
                .map_err(named)?,
            "bssplit" => self.set_blocks(value, values::block_split).map_err(named)?,
            "runtime" => self.runtime = Some(values::time(value).map_err(named)?).filter(|time| !time.is_zero()),
            "ramp_time" => self.ramp = values::time(value).map_err(named)?,
            "rate" => self.bytes_per_second = positive_limit(value, values::size).map_err(named)?,
            "rate_iops" => {
                self.requests_per_second =
                    positive_limit(value, |text| values::number(text, 0, u64::from(u32::MAX))).map_err(named)?
            }
            "fsync" => self.fsync_every = positive_count(value).map_err(named)?,
            "fdatasync" => self.fdatasync_every = positive_count(value).map_err(named)?,
            "loops" => self.loops = values::number(value, 1, u64::from(u32::MAX)).map_err(named)?,
            "verify" => self.verify = is_verified(value).map_err(named)?,
            "kb_base" if value == "1024" => {}
            "kb_base" => return Err(named("sizes are by powers of 1024 here, as by default in fio".into())),
            _ => return self.apply_switch(name, Some(value)),
        }
        Ok(())
    }

    /// Sizes of blocks. A direction that is not named has the usual 4096 bytes.
    fn set_blocks(&mut self, value: &str, parse: impl Fn(&str) -> Result<BlockSizes, String>) -> Result<(), String> {
        let ByDirection { read, write } = values::by_direction(value, parse)?;
        let usual = || BlockSizes::single(4096);
        self.blocks = ByDirection { read: read.unwrap_or_else(usual), write: write.unwrap_or_else(usual) };
        Ok(())
    }

    /// The job of a section.
    pub(super) fn plan(self, section: &Section) -> Result<PlannedJob, JobFileError> {
        let failed = |message: &str| Err(JobFileError::new(section.line, format!("job {}: {message}", section.name)));
        if self.is_libaio && !self.is_direct {
            return failed(
                "libaio waits for each request through the page cache: direct=1, or ioengine=io_uring or psync",
            );
        }
        if self.is_polled && self.engine != JobEngine::Ring {
            return failed("sqthread_poll needs ioengine=io_uring");
        }
        if self.fsync_every.is_some() && self.fdatasync_every.is_some() {
            return failed("fsync and fdatasync: one of them is possible");
        }
        if self.is_time_based && self.runtime.is_none() {
            return failed("time_based needs a runtime");
        }
        let blocks = self.effective_blocks();
        if self.verify && !(blocks.read.is_single() && blocks.read == blocks.write) {
            return failed("verify needs one size of blocks");
        }
        if self.verify && blocks.write.largest() < MIN_VERIFIED_BLOCK {
            return failed("verify needs blocks of 64 bytes at least: each begins with what it is checked by");
        }
        let depth = if self.engine.has_queue() { self.depth } else { 1 };
        let name = self.name.clone().unwrap_or_else(|| section.name.clone());
        if self.file.is_none() && (name.contains('/') || name.starts_with('.')) {
            return failed("its name is no file name: give a filename");
        }
        match if self.repeats_random { Ok(REPEATED_SEED) } else { kernel_random() } {
            Ok(seed) => Ok(self.into_planned(name, blocks, depth, seed)),
            Err(error) => failed(&format!("randrepeat=0: the kernel gives no random number: {error}")),
        }
    }

    /// Sizes in the directions that there are: reads alone have no size of writes.
    fn effective_blocks(&self) -> ByDirection<BlockSizes> {
        let ByDirection { read, write } = &self.blocks;
        match self.mix {
            Mix::Reads => ByDirection::both(read.clone()),
            Mix::Writes => ByDirection::both(write.clone()),
            Mix::Both { .. } => self.blocks.clone(),
        }
    }

    fn order(&self) -> JobOrder {
        match (self.is_random, self.repeats_places) {
            (false, _) => JobOrder::Sequential,
            (true, false) => JobOrder::RandomPermutation,
            (true, true) => JobOrder::RandomIndependent,
        }
    }

    fn flush_every(&self) -> Option<(u64, Flush)> {
        let data = self.fdatasync_every.map(|count| (count, Flush::Data));
        self.fsync_every.map(|count| (count, Flush::All)).or(data)
    }

    fn into_planned(self, name: String, blocks: ByDirection<BlockSizes>, depth: u32, seed: u64) -> PlannedJob {
        let mut notes = Vec::new();
        if self.is_libaio {
            notes.push("libaio: carried out by io_uring, at the same depth".to_owned());
        }
        if depth != self.depth {
            notes.push(format!("iodepth {}: this engine has one request in flight, as in fio", self.depth));
        }
        if self.is_polled {
            notes.push(
                "sqthread_poll: the kernel's thread uses up to one more CPU, which is not in the CPU time".to_owned(),
            );
        }
        if !self.report_options.is_empty() {
            notes.push(format!("{}: all of it is measured and reported", self.report_options.join(", ")));
        }
        if self.verify {
            notes.push("verify: by kelvin's own digest, whichever fio would use".to_owned());
        }
        let mix =
            if let Mix::Both { .. } = self.mix { Mix::Both { read_percent: self.read_percent } } else { self.mix };
        let limit = |bytes, requests| RateLimit { bytes_per_second: bytes, requests_per_second: requests };
        let (bytes, requests) = (self.bytes_per_second, self.requests_per_second);
        let job = Job {
            file: PathBuf::new(),
            layout: Layout { offset: self.offset, size: self.size },
            mix,
            order: self.order(),
            blocks,
            engine: if self.is_polled { JobEngine::PolledRing } else { self.engine },
            depth,
            access: if self.is_direct { Access::Direct } else { Access::Buffered },
            end: EndOfJob { loops: if self.is_time_based { u64::MAX } else { self.loops }, runtime: self.runtime },
            ramp: self.ramp,
            rate: ByDirection { read: limit(bytes.read, requests.read), write: limit(bytes.write, requests.write) },
            flush_every: self.flush_every(),
            end_fsync: self.end_fsync,
            verify: self.verify,
            seed,
            invalidate: self.invalidate,
        };
        let (directory, file, copies) = (self.directory, self.file, self.copies);
        PlannedJob { name, directory, file, copies, is_grouped: self.is_grouped, waits: self.waits, notes, job }
    }
}

fn unknown_option(name: &str) -> String {
    format!("kelvin file run does not know '{name}'; it knows: {}", OPTION_NAMES.join(", "))
}

/// A path; fio takes a colon for the end of one of several.
fn single_path(value: &str) -> Result<PathBuf, String> {
    if value.contains([':', '\0']) { Err("one path is possible, without a colon".into()) } else { Ok(value.into()) }
}

/// The direction of requests, and whether their order is random.
fn direction(value: &str) -> Result<(Mix, bool), String> {
    let both = Mix::Both { read_percent: 50 };
    match value {
        "read" => Ok((Mix::Reads, false)),
        "write" => Ok((Mix::Writes, false)),
        "rw" | "readwrite" => Ok((both, false)),
        "randread" => Ok((Mix::Reads, true)),
        "randwrite" => Ok((Mix::Writes, true)),
        "randrw" => Ok((both, true)),
        _ => Err("it is one of: read, write, rw, randread, randwrite, randrw".into()),
    }
}

/// The engine, and whether it stands for libaio.
fn engine(value: &str) -> Result<(JobEngine, bool), String> {
    match value {
        "sync" => Ok((JobEngine::Seeking, false)),
        "psync" => Ok((JobEngine::Positioned, false)),
        "io_uring" => Ok((JobEngine::Ring, false)),
        "libaio" => Ok((JobEngine::Ring, true)),
        _ => Err("it is one of: sync, psync, io_uring, libaio".into()),
    }
}

/// A limit of each direction; 0 is none.
fn positive_limit(
    value: &str,
    parse: impl Fn(&str) -> Result<u64, String>,
) -> Result<ByDirection<Option<u64>>, String> {
    let ByDirection { read, write } = values::by_direction(value, parse)?;
    Ok(ByDirection { read: read.filter(|&limit| limit > 0), write: write.filter(|&limit| limit > 0) })
}

/// So many writes; 0 is none.
fn positive_count(value: &str) -> Result<Option<u64>, String> {
    Ok(Some(values::number(value, 0, u64::from(u32::MAX))?).filter(|&count| count > 0))
}

fn is_verified(value: &str) -> Result<bool, String> {
    match value {
        "0" => Ok(false),
        checksum if CHECKSUMS.contains(&checksum) => Ok(true),
        _ => Err(format!("it is 0, or a checksum: {}", CHECKSUMS.join(", "))),
    }
}
