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
    method: Method {
        how: "A server (`kelvin serve`, or one that runs already and tells what it uses) has files of one size. Users in a closed loop \
              each ask for a file, wait for all of it, think, and ask again, over one connection each; answers are compared by their \
              length. Numbers of users from 1 to 20, or to three times the knee that the capacities let expect, are visited several \
              times in random order, pass by pass, with a return to the fewest users at the end. In each visit a warm-up of at least one \
              and a half cycles of a user is left out; the time that counts has at least 25 requests, and is as long as the budget \
              allows. When it begins and when it ends, with the users going on, both ends are looked at: CPU time by thread, the \
              device's bytes, the interface's, memory, and what the server itself counts: bytes that it sent and its clients' kernels \
              have acknowledged, and requests in flight integrated over time. A request begins when the kernel took its first bytes from the network; its time until the last byte of the answer was \
              handed to the kernel is added up exactly, and from then on until the client's kernel has acknowledged that byte it is \
              sampled about 100 times a second. A call that hands over an answer also wakes a client of this host, and ends after the \
              answer has left: how long after is found out by the kernel's time stamps of some answers, and subtracted for all. In the \
              same way the client knows when its requests left, and when answers came. Client and server of one host have CPUs of their own where there are two.",
        prediction: "By exact mean value analysis of a closed network, from the capacities alone (load.capacity), which are \
                     measured before the first visit. Each device is one station, a server for each CPU; of a device the slowest \
                     part decides. The throughput of n users is X(n) = n / (Z + R(n)), and no more than the least capacity. The \
                     response time is n / X(n) - Z, bytes are X(n) times those of a file, requests in flight are X(n) R(n) (Little's \
                     law). Predicted range: a factor of 1.3 either way, cut off by the asymptotic bounds where these are closer. What \
                     a disk reads, memory, lateness and percentiles have no prediction.",
        not_for: "Comparing servers on different hosts, links or files; what users get who do not wait for their answers, which an open \
                  loop shows (`kelvin load --rate`).",
        pitfalls: &[
            "The knee read off a curve by eye, with steps that only go upward: visits are in random order, and knee and saturation have \
             intervals.",
            "The generator as the limit: its CPU time and its lateness are among the figures, and then nothing follows about the server.",
            "Requests in flight counted until the server has written the last byte: a send buffer of megabytes hides most of the wait \
             behind a slow link.",
            "Requests in flight sampled by a thread of the server: what keeps the server from running, such as a CPU quota, keeps the \
             sampler from looking just then.",
            "Users who all begin at once: they begin one after the other, and the warm-up is left out.",
            "A disk measured through the page cache: unless the files are twice what the cache may hold, the study calls itself cached.",
        ],
        sources: &[
            "the study file-server-lan: its users, think time, files and duration",
            "E. D. Lazowska et al., Quantitative System Performance, Prentice-Hall 1984, chapters 3, 5 and 6",
        ],
    },
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

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let times = match metric.id {
        // R(n) = n / X(n) - Z.
        id if id == RESPONSE.id => {
            let ExpectedLoad { users, throughput, response, min_response, inputs, .. } = expected_load(facts, case)?;
            let low = (response / RANGE_FACTOR).max(min_response / RANGE_FACTOR.sqrt()).min(response);
            let remark = format!(
                "{users} users get {throughput:.4} requests/s, so each waits {response:.6} s, of at least {min_response:.6} s"
            );
            let [response, low, high] = [response, low, response * RANGE_FACTOR].map(|seconds| seconds * 1e9);
            let time = given("R(n) by mean value analysis", response, Unit::Nanoseconds).beside(&inputs);
            let time = time.with_interval((low, high));
            return Ok(time.explained(PredictionBasis::Derived, "mean value analysis", &remark));
        }
        // Little's law.
        id if id == IN_FLIGHT.id => {
            let expected = expected_load(facts, case)?;
            let throughput = given("X(n)", expected.throughput, Unit::PerSecond).beside(&expected.inputs);
            let inside = throughput * given("R(n)", expected.response * 1e9, Unit::Nanoseconds);
            let value = inside.value();
            let high = (value * RANGE_FACTOR).min(expected.users as f64 * 1.02).max(value);
            let inside = inside.with_interval((value / RANGE_FACTOR, high));
            return Ok(inside.predict(PredictionBasis::Derived, "Little's law"));
        }
        id if id == DISK_BYTE_RATE.id => {
            return Err(NoPrediction::new(
                "what is read ahead, and what of it is read again, follows from no lower metric",
            ));
        }
        id if id == ERRORS.id => return Err(NoPrediction::new("a server that is in order makes none")),
        id if id == THROUGHPUT.id => Expr::from(1.0),
        id if id == RATE.id || id == SENT_BYTE_RATE.id => {
            given("bytes of a file", FILE_BYTES.number_in(case).unwrap_or(0) as f64, Unit::Bytes)
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
    let requests = given("X(n) by mean value analysis", throughput, Unit::PerSecond).beside(&expected.inputs);
    let rate = times * requests.with_interval((throughput / RANGE_FACTOR, high));
    Ok(rate.explained(PredictionBasis::Derived, "mean value analysis", &remark))
}
