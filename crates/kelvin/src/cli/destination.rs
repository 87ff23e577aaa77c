//! Flags of where a run goes, and what is kept of it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use kelvin_store::Tag;

use super::output_args::output_path;
use super::{ReportFormat, StoreArgs, choose_format};

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
    /// time, and appears once it is whole. The run is then stored only if --store or KELVIN_STORE names a store
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
    /// Also write a report of it, in the format of its ending: .html, .md, .json, .csv, .prom and others of `kelvin report`; repeatable
    #[arg(long, short, value_name = "FILE", value_parser = output_path::<ReportFormat>())]
    pub output: Vec<PathBuf>,
    /// Print the run and its analysis as JSON instead of text
    #[arg(long, short_alias = 'J')]
    pub json: bool,
    /// In JSON: the samples too, up to ten times as much; only with them can it be imported
    #[arg(long)]
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

    /// The reports that are written, with the format of each.
    pub fn reports(&self) -> impl Iterator<Item = (ReportFormat, &Path)> {
        self.output
            .iter()
            .filter(|path| *path != Path::new("-"))
            .map(|path| (choose_format(None, false, Some(path)), path.as_path()))
    }

    /// The files of these reports.
    pub fn report_paths(&self) -> Vec<&Path> {
        self.reports().map(|(_, path)| path).collect()
    }

    /// As of one of many processes: with these tags, as far as the user has given none of the same name.
    pub fn add_launch(&mut self, tags: Vec<Tag>) {
        let is_new = |tag: &Tag| self.tags.iter().all(|given| given.name() != tag.name());
        let new: Vec<Tag> = tags.into_iter().filter(is_new).collect();
        self.tags.extend(new);
    }
}
