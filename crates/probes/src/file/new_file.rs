//! The cost of a new file with its bytes: created, written through the page cache by pwrite or through a mapping, and closed.
//!
//! It is what arriving, copied and extracted files cost before anything is flushed. It must not be used for writing over bytes that
//! are there, which allocates nothing, nor for durable files.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use kelvin_core::catalogue::file::{ENTRY_ADD, ENTRY_CREATE, FillMethod, NEW_FILE, PAGE_READ, PAGE_WRITE};
use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::transfer_call::{FileWindow, PageAccess};

use super::prelude::*;
use super::test_files::{check_free_space, written_back_bytes};
use super::tree::RoundDirectory;

pub(super) static PROBE: Probe = Probe {
    summary: "Creating a file and writing it, by blocks or through a mapping, without flushing it",
    method: include_str!("new_file.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&NEW_FILE])
};

/// A small file, which is nearly all creation; one that shows the cost of a page; and one in which folios have grown.
pub(crate) const SMALL_FILE: u64 = 4 * KIB;
pub(crate) const MIDDLE_FILE: u64 = 16 * MIB;
pub(crate) const LARGE_FILE: u64 = 256 * MIB;
/// Blocks of pwrite, from the smallest that programs use, and the window of mmap.
pub(crate) const WRITE_BLOCKS: [u64; 4] = [512, 4 * KIB, 64 * KIB, MIB];
pub(crate) const MMAP_WINDOW: u64 = MIB;
/// Blocks that are written to a large file too, whose pages no cache holds.
pub(crate) const LARGE_FILE_BLOCKS: [u64; 2] = [64 * KIB, MIB];
/// A window of as many pages as one fault maps of a file that is read.
pub(crate) const SMALL_MMAP_WINDOW: u64 = 64 * KIB;

/// A file of this many bytes, filled by this many at a time.
pub(crate) fn filled_case(method: FillMethod, block: u64, bytes: u64) -> Case {
    Case::new().with_word(method).with_number(BLOCK, block).with_number(BYTES, bytes)
}

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let [smallest, page, default_block, largest] = WRITE_BLOCKS;
    let cases_of =
        |method: FillMethod, block: u64, sizes: &[u64]| words(&[method]).numbers(BLOCK, &[block]).numbers(BYTES, sizes);
    let mut cases = cases_of(FillMethod::Write, default_block, &[MIDDLE_FILE]);
    cases.extend(cases_of(FillMethod::Mmap, MMAP_WINDOW, &[MIDDLE_FILE]));
    cases.extend(cases_of(FillMethod::MmapRandom, MMAP_WINDOW, &[MIDDLE_FILE]));
    if effort > Effort::Quick {
        cases.extend(cases_of(FillMethod::Write, page, &[SMALL_FILE, MIDDLE_FILE]));
    }
    if effort > Effort::Default {
        cases.extend([smallest, largest].map(|block| filled_case(FillMethod::Write, block, MIDDLE_FILE)));
        cases.extend(LARGE_FILE_BLOCKS.map(|block| filled_case(FillMethod::Write, block, LARGE_FILE)));
        cases.push(filled_case(FillMethod::MmapRandom, SMALL_MMAP_WINDOW, MIDDLE_FILE));
        cases.extend(cases_of(FillMethod::Mmap, MMAP_WINDOW, &[SMALL_FILE, LARGE_FILE]));
        cases.extend(cases_of(FillMethod::MmapRandom, MMAP_WINDOW, &[SMALL_FILE, LARGE_FILE]));
    }
    cases
}

