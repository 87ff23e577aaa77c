//! The study of transfers, once for real: every cell over the small set and over one file, with what each end counted.

mod common;

use kelvin_catalogue::transfer::{
    BUFFER, Files, RECEIVER_CALLS, RECEIVER_FAULTS, Receiver, SENDER_CALLS, Sender, TIME, WINDOW,
};
use kelvin_harness::Effort;
use kelvin_model::{Case, Machine, Metric, Reading, Readings};

use kelvin_sys::mapping::page_bytes;

use common::{measure_if_possible, notes, of};

fn cases(set: Files) -> Vec<Case> {
    let probe = kelvin_probes::all().into_iter().find(|probe| probe.id == TIME.id.as_str()).unwrap();
    let of_set = |case: &Case| Files::of(case) == Some(set);
    (probe.cases)(&Machine::default(), Effort::Default).into_iter().filter(of_set).collect()
}

fn values(readings: &[Reading], metric: &Metric) -> Vec<f64> {
    match &of(readings, metric.id.as_str()).readings {
        Readings::Scalars(values) => values.clone(),
        Readings::Batches(_) => panic!("{} is recorded as it is", metric.id),
    }
}

#[test]
fn every_cell_moves_the_small_set_ten_times_and_compares_it() {
    for case in cases(Files::Small) {
        let Some(readings) = measure_if_possible(TIME.id.as_str(), &case, 1) else { return };
        let times = values(&readings, &TIME);
        assert!(times.len() == 10 && times.iter().all(|&time| time > 0.0), "{case}: {times:?}");
        assert!(
            notes(&readings).contains("10 files of 2412 and 2411 bytes; every trial's bytes were compared"),
            "{case}"
        );
    }
}

#[test]
fn each_end_makes_the_calls_of_its_method() {
    const BYTES: u64 = 12_022_885;
    for case in cases(Files::One) {
        let Some(readings) = measure_if_possible(TIME.id.as_str(), &case, 1) else { return };
        let least = |metric| values(&readings, metric).into_iter().fold(f64::INFINITY, f64::min);
        let (buffer, window) = (BUFFER.of(&case).unwrap(), WINDOW.of(&case).unwrap() * page_bytes() as u64);
        // Each buffer is read and sent, or received and written; each window is mapped and sent.
        let copying = (2 * BYTES.div_ceil(buffer)) as f64;
        let calls = least(&SENDER_CALLS);
        match Sender::of(&case).unwrap() {
            Sender::ReadWrite => assert!(calls >= copying, "{case}: {calls} calls"),
            Sender::Mmap => assert!(calls >= 2.0 * BYTES.div_ceil(window) as f64, "{case}: {calls} calls"),
        }
        match Receiver::of(&case).unwrap() {
            Receiver::ReadWrite => assert!(least(&RECEIVER_CALLS) >= copying, "{case}"),
            // A call into mapped memory may take less than a window, and each page is one that has to be made.
            Receiver::Mmap => assert!(least(&RECEIVER_FAULTS) > 0.0, "{case}"),
        }
    }
}
