//! Parameters that several areas share.

use crate::words::words;

words! {
    /// Where the two processes of a pair run.
    pub enum Placement: "placement", "placement of the two processes" {
        /// Both on one CPU.
        SameCpu = "same_cpu",
        /// On two CPUs.
        TwoCpus = "two_cpus",
    }
}
