//! What studies and comparisons conclude.

use std::ops::Deref;

use kelvin_core::{Conclusion, Unit};

use super::*;

/// What a study concludes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Study {
    /// Id of the study: `os.tasks`.
    pub id: Name,
    /// The answer, of each case that was studied; empty where the conclusions are short enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<StudyAnswer>,
    /// The design: what was varied and held fixed.
    pub design: String,
    /// The conclusions.
    pub conclusions: Vec<StatedConclusion>,
    /// Tables of what was compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<StudyTable>,
    /// Ids of metrics for which these tables are place enough: they are for reading beside others, and need no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_tables: Vec<Name>,
}

/// What a study answers of a case, before its proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StudyAnswer {
    /// The answer in a sentence.
    pub text: String,
    /// The figures that it rests on, in a line each, the weightiest first.
    pub reasons: Vec<String>,
}

/// A table of a study: a row for each of what was compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyTable {
    /// Id, usable as a file name: `transfer.small`.
    pub id: String,
    /// Title.
    pub title: String,
    /// The columns after the label of a row.
    pub columns: Vec<StudyColumn>,
    /// The rows.
    pub rows: Vec<StudyRow>,
    /// Ids of the metrics whose figures it has, so that they need no lines elsewhere.
    pub metrics: Vec<Name>,
    /// The column whose figures are drawn as bars, and one with marks at them.
    pub bars: Option<[usize; 2]>,
}

impl StudyTable {
    /// A table that holds no other place for metrics, and has no bars.
    pub(crate) fn new(id: String, title: String, columns: Vec<StudyColumn>, rows: Vec<StudyRow>) -> Self {
        Self { id, title, columns, rows, metrics: Vec::new(), bars: None }
    }
}

/// A column of a study's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyColumn {
    /// Label.
    pub label: String,
    /// Unit of its figures.
    pub unit: Unit,
    /// Whether it is shown where there is room for a few columns only.
    pub is_main: bool,
}

impl StudyColumn {
    pub(crate) fn new(label: &str, unit: Unit, is_main: bool) -> Self {
        Self { label: label.into(), unit, is_main }
    }
}

/// A row of a study's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyRow {
    /// What was measured.
    pub label: String,
    /// A figure for each column, where there is one.
    pub cells: Vec<Option<Figure>>,
}

/// A conclusion with its words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatedConclusion {
    /// The sentence.
    pub text: String,
    /// Its test, with figures.
    pub test: String,
    /// The data of both.
    #[serde(flatten)]
    pub conclusion: Conclusion,
}

impl Deref for StatedConclusion {
    type Target = Conclusion;

    fn deref(&self) -> &Conclusion {
        &self.conclusion
    }
}

/// The ceiling of one line of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineCeiling {
    /// The metric of the curve.
    pub metric: Name,
    /// The parameters held fixed along the line.
    pub fixed: Case,
    /// Lower end of its interval, in the metric's unit.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Id of the metric that it is derived from.
    pub source: Name,
}

/// Metrics whose distributions are drawn together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TailGroup {
    /// The prefix of their ids.
    pub family: Name,
    /// Ids of the metrics.
    pub metrics: Vec<Name>,
    /// What they share: the message size with most measurements, in bytes.
    pub fixed: Case,
}

/// One piece of work by kelvin and by a rival, alternately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RivalResult {
    /// Id of the measure: `file.rivals.cached`.
    pub id: Name,
    /// The rival.
    pub program: Name,
    /// The case, without the program.
    pub case: Case,
    /// The outcome.
    pub outcome: RivalOutcome,
}

/// The outcome of a comparison with a rival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RivalOutcome {
    /// Both sides, and how they compare.
    Compared(Box<RivalFigures>),
    /// Why there is no comparison: the outcome of the ratio.
    Missing(Box<Outcome>),
}

/// The unit of comparisons before there were others.
fn bytes_per_second() -> Unit {
    Unit::BytesPerSecond
}

/// Both sides of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RivalFigures {
    /// Unit of both figures: of a rate, or of the time of one operation.
    #[serde(default = "bytes_per_second")]
    pub unit: Unit,
    /// kelvin's figure.
    pub kelvin: Figure,
    /// The rival's.
    pub other: Figure,
    /// How many times as fast as the rival kelvin is, over pairs that directly followed each other; not the ratio of the two figures
    /// above, which are not paired.
    pub ratio: Figure,
    /// What the ratio should be, if that is predicted.
    pub expected: Option<f64>,
    /// The ratio against that.
    pub verdict: RangeVerdict,
    /// How each side was timed and verified, and which program it was.
    pub notes: Vec<String>,
}