/// Bytes of the files of a round, and at most this many of them: where an inode is not used again soon, many make creation slow (see
/// file.metadata).
const ROUND_BYTES: u64 = 64 * MIB;
const MAX_FILES: u64 = 16;

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (block, bytes) = (required_number(BLOCK, case)?, required_number(BYTES, case)?);
    check_free_space(bench, bytes)?;
    let mut filler = FileFiller::new(required(FillMethod::of(case), case)?, block)?;
    // Removed on drop, with the files.
    let directory = RoundDirectory::create(bench, "new")?;
    let path = |number| directory.path().join(format!("kelvin-new-{}-{number}", std::process::id()));
    // A first file, untimed: the directory and the buffer are touched.
    filler.create_filled(&path(0), SMALL_FILE, bench.clock())?;
    let files = (ROUND_BYTES / bytes).clamp(1, MAX_FILES);
    let ticks = (1..=files).map(|number| filler.create_filled(&path(number), bytes, bench.clock()));
    let ticks = ticks.collect::<ProbeResult<Vec<u64>>>()?;
    let written_bytes =
        (0..=files).map(|number| written_back_bytes(&Target::find(&path(number)).map_err(probe_error)?));
    bench.reserve_write(written_bytes.sum::<ProbeResult<u64>>()?)?;
    drop(directory);
    let times = ticks.into_iter().map(|ticks| bench.nanoseconds(ticks)).collect();
    bench.record(&NEW_FILE, times);
    Ok(())
}

/// What files are filled with.
enum FileFiller {
    Write(Vec<u8>),
    Mmap { window: FileWindow, zeros: File },
}

impl FileFiller {
    fn new(method: FillMethod, block: u64) -> ProbeResult<Self> {
        let bytes = block as usize;
        Ok(match method {
            FillMethod::Write => Self::Write(vec![0x5a; bytes]),
            FillMethod::Mmap | FillMethod::MmapRandom => {
                let window = FileWindow::reserve(bytes.div_ceil(page_bytes()), PageAccess::Write)?;
                let window = if method == FillMethod::Mmap { window } else { window.without_readahead() };
                Self::Mmap { window, zeros: File::open("/dev/zero")? }
            }
        })
    }

    /// The ticks of making a file.
    fn create_filled(&mut self, path: &Path, bytes: u64, clock: Clock) -> ProbeResult<u64> {
        let start = clock.start();
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.or_file_failure("create", path)?;
        let outcome = match self {
            Self::Write(block) => write_blocks(&file, block, bytes),
            Self::Mmap { window, zeros } => write_mapped(&file, window, zeros, bytes),
        };
        drop(file);
        let end = clock.stop();
        outcome.or_file_failure("write", path).map(|()| end.wrapping_sub(start))
    }
}

fn write_blocks(file: &File, block: &[u8], bytes: u64) -> Result<(), Error> {
    let mut offset = 0;
    while offset < bytes {
        let part = block.len().min((bytes - offset) as usize);
        file.write_all_at(&block[..part], offset)?;
        offset += part as u64;
    }
    Ok(())
}

