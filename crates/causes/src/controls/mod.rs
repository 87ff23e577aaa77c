//! Interventions that causes share.

mod awake;
mod groups;
mod latency_limit;

use kelvin_model::Reason;

use crate::cause::Control;
use awake::Awake;
pub(crate) use groups::above_limits;
use latency_limit::LatencyLimit;

/// CPUs kept awake by spinners.
pub(crate) const AWAKE: Control = Control {
    id: "awake",
    apply: |scene, conditions| {
        if scene.cpu_quota().is_some() {
            return Err(Reason::new("a spinner would use up the CPU quota of this control group"));
        }
        conditions.hold(Awake::on(&scene.cpus())?);
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
