//! The study of transfers, once for real: every cell over the small set and over one file, with what each end counted.

mod common;

use kelvin_core::catalogue::transfer::{
    BUFFER, COLD_DEVICE, COLD_TIME, RECEIVER_CALLS, RECEIVER_FAULTS, ReceiverMethod, SENDER_CALLS, SENDER_DEVICE,
    SenderMethod, TIME, TransferFiles, WINDOW, WaitMode, has_kernel_end,
};
use kelvin_core::{Case, Machine, Metric, MetricReadings, Readings};
use kelvin_harness::Effort;

use kelvin_sys::mapping::page_bytes;

use common::{measure_if_possible, notes, reading_of};

fn cases(metric: &Metric, set: TransferFiles) -> Vec<Case> {
    let probe = kelvin_probes::all().into_iter().find(|probe| probe.id == metric.id.as_str()).unwrap();
    // Ends in the kernel are tried by kmod/test, in a guest.
    let is_in_set = |case: &Case| TransferFiles::of(case) == Some(set) && !has_kernel_end(case);
    (probe.cases)(&Machine::default(), Effort::Default).into_iter().filter(is_in_set).collect()
}

fn values(readings: &[MetricReadings], metric: &Metric) -> Vec<f64> {
    match &reading_of(readings, metric.id.as_str()).readings {
        Readings::Scalars(values) => values.clone(),
        Readings::Batches(_) => panic!("{} is recorded as it is", metric.id),
    }
}

#[test]
fn every_cell_moves_and_verifies_set() {
    for case in cases(&TIME, TransferFiles::Small) {
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
fn ends_make_calls_of_their_method() {
    const BYTES: u64 = 12_022_885;
    for case in cases(&TIME, TransferFiles::One) {
        let Some(readings) = measure_if_possible(TIME.id.as_str(), &case, 1) else { return };
        let minimum = |metric| values(&readings, metric).into_iter().fold(f64::INFINITY, f64::min);
        let (buffer, window) =
            (BUFFER.number_in(&case).unwrap(), WINDOW.number_in(&case).unwrap() * page_bytes() as u64);
        // Each buffer is read and sent, or received and written; each window is mapped and sent.
        let pieces = BYTES.div_ceil(buffer) as f64;
        let calls = minimum(&SENDER_CALLS);
        let min_calls = match SenderMethod::of(&case).unwrap() {
            // In a ring a read and a send are two requests of one call, or several of each are.
            SenderMethod::ReadWrite if WaitMode::of(&case) == Some(WaitMode::Uring) => pieces,
            SenderMethod::ReadWrite | SenderMethod::Splice | SenderMethod::ZeroCopy => 2.0 * pieces,
            SenderMethod::Mmap => 2.0 * BYTES.div_ceil(window) as f64,
            SenderMethod::Sendfile => pieces,
            SenderMethod::Uring => 1.0,
            SenderMethod::KernelReadWrite | SenderMethod::KernelMmap => unreachable!("left out above"),
        };
        assert!(calls >= min_calls, "{case}: {calls} calls");
        let calls = minimum(&RECEIVER_CALLS);
        match ReceiverMethod::of(&case).unwrap() {
            ReceiverMethod::ReadWrite if WaitMode::of(&case) != Some(WaitMode::Uring) => {
                assert!(calls >= 2.0 * pieces, "{case}")
            }
            // A call into mapped memory may take less than a window, and each page is one that has to be made.
            ReceiverMethod::KernelReadWrite | ReceiverMethod::KernelMmap => unreachable!("left out above"),
            ReceiverMethod::Mmap => assert!(minimum(&RECEIVER_FAULTS) > 0.0, "{case}"),
            ReceiverMethod::ReadWrite | ReceiverMethod::Splice | ReceiverMethod::Uring => {
                assert!(calls > 0.0, "{case}")
            }
        }
    }
}

#[test]
fn only_dropped_files_are_read_back() {
    const BYTES: f64 = 12_022_885.0;
    for case in cases(&COLD_TIME, TransferFiles::One) {
        let Some(cold_readings) = measure_if_possible(COLD_TIME.id.as_str(), &case, 1) else { return };
        assert_eq!(values(&cold_readings, &COLD_TIME).len(), 5);
        // Whole pages, and what the kernel reads ahead ends with the file.
        assert!(
            values(&cold_readings, &COLD_DEVICE).iter().all(|&bytes| bytes >= BYTES),
            "{case}: {:?}",
            values(&cold_readings, &COLD_DEVICE)
        );
        let Some(hot_readings) = measure_if_possible(TIME.id.as_str(), &case, 1) else { return };
        assert!(values(&hot_readings, &SENDER_DEVICE).iter().all(|&bytes| bytes < BYTES), "{case}");
    }
}
