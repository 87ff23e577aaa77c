//! A fixed amount of work split over 1 to 2P threads, and over as many processes.

use kelvin_catalogue::os::{TASK_COUNT, TASKS, TASKS_EFFICIENCY, TASKS_ELAPSED, TASKS_INVISIBLE, TaskKind};
use kelvin_model::{Case, Claim, Conclusion, Estimate, RatioQuestion, Run, ShareQuestion, Test};

use crate::evidence::{Ask, Beyond, Evidence, Rounds, SAME, ratio, share};
use crate::result::Study;

/// Efficiency from which a split counts as efficient.
const EFFICIENT: f64 = 0.9;
/// Share of the CPU time that matters.
const VISIBLE: f64 = 0.01;
/// What the times of tasks are held against.
const ALONE: &str = "one task alone, just before in the same process";

/// Conclusions from the metrics `os.tasks.*`; `None` unless the run measured as many tasks as there are CPUs.
pub(crate) fn tasks(evidence: &Evidence<'_>) -> Option<Study> {
    let study = Tasks {
        elapsed: evidence.all(&TASKS_ELAPSED),
        efficiency: evidence.all(&TASKS_EFFICIENCY),
        unseen: evidence.all(&TASKS_INVISIBLE),
        cpus: cpus(evidence.run)?,
    };
    let most = study.elapsed.iter().filter_map(|rounds| TASK_COUNT.of(rounds.case)).max()?;
    let of_kind = |&kind: &TaskKind| {
        study.speed_up(kind).into_iter().chain(study.more_than_cpus(kind)).chain(study.unseen(kind)).collect::<Vec<_>>()
    };
    let conclusions = TaskKind::ALL.iter().flat_map(of_kind).chain(study.processes_beside_threads());
    let cpus = study.cpus;
    let design = format!(
        "A fixed amount of CPU work was split over 1 to {most} threads, and over as many processes, on {cpus} CPUs; elapsed, \
         user and system time of each split were measured in several rounds."
    );
    Study::new(TASKS, design, conclusions.collect())
}

/// CPUs that the run could use: those allowed, and no more than the quota.
fn cpus(run: &Run) -> Option<u64> {
    let machine = &run.outline.machine;
    let allowed = machine.topology.allowed.get().or(machine.topology.online.get())?.len() as u64;
    let quota =
        machine.limits.cpu_quota.get().copied().flatten().map_or(u64::MAX, |quota| (quota.floor() as u64).max(1));
    Some(allowed.min(quota))
}

struct Tasks<'r> {
    elapsed: Vec<Rounds<'r>>,
    efficiency: Vec<Rounds<'r>>,
    unseen: Vec<Rounds<'r>>,
    cpus: u64,
}

/// The rounds of this many tasks of a kind.
fn find<'a, 'r>(all: &'a [Rounds<'r>], kind: TaskKind, tasks: u64) -> Option<&'a Rounds<'r>> {
    let case = Case::new().at(kind).with(TASK_COUNT, tasks);
    all.iter().find(|rounds| *rounds.case == case)
}

impl Tasks<'_> {
    /// How many times as fast as many tasks as CPUs are as one task. Each round holds them against one alone in the same process: rounds of
    /// other cases are of another moment.
    fn speed_up(&self, kind: TaskKind) -> Vec<Conclusion> {
        let sides = [1, self.cpus].map(|tasks| find(&self.elapsed, kind, tasks));
        let efficiency = find(&self.efficiency, kind, self.cpus);
        let ([Some(one), Some(all)], Some(efficiency), 2..) = (sides, efficiency, self.cpus) else { return Vec::new() };
        let faster = efficiency.clone().times(self.cpus as f64);
        let Some(weighed) = faster.weighed() else { return Vec::new() };
        let judged = |(question, limit, same): (RatioQuestion, f64, Option<f64>)| {
            let (base, other, ratio) = (all.side(), one.side(), weighed.estimate);
            Conclusion {
                claim: Claim::Ratio { question, base, other, ratio, limit },
                holds: ratio.is_above(limit),
                evidence: Test::Median { rounds: faster.values.len(), over: Some(ALONE.into()) },
                tested: weighed.tested(limit, same),
            }
        };
        let efficient = EFFICIENT * self.cpus as f64;
        [(RatioQuestion::TasksFaster, 1.0, Some(SAME)), (RatioQuestion::TasksEfficient, efficient, None)]
            .map(judged)
            .into()
    }

    /// Whether more tasks than CPUs finish earlier, with the most of them.
    fn more_than_cpus(&self, kind: TaskKind) -> Option<Conclusion> {
        let base = find(&self.elapsed, kind, self.cpus)?;
        let counts = self.elapsed.iter().filter(|rounds| TaskKind::of(rounds.case) == Some(kind));
        let other = counts.max_by_key(|rounds| TASK_COUNT.of(rounds.case))?;
        if TASK_COUNT.of(other.case)? <= self.cpus {
            return None;
        }
        let weighed = ratio(base, other)?;
        let Estimate { value, low, high, is_range } = weighed.estimate;
        let longer = Estimate { value: value - 1.0, low: low - 1.0, high: high - 1.0, is_range };
        Some(Conclusion {
            claim: Claim::MoreTasksThanCpus { base: base.side(), other: other.side(), longer },
            holds: longer.is_below(0.0),
            evidence: Test::RatioOfMedians { rounds: [other.values.len(), base.values.len()], chosen_among: None },
            tested: weighed.tested(1.0, Some(SAME)),
        })
    }

    fn processes_beside_threads(&self) -> Option<Conclusion> {
        let [threads, processes] =
            [TaskKind::Threads, TaskKind::Processes].map(|kind| find(&self.elapsed, kind, self.cpus));
        let (threads, processes) = (threads?, processes?);
        let longer = Ask::above(RatioQuestion::ProcessesBesideThreads, 1.0).of(threads, processes)?;
        // Shorter is different too.
        Some(Conclusion { holds: longer.holds.map(|_| true), ..longer })
    }

    /// The share of the machine's CPU time, with as many tasks as CPUs, missing from user and system time.
    fn unseen(&self, kind: TaskKind) -> Option<Conclusion> {
        let elapsed = find(&self.elapsed, kind, self.cpus).filter(|elapsed| elapsed.are_positive())?;
        let unseen = find(&self.unseen, kind, self.cpus)?;
        let cpus = self.cpus as f64;
        let shares = unseen.joined(elapsed, |unseen, time| unseen / (time * cpus));
        share(ShareQuestion::UnseenTime, unseen.side(), &shares, VISIBLE, Beyond::Above)
    }
}
