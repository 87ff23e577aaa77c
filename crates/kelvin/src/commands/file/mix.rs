//! `kelvin file mix`: reads and writes mixed on one file, by flags.

use std::time::Duration;

use kelvin_file::cache::PageCacheState;
use kelvin_file::workload::{
    BlockSizes, ByDirection, EndOfJob, Flush, Job, JobOrder, Layout, MIN_VERIFIED_BLOCK, Mix, Permissions, PlannedJob,
    RateLimit,
};

use super::run_jobs::{JobSource, run_planned};
use crate::answer::AnswerOutlet;
use crate::cli::MixArgs;
use crate::cli_error::CmdResult;

/// `kelvin file mix`.
pub(super) fn mix(args: &MixArgs) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    if args.depth > 1 && !args.engine.has_queue() {
        bail!("--depth {}: {} has one request in flight; only io_uring has more", args.depth, args.engine.name());
    }
    if args.verify && args.block < MIN_VERIFIED_BLOCK {
        bail!("--verify: blocks have at least {MIN_VERIFIED_BLOCK} bytes: each begins with what it is checked by");
    }
    let planned = planned_job(args);
    if planned.buffer_bytes() > kelvin_file::workload::MAX_BUFFER_BYTES {
        bail!("--depth: buffers of depth times block times jobs are more than 1 GiB");
    }
    let overwrite = if args.overwrite { vec![args.file.clone()] } else { Vec::new() };
    let permissions = Permissions { overwrite, destroy: args.destroy.iter().cloned().collect(), trim: args.trim };
    let source = JobSource { planned: &[planned], permissions: &permissions, keeps_files: args.keep, job_file: None };
    run_planned(source, outlet)
}

fn planned_job(args: &MixArgs) -> PlannedJob {
    let mix = match args.read {
        0 => Mix::Writes,
        100 => Mix::Reads,
        percent => Mix::Both { read_percent: percent as u8 },
    };
    let rate = RateLimit { bytes_per_second: args.rate, requests_per_second: args.rate_requests };
    let job = Job {
        file: args.file.clone(),
        layout: Layout { offset: args.offset.unwrap_or(0), size: args.size },
        mix,
        order: if args.sequential { JobOrder::Sequential } else { JobOrder::RandomPermutation },
        blocks: ByDirection::both(BlockSizes::single(args.block)),
        engine: args.engine,
        depth: args.depth,
        access: args.cache.access(),
        end: EndOfJob { loops: u64::MAX, runtime: Some(args.seconds) },
        ramp: args.ramp.unwrap_or(Duration::ZERO),
        rate: ByDirection::both(rate),
        flush_every: args.fsync.map(|count| (count, Flush::All)),
        end_fsync: false,
        verify: args.verify,
        seed: args.seed,
        invalidate: args.cache == PageCacheState::Uncached,
    };
    PlannedJob {
        name: args.file.display().to_string(),
        directory: std::path::PathBuf::new(),
        file: Some(args.file.clone()),
        copies: args.jobs,
        is_grouped: true,
        waits: false,
        notes: Vec::new(),
        job,
    }
}
