//! The map of the machine: its sockets, nodes, last-level caches and cores as boxes in each other.

use kelvin_core::{CacheDomain, CoreGroup, Machine, TopologyPlace, topology_places};

use crate::escape::{Markup, html};

/// The map; nothing if it is not known which CPUs share a core.
pub(super) fn topology_map(machine: &Machine) -> Markup {
    let places = topology_places(&machine.topology);
    if places.is_empty() {
        return Markup::new();
    }
    let place = |place: &TopologyPlace| {
        let domains: Markup = place.domains.iter().map(|domain| cache_box(domain, machine)).collect();
        let domains =
            if place.domains.is_empty() { Markup::new() } else { html!("<ul class=\"caches\">{}</ul>", domains) };
        html!("<li><p>{}</p>{}</li>", place.title, domains)
    };
    let boxes: Markup = places.iter().map(place).collect();
    html!(
        "<figure class=\"topology\"><figcaption>{}</figcaption><ul class=\"places\">{}</ul></figure>",
        caption(machine),
        boxes
    )
}

/// What the boxes are, and which CPUs are none of them.
fn caption(machine: &Machine) -> String {
    let topology = &machine.topology;
    let measured = machine.cpu.number.map(|cpu| format!("CPU {cpu} is measured"));
    let listed =
        |cpus: &[u32], text: &str| (!cpus.is_empty()).then(|| format!("CPUs {} {text}", kelvin_core::cpu_ranges(cpus)));
    let offline = topology.offline.get().and_then(|cpus| listed(cpus, "are offline"));
    let isolated = topology.isolated.get().and_then(|cpus| listed(cpus, "are isolated"));
    let parts: Vec<String> = [measured, offline, isolated].into_iter().flatten().collect();
    let first = "Each small box is a core with the numbers of its CPUs, in a box of its last-level cache";
    std::iter::once(first.to_owned()).chain(parts).collect::<Vec<_>>().join("; ") + "."
}

fn cache_box(domain: &CacheDomain, machine: &Machine) -> Markup {
    let title = domain.cache_title().map_or_else(Markup::new, |title| html!("<p>{}</p>", title));
    let groups: Markup = domain.cores.iter().map(|group| core_boxes(group, machine)).collect();
    html!("<li>{}{}</li>", title, groups)
}

/// The cores of one kind, with its name where kinds differ.
fn core_boxes(group: &CoreGroup, machine: &Machine) -> Markup {
    let kind = group.kind.and_then(|kind| Some(machine.topology.core_kinds.get()?[kind].name.as_str()));
    let kind = kind.map_or_else(Markup::new, |name| html!("<p class=\"kind\">{}</p>", name));
    let core = |cpus: &Vec<u32>| {
        let is_measured = machine.cpu.number.is_some_and(|cpu| cpus.contains(&cpu));
        let numbers = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        if is_measured { html!("<li class=\"measured\">{}</li>", numbers) } else { html!("<li>{}</li>", numbers) }
    };
    let cores: Markup = group.cores.iter().map(core).collect();
    html!("{}<ul class=\"cores\">{}</ul>", kind, cores)
}
