//! Study: the state of mapped pages, from the page tables as the kernel shows them.
//!
//! It shows which touches give a process a private page, and which leave it to the kernel, a file or another process.
//! It contains no times.

use std::io::Write;
use std::sync::Arc;

use kelvin_core::catalogue::mem::{
    MappedPage, PAGE_EXCLUSIVE, PAGE_FILE, PAGE_HUGE, PAGE_PRESENT, PAGE_STUDY, PAGE_ZERO, PageSize,
};
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod, HandoffSide};
use kelvin_sys::mapping::{self, FileMapping, memory_file, page_bytes};
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::pagemap::{PageState, frame_flags, page_states};
use kelvin_sys::partner::{PartnerKind, PartnerTask};

use super::axes::page_sizes;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: PAGE_STUDY.as_str(),
    summary: "The state of a mapped page: present, shared, huge, zero, by kind of mapping and touch",
    method: include_str!("page_flags.md"),
    cases,
    run,
    predict,
    ..Probe::study(&[&PAGE_PRESENT, &PAGE_FILE, &PAGE_EXCLUSIVE, &PAGE_HUGE, &PAGE_ZERO])
};

const DOCUMENTATION: &str = "Linux Documentation/admin-guide/mm/pagemap.rst";
/// Base pages of each kind: those of one huge page, for all kinds alike.
const BASE_PAGES: usize = 512;

/// What each kind of page must be: present, file, exclusive, huge, zero.
const EXPECTED_FLAGS: [(MappedPage, [bool; 5]); 7] = [
    (MappedPage::Untouched, [false, false, false, false, false]),
    (MappedPage::Read, [true, false, false, false, true]),
    (MappedPage::Written, [true, false, true, false, false]),
    (MappedPage::Forked, [true, false, false, false, false]),
    (MappedPage::Shared, [true, true, true, false, false]),
    (MappedPage::File, [true, true, true, false, false]),
    (MappedPage::Huge, [true, false, true, true, false]),
];

fn cases(machine: &Machine, _: Effort) -> Vec<Case> {
    let mut pages = MappedPage::ALL.to_vec();
    pages.retain(|&page| page != MappedPage::Huge || page_sizes(machine).contains(&PageSize::Huge));
    words(&pages)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let page = page_bytes();
    let kind = required(MappedPage::of(case), case)?;
    let (pages, text) = match kind {
        MappedPage::Untouched => observe_pages(Arena::map(BASE_PAGES * page, PagePolicy::Base)?.address())?,
        MappedPage::Read => {
            let arena = Arena::map(BASE_PAGES * page, PagePolicy::Base)?;
            mapping::read_pages(&arena, page, BASE_PAGES);
            observe_pages(arena.address())?
        }
        MappedPage::Written => observe_pages(written_arena(PagePolicy::Base)?.address())?,
        MappedPage::Forked => observe_forked(bench)?,
        MappedPage::Shared => observe_file(memory_file()?)?,
        MappedPage::File => {
            let path = bench.scratch().join(format!("kelvin-pages-{}", std::process::id()));
            let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            observe_file(file)?
        }
        MappedPage::Huge => observe_pages(written_arena(PagePolicy::Huge)?.address())?,
    };
    let reason = "needs a huge page, which the kernel did not provide: memory is fragmented, or huge pages are off";
    skip_if(kind == MappedPage::Huge && pages.iter().any(|page| page.huge == Some(false)), reason)?;
    bench.note(text);
    for (metric, flag) in FLAGS {
        // Before Linux 6.7 some are unknown.
        if pages.iter().all(|page| flag(page).is_some()) {
            let count = pages.iter().filter(|page| flag(page) == Some(true)).count();
            bench.record(metric, vec![count as f64 / pages.len().max(1) as f64]);
        }
    }
    Ok(())
}

/// A flag of a page, where the kernel reports it.
type PageFlag = fn(&PageState) -> Option<bool>;

/// The flags that are recorded, each with its metric.
static FLAGS: [(&Metric, PageFlag); 5] = [
    (&PAGE_PRESENT, |page| Some(page.present)),
    (&PAGE_FILE, |page| Some(page.file)),
    (&PAGE_EXCLUSIVE, |page| Some(page.exclusive)),
    (&PAGE_HUGE, |page| page.huge),
    (&PAGE_ZERO, |page| page.zero),
];

/// What the pages are while they are mapped, also in words.
fn observe_pages(address: usize) -> ProbeResult<(Vec<PageState>, String)> {
    let pages = page_states(address, BASE_PAGES)?;
    let text = describe(&pages)?;
    Ok((pages, text))
}

fn written_arena(kind: PagePolicy) -> ProbeResult<Arena> {
    let mut arena = Arena::map(BASE_PAGES * page_bytes(), kind)?;
    mapping::write_pages(&mut arena, page_bytes(), BASE_PAGES);
    Ok(arena)
}

