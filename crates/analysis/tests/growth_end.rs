//! The knees of curves over CPUs, jobs and streams.

use kelvin_analysis::testing::{add_scalars, empty_run};
use kelvin_analysis::{GrowthEnd, analyse};
use kelvin_core::catalogue::file::{JOBS, JOBS_IOPS, QUEUE_DEPTH};
use kelvin_core::catalogue::mem::{BYTES, MemoryNodes, SCALING_READ};
use kelvin_core::catalogue::os::{SCALING_RATE, TaskKind, WORKING_CPUS};
use kelvin_core::{Case, Metric};
use kelvin_stats::Random;

/// Eight rounds of a figure, off by these shares of it.
const ROUNDS: [f64; 8] = [-0.5, 0.5, -1.0, 1.0, 0.0, 0.0, -0.3, 0.3];

/// The knees of a curve of memory bandwidth over CPUs, whose rounds differ from each figure by this share at most.
fn knees(noise: f64, rates: &[(u64, f64)]) -> Vec<GrowthEnd> {
    let mut run = empty_run(&[SCALING_READ]);
    for &(cpus, rate) in rates {
        let case = Case::new().with_word(MemoryNodes::All).with_number(BYTES, 1 << 30).with_number(WORKING_CPUS, cpus);
        add_scalars(&mut run, &SCALING_READ, case, &ROUNDS.map(|share| 1e9 * rate * (1.0 + noise * share)));
    }
    analyse(&run).growth_ends
}

/// The first possible and the certain knee among all, where there is one.
fn knee(noise: f64, rates: &[(u64, f64)]) -> Option<[u64; 3]> {
    let knees = knees(noise, rates);
    assert!(knees.len() < 2, "{knees:?}");
    knees.first().map(|knee| [knee.low, knee.at, knee.max])
}

#[test]
fn proportional_curve_has_no_knee() {
    assert_eq!(knee(0.01, &[(1, 10.0), (2, 20.0), (4, 40.0), (8, 80.0), (16, 160.0)]), None);
    // 66 CPUs are hardly more than 64: they say nothing of what 64 more would give.
    assert_eq!(knee(0.001, &[(1, 1.0), (8, 8.0), (64, 64.0), (66, 66.0)]), None);
    assert_eq!(knee(0.001, &[(1, 1.0), (8, 8.0), (48, 40.0), (64, 40.0)]), None);
    assert_eq!(knee(0.001, &[(1, 1.0), (8, 8.0), (32, 40.0), (48, 40.0)]), Some([32, 32, 48]));
}

#[test]
fn saturating_curve_has_knee() {
    assert_eq!(knee(0.01, &[(1, 10.0), (2, 20.0), (4, 38.0), (8, 40.0), (16, 41.0)]), Some([4, 4, 16]));
    // A tenth more in two steps.
    assert_eq!(knee(0.001, &[(1, 10.0), (2, 20.0), (4, 37.0), (8, 39.0), (16, 41.0)]), Some([8, 8, 16]));
    // Still growing at the end.
    assert_eq!(knee(0.01, &[(1, 10.0), (2, 20.0), (4, 21.0), (8, 22.0), (16, 24.0)]), None);
}

#[test]
fn knee_of_peak_is_the_peak() {
    assert_eq!(knee(0.01, &[(1, 10.0), (2, 19.0), (4, 30.0), (8, 22.0), (16, 9.0)]), Some([4, 4, 16]));
    // It falls and comes back.
    assert_eq!(knee(0.01, &[(1, 10.0), (2, 19.0), (4, 30.0), (8, 22.0), (16, 40.0)]), None);
}

#[test]
fn knee_of_flat_curve_is_its_first_number() {
    let knees = knees(0.01, &[(1, 40.0), (2, 40.0), (4, 40.0)]);
    let case = Case::new().with_word(MemoryNodes::All).with_number(BYTES, 1 << 30);
    let expected = GrowthEnd { metric: SCALING_READ.id, axis: WORKING_CPUS.name, fixed: case, at: 1, low: 1, max: 4 };
    assert_eq!(knees, [expected]);
    assert_eq!(knee(0.01, &[(1, 40.0), (2, 20.0), (4, 10.0)]), Some([1, 1, 4]));
}

#[test]
fn noise_moves_knee_only_to_where_it_is_certain() {
    let rates = [(1, 10.0), (2, 20.0), (4, 37.0), (8, 40.0), (16, 40.0), (32, 40.0)];
    assert_eq!(knee(0.005, &rates), Some([4, 4, 32]));
    // 8 may have a tenth more than 4, or not.
    assert_eq!(knee(0.03, &rates), Some([4, 8, 32]));
    assert_eq!(knee(0.4, &rates), None);
}

