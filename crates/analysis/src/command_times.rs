//! From the runs of commands to their times: means with intervals, ratios that hold for all pairs together, and what differences are made of.

use std::collections::BTreeMap;

use kelvin_core::{
    CommandTimes, Estimate, RelativeTime, RunOrder, TIME_FORMAT, TimeDifference, TimeMode, TimeVerdict, TimedCommand,
};
use kelvin_stats::{
    BestValue, Block, CONFIDENCE_LEVEL, Cluster, MIN_INTERVAL_ROUNDS, UncertainValue, VarianceEstimate, blocked_ratio,
    bonferroni_level, find_modes, mean, median, min_max, variance,
};

/// Runs of a command in a block.
const RUNS_PER_BLOCK: usize = 2;
/// CPU time over time from which a command uses several CPUs at once: less is the resolution of CPU time.
const PARALLEL_CPU_SHARE: f64 = 1.02;

/// One run of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommandRun {
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// Seconds of CPU time in user mode.
    pub user: f64,
    /// Seconds of CPU time in the kernel.
    pub system: f64,
    /// Largest resident set of any of its processes, in bytes.
    pub peak_memory: u64,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Context switches, voluntary or not.
    pub context_switches: u64,
    /// Exit status; none where a signal ended it.
    pub exit_code: Option<i32>,
}

/// A command and its runs, in their order: two of each block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommandRuns {
    /// Its name, or what was run.
    pub name: String,
    /// The values of parameters in it.
    pub parameters: BTreeMap<String, String>,
    /// Seconds of the first run that does not count.
    pub warmup: Option<f64>,
    /// Those that count.
    pub runs: Vec<CommandRun>,
}

impl CommandRuns {
    fn values(&self, value: impl Fn(&CommandRun) -> f64) -> Vec<f64> {
        self.runs.iter().map(value).collect()
    }

    fn times(&self) -> Vec<f64> {
        self.values(|run| run.seconds)
    }
}

/// How they were run, and what is asked of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimingSettings {
    /// The command that the others are compared with; none is the fastest.
    pub reference: Option<usize>,
    /// How runs followed each other.
    pub order: RunOrder,
    /// Share by which a time must differ to be faster or slower.
    pub threshold: f64,
    /// Seconds that starting the shell takes.
    pub shell_seconds: Option<f64>,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// Whether it was interrupted.
    pub is_partial: bool,
}

/// The times of commands, of which each was run at least once.
pub fn time_commands(commands: &[CommandRuns], settings: &TimingSettings) -> CommandTimes {
    let means: Vec<f64> = commands.iter().map(|command| mean(&command.times())).collect();
    let fastest = (0..means.len()).min_by(|&a, &b| means[a].total_cmp(&means[b])).unwrap_or(0);
    let reference = settings.reference.unwrap_or(fastest);
    // The reference may have been chosen by the same runs: the intervals hold for all pairs at once.
    let level = bonferroni_level(commands.len() * commands.len().saturating_sub(1) / 2);
    let compared_command = |(place, command): (usize, &CommandRuns)| {
        let relative = (place != reference).then(|| relative_time(&commands[reference], command, settings, level));
        TimedCommand { relative, ..timed_command(command) }
    };
    CommandTimes {
        time_format: TIME_FORMAT,
        results: commands.iter().enumerate().map(compared_command).collect(),
        reference,
        reference_is_fastest: settings.reference.is_none(),
        order: settings.order,
        threshold: settings.threshold,
        shell_seconds: settings.shell_seconds,
        seconds: settings.seconds,
        is_partial: settings.is_partial,
    }
}

