//! Files moved from one process to another over loopback when they are not in memory: what the sender's method makes of it.
//!
//! It shows which sender reads a file best while it sends it. It must not be used as the rate of the device: below the kernel a cache
//! of a hypervisor, a controller or a drive may answer.

use kelvin_core::catalogue::transfer::{COLD_DEVICE, COLD_METRICS, COLD_TIME};
use kelvin_file::cache::PageCacheState;

use super::cells;
use super::trials::run_trials;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Files that are not in memory moved between two processes over loopback, by every method of sending",
    method: Method {
        how: "As transfer.time, but before each trial the files of the sender are written back and dropped from the page cache \
              (posix_fadvise), which mincore and cachestat confirm. One connection, buffers of 64 KiB (windows of 16 pages), \
              a receiver with read/write: every method of sending, over all three sets. Beside the time: the bytes that the \
              sender's process read from devices, by getrusage, with those of the threads that work for its ring.",
        prediction: "None: how far the kernel reads ahead for each of these methods, and how much of that overlaps with \
                     sending, is in no lower metric.",
        not_for: "The rate of a device; files that are read by several processes; a transfer between two hosts.",
        pitfalls: &[
            "A cache below the kernel that answers for the device: file.device shows whether there is one.",
            "Dirty files, which cannot be dropped: they are flushed before.",
            "Directories and inodes: they stay in memory, only the bytes of the files are dropped.",
        ],
        sources: &["posix_fadvise(2), mincore(2), cachestat(2), getrusage(2)", "Linux mm/readahead.c, fs/splice.c"],
    },
    cases: |_, effort| cells::cold_cells(effort),
    run,
    predict: |_, _, _| {
        Err(NoPrediction::new(
            "how far the kernel reads ahead for each method, and how much of it overlaps with sending, is in no lower metric",
        ))
    },
    ..Probe::study(COLD_METRICS)
};

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), ProbeError> {
    let (trials, _) = run_trials(bench, case, PageCacheState::Uncached)?;
    bench.record(&COLD_TIME, trials.iter().map(|trial| trial.time).collect());
    bench.record(&COLD_DEVICE, trials.iter().map(|trial| trial.fetched as f64).collect());
    Ok(())
}
