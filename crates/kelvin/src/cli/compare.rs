//! Flags of `kelvin compare`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{OutputArgs, StoreArgs, percent_up_to_50};

/// `kelvin compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// What to compare with: a run (an id or its prefix, `last`, `last~1`), a range of runs (`last~5..last~3`), all with a tag
    /// (`tag:kernel=6.17`), an exported file (- is standard input), or a published machine (`zenbook-2011`)
    #[arg(value_name = "A", default_value = "last~1")]
    pub base: OsString,
    /// What to compare
    #[arg(value_name = "B", default_value = "last")]
    pub other: OsString,
    /// How it is judged and shown
    #[command(flatten)]
    pub shown: CompareOutputArgs,
    /// Include what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
    #[arg(long)]
    pub with_private: bool,
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// How a comparison is judged and shown: of `compare` and `ab`.
#[derive(Debug, Args)]
pub struct CompareOutputArgs {
    /// Percentage by which a figure must differ to be better or worse, and within which it is the same
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent_up_to_50)]
    pub threshold: f64,
    /// Exit with status 1 if a figure is worse, by this percentage if one is given, as in `worse:5%`
    #[arg(long, value_name = "worse[:PERCENT]", value_parser = worse_share)]
    pub fail_on: Option<f64>,
    /// Exit with status 1 if a figure misses this policy: a TOML file of bounds, owners and known issues (see the book on compare)
    #[arg(long, value_name = "FILE", conflicts_with = "fail_on")]
    pub policy: Option<PathBuf>,
    /// Print all figures instead of one screen, and which controls of causes a side lacks
    #[arg(long)]
    pub full: bool,
    /// How and where it is written
    #[command(flatten)]
    pub output: OutputArgs<CompareFormat>,
}

/// A format of `kelvin compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// One screen; with --full, all figures
    Terminal,
    /// One page: what differs, both ladders, and each figure with its rounds
    Html,
    /// Markdown, for a pull request
    Md,
    /// JUnit's XML: a failure for each figure that misses the gate of --fail-on or --policy
    Junit,
    /// JSON
    Json,
}

/// By which share a figure must be worse to miss the gate.
fn worse_share(text: &str) -> Result<f64, String> {
    const FAIL_ON_HELP: &str = "expected worse, or worse:5% for worse by 5 %";
    match text.split_once(':') {
        None if text == "worse" => Ok(0.0),
        Some(("worse", share)) => percent_up_to_50(share).map_err(|reason| format!("{FAIL_ON_HELP}: {reason}")),
        _ => Err(FAIL_ON_HELP.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail_on_needs_worse_and_percentage() {
        assert_eq!(worse_share("worse"), Ok(0.0));
        assert_eq!(worse_share("worse:5%"), Ok(0.05));
        assert_eq!(worse_share("worse:2.5"), Ok(0.025));
        for text in ["", "worse:", "worse:0", "worse:x", "better", "worse:99%"] {
            assert!(worse_share(text).is_err(), "{text}");
        }
    }
}
