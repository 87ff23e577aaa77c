//! The time of a run: whether it yields or its cases do, which of them fit, and what is reported before the run starts.

use std::collections::BTreeMap;
use std::time::Duration;

use kelvin_core::units::seconds;
use kelvin_harness::{BudgetLimit, Effort, Plan};
use serde::Serialize;

use crate::cli::{Budget, RunOptions};
use crate::cli_error::CliError;
use crate::costs::Costs;
use crate::output;

/// The part of a run's time for the causes of its largest gaps.
pub const GAPS_BUDGET_SHARE: f64 = 0.1;
/// Less time than this is not spent on causes.
pub const MIN_EXPLAIN_TIME: Duration = Duration::from_secs(1);
/// Reading the machine and calibrating the clock take about this long before the first round.
pub const STARTUP_TIME: Duration = Duration::from_millis(300);
/// Analysis, table and page take this long after the last round, and so much longer for each case.
const REPORT_TIME: Duration = Duration::from_millis(60);
const REPORT_TIME_PER_CASE: Duration = Duration::from_millis(1);

/// The most that a run or a study takes with `--quick`, if no budget is given.
pub const MAX_QUICK_TIME: Duration = Duration::from_secs(120);

/// The most that a default run takes on a machine of many CPUs, if no budget is given: what grows with CPUs and nodes must not grow without
/// end.
const MAX_DEFAULT_TIME: Duration = Duration::from_secs(240);
/// A time that nobody asked for grows at most to this many times the usual, or what is expected if that is more. A CPU that ten programs
/// share is still measured; but a command ends, however busy the machine is.
const MAX_TIME_GROWTH: f64 = 10.0;
/// Seconds that are usual for the shortest command: most of them are its start, which grows on a busy machine too.
const MIN_USUAL_SECONDS: f64 = 10.0;
/// A time that was asked for is kept within a twentieth.
pub const MAX_BUDGET_FACTOR: f64 = 1.05;

/// The most that a command takes that has this budget, usually takes `usual` seconds, and is expected to need `needed`.
pub fn time_bound(budget: Budget, usual: f64, needed: f64) -> Duration {
    match budget {
        Budget::Fixed(time) => time.mul_f64(MAX_BUDGET_FACTOR),
        Budget::Default | Budget::MinimumRounds => {
            let usual = usual.max(needed).max(MIN_USUAL_SECONDS);
            Duration::try_from_secs_f64(MAX_TIME_GROWTH * usual).unwrap_or(Duration::MAX)
        }
    }
}

/// From this many CPUs on there are cases that grow with them.
const MIN_MANY_CPUS: usize = 3;

/// Blocks of a run of everything: cpu and os together, mem, file, and net.
const FULL_RUN_BLOCKS: usize = 4;

/// The defaults of a command where its flags give none.
#[derive(Clone, Copy, Debug)]
pub struct RunDefaults {
    /// `quick`, `default`, `thorough`, `study`, `selfcheck`, `watch`.
    pub mode: &'static str,
    /// Seconds of the run, which grow until all cases fit.
    pub seconds: f64,
    /// The time to which they grow at most: what does not fit is left out.
    pub max_time: Option<Duration>,
    /// Minimum of rounds.
    pub rounds: u32,
    /// Part of the time for trying the causes of its largest gaps.
    pub causes_share: f64,
}

impl RunDefaults {
    /// Those of an effort on this many CPUs. A run of everything gets more than its blocks would alone, since its passes last longer and
    /// each is one round.
    pub fn of_effort(effort: Effort, blocks: usize, cpus: usize) -> Self {
        let full_run_extra = |seconds: f64| if blocks >= FULL_RUN_BLOCKS { seconds } else { 0.0 };
        let (mode, seconds, rounds) = match effort {
            Effort::Quick => ("quick", 10.0 * blocks as f64 + full_run_extra(5.0), 5),
            Effort::Default => ("default", 30.0 * blocks as f64 + full_run_extra(30.0), 8),
            Effort::Thorough => ("thorough", 300.0 * blocks as f64, 20),
        };
        let max_default_time = (cpus >= MIN_MANY_CPUS).then(|| MAX_DEFAULT_TIME.max(Duration::from_secs_f64(seconds)));
        let (max_time, causes_share) = match effort {
            Effort::Quick => (Some(MAX_QUICK_TIME), 0.0),
            Effort::Default => (max_default_time, GAPS_BUDGET_SHARE),
            Effort::Thorough => (None, GAPS_BUDGET_SHARE),
        };
        Self { mode, seconds, max_time, rounds, causes_share }
    }

