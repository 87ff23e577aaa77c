//! Parameters that several areas share.

use crate::words::words;

words! {
    /// Where the two ends of something run.
    pub enum Placement: "placement", "placement of the two processes" {
        /// Both on one CPU.
        SameCpu = "same_cpu",
        /// Each on a CPU of its own.
        TwoCpus = "two_cpus",
    }
}
