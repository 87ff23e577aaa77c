//! Odd hosts of made fleets are named, and alike ones are not: a few fleets of each noise, with seeds that nothing was tuned on. The example
//! `rates` shows the rates of many.

mod made_fleet;

use made_fleet::{Noise, Oddity, made_fleet, named_hosts};

const HOSTS: usize = 64;
const FIRST_SEED: u64 = 500;

/// Every oddity is named and no other host; alike hosts are not.
fn assert_rates(noise: Noise, runs: usize, seeds: u64) {
    for seed in FIRST_SEED..FIRST_SEED + seeds {
        let (report, odd) = made_fleet((HOSTS, runs), noise, &Oddity::ALL, seed);
        let mut expected: Vec<String> = odd.into_iter().map(|(_, label)| label).collect();
        let mut named = named_hosts(&report);
        expected.sort();
        named.sort();
        assert_eq!(named, expected, "{noise:?}, {runs} runs, seed {seed}");
        let (alike, _) = made_fleet((HOSTS, runs), noise, &[], seed);
        assert_eq!(named_hosts(&alike), [""; 0], "{noise:?}, {runs} runs, seed {seed}: alike hosts");
    }
}

#[test]
fn odd_hosts_of_normal_noise_are_named() {
    assert_rates(Noise::Normal, 3, 3);
}

#[test]
fn odd_hosts_of_heavy_tails_are_named() {
    assert_rates(Noise::Student3, 3, 3);
}

#[test]
fn odd_hosts_of_real_noise_are_named() {
    assert_rates(Noise::Residuals, 3, 3);
    assert_rates(Noise::Residuals, 10, 1);
}

#[test]
fn many_figures_of_one_host_let_no_figure_of_another_pass() {
    for noise in [Noise::Student3, Noise::Bimodal] {
        for seed in FIRST_SEED..FIRST_SEED + 6 {
            let (report, odd) = made_fleet((HOSTS, 3), noise, &[Oddity::Areas], seed);
            assert_eq!(named_hosts(&report), [odd[0].1.as_str()], "{noise:?}, seed {seed}");
        }
    }
}

/// The noises that one run of each host is tested with.
const ONE_RUN_NOISES: [Noise; 5] = [Noise::Normal, Noise::Student3, Noise::Bimodal, Noise::EvenModes, Noise::Drift];
/// Fleets of each noise; of these at most one in twenty may name an alike host.
const ONE_RUN_FLEETS: u64 = 20;

#[test]
fn one_run_of_each_alike_host_names_at_most_one_fleet_in_twenty() {
    for noise in ONE_RUN_NOISES {
        let named = |seed: u64| {
            let (report, _) = made_fleet((HOSTS, 1), noise, &[], FIRST_SEED + seed);
            !named_hosts(&report).is_empty()
        };
        let false_fleets = (0..ONE_RUN_FLEETS).filter(|&seed| named(seed)).count();
        assert!(false_fleets <= 1, "{noise:?}: {false_fleets} of {ONE_RUN_FLEETS}");
    }
}

#[test]
fn one_run_of_each_names_a_host_that_is_slower_in_all() {
    for noise in ONE_RUN_NOISES {
        let is_named = |seed: u64| {
            let (report, odd) = made_fleet((HOSTS, 1), noise, &[Oddity::Host], FIRST_SEED + seed);
            named_hosts(&report) == [odd[0].1.as_str()]
        };
        let named = (0..ONE_RUN_FLEETS / 2).filter(|&seed| is_named(seed)).count();
        assert!(named as u64 >= ONE_RUN_FLEETS / 2 - 1, "{noise:?}: {named}");
    }
}

/// In one figure alone a slow host and a run in a slow state look alike.
#[test]
fn one_figure_needs_two_runs() {
    for seed in FIRST_SEED..FIRST_SEED + 5 {
        let (report, _) = made_fleet((HOSTS, 1), Noise::Normal, &[Oddity::Figure], seed);
        assert_eq!(named_hosts(&report), [""; 0], "seed {seed}");
        let text = &report.groups[0].power;
        assert!(text.contains("a figure alone names no host") && text.contains("needs two runs of each"), "{text}");
        let (report, odd) = made_fleet((HOSTS, 2), Noise::Normal, &[Oddity::Figure], seed);
        assert_eq!(named_hosts(&report), [odd[0].1.as_str()], "seed {seed}");
        assert!(!report.groups[0].power.contains("one run"), "{}", report.groups[0].power);
    }
}

#[test]
fn line_says_what_is_out() {
    let (report, odd) = made_fleet((HOSTS, 3), Noise::Normal, &[Oddity::Latency, Oddity::Governor], FIRST_SEED);
    let line_of = |label: &str| {
        let outliers = report.groups.iter().flat_map(|group| &group.outliers);
        outliers.filter(|outlier| outlier.label == label).map(|outlier| outlier.line.clone()).next().unwrap()
    };
    let [latency, governor] = [&odd[0].1, &odd[1].1].map(|label| line_of(label));
    assert!(latency.contains(" mem.latency figures 8 % slower than its 63 peers, and nothing else"), "{latency}");
    assert_eq!(governor, format!("{}: frequency governor powersave, its 63 peers have performance", odd[1].1));
    assert_eq!(report.groups[0].associations, [], "one host alone goes with nothing");
}
