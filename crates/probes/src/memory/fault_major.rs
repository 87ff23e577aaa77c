//! The cost of a major page fault: touching a mapped file page that must be read from disk.
//!
//! It is the latency that a program pays for cold mapped data. It must not be used as the speed of the disk: the kernel
//! may read ahead, and a host may have the page in memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_core::catalogue::file::{AccessOrder, CacheState, DEVICE_LATENCY, DEVICE_READ, PAGE_READ, READ_AHEAD};
use kelvin_core::catalogue::mem::{FAULT_MAJOR, FAULT_MINOR, ReadAhead, TOUCH_STEP};
use kelvin_file::{BlockOrder, BlockRequests, random_data};
use kelvin_sys::clock::Clock;
use kelvin_sys::mapping::{FileMapping, cached_pages, drop_cached, page_bytes};

use super::fault::{self, CountedTouches};
use crate::prelude::*;
use crate::room::has_room;

/// Samples count as found: waiting for the disk is the point, not a disturbance.
pub(crate) static PROBE: Probe = Probe {
    summary: "The touch of a mapped file page that must be read from disk, with and without read-ahead",
    method: include_str!("fault_major.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&FAULT_MAJOR])
};

const MIB: usize = 1 << 20;
/// Size of the file: four touches at the longest step, and little to write.
const FILE_BYTES: usize = 64 * MIB;
/// Seed of its content.
const SEED: u64 = 1;
/// Its name in the scratch directory.
const FILE_NAME: &str = "kelvin-major-faults";
const LONG_STEP_BYTES: usize = 16 * MIB;
/// Pages of a sequential pass.
const ROW_PAGES: usize = 1024;
/// Required free space in the scratch directory, as a multiple of the file.
const FREE_SPACE_FACTOR: u64 = 4;
/// Attempts to drop the file from the page cache, and the pause between them: pages still being read ahead are not
/// dropped, nor resident by mincore.
const MAX_DROP_ATTEMPTS: u32 = 20;
const DROP_RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Tolerated share of touches that are not exactly one major fault.
const MAX_MISCOUNT: f64 = 0.01;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let page = page_bytes();
    let mut cases = vec![(ReadAhead::On, LONG_STEP_BYTES), (ReadAhead::Off, page), (ReadAhead::On, page)];
    cases.truncate(if effort == Effort::Quick { 2 } else { 3 });
    let case = |(word, step): (ReadAhead, usize)| Case::new().with_word(word).with_number(TOUCH_STEP, step as u64);
    cases.into_iter().map(case).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (read_ahead, step) = (required(ReadAhead::of(case), case)?, required_number(TOUCH_STEP, case)? as usize);
    let order = match read_ahead {
        ReadAhead::On if step == page_bytes() => None,
        ReadAhead::Off if step == page_bytes() => Some(shuffled_pages(FILE_BYTES / step, bench.seed())),
        // Without read-ahead they are a control.
        _ if step > 0 && step < FILE_BYTES && step.is_multiple_of(page_bytes()) => Some(stepped_pages(step)),
        _ => return Err(ProbeError::fail(format!("there is no access pattern for the case {case}"))),
    };
    let path = shared_cold_file(bench.scratch())?;
    let mut file = ColdFile { read_ahead: read_ahead == ReadAhead::On, path, mapping: None };
    let proof = file.make_cold()?;
    match order {
        Some(order) => time_single_faults(bench, file, &order, &proof),
        None => time_rows(bench, file, &proof),
    }
}

/// Times touches alone, each of a page that is not resident.
fn time_single_faults(bench: &mut Bench<'_>, mut file: ColdFile, order: &[usize], proof: &str) -> ProbeResult {
    let clock = bench.clock();
    let trial = file.touch(clock, order[0], 1)?;
    let resident_pages = file.mapping()?.resident(0, FILE_BYTES)?.iter().filter(|&&page| page).count();
    bench.note(format!(
        "{proof}; the first touch caused {} major faults and left {resident_pages} pages in memory",
        trial.major_faults
    ));
    let mut offsets = order[1..].iter();
    let (mut touches, mut single_faults) = (0u64, 0u64);
    bench.time_each([&FAULT_MAJOR], |clock| {
        let offset = loop {
            match offsets.next() {
                Some(&offset) if file.is_absent(offset)? => break offset,
                // Read by an earlier touch, on a file system that reads several pages at a time.
                Some(_) => {}
                None => {
                    file.make_cold()?;
                    offsets = order.iter();
                }
            }
        };
        let touch = file.touch(clock, offset, 1)?;
        touches += 1;
        single_faults += u64::from(touch.major_faults == 1);
        Ok([touch.ticks])
    })?;
    let miscounted = touches - single_faults;
    let reason = format!(
        "{miscounted} of {touches} touches of absent pages did not cause exactly one major fault by getrusage: the \
         time is not that of a major fault"
    );
    fail_if(miscounted as f64 > MAX_MISCOUNT * touches as f64, reason)
}

