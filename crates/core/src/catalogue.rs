//! Every metric that kelvin measures, as data: id, unit, axes and their words.
//!
//! Probes, conclusions, figures and reference machines name metrics and axes by the items of this crate, so that a changed or
//! misspelled name does not compile. No id and no axis is spelled as a string elsewhere, except where stored runs and the
//! command line are parsed.
//!
//! A metric is a static in the file of its area, named by its id without the area: `os.syscall.null` is
//! [`os::SYSCALL_NULL`]. Its documentation is its summary. A numeric parameter is an [`Axis`](crate::Axis); one of words is an enum.
mod axis_words;
mod core_generation;
mod metric_list;
mod rivals;
mod run_variation;
mod shared_axes;

pub mod command;
pub mod controlled_causes;
pub mod cpu;
pub mod file;
pub mod load;
pub mod mem;
pub mod net;
pub mod os;
pub mod transfer;
pub mod truth;

use crate::{Metric, Name};

pub use core_generation::ModelContradiction;
pub use rivals::{Rival, RivalComparison};
pub use run_variation::RunVariation;
pub use shared_axes::PairPlacement;

/// All comparisons with other programs.
pub static RIVAL_COMPARISONS: [&RivalComparison; 5] = [
    &file::RIVAL_COMPARISON_CACHED,
    &file::RIVAL_COMPARISON_DIRECT,
    &os::RIVAL_COMPARISON_SYSCALL,
    &os::RIVAL_COMPARISON_PIPE,
    &net::RIVAL_COMPARISON_TCP,
];

/// All metrics, area by area.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [
        cpu::ALL,
        os::SYSCALL_METRICS,
        os::PROCESS_METRICS,
        os::SWITCH_METRICS,
        os::IPC_METRICS,
        os::SIGNAL_METRICS,
        os::TASK_METRICS,
        os::SCALING_METRICS,
        os::RIVAL_METRICS,
        mem::ALL,
        file::DEVICE_METRICS,
        file::READ_METRICS,
        file::CACHE_METRICS,
        file::METADATA_METRICS,
        file::REMOTE_METRICS,
        file::TUNE_METRICS,
        file::RIVAL_METRICS,
        net::LOCAL_METRICS,
        net::PEER_METRICS,
        net::RIVAL_METRICS,
        transfer::CACHED_METRICS,
        transfer::COLD_METRICS,
        load::USER_METRICS,
        load::MORE_WORKERS_METRICS,
        load::RESOURCE_METRICS,
        load::hosts::HOST_METRICS,
        load::CAPACITY_METRICS,
        truth::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The metric with this id, as this version defines it.
pub fn find(id: Name) -> Option<&'static Metric> {
    all().find(|metric| metric.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn metric_ids_and_axis_names_are_unique() {
        let mut ids = BTreeSet::new();
        for metric in all() {
            assert!(ids.insert(metric.id), "{} is defined twice", metric.id);
            let axes: BTreeSet<_> = metric.axes().map(|axis| axis.name).collect();
            assert_eq!(axes.len(), metric.axes().count(), "{} has an axis twice", metric.id);
        }
    }
}
