//! Whatever was measured, no conclusion of any study has a figure that cannot be: no number that is none, no part of a thread.

#[path = "../../probes/tests/composed/mod.rs"]
mod composed;

use kelvin_analysis::testing::load::PlantedStudy;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_analysis::{Study, studies};
use kelvin_core::{Case, Claim, Estimate, LoadClaim, Metric, Readings, RoundOutcome, Run, Unit};
use kelvin_harness::Effort;
use kelvin_stats::Random;
use proptest::prelude::*;

/// Beginnings of the ids of the probes whose figures are concluded from together.
const AREAS: [&str; 19] = [
    "cpu.call",
    "os.process",
    "os.switch.one_way",
    "file.byte_calls",
    "file.seqrand",
    "file.contention",
    "os.tasks",
    "mem.page",
    "mem.latency",
    "file.device",
    "file.blocksize",
    "file.depth",
    "file.threads",
    "file.engines",
    "file.remote",
    "file.tune",
    "net.",
    "transfer",
    "os.",
];

/// What is counted whole.
const COUNTED_NOUNS: [&str; 12] =
    ["thread", "threads", "user", "users", "stream", "streams", "CPU", "CPUs", "round", "rounds", "worker", "workers"];

/// How a figure depends on the number of its case in the plan.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The power of ten of the first.
    tens: f64,
    /// The power of its number by which each grows or falls.
    power: f64,
    /// Relative deviation of rounds.
    noise: f64,
    /// Share of the rounds in which it is zero.
    zeros: f64,
    rounds: usize,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let noise = prop_oneof![Just(0.0), Just(0.01), Just(0.3), Just(3.0)];
    let zeros = prop_oneof![4 => Just(0.0), 1 => Just(0.2), 1 => Just(1.0)];
    let shape = |(tens, power, noise, zeros, rounds)| Shape { tens, power, noise, zeros, rounds };
    (-3.0f64..12.0, -4.0f64..4.0, noise, zeros, 1usize..8).prop_map(shape)
}

impl Shape {
    /// The figures of all rounds of the case of this number, in the range that the unit has.
    fn values(&self, metric: &Metric, number: usize, random: &mut Random) -> Vec<f64> {
        let level = 10f64.powf(self.tens) * (1.0 + number as f64).powf(self.power);
        let value = |random: &mut Random| {
            let value = level * (self.noise * random.normal()).exp();
            match metric.unit {
                _ if random.uniform() < self.zeros => 0.0,
                Unit::Ratio => value % 1.5,
                _ => value,
            }
        };
        (0..self.rounds).map(|_| value(random)).collect()
    }
}

/// A run of all probes of an area, each metric of a shape of its own.
fn run_of_area(area: &str, shapes: &[Shape], seed: u64) -> Run {
    let machine = composed::machine();
    let probes: Vec<_> = kelvin_probes::all().into_iter().filter(|probe| probe.id.starts_with(area)).collect();
    assert!(!probes.is_empty(), "{area}");
    let metrics: Vec<Metric> = probes.iter().flat_map(|probe| probe.metrics).map(|metric| **metric).collect();
    let mut run = testing::empty_run(&metrics);
    run.header.machine = machine.clone();
    let mut random = Random::new(seed);
    for probe in probes {
        for (index, metric) in probe.metrics.iter().enumerate() {
            let cases: Vec<Case> = (probe.cases)(&machine, Effort::Thorough);
            let shape = &shapes[index % shapes.len()];
            for (number, case) in cases.into_iter().filter(|case| metric.is_measured_at(case)).enumerate() {
                add_scalars(&mut run, metric, case, &shape.values(metric, number, &mut random));
            }
        }
    }
    run
}

/// The same run, with some of its figures many times as large, or zero.
fn with_outliers(mut run: Run, seed: u64) -> Run {
    let mut random = Random::new(seed);
    let attempts =
        run.measurements.iter_mut().flat_map(|measurement| &mut measurement.rounds).map(|round| &mut round.outcome);
    let readings = attempts.filter_map(|attempt| match attempt {
        RoundOutcome::Measured(readings) => Some(readings),
        _ => None,
    });
    for reading in readings.flatten() {
        let Readings::Scalars(values) = &mut reading.readings else { continue };
        for value in values {
            match random.uniform() {
                share if share < 0.02 => *value = 0.0,
                share if share < 0.1 => *value *= 10f64.powf(6.0 * random.normal()),
                _ => {}
            }
        }
    }
    run
}

