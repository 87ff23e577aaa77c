//! A fixed amount of work split over 1 to 2P threads, and over as many processes.

use kelvin_core::catalogue::os::{TASK_COUNT, TASKS, TASKS_EFFICIENCY, TASKS_ELAPSED, TASKS_UNACCOUNTED, TaskKind};
use kelvin_core::{Case, Claim, Conclusion, Estimate, RatioQuestion, Run, ShareQuestion, TestEvidence};

use crate::evidence::{
    EQUIVALENCE_MARGIN, Evidence, LimitSide, RatioTest, RoundHeadlines, ratio_of_rounds, share_conclusion,
};
use crate::result::Study;

/// Efficiency from which a split counts as efficient.
const MIN_EFFICIENCY: f64 = 0.9;
/// Share of the CPU time that matters.
const MIN_UNACCOUNTED_SHARE: f64 = 0.01;
/// What the times of tasks are held against.
const SINGLE_TASK_BASE: &str = "one task alone, just before in the same process";

/// Conclusions from the metrics `os.tasks.*`; `None` unless the run measured as many tasks as there are CPUs.
pub(crate) fn tasks(evidence: &Evidence<'_>) -> Option<Study> {
    let study = TaskRounds {
        elapsed: evidence.all_cases(&TASKS_ELAPSED),
        efficiency: evidence.all_cases(&TASKS_EFFICIENCY),
        unaccounted: evidence.all_cases(&TASKS_UNACCOUNTED),
        cpus: usable_cpus(evidence.run)?,
    };
    let most = study.elapsed.iter().filter_map(|rounds| TASK_COUNT.number_in(rounds.case)).max()?;
    let of_kind = |&kind: &TaskKind| {
        study
            .speed_up(kind)
            .into_iter()
            .chain(study.more_than_cpus(kind))
            .chain(study.unaccounted_time(kind))
            .collect::<Vec<_>>()
    };
    let conclusions = TaskKind::ALL.iter().flat_map(of_kind).chain(study.processes_against_threads());
    let cpus = study.cpus;
    let design = format!(
        "A fixed amount of CPU work was split over 1 to {most} threads, and over as many processes, on {cpus} CPUs; elapsed, \
         user and system time of each split were measured in several rounds."
    );
    Study::new(TASKS, design, conclusions.collect())
}

/// CPUs that the run could use: those allowed, and no more than the quota.
fn usable_cpus(run: &Run) -> Option<u64> {
    let machine = &run.outline.machine;
    let allowed = machine.topology.allowed.get().or(machine.topology.online.get())?.len() as u64;
    let quota =
        machine.limits.cpu_quota.get().copied().flatten().map_or(u64::MAX, |quota| (quota.floor() as u64).max(1));
    Some(allowed.min(quota))
}

struct TaskRounds<'r> {
    elapsed: Vec<RoundHeadlines<'r>>,
    efficiency: Vec<RoundHeadlines<'r>>,
    unaccounted: Vec<RoundHeadlines<'r>>,
    cpus: u64,
}

/// The rounds of this many tasks of a kind.
fn rounds_of_tasks<'a, 'r>(
    all: &'a [RoundHeadlines<'r>],
    kind: TaskKind,
    tasks: u64,
) -> Option<&'a RoundHeadlines<'r>> {
    let case = Case::new().with_word(kind).with_number(TASK_COUNT, tasks);
    all.iter().find(|rounds| *rounds.case == case)
}

impl TaskRounds<'_> {
    /// How many times as fast as many tasks as CPUs are as one task. Each round holds them against one alone in the same process: rounds of
    /// other cases are of another moment.
    fn speed_up(&self, kind: TaskKind) -> Vec<Conclusion> {
        let sides = [1, self.cpus].map(|tasks| rounds_of_tasks(&self.elapsed, kind, tasks));
        let efficiency = rounds_of_tasks(&self.efficiency, kind, self.cpus);
        let ([Some(one), Some(all)], Some(efficiency), 2..) = (sides, efficiency, self.cpus) else { return Vec::new() };
        let faster = efficiency.clone().scaled(self.cpus as f64);
        let Some(weighed) = faster.tested_figure() else { return Vec::new() };
        let judged = |(question, limit, same): (RatioQuestion, f64, Option<f64>)| {
            let (base, other, ratio) = (all.metric_value(), one.metric_value(), weighed.estimate);
            Conclusion {
                claim: Claim::Ratio { question, base, other, ratio, limit },
                holds: ratio.is_above(limit),
                evidence: TestEvidence::Median { rounds: faster.values.len(), over: Some(SINGLE_TASK_BASE.into()) },
                tested: weighed.test(limit, same),
            }
        };
        let efficient = MIN_EFFICIENCY * self.cpus as f64;
        [(RatioQuestion::TasksFaster, 1.0, Some(EQUIVALENCE_MARGIN)), (RatioQuestion::TasksEfficient, efficient, None)]
            .map(judged)
            .into()
    }

    /// Whether more tasks than CPUs finish earlier, with the most of them.
    fn more_than_cpus(&self, kind: TaskKind) -> Option<Conclusion> {
        let base = rounds_of_tasks(&self.elapsed, kind, self.cpus)?;
        let counts = self.elapsed.iter().filter(|rounds| TaskKind::of(rounds.case) == Some(kind));
        let other = counts.max_by_key(|rounds| TASK_COUNT.number_in(rounds.case))?;
        if TASK_COUNT.number_in(other.case)? <= self.cpus {
            return None;
        }
        let weighed = ratio_of_rounds(base, other)?;
        let Estimate { value, low, high, is_range } = weighed.estimate;
        let longer = Estimate { value: value - 1.0, low: low - 1.0, high: high - 1.0, is_range };
        Some(Conclusion {
            claim: Claim::MoreTasksThanCpus { base: base.metric_value(), other: other.metric_value(), longer },
            holds: longer.is_below(0.0),
            evidence: TestEvidence::RatioOfMedians {
                rounds: [other.values.len(), base.values.len()],
                chosen_among: None,
            },
            tested: weighed.test(1.0, Some(EQUIVALENCE_MARGIN)),
        })
    }

    fn processes_against_threads(&self) -> Option<Conclusion> {
        let [threads, processes] =
            [TaskKind::Threads, TaskKind::Processes].map(|kind| rounds_of_tasks(&self.elapsed, kind, self.cpus));
        let (threads, processes) = (threads?, processes?);
        let longer = RatioTest::above(RatioQuestion::ProcessesBesideThreads, 1.0).test(threads, processes)?;
        // Shorter is different too.
        Some(Conclusion { holds: longer.holds.map(|_| true), ..longer })
    }

    /// The share of the machine's CPU time, with as many tasks as CPUs, missing from user and system time.
    fn unaccounted_time(&self, kind: TaskKind) -> Option<Conclusion> {
        let elapsed = rounds_of_tasks(&self.elapsed, kind, self.cpus).filter(|elapsed| elapsed.are_positive())?;
        let unseen = rounds_of_tasks(&self.unaccounted, kind, self.cpus)?;
        let cpus = self.cpus as f64;
        let shares = unseen.combine(elapsed, |unseen, time| unseen / (time * cpus));
        share_conclusion(
            ShareQuestion::UnseenTime,
            unseen.metric_value(),
            &shares,
            MIN_UNACCOUNTED_SHARE,
            LimitSide::Above,
        )
    }
}