    /// Those without a largest time and without causes.
    pub const fn new(mode: &'static str, seconds: f64, rounds: u32) -> Self {
        Self { mode, seconds, max_time: None, rounds, causes_share: 0.0 }
    }
}

/// What a run would measure.
#[derive(Debug, Serialize)]
pub struct RunForecast<'a> {
    /// How many cases.
    pub cases: usize,
    /// Seconds of the whole run.
    pub seconds: f64,
    /// The cases that do not fit into them, in words.
    pub omitted: &'a [String],
}

/// The cases of a run, and its time.
pub struct RunSchedule {
    /// The cases that fit.
    pub cases: Plan,
    /// The mode of the run.
    pub mode: &'static str,
    /// Minimum of rounds of each case.
    pub rounds: u32,
    /// Seconds of the whole run.
    pub seconds: f64,
    /// What yields where they are too few.
    pub limit: BudgetLimit,
    /// The part of them for trying the causes of gaps.
    pub causes_time: Duration,
    /// The cases that do not fit, in words.
    omitted_cases: Vec<String>,
    /// The usual time, if it is too short here.
    exceeded_default: Option<f64>,
    /// Where the expected time comes from, in words.
    source: &'static str,
    /// Seconds that all of it needs where nothing else runs, of a run that may take longer.
    needed: Option<f64>,
}

impl RunSchedule {
    /// The cases that fit into the time that was asked for. Without one, the usual time grows until all fit, before the run and in it, or
    /// to the largest that the command allows.
    ///
    /// # Errors
    /// If nothing fits.
    pub fn fit(cases: Plan, options: &RunOptions, defaults: &RunDefaults, costs: &Costs) -> Result<Self, CliError> {
        let full_plan = cases.with_expected_costs(|probe, case| costs.expected_cost(probe, case));
        let rounds = options.rounds.unwrap_or(defaults.rounds);
        let needed = (STARTUP_TIME + full_plan.expected_duration(rounds) + report_time(&full_plan)).as_secs_f64();
        let mut schedule =
            Self { source: costs.source(&full_plan), ..Self::unlimited(full_plan, defaults.mode, rounds) };
        let max_time = match options.budget {
            Budget::Fixed(time) => Some(time),
            Budget::Default => defaults.max_time.filter(|limit| needed > limit.as_secs_f64()),
            Budget::MinimumRounds => None,
        };
        if let Some(time) = max_time {
            schedule.seconds = time.as_secs_f64();
            schedule.limit = BudgetLimit::Fixed;
            let max_causes_time = time.mul_f64(defaults.causes_share);
            let mut time = time.saturating_sub(STARTUP_TIME + report_time(&schedule.cases));
            // Of a time that nobody asked for, causes get what the cases leave.
            if options.budget != Budget::Default {
                schedule.causes_time = usable_cause_time(max_causes_time);
                time = time.saturating_sub(schedule.causes_time);
            }
            let fitting = schedule.cases.clone().fit_to_budget(time, rounds);
            if fitting.units.is_empty() && !schedule.cases.units.is_empty() {
                bail!(
                    "{} {}: {rounds} rounds of no case fit; all take about {}",
                    if options.budget == Budget::Default { "at most" } else { "--budget" },
                    seconds(schedule.seconds),
                    seconds(schedule.cases.expected_duration(rounds).as_secs_f64())
                );
            }
            if options.budget == Budget::Default {
                let remaining = time.saturating_sub(fitting.expected_duration(rounds));
                schedule.causes_time = usable_cause_time(max_causes_time.min(remaining));
            }
            schedule.omitted_cases = omitted_names(&schedule.cases, &fitting);
            schedule.cases = fitting;
            return Ok(schedule);
        }
        schedule.needed = Some(needed);
        schedule.seconds = needed;
        let time_bound = time_bound(options.budget, defaults.seconds, needed);
        let max_time = defaults.max_time.filter(|_| options.budget == Budget::Default);
        schedule.limit = BudgetLimit::ExtendableTo(max_time.unwrap_or(time_bound));
        if options.budget == Budget::Default {
            schedule.seconds = needed.max(defaults.seconds);
            schedule.exceeded_default = Some(defaults.seconds).filter(|&default| needed > default);
        }
        // Rounds come first.
        let causes = (defaults.causes_share * schedule.seconds).min(schedule.seconds - needed);
        schedule.causes_time = usable_cause_time(Duration::from_secs_f64(causes));
        Ok(schedule)
    }

