//! Interventions that causes share.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use kelvin_core::SkipReason;

use super::cause::Intervention;
use crate::reasons::refuse_if;
use crate::spinners::{SpinPurpose, Spinners};

const KEEP_AWAKE_ID: &str = "awake";

/// CPUs kept awake by spinners.
pub(crate) const KEEP_AWAKE: Intervention = Intervention {
    id: KEEP_AWAKE_ID,
    apply: |context, conditions| {
        refuse_if(context.cpu_quota().is_some(), "a spinner would use up the CPU quota of this control group")?;
        let start = || Spinners::start(&context.cpus(), SpinPurpose::KeepAwake);
        let spinners = conditions.keep_for_experiment(KEEP_AWAKE_ID, start)?;
        conditions.keep_for_round(spinners.spin());
        Ok(())
    },
};

const CPU_DMA_LATENCY_PATH: &str = "/dev/cpu_dma_latency";

/// CPUs that poll instead of entering an idle state. The limit on the exit latency of idle states is zero. The kernel
/// keeps it while the file is open (admin-guide/pm/cpuidle.rst, "Power Management Quality of Service").
pub(crate) const NO_IDLE_STATES: Intervention = Intervention {
    id: "no_idle_states",
    apply: |_, conditions| {
        let to_skip_reason =
            |error| SkipReason::new(format!("needs {CPU_DMA_LATENCY_PATH}, which root may open: {error}"));
        let mut limit = File::options().write(true).open(CPU_DMA_LATENCY_PATH).map_err(to_skip_reason)?;
        // A 32-bit number of microseconds.
        limit.write_all(&0i32.to_ne_bytes()).map_err(to_skip_reason)?;
        conditions.keep_for_round(limit);
        Ok(())
    },
};

/// The file by which processes enter a group, which every group has.
const CGROUP_PROCS: &str = "cgroup.procs";

/// The nearest group above all limits that bind this one.
pub(crate) fn nearest_unlimited(group: &Path, is_limited: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let groups = group.ancestors().take_while(|ancestor| ancestor.join(CGROUP_PROCS).exists());
    let highest = groups.filter(|ancestor| is_limited(ancestor)).last()?;
    highest.parent().filter(|parent| parent.join(CGROUP_PROCS).exists()).map(Path::to_path_buf)
}
