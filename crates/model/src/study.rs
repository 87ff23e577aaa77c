//! What a study concludes: sentences, each carried by a test.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// The outcome of a study over its measurements, which are stored beside it as any others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyResult {
    /// Id of the study: `os.tasks`.
    pub id: Name,
    /// What was varied and held, in one or two sentences.
    pub design: String,
    /// The conclusions.
    pub conclusions: Vec<Conclusion>,
}

/// One sentence that the data of a study supports, refutes, or leaves open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conclusion {
    /// The sentence.
    pub text: String,
    /// Whether it holds; `None` where the data does not tell.
    pub holds: Option<bool>,
    /// The test that carries it, with its figures.
    pub test: String,
}
