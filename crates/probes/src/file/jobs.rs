//! A device's rate with requests in flight from several CPUs at once: reads of 4 KiB in random order, by the number of jobs.
//!
//! It shows whether one CPU is enough for all that the device can do. It must not be taken for the rate of a program that waits for
//! each request.

use kelvin_core::catalogue::file::{
    DEVICE_MEAN_LATENCY, DEVICE_REQUESTS, JOBS, JOBS_CPU, JOBS_DEPTH, JOBS_IOPS, JOBS_STUDY, QUEUE_DEPTH,
};
use kelvin_file::jobs::{JobSpec, JobsResult};
use kelvin_file::read_job::jain_fairness;

use super::extent;
use super::prelude::*;
use super::queue_depth::closed_system_rates;
use super::request_rate::{QueuedRequests, REQUESTS_PER_SLOT, random_reads};
use crate::memory::memory_budget::allowed_cpu_count;
use crate::working_cpus::{cores_first, cpu_counts};

pub(super) static PROBE: Probe = Probe {
    id: JOBS_STUDY.as_str(),
    summary: "Random reads of 4 KiB past the page cache by 1, 2, 4 jobs and one on every CPU, each at queue depth 32",
    method: include_str!("jobs.md"),
    cases: |machine, effort| {
        const THOROUGH: &[u64] = &[1, JOBS_DEPTH, 128];
        let depths = by_effort(effort, [&[JOBS_DEPTH][..], &[JOBS_DEPTH], THOROUGH]);
        numbers(JOBS, &cpu_counts(allowed_cpu_count(machine).min(MAX_JOBS), effort)).numbers(QUEUE_DEPTH, depths)
    },
    run,
    predict,
    ..Probe::measure(&[&JOBS_IOPS, &JOBS_CPU])
};

/// More jobs keep more requests in flight than devices have queue entries for: 64 of depth 32 are 2048.
const MAX_JOBS: u64 = 64;
const BLOCK: usize = 4096;
/// Nanoseconds of full queues of several jobs before the window, as fio's ramp_time: after an idle time a device may serve them faster than
/// it can go on to (a virtual disk 1.05 to 1.25 times as fast in the first tenth of a second, but one job at its lasting rate).
const RAMP_NANOSECONDS: u64 = 200_000_000;

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (count, depth) = (required_number(JOBS, case)? as usize, required_u32(QUEUE_DEPTH, case)?);
    let mut cpus = cores_first(bench.cpu(), bench.allowed_cpus());
    skip_if(cpus.len() < count, format!("needs {count} CPUs; this process may use {}", cpus.len()))?;
    cpus.truncate(count);
    let target = extent::study_file(bench, case)?;
    test_files::check_direct_io(&target, BLOCK as u64)?;
    let spec = JobSpec {
        ramp: if count > 1 { RAMP_NANOSECONDS } else { 0 },
        ..random_reads(bench, &target, Engine::Uring { depth, registered: false }, (BLOCK, cpus))?
    };
    let counters = DeviceCounters::now(&target);
    let reads = QueuedRequests::read(&spec, REQUESTS_PER_SLOT)?;
    fail_if(reads.result.completions() == 0, "no request completed in the window")?;
    bench.note(counters.prove_read(reads.requests * BLOCK as u64)?);
    bench.note(describe(&reads.result, &spec.cpus, depth));
    reads.describe_pacing().into_iter().for_each(|note| bench.note(note));
    bench.record(&JOBS_IOPS, vec![reads.per_second()]);
    bench.record(&JOBS_CPU, vec![reads.result.cpu_time_per_request()]);
    Ok(())
}

/// What jobs did, in words.
fn describe(result: &JobsResult, cpus: &[u32], depth: u32) -> String {
    let rates: Vec<f64> = result.jobs.iter().map(|job| job.completions() as f64).collect();
    format!(
        "{} reads completed in a window of {:.0} ms, by jobs on CPUs {}; queue depth {depth} requested of each, {:.1} in flight on average; \
         fairness by Jain's index: {:.3}",
        result.completions(),
        result.window as f64 / 1e6,
        kelvin_core::cpu_ranges(cpus),
        result.achieved_depth(),
        jain_fairness(&rates)
    )
}

