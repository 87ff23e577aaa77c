//! The caches of all CPUs, and which CPUs share each.

use kelvin_core::{CacheInstances, Fact, IndirectSort};

use super::{CPU_DIRECTORY, cpus_from_files};
use crate::root::{FileRoot, suffixed_size};
use crate::tlb::cache_kind;

/// The caches of these CPUs, by level, kind and size; or why none is known.
pub(super) fn cache_instances(root: FileRoot<'_>, online: &[u32]) -> Fact<Vec<CacheInstances>> {
    let mut groups: Vec<CacheInstances> = Vec::new();
    for &cpu in online {
        let directory = format!("{CPU_DIRECTORY}/cpu{cpu}/cache");
        for index in root.names(&directory).into_iter().filter(|name| name.starts_with("index")) {
            let directory = format!("{directory}/{index}");
            let Some(cache) = cache(root, &directory) else { continue };
            let cpus = sharing_cpus(root, &directory, cpu, online);
            match groups.iter_mut().find(|group| group.is_alike(&cache)) {
                Some(group) if group.shared_by.contains(&cpus) => {}
                Some(group) => group.shared_by.push(cpus),
                None => groups.push(CacheInstances { shared_by: vec![cpus], ..cache }),
            }
        }
    }
    groups.indirect_sort_by_key(|group| group.level);
    if groups.is_empty() {
        return Fact::unknown(format!(
            "{CPU_DIRECTORY}/cpu*/cache states no cache sizes: {}",
            root.absence_reason(CPU_DIRECTORY, "the firmware or hypervisor does not describe them")
        ));
    }
    Fact::known(groups, format!("{CPU_DIRECTORY}/cpu*/cache"))
}

/// What a directory says of a cache, without the CPUs that share it.
fn cache(root: FileRoot<'_>, directory: &str) -> Option<CacheInstances> {
    let text = |name: &str| root.text(&format!("{directory}/{name}"));
    let stated = |name: &str| text(name)?.parse::<u32>().ok().filter(|&value| value > 0);
    Some(CacheInstances {
        level: text("level")?.parse().ok()?,
        kind: cache_kind(&text("type")?)?,
        bytes: suffixed_size(&text("size")?).filter(|&bytes| bytes > 0)?,
        ways: stated("ways_of_associativity"),
        line_bytes: stated("coherency_line_size"),
        shared_by: Vec::new(),
    })
}

/// The online CPUs that share a cache of one of them.
fn sharing_cpus(root: FileRoot<'_>, directory: &str, cpu: u32, online: &[u32]) -> Vec<u32> {
    let listed =
        cpus_from_files(root, &[(format!("{directory}/shared_cpu_list"), format!("{directory}/shared_cpu_map"))]);
    let cpus: Vec<u32> = listed.into_iter().flatten().filter(|sharer| online.contains(sharer)).collect();
    if cpus.contains(&cpu) { cpus } else { vec![cpu] }
}
