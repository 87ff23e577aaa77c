//! Flags of `kelvin runs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use kelvin_store::Tag;
use kelvin_store::foreign::Tool;

use super::{AnswerArgs, StoreArgs, Word, nonempty_value, one_of};

/// A program whose files can be imported: kelvin, or another one.
#[derive(Clone, Copy, Debug)]
pub struct ImportSource(pub Option<Tool>);

const SOURCES: &[Word<ImportSource>] = &[
    ("kelvin", ImportSource(None), "`kelvin runs export`"),
    ("lmbench", ImportSource(Some(Tool::Lmbench)), "lmbench 3: its results as text"),
    ("fio", ImportSource(Some(Tool::Fio)), "fio 3: --output-format=json"),
    ("iperf3", ImportSource(Some(Tool::Iperf3)), "iperf3: --json"),
    ("sysbench", ImportSource(Some(Tool::Sysbench)), "sysbench 1: its output as text"),
];

/// `kelvin runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// What to do with them
    #[command(subcommand)]
    pub command: RunsCommand,
    /// The store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What to do with stored runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List the stored runs, oldest first
    List {
        /// Only runs with this tag; repeatable
        #[arg(long = "tag", value_name = "NAME=VALUE")]
        tags: Vec<Tag>,
        /// How and where it is written
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Show a run's table
    Show {
        /// The run: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`
        #[arg(default_value = "last")]
        run: String,
        /// How and where it is written
        #[command(flatten)]
        answer: AnswerArgs,
        /// In JSON: the samples too, up to ten times as much; only with them can it be imported
        #[arg(long)]
        with_samples: bool,
        /// Include what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
        #[arg(long)]
        with_private: bool,
    },
    /// Add tags to a run, or remove them
    #[command(after_help = help!("runs-tag"))]
    Tag {
        /// The run: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`
        run: String,
        /// A tag, in place of one with its name
        #[arg(value_name = "NAME=VALUE", required_unless_present = "remove")]
        tags: Vec<Tag>,
        /// Remove the tag with this name; repeatable
        #[arg(long, value_name = "NAME", value_parser = kelvin_store::checked_tag_name)]
        remove: Vec<String>,
    },
    /// Set the note of a run
    #[command(after_help = help!("runs-note"))]
    Note {
        /// The run: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`
        run: String,
        /// The note
        #[arg(value_parser = kelvin_store::checked_note)]
        text: String,
    },
    /// Delete a run
    Delete {
        /// The run: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`
        run: String,
    },
    /// Delete old runs, except the newest of each machine and mode and those with a note or a tag of yours
    #[command(after_help = help!("runs-prune"))]
    Prune {
        /// Runs of each machine and mode to keep, from 1
        #[arg(long, value_name = "N", value_parser = super::positive_number)]
        keep: u64,
        /// Delete old runs with a note or a tag of yours too
        #[arg(long)]
        labelled_too: bool,
        /// Only print what would be deleted
        #[arg(long)]
        dry_run: bool,
        /// How and where it is written
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Copy runs into another store, each once
    #[command(after_help = help!("runs-push"))]
    Push {
        /// The store to copy into
        #[arg(long, value_name = "STORE", value_parser = nonempty_value())]
        to: OsString,
        /// The runs: ids or prefixes, `last`, `last~1`, `tag:NAME=VALUE` [default: all that have ended]
        runs: Vec<String>,
    },
    /// Copy runs from another store, each once
    #[command(after_help = help!("runs-pull"))]
    Pull {
        /// The store to copy from
        #[arg(long, value_name = "STORE", value_parser = nonempty_value())]
        from: OsString,
        /// The runs: ids or prefixes, `last`, `last~1`, `tag:NAME=VALUE` [default: all that have ended]
        runs: Vec<String>,
    },
    /// Write a run as one JSON file
    Export {
        /// The run: an id or its prefix, `last`, `last~1`, `tag:NAME=VALUE`
        #[arg(default_value = "last")]
        run: String,
        /// Where to write it [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Include what identifies the machine: paths, hosts, addresses, all boot parameters and mount options
        #[arg(long)]
        with_private: bool,
    },
    /// Store a run from a file: of `export`, of a report in JSON with samples, or of another program
    #[command(after_help = help!("runs-import"))]
    Import {
        /// The file, or - for standard input
        #[arg(required_unless_present = "table")]
        file: Option<PathBuf>,
        /// The program that wrote it [default: detected from the start of the file, else kelvin]
        #[arg(long, value_parser = one_of(SOURCES), value_name = "PROGRAM")]
        from: Option<ImportSource>,
        /// Print which results of each program are metrics of kelvin, which are not, and why
        #[arg(long, conflicts_with_all = ["file", "from"])]
        table: bool,
        /// How and where the table is written
        #[command(flatten)]
        answer: AnswerArgs,
    },
}
