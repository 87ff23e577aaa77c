//! Made matrices: what is planted is found, and nothing where nothing is.

use kelvin_stats::Random;

use super::*;
use crate::event::RankFacts;
use crate::net::event::NetPlan;
use crate::net::task::{PairPlan, RoundTrip};

const HOSTS: usize = 8;

fn results(hosts: usize) -> Results<NetResults> {
    let plan = |transport| PairPlan { transport, round_trip_seconds: 0.1, rate_seconds: 0.1, message_bytes: 1 };
    let plans = [Transport::Tcp, Transport::Mpi].map(plan).to_vec();
    Results {
        mpi: String::new(),
        ranks: (0..hosts).map(RankFacts::made).collect(),
        measured: NetResults { plan: NetPlan { plans, tolerance: 0.1 }, ..NetResults::default() },
        failure: None,
        is_complete: true,
    }
}

/// Three passes of all pairs over both transports, with a rate and a round trip for each direction and noise of this relative size.
fn measured(hosts: usize, random: &mut Random, noise: f64, rate: impl Fn(usize, usize) -> f64) -> Results<NetResults> {
    let mut results = results(hosts);
    for transport in [Transport::Tcp, Transport::Mpi] {
        for first in 0..hosts {
            for second in first + 1..hosts {
                let passes = (0..3).map(|_| {
                    let mut noisy = |value: f64| value * (noise * random.normal()).exp();
                    let round_trip = noisy(50_000.0);
                    PairFigures {
                        round_trip: Some(RoundTrip {
                            count: 100,
                            mean_ns: round_trip,
                            median_ns: round_trip,
                            p99_ns: round_trip,
                        }),
                        bytes_per_second: [noisy(rate(first, second)), noisy(rate(second, first))],
                        sent_bytes: 0,
                        interface_bytes: 0,
                        cpu_wait: 0.0,
                    }
                });
                results.measured.pairs.insert((transport, [first, second]), passes.collect());
            }
        }
    }
    results
}

fn subjects(analysis: &Analysis) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = analysis.findings.iter().map(|finding| finding.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects
}

#[test]
fn equal_links_have_no_finding() {
    let mut random = Random::new(1);
    // With noise of a tenth a difference of the tolerance is no rarity: there only the test holds back.
    for (noise, most) in [(0.001, 0), (0.01, 0), (0.05, 5), (0.15, 5)] {
        let named = (0..100).filter(|_| {
            let results = measured(HOSTS, &mut random, noise, |_, _| 1e8);
            !analyse(&results).findings.is_empty()
        });
        let named = named.count();
        assert!(named <= most, "noise of {noise}: {named} of 100 jobs name something");
    }
}

#[test]
fn slow_link_is_found_and_nothing_else() {
    let mut random = Random::new(2);
    for link in [[0, 1], [2, 5], [6, 7]] {
        let is_slow = |from: usize, to: usize| [from.min(to), from.max(to)] == link;
        let rate = |from, to| if is_slow(from, to) { 0.6e8 } else { 1e8 };
        let analysis = analyse(&measured(HOSTS, &mut random, 0.02, rate));
        let [from, to] = link;
        assert_eq!(subjects(&analysis), [Subject::Link { from, to }, Subject::Link { from: to, to: from }]);
        let finding = analysis.findings[0];
        assert!((finding.value / finding.expected.value - 0.6).abs() < 0.05, "{finding:?}");
        assert!(finding.expected.low < 1e8 && 1e8 < finding.expected.high, "{finding:?}");
    }
}

#[test]
fn slow_direction_is_one_link() {
    let rate = |from, to| if (from, to) == (3, 1) { 0.6e8 } else { 1e8 };
    let analysis = analyse(&measured(HOSTS, &mut Random::new(3), 0.02, rate));
    assert_eq!(subjects(&analysis), [Subject::Link { from: 3, to: 1 }]);
}

#[test]
fn slow_host_is_no_slow_link() {
    let rate = |from, _| if from == 4 { 0.7e8 } else { 1e8 };
    let analysis = analyse(&measured(HOSTS, &mut Random::new(4), 0.02, rate));
    assert_eq!(subjects(&analysis), [Subject::Sender(4)]);
    let finding = analysis.findings[0];
    assert!((finding.value / finding.expected.value - 0.7).abs() < 0.03, "{finding:?}");
}