/// What is known of a command by its runs alone.
fn timed_command(command: &CommandRuns) -> TimedCommand {
    let times = command.times();
    let (user_times, system_times) = (command.values(|run| run.user), command.values(|run| run.system));
    let (min, max) = ends(&times);
    let counts = |count: fn(&CommandRun) -> u64| command.runs.iter().map(count).collect();
    let mode = |cluster: &Cluster| TimeMode { center: cluster.center, share: cluster.share };
    TimedCommand {
        command: command.name.clone(),
        parameters: command.parameters.clone(),
        mean: mean(&times),
        mean_interval: mean_interval(&times),
        stddev: (times.len() > 1).then(|| variance(&times).sqrt()),
        median: median(&times),
        user: mean(&user_times),
        system: mean(&system_times),
        min,
        max,
        memory_usage_byte: counts(|run| run.peak_memory),
        minor_faults: counts(|run| run.minor_faults),
        context_switches: counts(|run| run.context_switches),
        exit_codes: command.runs.iter().map(|run| run.exit_code).collect(),
        modes: find_modes(&times).iter().map(mode).collect(),
        warmup: command.warmup,
        relative: None,
        times,
        user_times,
        system_times,
    }
}

fn ends(times: &[f64]) -> (f64, f64) {
    min_max(times.iter().copied()).unwrap_or((f64::NAN, f64::NAN))
}

/// The means of whole blocks, where they are enough for an interval: runs that follow each other are disturbed alike.
fn block_means(times: &[f64]) -> Option<Vec<f64>> {
    let blocks: Vec<f64> = times.chunks_exact(RUNS_PER_BLOCK).map(mean).collect();
    (blocks.len() >= MIN_INTERVAL_ROUNDS).then_some(blocks)
}

/// The 95 % interval of a mean.
fn mean_interval(times: &[f64]) -> Option<[f64; 2]> {
    let of_blocks = UncertainValue::mean(&block_means(times)?)?;
    let (low, high) = of_blocks.interval(CONFIDENCE_LEVEL);
    // A run of odd number counts in the mean, and in no block.
    let shift = mean(times) - of_blocks.value;
    Some([(low + shift).max(0.0), high + shift])
}

/// The time of a command over that of the reference.
fn relative_time(base: &CommandRuns, other: &CommandRuns, settings: &TimingSettings, level: f64) -> RelativeTime {
    let ratio = match settings.order {
        RunOrder::Interleaved => ratio_of_blocks(base, other),
        RunOrder::Sequential => ratio_of_means(&base.times(), &other.times()),
    };
    let estimate = match ratio {
        Some(ratio) => Estimate::new(ratio.value, ratio.interval(level)).map(f64::exp),
        None => range_of_ratios(base, other),
    };
    RelativeTime {
        ratio: estimate,
        verdict: verdict(&estimate, settings.threshold),
        difference: difference(base, other),
    }
}

/// Runs of both in the same blocks.
fn ratio_of_blocks(base: &CommandRuns, other: &CommandRuns) -> Option<UncertainValue> {
    let (base, other) = (base.times(), other.times());
    let blocks = base.chunks_exact(RUNS_PER_BLOCK).zip(other.chunks_exact(RUNS_PER_BLOCK));
    let blocks: Vec<Block> = blocks.map(|(base, other)| [base.to_vec(), other.to_vec()]).collect();
    blocked_ratio(&blocks, Some(BestValue::Lowest)).map(|ratio| ratio.ratio)
}

/// The logarithm of the ratio of means that were measured apart: the error of the logarithm of a mean is the relative one of the mean.
fn ratio_of_means(base: &[f64], other: &[f64]) -> Option<UncertainValue> {
    let logarithm = |times: &[f64]| {
        let blocks = block_means(times)?;
        let relative_variance = variance(&blocks) / blocks.len() as f64 / mean(&blocks).powi(2);
        let spread = VarianceEstimate::new(relative_variance, (blocks.len() - 1) as f64);
        Some(UncertainValue::from_variance(mean(times).ln(), spread))
    };
    Some(logarithm(other)?.minus(logarithm(base)?))
}

/// The ratio of the means, within that of the extremes, where there are too few runs for an interval.
fn range_of_ratios(base: &CommandRuns, other: &CommandRuns) -> Estimate {
    let (base, other) = (base.times(), other.times());
    let ((base_low, base_high), (other_low, other_high)) = (ends(&base), ends(&other));
    let range = (other_low / base_high, other_high / base_low);
    Estimate { is_range: true, ..Estimate::new(mean(&other) / mean(&base), range) }
}

