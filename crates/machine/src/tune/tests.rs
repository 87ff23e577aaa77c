use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

const GOVERNOR_0: &str = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
const GOVERNOR_1: &str = "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor";
const TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A tree of settings, and a place for the journal beside it.
struct Bench {
    directory: tempfile::TempDir,
    journal: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bench = Self { journal: directory.path().join("tune.json"), directory };
        bench.write(GOVERNOR_0, "powersave");
        bench.write(GOVERNOR_1, "schedutil");
        bench.write(TURBO, "0");
        bench.write(BALANCING, "1");
        bench.write(BOOT, "one");
        bench
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn write(&self, name: &str, text: &str) {
        let path = Root::new(&self.root()).at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn says(&self, name: &str) -> String {
        current(Root::new(&self.root()), name).unwrap()
    }

    fn all(&self) -> BTreeMap<&'static str, String> {
        [GOVERNOR_0, GOVERNOR_1, TURBO, BALANCING].into_iter().map(|name| (name, self.says(name))).collect()
    }

    fn apply(&self) -> Result<Vec<Outcome>, TuneError> {
        apply(&self.root(), &self.journal, &plan(&self.root()))
    }

    fn restore(&self) -> Result<Vec<Outcome>, TuneError> {
        restore(&self.root(), &self.journal)
    }
}

fn changed(path: &str, from: &str, to: &str) -> Outcome {
    Outcome { path: path.into(), result: Done::Changed { from: from.into(), to: to.into() } }
}

#[test]
fn there_and_back() {
    let bench = Bench::new();
    let before = bench.all();
    let outcomes = bench.apply().unwrap();
    assert_eq!(
        outcomes,
        [
            changed(GOVERNOR_0, "powersave", "performance"),
            changed(GOVERNOR_1, "schedutil", "performance"),
            changed(TURBO, "0", "1"),
            changed(BALANCING, "1", "0"),
        ]
    );
    assert_eq!(bench.says(GOVERNOR_1), "performance");
    assert_eq!(pending(&bench.journal).unwrap().len(), 4);
    assert!(plan(&bench.root()).is_empty());
    let outcomes = bench.restore().unwrap();
    assert_eq!(outcomes[0], changed(BALANCING, "0", "1"), "newest first");
    assert_eq!(bench.all(), before);
    assert!(!bench.journal.exists());
    assert!(pending(&bench.journal).unwrap().is_empty());
    assert_eq!(bench.restore().unwrap(), []);
    let left: Vec<_> = fs::read_dir(bench.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["root"], "neither lock nor temporary file stays behind");
}

#[test]
fn the_plan_says_what_and_why() {
    let bench = Bench::new();
    bench.write("/sys/devices/system/cpu/smt/control", "on");
    bench.write("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
    bench.write("/sys/kernel/mm/damon/admin/kdamonds/0/state", "on");
    bench.write("/proc/sys/kernel/randomize_va_space", "2");
    let plan = plan(&bench.root());
    let paths: Vec<&str> = plan.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            GOVERNOR_0,
            GOVERNOR_1,
            TURBO,
            BALANCING,
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/kernel/mm/damon/admin/kdamonds/0/state",
            "/sys/devices/system/cpu/smt/control"
        ]
    );
    assert_eq!((plan[4].from.as_str(), plan[4].to.as_str()), ("always", "madvise"));
    assert!(plan[6].optional && plan[..6].iter().all(|change| !change.optional));
    assert!(plan.iter().all(|change| !change.why.is_empty()));
}

#[test]
fn a_governor_that_is_not_offered_is_not_planned() {
    let bench = Bench::new();
    bench.write("/sys/devices/system/cpu/cpufreq/policy1/scaling_available_governors", "schedutil userspace");
    assert!(plan(&bench.root()).iter().all(|change| change.path != GOVERNOR_1));
}

/// Writes settings, and dies at the given one: before it was written, or after.
fn dying(at: usize, written: bool) -> impl FnMut(&Path, &str) -> io::Result<()> {
    let mut count = 0;
    move |path, value| {
        let dies = count == at;
        count += 1;
        if !dies || written {
            write(path, value)?;
        }
        assert!(!dies, "killed");
        Ok(())
    }
}

#[test]
fn killed_at_any_step_of_applying_everything_comes_back() {
    for at in 0..4 {
        for written in [false, true] {
            let bench = Bench::new();
            let (root, before) = (bench.root(), bench.all());
            let plan = plan(&root);
            let killed = catch_unwind(AssertUnwindSafe(|| {
                apply_with(Root::new(&root), &bench.journal, &plan, &mut dying(at, written))
            }));
            assert!(killed.is_err());
            assert!(matches!(bench.apply(), Err(TuneError::Pending { .. })), "the journal was there before the change");
            bench.restore().unwrap();
            assert_eq!(bench.all(), before, "killed at {at}, written {written}");
            assert!(!bench.journal.exists());
        }
    }
}

#[test]
fn killed_at_any_step_of_restoring_everything_comes_back() {
    for at in 0..4 {
        for written in [false, true] {
            let bench = Bench::new();
            let (root, before) = (bench.root(), bench.all());
            bench.apply().unwrap();
            let killed = catch_unwind(AssertUnwindSafe(|| {
                restore_with(Root::new(&root), &bench.journal, &mut dying(at, written))
            }));
            assert!(killed.is_err());
            assert!(bench.journal.exists());
            bench.restore().unwrap();
            assert_eq!(bench.all(), before, "killed at {at}, written {written}");
        }
    }
}

