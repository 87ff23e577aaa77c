//! What a run measured a hazard of its machine to cost.

use kelvin_catalogue::os::{SWITCH_CROSS_CPU, TokenMeans};
use kelvin_model::Name;
use kelvin_model::units::brief;

use crate::result::Analysis;
use crate::screen::spot::Spot;

/// That idle CPUs halt.
const IDLE_STATES: &str = "idle_states";

/// What it was measured to cost, in words; nothing where no figure of the run is that cost alone.
pub fn measured(hazard: &Name, analysis: &Analysis) -> Option<String> {
    if *hazard != *IDLE_STATES {
        return None;
    }
    let result = Spot::new(&SWITCH_CROSS_CPU).at(TokenMeans::Pipe.point()).find(&analysis.results)?;
    let summary = result.outcome.summary()?;
    let time = brief(summary.headline, None, SWITCH_CROSS_CPU.unit);
    Some(format!("measured in this run: {time} from passing a token until a process on another CPU has it"))
}

#[cfg(test)]
mod tests {
    use kelvin_model::Case;

    use super::*;
    use crate::analyse;
    use crate::testing::{add_scalars, run};

    #[test]
    fn halting_costs_what_a_wake_up_of_another_cpu_took() {
        let mut run = run(&[SWITCH_CROSS_CPU]);
        let idle = Name::new(IDLE_STATES);
        assert_eq!(measured(&idle, &analyse(&run)), None, "nothing was measured");
        let pipe = TokenMeans::Pipe.point();
        add_scalars(&mut run, &SWITCH_CROSS_CPU, Case::new().at(pipe), &[29_000.0; 8]);
        let said = "measured in this run: 29.0 µs from passing a token until a process on another CPU has it";
        assert_eq!(measured(&idle, &analyse(&run)).as_deref(), Some(said));
        assert_eq!(measured(&Name::new("smt"), &analyse(&run)), None);
    }
}
