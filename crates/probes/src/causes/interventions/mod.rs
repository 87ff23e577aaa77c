//! Interventions that causes share.

mod cgroups;
mod latency_limit;
mod spinners;

use kelvin_core::SkipReason;

use crate::causes::cause::Intervention;
pub(crate) use cgroups::nearest_unlimited;
use latency_limit::LatencyLimit;
pub(crate) use spinners::{SpinPurpose, Spinners};

/// CPUs kept awake by spinners.
pub(crate) const KEEP_AWAKE: Intervention = Intervention {
    id: "awake",
    apply: |scene, conditions| {
        if scene.cpu_quota().is_some() {
            return Err(SkipReason::new("a spinner would use up the CPU quota of this control group"));
        }
        conditions.keep_for_round(Spinners::start(&scene.cpus(), SpinPurpose::KeepAwake)?);
        Ok(())
    },
};

/// CPUs that poll instead of entering an idle state.
pub(crate) const NO_IDLE_STATES: Intervention = Intervention {
    id: "no_idle_states",
    apply: |_, conditions| {
        conditions.keep_for_round(LatencyLimit::zero()?);
        Ok(())
    },
};
