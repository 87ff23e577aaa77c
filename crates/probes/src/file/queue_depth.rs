//! A device's rate and latency with many requests in flight: reads of 4 KiB in random order, by queue depth.
//!
//! It shows from which depth on requests only wait for each other. It must not be taken for the rate of a program that waits
//! for each request.

use kelvin_core::catalogue::file::{
    DEPTH, DEPTH_ACHIEVED, DEPTH_LATENCY, DEPTH_RATE, DEVICE_MEAN_LATENCY, DEVICE_REQUESTS, QUEUE_DEPTH,
};

use super::derived_time::format_time;

use super::extent;
use super::prelude::*;
use super::request_rate::{QueuedRequests, REQUESTS_PER_SLOT, random_reads};

pub(super) static PROBE: Probe = Probe {
    id: DEPTH.as_str(),
    summary: "Random reads of 4 KiB past the page cache at queue depths of 1 to 256: rate and latency",
    method: include_str!("queue_depth.md"),
    cases: |_, effort| {
        const THOROUGH: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];
        numbers(QUEUE_DEPTH, by_effort(effort, [&[1, 16], &[1, 4, 16, 64, 256], THOROUGH]))
    },
    run,
    predict,
    ..Probe::measure(&[&DEPTH_RATE, &DEPTH_LATENCY, &DEPTH_ACHIEVED])
};

const BLOCK: usize = 4096;
/// By how much the two counts of requests in flight may differ.
const MAX_DEPTH_DISAGREEMENT: f64 = 0.1;
/// Share of the requested depth that may be done and wait to be reaped, as a factor.
const REAPING_FACTOR: f64 = 1.25;

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let depth = required_u32(QUEUE_DEPTH, case)?;
    let target = extent::study_file(bench, case)?;
    test_files::check_direct_io(&target, BLOCK as u64)?;
    let spec = random_reads(bench, &target, Engine::Uring { depth, registered: false }, (BLOCK, vec![bench.cpu()]))?;
    let counters = DeviceCounters::now(&target);
    let reads = QueuedRequests::read(&spec, REQUESTS_PER_SLOT)?;
    fail_if(reads.result.completions() == 0, "no request completed in the window")?;
    let law = LittlesLaw {
        rate: reads.per_second(),
        latency: reads.result.mean_latency() / bench.hertz() * 1e9,
        counted_in_flight: reads.result.achieved_depth(),
        edge_requests: f64::from(depth) / reads.result.completions() as f64,
    };
    law.check()?;
    bench.note(counters.prove_read(reads.requests * BLOCK as u64)?);
    bench.note(format!(
        "queue depth {depth} requested; {:.1} in flight on average, counted at each completion",
        law.counted_in_flight
    ));
    reads.describe_pacing().into_iter().for_each(|note| bench.note(note));
    bench.record(&DEPTH_RATE, vec![law.rate]);
    bench.record(&DEPTH_LATENCY, vec![law.latency]);
    bench.record(&DEPTH_ACHIEVED, vec![law.in_flight()]);
    Ok(())
}

/// The terms of Little's law.
struct LittlesLaw {
    /// Requests a second.
    rate: f64,
    /// Nanoseconds from a request to its completion.
    latency: f64,
    /// Requests in flight, as they were counted.
    counted_in_flight: f64,
    /// Requests at the edges of the window, as a share of those that completed in it: the law holds on average over many.
    edge_requests: f64,
}

impl LittlesLaw {
    /// Requests in flight by the law.
    fn in_flight(&self) -> f64 {
        self.rate * self.latency / 1e9
    }

    fn check(&self) -> ProbeResult {
        let ratio = self.in_flight() / self.counted_in_flight;
        let reason = format!(
            "Little's law does not hold: {:.0} requests a second of {} are {:.2} in flight, and {:.2} were counted",
            self.rate,
            format_time(self.latency),
            self.in_flight(),
            self.counted_in_flight
        );
        let is_lawful = (ratio - 1.0).abs() <= MAX_DEPTH_DISAGREEMENT + self.edge_requests;
        fail_if(!is_lawful, reason)
    }
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let depth = required_number(QUEUE_DEPTH, case)?;
    if metric.id == DEPTH_ACHIEVED.id {
        let remark = format!(
            "each request that is done is replaced at once; down to a factor of {REAPING_FACTOR} less, for those that are done and not reaped"
        );
        let achieved_depth = fact("depth", depth as f64, Unit::Count, "the case").of_value([1.0 / REAPING_FACTOR, 1.0]);
        return Ok(achieved_depth.explained(PredictionBasis::Derived, "depth requested", &remark));
    }
    let device = extent::study_case(case);
    let single = measured(facts, &DEVICE_MEAN_LATENCY, &device)?;
    let [lower, upper] = closed_system_rates(depth, single, measured(facts, &DEVICE_REQUESTS, &device)?);
    let (expected, name) = if metric.id == DEPTH_RATE.id {
        (upper.clone().with_bounds(&lower, &upper), "rate at a depth")
    } else {
        let [longest, shortest] = [lower, upper].map(|rate| count_of("depth", depth) / rate);
        (shortest.clone().with_bounds(&shortest, &longest), "latency at a depth")
    };
    Ok(expected.widen(derived_time::DEVICE_RANGE_FACTOR).derived(name))
}

