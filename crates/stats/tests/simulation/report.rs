//! A whole simulated report: fifty conclusions on ratios of one run, of which some differ, some are the same and some are neither.

use kelvin_stats::{CONFIDENCE_LEVEL, FALSE_DISCOVERY_RATE, Random, adjusted_p_values, ratio_of_medians};

use super::Model;

/// Conclusions of a report.
pub const CONCLUSIONS: usize = 50;
/// Conclusions that have their base in common.
const CONCLUSIONS_PER_BASE: usize = 5;
/// Deviation of a round, as a share of its value.
const ROUND_NOISE: f64 = 0.02;
/// Distance from a ratio of 1 within which two figures are the same.
pub const EQUIVALENCE_MARGIN: f64 = 0.05;

/// What the truths of a report are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TruthScenario {
    /// All are equal.
    Equal,
    /// Half are equal, the others differ by up to a tenth.
    Mixed,
    /// All differ by a tenth, where noise is no matter.
    Apart,
    /// All differ by just the margin: neither equal nor the same.
    AtTheMargin,
}

impl TruthScenario {
    pub const ALL: [Self; 4] = [Self::Equal, Self::Mixed, Self::Apart, Self::AtTheMargin];

    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Mixed if random.uniform() < 0.5 => 0.2 * random.uniform() - 0.1,
            Self::Equal | Self::Mixed => 0.0,
            Self::Apart => 0.1,
            Self::AtTheMargin => (1.0 + EQUIVALENCE_MARGIN).ln(),
        }
    }
}

/// How chances become decisions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CorrectionRule {
    /// Each test on its own.
    Uncorrected,
    /// Benjamini and Hochberg's, over all tests of difference and over all of equivalence.
    ByKind,
    /// Like `ByKind`, over all tests of the report in one.
    InOne,
    /// Benjamini and Yekutieli's by kind, for any dependence.
    AnyDependence,
}

impl CorrectionRule {
    pub const ALL: [Self; 4] = [Self::Uncorrected, Self::ByKind, Self::InOne, Self::AnyDependence];

    /// Chances of difference and of equivalence of each conclusion, corrected.
    fn correct(self, chances: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let [differences, equivalences] =
            [0, 1].map(|kind| chances.iter().map(|pair| pair[kind]).collect::<Vec<f64>>());
        let paired = |differences: Vec<f64>, equivalences: Vec<f64>| {
            differences.into_iter().zip(equivalences).map(<[f64; 2]>::from).collect()
        };
        let harmonic: f64 = (1..=chances.len()).map(|test| 1.0 / test as f64).sum();
        match self {
            Self::Uncorrected => chances.to_vec(),
            Self::ByKind => paired(adjusted_p_values(&differences), adjusted_p_values(&equivalences)),
            Self::InOne => {
                let mut joint = adjusted_p_values(&[differences, equivalences].concat());
                let equivalences = joint.split_off(chances.len());
                paired(joint, equivalences)
            }
            Self::AnyDependence => {
                let [differences, equivalences] = [differences, equivalences]
                    .map(|kind| adjusted_p_values(&kind).iter().map(|chance| chance * harmonic).collect());
                paired(differences, equivalences)
            }
        }
    }
}

/// The decisions of many reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecisionTally {
    /// Mean share of false ones among those of a report.
    pub false_share: f64,
    /// Share of reports with any that is false.
    pub any_false: f64,
    /// Mean number of a report.
    pub decided: f64,
}

/// One conclusion: its truth, and the chances of its two tests.
struct SimulatedTest {
    truth: f64,
    value: f64,
    difference_p: f64,
    equivalence_p: f64,
}

