//! What kernel services are predicted to do on several CPUs: as much more as there are CPUs, less where the threads of a core share it, and
//! no more than a lock of the process lets through.

use std::collections::BTreeSet;

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::file::{DirectoryCount, FILES, METADATA_CREATE, METADATA_UNLINK};
use kelvin_core::catalogue::mem::{FAULT_MINOR, FaultPage};
use kelvin_core::catalogue::net::{CLOSE, CONNECT};
use kelvin_core::catalogue::os::{
    KernelService, PROCESS_FORK, PROCESS_FORK_EXIT_WAIT, SCALING_EFFICIENCY, SCALING_RATE, SYSCALL_MMAP_MUNMAP,
    TaskKind, WORKING_CPUS,
};
use kelvin_stats::{ClosedNetwork, Station};

use super::super::syscall_null::kernel_entry;
use super::super::syscall_work::{NANOSECONDS_PER_INSTRUCTION, SHORT_PATH_INSTRUCTIONS};
use super::super::trap::is_kernel_before;
use super::scaling_case;
use crate::prelude::*;

pub(super) fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let service = required(KernelService::of(case), case)?;
    let kind = required(TaskKind::of(case), case)?;
    let cpus = required(WORKING_CPUS.number_in(case).filter(|&cpus| cpus > 0), case)?;
    let is_efficiency = metric.id == SCALING_EFFICIENCY.id;
    if cpus == 1 {
        if is_efficiency {
            let remark = "the same task is measured twice";
            let unity = Expr::from(1.0).with_input(&fact("CPUs", 1.0, Unit::Count, "the case"));
            return Ok(unity.widen(REPEATED).explained(PredictionBasis::Derived, "itself", remark));
        }
        return one_task(facts, service);
    }
    let gain = Gain::new(facts, service, kind, cpus)?;
    if is_efficiency {
        let efficiency = gain.speed_up / count_of("CPUs", cpus);
        return Ok(efficiency.explained(PredictionBasis::Derived, gain.formula, gain.remark));
    }
    // One thread is a process with one task, as one process is.
    let single_rate = measured(facts, &SCALING_RATE, &scaling_case(service, TaskKind::Threads, 1))?;
    Ok((gain.speed_up * single_rate).explained(PredictionBasis::Derived, gain.formula, gain.remark))
}

/// Factor within which the same 20 ms repeat.
const REPEATED: f64 = 1.1;

/// The rate of one task, from the times of the same calls.
fn one_task(facts: &PredictionInputs<'_>, service: KernelService) -> Predicted {
    let figure = |metric: &Metric| measured(facts, metric, &Case::new());
    let fault = || measured(facts, &FAULT_MINOR, &Case::new().with_word(FaultPage::Anonymous));
    Ok(match service {
        KernelService::NullCall => (1.0 / kernel_entry(facts)?).widen(1.25).derived("null call"),
        KernelService::ForkExitWait => {
            // That figure is of the image of a small program, whose page tables are a few.
            let rate = 1.0 / figure(&PROCESS_FORK_EXIT_WAIT)?;
            rate.of_value([1.0 / 3.0, 1.25]).derived("fork, exit and wait of a small process")
        }
        KernelService::MmapMunmap => {
            (1.0 / (figure(&SYSCALL_MMAP_MUNMAP)? + fault()?)).widen(1.5).derived("mmap, fault and munmap")
        }
        KernelService::PageFault => {
            // Giving a page back costs at most as much again.
            let touch = fault()?;
            (1.0 / touch.clone()).spanning(1.0 / (2.0 * touch)).derived("a fault, and the page given back")
        }
        KernelService::CreateUnlink => {
            let files = numbers(FILES, &[1000]).words(&[DirectoryCount::One]).remove(0);
            let [create, unlink] = [&METADATA_CREATE, &METADATA_UNLINK].map(|metric| measured(facts, metric, &files));
            // The same name and inode come again and again, so that they are warm in the caches.
            (1.0 / (create? + unlink?)).of_value([0.5, 3.0]).derived("create and unlink")
        }
        KernelService::FutexWake => {
            let call = kernel_entry(facts)?;
            let work = SHORT_PATH_INSTRUCTIONS * NANOSECONDS_PER_INSTRUCTION;
            let source = "Linux kernel/futex/waitwake.c: futex_wake, for the instruction count";
            let work = published("150 instructions at two per cycle and 3 GHz", work, Unit::Nanoseconds, source);
            let (fast, slow) = (1.0 / call.clone(), 1.0 / (3.0 * call.clone() + work.clone()));
            (1.0 / (call + work)).with_bounds(&slow, &fast).derived("null call and a short path")
        }
        KernelService::ConnectAccept => {
            let same_cpu = Case::new().with_word(PairPlacement::SameCpu);
            let [connect, close] = [&CONNECT, &CLOSE].map(|metric| measured(facts, metric, &same_cpu));
            // Accepting and setting the option are two calls more, and both ends are closed.
            (1.0 / (connect? + 2.0 * close? + 2.0 * kernel_entry(facts)?))
                .widen(2.0)
                .derived("connect, accept and close")
        }
    })
}

