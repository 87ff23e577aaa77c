//! The command lines of `kelvin run` and what follows it that ranks start.

use std::path::Path;

use kelvin_core::NODE_TAG;

use super::task::Phase;

/// The tag of a run that says whether other hosts measured at the same time.
pub const PHASE_TAG: &str = "hosts";

const NO_REPORT: &str = "each host would write it: `kelvin report FILE -o FILE.html` makes a page of a run";

/// Options of `kelvin run` that a rank must not have from the user, and what to do instead.
const OWN_OPTIONS: [(&str, &str); 7] = [
    ("--out", "give it before --, so that the files of all hosts are together"),
    ("--json", "the run of each host is a file below --out"),
    ("--output", NO_REPORT),
    ("-o", NO_REPORT),
    ("--jitter", "all hosts begin together"),
    ("--dry-run", "the time is predicted before the first run"),
    ("--no-store", "a run with --out is not stored"),
];
/// One that a comparison does not allow.
const WITHOUT_SAMPLES: (&str, &str) =
    ("--keep", "runs together and alone are compared by their samples: give --no-alone too");

/// Checks the options of the user.
///
/// # Errors
/// One sentence about the first that a rank must not have.
pub fn check_options(options: &[String], has_alone: bool) -> Result<(), String> {
    let refused = OWN_OPTIONS.into_iter().chain(has_alone.then_some(WITHOUT_SAMPLES));
    crate::options::refuse(options, refused)
}

/// The arguments that have a run planned, and not measured.
pub fn forecast_arguments(options: &[String]) -> Vec<String> {
    ["run", "--dry-run", "--json"].into_iter().map(str::to_owned).chain(options.iter().cloned()).collect()
}

/// The arguments of a run whose file goes into a directory. The options of the user are the last ones.
pub fn run_arguments(phase: Phase, label: &str, directory: &Path, options: &[String]) -> Vec<String> {
    let directory = directory.display().to_string();
    let [phase, node] = [format!("{PHASE_TAG}={}", phase.name()), format!("{NODE_TAG}={label}")];
    let words = ["run", "--out", &directory, "--tag", &phase, "--tag", &node];
    words.into_iter().map(str::to_owned).chain(options.iter().cloned()).collect()
}

/// The arguments that compare two runs of a host.
pub fn compare_arguments(alone: &Path, together: &Path) -> Vec<String> {
    vec!["compare".into(), "--json".into(), alone.display().to_string(), together.display().to_string()]
}

/// The arguments of a report of all hosts.
pub fn fleet_arguments(directory: &Path) -> Vec<String> {
    vec!["fleet".into(), "report".into(), directory.display().to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn run_has_its_directory_and_tags() {
        let arguments = run_arguments(Phase::Together, "n3", Path::new("/runs/together"), &words("--quick mem"));
        assert_eq!(arguments, words("run --out /runs/together --tag hosts=together --tag node=n3 --quick mem"));
        assert_eq!(forecast_arguments(&words("--quick")), words("run --dry-run --json --quick"));
        let compared = compare_arguments(Path::new("a.json"), Path::new("b.json"));
        assert_eq!(compared, words("compare --json a.json b.json"));
    }

    #[test]
    fn options_of_the_program_itself_are_refused() {
        assert_eq!(check_options(&words("--quick --tag rack=3 mem --store x"), true), Ok(()));
        let error = check_options(&words("mem --out /tmp"), true).unwrap_err();
        assert!(error.starts_with("--out after --: give it before --"), "{error}");
        let keep = words("--keep headlines");
        assert!(check_options(&keep, true).unwrap_err().starts_with("--keep after --: runs together and alone"));
        assert_eq!(check_options(&keep, false), Ok(()));
    }
}
