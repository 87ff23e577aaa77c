//! Boot parameters that affect measurements: a run records these and only counts the others, which may name disks,
//! hosts, users and secrets.

/// Boot parameters of one kind, and why they matter. One that ends with a dot stands for all of a module's; the kernel
/// treats `-` and `_` alike.
struct ParameterGroup {
    #[expect(dead_code, reason = "for readers of the list")]
    why: &'static str,
    names: &'static [&'static str],
}

/// From the kernel's Documentation/admin-guide/kernel-parameters.txt, 6.18.
const RECORDED_PARAMETERS: [ParameterGroup; 7] = [
    ParameterGroup {
        why: "each mitigation changes the cost of kernel entry, context switches or branches",
        names: &[
            "mitigations",
            "pti",
            "nopti",
            "kpti",
            "nospectre_v1",
            "nospectre_v2",
            "nospectre_bhb",
            "spectre_v2",
            "spectre_v2_user",
            "spectre_bhi",
            "spec_store_bypass_disable",
            "nospec_store_bypass_disable",
            "ssbd",
            "spec_rstack_overflow",
            "retbleed",
            "l1tf",
            "l1d_flush",
            "mds",
            "tsx",
            "tsx_async_abort",
            "mmio_stale_data",
            "reg_file_data_sampling",
            "gather_data_sampling",
            "srbds",
            "indirect_target_selection",
            "tsa",
            "vmscape",
            "randomize_kstack_offset",
            "init_on_alloc",
            "init_on_free",
            "nokaslr",
            "vsyscall",
            "clearcpuid",
        ],
    },
    ParameterGroup {
        why: "the number of CPUs, and which are isolated from the scheduler, timers and interrupts",
        names: &[
            "maxcpus",
            "nr_cpus",
            "possible_cpus",
            "nosmp",
            "nosmt",
            "isolcpus",
            "nohz",
            "nohz_full",
            "rcu_nocbs",
            "rcu_nocb_poll",
            "rcutree.",
            "rcupdate.",
            "irqaffinity",
            "managed_irq",
            "skew_tick",
            "numa",
            "numa_balancing",
        ],
    },
    ParameterGroup {
        why: "the deeper the idle state, the longer a wake-up takes",
        names: &[
            "idle",
            "nohlt",
            "cpuidle.",
            "cpuidle_haltpoll.",
            "haltpoll.",
            "intel_idle.",
            "processor.max_cstate",
            "processor.latency_factor",
        ],
    },
    ParameterGroup {
        why: "the frequency sets the length of a cycle",
        names: &["cpufreq.", "intel_pstate", "amd_pstate", "amd_pstate.", "amd_prefcore", "acpi_cpufreq.", "intel_epb"],
    },
    ParameterGroup {
        why: "the size of memory, its page sizes, and what an allocation does besides",
        names: &[
            "mem",
            "hugepages",
            "hugepagesz",
            "default_hugepagesz",
            "hugetlb_free_vmemmap",
            "hugetlb_cma",
            "transparent_hugepage",
            "transparent_hugepage_shmem",
            "thp_anon",
            "page_reporting.",
            "page_poison",
            "debug_pagealloc",
            "slub_debug",
            "slab_debug",
            "slab_nomerge",
            "kfence.",
            "kasan",
            "swiotlb",
            "zswap.",
            "psi",
            "cgroup_disable",
            "cgroup_no_v1",
            "deferred_init",
        ],
    },
    ParameterGroup {
        why: "which clock is read, when a task is preempted, and what traces or audits it",
        names: &[
            "clocksource",
            "tsc",
            "notsc",
            "hpet",
            "no-kvmclock",
            "no-steal-acc",
            "highres",
            "preempt",
            "threadirqs",
            "noautogroup",
            "nowatchdog",
            "nmi_watchdog",
            "nosoftlockup",
            "audit",
            "selinux",
            "apparmor",
            "lsm",
            "lockdown",
        ],
    },
    ParameterGroup {
        why: "the cost of DMA, how devices sleep, and what the hypervisor does",
        names: &[
            "iommu",
            "iommu.",
            "intel_iommu",
            "amd_iommu",
            "pcie_aspm",
            "pcie_aspm.",
            "nvme.poll_queues",
            "nvme.write_queues",
            "nvme_core.default_ps_max_latency_us",
            "nox2apic",
            "nopv",
            "nopvspin",
            "nopvtime",
            "kvm.",
            "kvm_intel.",
            "kvm_amd.",
            "kvm-arm.",
        ],
    },
];

/// The parameters of a boot line that affect measurements, in their order, and the number of others.
pub fn boot_parameters(line: &str) -> (String, u32) {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    // What follows goes to init, not to the kernel.
    let own = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let kept: Vec<&str> = words[..own].iter().copied().filter(|word| is_recorded(word)).collect();
    let left_out = words.iter().filter(|word| **word != "--").count() - kept.len();
    (kept.join(" "), u32::try_from(left_out).unwrap_or(u32::MAX))
}

fn is_recorded(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default().replace('-', "_");
    let is_it = |kept: &&str| {
        let kept = kept.replace('-', "_");
        name == kept || kept.ends_with('.') && name.starts_with(&kept)
    };
    RECORDED_PARAMETERS.iter().flat_map(|kind| kind.names).any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_parameters_are_only_counted() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1c2d-33 ro quiet mitigations=off isolcpus=2-3 nohz_full=2-3 hugepages=16 \
                    kvm-intel.ept=1 rcutree.kthread_prio=1 ip=10.0.0.5::10.0.0.1 password=x -- --addr 10.0.0.7 nosmt";
        let expected = "mitigations=off isolcpus=2-3 nohz_full=2-3 hugepages=16 kvm-intel.ept=1 rcutree.kthread_prio=1";
        assert_eq!(boot_parameters(line), (expected.into(), 9));
        assert_eq!(boot_parameters(expected), (expected.into(), 0), "what is kept stays");
        assert_eq!(boot_parameters(""), (String::new(), 0));
        assert_eq!(boot_parameters("mitigationsx=off xmitigations=off kvm=1"), (String::new(), 3));
    }

    #[test]
    fn parameter_names_are_unique() {
        let mut names: Vec<&str> = RECORDED_PARAMETERS.iter().flat_map(|kind| kind.names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
