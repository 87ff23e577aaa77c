//! What a mapped page is, by /proc/self/pagemap.

use kelvin_core::catalogue::mem::*;

use crate::prelude::*;

/// A property of a kind of pages, whether all of them have it or none, and that in words.
type PageClaim = (MappedPage, &'static Metric, bool, &'static str);

static PAGE_CLAIMS: [PageClaim; 7] = [
    (MappedPage::Untouched, &PAGE_PRESENT, false, "private memory that was never touched has no pages"),
    (MappedPage::Read, &PAGE_ZERO, true, "private memory that was only read maps the kernel's zero page"),
    (MappedPage::Written, &PAGE_EXCLUSIVE, true, "private memory that was written is mapped by this process alone"),
    (MappedPage::Forked, &PAGE_EXCLUSIVE, false, "while a forked child lives, every written page is shared with it"),
    (MappedPage::Shared, &PAGE_FILE, true, "shared memory consists of file pages, though on no disk"),
    (MappedPage::File, &PAGE_FILE, true, "a mapped file that was read maps the file's own pages, not copies"),
    (MappedPage::Huge, &PAGE_HUGE, true, "memory that asked for huge pages and was written has them"),
];

/// Distance from all or none that still counts as such: the kernel may move a page while it is looked at.
const PAGE_SHARE_TOLERANCE: f64 = 0.01;

/// Conclusions from the metrics `mem.page.*`.
pub(crate) fn pages(evidence: &Evidence<'_>) -> Option<Study> {
    let design = "Pages of several kinds of mapping were touched as their kind requires, and looked up in /proc/self/pagemap, in several \
                  rounds.";
    Study::new(PAGE_STUDY, design, PAGE_CLAIMS.iter().filter_map(|claim| conclusion(evidence, claim)).collect())
}

/// Whether every round agrees that all or none are, none does, or some do.
fn conclusion(evidence: &Evidence<'_>, &(page, metric, expects_all, text): &PageClaim) -> Option<StatedConclusion> {
    let case = Case::new().with_word(page);
    let shares = &evidence.rounds_at(metric, &case)?.values;
    let (expected, rounds) = (if expects_all { 1.0 } else { 0.0 }, shares.len());
    let agreeing = shares.iter().filter(|&&share| (share - expected).abs() <= PAGE_SHARE_TOLERANCE).count();
    let range = min_max(shares.iter().copied()).map_or([f64::NAN; 2], <[f64; 2]>::from);
    let holds = match agreeing {
        0 => Some(false),
        _ if agreeing == rounds => Some(true),
        _ => None,
    };
    let ([low, high], tolerance) = (range.map(percent), percent(PAGE_SHARE_TOLERANCE));
    let test = format!(
        "to within {tolerance} of all or none: {agreeing} of {rounds} rounds agree, with {low} to {high} of the pages"
    );
    let evidence = TestEvidence::Rounds { agreeing, rounds, range, tolerance: PAGE_SHARE_TOLERANCE };
    let claim = Claim::Pages { metric: metric.id, case, all: expects_all };
    Some(ClaimTest::new(evidence, test, None).conclude(claim, holds, text.into()))
}
