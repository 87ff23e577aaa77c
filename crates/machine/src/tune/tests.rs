use super::*;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};

const GOVERNOR_0: &str = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
const GOVERNOR_1: &str = "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor";
const TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A tree of settings, and a place for the journal next to it.
struct TuneFixture {
    directory: tempfile::TempDir,
    journal: PathBuf,
}

impl TuneFixture {
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
        let path = FileRoot::new(&self.root()).resolve(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn setting_value(&self, name: &str) -> String {
        current_value(FileRoot::new(&self.root()), name).unwrap()
    }

    fn setting_values(&self) -> BTreeMap<&'static str, String> {
        [GOVERNOR_0, GOVERNOR_1, TURBO, BALANCING].into_iter().map(|name| (name, self.setting_value(name))).collect()
    }

    fn apply(&self) -> Result<Vec<ChangeOutcome>, TuneError> {
        apply(&self.root(), &self.journal, &plan_changes(&self.root()))
    }

    fn restore(&self) -> Result<Vec<ChangeOutcome>, TuneError> {
        restore(&self.root(), &self.journal)
    }
}

fn changed_outcome(path: &str, from: &str, to: &str) -> ChangeOutcome {
    ChangeOutcome { path: path.into(), result: ChangeResult::Changed { from: from.into(), to: to.into() } }
}

