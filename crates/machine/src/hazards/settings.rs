//! Hazards of system configuration: reclaim, page reporting, clock source, huge pages, NUMA, memory limit, unknowns.

use kelvin_core::catalogue::mem::{FAULT_MAJOR, FAULT_MINOR, PAGE_STUDY};
use kelvin_core::{Hazard, Severity};

use super::{HazardBuilder, HazardContext, TUNE_COMMAND, hazard};

/// Virtio device ID of the memory balloon, and the feature bits by which a guest returns free pages (virtio 1.3, 5.5).
const BALLOON_DEVICE_ID: &str = "0x0005";
const FREE_PAGE_HINT_BIT: usize = 3;
const PAGE_REPORTING_BIT: usize = 5;

pub(super) fn proactive_reclaim(look: &HazardContext<'_>) -> Option<Hazard> {
    let file = crate::tune::proactive_reclaim(look.root)?;
    let effect = "idle file cache and memory are reclaimed within seconds to minutes: cached data may be cold";
    Some(
        hazard("proactive_reclaim", Severity::Warning, "idle memory is reclaimed proactively (DAMON)", effect)
            .affecting(&["file.", FAULT_MINOR.id.as_str(), FAULT_MAJOR.id.as_str(), PAGE_STUDY.as_str()])
            .remedy_command(TUNE_COMMAND)
            .with_source(file),
    )
}

pub(super) fn page_reporting(look: &HazardContext<'_>) -> Option<Hazard> {
    const DEVICES: &str = "/sys/bus/virtio/devices";
    let balloon = look.root.names(DEVICES).into_iter().find(|device| {
        let file = |name: &str| look.root.text(&format!("{DEVICES}/{device}/{name}")).unwrap_or_default();
        let has = |features: &str, bit: usize| features.as_bytes().get(bit) == Some(&b'1');
        let features = file("features");
        file("device") == BALLOON_DEVICE_ID
            && (has(&features, PAGE_REPORTING_BIT) || has(&features, FREE_PAGE_HINT_BIT))
    })?;
    let effect = "the first touch of a page may cost a VM exit, ten times a later touch";
    Some(
        hazard("page_reporting", Severity::Warning, "free memory is returned to the host (balloon)", effect)
            .affecting(&["mem.fault", "os.process", "os.fork", "os.thread"])
            .with_source(format!("{DEVICES}/{balloon}/features")),
    )
}

pub(super) fn clock_source(look: &HazardContext<'_>) -> Option<Hazard> {
    const DIRECTORY: &str = "/sys/devices/system/clocksource/clocksource0";
    let fact = &look.machine.kernel.clock_source;
    let name = fact.get()?;
    if matches!(name.as_str(), "tsc" | "arch_sys_counter") {
        return None;
    }
    let available = look.root.text(&format!("{DIRECTORY}/available_clocksource")).unwrap_or_default();
    let effect = "reading the kernel's clocks is slower, and the kernel may have found the processor's counter \
                  unstable";
    let hazard = hazard("clock_source", Severity::Warning, format!("the kernel's clock source is '{name}'"), effect)
        .with_source(fact.source_or_reason());
    let can_change = available.split_ascii_whitespace().any(|one| one == "tsc");
    Some(if can_change {
        hazard.remedy_command(format!("echo tsc | sudo tee {DIRECTORY}/current_clocksource"))
    } else {
        hazard
    })
}

pub(super) fn transparent_huge_pages(look: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &look.machine.memory.transparent_huge_pages;
    if fact.get()? != "always" {
        return None;
    }
    let effect = "page size is down to luck: fewer but costlier faults, and varying TLB misses";
    Some(
        hazard("transparent_huge_pages", Severity::Warning, "transparent huge pages are on for all memory", effect)
            .affecting(&["mem.", "os.process", "os.fork"])
            .remedy_command(TUNE_COMMAND)
            .with_source(fact.source_or_reason()),
    )
}

pub(super) fn numa_balancing(look: &HazardContext<'_>) -> Option<Hazard> {
    const SWITCH: &str = "/proc/sys/kernel/numa_balancing";
    let nodes = look.machine.topology.nodes.get().map_or(1, Vec::len);
    let on = look.root.text(SWITCH).is_some_and(|text| text != "0");
    if !on || nodes < 2 {
        return None;
    }
    let effect = "pages are unmapped to track their use, and may move during a measurement";
    Some(
        hazard(
            "numa_balancing",
            Severity::Warning,
            format!(
                "automatic NUMA balancing moves pages between {nodes} \
                                                             nodes"
            ),
            effect,
        )
        .affecting(&["mem.", "os.", "file."])
        .remedy_command(TUNE_COMMAND)
        .with_source(SWITCH),
    )
}

pub(super) fn memory_limit(look: &HazardContext<'_>) -> Option<Hazard> {
    let fact = &look.machine.limits.memory_bytes;
    let limit = (*fact.get()?)?;
    let total = *look.machine.memory.total_bytes.get()?;
    if limit >= total {
        return None;
    }
    let mebibytes = |bytes: u64| bytes >> 20;
    let summary = format!(
        "the control group may use {} of the machine's {} MiB of memory, file cache included",
        mebibytes(limit),
        mebibytes(total)
    );
    let effect = "files near that size do not stay cached, and large working sets are reclaimed or OOM-killed";
    Some(
        hazard("memory_limit", Severity::Note, summary, effect)
            .affecting(&["mem.", "file."])
            .with_source(fact.source_or_reason()),
    )
}

/// Unknown facts that predictions, sizes and ceilings need.
pub(super) fn unknown_facts(look: &HazardContext<'_>) -> Option<Hazard> {
    let machine = look.machine;
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
    ];
    let names: Vec<&str> = facts.into_iter().filter(|(_, unknown)| *unknown).map(|(name, _)| name).collect();
    if names.is_empty() {
        return None;
    }
    let effect = "predictions and ceilings that need them are omitted, and sizes are chosen without them";
    Some(
        hazard("unknown_facts", Severity::Note, format!("unknown: {}", names.join(", ")), effect)
            .remedy_advice("see kelvin machine, which says why each is unknown; root may read more of them")
            .with_source("the machine's facts, each with its reason"),
    )
}