/// How many times the rate of one CPU several have.
struct Gain {
    speed_up: Expr,
    formula: &'static str,
    remark: &'static str,
}

/// How much more a second thread of a core does, where both are busy.
const SECOND_THREAD_GAIN: f64 = 0.3;
const SECOND_THREAD_SOURCE: &str = "Marr et al.: Hyper-Threading Technology Architecture and Microarchitecture, Intel Technology \
                                    Journal 6(1), 2002: up to 30 % on server benchmarks";
/// All cores at once run at a lower frequency than one: vendors state up to 1.4 times between the two for server processors.
const ALL_CORE_FREQUENCY: f64 = 1.4;
/// And the rates of two moments differ.
const MOMENTS: f64 = 1.1;
/// What a lock that many want lets through, as a part of what it would without the costs of passing it on.
const CONTENDED_SHARE: f64 = 0.25;
const CONTENDED_SOURCE: &str = "Boyd-Wickizer, Kaashoek, Morris, Zeldovich: Non-scalable locks are dangerous, Linux Symposium 2012: \
                                passing a lock on costs misses of its cache line, with more CPUs more of them";
const MAP_LOCK_SOURCE: &str = "Clements, Kaashoek, Zeldovich: RadixVM: Scalable address spaces for multithreaded applications, \
                               EuroSys 2013; Linux mm/mmap.c: mmap and munmap take mmap_lock for writing";
const FORK_LOCK_SOURCE: &str =
    "Linux kernel/fork.c: dup_mmap holds the parent's mmap_lock for writing while it copies page tables";
const FAULT_LOCK_SOURCE: &str =
    "Linux Documentation/mm/process_addrs.rst: since 6.4 a fault takes the lock of its mapping";
const FILE_SOURCE: &str = "Min, Kashyap, Maass, Kang, Kim: Understanding Manycore Scalability of File Systems, USENIX ATC 2016: \
                           creating and removing files in private directories scales on few file systems";

impl Gain {
    fn new(facts: &PredictionInputs<'_>, service: KernelService, kind: TaskKind, cpus: u64) -> Predicted<Self> {
        let ideal = ideal_gain(facts.machine(), cpus);
        let independent = |speed_up: Expr| Self { speed_up, formula: "as many times as CPUs", remark: "" };
        let in_threads = kind == TaskKind::Threads;
        Ok(match service {
            KernelService::MmapMunmap if in_threads => {
                let calls = measured(facts, &SYSCALL_MMAP_MUNMAP, &Case::new())?;
                let fault = measured(facts, &FAULT_MINOR, &Case::new().with_word(FaultPage::Anonymous))?;
                let share = (calls.clone() - 2.0 * kernel_entry(facts)?).at_least_zero() / (calls + fault);
                let speed_up = locked_gain(&ideal, share, cpus)?.source(MAP_LOCK_SOURCE);
                Self {
                    speed_up,
                    formula: "one lock of mappings",
                    remark: "mmap and munmap take one lock of the process for writing",
                }
            }
            KernelService::ForkExitWait if in_threads => {
                let figure = |metric: &Metric| measured(facts, metric, &Case::new());
                let share = figure(&PROCESS_FORK)? / figure(&PROCESS_FORK_EXIT_WAIT)?;
                let speed_up = locked_gain(&ideal, share, cpus)?.source(FORK_LOCK_SOURCE);
                Self {
                    speed_up,
                    formula: "one lock at forks",
                    remark: "fork copies page tables under one lock of the process",
                }
            }
            KernelService::PageFault if in_threads && is_kernel_before(facts, (6, 4)) => Self {
                speed_up: Expr::from(1.0).spanning(ideal).source(FAULT_LOCK_SOURCE),
                formula: "a lock shared for reading",
                remark: "before Linux 6.4 each fault takes one lock of the process for reading",
            },
            KernelService::PageFault => independent(ideal.source(FAULT_LOCK_SOURCE)),
            KernelService::CreateUnlink => Self {
                speed_up: Expr::from(1.0).spanning(ideal).source(FILE_SOURCE),
                formula: "between one and all",
                remark: "how a file system scales is not published for this one",
            },
            _ => independent(ideal),
        })
    }
}

