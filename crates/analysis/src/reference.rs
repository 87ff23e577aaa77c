//! Published results of five earlier studies, built in as machines that stand beside a run.
//!
//! The data are the files of `references/`, shipped unchanged. Every figure in them is in one of three places:
//! a [`ReferenceValue`] of [`references`], where it is a metric of kelvin; [`transfer_2020`], the tables of a study of
//! file transfer; [`file_server_lan`], the capacities and cases of a study of a file server under load.

mod file_server;
mod places;
mod rows;
mod transfer;

use std::sync::LazyLock;

use kelvin_model::{Case, Metric, Reference, ReferenceValue};
use serde::de::DeserializeOwned;

pub use file_server::{Capacity, FileServerCase, Pattern, ServerLoad};
pub use places::Unmatched;
pub use transfer::{
    Connection, DataSet, DataSetSize, Method, PageDescriptors, TransferCell, TransferMode, TransferTables,
};

const ZENBOOK_2011: &str = include_str!("../references/zenbook-2011.toml");
const OS_BENCH_2013: &str = include_str!("../references/os-bench-2013.toml");
const DISK_READER_2021: &str = include_str!("../references/disk-reader-2021.toml");
const KERNEL_TRANSFER_2020: &str = include_str!("../references/kernel-transfer-2020.toml");
const FILE_SERVER_LAN: &str = include_str!("../references/file-server-lan.toml");

static REFERENCES: LazyLock<Vec<Reference>> = LazyLock::new(|| {
    let measured = [ZENBOOK_2011, OS_BENCH_2013, DISK_READER_2021].map(|text| parse::<rows::File>(text).reference());
    let transfer = parse::<transfer::File>(KERNEL_TRANSFER_2020).reference();
    let server = parse::<file_server::File>(FILE_SERVER_LAN).reference();
    measured.into_iter().chain([transfer, server]).collect()
});

static TRANSFER: LazyLock<TransferTables> =
    LazyLock::new(|| parse::<transfer::File>(KERNEL_TRANSFER_2020).into_tables());

static FILE_SERVER: LazyLock<FileServerCase> =
    LazyLock::new(|| parse::<file_server::File>(FILE_SERVER_LAN).into_case());

/// The reference machines, oldest study of a whole machine first. Those of the transfer and the file-server study have
/// no values that are metrics of kelvin; their figures are in [`transfer_2020`] and [`file_server_lan`].
pub fn references() -> &'static [Reference] {
    &REFERENCES
}

/// File transfer between two endpoints on one machine, 2020: every published mean, deviation and rate.
pub fn transfer_2020() -> &'static TransferTables {
    &TRANSFER
}

/// A file server on a 100 Mb/s network under closed-loop clients: its capacities and what was seen.
pub fn file_server_lan() -> &'static FileServerCase {
    &FILE_SERVER
}

/// The published rows, points of rows and tables that no case of kelvin measures, each with the reason. A value of
/// [`references`] that is one of them has the name of its row for a metric.
pub fn unmatched() -> &'static [Unmatched] {
    places::UNMATCHED
}

/// What reference machines published for a metric at exactly this case, in the order of [`references`]. A case with
/// more, fewer or other axes is another quantity and is not found; nothing is interpolated.
///
/// Whether a value may be compared as an equal, or only be shown, is for [`standing`] to say.
pub fn beside(metric: &str, case: &Case) -> Vec<(&'static Reference, &'static ReferenceValue)> {
    let all = references().iter().flat_map(|reference| reference.values.iter().map(move |value| (reference, value)));
    all.filter(|(_, value)| value.metric == *metric && value.case == *case).collect()
}

/// How a published value may stand beside a measured one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the same quantity: a ratio of the two means something.
    Equal,
    /// It may be shown, with this reason why no ratio may be drawn.
    ShownOnly(String),
}

/// Whether a published value is the quantity that a metric measures.
///
/// The rule: it is, unless it `spans` something else than one value of the metric (two switches for one, a total for a
/// part, a range for a value), or has another unit. An equal quantity is still the mean of one machine's trials with a
/// standard deviation at best: a ratio to it is a fact, a test of significance is not possible.
pub fn standing(value: &ReferenceValue, metric: &Metric) -> Standing {
    if let Some(spans) = &value.spans {
        return Standing::ShownOnly(format!("the published value covers something else: {spans}"));
    }
    if value.metric != metric.id || value.unit != metric.unit {
        return Standing::ShownOnly("the published value is of another metric or in another unit".into());
    }
    Standing::Equal
}

/// The data of a file that is part of this program.
fn parse<T: DeserializeOwned>(text: &str) -> T {
    match toml::from_str(text) {
        Ok(data) => data,
        Err(error) => panic!("a built-in reference file is wrong: {error}"),
    }
}

#[cfg(test)]
mod tests;
