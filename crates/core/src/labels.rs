//! Labels of a run: tags, which are a name and a value, and a note.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tag with the job of a launcher.
pub const JOB_TAG: &str = "job";

/// The tag with the name of a host.
pub const NODE_TAG: &str = "node";

/// What people say of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Labels {
    /// Tags, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// A note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Labels {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.note.is_none()
    }

    /// The tags in one line, by name: `kernel=6.18 by=ci`. No name and no value has a space.
    pub fn tags_text(&self) -> String {
        self.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}