/// Share of a CPU's time beyond which the CPU limits the rate, and not the device.
const MAX_DEVICE_LIMITED_USE: f64 = 0.8;

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let (count, depth) = (required_number(JOBS, case)?, required_number(QUEUE_DEPTH, case)?);
    let one_job = case.clone().with_number(JOBS, 1);
    if metric.id == JOBS_CPU.id {
        unpredicted_if(
            count == 1,
            "the CPU time of a read is the work of file system, block layer and driver, which nothing lower shows",
        )?;
        let remark = "each job does all the work of its own reads";
        let time = measured(facts, &JOBS_CPU, &one_job)?.variant("one job's").widen(derived_time::DEVICE_RANGE_FACTOR);
        return Ok(time.explained(PredictionBasis::Derived, "CPU time of a read", remark));
    }
    let device = extent::study_case(case);
    let highest = measured(facts, &DEVICE_REQUESTS, &device)?;
    if count == 1 {
        let [lower, upper] = closed_system_rates(depth, measured(facts, &DEVICE_MEAN_LATENCY, &device)?, highest);
        let rate = upper.clone().with_bounds(&lower, &upper).widen(derived_time::DEVICE_RANGE_FACTOR);
        return Ok(rate.derived("rate of one job"));
    }
    let single = measured(facts, &JOBS_IOPS, &one_job)?;
    let cpu_time = measured(facts, &JOBS_CPU, &one_job)?;
    // By the utilisation law: what the one thread that found the highest rate used of its CPU.
    let is_cpu_limit = highest.value() * cpu_time.value() / 1e9 > MAX_DEVICE_LIMITED_USE;
    // A job is the customer of a closed system: alone it takes one over its rate for a request.
    let [lower, upper] = closed_system_rates(count, 1.0 / single.clone(), highest);
    let (rate, remark) = if is_cpu_limit {
        let all = (count_of("jobs", count) * single).variant("beyond one CPU");
        let remark = "the highest known rate is that of one CPU, so that the device's own may be higher";
        (all.clone().with_bounds(&lower, &all), remark)
    } else {
        let remark = "as many times one job's rate, and no more than the device's highest";
        (upper.clone().with_bounds(&lower, &upper).with_input(&cpu_time), remark)
    };
    let rate = rate.widen(derived_time::DEVICE_RANGE_FACTOR);
    Ok(rate.explained(PredictionBasis::Derived, "rate of several jobs", remark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, with_facts};
    use kelvin_core::Fact;
    use kelvin_core::catalogue::file::EXTENT;
    use kelvin_file::jobs::JobResult;

    fn cases_on(cpus: u32, effort: Effort) -> Vec<Case> {
        let mut machine = testing::machine();
        machine.topology.allowed = Fact::known((0..cpus).collect(), "a test");
        (PROBE.cases)(&machine, effort)
    }

    fn case(jobs: u64, depth: u64) -> Case {
        Case::new().with_number(JOBS, jobs).with_number(QUEUE_DEPTH, depth)
    }

    #[test]
    fn jobs_double_up_to_all_cpus_or_the_most() {
        let jobs = |cpus, effort| -> Vec<u64> {
            cases_on(cpus, effort)
                .iter()
                .filter(|case| QUEUE_DEPTH.number_in(case) == Some(32))
                .filter_map(|case| JOBS.number_in(case))
                .collect()
        };
        assert_eq!(jobs(1, Effort::Default), [1]);
        assert_eq!(jobs(2, Effort::Quick), [1, 2]);
        assert_eq!(jobs(2, Effort::Default), [1, 2]);
        assert_eq!(jobs(128, Effort::Quick), [1, 64]);
        assert_eq!(jobs(128, Effort::Default), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(jobs(128, Effort::Thorough), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert_eq!(cases_on(128, Effort::Thorough).len(), 3 * 12);
    }

    #[test]
    fn jobs_add_up_to_the_rate_of_the_device() {
        let values = [
            (DEVICE_REQUESTS.id.as_str(), Some(300_000.0)),
            (DEVICE_MEAN_LATENCY.id.as_str(), Some(80_000.0)),
            (JOBS_IOPS.id.as_str(), Some(100_000.0)),
            (JOBS_CPU.id.as_str(), Some(2_000.0)),
        ];
        with_facts(&values, |facts| {
            let predicted = |jobs, depth| predict(facts, &JOBS_IOPS, &case(jobs, depth)).unwrap();
            // One job of 8 is 8 in 80 us, and one of 32 all that the device does.
            assert_eq!((predicted(1, 8).value, predicted(1, 32).value), (100_000.0, 300_000.0));
            let two = predicted(2, 8);
            // Two take turns at the device: 2 in 10 + 1 / 0.3 us.
            assert!((two.value - 200_000.0).abs() < 1e-6 && (two.low * 1.5 - 150_000.0).abs() < 1e-6, "{two:?}");
            assert_eq!(two.high, 300_000.0);
            assert!((predicted(4, 8).value - 300_000.0).abs() < 1e-6);
            assert!((predicted(128, 8).value - 300_000.0).abs() < 1e-6);
            assert_eq!(predict(facts, &JOBS_CPU, &case(4, 8)).unwrap().value, 2_000.0);
            assert!(predict(facts, &JOBS_CPU, &case(1, 8)).is_err());
        });
    }

    #[test]
    fn rate_of_one_cpu_is_no_limit_of_the_device() {
        // 3 us each of 300,000 a second are 0.9 of a CPU.
        let values = [
            (DEVICE_REQUESTS.id.as_str(), Some(300_000.0)),
            (DEVICE_MEAN_LATENCY.id.as_str(), Some(80_000.0)),
            (JOBS_IOPS.id.as_str(), Some(290_000.0)),
            (JOBS_CPU.id.as_str(), Some(3_000.0)),
        ];
        with_facts(&values, |facts| {
            let predicted = predict(facts, &JOBS_IOPS, &case(4, 32)).unwrap();
            assert_eq!((predicted.value, predicted.high), (1_160_000.0, 1_740_000.0));
            assert!(predicted.low < 200_000.0, "{predicted:?}");
            assert!(predicted.derivation.contains("that of one CPU"), "{predicted:?}");
        });
    }

    #[test]
    fn prediction_over_an_extent_needs_its_figures() {
        let at_extent = case(1, 8).with_number(EXTENT, 1 << 33);
        let machine = testing::machine();
        let measured = |_: &str, case: &Case| {
            let value = if EXTENT.number_in(case) == Some(1 << 33) { 200_000.0 } else { return None };
            Some(kelvin_harness::MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        assert_eq!(predict(&facts, &JOBS_IOPS, &at_extent).unwrap().value, 40_000.0);
        assert!(predict(&facts, &JOBS_IOPS, &case(1, 8)).is_err());
    }

    #[test]
    fn note_names_cpus_depth_and_fairness() {
        let job = |completions| JobResult { times: vec![0; completions], achieved_depth: 31.5, ..JobResult::default() };
        let result = JobsResult { window: 20_000_000, jobs: vec![job(100), job(0)] };
        assert_eq!(
            describe(&result, &[1, 0], 32),
            "100 reads completed in a window of 20 ms, by jobs on CPUs 0-1; queue depth 32 requested of each, 31.5 in flight on average; \
             fairness by Jain's index: 0.500"
        );
    }
}
