//! Simulated runs of known truth, shared by the coverage table and the coverage test.
#![allow(dead_code)] // the table and the test each use their part

pub mod report;

use kelvin_stats::{
    BetweenRunVariance, CONFIDENCE_LEVEL, Random, Sorted, UncertainValue, UnobservedVariance, headline,
    headline_interval, mean, median, repeat_interval, t_quantile, variance, within_run_variance,
};

/// How the rounds of a run, and runs, vary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Model {
    /// Independent normal rounds.
    Normal,
    /// Lognormal rounds, skewed to the slow side (sigma 0.6).
    Skewed,
    /// Student's t with 3 degrees of freedom.
    HeavyTails,
    /// Normal rounds of which one in seven is slow by fifteen standard deviations on average.
    WildRounds,
    /// Normal rounds, and as large a component from run to run.
    RunComponent,
    /// Normal rounds, and a component from run to run as large as the headline's own spread with 6 rounds.
    SmallRunComponent,
    /// Normal rounds that rise by two standard deviations over the run.
    Drift,
    /// Normal rounds, and a state of the machine as large, of which 0.6 is left at the next round.
    LastingStates,
    /// Normal rounds of which one in four is in another mode, eight standard deviations away.
    TwoModes,
    /// Normal rounds of unequal lengths: the shortest is four times as uncertain as the longest.
    UnequalRounds,
}

pub const MODELS: [Model; 10] = [
    Model::Normal,
    Model::Skewed,
    Model::HeavyTails,
    Model::WildRounds,
    Model::RunComponent,
    Model::SmallRunComponent,
    Model::Drift,
    Model::LastingStates,
    Model::TwoModes,
    Model::UnequalRounds,
];

impl Model {
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Skewed => "lognormal skew",
            Self::HeavyTails => "heavy tails",
            Self::WildRounds => "wild rounds",
            Self::RunComponent => "run component",
            Self::SmallRunComponent => "small run component",
            Self::Drift => "drift",
            Self::LastingStates => "lasting states",
            Self::TwoModes => "two modes",
            Self::UnequalRounds => "unequal rounds",
        }
    }

    /// Headlines of the rounds of one run.
    pub fn run(self, rounds: usize, random: &mut Random) -> Vec<f64> {
        let level = match self {
            Self::RunComponent => random.normal(),
            Self::SmallRunComponent => 0.46 * random.normal(),
            _ => 0.0,
        };
        let mut state = if self == Self::LastingStates { random.normal() } else { 0.0 };
        let mut draw_round = |round: usize| {
            let value = level + state + self.round(round as f64 / rounds as f64, random);
            if self == Self::LastingStates {
                state =
                    STATE_PERSISTENCE * state + (1.0 - STATE_PERSISTENCE * STATE_PERSISTENCE).sqrt() * random.normal();
            }
            value
        };
        (0..rounds).map(&mut draw_round).collect()
    }

    fn round(self, progress: f64, random: &mut Random) -> f64 {
        match self {
            Self::Normal | Self::RunComponent | Self::SmallRunComponent | Self::LastingStates => random.normal(),
            Self::Skewed => (0.6 * random.normal()).exp(),
            Self::HeavyTails => {
                let square: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
                random.normal() / (square / 3.0).sqrt()
            }
            Self::WildRounds if random.uniform() < 1.0 / 7.0 => random.normal() - 15.0 * (1.0 - random.uniform()).ln(),
            Self::WildRounds => random.normal(),
            Self::Drift => 2.0 * progress + random.normal(),
            Self::TwoModes if random.uniform() < 0.25 => 8.0 + random.normal(),
            Self::TwoModes => random.normal(),
            Self::UnequalRounds => 4f64.powf(random.uniform() - 0.5) * random.normal(),
        }
    }
}

/// What is left of a state of the machine at the next round.
const STATE_PERSISTENCE: f64 = 0.6;

/// How an interval is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Percentile bootstrap over rounds.
    Bootstrap,
    /// Student's t on the mean of rounds, centred at the mean.
    T,
    /// kelvin's, with this many earlier runs.
    Kelvin(usize),
    /// That widened to hold the next run, with this many earlier runs.
    NextRun(usize),
    /// kelvin's of a repeat where states outlast rounds, with this many earlier runs.
    Repeat(usize),
}

