//! Fleets made for tests: hosts that are alike but for the noise of their runs, and hosts that are made odd.

#![allow(dead_code, reason = "each program uses a part of it")]

use kelvin_core::{Better, Case, Fact, Metric, Name, Unit};
use kelvin_fleet::{FleetInput, FleetReport, FleetRequest, HostInput, SeriesInput, compare_fleet};
use kelvin_stats::{Random, median};

/// How real runs differ; see `data/README.md`.
const RESIDUALS: &str = include_str!("../../data/run_residuals.txt");

/// The noise of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Normal, of the spread that real runs have in each figure.
    Normal,
    /// Student's with three degrees of freedom, of the same median deviation.
    Student3,
    /// Normal, and in every third figure one run in ten is a quarter slower.
    Bimodal,
    /// That of real runs.
    Residuals,
    /// That of real runs, and hosts that differ by a common factor of 1 % (standard deviation) in processor, kernel and memory.
    Frequency,
    /// Normal, and one run of a figure in three hundred is a third slower.
    RareMode,
    /// Laplace's, of the same median deviation, with a factor of 0.5 % that a whole run has.
    Laplace,
    /// Student's with three degrees of freedom, of half the spread, and hosts that differ in each figure by that of the other half.
    HostSpread,
    /// Normal, and one run of a figure in twenty has six times the noise.
    Contaminated,
    /// Exponential, of the same median deviation: runs are slower by chance, and never faster.
    Skewed,
    /// Normal, and in every third figure half of the runs are a quarter slower.
    EvenModes,
    /// Normal, and each figure drifts by up to 10 % while one host after another is measured.
    Drift,
}

impl Noise {
    pub const ALL: [Self; 12] = [
        Self::Normal,
        Self::Student3,
        Self::Bimodal,
        Self::Residuals,
        Self::Frequency,
        Self::RareMode,
        Self::Laplace,
        Self::HostSpread,
        Self::Contaminated,
        Self::Skewed,
        Self::EvenModes,
        Self::Drift,
    ];
}

/// A host that is made odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// 8 % longer in all cases of memory latency.
    Latency,
    /// Another governor.
    Governor,
    /// A random metric 20 % worse in all its cases.
    Metric,
    /// A random figure 20 % worse, of those that repeat to within 2 %.
    Figure,
    /// 15 % worse in all figures of the kernel and the processor.
    Areas,
    /// 20 % worse in all figures.
    Host,
}

impl Oddity {
    /// A fault each.
    pub const ALL: [Self; 4] = [Self::Latency, Self::Governor, Self::Metric, Self::Figure];
}

/// A figure of all hosts.
struct MadeSeries {
    metric: Metric,
    case: Case,
    residuals: Vec<f64>,
    std: f64,
}

fn made_series() -> Vec<MadeSeries> {
    let mut series: Vec<MadeSeries> = Vec::new();
    for line in RESIDUALS.lines() {
        let mut words = line.split(' ');
        let id = Name::intern(words.next().unwrap());
        let residuals: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
        let mut metric = Metric::duration("made", "A figure of a test");
        metric.id = id;
        if id.contains("bandwidth") || id.contains("rate") {
            (metric.unit, metric.better) = (Unit::BytesPerSecond, Better::Higher);
        }
        let number = series.iter().filter(|other| other.metric.id == id).count() as u64;
        let distances: Vec<f64> = residuals.iter().map(|residual| residual.abs()).collect();
        // Of six values about their own median.
        let std = 1.2 * 1.4826 * median(&distances);
        series.push(MadeSeries { metric, case: Case::new().with_number("n", number), residuals, std: std.max(1e-4) });
    }
    series
}

fn student3(random: &mut Random) -> f64 {
    let chi = (0..3).map(|_| random.normal().powi(2)).sum::<f64>();
    // 0.6745 / 0.7649: the median deviations of both distributions.
    0.882 * random.normal() / (chi / 3.0).sqrt()
}