fn verdict(ratio: &Estimate, threshold: f64) -> TimeVerdict {
    let limit = 1.0 + threshold;
    match ratio {
        ratio if ratio.is_range => TimeVerdict::NotKnown,
        ratio if ratio.low > limit => TimeVerdict::Slower,
        ratio if ratio.high < 1.0 / limit => TimeVerdict::Faster,
        ratio if ratio.low >= 1.0 / limit && ratio.high <= limit => TimeVerdict::Same,
        _ => TimeVerdict::NotKnown,
    }
}

/// What the difference of two commands is made of.
fn difference(base: &CommandRuns, other: &CommandRuns) -> TimeDifference {
    let mean_of = |command: &CommandRuns, value: fn(&CommandRun) -> f64| mean(&command.values(value));
    let difference = |value: fn(&CommandRun) -> f64| mean_of(other, value) - mean_of(base, value);
    let is_parallel = |command: &CommandRuns| {
        mean_of(command, |run| run.user + run.system) > PARALLEL_CPU_SHARE * mean_of(command, |run| run.seconds)
    };
    let has_waiting = !is_parallel(base) && !is_parallel(other);
    TimeDifference {
        time: difference(|run| run.seconds),
        user: difference(|run| run.user),
        system: difference(|run| run.system),
        waiting: has_waiting.then(|| difference(|run| run.seconds - run.user - run.system)),
    }
}

#[cfg(test)]
mod tests {
    use kelvin_stats::Random;

    use super::*;

    const THRESHOLD: f64 = 0.01;

    fn run(seconds: f64) -> CommandRun {
        let (user, system) = (0.5 * seconds, 0.25 * seconds);
        CommandRun { seconds, user, system, peak_memory: 1, minor_faults: 2, context_switches: 3, exit_code: Some(0) }
    }

    fn command(name: &str, times: impl IntoIterator<Item = f64>) -> CommandRuns {
        CommandRuns { name: name.into(), runs: times.into_iter().map(run).collect(), ..CommandRuns::default() }
    }

    fn settings(order: RunOrder) -> TimingSettings {
        let (reference, threshold, seconds) = (None, THRESHOLD, 1.0);
        TimingSettings { reference, order, threshold, shell_seconds: None, seconds, is_partial: false }
    }

    /// Times around 1 s that drift by a tenth, each times a factor, with noise of 1 %.
    fn drifting(factor: f64, runs: usize, random: &mut Random) -> Vec<f64> {
        let time = |place: usize| 1.0 + 0.1 * (place / RUNS_PER_BLOCK) as f64 / runs as f64 * 2.0;
        (0..runs).map(|place| factor * time(place) * (1.0 + 0.01 * random.normal())).collect()
    }

    #[test]
    fn moments_of_one_command_are_those_of_its_runs() {
        let times = time_commands(&[command("a", [3.0, 1.0, 2.0])], &settings(RunOrder::Interleaved));
        let a = &times.results[0];
        assert_eq!((a.mean, a.median, a.min, a.max, a.stddev), (2.0, 2.0, 1.0, 3.0, Some(1.0)));
        assert_eq!((a.user, a.system, a.mean_interval, a.relative), (1.0, 0.5, None, None));
        assert_eq!((&a.times, &a.exit_codes), (&vec![3.0, 1.0, 2.0], &vec![Some(0); 3]));
        // Four blocks with means 1, 2, 3, 4: 2.5 and t(0.975, 3) of the error of their mean, 3.182 * 0.6455.
        let blocks = [0.5, 1.5, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0];
        let times = time_commands(&[command("a", blocks)], &settings(RunOrder::Interleaved));
        let [low, high] = times.results[0].mean_interval.unwrap();
        assert!((low - 0.4457).abs() < 1e-3 && (high - 4.5543).abs() < 1e-3, "{low} {high}");
        assert_eq!(time_commands(&[command("a", [1.0])], &settings(RunOrder::Sequential)).results[0].stddev, None);
    }

