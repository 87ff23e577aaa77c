//! The size of the kernel's read-ahead windows, once it has seen that a file is read in order.
//!
//! It is how much a device has in flight for a sequential reader. It must not be taken for random reads, for which nothing is
//! read ahead.

use std::fs::File;

use kelvin_core::catalogue::file::READ_AHEAD;
use kelvin_sys::mapping::{FileMapping, advise_access, is_unmappable, page_bytes};

use super::page_read;
use super::prelude::*;
use kelvin_core::units::bytes;

pub(super) static PROBE: Probe = Probe {
    summary: "The kernel's read-ahead windows, observed in the page cache instead of read from a setting",
    method: include_str!("read_ahead.md"),
    run,
    predict: |_, _, _| Err(NoPrediction::new("the limit of read-ahead is a setting, and this is its effect")),
    ..Probe::measure(&[&READ_AHEAD])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let target = test_files::sparse_file(bench, SHARED_BYTES)?;
    let steps = window_steps(&target)?;
    bench.note(describe_steps(&steps));
    bench.record(&READ_AHEAD, steps.into_iter().max().map(|largest| largest as f64).into_iter().collect());
    Ok(())
}

pub(super) fn describe_steps(steps: &[u64]) -> String {
    let words: Vec<String> = steps.iter().map(|&step| bytes(step)).collect();
    format!("windows read ahead: {}", words.join(", "))
}

/// Bytes of each read-ahead window, while a file of which nothing is in memory was read in order.
fn window_steps(target: &Target) -> ProbeResult<Vec<u64>> {
    let (file, mapping) = open_uncached(target)?;
    let (file_bytes, page) = (target.bytes() as usize, page_bytes());
    let (mut steps, mut covered) = (Vec::new(), 0);
    for offset in (0..file_bytes).step_by(page) {
        page_read::read_byte(&file, offset as u64)?;
        // How many pages came is checked only when the next one has.
        if covered < file_bytes && mapping.resident(covered, page)?[0] {
            let step = mapping.resident(covered, file_bytes - covered)?.iter().take_while(|&&page| page).count() * page;
            steps.push(step as u64);
            covered += step;
        }
    }
    Ok(steps)
}

/// Like `window_steps`, where every call may ask a server: one read for each window, of the first page that has not come.
///
/// To the kernel that is a file read in order, as it begins where the window before ended.
pub(super) fn missed_page_steps(target: &Target) -> ProbeResult<Vec<u64>> {
    let (file, mapping) = open_uncached(target)?;
    let (file_bytes, page) = (target.bytes() as usize, page_bytes());
    let (mut steps, mut covered) = (Vec::new(), 0);
    while covered < file_bytes {
        page_read::read_byte(&file, covered as u64)?;
        let step = mapping.resident(covered, file_bytes - covered)?.iter().take_while(|&&page| page).count() * page;
        fail_if(step == 0, format!("the page at {covered} that was read is not in memory"))?;
        steps.push(step as u64);
        covered += step;
    }
    Ok(steps)
}

/// A file of which nothing is in memory, opened afresh and announced as read in order.
fn open_uncached(target: &Target) -> ProbeResult<(File, FileMapping)> {
    set_cache_state(target, PageCacheState::Uncached)?;
    let file = target.open(Access::Buffered).map_err(probe_error)?;
    advise_access(&file, true)?;
    let mapping = FileMapping::whole(&file, target.bytes() as usize).map_err(|error| match is_unmappable(&error) {
        true => ProbeError::skip("needs files that can be mapped, to see what of them was read ahead"),
        false => error.into(),
    })?;
    Ok((file, mapping))
}

#[cfg(test)]
mod tests {
    use super::super::test_files::MIB;
    use super::*;

    #[test]
    fn read_ahead_steps_cover_file() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len(8 * MIB).unwrap();
        let target = Target::find(file.path()).unwrap();
        let steps = window_steps(&target).unwrap();
        assert_eq!(steps.iter().sum::<u64>(), 8 * MIB);
        // The first one is small: the kernel does not know yet that more will follow.
        assert!(steps.len() > 2 && steps[0] < MIB, "{steps:?}");
        let missed_steps = missed_page_steps(&target).unwrap();
        assert_eq!(missed_steps.iter().sum::<u64>(), 8 * MIB);
        // They begin as small; how they grow depends on what memory is free.
        assert!(missed_steps.len() > 2 && missed_steps[0] < MIB, "{missed_steps:?}");
    }
}
