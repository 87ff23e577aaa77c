//! How many operations per second kernel services do with one CPU at work, with two, four, and so on up to all.
//!
//! It shows which services of the kernel go faster with more CPUs, in threads of one process and in processes. It must not be used for
//! tasks that share what they ask for: each has its own memory, file, futex and listener here.

mod model;
mod services;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kelvin_core::catalogue::os::{
    KernelService, SCALING_EFFICIENCY, SCALING_PROBE, SCALING_RATE, TaskKind, WORKING_CPUS,
};
use kelvin_sys::fs::set_topdir_flag;
use kelvin_sys::partner::PartnerKind;
use kelvin_sys::task_group::{TaskGroup, WorkedWindow};

use self::services::{ServiceWork, WINDOW_DIRECTORIES, directory};
use crate::descriptors::allow_descriptors;
use crate::file::tree::RoundDirectory;
use crate::memory::memory_budget::allowed_cpu_count;
use crate::prelude::*;
use crate::task_windows::window_times;
use crate::working_cpus::{cores_first, cpu_counts};

pub(crate) static PROBE: Probe = Probe {
    id: SCALING_PROBE.as_str(),
    summary: "Operations per second of kernel services with 1, 2, 4 CPUs and all at once, in threads and in processes",
    method: include_str!("scaling.md"),
    cases,
    run,
    predict: model::predict,
    ..Probe::measure(&[&SCALING_RATE, &SCALING_EFFICIENCY])
};

/// Nanoseconds of a window: long enough that its beginning and its end on many CPUs are a small part of it.
const WINDOW_NANOSECONDS: u64 = 20_000_000;
/// Nanoseconds of each of the two windows of a task alone, before it and after it.
const ALONE_NANOSECONDS: u64 = 10_000_000;
/// Nanoseconds of the window before, in which each task makes its caches, page tables and files ready.
const WARM_UP_NANOSECONDS: u64 = 3_000_000;
/// Bytes to reserve for the files of a task in a round: the blocks of its directories, and those of the inode tables and bitmaps that hold
/// these and the file.
const FILE_BYTES: u64 = 64 << 10;
/// Descriptors that a task has at once, at most: its directories and a file.
const DESCRIPTORS_PER_TASK: u64 = WINDOW_DIRECTORIES as u64 + 1;

/// Services of a quick run: one that shares nothing, and one whose tasks wait for a lock of their process.
const QUICK_SERVICES: [KernelService; 2] = [KernelService::NullCall, KernelService::MmapMunmap];

/// A service in tasks of a kind, on this many CPUs.
fn scaling_case(service: KernelService, kind: TaskKind, cpus: u64) -> Case {
    Case::new().with_word(service).with_word(kind).with_number(WORKING_CPUS, cpus)
}

/// Threads on 1, 2, 4 and so on up to all CPUs, and processes on all: on fewer, and halfway between, in a thorough run.
fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let cpus = allowed_cpu_count(machine);
    let services = if effort == Effort::Quick { &QUICK_SERVICES[..] } else { KernelService::ALL };
    let counts = cpu_counts(cpus, effort);
    let processes = match effort {
        Effort::Quick => Vec::new(),
        Effort::Default => vec![cpus],
        Effort::Thorough => counts.clone(),
    };
    let mut cases = words(services).words(&[TaskKind::Threads]).numbers(WORKING_CPUS, &counts);
    cases.extend(words(services).words(&[TaskKind::Processes]).numbers(WORKING_CPUS, &processes));
    if cpus == 1 {
        // One case, to report why there is nothing to compare one CPU with.
        cases.retain(|case| TaskKind::of(case) == Some(TaskKind::Threads) || effort == Effort::Thorough);
        cases.push(scaling_case(KernelService::NullCall, TaskKind::Threads, 2));
    }
    let mut unique_cases = BTreeSet::new();
    cases.retain(|case| unique_cases.insert(case.clone()));
    cases
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let service = required_word(KernelService::of(case), KernelService::ALL, case)?;
    let kind = match required_word(TaskKind::of(case), TaskKind::ALL, case)? {
        TaskKind::Threads => PartnerKind::Thread,
        TaskKind::Processes => PartnerKind::Process,
    };
    let count = required(WORKING_CPUS.number_in(case).filter(|&count| count > 0), case)? as usize;
    // A lock is passed on between near cores first: caches and nodes do not count.
    let cpus = cores_first(bench.cpu(), bench.allowed_cpus());
    let reason = format!("needs {count} CPUs; this process may use {}", cpus.len());
    skip_if(cpus.len() < count, reason)?;
    let cpus = &cpus[..count];
    allow_descriptors(count as u64 * DESCRIPTORS_PER_TASK)?;
    let files = (service == KernelService::CreateUnlink).then(|| task_directories(bench, count)).transpose()?;
    let directories: Option<PathBuf> = files.as_ref().map(|files| files.path().to_owned());
    let make_work = move |number: usize| ServiceWork::new(service, number, directories.as_deref());
    let group = TaskGroup::start(kind, cpus, bench.clock(), make_work)?;
    let windows = measure_windows(bench, &group, count)?;
    group.finish()?;
    bench.note(windows.describe(cpus));
    bench.record(&SCALING_RATE, vec![windows.rate_of_all(bench.hertz())]);
    bench.note(windows.describe_alone(cpus, bench.hertz()));
    bench.record(&SCALING_EFFICIENCY, vec![windows.efficiency()]);
    Ok(())
}