    #[test]
    fn fastest_is_reference_unless_another_is_given() {
        let commands = [command("a", [2.0; 8]), command("b", [1.0; 8]), command("c", [1.005; 8])];
        let times = time_commands(&commands, &settings(RunOrder::Interleaved));
        let verdicts = |times: &CommandTimes| -> Vec<Option<TimeVerdict>> {
            times.results.iter().map(|command| command.relative.map(|relative| relative.verdict)).collect()
        };
        assert_eq!((times.reference, times.reference_is_fastest), (1, true));
        assert_eq!(verdicts(&times), [Some(TimeVerdict::Slower), None, Some(TimeVerdict::Same)]);
        let relative = times.results[0].relative.unwrap();
        assert!((relative.ratio.value - 2.0).abs() < 1e-9);
        assert_eq!(relative.difference, TimeDifference { time: 1.0, user: 0.5, system: 0.25, waiting: Some(0.25) });
        let chosen = TimingSettings { reference: Some(0), ..settings(RunOrder::Interleaved) };
        let times = time_commands(&commands, &chosen);
        assert_eq!((times.reference, times.reference_is_fastest), (0, false));
        assert_eq!(verdicts(&times), [None, Some(TimeVerdict::Faster), Some(TimeVerdict::Faster)]);
    }

    #[test]
    fn few_runs_decide_nothing() {
        let commands = [command("a", [1.0, 1.1, 1.0]), command("b", [2.0, 2.1])];
        for order in [RunOrder::Interleaved, RunOrder::Sequential] {
            let relative = time_commands(&commands, &settings(order)).results[1].relative.unwrap();
            assert_eq!(relative.verdict, TimeVerdict::NotKnown);
            assert!(relative.ratio.is_range && relative.ratio.low < relative.ratio.value, "{relative:?}");
        }
    }

    #[test]
    fn parallel_command_has_no_waiting_time() {
        let mut parallel = command("b", [1.0; 8]);
        parallel.runs.iter_mut().for_each(|run| run.user = 1.8);
        let times = time_commands(&[command("a", [0.5; 8]), parallel], &settings(RunOrder::Interleaved));
        assert_eq!(times.results[1].relative.unwrap().difference.waiting, None);
    }

    #[test]
    fn drift_is_no_difference_of_interleaved_commands() {
        let mut random = Random::new(7);
        let commands = [1.0, 1.0, 1.05].map(|factor| command("x", drifting(factor, 40, &mut random)));
        let chosen = TimingSettings { reference: Some(0), ..settings(RunOrder::Interleaved) };
        let times = time_commands(&commands, &chosen);
        let relative = |place: usize| times.results[place].relative.unwrap();
        assert_eq!([1, 2].map(|place| relative(place).verdict), [TimeVerdict::Same, TimeVerdict::Slower]);
        // One after another the same times are too uncertain for 1 %.
        let apart = time_commands(&commands, &TimingSettings { order: RunOrder::Sequential, ..chosen });
        assert_eq!(apart.results[1].relative.unwrap().verdict, TimeVerdict::NotKnown);
    }

    #[test]
    fn intervals_of_all_pairs_hold_together() {
        let mut random = Random::new(11);
        let sets = 400;
        let misses = (0..sets).filter(|_| {
            let commands: Vec<CommandRuns> = (0..4).map(|_| command("x", drifting(1.0, 20, &mut random))).collect();
            let times = time_commands(&commands, &settings(RunOrder::Interleaved));
            times.results.iter().filter_map(|command| command.relative).any(|relative| relative.ratio.low > 1.0)
        });
        // Equal commands, of which the fastest is the reference: at most 5 %, and by how far 400 sets may exceed that by chance.
        let misses = misses.count();
        assert!(misses <= 33, "{misses} of {sets}");
    }
}