/// Of a hundred runs of a curve, whose rounds are normal with this relative deviation, how many have a knee at this number.
fn knee_count(noise: f64, rates: &[(u64, f64)], at: impl Fn(u64) -> bool) -> usize {
    let mut random = Random::new(7);
    let mut has_knee = || {
        let mut run = empty_run(&[SCALING_READ]);
        for &(cpus, rate) in rates {
            let rounds: [f64; 8] = std::array::from_fn(|_| 1e9 * rate * (1.0 + noise * random.normal()));
            add_scalars(&mut run, &SCALING_READ, Case::new().with_number(WORKING_CPUS, cpus), &rounds);
        }
        analyse(&run).growth_ends.iter().any(|knee| at(knee.at))
    };
    (0..100).filter(|_| has_knee()).count()
}

#[test]
fn noise_seldom_makes_or_hides_a_knee() {
    // Each number has a tenth more than the one before, so that a knee is wrong, and nowhere more likely.
    let growing = [(1, 10.0), (2, 20.0), (4, 22.0), (8, 24.2), (16, 26.62)];
    for noise in [0.01, 0.05] {
        let wrong = knee_count(noise, &growing, |_| true);
        assert!(wrong <= 5, "{noise}: {wrong}");
    }
    let saturated = [(1, 10.0), (2, 20.0), (4, 40.0), (8, 40.0), (16, 40.0)];
    let right = knee_count(0.02, &saturated, |at| at == 4);
    assert!(right >= 90, "{right}");
}

#[test]
fn two_numbers_have_no_knee() {
    assert_eq!(knee(0.001, &[(1, 40.0), (2, 40.0)]), None);
    assert_eq!(knee(0.001, &[(1, 40.0)]), None);
    assert_eq!(knee(0.001, &[]), None);
}

#[test]
fn missing_number_moves_knee_to_the_next() {
    let rates = [(1, 10.0), (2, 20.0), (4, 40.0), (8, 40.0), (16, 40.0), (32, 40.0)];
    let without = |missing: u64| {
        let rates: Vec<(u64, f64)> = rates.into_iter().filter(|rate| rate.0 != missing).collect();
        knee(0.01, &rates)
    };
    assert_eq!(without(4), Some([8, 8, 32]));
    assert_eq!(without(16), Some([4, 4, 32]));
    assert_eq!(without(32), Some([4, 4, 16]));
    // One round has no interval.
    let mut run = empty_run(&[JOBS_IOPS]);
    for (jobs, rounds) in [(1, 8), (2, 8), (4, 1), (8, 8)] {
        let case = Case::new().with_number(JOBS, jobs).with_number(QUEUE_DEPTH, 32);
        add_scalars(&mut run, &JOBS_IOPS, case, &ROUNDS.map(|share| 1e5 * (1.0 + 0.01 * share))[..rounds]);
    }
    assert_eq!(analyse(&run).growth_ends, []);
}

#[test]
fn each_line_has_its_own_knee() {
    let mut run = empty_run(&[SCALING_RATE, JOBS_IOPS]);
    let mut add = |metric: &Metric, case: Case, rate: f64| add_scalars(&mut run, metric, case, &[rate; 4]);
    for (count, threads, processes, jobs) in
        [(1, 1.0, 1.0, 1.0), (2, 2.0, 2.0, 2.0), (4, 2.0, 4.0, 2.1), (8, 2.0, 8.0, 2.0)]
    {
        let service = Case::new().with_word(kelvin_core::catalogue::os::KernelService::MmapMunmap);
        let service = service.with_number(WORKING_CPUS, count);
        add(&SCALING_RATE, service.clone().with_word(TaskKind::Threads), 1e5 * threads);
        add(&SCALING_RATE, service.with_word(TaskKind::Processes), 1e5 * processes);
        add(&JOBS_IOPS, Case::new().with_number(QUEUE_DEPTH, 32).with_number(JOBS, count), 1e5 * jobs);
    }
    let knees = analyse(&run).growth_ends;
    let places: Vec<_> =
        knees.iter().map(|knee| (knee.metric, knee.axis, TaskKind::of(&knee.fixed), knee.at)).collect();
    let expected =
        [(SCALING_RATE.id, WORKING_CPUS.name, Some(TaskKind::Threads), 2), (JOBS_IOPS.id, JOBS.name, None, 2)];
    assert_eq!(places, expected);
}
