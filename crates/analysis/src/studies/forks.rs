//! A fork by the memory of the process: whether each further page adds the same.

use kelvin_catalogue::mem::PageSize;
use kelvin_catalogue::os::{PROCESS_FORK_RSS, RESIDENT};
use kelvin_model::{AlongQuestion, Conclusion};

use super::along::Along;
use crate::evidence::{Evidence, Rounds};
use crate::result::Study;

/// Conclusions from the metric `os.process.fork_rss`, by the size of pages.
pub(crate) fn forks(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all(&PROCESS_FORK_RSS);
    let of_pages = |&pages: &PageSize| {
        let points: Vec<Rounds<'_>> = all.iter().filter(|one| PageSize::of(one.case) == Some(pages)).cloned().collect();
        Along::of(AlongQuestion::Resident, RESIDENT, points)?.linear()
    };
    let conclusions: Vec<Conclusion> = PageSize::ALL.iter().filter_map(of_pages).collect();
    let design = "Processes that had touched different amounts of memory forked, timed until the fork returned, in several rounds. Memory \
                  costs the same per byte where a straight line over it gives every time.";
    Study::new(PROCESS_FORK_RSS.id, design, conclusions)
}