/// The tests of one report: the state of the machine in each round is common to all of them, and so is a base to several.
fn simulated_tests(model: Model, truths: TruthScenario, rounds: usize, random: &mut Random) -> Vec<SimulatedTest> {
    let machine: Vec<f64> = model.run(rounds, random);
    let case = |truth: f64, random: &mut Random| -> Vec<f64> {
        let noise = model.run(rounds, random);
        machine.iter().zip(noise).map(|(machine, noise)| (truth + ROUND_NOISE * (machine + noise)).exp()).collect()
    };
    let mut base = Vec::new();
    (0..CONCLUSIONS)
        .map(|conclusion| {
            if conclusion % CONCLUSIONS_PER_BASE == 0 {
                base = case(0.0, random);
            }
            let truth = truths.draw(random);
            let figure = ratio_of_medians(&base, &case(truth, random), None).unwrap();
            let equivalence_p =
                figure.equivalence_p_value((1.0 - EQUIVALENCE_MARGIN).ln(), (1.0 + EQUIVALENCE_MARGIN).ln());
            SimulatedTest { truth, value: figure.value, difference_p: figure.p_value(0.0), equivalence_p }
        })
        .collect()
}

/// Decisions by a rule over this many reports.
pub fn simulate_reports(
    model: Model,
    truths: TruthScenario,
    rounds: usize,
    (rule, reports): (CorrectionRule, usize),
) -> DecisionTally {
    let mut random = Random::new(rounds as u64);
    let mut tally = DecisionTally::default();
    for _ in 0..reports {
        let tests = simulated_tests(model, truths, rounds, &mut random);
        let chances: Vec<[f64; 2]> = tests.iter().map(|test| [test.difference_p, test.equivalence_p]).collect();
        let joint = rule.correct(&chances);
        let is_significant = |chance: f64| chance <= FALSE_DISCOVERY_RATE;
        let (mut decided, mut false_count) = (0.0, 0.0);
        for (test, joint) in tests.iter().zip(joint) {
            let (is_different, is_equivalent) = (is_significant(joint[0]), is_significant(joint[1]));
            decided += f64::from(u8::from(is_different)) + f64::from(u8::from(is_equivalent));
            let is_wrong = is_different && (test.truth == 0.0 || (test.value > 0.0) != (test.truth > 0.0));
            // At the margin itself counts as outside.
            let is_outside =
                test.truth >= (1.0 + EQUIVALENCE_MARGIN).ln() || test.truth <= (1.0 - EQUIVALENCE_MARGIN).ln();
            false_count += f64::from(u8::from(is_wrong)) + f64::from(u8::from(is_equivalent && is_outside));
        }
        tally.decided += decided / reports as f64;
        tally.false_share += if decided > 0.0 { false_count / decided } else { 0.0 } / reports as f64;
        tally.any_false += f64::from(u8::from(false_count > 0.0)) / reports as f64;
    }
    tally
}

/// Coverage of ratios of equal cases with these rounds: of the interval that is used, and of Welch's around the ratio of medians, which
/// was.
pub fn ratio_coverage(model: Model, (base, other): (usize, usize), runs: usize) -> [f64; 2] {
    let mut random = Random::new((31 * base + other) as u64);
    let mut coverage = [0.0; 2];
    for _ in 0..runs {
        let [base, other] = [base, other].map(|rounds| model.run(rounds, &mut random));
        let positive =
            |rounds: &[f64]| -> Vec<f64> { rounds.iter().map(|round| (ROUND_NOISE * round).exp()).collect() };
        let (base, other) = (positive(&base), positive(&other));
        let (low, high) = ratio_of_medians(&base, &other, None).unwrap().interval(CONFIDENCE_LEVEL);
        coverage[0] += f64::from(u8::from(low <= 0.0 && high >= 0.0)) / runs as f64;
        coverage[1] += f64::from(u8::from(welch_covers(&base, &other))) / runs as f64;
    }
    coverage
}

fn welch_covers(base: &[f64], other: &[f64]) -> bool {
    let logarithms = |rounds: &[f64]| rounds.iter().map(|round| round.ln()).collect::<Vec<f64>>();
    let error = |rounds: &[f64]| kelvin_stats::variance(&logarithms(rounds)) / rounds.len() as f64;
    let (a, b) = (error(base), error(other));
    let square = |error: f64, rounds: &[f64]| error.powi(2) / (rounds.len() - 1) as f64;
    let degrees = (a + b).powi(2) / (square(a, base) + square(b, other));
    let half = kelvin_stats::t_quantile(0.975, degrees) * (a + b).sqrt();
    (kelvin_stats::median(other) / kelvin_stats::median(base)).ln().abs() <= half
}
