//! Hazards of the processor: frequency, boost, shared cores, virtual machine, steal, quota, CPU set; mitigations of vulnerabilities by what
//! they do, since a vulnerability's name does not show what its mitigation costs; idle states, battery, throttling.

use kelvin_core::{Hazard, Mitigation, Severity, cpu_ranges, units};

use super::{HazardContext, hazard, percent, with_command};
use crate::counters::{THERMAL_THROTTLE_FILES, busy_share, steal_share, thermal_throttles};
use crate::hardware_counters::forbidding_level;
use crate::root::data_lines;

/// Share of a sibling's time above which it counts as busy; less is the kernel's own work.
const BUSY_SIBLING_SHARE: f64 = 0.05;

/// Below this share of the time in which a CPU is left alone its neighbours are worth a note, and below the second a warning.
const NOTE_UNDISTURBED_SHARE: f64 = 0.9;
const WARNING_UNDISTURBED_SHARE: f64 = 0.5;
const CANARY_SOURCE: &str = "canaries on each CPU for some milliseconds before the run";

/// What a look at some CPUs before a run shows of those who share their cores: each CPU with the share of the time in which it is left
/// alone, that of the run first.
pub fn busy_siblings(cpu_shares: &[(u32, f64)]) -> Option<Hazard> {
    let &(cpu, share) = cpu_shares.first()?;
    let busiest = cpu_shares
        .iter()
        .copied()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|sibling| sibling.1 < NOTE_UNDISTURBED_SHARE)?;
    let severity = if share < WARNING_UNDISTURBED_SHARE { Severity::Warning } else { Severity::Note };
    let busiest_text =
        if busiest.0 == cpu { String::new() } else { format!("; CPU {} is for {}", busiest.0, percent(busiest.1)) };
    let summary = format!(
        "the sibling thread of CPU {cpu}, where this runs, is idle for {} of the time{busiest_text}",
        percent(share)
    );
    Some(hazard("busy_siblings", severity, summary, CANARY_SOURCE))
}

/// The sibling threads of the CPU of a run were not sampled, and why.
pub fn siblings_not_sampled(cpu: u32, reason: &str) -> Hazard {
    let summary = format!("CPU {cpu} was chosen without sampling the sibling threads of its core: {reason}");
    hazard("siblings_not_sampled", Severity::Note, summary, CANARY_SOURCE)
}

pub(super) fn governor(context: &HazardContext<'_>) -> Option<Hazard> {
    let governor = &context.machine.cpu.governor;
    let Some(name) = governor.get() else {
        let summary = "the CPU frequency can be neither read nor set";
        return Some(hazard("no_cpufreq", Severity::Note, summary, governor.source_or_reason()));
    };
    let summary = format!("the frequency governor is '{name}', not 'performance'");
    (name != "performance").then(|| hazard("governor", Severity::Warning, summary, governor.source_or_reason()))
}

/// Counters that a setting of the kernel forbids.
pub(super) fn forbidden_counters(context: &HazardContext<'_>) -> Option<Hazard> {
    let level = forbidding_level(context.root, context.measured_cpu())?;
    let summary = format!("kernel.perf_event_paranoid is {level}: hardware counters are not allowed");
    let source = context.machine.cpu.hardware_counters.source_or_reason();
    Some(hazard("forbidden_counters", Severity::Note, summary, source))
}

pub(super) fn boost(context: &HazardContext<'_>) -> Option<Hazard> {
    let switches =
        [("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"), ("/sys/devices/system/cpu/cpufreq/boost", "1")];
    let (file, _) =
        switches.into_iter().find(|(file, enabled_value)| context.root.text(file).as_deref() == Some(enabled_value))?;
    Some(hazard("boost", Severity::Warning, "frequency boost is on", file))
}

pub(super) fn smt(context: &HazardContext<'_>) -> Option<Hazard> {
    let siblings = context.machine.topology.siblings.get()?;
    let measured_cpu = context.measured_cpu();
    let core_cpus = siblings.iter().find(|set| set.contains(&measured_cpu) && set.len() > 1)?;
    let sibling_cpus: Vec<u32> = core_cpus.iter().copied().filter(|cpu| *cpu != measured_cpu).collect();
    let busy = context.current.as_ref().map(|stat| {
        sibling_cpus.iter().filter_map(|cpu| stat.cpus.get(cpu)).map(|ticks| busy_share(*ticks)).fold(0.0, f64::max)
    });
    let severity =
        if busy.is_some_and(|share| share > BUSY_SIBLING_SHARE) { Severity::Serious } else { Severity::Note };
    let state = busy.map_or(String::new(), |share| format!(", which is {} busy", percent(share)));
    let plural = if sibling_cpus.len() == 1 { "CPU" } else { "CPUs" };
    let summary = format!("CPU {measured_cpu} shares its core with {plural} {}{state}", cpu_ranges(&sibling_cpus));
    let control = "/sys/devices/system/cpu/smt/control";
    let warning = hazard("smt", severity, summary, context.machine.topology.siblings.source_or_reason());
    let can_change = context.root.text(control).as_deref() == Some("on");
    Some(if can_change { with_command(warning, format!("echo off | sudo tee {control}")) } else { warning })
}

