//! In which order commands are run, and until when.

use kelvin_analysis::{CommandRun, CommandRuns, TimingSettings, time_commands};
use kelvin_core::{CommandTimes, Estimate, RunOrder};
use kelvin_harness::EarlyEnd;
use kelvin_stats::Random;

use crate::cli_error::CliError;
use crate::progress::StatusLine;

/// Commands that can be run.
pub trait TimedCommands {
    /// How many there are.
    fn count(&self) -> usize;
    /// Does what comes before the first run of one; returns what ended it.
    ///
    /// # Errors
    /// What makes the whole impossible.
    fn set_up(&mut self, command: usize) -> Result<Option<EarlyEnd>, CliError>;
    /// Runs one once.
    ///
    /// # Errors
    /// As of `set_up`.
    fn run(&mut self, command: usize) -> Result<Result<CommandRun, EarlyEnd>, CliError>;
    /// Does what comes after the last run of one.
    ///
    /// # Errors
    /// As of `set_up`.
    fn clean_up(&mut self, command: usize) -> Result<Option<EarlyEnd>, CliError>;
    /// Seconds since the call of the program.
    fn elapsed(&self) -> f64;
}

/// When it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimingLimits {
    /// Runs of each command that do not count.
    pub warmup: u32,
    /// Runs of each command at least, while a budget allows them.
    pub min_runs: u32,
    /// Runs of each command at most.
    pub max_runs: Option<u32>,
    /// Seconds of all of it, beyond the minimum of runs.
    pub seconds: f64,
    /// Whether nothing may exceed these seconds.
    pub has_budget: bool,
    /// The precision of means and ratios at which it ends before, as a share.
    pub precision: Option<f64>,
    /// Share by which a time must differ to be longer or shorter.
    pub threshold: f64,
    /// Seed of the orders.
    pub seed: u64,
}

/// What was measured of each command: the time of its first warm-up run, and the runs that count.
#[derive(Debug, Default)]
pub struct MeasuredRuns {
    /// The commands.
    pub commands: Vec<(Option<f64>, Vec<CommandRun>)>,
    /// Whether it was interrupted.
    pub is_partial: bool,
}

/// Runs the commands in this order.
///
/// # Errors
/// What makes it impossible; an end before each command was run once.
pub fn run_commands(
    commands: &mut dyn TimedCommands,
    order: RunOrder,
    limits: &TimingLimits,
) -> Result<MeasuredRuns, CliError> {
    let mut schedule =
        Schedule { limits: *limits, random: Random::new(limits.seed ^ 0x7469_6d65), line: StatusLine::new() };
    let all: Vec<usize> = (0..commands.count()).collect();
    let (runs, end) = match order {
        RunOrder::Interleaved => schedule.run_group(commands, &all, limits.seconds)?,
        RunOrder::Sequential => schedule.run_in_sequence(commands, &all)?,
    };
    let is_partial = end == Some(EarlyEnd::Interrupted);
    match runs.iter().any(|(_, runs)| runs.is_empty()) {
        true if is_partial => bail!("interrupted before each command was run once"),
        true => bail!("--budget: one run of each command takes longer: give a longer one, or none"),
        false => Ok(MeasuredRuns { commands: runs, is_partial }),
    }
}

type GroupRuns = Vec<(Option<f64>, Vec<CommandRun>)>;

struct Schedule {
    limits: TimingLimits,
    random: Random,
    line: StatusLine,
}

impl Schedule {
    /// Each command by itself, with its part of the time.
    fn run_in_sequence(
        &mut self,
        commands: &mut dyn TimedCommands,
        all: &[usize],
    ) -> Result<(GroupRuns, Option<EarlyEnd>), CliError> {
        let mut results = GroupRuns::new();
        for (place, &command) in all.iter().enumerate() {
            let remaining = (self.limits.seconds - commands.elapsed()).max(0.0);
            let part_end = commands.elapsed() + remaining / (all.len() - place) as f64;
            let (mut runs, end) = self.run_group(commands, &[command], part_end)?;
            results.append(&mut runs);
            if end == Some(EarlyEnd::Interrupted) {
                results.resize(all.len(), (None, Vec::new()));
                return Ok((results, end));
            }
        }
        Ok((results, None))
    }

    /// Some commands, interleaved, until these seconds.
    fn run_group(
        &mut self,
        commands: &mut dyn TimedCommands,
        group: &[usize],
        seconds: f64,
    ) -> Result<(GroupRuns, Option<EarlyEnd>), CliError> {
        let mut runs: GroupRuns = vec![(None, Vec::new()); group.len()];
        let mut end = None;
        for &command in group {
            end = end.or(commands.set_up(command)?);
        }
        end = match end {
            None => self.warm_up(commands, group, &mut runs)?,
            some => some,
        };
        let mut order: Vec<usize> = (0..group.len()).collect();
        while end.is_none() && !self.is_finished(commands, &runs, seconds) {
            // Each block is an order and its reverse: what drifts slowly touches all alike.
            if runs[0].1.len().is_multiple_of(2) {
                self.random.shuffle(&mut order)
            } else {
                order.reverse()
            }
            end = self.run_once_each(commands, group, &order, (&mut runs, seconds))?;
        }
        for &command in group {
            end = end.or(commands.clean_up(command)?);
        }
        Ok((runs, end))
    }

