//! Other programs that measure the same, and the metrics of kelvin beside them.

use kelvin_model::{Better, Metric, Unit};

use crate::words::words;
use crate::{file, net, os};

words! {
    /// A program that does the same work.
    pub enum Rival: "program", "program" {
        /// fio.
        Fio = "fio",
        /// dd.
        Dd = "dd",
        /// cat.
        Cat = "cat",
        /// bw_file_rd of lmbench.
        BwFileRd = "bw_file_rd",
        /// perf bench.
        Perf = "perf",
        /// iperf3.
        Iperf3 = "iperf3",
    }
}

/// What a comparison with other programs measures.
#[derive(Debug)]
pub struct BesideRivals {
    /// How many times as fast kelvin is: its rate over the other program's, or the other's time over kelvin's.
    pub ratio: &'static Metric,
    /// kelvin's figure.
    pub kelvin: &'static Metric,
    /// The other program's.
    pub other: &'static Metric,
}

/// All comparisons with other programs.
pub static BESIDE_RIVALS: [&BesideRivals; 5] = [
    &file::BESIDE_RIVALS_CACHED,
    &file::BESIDE_RIVALS_DIRECT,
    &os::BESIDE_RIVALS_SYSCALL,
    &os::BESIDE_RIVALS_PIPE,
    &net::BESIDE_RIVALS_TCP,
];

/// A ratio of two speeds.
pub(crate) const fn ratio(metric: Metric) -> Metric {
    metric.unit(Unit::Ratio, Better::Neither)
}
