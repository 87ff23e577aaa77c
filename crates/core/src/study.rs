//! Conclusions of studies as worded by earlier versions when they made a run. Later versions draw them again from the
//! measurements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;
use crate::identifiers::Id;

/// The conclusions of a study as they were worded when the run was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WordedStudy {
    /// Id of the study: `os.tasks`.
    #[schemars(with = "Id")]
    pub id: Name,
    /// The design: what was varied and held fixed.
    pub design: String,
    /// The conclusions.
    pub conclusions: Vec<WordedConclusion>,
}

/// One sentence that the data of a study supports, refutes, or leaves open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WordedConclusion {
    /// The sentence.
    pub text: String,
    /// Whether it holds; `None` if the data does not decide.
    pub holds: Option<bool>,
    /// Its test, with figures.
    pub test: String,
}
