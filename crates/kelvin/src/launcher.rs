//! The launcher that started this process as one of many, by the environment variables that it sets.
//!
//! Sources: srun(1) of Slurm 22.05, "Environment variables set for MPI applications" of Open MPI's guide, flux-environment(7) of flux-core, and
//! what `mpirun` of Open MPI 4.1 and `mpiexec` of MPICH 4.0 (Hydra) set. PALS has no public page: its names are those that
//! programs on HPE's systems read.

use kelvin_core::{JOB_TAG, NODE_TAG, cpu_ranges};
use kelvin_store::Tag;

/// A launcher, by the variables of its processes.
#[derive(Debug, PartialEq, Eq)]
struct Launcher {
    name: &'static str,
    /// The rank of a process among all. A process without it was not started by this launcher.
    rank: &'static str,
    /// Its rank among those on its host, where the launcher has a variable for that.
    local_rank: Option<&'static str>,
    /// The job, where no resource manager has a name for it.
    job: Option<&'static str>,
    /// The host, as the launcher calls it.
    node: Option<&'static str>,
    /// The option by which it binds no process to a part of the CPUs.
    unbind: Option<&'static str>,
}

/// The launchers. One that is started by another comes before that: Open MPI and Hydra start their processes by `srun` under Slurm, whose
/// variables then are those of a daemon.
static LAUNCHERS: [Launcher; 7] = [
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        job: Some("PMIX_NAMESPACE"),
        node: Some("PMIX_HOSTNAME"),
        unbind: Some("mpirun --bind-to none"),
    },
    Launcher {
        name: "PALS",
        rank: "PALS_RANKID",
        local_rank: Some("PALS_LOCAL_RANKID"),
        job: Some("PALS_APID"),
        node: None,
        unbind: Some("mpiexec --cpu-bind none"),
    },
    // PMI_RANK alone may be of any of the others.
    Launcher {
        name: "Hydra",
        rank: "MPI_LOCALRANKID",
        local_rank: Some("MPI_LOCALRANKID"),
        job: None,
        node: Some("MPIR_CVAR_CH3_INTERFACE_HOSTNAME"),
        unbind: Some("mpiexec -bind-to none"),
    },
    Launcher {
        name: "Flux",
        rank: "FLUX_TASK_RANK",
        local_rank: Some("FLUX_TASK_LOCAL_ID"),
        job: Some("FLUX_JOB_ID"),
        node: None,
        unbind: Some("flux run -o cpu-affinity=off"),
    },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        local_rank: Some("SLURM_LOCALID"),
        job: Some("SLURM_JOB_ID"),
        node: Some("SLURMD_NODENAME"),
        unbind: Some("srun --cpu-bind=none"),
    },
    Launcher {
        name: "PMIx",
        rank: "PMIX_RANK",
        local_rank: None,
        job: Some("PMIX_NAMESPACE"),
        node: Some("PMIX_HOSTNAME"),
        unbind: None,
    },
    Launcher { name: "PMI", rank: "PMI_RANK", local_rank: None, job: None, node: None, unbind: None },
];

/// What resource managers call a job, which its launchers inherit.
const MANAGER_JOBS: [&str; 4] = ["SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"];

/// The place of this process in a launched job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchedProcess {
    launcher: &'static Launcher,
    /// The job's name, if it has one.
    pub job: Option<String>,
    /// The host's name, if the launcher states it.
    pub node: Option<String>,
    /// Its rank in the job.
    pub rank: String,
    /// Its rank among those of its host, if the launcher states it.
    pub local_rank: Option<u64>,
    /// Whether Slurm allocated the CPUs.
    is_in_slurm: bool,
}

