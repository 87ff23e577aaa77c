//! What follows the last round of a run.

use kelvin_core::{Explanation, KeptHeadline, PredictionRecord, Run};
use serde::{Deserialize, Serialize};

/// What is known of a run after its last round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunConclusion {
    /// Its predictions.
    pub predictions: Vec<PredictionRecord>,
    /// What was found of the causes of its gaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explanations: Vec<Explanation>,
    /// Its headlines, where its samples are not stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_headlines: Vec<KeptHeadline>,
    /// Notes that follow those of the [`kelvin_core::Event::Finished`].
    pub notes: Vec<String>,
}

impl RunConclusion {
    /// The conclusion of a run, without the notes that it ended with.
    pub fn from_run(run: &Run) -> Self {
        Self {
            predictions: run.predictions.clone(),
            explanations: run.explanations.clone(),
            kept_headlines: run.kept_headlines.clone(),
            notes: Vec::new(),
        }
    }
}
