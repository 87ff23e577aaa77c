//! Control groups, wherever they are mounted.

use std::path::{Path, PathBuf};

/// The control groups whose names are wanted. Whoever looks for those of a test must say by the name whose they are: others may have
/// left some of their own.
pub fn find_named(is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = left.pop() {
        for path in subdirectories(&directory) {
            if path.file_name().is_some_and(|name| is_wanted(&name.to_string_lossy())) {
                found.push(path.clone());
            }
            left.push(path);
        }
    }
    found
}

fn subdirectories(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}
