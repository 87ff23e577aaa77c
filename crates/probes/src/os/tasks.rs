//! Study: a fixed amount of CPU work split over threads and over processes, and the CPU time that `time` does not show.
//!
//! It shows how far more tasks speed up a fixed amount of work, and what they add. It must not be used for work that
//! shares memory or waits: this work stays in registers.

use kelvin_core::catalogue::os::{
    PROCESS_FORK, TASK_COUNT, TASKS, TASKS_EFFICIENCY, TASKS_ELAPSED, TASKS_SYSTEM, TASKS_UNACCOUNTED, TASKS_USER,
    THREAD_CREATE, TaskKind,
};
use kelvin_sys::process::{Child, fork_worker};
use kelvin_sys::procfs::{CpuStat, CpuTicks};
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::usage::{Usage, UsageScope, read_usage, ticks_to_nanoseconds};
use kelvin_sys::{cpu, kernels};

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    id: TASKS.as_str(),
    summary: "A fixed amount of CPU work split over 1..2P threads or processes",
    method: include_str!("tasks.md"),
    cases,
    run,
    predict,
    ..Probe::study(&[&TASKS_ELAPSED, &TASKS_USER, &TASKS_SYSTEM, &TASKS_EFFICIENCY, &TASKS_UNACCOUNTED])
};

/// Iterations of the chain of [`kernels::CHAIN_LENGTH`] adds: about 200 ms at 3 GHz, long against a tick and a scheduler
/// period, short enough for many rounds.
const ITERATIONS: u64 = 9_600_000;
const ADDS: u64 = ITERATIONS * kernels::CHAIN_LENGTH;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    // Without a known mask the study still shows one CPU.
    let cpus = machine.topology.allowed.get().map_or(1, |cpus| cpus.len().max(1)) as u64;
    let counts = task_counts(cpus, effort);
    words(TaskKind::ALL).numbers(TASK_COUNT, &counts)
}

/// 1 to 2 P: all of them on a small machine; on a large one the powers of two, halfway between them, and P - 1, P,
/// P + 1 and 2 P, where the curve turns.
fn task_counts(cpus: u64, effort: Effort) -> Vec<u64> {
    let maximum = 2 * cpus;
    let max_without_gaps = if effort == Effort::Thorough { 64 } else { 8 };
    let is_selected = |n: &u64| {
        let is_halfway = n.is_multiple_of(3) && (n / 3).is_power_of_two();
        maximum <= max_without_gaps || n.is_power_of_two() || is_halfway || n.abs_diff(cpus) <= 1 || *n == maximum
    };
    (1..=maximum).filter(is_selected).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let tasks = required(TASK_COUNT.number_in(case).filter(|&count| count > 0), case)?;
    let start: fn(u64) -> ProbeResult = match required_word(TaskKind::of(case), TaskKind::ALL, case)? {
        TaskKind::Threads => work_in_threads,
        TaskKind::Processes => work_in_processes,
    };
    let cpus = bench.allowed_cpus().to_vec();
    cpu::pin(&cpus).or_fail("cannot run on all allowed CPUs")?;
    let single = observe(bench, &cpus, || start(1))?;
    let shared = if tasks == 1 { single } else { observe(bench, &cpus, || start(tasks))? };
    let busy_cpus = tasks.min(cpus.len() as u64) as f64;
    bench.note(shared.describe_times());
    bench.record(&TASKS_ELAPSED, vec![shared.elapsed]);
    bench.record(&TASKS_USER, vec![shared.user]);
    bench.record(&TASKS_SYSTEM, vec![shared.system]);
    bench.note(format!("one task alone took {:.1} ms in the same process", single.elapsed / 1e6));
    bench.record(&TASKS_EFFICIENCY, vec![single.elapsed / (shared.elapsed * busy_cpus)]);
    bench.note(shared.describe_unaccounted());
    bench.record(&TASKS_UNACCOUNTED, vec![shared.unaccounted_share()]);
    Ok(())
}

