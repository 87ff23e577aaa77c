//! The cost of a new file with its bytes: created, written through the page cache by pwrite or through a mapping, and closed.
//!
//! It is what arriving, copied and extracted files cost before anything is flushed. It must not be used for writing over bytes that
//! are there, which allocates nothing, nor for durable files.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kelvin_catalogue::file::{
    AccessOrder, BLOCK, BYTES, CacheState, ENTRY, ENTRY_ADD, ENTRY_MAKE, FilledBy, NEW, PAGE_READ, PAGE_WRITE,
};
use kelvin_file::Target;
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::clock::Clock;
use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::moving::{Access, Window};

use super::cases::{known, pages_read, pages_written, predictable};
use super::data::{KIB, MIB, cannot, has_room, stopped, written_back};
use super::expected::{self, time};
use super::tree::OwnPlace;
use crate::memory::allowance;
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: NEW.id.as_str(),
    summary: "Creating a file and writing it, by blocks or through a mapping, without flushing it",
    kind: ProbeKind::Measure,
    method: Method {
        how: "A file is created under a new name in a directory of the round, which lies in a place of its own on the disk (see \
              file.metadata), filled from its beginning to its end, and \
              closed; all of that is timed together, once a file. filled=write: one pwrite a block, from a buffer of \
              the program. filled=mmap: the file is first made as long as whole pages (ftruncate), and a window of so \
              many bytes of it at a time is mapped (shared) in the place of the last one and filled by one read from \
              /dev/zero, so that the kernel makes its pages within the call, as it does for recv; in the end it is cut \
              to its size and the window mapped away. filled=mmap-random: the same, each part being advised to be accessed \
              at random (madvise), so that a page that is written is not preceded by others that are read. Each call is checked. Nothing is flushed. A round makes 16 files or 64 MiB, or one that is larger; at its end what \
              the kernel has written back of them is counted against --write-limit, and they are removed.",
        prediction: "Creating the file, which is creating one without a name and adding a name (file.entry.make and \
                     file.entry.add), and all its pages: each is added to the page cache as one of a hole is \
                     (file.page_read, uncached). Pages that come one by one cost what they do in random order: those \
                     of blocks of a page or less, and of mmap-random. All others come in folios, as in order. A \
                     block that is smaller than a page is a write over a page that is there (file.page_write), but for \
                     the first of each. A page that is mapped is made writable besides, for which the file system does \
                     what it does for a write (file.page_write). Predicted range: a factor of two either way.",
        not_for: "Writing over bytes that are there (file.blocksize.write). Durable files (file.sync). Writing more \
                  than may be dirty, which waits for the device.",
        pitfalls: &[
            "A page of a hole that is mapped is read first, and the kernel reads ahead of it: the zeroed folios grow up \
             to 2 MiB. A file system with a record for each block of a folio (buffer heads, as ext4) walks all of them \
             at each first write to a page: from some 40 MiB on a page of such a file takes several times as long, \
             unless nothing is read ahead (mmap-random).",
            "pwrite of small blocks makes a folio for each page, of large ones larger folios: the cost of a page \
             depends on the block.",
            "Memory that was given back to the host is slow to touch again.",
        ],
        sources: &[
            "Linux mm/filemap.c: generic_perform_write, filemap_fault; mm/readahead.c: page_cache_ra_order",
            "Linux fs/ext4/inode.c: ext4_da_write_begin, ext4_page_mkwrite; fs/buffer.c: block_page_mkwrite, block_dirty_folio",
            "lmbench lat_fs: creation of small files",
        ],
    },
    metrics: &[&NEW],
    inputs: &[ENTRY.as_str(), PAGE_READ.id.as_str(), PAGE_WRITE.id.as_str()],
    cases,
    run,
    predict,
};

/// A small file, which is nearly all creation; one that shows the cost of a page; and one in which folios have grown.
pub(crate) const SMALL: u64 = 4 * KIB;
pub(crate) const MIDDLE: u64 = 16 * MIB;
pub(crate) const LARGE: u64 = 256 * MIB;
/// Blocks of pwrite, from the smallest that programs use, and the window of mmap.
pub(crate) const BLOCKS: [u64; 4] = [512, 4 * KIB, 64 * KIB, MIB];
pub(crate) const WINDOW: u64 = MIB;
/// Blocks that are written to a large file too, whose pages no cache holds.
pub(crate) const GROWN: [u64; 2] = [64 * KIB, MIB];
/// A window of as many pages as one fault maps of a file that is read.
pub(crate) const SMALL_WINDOW: u64 = 64 * KIB;