/// The gain of tasks that share nothing but cores: one for each core at work, and less for its second thread.
fn ideal_gain(machine: &Machine, cpus: u64) -> Expr {
    let cores = usable_cores(machine).map(|cores| cores.min(cpus));
    let is_guest = machine.platform.hypervisor.get().is_none_or(Option::is_some);
    let all_cpus = fact("CPUs at work", cpus as f64, Unit::Ratio, "the case");
    let max_gain = MOMENTS * cpus as f64;
    let (gain, min_gain) = match cores.filter(|&cores| cores < cpus) {
        Some(cores) => {
            let threads = (cpus - cores) as f64;
            let cores = fact("cores at work", cores as f64, Unit::Count, "the CPUs that share a core, by sysfs");
            let second = published("gain by a second thread", SECOND_THREAD_GAIN, Unit::Ratio, SECOND_THREAD_SOURCE);
            let min_gain = cores.value();
            ((cores + threads * second).variant("second threads"), min_gain)
        }
        // The CPUs of a guest may be the two threads of one core, which it is not told.
        None if is_guest => (all_cpus, (cpus as f64 / 2.0).max(1.0)),
        None => (all_cpus, cpus as f64),
    };
    gain.with_interval((min_gain / ALL_CORE_FREQUENCY, max_gain))
}

/// How many cores the allowed CPUs are of.
fn usable_cores(machine: &Machine) -> Option<u64> {
    let (allowed, cores) = (machine.topology.allowed.get()?, machine.topology.siblings.get()?);
    let used: BTreeSet<&Vec<u32>> = cores.iter().filter(|core| core.iter().any(|cpu| allowed.contains(cpu))).collect();
    (!used.is_empty()).then_some(used.len() as u64)
}

/// The gain of tasks that hold one lock for a share of each operation, one at a time: by mean value analysis of a queue for the lock and the
/// time without it. Passing the lock on may cost much more; the bound is that of the lock in use all the time.
fn locked_gain(ideal: &Expr, share: Expr, cpus: u64) -> Predicted<Expr> {
    let lock_share = share.value().clamp(MIN_LOCK_SHARE, 1.0);
    let network = ClosedNetwork::new(vec![Station::queue(lock_share), Station::delay(1.0 - lock_share)], 0.0);
    let network = network.or_unpredicted("the lock's share of an operation is no number")?;
    let customers = usize::try_from(cpus).or_unpredicted("more CPUs than can be counted")?;
    let speed_up = network.solve(customers).last().map_or(1.0, |solution| solution.throughput).min(ideal.value());
    let max_gain = (1.0 / lock_share).min(cpus as f64) * MOMENTS;
    let gain = quantity("throughput of a lock held for that share", speed_up, Unit::Ratio)
        .with_input(&share)
        .with_input(ideal);
    Ok(gain.with_interval((CONTENDED_SHARE * speed_up, max_gain)).source(CONTENDED_SOURCE))
}