fn work_in_threads(tasks: u64) -> ProbeResult {
    std::thread::scope(|scope| {
        let threads: Result<Vec<_>, _> = (0..tasks)
            .map(|task| {
                ThreadBuilder::named("task").start_in(scope, move || kernels::chain_add(task_iterations(tasks, task)))
            })
            .collect();
        let results = threads?.into_iter().map(|thread| thread.join());
        results.collect::<Result<(), _>>().map_err(|_| ProbeError::fail("a thread of the work panicked"))
    })
}

fn work_in_processes(tasks: u64) -> ProbeResult {
    let start = |task| {
        fork_worker(move || {
            kernels::chain_add(task_iterations(tasks, task));
            0
        })
    };
    let children: Result<Vec<Child>, _> = (0..tasks).map(start).collect();
    children?.into_iter().try_for_each(|child| Ok(child.wait_for_success()?))
}

/// Iterations of one of the tasks: the first ones take the remainder.
fn task_iterations(tasks: u64, task: u64) -> u64 {
    ITERATIONS / tasks + u64::from(task < ITERATIONS % tasks)
}

/// The times of the work, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ObservedTimes {
    elapsed: f64,
    user: f64,
    system: f64,
    cpus: f64,
    stat: CpuTicks,
}

impl ObservedTimes {
    fn unaccounted_share(&self) -> f64 {
        (self.elapsed * self.cpus - self.user - self.system).max(0.0)
    }

    fn describe_times(&self) -> String {
        let [real, user, system] = [self.elapsed, self.user, self.system].map(|nanoseconds| nanoseconds / 1e9);
        format!("as time shows it: real {real:.3} s, user {user:.3} s, sys {system:.3} s")
    }

    fn describe_unaccounted(&self) -> String {
        let Self { elapsed, cpus, stat, .. } = self;
        let work_time = self.user + self.system;
        let [busy, idle, steal] = [stat.busy(), stat.idle, stat.steal].map(ticks_to_nanoseconds);
        let times = [elapsed * cpus, work_time, idle, steal, (busy - work_time).max(0.0)];
        let [total, work, idle, stolen, other_work] = times.map(|nanoseconds| nanoseconds / 1e6);
        format!(
            "of {total:.1} ms on {cpus} CPUs the work got {work:.1} ms; by /proc/stat {idle:.1} ms were idle, {stolen:.1} ms \
             stolen by the hypervisor, {other_work:.1} ms used by other processes or the kernel"
        )
    }
}

fn observe(bench: &Bench<'_>, cpus: &[u32], work: impl FnOnce() -> ProbeResult) -> ProbeResult<ObservedTimes> {
    let stat_before = cpu_ticks(cpus)?;
    let usage = || [UsageScope::Process, UsageScope::Children].map(read_usage);
    let before = usage();
    let (ticks, outcome) = bench.clock().time(work);
    outcome?;
    let usages: Vec<Usage> = usage().into_iter().zip(before).map(|(after, before)| after.since(before)).collect();
    let stat = cpu_ticks(cpus)?.since(stat_before);
    Ok(ObservedTimes {
        elapsed: bench.nanoseconds(ticks),
        user: usages.iter().map(|usage| usage.user as f64).sum(),
        system: usages.iter().map(|usage| usage.system as f64).sum(),
        cpus: cpus.len() as f64,
        stat,
    })
}

/// How these CPUs have spent their time since boot.
fn cpu_ticks(cpus: &[u32]) -> ProbeResult<CpuTicks> {
    let stat = CpuStat::parse(&std::fs::read_to_string("/proc/stat")?);
    stat.and_then(|stat| stat.sum(cpus)).or_fail("/proc/stat lacks a line of an allowed CPU")
}

/// Tolerance of the predicted range: the core's frequency varies this much with the number of busy cores.
const TOLERANCE: f64 = 1.1;

/// Ending a task and waiting for it cost about as much again as creating it, and interrupts add up to 1 % of the work.
const LIFETIME_FACTOR: f64 = 4.0;
const INTERRUPT_SHARE: f64 = 0.01;

