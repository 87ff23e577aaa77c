//! Hazards of system configuration: reclaim, page reporting, clock source, huge pages, NUMA, memory limit, unknowns.

use kelvin_core::{Hazard, Severity};

use super::{HazardContext, hazard, with_command};
use crate::kernel::CLOCK_SOURCE_FILE;

/// Virtio device ID of the memory balloon, and the feature bits by which a guest returns free pages (virtio 1.3, 5.5).
const BALLOON_DEVICE_ID: &str = "0x0005";
const FREE_PAGE_HINT_BIT: usize = 3;
const PAGE_REPORTING_BIT: usize = 5;

pub(super) fn proactive_reclaim(context: &HazardContext<'_>) -> Option<Hazard> {
    let file = crate::tune::proactive_reclaim(context.root)?;
    Some(hazard("proactive_reclaim", Severity::Warning, "idle memory is reclaimed proactively (DAMON)", file))
}

pub(super) fn page_reporting(context: &HazardContext<'_>) -> Option<Hazard> {
    const DEVICES: &str = "/sys/bus/virtio/devices";
    let balloon = context.root.names(DEVICES).into_iter().find(|device| {
        let file = |name: &str| context.root.text(&format!("{DEVICES}/{device}/{name}")).unwrap_or_default();
        let has_bit = |features: &str, bit: usize| features.as_bytes().get(bit) == Some(&b'1');
        let features = file("features");
        file("device") == BALLOON_DEVICE_ID
            && (has_bit(&features, PAGE_REPORTING_BIT) || has_bit(&features, FREE_PAGE_HINT_BIT))
    })?;
    let source = format!("{DEVICES}/{balloon}/features");
    Some(hazard("page_reporting", Severity::Warning, "free memory is returned to the host (balloon)", source))
}

pub(super) fn clock_source(context: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &context.machine.kernel.clock_source;
    let name = fact.get()?;
    if matches!(name.as_str(), "tsc" | "arch_sys_counter") {
        return None;
    }
    let available = context.root.text(&CLOCK_SOURCE_FILE.replace("current", "available")).unwrap_or_default();
    let summary = format!("the kernel's clock source is '{name}'");
    let warning = hazard("clock_source", Severity::Warning, summary, fact.source_or_reason());
    let can_change = available.split_ascii_whitespace().any(|word| word == "tsc");
    Some(if can_change { with_command(warning, format!("echo tsc | sudo tee {CLOCK_SOURCE_FILE}")) } else { warning })
}

pub(super) fn transparent_huge_pages(context: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &context.machine.memory.transparent_huge_pages;
    let summary = "transparent huge pages are on for all memory";
    (fact.get()? == "always")
        .then(|| hazard("transparent_huge_pages", Severity::Warning, summary, fact.source_or_reason()))
}

pub(super) fn numa_balancing(context: &HazardContext<'_>) -> Option<Hazard> {
    const SWITCH: &str = "/proc/sys/kernel/numa_balancing";
    let nodes = context.machine.topology.nodes.get().map_or(1, Vec::len);
    let is_enabled = context.root.text(SWITCH).is_some_and(|text| text != "0");
    if !is_enabled || nodes < 2 {
        return None;
    }
    let summary = format!("automatic NUMA balancing moves pages between {nodes} nodes");
    Some(hazard("numa_balancing", Severity::Warning, summary, SWITCH))
}

pub(super) fn memory_limit(context: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &context.machine.limits.memory_bytes;
    let limit = (*fact.get()?)?;
    let total = *context.machine.memory.total_bytes.get()?;
    let summary = format!(
        "the control group may use {} of the machine's {} MiB of memory, file cache included",
        limit >> 20,
        total >> 20
    );
    (limit < total).then(|| hazard("memory_limit", Severity::Note, summary, fact.source_or_reason()))
}

/// Unknown facts that predictions, sizes and ceilings need.
pub(super) fn unknown_facts(context: &HazardContext<'_>) -> Option<Hazard> {
    let machine = context.machine;
    let facts = [
        ("cache sizes", machine.topology.caches.get().is_none()),
        ("which CPUs share a core", machine.topology.siblings.get().is_none()),
        ("the allowed CPUs", machine.topology.allowed.get().is_none()),
        ("the nominal frequency", machine.cpu.nominal_hz.get().is_none()),
        ("the microarchitecture", machine.cpu.microarchitecture.get().is_none()),
        ("the peak memory bandwidth", machine.memory.peak_bytes_per_second.get().is_none()),
        ("the memory size", machine.memory.total_bytes.get().is_none()),
        ("whether there is a hypervisor", machine.platform.hypervisor.get().is_none()),
        ("the CPU quota", machine.limits.cpu_quota.get().is_none()),
        // A recorded tree never has them.
        ("hardware counters", context.root.is_live() && machine.cpu.hardware_counters.get().is_none()),
    ];
    let names: Vec<&str> = facts.into_iter().filter(|(_, is_unknown)| *is_unknown).map(|(name, _)| name).collect();
    let summary = format!("unknown: {}", names.join(", "));
    let source = "the machine's facts, each with its reason";
    (!names.is_empty()).then(|| hazard("unknown_facts", Severity::Note, summary, source))
}
