//! Settings of the system that an experiment switches between values, and puts back at its end; after a kill, `tune --restore` does.

use std::path::{Path, PathBuf};

use super::journal::{Journal, JournalLock, validate_setting};
use super::{
    ChangeOutcome, ChangeResult, SettingChange, TuneError, current_value, is_same_value, restore_held,
    write_and_verify, write_existing,
};
use crate::root::FileRoot;

/// Settings that are switched; dropped, it puts them back.
#[derive(Debug)]
pub struct SettingSwitch {
    root: PathBuf,
    journal: PathBuf,
    /// Each setting with its value as found.
    original_values: Vec<(String, String)>,
    /// Held until they are put back.
    _lock: JournalLock,
}

impl SettingSwitch {
    /// Notes in the journal what the settings of these files are, and to which values they will be switched; nothing is changed yet.
    ///
    /// # Errors
    /// [`TuneError::Refused`] for a file that is no setting or cannot be read, a value that cannot be one; otherwise any [`TuneError`].
    pub fn record(root: &Path, journal: &Path, settings: &[(&str, &str)]) -> Result<Self, TuneError> {
        let file_root = FileRoot::new(root);
        let mut original_values: Vec<(String, String)> = Vec::new();
        for &(path, value) in settings {
            validate_setting(path, value).map_err(TuneError::Refused)?;
            if !original_values.iter().any(|(recorded_path, _)| recorded_path == path) {
                let current = current_value(file_root, path).map_err(TuneError::Refused)?;
                validate_setting(path, &current).map_err(TuneError::Refused)?;
                original_values.push((path.to_owned(), current));
            }
        }
        let lock = JournalLock::acquire(journal)?;
        if Journal::read(journal)?.is_some() {
            return Err(TuneError::Pending(journal.to_owned()));
        }
        let to_change = |&(path, value): &(&str, &str)| {
            let (_, from) = original_values.iter().find(|(recorded_path, _)| recorded_path == path)?;
            let change = SettingChange {
                path: path.to_owned(),
                from: from.clone(),
                to: value.to_owned(),
                benefit: "tried in an experiment".to_owned(),
                optional: false,
                requested: true,
            };
            (!is_same_value(from, value)).then_some(change)
        };
        let entries: Vec<SettingChange> = settings.iter().filter_map(to_change).collect();
        if !entries.is_empty() {
            Journal::new(file_root, entries).write(journal)?;
        }
        Ok(Self { root: root.to_owned(), journal: journal.to_owned(), original_values, _lock: lock })
    }

    /// The settings, each with its value as found.
    pub fn original_values(&self) -> &[(String, String)] {
        &self.original_values
    }

    /// Gives each of these settings its value, and every other one that as found.
    ///
    /// # Errors
    /// [`TuneError::Refused`], with the error of the kernel.
    pub fn apply(&self, settings: &[(&str, &str)]) -> Result<(), TuneError> {
        let root = FileRoot::new(&self.root);
        for (path, original) in &self.original_values {
            let target = settings
                .iter()
                .find(|(setting_path, _)| setting_path == path)
                .map_or(original.as_str(), |&(_, value)| value);
            let current = current_value(root, path).map_err(TuneError::Refused)?;
            if is_same_value(&current, target) {
                continue;
            }
            if let ChangeResult::Refused(reason) = write_and_verify(root, path, &current, target, &mut write_existing) {
                return Err(TuneError::Refused(reason));
            }
        }
        Ok(())
    }

    /// Puts all back, and returns what was done for each.
    ///
    /// # Errors
    /// Any [`TuneError`].
    pub fn restore(&self) -> Result<Vec<ChangeOutcome>, TuneError> {
        restore_held(FileRoot::new(&self.root), &self.journal, &mut write_existing)
    }
}

