//! What ranks that load a server are asked, and what they answer: plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What rank 0 asks of another rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LoadTask {
    /// To say which `kelvin` it starts, that at this path or the one that it finds.
    FindKelvin(Option<PathBuf>),
    /// To start it with these arguments.
    Generate(Vec<String>),
}

/// What another rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LoadOutcome {
    /// What `kelvin` says that it is.
    Kelvin(String),
    /// What `kelvin load --json` printed.
    Generated(Value),
}
