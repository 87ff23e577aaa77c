//! Other programs that measure the same, and kelvin's metrics to compare them with.

use crate::Metric;

use crate::catalogue::axis_words::words;

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
pub struct RivalComparison {
    /// How many times as fast kelvin is: its rate over the other program's, or the other's time over kelvin's.
    pub ratio: &'static Metric,
    /// kelvin's figure.
    pub kelvin: &'static Metric,
    /// The other program's.
    pub other: &'static Metric,
}
