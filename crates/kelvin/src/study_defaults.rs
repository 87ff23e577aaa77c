//! How long a study takes and how many rounds it makes, unless asked otherwise; and the help that says so.

use kelvin_core::catalogue::file::{CACHE_SIZE, WHOLE_FILE};

use crate::study_selection::StudySelection;

/// Seconds, which grow until all cases fit, and the minimum of rounds of each.
#[derive(Clone, Copy, Debug)]
pub struct StudyExtent {
    /// The seconds.
    pub seconds: f64,
    /// The rounds.
    pub rounds: u32,
}

/// Those of one study: with `--quick`, without, and with `--thorough`.
pub type StudyDefaults = [StudyExtent; 3];

const fn extent(seconds: f64, rounds: u32) -> StudyExtent {
    StudyExtent { seconds, rounds }
}

/// Of most studies.
const STUDY_DEFAULTS: StudyDefaults = [extent(20.0, 3), extent(60.0, 5), extent(600.0, 50)];
/// Of the study of transfers, whose rounds have 5 trials, but one of the large files: 100 trials of the others as published, and as
/// many of the large files with `--thorough`. A budget is what its rounds take where 512 bytes a call move 400 MB/s.
const TRANSFER_DEFAULTS: StudyDefaults = [extent(120.0, 5), extent(900.0, 20), extent(9000.0, 100)];
/// Of studies whose rounds take ten seconds or more: files read whole, most of it 100 million calls, and the size of the file cache,
/// which each round looks for anew.
const LONG_ROUND_DEFAULTS: StudyDefaults = [extent(20.0, 3), extent(300.0, 4), extent(600.0, 20)];
/// Of the study of a file server: with `--thorough` visits of 120 s, as published. A round is a visit to each number of users.
const LOAD_DEFAULTS: StudyDefaults = [extent(60.0, 4), extent(240.0, 8), extent(11_520.0, 8)];

impl StudySelection {
    /// How long it takes, and how many rounds it makes.
    pub fn defaults(&self) -> StudyDefaults {
        match () {
            () if self.is_load() => LOAD_DEFAULTS,
            () if self.has_transfers() => TRANSFER_DEFAULTS,
            () if self.has_long_rounds() => LONG_ROUND_DEFAULTS,
            () => STUDY_DEFAULTS,
        }
    }

    /// Whether its rounds take ten seconds or more.
    pub fn has_long_rounds(&self) -> bool {
        self.probes.iter().any(|probe| [WHOLE_FILE.id, CACHE_SIZE.id].iter().any(|id| *id == *probe.id))
    }
}

/// The help of `--budget` of a study with these defaults.
pub fn budget_help(defaults: &StudyDefaults) -> String {
    let [quick, default, thorough] = defaults.each_ref().map(|extent| time_text(extent.seconds));
    format!(
        "Time of the study, such as 45s or 10m [default: {default}; {quick} with --quick, {thorough} with --thorough; longer where the \
         minimum of rounds takes longer]; `minimum`: as long as that minimum takes"
    )
}

/// The help of `--rounds` of a study with these defaults.
pub fn rounds_help(defaults: &StudyDefaults, is_load: bool) -> String {
    let [quick, default, thorough] = defaults.each_ref().map(|extent| extent.rounds);
    let what = if is_load { "visits to each number of users" } else { "rounds (fresh processes) per case" };
    format!("Minimum {what}, 2 to 1000 [default: {default}; {quick} with --quick, {thorough} with --thorough]")
}

/// A time as an option takes it: `45s`, `15m`.
fn time_text(seconds: f64) -> String {
    if seconds < 60.0 { format!("{seconds}s") } else { format!("{}m", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use crate::cli::named_study_help;

    #[test]
    fn help_of_a_study_states_its_own_time_and_rounds() {
        for (study, time, rounds) in [
            (
                "os.scaling",
                "[default: 1m; 20s with --quick, 10m with --thorough; longer where",
                "[default: 5; 3 with --quick, 50 with",
            ),
            (
                "transfer",
                "[default: 15m; 2m with --quick, 150m with --thorough;",
                "[default: 20; 5 with --quick, 100 with",
            ),
            (
                "file.whole",
                "[default: 5m; 20s with --quick, 10m with --thorough;",
                "[default: 4; 3 with --quick, 20 with",
            ),
            (
                "load",
                "[default: 4m; 1m with --quick, 192m with --thorough;",
                "visits to each number of users, 2 to 1000 [default: 8; 4 with",
            ),
        ] {
            let [budget, rounds_text] = ["budget", "rounds"].map(|flag| named_study_help(study, flag));
            assert!(budget.contains(time), "{study}: {budget}");
            assert!(rounds_text.contains(rounds), "{study}: {rounds_text}");
            assert_eq!([&budget, &rounds_text].map(|text| text.matches("default").count()), [1, 1], "{study}");
        }
    }
}
