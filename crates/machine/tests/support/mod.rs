//! Unpacks a recorded tree: one text file per machine, `=== path` before the content of each file.
//!
//! `=== path -> target` is a symbolic link, `=== path : hex` a file of bytes; lines before the first file are comments.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A tree unpacked into a directory that goes away with it.
pub struct RecordedTree(tempfile::TempDir);

impl RecordedTree {
    /// Unpacks `tests/trees/NAME.tree`.
    pub fn load(name: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/trees/{name}.tree"));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(text.starts_with("# Recorded") || text.starts_with("# Composed"), "{name} must state its origin");
        let tree = Self(tempfile::tempdir().unwrap());
        for section in format!("\n{text}").split("\n=== ").skip(1) {
            let (head, body) = section.split_once('\n').unwrap_or((section, ""));
            tree.add(head, body);
        }
        tree
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    fn prepare_path(&self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn add(&self, head: &str, body: &str) {
        if let Some((name, target)) = head.split_once(" -> ") {
            symlink(target, self.prepare_path(name)).unwrap();
        } else if let Some(name) = head.strip_suffix(" : hex") {
            let digits: String = body.split_ascii_whitespace().collect();
            let bytes = (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap());
            fs::write(self.prepare_path(name), bytes.collect::<Vec<u8>>()).unwrap();
        } else {
            fs::write(self.prepare_path(head), format!("{body}\n")).unwrap();
        }
    }
}
