//! The study of transfers, once for real: every cell over the small set and over one file, with what each end counted.

mod common;

use kelvin_catalogue::transfer::{
    BUFFER, COLD, COLD_DEVICE, Files, Mode, RECEIVER_CALLS, RECEIVER_FAULTS, Receiver, SENDER_CALLS, SENDER_DEVICE,
    Sender, TIME, WINDOW, has_kernel_end,
};
use kelvin_harness::Effort;
use kelvin_model::{Case, Machine, Metric, Reading, Readings};

use kelvin_sys::mapping::page_bytes;

use common::{measure_if_possible, notes, of};

fn cases(metric: &Metric, set: Files) -> Vec<Case> {
    let probe = kelvin_probes::all().into_iter().find(|probe| probe.id == metric.id.as_str()).unwrap();
    // Ends in the kernel are tried by kmod/test, in a guest.
    let of_set = |case: &Case| Files::of(case) == Some(set) && !has_kernel_end(case);
    (probe.cases)(&Machine::default(), Effort::Default).into_iter().filter(of_set).collect()
}

fn values(readings: &[Reading], metric: &Metric) -> Vec<f64> {
    match &of(readings, metric.id.as_str()).readings {
        Readings::Scalars(values) => values.clone(),
        Readings::Batches(_) => panic!("{} is recorded as it is", metric.id),
    }
}

#[test]
fn every_cell_moves_the_small_set_five_times_and_compares_it() {
    for case in cases(&TIME, Files::Small) {
        let Some(readings) = measure_if_possible(TIME.id.as_str(), &case, 1) else { return };
        let times = values(&readings, &TIME);
        assert!(times.len() == 5 && times.iter().all(|&time| time > 0.0), "{case}: {times:?}");
        let notes = notes(&readings);
        assert!(
            notes.contains("10 files of 2412 and 2411 bytes") && notes.contains("every trial's bytes were compared")
        );
    }
}

#[test]
fn each_end_makes_the_calls_of_its_method() {
    const BYTES: u64 = 12_022_885;
    for case in cases(&TIME, Files::One) {
        let Some(readings) = measure_if_possible(TIME.id.as_str(), &case, 1) else { return };
        let least = |metric| values(&readings, metric).into_iter().fold(f64::INFINITY, f64::min);
        let (buffer, window) = (BUFFER.of(&case).unwrap(), WINDOW.of(&case).unwrap() * page_bytes() as u64);
        // Each buffer is read and sent, or received and written; each window is mapped and sent.
        let pieces = BYTES.div_ceil(buffer) as f64;
        let calls = least(&SENDER_CALLS);
        let needed = match Sender::of(&case).unwrap() {
            // In a ring a read and a send are two requests of one call, or several of each are.
            Sender::ReadWrite if Mode::of(&case) == Some(Mode::Uring) => pieces,
            Sender::ReadWrite | Sender::Splice | Sender::ZeroCopy => 2.0 * pieces,
            Sender::Mmap => 2.0 * BYTES.div_ceil(window) as f64,
            Sender::Sendfile => pieces,
            Sender::Uring => 1.0,
            Sender::KernelReadWrite | Sender::KernelMmap => unreachable!("left out above"),
        };
        assert!(calls >= needed, "{case}: {calls} calls");
        let calls = least(&RECEIVER_CALLS);
        match Receiver::of(&case).unwrap() {
            Receiver::ReadWrite if Mode::of(&case) != Some(Mode::Uring) => assert!(calls >= 2.0 * pieces, "{case}"),
            // A call into mapped memory may take less than a window, and each page is one that has to be made.
            Receiver::KernelReadWrite | Receiver::KernelMmap => unreachable!("left out above"),
            Receiver::Mmap => assert!(least(&RECEIVER_FAULTS) > 0.0, "{case}"),
            Receiver::ReadWrite | Receiver::Splice | Receiver::Uring => assert!(calls > 0.0, "{case}"),
        }
    }
}

#[test]
fn files_that_were_dropped_from_memory_are_fetched_and_others_are_not() {
    const BYTES: f64 = 12_022_885.0;
    for case in cases(&COLD, Files::One) {
        let Some(cold) = measure_if_possible(COLD.id.as_str(), &case, 1) else { return };
        assert_eq!(values(&cold, &COLD).len(), 5);
        // Whole pages, and what the kernel reads ahead ends with the file.
        assert!(
            values(&cold, &COLD_DEVICE).iter().all(|&bytes| bytes >= BYTES),
            "{case}: {:?}",
            values(&cold, &COLD_DEVICE)
        );
        let Some(hot) = measure_if_possible(TIME.id.as_str(), &case, 1) else { return };
        assert!(values(&hot, &SENDER_DEVICE).iter().all(|&bytes| bytes < BYTES), "{case}");
    }
}
