//! What tests of predictions need: a machine of which nothing is known, and measured values of their choice.

use kelvin_harness::Facts;
use kelvin_harness::MeasuredValue;
use kelvin_model::{Case, Cpu, Fact, Kernel, Limits, Machine, Memory, Name, Platform, Topology};

fn unknown<T>() -> Fact<T> {
    Fact::unknown("a test")
}

/// A machine of which nothing is known.
pub(crate) fn machine() -> Machine {
    Machine {
        identity: "test".into(),
        architecture: Name::new("x86_64"),
        cpu: Cpu {
            vendor: unknown(),
            model_name: unknown(),
            family: unknown(),
            model: unknown(),
            stepping: unknown(),
            microarchitecture: unknown(),
            microcode: unknown(),
            nominal_hz: unknown(),
            maximum_hz: unknown(),
            measured_hz: unknown(),
            counter_hz: unknown(),
            flags: unknown(),
            tlbs: unknown(),
            governor: unknown(),
            mitigations: unknown(),
        },
        topology: Topology {
            online: unknown(),
            allowed: unknown(),
            sockets: unknown(),
            cores: unknown(),
            siblings: unknown(),
            caches: unknown(),
            nodes: unknown(),
        },
        memory: Memory {
            total_bytes: unknown(),
            available_bytes: unknown(),
            swap_bytes: unknown(),
            page_bytes: unknown(),
            huge_page_bytes: unknown(),
            transparent_huge_pages: unknown(),
            kind: unknown(),
            transfers_per_second: unknown(),
            channels: unknown(),
            peak_bytes_per_second: unknown(),
        },
        disks: Vec::new(),
        mounts: Vec::new(),
        nics: Vec::new(),
        kernel: Kernel {
            release: unknown(),
            version: unknown(),
            distribution: unknown(),
            libc: unknown(),
            command_line: unknown(),
            preemption: unknown(),
            timer_hz: unknown(),
            scheduler: unknown(),
            congestion_control: unknown(),
            clock_source: unknown(),
        },
        platform: Platform { product: unknown(), hypervisor: unknown(), container: unknown() },
        limits: Limits {
            cpu_quota: unknown(),
            memory_bytes: unknown(),
            processes: unknown(),
            open_files: unknown(),
            cgroup_version: unknown(),
        },
    }
}

/// Calls `look` with facts about that machine and these headlines by metric id, whatever the case; `None` is a metric
/// that was not measured.
pub(crate) fn facts_about<R>(known: &[(&str, Option<f64>)], look: impl FnOnce(&Facts<'_>) -> R) -> R {
    let machine = machine();
    let measured = |id: &str, _: &Case| {
        let value = known.iter().find(|(name, _)| *name == id)?.1?;
        Some(MeasuredValue { value, half_width: 0.0 })
    };
    look(&Facts::new(&machine, &measured))
}
