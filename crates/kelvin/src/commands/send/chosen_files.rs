//! Which files are sent: patterns, and lists of paths, as options name them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use kelvin_transfer::path_filter::{FilterAction, PathFilter};

use crate::cli::{FilterArgs, FilterOption, SendArgs};
use crate::cli_error::{CliError, Context};
use crate::output;

/// Lines of a file with patterns that are none, as rsync has them.
const COMMENT_STARTS: &[u8] = b"#;";

/// A pattern, and the option that it is of.
struct Pattern {
    action: FilterAction,
    pattern: OsString,
    option: String,
}

/// All patterns, those of files included, in their order.
fn patterns(args: &FilterArgs) -> Result<Vec<Pattern>, CliError> {
    let mut patterns = Vec::new();
    for option in &args.options {
        let (action, pattern) = match option {
            FilterOption::Exclude(pattern) => (FilterAction::Exclude, pattern),
            FilterOption::Include(pattern) => (FilterAction::Include, pattern),
            FilterOption::ExcludeFrom(path) => {
                let option = format!("--exclude-from {}", path.display());
                let lines = read_lines(path, b'\n', &option)?;
                let is_pattern = |line: &OsString| !COMMENT_STARTS.contains(&line.as_bytes()[0]);
                let of_file = |pattern| Pattern { action: FilterAction::Exclude, pattern, option: option.clone() };
                patterns.extend(lines.into_iter().filter(is_pattern).map(of_file));
                continue;
            }
        };
        let option = if action == FilterAction::Exclude { "--exclude" } else { "--include" };
        patterns.push(Pattern { action, pattern: pattern.clone(), option: option.to_owned() });
    }
    Ok(patterns)
}

/// What options choose.
pub fn path_filter(args: &SendArgs) -> Result<PathFilter, CliError> {
    let mut filter = filter_of(&patterns(&args.filter)?)?;
    filter.limit_size(args.min_size, args.max_size);
    Ok(filter)
}

fn filter_of(patterns: &[Pattern]) -> Result<PathFilter, CliError> {
    let mut filter = PathFilter::default();
    for Pattern { action, pattern, option } in patterns {
        filter.add(*action, pattern).context(format_args!("{option} {}", pattern.display()))?;
    }
    Ok(filter)
}

/// The options of another end that choose the same.
pub fn filter_arguments(args: &SendArgs) -> Result<Vec<OsString>, CliError> {
    // Once: a file may be a pipe.
    let patterns = patterns(&args.filter)?;
    // A mistake shows before anything is started.
    filter_of(&patterns)?;
    let argument = |Pattern { action, pattern, .. }| {
        let mut argument = OsString::from(if action == FilterAction::Exclude { "--exclude=" } else { "--include=" });
        argument.push(pattern);
        argument
    };
    Ok(patterns.into_iter().map(argument).collect())
}

/// The paths of a list.
pub fn listed_paths(list: &Path, separated_by_nul: bool) -> Result<Vec<PathBuf>, CliError> {
    let separator = if separated_by_nul { 0 } else { b'\n' };
    let lines = read_lines(list, separator, &format!("--files-from {}", list.display()))?;
    Ok(lines.into_iter().map(PathBuf::from).collect())
}

/// The lines of a file that are not empty; of standard input, if it is `-`.
fn read_lines(path: &Path, separator: u8, option: &str) -> Result<Vec<OsString>, CliError> {
    let action = if path == Path::new("-") { output::STDIN_READ_FAILED } else { option };
    let text = output::read_named(path).context(action)?;
    let lines = text.split(|byte| *byte == separator).filter(|line| !line.is_empty());
    Ok(lines.map(|line| OsString::from_vec(line.to_vec())).collect())
}