/// The words of a text, numbers and percent signs among them: a share of 5.5 % is no number of what is named after it.
fn words(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || ".%".contains(c))).map(|word| word.trim_matches('.'));
    words.filter(|word| !word.is_empty()).collect()
}

/// A number in a text that is none.
fn non_finite_number(text: &str) -> Option<String> {
    let is_none = |word: &&str| ["NaN", "inf", "infinity"].contains(&word.trim_end_matches('%'));
    words(text).into_iter().find(is_none).map(str::to_owned)
}

/// A part of something that is whole, in a text.
fn fractional_count(text: &str) -> Option<String> {
    let is_part =
        |pair: &&[&str]| pair[0].contains('.') && pair[0].parse::<f64>().is_ok() && COUNTED_NOUNS.contains(&pair[1]);
    words(text).windows(2).find(is_part).map(|pair| pair.join(" "))
}

/// Bytes of the largest file of a planted study of load.
const LARGEST_FILE: f64 = 2e6;

/// A figure of a claim that cannot be: a share below nothing, an answer that is larger than its file, times below nothing.
fn impossible_claim(claim: &Claim) -> Option<String> {
    let find_negative = |estimates: &[Estimate]| {
        estimates
            .iter()
            .find(|estimate| estimate.low < 0.0 || estimate.low > estimate.high)
            .map(|estimate| format!("{estimate:?}"))
    };
    match claim {
        Claim::Ratio { ratio, .. } => find_negative(&[*ratio]),
        Claim::Dependence(claim) => find_negative(&[claim.ratio_to_law]),
        Claim::Load(LoadClaim::Limit(limit)) => {
            let utilisations: Vec<Estimate> = limit.utilisations.iter().map(|resource| resource.utilisation).collect();
            let is_answer = |bytes: &f64| *bytes <= 2.1 * LARGEST_FILE;
            find_negative(&utilisations)
                .or(limit.request_bytes.filter(|bytes| !is_answer(bytes)).map(|bytes| format!("{bytes} B")))
        }
        Claim::Load(LoadClaim::Amplification { ratio: times, .. }) => find_negative(&[*times]),
        Claim::Load(LoadClaim::Disturbance(hindrance)) => find_negative(&[hindrance.amount]),
        _ => None,
    }
}

fn check_studies(studies: &[Study]) -> Result<(), TestCaseError> {
    for conclusion in studies.iter().flat_map(|study| &study.conclusions) {
        let (text, test, claim) = (&conclusion.text, &conclusion.test, format!("{:?}", conclusion.conclusion));
        let fault = [text, test, &claim].into_iter().find_map(|text| non_finite_number(text));
        let fault = fault.or_else(|| fractional_count(text)).or_else(|| fractional_count(test));
        let fault = fault.or_else(|| impossible_claim(&conclusion.conclusion.claim));
        prop_assert!(fault.is_none(), "{fault:?} in: {text} ({test}) {claim}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 16, ..ProptestConfig::default() })]

    #[test]
    fn conclusions_have_no_impossible_figures(
        area in prop::sample::select(&AREAS[..]), shapes in prop::collection::vec(shapes(), 3), seed: u64,
    ) {
        check_studies(&studies(&run_of_area(area, &shapes, seed)))?;
    }

    #[test]
    fn load_conclusions_have_no_impossible_figures(number in 0u64..1000, seed: u64) {
        check_studies(&studies(&with_outliers(PlantedStudy::random(number).study.run(), seed)))?;
    }
}

#[test]
fn impossible_text_is_detected() {
    let find_fault = |text| non_finite_number(text).or_else(|| fractional_count(text));
    for (text, expected) in [
        ("it peaks at NaN with 3 threads", Some("NaN")),
        ("from 0.34 threads up", Some("0.34 threads")),
        ("at most inf.", Some("inf")),
        ("by NaN%", Some("NaN%")),
        ("information on 12 threads and 3.5 times", None),
        ("the thread of the load generator 5.5 %, CPU of the server 3.7 %", None),
    ] {
        assert_eq!(find_fault(text).as_deref(), expected, "{text}");
    }
}