/// A fleet of hosts with so many runs each, of which these, in random places, are odd: its report, and the labels of the odd ones.
pub fn made_fleet(
    (hosts, runs): (usize, usize),
    noise: Noise,
    oddities: &[Oddity],
    seed: u64,
) -> (FleetReport, Vec<(Oddity, String)>) {
    let mut random = Random::new(seed);
    let mut places: Vec<usize> = (0..hosts).collect();
    random.shuffle(&mut places);
    let place = |oddity: Oddity| oddities.iter().position(|other| *other == oddity).map(|index| places[index]);
    let host_factors: Vec<f64> = (0..hosts).map(|_| 0.01 * random.normal()).collect();
    let run_factors: Vec<f64> = (0..hosts * runs).map(|_| 0.005 * random.normal()).collect();
    let all = made_series();
    let odd_metric = all[random.index_below(all.len())].metric.id;
    let quiet: Vec<usize> = (0..all.len()).filter(|&index| all[index].std <= 0.02).collect();
    let odd_figure = quiet[random.index_below(quiet.len())];
    let series = all.iter().enumerate().map(|(index, made)| {
        let sign = if made.metric.better == Better::Higher { -1.0 } else { 1.0 };
        let is_bimodal = random.index_below(3) == 0;
        let drift = match noise {
            Noise::Drift => 0.1 * (2.0 * random.uniform() - 1.0) / (hosts * runs) as f64,
            _ => 0.0,
        };
        let mut values = Vec::with_capacity(hosts * runs);
        for host in 0..hosts {
            let mut shift = 0.0;
            if place(Oddity::Latency) == Some(host) && made.metric.id == *"mem.latency" {
                shift += 1.08f64.ln();
            }
            if place(Oddity::Areas) == Some(host) && ["cpu", "os"].contains(&made.metric.area()) {
                shift += 1.15f64.ln();
            }
            if place(Oddity::Host) == Some(host) {
                shift += if sign > 0.0 { 1.2f64.ln() } else { -(0.8f64.ln()) };
            }
            if (place(Oddity::Metric) == Some(host) && made.metric.id == odd_metric)
                || (place(Oddity::Figure) == Some(host) && index == odd_figure)
            {
                shift += if sign > 0.0 { 1.2f64.ln() } else { -(0.8f64.ln()) };
            }
            if noise == Noise::Frequency && ["cpu", "os", "mem"].contains(&made.metric.area()) {
                shift += host_factors[host];
            }
            if noise == Noise::HostSpread {
                shift += 0.5 * made.std * random.normal();
            }
            for run in 0..runs {
                let error = match noise {
                    Noise::Normal => made.std * random.normal(),
                    Noise::Student3 => made.std * student3(&mut random),
                    Noise::Bimodal | Noise::EvenModes => {
                        let runs_to_a_slow_one = if noise == Noise::Bimodal { 10 } else { 2 };
                        let is_slow = is_bimodal && random.index_below(runs_to_a_slow_one) == 0;
                        made.std * random.normal() + if is_slow { 1.25f64.ln() } else { 0.0 }
                    }
                    Noise::Drift => made.std * random.normal() + drift * (host * runs + run) as f64,
                    Noise::Residuals | Noise::Frequency => {
                        let residual = made.residuals[random.index_below(made.residuals.len())];
                        residual * (1.0 + 0.2 * random.normal()) + 0.2 * made.std * random.normal()
                    }
                    Noise::RareMode => {
                        let is_slow = random.index_below(300) == 0;
                        made.std * random.normal() + if is_slow { 1.33f64.ln() } else { 0.0 }
                    }
                    Noise::Laplace => {
                        let uniform = random.uniform() - 0.5;
                        // 0.6745 / ln 2: as of Student's.
                        let laplace = -uniform.signum() * (1.0 - 2.0 * uniform.abs()).max(1e-300).ln() * 0.973;
                        made.std * laplace + run_factors[host * runs + run]
                    }
                    Noise::Contaminated => {
                        let is_disturbed = random.index_below(20) == 0;
                        made.std * random.normal() * if is_disturbed { 6.0 } else { 1.0 }
                    }
                    // The median deviation of an exponential distribution is 0.4812 of its mean.
                    Noise::Skewed => -made.std * (0.6745 / 0.4812) * (1.0 - random.uniform()).ln(),
                    Noise::HostSpread => 0.5 * made.std * student3(&mut random),
                };
                values.push((100.0 * (sign * (shift + error)).exp()) as f32);
            }
        }
        SeriesInput { metric: made.metric, case: made.case.clone(), values }
    });
    let series: Vec<SeriesInput> = series.collect();
    let host_input = |host: usize| {
        let mut input = HostInput { label: format!("n{host}"), ..HostInput::default() };
        input.machine.cpu.model_name = Fact::known("A processor".into(), "a test");
        input.machine.topology.online = Fact::known((0..8).collect(), "a test");
        input.machine.memory.total_bytes = Fact::known(64 << 30, "a test");
        input.machine.platform.hypervisor = Fact::known(None, "a test");
        let governor = if place(Oddity::Governor) == Some(host) { "powersave" } else { "performance" };
        input.machine.cpu.governor = Fact::known(governor.into(), "a test");
        input
    };
    let input = FleetInput {
        hosts: (0..hosts).map(host_input).collect(),
        run_hosts: (0..hosts).flat_map(|host| std::iter::repeat_n(host as u32, runs)).collect(),
        series,
    };
    let names = oddities.iter().enumerate().map(|(index, oddity)| (*oddity, format!("n{}", places[index])));
    (compare_fleet(&input, &FleetRequest::default()), names.collect())
}

/// Labels of the hosts that a report names.
pub fn named_hosts(report: &FleetReport) -> Vec<String> {
    report.groups.iter().flat_map(|group| &group.outliers).map(|outlier| outlier.label.clone()).collect()
}