/// A file of so many bytes, filled by so many at a time.
pub(crate) fn filled(by: FilledBy, block: u64, bytes: u64) -> Case {
    Case::new().at(by).with(BLOCK, block).with(BYTES, bytes)
}

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let [small, page, usual, large] = BLOCKS;
    let mut all = vec![filled(FilledBy::Write, usual, MIDDLE), filled(FilledBy::Mmap, WINDOW, MIDDLE)];
    all.push(filled(FilledBy::MmapRandom, WINDOW, MIDDLE));
    if effort > Effort::Quick {
        all.extend([filled(FilledBy::Write, page, SMALL), filled(FilledBy::Write, page, MIDDLE)]);
    }
    if effort > Effort::Default {
        all.extend([filled(FilledBy::Write, small, MIDDLE), filled(FilledBy::Write, large, MIDDLE)]);
        all.extend(GROWN.map(|block| filled(FilledBy::Write, block, LARGE)));
        all.push(filled(FilledBy::MmapRandom, SMALL_WINDOW, MIDDLE));
        let mapped = [FilledBy::Mmap, FilledBy::MmapRandom];
        all.extend(mapped.into_iter().flat_map(|by| [SMALL, LARGE].map(|bytes| filled(by, WINDOW, bytes))));
    }
    all
}

/// Bytes of the files of a round, and at most so many of them: where an inode is not used again soon, many make creation slow (see
/// file.metadata).
const ROUND_BYTES: u64 = 64 * MIB;
const MOST_FILES: u64 = 16;

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (block, bytes) = (known(BLOCK.of(case), case)?, known(BYTES.of(case), case)?);
    has_room(bench, bytes)?;
    let mut filling = Filling::new(known(FilledBy::of(case), case)?, block)?;
    let place = OwnPlace::make(bench, "new")?;
    let mut made = Made { directory: place.path(), paths: Vec::new() };
    // A first file, untimed: the directory and the buffer are touched.
    made.one(|path| filling.make(path, SMALL, bench.clock()))?;
    let files = (ROUND_BYTES / bytes).clamp(1, MOST_FILES);
    let ticks = (0..files).map(|_| made.one(|path| filling.make(path, bytes, bench.clock())));
    let ticks = ticks.collect::<Result<Vec<u64>, Stop>>()?;
    bench.may_write(made.written_back()?)?;
    drop(made);
    let times = ticks.into_iter().map(|ticks| bench.nanoseconds(ticks)).collect();
    bench.record(&NEW, times);
    Ok(())
}

/// The files of a round, each with a name of its own; all are removed when dropped.
struct Made<'a> {
    directory: &'a Path,
    paths: Vec<PathBuf>,
}

impl Made<'_> {
    fn one(&mut self, make: impl FnOnce(&Path) -> Result<u64, Stop>) -> Result<u64, Stop> {
        let path = self.directory.join(format!("kelvin-new-{}-{}", std::process::id(), self.paths.len()));
        self.paths.push(path.clone());
        make(&path)
    }

    /// Bytes of them that have been written back.
    fn written_back(&self) -> Result<u64, Stop> {
        self.paths.iter().map(|path| written_back(&Target::find(path).map_err(stopped)?)).sum()
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}

/// What files are filled with.
enum Filling {
    Write(Vec<u8>),
    Mmap { window: Window, zeros: File },
}

impl Filling {
    fn new(by: FilledBy, block: u64) -> Result<Self, Stop> {
        let bytes = block as usize;
        Ok(match by {
            FilledBy::Write => Self::Write(vec![0x5a; bytes]),
            FilledBy::Mmap | FilledBy::MmapRandom => {
                let window = Window::reserve(bytes.div_ceil(page_bytes()), Access::Write)?;
                let window = if by == FilledBy::Mmap { window } else { window.without_reading_ahead() };
                Self::Mmap { window, zeros: File::open("/dev/zero")? }
            }
        })
    }

    /// The ticks of making a file.
    fn make(&mut self, path: &Path, bytes: u64, clock: Clock) -> Result<u64, Stop> {
        let begun = clock.start();
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|error| cannot("create", path, &error))?;
        let filled = match self {
            Self::Write(block) => write(&file, block, bytes),
            Self::Mmap { window, zeros } => map(&file, (window, zeros), bytes),
        };
        drop(file);
        let ended = clock.stop();
        filled.map_err(|error| cannot("write", path, &error)).map(|()| ended.wrapping_sub(begun))
    }
}

fn write(file: &File, block: &[u8], bytes: u64) -> Result<(), Error> {
    let mut done = 0;
    while done < bytes {
        let part = block.len().min((bytes - done) as usize);
        file.write_all_at(&block[..part], done)?;
        done += part as u64;
    }
    Ok(())
}

