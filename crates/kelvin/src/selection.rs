//! What names on the command line select: probes of a plain run, and studies that need an option.

use kelvin_core::catalogue::file::{DEPTH, DEVICE, EXTENT, JOBS_STUDY, REMOTE_BLOCK};
use kelvin_core::catalogue::net::PEER_BANDWIDTH;
use kelvin_core::{Metric, Need, NetworkPath};
use kelvin_harness::{Effort, Plan, PlanContext, PlanUnit, Probe, ProbeKind};

use crate::cli::RunOptions;
use crate::cli_error::CliError;
use crate::placement::LocalMachine;
use crate::probe_options::{covers_extent, has_need};

/// Studies that a plain run includes if an option names what they need.
#[derive(Debug)]
pub struct OptionStudies {
    /// What their metrics need.
    need: Need,
    /// The option: `--peer HOST`.
    pub option: &'static str,
    /// What its value must be.
    value_description: &'static str,
    is_given: fn(&RunOptions) -> bool,
}

static OPTION_STUDIES: [OptionStudies; 2] = [
    OptionStudies {
        need: Need::RemoteDirectory,
        option: "--remote DIR",
        value_description: "a directory mounted from another machine",
        is_given: |options| options.remote.is_some(),
    },
    OptionStudies {
        need: Need::Agent,
        option: "--peer HOST",
        value_description: "a host running `kelvin agent`",
        is_given: |options| options.peer.is_some(),
    },
];

impl OptionStudies {
    /// What a probe needs.
    pub fn for_probe(probe: &Probe) -> Option<&'static Self> {
        OPTION_STUDIES.iter().find(|option_studies| has_need(probe, option_studies.need))
    }

    /// Fails unless the option that these need is given.
    ///
    /// # Errors
    /// If it is not given.
    pub fn check_given(&self, name: &str, options: &RunOptions) -> Result<(), CliError> {
        if !(self.is_given)(options) {
            bail!("{name} needs {}: {}", self.option, self.value_description);
        }
        Ok(())
    }
}

/// The studies whose metrics need it.
pub fn studies_that_need(need: Need) -> Vec<&'static Probe> {
    let probes = kelvin_probes::all().into_iter();
    probes.filter(|probe| probe.kind == ProbeKind::Study && has_need(probe, need)).collect()
}

/// The plan of the probes of one kind that names select.
///
/// # Errors
/// A name that selects nothing.
pub fn plan_names(kind: ProbeKind, names: &[String], local: &LocalMachine, effort: Effort) -> Result<Plan, CliError> {
    let (probes, references) = (kelvin_probes::all(), Some(kelvin_probes::reference_machines as _));
    let context = PlanContext { probes: &probes, machine: &local.machine, references };
    Plan::new(&context, kind, names, effort).map_err(CliError::msg)
}

/// A plan with files of the sizes that options name.
///
/// # Errors
/// A size for a plan without such files.
pub fn with_file_sizes(plan: Plan, options: &RunOptions) -> Result<Plan, CliError> {
    with_extent(with_remote_size(plan, options)?, options)
}

/// A plan whose study of the device covers a file of the size that an option names.
fn with_extent(plan: Plan, options: &RunOptions) -> Result<Plan, CliError> {
    let Some(bytes) = options.extent else { return Ok(plan) };
    if !plan.units.iter().any(|unit| covers_extent(unit.probe) && !unit.only_input) {
        bail!("--extent: none of {DEVICE}, {DEPTH} and {JOBS_STUDY} is measured: name one too, or leave the size out");
    }
    Ok(plan.change_cases(covers_extent, |case| case.clone().with_number(EXTENT, bytes)))
}

/// A plan whose blocks of remote files are of files of the size that an option names, each case once.
fn with_remote_size(plan: Plan, options: &RunOptions) -> Result<Plan, CliError> {
    let Some(bytes) = options.remote_size else { return Ok(plan) };
    let is_remote_block = |unit: &PlanUnit| unit.probe.id == REMOTE_BLOCK.id.as_str() && !unit.only_input;
    if !plan.units.iter().any(is_remote_block) {
        let id = REMOTE_BLOCK.id;
        bail!("--remote-size: {id} is not measured: name it too, or leave the size out");
    }
    Ok(plan.change_cases(is_probe_of(&REMOTE_BLOCK), |case| kelvin_probes::remote_case_at(case, bytes)))
}

/// A plan with no more streams to an agent than there are CPUs for at its end, each case once.
pub fn with_agent_cpus(plan: Plan, path: &NetworkPath) -> Plan {
    // One that does not name its CPUs gets as many streams as any.
    let cpus = path.agent_cpus.get().copied().unwrap_or(1);
    plan.change_cases(is_probe_of(&PEER_BANDWIDTH), |case| kelvin_probes::peer_case_on(case, cpus.into()))
}

/// Whether a probe is the one named by a metric.
fn is_probe_of(metric: &Metric) -> impl Fn(&Probe) -> bool {
    let id = metric.id;
    move |probe| probe.id == id.as_str()
}