    fn warm_up(
        &self,
        commands: &mut dyn TimedCommands,
        group: &[usize],
        runs: &mut GroupRuns,
    ) -> Result<Option<EarlyEnd>, CliError> {
        for _ in 0..self.limits.warmup {
            for (&command, (warmup, _)) in group.iter().zip(runs.iter_mut()) {
                self.line.show(format_args!("warm-up, {:.0} s", commands.elapsed()));
                match commands.run(command)? {
                    Ok(run) => *warmup = warmup.or(Some(run.seconds)),
                    Err(end) => return Ok(Some(end)),
                }
            }
        }
        Ok(None)
    }

    /// One run of each; if it ends early, none of them counts, unless there would be no runs at all.
    fn run_once_each(
        &self,
        commands: &mut dyn TimedCommands,
        group: &[usize],
        order: &[usize],
        (runs, seconds): (&mut GroupRuns, f64),
    ) -> Result<Option<EarlyEnd>, CliError> {
        let mut turn = vec![None; group.len()];
        for &place in order {
            self.line.show(format_args!("run {}, {:.0} s", runs[place].1.len() + 1, commands.elapsed()));
            let expected = runs[place].1.last().map_or(0.0, |run: &CommandRun| run.seconds);
            if self.limits.has_budget && commands.elapsed() + expected > seconds {
                return Ok(Some(EarlyEnd::TimedOut));
            }
            match commands.run(group[place])? {
                Ok(run) => turn[place] = Some(run),
                Err(end) => return Ok(Some(end)),
            }
        }
        runs.iter_mut().zip(turn).for_each(|((_, runs), run)| runs.extend(run));
        Ok(None)
    }

    /// Whether there are enough runs of each: precision is looked at after 8, 16, 32 and so on, since looking often finds it by chance.
    fn is_finished(&self, commands: &dyn TimedCommands, runs: &GroupRuns, seconds: f64) -> bool {
        let limits = &self.limits;
        let count = runs[0].1.len();
        if limits.max_runs.is_some_and(|max| count >= max as usize) {
            return true;
        }
        if count < limits.min_runs as usize {
            return false;
        }
        let is_over = commands.elapsed() >= seconds;
        let is_precise = |precision| count.is_power_of_two() && are_known_within(&self.summary(runs), precision);
        count.is_multiple_of(2) && (is_over || limits.precision.is_some_and(is_precise))
    }

    fn summary(&self, runs: &GroupRuns) -> CommandTimes {
        let command = |(warmup, runs): &(Option<f64>, Vec<CommandRun>)| CommandRuns {
            warmup: *warmup,
            runs: runs.clone(),
            ..CommandRuns::default()
        };
        let (order, threshold) = (RunOrder::Interleaved, self.limits.threshold);
        let settings =
            TimingSettings { reference: None, order, threshold, shell_seconds: None, seconds: 0.0, is_partial: false };
        time_commands(&runs.iter().map(command).collect::<Vec<_>>(), &settings)
    }
}