fn map(file: &File, (window, zeros): (&mut Window, &File), bytes: u64) -> Result<(), Error> {
    file.set_len(bytes.next_multiple_of(page_bytes() as u64))?;
    let mut done = 0;
    while done < bytes {
        let shown = window.show(file, done, bytes - done)?;
        let mut at = 0;
        while at < shown {
            match window.fill(at..shown, zeros)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => at += more,
            }
        }
        done += shown as u64;
    }
    file.set_len(bytes)?;
    window.clear()
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let (block, bytes) = (predictable(BLOCK.of(case), case)?, predictable(BYTES.of(case), case)?);
    let page = allowance::page_bytes(facts.machine());
    let pages = bytes.div_ceil(page);
    let (order, writes) = match predictable(FilledBy::of(case), case)? {
        FilledBy::Write if block > page => (AccessOrder::Sequential, 0),
        FilledBy::Write => (AccessOrder::Random, bytes.div_ceil(block).saturating_sub(pages)),
        FilledBy::Mmap => (AccessOrder::Sequential, pages),
        FilledBy::MmapRandom => (AccessOrder::Random, pages),
    };
    let make = facts.measured(&ENTRY_MAKE, &Case::new())?;
    let add = facts.measured(&ENTRY_ADD, &Case::new())?;
    let new = facts.measured(&PAGE_READ, &pages_read(CacheState::Uncached, order))?;
    let mut value = make.value + add.value + pages as f64 * new.value;
    let mut formula = format!("{} + {} + pages x {}", make.name, add.name, new.name);
    let mut derivation = format!("{} + {} + {pages} x {}", time(make.value), time(add.value), time(new.value));
    let mut inputs = vec![make, add, new];
    let name = if writes > 0 { "pages and writes" } else { "pages" };
    if writes > 0 {
        let write = facts.measured(&PAGE_WRITE, &pages_written(1, AccessOrder::Sequential))?;
        value += writes as f64 * write.value;
        formula.push_str(&format!(" + writes x {}", write.name));
        derivation.push_str(&format!(" + {writes} x {}", time(write.value)));
        inputs.push(write);
    }
    let predicting = Predicting::within_factor(Basis::Derived, value, expected::FACTOR).formula(name, formula);
    let predicting = predicting.inputs(inputs);
    Ok(predicting.derived_as(format!("{derivation} = {}", time(value))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_harness::MeasuredValue;
    use kelvin_sys::clock::Script;

    #[test]
    fn a_file_is_as_long_as_it_should_be_and_holds_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let (page, clock) = (page_bytes() as u64, Clock::Scripted(Script::leak(7)));
        for bytes in [1, page, 3 * page + 1] {
            for (by, byte) in [(FilledBy::Write, 0x5a), (FilledBy::Mmap, 0), (FilledBy::MmapRandom, 0)] {
                let path = directory.path().join(format!("{}-{bytes}", by.name()));
                let ticks = Filling::new(by, 2 * page).unwrap().make(&path, bytes, clock).unwrap();
                assert_eq!(ticks, 7);
                assert_eq!(fs::read(&path).unwrap(), vec![byte; bytes as usize]);
                let again = Filling::new(by, page).unwrap().make(&path, bytes, clock);
                assert!(matches!(again, Err(Stop::Fail(_))), "a file is not written over");
            }
        }
    }

    #[test]
    fn a_new_file_is_an_inode_a_name_and_pages() {
        let measured = |id: &str, case: &Case| {
            let known = [(&ENTRY_MAKE, 5000.0), (&ENTRY_ADD, 3000.0), (&PAGE_WRITE, 1500.0)];
            let value = match AccessOrder::of(case) {
                Some(order) if PAGE_READ.id == *id => {
                    if order == AccessOrder::Random {
                        1000.0
                    } else {
                        600.0
                    }
                }
                _ => known.iter().find(|(metric, _)| metric.id == *id)?.1,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let machine = machine();
        let facts = Facts::new(&machine, &measured);
        let of = |by, block, bytes| predict(&facts, &NEW, &filled(by, block, bytes)).unwrap();
        assert_eq!(of(FilledBy::Write, 4 * KIB, SMALL).value, 9000.0);
        assert_eq!(of(FilledBy::Write, 4 * KIB, 10 * SMALL).value, 18_000.0);
        assert_eq!(of(FilledBy::Write, 64 * KIB, 10 * SMALL).value, 14_000.0);
        // Seven of eight writes meet a page that is there.
        assert_eq!(of(FilledBy::Write, 512, 10 * SMALL).value, 18_000.0 + 70.0 * 1500.0);
        assert_eq!(of(FilledBy::Mmap, WINDOW, 10 * SMALL).value, 14_000.0 + 15_000.0);
        let random = of(FilledBy::MmapRandom, WINDOW, 10 * SMALL);
        assert_eq!((random.value, random.low, random.inputs.len()), (33_000.0, 16_500.0, 4));
    }

    #[test]
    fn predictions_find_their_cases() {
        let all = cases(&machine(), Effort::Thorough);
        for block in BLOCKS {
            assert!(all.contains(&filled(FilledBy::Write, block, MIDDLE)), "{block}");
        }
        for bytes in [SMALL, MIDDLE, LARGE] {
            assert!(all.contains(&filled(FilledBy::MmapRandom, WINDOW, bytes)), "{bytes}");
        }
        assert!(all.contains(&filled(FilledBy::Write, BLOCKS[1], SMALL)));
        assert!(all.contains(&filled(FilledBy::MmapRandom, SMALL_WINDOW, MIDDLE)));
    }
}
