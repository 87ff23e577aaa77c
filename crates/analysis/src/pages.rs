//! Conclusions of the page study: what a mapped page is, by what the kernel tells of it.

use kelvin_model::units::percent;
use kelvin_model::{Conclusion, Name, Run, StudyResult};

/// A sentence about one kind of page, and the share of pages that carries it: all of them or none.
struct Claim {
    kind: &'static str,
    metric: &'static str,
    all: bool,
    text: &'static str,
}

const fn claim(kind: &'static str, metric: &'static str, all: bool, text: &'static str) -> Claim {
    Claim { kind, metric, all, text }
}

static CLAIMS: [Claim; 7] = [
    claim("untouched", "mem.page.present", false, "private memory that was never touched has no pages"),
    claim("read", "mem.page.zero", true, "private memory that was only read is the kernel's one page of zeros"),
    claim("written", "mem.page.exclusive", true, "private memory that was written is mapped by nobody else"),
    claim("forked", "mem.page.exclusive", false, "while a forked child lives, no written page is mapped by one alone"),
    claim("shared", "mem.page.file", true, "shared memory consists of pages of a file, though it has no disk"),
    claim("file", "mem.page.file", true, "a mapped file that was read shows pages of the file, not copies"),
    claim("huge", "mem.page.huge", true, "memory that asked for huge pages and was written is mapped by them"),
];

/// Distance from all or none that still counts as such: the kernel may move a page while it is looked at.
const TOLERANCE: f64 = 0.01;

/// Conclusions of the page study, from the metrics `mem.page.*`; `None` if the run has measured none of them.
pub fn pages(run: &Run) -> Option<StudyResult> {
    let conclusions: Vec<Conclusion> = CLAIMS.iter().filter_map(|claim| claim.judge(&shares(run, claim)?)).collect();
    let design = "Pages of several kinds of mapping were touched in the way their kind says, and looked up in \
                  /proc/self/pagemap, in several rounds."
        .into();
    (!conclusions.is_empty()).then_some(StudyResult { id: Name::new("mem.page"), design, conclusions })
}

/// The share of pages that each round found.
fn shares(run: &Run, claim: &Claim) -> Option<Vec<f64>> {
    let of_kind = |m: &&kelvin_model::Measurement| m.planned.case.word("kind") == Some(claim.kind);
    let measured = run.measurements.iter().filter(of_kind).find(|m| m.readings(claim.metric).next().is_some())?;
    let values = measured.readings(claim.metric).filter_map(|(_, reading)| match &reading.readings {
        kelvin_model::Readings::Scalars(values) => Some(values.iter().copied()),
        kelvin_model::Readings::Batches(_) => None,
    });
    Some(values.flatten().collect())
}

impl Claim {
    /// Whether every round agrees with it, none does, or some do.
    fn judge(&self, shares: &[f64]) -> Option<Conclusion> {
        let expected = if self.all { 1.0 } else { 0.0 };
        let agreeing = shares.iter().filter(|&&share| (share - expected).abs() <= TOLERANCE).count();
        let least = shares.iter().copied().reduce(f64::min)?;
        let most = shares.iter().copied().reduce(f64::max)?;
        Some(Conclusion {
            text: self.text.into(),
            holds: match agreeing {
                0 => Some(false),
                _ if agreeing == shares.len() => Some(true),
                _ => None,
            },
            test: format!(
                "{} of its pages to be found, to within {}: {} of {} rounds agree, with {} to {}",
                if self.all { "all" } else { "none" },
                percent(TOLERANCE),
                agreeing,
                shares.len(),
                percent(least),
                percent(most)
            ),
        })
    }
}
