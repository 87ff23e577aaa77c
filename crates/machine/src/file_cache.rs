//! The maximum size of the file cache: its bounds, each with its derivation.

use std::path::Path;

use crate::cgroups::Groups;
use crate::limits;
use crate::memory::{MEMINFO, kibibytes};
use crate::text::{Root, value};

/// The size of the file cache, and its maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCache {
    /// Bytes in file pages now, on the whole machine, if known.
    pub now: Option<u64>,
    /// Its bounds, the tightest first.
    pub bounds: Vec<Bound>,
}

/// A bound of the file cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum bytes of file pages.
    pub bytes: u64,
    /// What sets the bound: `the machine`, `the control group /a/b`.
    pub of: String,
    /// Its terms, in bytes.
    pub terms: Vec<Term>,
    /// Where it was read.
    pub source: String,
}

/// A term of a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// What it is.
    pub what: &'static str,
    /// Its bytes, negative if subtracted.
    pub bytes: i64,
}

fn term(what: &'static str, bytes: i64) -> Term {
    Term { what, bytes }
}

/// The maximum file cache of this process without swapping.
///
/// # Errors
/// Why that is unknown.
pub fn file_cache(root: &Path) -> Result<FileCache, String> {
    let root = Root::new(root);
    let text = root.read(MEMINFO)?;
    let mut bounds = vec![of_machine(&text)?];
    bounds.extend(of_groups(root));
    // Stable: of two equal bounds the machine's comes first.
    bounds.sort_by_key(|bound| bound.bytes);
    Ok(FileCache { now: pages_of_files(&text), bounds })
}

/// Bytes of pages of files, from the text of /proc/meminfo.
pub fn pages_of_files(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, ACTIVE)?.checked_add(kibibytes(meminfo, INACTIVE)?)
}

const ACTIVE: &str = "Active(file)";
const INACTIVE: &str = "Inactive(file)";

/// The kernel's estimate of memory available without swapping, already less its reserves and what it cannot reclaim
/// (Documentation/filesystems/proc.rst, MemAvailable).
fn of_machine(text: &str) -> Result<Bound, String> {
    let field = |key: &str| kibibytes(text, key);
    let bytes = field("MemAvailable")
        .ok_or_else(|| format!("{MEMINFO} has no line MemAvailable: the kernel is older than 3.14"))?;
    let parts = [
        ("free", field("MemFree")),
        ("file pages", pages_of_files(text)),
        ("other kernel caches", field("SReclaimable")),
    ];
    let mut terms: Vec<Term> =
        parts.iter().filter_map(|&(what, bytes)| Some(term(what, i64::try_from(bytes?).ok()?))).collect();
    if terms.len() < parts.len() {
        terms.clear();
    } else {
        let sum = terms.iter().fold(0i64, |sum, term| sum.saturating_add(term.bytes));
        terms.push(term("the kernel's reserves", i64::try_from(bytes).unwrap_or(i64::MAX).saturating_sub(sum)));
    }
    Ok(Bound { bytes, of: "the machine".into(), terms, source: format!("{MEMINFO}, MemAvailable") })
}

/// The limits of the control group and its ancestors, less their usage other than file pages.
fn of_groups(root: Root<'_>) -> Vec<Bound> {
    let Ok(groups) = Groups::read(root) else { return Vec::new() };
    let Ok(Some(place)) = groups.place("memory") else { return Vec::new() };
    let (files, prefix): (&[&str], &str) = match place.version {
        1 => (&["memory.limit_in_bytes"], "total_"),
        // Above `high` a group's memory is reclaimed, before it reaches its limit.
        _ => (&["memory.max", "memory.high"], ""),
    };
    let limits = files.iter().flat_map(|file| groups.chain(&place, file));
    let bound = |(name, text): (String, String)| {
        let limit = limits::amount(&text)?;
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        let mut bound = Bound {
            bytes: limit,
            of: format!("the control group {directory}"),
            terms: vec![term("limit", i64::try_from(limit).ok()?)],
            source: name.clone(),
        };
        if let Some(kept) = kept(root, directory, prefix) {
            bound.bytes = limit.saturating_sub(kept);
            bound.terms.push(term("used, other than file pages", -i64::try_from(kept).ok()?));
        }
        Some(bound)
    };
    limits.filter_map(bound).collect()
}

/// A group's memory other than file pages and reclaimable caches.
fn kept(root: Root<'_>, directory: &str, prefix: &str) -> Option<u64> {
    let file = |name: &str| root.text(&format!("{directory}/{name}"));
    let used: u64 = file("memory.usage_in_bytes").or_else(|| file("memory.current"))?.parse().ok()?;
    let statistics = file("memory.stat")?;
    let field = |key: &str| value(&statistics, &format!("{prefix}{key}"), ' ')?.trim().parse::<u64>().ok();
    let files = field("active_file")?.checked_add(field("inactive_file")?)?;
    Some(used.saturating_sub(files.saturating_add(field("slab_reclaimable").unwrap_or(0))))
}
