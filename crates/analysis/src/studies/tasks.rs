//! A fixed amount of work split over 1 to 2P threads, and over as many processes.

use kelvin_core::catalogue::os::{TASK_COUNT, TASKS, TASKS_EFFICIENCY, TASKS_ELAPSED, TASKS_UNACCOUNTED, TaskKind};

use crate::prelude::*;

/// Efficiency from which a split counts as efficient.
const MIN_EFFICIENCY: f64 = 0.9;
/// Share of the CPU time that matters.
const MIN_UNACCOUNTED_SHARE: f64 = 0.01;
/// What the times of tasks are held against.
const SINGLE_TASK_BASE: &str = "one task alone, just before in the same process";

/// Conclusions from the metrics `os.tasks.*`; `None` unless the run measured as many tasks as there are CPUs.
pub(crate) fn tasks(evidence: &Evidence<'_>) -> Option<Study> {
    let study = TaskRounds { evidence, cpus: usable_cpus(evidence.run)? };
    let max_tasks =
        evidence.all_cases(&TASKS_ELAPSED).iter().filter_map(|rounds| TASK_COUNT.number_in(rounds.case)).max()?;
    let kind_conclusions = |&kind: &TaskKind| {
        study
            .speed_up(kind)
            .into_iter()
            .chain(study.more_than_cpus(kind))
            .chain(study.unaccounted_time(kind))
            .collect::<Vec<_>>()
    };
    let conclusions = TaskKind::ALL.iter().flat_map(kind_conclusions).chain(study.processes_against_threads());
    let cpus = study.cpus;
    let design = format!(
        "A fixed amount of CPU work was split over 1 to {max_tasks} threads, and over as many processes, on {cpus} CPUs; elapsed, \
         user and system time of each split were measured in several rounds."
    );
    Study::new(TASKS, design, conclusions.collect())
}

/// CPUs that the run could use: those allowed, and no more than the quota.
fn usable_cpus(run: &Run) -> Option<u64> {
    let machine = &run.header.machine;
    let cpus = machine.topology.allowed.get().or(machine.topology.online.get())?.len() as u64;
    let quota =
        machine.limits.cpu_quota.get().copied().flatten().map_or(u64::MAX, |quota| (quota.floor() as u64).max(1));
    Some(cpus.min(quota))
}

struct TaskRounds<'e, 'r> {
    evidence: &'e Evidence<'r>,
    cpus: u64,
}

/// Whether more tasks than CPUs help, as certain as it is.
pub(super) fn more_tasks_sentence(case: &Case, slowdown: &Estimate, holds: Option<bool>) -> String {
    let tasks = TASK_COUNT.number_in(case).unwrap_or(0);
    let claim = format!("more {} than CPUs help: {tasks}", TaskKind::of(case).map_or("tasks", TaskKind::name));
    match holds {
        Some(true) => format!("{claim} finish {} earlier", percent(-slowdown.value)),
        Some(false) => format!("{claim} finish {} later", percent(slowdown.value)),
        None => {
            let half_width = (slowdown.high - slowdown.low) / 2.0;
            format!("{claim} differ by {} ± {}, possibly not at all", percent(slowdown.value), percent(half_width))
        }
    }
}

impl<'e, 'r> TaskRounds<'e, 'r> {
    /// The rounds of this many tasks of a kind.
    fn rounds(&self, metric: &Metric, kind: TaskKind, tasks: u64) -> Option<&'e RoundHeadlines<'r>> {
        self.evidence.rounds_at(metric, &Case::new().with_word(kind).with_number(TASK_COUNT, tasks))
    }