#[test]
fn applied_changes_are_restored() {
    let bench = TuneFixture::new();
    let before = bench.setting_values();
    let outcomes = bench.apply().unwrap();
    assert_eq!(
        outcomes,
        [
            changed_outcome(GOVERNOR_0, "powersave", "performance"),
            changed_outcome(GOVERNOR_1, "schedutil", "performance"),
            changed_outcome(TURBO, "0", "1"),
            changed_outcome(BALANCING, "1", "0"),
        ]
    );
    assert_eq!(bench.setting_value(GOVERNOR_1), "performance");
    assert_eq!(pending_changes(&bench.journal).unwrap().len(), 4);
    assert!(plan_changes(&bench.root()).is_empty());
    let outcomes = bench.restore().unwrap();
    assert_eq!(outcomes[0], changed_outcome(BALANCING, "0", "1"), "newest first");
    assert_eq!(bench.setting_values(), before);
    assert!(!bench.journal.exists());
    assert!(pending_changes(&bench.journal).unwrap().is_empty());
    assert_eq!(bench.restore().unwrap(), []);
    let remaining_files: Vec<_> =
        fs::read_dir(bench.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(remaining_files, ["root"], "neither lock nor temporary file stays behind");
}

#[test]
fn changes_are_grouped_by_setting() {
    let bench = TuneFixture::new();
    bench.write("/sys/kernel/mm/damon/admin/kdamonds/0/state", "on");
    let settings = group_by_setting(&plan_changes(&bench.root()));
    let paths: Vec<Vec<&str>> =
        settings.iter().map(|setting| setting.changes.iter().map(|change| change.path.as_str()).collect()).collect();
    let reclaim = "/sys/kernel/mm/damon/admin/kdamonds/0/state";
    assert_eq!(paths, [vec![GOVERNOR_0, GOVERNOR_1], vec![TURBO], vec![BALANCING], vec![reclaim]]);
    let has_metrics =
        |setting: &SettingChanges| matches!(setting.visible_in, VisibleIn::Metrics(metrics) if !metrics.is_empty());
    assert!(settings[..3].iter().all(has_metrics));
    assert!(matches!(settings[3].visible_in, VisibleIn::NotMeasurable(why) if why.contains("idle")));
    let unknown_change = SettingChange { path: "/proc/sys/kernel/nothing".into(), ..settings[0].changes[0].clone() };
    assert!(group_by_setting(&[unknown_change]).is_empty());
}

#[test]
fn plan_lists_changes_with_reasons() {
    let bench = TuneFixture::new();
    bench.write("/sys/devices/system/cpu/smt/control", "on");
    bench.write("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
    bench.write("/sys/kernel/mm/damon/admin/kdamonds/0/state", "on");
    bench.write("/proc/sys/kernel/randomize_va_space", "2");
    let plan = plan_changes(&bench.root());
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
    assert!(plan.iter().all(|change| !change.benefit.is_empty()));
}

#[test]
fn unavailable_governor_is_not_planned() {
    let bench = TuneFixture::new();
    bench.write("/sys/devices/system/cpu/cpufreq/policy1/scaling_available_governors", "schedutil userspace");
    assert!(plan_changes(&bench.root()).iter().all(|change| change.path != GOVERNOR_1));
}

/// Writes settings, and dies at the given one: before it was written, or after.
fn fail_at_write(index: usize, is_written: bool) -> impl FnMut(&Path, &str) -> io::Result<()> {
    let mut count = 0;
    move |path, value| {
        let is_killed = count == index;
        count += 1;
        if !is_killed || is_written {
            write_existing(path, value)?;
        }
        assert!(!is_killed, "killed");
        Ok(())
    }
}

#[test]
fn kill_during_apply_is_restorable() {
    for index in 0..4 {
        for is_written in [false, true] {
            let bench = TuneFixture::new();
            let (root, before) = (bench.root(), bench.setting_values());
            let plan = plan_changes(&root);
            let result = catch_unwind(AssertUnwindSafe(|| {
                apply_with(FileRoot::new(&root), &bench.journal, &plan, &mut fail_at_write(index, is_written))
            }));
            assert!(result.is_err());
            let second_result = apply(&root, &bench.journal, &plan);
            assert!(matches!(second_result, Err(TuneError::Pending { .. })), "the journal was there before the change");
            bench.restore().unwrap();
            assert_eq!(bench.setting_values(), before, "killed at {index}, written {is_written}");
            assert!(!bench.journal.exists());
        }
    }
}

#[test]
fn kill_during_restore_is_restorable() {
    for index in 0..4 {
        for is_written in [false, true] {
            let bench = TuneFixture::new();
            let (root, before) = (bench.root(), bench.setting_values());
            bench.apply().unwrap();
            let result = catch_unwind(AssertUnwindSafe(|| {
                restore_with(FileRoot::new(&root), &bench.journal, &mut fail_at_write(index, is_written))
            }));
            assert!(result.is_err());
            assert!(bench.journal.exists());
            bench.restore().unwrap();
            assert_eq!(bench.setting_values(), before, "killed at {index}, written {is_written}");
        }
    }
}

#[test]
fn kill_during_journal_write_changes_nothing() {
    let bench = TuneFixture::new();
    fs::write(bench.directory.path().join("tune.json.new"), "{\"form").unwrap();
    assert_eq!(bench.restore().unwrap(), []);
    assert_eq!(bench.apply().unwrap().len(), 4);
    assert_eq!(pending_changes(&bench.journal).unwrap().len(), 4);
}

#[test]
fn foreign_value_is_kept_and_reported() {
    let bench = TuneFixture::new();
    bench.apply().unwrap();
    bench.write(GOVERNOR_0, "ondemand");
    let outcomes = bench.restore().unwrap();
    let outcome = outcomes.iter().find(|outcome| outcome.path == GOVERNOR_0).unwrap();
    assert_eq!(outcome.result, ChangeResult::ChangedByOther { ours: "performance".into(), now: "ondemand".into() });
    assert_eq!(bench.setting_value(GOVERNOR_0), "ondemand");
    assert_eq!(bench.setting_value(GOVERNOR_1), "schedutil");
    assert!(!bench.journal.exists());
}

#[test]
fn unwritable_setting_does_not_stop_others() {
    let bench = TuneFixture::new();
    let root = bench.root();
    let mut refusing = |path: &Path, value: &str| match path.ends_with("no_turbo") {
        true => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        false => write_existing(path, value),
    };
    let outcomes = apply_with(FileRoot::new(&root), &bench.journal, &plan_changes(&root), &mut refusing).unwrap();
    assert!(
        matches!(&outcomes[2].result, ChangeResult::Refused(reason) if reason.ends_with("(run as root)")),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[3], changed_outcome(BALANCING, "1", "0"));
    let outcomes = bench.restore().unwrap();
    assert_eq!(outcomes[1], ChangeOutcome { path: TURBO.into(), result: ChangeResult::AlreadySet("0".into()) });
    assert_eq!(bench.setting_value(BALANCING), "1");
    assert!(!bench.journal.exists());
}

#[test]
fn ineffective_write_is_detected() {
    let bench = TuneFixture::new();
    let root = bench.root();
    let outcomes =
        apply_with(FileRoot::new(&root), &bench.journal, &plan_changes(&root), &mut |_: &Path, _: &str| Ok(()))
            .unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(&outcome.result, ChangeResult::Refused(_))), "{outcomes:?}");
    assert!(!bench.journal.exists(), "nothing was changed, so nothing is pending");
}