pub(super) fn virtual_machine(context: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &context.machine.platform.hypervisor;
    let name = fact.get()?.as_ref()?;
    let summary = format!("this is a virtual machine on {name}");
    Some(hazard("virtual_machine", Severity::Warning, summary, fact.source_or_reason()))
}

/// Current steal counts; steal since boot only shows that it happens.
pub(super) fn steal(context: &HazardContext<'_>) -> Option<Hazard> {
    let since_boot = steal_share(context.since_boot.as_ref()?.all_cpus);
    let current_share = context.current.as_ref().map_or(0.0, |stat| steal_share(stat.all_cpus));
    if since_boot == 0.0 && current_share == 0.0 {
        return None;
    }
    let severity = match current_share {
        share if share >= 0.1 => Severity::Serious,
        share if share > 0.0 => Severity::Warning,
        _ if since_boot >= 0.01 => Severity::Warning,
        _ => Severity::Note,
    };
    let current_text =
        context.current.as_ref().map_or(String::new(), |_| format!("{} just now, ", percent(current_share)));
    let summary = format!("the hypervisor steals CPU time: {current_text}{:.2} % since boot", since_boot * 100.0);
    Some(hazard("steal", severity, summary, "/proc/stat"))
}

pub(super) fn quota(context: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &context.machine.limits.cpu_quota;
    let quota = (*fact.get()?)?;
    let allowed = context.machine.topology.allowed.get().map_or(f64::INFINITY, |cpus| cpus.len() as f64);
    if quota >= allowed {
        return None;
    }
    let severity = if quota < 1.0 { Severity::Serious } else { Severity::Warning };
    let cpus = if allowed.is_finite() { format!(" of {allowed} allowed CPUs") } else { String::new() };
    let summary = format!("the control group has a quota of {}{cpus}", units::cpus(quota));
    Some(hazard("cpu_quota", severity, summary, fact.source_or_reason()))
}

pub(super) fn cpuset(context: &HazardContext<'_>) -> Option<Hazard> {
    let topology = &context.machine.topology;
    let (allowed, online) = (topology.allowed.get()?, topology.online.get()?);
    if allowed.len() >= online.len() {
        return None;
    }
    let summary =
        format!("this process may use only {} of {} CPUs: {}", allowed.len(), online.len(), cpu_ranges(allowed));
    Some(hazard("cpuset", Severity::Note, summary, topology.allowed.source_or_reason()))
}

/// Mechanisms: name, cost, parts of a status that mean it, and the vulnerabilities in whose status they do, by tabs.
const MECHANISMS: &str = include_str!("../../data/mitigations.txt");

/// The name and the cost of each mechanism that is in force.
fn active_mechanisms(mitigations: &[Mitigation]) -> Vec<[&'static str; 2]> {
    // Parts of a status, without its first word: also of one that leaves the machine vulnerable, and mitigates in part.
    let parts = |status: &str, texts: &str| {
        let after = ["Mitigation: ", "Vulnerable: "].iter().find_map(|word| status.strip_prefix(word));
        after.unwrap_or_default().split([';', ',']).any(|part| texts.split(", ").any(|text| text == part.trim()))
    };
    let mechanism = |row: &'static str| {
        let [name, cost, texts, vulnerabilities] = row.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let is_concerned = |entry: &Mitigation| {
            vulnerabilities == "*"
                || vulnerabilities.split(", ").any(|vulnerability| vulnerability == entry.vulnerability)
        };
        mitigations.iter().any(|entry| is_concerned(entry) && parts(&entry.status, texts)).then_some([name, cost])
    };
    data_lines(MECHANISMS).filter_map(mechanism).collect()
}

pub(super) fn active_mitigations(context: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &context.machine.cpu.mitigations;
    let mitigations = fact.get()?;
    let names: Vec<&str> = mitigations
        .iter()
        .filter(|entry| entry.status.starts_with("Mitigation"))
        .map(|entry| entry.vulnerability.as_str())
        .collect();
    let mechanisms = active_mechanisms(mitigations);
    let note = |summary: String| hazard("mitigations", Severity::Note, summary, fact.source_or_reason());
    match (mechanisms.is_empty(), names.is_empty()) {
        (true, true) => None,
        (true, false) => Some(note(format!("mitigations in force, none of them costly: {}", names.join(", ")))),
        (false, _) => {
            let [names, costs] = [(0, ", "), (1, "; ")].map(|(column, separator)| {
                mechanisms.iter().map(|mechanism| mechanism[column]).collect::<Vec<_>>().join(separator)
            });
            Some(Hazard { effect: costs, ..note(format!("mitigations in force: {names}")) })
        }
    }
}