    /// Cases whose rounds are made in another way than by a schedule.
    pub fn unlimited(cases: Plan, mode: &'static str, rounds: u32) -> Self {
        Self {
            cases,
            mode,
            rounds,
            seconds: 0.0,
            limit: BudgetLimit::Fixed,
            causes_time: Duration::ZERO,
            omitted_cases: Vec::new(),
            exceeded_default: None,
            source: "",
            needed: None,
        }
    }

    /// What is kept of the time for what comes after the last round.
    pub fn reserve(&self) -> Duration {
        report_time(&self.cases) + self.causes_time
    }

    /// What it measures and how long that takes, which `--dry-run` prints.
    pub fn forecast(&self) -> RunForecast<'_> {
        RunForecast { cases: self.cases.units.len(), seconds: self.seconds, omitted: &self.omitted_cases }
    }

    /// Reports before the run what it measures and what it omits.
    pub fn announce(&self, destination: &str) {
        notice!("{}; {destination}", self.summary());
        let time = seconds(self.seconds);
        let head = format_args!("kelvin: {time} is too short for these, which matter less and are left out:");
        output::eprint_names(head, &self.omitted_cases);
    }

    /// How many cases it measures in which time, by what.
    pub fn summary(&self) -> String {
        let (cases, time) = (self.cases.units.len(), seconds(self.seconds));
        let excess_text = self
            .exceeded_default
            .map_or_else(String::new, |default| format!(", more than the usual {}", seconds(default)));
        let load_time =
            self.needed.and_then(|needed| time_under_load(needed, self.seconds, &runnable_threads_per_cpu()));
        let load_text = load_time.map_or_else(String::new, |time| {
            format!(", or about {} if the other work that runs here now continues", seconds(time))
        });
        format!("{cases} cases in about {time}{excess_text}{load_text}, {}", self.source)
    }
}

/// The time between the last round and the end of a run.
fn report_time(cases: &Plan) -> Duration {
    REPORT_TIME + REPORT_TIME_PER_CASE * cases.units.len() as u32
}

/// Looks at what else runs, and the time between them.
const LOAD_SAMPLES: u32 = 4;
const LOAD_SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Runnable threads per CPU, one value per sample; empty where they cannot be read.
fn runnable_threads_per_cpu() -> Vec<f64> {
    let cpus = kelvin_sys::cpu::affinity().map_or(1, |cpus| cpus.len().max(1)) as f64;
    let sample = |index: u32| {
        if index > 0 {
            std::thread::sleep(LOAD_SAMPLE_INTERVAL);
        }
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        // The one that reads it is among them.
        Some(f64::from(parse_runnable_threads(&text)?.saturating_sub(1)) / cpus)
    };
    (0..LOAD_SAMPLES).filter_map(sample).collect()
}