/// The directories in which tasks make files.
fn task_directories(bench: &mut Bench<'_>, tasks: usize) -> ProbeResult<RoundDirectory> {
    bench.reserve_write(tasks as u64 * FILE_BYTES)?;
    let files = RoundDirectory::create(bench, "scaling")?;
    if let Err(error) = spread_and_fill(files.path(), tasks)? {
        bench.note(format!("its directories lie near each other, as this file system spreads none: {error}"));
    }
    Ok(files)
}

/// Makes the directories; whether the file system spreads them, for the reason that file.metadata gives.
fn spread_and_fill(files: &Path, tasks: usize) -> ProbeResult<std::io::Result<()>> {
    let spread = File::open(files).and_then(|directory| set_topdir_flag(&directory));
    for (task, window) in (0..tasks).flat_map(|task| (0..WINDOW_DIRECTORIES).map(move |window| (task, window))) {
        let path = directory(files, task, window);
        fs::create_dir(&path).or_file_failure("make", &path)?;
    }
    Ok(spread)
}

/// What tasks did in the windows of a round.
struct Windows {
    all: Vec<WorkedWindow>,
    /// The task that worked alone, and what it did, before the window of all and after it.
    single: usize,
    alone: [WorkedWindow; 2],
}

/// A window of all tasks between two of a single one: what drifts within a round favours neither. Another task is alone in each round.
fn measure_windows(bench: &Bench<'_>, group: &TaskGroup, tasks: usize) -> ProbeResult<Windows> {
    let times = |nanoseconds| window_times(bench, tasks, nanoseconds);
    group.run_window(0..tasks, times(WARM_UP_NANOSECONDS))?;
    let single = bench.round() as usize % tasks;
    let work_alone = || -> ProbeResult<WorkedWindow> {
        let windows = group.run_window(single..single + 1, times(ALONE_NANOSECONDS))?;
        windows.first().copied().or_fail("no task worked alone")
    };
    let before = work_alone()?;
    let all = group.run_window(0..tasks, times(WINDOW_NANOSECONDS))?;
    let windows = Windows { all, single, alone: [before, work_alone()?] };
    let is_idle = |windows: &[WorkedWindow]| windows.iter().all(|window| window.operations == 0);
    let reason = "the tasks did nothing in a whole window: their CPUs were busy with other work";
    fail_if(is_idle(&windows.all) || is_idle(&windows.alone), reason)?;
    Ok(windows)
}

impl Windows {
    fn rate_of_all(&self, hertz: f64) -> f64 {
        hertz * self.all.iter().map(WorkedWindow::rate).sum::<f64>()
    }

    fn rate_alone(&self, hertz: f64) -> f64 {
        hertz * self.alone.iter().map(WorkedWindow::rate).sum::<f64>() / self.alone.len() as f64
    }

    fn efficiency(&self) -> f64 {
        self.rate_of_all(1.0) / (self.all.len() as f64 * self.rate_alone(1.0))
    }

