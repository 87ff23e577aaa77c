//! The cost of one system call on a cached file that moves a single byte, or none.
//!
//! It is the overhead that a program pays for each request however small. It must not be used as the cost per byte: a call for
//! a page costs little more.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;

use kelvin_core::catalogue::file::{BYTE_CALLS, ByteCall, FILE_BYTES};
use kelvin_core::catalogue::mem::{self, LATENCY};
use kelvin_core::catalogue::os::SYSCALL_READ;
use kelvin_sys::syscall_loops;

use super::prelude::*;
use crate::os::syscall_null;

pub(crate) static PROBE: Probe = Probe {
    summary: "One-byte requests on a cached file by read, pread and lseek, by size of the file",
    method: include_str!("byte_calls.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&BYTE_CALLS])
};

/// The smallest file: fits the L2 cache of most processors.
const SMALL_FILE_BYTES: u64 = MIB;
/// A file beyond the last-level cache of most.
const LARGE_FILE_BYTES: u64 = 64 * MIB;
/// Millions of bytes of the files of an older study.
const PUBLISHED_MILLIONS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const MILLION: u64 = 1_000_000;
/// Calls of the trial.
const TRIAL_CALLS: u64 = 1 << 13;

/// The case of a read of the next byte, which stands for the cost of a call in other predictions.
pub(super) fn next_byte_case() -> Case {
    case(ByteCall::Read, SMALL_FILE_BYTES)
}

/// The case of the same at a place that is given.
pub(super) fn next_byte_at_case() -> Case {
    case(ByteCall::Pread, SMALL_FILE_BYTES)
}

fn case(call: ByteCall, bytes: u64) -> Case {
    Case::new().with_word(call).with_number(FILE_BYTES, bytes)
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    // The largest file that is brought into memory: an eighth of what is free there.
    let available = machine.memory.available_bytes.get().copied().unwrap_or(u64::MAX);
    let limit = machine.limits.memory_bytes.get().copied().flatten().unwrap_or(u64::MAX);
    let max_bytes = (available.min(limit) / 8).max(MIB);
    let base_sizes = |call: ByteCall| match (effort, call) {
        (Effort::Quick, ByteCall::PreadAnywhere) => Vec::new(),
        (Effort::Quick, _) | (_, ByteCall::Lseek | ByteCall::Pread) => vec![SMALL_FILE_BYTES],
        (_, ByteCall::Read | ByteCall::PreadAnywhere) => vec![SMALL_FILE_BYTES, LARGE_FILE_BYTES],
    };
    let published = if effort == Effort::Thorough { &PUBLISHED_MILLIONS[..] } else { &[] };
    let cases_of_call = |&call: &ByteCall| {
        let mut sizes = base_sizes(call);
        sizes.extend(published.iter().map(|size| size * MILLION));
        sizes.retain(|&bytes| bytes <= max_bytes);
        words(&[call]).numbers(FILE_BYTES, &sizes)
    };
    ByteCall::ALL.iter().flat_map(cases_of_call).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let call = required(ByteCall::of(case), case)?;
    let cached_file = CachedFile::open(bench, required_number(FILE_BYTES, case)?)?;
    let mut caller = ByteCaller::new(&cached_file.target, call, bench.seed())?;
    let (ticks, outcome) = bench.clock().time(|| caller.make_calls(TRIAL_CALLS));
    outcome?;
    let calls = 1e9 * TRIAL_CALLS as f64 / bench.nanoseconds(ticks);
    let bytes = match call {
        ByteCall::Lseek => "no bytes".into(),
        _ => format!("{:.2} MiB/s", calls / MIB as f64),
    };
    bench.note(format!("{}; in a trial {calls:.0} calls a second, {bytes}", cached_file.proof));
    bench.time(&BYTE_CALLS, |calls| Ok(caller.make_calls(calls)?))?;
    cached_file.check_resident()
}

/// A file, and where the next call goes.
struct ByteCaller {
    file: File,
    call: ByteCall,
    bytes: u64,
    position: u64,
    random: u64,
}

impl ByteCaller {
    fn new(target: &Target, call: ByteCall, seed: u64) -> ProbeResult<Self> {
        let bytes = target.bytes();
        fail_if(bytes == 0 || bytes > 1 << 32, format!("a file of {bytes} bytes is not between 1 byte and 4 GiB"))?;
        let file = target.open(Access::Buffered).map_err(probe_error)?;
        Ok(Self { file, call, bytes, position: 0, random: seed })
    }

    /// Makes this many calls, from the beginning again at the end of the file.
    fn make_calls(&mut self, calls: u64) -> std::io::Result<()> {
        let file = self.file.as_fd();
        if self.call == ByteCall::PreadAnywhere {
            let (random, bytes) = (&mut self.random, self.bytes);
            return syscall_loops::pread_loop(file, (0..calls).map(|_| random_offset(random, bytes)));
        }
        let mut remaining = calls;
        while remaining > 0 {
            let run = remaining.min(self.bytes - self.position);
            let places = self.position..self.position + run;
            match self.call {
                ByteCall::Read => syscall_loops::read_loop(file, run)?,
                ByteCall::Lseek => syscall_loops::lseek_loop(file, places)?,
                ByteCall::Pread | ByteCall::PreadAnywhere => syscall_loops::pread_loop(file, places)?,
            }
            remaining -= run;
            self.position += run;
            if self.position == self.bytes {
                self.position = 0;
                (&self.file).seek(SeekFrom::Start(0))?;
            }
        }
        Ok(())
    }
}

/// The next place below `bytes`, which are 2^32 at most: the upper half of Knuth's linear congruential generator.
#[inline(always)]
fn random_offset(random: &mut u64, bytes: u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*random >> 32) * bytes) >> 32
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (call, bytes) = (required(ByteCall::of(case), case)?, required_number(FILE_BYTES, case)?);
    let time = match call {
        ByteCall::Lseek => syscall_null::kernel_entry(facts)?.variant("null call"),
        // A byte of the page that the call before read too: the same call on a device in memory, and as much work again in the page cache.
        ByteCall::Read | ByteCall::Pread => {
            let read = measured(facts, &SYSCALL_READ, &Case::new())?.variant("read");
            let null = syscall_null::kernel_entry(facts)?;
            (read.clone() + (read - null).at_least_zero()).source(
                "Linux mm/filemap.c: filemap_read; fs/read_write.c: ksys_read; drivers/char/mem.c: read_iter_zero",
            )
        }
        // A byte anywhere in a file: the same call on the next byte, and a load from where a file of that size lies.
        ByteCall::PreadAnywhere => {
            let next = measured(facts, &BYTE_CALLS, &next_byte_at_case())?.variant("next byte");
            next + measured(facts, &LATENCY, &latency_case(facts.machine(), bytes))?
        }
    };
    Ok(derived_time::predict_from_parts(time))
}

