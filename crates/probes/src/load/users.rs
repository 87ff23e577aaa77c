//! What a number of users gets from a file server, with what the server sends and holds in flight for it.
//!
//! It shows how many users a server bears and from how many on more bring nothing. It must not be used to compare servers on
//! different hosts, links or files.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{
    DISK_BYTE_RATE, ERRORS, FILE_BYTES, FILES, IN_FLIGHT, NetworkSetup, RATE, RESPONSE, RequestPattern, SENT_BYTE_RATE,
    THINK_TIME, THROUGHPUT, USER_METRICS, USERS,
};

use super::model::{ExpectedLoad, expected_load};
use crate::prelude::*;

/// Files of the study, and the bytes of each, as published.
pub(super) const PUBLISHED_FILES: (u64, u64) = (10_000, 2_000_000);
/// Users of the study as it is without capacities.
const PUBLISHED_USERS: [u64; 12] = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 19, 20];
/// How far the throughput may lie below what a network of queues without variance in its demands gives, and above it.
const RANGE_FACTOR: f64 = 1.3;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: requests a second and response times by number of users",
    method: include_str!("users.md"),
    // Those of the published study; those of a run follow from its capacities.
    cases: |_, _| vec![base_case()].numbers(USERS, &PUBLISHED_USERS).numbers(THINK_TIME, &[0]),
    run: super::refuse_single_round,
    predict,
    ..Probe::study(USER_METRICS)
};

/// What the cases of the published study have in common.
pub(super) fn base_case() -> Case {
    let (files, bytes) = PUBLISHED_FILES;
    let case = Case::new().with_word(RequestPattern::Random).with_word(CacheState::Cached);
    case.with_word(NetworkSetup::Loopback).with_number(FILES, files).with_number(FILE_BYTES, bytes)
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let factor = match metric.id {
        // R(n) = n / X(n) - Z.
        id if id == RESPONSE.id => {
            let ExpectedLoad { users, throughput, response, min_response, inputs, .. } = expected_load(facts, case)?;
            let low = (response / RANGE_FACTOR).max(min_response / RANGE_FACTOR.sqrt()).min(response);
            let remark = format!(
                "{users} users get {throughput:.4} requests/s, so each waits {response:.6} s, of at least {min_response:.6} s"
            );
            let [response, low, high] = [response, low, response * RANGE_FACTOR].map(|seconds| seconds * 1e9);
            let time = quantity("R(n) by mean value analysis", response, Unit::Nanoseconds).with_input(&inputs);
            let time = time.with_interval((low, high));
            return Ok(time.explained(PredictionBasis::Derived, "mean value analysis", &remark));
        }
        // Little's law.
        id if id == IN_FLIGHT.id => {
            let expected = expected_load(facts, case)?;
            let throughput = quantity("X(n)", expected.throughput, Unit::PerSecond).with_input(&expected.inputs);
            let in_flight = throughput * quantity("R(n)", expected.response * 1e9, Unit::Nanoseconds);
            let value = in_flight.value();
            let high = (value * RANGE_FACTOR).min(expected.users as f64 * 1.02).max(value);
            let in_flight = in_flight.with_interval((value / RANGE_FACTOR, high));
            return Ok(in_flight.derived("Little's law"));
        }
        id if id == DISK_BYTE_RATE.id => {
            return Err(NoPrediction::new(
                "what is read ahead, and what of it is read again, follows from no lower metric",
            ));
        }
        id if id == ERRORS.id => return Err(NoPrediction::new("a server that is in order makes none")),
        id if id == THROUGHPUT.id => Expr::from(1.0),
        id if id == RATE.id || id == SENT_BYTE_RATE.id => {
            bytes_of("bytes of a file", FILE_BYTES.number_in(case).unwrap_or(0))
        }
        _ => return Err(NoPrediction::new("it follows from no capacity")),
    };
    // X(n) = n / (Z + sum R_k(n)), R_k(n) = D_k (1 + Q_k(n - 1)), D_k = 1 / capacity.
    let expected = expected_load(facts, case)?;
    let ExpectedLoad { users, throughput, max_throughput, bottleneck: (resource, capacity), .. } = expected;
    let high = (throughput * RANGE_FACTOR).min(max_throughput * RANGE_FACTOR.sqrt()).max(throughput);
    let remark = format!(
        "{users} users: at most {max_throughput:.4} requests/s; the least capacity is that of {}, {capacity:.4} requests/s",
        resource.name()
    );
    let requests = quantity("X(n) by mean value analysis", throughput, Unit::PerSecond).with_input(&expected.inputs);
    let rate = factor * requests.with_interval((throughput / RANGE_FACTOR, high));
    Ok(rate.explained(PredictionBasis::Derived, "mean value analysis", &remark))
}