/// How many threads are runnable: `1.20 1.10 1.00 3/212 4711`.
fn parse_runnable_threads(loadavg: &str) -> Option<u32> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// How long a run takes next to this many other threads of each CPU, each of which gets as much time as its own; `None` where that is not
/// longer than its budget.
fn time_under_load(needed: f64, budget: f64, other_threads: &[f64]) -> Option<f64> {
    let min_other_threads = other_threads.iter().copied().fold(f64::INFINITY, f64::min);
    let time = needed * (1.0 + min_other_threads);
    (min_other_threads.is_finite() && time > budget).then_some(time)
}

/// The time for trying causes, if it is worth beginning.
fn usable_cause_time(time: Duration) -> Duration {
    if time < MIN_EXPLAIN_TIME { Duration::ZERO } else { time }
}

/// The cases of one plan that another lacks, in words: the beginning of the ids of probes that all are lost, or a probe and how many of
/// its cases.
pub fn omitted_names(planned: &Plan, fitting: &Plan) -> Vec<String> {
    let [planned, fitting] = [planned, fitting].map(cases_by_probe);
    let lost_count = |id: &str| planned[id] - fitting.get(id).copied().unwrap_or(0);
    let mut names: Vec<String> = Vec::new();
    for (&id, &cases) in planned.iter().filter(|&(id, _)| lost_count(id) > 0) {
        let ends = id.match_indices('.').map(|(end, _)| &id[..=end]);
        let is_lost = |prefix: &&str| {
            let mut probes = planned.keys().filter(|probe| probe.starts_with(prefix));
            probes.clone().count() > 1 && probes.all(|probe| !fitting.contains_key(probe))
        };
        let name = match ends.clone().find(is_lost) {
            Some(prefix) => prefix.trim_end_matches('.').to_owned(),
            None if lost_count(id) == cases => id.to_owned(),
            None => format!("{id} ({} of {cases} cases)", lost_count(id)),
        };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

/// How many cases of each probe are asked for.
fn cases_by_probe(plan: &Plan) -> BTreeMap<&'static str, usize> {
    let mut cases = BTreeMap::new();
    plan.units.iter().filter(|unit| !unit.only_input).for_each(|unit| *cases.entry(unit.probe.id).or_default() += 1);
    cases
}

#[cfg(test)]
mod tests {
    use kelvin_core::Case;
    use kelvin_harness::PlanUnit;

    use super::*;

    fn plan(cases: &[(&str, u64)]) -> Plan {
        let probe = |id: &str| kelvin_probes::all().into_iter().find(|probe| probe.id == id).unwrap();
        let unit = |&(id, n): &(&str, u64)| PlanUnit::new(probe(id), Case::new().with_number("n", n));
        Plan { units: cases.iter().map(unit).collect(), omissions: Vec::new() }
    }

    #[test]
    fn runnable_threads_lengthen_the_expected_time() {
        assert_eq!(parse_runnable_threads("2.40 1.10 1.00 3/212 4711\n"), Some(3));
        assert_eq!(parse_runnable_threads("2.40 1.10"), None);
        // The least that was seen: what comes and goes makes no run twice as long.
        assert_eq!(time_under_load(40.0, 45.0, &[1.0, 0.5, 2.0]), Some(60.0));
        assert_eq!(time_under_load(40.0, 45.0, &[1.0, 0.0]), None);
        assert_eq!(time_under_load(10.0, 45.0, &[1.0, 1.0]), None, "there is time for it");
        assert_eq!(time_under_load(10.0, 5.0, &[]), None);
    }

    #[test]
    fn omitted_cases_are_named_by_area() {
        let cases = [
            ("cpu.loop", 1),
            ("cpu.latency", 1),
            ("mem.latency", 1),
            ("mem.latency", 2),
            ("mem.tlb", 1),
            ("net.connect", 1),
        ];
        let fitting = [("mem.latency", 2)];
        assert_eq!(
            omitted_names(&plan(&cases), &plan(&fitting)),
            ["cpu", "mem.latency (1 of 2 cases)", "mem.tlb", "net.connect"]
        );
        assert!(omitted_names(&plan(&cases), &plan(&cases)).is_empty());
    }
}
