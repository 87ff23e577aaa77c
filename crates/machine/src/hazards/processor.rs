//! Hazards of the processor: frequency, boost, shared cores, virtual machine, steal, quota, CPU set.

use kelvin_core::{Hazard, Severity, cpu_ranges, units};

use super::{HazardBuilder, HazardContext, TUNE_COMMAND, hazard, percent};
use crate::counters::{busy_share, steal_share};

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
/// Share of a sibling's time above which it counts as busy; less is the kernel's own work.
const BUSY_SIBLING_SHARE: f64 = 0.05;

/// Below this share of the time in which a CPU is left alone its neighbours are worth a note, and below the second a warning.
const NOTE_UNDISTURBED_SHARE: f64 = 0.9;
const WARNING_UNDISTURBED_SHARE: f64 = 0.5;

/// What a look at some CPUs before a run shows of those who share their cores: each CPU with the share of the time in which it is left
/// alone, that of the run first.
pub fn busy_siblings(looked_at: &[(u32, f64)]) -> Option<Hazard> {
    let &(cpu, share) = looked_at.first()?;
    let worst = looked_at
        .iter()
        .copied()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|worst| worst.1 < NOTE_UNDISTURBED_SHARE)?;
    let severity = if share < WARNING_UNDISTURBED_SHARE { Severity::Warning } else { Severity::Note };
    let beside = if worst.0 == cpu { String::new() } else { format!("; CPU {} is for {}", worst.0, percent(worst.1)) };
    let summary =
        format!("the sibling thread of CPU {cpu}, where this runs, is idle for {} of the time{beside}", percent(share));
    let effect = "work beside another thread of the core takes up to twice as long; the canaries set it apart";
    Some(
        hazard("neighbours", severity, summary, effect)
            .with_source("canaries on each CPU for some milliseconds before the run"),
    )
}

/// That no such look was had at the CPU of a run, and why.
pub fn siblings_not_sampled(cpu: u32, why: &str) -> Hazard {
    let summary = format!("CPU {cpu} was taken without a look at who shares its core: {why}");
    let effect = "another CPU may be left alone more; what work beside another thread of the core does to a run, its canaries show";
    hazard("neighbours_unseen", Severity::Note, summary, effect)
        .with_source("canaries on each CPU for some milliseconds before the run")
}

pub(super) fn governor(look: &HazardContext<'_>) -> Option<Hazard> {
    let governor = &look.machine.cpu.governor;
    let Some(name) = governor.get() else {
        let summary = "the CPU frequency can be neither read nor set";
        let effect = "frequency changes affect all times, and only the canaries show them";
        return Some(hazard("no_cpufreq", Severity::Note, summary, effect).with_source(governor.source_or_reason()));
    };
    if name == "performance" {
        return None;
    }
    let effect = "the core starts slow and speeds up under load: short probes look slow, and spread grows";
    Some(
        hazard("governor", Severity::Warning, format!("the frequency governor is '{name}', not 'performance'"), effect)
            .remedy_command(TUNE_COMMAND)
            .with_source(governor.source_or_reason()),
    )
}

pub(super) fn boost(look: &HazardContext<'_>) -> Option<Hazard> {
    let switches = [("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"), (&*format!("{CPUFREQ}/boost"), "1")]
        .map(|(file, on)| (file.to_owned(), on));
    let (file, _) = switches.into_iter().find(|(file, on)| look.root.text(file).as_deref() == Some(on))?;
    let effect = "the frequency depends on temperature, power budget and the load of other cores";
    Some(
        hazard("boost", Severity::Warning, "frequency boost is on", effect)
            .remedy_command(TUNE_COMMAND)
            .with_source(file),
    )
}