/// Times rows of pages, each row in a file with nothing resident.
fn time_rows(bench: &mut Bench<'_>, mut file: ColdFile, proof: &str) -> ProbeResult {
    let row_bytes = ROW_PAGES * page_bytes();
    // Backwards: the kernel reads ahead beyond the end of a row, and none may begin there.
    let mut rows = (0..FILE_BYTES / row_bytes).rev().cycle();
    let trial = file.touch_row(bench.clock(), 0)?;
    bench.note(format!(
        "{proof}; {ROW_PAGES} consecutive pages caused {} major and {} minor faults in a trial",
        trial.major_faults, trial.minor_faults
    ));
    bench.time_each([&FAULT_MAJOR], |clock| {
        file.make_cold()?;
        let touches = file.touch_row(clock, rows.next().unwrap_or(0) * row_bytes)?;
        Ok([touches.ticks / ROW_PAGES as u64])
    })
}

/// The file; after [`ColdFile::make_cold`] nothing of it is in the page cache until touched.
struct ColdFile {
    path: PathBuf,
    read_ahead: bool,
    mapping: Option<FileMapping>,
}

impl ColdFile {
    /// Drops the file from the page cache and maps it afresh; returns the proof that nothing of it is left.
    fn make_cold(&mut self) -> ProbeResult<String> {
        // A mapped page is not dropped.
        self.mapping = None;
        let mut remaining = 0;
        for _ in 0..MAX_DROP_ATTEMPTS {
            let file = File::open(&self.path)?;
            drop_cached(&file, FILE_BYTES)?;
            let mapping = FileMapping::whole(&file, FILE_BYTES)?;
            let resident = mapping.resident(0, FILE_BYTES)?.iter().filter(|&&page| page).count() as u64;
            let cached = cached_pages(&file, FILE_BYTES)?;
            remaining = cached.unwrap_or(resident).max(resident);
            if remaining == 0 {
                if !self.read_ahead {
                    mapping.advise_order(false)?;
                }
                self.mapping = Some(mapping);
                return Ok(match cached {
                    Some(_) => "mincore and cachestat find no page in memory before a pass".into(),
                    None => "mincore finds no page in memory before a pass; cachestat is not available".into(),
                });
            }
            std::thread::sleep(DROP_RETRY_PAUSE);
        }
        Err(ProbeError::skip(format!(
            "needs a scratch directory on a disk (set TMPDIR): {remaining} of {} pages stay in memory after posix_fadvise, \
             as on tmpfs",
            FILE_BYTES / page_bytes()
        )))
    }

    fn mapping(&self) -> ProbeResult<&FileMapping> {
        self.mapping.as_ref().or_fail("the file is not mapped")
    }

    fn is_absent(&self, offset: usize) -> ProbeResult<bool> {
        Ok(self.mapping()?.resident(offset, page_bytes())? == [false])
    }

    /// Touches `pages` pages in a row.
    fn touch(&self, clock: Clock, offset: usize, pages: usize) -> ProbeResult<CountedTouches> {
        let (mapping, page) = (self.mapping()?, page_bytes());
        Ok(CountedTouches::count(clock, pages, || mapping.read(offset, page, pages)))
    }

    /// Touches a row of absent pages, at least one of which waits for the disk.
    fn touch_row(&self, clock: Clock, offset: usize) -> ProbeResult<CountedTouches> {
        let touches = self.touch(clock, offset, ROW_PAGES)?;
        if touches.major_faults == 0 {
            let reason = format!("{ROW_PAGES} touches of absent pages caused no major fault by getrusage");
            return Err(ProbeError::fail(reason));
        }
        Ok(touches)
    }
}