/// Exit latency in microseconds from which an idle state shows in a round trip: about a context switch.
const MIN_EXIT_LATENCY: u64 = 5;

pub(super) fn idle_states(context: &HazardContext<'_>) -> Option<Hazard> {
    let directory = format!("/sys/devices/system/cpu/cpu{}/cpuidle", context.measured_cpu());
    if context.is_virtual() {
        let summary = "an idle virtual CPU halts in the hypervisor, which does not report what waking it costs";
        let effect = "round trips between two CPUs are multimodal: tens of microseconds longer when the other CPU was \
                      idle";
        return Some(Hazard { effect: effect.into(), ..hazard("idle_states", Severity::Note, summary, directory) });
    }
    let states = context.root.names(&directory).into_iter().filter_map(|state| {
        let file = |name: &str| context.root.text(&format!("{directory}/{state}/{name}"));
        let is_enabled = file("disable").is_none_or(|text| text == "0");
        let latency: u64 = file("latency")?.parse().ok()?;
        is_enabled.then(|| (latency, file("name").unwrap_or(state.clone())))
    });
    let (latency, name) = states.max().filter(|(latency, _)| *latency >= MIN_EXIT_LATENCY)?;
    let summary = format!("an idle CPU may enter {name}, with an exit latency of {latency} us");
    let note = hazard("idle_states", Severity::Note, summary, directory);
    Some(with_command(note, format!("sudo cpupower idle-set -D {MIN_EXIT_LATENCY}")))
}

pub(super) fn battery(context: &HazardContext<'_>) -> Option<Hazard> {
    const SUPPLIES: &str = "/sys/class/power_supply";
    let discharging = context.root.names(SUPPLIES).into_iter().find(|name| {
        let file = |attribute: &str| context.root.text(&format!("{SUPPLIES}/{name}/{attribute}"));
        // Batteries of mice and headsets are of scope Device.
        file("type").as_deref() == Some("Battery")
            && file("status").as_deref() == Some("Discharging")
            && file("scope").as_deref() != Some("Device")
    })?;
    let source = format!("{SUPPLIES}/{discharging}/status");
    Some(hazard("battery", Severity::Serious, "the machine runs on battery", source))
}

pub(super) fn thermal(context: &HazardContext<'_>) -> Option<Hazard> {
    let times = thermal_throttles(context.root).filter(|times| *times > 0)?;
    let summary = format!("the processor was thermally throttled {times} times since boot");
    Some(hazard("thermal_throttling", Severity::Note, summary, THERMAL_THROTTLE_FILES))
}

#[cfg(test)]
mod mitigations_tests {
    use super::*;

    fn names(statuses: &[(&str, &str)]) -> Vec<&'static str> {
        let mitigation = |&(vulnerability, status): &(&str, &str)| Mitigation {
            vulnerability: vulnerability.to_owned(),
            status: status.to_owned(),
        };
        let mitigations: Vec<Mitigation> = statuses.iter().map(mitigation).collect();
        active_mechanisms(&mitigations).into_iter().map(|[name, _]| name).collect()
    }

    #[test]
    fn kernel_statuses_map_to_mechanisms() {
        let buffers = ["clearing of CPU buffers"].as_slice();
        let expected_mechanisms: [((&str, &str), &[&str]); 13] = [
            (("meltdown", "Mitigation: PTI"), &["page tables of the kernel's own"]),
            (("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"), buffers),
            (("mds", "Vulnerable: Clear CPU buffers attempted, no microcode; SMT Host state unknown"), buffers),
            (("reg_file_data_sampling", "Mitigation: Clear Register File"), buffers),
            (("retbleed", "Mitigation: IBRS"), &["IBRS"]),
            (("retbleed", "Mitigation: untrained return thunk; SMT vulnerable"), &["guarded returns"]),
            (("spec_rstack_overflow", "Mitigation: Safe RET"), &["guarded returns"]),
            (("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode"), &["guarded returns"]),
            (("spec_rstack_overflow", "Vulnerable: Microcode, no safe RET"), &[]),
            (("spec_rstack_overflow", "Mitigation: IBPB on VMEXIT only"), &[]),
            (
                ("spectre_v2", "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled; RSB filling"),
                &["retpolines"],
            ),
            (("spectre_v2", "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; BHI: BHI_DIS_S"), &[]),
            (("spec_store_bypass", "Mitigation: Speculative Store Bypass disabled via prctl"), &[]),
        ];
        for (status, expected) in expected_mechanisms {
            assert_eq!(names(&[status]), expected, "{status:?}");
        }
        let statuses = [("spectre_v2", "Mitigation: Retpolines"), ("spec_rstack_overflow", "Mitigation: Safe RET")];
        assert_eq!(names(&statuses), ["retpolines", "guarded returns"]);
        assert!(names(&[("gather_data_sampling", "Not affected"), ("tsa", "Vulnerable")]).is_empty());
    }
}