impl Drop for SettingSwitch {
    fn drop(&mut self) {
        // What cannot be put back stays in the journal, which every later call reports.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
    const WINDOW: &str = "/proc/sys/net/ipv4/tcp_rmem";
    const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

    struct SwitchFixture(tempfile::TempDir);

    impl SwitchFixture {
        fn new() -> Self {
            let bench = Self(tempfile::tempdir().unwrap());
            bench.write(SWAPPINESS, "60");
            bench.write(WINDOW, "4096\t131072\t6291456");
            bench.write(HUGE, "always");
            bench.write("/proc/sys/kernel/random/boot_id", "one");
            bench
        }

        fn root(&self) -> PathBuf {
            self.0.path().join("root")
        }

        fn journal(&self) -> PathBuf {
            self.0.path().join("tune.json")
        }

        fn write(&self, path: &str, text: &str) {
            let file = self.root().join(&path[1..]);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }

        fn setting_value(&self, path: &str) -> String {
            current_value(FileRoot::new(&self.root()), path).unwrap()
        }

        fn begin(&self, settings: &[(&str, &str)]) -> Result<SettingSwitch, TuneError> {
            SettingSwitch::record(&self.root(), &self.journal(), settings)
        }
    }

    #[test]
    fn dropped_switch_restores_settings() {
        let bench = SwitchFixture::new();
        let switches = bench
            .begin(&[(SWAPPINESS, "1"), (SWAPPINESS, "100"), (WINDOW, "4096 65536 65536"), (HUGE, "always")])
            .unwrap();
        assert_eq!(switches.original_values().len(), 3);
        assert_eq!(bench.setting_value(SWAPPINESS), "60", "nothing is changed before it is asked for");
        for (value, expected) in [("1", "1"), ("100", "100")] {
            switches.apply(&[(SWAPPINESS, value)]).unwrap();
            assert_eq!(
                (bench.setting_value(SWAPPINESS).as_str(), bench.setting_value(HUGE).as_str()),
                (expected, "always")
            );
        }
        switches.apply(&[(WINDOW, "4096 65536 65536")]).unwrap();
        assert_eq!(
            (bench.setting_value(SWAPPINESS).as_str(), bench.setting_value(WINDOW).as_str()),
            ("60", "4096 65536 65536")
        );
        assert!(bench.journal().exists());
        assert!(matches!(bench.begin(&[(SWAPPINESS, "2")]), Err(TuneError::Busy { .. })));
        drop(switches);
        assert_eq!(
            (bench.setting_value(SWAPPINESS).as_str(), bench.setting_value(WINDOW).as_str()),
            ("60", "4096\t131072\t6291456")
        );
        assert!(!bench.journal().exists());
    }

    #[test]
    fn restore_after_kill_recovers_any_value() {
        for value in ["1", "100", "60", "7"] {
            let bench = SwitchFixture::new();
            let switches = bench.begin(&[(SWAPPINESS, "1"), (SWAPPINESS, "100")]).unwrap();
            let journal = fs::read(bench.journal()).unwrap();
            drop(switches);
            // As a killed process leaves it: the lock is gone, the journal is there.
            fs::write(bench.journal(), journal).unwrap();
            bench.write(SWAPPINESS, value);
            assert!(matches!(bench.begin(&[(SWAPPINESS, "2")]), Err(TuneError::Pending { .. })));
            let outcomes = super::super::restore(&bench.root(), &bench.journal()).unwrap();
            assert_eq!(outcomes.len(), 1, "{outcomes:?}");
            let (restored, is_ours) = (bench.setting_value(SWAPPINESS), value != "7");
            assert_eq!(restored == "60", is_ours, "{value}: {outcomes:?}");
            assert_eq!(
                matches!(outcomes[0].result, ChangeResult::ChangedByOther { .. }),
                !is_ours,
                "{value}: {outcomes:?}"
            );
            assert!(!bench.journal().exists());
        }
    }

    #[test]
    fn invalid_setting_is_refused_without_journal() {
        let bench = SwitchFixture::new();
        for (path, value) in [
            ("/etc/passwd", "x"),
            ("/proc/sys/../../etc/passwd", "x"),
            ("/proc/sys//vm/swappiness", "1"),
            ("/sys/./kernel", "1"),
            ("/proc/sys/vm/nothing", "1"),
            (SWAPPINESS, ""),
            (SWAPPINESS, "1\n2"),
        ] {
            assert!(matches!(bench.begin(&[(path, value)]), Err(TuneError::Refused(_))), "{path} {value:?}");
            assert!(!bench.journal().exists());
        }
    }
}
