//! What a mapped page is, by /proc/self/pagemap.

use kelvin_core::catalogue::mem::{
    MappedPage, PAGE_EXCLUSIVE, PAGE_FILE, PAGE_HUGE, PAGE_PRESENT, PAGE_STUDY, PAGE_ZERO,
};
use kelvin_core::{Case, Claim, Conclusion, Metric, TestEvidence};

use crate::evidence::Evidence;
use crate::result::Study;

/// A property that all pages of a kind have, or none.
static PAGE_CLAIMS: [(MappedPage, &Metric, bool); 7] = [
    (MappedPage::Untouched, &PAGE_PRESENT, false),
    (MappedPage::Read, &PAGE_ZERO, true),
    (MappedPage::Written, &PAGE_EXCLUSIVE, true),
    (MappedPage::Forked, &PAGE_EXCLUSIVE, false),
    (MappedPage::Shared, &PAGE_FILE, true),
    (MappedPage::File, &PAGE_FILE, true),
    (MappedPage::Huge, &PAGE_HUGE, true),
];

/// Distance from all or none that still counts as such: the kernel may move a page while it is looked at.
const PAGE_SHARE_TOLERANCE: f64 = 0.01;

/// Conclusions from the metrics `mem.page.*`.
pub(crate) fn pages(evidence: &Evidence<'_>) -> Option<Study> {
    let judged = PAGE_CLAIMS.iter().filter_map(|&(page, metric, all)| judge_page(evidence, page, metric, all));
    let design = "Pages of several kinds of mapping were touched as the kind says, and looked up in /proc/self/pagemap, in several \
                  rounds.";
    Study::new(PAGE_STUDY, design, judged.collect())
}

/// Whether every round agrees that all or none are, none does, or some do.
fn judge_page(evidence: &Evidence<'_>, page: MappedPage, metric: &Metric, all: bool) -> Option<Conclusion> {
    let case = Case::new().with_word(page);
    let shares = evidence.rounds_at(metric, &case)?.values;
    let expected = if all { 1.0 } else { 0.0 };
    let agreeing = shares.iter().filter(|&&share| (share - expected).abs() <= PAGE_SHARE_TOLERANCE).count();
    let range = [f64::min, f64::max].map(|end| shares.iter().copied().reduce(end).unwrap_or(f64::NAN));
    Some(Conclusion {
        claim: Claim::Pages { metric: metric.id, case, all },
        holds: match agreeing {
            0 => Some(false),
            _ if agreeing == shares.len() => Some(true),
            _ => None,
        },
        evidence: TestEvidence::Rounds { agreeing, rounds: shares.len(), range, tolerance: PAGE_SHARE_TOLERANCE },
        tested: None,
    })
}