fn write_mapped(file: &File, window: &mut FileWindow, zeros: &File, bytes: u64) -> Result<(), Error> {
    file.set_len(bytes.next_multiple_of(page_bytes() as u64))?;
    let mut offset = 0;
    while offset < bytes {
        let mapped_bytes = window.map_part(file, offset, bytes - offset)?;
        let mut filled_bytes = 0;
        while filled_bytes < mapped_bytes {
            match window.fill(filled_bytes..mapped_bytes, zeros)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => filled_bytes += count,
            }
        }
        offset += mapped_bytes as u64;
    }
    file.set_len(bytes)?;
    window.unmap()
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (block, bytes) = (required_number(BLOCK, case)?, required_number(BYTES, case)?);
    let page = memory_budget::page_bytes(facts.machine());
    let pages = bytes.div_ceil(page);
    let (order, writes) = match required(FillMethod::of(case), case)? {
        FillMethod::Write if block > page => (AccessOrder::Sequential, 0),
        FillMethod::Write => (AccessOrder::Random, bytes.div_ceil(block).saturating_sub(pages)),
        FillMethod::Mmap => (AccessOrder::Sequential, pages),
        FillMethod::MmapRandom => (AccessOrder::Random, pages),
    };
    let create_inode = measured(facts, &ENTRY_CREATE, &Case::new())?;
    let add_entry = measured(facts, &ENTRY_ADD, &Case::new())?;
    let new_page = measured(facts, &PAGE_READ, &page_read_case(CacheState::Uncached, order))?;
    let mut file = create_inode + add_entry + count_of("pages", pages) * new_page;
    if writes > 0 {
        let write = measured(facts, &PAGE_WRITE, &page_write_case(1, AccessOrder::Sequential))?;
        file = file + count_of("writes", writes).variant("writes") * write;
    }
    Ok(derived_time::predict_from_parts(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_harness::MeasuredValue;
    use kelvin_sys::clock::ScriptedClock;

    #[test]
    fn new_file_has_expected_size_and_content() {
        let directory = tempfile::tempdir().unwrap();
        let (page, clock) = (page_bytes() as u64, Clock::Scripted(ScriptedClock::leak(7)));
        for bytes in [1, page, 3 * page + 1] {
            for (method, byte) in [(FillMethod::Write, 0x5a), (FillMethod::Mmap, 0), (FillMethod::MmapRandom, 0)] {
                let path = directory.path().join(format!("{}-{bytes}", method.name()));
                let ticks = FileFiller::new(method, 2 * page).unwrap().create_filled(&path, bytes, clock).unwrap();
                assert_eq!(ticks, 7);
                assert_eq!(std::fs::read(&path).unwrap(), vec![byte; bytes as usize]);
                let second_fill = FileFiller::new(method, page).unwrap().create_filled(&path, bytes, clock);
                assert!(matches!(second_fill, Err(ProbeError::Fail(_))), "a file is not written over");
            }
        }
    }

    #[test]
    fn new_file_cost_is_inode_entry_pages() {
        let measured = |id: &str, case: &Case| {
            let values = [(&ENTRY_CREATE, 5000.0), (&ENTRY_ADD, 3000.0), (&PAGE_WRITE, 1500.0)];
            let value = match AccessOrder::of(case) {
                Some(order) if PAGE_READ.id == *id => {
                    if order == AccessOrder::Random {
                        1000.0
                    } else {
                        600.0
                    }
                }
                _ => values.iter().find(|(metric, _)| metric.id == *id)?.1,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let machine = machine();
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |method, block, bytes| predict(&facts, &NEW_FILE, &filled_case(method, block, bytes)).unwrap();
        assert_eq!(predicted(FillMethod::Write, 4 * KIB, SMALL_FILE).value, 9000.0);
        assert_eq!(predicted(FillMethod::Write, 4 * KIB, 10 * SMALL_FILE).value, 18_000.0);
        assert_eq!(predicted(FillMethod::Write, 64 * KIB, 10 * SMALL_FILE).value, 14_000.0);
        // Seven of eight writes meet a page that is there.
        assert_eq!(predicted(FillMethod::Write, 512, 10 * SMALL_FILE).value, 18_000.0 + 70.0 * 1500.0);
        assert_eq!(predicted(FillMethod::Mmap, MMAP_WINDOW, 10 * SMALL_FILE).value, 14_000.0 + 15_000.0);
        let random = predicted(FillMethod::MmapRandom, MMAP_WINDOW, 10 * SMALL_FILE);
        assert_eq!((random.value, random.low, random.inputs.len()), (33_000.0, 16_500.0, 4));
    }

    #[test]
    fn predictions_find_their_cases() {
        let thorough_cases = cases(&machine(), Effort::Thorough);
        for block in WRITE_BLOCKS {
            assert!(thorough_cases.contains(&filled_case(FillMethod::Write, block, MIDDLE_FILE)), "{block}");
        }
        for bytes in [SMALL_FILE, MIDDLE_FILE, LARGE_FILE] {
            assert!(thorough_cases.contains(&filled_case(FillMethod::MmapRandom, MMAP_WINDOW, bytes)), "{bytes}");
        }
        assert!(thorough_cases.contains(&filled_case(FillMethod::Write, WRITE_BLOCKS[1], SMALL_FILE)));
        assert!(thorough_cases.contains(&filled_case(FillMethod::MmapRandom, SMALL_MMAP_WINDOW, MIDDLE_FILE)));
    }
}
