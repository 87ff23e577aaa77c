//! What a run measured a hazard of its machine to cost.

use kelvin_core::Name;
use kelvin_core::catalogue::os::{HandoffMechanism, SWITCH_CROSS_CPU};
use kelvin_core::units::brief_value;

use crate::metric_selector::MetricSelector;
use crate::result::Analysis;

/// That idle CPUs halt.
const IDLE_STATES_HAZARD: &str = "idle_states";

/// What it was measured to cost, in words; nothing where no figure of the run is that cost alone.
pub fn measured_cost(hazard: &Name, analysis: &Analysis) -> Option<String> {
    if *hazard != *IDLE_STATES_HAZARD {
        return None;
    }
    let result =
        MetricSelector::new(&SWITCH_CROSS_CPU).with_word(HandoffMechanism::Pipe.point()).find(&analysis.results)?;
    let summary = result.outcome.summary()?;
    let time = brief_value(summary.headline, None, SWITCH_CROSS_CPU.unit);
    Some(format!("measured in this run: {time} from passing a token until a process on another CPU has it"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::Case;

    use super::*;
    use crate::analyse;
    use crate::testing::{add_scalars, empty_run};

    #[test]
    fn idle_states_cost_is_remote_wake_up() {
        let mut run = empty_run(&[SWITCH_CROSS_CPU]);
        let idle = Name::new(IDLE_STATES_HAZARD);
        assert_eq!(measured_cost(&idle, &analyse(&run)), None, "nothing was measured");
        let pipe = HandoffMechanism::Pipe.point();
        add_scalars(&mut run, &SWITCH_CROSS_CPU, Case::new().with_word(pipe), &[29_000.0; 8]);
        let said = "measured in this run: 29.0 µs from passing a token until a process on another CPU has it";
        assert_eq!(measured_cost(&idle, &analyse(&run)).as_deref(), Some(said));
        assert_eq!(measured_cost(&Name::new("smt"), &analyse(&run)), None);
    }
}
