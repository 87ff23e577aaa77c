//! What names on the command line select: measures of a plain run, and studies that need something of an option.

use kelvin_harness::{Effort, Kind, Plan, Probe};

use crate::cli::MeasureArgs;
use crate::fault::Fault;
use crate::place::Here;

/// Studies that a plain run measures beside the rest where an option says with what.
#[derive(Debug)]
pub struct Needing {
    /// What their ids begin with, or are.
    id: &'static str,
    /// The option: `--peer HOST`.
    pub option: &'static str,
    /// What that has to be.
    what: &'static str,
    is_given: fn(&MeasureArgs) -> bool,
}

static NEEDING: [Needing; 2] = [
    Needing {
        id: "file.remote",
        option: "--remote DIR",
        what: "a mounted directory of another machine",
        is_given: |args| args.remote.is_some(),
    },
    Needing {
        id: "net.peer",
        option: "--peer HOST",
        what: "another host on which `kelvin agent` runs",
        is_given: |args| args.peer.is_some(),
    },
];

impl Needing {
    /// What a probe needs.
    pub fn of(probe: &Probe) -> Option<&'static Self> {
        NEEDING.iter().find(|needing| probe.is_selected_by(needing.id))
    }

    /// That an option is missing without which these cannot be measured.
    ///
    /// # Errors
    /// Where it is not given.
    pub fn check(&self, name: &str, args: &MeasureArgs) -> Result<(), Fault> {
        match (self.is_given)(args) {
            true => Ok(()),
            false => Err(Fault::because(format!("{name} needs {}: {}", self.option, self.what))),
        }
    }
}

/// What each of some names selects.
#[derive(Debug, Default)]
pub struct Selection {
    /// Names of measures of a plain run, and those that select nothing: [`Plan::new`] says so.
    plain: Vec<String>,
    /// Names of studies that need an option, with what they need.
    needing: Vec<(String, &'static Needing)>,
    /// Whether there was no name at all.
    is_all: bool,
}

impl Selection {
    /// Tells names apart.
    ///
    /// # Errors
    /// The name of a study that only `kelvin study` measures; `instead` is what is right for it.
    pub fn of(names: &[String], instead: &str) -> Result<Self, Fault> {
        let probes = kelvin_probes::all();
        let mut selection = Self { is_all: names.is_empty(), ..Self::default() };
        for name in names {
            let selected = |kind| probes.iter().filter(move |probe| probe.kind == kind && probe.is_selected_by(name));
            let studies: Vec<&Probe> = selected(Kind::Study).copied().collect();
            let needing = studies.iter().find_map(|probe| Needing::of(probe));
            if selected(Kind::Measure).next().is_some() || studies.is_empty() {
                selection.plain.push(name.clone());
            } else if let Some(needing) = needing {
                selection.needing.push((name.clone(), needing));
            } else {
                return Err(Fault::because(format!("'{name}' is a study: `{instead} {}`", studies[0].id)));
            }
        }
        Ok(selection)
    }

    /// The plan of what is selected, and of what options ask for beside it: all that needs an option that is given, unless
    /// some of that is named.
    ///
    /// # Errors
    /// A name that selects nothing, or needs an option that is not given.
    pub fn plan(&self, args: &MeasureArgs, here: &Here, effort: Effort) -> Result<Plan, Fault> {
        for (name, needing) in &self.needing {
            needing.check(name, args)?;
        }
        let asked = NEEDING.iter().filter(|needing| (needing.is_given)(args)).flat_map(|needing| self.named(needing));
        self.planned(asked.collect(), here, effort)
    }

    /// The plan of all that could be measured, whatever options there are.
    ///
    /// # Errors
    /// A name that selects nothing.
    pub fn plan_of_all(&self, here: &Here, effort: Effort) -> Result<Plan, Fault> {
        let leads = |name: &String, id: &str| id.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'));
        let is_within = |needing: &&Needing| self.is_all || self.plain.iter().any(|name| leads(name, needing.id));
        let within = NEEDING.iter().filter(is_within).map(|needing| needing.id.to_owned());
        let asked = self.needing.iter().map(|(name, _)| name.clone()).chain(within);
        self.planned(asked.collect(), here, effort)
    }

    /// The names by which what needs something was selected; its id where none was.
    fn named(&self, needing: &Needing) -> Vec<String> {
        let mut named: Vec<String> =
            self.needing.iter().filter(|(_, other)| other.id == needing.id).map(|(name, _)| name.clone()).collect();
        if named.is_empty() {
            named.push(needing.id.to_owned());
        }
        named
    }

    fn planned(&self, studies: Vec<String>, here: &Here, effort: Effort) -> Result<Plan, Fault> {
        let of = |kind, names: &[String]| {
            Plan::new(&kelvin_probes::all(), kind, names, &here.machine, effort).map_err(Fault::because)
        };
        let plain = match self.is_all || !self.plain.is_empty() {
            true => Some(of(Kind::Measure, &self.plain)?),
            false => None,
        };
        // Without a name all would be selected.
        let studies = if studies.is_empty() { None } else { Some(of(Kind::Study, &studies)?) };
        Ok(match (plain, studies) {
            (Some(plain), Some(studies)) => plain.and(studies),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => Plan { units: Vec::new(), left_out: Vec::new() },
        })
    }
}