impl LaunchedProcess {
    /// The process with these variables; `None` if no known launcher started it.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let value = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let launcher = LAUNCHERS.iter().find(|launcher| value(launcher.rank).is_some())?;
        let number = |name: Option<&'static str>| name.and_then(value)?.parse::<u64>().ok();
        // Hydra has the rank among all in a variable of others too.
        let rank = if launcher.name == "Hydra" { value("PMI_RANK") } else { None }.or_else(|| value(launcher.rank))?;
        let manager_job = MANAGER_JOBS.into_iter().find_map(value);
        Some(Self {
            launcher,
            job: manager_job.or_else(|| launcher.job.and_then(value)),
            node: launcher.node.and_then(value).or_else(|| value("SLURMD_NODENAME")),
            rank,
            local_rank: number(launcher.local_rank),
            is_in_slurm: value("SLURM_JOB_ID").is_some(),
        })
    }

    /// The tags `job` and `node`, in the letters of tags, of a process on the host with this name where the launcher states none.
    pub fn tags(&self, host_name: Option<&str>) -> Vec<Tag> {
        let node = self.node.as_deref().or(host_name);
        let tags = [(JOB_TAG, self.job.as_deref()), (NODE_TAG, node)];
        tags.into_iter().filter_map(|(name, value)| tag(name, value?)).collect()
    }

    /// Who this is, for people: `rank 3 of job 42`.
    pub fn name(&self) -> String {
        let job =
            self.job.as_ref().map_or_else(|| format!("a job of {}", self.launcher.name), |job| format!("job {job}"));
        format!("rank {} of {job}", self.rank)
    }

    /// That it may use only these of the CPUs that are online, and how that is changed; `None` if it may use all. Of the others, its control
    /// group allows `group_cpus`, if that limits it.
    pub fn binding_text(&self, allowed: &[u32], online: usize, group_cpus: Option<usize>) -> Option<String> {
        if allowed.len() >= online {
            return None;
        }
        let granted = group_cpus.filter(|&cpus| cpus < online);
        let by_group = granted.map(|_| match self.is_in_slurm {
            true => format!("ask Slurm for all of them, by --exclusive and -c {online}"),
            false => "ask the resource manager for the whole host".to_owned(),
        });
        let is_bound = allowed.len() < granted.unwrap_or(online);
        let by_launcher = is_bound.then(|| match self.launcher.unbind {
            Some(unbind) => format!("start it by `{unbind}`"),
            None => format!("have {} bind it to none", self.launcher.name),
        });
        let remedies: Vec<String> = by_group.into_iter().chain(by_launcher).collect();
        Some(format!(
            "bound to {} of the {online} CPUs of this host (CPU {}), and so measures only these: {}",
            allowed.len(),
            cpu_ranges(allowed),
            remedies.join(", and ")
        ))
    }
}

