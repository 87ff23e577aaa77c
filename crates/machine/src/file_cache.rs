//! The maximum size of the file cache: its bounds, each with its derivation.

use kelvin_core::IndirectSort;
use std::path::Path;

use serde::Serialize;

use crate::limits::{ProcessCgroups, parse_limit};
use crate::memory::{MEMINFO, kibibytes};
use crate::root::{FileRoot, value_of_key};

/// The size of the file cache, and its maximum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileCache {
    /// Bytes in file pages now, on the whole machine, if known.
    #[serde(rename = "in_use_bytes")]
    pub current_bytes: Option<u64>,
    /// Its bounds, the tightest first.
    pub bounds: Vec<FileCacheBound>,
}

/// A bound of the file cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileCacheBound {
    /// Maximum bytes of file pages.
    pub bytes: u64,
    /// What sets the bound: `the machine`, `the control group /a/b`.
    #[serde(rename = "limited_by")]
    pub set_by: String,
    /// Its terms, in bytes.
    pub terms: Vec<BoundTerm>,
    /// Where it was read.
    pub source: String,
}

/// A term of a sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoundTerm {
    /// What it is.
    #[serde(rename = "term")]
    pub name: &'static str,
    /// Its bytes, negative if subtracted.
    pub bytes: i64,
}

fn term(name: &'static str, bytes: i64) -> BoundTerm {
    BoundTerm { name, bytes }
}

/// The maximum file cache of this process without swapping.
///
/// # Errors
/// Why that is unknown.
pub fn file_cache(root: &Path) -> Result<FileCache, String> {
    let root = FileRoot::new(root);
    let text = root.read(MEMINFO)?;
    let mut bounds = vec![machine_bound(&text)?];
    bounds.extend(cgroup_bounds(root));
    // Stable: of two equal bounds the machine's comes first.
    bounds.indirect_sort_by_key(|bound| bound.bytes);
    Ok(FileCache { current_bytes: file_page_bytes(&text), bounds })
}

/// Bytes of pages of files, from the text of /proc/meminfo.
pub fn file_page_bytes(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, "Active(file)")?.checked_add(kibibytes(meminfo, "Inactive(file)")?)
}

/// The kernel's estimate of memory available without swapping, already less its reserves and what it cannot reclaim
/// (Documentation/filesystems/proc.rst, MemAvailable).
fn machine_bound(text: &str) -> Result<FileCacheBound, String> {
    let field = |key: &str| kibibytes(text, key);
    let bytes = field("MemAvailable")
        .ok_or_else(|| format!("{MEMINFO} has no line MemAvailable: the kernel is older than 3.14"))?;
    let parts = [
        ("free", field("MemFree")),
        ("file pages", file_page_bytes(text)),
        ("other kernel caches", field("SReclaimable")),
    ];
    let mut terms: Vec<BoundTerm> =
        parts.iter().filter_map(|&(name, bytes)| Some(term(name, i64::try_from(bytes?).ok()?))).collect();
    if terms.len() < parts.len() {
        terms.clear();
    } else {
        let sum = terms.iter().fold(0i64, |sum, term| sum.saturating_add(term.bytes));
        terms.push(term("the kernel's reserves", i64::try_from(bytes).unwrap_or(i64::MAX).saturating_sub(sum)));
    }
    Ok(FileCacheBound { bytes, set_by: "the machine".into(), terms, source: format!("{MEMINFO}, MemAvailable") })
}

/// The limits of the control group and its ancestors, less their usage other than file pages.
fn cgroup_bounds(root: FileRoot<'_>) -> Vec<FileCacheBound> {
    let Ok(groups) = ProcessCgroups::read(root) else { return Vec::new() };
    let Ok(Some(group_path)) = groups.controller_path("memory") else { return Vec::new() };
    let (files, prefix): (&[&str], &str) = match group_path.version {
        1 => (&["memory.limit_in_bytes"], "total_"),
        // Above `high` a group's memory is reclaimed, before it reaches its limit.
        _ => (&["memory.max", "memory.high"], ""),
    };
    let limits = files.iter().flat_map(|file| groups.read_with_ancestors(&group_path, file));
    let bound = |(name, text): (String, String)| {
        let limit = parse_limit(&text)??;
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut bound = FileCacheBound {
            bytes: limit,
            set_by: format!("the control group {directory}"),
            terms: vec![term("limit", i64::try_from(limit).ok()?)],
            source: name.clone(),
        };
        if let Some(unreclaimable) = unreclaimable_bytes(root, directory, prefix) {
            bound.bytes = limit.saturating_sub(unreclaimable);
            bound.terms.push(term("used, other than file pages", -i64::try_from(unreclaimable).ok()?));
        }
        Some(bound)
    };
    limits.filter_map(bound).collect()
}

/// A group's memory other than file pages and reclaimable caches.
fn unreclaimable_bytes(root: FileRoot<'_>, directory: &str, prefix: &str) -> Option<u64> {
    let file = |name: &str| root.text(&format!("{directory}/{name}"));
    let usage: u64 = file("memory.usage_in_bytes").or_else(|| file("memory.current"))?.parse().ok()?;
    let statistics = file("memory.stat")?;
    let field = |key: &str| value_of_key(&statistics, &format!("{prefix}{key}"), ' ')?.trim().parse::<u64>().ok();
    let files = field("active_file")?.checked_add(field("inactive_file")?)?;
    Some(usage.saturating_sub(files.saturating_add(field("slab_reclaimable").unwrap_or(0))))
}