/// What names select.
#[derive(Debug, Default)]
pub struct Selection {
    /// Names of probes of a plain run, and those that select nothing, which [`Plan::new`] refuses.
    plain_names: Vec<String>,
    /// Names of studies that need an option, with what they need.
    option_names: Vec<(String, &'static OptionStudies)>,
    /// Whether no name was given.
    is_all: bool,
}

impl Selection {
    /// Sorts names.
    ///
    /// # Errors
    /// The name of a study that only `kelvin study` measures; `instead` is the right command.
    pub fn parse(names: &[String], instead: &str) -> Result<Self, CliError> {
        let probes = kelvin_probes::all();
        let mut selection = Self { is_all: names.is_empty(), ..Self::default() };
        for name in names {
            let selected_probes =
                |kind| probes.iter().filter(move |probe| probe.kind == kind && probe.is_selected_by(name));
            let studies: Vec<&Probe> = selected_probes(ProbeKind::Study).copied().collect();
            let option_studies = studies.iter().find_map(|probe| OptionStudies::for_probe(probe));
            if selected_probes(ProbeKind::Measure).next().is_some() || studies.is_empty() {
                selection.plain_names.push(name.clone());
            } else if let Some(option_studies) = option_studies {
                selection.option_names.push((name.clone(), option_studies));
            } else {
                bail!("'{name}' is a study: `{instead} {}`", studies[0].id);
            }
        }
        Ok(selection)
    }

    /// The plan of what is selected, and of all that needs an option that is given, unless some of that is named.
    ///
    /// # Errors
    /// A name that selects nothing, or needs an option that is not given.
    pub fn plan(&self, options: &RunOptions, local: &LocalMachine, effort: Effort) -> Result<Plan, CliError> {
        for (name, option_studies) in &self.option_names {
            option_studies.check_given(name, options)?;
        }
        let active_studies = OPTION_STUDIES.iter().filter(|option_studies| (option_studies.is_given)(options));
        let studies = active_studies.flat_map(|option_studies| self.names_of_studies(option_studies)).collect();
        with_file_sizes(self.plan_studies(studies, local, effort)?, options)
    }

    /// The plan of everything that could be measured, with any options.
    ///
    /// # Errors
    /// A name that selects nothing.
    pub fn plan_everything(&self, local: &LocalMachine, effort: Effort) -> Result<Plan, CliError> {
        let is_within = |probe: &&Probe| self.is_all || self.plain_names.iter().any(|name| probe.is_selected_by(name));
        let needed_probes = OPTION_STUDIES.iter().flat_map(|option_studies| studies_that_need(option_studies.need));
        let ids = needed_probes.filter(is_within).map(|probe| probe.id.to_string());
        let requested = self.option_names.iter().map(|(name, _)| name.clone()).chain(ids);
        self.plan_studies(requested.collect(), local, effort)
    }

    /// The names that selected what needs something; all of it if none did.
    fn names_of_studies(&self, option_studies: &OptionStudies) -> Vec<String> {
        let selected = self.option_names.iter().filter(|(_, studies)| studies.need == option_studies.need);
        let names: Vec<String> = selected.map(|(name, _)| name.clone()).collect();
        match names.is_empty() {
            true => studies_that_need(option_studies.need).iter().map(|probe| probe.id.to_string()).collect(),
            false => names,
        }
    }

    fn plan_studies(&self, studies: Vec<String>, local: &LocalMachine, effort: Effort) -> Result<Plan, CliError> {
        let mut plan = Plan::default();
        if self.is_all || !self.plain_names.is_empty() {
            plan = plan_names(ProbeKind::Measure, &self.plain_names, local, effort)?;
        }
        // No name selects everything.
        Ok(if studies.is_empty() { plan } else { plan.merge(plan_names(ProbeKind::Study, &studies, local, effort)?) })
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::net::{STREAMS, StreamDirection};
    use kelvin_core::{Case, Fact, SkipReason};

    use super::*;

    #[test]
    fn agent_with_fewer_cpus_gets_fewer_streams() {
        let probe = kelvin_probes::all().into_iter().find(|probe| probe.id == PEER_BANDWIDTH.id.as_str()).unwrap();
        let streams = |count| Case::new().with_number(STREAMS, count).with_word(StreamDirection::ToAgent);
        let plan = Plan {
            units: [1, 2, 4, 8, 16, 32, 64].map(|count| PlanUnit::new(probe, streams(count))).into(),
            omissions: vec![(probe, streams(64), SkipReason::new("a test"))],
        };
        let counts_on = |agent_cpus| {
            let path = NetworkPath {
                protocol: 4,
                interface: Fact::unknown("a test"),
                agent_link_speed: Fact::unknown("a test"),
                agent_mtu: Fact::unknown("a test"),
                agent_cpus,
            };
            let plan = with_agent_cpus(plan.clone(), &path);
            let counts = plan.units.iter().filter_map(|unit| STREAMS.number_in(&unit.case)).collect::<Vec<_>>();
            (counts, plan.omissions.len())
        };
        assert_eq!(counts_on(Fact::known(128, "a test")), (vec![1, 2, 4, 8, 16, 32, 64], 0));
        assert_eq!(counts_on(Fact::known(24, "a test")), (vec![1, 2, 4, 8, 16, 24], 0));
        assert_eq!(counts_on(Fact::known(2, "a test")), (vec![1, 2, 4], 0));
        assert_eq!(counts_on(Fact::unknown("a test")), (vec![1, 2, 4], 0));
    }
}
