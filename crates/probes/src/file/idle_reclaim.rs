//! How much of a file stays in the page cache while nothing touches it: looked at once it has been idle for most of a run.
//!
//! It shows whether something takes idle memory back although memory is free. It must not be taken for how long this machine
//! keeps files while others need memory.

use std::path::PathBuf;

use kelvin_core::catalogue::file::{IDLE_RETAINED, IDLE_TIME};
use kelvin_core::units::seconds;
use kelvin_file::cache::Residency;
use kelvin_file::random_data;

use super::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "What stays of files in the page cache while nothing touches them for most of a run",
    method: include_str!("idle_reclaim.md"),
    cases: |_: &Machine, effort| if effort == Effort::Quick { Vec::new() } else { vec![Case::new()] },
    run,
    predict,
    ..Probe::measure(&[&IDLE_RETAINED, &IDLE_TIME])
};

/// Files, and bytes of each: together more than a stray region of memory, and quickly written.
const FILE_COUNT: u32 = 8;
const FILE_BYTES: u64 = 4 * MIB;
/// Names of the files before their number, and of the one that holds the time from which they are idle.
const FILE_PREFIX: &str = "kelvin-idle";
const IDLE_SINCE_FILE: &str = "kelvin-idle.left";
/// Seed of the first one's content.
const FIRST_SEED: u64 = 2000;
/// Nanoseconds of idleness from which on it is reported: kernels wait about a minute before they call memory idle.
const MIN_IDLE_NANOSECONDS: u64 = 60_000_000_000;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let since_file = bench.scratch().join(IDLE_SINCE_FILE);
    if !since_file.exists() {
        return create_idle_files(bench, &since_file);
    }
    let since = test_files::read_number(&since_file)?.unwrap_or_default() as u64;
    let idle = monotonic().saturating_sub(since);
    if idle < MIN_IDLE_NANOSECONDS {
        let [minimum, idle] = [MIN_IDLE_NANOSECONDS, idle].map(|time| seconds(time as f64 / 1e9));
        return Err(ProbeError::skip(format!(
            "needs more than {minimum} of other measurements in the same run, while its files are idle: here it was {idle}"
        )));
    }
    let resident = total_residency(bench)?;
    let share = resident.share().or_skip(format!("mincore and cachestat disagree here: {resident}"))?;
    bench.note(format!("after {}, {resident}", seconds(idle as f64 / 1e9)));
    bench.record(&IDLE_RETAINED, vec![share]);
    bench.record(&IDLE_TIME, vec![idle as f64]);
    Ok(())
}

/// How much of all the files is in memory.
fn total_residency(bench: &Bench<'_>) -> ProbeResult<Residency> {
    let mut total = Residency { pages: 0, mincore: 0, cachestat: Some(0) };
    for number in 0..FILE_COUNT {
        let target = Target::find(&idle_file(bench, number)).map_err(probe_error)?;
        let resident = residency(&target)?;
        total.pages += resident.pages;
        total.mincore += resident.mincore;
        total.cachestat = total.cachestat.zip(resident.cachestat).map(|(sum, count)| sum + count);
    }
    Ok(total)
}

fn idle_file(bench: &Bench<'_>, number: u32) -> PathBuf {
    bench.scratch().join(format!("{FILE_PREFIX}-{number}"))
}

/// Makes the files and leaves them alone, wholly in memory.
fn create_idle_files(bench: &mut Bench<'_>, since_file: &std::path::Path) -> ProbeResult {
    test_files::check_free_space(bench, u64::from(FILE_COUNT) * FILE_BYTES)?;
    bench.reserve_write(u64::from(FILE_COUNT) * FILE_BYTES)?;
    for number in 0..FILE_COUNT {
        let path = idle_file(bench, number);
        random_data::write_file(&path, FILE_BYTES, FIRST_SEED + u64::from(number)).or_file_failure("write", &path)?;
        let target = Target::find(&path).map_err(probe_error)?;
        set_cache_state(&target, PageCacheState::Cached)?;
    }
    std::fs::write(since_file, monotonic().to_string())?;
    bench.note(format!("{FILE_COUNT} files of {FILE_BYTES} bytes left in memory"));
    // There is nothing to report yet.
    bench.record(&IDLE_RETAINED, Vec::new());
    Ok(())
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    unpredicted_if(metric.id != IDLE_RETAINED.id, "it is the length of the run, less what comes before and after")?;
    let reclaimed = published("share that is reclaimed while memory is free", 0.0, Unit::Ratio, SOURCE);
    let retained_share = (1.0 - reclaimed).with_interval((0.99, 1.0));
    Ok(retained_share.predict(PredictionBasis::Spec, "all pages stay"))
}

const SOURCE: &str = "Linux Documentation/admin-guide/mm/concepts.rst: pages are reclaimed when memory is low";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{machine, with_facts};

    #[test]
    fn pages_are_predicted_to_stay() {
        assert!((PROBE.cases)(&machine(), Effort::Quick).is_empty());
        assert_eq!((PROBE.cases)(&machine(), Effort::Default).len(), 1);
        with_facts(&[], |facts| {
            assert_eq!(predict(facts, &IDLE_RETAINED, &Case::new()).unwrap().value, 1.0);
            assert!(predict(facts, &IDLE_TIME, &Case::new()).is_err());
        });
    }
}