/// Share of the work on the busiest CPU if equal tasks are distributed and none is migrated: ceil(n / P) / n.
fn longest_share(tasks: u64, cpus: u64) -> f64 {
    tasks.div_ceil(cpus) as f64 / tasks as f64
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let tasks = required_number(TASK_COUNT, case)?.max(1);
    let kind = required(TaskKind::of(case), case)?;
    let allowed = facts.machine().topology.allowed.get().map(Vec::len);
    let cpus = allowed.or_unpredicted("the number of allowed CPUs is unknown")?.max(1) as u64;
    let busy_cpus = tasks.min(cpus) as f64;
    let filled_cpus = || fact("CPUs that the tasks can fill", busy_cpus, Unit::Count, "min(tasks, allowed CPUs)");
    let single_task_figure = |metric| measured(facts, metric, &Case::new().with_number(TASK_COUNT, 1).with_word(kind));
    let (time, name) = match metric.id {
        id if id == TASKS_EFFICIENCY.id => {
            // Tasks that share nothing scale with the CPUs; if none is migrated, the CPU with the most of them ends last.
            let low = 1.0 / (busy_cpus * longest_share(tasks, cpus) * TOLERANCE);
            (Expr::from(1.0).with_input(&filled_cpus()).of_value([low, TOLERANCE]), "perfect scaling")
        }
        id if id == TASKS_SYSTEM.id => {
            let (creation, name) = match kind {
                TaskKind::Threads => (&THREAD_CREATE, "threads made one by one"),
                TaskKind::Processes => (&PROCESS_FORK, "processes made one by one"),
            };
            let tasks = fact("tasks", tasks as f64, Unit::Count, "the case");
            let time = tasks * measured(facts, creation, &Case::new())?;
            let interrupts = quantity("interrupts", INTERRUPT_SHARE * ADDS as f64, Unit::Nanoseconds);
            let maximum = LIFETIME_FACTOR * time.clone() + interrupts;
            // Ticks may put all of it into user time.
            (time.with_bounds(&quantity("none", 0.0, Unit::Nanoseconds), &maximum), name)
        }
        id if id == TASKS_UNACCOUNTED.id => {
            let reason = "with a task for every CPU the ideal is zero: the rest goes to other processes, the hypervisor and the \
                          scheduler";
            unpredicted_if(tasks >= cpus, reason)?;
            let elapsed = single_task_figure(&TASKS_ELAPSED)? / count_of("tasks", tasks);
            let idle_cpus = fact("CPUs without a task", (cpus - tasks) as f64, Unit::Count, "allowed CPUs - tasks");
            ((idle_cpus * elapsed).widen(TOLERANCE), "idle CPUs")
        }
        _ if tasks == 1 => {
            let adds =
                fact("dependent adds", ADDS as f64, Unit::Cycles, "the definition of the work, one cycle for each");
            let source = "uops.info: ADD of two 64-bit registers has a latency of one cycle on every core listed";
            let time = adds / published::measured_frequency(facts)?;
            (time.source(source).widen(TOLERANCE), "dependent adds")
        }
        id if id == TASKS_USER.id => {
            let remark = "the work is the same for any number of tasks";
            let time = single_task_figure(&TASKS_USER)?.widen(TOLERANCE);
            return Ok(time.explained(PredictionBasis::Derived, "work of one", remark));
        }
        _ => {
            let single_time = single_task_figure(&TASKS_ELAPSED)?;
            // If no task is migrated, the CPU with the most of them ends last.
            let longest = single_time.clone() * longest_share(tasks, cpus);
            let shared = single_time / filled_cpus();
            let minimum = shared.clone().widen(TOLERANCE);
            (shared.with_bounds(&minimum, &longest.widen(TOLERANCE)), "shared by CPUs")
        }
    };
    Ok(time.derived(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_core::Fact;
    use kelvin_core::catalogue::cpu::FREQUENCY;
    use kelvin_harness::MeasuredValue;

    #[test]
    fn shares_add_up_to_the_work() {
        for tasks in [1, 2, 3, 7, 64, 1000] {
            let shares: Vec<u64> = (0..tasks).map(|task| task_iterations(tasks, task)).collect();
            assert_eq!(shares.iter().sum::<u64>(), ITERATIONS);
            assert!(shares[0] - shares[tasks as usize - 1] <= 1);
        }
        assert_eq!(ADDS, 614_400_000);
    }

    #[test]
    fn large_machines_have_selected_task_counts() {
        assert_eq!(task_counts(2, Effort::Default), [1, 2, 3, 4]);
        assert_eq!(task_counts(16, Effort::Default), [1, 2, 3, 4, 6, 8, 12, 15, 16, 17, 24, 32]);
        assert_eq!(task_counts(16, Effort::Thorough).len(), 32);
        assert_eq!(task_counts(5, Effort::Default), [1, 2, 3, 4, 5, 6, 8, 10]);
    }

    #[test]
    fn unaccounted_time_is_attributed() {
        let times = ObservedTimes {
            elapsed: 100e6,
            user: 140e6,
            system: 10e6,
            cpus: 2.0,
            // Ticks are of 10 ms.
            stat: CpuTicks { user: 15, system: 1, interrupts: 0, idle: 3, steal: 1 },
        };
        assert!((times.unaccounted_share() - 50e6).abs() < 1.0);
        assert_eq!(
            times.describe_unaccounted(),
            "of 200.0 ms on 2 CPUs the work got 150.0 ms; by /proc/stat 30.0 ms were idle, 10.0 ms stolen by the \
             hypervisor, 10.0 ms used by other processes or the kernel"
        );
        assert_eq!(times.describe_times(), "as time shows it: real 0.100 s, user 0.140 s, sys 0.010 s");
    }

    #[test]
    fn ideal_time_is_work_over_cpus() {
        let mut machine = machine();
        machine.topology.allowed = Fact::known(vec![0, 1], "a test");
        let measured = |id: &str, case: &Case| {
            let is_single_task =
                TASK_COUNT.number_in(case) == Some(1) && (TASKS_ELAPSED.id == *id || TASKS_USER.id == *id);
            let figures = [(FREQUENCY, 3.0e9), (PROCESS_FORK, 40e3), (THREAD_CREATE, 6e3)];
            let figure = figures.iter().find(|(metric, _)| metric.id == *id).map(|(_, value)| *value);
            is_single_task.then_some(200e6).or(figure).map(|value| MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let case = |n| Case::new().with_number(TASK_COUNT, n).with_word(TaskKind::Threads);
        // 614,400,000 cycles at 3 GHz
        assert!((predict(&facts, &TASKS_ELAPSED, &case(1)).unwrap().value - 204.8e6).abs() < 1.0);
        let three = predict(&facts, &TASKS_ELAPSED, &case(3)).unwrap();
        assert!((three.value - 100e6).abs() < 1.0);
        // two of three equal tasks on one CPU: 133.3 ms, and a tenth of it for the frequency
        assert!((three.high - 146.67e6).abs() < 1e4, "{}", three.high);
        assert_eq!(three.derivation, "200 ms / 2 = 100 ms");
        assert!((predict(&facts, &TASKS_USER, &case(4)).unwrap().value - 200e6).abs() < 1.0);
        let efficiency = predict(&facts, &TASKS_EFFICIENCY, &case(3)).unwrap();
        assert!((efficiency.low - 0.75 / 1.1).abs() < 1e-9, "{}", efficiency.low);
        assert!((predict(&facts, &TASKS_UNACCOUNTED, &case(1)).unwrap().value - 200e6).abs() < 1.0);
        assert!(predict(&facts, &TASKS_UNACCOUNTED, &case(2)).is_err());
        assert_eq!(predict(&facts, &TASKS_SYSTEM, &case(4)).unwrap().derivation, "4 x 6.00 µs = 24.0 µs");
        let processes = Case::new().with_number(TASK_COUNT, 4).with_word(TaskKind::Processes);
        assert_eq!(predict(&facts, &TASKS_SYSTEM, &processes).unwrap().derivation, "4 x 40.0 µs = 160 µs");
    }

    #[test]
    fn uneven_tasks_have_two_outcomes() {
        let share = |tasks| longest_share(tasks, 2);
        assert!((share(3) - 2.0 / 3.0).abs() < 1e-12);
        assert!((share(4) - 0.5).abs() < 1e-12);
        assert!((share(1) - 1.0).abs() < 1e-12);
    }
}
