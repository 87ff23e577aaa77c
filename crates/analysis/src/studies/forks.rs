//! A fork by the memory of the process: whether each further page adds the same.

use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::catalogue::os::{PROCESS_FORK_RSS, RESIDENT};
use kelvin_core::{Conclusion, DependenceQuestion};

use super::dependence::TimeDependence;
use crate::evidence::{Evidence, RoundHeadlines};
use crate::result::Study;

/// Conclusions from the metric `os.process.fork_rss`, by the size of pages.
pub(crate) fn forks(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all_cases(&PROCESS_FORK_RSS);
    let of_pages = |&pages: &PageSize| {
        let points: Vec<RoundHeadlines<'_>> =
            all.iter().filter(|one| PageSize::of(one.case) == Some(pages)).cloned().collect();
        TimeDependence::from_points(DependenceQuestion::Resident, RESIDENT, points)?.linear()
    };
    let conclusions: Vec<Conclusion> = PageSize::ALL.iter().filter_map(of_pages).collect();
    let design = "Processes that had touched different amounts of memory forked, timed until the fork returned, in several rounds. Memory \
                  costs the same per byte where a straight line over it gives every time.";
    Study::new(PROCESS_FORK_RSS.id, design, conclusions)
}
