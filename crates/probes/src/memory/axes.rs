//! The shared parameters of memory probes, and the memory that the kernel provided.

use crate::cases::required_word;
use crate::reasons::{OrReason, ProbeResult, fail_if, skip_if};
use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::{Axis, Case, Machine, units};
use kelvin_harness::ProbeError;
use kelvin_sys::fork_image::resident_around;
use kelvin_sys::mapping::page_bytes;
use kelvin_sys::memory::{Arena, PagePolicy};

/// The page sizes that make sense on a machine: base, and huge where the kernel may provide them.
pub(crate) fn page_sizes(machine: &Machine) -> &'static [PageSize] {
    let is_disabled = machine.memory.transparent_huge_pages.get().is_some_and(|mode| mode == "never");
    if is_disabled { &[PageSize::Base] } else { PageSize::ALL }
}

/// The pages that a case requests.
pub(crate) fn page_kind(case: &Case) -> ProbeResult<PagePolicy> {
    Ok(match required_word(PageSize::of(case), PageSize::ALL, case)? {
        PageSize::Base => PagePolicy::Base,
        PageSize::Huge => PagePolicy::Huge,
    })
}

/// A number that a case must have.
pub(crate) fn number(case: &Case, axis: Axis) -> ProbeResult<usize> {
    let value = axis.number_in(case).or_fail(format!("the case has no {}", axis.name))?;
    usize::try_from(value)
        .map_err(|_| ProbeError::fail(format!("{} {value} exceeds this machine's address range", axis.name)))
}

/// Lack of memory is not a failure of the probe: it is skipped, with what it needs.
pub(crate) fn skip_if_out_of_memory<T>(bytes: usize, allocation: kelvin_sys::Result<T>) -> ProbeResult<T> {
    let needed = units::bytes(bytes as u64);
    allocation.or_skip(format!("needs {needed} of memory, which cannot be allocated"))
}

/// Checks that all of the memory is resident, in huge pages or in none as requested, and reports it in words.
pub(crate) fn check_pages(arena: &Arena, pages: PagePolicy) -> ProbeResult<String> {
    let requested = arena.len() as u64;
    let mut resident = resident_around(arena.address())?;
    if resident.bytes < requested {
        // Linux before 6.5 leaves huge pages out of smaps that NUMA balancing has marked, to see who touches them next.
        arena.as_slice().iter().step_by(page_bytes()).for_each(|byte| {
            std::hint::black_box(*byte);
        });
        resident = resident_around(arena.address())?;
    }
    let reason = format!(
        "only {} of {requested} bytes are resident by smaps: the rest was swapped or reclaimed",
        resident.bytes
    );
    fail_if(resident.bytes < requested, reason)?;
    let huge = resident.huge;
    fail_if(pages == PagePolicy::Base && huge > 0, format!("{huge} bytes are in huge pages despite MADV_NOHUGEPAGE"))?;
    if pages == PagePolicy::Huge {
        check_all_huge(requested, huge)?;
    }
    Ok(format!("{requested} bytes requested; by smaps {} resident, {huge} in huge pages", resident.bytes))
}

/// Checks that memory has the huge pages that it requested.
pub(super) fn check_all_huge(requested: u64, huge: u64) -> ProbeResult {
    let reason = format!(
        "needs {requested} bytes in huge pages, but the kernel provided {huge}: memory is fragmented, or transparent huge \
         pages are off"
    );
    skip_if(huge < requested, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::catalogue::mem::BYTES;
    use kelvin_core::{AxisWord, Fact};

    #[test]
    fn case_words_are_parsed() {
        assert_eq!(page_kind(&Case::new().with_word(PageSize::Huge)), Ok(PagePolicy::Huge));
        let unknown = Case::new().with_word(AxisWord::new(PageSize::AXIS, "big"));
        assert_eq!(
            page_kind(&unknown),
            Err(ProbeError::fail("the case needs pages=base or pages=huge, not pages=big"))
        );
        assert_eq!(number(&Case::new().with_number(BYTES, 64), BYTES), Ok(64));
        assert_eq!(number(&Case::new(), BYTES), Err(ProbeError::fail("the case has no bytes")));
    }

    #[test]
    fn refused_pages_are_skipped() {
        let mut machine = testing::machine();
        assert_eq!(page_sizes(&machine), PageSize::ALL);
        machine.memory.transparent_huge_pages = Fact::known("never".into(), "a test");
        assert_eq!(page_sizes(&machine), [PageSize::Base]);
    }

    #[test]
    fn obtained_pages_are_distinguished_from_requested() {
        let arena = Arena::populated(64 << 10, PagePolicy::Base).unwrap();
        let note = check_pages(&arena, PagePolicy::Base).unwrap();
        assert!(note.starts_with("65536 bytes requested; by smaps ") && note.ends_with(" 0 in huge pages"), "{note}");
        let outcome = check_pages(&arena, PagePolicy::Huge);
        assert!(
            matches!(&outcome, Err(ProbeError::Skip(reason)) if reason.0.starts_with("needs 65536 bytes")),
            "{outcome:?}"
        );
        assert!(check_pages(&Arena::map(64 << 10, PagePolicy::Base).unwrap(), PagePolicy::Base).is_err());
    }
}
