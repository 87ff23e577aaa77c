//! Parameters that several areas share.

use crate::catalogue::axis_words::words;

words! {
    /// Where the two processes of a pair run.
    pub enum PairPlacement: "placement", "placement of the two processes" {
        /// Both on one CPU.
        SameCpu = "same_cpu",
        /// On two CPUs.
        TwoCpus = "two_cpus",
    }
}
