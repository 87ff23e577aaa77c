//! What studies concluded when earlier versions made a run, as it was worded then. Versions since conclude anew from what was
//! measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;
use crate::grammar::Id;

/// The conclusions of a study as they were worded when the run was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WordedStudy {
    /// Id of the study: `os.tasks`.
    #[schemars(with = "Id")]
    pub id: Name,
    /// What was varied and held, in one or two sentences.
    pub design: String,
    /// The conclusions.
    pub conclusions: Vec<WordedConclusion>,
}

/// One sentence that the data of a study supports, refutes, or leaves open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WordedConclusion {
    /// The sentence.
    pub text: String,
    /// Whether it holds; `None` where the data does not tell.
    pub holds: Option<bool>,
    /// The test that carries it, with its figures.
    pub test: String,
}