/// Whether every mean and every ratio is known to within a share.
fn are_known_within(times: &CommandTimes, share: f64) -> bool {
    times.results.iter().all(|command| {
        let mean = command.mean_interval.map(|[low, high]| Estimate::new(command.mean, (low, high)));
        let is_ratio_known = command.relative.is_none_or(|relative| relative.ratio.is_known_within(share));
        is_ratio_known && mean.is_some_and(|mean| mean.is_known_within(share))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands whose times are known, and what was asked of them.
    struct ScriptedCommands {
        seconds: Vec<f64>,
        random: Random,
        noise: f64,
        now: f64,
        calls: Vec<String>,
        /// The run that is interrupted.
        interrupted: Option<usize>,
    }

    impl ScriptedCommands {
        fn new(seconds: &[f64]) -> Self {
            let (random, noise) = (Random::new(3), 0.0);
            Self { seconds: seconds.to_vec(), random, noise, now: 0.0, calls: Vec::new(), interrupted: None }
        }

        fn order(&self) -> String {
            self.calls.concat()
        }
    }

    impl TimedCommands for ScriptedCommands {
        fn count(&self) -> usize {
            self.seconds.len()
        }

        fn set_up(&mut self, command: usize) -> Result<Option<EarlyEnd>, CliError> {
            self.calls.push(format!("<{command}"));
            Ok(None)
        }

        fn run(&mut self, command: usize) -> Result<Result<CommandRun, EarlyEnd>, CliError> {
            if self.interrupted == Some(self.calls.len()) {
                return Ok(Err(EarlyEnd::Interrupted));
            }
            self.calls.push(command.to_string());
            let seconds = self.seconds[command] * (1.0 + self.noise * self.random.normal());
            self.now += seconds;
            let (user, system, exit_code) = (0.0, 0.0, Some(0));
            let counts = (0, 0, 0);
            let (peak_memory, minor_faults, context_switches) = counts;
            Ok(Ok(CommandRun { seconds, user, system, peak_memory, minor_faults, context_switches, exit_code }))
        }

        fn clean_up(&mut self, command: usize) -> Result<Option<EarlyEnd>, CliError> {
            self.calls.push(format!("{command}>"));
            Ok(None)
        }

        fn elapsed(&self) -> f64 {
            self.now
        }
    }

    fn limits(min_runs: u32, max_runs: Option<u32>, seconds: f64) -> TimingLimits {
        let (warmup, has_budget, precision, threshold, seed) = (1, false, None, 0.01, 1);
        TimingLimits { warmup, min_runs, max_runs, seconds, has_budget, precision, threshold, seed }
    }

    fn run_counts(runs: &MeasuredRuns) -> Vec<usize> {
        runs.commands.iter().map(|(_, runs)| runs.len()).collect()
    }

    #[test]
    fn blocks_are_an_order_and_its_reverse() {
        let mut commands = ScriptedCommands::new(&[1.0, 2.0, 3.0]);
        let runs = run_commands(&mut commands, RunOrder::Interleaved, &limits(4, None, 0.0)).unwrap();
        assert_eq!(run_counts(&runs), [4; 3]);
        assert_eq!(runs.commands.iter().map(|(warmup, _)| *warmup).collect::<Vec<_>>(), [1.0, 2.0, 3.0].map(Some));
        let order = commands.order();
        let order = order.strip_prefix("<0<1<2012").unwrap().strip_suffix("0>1>2>").unwrap();
        let reversed = |text: &str| text.chars().rev().collect::<String>();
        assert_eq!((&order[3..6], &order[9..12]), (&reversed(&order[..3])[..], &reversed(&order[6..9])[..]));
    }

    #[test]
    fn sequence_sets_up_each_command_before_its_runs() {
        let mut commands = ScriptedCommands::new(&[1.0, 1.0]);
        let runs = run_commands(&mut commands, RunOrder::Sequential, &limits(2, None, 0.0)).unwrap();
        assert_eq!((run_counts(&runs), commands.order().as_str()), (vec![2, 2], "<00000><11111>"));
    }

    #[test]
    fn ends_by_runs_time_or_precision() {
        let count = |seconds: &[f64], limits: &TimingLimits, noise: f64| {
            let mut commands = ScriptedCommands { noise, ..ScriptedCommands::new(seconds) };
            run_counts(&run_commands(&mut commands, RunOrder::Interleaved, limits).unwrap())
        };
        assert_eq!(count(&[1.0], &limits(10, None, 3.0), 0.0), [10]);
        assert_eq!(count(&[0.01, 0.01], &limits(10, None, 6.0), 0.0), [300, 300]);
        assert_eq!(count(&[0.01], &limits(10, Some(25), 3.0), 0.0), [25]);
        assert_eq!(count(&[9.0], &limits(7, Some(7), 0.0), 0.0), [7]);
        let precise = TimingLimits { precision: Some(0.01), ..limits(10, None, 600.0) };
        assert_eq!(count(&[0.01, 0.02], &precise, 0.001), [16, 16]);
        let runs = count(&[0.01, 0.02], &precise, 0.1)[0];
        assert!(runs > 256, "{runs}");
    }

    #[test]
    fn budget_is_kept_and_needs_one_run_each() {
        let budget = |seconds| TimingLimits { has_budget: true, ..limits(10, None, seconds) };
        let mut commands = ScriptedCommands::new(&[1.0, 1.0]);
        let runs = run_commands(&mut commands, RunOrder::Interleaved, &budget(9.5)).unwrap();
        assert_eq!((run_counts(&runs), runs.is_partial), (vec![3, 3], false));
        assert!(commands.now <= 9.5);
        let mut commands = ScriptedCommands::new(&[1.0, 4.0]);
        let error = run_commands(&mut commands, RunOrder::Interleaved, &budget(3.0)).unwrap_err();
        assert!(error.to_string().contains("--budget"), "{error}");
        let mut commands = ScriptedCommands::new(&[1.0, 1.0]);
        let runs = run_commands(&mut commands, RunOrder::Sequential, &budget(20.0)).unwrap();
        assert!(run_counts(&runs).iter().all(|&count| count >= 8) && commands.now <= 20.0, "{runs:?}");
    }

    #[test]
    fn interruption_keeps_whole_turns_or_fails() {
        let interrupted_at = |call| {
            let mut commands = ScriptedCommands { interrupted: Some(call), ..ScriptedCommands::new(&[1.0, 1.0]) };
            run_commands(&mut commands, RunOrder::Interleaved, &limits(10, None, 0.0))
        };
        // Two set-ups, two warm-ups, then turns of two.
        let runs = interrupted_at(2 + 2 + 3).unwrap();
        assert_eq!((run_counts(&runs), runs.is_partial), (vec![1, 1], true));
        assert!(interrupted_at(2 + 2 + 1).unwrap_err().to_string().contains("before each command was run once"));
    }
}
