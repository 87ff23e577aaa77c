//! Which events the processor counts, and whether this process may read them.

use kelvin_core::{Fact, HardwareCounters, HardwareEvent};
use kelvin_sys::perf_event::{CounterGroup, EventCode, is_forbidden};

use crate::root::FileRoot;

/// From 3 on it forbids counters, in kernels that know that value, such as Debian's; from 2 on it leaves out the kernel's work.
/// Linux, Documentation/admin-guide/sysctl/kernel.rst.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// The counters of a CPU, found by opening them.
pub(crate) fn hardware_counters(root: FileRoot<'_>, cpu: u32) -> Fact<HardwareCounters> {
    if !root.is_live() {
        return Fact::unknown("counters can only be opened on the running machine");
    }
    match open(cpu) {
        Ok(group) => {
            let events = HardwareEvent::ALL
                .into_iter()
                .filter(|&event| group.events().any(|code| code == code_of(event)))
                .collect();
            let counters = HardwareCounters { events, excludes_kernel: !group.counts_kernel() };
            Fact::known(counters, "perf_event_open(2)")
        }
        Err(error) if is_forbidden(&error) => {
            let setting = root
                .text(PARANOID)
                .map_or_else(String::new, |value| format!("kernel.perf_event_paranoid is {value}, "));
            Fact::unknown(format!("perf_event_open: {error}: {setting}or a filter of system calls forbids counters"))
        }
        Err(error) => {
            Fact::unknown(format!("perf_event_open: {error}: the processor or its hypervisor offers no counters"))
        }
    }
}

/// The value of the setting that forbids counters, where it does.
pub(crate) fn forbidding_level(root: FileRoot<'_>, cpu: u32) -> Option<i32> {
    const MIN_FORBIDDING: i32 = 3;
    let level = root.text(PARANOID)?.parse().ok().filter(|&level| level >= MIN_FORBIDDING)?;
    (root.is_live() && open(cpu).is_err_and(|error| is_forbidden(&error))).then_some(level)
}

fn open(cpu: u32) -> kelvin_sys::Result<CounterGroup> {
    CounterGroup::open(&HardwareEvent::ALL.map(code_of), cpu)
}

fn code_of(event: HardwareEvent) -> EventCode {
    EventCode::new(event.kernel_numbers())
}
