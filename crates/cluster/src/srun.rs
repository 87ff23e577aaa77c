//! Whether Slurm's `srun` started ranks that do not know of each other: it offers several interfaces, of which an MPI takes one.

/// What an MPI finds its other ranks by under `srun`.
struct Interface {
    /// How the text begins by which the MPI says what it is.
    library: &'static str,
    /// What to give to `--mpi`.
    name: &'static str,
}

/// Open MPI has PMIx. MPICH and those that are made of it have PMI, which Slurm offers with PMI-2.
const OPEN_MPI: Interface = Interface { library: "Open MPI", name: "pmix" };
const OTHERS: Interface = Interface { library: "", name: "pmi2" };

/// Why the ranks that `srun` started cannot be one job of this MPI, if that is known. `ranks` is how many the MPI knows, once it is
/// initialised. Before that only Open MPI is judged, whose initialisation would end the process with a page of text.
pub fn refusal(library: &str, ranks: Option<usize>, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    // What mpirun starts inside an allocation has the variables of the batch script, too.
    if !is_set("SLURM_PROCID") || is_set("OMPI_COMM_WORLD_RANK") {
        return None;
    }
    let is_open_mpi = library.starts_with(OPEN_MPI.library);
    let interface = if is_open_mpi { OPEN_MPI } else { OTHERS };
    let tasks = variable("SLURM_STEP_NUM_TASKS").and_then(|count| count.parse::<usize>().ok()).unwrap_or(1);
    let is_refused = match ranks {
        None => is_open_mpi && !is_set("PMIX_RANK"),
        Some(ranks) => ranks == 1 && tasks > 1,
    };
    is_refused.then(|| {
        format!(
            "{library} cannot join what Slurm started ({tasks} tasks): start it by `srun --mpi={}`, or by `mpirun` inside `salloc`",
            interface.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3";

    fn check(library: &str, ranks: Option<usize>, variables: &str) -> Option<String> {
        let pairs: Vec<(&str, &str)> = variables.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        refusal(library, ranks, |name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn open_mpi_needs_pmix_before_it_is_initialised() {
        let text = check("Open MPI v4.1.4", None, TASK).unwrap();
        let expected = "Open MPI v4.1.4 cannot join what Slurm started (3 tasks): start it by `srun --mpi=pmix`, or by `mpirun` inside `salloc`";
        assert_eq!(text, expected);
        assert_eq!(check("Open MPI v4.1.4", None, &format!("{TASK} PMIX_RANK=1")), None);
        assert_eq!(check("Open MPI v4.1.4", None, &format!("{TASK} OMPI_COMM_WORLD_RANK=1")), None, "mpirun");
        assert_eq!(check("Open MPI v4.1.4", None, ""), None, "no Slurm");
    }

    #[test]
    fn ranks_that_are_alone_are_refused() {
        assert_eq!(check("MPICH 4.0.2", None, TASK), None);
        assert!(check("MPICH 4.0.2", Some(1), TASK).unwrap().contains("srun --mpi=pmi2"));
        assert_eq!(check("MPICH 4.0.2", Some(3), TASK), None);
        assert_eq!(check("MPICH 4.0.2", Some(1), "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1"), None);
        assert!(check("Open MPI v5.0", Some(1), &format!("{TASK} PMIX_RANK=1")).is_some());
    }
}