/// The case of loads from a set that is as large as a file, and no larger than any that is measured.
fn latency_case(machine: &Machine, bytes: u64) -> Case {
    let largest = latency::memory_case(machine);
    let max_bytes = mem::BYTES.number_in(&largest).unwrap_or(LARGE_FILE_BYTES);
    largest.with_number(mem::BYTES, bytes.next_power_of_two().min(max_bytes))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SYSCALL_NULL;

    use super::*;
    use crate::testing::{machine, with_facts};
    use kelvin_core::Fact;

    #[test]
    fn seek_and_read_follow_from_syscalls() {
        with_facts(&[(SYSCALL_NULL.id.as_str(), Some(60.0)), (SYSCALL_READ.id.as_str(), Some(90.0))], |facts| {
            let predicted = |call: ByteCall, bytes| predict(facts, &BYTE_CALLS, &case(call, bytes)).unwrap();
            let seek = predicted(ByteCall::Lseek, SMALL_FILE_BYTES);
            assert_eq!((seek.value, seek.low, seek.high), (60.0, 30.0, 120.0));
            assert_eq!(predicted(ByteCall::Read, LARGE_FILE_BYTES).value, 120.0);
            assert_eq!(
                (
                    predicted(ByteCall::Pread, SMALL_FILE_BYTES).value,
                    predicted(ByteCall::Pread, SMALL_FILE_BYTES).inputs.len()
                ),
                (120.0, 2)
            );
        });
        with_facts(&[(SYSCALL_NULL.id.as_str(), Some(60.0))], |facts| {
            assert!(predict(facts, &BYTE_CALLS, &next_byte_case()).is_err());
        });
    }

    #[test]
    fn random_byte_adds_a_load() {
        let loads = |bytes: u64| match bytes {
            SMALL_FILE_BYTES => 6.0,
            LARGE_FILE_BYTES => 80.0,
            _ => panic!("no set of {bytes} bytes"),
        };
        let measured = |id: &str, case: &Case| {
            let value = match (*id == *BYTE_CALLS.id, ByteCall::of(case)) {
                (true, Some(ByteCall::Pread)) => 150.0,
                (true, _) => return None,
                _ => loads(mem::BYTES.number_in(case)?),
            };
            Some(kelvin_harness::MeasuredValue { value, half_width: 0.0 })
        };
        let machine = machine();
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |bytes| predict(&facts, &BYTE_CALLS, &case(ByteCall::PreadAnywhere, bytes)).unwrap();
        // A million bytes are in the same set as 1 MiB, and no set is larger than the largest, here of 64 MiB.
        assert_eq!(
            [MILLION, SMALL_FILE_BYTES, LARGE_FILE_BYTES, 256 * MILLION].map(|bytes| predicted(bytes).value),
            [156.0, 156.0, 230.0, 230.0]
        );
        assert_eq!(predicted(SMALL_FILE_BYTES).inputs.len(), 2);
        assert_eq!(latency_case(&machine, 1 << 40), latency::memory_case(&machine));
    }

    #[test]
    fn file_sizes_fit_memory() {
        let mut machine = machine();
        assert_eq!(cases(&machine, Effort::Quick).len(), 3);
        assert_eq!(cases(&machine, Effort::Default).len(), 6);
        assert_eq!(cases(&machine, Effort::Thorough).len(), 6 + 4 * 9);
        machine.memory.available_bytes = Fact::known(256 * MIB, "a test");
        let largest = cases(&machine, Effort::Thorough).iter().filter_map(|case| FILE_BYTES.number_in(case)).max();
        assert_eq!(largest, Some(32 * MILLION));
    }

    #[test]
    fn random_offsets_cover_file() {
        let (mut random, mut counts) = (7, [0u32; 10]);
        (0..10_000).for_each(|_| counts[random_offset(&mut random, 10) as usize] += 1);
        // A thousand of each expected, deviation 30.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(random_offset(&mut random, 1), 0);
    }
}
