//! Control groups, wherever they are mounted.

use std::path::{Path, PathBuf};

/// The control groups whose names are wanted. A test must select its own by their names: others may have
/// left some of their own.
pub fn find_named(is_match: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let (mut groups, mut pending) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = pending.pop() {
        for path in subdirectories(&directory) {
            if path.file_name().is_some_and(|name| is_match(&name.to_string_lossy())) {
                groups.push(path.clone());
            }
            pending.push(path);
        }
    }
    groups
}

fn subdirectories(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}
