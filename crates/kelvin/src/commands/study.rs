//! `kelvin study`: one of the long experiments, or a measure of a plain run in its full form.

use kelvin_harness::{Effort, ProbeKind};

use crate::cli::StudyArgs;
use crate::commands::run::{self, Destination};
use crate::fault::{Done, Fault};
use crate::measure::Wishes;
use crate::place::Here;
use crate::private::Told;
use crate::selection::{Needing, plan_of};

/// Default seconds and rounds of a study.
const BUDGET: f64 = 60.0;
const ROUNDS: u32 = 5;

/// `kelvin study`.
pub fn study(args: &StudyArgs) -> Done {
    let here = Here::read()?;
    let probes = kelvin_probes::all();
    let of = |kind: ProbeKind| probes.iter().filter(move |probe| probe.kind == kind);
    let last = |id: &'static str| id.rsplit('.').next().unwrap_or(id);
    let study = of(ProbeKind::Study).find(|probe| probe.id == args.name || last(probe.id) == args.name);
    let in_full = || of(ProbeKind::Measure).find(|probe| probe.id == args.name);
    let chosen = study.or_else(in_full).ok_or_else(|| {
        let known: Vec<&str> = of(ProbeKind::Study).map(|probe| last(probe.id)).collect();
        Fault::because(format!(
            "no study is called '{}'; there are {}, and every probe of `kelvin list`, at all its points",
            args.name,
            known.join(", ")
        ))
    })?;
    if let Some(needing) = Needing::of(chosen) {
        needing.check(chosen.id, &args.measure)?;
    }
    // A study has all its points; a probe has some that a plain run leaves out.
    let effort = if chosen.kind == ProbeKind::Study { Effort::Default } else { Effort::Thorough };
    let plan = plan_of(chosen.kind, &[chosen.id.to_owned()], &here, effort)?;
    let wishes = Wishes {
        mode: "study",
        budget: BUDGET,
        rounds: ROUNDS,
        args: &args.measure,
        told: Told::with(args.to.with_private),
    };
    run::carry_out(here, &plan, &wishes, &Destination::new(&args.to, Vec::new()))
}