    /// The counters of the tasks that worked together, in words: proof of the faults, and what else ran on their CPUs.
    fn describe(&self, cpus: &[u32]) -> String {
        let sum = |figure: fn(&WorkedWindow) -> u64| self.all.iter().map(figure).sum::<u64>();
        let operations = sum(|window| window.operations).max(1);
        let shares = self.all.iter().map(|window| window.operations as f64 * self.all.len() as f64 / operations as f64);
        let (min_share, max_share) =
            shares.fold((f64::INFINITY, 0.0_f64), |(low, high), share| (low.min(share), high.max(share)));
        format!(
            "{operations} operations on CPUs {}, by each {min_share:.2} to {max_share:.2} of the mean; by getrusage {:.2} minor faults an \
             operation, {} involuntary switches",
            kelvin_core::cpu_ranges(cpus),
            sum(|window| window.minor_faults) as f64 / operations as f64,
            sum(|window| window.involuntary_switches)
        )
    }

    fn describe_alone(&self, cpus: &[u32], hertz: f64) -> String {
        let cpu = cpus.get(self.single).copied().unwrap_or_default();
        format!(
            "alone, the task on CPU {cpu} did {:.0} operations per second in the same round",
            self.rate_alone(hertz)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;

    fn machine(cpus: u32) -> Machine {
        let mut machine = testing::machine();
        machine.topology.allowed = Fact::known((0..cpus).collect(), "a test");
        machine
    }

    fn counts(machine: &Machine, effort: Effort, service: KernelService, kind: TaskKind) -> Vec<u64> {
        let all = cases(machine, effort);
        let of = all.iter().filter(|case| KernelService::of(case) == Some(service) && TaskKind::of(case) == Some(kind));
        of.filter_map(|case| WORKING_CPUS.number_in(case)).collect()
    }

    #[test]
    fn counts_are_powers_of_two_and_all() {
        use KernelService::{ForkExitWait, MmapMunmap, NullCall};
        use TaskKind::{Processes, Threads};
        let at = |cpus, effort, service, kind| counts(&machine(cpus), effort, service, kind);
        assert_eq!(at(2, Effort::Default, MmapMunmap, Threads), [1, 2]);
        assert_eq!(at(2, Effort::Default, MmapMunmap, Processes), [2]);
        assert_eq!(at(2, Effort::Thorough, MmapMunmap, Processes), [1, 2]);
        assert_eq!(at(2, Effort::Quick, MmapMunmap, Threads), [1, 2]);
        assert!(at(2, Effort::Quick, ForkExitWait, Threads).is_empty());
        assert!(at(2, Effort::Quick, NullCall, Processes).is_empty());
        assert_eq!(at(6, Effort::Default, NullCall, Threads), [1, 2, 4, 6]);
        assert_eq!(at(12, Effort::Thorough, NullCall, Processes), [1, 2, 3, 4, 6, 8, 12]);
        assert_eq!(at(256, Effort::Default, NullCall, Threads), [1, 2, 4, 8, 16, 32, 64, 128, 256]);
        assert_eq!(at(256, Effort::Default, NullCall, Processes), [256]);
        assert_eq!(cases(&machine(2), Effort::Default).len(), 21);
        assert_eq!(cases(&machine(256), Effort::Default).len(), 70);
    }

    #[test]
    fn one_cpu_has_a_case_that_says_what_is_skipped() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let counts = counts(&machine(1), effort, KernelService::NullCall, TaskKind::Threads);
            assert_eq!(counts, [1, 2], "{effort:?}");
        }
        assert_eq!(cases(&machine(1), Effort::Default).len(), 8);
        assert_eq!(cases(&machine(1), Effort::Thorough).len(), 15);
    }

    fn window(operations: u64, ticks: u64) -> WorkedWindow {
        WorkedWindow { operations, ticks, minor_faults: 2 * operations, involuntary_switches: 1 }
    }

    #[test]
    fn efficiency_is_rate_over_cpus_times_rate_alone() {
        let alone = [window(400, 100), window(300, 50)];
        let windows = Windows { all: vec![window(300, 100), window(100, 100)], single: 1, alone };
        assert_eq!(windows.rate_of_all(1000.0), 4000.0);
        assert_eq!(windows.efficiency(), 0.4);
        assert_eq!(
            windows.describe(&[5, 0]),
            "400 operations on CPUs 0,5, by each 0.50 to 1.50 of the mean; by getrusage 2.00 minor faults an operation, 2 \
             involuntary switches"
        );
        assert_eq!(
            windows.describe_alone(&[5, 0], 1000.0),
            "alone, the task on CPU 0 did 5000 operations per second in the same round"
        );
    }
}