/// A tag with a value that may have other letters than a tag, which become `_`.
fn tag(name: &str, value: &str) -> Option<Tag> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-+:/@".contains(letter);
    let value: String = value.chars().map(|letter| if is_allowed(letter) { letter } else { '_' }).collect();
    // The grammar of tags has the lengths, and what dots may not do.
    format!("{name}={value}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process with these variables, as `NAME=VALUE` divided by spaces.
    fn process(variables: &str) -> Option<LaunchedProcess> {
        let pairs: Vec<(&str, &str)> = variables.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let lookup = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        LaunchedProcess::from_environment(lookup)
    }

    /// Launcher, job, node, rank and local rank.
    fn summary(variables: &str) -> String {
        let process = process(variables).unwrap();
        let LaunchedProcess { launcher, job, node, rank, local_rank, .. } = process;
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let local_rank = text(local_rank.map(|rank| rank.to_string()));
        format!("{} {} {} {rank} {local_rank}", launcher.name, text(job), text(node))
    }

    const SLURM_TASK: &str = "SLURM_JOB_ID=42 SLURMD_NODENAME=n17 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NTASKS=8";
    const OPEN_MPI_TASK: &str = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=394067969 \
                                 PMIX_HOSTNAME=n4 PMIX_RANK=3";

    #[test]
    fn each_launcher_is_recognised() {
        for (variables, expected) in [
            (SLURM_TASK, "Slurm 42 n17 5 1"),
            (OPEN_MPI_TASK, "Open MPI 394067969 n4 3 1"),
            (
                "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 MPIR_CVAR_CH3_INTERFACE_HOSTNAME=n5",
                "Hydra - n5 2 0",
            ),
            ("PALS_RANKID=9 PALS_LOCAL_RANKID=1 PALS_APID=ab-1 PMI_RANK=9 PBS_JOBID=7.srv", "PALS 7.srv - 9 1"),
            ("FLUX_TASK_RANK=2 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_ID=f2x FLUX_JOB_SIZE=1 PMI_RANK=2", "Flux f2x - 2 0"),
            ("PMIX_RANK=6 PMIX_NAMESPACE=x@1 PMIX_HOSTNAME=n6", "PMIx x@1 n6 6 -"),
            ("PMI_RANK=1 PMI_SIZE=2", "PMI - - 1 -"),
            ("SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1", "Slurm 1 - 0 0"),
        ] {
            assert_eq!(summary(variables), expected, "{variables}");
        }
    }

    #[test]
    fn inner_launcher_counts_and_the_managers_job() {
        // The daemons of mpirun are tasks of Slurm, each with the local rank 0.
        let daemon = "SLURM_JOB_ID=42 SLURMD_NODENAME=n17 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=2";
        assert_eq!(summary(&format!("{daemon} {OPEN_MPI_TASK}")), "Open MPI 42 n4 3 1");
        assert_eq!(summary(&format!("{daemon} MPI_LOCALRANKID=1 PMI_RANK=3 PMI_SIZE=4")), "Hydra 42 n17 3 1");
        // srun --mpi=pmix and --mpi=pmi2.
        let pmix = format!("{SLURM_TASK} PMIX_RANK=5 PMIX_NAMESPACE=slurm.pmix.42.0 PMI_RANK=5");
        assert_eq!(summary(&pmix), "Slurm 42 n17 5 1");
    }

    #[test]
    fn shell_of_an_allocation_is_no_task() {
        assert_eq!(process(""), None);
        assert_eq!(process("SLURM_JOB_ID=42 SLURM_NNODES=2"), None, "salloc");
        assert_eq!(process("OMPI_COMM_WORLD_RANK="), None);
        assert_eq!(process("PBS_JOBID=7"), None);
    }

    #[test]
    fn local_rank_that_is_no_number_is_unknown() {
        assert_eq!(summary("SLURM_PROCID=5 SLURM_LOCALID=x"), "Slurm - - 5 -");
    }

    #[test]
    fn tags_have_the_letters_of_tags() {
        let tags = |variables: &str, host_name| {
            let tags = process(variables).unwrap().tags(host_name);
            tags.iter().map(Tag::to_string).collect::<Vec<_>>()
        };
        assert_eq!(tags(SLURM_TASK, Some("other")), ["job=42", "node=n17"]);
        assert_eq!(tags("PMI_RANK=0", Some("n 1\u{1b}")), ["node=n_1_"]);
        assert_eq!(tags("FLUX_TASK_RANK=0 FLUX_JOB_ID=\u{192}2x", None), ["job=_2x"]);
        assert!(tags("PMI_RANK=0", Some("a..b")).is_empty() && tags("PMI_RANK=0", None).is_empty());
    }

    #[test]
    fn binding_names_the_remedy_of_its_launcher() {
        let text =
            |variables: &str, allowed: &[u32], group| process(variables).unwrap().binding_text(allowed, 8, group);
        assert_eq!(text(SLURM_TASK, &[0, 1, 2, 3, 4, 5, 6, 7], None), None);
        assert_eq!(
            text(OPEN_MPI_TASK, &[0, 1], None).unwrap(),
            "bound to 2 of the 8 CPUs of this host (CPU 0-1), and so measures only these: start it by `mpirun --bind-to none`"
        );
        for (variables, allowed, group, remedy) in [
            ("MPI_LOCALRANKID=0", &[3][..], None, "start it by `mpiexec -bind-to none`"),
            (SLURM_TASK, &[3], Some(8), "start it by `srun --cpu-bind=none`"),
            (SLURM_TASK, &[3, 4], Some(2), "ask Slurm for all of them, by --exclusive and -c 8"),
            (
                SLURM_TASK,
                &[3],
                Some(2),
                "ask Slurm for all of them, by --exclusive and -c 8, and start it by `srun --cpu-bind=none`",
            ),
            ("PMI_RANK=0", &[3, 4], Some(2), "ask the resource manager for the whole host"),
            ("PMIX_RANK=0", &[3], None, "have PMIx bind it to none"),
        ] {
            let text = text(variables, allowed, group).unwrap();
            assert_eq!(text.split_once("only these: ").unwrap().1, remedy, "{variables}");
        }
    }
}
