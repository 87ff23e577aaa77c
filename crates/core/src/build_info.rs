//! How the program that measured a run was built.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Word;

/// A build of kelvin: two builds of one version can measure differently, since their C libraries or compilers differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildInfo {
    /// The commit of the sources, with `-dirty` if they differed from it; nothing where they did not come with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Word>")]
    pub commit: Option<String>,
    /// The target of the compiler: `x86_64-unknown-linux-musl`.
    #[schemars(with = "Word")]
    pub target: String,
    /// The C library and how it is linked: `glibc 2.36, linked dynamically`.
    pub c_library: String,
    /// The compiler and its version: `rustc 1.95.0`.
    pub compiler: String,
    /// The features that were compiled in, in alphabetical order: `postgres`.
    #[schemars(with = "Vec<Word>")]
    pub features: Vec<String>,
}
