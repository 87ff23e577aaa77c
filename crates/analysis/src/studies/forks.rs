//! A fork by the memory of the process: whether each further page adds the same.

use kelvin_core::DependenceQuestion;
use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::catalogue::os::{PROCESS_FORK_RSS, RESIDENT};
use kelvin_core::units::bytes;

use super::dependence::TimeDependence;
use crate::evidence::Evidence;
use crate::result::Study;

/// Bytes of a MiB.
const MIB: f64 = (1 << 20) as f64;

/// Conclusions from the metric `os.process.fork_rss`, by the size of pages.
pub(crate) fn forks(evidence: &Evidence<'_>) -> Option<Study> {
    let of_pages = |&pages: &PageSize| {
        let points = evidence.all_cases(&PROCESS_FORK_RSS).iter().filter(|one| PageSize::of(one.case) == Some(pages));
        let dependence = TimeDependence::from_points(DependenceQuestion::Resident, RESIDENT, points)?;
        let pages = if pages == PageSize::Huge { "huge" } else { "base" };
        dependence.linear(&format!("each MiB costs the same in a fork with {pages} pages"), bytes, MIB)
    };
    let conclusions = PageSize::ALL.iter().filter_map(of_pages).collect();
    let design = "Processes that had touched different amounts of memory forked, timed until the fork returned, in several rounds. Memory \
                  costs the same per byte where a straight line over it gives every time.";
    Study::new(PROCESS_FORK_RSS.id, design, conclusions)
}