#[test]
fn killed_while_the_journal_was_written_nothing_was_changed() {
    let bench = Bench::new();
    fs::write(bench.directory.path().join("tune.json.new"), "{\"form").unwrap();
    assert_eq!(bench.restore().unwrap(), []);
    assert_eq!(bench.apply().unwrap().len(), 4);
    assert_eq!(pending(&bench.journal).unwrap().len(), 4);
}

#[test]
fn a_value_that_somebody_else_set_is_left_alone_and_said() {
    let bench = Bench::new();
    bench.apply().unwrap();
    bench.write(GOVERNOR_0, "ondemand");
    let outcomes = bench.restore().unwrap();
    let of = outcomes.iter().find(|outcome| outcome.path == GOVERNOR_0).unwrap();
    assert_eq!(of.result, Done::ChangedByOthers { ours: "performance".into(), now: "ondemand".into() });
    assert_eq!(bench.says(GOVERNOR_0), "ondemand");
    assert_eq!(bench.says(GOVERNOR_1), "schedutil");
    assert!(!bench.journal.exists());
}

#[test]
fn a_setting_that_cannot_be_written_is_said_and_the_others_go_on() {
    let bench = Bench::new();
    let root = bench.root();
    let mut refusing = |path: &Path, value: &str| match path.ends_with("no_turbo") {
        true => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        false => write(path, value),
    };
    let outcomes = apply_with(Root::new(&root), &bench.journal, &plan(&root), &mut refusing).unwrap();
    assert!(matches!(&outcomes[2].result, Done::Refused(reason) if reason.ends_with("(run as root)")), "{outcomes:?}");
    assert_eq!(outcomes[3], changed(BALANCING, "1", "0"));
    let outcomes = bench.restore().unwrap();
    assert_eq!(outcomes[1], Outcome { path: TURBO.into(), result: Done::AsWanted("0".into()) });
    assert_eq!(bench.says(BALANCING), "1");
    assert!(!bench.journal.exists());
}

#[test]
fn a_setting_that_does_not_take_is_found_out_by_reading_it_back() {
    let bench = Bench::new();
    let root = bench.root();
    let outcomes = apply_with(Root::new(&root), &bench.journal, &plan(&root), &mut |_: &Path, _: &str| Ok(())).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(&outcome.result, Done::Refused(_))), "{outcomes:?}");
    assert!(!bench.journal.exists(), "nothing was changed, so nothing is pending");
}

#[test]
fn what_cannot_be_put_back_stays_in_the_journal() {
    let bench = Bench::new();
    let root = bench.root();
    bench.apply().unwrap();
    let mut refusing = |_: &Path, _: &str| Err(io::Error::from(io::ErrorKind::PermissionDenied));
    let outcomes = restore_with(Root::new(&root), &bench.journal, &mut refusing).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome.result, Done::Refused(_))));
    assert!(bench.journal.exists());
    bench.restore().unwrap();
    assert_eq!(bench.says(TURBO), "0");
}

#[test]
fn a_setting_that_is_gone_does_not_hold_up_the_others() {
    let bench = Bench::new();
    bench.apply().unwrap();
    fs::remove_file(Root::new(&bench.root()).at(GOVERNOR_1)).unwrap();
    let outcomes = bench.restore().unwrap();
    assert!(matches!(&outcomes[2].result, Done::Gone(_)), "{outcomes:?}");
    assert_eq!(bench.says(GOVERNOR_0), "powersave");
    assert!(!bench.journal.exists());
}

#[test]
fn after_a_restart_nothing_is_ours_any_more() {
    let bench = Bench::new();
    bench.apply().unwrap();
    bench.write(BOOT, "two");
    bench.write(GOVERNOR_0, "powersave");
    let outcomes = bench.restore().unwrap();
    assert_eq!(bench.says(TURBO), "1", "set by whatever ran at boot");
    assert!(outcomes.contains(&Outcome { path: GOVERNOR_0.into(), result: Done::AsWanted("powersave".into()) }));
    assert!(!bench.journal.exists());
}

#[test]
fn one_at_a_time() {
    let bench = Bench::new();
    let lock = Lock::take(&bench.journal).unwrap();
    assert!(matches!(bench.apply(), Err(TuneError::Busy { .. })));
    drop(lock);
    bench.apply().unwrap();
    let _lock = Lock::take(&bench.journal).unwrap();
    assert!(matches!(bench.restore(), Err(TuneError::Busy { .. })));
}

#[test]
fn a_journal_that_is_not_ours_is_an_error_and_nothing_is_changed() {
    let bench = Bench::new();
    let before = bench.all();
    for text in ["", "{}", r#"{"format":2,"boot":null,"entries":[]}"#] {
        fs::write(&bench.journal, text).unwrap();
        assert!(matches!(bench.apply(), Err(TuneError::Damaged { .. })), "{text}");
        assert!(matches!(bench.restore(), Err(TuneError::Damaged { .. })), "{text}");
    }
    assert_eq!(bench.all(), before);
}

#[test]
fn without_a_place_for_the_journal_nothing_is_changed() {
    let bench = Bench::new();
    let before = bench.all();
    let nowhere = bench.directory.path().join("missing/tune.json");
    let error = apply(&bench.root(), &nowhere, &plan(&bench.root())).unwrap_err();
    assert!(matches!(error, TuneError::Journal { action: "locked", .. }), "{error}");
    assert_eq!(bench.all(), before);
}