/// The file shared by all rounds of a run: if it exists, it is complete and synced.
fn shared_cold_file(scratch: &Path) -> ProbeResult<PathBuf> {
    let path = scratch.join(FILE_NAME);
    if path.metadata().is_ok_and(|metadata| metadata.len() == FILE_BYTES as u64) {
        return Ok(path);
    }
    has_room(scratch, FREE_SPACE_FACTOR * FILE_BYTES as u64)?;
    random_data::write_file(&path, FILE_BYTES as u64, SEED).or_fail(format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Places a step apart.
fn stepped_pages(step: usize) -> Vec<usize> {
    (0..FILE_BYTES).step_by(step).collect()
}

/// The places of all pages in random order.
fn shuffled_pages(pages: usize, seed: u64) -> Vec<usize> {
    let bytes = (pages * page_bytes()) as u64;
    BlockRequests::new(0..bytes, page_bytes(), BlockOrder::Random { seed })
        .map(|request| request.offset as usize)
        .collect()
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (time, name) = match (required(ReadAhead::of(case), case)?, TOUCH_STEP.number_in(case)) {
        // A touch that reads its page and no other.
        (ReadAhead::Off, _) => {
            let minor = measured(facts, &FAULT_MINOR, &fault::cached_file_case())?;
            (minor + measured(facts, &DEVICE_LATENCY, &Case::new())?, "fault and read")
        }
        (ReadAhead::On, Some(step)) if step == page_bytes() as u64 => (row_of_faults(facts)?, "windows of a row"),
        // A touch that reads a window around its page, compared with which the fault is little.
        (ReadAhead::On, _) => (window_around(facts)?.1, "a window"),
    };
    Ok(time.widen(SPREAD).derived(name))
}

/// Bytes of a window that is read around a touch, and the time of its pages, the device's latency and the transfer.
///
/// Of the window that was seen of a file announced as read in order the half, as the kernel doubles it for that. It
/// allocates all pages and requests them before it waits.
fn window_around(facts: &PredictionInputs<'_>) -> Predicted<(f64, Expr)> {
    let sequential_window = measured(facts, &READ_AHEAD, &Case::new())?;
    let case = Case::new().with_word(CacheState::Uncached).with_word(AccessOrder::Sequential);
    let page = measured(facts, &PAGE_READ, &case)?;
    let latency = measured(facts, &DEVICE_LATENCY, &Case::new())?;
    let rate = measured(facts, &DEVICE_READ, &Case::new())?;
    let window_factor =
        published("times the window if announced", SEQUENTIAL_WINDOW_FACTOR, Unit::Count, FADVISE_SOURCE);
    let window = sequential_window / window_factor;
    let pages = window.clone() / bytes_of("page", page_bytes() as u64);
    Ok((window.value(), pages * page + latency + window / rate))
}

/// How many times as large windows are of a file that is announced as read in order.
const SEQUENTIAL_WINDOW_FACTOR: f64 = 2.0;
const FADVISE_SOURCE: &str = "Linux mm/fadvise.c: POSIX_FADV_SEQUENTIAL doubles ra_pages";

/// Touches of a row of pages, each its share: windows that are read, of which the first is whole, and faults that map what is there.
fn row_of_faults(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    let minor = measured(facts, &FAULT_MINOR, &fault::fault_around_case())?;
    let (bytes, window) = window_around(facts)?;
    let pages = fact("pages of a row", ROW_PAGES as f64, Unit::Count, "the case");
    let (name, source) = ("pages of a fault with fault-around", fault::FAULT_AROUND_SOURCE);
    let mapped_pages = published(name, fault::FAULT_AROUND_PAGES, Unit::Count, source);
    let windows = ((ROW_PAGES * page_bytes()) as f64 / bytes).ceil().max(1.0);
    let row = quantity("windows", windows, Unit::Count) * window + pages.clone() / mapped_pages * minor;
    Ok(row / pages)
}

/// Predicted range, factor either way: device latency varies.
const SPREAD: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{machine, with_facts};

    #[test]
    fn shuffled_pages_are_a_permutation() {
        let order = shuffled_pages(1000, 7);
        assert_ne!(order, shuffled_pages(1000, 8));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).map(|page| page * page_bytes()).collect::<Vec<_>>());
        assert_eq!(stepped_pages(LONG_STEP_BYTES), [0, LONG_STEP_BYTES, 2 * LONG_STEP_BYTES, 3 * LONG_STEP_BYTES]);
    }

    #[test]
    fn baseline_case_is_in_every_run() {
        let baseline = Case::new().with_word(ReadAhead::On).with_number(TOUCH_STEP, 16 << 20);
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            assert!(cases(&machine(), effort).contains(&baseline));
        }
    }

    #[test]
    fn major_fault_is_minor_plus_read() {
        let values = [
            (FAULT_MINOR.id.as_str(), Some(300.0)),
            (DEVICE_LATENCY.id.as_str(), Some(50_000.0)),
            (DEVICE_READ.id.as_str(), Some(1e9)),
            (READ_AHEAD.id.as_str(), Some(2_048_000.0)),
            (PAGE_READ.id.as_str(), Some(500.0)),
        ];
        with_facts(&values, |facts| {
            let fault_time = |read_ahead: ReadAhead, step: usize| {
                let case = Case::new().with_word(read_ahead).with_number(TOUCH_STEP, step as u64);
                predict(facts, &FAULT_MAJOR, &case).unwrap().value
            };
            assert_eq!(fault_time(ReadAhead::Off, page_bytes()), 50_300.0);
            // 250 pages of a window, and its bytes; 4 MiB in five of them, and 64 faults of 16 pages.
            let window = 250.0 * 500.0 + 50_000.0 + 1_024_000.0;
            assert_eq!(fault_time(ReadAhead::On, LONG_STEP_BYTES), window);
            let row = fault_time(ReadAhead::On, page_bytes());
            assert!((row * 1024.0 - (5.0 * window + 64.0 * 300.0)).abs() < 1e-6, "{row}");
        });
    }
}
