//! How much of a file stays in the page cache while nothing touches it: looked at once it has been idle for most of a run.
//!
//! It shows whether something takes idle memory back although memory is free. It must not be taken for how long this machine
//! keeps files while others need memory.

use std::path::PathBuf;

use kelvin_catalogue::file::{IDLE, IDLE_TIME};
use kelvin_file::cache::{self, Residency, State};
use kelvin_file::{Target, noise};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::units::seconds;
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::clock::monotonic;

use super::data::{self, MIB};
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: IDLE.id.as_str(),
    summary: "What stays of files in the page cache while nothing touches them for most of a run",
    kind: ProbeKind::Measure,
    method: Method {
        how: "The first round of a run writes eight files of 4 MiB of noise, flushes them, and reads them until mincore and \
              cachestat find all of them in memory. Nothing touches them until the other rounds, the last of the run, each \
              of which looks at all: mincore on new mappings, and cachestat, which read no page and leave no mark of a use. \
              The share is that of pages in memory. How long the files were idle is stated beside it; where that is less \
              than a minute there is no figure.",
        prediction: "1: while memory is free the kernel drops no page of a file. Predicted range: down to 0.99.",
        not_for: "How long files stay cached while memory is short; files that are read now and then.",
        pitfalls: &[
            "Looking by reading: it brings back what is gone. Here page tables and counts are looked at.",
            "A minute after the last use is too early: proactive reclaim samples accesses, and takes a while to be sure.",
            "One file is one place in memory, and reclaim goes by regions of it: so there are several.",
        ],
        sources: &[
            "Linux Documentation/admin-guide/mm/concepts.rst: Reclaim",
            "Linux Documentation/admin-guide/mm/damon/reclaim.rst",
            "mincore(2), cachestat(2)",
        ],
    },
    metrics: &[&IDLE, &IDLE_TIME],
    inputs: &[],
    cases: |_: &Machine, effort| if effort == Effort::Quick { Vec::new() } else { vec![Case::new()] },
    run,
    predict,
};

/// Files, and bytes of each: together more than a stray region of memory, and quickly written.
const FILES: u32 = 8;
const BYTES: u64 = 4 * MIB;
/// Names of the files before their number, and of what says when they were left alone.
const NAME: &str = "kelvin-idle";
const LEFT: &str = "kelvin-idle.left";
/// Seed of the first one's content.
const SEED: u64 = 2000;
/// Nanoseconds of idleness from which on it is told: kernels wait about a minute before they call memory idle.
const LEAST: u64 = 60_000_000_000;

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let left = bench.scratch().join(LEFT);
    if !left.exists() {
        return leave(bench, &left);
    }
    let text = std::fs::read_to_string(&left)?;
    let since: u64 =
        text.parse().map_err(|_| Stop::fail(format!("{} does not hold a number: {text}", left.display())))?;
    let idle = monotonic().saturating_sub(since);
    if idle < LEAST {
        let [least, idle] = [LEAST, idle].map(|time| seconds(time as f64 / 1e9));
        return Err(Stop::skip(format!(
            "needs more than {least} of other measurements in the same run, while its files lie idle: here it was {idle}"
        )));
    }
    let found = look(bench)?;
    let share = found.share().ok_or_else(|| Stop::skip(format!("mincore and cachestat disagree here: {found}")))?;
    bench.note(format!("after {}, {found}", seconds(idle as f64 / 1e9)));
    bench.record(&IDLE, vec![share]);
    bench.record(&IDLE_TIME, vec![idle as f64]);
    Ok(())
}

/// How much of all the files is in memory.
fn look(bench: &Bench<'_>) -> Result<Residency, Stop> {
    let mut all = Residency { pages: 0, mincore: 0, cachestat: Some(0) };
    for number in 0..FILES {
        let target = Target::find(&file(bench, number)).map_err(data::stopped)?;
        let found = cache::residency(&target).map_err(data::stopped)?;
        all.pages += found.pages;
        all.mincore += found.mincore;
        all.cachestat = all.cachestat.zip(found.cachestat).map(|(sum, more)| sum + more);
    }
    Ok(all)
}

fn file(bench: &Bench<'_>, number: u32) -> PathBuf {
    bench.scratch().join(format!("{NAME}-{number}"))
}

/// Makes the files and leaves them alone, wholly in memory.
fn leave(bench: &mut Bench<'_>, left: &std::path::Path) -> Result<(), Stop> {
    data::has_room(bench, u64::from(FILES) * BYTES)?;
    bench.may_write(u64::from(FILES) * BYTES)?;
    for number in 0..FILES {
        let path = file(bench, number);
        noise::file(&path, BYTES, SEED + u64::from(number)).map_err(|error| data::cannot("write", &path, &error))?;
        let target = Target::find(&path).map_err(data::stopped)?;
        cache::bring(&target, State::Cached).map_err(data::stopped)?;
    }
    std::fs::write(left, monotonic().to_string())?;
    bench.note(format!("{FILES} files of {BYTES} bytes left in memory"));
    // There is nothing to tell yet.
    bench.record(&IDLE, Vec::new());
    Ok(())
}

fn predict(_: &Facts<'_>, metric: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id != IDLE.id {
        return Err(NoPrediction::because("it is the length of the run, less what comes before and after"));
    }
    Ok(Predicting::between(Basis::Spec, 1.0, 0.99, 1.0)
        .formula("all pages stay", "all pages stay while memory is free")
        .constant("share that is reclaimed while memory is free", 0.0, Unit::Ratio, SOURCE)
        .source(SOURCE)
        .derived_as("all pages stay = 1"))
}

const SOURCE: &str = "Linux Documentation/admin-guide/mm/concepts.rst: pages are reclaimed when memory is low";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{facts_about, machine};

    #[test]
    fn a_quick_run_is_too_short_and_all_pages_are_predicted_to_stay() {
        assert!((PROBE.cases)(&machine(), Effort::Quick).is_empty());
        assert_eq!((PROBE.cases)(&machine(), Effort::Default).len(), 1);
        facts_about(&[], |facts| {
            assert_eq!(predict(facts, &IDLE, &Case::new()).unwrap().value, 1.0);
            assert!(predict(facts, &IDLE_TIME, &Case::new()).is_err());
        });
    }
}
