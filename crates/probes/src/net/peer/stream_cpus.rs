//! The CPUs on which streams between two hosts run, at either end, and how many streams are tried on them.

use kelvin_harness::Effort;
use kelvin_sys::cpu;

use crate::working_cpus::{cpu_counts, spread_over_machine};

/// Streams that are tried however few the CPUs are: more of them also share a link with other traffic in another way.
const MIN_CASE_STREAMS: u64 = 4;
/// Most streams of a default run, and of a thorough one. A stream carries some 2 GB/s and more, 64 of them more than any interface: one
/// of 800 Gbit/s carries 100 GB/s.
const MAX_DEFAULT_STREAMS: u64 = 64;
const MAX_THOROUGH_STREAMS: u64 = kelvin_transfer::wire::admission::MAX_TEST_STREAMS as u64;

/// The CPUs of an agent on this machine, in that order: the last one first, away from the first, which most often serves interrupts. None
/// where the kernel does not tell.
pub(crate) fn agent_cpu_order() -> Vec<u32> {
    let allowed = cpu::affinity().unwrap_or_default();
    allowed.last().map_or_else(Vec::new, |&last| spread_over_machine(last, &allowed))
}

/// Most streams for this many CPUs of the host that has fewer.
pub(crate) fn max_streams(cpus: u64) -> u64 {
    cpus.max(MIN_CASE_STREAMS)
}

/// Numbers of streams to try on this many CPUs: up to 4 on any, and beyond that one for each CPU.
pub(super) fn stream_counts(cpus: u64, effort: Effort) -> Vec<u64> {
    let limit = if effort == Effort::Thorough { MAX_THOROUGH_STREAMS } else { MAX_DEFAULT_STREAMS };
    match effort {
        _ if cpus > MIN_CASE_STREAMS => cpu_counts(cpus.min(limit), effort),
        Effort::Quick => vec![1],
        Effort::Default | Effort::Thorough => cpu_counts(MIN_CASE_STREAMS, Effort::Default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_grow_with_cpus_beyond_four() {
        for cpus in [1, 2, 4] {
            let counts = [Effort::Quick, Effort::Default, Effort::Thorough].map(|effort| stream_counts(cpus, effort));
            assert_eq!(counts, [vec![1], vec![1, 2, 4], vec![1, 2, 4]], "{cpus}");
        }
        assert_eq!(stream_counts(6, Effort::Default), [1, 2, 4, 6]);
        assert_eq!(stream_counts(128, Effort::Quick), [1, 64]);
        assert_eq!(stream_counts(128, Effort::Default), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(stream_counts(128, Effort::Thorough), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]);
        assert_eq!(stream_counts(512, Effort::Thorough).last(), Some(&256));
    }

    #[test]
    fn order_has_each_cpu_once() {
        let allowed = cpu::affinity().unwrap();
        let order = agent_cpu_order();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!((order.first(), &sorted), (allowed.last(), &allowed));
    }
}
