//! `kelvin study`: one of the long experiments.

use kelvin_harness::{Effort, Kind, Plan};

use crate::cli::StudyArgs;
use crate::commands::run::{self, Destination};
use crate::fault::{Done, Fault};
use crate::measure::{Here, Wishes};

/// Seconds and rounds of a study if the command line does not say.
const BUDGET: f64 = 60.0;
const ROUNDS: u32 = 5;

/// `kelvin study`.
pub fn study(args: &StudyArgs) -> Done {
    let here = Here::read()?;
    let probes = kelvin_probes::all();
    let studies = || probes.iter().filter(|probe| probe.kind == Kind::Study);
    let last = |id: &'static str| id.rsplit('.').next().unwrap_or(id);
    let chosen = studies().find(|probe| probe.id == args.name || last(probe.id) == args.name).ok_or_else(|| {
        let known: Vec<&str> = studies().map(|probe| last(probe.id)).collect();
        Fault::because(format!("no study is called '{}'; there is: {}", args.name, known.join(", ")))
    })?;
    let plan = Plan::new(&probes, Kind::Study, &[chosen.id.to_owned()], &here.machine, Effort::Default)
        .map_err(Fault::because)?;
    let wishes = Wishes { mode: "study", budget: BUDGET, rounds: ROUNDS, args: &args.measure };
    run::carry_out(here, &plan, &wishes, &Destination::new(&args.to, Vec::new()))
}