/// A share of the lock below this is none that was measured.
const MIN_LOCK_SHARE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;
    use kelvin_core::catalogue::os::SYSCALL_NULL;
    use kelvin_harness::MeasuredValue;

    /// A machine with these cores, each of these CPUs, of which all are allowed.
    fn machine(cores: &[&[u32]], release: &str, hypervisor: Option<&str>) -> Machine {
        let mut machine = testing::machine();
        let all = cores.iter().flat_map(|core| core.iter().copied()).collect();
        machine.topology.allowed = Fact::known(all, "a test");
        let of_cpu = |core: &&[u32]| core.iter().map(|_| core.to_vec()).collect::<Vec<_>>();
        machine.topology.siblings = Fact::known(cores.iter().flat_map(of_cpu).collect(), "a test");
        machine.kernel.release = Fact::known(release.into(), "a test");
        machine.platform.hypervisor = Fact::known(hypervisor.map(str::to_owned), "a test");
        machine
    }

    const FIGURES: [(&Metric, f64); 10] = [
        (&SYSCALL_NULL, 100.0),
        (&PROCESS_FORK, 60_000.0),
        (&PROCESS_FORK_EXIT_WAIT, 100_000.0),
        (&SYSCALL_MMAP_MUNMAP, 1_000.0),
        (&FAULT_MINOR, 600.0),
        (&METADATA_CREATE, 8_000.0),
        (&METADATA_UNLINK, 2_000.0),
        (&CONNECT, 10_000.0),
        (&CLOSE, 2_900.0),
        (&SCALING_RATE, 1e6),
    ];

    fn predicted(machine: &Machine, metric: &Metric, case: &Case) -> kelvin_core::Prediction {
        let measured = |id: &str, _: &Case| {
            let value = FIGURES.iter().find(|(metric, _)| metric.id == *id)?.1;
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        predict(&PredictionInputs::new(machine, &measured), metric, case).unwrap()
    }

    const FOUR_CORES: [&[u32]; 4] = [&[0], &[1], &[2], &[3]];

    #[test]
    fn one_task_follows_from_its_calls() {
        let machine = machine(&FOUR_CORES, "6.18.44", None);
        for (service, rate) in [
            (KernelService::NullCall, 1e9 / 100.0),
            (KernelService::ForkExitWait, 1e9 / 100_000.0),
            (KernelService::MmapMunmap, 1e9 / 1_600.0),
            (KernelService::PageFault, 1e9 / (600.0 * 2_f64.sqrt())),
            (KernelService::CreateUnlink, 1e9 / 10_000.0),
            (KernelService::FutexWake, 1e9 / 125.0),
            (KernelService::ConnectAccept, 1e9 / 16_000.0),
        ] {
            for &kind in TaskKind::ALL {
                let found = predicted(&machine, &SCALING_RATE, &scaling_case(service, kind, 1));
                assert!((found.value / rate - 1.0).abs() < 1e-9, "{service:?}: {found:?}");
                assert!(found.low < found.value && found.value < found.high, "{service:?}: {found:?}");
            }
        }
        let itself =
            predicted(&machine, &SCALING_EFFICIENCY, &scaling_case(KernelService::NullCall, TaskKind::Threads, 1));
        assert_eq!((itself.value, itself.high), (1.0, 1.1));
    }

    #[test]
    fn services_that_share_nothing_have_as_many_times_the_rate_as_cores() {
        let case = |cpus| scaling_case(KernelService::NullCall, TaskKind::Threads, cpus);
        let on = |machine: &Machine, cpus| predicted(machine, &SCALING_RATE, &case(cpus));
        let bare = machine(&FOUR_CORES, "6.18.44", None);
        let four = on(&bare, 4);
        assert_eq!((four.value, four.low, four.high), (4e6, 4e6 / 1.4, 4.4e6));
        assert_eq!(predicted(&bare, &SCALING_EFFICIENCY, &case(4)).value, 1.0);
        // Two threads of each of two cores: 2 + 2 x 0.3, at least 2.
        let siblings = machine(&[&[0, 2], &[1, 3]], "6.18.44", None);
        let four = on(&siblings, 4);
        assert!((four.value - 2.6e6).abs() < 1e-6 && (four.low - 2e6 / 1.4).abs() < 1e-6, "{four:?}");
        assert!(four.sources.iter().any(|source| source.contains("Hyper-Threading")), "{four:?}");
        assert_eq!(on(&siblings, 2).value, 2e6);
        assert!((predicted(&siblings, &SCALING_EFFICIENCY, &case(4)).value - 0.65).abs() < 1e-9);
        // What a guest takes for cores may be the threads of half as many.
        let guest = machine(&FOUR_CORES, "6.18.44", Some("KVM"));
        assert_eq!((on(&guest, 4).value, on(&guest, 4).low), (4e6, 2e6 / 1.4));
    }

    #[test]
    fn one_lock_of_a_process_limits_its_threads_alone() {
        let machine = machine(&FOUR_CORES, "6.18.44", None);
        let at = |service, kind, cpus| predicted(&machine, &SCALING_RATE, &scaling_case(service, kind, cpus));
        // The lock is held for (1000 - 2 x 100) / 1600 of each: X(2) = 2 / (1 + 0.5^2).
        let two = at(KernelService::MmapMunmap, TaskKind::Threads, 2);
        assert!((two.value - 1.6e6).abs() < 1e-3, "{two:?}");
        assert!((two.high - 2.2e6).abs() < 1e-3 && (two.low - 0.4e6).abs() < 1e-3, "{two:?}");
        let four = at(KernelService::MmapMunmap, TaskKind::Threads, 4);
        assert!(four.value < 2e6 && (four.high - 2.2e6).abs() < 1e-3, "{four:?}");
        assert_eq!(at(KernelService::MmapMunmap, TaskKind::Processes, 4).value, 4e6);
        // 60 of 100 us: at most 1.67 times.
        let fork = at(KernelService::ForkExitWait, TaskKind::Threads, 4);
        assert!(fork.value < 1e6 / 0.6 && (fork.high - 1.1e6 / 0.6).abs() < 1e-3, "{fork:?}");
        assert_eq!(at(KernelService::ForkExitWait, TaskKind::Processes, 4).value, 4e6);
    }

    #[test]
    fn faults_of_threads_scale_since_the_lock_of_each_mapping() {
        let case = scaling_case(KernelService::PageFault, TaskKind::Threads, 4);
        let on = |release| predicted(&machine(&FOUR_CORES, release, None), &SCALING_RATE, &case);
        assert_eq!(on("6.4.0").value, 4e6);
        let before = on("6.1.0-30-amd64");
        assert_eq!((before.value, before.low, before.high), (2e6, 1e6, 4.4e6));
        let files = scaling_case(KernelService::CreateUnlink, TaskKind::Processes, 4);
        assert_eq!(predicted(&machine(&FOUR_CORES, "6.18.44", None), &SCALING_RATE, &files).value, 2e6);
    }
}
