//! Flags of where a run goes, and what is kept of it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use kelvin_store::Tag;

use super::StoreArgs;

/// What is kept of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kept {
    /// Every sample of every round
    #[default]
    Samples,
    /// Headlines, intervals, predictions and causes: about a tenth as many bytes, for many hosts or many runs
    Headlines,
}

/// Where a run goes.
#[derive(Clone, Debug, Args)]
pub struct DestinationArgs {
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
    /// Do not store the run
    #[arg(long)]
    pub no_store: bool,
    /// Directory for a file of the run, in the format of `kelvin runs export`, such as one that many hosts share. The file is named by host and
    /// time, and appears once it is whole. The run is then stored only if --store names a store, and no report is written unless
    /// --report names one
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is stored of the run, or written by --out. Without samples it has no figures over time and no conclusions of
    /// studies, and `kelvin compare` refuses it; if it is killed, nothing is left of it
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub keep: Kept,
    /// A tag of the run, such as kernel=6.18; repeatable
    #[arg(long = "tag", value_name = "NAME=VALUE", conflicts_with = "no_store")]
    pub tags: Vec<Tag>,
    /// A note on the run
    #[arg(long, value_name = "TEXT", value_parser = kelvin_store::checked_note, conflicts_with = "no_store")]
    pub note: Option<String>,
    /// Where to write the HTML report [default: report.html; none with --out, or as one of several processes of a launcher]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write no HTML report
    #[arg(long, conflicts_with = "report")]
    pub no_report: bool,
    /// Print the run and its analysis as JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// With --json: the samples too, up to ten times as much; only with them can it be imported
    #[arg(long, requires = "json")]
    pub with_samples: bool,
    /// Keep in the run what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
    #[arg(long)]
    pub with_private: bool,
}

impl DestinationArgs {
    /// The store, unless the run is not stored: a directory takes its place where no store is named.
    pub fn store(&self) -> Option<&StoreArgs> {
        let is_stored = !self.no_store && (self.out.is_none() || self.store.store.is_some());
        is_stored.then_some(&self.store)
    }

    /// The file of the page, unless none is written.
    pub fn page(&self) -> Option<&Path> {
        let default = self.out.is_none().then(|| Path::new("report.html"));
        self.report.as_deref().or(default).filter(|_| !self.no_report)
    }

    /// As of one of many processes: with these tags, as far as the user has given none of the same name, and no page that all would write.
    pub fn add_launch(&mut self, tags: Vec<Tag>, is_alone: bool) {
        let is_new = |tag: &Tag| self.tags.iter().all(|given| given.name() != tag.name());
        let new: Vec<Tag> = tags.into_iter().filter(is_new).collect();
        self.tags.extend(new);
        self.no_report |= !is_alone && self.report.is_none();
    }
}
