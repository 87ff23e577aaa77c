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
    study
        .conclusions
        .iter()
        .find(|conclusion| conclusion.text.contains(words))
        .unwrap_or_else(|| panic!("{study:#?}"))
        .clone()
}

const BETWEEN_CPUS_TEXT: &str = "over TCP takes longer between two CPUs than on one";
const UDP_AGAINST_TCP_TEXT: &str = "less time over UDP than over TCP";

#[test]
fn range_is_never_tested() {
    for (count, is_tested) in [(2, false), (3, false), (4, true)] {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.01));
        add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(count, 40_000.0, 0.01));
        let conclusion = conclusion_with(&run, BETWEEN_CPUS_TEXT);
        assert_eq!(
            (conclusion.holds, conclusion.outcome.is_some()),
            (is_tested.then_some(true), is_tested),
            "{count} rounds"
        );
        let note = "nothing is tested with fewer than 4 rounds";
        assert_eq!(
            (conclusion.text.contains("(range: "), conclusion.test.contains(note)),
            (!is_tested, !is_tested),
            "{conclusion:?}"
        );
    }
}

#[test]
fn equivalence_and_rounds_to_decide_are_reported() {
    let compare_with = |value: f64, noise: f64| {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, noise));
        add_scalars(&mut run, &UDP, one_cpu_case(), &rounds(8, value, noise));
        conclusion_with(&run, UDP_AGAINST_TCP_TEXT)
    };
    let equal = compare_with(10_010.0, 0.01);
    assert_eq!((equal.holds, equal.same_within()), (None, Some(0.05)));
    assert!(equal.test.contains("the same within 5.0 %, p < 0.001 among all conclusions"), "{}", equal.test);
    let open = compare_with(9_700.0, 0.1);
    assert_eq!((open.holds, open.same_within()), (None, None));
    assert!(open.test.contains("rounds would decide"), "{}", open.test);
    let shorter = compare_with(8_000.0, 0.01);
    assert_eq!((shorter.holds, shorter.same_within()), (Some(true), None));
    // A small difference that is certain is a difference.
    let small_difference = compare_with(9_900.0, 0.001);
    assert_eq!((small_difference.holds, small_difference.same_within()), (Some(true), None));
}

#[test]
fn significance_is_corrected_for_multiple_tests() {
    // Just apart.
    let conclusion_among = |other_count: usize| {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.05));
        add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(8, 10_500.0, 0.05));
        if other_count > 0 {
            for metric in [UDP, UNIX] {
                add_scalars(&mut run, &metric, one_cpu_case(), &rounds(8, 10_000.0, 0.05));
                add_scalars(&mut run, &metric, two_cpus_case(), &rounds(8, 10_000.0, 0.05));
            }
        }
        conclusion_with(&run, BETWEEN_CPUS_TEXT)
    };
    let [single, corrected] = [conclusion_among(0), conclusion_among(4)];
    assert_eq!(single.holds, Some(true));
    assert_eq!(corrected.holds, None, "{}", corrected.test);
    let [single_p, corrected_p] = [single, corrected].map(|conclusion| conclusion.outcome.unwrap().difference);
    assert_eq!(single_p.raw, corrected_p.raw);
    assert!(
        single_p.adjusted <= 0.05 && corrected_p.adjusted > 0.05 && single_p.adjusted == single_p.raw,
        "{single_p:?} {corrected_p:?}"
    );
}

#[test]
fn uncommon_run_variance_widens_ratio_error() {
    let holds_with = |two_cpu_states: [f64; 6]| {
        let mut run = network();
        add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.01));
        add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(8, 10_500.0, 0.01));
        let machine = [1.0, 1.1, 0.95, 1.05, 0.9, 1.02];
        let headlines =
            |states: [f64; 6]| machine.iter().zip(states).map(|(state, factor)| 10_000.0 * state * factor).collect();
        for (case, headlines) in [(one_cpu_case(), headlines([1.0; 6])), (two_cpus_case(), headlines(two_cpu_states))] {
            run.header.spread_history.push(SpreadHistory {
                metric: TCP.id,
                case,
                headlines,
                within_variances: vec![1.0; 6],
            });
        }
        conclusion_with(&run, BETWEEN_CPUS_TEXT).holds
    };
    assert_eq!(holds_with([1.05, 1.051, 1.049, 1.05, 1.052, 1.048]), Some(true));
    assert_eq!(holds_with([1.0, 1.2, 0.9, 1.1, 1.05, 0.85]), None);
}

#[test]
fn network_paragraph_has_corrected_conclusions_only() {
    let mut run = network();
    add_scalars(&mut run, &TCP, one_cpu_case(), &rounds(8, 10_000.0, 0.01));
    add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(3, 40_000.0, 0.01));
    let mentions_placement =
        |run: &Run| analyse(run).verdict.iter().any(|line| line.contains("takes longer between two CPUs"));
    assert!(!mentions_placement(&run));
    run.measurements.truncate(1);
    add_scalars(&mut run, &TCP, two_cpus_case(), &rounds(8, 40_000.0, 0.01));
    assert!(mentions_placement(&run));
}