#[test]
fn unrestored_setting_stays_in_journal() {
    let bench = TuneFixture::new();
    let root = bench.root();
    bench.apply().unwrap();
    let mut refusing = |_: &Path, _: &str| Err(io::Error::from(io::ErrorKind::PermissionDenied));
    let outcomes = restore_with(FileRoot::new(&root), &bench.journal, &mut refusing).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome.result, ChangeResult::Refused(_))));
    assert!(bench.journal.exists());
    bench.restore().unwrap();
    assert_eq!(bench.setting_value(TURBO), "0");
}

#[test]
fn missing_setting_does_not_stop_others() {
    let bench = TuneFixture::new();
    bench.apply().unwrap();
    fs::remove_file(FileRoot::new(&bench.root()).resolve(GOVERNOR_1)).unwrap();
    let outcomes = bench.restore().unwrap();
    assert!(matches!(&outcomes[2].result, ChangeResult::Missing(_)), "{outcomes:?}");
    assert_eq!(bench.setting_value(GOVERNOR_0), "powersave");
    assert!(!bench.journal.exists());
}

#[test]
fn journal_of_earlier_boot_is_dropped() {
    let bench = TuneFixture::new();
    bench.apply().unwrap();
    bench.write(BOOT, "two");
    bench.write(GOVERNOR_0, "powersave");
    let outcomes = bench.restore().unwrap();
    assert_eq!(bench.setting_value(TURBO), "1", "set at boot");
    assert!(
        outcomes
            .contains(&ChangeOutcome { path: GOVERNOR_0.into(), result: ChangeResult::AlreadySet("powersave".into()) })
    );
    assert!(!bench.journal.exists());
}

#[test]
fn concurrent_tune_is_refused() {
    let bench = TuneFixture::new();
    let lock = JournalLock::acquire(&bench.journal).unwrap();
    assert!(matches!(bench.apply(), Err(TuneError::Busy { .. })));
    drop(lock);
    bench.apply().unwrap();
    let _lock = JournalLock::acquire(&bench.journal).unwrap();
    assert!(matches!(bench.restore(), Err(TuneError::Busy { .. })));
}

#[test]
fn invalid_journal_is_an_error() {
    let bench = TuneFixture::new();
    let before = bench.setting_values();
    for text in ["", "{}", r#"{"format":2,"boot_id":null,"entries":[]}"#] {
        fs::write(&bench.journal, text).unwrap();
        assert!(matches!(bench.apply(), Err(TuneError::CorruptJournal { .. })), "{text}");
        assert!(matches!(bench.restore(), Err(TuneError::CorruptJournal { .. })), "{text}");
    }
    assert_eq!(bench.setting_values(), before);
}

