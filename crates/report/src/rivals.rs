//! Rival programs in the same run: one table, for the formats that have a table for it.

use kelvin_analysis::{Interval, RangeVerdict, RivalFigures, RivalOutcome, RivalResult};
use kelvin_core::Unit;

use crate::text::grouped;
use crate::{Report, labels, units};

/// Its title.
pub(crate) const TITLE: &str = "Other programs next to kelvin";
/// Its introduction.
pub(crate) const INTRODUCTION: &str = "Each pair did the same work in the same way, one right after the other, in every round. The ratio says how many times as \
     fast as the program kelvin was, over those pairs.";

/// The word of a parameter that the program itself chooses.
const OWN_VARIANT: &str = "own";

/// One comparison.
pub(crate) struct RivalRow<'a> {
    /// What both did: `direct 4 KiB random`.
    pub work: String,
    /// The other program.
    pub program: &'static str,
    /// Both sides, or the word and the reason for none.
    pub sides: Result<RivalCells<'a>, (&'static str, String)>,
}

/// Both sides, formatted.
pub(crate) struct RivalCells<'a> {
    /// kelvin's rate, or its time.
    pub kelvin: String,
    /// The program's.
    pub other: String,
    /// How many times as fast as the program kelvin is, with its interval.
    pub ratio: String,
    /// The ratio for a narrow column: `1.25 1.18..1.32`.
    pub short_ratio: String,
    /// Its prediction; empty if there is none.
    pub expected: String,
    /// `expected`, `above`, `below`, or nothing.
    pub verdict: &'static str,
    /// Whether the verdict is a gap.
    pub is_gap: bool,
    /// How each side was timed and verified.
    pub notes: &'a [String],
}

/// The comparisons of a run, in their order; none without other programs.
pub(crate) fn rows<'a>(report: &Report<'a>) -> Vec<RivalRow<'a>> {
    report.analysis.rivals.iter().map(|rival| row(report, rival)).collect()
}

/// The missing comparisons, grouped by reason: their names, the word, the reason.
pub(crate) fn missing<'r>(rows: &'r [RivalRow<'_>]) -> Vec<(Vec<String>, &'static str, &'r str)> {
    let missing = |row: &'r RivalRow<'_>| {
        let (word, reason) = row.sides.as_ref().err()?;
        Some(((*word, reason.as_str()), format!("{} ({})", row.program, row.work)))
    };
    let groups = grouped(rows.iter().filter_map(missing));
    groups.into_iter().map(|((word, reason), names)| (names, word, reason)).collect()
}

fn row<'a>(report: &Report<'a>, rival: &'a RivalResult) -> RivalRow<'a> {
    let state = rival.id.as_str().rsplit('.').next().unwrap_or_default();
    let pairs = report.run.metric(&rival.id).map(|metric| units::case_pairs(metric, &rival.case)).unwrap_or_default();
    let text = |(name, value)| if value == OWN_VARIANT { format!("{OWN_VARIANT} {name}") } else { value };
    let values = pairs.into_iter().map(text);
    let words: Vec<String> = std::iter::once(state.to_owned()).chain(values).collect();
    let sides = match &rival.outcome {
        RivalOutcome::Compared(compared) => Ok(rival_cells(compared)),
        RivalOutcome::Missing(outcome) => {
            Err(labels::missing_reason(outcome, Unit::Ratio).unwrap_or(("not known", "one side gave no rate".into())))
        }
    };
    RivalRow { work: words.join(" "), program: rival.program.as_str(), sides }
}

fn rival_cells(compared: &RivalFigures) -> RivalCells<'_> {
    let ends = |interval: Interval| format!(" {}..{}", units::ratio(interval.lower), units::ratio(interval.upper));
    let ends = compared.ratio.interval.map(ends).unwrap_or_default();
    RivalCells {
        kelvin: units::value_text(compared.kelvin.value, compared.unit),
        other: units::value_text(compared.other.value, compared.unit),
        ratio: units::with_interval(compared.ratio.value, compared.ratio.interval, Unit::Ratio).to_string(),
        short_ratio: format!("{}{ends}", units::ratio(compared.ratio.value)),
        expected: compared.expected.map(units::ratio).unwrap_or_default(),
        verdict: match compared.verdict {
            RangeVerdict::AsPredicted => "expected",
            RangeVerdict::Above => "above",
            RangeVerdict::Below => "below",
            RangeVerdict::NotPredicted | RangeVerdict::NotMeasured => "",
        },
        is_gap: labels::is_gap(compared.verdict),
        notes: &compared.notes,
    }
}