/// Bounds on the requests per second that a closed system with this many in flight completes, from the nanoseconds of one request alone and
/// its highest rate. The lower one is the balanced job bound: each other request is found waiting at the busiest part. The upper ones are
/// asymptotic: no request waits for another, or the device is saturated.
pub(super) fn closed_system_rates(depth: u64, latency: Expr, highest: Expr) -> [Expr; 2] {
    let in_flight = count_of("depth", depth);
    // It is no lower than one by one.
    let saturation_rate = highest.max(1.0 / latency.clone());
    let other_requests = count_of("others", depth - 1);
    let lower = in_flight.clone() / (latency.clone() + other_requests / saturation_rate.clone());
    [lower, (in_flight / latency).min(saturation_rate)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn rate_rises_with_depth_until_saturation() {
        let values =
            [(DEVICE_REQUESTS.id.as_str(), Some(100_000.0)), (DEVICE_MEAN_LATENCY.id.as_str(), Some(80_000.0))];
        with_facts(&values, |facts| {
            let predicted =
                |metric, depth| predict(facts, metric, &Case::new().with_number(QUEUE_DEPTH, depth)).unwrap();
            // Alone there is nothing to wait for: both bounds are one.
            let single = predicted(&DEPTH_RATE, 1);
            assert_eq!((single.value, single.low, single.high), (12_500.0, 12_500.0 / 1.5, 18_750.0));
            assert_eq!((predicted(&DEPTH_RATE, 4).value, predicted(&DEPTH_LATENCY, 4).value), (50_000.0, 80_000.0));
            // At depth 16 it is saturated: each waits for 16 of them.
            assert_eq!((predicted(&DEPTH_RATE, 16).value, predicted(&DEPTH_LATENCY, 16).value), (100_000.0, 160_000.0));
            // At the knee, eight requests, the bounds are furthest apart: 8 in 80 us, or 8 in 80 + 7 x 10 us.
            let knee = predicted(&DEPTH_RATE, 8);
            assert!((knee.value - 100_000.0).abs() < 1e-6 && (knee.low * 1.5 - 8e9 / 150_000.0).abs() < 1e-6);
            assert!((predicted(&DEPTH_LATENCY, 8).high / 1.5 - 150_000.0).abs() < 1e-6);
            // A device slower with many in flight than one by one is as fast as one by one.
            let latency = fact("alone", 80_000.0, Unit::Nanoseconds, "a test");
            let [_, upper] = closed_system_rates(4, latency, fact("highest", 5_000.0, Unit::PerSecond, "a test"));
            assert_eq!(upper.value(), 12_500.0);
            let achieved = predicted(&DEPTH_ACHIEVED, 4);
            assert_eq!((achieved.value, achieved.low, achieved.high), (4.0, 3.2, 4.0));
        });
    }

    #[test]
    fn littles_law_violation_fails_round() {
        let law = |counted_in_flight| LittlesLaw {
            rate: 50_000.0,
            latency: 160_000.0,
            counted_in_flight,
            edge_requests: 0.01,
        };
        assert!(law(8.0).check().is_ok() && law(7.6).check().is_ok());
        assert!(
            matches!(law(16.0).check(), Err(ProbeError::Fail(reason)) if reason.contains("are 8.00 in flight, and 16.00"))
        );
    }

    #[test]
    fn few_requests_are_compared_less_strictly() {
        // Measured at 50 requests a second: 40 of 16 in flight, many of them before the window or after it.
        let slow_device =
            LittlesLaw { rate: 54.0, latency: 173e6, counted_in_flight: 11.36, edge_requests: 16.0 / 40.0 };
        assert!(
            slow_device.check().is_ok() && LittlesLaw { edge_requests: 16.0 / 400.0, ..slow_device }.check().is_err()
        );
    }
}