    /// How many times as fast as many tasks as CPUs are as one task. Each round holds them against one alone in the same process: rounds of
    /// other cases are of another moment.
    fn speed_up(&self, kind: TaskKind) -> Vec<StatedConclusion> {
        let sides = [1, self.cpus].map(|tasks| self.rounds(&TASKS_ELAPSED, kind, tasks));
        let efficiency = self.rounds(&TASKS_EFFICIENCY, kind, self.cpus);
        let ([Some(single), Some(all_cpus)], Some(efficiency), 2..) = (sides, efficiency, self.cpus) else {
            return Vec::new();
        };
        let cpus = self.cpus as f64;
        let speed = efficiency.clone().scaled(cpus);
        let Some(tested) = speed.tested_figure() else { return Vec::new() };
        let (ratio, tasks) = (tested.estimate, format!("{} {}", self.cpus, kind.name()));
        let conclude = |question, limit, margin, text| {
            let (base, other) = (all_cpus.metric_value(), single.metric_value());
            let source = Some(SINGLE_TASK_BASE.into());
            ClaimTest::median(speed.values.len(), source, tested.test(limit, margin)).conclude(
                Claim::Ratio { question, base, other, ratio, limit },
                ratio.is_above(limit),
                text,
            )
        };
        let earlier = format!("{tasks} finish the work earlier than one: {}", ratio_text(&ratio, "as fast"));
        let (min_efficiency, share) = (percent(MIN_EFFICIENCY), share_text(&ratio.divided_by(cpus)));
        let efficiency_text = format!("{tasks} use the CPUs with an efficiency of at least {min_efficiency}: {share}");
        vec![
            conclude(RatioQuestion::TasksFaster, 1.0, Some(EQUIVALENCE_MARGIN), earlier),
            conclude(RatioQuestion::TasksEfficient, MIN_EFFICIENCY * cpus, None, efficiency_text),
        ]
    }

    /// Whether more tasks than CPUs finish earlier, with the most of them.
    fn more_than_cpus(&self, kind: TaskKind) -> Option<StatedConclusion> {
        let base = self.rounds(&TASKS_ELAPSED, kind, self.cpus)?;
        let counts =
            self.evidence.all_cases(&TASKS_ELAPSED).iter().filter(|rounds| TaskKind::of(rounds.case) == Some(kind));
        let other = counts.max_by_key(|rounds| TASK_COUNT.number_in(rounds.case))?;
        if TASK_COUNT.number_in(other.case)? <= self.cpus {
            return None;
        }
        let tested = ratio_of_rounds(base, other)?;
        let slowdown = tested.estimate.map(|ratio| ratio - 1.0);
        let holds = slowdown.is_below(0.0);
        let test = ClaimTest::ratio_of_medians([other, base], None, tested.test(1.0, Some(EQUIVALENCE_MARGIN)));
        let claim = Claim::MoreTasksThanCpus { base: base.metric_value(), other: other.metric_value(), slowdown };
        Some(test.conclude(claim, holds, more_tasks_sentence(other.case, &slowdown, holds)))
    }

    fn processes_against_threads(&self) -> Option<StatedConclusion> {
        let [threads, processes] =
            [TaskKind::Threads, TaskKind::Processes].map(|kind| self.rounds(&TASKS_ELAPSED, kind, self.cpus));
        let answer = RatioTest::above(RatioQuestion::ProcessesAgainstThreads, 1.0).test(threads?, processes?)?;
        let (processes, threads) = match self.cpus {
            1 => ("1 process takes".to_owned(), "1 thread".to_owned()),
            tasks => (format!("{tasks} processes take"), format!("{tasks} threads")),
        };
        let times = ratio_text(&answer.ratio, &format!("as long as {threads}"));
        let text = format!("threads and processes differ: {processes} {times}: {}", answer.amounts());
        let mut conclusion = answer.conclude(text);
        // Shorter is different too.
        conclusion.conclusion.holds = conclusion.holds.map(|_| true);
        Some(conclusion)
    }

    /// The share of the machine's CPU time, with as many tasks as CPUs, missing from user and system time.
    fn unaccounted_time(&self, kind: TaskKind) -> Option<StatedConclusion> {
        let elapsed = self.rounds(&TASKS_ELAPSED, kind, self.cpus).filter(|elapsed| elapsed.are_positive())?;
        let unaccounted = self.rounds(&TASKS_UNACCOUNTED, kind, self.cpus)?;
        let (cpus, limit) = (self.cpus as f64, MIN_UNACCOUNTED_SHARE);
        let shares = &unaccounted.combine(elapsed, |gap, time| gap / (time * cpus));
        let (question, side) = (ShareQuestion::UnaccountedTime, Estimate::is_above);
        ShareTest { question, figure: unaccounted.metric_value(), shares, side, limit }.conclude(|figure, share| {
            let (share, amount, limit) = (share_text(share), amount_text(figure), percent(limit));
            format!(
                "with {} {}, more than {limit} of the machine's CPU time is neither user nor system time of the work (waiting, steal, other \
                 processes): {share}, {amount} per round",
                self.cpus,
                kind.name()
            )
        })
    }
}
