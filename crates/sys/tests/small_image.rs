//! A small image for real: a test without the usual harness, because it needs a process of one thread.

use kelvin_sys::clock::Clock;
use kelvin_sys::fork_image::{SmallImage, fork_copy, resident_around, thread_count};
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::process::{ExitKind, SharedCell, SpawnProgram, fork_and_exit, fork_and_stamp, fork_worker};

const EXITS_WITH_FIVE: SpawnProgram = SpawnProgram::new(c"/bin/sh", [Some(c"-c"), Some(c"exit 5")]);

fn main() {
    assert_eq!(thread_count().unwrap(), 1);
    let mut arena = Arena::populated(4 << 20, PagePolicy::Base).unwrap();
    let full_copy = fork_copy().unwrap();
    assert!(full_copy.resident >= 4 << 20, "{full_copy:?}");

    let image = SmallImage::enter().unwrap();
    let small_copy = fork_copy().unwrap();
    assert!(
        small_copy.mappings < full_copy.mappings && small_copy.resident < 1 << 20,
        "{small_copy:?} of {full_copy:?}"
    );
    let cell = SharedCell::new().unwrap();
    for clock in [Clock::MonotonicRaw, Clock::Counter] {
        cell.set(0);
        fork_and_stamp(clock, &cell).unwrap().wait_for_success().unwrap();
        assert!(cell.get() > 0, "{clock:?}");
    }
    fork_and_exit().unwrap().wait_for_success().unwrap();
    assert_eq!(EXITS_WITH_FIVE.fork_and_execute().unwrap().wait().unwrap(), ExitKind::Exited(5));
    assert_eq!(EXITS_WITH_FIVE.spawn().unwrap().wait().unwrap(), ExitKind::Exited(5));
    let refusal = fork_worker(|| 0).unwrap_err().to_string();
    assert!(refusal.contains("no heap"), "{refusal}");
    assert!(SmallImage::enter().is_err(), "two images at the same time");

    // This process itself keeps what its children lack.
    arena.as_mut_slice()[0] = 7;
    assert!(resident_around(arena.address()).unwrap().bytes >= 4 << 20);
    drop(image);
    assert!(fork_copy().unwrap().resident >= 4 << 20);
    let work = fork_worker(|| arena.as_slice()[0]);
    assert_eq!(work.unwrap().wait().unwrap(), ExitKind::Exited(7));
}
