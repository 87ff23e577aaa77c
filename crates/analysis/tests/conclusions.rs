//! What every conclusion has in common: too few rounds, the same as a result, many tests at once, and earlier runs.

use kelvin_analysis::testing::{self, add_scalars};
use kelvin_analysis::{StatedConclusion, analyse};
use kelvin_core::{AxisWord, Case, HeadlineSamples, Metric, Run, SpreadHistory};

const fn time(id: &'static str) -> Metric {
    Metric::duration(id, "A time of the network").headline(HeadlineSamples::AsFound)
}

const TCP: Metric = time("net.rtt.tcp");
const UDP: Metric = time("net.rtt.udp");
const UNIX: Metric = time("net.rtt.unix");

fn one_cpu_case() -> Case {
    Case::new().with_word(AxisWord::from_names("placement", "same_cpu")).with_number("message", 64)
}

fn two_cpus_case() -> Case {
    Case::new().with_word(AxisWord::from_names("placement", "two_cpus")).with_number("message", 64)
}

fn network() -> Run {
    testing::empty_run(&[TCP, UDP, UNIX])
}

/// This many rounds around a value, by this share.
fn rounds(count: usize, value: f64, noise: f64) -> Vec<f64> {
    let place = |round: usize| (round as f64 / (count - 1) as f64 - 0.5) * 2.0;
    (0..count).map(|round| value * (1.0 + noise * place(round * 3 % count))).collect()
}

fn conclusion_with(run: &Run, words: &str) -> StatedConclusion {
    let study = testing::study(run, "net.rtt").unwrap();
    study.conclusions.iter().find(|one| one.text.contains(words)).unwrap_or_else(|| panic!("{study:#?}")).clone()
}

const BETWEEN_CPUS_TEXT: &str = "over TCP takes longer between two CPUs than on one";
const UDP_AGAINST_TCP_TEXT: &str = "less time over UDP than over TCP";

#[test]
fn range_is_never_tested() {
    for (count, is_tested) in [(2, false), (3, false), (4, true)] {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.01));
        add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(count, 40_000.0, 0.01));
        let found = conclusion_with(&run, BETWEEN_CPUS_TEXT);
        assert_eq!((found.holds, found.outcome.is_some()), (is_tested.then_some(true), is_tested), "{count} rounds");
        let says = "nothing is tested with fewer than 4 rounds";
        assert_eq!((found.text.contains("(range: "), found.test.contains(says)), (!is_tested, !is_tested), "{found:?}");
    }
}

#[test]
fn equivalence_and_rounds_to_decide_are_reported() {
    let beside = |value: f64, noise: f64| {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, noise));
        add_scalars(&mut run, &UDP, one_cpu_case(), &rounds(8, value, noise));
        conclusion_with(&run, UDP_AGAINST_TCP_TEXT)
    };
    let same = beside(10_010.0, 0.01);
    assert_eq!((same.holds, same.same_within()), (None, Some(0.05)));
    assert!(same.test.contains("the same within 5.0 %, p < 0.001 among all conclusions"), "{}", same.test);
    let open = beside(9_700.0, 0.1);
    assert_eq!((open.holds, open.same_within()), (None, None));
    assert!(open.test.contains("rounds would decide"), "{}", open.test);
    let shorter = beside(8_000.0, 0.01);
    assert_eq!((shorter.holds, shorter.same_within()), (Some(true), None));
    // A small difference that is certain is a difference.
    let little = beside(9_900.0, 0.001);
    assert_eq!((little.holds, little.same_within()), (Some(true), None));
}

#[test]
fn significance_is_corrected_for_multiple_tests() {
    // Just apart.
    let only = |others: usize| {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.05));
        add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(8, 10_500.0, 0.05));
        if others > 0 {
            for metric in [UDP, UNIX] {
                add_scalars(&mut run, &metric, one_cpu_case(), &rounds(8, 10_000.0, 0.05));
                add_scalars(&mut run, &metric, two_cpus_case(), &rounds(8, 10_000.0, 0.05));
            }
        }
        conclusion_with(&run, BETWEEN_CPUS_TEXT)
    };
    let [alone, among] = [only(0), only(4)];
    assert_eq!(alone.holds, Some(true));
    assert_eq!(among.holds, None, "{}", among.test);
    let [alone, among] = [alone, among].map(|one| one.outcome.unwrap().difference);
    assert_eq!(alone.raw, among.raw);
    assert!(alone.adjusted <= 0.05 && among.adjusted > 0.05 && alone.adjusted == alone.raw, "{alone:?} {among:?}");
}

#[test]
fn uncommon_run_variance_widens_ratio_error() {
    let with = |of_two: [f64; 6]| {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.01));
        add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(8, 10_500.0, 0.01));
        let machine = [1.0, 1.1, 0.95, 1.05, 0.9, 1.02];
        let headlines = |own: [f64; 6]| machine.iter().zip(own).map(|(state, own)| 10_000.0 * state * own).collect();
        for (case, headlines) in [(one_cpu_case(), headlines([1.0; 6])), (two_cpus_case(), headlines(of_two))] {
            run.header.spread_history.push(SpreadHistory {
                metric: TCP.id,
                case,
                headlines,
                within_variances: vec![1.0; 6],
            });
        }
        conclusion_with(&run, BETWEEN_CPUS_TEXT).holds
    };
    assert_eq!(with([1.05, 1.051, 1.049, 1.05, 1.052, 1.048]), Some(true));
    assert_eq!(with([1.0, 1.2, 0.9, 1.1, 1.05, 0.85]), None);
}

#[test]
fn network_paragraph_has_corrected_conclusions_only() {
    let mut run = network();
    add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.01));
    add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(3, 40_000.0, 0.01));
    let says = |run: &Run| analyse(run).verdict.iter().any(|line| line.contains("takes longer between two CPUs"));
    assert!(!says(&run));
    run.measurements.truncate(1);
    add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(8, 40_000.0, 0.01));
    assert!(says(&run));
}
