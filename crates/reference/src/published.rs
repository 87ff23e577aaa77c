//! Published results of five earlier studies, built in as machines to compare a run with.
//!
//! The data are the files of `references/`, of which the build script makes JSON. A figure that is a metric of kelvin is a
//! [`ReferenceValue`] of [`references`]; the capacities and cases of the study of a file server are
//! judged by `studies::load::published` of `kelvin-analysis`.

mod row_mapping;
mod rows;
mod server;
mod transfer;

use std::sync::LazyLock;

use kelvin_core::{Metric, Reference, ReferenceValue};
use serde::de::DeserializeOwned;

pub use row_mapping::{UNMATCHED_ROWS, UnmatchedRow};
pub use server::{PublishedCapacity, PublishedServerCase, ServerStudyFile, ServerStudyMachine};

const ZENBOOK_2011: &str = include_str!(concat!(env!("OUT_DIR"), "/zenbook-2011.json"));
const OS_BENCH_2013: &str = include_str!(concat!(env!("OUT_DIR"), "/os-bench-2013.json"));
const DISK_READER_2021: &str = include_str!(concat!(env!("OUT_DIR"), "/disk-reader-2021.json"));
const KERNEL_TRANSFER_2020: &str = include_str!(concat!(env!("OUT_DIR"), "/kernel-transfer-2020.json"));
const FILE_SERVER_LAN: &str = include_str!(concat!(env!("OUT_DIR"), "/file-server-lan.json"));

static REFERENCES: LazyLock<Vec<Reference>> = LazyLock::new(|| {
    let measured =
        [ZENBOOK_2011, OS_BENCH_2013, DISK_READER_2021].map(|text| parse::<rows::RowFile>(text).into_reference());
    let tables = [KERNEL_TRANSFER_2020, FILE_SERVER_LAN].map(|text| parse::<rows::TableFile>(text).into_reference());
    let mut references: Vec<Reference> = measured.into_iter().chain(tables).collect();
    let transfers = references.iter_mut().find(|reference| reference.id == *row_mapping::TRANSFER);
    if let Some(transfers) = transfers {
        transfers.values = parse::<transfer::TransferStudyFile>(KERNEL_TRANSFER_2020).values();
    }
    references
});

static PUBLISHED_SERVER: LazyLock<ServerStudyFile> = LazyLock::new(|| parse(FILE_SERVER_LAN));

/// The published study of a file server.
pub fn published_server() -> &'static ServerStudyFile {
    &PUBLISHED_SERVER
}

/// The reference machines, oldest study of a whole machine first. That of the file server has no values that are metrics
/// of kelvin.
pub fn references() -> &'static [Reference] {
    &REFERENCES
}

/// How a published value may be compared with a measured one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparability {
    /// The same quantity: their ratio means something.
    Equal,
    /// Shown only; the reason why there is no ratio.
    ShownOnly(String),
}

/// Whether a published value is the quantity that a metric measures.
///
/// The rule: it is, unless it `spans` something other than one value of the metric (two switches for one, a total for a
/// part, a range for a value), or has another unit. An equal quantity is still the mean of one machine's trials with a
/// standard deviation at best: a ratio to it is a fact, a test of significance is not possible.
pub fn comparability(value: &ReferenceValue, metric: &Metric) -> Comparability {
    if let Some(spans) = &value.range {
        return Comparability::ShownOnly(format!("the published value covers something else: {spans}"));
    }
    if value.metric != metric.id || value.unit != metric.unit {
        return Comparability::ShownOnly("the published value is of another metric or in another unit".into());
    }
    Comparability::Equal
}

/// The data of a file that is part of this program.
fn parse<T: DeserializeOwned>(text: &str) -> T {
    kelvin_core::json::from_str(text).unwrap_or_else(|error| panic!("a built-in reference file is wrong: {error}"))
}

#[cfg(test)]
mod tests;