#[test]
fn difference_below_tolerance_is_not_named() {
    let rate = |from, to| if (from, to) == (3, 1) { 0.92e8 } else { 1e8 };
    assert_eq!(subjects(&analyse(&measured(HOSTS, &mut Random::new(5), 0.001, rate))), []);
    let mut results = measured(HOSTS, &mut Random::new(5), 0.001, rate);
    results.measured.plan.tolerance = 0.05;
    assert_eq!(subjects(&analyse(&results)), [Subject::Link { from: 3, to: 1 }]);
}

#[test]
fn hosts_with_rates_of_their_own_hide_no_link() {
    let rate = |from: usize, to: usize| {
        let hosts = (1e8 * 1.1_f64.powi(from as i32)).min(2e8) * 0.97_f64.powi(to as i32);
        if (from, to) == (1, 6) { 0.6 * hosts } else { hosts }
    };
    let analysis = analyse(&measured(HOSTS, &mut Random::new(6), 0.01, rate));
    assert!(analysis.findings.iter().any(|finding| finding.subject == Subject::Link { from: 1, to: 6 }));
    let links = subjects(&analysis).into_iter().filter(|subject| matches!(subject, Subject::Link { .. }));
    assert_eq!(links.collect::<Vec<_>>(), [Subject::Link { from: 1, to: 6 }]);
}

#[test]
fn one_bad_pass_of_three_is_no_slow_link() {
    let mut results = measured(HOSTS, &mut Random::new(7), 0.01, |_, _| 1e8);
    results.measured.pairs.get_mut(&(Transport::Tcp, [2, 3])).unwrap()[1].bytes_per_second = [2e7, 2e7];
    assert_eq!(subjects(&analyse(&results)), []);
}

#[test]
fn disturbed_pair_is_not_judged_and_one_quiet_pass_is_enough() {
    let mut results = measured(HOSTS, &mut Random::new(10), 0.01, |_, _| 1e8);
    let slow = |figures: &mut PairFigures| {
        figures.bytes_per_second = [2e7, 2e7];
        figures.cpu_wait = 0.3;
    };
    results.measured.pairs.get_mut(&(Transport::Tcp, [2, 3])).unwrap().iter_mut().for_each(slow);
    results.measured.pairs.get_mut(&(Transport::Tcp, [4, 5])).unwrap().iter_mut().take(2).for_each(slow);
    let analysis = analyse(&results);
    assert_eq!(subjects(&analysis), []);
    let cell = |from, to| *analysis.matrices[1].cell(from, to).unwrap();
    assert!(cell(2, 3).is_disturbed && cell(2, 3).value == 2e7);
    assert!(!cell(4, 5).is_disturbed && cell(4, 5).value > 9e7);
}

#[test]
fn few_hosts_have_values_and_no_prediction() {
    let analysis = analyse(&measured(3, &mut Random::new(8), 0.01, |from, _| if from == 0 { 1e7 } else { 1e8 }));
    assert_eq!(analysis.matrices.len(), 4);
    for matrix in &analysis.matrices {
        assert!(matrix.deviation.is_none() && matrix.cells.iter().all(|cell| cell.expected.is_none()));
        assert_eq!(matrix.cells.len(), if matrix.quantity == Quantity::RoundTripNs { 3 } else { 6 });
    }
    assert_eq!(analysis.findings, []);
}

#[test]
fn cells_are_medians_found_either_way() {
    let mut results = measured(2, &mut Random::new(9), 0.0, |from, _| 1e8 + from as f64);
    let passes = results.measured.pairs.get_mut(&(Transport::Mpi, [0, 1])).unwrap();
    passes[0].bytes_per_second = [3.0, 30.0];
    passes[1].bytes_per_second = [1.0, 10.0];
    passes[2].bytes_per_second = [2.0, 20.0];
    let analysis = analyse(&results);
    let rates = &analysis.matrices[3];
    assert_eq!((rates.transport, rates.quantity), (Transport::Mpi, Quantity::BytesPerSecond));
    assert_eq!([rates.cell(0, 1), rates.cell(1, 0)].map(|cell| cell.unwrap().value), [2.0, 20.0]);
    let round_trips = &analysis.matrices[2];
    assert_eq!(round_trips.cell(1, 0), round_trips.cell(0, 1));
    assert_eq!(rates.cell(0, 0), None);
}
