//! Hazards of power and heat: idle states, battery, throttling.

use kelvin_core::{Hazard, Severity};

use super::{HazardContext, hazard, with_command};
use crate::counters::{THERMAL_THROTTLE_FILES, thermal_throttles};

/// Exit latency in microseconds from which an idle state shows in a round trip: about a context switch.
const MIN_EXIT_LATENCY: u64 = 5;

pub(super) fn idle_states(look: &HazardContext<'_>) -> Option<Hazard> {
    let directory = format!("/sys/devices/system/cpu/cpu{}/cpuidle", look.first_cpu());
    if look.is_virtual() {
        let summary = "an idle virtual CPU halts in the hypervisor, which does not tell what waking it costs";
        let effect = "round trips between two CPUs are multimodal: tens of microseconds longer when the other CPU was \
                      idle";
        return Some(Hazard { effect: effect.into(), ..hazard("idle_states", Severity::Note, summary, directory) });
    }
    let states = look.root.names(&directory).into_iter().filter_map(|state| {
        let file = |name: &str| look.root.text(&format!("{directory}/{state}/{name}"));
        let enabled = file("disable").is_none_or(|text| text == "0");
        let latency: u64 = file("latency")?.parse().ok()?;
        enabled.then(|| (latency, file("name").unwrap_or(state.clone())))
    });
    let (latency, name) = states.max().filter(|(latency, _)| *latency >= MIN_EXIT_LATENCY)?;
    let summary = format!("an idle CPU may enter {name}, with an exit latency of {latency} us");
    let found = hazard("idle_states", Severity::Note, summary, directory);
    Some(with_command(found, format!("sudo cpupower idle-set -D {MIN_EXIT_LATENCY}")))
}

pub(super) fn battery(look: &HazardContext<'_>) -> Option<Hazard> {
    const SUPPLIES: &str = "/sys/class/power_supply";
    let discharging = look.root.names(SUPPLIES).into_iter().find(|name| {
        let file = |what: &str| look.root.text(&format!("{SUPPLIES}/{name}/{what}"));
        // Batteries of mice and headsets are of scope Device.
        file("type").as_deref() == Some("Battery")
            && file("status").as_deref() == Some("Discharging")
            && file("scope").as_deref() != Some("Device")
    })?;
    let source = format!("{SUPPLIES}/{discharging}/status");
    Some(hazard("battery", Severity::Serious, "the machine runs on battery", source))
}

pub(super) fn thermal(look: &HazardContext<'_>) -> Option<Hazard> {
    let times = thermal_throttles(look.root).filter(|times| *times > 0)?;
    let summary = format!("the processor was thermally throttled {times} times since boot");
    Some(hazard("thermal_throttling", Severity::Note, summary, THERMAL_THROTTLE_FILES))
}