/// Written pages while a child has a copy of the page tables.
fn observe_forked(bench: &Bench<'_>) -> ProbeResult<(Vec<PageState>, String)> {
    let arena = written_arena(PagePolicy::Base)?;
    let channel = Arc::new(HandoffChannel::new(HandoffMethod::Pipe, PartnerKind::Process.scope())?);
    let partner_channel = Arc::clone(&channel);
    // It waits for a token that never comes, and is killed on drop.
    let _child = PartnerTask::start(PartnerKind::Process, bench.cpu(), move |_| {
        partner_channel.wait_for_turn(HandoffSide::Far)
    })?;
    observe_pages(arena.address())
}

/// Pages of a file, written page by page, mapped and read.
fn observe_file(mut file: std::fs::File) -> ProbeResult<(Vec<PageState>, String)> {
    let (page, bytes) = (page_bytes(), vec![1; page_bytes()]);
    (0..BASE_PAGES).try_for_each(|_| file.write_all(&bytes))?;
    let mapping = FileMapping::whole(&file, BASE_PAGES * page)?;
    mapping.read(0, page, BASE_PAGES);
    observe_pages(mapping.address())
}

/// What was found, in words.
fn describe(pages: &[PageState]) -> ProbeResult<String> {
    let count = |has_flag: fn(&PageState) -> bool| pages.iter().filter(|page| has_flag(page)).count();
    let mut text = format!(
        "of {} pages {} present, {} of a file or shared memory, {} exclusive, {} swapped, {} soft-dirty",
        pages.len(),
        count(|page| page.present),
        count(|page| page.file),
        count(|page| page.exclusive),
        count(|page| page.swapped),
        count(|page| page.soft_dirty)
    );
    if pages.iter().all(|page| page.huge.is_some()) {
        let (huge, zero) = (count(|page| page.huge == Some(true)), count(|page| page.zero == Some(true)));
        text.push_str(&format!(", {huge} of huge pages, {zero} the zero page"));
    } else {
        text.push_str("; huge pages and the zero page are unknown before Linux 6.7");
    }
    text.push_str(&match pages.iter().find_map(|page| page.frame) {
        Some(frame) => match frame_flags(frame)? {
            Some(flags) => format!("; frame {frame:#x}: {}", flags.join(", ")),
            None => format!("; frame {frame:#x}, whose flags this process may not read"),
        },
        None if count(|page| page.present) > 0 => {
            "; frame numbers are hidden from this process (they need CAP_SYS_ADMIN)".into()
        }
        None => String::new(),
    });
    Ok(text)
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let column = FLAGS.iter().position(|(flag_metric, _)| flag_metric.id == metric.id);
    let row = EXPECTED_FLAGS.iter().find(|(page, _)| MappedPage::of(case) == Some(*page));
    let (Some(column), Some((_, row))) = (column, row) else {
        return Err(NoPrediction::new(format!("{} of {case} is not documented", metric.id)));
    };
    let reason = format!("the expected share is zero, with which no ratio can be taken ({DOCUMENTATION})");
    unpredicted_if(!row[column], reason)?;
    // The kernel may be moving or scanning a page at that moment: 1 % is tolerated.
    let pages = fact("pages", BASE_PAGES as f64, Unit::Count, "the case").source(DOCUMENTATION);
    let share = count_of("pages of the kind", BASE_PAGES as u64) / pages;
    Ok(share.with_interval((0.99, 1.0)).predict(PredictionBasis::Spec, "all pages of the kind"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::AxisWord;

    #[test]
    fn shares_are_all_or_none() {
        with_facts(&[], |facts| {
            let predicted = |metric, page: MappedPage| predict(facts, metric, &Case::new().with_word(page));
            assert_eq!(predicted(&PAGE_ZERO, MappedPage::Read).unwrap().value, 1.0);
            assert!(
                predicted(&PAGE_ZERO, MappedPage::Written).is_err()
                    && predicted(&PAGE_PRESENT, MappedPage::Untouched).is_err()
            );
            let leaf = Case::new().with_word(AxisWord::new(MappedPage::AXIS, "leaf"));
            assert!(predict(facts, &PAGE_PRESENT, &leaf).unwrap_err().0.contains("kind=leaf"));
        });
    }

    #[test]
    fn observed_pages_are_described() {
        let page = PageState { present: true, exclusive: true, ..PageState::default() };
        let text = describe(&[page, PageState::default()]).unwrap();
        assert!(text.starts_with("of 2 pages 1 present, 0 of a file or shared memory, 1 exclusive"), "{text}");
        assert!(text.contains("before Linux 6.7") && text.ends_with("CAP_SYS_ADMIN)"), "{text}");
    }
}
