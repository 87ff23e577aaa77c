//! How much memory a probe may touch, which working sets fit, and its caches and CPUs.

use kelvin_core::{Cache, IndirectSort, Machine};

/// Maximum share of the available memory, and of the cgroup's limit, that a probe touches.
const MAX_MEMORY_SHARE: f64 = 0.5;
/// Last-level cache assumed where the machine states none, and what is believed of a virtual machine: it sees the size
/// of the host's, of which it has a share that is not reported. More than most have.
const ASSUMED_LAST_LEVEL: u64 = 64 << 20;
/// What is believed of it for each of its CPUs that share the cache, where that is more. A machine with most of a
/// host's CPUs has most of its cache. Current servers have 2 to 6 MiB for a hardware thread.
const ASSUMED_LAST_LEVEL_PER_CPU: u64 = 8 << 20;
/// L2 cache assumed where the machine states none.
const ASSUMED_SECOND_LEVEL: u64 = 1 << 20;
/// The largest working set is this many times the last-level cache, and at least this many bytes, memory permitting.
pub(super) const LAST_LEVEL_MULTIPLE: u64 = 4;
const MIN_LARGEST_SET: u64 = 256 << 20;
/// The memory for each of several last-level caches is a multiple of this.
const CACHE_SET_STEP: u64 = 16 << 20;

/// Bytes that a probe may touch: half of the available memory, and half of the cgroup's limit. Where neither is known,
/// 128 MiB.
pub(crate) fn memory_budget(machine: &Machine) -> u64 {
    let limit = machine.limits.memory_bytes.get().copied().flatten();
    let limits = [machine.memory.available_bytes.get().copied(), limit];
    let smallest = limits.into_iter().flatten().min();
    smallest.map_or(128 << 20, |bytes| (bytes as f64 * MAX_MEMORY_SHARE) as u64)
}

/// The stated last-level cache as far as it is believed, or the assumed one.
pub(crate) fn last_level_bytes(machine: &Machine) -> u64 {
    let is_virtual = machine.platform.hypervisor.get().is_some_and(Option::is_some);
    data_caches(machine).last().map_or(ASSUMED_LAST_LEVEL, |cache| {
        let share_of_cpus = ASSUMED_LAST_LEVEL_PER_CPU * sharing_cpus(machine, cache);
        if is_virtual { cache.bytes.min(ASSUMED_LAST_LEVEL.max(share_of_cpus)) } else { cache.bytes }
    })
}

/// The largest working set of a probe with `copies` of it: four times the last-level cache, at least 256 MiB, within
/// the allowance.
pub(crate) fn largest_working_set(machine: &Machine, copies: u64) -> u64 {
    (LAST_LEVEL_MULTIPLE * last_level_bytes(machine)).max(MIN_LARGEST_SET).min(memory_budget(machine) / copies.max(1))
}

/// Memory for each last-level cache at work, so that no cache holds what comes next: four times that cache and the L2 caches before it. So many
/// such sets fit into what may be touched.
pub(super) fn cache_set_bytes(machine: &Machine, sets: u64) -> u64 {
    let sharing_cpus = allowed_cpu_count(machine).div_ceil(last_level_count(machine));
    let second_levels = second_level_bytes(machine).unwrap_or(ASSUMED_SECOND_LEVEL) * sharing_cpus;
    let wanted = LAST_LEVEL_MULTIPLE * (last_level_bytes(machine) + second_levels);
    let budget = memory_budget(machine) / sets.max(1) / CACHE_SET_STEP * CACHE_SET_STEP;
    wanted.next_multiple_of(CACHE_SET_STEP).min(budget.max(CACHE_SET_STEP))
}

/// How many last-level caches the allowed CPUs have between them.
pub(super) fn last_level_count(machine: &Machine) -> u64 {
    data_caches(machine).last().map_or(1, |cache| allowed_cpu_count(machine).div_ceil(sharing_cpus(machine, cache)))
}

/// Data caches, innermost first.
pub(crate) fn data_caches(machine: &Machine) -> Vec<&Cache> {
    let all_caches = machine.topology.caches.get().map_or(&[][..], Vec::as_slice);
    let mut caches: Vec<&Cache> = all_caches.iter().filter(|cache| cache.kind.holds_data()).collect();
    caches.indirect_sort_by_key(|cache| cache.level);
    caches
}

