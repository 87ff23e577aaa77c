//! Which of what is found is sent: patterns in the order in which they were given, of which the first that fits decides, and sizes.
//!
//! They are those of rsync: a pattern is compared with the end of the path under which a file arrives, or with all of it if it begins with
//! a slash. What no pattern fits is sent, and nothing below a directory that is excluded is looked at.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most bytes of a pattern: no path is longer (PATH_MAX of limits.h).
const MAX_PATTERN_BYTES: usize = 4095;
/// What a directory and all below it are named by.
const SUBTREE_ENDING: &[u8] = b"/***";

/// What becomes of what a pattern fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAction {
    /// It is sent.
    Include,
    /// It is not sent, and at the receiver it is not deleted.
    Exclude,
}

/// A pattern.
#[derive(Clone, Debug)]
struct FilterRule {
    action: FilterAction,
    glob: Vec<u8>,
    /// Whether only directories fit.
    directories_only: bool,
}

/// Patterns in their order.
#[derive(Clone, Debug, Default)]
pub struct PathFilter {
    rules: Vec<FilterRule>,
    min_bytes: Option<u64>,
    max_bytes: Option<u64>,
}

impl PathFilter {
    /// Sends no files of fewer or more bytes than these.
    pub fn limit_size(&mut self, min_bytes: Option<u64>, max_bytes: Option<u64>) {
        (self.min_bytes, self.max_bytes) = (min_bytes, max_bytes);
    }

    /// Whether files of this size are not sent.
    pub fn excludes_size(&self, bytes: u64) -> bool {
        self.min_bytes.is_some_and(|min| bytes < min) || self.max_bytes.is_some_and(|max| bytes > max)
    }

    /// Adds a pattern behind all others.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn add(&mut self, action: FilterAction, pattern: &OsStr) -> Result<(), String> {
        let pattern = pattern.as_bytes();
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(format!("a pattern has at most {MAX_PATTERN_BYTES} bytes"));
        }
        if let Some(directory) = pattern.strip_suffix(SUBTREE_ENDING) {
            self.add_rule(action, &[directory, b"/"].concat())?;
            return self.add_rule(action, &[directory, b"/**"].concat());
        }
        self.add_rule(action, pattern)
    }

    fn add_rule(&mut self, action: FilterAction, pattern: &[u8]) -> Result<(), String> {
        let (pattern, directories_only) =
            pattern.strip_suffix(b"/").map_or((pattern, false), |directory| (directory, true));
        let (pattern, prefix) = match pattern.strip_prefix(b"/") {
            Some(anchored) => (anchored, &b""[..]),
            None => (pattern, &b"**/"[..]),
        };
        if pattern.is_empty() {
            return Err("a pattern names something".into());
        }
        // Characters that mean something only to the crate, and not to rsync.
        let literal = |byte: &u8| if matches!(byte, b'{' | b'}') { vec![b'\\', *byte] } else { vec![*byte] };
        let glob: Vec<u8> = prefix.iter().copied().chain(pattern.iter().flat_map(literal)).collect();
        let glob = if glob.starts_with(b"!") { [b"\\", &glob[..]].concat() } else { glob };
        fast_glob::validate(&glob).map_err(|error| error.to_string())?;
        self.rules.push(FilterRule { action, glob, directories_only });
        Ok(())
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether what arrives under this path is not sent.
    pub fn excludes(&self, path: &Path, is_directory: bool) -> bool {
        let fits = |rule: &&FilterRule| {
            (is_directory || !rule.directories_only) && fast_glob::glob_match(&rule.glob, path.as_os_str().as_bytes())
        };
        self.rules.iter().find(fits).is_some_and(|rule| rule.action == FilterAction::Exclude)
    }
}

#[cfg(test)]
mod tests {
    use super::FilterAction::{Exclude, Include};
    use super::*;

    fn filter(rules: &[(FilterAction, &str)]) -> PathFilter {
        let mut filter = PathFilter::default();
        rules.iter().for_each(|(action, pattern)| filter.add(*action, OsStr::new(pattern)).unwrap());
        filter
    }

    /// Each pattern with what it fits and what it does not; a path that ends in a slash is a directory.
    #[test]
    fn patterns_fit_as_those_of_rsync() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("*.o", &["a.o", "tree/deep/a.o", "tree/dir.o/"], &["a.obj", "tree/a.o/b"]),
            ("core", &["core", "tree/core", "tree/core/"], &["tree/score", "tree/core/x"]),
            ("cache/", &["cache/", "tree/cache/"], &["cache", "tree/cache"]),
            ("/tree/a", &["tree/a"], &["a", "deep/tree/a"]),
            ("/a", &["a"], &["tree/a"]),
            ("deep/a", &["deep/a", "tree/deep/a"], &["tree/deep/b/a", "indeep/a"]),
            ("tree/**/a", &["tree/a", "tree/b/c/a"], &["tree/b/c/a/d"]),
            ("/tree/**", &["tree/a", "tree/b/c"], &["trees/a"]),
            ("/tree/***", &["tree/", "tree/a", "tree/b/c"], &["tree", "trees/a"]),
            ("a?c", &["abc", "tree/a\u{c}c"], &["a/c", "ac"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "[a-c]x"]),
            ("[!a-c]x", &["dx"], &["ax"]),
            ("a\\*", &["a*"], &["ab"]),
            ("{a,b}", &["{a,b}"], &["a", "b"]),
            ("/!a", &["!a"], &["a", "b"]),
            ("!a", &["!a", "tree/!a"], &["a", "b"]),
            ("*", &["a", "tree/", "tree/a"], &[]),
        ];
        for (pattern, fitting, other) in cases {
            let filter = filter(&[(Exclude, pattern)]);
            let excludes = |path: &str| filter.excludes(Path::new(path.trim_end_matches('/')), path.ends_with('/'));
            for path in *fitting {
                assert!(excludes(path), "{pattern} fits {path}");
            }
            for path in *other {
                assert!(!excludes(path), "{pattern} does not fit {path}");
            }
        }
    }

    #[test]
    fn first_fitting_pattern_decides() {
        let pictures = filter(&[(Include, "*/"), (Include, "*.jpg"), (Exclude, "*")]);
        let excludes = |path, is_directory| pictures.excludes(Path::new(path), is_directory);
        assert!(!excludes("tree", true) && !excludes("tree/a.jpg", false) && excludes("tree/a.txt", false));
        assert!(filter(&[(Exclude, "*"), (Include, "*.jpg")]).excludes(Path::new("a.jpg"), false));
        assert!(PathFilter::default().is_empty() && !PathFilter::default().excludes(Path::new("a"), false));
    }

    #[test]
    fn impossible_patterns_are_refused() {
        let words = |pattern: &str| PathFilter::default().add(Exclude, OsStr::new(pattern)).unwrap_err();
        for pattern in ["", "/", "//"] {
            assert!(words(pattern).contains("names something"), "{pattern}");
        }
        assert!(words("[a").contains("unclosed character class") && words("a\\").contains("trailing backslash"));
        assert!(words(&"x".repeat(1 << 20)).contains("at most 4095 bytes"));
    }

    /// What would take an engine that tries every way for ever.
    #[test]
    fn long_paths_and_many_stars_end() {
        let stars = filter(&[(Exclude, &"*a".repeat(1000)), (Exclude, &"**/a/".repeat(500))]);
        assert!(!stars.excludes(Path::new(&"a".repeat(999)), false));
        assert!(stars.excludes(Path::new(&"a".repeat(4095)), false));
        assert!(!stars.excludes(Path::new(&"b/".repeat(2000)), false));
    }
}