pub(super) fn smt(look: &HazardContext<'_>) -> Option<Hazard> {
    let siblings = look.machine.topology.siblings.get()?;
    let first = look.first_cpu();
    let own = siblings.iter().find(|set| set.contains(&first) && set.len() > 1)?;
    let others: Vec<u32> = own.iter().copied().filter(|cpu| *cpu != first).collect();
    let busy = look.now.as_ref().map(|now| {
        others.iter().filter_map(|cpu| now.cpus.get(cpu)).map(|ticks| busy_share(*ticks)).fold(0.0, f64::max)
    });
    let severity =
        if busy.is_some_and(|share| share > BUSY_SIBLING_SHARE) { Severity::Serious } else { Severity::Note };
    let state = busy.map_or(String::new(), |share| format!(", which is {} busy", percent(share)));
    let plural = if others.len() == 1 { "CPU" } else { "CPUs" };
    let summary = format!("CPU {first} shares its core with {plural} {}{state}", cpu_ranges(&others));
    let effect = "work on the sibling competes for execution units and caches: up to half the speed";
    let control = "/sys/devices/system/cpu/smt/control";
    let hazard =
        hazard("smt", severity, summary, effect).with_source(look.machine.topology.siblings.source_or_reason());
    let can_change = look.root.text(control).as_deref() == Some("on");
    Some(if can_change { hazard.remedy_command(format!("echo off | sudo tee {control}")) } else { hazard })
}

pub(super) fn virtual_machine(look: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &look.machine.platform.hypervisor;
    let name = fact.get()?.as_ref()?;
    let effect = "frequency, VM exits and other guests on the same core, cache and memory channels are invisible; \
                  interrupts and waking an idle CPU cost more than on bare metal";
    Some(
        hazard("virtual_machine", Severity::Warning, format!("this is a virtual machine on {name}"), effect)
            .with_source(fact.source_or_reason()),
    )
}

/// Current steal counts; steal since boot only shows that it happens.
pub(super) fn steal(look: &HazardContext<'_>) -> Option<Hazard> {
    let since_boot = steal_share(look.since_boot.as_ref()?.all);
    let now = look.now.as_ref().map_or(0.0, |stat| steal_share(stat.all));
    if since_boot == 0.0 && now == 0.0 {
        return None;
    }
    let severity = match now {
        now if now >= 0.1 => Severity::Serious,
        now if now > 0.0 => Severity::Warning,
        _ if since_boot >= 0.01 => Severity::Warning,
        _ => Severity::Note,
    };
    let present = look.now.as_ref().map_or(String::new(), |_| format!("{} just now, ", percent(now)));
    let summary = format!("the hypervisor steals CPU time: {present}{:.2} % since boot", since_boot * 100.0);
    let effect = "pauses of milliseconds interrupt batches; affected samples are marked";
    Some(hazard("steal", severity, summary, effect).with_source("/proc/stat"))
}

pub(super) fn quota(look: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &look.machine.limits.cpu_quota;
    let quota = (*fact.get()?)?;
    let allowed = look.machine.topology.allowed.get().map_or(f64::INFINITY, |cpus| cpus.len() as f64);
    if quota >= allowed {
        return None;
    }
    let severity = if quota < 1.0 { Severity::Serious } else { Severity::Warning };
    let cpus = if allowed.is_finite() { format!(" of {allowed} allowed CPUs") } else { String::new() };
    let summary = format!("the control group has a quota of {}{cpus}", units::cpus(quota));
    let effect = "when the quota of a period is used up, all tasks stop until the next one, for up to 100 ms";
    Some(hazard("cpu_quota", severity, summary, effect).with_source(fact.source_or_reason()))
}

pub(super) fn cpuset(look: &HazardContext<'_>) -> Option<Hazard> {
    let topology = &look.machine.topology;
    let (allowed, online) = (topology.allowed.get()?, topology.online.get()?);
    if allowed.len() >= online.len() {
        return None;
    }
    let summary =
        format!("this process may use only {} of {} CPUs: {}", allowed.len(), online.len(), cpu_ranges(allowed));
    let effect = "CPU pairs and worker counts are chosen within this set";
    Some(hazard("cpuset", Severity::Note, summary, effect).with_source(topology.allowed.source_or_reason()))
}