#[test]
fn unwritable_journal_changes_nothing() {
    let bench = TuneFixture::new();
    let before = bench.setting_values();
    let journal = bench.directory.path().join("missing/missing/tune.json");
    let error = apply(&bench.root(), &journal, &plan_changes(&bench.root())).unwrap_err();
    assert!(matches!(error, TuneError::JournalIo { action: "locked", .. }), "{error}");
    assert_eq!(bench.setting_values(), before);
}

#[test]
fn empty_plan_creates_no_files() {
    let bench = TuneFixture::new();
    let journal = bench.directory.path().join("kelvin/tune.json");
    assert_eq!(apply(&bench.root(), &journal, &[]).unwrap(), []);
    assert!(!journal.parent().unwrap().exists());
}

/// Permission bits of a path.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn journal_is_private_to_owner() {
    let bench = TuneFixture::new();
    let (directory, journal) = (bench.directory.path().join("kelvin"), bench.directory.path().join("kelvin/tune.json"));
    apply(&bench.root(), &journal, &plan_changes(&bench.root())).unwrap();
    assert_eq!((mode(&directory), mode(&journal)), (0o700, 0o600));
    restore(&bench.root(), &journal).unwrap();
    // Created by an earlier kelvin, and readable by others.
    set_mode(&directory, 0o755);
    apply(&bench.root(), &journal, &plan_changes(&bench.root())).unwrap();
    assert_eq!(mode(&directory), 0o700);
}

/// A journal with one change.
fn journal_with_change(path: &str, from: &str, to: &str) -> String {
    let change = serde_json::json!({ "path": path, "from": from, "to": to, "benefit": "", "optional": false });
    serde_json::json!({ "format": 1, "boot_id": null, "entries": [change] }).to_string()
}

#[test]
fn journal_with_unknown_change_is_refused() {
    let bench = TuneFixture::new();
    let before = bench.setting_values();
    let outside_path = "/sys/devices/system/cpu/cpufreq/policy0/../../../../../../etc/shadow";
    let long_path = "x".repeat(100_000);
    bench.write("/etc/shadow", "performance");
    bench.write("/proc/sys/kernel/core_pattern", "performance");
    for (path, from, to, expected) in [
        ("/etc/shadow", "root::", "performance", "\"/etc/shadow\" is not a setting that tune changes"),
        ("/proc/sys/kernel/core_pattern", "|/tmp/x", "performance", "is not a setting"),
        (outside_path, "root::", "performance", "is not a setting"),
        ("/sys/devices/system/cpu/cpufreq/policy../scaling_governor", "x", "performance", "is not a setting"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor/", "x", "performance", "is not a setting"),
        ("/sys/devices/system/cpu/cpufreq/policy00/scaling_governor", "x", "performance", "is not a setting"),
        ("/sys/devices/system/cpu/cpufreq/policy65536/scaling_governor", "x", "performance", "is not a setting"),
        ("/sys/devices/system/cpu/cpu+1/cpufreq/scaling_governor", "x", "performance", "is not a setting"),
        ("//proc/sys/vm/swappiness", "60", "1", "is not a setting"),
        ("proc/sys/vm/swappiness", "60", "1", "is not a setting"),
        (&long_path, "60", "1", "xxx"),
        (GOVERNOR_0, "powersave\nroot::", "performance", "tune never changes"),
        (GOVERNOR_0, "", "performance", "tune never changes"),
        (GOVERNOR_0, "abcdefghijklmnop", "performance", "tune never changes"),
        (GOVERNOR_0, "performance", "performance", "tune never changes"),
        (GOVERNOR_0, "powersave", "userspace", "tune never changes"),
        (TURBO, "2", "1", "from \"2\" to \"1\""),
        ("/proc/sys/vm/swappiness", "200", "1", "tune never changes"),
    ] {
        fs::write(&bench.journal, journal_with_change(path, from, to)).unwrap();
        for outcome in [bench.restore().map(drop), bench.apply().map(drop), pending_changes(&bench.journal).map(drop)] {
            let error = outcome.unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains("and remove it") && error.len() < 600,
                "{path} {from}: {error}"
            );
        }
    }
    assert_eq!(bench.setting_values(), before);
    assert_eq!(bench.setting_value("/etc/shadow"), "performance");
    fs::write(&bench.journal, journal_with_change(TURBO, "0", "1")).unwrap();
    assert_eq!(
        bench.restore().unwrap(),
        [ChangeOutcome { path: TURBO.into(), result: ChangeResult::AlreadySet("0".into()) }]
    );
}

