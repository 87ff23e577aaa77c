//! How large the file cache can become: what bounds it, each bound with its derivation.

use std::path::Path;

use crate::cgroups::Groups;
use crate::limits;
use crate::memory::{MEMINFO, kibibytes};
use crate::text::{Root, value};

/// What the file cache has, and what it can have at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCache {
    /// Bytes that pages of files have now, on the whole machine, if that can be told.
    pub now: Option<u64>,
    /// What bounds it, the tightest first.
    pub bounds: Vec<Bound>,
}

/// One thing that bounds the file cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Most bytes that pages of files can have.
    pub bytes: u64,
    /// What sets the bound: `the machine`, `the control group /a/b`.
    pub of: String,
    /// The sum that it is, in bytes.
    pub terms: Vec<Term>,
    /// Where it was read.
    pub source: String,
}

/// A term of a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// What it is.
    pub what: &'static str,
    /// Its bytes, negative if it is taken off.
    pub bytes: i64,
}

fn term(what: &'static str, bytes: i64) -> Term {
    Term { what, bytes }
}

/// How large the file cache of this process can become, without any memory being swapped out.
///
/// # Errors
/// Why that cannot be told.
pub fn file_cache(root: &Path) -> Result<FileCache, String> {
    let root = Root::new(root);
    let text = root.read(MEMINFO)?;
    let mut bounds = vec![of_machine(&text)?];
    bounds.extend(of_groups(root));
    // Stable, so that of two equal ones the machine's is first.
    bounds.sort_by_key(|bound| bound.bytes);
    Ok(FileCache { now: pages_of_files(&text), bounds })
}

fn pages_of_files(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, ACTIVE)?.checked_add(kibibytes(meminfo, INACTIVE)?)
}

const ACTIVE: &str = "Active(file)";
const INACTIVE: &str = "Inactive(file)";

/// What the kernel itself says can be had without swapping: it has taken off what it keeps free, and what of the rest it
/// cannot give up (Documentation/filesystems/proc.rst, MemAvailable).
fn of_machine(text: &str) -> Result<Bound, String> {
    let field = |key: &str| kibibytes(text, key);
    let bytes = field("MemAvailable")
        .ok_or_else(|| format!("{MEMINFO} has no line MemAvailable: the kernel is older than 3.14"))?;
    let parts = [
        ("free", field("MemFree")),
        ("pages of files", pages_of_files(text)),
        ("other caches of the kernel", field("SReclaimable")),
    ];
    let mut terms: Vec<Term> =
        parts.iter().filter_map(|&(what, bytes)| Some(term(what, i64::try_from(bytes?).ok()?))).collect();
    if terms.len() < parts.len() {
        terms.clear();
    } else {
        let sum = terms.iter().fold(0i64, |sum, term| sum.saturating_add(term.bytes));
        terms.push(term("what the kernel keeps", i64::try_from(bytes).unwrap_or(i64::MAX).saturating_sub(sum)));
    }
    Ok(Bound { bytes, of: "the machine".into(), terms, source: format!("{MEMINFO}, MemAvailable") })
}

/// The limits of the control group and of those around it, less what of them is not pages of files.
fn of_groups(root: Root<'_>) -> Vec<Bound> {
    let Ok(groups) = Groups::read(root) else { return Vec::new() };
    let Ok(Some(place)) = groups.place("memory") else { return Vec::new() };
    let (files, prefix): (&[&str], &str) = match place.version {
        1 => (&["memory.limit_in_bytes"], "total_"),
        // Above `high` a group is made to give up memory, before it reaches its limit.
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
            bound.terms.push(term("what is used and no page of a file", -i64::try_from(kept).ok()?));
        }
        Some(bound)
    };
    limits.filter_map(bound).collect()
}

/// What a group uses that is neither pages of files nor other caches that can be given up.
fn kept(root: Root<'_>, directory: &str, prefix: &str) -> Option<u64> {
    let file = |name: &str| root.text(&format!("{directory}/{name}"));
    let used: u64 = file("memory.usage_in_bytes").or_else(|| file("memory.current"))?.parse().ok()?;
    let statistics = file("memory.stat")?;
    let field = |key: &str| value(&statistics, &format!("{prefix}{key}"), ' ')?.trim().parse::<u64>().ok();
    let files = field("active_file")?.checked_add(field("inactive_file")?)?;
    Some(used.saturating_sub(files.saturating_add(field("slab_reclaimable").unwrap_or(0))))
}