/// How many of the allowed CPUs share a cache; at least one.
pub(super) fn sharing_cpus(machine: &Machine, cache: &Cache) -> u64 {
    let allowed = machine.topology.allowed.get().map_or(&[][..], Vec::as_slice);
    cache.shared_by.iter().filter(|cpu| allowed.contains(cpu)).count().max(1) as u64
}

/// Bytes of a base page: as stated, else those of most machines.
pub(crate) fn page_bytes(machine: &Machine) -> u64 {
    machine.memory.page_bytes.get().copied().unwrap_or(4096)
}

/// Bytes of the L2 cache, if the machine reports it.
pub(crate) fn second_level_bytes(machine: &Machine) -> Option<u64> {
    data_caches(machine).into_iter().find(|cache| cache.level == 2).map(|cache| cache.bytes)
}

/// CPUs that this process may use.
pub(crate) fn allowed_cpu_count(machine: &Machine) -> u64 {
    machine.topology.allowed.get().map_or(1, |cpus| cpus.len() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::{CacheKind, Fact};

    fn machine(available: u64, limit: Option<u64>, last_level: Option<u64>) -> Machine {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(available, "a test");
        machine.limits.memory_bytes = Fact::known(limit, "a test");
        machine.topology.caches = match last_level {
            None => Fact::unknown("a test"),
            Some(bytes) => {
                let cache =
                    |level, kind, bytes| Cache { level, kind, bytes, ways: None, line_bytes: None, shared_by: vec![0] };
                let caches = vec![
                    cache(1, CacheKind::Data, 32 << 10),
                    cache(1, CacheKind::Instruction, 64 << 20),
                    cache(3, CacheKind::Unified, bytes),
                ];
                Fact::known(caches, "a test")
            }
        };
        machine
    }

    #[test]
    fn budget_is_half_of_available_memory() {
        assert_eq!(memory_budget(&machine(8 << 30, None, None)), 4 << 30);
        assert_eq!(memory_budget(&machine(8 << 30, Some(512 << 20), None)), 256 << 20);
        assert_eq!(memory_budget(&testing::machine()), 128 << 20);
    }

    #[test]
    fn largest_set_is_four_times_last_level() {
        assert_eq!(largest_working_set(&machine(64 << 30, None, Some(96 << 20)), 1), 384 << 20);
        assert_eq!(largest_working_set(&machine(64 << 30, None, Some(8 << 20)), 1), 256 << 20);
        assert_eq!(largest_working_set(&machine(64 << 30, None, None), 1), 256 << 20);
        assert_eq!(largest_working_set(&machine(512 << 20, None, Some(96 << 20)), 1), 256 << 20);
        assert_eq!(largest_working_set(&machine(512 << 20, None, Some(96 << 20)), 3), (256 << 20) / 3);
    }

    #[test]
    fn cache_set_exceeds_last_level_and_all_second_levels() {
        const MIB: u64 = 1 << 20;
        // 32 MiB of L3 for 12 CPUs with 1 MiB of L2 each.
        let mut machine = crate::memory::bandwidth::tests::machine(12, 32 * MIB, 24 << 30);
        assert_eq!((last_level_count(&machine), cache_set_bytes(&machine, 1)), (1, 4 * 44 * MIB));
        machine.memory.available_bytes = Fact::known(300 * MIB, "a test");
        assert_eq!([1, 3, 1000].map(|sets| cache_set_bytes(&machine, sets)), [144 * MIB, 48 * MIB, CACHE_SET_STEP]);
    }

    #[test]
    fn guest_last_level_is_limited() {
        let largest_set = |hypervisor: Option<&str>, bytes| {
            let hypervisor = Fact::known(hypervisor.map(str::to_owned), "a test");
            let mut machine = machine(64 << 30, None, Some(bytes));
            machine.platform.hypervisor = hypervisor;
            largest_working_set(&machine, 1)
        };
        assert_eq!([largest_set(Some("KVM"), 480 << 20), largest_set(None, 480 << 20)], [256 << 20, 1920 << 20]);
        assert_eq!(largest_set(Some("KVM"), 32 << 20), largest_set(None, 32 << 20));
        // One with 40 of the host's CPUs may have 320 MiB.
        let mut many_cpus = crate::memory::bandwidth::tests::machine(40, 480 << 20, 64 << 30);
        many_cpus.platform.hypervisor = Fact::known(Some("KVM".to_owned()), "a test");
        assert_eq!((last_level_bytes(&many_cpus), largest_working_set(&many_cpus, 1)), (320 << 20, 1280 << 20));
    }
}
