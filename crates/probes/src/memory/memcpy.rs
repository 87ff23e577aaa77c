//! Bandwidth of the C library's memcpy, in the memory that ordinary programs have, and in huge pages.
//!
//! It is what a program gets that copies without care. It must not be used as what this machine's memory can do: that is
//! mem.bandwidth.copy, by the best loop for this processor in huge pages.

use kelvin_core::catalogue::mem::{
    BANDWIDTH_MEMCPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_WRITE, BYTES, RequestedPages,
};
use kelvin_sys::kernels::bandwidth::{Operation, library_copy, memcpy_library};
use kelvin_sys::memory::PagePolicy;

use super::axes::{number, page_sizes, skip_if_out_of_memory};
use super::bandwidth::{BandwidthArrays, PART_BYTES, cached_sets, memory_case, one_cpu_case};
use crate::prelude::*;
use crate::program::note_c_library;

pub(crate) static PROBE: Probe = Probe {
    summary: "Bandwidth of the C library's memcpy in ordinary memory and in huge pages, by one CPU",
    method: include_str!("memcpy.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&BANDWIDTH_MEMCPY])
};

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let largest = BYTES.number_in(&memory_case(machine)).unwrap_or_default();
    let case = |bytes: u64, pages: RequestedPages| Case::new().with_number(BYTES, bytes).with_word(pages);
    let mut cases = vec![case(largest, RequestedPages::Default)];
    if effort != Effort::Quick && page_sizes(machine).len() > 1 {
        cases.push(case(largest, RequestedPages::Huge));
    }
    if effort == Effort::Thorough {
        let cached = cached_sets(machine, false).into_iter().filter(|&bytes| bytes < largest);
        cases.extend(cached.map(|bytes| case(bytes, RequestedPages::Default)));
    }
    cases
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let bytes = number(case, BYTES)?;
    let pages = match required_word(RequestedPages::of(case), RequestedPages::ALL, case)? {
        RequestedPages::Default => PagePolicy::Default,
        RequestedPages::Huge => PagePolicy::Huge,
    };
    let (mut mover, memcpy) =
        (skip_if_out_of_memory(bytes, BandwidthArrays::new(bytes, PART_BYTES, pages))?, library_copy());
    let bytes_per_call = mover.iteration_bytes(Operation::Copy);
    note_c_library(bench);
    bench.note(mover.describe_pages()?);
    bench.note(format!(
        "memcpy of {}, {} bytes a call; each byte copied counts twice, read and written",
        memcpy_library(),
        bytes_per_call / 2
    ));
    bench.time_work(
        &BANDWIDTH_MEMCPY,
        bytes_per_call as f64,
        infallible(|iterations| mover.run(Operation::Copy, &memcpy, iterations)),
    )
}

/// Predicted range beyond what is expected, as a share.
const TOLERANCE: f64 = 0.1;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let bytes = required_number(BYTES, case)?;
    let single_cpu_case = one_cpu_case(bytes);
    let byte = |name: &str| fact(name, 1.0, Unit::Bytes, "arrays of the operation");
    let (read, written) = (byte("bytes read"), byte("bytes written"));
    let reads = read.clone() / measured(facts, &BANDWIDTH_READ, &single_cpu_case)?;
    let writes = written.clone() / measured(facts, &BANDWIDTH_WRITE, &single_cpu_case)?;
    let streams = written.clone() / measured(facts, &BANDWIDTH_NTWRITE, &single_cpu_case)?;
    let (sequential_time, overlapped_time) = (reads.clone() + writes.clone(), reads.clone().max(writes.clone()));
    // At most by non-temporal stores.
    let [low, rate, high] =
        [sequential_time.clone(), sequential_time.geometric_mean(overlapped_time), reads.max(writes.min(streams))]
            .map(|time| (read.clone() + written.clone()) / time);
    let rate = rate.with_bounds(&low, &high).widen_by_share(TOLERANCE);
    Ok(rate.derived("reading and ordinary stores"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::bandwidth::tests::machine;
    use crate::testing::with_facts;
    use kelvin_core::Fact;

    const MIB: u64 = 1 << 20;

    #[test]
    fn default_run_has_both_page_kinds() {
        let mut two_cpus = machine(2, 32 * MIB, 24 << 30);
        let pages = |machine: &_, effort| -> Vec<_> {
            cases(machine, effort)
                .iter()
                .map(|case| (BYTES.number_in(case).unwrap(), RequestedPages::of(case).unwrap()))
                .collect()
        };
        let memory = [(256 * MIB, RequestedPages::Default), (256 * MIB, RequestedPages::Huge)];
        assert_eq!(
            (pages(&two_cpus, Effort::Quick), pages(&two_cpus, Effort::Default)),
            (memory[..1].to_vec(), memory.to_vec())
        );
        let sizes: Vec<u64> = pages(&two_cpus, Effort::Thorough).into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(sizes, [256 * MIB, 256 * MIB, 24 << 10, 512 << 10, 4 * MIB]);
        two_cpus.memory.transparent_huge_pages = Fact::known("never".into(), "a test");
        assert_eq!(pages(&two_cpus, Effort::Default), memory[..1]);
    }

    #[test]
    fn memcpy_overlaps_reads_and_writes() {
        let rates = [(&BANDWIDTH_READ, 20e9), (&BANDWIDTH_WRITE, 10e9), (&BANDWIDTH_NTWRITE, 25e9)];
        let values = rates.map(|(metric, rate)| (metric.id.as_str(), Some(rate)));
        with_facts(&values, |facts| {
            let predicted = predict(facts, &BANDWIDTH_MEMCPY, &Case::new().with_number(BYTES, 1 << 28)).unwrap();
            // Of a byte each 0.15 ns one after the other, 0.1 ns at once; 0.05 ns if no line is read that is overwritten.
            assert!((predicted.value - 2e9 / (0.15f64 * 0.1).sqrt()).abs() < 1.0, "{predicted:?}");
            let expected = [0.9 * 2e9 / 0.15, 1.1 * 2e9 / 0.05];
            assert!(
                (predicted.low - expected[0]).abs() < 1.0 && (predicted.high - expected[1]).abs() < 1.0,
                "{predicted:?}"
            );
        });
    }
}