#[test]
fn writable_by_others_journal_is_refused() {
    let bench = TuneFixture::new();
    let plan = plan_changes(&bench.root());
    bench.apply().unwrap();
    let (tuned, directory) = (bench.setting_values(), bench.directory.path());
    let assert_refused = |words: &str| {
        let result = apply(&bench.root(), &bench.journal, &plan).map(drop);
        for outcome in [bench.restore().map(drop), result, pending_changes(&bench.journal).map(drop)] {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("allow only root to write there"), "{words}: {error}");
        }
        assert_eq!(bench.setting_values(), tuned);
    };
    set_mode(&bench.journal, 0o660);
    assert_refused("tune.json may be written by others (mode 660)");
    set_mode(&bench.journal, 0o600);
    set_mode(directory, 0o777);
    assert_refused("may be written by others (mode 777)");
    set_mode(directory, 0o1777);
    assert_refused("may be written by others (mode 777)");
    set_mode(directory, 0o700);
    let moved_journal = directory.join("aside");
    fs::rename(&bench.journal, &moved_journal).unwrap();
    symlink(&moved_journal, &bench.journal).unwrap();
    assert_refused("tune.json is a symbolic link");
    fs::remove_file(&bench.journal).unwrap();
    fs::create_dir(&bench.journal).unwrap();
    assert_refused("tune.json is not a regular file");
}

#[test]
fn journal_of_other_user_is_refused() {
    let bench = TuneFixture::new();
    bench.apply().unwrap();
    if std::os::unix::fs::chown(&bench.journal, Some(4_000_000), None).is_err() {
        return skipped("only root gives files away");
    }
    let error = bench.restore().unwrap_err().to_string();
    assert!(error.contains("tune.json belongs to user 4000000"), "{error}");
}

#[allow(clippy::print_stderr)]
fn skipped(reason: &str) {
    eprintln!("skipped: {reason}");
}

#[test]
fn link_outside_proc_sys_is_refused() {
    let bench = TuneFixture::new();
    bench.apply().unwrap();
    let (turbo, target) = (FileRoot::new(&bench.root()).resolve(TURBO), bench.directory.path().join("elsewhere"));
    fs::rename(&turbo, &target).unwrap();
    symlink(&target, &turbo).unwrap();
    let outcomes = bench.restore().unwrap();
    assert!(
        matches!(&outcomes[1].result, ChangeResult::Refused(why) if why.contains("is not in /proc or /sys")),
        "{outcomes:?}"
    );
    assert_eq!(fs::read_to_string(&target).unwrap().trim(), "1");
    // Links within /sys are the kernel's own.
    let inside_target = FileRoot::new(&bench.root()).resolve("/sys/devices/other");
    fs::rename(&target, &inside_target).unwrap();
    fs::remove_file(&turbo).unwrap();
    symlink(&inside_target, &turbo).unwrap();
    bench.restore().unwrap();
    assert_eq!(bench.setting_value(TURBO), "0");
}

#[test]
fn foreign_change_after_plan_is_kept() {
    let bench = TuneFixture::new();
    let plan = plan_changes(&bench.root());
    bench.write(BALANCING, "2");
    let outcomes = apply(&bench.root(), &bench.journal, &plan).unwrap();
    assert_eq!(outcomes[3].result, ChangeResult::ChangedByOther { ours: "1".into(), now: "2".into() });
    assert_eq!((bench.setting_value(BALANCING).as_str(), pending_changes(&bench.journal).unwrap().len()), ("2", 3));
}
