//! What names on the command line select: probes of a plain run, and studies that need an option.

use std::collections::BTreeSet;

use kelvin_catalogue::file::REMOTE;
use kelvin_harness::{Effort, Plan, Probe, ProbeKind, Sources, Unit};
use kelvin_model::{Case, Need};

use crate::cli::MeasureArgs;
use crate::fault::Fault;
use crate::place::Here;

/// Studies that a plain run includes if an option names what they need.
#[derive(Debug)]
pub struct Needing {
    /// What their metrics need.
    need: Need,
    /// The option: `--peer HOST`.
    pub option: &'static str,
    /// What its value must be.
    what: &'static str,
    is_given: fn(&MeasureArgs) -> bool,
}

static NEEDING: [Needing; 2] = [
    Needing {
        need: Need::RemoteDirectory,
        option: "--remote DIR",
        what: "a directory mounted from another machine",
        is_given: |args| args.remote.is_some(),
    },
    Needing {
        need: Need::Agent,
        option: "--peer HOST",
        what: "a host running `kelvin agent`",
        is_given: |args| args.peer.is_some(),
    },
];

impl Needing {
    /// What a probe needs.
    pub fn of(probe: &Probe) -> Option<&'static Self> {
        NEEDING.iter().find(|needing| needs(probe, needing.need))
    }

    /// Fails unless the option that these need is given.
    ///
    /// # Errors
    /// If it is not given.
    pub fn check(&self, name: &str, args: &MeasureArgs) -> Result<(), Fault> {
        match (self.is_given)(args) {
            true => Ok(()),
            false => Err(Fault::because(format!("{name} needs {}: {}", self.option, self.what))),
        }
    }
}

fn needs(probe: &Probe, need: Need) -> bool {
    probe.metrics.iter().any(|metric| metric.needs == Some(need))
}

/// The studies whose metrics need it.
pub fn studies_that_need(need: Need) -> Vec<&'static Probe> {
    let all = kelvin_probes::all().into_iter();
    all.filter(|probe| probe.kind == ProbeKind::Study && needs(probe, need)).collect()
}

/// The plan of the probes of one kind that names select.
///
/// # Errors
/// A name that selects nothing.
pub fn plan_of(kind: ProbeKind, names: &[String], here: &Here, effort: Effort) -> Result<Plan, Fault> {
    let (probes, machine, elsewhere) = (kelvin_probes::all(), &here.machine, Some(kelvin_probes::elsewhere as _));
    Plan::new(&Sources { probes: &probes, machine, elsewhere }, kind, names, effort).map_err(Fault::because)
}

/// A plan whose blocks of remote files are of files of the size that an option names, each case once.
///
/// # Errors
/// A size for a plan without these.
pub fn at_remote_size(mut plan: Plan, args: &MeasureArgs) -> Result<Plan, Fault> {
    let Some(bytes) = args.remote_size else { return Ok(plan) };
    let is_asked = |unit: &Unit| unit.probe.id == REMOTE.id.as_str() && !unit.only_input;
    if !plan.units.iter().any(is_asked) {
        let id = REMOTE.id;
        return Err(Fault::because(format!("--remote-size: {id} is not measured: name it too, or leave the size out")));
    }
    let mut cases = BTreeSet::new();
    let mut is_new = |case: &mut Case| {
        *case = kelvin_probes::remote_case_at(case, bytes);
        cases.insert(case.clone())
    };
    plan.units.retain_mut(|unit| !is_asked(unit) || is_new(&mut unit.case));
    plan.left_out.retain_mut(|(probe, case, _)| probe.id != REMOTE.id.as_str() || is_new(case));
    Ok(plan)
}

/// What names select.
#[derive(Debug, Default)]
pub struct Selection {
    /// Names of probes of a plain run, and those that select nothing, which [`Plan::new`] refuses.
    plain: Vec<String>,
    /// Names of studies that need an option, with what they need.
    needing: Vec<(String, &'static Needing)>,
    /// Whether no name was given.
    is_all: bool,
}

impl Selection {
    /// Sorts names.
    ///
    /// # Errors
    /// The name of a study that only `kelvin study` measures; `instead` is the right command.
    pub fn of(names: &[String], instead: &str) -> Result<Self, Fault> {
        let probes = kelvin_probes::all();
        let mut selection = Self { is_all: names.is_empty(), ..Self::default() };
        for name in names {
            let selected = |kind| probes.iter().filter(move |probe| probe.kind == kind && probe.is_selected_by(name));
            let studies: Vec<&Probe> = selected(ProbeKind::Study).copied().collect();
            let needing = studies.iter().find_map(|probe| Needing::of(probe));
            if selected(ProbeKind::Measure).next().is_some() || studies.is_empty() {
                selection.plain.push(name.clone());
            } else if let Some(needing) = needing {
                selection.needing.push((name.clone(), needing));
            } else {
                return Err(Fault::because(format!("'{name}' is a study: `{instead} {}`", studies[0].id)));
            }
        }
        Ok(selection)
    }

    /// The plan of what is selected, and of all that needs an option that is given, unless some of that is named.
    ///
    /// # Errors
    /// A name that selects nothing, or needs an option that is not given.
    pub fn plan(&self, args: &MeasureArgs, here: &Here, effort: Effort) -> Result<Plan, Fault> {
        for (name, needing) in &self.needing {
            needing.check(name, args)?;
        }
        let asked = NEEDING.iter().filter(|needing| (needing.is_given)(args)).flat_map(|needing| self.named(needing));
        at_remote_size(self.planned(asked.collect(), here, effort)?, args)
    }

    /// The plan of everything that could be measured, whatever the options.
    ///
    /// # Errors
    /// A name that selects nothing.
    pub fn plan_of_all(&self, here: &Here, effort: Effort) -> Result<Plan, Fault> {
        let is_within = |probe: &&Probe| self.is_all || self.plain.iter().any(|name| probe.is_selected_by(name));
        let needing = NEEDING.iter().flat_map(|needing| studies_that_need(needing.need));
        let within = needing.filter(is_within).map(|probe| probe.id.to_string());
        let asked = self.needing.iter().map(|(name, _)| name.clone()).chain(within);
        self.planned(asked.collect(), here, effort)
    }

    /// The names that selected what needs something; all of it if none did.
    fn named(&self, needing: &Needing) -> Vec<String> {
        let of_it = self.needing.iter().filter(|(_, other)| other.need == needing.need);
        let named: Vec<String> = of_it.map(|(name, _)| name.clone()).collect();
        match named.is_empty() {
            true => studies_that_need(needing.need).iter().map(|probe| probe.id.to_string()).collect(),
            false => named,
        }
    }

    fn planned(&self, studies: Vec<String>, here: &Here, effort: Effort) -> Result<Plan, Fault> {
        let plain = match self.is_all || !self.plain.is_empty() {
            true => Some(plan_of(ProbeKind::Measure, &self.plain, here, effort)?),
            false => None,
        };
        // No name selects everything.
        let studies = if studies.is_empty() { None } else { Some(plan_of(ProbeKind::Study, &studies, here, effort)?) };
        Ok(match (plain, studies) {
            (Some(plain), Some(studies)) => plain.and(studies),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => Plan { units: Vec::new(), left_out: Vec::new() },
        })
    }
}
