//! Interventions that causes share.

mod groups;
mod latency_limit;
mod spinners;

use kelvin_model::Reason;

use crate::cause::Control;
pub(crate) use groups::above_limits;
use latency_limit::LatencyLimit;
pub(crate) use spinners::{Purpose, Spinners};

/// CPUs kept awake by spinners.
pub(crate) const AWAKE: Control = Control {
    id: "awake",
    apply: |scene, conditions| {
        if scene.cpu_quota().is_some() {
            return Err(Reason::new("a spinner would use up the CPU quota of this control group"));
        }
        conditions.hold(Spinners::on(&scene.cpus(), Purpose::Awake)?);
        Ok(())
    },
};

/// CPUs that poll instead of entering an idle state.
pub(crate) const NO_IDLE_STATES: Control = Control {
    id: "no_idle_states",
    apply: |_, conditions| {
        conditions.hold(LatencyLimit::of_nothing()?);
        Ok(())
    },
};