impl Method {
    pub const ALL: [Self; 8] = [
        Self::Bootstrap,
        Self::T,
        Self::Kelvin(0),
        Self::Kelvin(5),
        Self::Kelvin(20),
        Self::NextRun(0),
        Self::NextRun(20),
        Self::Repeat(0),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrap",
            Self::T => "t on the mean",
            Self::Kelvin(0) => "kelvin",
            Self::Kelvin(5) => "kelvin, 5 earlier runs",
            Self::Kelvin(_) => "kelvin, 20 earlier runs",
            Self::NextRun(0) => "kelvin, of the next run",
            Self::NextRun(_) => "kelvin, of the next run, earlier runs",
            Self::Repeat(0) => "kelvin, of a repeat",
            Self::Repeat(_) => "kelvin, of a repeat, earlier runs",
        }
    }

    fn interval(self, model: Model, rounds: &[f64], random: &mut Random) -> Option<(f64, f64)> {
        match self {
            Self::Bootstrap => {
                let mut resample_median =
                    || median(&rounds.iter().map(|_| rounds[random.index_below(rounds.len())]).collect::<Vec<_>>());
                let medians = Sorted::new((0..200).map(|_| resample_median()).collect())?;
                Some((medians.quantile(0.025), medians.quantile(0.975)))
            }
            Self::T => {
                let n = rounds.len() as f64;
                let half = t_quantile(0.975, n - 1.0) * (variance(rounds) / n).sqrt();
                Some((mean(rounds) - half, mean(rounds) + half))
            }
            Self::Kelvin(history_runs) | Self::Repeat(history_runs) | Self::NextRun(history_runs) => {
                let runs: Vec<Vec<f64>> = (0..history_runs).map(|_| model.run(rounds.len(), random)).collect();
                let headlines: Vec<f64> = runs.iter().map(|run| headline(run)).collect();
                let variances: Vec<f64> =
                    runs.iter().filter_map(|run| within_run_variance(run)).map(|spread| spread.variance).collect();
                let history = BetweenRunVariance::learn(&headlines, &variances);
                if matches!(self, Self::NextRun(_)) {
                    return Some(
                        UncertainValue::median(rounds, history.as_ref())?.next_run().interval(CONFIDENCE_LEVEL),
                    );
                }
                let result = match self {
                    Self::Kelvin(_) => headline_interval(rounds, history.as_ref(), UnobservedVariance::default()),
                    _ => repeat_interval(rounds, history.as_ref(), UnobservedVariance::default()),
                };
                result.map(|interval| (interval.lower, interval.upper))
            }
        }
    }
}

/// The result of a method under a model.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedCoverage {
    /// Share of runs whose interval holds the long-run median of the headline.
    pub coverage: f64,
    /// Share of runs whose interval holds the headline of another single run.
    pub next: f64,
    /// Median half-width over the standard deviation of the headline.
    pub half_width: f64,
}

pub fn simulate(model: Model, rounds: usize, runs: usize, methods: &[Method]) -> Vec<SimulatedCoverage> {
    let mut random = Random::new(rounds as u64);
    let reference_runs: Vec<Vec<f64>> = (0..10_000).map(|_| model.run(rounds, &mut random)).collect();
    let truth = center_and_std(reference_runs.iter().map(|run| headline(run)).collect());
    let mean_truth = center_and_std(reference_runs.iter().map(|run| mean(run)).collect());
    let cell = |&method: &Method| {
        let (center, std) = if method == Method::T { mean_truth } else { truth };
        let (mut covered_count, mut next, mut half_widths) = (0, 0, Vec::new());
        for _ in 0..runs {
            let rounds = model.run(rounds, &mut random);
            let repeat = model.run(rounds.len(), &mut random);
            let repeat = if method == Method::T { mean(&repeat) } else { headline(&repeat) };
            let Some((low, high)) = method.interval(model, &rounds, &mut random) else { continue };
            covered_count += usize::from((low..=high).contains(&center));
            next += usize::from((low..=high).contains(&repeat));
            half_widths.push((high - low) / 2.0);
        }
        let share = |count: usize| count as f64 / runs as f64;
        SimulatedCoverage { coverage: share(covered_count), next: share(next), half_width: median(&half_widths) / std }
    };
    methods.iter().map(cell).collect()
}

/// The median, and the standard deviation of the middle: the interquartile range over that of a standard normal.
fn center_and_std(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let std = (values[values.len() * 3 / 4] - values[values.len() / 4]) / 1.349;
    (median(&values), std)
}

/// Standard deviations over runs of the mean, the median, and the interquartile mean of the rounds.
pub fn repeatability(model: Model, rounds: usize, runs: usize) -> [f64; 3] {
    let mut random = Random::new(rounds as u64);
    let sample_runs: Vec<Vec<f64>> = (0..runs).map(|_| model.run(rounds, &mut random)).collect();
    let std = |estimate: fn(&[f64]) -> f64| {
        variance(&sample_runs.iter().map(|run| estimate(run)).collect::<Vec<f64>>()).sqrt()
    };
    [std(mean), std(median), std(interquartile_mean)]
}

fn interquartile_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let weight = |i: usize| (((i + 1) as f64).min(0.75 * n) - (i as f64).max(0.25 * n)).max(0.0);
    sorted.iter().enumerate().map(|(i, value)| weight(i) * value).sum::<f64>() / (0.5 * n)
}
